from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.model.record import Action, Record, RecordDraft
from proxy.storage.changes import Change, Conflict, Insert, Remove, Replace
from proxy.storage.query import RowPage, Select
from proxy.vault.records import update as module
from proxy.vault.records.commit import COMMIT_TRIES, no_changes
from proxy.vault.records.repository import Records
from proxy.vault.records.update import Sources, change_records, clone, merged
from tests.support.contacts import Contacts, contact, make_contacts
from tests.support.memory import MemoryStore
from tests.support.table import table
from tests.support.vaults import make_bench


async def change(
    contacts: Contacts, *drafts: RecordDraft, search_key: str | None = None
) -> list[Record]:
    return await change_records(
        contacts.records, drafts, "changer", no_changes, search_key=search_key
    )


async def refused(
    contacts: Contacts, *drafts: RecordDraft, search_key: str | None = None
) -> VaultError:
    with pytest.raises(VaultError) as caught:
        await change(contacts, *drafts, search_key=search_key)
    return caught.value


async def test_what_is_named_is_changed_and_the_rest_stays() -> None:
    contacts = await make_contacts()
    ends = contacts.clock() + 1000
    (first,) = await contacts.add(
        contact("a", name="Ann", city="Umeå", sum=Decimal(1), expires_at=ends)
    )
    contacts.clock.advance(5)
    (second,) = await change(contacts, contact("a", name="Eva", note=None))
    assert second.fields == {
        "id": "a",
        "name": "Eva",
        "city": "Umeå",
        "sum": Decimal(1),
        "note": None,
    }
    assert (second.created_at, second.updated_at, second.expires_at) == (
        first.created_at,
        first.created_at + 5,
        ends,
    )
    assert (second.version, second.action, second.by) == (2, Action.UPDATE, "changer")
    assert await contacts.get("a") == second
    (third,) = await change(contacts, contact("a", expires_at=None))
    assert (third.expires_at, third.version) == (None, 3)
    assert contacts.events["updated"] == 2


async def test_a_clock_that_is_set_back_does_not_move_updated_at_back() -> None:
    contacts = await make_contacts()
    (first,) = await contacts.add(contact("a"))
    contacts.clock.advance(-1000)
    (second,) = await change(contacts, contact("a", age=1))
    assert second.updated_at == first.updated_at


async def test_records_that_do_not_exist_are_left_out() -> None:
    contacts = await make_contacts()
    await contacts.add(contact("a"), contact("old", expires_at=contacts.clock()))
    made = await change(contacts, contact("x", age=1), contact("a", age=2), contact("old", age=3))
    assert [(record.key, record.fields["age"]) for record in made] == [("a", 2)]
    assert await change(contacts, contact("x", age=1)) == []


@table(
    ("search_key", "value", "spelled"),
    [
        ("city", "Umeå", " Umeå"),
        ("parent", "p", "p "),
        ("sum", Decimal("1.50"), Decimal("1.5")),
        ("age", 7, 7),
    ],
)
async def test_all_records_with_the_value_are_changed(
    search_key: str, value: Any, spelled: Any
) -> None:
    contacts = await make_contacts()
    nothing_there: dict[str, Any] = {search_key: None}
    await contacts.add(
        contact("a", **{search_key: value}),
        contact("b", **nothing_there),
        contact("c", **{search_key: value}),
        contact("gone", expires_at=contacts.clock(), **{search_key: value}),
    )
    made = await change(
        contacts, contact(None, note="n", **{search_key: spelled}), search_key=search_key
    )
    assert [(record.key, record.fields["note"]) for record in made] == [("a", "n"), ("c", "n")]
    stored = await contacts.get("b")
    assert stored is not None
    assert stored.version == 1


@table("search_key", ["id", "record_key"])
async def test_the_primary_key_is_a_search_key_like_none(search_key: str) -> None:
    contacts = await make_contacts()
    await contacts.add(contact("a"))
    assert len(await change(contacts, contact("a", age=1), search_key=search_key)) == 1


@table("search_key", ["note", "extra", "nobody", ""])
async def test_records_are_found_only_by_what_can_be_asked_for_equality(search_key: str) -> None:
    contacts = await make_contacts()
    error = await refused(contacts, contact("a"), search_key=search_key)
    assert (error.code, error.details[0].source) == (Code.INVALID_INPUT, "/search_key")


async def test_each_draft_needs_a_value_of_its_own_to_be_found_by() -> None:
    contacts = await make_contacts()
    error = await refused(
        contacts, contact("a", at="/0"), contact(None, at="/1"), contact("a", at="/2")
    )
    assert (error.code, [detail.source for detail in error.details]) == (
        Code.INVALID_RECORD,
        ["/1/id", "/2/id"],
    )
    drafts = [
        contact("a", city="x", at="/0"),
        contact("b", city=" x", at="/1"),
        contact("c", city=None, at="/2"),
    ]
    error = await refused(contacts, *drafts, search_key="city")
    assert [detail.source for detail in error.details] == ["/1/city", "/2/city"]


async def test_a_primary_key_cannot_be_changed_by_another_field() -> None:
    contacts = await make_contacts()
    await contacts.add(contact("a", city="x"))
    assert len(await change(contacts, contact("a", city="x", age=1), search_key="city")) == 1
    error = await refused(contacts, contact("b", city="x", at="/0"), search_key="city")
    assert (error.code, error.details[0].source) == (Code.INVALID_RECORD, "/0/id")


async def test_a_row_under_another_records_key_is_not_changed() -> None:
    contacts = await make_contacts()
    await contacts.add(contact("a"))
    row = await contacts.row("a")
    assert row is not None
    table = contacts.records.collection.table
    moved = row._replace(key=contacts.records.collection.key_hash("b"))
    await contacts.store.commit(table, [Remove(row.rid), Insert(moved)])
    assert (await refused(contacts, contact("b", age=1))).code is Code.CANNOT_OPEN


async def test_a_batch_with_a_row_that_does_not_open_changes_nothing() -> None:
    contacts = await make_contacts()
    await contacts.add(contact("a"), contact("b"))
    row = await contacts.row("b")
    assert row is not None
    table = contacts.records.collection.table
    await contacts.store.commit(table, [Replace(row._replace(body=bytes(60)), 1)])
    assert (
        await refused(contacts, contact("a", age=1), contact("b", age=1))
    ).code is Code.CANNOT_OPEN
    stored = await contacts.get("a")
    assert stored is not None
    assert stored.version == 1


async def test_an_update_of_too_many_records_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_UPDATED", 2)
    contacts = await make_contacts()
    await contacts.add(*[contact(key, city="x") for key in "abc"], contact("d", city="y"))
    assert (
        await refused(contacts, contact(None, city="x"), search_key="city")
    ).code is Code.UNPROCESSABLE
    assert len(await change(contacts, contact(None, city="y"), search_key="city")) == 1


async def test_parts_of_a_text_that_changed_find_the_record_no_more() -> None:
    contacts = await make_contacts()
    (made,) = await contacts.add(contact("a", name="Annabel", extra={"b": "stays"}))
    await change(contacts, contact("a", name="Isabel"))
    records = contacts.records
    gone, came = (records.hashes({"name": name}) for name in ("Annabel", "Isabel"))
    stays = records.leaf_hash("extra", ("b",), "stays", inside=False)
    found = await contacts.store.by_tokens(records.collection.table, (*(gone | came), stays))
    assert found == dict.fromkeys((*came, stays), (made.rid,))
    assert gone - came


class Overtaken(MemoryStore):
    """Lets so many replacements fail, as if others were faster."""

    times = 0

    async def commit(self, table: str, changes: Sequence[Change]) -> None:
        if self.times and any(isinstance(one, Replace) for one in changes):
            self.times -= 1
            raise Conflict(changes[0])
        await super().commit(table, changes)


async def test_an_update_that_is_overtaken_is_tried_again_but_not_for_ever() -> None:
    contacts = await make_contacts(store := Overtaken())
    await contacts.add(contact("a", city="x"))
    store.times = COMMIT_TRIES - 1
    assert (await change(contacts, contact("a", age=1)))[0].version == 2
    store.times = COMMIT_TRIES
    assert (
        await refused(contacts, contact(None, city="x"), search_key="city")
    ).code is Code.CONFLICT
    assert not len(contacts.records.collection.state.locks)


class Late(MemoryStore):
    """Answers a question, and then others are faster."""

    contacts: Contacts | None = None

    async def select(self, table: str, query: Select) -> RowPage:
        page = await super().select(table, query)
        if self.contacts is not None:
            contacts, self.contacts = self.contacts, None
            await change(
                contacts, contact("a", city="y"), contact("b", expires_at=contacts.clock())
            )
        return page


async def test_records_that_went_or_changed_between_two_looks_are_left_out() -> None:
    contacts = await make_contacts(store := Late())
    await contacts.add(contact("a", city="x"), contact("b", city="x"), contact("c", city="x"))
    store.contacts = contacts
    made = await change(contacts, contact(None, city="x", age=1), search_key="city")
    assert [record.key for record in made] == ["c"]


async def test_records_of_rules_are_refused() -> None:
    bench = await make_bench()
    with pytest.raises(VaultError) as caught:
        await change_records(Records(bench.people), [contact("a")], "x", no_changes)
    assert caught.value.code is Code.SCHEMA_OF_RULES


def test_a_draft_over_a_record_keeps_what_it_does_not_name() -> None:
    before = Record(1, "a", {"id": "a", "x": 1, "y": 2}, 1, 0, 0, 50)
    assert merged(before, RecordDraft(None, {"y": None})) == RecordDraft(
        "a", {"id": "a", "x": 1, "y": None}, 50
    )


# ---- clone


def these(records: Sequence[Record]) -> Sources:
    async def sources(limit: int) -> list[Record]:
        return list(records[:limit])

    return sources


async def clone_refused(
    contacts: Contacts, found: Sequence[Record], update_with: RecordDraft
) -> VaultError:
    with pytest.raises(VaultError) as caught:
        await clone(contacts.records, these(found), update_with, "x", no_changes)
    return caught.value


async def test_a_copy_is_a_new_record_with_other_values_where_they_are_given() -> None:
    contacts = await make_contacts()
    ends = contacts.clock() + 1000
    source = await contacts.add(contact("a", name="Ann", city="Umeå", note="n", expires_at=ends))
    contacts.clock.advance(5)
    (copy,) = await clone(
        contacts.records, these(source), contact("b", city=None, note="m"), "cloner", no_changes
    )
    assert copy.fields == {"id": "b", "name": "Ann", "city": None, "note": "m"}
    assert (copy.version, copy.action, copy.by, copy.expires_at) == (
        1,
        Action.CREATE,
        "cloner",
        ends,
    )
    assert copy.created_at == copy.updated_at == contacts.clock()
    assert copy.rid != source[0].rid
    assert [await contacts.get("a"), await contacts.get("b")] == [source[0], copy]
    (lasting,) = await clone(
        contacts.records, these(source), contact("c", expires_at=None), "x", no_changes
    )
    assert lasting.expires_at is None


async def test_one_key_serves_one_copy() -> None:
    contacts = await make_contacts()
    found = await contacts.add(contact("a"), contact("b"))
    error = await clone_refused(contacts, found, contact("c", at="/update_with"))
    assert (error.code, error.details[0].source) == (Code.UNPROCESSABLE, "/update_with/id")
    error = await clone_refused(contacts, found[:1], contact(None, age=1, at="/update_with"))
    assert (error.code, error.details[0].source) == (Code.UNPROCESSABLE, "/update_with/id")
    assert (await clone_refused(contacts, [], contact("c"))).code is Code.NO_MATCH
    error = await clone_refused(contacts, found[:1], contact("b", at="/update_with"))
    assert (error.code, error.details[0].source) == (Code.RECORD_EXISTS, "/update_with/id")
    assert await contacts.keys("a", "b", "c") == ["a", "b"]


async def test_records_of_rules_are_not_cloned() -> None:
    bench = await make_bench()
    with pytest.raises(VaultError) as caught:
        await clone(Records(bench.people), these([]), contact("a"), "x", no_changes)
    assert caught.value.code is Code.SCHEMA_OF_RULES
