import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec
import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import RECORDS_SCHEMA, RecordKeys, records_schema
from proxy.vault.job import JobState
from proxy.vault.maintenance.rehash import resolve_rehashed
from proxy.vault.maintenance.rehash_job import RehashJob, RehashRequest, open_job
from proxy.vault.records.commit import no_changes
from proxy.vault.records.create import store_records
from proxy.vault.schemas.catalog import Catalog, open_catalog
from tests.support.memory import MemoryStore
from tests.support.rehashing import DTK, record
from tests.support.vaults import Bench, make_bench


class Office:
    """A job with everything around it."""

    def __init__(
        self, bench: Bench, catalog: Catalog, job: RehashJob, reported: list[VaultError]
    ) -> None:
        self.bench, self.catalog, self.job, self.reported = bench, catalog, job, reported

    async def add(self, count: int, **fields: Any) -> None:
        drafts = [record(f"r{number}", **fields) for number in range(count)]
        await store_records(self.catalog.records(RECORDS_SCHEMA), drafts, "test", no_changes)

    async def tokens(self, name: str = "key1") -> dict[str, tuple[str, tuple[str, ...]] | None]:
        """The newest token of each record, and those before."""
        records = self.catalog.records(RECORDS_SCHEMA)
        rows = await self.bench.store.scan(records.collection.table, 0, 10_000)
        found = {}
        for row in rows:
            opened = records.open(row)
            one = (opened.tokens or {}).get(name)
            found[str(opened.key)] = None if one is None else (one.token, one.old)
        return found

    async def again(self) -> "Office":
        """What the next process finds."""
        await self.job.close()
        await self.catalog.close()
        return await opened(self.bench)


async def opened(before: Bench | None = None) -> Office:
    bench = (
        await make_bench(before.store, before.people.context.keyset)
        if before
        else await make_bench()
    )
    reported: list[VaultError] = []
    catalog = await open_catalog(bench.vault, reported.append, (records_schema(),))
    return Office(bench, catalog, await open_job(bench.vault, catalog, reported.append), reported)


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    made = await opened()
    yield made
    await made.job.close()
    await made.catalog.close()


def wanted(*, forget: bool = False, **rules: str) -> RehashRequest:
    raw = {name: {"strategy": strategy} for name, strategy in rules.items()}
    return RehashRequest(DTK, msgspec.Raw(msgspec.json.encode(raw)), forget)


def last_of(office: Office) -> tuple[str, JobState, int]:
    last = office.job.last
    assert last is not None
    assert last.wanted is None  # it has the caller's key in it
    return last.id, last.state, last.done


async def test_all_records_get_tokens_and_the_run_tells_how_it_went(office: Office) -> None:
    await office.add(250, key1="Ann")
    assert (await office.job.stop()) is None
    began = await office.job.begin(wanted(key1="alphaNumeric"))
    assert last_of(office) == (began.id, JobState.RUNNING, 0)
    await office.job.settled()
    last = office.job.last
    assert last is not None
    assert (last.id, last.state, last.total, last.done, last.failed) == (
        began.id,
        JobState.DONE,
        250,
        250,
        0,
    )
    tokens = await office.tokens()
    assert len(tokens) == 250
    assert len({one[0] for one in tokens.values() if one is not None}) == 250


async def test_only_one_run_at_a_time(office: Office) -> None:
    await office.add(1, key1="Ann")
    await office.job.begin(wanted(key1="alphaNumeric"))
    with pytest.raises(VaultError) as caught:
        await office.job.begin(wanted(key1="alphaNumeric"))
    assert caught.value.code is Code.CONFLICT
    await office.job.settled()
    await office.job.begin(wanted(key1="alphaNumeric"))


async def test_a_run_goes_on_in_the_next_process_and_visits_no_record_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    office = await opened()
    await office.add(450, key1="Ann", key2="Lee")
    commits, commit, there = 0, MemoryStore.commit, asyncio.Event()

    async def stop_in_the_middle(self: Any, table: str, changes: Any) -> None:
        nonlocal commits
        commits += 1
        if commits > 2:
            there.set()
            await asyncio.Event().wait()  # what comes after this, the process does not live to see
        await commit(self, table, changes)

    contacts = office.bench
    monkeypatch.setattr(
        contacts.vault.both_roots, "commit", partial(stop_in_the_middle, contacts.store)
    )
    await office.job.begin(wanted(key1="alphaNumeric", key2="alphaNumeric"))
    await there.wait()
    first, second = await office.tokens("key1"), await office.tokens("key2")
    assert sum(one is not None for one in first.values()) == 200
    assert [one is None for one in first.values()] == [one is None for one in second.values()]
    office = await office.again()
    await office.job.settled()
    after = await office.tokens("key1")
    assert None not in after.values()
    assert {key: after[key] for key, one in first.items() if one is not None} == {
        key: one for key, one in first.items() if one is not None
    }
    assert office.job.last is not None
    assert (office.job.last.state, office.job.last.total) == (JobState.DONE, 450)
    office = await office.again()
    assert office.job.last is not None
    assert office.job.last.state is JobState.DONE
    await office.catalog.close()


async def test_old_tokens_are_found_until_they_are_forgotten(office: Office) -> None:
    await office.add(1, key1="Ann")
    for _ in range(3):
        await office.job.begin(wanted(key1="alphaNumeric"))
        await office.job.settled()
    (kept,) = (await office.tokens()).values()
    assert kept is not None
    newest, old = kept
    assert len(old) == 2
    records = office.catalog.records(RECORDS_SCHEMA)
    assert len(await resolve_rehashed(records, [newest, *old])) == 3
    await office.job.begin(RehashRequest(DTK, msgspec.Raw(b"{}"), forget=True))
    await office.job.settled()
    assert await office.tokens() == {"r0": (newest, ())}
    assert [one.token for one in await resolve_rehashed(records, [newest, *old])] == [newest]
    await office.job.begin(wanted(forget=True, key1="alphaNumeric"))
    await office.job.settled()
    (kept,) = (await office.tokens()).values()
    assert kept is not None
    assert kept[1] == (newest,)


async def test_a_value_that_does_not_fit_is_counted_and_its_record_stays_as_it_was(
    office: Office,
) -> None:
    await store_records(
        office.catalog.records(RECORDS_SCHEMA),
        [record("a", key1="1980-02-28", key2="x"), record("b", key1="Ann", key2="y")],
        "test",
        no_changes,
    )
    await office.job.begin(wanted(key1="date", key2="alphaNumeric"))
    await office.job.settled()
    assert office.job.last is not None
    assert (office.job.last.done, office.job.last.failed) == (2, 1)
    tokens = await office.tokens("key2")
    assert (tokens["a"] is None, tokens["b"] is None) == (False, True)


async def test_a_run_can_be_stopped_and_its_key_is_kept_no_longer(office: Office) -> None:
    await office.add(150, key1="Ann")
    assert await office.job.stop() is None
    await office.job.begin(wanted(key1="alphaNumeric"))
    stopped = await office.job.stop()
    assert stopped is not None
    assert (stopped.state, stopped.wanted) == (JobState.STOPPED, None)
    assert await office.job.stop() == stopped


async def test_a_store_that_fails_is_tried_again(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    await office.add(1, key1="Ann")
    monkeypatch.setattr("proxy.vault.maintenance.rehash_job._RETRY", 0.0)
    scan, failed = MemoryStore.scan, False

    async def fail_once(self: MemoryStore, table: str, after: int, limit: int) -> Any:
        nonlocal failed
        if not failed:
            failed = True
            raise VaultError(Code.VAULT_DOWN, "down")
        return await scan(self, table, after, limit)

    monkeypatch.setattr(MemoryStore, "scan", fail_once)
    await office.job.begin(wanted(key1="alphaNumeric"))
    await office.job.settled()
    assert [error.code for error in office.reported] == [Code.VAULT_DOWN]
    assert None not in (await office.tokens()).values()


async def test_tokens_outlive_a_change_of_how_keys_are_kept() -> None:
    office = await opened()
    await office.add(150, key1="Ann", key2="Lee")
    await office.job.begin(wanted(key1="alphaNumeric"))
    await office.job.settled()
    before = await office.tokens()
    await office.job.close()
    await office.catalog.close()
    keys = RecordKeys(plain=frozenset({"key1"}), partial_match=frozenset({"key2"}))
    bench = await make_bench(office.bench.store, office.bench.people.context.keyset)
    catalog = await open_catalog(bench.vault, office.reported.append, (records_schema(keys),))
    await catalog.settled(RECORDS_SCHEMA)
    after = Office(
        bench,
        catalog,
        await open_job(bench.vault, catalog, office.reported.append),
        office.reported,
    )
    assert await after.tokens() == before
    (token, _) = before["r7"] or ("", ())
    assert [
        one.record.key for one in await resolve_rehashed(catalog.records(RECORDS_SCHEMA), [token])
    ] == ["r7"]
    await catalog.close()
    assert office.reported == []
