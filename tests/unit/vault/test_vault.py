import asyncio
from collections.abc import Awaitable, Callable

import pytest

from proxy.crypto.key_sources import open_source
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.storage.rows import TableLayout
from proxy.vault.collection import VaultContext
from proxy.vault.environments import has_keyset
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.staging import stage_creates
from proxy.vault.schema_store import forget_schema
from proxy.vault.table_state import Sequencer
from proxy.vault.vault import Vault, VaultOptions, open_vault
from tests.support.clock import ManualClock
from tests.support.memory import MemoryStore
from tests.support.vaults import draft, make_bench, person


class Source:
    """A master key that is there."""

    def __init__(self, folder: object) -> None:
        self._source = open_source(f"file://{folder}/keys.json")
        self._source.create()
        self.load = self._source.load
        self.create = self._source.create
        self.exists = self._source.exists
        self.staged, self.stage, self.switch = (
            self._source.staged,
            self._source.stage,
            self._source.switch,
        )


async def opened(store: MemoryStore, source: Source) -> Vault:
    return await open_vault(
        store, source, ManualClock(), lambda *_: None, VaultOptions("test", "SE", 1000)
    )


async def test_the_keyset_is_made_once_and_opened_afterwards(tmp_path: object) -> None:
    store, source = MemoryStore(), Source(tmp_path)
    assert not await has_keyset(store, "test")
    first = await (await opened(store, source)).collection(person())
    assert await has_keyset(store, "test")
    second = await (await opened(store, source)).collection(person())
    assert first.key_hash("17") == second.key_hash("17")


async def test_another_master_key_is_refused_and_changes_nothing(tmp_path: object) -> None:
    from pathlib import Path

    store = MemoryStore()
    right, wrong = Path(str(tmp_path), "right"), Path(str(tmp_path), "wrong")
    for folder in (right, wrong):
        await asyncio.to_thread(folder.mkdir)
    await opened(store, Source(right))
    note = await store.note("keyset:test")
    with pytest.raises(VaultError) as caught:
        await opened(store, Source(wrong))
    assert caught.value.code is Code.BAD_KEYS
    assert await store.note("keyset:test") == note


async def test_upkeep_settles_late_sweeps_and_reaps() -> None:
    bench = await make_bench(recipe=person(expires=5000))
    held = (await stage_creates(bench.people, [draft(name="Ann")], [None]))[0]
    tries: list[int] = []

    async def settle() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise VaultError(Code.VAULT_DOWN, "The disk is full.")
        await bind(bench.people, [(held, "17")])

    bench.vault.later(settle)
    with pytest.raises(VaultError):
        await bench.vault.maintain()
    await bench.vault.maintain()
    assert len(tries) == 2
    assert "17" in await bench.people.by_key(["17"])
    bench.clock.advance(5000)
    await bench.vault.maintain()
    assert await bench.store.count(bench.people.table) == (0, 0, 0)


async def test_a_store_that_is_down_keeps_the_order_and_another_fault_ends_only_its_own() -> None:
    bench = await make_bench()
    done: list[str] = []
    faults = {"first": [Code.VAULT_DOWN], "second": [Code.CONFLICT], "third": []}

    def settling(name: str) -> Callable[[], Awaitable[None]]:
        async def settle() -> None:
            if faults[name]:
                raise VaultError(faults[name].pop(), "It does not work.")
            done.append(name)

        return settle

    for name in faults:
        bench.vault.later(settling(name))
    for expected in ([], ["first", "third"]):
        with pytest.raises(VaultError):
            await bench.vault.maintain()
        assert done == expected
    await bench.vault.maintain()
    assert done == ["first", "third"]


async def test_whoever_comes_after_a_late_settling_waits_for_it() -> None:
    bench = await make_bench()
    done: list[str] = []
    down = [True]
    entered = asyncio.Event()

    async def settle() -> None:
        if down[0]:
            raise VaultError(Code.VAULT_DOWN, "The disk is full.")
        entered.set()
        await asyncio.sleep(0)
        done.append("settled")

    async def write(name: str) -> None:
        await bench.vault.catch_up()
        done.append(name)

    bench.vault.later(settle)
    with pytest.raises(VaultError) as caught:
        await bench.vault.catch_up()
    assert caught.value.code is Code.VAULT_DOWN
    down[0] = False
    first = asyncio.create_task(write("first"))
    await entered.wait()
    await asyncio.gather(first, write("second"))
    assert done[0] == "settled"
    assert sorted(done[1:]) == ["first", "second"]


async def test_a_late_settling_that_cannot_be_is_told_by_the_upkeep_and_holds_up_nobody() -> None:
    bench = await make_bench()

    async def settle() -> None:
        raise VaultError(Code.CONFLICT, "The record kept changing.")

    bench.vault.later(settle)
    await bench.vault.catch_up()
    with pytest.raises(VaultError):
        await bench.vault.maintain()
    await bench.vault.maintain()


async def test_a_table_that_another_replica_removes_before_this_one_makes_it_known_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    table = (await make_bench(store)).people.table
    other = Vault(
        VaultContext(
            "test",
            Keyset.create("test"),
            store,
            ManualClock(),
            Sequencer(ManualClock()),
            "SE",
            lambda *_: None,
        ),
        VaultOptions("test", "SE", 1000),
    )
    make = store.ensure

    async def ensure(layout: TableLayout) -> None:
        """It is removed after it was found in the registry."""
        await forget_schema(store, "test", layout.table)
        await store.drop(layout.table)
        await make(layout)

    monkeypatch.setattr(store, "ensure", ensure)
    await other.follow()
    assert table not in store._tables
