import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from proxy.errors import Code, VaultError
from proxy.storage.base import Hooks
from proxy.storage.changes import Conflict
from proxy.storage.sqlite import apply
from proxy.storage.sqlite import writer as sqlite_writer
from proxy.storage.sqlite.apply import Work
from proxy.storage.sqlite.file import DatabaseFile
from proxy.storage.sqlite.statements import Statements, make
from proxy.storage.sqlite.tallies import WriterConnection
from proxy.storage.sqlite.writer import SqliteWriter, WriterLimits
from tests.support.patience import PATIENCE
from tests.support.rows import LAYOUT, TABLE, insert

SQL = Statements(LAYOUT)


class Source:
    """A database file whose connections and checks a test may break."""

    def __init__(self, path: Path) -> None:
        self.file = DatabaseFile(path)
        self.connections = 0
        self.broken: Exception | None = None
        self.hold: threading.Event | None = None  #: without it no transaction ends
        self._commit = self.file.tallies.commit
        self.file.tallies.commit = self._held  # type: ignore[method-assign]  # held here

    def _held(self, connection: sqlite3.Connection) -> None:
        if self.hold is not None:
            self.hold.wait(PATIENCE)
        self._commit(connection)

    def connect(self) -> WriterConnection:
        self.connections += 1
        return self.file.connect()

    def check(self) -> None:
        if self.broken is not None:
            raise self.broken
        self.file.check()


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    source = Source(tmp_path / "vault.db")
    yield source
    source.file.release()


async def started(source: Source, hooks: Hooks | None = None, **limits: Any) -> SqliteWriter:
    writer = SqliteWriter(cast("DatabaseFile", source), hooks or Hooks(), WriterLimits(**limits))
    await writer.call(lambda connection: make(connection, LAYOUT))
    return writer


async def rows(writer: SqliteWriter) -> int:
    found: list[Any] = await writer.call(
        lambda c: c.execute(f"SELECT count(*) FROM r_{TABLE}").fetchall()
    )
    return int(found[0][0])


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not reached():  # noqa: ASYNC110  # a thread makes it so
            await asyncio.sleep(0.01)


async def test_what_waits_becomes_one_group_and_wakes_the_loop_once(source: Source) -> None:
    sizes: list[int] = []
    hooks = Hooks(lambda size, _: sizes.append(size))
    writer = await started(source, hooks)
    source.hold = threading.Event()
    first = writer.submit(SQL, [insert(1)])
    await until(lambda: hooks.waiting() == 0)  # the writer holds the first one now
    rest = [writer.submit(SQL, [insert(rid)]) for rid in range(2, 102)]
    source.hold.set()
    await asyncio.gather(first, *rest)
    assert sizes == [1, 100]
    await writer.close()


async def test_who_comes_in_the_next_turns_of_the_loop_shares_the_flush(source: Source) -> None:
    sizes: list[int] = []
    writer = await started(source, Hooks(lambda size, _: sizes.append(size)))
    await asyncio.gather(*(writer.submit(SQL, [insert(rid)]) for rid in (1, 2)))

    async def late(rid: int) -> None:
        for _ in range(rid):
            await asyncio.sleep(0)
        await writer.submit(SQL, [insert(rid)])

    await asyncio.gather(*(late(rid) for rid in range(3, 11)))
    assert sizes == [2, 8]
    await writer.submit(SQL, [insert(11)])
    alone = writer.submit(SQL, [insert(12)])
    await asyncio.sleep(0)  # the writer begins: of late nobody came in the next turn
    assert writer._hooks.waiting() == 0
    await alone
    await writer.close()


async def test_enough_of_them_do_not_wait_for_more(source: Source) -> None:
    sizes: list[int] = []
    writer = await started(source, Hooks(lambda size, _: sizes.append(size)), gathered=1)
    source.hold = threading.Event()
    first = writer.submit(SQL, [insert(1)])
    await asyncio.sleep(0)
    rest = [writer.submit(SQL, [insert(rid)]) for rid in (2, 3)]
    source.hold.set()
    await asyncio.gather(first, *rest)
    assert sizes == [1, 2]
    await writer.close()


class Threads:
    """Which threads ran the statements of the groups, one entry a group."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        self.faults: list[Exception] = []
        real = apply.begin_group

        def begin(connection: WriterConnection, group: Sequence[Work]) -> None:
            self.seen.append(threading.current_thread().name)
            real(connection, group)
            if self.faults:
                raise self.faults.pop()

        for module in (apply, sqlite_writer):
            monkeypatch.setattr(module, "begin_group", begin)


LOOP, THREAD = "MainThread", "vault-writer"


async def test_statements_run_on_the_loop_as_soon_as_there_is_a_connection(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = Threads(monkeypatch)
    writer = SqliteWriter(cast("DatabaseFile", source), Hooks())
    empty = [writer.submit(SQL, []) for _ in range(2)]
    await asyncio.gather(*empty)
    await writer.call(lambda connection: make(connection, LAYOUT))
    await writer.submit(SQL, [insert(1)])
    assert threads.seen == [THREAD, LOOP]
    await writer.close()


async def test_large_groups_are_left_to_the_thread(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = Threads(monkeypatch)
    writer = await started(source, inline=3, slow=PATIENCE)
    await asyncio.gather(*(writer.submit(SQL, [insert(rid), insert(rid + 1)]) for rid in (1, 3)))
    await writer.submit(SQL, [insert(5)])
    assert threads.seen == [THREAD, LOOP]
    assert await rows(writer) == 5
    await writer.close()


async def test_groups_after_a_slow_one_are_left_to_the_thread(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = Threads(monkeypatch)
    writer = await started(source, slow=-1.0, spared=2)  # each one counts as slow
    for rid in (1, 2, 3, 4):
        await writer.submit(SQL, [insert(rid)])
    assert threads.seen == [LOOP, THREAD, THREAD, LOOP]
    assert await rows(writer) == 4
    await writer.close()


@pytest.mark.parametrize(
    "code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_MISMATCH]
)
async def test_what_fails_on_the_loop_is_tried_again_by_the_thread(
    source: Source, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    writer = await started(source)
    threads = Threads(monkeypatch)
    fault = sqlite3.OperationalError("once")
    fault.sqlite_errorcode = code
    threads.faults.append(fault)
    await asyncio.gather(*(writer.submit(SQL, [insert(rid)]) for rid in (1, 2)))
    assert threads.seen == [LOOP, THREAD]
    assert await rows(writer) == 2
    await writer.close()


async def test_a_database_that_is_locked_does_not_hold_up_the_loop(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience: list[tuple[str, int]] = []

    def told(run: Callable[..., Any]) -> Callable[..., Any]:
        def spy(connection: sqlite3.Connection, *arguments: Any, **more: Any) -> Any:
            ((found,),) = connection.execute("PRAGMA busy_timeout").fetchall()
            patience.append((threading.current_thread().name, found))
            return run(connection, *arguments, **more)

        return spy

    monkeypatch.setattr(sqlite_writer, "begin_group", told(apply.begin_group))
    monkeypatch.setattr(sqlite_writer, "apply_group", told(apply.apply_group))
    writer = await started(source, patience=60000)
    other = sqlite3.connect(source.file.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = writer.submit(SQL, [insert(1)])
    for _ in range(5):
        await asyncio.sleep(0.001)
    assert not waiting.done()
    other.execute("ROLLBACK")
    await waiting
    assert patience == [(LOOP, 0), (THREAD, 60000)]  # only the thread waits for the lock
    await writer.submit(SQL, [insert(2)])
    assert patience[2:] == [(LOOP, 0), (THREAD, 0)]  # and not for what has begun
    assert await rows(writer) == 2
    other.close()
    await writer.close()


async def test_a_file_that_was_moved_is_noticed_before_the_commit(source: Source) -> None:
    writer = await started(source)
    moved = source.file.path.with_name("moved.db")
    source.file.path.rename(moved)
    with pytest.raises(VaultError) as caught:
        await writer.submit(SQL, [insert(1)])
    assert caught.value.code is Code.VAULT_DOWN
    moved.rename(source.file.path)
    assert await rows(writer) == 0
    await writer.close()


async def test_a_group_is_bounded(source: Source) -> None:
    sizes: list[int] = []
    writer = await started(source, Hooks(lambda size, _: sizes.append(size)), group=10)
    await asyncio.gather(*(writer.submit(SQL, [insert(rid)]) for rid in range(1, 36)))
    assert max(sizes) == 10
    assert sum(sizes) == 35
    await writer.close()


async def test_jobs_and_commits_keep_their_order(source: Source) -> None:
    writer = await started(source)
    source.hold = threading.Event()
    one = writer.submit(SQL, [insert(1)])
    between = writer.call(lambda c: c.execute(f"SELECT count(*) FROM r_{TABLE}").fetchall())
    two = writer.submit(SQL, [insert(2)])
    source.hold.set()
    await asyncio.gather(one, two)
    assert await between == [(1,)]
    assert await rows(writer) == 2
    await writer.close()


async def test_a_full_queue_makes_the_next_one_wait(source: Source) -> None:
    hooks = Hooks()
    writer = await started(source, hooks, waiting=3)
    source.hold = threading.Event()
    held = writer.submit(SQL, [insert(1)])
    await until(lambda: hooks.waiting() == 0)
    accepted = [writer.submit(SQL, [insert(rid)]) for rid in (2, 3, 4)]
    assert hooks.waiting() == 3
    turns = [asyncio.ensure_future(writer.room()) for _ in range(2)]
    await asyncio.sleep(0.05)
    assert not any(turn.done() for turn in turns)
    turns[0].cancel()
    source.hold.set()
    await asyncio.gather(held, *accepted, turns[1])
    assert hooks.waiting() == 0
    await writer.close()


async def test_who_waits_for_room_learns_that_the_store_closes(source: Source) -> None:
    hooks = Hooks()
    writer = await started(source, hooks, waiting=1)
    source.hold = threading.Event()
    held = writer.submit(SQL, [insert(1)])
    await until(lambda: hooks.waiting() == 0)
    accepted = writer.submit(SQL, [insert(2)])
    closing = asyncio.ensure_future(writer.close())
    await asyncio.sleep(0)
    with pytest.raises(VaultError) as caught:
        await writer.room()
    assert caught.value.code is Code.VAULT_DOWN
    source.hold.set()
    await closing
    assert (held.done(), accepted.done()) == (True, True)


async def test_the_thread_survives_errors_of_the_store_and_tries_a_new_connection(
    source: Source,
) -> None:
    writer = await started(source)
    before = source.connections
    fault = sqlite3.OperationalError("disk I/O error")
    fault.sqlite_errorcode = sqlite3.SQLITE_IOERR
    source.broken = fault
    results = await asyncio.gather(
        *(writer.submit(SQL, [insert(rid)]) for rid in (1, 2)), return_exceptions=True
    )
    assert [result.code for result in results if isinstance(result, VaultError)] == [
        Code.VAULT_DOWN
    ] * 2
    assert results[0] is not results[1]
    with pytest.raises(VaultError):
        await writer.call(lambda _: None)
    source.broken = None
    await writer.submit(SQL, [insert(3)])
    assert await rows(writer) == 1
    assert source.connections == before + 1
    await writer.close()


async def test_the_thread_survives_what_nobody_thought_of(source: Source) -> None:
    writer = await started(source)
    source.broken = ZeroDivisionError("never seen before")
    with pytest.raises(VaultError) as caught:
        await writer.submit(SQL, [insert(1)])
    assert caught.value.code is Code.INTERNAL
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    source.broken = None
    await writer.submit(SQL, [insert(1)])
    await writer.close()


async def test_a_failing_job_is_rolled_back_and_told(source: Source) -> None:
    writer = await started(source)

    def half(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO notes VALUES ('a', x'00')")
        raise VaultError(Code.CONFLICT, "no")

    with pytest.raises(VaultError) as caught:
        await writer.call(half)
    assert caught.value.code is Code.CONFLICT
    assert await writer.call(lambda c: c.execute("SELECT * FROM notes").fetchall()) == []
    await writer.close()


async def test_a_conflict_reaches_its_caller_alone(source: Source) -> None:
    writer = await started(source)
    results = await asyncio.gather(
        *(writer.submit(SQL, [insert(1)]) for _ in range(3)), return_exceptions=True
    )
    assert [type(result) for result in results] == [type(None), Conflict, Conflict]
    await writer.close()


async def test_a_cancelled_caller_is_left_alone(source: Source) -> None:
    writer = await started(source)
    source.hold = threading.Event()
    good, bad = writer.submit(SQL, [insert(1)]), writer.submit(SQL, [insert(1)])
    job = writer.call(lambda _: 1)
    for future in (good, bad, job):
        future.cancel()
    source.hold.set()
    await writer.submit(SQL, [insert(2)])
    await writer.close()


async def test_close_finishes_what_waits_then_refuses(source: Source) -> None:
    writer = await started(source)
    accepted = [writer.submit(SQL, [insert(rid)]) for rid in range(1, 50)]
    await asyncio.gather(writer.close(), writer.close())
    assert await asyncio.gather(*accepted) == [None] * 49
    with pytest.raises(VaultError) as caught:
        await writer.submit(SQL, [insert(99)])
    assert caught.value.code is Code.VAULT_DOWN
    assert not writer._thread.is_alive()


async def test_the_log_is_moved_when_nobody_waits_and_emptied_later(source: Source) -> None:
    writer = await started(source, idle=0.05)
    path = source.file.path
    log = path.with_name("vault.db-wal")
    for number in range(1, 6):
        await writer.submit(SQL, [insert(number)])
    before, length = path.stat().st_mtime_ns, log.stat().st_size
    await until(lambda: path.stat().st_mtime_ns > before)
    await until(lambda: writer._thread_idle)
    await writer.submit(SQL, [insert(6)])
    assert log.stat().st_size == length, "it has to grow again"
    writer._last_durable -= 60  # a minute without work
    writer._checkpoint_if_due()
    await until(lambda: log.stat().st_size == 0)
    assert await rows(writer) == 6
    await writer.close()


async def test_a_reader_that_blocks_the_log_only_delays_it(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    move, tries = SqliteWriter._checkpoint, []

    def counted(writer: SqliteWriter, *, empty: bool) -> None:
        move(writer, empty=empty)
        tries.append(writer)

    monkeypatch.setattr(SqliteWriter, "_checkpoint", counted)
    writer = await started(source, idle=0.05, log_idle=0.05)
    log = source.file.path.with_name("vault.db-wal")
    reader = source.file.connect_reader()
    await writer.submit(SQL, [insert(1)])
    cursor = reader.execute(f"SELECT rid FROM r_{TABLE} UNION ALL SELECT 2")
    cursor.fetchone()  # an old state stays open
    before = len(tries)
    await until(lambda: len(tries) >= before + 2)  # the first of them may have begun before
    await writer.submit(SQL, [insert(2)])
    assert log.stat().st_size > 0
    cursor.fetchall()
    await until(lambda: log.stat().st_size == 0)
    reader.close()
    await writer.close()


def test_a_loop_that_is_gone_ends_the_thread(source: Source) -> None:
    async def abandon() -> tuple[SqliteWriter, asyncio.Future[None]]:
        writer = await started(source)
        source.hold = threading.Event()
        return writer, writer.submit(SQL, [insert(1)])

    writer, never = asyncio.run(abandon())
    assert source.hold is not None
    source.hold.set()
    writer._thread.join(PATIENCE)
    assert not writer._thread.is_alive()
    assert not never.done()
