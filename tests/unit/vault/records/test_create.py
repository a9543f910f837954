import asyncio
from collections.abc import Sequence
from decimal import Decimal

import pytest

from proxy.errors import Code, VaultError
from proxy.model.record import Action, Record
from proxy.storage import open_store
from proxy.storage.changes import Change, Conflict, Insert
from proxy.vault.records.commit import COMMIT_TRIES, locked, no_changes
from proxy.vault.records.create import store_records
from proxy.vault.records.repository import Records
from tests.support.contacts import Contacts, contact, make_contacts
from tests.support.memory import MemoryStore
from tests.support.patience import until
from tests.support.rerooting import House, hash_house
from tests.support.vaults import make_bench

__all__ = ["hash_house"]


async def refused(contacts: Contacts, *keys: str) -> VaultError:
    drafts = [contact(key, at=f"/{index}") for index, key in enumerate(keys)]
    with pytest.raises(VaultError) as caught:
        await store_records(contacts.records, drafts, "x", no_changes)
    return caught.value


async def test_a_batch_is_stored_and_told_in_its_order() -> None:
    contacts = await make_contacts()
    made = await contacts.add(
        contact("b", name="Ann", sum=Decimal("1.50")), contact("a", city=None, expires_at=None)
    )
    now = contacts.clock()
    assert [record.key for record in made] == ["b", "a"]
    assert made[0].fields == {"id": "b", "name": "Ann", "sum": Decimal("1.50")}
    assert (made[0].created_at, made[0].updated_at, made[0].expires_at, made[0].by) == (
        now,
        now,
        None,
        "someone",
    )
    assert [await contacts.get("b"), await contacts.get("a")] == made
    assert contacts.events["created"] == 2


async def test_a_key_that_is_used_refuses_the_whole_batch_and_each_one_is_named() -> None:
    contacts = await make_contacts()
    await contacts.add(contact("a", name="Ann"), contact("c"))
    error = await refused(contacts, "a", "b", "c")
    assert error.code is Code.RECORD_EXISTS
    assert [detail.source for detail in error.details] == ["/0/id", "/2/id"]
    assert await contacts.keys("a", "b", "c") == ["a", "c"]


async def test_a_key_comes_once_in_a_batch() -> None:
    contacts = await make_contacts()
    error = await refused(contacts, "a", "b", "a", "a")
    assert (error.code, [detail.source for detail in error.details]) == (
        Code.INVALID_RECORD,
        ["/2/id", "/3/id"],
    )
    assert await contacts.keys("a", "b") == []


async def test_the_key_of_an_expired_record_is_free_before_it_is_swept() -> None:
    contacts = await make_contacts()
    await contacts.add(contact("a", name="old", expires_at=contacts.clock() + 10))
    contacts.clock.advance(9)
    assert (await refused(contacts, "a")).code is Code.RECORD_EXISTS
    contacts.clock.advance(1)
    made = await contacts.add(contact("a", name="new"), contact("b"))
    assert await contacts.get("a") == made[0]
    assert made[0].version == 1


async def test_where_the_operator_wants_it_an_existing_record_becomes_what_was_sent() -> None:
    contacts = await make_contacts()
    (first,) = await contacts.add(
        contact("a", name="Ann", note="n", expires_at=contacts.clock() + 1000)
    )
    contacts.clock.advance(5)
    made = await store_records(
        contacts.records,
        [contact("b"), contact("a", name="Eva")],
        "other",
        no_changes,
        on_existing="update",
    )
    assert [(record.key, record.version, record.action) for record in made] == [
        ("b", 1, Action.CREATE),
        ("a", 2, Action.UPDATE),
    ]
    assert made[1].fields == {"id": "a", "name": "Eva"}
    assert (made[1].created_at, made[1].updated_at, made[1].expires_at) == (
        first.created_at,
        contacts.clock(),
        None,
    )
    assert await contacts.get("a") == made[1]
    past, total = await contacts.store.past(
        contacts.records.collection.table, contacts.records.collection.key_hash("a"), 10, 0
    )
    assert (total, contacts.records.open_past(past[0], 0).fields) == (1, first.fields)


async def test_parts_of_an_overwritten_text_no_longer_find_the_record() -> None:
    contacts = await make_contacts()
    (made,) = await contacts.add(contact("a", name="Annabel", extra={"flag": True}))
    records = contacts.records
    await store_records(
        records,
        [contact("a", name="Isabel", extra={"flag": 1})],
        "x",
        no_changes,
        on_existing="update",
    )
    table = records.collection.table
    gone, came = (records.hashes({"name": name}) for name in ("Annabel", "Isabel"))
    true, one = (records.leaf_hash("extra", ("flag",), value, inside=False) for value in (True, 1))
    found = await contacts.store.by_tokens(table, (*(gone | came), true, one))
    assert found == dict.fromkeys((*came, one), (made.rid,))
    assert gone - came


async def test_what_closes_a_write_is_in_its_commit_or_nothing_is() -> None:
    contacts = await make_contacts()
    seen: list[list[str | None]] = []

    def closing(result: Sequence[Record]) -> Sequence[Change]:
        seen.append([record.key for record in result])
        return [Insert(contacts.records.new_row("beside", {"id": "beside"}, 1, "x", None))]

    await store_records(contacts.records, [contact("a")], "x", closing)
    assert (seen, await contacts.keys("a", "beside")) == ([["a"]], ["a", "beside"])
    with pytest.raises(VaultError) as caught:
        await store_records(contacts.records, [contact("b")], "x", closing)
    assert caught.value.code is Code.CONFLICT
    assert await contacts.keys("b") == []


async def test_records_of_rules_are_refused() -> None:
    bench = await make_bench()
    with pytest.raises(VaultError) as caught:
        await store_records(Records(bench.people), [contact("a")], "x", no_changes)
    assert caught.value.code is Code.SCHEMA_OF_RULES


class Overtaken(MemoryStore):
    """Lets the first commits of records fail, as if others were faster."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    async def commit(self, table: str, changes: Sequence[Change]) -> None:
        if self.times:
            self.times -= 1
            raise Conflict(changes[0])
        await super().commit(table, changes)


async def test_a_create_that_is_overtaken_is_tried_again_but_not_for_ever() -> None:
    contacts = await make_contacts(Overtaken(COMMIT_TRIES))
    await contacts.add(contact("a"))
    assert await contacts.keys("a") == ["a"]
    contacts = await make_contacts(Overtaken(COMMIT_TRIES + 1))
    assert (await refused(contacts, "a")).code is Code.CONFLICT
    assert not len(contacts.records.collection.state.locks)


@pytest.mark.parametrize("engine", ["memory:", "sqlite:///{}/vault.db"])
async def test_of_many_creates_of_one_key_one_wins(engine: str, tmp_path: object) -> None:
    contacts = await make_contacts(await open_store(engine.format(tmp_path)))

    async def one(number: int) -> str:
        try:
            (made,) = await store_records(
                contacts.records, [contact("same", age=number)], f"c{number}", no_changes
            )
        except VaultError as error:
            return error.code.value
        return made.by

    told = await asyncio.gather(*(one(number) for number in range(32)))
    stored = await contacts.get("same")
    await contacts.store.close()
    winners = [by for by in told if by != Code.RECORD_EXISTS]
    assert stored is not None
    assert winners == [stored.by]


async def test_who_waits_for_a_lock_over_a_rotation_of_hashes_finds_what_has_moved(
    house: House,
) -> None:
    records = house.contacts.records
    free, used = sorted("ab", key=records.collection.key_hash)
    await house.contacts.add(contact(used, name="Ann"))
    async with locked(records, [records.collection.key_hash(free)]):
        drafts = [contact(free), contact(used)]
        creating = asyncio.ensure_future(store_records(records, drafts, "x", no_changes))
        await until(lambda: any(records.collection.state.locks._queues.values()))
        await house.rotate()
        await house.finish()
        assert house.dropped == 1
    with pytest.raises(VaultError) as caught:
        await creating
    assert caught.value.code is Code.RECORD_EXISTS
