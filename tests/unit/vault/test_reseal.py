import asyncio
import os
from collections.abc import AsyncIterator, Sequence

import pytest

from proxy.crypto.master import MasterKey
from proxy.errors import Code, VaultError
from proxy.model.builtin import records_schema
from proxy.storage.changes import Change, Insert
from proxy.storage.memory import MemoryStore
from proxy.storage.rows import Row
from proxy.storage.rows import State as State_
from proxy.vault.catalog import Catalog, open_catalog
from proxy.vault.closing import nothing
from proxy.vault.content import Content
from proxy.vault.rekeying import renew
from proxy.vault.reseal import Resealing, State, resealed
from proxy.vault.vault import make_keyset
from proxy.vault.write import create
from tests.support.patience import PATIENCE
from tests.support.rehashing import record
from tests.support.vaults import Bench, make_bench


class Slow(MemoryStore):
    """A store that lets tests look between two batches, and that fails when they say so."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.batches = 0
        self.fails = False

    async def commit(self, table: str, changes: Sequence[Change]) -> None:
        if len(changes) > 50:
            await self.gate.wait()
            self.batches += 1
        if self.fails:
            raise VaultError(Code.VAULT_DOWN, "The store is down.")
        await super().commit(table, changes)


class Desk:
    """A vault with records, keys that can be rotated, and what seals anew."""

    def __init__(self, bench: Bench, catalog: Catalog, master: MasterKey) -> None:
        self.bench, self.catalog, self.master = bench, catalog, master
        self.reported: list[VaultError] = []
        self.run = Resealing(bench.vault, self.reported.append)

    @property
    def table(self) -> str:
        return self.catalog.records("records").collection.table

    async def add(self, count: int) -> None:
        drafts = [record(f"r{number}") for number in range(count)]
        await create(self.catalog.records("records"), drafts, "test", nothing)

    async def rotate(self) -> None:
        await renew(self.bench.store, self.master, self.bench.vault.keyset)

    async def old(self) -> int:
        """Records of which something is sealed with an older key; every one of them has to open."""
        records = self.catalog.records("records")
        sealer = records.collection.sealer
        rows = await self.bench.store.scan(self.table, 0, 10_000)
        assert {records.open(row).key for row in rows} == {f"r{number}" for number in range(len(rows))}
        return sum(not all(map(sealer.current, filter(None, (row.body, row.key_sealed)))) for row in rows)

    async def done(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.run.settled()

    async def close(self) -> None:
        await self.run.close()
        await self.catalog.close()


async def opened(store: MemoryStore, master: MasterKey) -> Desk:
    """What a process finds."""
    bench = await make_bench(store, await make_keyset(store, master, "test"))
    desk = Desk(bench, await open_catalog(bench.vault, lambda error: None, (records_schema(),)), master)
    await desk.run.load()
    await desk.run.start()
    return desk


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    made = await opened(Slow(), MasterKey(os.urandom(32)))
    yield made
    await made.close()


async def test_where_there_is_one_key_nothing_is_done(desk):
    await desk.add(3)
    assert (desk.run.state, desk.run.done, await desk.old()) == (State.NONE, 0, 0)


async def test_everything_is_sealed_anew_and_keeps_versions_times_and_salts(desk):
    await desk.add(250)
    before = [row._replace(body=b"", key_sealed=b"") for row in await desk.bench.store.scan(desk.table, 0, 1000)]
    await desk.rotate()
    assert await desk.old() == 250
    await desk.run.begin()
    await desk.done()
    assert (desk.run.state, desk.run.done, desk.run.unreadable, await desk.old()) == (State.DONE, 250, 0, 0)
    after = [row._replace(body=b"", key_sealed=b"") for row in await desk.bench.store.scan(desk.table, 0, 1000)]
    assert after == before


async def test_it_is_stopped_and_goes_on_where_it_was(desk):
    await desk.add(250)
    await desk.rotate()
    desk.bench.store.gate.clear()
    await desk.run.begin()
    await asyncio.sleep(0)
    await desk.run.stop()
    assert desk.run.state is State.STOPPED
    desk.bench.store.gate.set()
    assert await desk.old() > 0
    await desk.run.begin()
    await desk.done()
    assert (desk.run.state, await desk.old()) == (State.DONE, 0)


async def test_the_next_process_goes_on_with_what_was_under_way(desk):
    await desk.add(250)
    await desk.rotate()
    desk.bench.store.gate.clear()
    await desk.run.begin()
    await desk.close()
    desk.bench.store.gate.set()
    again = await opened(desk.bench.store, desk.master)
    await again.done()
    assert (again.run.state, await again.old()) == (State.DONE, 0)
    last = await opened(desk.bench.store, desk.master)
    assert (last.run.state, last.run.done) == (State.DONE, 250)
    await again.close()
    await last.close()


async def test_a_rotation_that_nobody_followed_up_is_followed_up_by_the_next_process(desk):
    await desk.add(5)
    await desk.rotate()
    await desk.close()
    again = await opened(desk.bench.store, desk.master)
    await again.done()
    assert (again.run.state, await again.old()) == (State.DONE, 0)
    await again.close()


async def test_another_rotation_in_the_middle_begins_anew(desk):
    await desk.add(250)
    await desk.rotate()
    desk.bench.store.gate.clear()
    await desk.run.begin()
    await desk.rotate()
    await desk.run.begin()
    desk.bench.store.gate.set()
    await desk.done()
    assert (desk.run.state, await desk.old()) == (State.DONE, 0)


async def test_what_does_not_open_stays_as_it_is_and_is_counted(desk):
    await desk.add(3)
    await desk.rotate()
    held = desk.bench.store._tables[desk.table].rows
    broken = next(iter(held))
    held[broken] = held[broken]._replace(body=held[broken].body[:-1] + b"x")
    await desk.run.begin()
    await desk.done()
    assert (desk.run.state, desk.run.done, desk.run.unreadable) == (State.DONE, 3, 1)
    with pytest.raises(VaultError) as caught:
        resealed(desk.catalog.records("records").collection, held[broken], ())
    assert caught.value.code is Code.CANNOT_OPEN


async def test_a_store_that_fails_is_reported_and_tried_again(desk, monkeypatch):
    monkeypatch.setattr("proxy.vault.reseal._RETRY", 0.001)
    await desk.add(3)
    await desk.rotate()
    desk.bench.store.fails = True
    await desk.run.begin()
    async with asyncio.timeout(PATIENCE):
        while not desk.reported:  # noqa: ASYNC110  # the run reports by itself
            await asyncio.sleep(0.001)
    desk.bench.store.fails = False
    await desk.done()
    assert (desk.run.state, await desk.old()) == (State.DONE, 0)


async def test_the_sealed_name_of_a_record_of_rules_is_sealed_anew_too(desk):
    people = desk.bench.people
    held = await people_with_names(desk.bench)
    await desk.rotate()
    changes = resealed(people, held, ())
    assert len(changes) == 2
    await desk.bench.store.commit(people.table, changes)
    (after,) = (await desk.bench.store.rows(people.table, [held.rid])).values()
    assert people.sealer.current(after.key_sealed)
    assert people.sealer.open_key(after) == people.sealer.open_key(held) == "7"
    assert after._replace(body=b"", key_sealed=b"") == held._replace(body=b"", key_sealed=b"")
    assert resealed(people, after, ()) == []


async def people_with_names(bench: Bench) -> Row:
    """A person whom the application has named."""
    people, rid = bench.people, 5
    salt = people.sealer.new_salt()
    record = people.sealer.record(rid, salt)
    key = people.key_hash("7")
    body = record.body(Content({}), 1)
    row = Row(rid, key, record.key("7"), State_.LIVE, 1, 1, 1, None, salt, body, (None,) * len(people.columns))
    await bench.store.commit(people.table, [Insert(row)])
    return row
