import asyncio

import pytest

from proxy import offload
from proxy.errors import Code, VaultError
from proxy.model.query import AnyOf, Compares, Equals, InJson, Like, Op, Test
from proxy.model.record import RecordLimits
from proxy.model.rights import FULL, Rights
from proxy.storage.changes import Reindex
from proxy.storage.query import All, Any, Holds, Indexed, Is, Select, Where
from proxy.vault.part_index import grams
from proxy.vault.records import opening, query
from proxy.vault.records.opening import open_records
from proxy.vault.records.query import (
    CompiledQuery,
    PartialMatch,
    compile_query,
    cursor_context,
    open_cursor,
)
from tests.support.audit import audit_context
from tests.support.contacts import Contacts, contact, make_contacts


async def where(contacts: Contacts, *tests: Test) -> Where:
    asked = await compile_query(contacts.records, tests)
    assert isinstance(asked.where, All)
    assert asked.looks == ()
    (part,) = asked.where.parts
    return part


async def test_places_in_documents_are_hashes_of_leaves() -> None:
    contacts = await make_contacts()

    def hash_of(value: object, inside: bool) -> bytes:
        return contacts.records.leaf_hash("extra", ("a", 0), value, inside=inside)

    one = Any((Indexed((hash_of(5, False),)), Indexed((hash_of(5, True),))))
    assert await where(contacts, InJson("extra", ("a", 0), (5,), contains=False)) == one
    several = Indexed((hash_of(5, True), hash_of("x", True)))
    assert await where(contacts, InJson("extra", ("a", 0), (5, "x", 5), contains=True)) == several


async def test_a_text_is_looked_for_where_it_stands_in_the_clear_and_else_rows_are_opened() -> None:
    contacts = await make_contacts()
    (made,) = await contacts.add(contact("1", name="Hanna"))
    one = Is("@rid", (made.rid,))
    city = contacts.records.column("city")
    assert await where(contacts, Like(("city",), " ÅB ")) == Any((Holds(city, "åb"),))
    assert (await looked(contacts, Like(("name",), "ANN"))).where == All((Any((one,)),))
    negated = await looked(contacts, Like(("name",), "ann", negated=True))
    assert negated.where == All((All((one._replace(negated=True),)),))
    both = await looked(contacts, Like(("city", "name"), "ann"))
    assert both.where == All((Any((Holds(city, "ann"), one)),))


async def test_a_row_that_has_the_entries_of_a_text_by_chance_is_no_match() -> None:
    contacts = await make_contacts()
    (made, other) = await contacts.add(contact("1", name="Banana"), contact("2", name="Cherry"))
    records = contacts.records
    planted = tuple(records.hashes({"name": "Banana"}))
    await contacts.store.commit(records.collection.table, (Reindex(other.rid, add=planted),))
    for text in ("ban", "banana"):
        assert (await looked(contacts, Like(("name",), text))).looks[0].rids == {made.rid}
    with pytest.raises(VaultError) as caught:
        await looked(contacts, Like(("name",), "ban"), limits=RecordLimits(candidates=1))
    assert caught.value.code is Code.TOO_BROAD


async def test_alternatives_are_alternatives() -> None:
    contacts = await make_contacts()
    age = contacts.records.column("age")
    test = AnyOf(((Equals("age", (1,)), Equals("age", (2,))), (Equals("age", (3,)),)))
    assert await where(contacts, test) == Any(
        (All((Is(age, (1,)), Is(age, (2,)))), All((Is(age, (3,)),)))
    )


async def looked(
    contacts: Contacts, *tests: Test, limits: RecordLimits | None = None
) -> CompiledQuery:
    return await compile_query(contacts.records, tests, limits or RecordLimits())


async def test_rows_with_all_grams_of_a_longer_text_are_opened_and_only_those_that_hold_it_are_asked_for() -> (
    None
):
    contacts = await make_contacts()
    made = await contacts.add(
        contact("1", name="Banana"),
        contact("2", name="anan banan"),  # all grams of "banana", and yet not the text
        contact("3", name="xBANANAx"),
        contact("4", name=None),
        contact("5"),
    )
    assert grams("banana") <= grams("anan banan") | {"ana"}
    rids = frozenset((made[0].rid, made[2].rid))
    asked = await looked(contacts, Like(("name",), "banana"))
    assert asked.looks == (PartialMatch(("name",), "banana", rids),)
    assert asked.where == All((Any((Is("@rid", tuple(rids)),)),))
    inverse = await looked(contacts, Like(("name",), "Banana", negated=True))
    assert inverse.where == All((All((Is("@rid", tuple(rids), negated=True),)),))


async def test_other_tests_narrow_what_is_opened() -> None:
    contacts = await make_contacts()
    made = await contacts.add(*[contact(str(n), name="Banana", age=n) for n in range(5)])
    limits = RecordLimits(candidates=2)
    tests = (Like(("name",), "banana"), Compares("age", Op.LT, 2))
    assert (await looked(contacts, *tests, limits=limits)).looks[0].rids == {
        made[0].rid,
        made[1].rid,
    }
    with pytest.raises(VaultError) as caught:
        await looked(contacts, tests[0], limits=limits)
    assert caught.value.code is Code.TOO_BROAD
    assert "banana" not in caught.value.message.lower()


async def test_a_text_below_an_alternative_is_looked_for_too() -> None:
    contacts = await make_contacts()
    made = await contacts.add(contact("1", name="Banana"), contact("2", name="Cherry"))
    asked = await looked(contacts, AnyOf(((Like(("name",), "cherry"),), (Equals("city", ("x",)),))))
    assert asked.looks[0].rids == {made[1].rid}


async def test_more_candidates_than_a_page_are_all_looked_at_while_others_go_on(
    monkeypatch,
) -> None:
    monkeypatch.setattr(query, "CANDIDATE_PAGE", 4)
    monkeypatch.setattr(opening, "OPENED", 3)
    monkeypatch.setattr(offload, "SLICE", 0.0)
    contacts = await make_contacts()
    made = await contacts.add(
        *[contact(str(n), name="Banana" if n % 3 else "anan banan") for n in range(12)]
    )
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(others())
    asked = await looked(contacts, Like(("name",), "banana"))
    task.cancel()
    assert asked.looks[0].rids == {record.rid for number, record in enumerate(made) if number % 3}
    assert turns >= 3


async def test_what_does_not_open_is_no_match_and_is_counted() -> None:
    contacts = await make_contacts()
    made = await contacts.add(contact("1", name="Banana"), contact("2", name="Banana"))
    one, other = [await contacts.row(key) for key in "12"]
    assert one is not None
    assert other is not None
    found = await open_records(contacts.records, [one._replace(body=other.body), other])
    assert found == [made[1]]
    assert contacts.events["unopenable"] == 1


async def test_a_text_that_shrinks_below_a_gram_in_its_normal_form_is_refused() -> None:
    contacts = await make_contacts()
    with pytest.raises(VaultError) as caught:
        await looked(contacts, Like(("name",), "e\u0301a"))
    assert caught.value.code is Code.INVALID_FILTER


async def test_what_was_looked_at_stands_until_the_text_comes_or_goes() -> None:
    contacts = await make_contacts()
    (made,) = await contacts.add(contact("1", name="Banana"))
    seen = CompiledQuery(All(()), (PartialMatch(("name",), "banana", frozenset((made.rid,))),))
    unseen = CompiledQuery(All(()), (PartialMatch(("name",), "cherry", frozenset((made.rid,))),))
    assert seen.stands(made)
    assert not unseen.stands(made)


async def test_questions_are_understood_by_the_engine() -> None:
    contacts = await make_contacts()
    await contacts.add(contact("1", name="Banana", extra={"a": [1]}), contact("2", city="Umeå"))
    asked = await looked(contacts, AnyOf(((Like(("name",), "banana"),), (Like(("city",), "ME"),))))
    table, now = contacts.records.collection.table, contacts.clock()
    assert (await contacts.store.select(table, Select(asked.where, now))).total == 2


async def test_partial_matches_of_one_filter_share_the_bound_on_what_is_opened() -> None:
    contacts = await make_contacts()
    made = await contacts.add(
        contact("1", name="Banana boat"),
        contact("2", name="Banana boats"),
        contact("3", name="Cherry blossom"),
    )
    both = AnyOf(((Like(("name",), "banana boat"),), (Like(("name",), "cherry blossom"),)))
    first, second = (await looked(contacts, both, limits=RecordLimits(candidates=3))).looks
    assert first.rids == {made[0].rid, made[1].rid}
    assert second.rids == {made[2].rid}
    with pytest.raises(VaultError) as caught:
        await looked(contacts, both, limits=RecordLimits(candidates=2))
    assert caught.value.code is Code.TOO_BROAD


# ---- cursors


async def test_a_cursor_opens_in_its_own_context_alone():
    records = (await make_contacts()).records
    cursor = records.cursors.seal(b"place", cursor_context(records, "me", b"question"))
    assert b"place" not in cursor.encode()
    refusal = (Code.INVALID_OPTIONS, "/options/next")
    assert (
        open_cursor(records, cursor, cursor_context(records, "me", b"question"), refusal)
        == b"place"
    )
    other = records.under(Rights(FULL.actions, records.schema, mark="other"), None, audit_context())
    contexts = [
        cursor_context(records, "you", b"question"),
        cursor_context(records, "me", b"another"),
        cursor_context(records, "me"),
        cursor_context(other, "me", b"question"),
    ]
    for context, sent in [
        *((context, cursor) for context in contexts),
        (cursor_context(records, "me", b"question"), cursor[1:]),
    ]:
        with pytest.raises(VaultError) as caught:
            open_cursor(records, sent, context, refusal)
        assert (caught.value.code, caught.value.details[0].source) == refusal
