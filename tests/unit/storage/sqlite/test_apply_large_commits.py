import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import pytest

from proxy.errors import Code, VaultError
from proxy.offload import BRISK, Turns
from proxy.storage.base import Hooks
from proxy.storage.changes import Conflict
from proxy.storage.sqlite.apply import (
    LARGE_COMMIT,
    LargeCommits,
    Task,
    is_large_commit,
    joined_commits,
)
from proxy.storage.sqlite.file import DatabaseFile
from proxy.storage.sqlite.statements import Statements, make
from proxy.storage.sqlite.writer import SqliteWriter, WriterLimits
from tests.support.patience import PATIENCE
from tests.support.rows import LAYOUT, TABLE, insert

SQL = Statements(LAYOUT)


class Source:
    """A database file; before each group the writer's thread tells that it is there, and waits
    until it may go on.
    """

    def __init__(self, path: Path) -> None:
        self.file = DatabaseFile(path)
        self.connect = self.file.connect
        self.there, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self.broken: Exception | None = None

    def check(self) -> None:
        self.there.set()
        self.go_on.wait(PATIENCE)
        if self.broken is not None:
            raise self.broken

    async def held(self) -> None:
        await asyncio.to_thread(self.there.wait, PATIENCE)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    source = Source(tmp_path / "vault.db")
    yield source
    source.go_on.set()
    source.file.release()


async def started(source: Source, sizes: list[int], waiting: int = 4096) -> SqliteWriter:
    hooks = Hooks(lambda size, _: sizes.append(size))
    writer = SqliteWriter(cast("DatabaseFile", source), hooks, WriterLimits(waiting=waiting))
    await writer.call(lambda connection: make(connection, LAYOUT))
    source.there.clear()
    source.go_on.clear()
    return writer


def large(number: int) -> list[Any]:
    return [insert(number * 1000 + rid) for rid in range(LARGE_COMMIT)]


async def rids(writer: SqliteWriter) -> list[int]:
    found: list[Any] = await writer.call(
        lambda c: c.execute(f"SELECT rid FROM r_{TABLE} ORDER BY rid").fetchall()
    )
    return [rid for (rid,) in found]


async def test_the_thread_goes_from_a_large_commit_to_those_that_came_meanwhile(
    source: Source,
) -> None:
    sizes: list[int] = []
    writer = await started(source, sizes)
    first = writer.submit(SQL, large(1))
    await source.held()
    rest = [
        writer.submit(SQL, changes) for changes in (large(2), [insert(1)], [insert(2)], large(3))
    ]
    assert writer._hooks.waiting() == 0, "small ones that came before a large one go with it"
    source.go_on.set()
    await asyncio.gather(first, *rest)
    assert sizes == [1, 4]
    assert len(await rids(writer)) == 3 * LARGE_COMMIT + 2
    await writer.close()


async def test_they_keep_the_order_in_which_they_were_accepted_with_jobs_too(
    source: Source,
) -> None:
    sizes: list[int] = []
    writer = await started(source, sizes)
    first = writer.submit(SQL, large(1))
    await source.held()
    counts = [writer.call(lambda c: c.execute(f"SELECT count(*) FROM r_{TABLE}").fetchall()[0][0])]
    second = writer.submit(SQL, large(2))
    counts.append(
        writer.call(lambda c: c.execute(f"SELECT count(*) FROM r_{TABLE}").fetchall()[0][0])
    )
    source.go_on.set()
    assert await asyncio.gather(*counts) == [LARGE_COMMIT, 2 * LARGE_COMMIT]
    await asyncio.gather(first, second)
    assert sizes == [1, 1]
    await writer.close()


async def test_a_large_commit_that_fails_fails_alone(source: Source) -> None:
    writer = await started(source, [])
    first = writer.submit(SQL, large(1))
    await source.held()
    again, other = writer.submit(SQL, large(1)), writer.submit(SQL, large(2))
    source.go_on.set()
    await asyncio.gather(first, other)
    with pytest.raises(Conflict):
        await again
    assert len(await rids(writer)) == 2 * LARGE_COMMIT
    await writer.close()


async def test_all_that_were_handed_are_told_of_a_fault_and_the_next_one_is_tried(
    source: Source,
) -> None:
    writer = await started(source, [])
    before = sys.getswitchinterval()
    source.broken = VaultError(Code.VAULT_DOWN, "moved")
    handed = [writer.submit(SQL, large(number)) for number in (1, 2, 3)]
    assert sys.getswitchinterval() == pytest.approx(BRISK)
    source.go_on.set()
    faults = await asyncio.gather(*handed, return_exceptions=True)
    assert [isinstance(fault, VaultError) and fault.code for fault in faults] == [
        Code.VAULT_DOWN
    ] * 3
    source.broken = None
    await writer.submit(SQL, large(1))
    assert sys.getswitchinterval() == pytest.approx(before)
    await writer.close()


async def test_what_was_handed_counts_for_the_bound_and_is_finished_at_the_end(
    source: Source,
) -> None:
    sizes: list[int] = []
    writer = await started(source, sizes, waiting=2)
    handed = [writer.submit(SQL, large(number)) for number in (1, 2)]
    assert writer.full
    room = asyncio.create_task(writer.room())
    await asyncio.sleep(0)
    assert not room.done()
    source.go_on.set()
    await room
    await writer.close()
    assert [future.exception() for future in handed] == [None, None]
    assert sum(sizes) == 2


def test_only_many_changes_are_large() -> None:
    assert not is_large_commit(large(1)[1:])
    assert is_large_commit(large(1))


def test_what_stands_behind_is_joined_until_there_are_enough_or_something_else_stands_there() -> (
    None
):
    tasks: SimpleQueue[Task] = SimpleQueue()
    works: list[Any] = [(None, SQL, (number,)) for number in range(4)]
    for work in works[1:3]:
        tasks.put(LargeCommits([work], 2.0))
    assert joined_commits(LargeCommits(works[:1], 1.0), tasks, 2) == (
        LargeCommits(works[:2], 1.0),
        [],
    )
    tasks.put(None)
    tasks.put(LargeCommits(works[3:], 3.0))
    assert joined_commits(LargeCommits(works[:1], 1.0), tasks, 9) == (
        LargeCommits([works[0], works[2]], 1.0),
        [None],
    )
    assert joined_commits(LargeCommits(works[:1], 1.0), tasks, 9) == (
        LargeCommits([works[0], works[3]], 1.0),
        [],
    )


def test_turns_are_brisk_as_long_as_anybody_wants_it() -> None:
    before, turns = sys.getswitchinterval(), Turns()
    turns.hasten()
    turns.hasten()
    turns.relax()
    assert sys.getswitchinterval() == pytest.approx(BRISK)
    turns.relax()
    assert sys.getswitchinterval() == pytest.approx(before)
