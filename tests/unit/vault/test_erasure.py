"""The tokens of records that were deleted in the vault stand for no value, and nothing else of the
vault notices.
"""

from pathlib import Path

import pytest

from proxy.errors import VaultError
from proxy.model.schema import NO_VALUE, Value
from proxy.storage import open_store
from proxy.storage.query import All, Select
from proxy.storage.rows import ERASED_AT, TOKEN_RIDS, Row, StagedKind
from proxy.storage.transfer import copy_vault
from proxy.vault.body import RecordBody
from proxy.vault.column_binding import sealed_again
from proxy.vault.earlier_tokens import other_spellings
from proxy.vault.erasure import hosts_others, is_genuine_change, may_end
from proxy.vault.expiry import delete_expired, pending, reap
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.open_rows import AnswerObject
from proxy.vault.proxied.reveal import reveal_objects
from proxy.vault.proxied.staging import doubt, drop_staged, promote, stage_creates, stage_updates
from proxy.vault.records.commit import no_changes
from proxy.vault.records.delete import delete_many, delete_one
from proxy.vault.records.repository import Records
from proxy.vault.records.update import change_records
from tests.support.attached import Files, make_files
from tests.support.contacts import contact
from tests.support.postgres import fresh_address
from tests.support.rerooting import House, hash_house
from tests.support.table import table
from tests.support.vaults import Bench, draft, make_bench, person

__all__ = ["hash_house"]

ANN = {"name": "Ann", "email": "ann@example.com", "phone": "+46701234567", "born": "1931-02-27"}
DECADE = 3_653 * 86_400_000
Tokens = dict[str, str]


async def add(made: Bench, key: str | None, **values: str) -> Tokens:
    (held,) = await stage_creates(made.people, [draft(**values)], [None])
    if key is not None:
        await bind(made.people, [(held, key)])
    return {name: of[0].token for name, of in held.tokens.items()}


async def erase(made: Bench, *keys: str) -> None:
    await delete_many(Records(made.people), keys, "chief", no_changes)


async def shown(made: Bench, key: str | None, tokens: Tokens) -> dict[str, str | None]:
    """What an object with these tokens shows; ``None``: the token itself."""
    revealed = await reveal_objects(made.people, [AnswerObject(key, tuple(tokens.items()))])
    assert revealed.rows == [None] or revealed.rows[0].live.values  # type: ignore[union-attr]  # looked at
    assert all(one.row.updated_at != ERASED_AT for one in revealed.opened.values())
    values = zip(tokens, revealed.values[0], strict=True)
    return {name: None if value is None else value.text for name, value in values}


async def marks(made: Bench) -> list[tuple[Row, RecordBody]]:
    rows = await made.store.scan(made.people.table, 0, 100)
    opened = [(row, made.people.sealer.open_with_key(row)[0]) for row in rows]
    return [one for one in opened if one[0].updated_at == ERASED_AT]


async def test_every_token_of_a_deleted_record_stands_for_no_value() -> None:
    made = await make_bench()
    tokens = await add(made, "17", **ANN)
    await erase(made, "17")
    assert await shown(made, "17", tokens) == dict.fromkeys(ANN, "")
    # also where a token tells the record, and not its id
    assert await shown(made, None, tokens) == dict.fromkeys(ANN, "")
    for name in ("name", "email", "phone"):
        assert await shown(made, None, {name: tokens[name]}) == {name: ""}


@table("name", list(ANN))
async def test_a_record_that_is_written_again_shows_what_is_new_and_no_erased_token(name) -> None:
    """Also while that is under way: the application may have answered a reader before or after."""
    made = await make_bench()
    ann = await add(made, "17", **ANN)
    await erase(made, "17")
    text = {**ANN, "born": "2001-12-24", "name": "Eve", "phone": "+46709998877"}[name]
    (write,) = await stage_updates(made.people, [("17", draft(**{name: text}))])
    new = {name: write.tokens[name][0].token}
    for step in ("under way", "done"):
        assert await shown(made, "17", new) == {name: text}, step
        if new != {name: ann[name]}:  # a token that equal values have
            assert await shown(made, "17", {name: ann[name]}) == {name: ""}, step
        if step == "under way":
            await bind(made.people, [(write, "17")])
    assert not made.people.state.begun


@pytest.mark.parametrize("first", [0, 1])
async def test_of_two_changes_of_an_erased_record_the_end_of_one_hides_nothing_of_the_other(
    first: int,
) -> None:
    made = await make_bench()
    tokens = await add(made, "17", **ANN)
    await erase(made, "17")
    days = ("2001-12-24", "2002-01-31")
    both = [await stage_updates(made.people, [("17", draft(born=day))]) for day in days]
    await drop_staged(made.people, both[first])
    last = both[1 - first]
    born = last[0].tokens["born"][0].token
    assert await shown(made, "17", {**tokens, "born": born}) == {
        "name": "", "email": "", "phone": "", "born": days[1 - first],
    }  # fmt: skip
    await drop_staged(made.people, last)
    assert not made.people.state.begun


async def test_small_tokens_are_those_of_their_record_alone() -> None:
    made = await make_bench()
    ann = await add(made, "17", **ANN)
    await erase(made, "17")
    born = {"born": ann["born"]}
    assert await shown(made, None, born) == {"born": None}
    assert await shown(made, "18", born) == {"born": None}
    # a token that was copied into another object, or that others may have, tells no record
    copied = {"name": ann["name"], **born}
    assert await shown(made, "18", copied) == {"name": "", "born": None}
    shared = {"email": ann["email"], **born}
    assert await shown(made, None, shared) == {"email": "", "born": None}


async def test_nothing_of_the_values_stays_and_no_key_that_opens_them() -> None:
    made = await make_bench()
    await add(made, "17", **ANN)
    (before,) = await made.store.scan(made.people.table, 0, 10)
    await erase(made, "17")
    ((row, content),) = await marks(made)
    assert (row.rid == before.rid, row.salt == before.salt, row.key) == (False, False, None)
    assert set(row.cells) == {None}
    assert {one.text for of in content.earlier.values() for one in of} == {""}
    assert not content.values
    # what a backup has of the record does not open with what is left of it
    with pytest.raises(VaultError):
        made.people.sealer.open(before._replace(salt=row.salt))


async def test_marks_are_in_no_list_and_no_count_and_nothing_settles_them() -> None:
    made = await make_bench()
    tokens = await add(made, "17", **ANN)
    await erase(made, "17")
    assert await pending([made.people]) == {"person": (0, 0, 0)}
    page = await made.store.select(made.people.table, Select(All(()), made.clock()))
    assert (page.rows, page.total) == ([], 0)
    made.clock.advance(DECADE - 1)
    assert (await reap(made.people, 1), await delete_expired(made.people)) == (0, 0)
    assert await shown(made, "17", tokens) == dict.fromkeys(ANN, "")
    made.clock.advance(1)
    assert await shown(made, "17", tokens) == dict.fromkeys(ANN)
    assert await delete_expired(made.people) == 1
    assert await made.store.scan(made.people.table, 0, 10) == []


async def test_what_comes_later_under_the_id_is_shown_as_ever() -> None:
    made = await make_bench()
    before = await add(made, "17", **ANN)
    await erase(made, "17")
    bo = {"name": "Bo", "email": "bo@example.com"}
    after = await add(made, "17", **bo)
    assert await shown(made, "17", after) == bo
    # the application may have left a field as it was: nobody has a value of that
    assert await shown(made, "17", after | {"born": before["born"]}) == bo | {"born": ""}
    (held,) = await stage_updates(made.people, [("17", draft(born="1999-09-09"))])
    await promote(made.people, held, {})
    born = held.tokens["born"][0].token
    assert await shown(made, "17", {"born": born}) == {"born": "1999-09-09"}
    await erase(made, "17")
    for tokens in (before, after | {"born": born}):
        assert set((await shown(made, "17", tokens)).values()) == {""}


async def test_no_mark_hides_a_value_that_others_have_as_well() -> None:
    made = await make_bench()
    keys = [str(number) for number in range(TOKEN_RIDS + 8)]
    for key in keys:
        await add(made, key, email=ANN["email"])
    await erase(made, *keys)
    tokens = await add(made, "live", email=ANN["email"])
    assert await shown(made, None, tokens) == {"email": ANN["email"]}
    for key in ("live", keys[0], "nobody"):
        assert await shown(made, key, tokens) == {"email": ANN["email"]}
    await erase(made, "live")
    for key in (*keys, "live"):
        assert await shown(made, key, tokens) == {"email": ""}


async def test_tokens_of_versions_in_doubt_and_of_erased_values_are_among_them() -> None:
    made = await make_bench(recipe=person()._replace(keeps=True))
    first = await add(made, "17", name="Ann", born="1931-02-27")
    (changed,) = await stage_updates(made.people, [("17", draft(born="1932-03-28"))])
    await promote(made.people, changed, {})
    (held,) = await stage_updates(made.people, [("17", draft(born="1933-04-29"))])
    await doubt(made.people, [held], answered=True)
    await erase(made, "17")
    for born in (first["born"], *(one.tokens["born"][0].token for one in (changed, held))):
        assert await shown(made, "17", {"born": born}) == {"born": ""}


async def test_an_expired_record_is_told_for_as_long_again_if_it_had_what_looks_like_a_value() -> (
    None
):
    made = await make_bench(recipe=person(expires=1_000))
    born = {"born": (await add(made, "17", name="Ann", born="1931-02-27"))["born"]}
    number = {"phone": (await add(made, "18", phone="+46701234567"))["phone"]}
    word = await add(made, "19", name="Bo")
    made.clock.advance(1_000)
    assert await delete_expired(made.people) == 3
    assert [row.expires_at for row, _ in await marks(made)] == [made.clock() + 1_000] * 2
    made.clock.advance(999)
    assert await delete_expired(made.people) == 0
    assert await shown(made, "17", born) == {"born": ""}
    assert await shown(made, None, number) == {"phone": ""}
    assert await shown(made, "19", word) == {"name": None}
    made.clock.advance(1)
    assert await delete_expired(made.people) == 2
    assert await made.store.scan(made.people.table, 0, 10) == []


async def test_an_expired_record_is_told_until_it_is_swept() -> None:
    made = await make_bench(recipe=person(expires=1_000))
    tokens = await add(made, "17", **ANN)
    made.clock.advance(1_000)
    assert await shown(made, "17", tokens) == dict.fromkeys(ANN, "")
    assert await shown(made, "17", {"born": tokens["born"]}) == {"born": ""}
    assert await shown(made, None, {"phone": tokens["phone"]}) == {"phone": ""}
    # another record that has the id by now has its own
    bo = await add(made, "18", name="Bo", phone=ANN["phone"])
    assert await shown(made, "18", bo) == {"name": "Bo", "phone": ANN["phone"]}


@table("engine", ["sqlite", "postgresql"])
async def test_a_write_that_no_answer_tells_of_leaves_no_false_value(
    engine: str, tmp_path: Path
) -> None:
    """The application may have taken it all the same, and show its tokens one day."""
    sqlite = f"sqlite:///{tmp_path}/tokens.db"
    store = await open_store(sqlite if engine == "sqlite" else fresh_address())
    made = await make_bench(store)
    writes = await stage_creates(made.people, [draft(**ANN), draft(born="1980-01-01")], [None] * 2)
    await doubt(made.people, writes, answered=False)
    lost, small = ({name: of[0].token for name, of in one.tokens.items()} for one in writes)
    before = await add(made, "17", **ANN)
    (held,) = await stage_updates(made.people, [("17", draft(phone="0701112233", name="Eva"))])
    await doubt(made.people, [held], answered=False)
    changed = {name: of[0].token for name, of in held.tokens.items()}
    made.clock.advance(2)
    assert await reap(made.people, 1) == 3
    assert await shown(made, None, lost) == dict.fromkeys(ANN, "") | {"email": ANN["email"]}
    assert await shown(made, None, {"phone": lost["phone"]}) == {"phone": ""}
    assert await shown(made, "17", changed) == {"phone": "", "name": None}
    assert await shown(made, "17", before) == ANN
    assert await shown(made, "18", small) == {"born": None}, "nothing leads to it"
    assert len(await marks(made)) == 1
    (held,) = await stage_updates(made.people, [("17", draft(phone="0701112233"))])
    await promote(made.people, held, {})
    again = {"phone": held.tokens["phone"][0].token}
    assert again["phone"] != changed["phone"]
    assert await shown(made, "17", again) == {"phone": "0701112233"}
    await store.close()


async def test_a_number_is_told_in_other_spellings() -> None:
    made = await make_bench()
    phone = (await add(made, "17", **ANN))["phone"]
    await erase(made, "17")
    joined = f"{phone[:3]} {phone[3:6]}-{phone[6:]}"
    assert await shown(made, "17", {"phone": joined}) == {"phone": ""}
    # whatever is told of a record that is there, of which the token has no calling code
    keys = [str(number) for number in range(40)]
    phones = [(await add(made, key, phone="0701234567"))["phone"] for key in keys]
    spelled = {one for phone in phones for one in other_spellings(phone, "SE")} - {*phones}
    places = [AnswerObject(None, (("phone", one),)) for one in sorted(spelled)]
    live = (await reveal_objects(made.people, places)).values
    assert [Value("0701234567")] in live
    await erase(made, *keys)
    gone = (await reveal_objects(made.people, places)).values
    assert gone == [[None] if value is None else [NO_VALUE] for (value,) in live]


@table("engine", ["sqlite", "postgresql", "parts"])
async def test_they_are_on_each_engine_survive_a_move_and_a_data_key(
    engine: str, tmp_path: Path
) -> None:
    parts = "3" if engine == "parts" else "0"
    sqlite = f"sqlite:///{tmp_path}/{engine}.db"
    store = await open_store(sqlite if engine == "sqlite" else fresh_address(partitions=parts))
    other = await open_store(f"sqlite:///{tmp_path}/{engine}-moved.db")
    made = await make_bench(store)
    keyset, table_ = made.vault.keyset, made.people.table
    tokens = await add(made, "17", **ANN)
    await erase(made, "17")
    assert await pending([made.people]) == {"person": (0, 0, 0)}
    keyset.adopt(keyset.rotated())
    rows = await store.scan(table_, 0, 10)
    changes, unreadable = await sealed_again(store, table_, made.people.sealer, rows)
    await store.commit(table_, changes)
    assert (len(changes), unreadable) == (1, 0)
    await copy_vault(store, other, lambda _part, _count: None)
    for one in (made, await make_bench(other, keyset)):
        one.clock.advance(1)
        assert await shown(one, "17", tokens) == dict.fromkeys(ANN, "")
        assert await pending([one.people]) == {"person": (0, 0, 0)}
    await store.close()
    await other.close()


async def test_records_without_tokens_leave_nothing() -> None:
    made = await make_bench()
    await add(made, "17")
    await erase(made, "17")
    assert await made.store.scan(made.people.table, 0, 10) == []


async def test_they_are_told_before_while_and_after_hashes_come_under_another_root(
    house: House,
) -> None:
    people = await house.vault.collection(person())
    made = Bench(house.contacts.store, house.contacts.clock, house.vault, people)
    tokens = await add(made, "17", **ANN)
    await delete_one(Records(people), "17", "chief", no_changes)
    assert await shown(made, "17", tokens) == dict.fromkeys(ANN, "")
    before = house.digests()
    await house.rotate()
    assert await shown(made, "17", tokens) == dict.fromkeys(ANN, "")
    await house.finish()
    assert not house.digests() & before
    assert await shown(made, "17", tokens) == dict.fromkeys(ANN, "")
    assert await shown(made, "17", {"born": tokens["born"]}) == {"born": ""}


async def row_of(files: Files, key: str) -> Row:
    row = await files.contacts.row(key)
    assert row is not None
    return row


async def test_a_row_ends_by_what_is_sealed_in_it() -> None:
    files = await make_files()
    collection, row = files.contacts.records.collection, await row_of(files, "a")
    assert await may_end(collection, row)
    assert not await may_end(collection, row._replace(expires_at=1))
    assert files.contacts.events["tampered"] == 1


async def test_a_damaged_row_ends_with_its_own_versions_and_files() -> None:
    files = await make_files()
    collection = files.contacts.records.collection
    await files.add(b"x")
    await change_records(files.contacts.records, [contact("a", age=2)], "x", no_changes)
    damaged = (await row_of(files, "a"))._replace(body=b"\0" * 60)
    assert await may_end(collection, damaged)
    assert (files.contacts.events["unopenable"], files.contacts.events["tampered"]) == (1, 0)


@table("part", ["version", "file"])
async def test_a_row_under_the_number_of_another_record_ends_nothing_of_it(part: str) -> None:
    files = await make_files()
    collection = files.contacts.records.collection
    if part == "file":
        await files.add(b"x")
    else:
        await change_records(files.contacts.records, [contact("a", age=2)], "x", no_changes)
    moved = (await row_of(files, "b"))._replace(rid=(await row_of(files, "a")).rid)
    assert await hosts_others(collection, moved)
    assert not await may_end(collection, moved)
    assert files.contacts.events["tampered"] == 1
    alone = (await row_of(files, "a"))._replace(rid=(await row_of(files, "b")).rid)
    assert not await hosts_others(collection, alone)


async def test_versions_that_were_put_under_another_key_tell_whose_they_are() -> None:
    files = await make_files()
    collection = files.contacts.records.collection
    await change_records(files.contacts.records, [contact("a", age=2)], "x", no_changes)
    (past,) = await files.contacts.store.past_scan(collection.table, (0, 0), 10)
    moved = (await row_of(files, "b"))._replace(rid=past.rid)
    assert past.key != moved.key
    # as if somebody had written the key of ``b`` beside the version of ``a``
    assert await hosts_others(collection, moved._replace(key=b"\1" * 16))


async def test_a_staged_change_that_was_made_another_one_is_reported() -> None:
    bench = await make_bench()
    (made,) = await stage_creates(bench.people, [draft(name="Ann")], [None])
    await bind(bench.people, [(made, "1")])
    await stage_updates(bench.people, [("1", draft(name="Anna"))])
    ((rid, (change,)),) = (await bench.store.staged(bench.people.table, [made.rid])).items()
    salt = (await bench.store.rows(bench.people.table, [rid]))[rid].salt
    assert is_genuine_change(bench.people, change, salt)
    assert not is_genuine_change(bench.people, change._replace(kind=StagedKind.DELETE), salt)
    assert bench.events["tampered"] == 1
