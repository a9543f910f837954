import pytest

from proxy.storage.base import Hooks
from proxy.storage.changes import Conflict
from proxy.storage.memory import MemoryStore, open_memory
from tests.support.rows import LAYOUT, TABLE, h, insert


async def test_a_failed_commit_leaves_the_table_as_it_was() -> None:
    store = MemoryStore()
    await store.ensure(LAYOUT)
    await store.commit(TABLE, [insert(1, unique=(h("a"),))])
    with pytest.raises(Conflict):
        await store.commit(TABLE, [insert(2, hashes=(h("a"),)), insert(3, unique=(h("a"),))])
    assert await store.by_tokens(TABLE, [h("a")]) == {h("a"): (1,)}


async def test_what_is_no_change_is_refused() -> None:
    store = MemoryStore()
    await store.ensure(LAYOUT)
    with pytest.raises(TypeError):
        await store.commit(TABLE, ["insert"])  # type: ignore[list-item]  # a caller's mistake


async def test_every_store_is_its_own() -> None:
    first, second = await open_memory("", Hooks()), await open_memory("", Hooks())
    await first.put_note("a", b"1", None)
    assert await second.note("a") is None
