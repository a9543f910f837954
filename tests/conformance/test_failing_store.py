"""The wrapper that other tests rely on to fail or pause a store does what it says, and nothing
else.
"""

import asyncio

import pytest

from proxy.errors import Code, VaultError
from proxy.storage.base import Store
from proxy.storage.changes import Bind
from proxy.storage.query import MATCH_ALL, Grouping, Select
from tests.support.memory import MemoryStore
from tests.support.rows import LAYOUT, TABLE, h, insert, row
from tests.support.stores import FailingStore


@pytest.fixture
async def store() -> FailingStore:
    store = FailingStore(MemoryStore())
    await store.ensure(LAYOUT)
    return store


async def test_without_traps_everything_passes(store: FailingStore) -> None:
    port: Store = store
    await port.commit(TABLE, [insert(1, hashes=(h("a"),))])
    await port.put_note("n", b"1", None)
    assert await port.rows(TABLE, [1]) == {1: row(1)}
    assert await port.by_tokens(TABLE, [h("a")]) == {h("a"): (1,)}
    assert (await port.by_keys(TABLE, [h("k")]), await port.staged(TABLE, [1])) == ({}, {})
    assert await port.unsettled(TABLE, 2_000, 5) == ([row(1)], [])
    assert (await port.expired(TABLE, 1, 1), await port.count(TABLE), await port.note("n")) == (
        [],
        (1, 1, 0),
        b"1",
    )
    assert await port.scan(TABLE, 0, 9) == [row(1)]
    assert await port.select(TABLE, Select(MATCH_ALL, 0)) == ([], 0, False)
    assert await port.aggregate(TABLE, Grouping(MATCH_ALL, 0, ("city",), (), 1)) == []
    assert (await port.past(TABLE, h("k"), 1, 0), await port.files(TABLE, [1])) == (([], 0), {})
    assert (await port.file_scan(TABLE, b"", 1), await port.reply(TABLE, h("k"), 0)) == ([], None)
    assert (await port.prune(TABLE, 1, 1, 1), await port.doomed(1)) == (0, [])
    assert (await port.past_scan(TABLE, (0, 0), 1), await port.reply_scan(TABLE, b"", 1)) == (
        [],
        [],
    )
    assert (await port.notes("n"), port.guard) == (["n"], None)
    await port.absolve(["x"])
    await port.drop_notes("n")
    assert await port.note("n") is None
    await port.drop(TABLE)
    await port.close()
    assert store.calls[:4] == ["ensure", "commit", "put_note", "rows"]


async def test_a_trap_springs_at_its_verb_and_change_as_often_as_it_was_told(
    store: FailingStore,
) -> None:
    store.fail("commit", change=Bind, skip=1, times=1)
    await store.commit(TABLE, [insert(1)])
    await store.commit(TABLE, [Bind(1, h("k"), b"", 1)])
    with pytest.raises(VaultError) as caught:
        await store.commit(TABLE, [Bind(1, h("k"), b"", 1)])
    assert caught.value.code is Code.VAULT_DOWN
    await store.commit(TABLE, [Bind(1, h("k"), b"", 1)])


async def test_an_early_trap_stores_nothing_and_a_late_one_does(store: FailingStore) -> None:
    store.fail("commit")
    store.fail("commit", skip=1, late=True)
    for rid in (1, 2):
        with pytest.raises(VaultError):
            await store.commit(TABLE, [insert(rid)])
    assert (await store.rows(TABLE, [1, 2])).keys() == {2}


async def test_a_lasting_fault_lasts_until_it_is_mended(store: FailingStore) -> None:
    store.fail("rows", lambda: VaultError(Code.BAD_STORE, "damaged"), times=None)
    for _ in range(3):
        with pytest.raises(VaultError) as caught:
            await store.rows(TABLE, [1])
        assert caught.value.code is Code.BAD_STORE
    store.mend()
    assert await store.rows(TABLE, [1]) == {}


async def test_a_gate_holds_the_call_before_or_after_its_work(store: FailingStore) -> None:
    before, after = store.pause("commit"), store.pause("commit", skip=1, late=True)
    first = asyncio.ensure_future(store.commit(TABLE, [insert(1)]))
    await before.reached()
    second = asyncio.ensure_future(store.commit(TABLE, [insert(2)]))
    await after.reached()
    assert (await store.rows(TABLE, [1, 2])).keys() == {2}
    assert not first.done()
    assert not second.done()
    before.open()
    after.open()
    await asyncio.gather(first, second)
    assert (await store.rows(TABLE, [1, 2])).keys() == {1, 2}
