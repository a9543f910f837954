"""A copy of a vault from any engine to any other is the same vault, from wherever it began."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from proxy.storage import engine_of, open_store
from proxy.storage.base import TABLE_PARTS, OpenStore
from proxy.storage.changes import (
    AddVersion,
    Attach,
    Insert,
    MarkInDoubt,
    Remember,
    Remove,
    Replace,
    StageRow,
)
from proxy.storage.notes import NoteWrite
from proxy.storage.rows import (
    Column,
    ColumnType,
    File,
    Past,
    Row,
    RowState,
    Staged,
    StagedKind,
    StoredReply,
    TableLayout,
)
from proxy.storage.transfer import INCOMING, MOVED, copy_vault, count_differences
from tests.support.postgres import fresh_address

LAYOUT = TableLayout("people", (Column("city", ColumnType.TEXT), Column("age", ColumnType.INTEGER),
                                Column("paid", ColumnType.DECIMAL), Column("mail", ColumnType.HASH)))  # fmt: skip
BARE = TableLayout("bare", ())
ENGINES = ("sqlite", "postgresql")
#: PostgreSQL with tables in parts.
PARTS = "parts"


def silent(_part: str, _count: int) -> None:
    """Nobody looks."""


@asynccontextmanager
async def stores(folder: Path, *engines: str) -> AsyncIterator[list[OpenStore]]:
    opened = []
    try:
        for number, engine in enumerate(engines):
            partitions = "3" if engine == PARTS else "0"
            uri = fresh_address(partitions=partitions)
            if engine == "sqlite":
                uri = f"sqlite:///{folder}/{number}.db"
            opened.append(await open_store(uri))
        yield opened
    finally:
        for store in opened:
            await store.close()


def hashed(number: int) -> bytes:
    return number.to_bytes(16, "big")


def row(rid: int, **changes: Any) -> Row:
    cells = ("Malmö ÅÄÖ" * (rid % 90), rid, "12.5", hashed(rid)) if rid % 3 else (None,) * 4
    made = Row(rid, hashed(rid), b"k%d" % rid, RowState.LIVE, 1, 1_000 + rid, 2_000 + rid, None,
               b"s" * 16, b"body %d" % rid, cells)  # fmt: skip
    return made._replace(**changes)


async def fill(store: OpenStore, count: int = 1_500) -> None:
    """Something of everything, over more than one page."""
    for layout in (LAYOUT, BARE):
        await store.ensure(layout)
    await store.commit(
        "people", [Insert(row(rid), (hashed(7), hashed(10**6 + rid))) for rid in range(1, count)]
    )
    await store.commit("bare", [Insert(row(1, cells=(), key=None, state=RowState.PENDING))])
    staged = Staged(50, 1, StagedKind.UPDATE, 5_000, None, False, b"staged")
    await store.commit("people", [
        StageRow(staged, (hashed(2 * 10**6),)), MarkInDoubt(1, 50, 6_000, True),
        *[AddVersion(Past(rid, 0, hashed(rid), 900, b"t" * 16, b"old")) for rid in range(1, 40)],
        *[Attach(File(hashed(rid), rid, hashed(9), f"{rid:048x}", 10, 1, 2, b"f")) for rid in (3, 4)],
        Remember(StoredReply(hashed(1), 10**9, b"d", b"answer"), 0, (3,), True),
        Remember(StoredReply(hashed(2), 10**9, b"d", b"answer"), 0, (4, 5)),
    ])  # fmt: skip
    await store.write_notes([NoteWrite("country", b"se", None), NoteWrite("files", b"mark", None)])


async def shown(store: OpenStore) -> list[Any]:
    """All that the port answers."""
    rids = list(range(1, 60))
    for layout in (LAYOUT, BARE):
        await store.ensure(layout)
    return [
        await store.scan("people", 0, 10_000), await store.scan("bare", 0, 10),
        await store.staged("people", rids), await store.files("people", rids),
        await store.by_tokens("people", [hashed(7), hashed(10**6 + 9), hashed(2 * 10**6)]),
        await store.past_scan("people", (0, 0), 1_000), await store.count("people"),
        await store.reply_scan("people", b"", 100), await store.file_scan("people", b"", 100),
        await store.read_notes(),
    ]  # fmt: skip


def test_every_engine_that_stores_something_is_under_this_contract() -> None:
    from proxy.storage import ENGINES as ALL

    assert {*ENGINES, "memory"} == {*ALL}


@pytest.mark.parametrize(
    ("one", "other"),
    [*permutations(ENGINES, 2), ("sqlite", "sqlite"), ("postgresql", PARTS), (PARTS, "sqlite")],
)
async def test_a_copy_is_the_same_vault_and_a_second_one_takes_what_has_changed(
    one: str, other: str, tmp_path: Path
) -> None:
    async with stores(tmp_path, one, other) as (source, target):
        await fill(source)
        changed = await copy_vault(source, target, silent)
        assert {*changed} == {*TABLE_PARTS, "notes"}
        assert changed["records"] == 1_500
        assert await shown(target) == await shown(source)
        assert await copy_vault(source, target, silent) == {}
        same = await count_differences(source, target, silent)
        assert [*same] == ["rows"]

        # keys and claims change hands, rows come and go, in an order that a unique index refuses
        first, last = row(1), row(1_499)
        await source.commit("people", [
            Remove(1_000), Remove(3),
            Replace(row(2, version=2, body=b"other", cells=("", 3, "0.0001", None)), 1),
            Remove(1), Remove(1_499),
            Insert(first._replace(key=last.key)), Insert(last._replace(key=first.key)),
        ])  # fmt: skip
        await source.drop("bare")
        await source.write_notes(
            [NoteWrite("country", b"no", b"se"), NoteWrite("files", None, b"mark")]
        )
        assert (await count_differences(source, target, silent))["records"] == 5
        await copy_vault(source, target, silent)
        assert [*await count_differences(source, target, silent)] == ["rows"]
        await source.ensure(BARE)
        assert await shown(target) == await shown(source)
        await target.commit("people", [Remove(1), Remove(3), *[Remove(rid) for rid in range(5, 9)]])
        assert (await target.count("people"))[0] == 1_497 - 5


@pytest.mark.parametrize("engine", ENGINES)
async def test_notes_of_a_move_are_not_copied(engine: str, tmp_path: Path) -> None:
    async with stores(tmp_path, engine, "sqlite") as (source, target):
        await source.write_notes([NoteWrite(MOVED, b"x", None), NoteWrite("country", b"se", None)])
        await target.write_notes([NoteWrite(INCOMING, b"y", None)])
        await copy_vault(source, target, silent)
        assert await target.read_notes() == {INCOMING: b"y", "country": b"se"}


@pytest.mark.parametrize("kind", ENGINES)
async def test_a_snapshot_is_the_vault_of_one_moment_beside_its_owner(
    kind: str, tmp_path: Path
) -> None:
    uri = f"sqlite:///{tmp_path}/vault.db" if kind == "sqlite" else fresh_address()
    engine, location = engine_of(uri)
    owner = await open_store(uri)
    try:
        await fill(owner, 20)
        before = await shown(owner)
        async with engine.snapshot(location, tmp_path) as snapshot:
            await owner.commit("people", [Remove(4), Insert(row(99))])
            assert await shown(snapshot) == before
    finally:
        await owner.close()
    assert {path.name[:8] for path in await asyncio.to_thread(lambda: [*tmp_path.iterdir()])} <= {
        "vault.db"
    }
