"""The engine in memory that the others are compared with, where it is no engine like any."""

from pathlib import Path

import pytest

from proxy.errors import Code, VaultError
from proxy.storage import engine_of, open_store
from proxy.storage.base import Hooks
from proxy.storage.changes import Attach, Remove
from proxy.storage.rows import File
from tests.support.memory import MEMORY, MemoryStore
from tests.support.memory_objects import MemoryObjects
from tests.support.memory_table import Table
from tests.support.rows import LAYOUT, TABLE, h, insert


async def test_what_is_no_change_is_refused() -> None:
    store = MemoryStore()
    await store.ensure(LAYOUT)
    with pytest.raises(TypeError):
        await store.commit(TABLE, ["insert"])  # type: ignore[list-item]  # a caller's mistake


async def test_every_store_is_its_own() -> None:
    first, second = await MEMORY.open("", Hooks()), await MEMORY.open("", Hooks())
    await first.put_note("a", b"1", None)
    assert await second.note("a") is None


async def test_a_vault_in_memory_is_refused_in_words(tmp_path: Path) -> None:
    engine, _ = engine_of("memory:")
    with pytest.raises(VaultError, match="memory alone") as caught:
        (await open_store("memory:")).raw()
    assert caught.value.code is Code.BAD_SETTINGS
    with pytest.raises(VaultError, match="memory alone"):
        engine.snapshot("", tmp_path)


def test_a_copy_is_a_snapshot_and_tells_only_what_it_let_go_itself() -> None:
    table = Table(LAYOUT)
    table.apply(insert(1, hashes=(h("a"),)))
    table.apply(Attach(File(h("f"), 1, h("n"), "object", 1, 1, 1, b"")))
    copy = table.copy()
    copy.apply(Remove(1))
    assert (copy.rows, copy.files, copy.tokens, copy.doomed) == ({}, {}, {}, ["object"])
    assert (set(table.rows), set(table.files)) == ({1}, {h("f")})
    assert table.doomed == []
    assert copy.copy().doomed == []


async def test_a_closed_place_can_still_be_looked_at() -> None:
    objects = MemoryObjects()
    await objects.claim("one")
    await objects.close()
    assert await objects.owner() == "one"
