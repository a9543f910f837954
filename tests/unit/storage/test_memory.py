import pytest

from proxy.storage.base import Hooks
from proxy.storage.memory import MEMORY, MemoryStore
from tests.support.rows import LAYOUT, TABLE


async def test_what_is_no_change_is_refused() -> None:
    store = MemoryStore()
    await store.ensure(LAYOUT)
    with pytest.raises(TypeError):
        await store.commit(TABLE, ["insert"])  # type: ignore[list-item]  # a caller's mistake


async def test_every_store_is_its_own() -> None:
    first, second = await MEMORY.open("", Hooks()), await MEMORY.open("", Hooks())
    await first.put_note("a", b"1", None)
    assert await second.note("a") is None
