"""Group commit: waiting commits become durable as one group, and the event loop is woken once.

The statements of a group run on the event loop, some microseconds each; a thread flushes to disk,
and runs large commits: asking for the interpreter's lock after each row takes a third more time.
Meanwhile the next group gathers. The connection is the thread's from a task's start until its
result is posted. An error fails its group; the next one is tried on a fresh connection.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from sqlite3 import Connection, Error
from time import perf_counter
from typing import Any, NamedTuple, cast

from proxy.offload import turns
from proxy.storage.base import Hooks
from proxy.storage.changes import Change, CommitWaiter
from proxy.storage.query import closed
from proxy.storage.sqlite.apply import (
    LargeCommits,
    Outcomes,
    Task,
    Work,
    apply_group,
    begin_group,
    in_transaction,
    is_large_commit,
    joined_commits,
    roll_back,
)
from proxy.storage.sqlite.file import DatabaseFile, is_of_the_store, translated_error
from proxy.storage.sqlite.statements import Statements
from proxy.storage.sqlite.tallies import WriterConnection

#: Milliseconds to wait for a locked database: on the event loop, and when the log is emptied.
_NO_WAIT, _CHECKPOINT_WAIT = 0, 50


@dataclass(frozen=True, slots=True)
class WriterLimits:
    """Sizes and times of a writer."""

    waiting: int = 4096  #: commits that may wait; later ones await room
    group: int = 512  #: commits in one transaction at most
    gathered: int = 16  #: of them start a group at once: later ones gather during its flush
    #: Changes of a group at most that the event loop runs itself; more would hold up everybody.
    inline: int = 256
    #: Seconds that it may take for them. After a group that took longer (a cold disk, a huge
    #: database) the thread runs the statements of the next ``spared`` groups.
    slow: float = 0.01
    spared: int = 100
    #: Seconds without work after which the log is moved into the database, and is emptied: where it
    #: has to grow again, the disk takes twice as long for a commit.
    idle: float = 1.0
    log_idle: float = 10.0
    patience: int = 2000  #: milliseconds for which the thread waits for a locked database


class WriterTask(NamedTuple):
    """Any other work, in a transaction of its own; the future gets what ``run`` answers."""

    future: asyncio.Future[Any]
    run: Callable[[Connection], Any]


class SqliteWriter:
    """Must be made on the running event loop. ``hooks`` gets every group."""

    def __init__(
        self, source: DatabaseFile, hooks: Hooks, limits: WriterLimits = WriterLimits()
    ) -> None:
        self._source = source
        self._hooks = hooks
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Work | WriterTask] = deque()
        self._awaiting_room: deque[asyncio.Future[None]] = deque()
        self._tasks: SimpleQueue[Task] = SimpleQueue()  # for the thread
        self._thread_idle = True  #: no task runs there, and none is on its way
        self._closed: asyncio.Future[None] | None = None
        self._connection: WriterConnection | None = None
        self._busy_timeout = -1  #: milliseconds, as the connection has it; -1: not set yet
        self._log_filled = False  #: whether a checkpoint has something to do
        self._log_copied = False  #: whether the database has all of the log, which is not empty
        self._timer: asyncio.TimerHandle | None = None  #: of the next checkpoint
        self._groups_for_thread = 0  #: next groups that the loop does not run, after a slow one
        self._last_had_several = False  #: whether the last group had more than one commit
        self._large_waits = False  #: whether a large commit may be among those that wait
        self._on_thread = 0  #: commits whose statements the thread runs, or will run
        self._oldest_accepted = 0.0  #: when the oldest of those that wait came
        self._last_durable = 0.0  #: when the last group became durable
        hooks.waiting = self._waiting.__len__
        self._thread = threading.Thread(target=self._run, name="vault-writer", daemon=True)
        self._thread.start()

    @property
    def full(self) -> bool:
        """Whether as many commits wait as may."""
        return len(self._waiting) + self._on_thread >= self._limits.waiting

    async def room(self) -> None:
        """Wait until there is room for one more commit."""
        while self.full:
            if self._closed is not None:
                raise closed()
            self._awaiting_room.append(turn := self._loop.create_future())
            await turn

    def submit(self, sql: Statements, changes: Sequence[Change]) -> asyncio.Future[None]:
        """Accept a commit; they are applied in the order in which they are accepted."""
        future: asyncio.Future[None] = self._loop.create_future()
        self.accept((future, sql, changes))
        return future

    def call(self, run: Callable[[Connection], Any]) -> asyncio.Future[Any]:
        """Accept a job; its result or error comes from the future."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self.accept(WriterTask(future, run))
        return future

    async def close(self) -> None:
        """Finish accepted work, close the connection, end the thread. Idempotent."""
        if self._closed is None:
            self._closed = self._loop.create_future()
            if self._thread_idle:
                self._tasks.put(None)
        await asyncio.shield(self._closed)
        self._thread.join()

    def accept(self, item: Work | WriterTask, *, small: bool = False) -> bool:
        """Accept a commit or a job. ``small``: one that is not large, false if there is no room."""
        if self._closed is not None:
            raise closed()
        waiting = self._waiting
        if small and len(waiting) + self._on_thread >= self._limits.waiting:
            return False
        if not waiting:
            self._oldest_accepted = perf_counter()
        waiting.append(item)
        large = not (small or isinstance(item, WriterTask)) and is_large_commit(item[2])
        self._large_waits = self._large_waits or large
        if self._thread_idle:
            self._thread_idle = False
            if large:
                self._start()
            else:
                self._loop.call_soon(self._gather, 0)
        elif large and self._on_thread:
            while waiting and not isinstance(waiting[0], WriterTask):
                self._give_to_thread(self._take())
            self._large_waits = bool(waiting)
        return True

    def _gather(self, before: int) -> None:
        """Begin a group once a turn of the loop brings no more, at once if none came so of late."""
        waiting = len(self._waiting)
        if before < waiting < self._limits.gathered and (self._last_had_several or waiting > 1):
            self._loop.call_soon(self._gather, waiting)
        else:
            self._start()

    def _start(self) -> None:
        """Give the thread its next task."""
        first = self._waiting.popleft()
        if isinstance(first, WriterTask):
            self._tasks.put(partial(self._do_job, first))
            return
        group = [first, *self._take(1)] if self._waiting else [first]
        self._last_had_several = len(group) > 1
        if not self._large_waits and self._begin(group):
            self._tasks.put(partial(self._do_group, group, self._oldest_accepted, begun=True))
        else:
            self._give_to_thread(group)
        self._large_waits = self._large_waits and bool(self._waiting)

    def _give_to_thread(self, group: list[Work]) -> None:
        if not self._on_thread:
            turns.hasten()
        self._on_thread += len(group)
        self._tasks.put(LargeCommits(group, self._oldest_accepted))

    def _take(self, taken: int = 0) -> list[Work]:
        """Take the waiting commits, up to the next job; ``taken``: those that the group has."""
        group: list[Work] = []
        waiting = self._waiting
        for _ in range(min(len(waiting), self._limits.group - taken)):
            item = waiting[0]
            if isinstance(item, WriterTask):
                break
            group.append(item)
            waiting.popleft()
        return group

    def _begin(self, group: Sequence[Work]) -> bool:
        """Run the statements of the group here and now; ``False`` where the thread has to do it
        all.
        """
        connection = self._connection
        if connection is None or (
            len(group) > 1 and sum([len(changes) for _, _, changes in group]) > self._limits.inline
        ):
            return False
        if self._groups_for_thread:
            self._groups_for_thread -= 1
            return False
        start = perf_counter()
        try:
            if self._busy_timeout != _NO_WAIT:
                self._set_busy_timeout(connection, _NO_WAIT)
            self._source.check()
            begin_group(connection, group)
        except Exception:  # noqa: BLE001 - the thread tries it again and tells who is at fault
            _abandon(connection)
            return False
        if perf_counter() - start > self._limits.slow:
            self._groups_for_thread = self._limits.spared
        return True

    def _next_task(self) -> None:
        """The thread is free again."""
        if self._waiting:
            self._loop.call_soon(self._gather, 0)
        elif self._closed is not None:
            self._tasks.put(None)
        else:
            self._thread_idle = True
            if self._log_filled and self._timer is None:
                self._timer = self._loop.call_later(self._limits.idle, self._checkpoint_if_due)

    def _checkpoint_if_due(self) -> None:
        """Checkpoint the log after a while without writes."""
        self._timer = None
        if not self._thread_idle or self._closed is not None:
            return  # ``_next_task`` comes again
        quiet = perf_counter() - self._last_durable
        due = self._limits.log_idle if self._log_copied else self._limits.idle
        if quiet < due:
            self._timer = self._loop.call_later(due - quiet, self._checkpoint_if_due)
            return
        self._thread_idle = False
        self._tasks.put(partial(self._do_checkpoint, empty=quiet >= self._limits.log_idle))

    def _settle_on_thread(self, group: Sequence[Work], outcomes: Outcomes, since: float) -> None:
        self._on_thread -= len(group)
        if not self._on_thread:
            turns.relax()
        self._settle(group, outcomes, since)

    def _settle(self, group: Sequence[Work], outcomes: Outcomes, since: float) -> None:
        if outcomes is None:
            for future, _, _ in group:
                try:
                    future.set_result(None)
                except asyncio.InvalidStateError:  # the caller was cancelled
                    continue
        else:
            for (future, _, _), fault in zip(group, outcomes, strict=True):
                _resolve(future, None, fault)
        if self._awaiting_room:
            self._give_room()
        self._last_durable = perf_counter()
        self._hooks.on_batch(len(group), self._last_durable - since)
        if not self._on_thread:
            self._next_task()

    def _settle_job(self, job: WriterTask, answer: Any, fault: Exception | None) -> None:
        _resolve(job.future, answer, fault)
        self._give_room()
        self._last_durable = perf_counter()
        self._next_task()

    def _give_room(self) -> None:
        free = self._limits.waiting - len(self._waiting) - self._on_thread
        while free > 0 and self._awaiting_room:
            turn = self._awaiting_room.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1

    def _settle_close(self) -> None:
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
        self._give_room()

    def _set_busy_timeout(self, connection: Connection, patience: int) -> None:
        """Set the lock time-out of the connection; for the holder of the turn."""
        if self._busy_timeout != patience:
            connection.execute(f"PRAGMA busy_timeout = {patience}")
            self._busy_timeout = patience

    # ------------------------------------------------------------ on the writer's thread

    def _run(self) -> None:
        try:
            taken: list[Task] = []
            while (task := taken.pop() if taken else self._tasks.get()) is not None:
                if isinstance(task, LargeCommits):
                    handed, taken = joined_commits(task, self._tasks, self._limits.group)
                    self._do_group(*handed)
                else:
                    task()
                del task  # what it holds is freed by the loop, which need not wait for it then
            self._disconnect()
            self._post(self._settle_close)
        except RuntimeError:  # the event loop is gone: nobody waits, and nothing more will come
            self._disconnect()

    def _do_group(self, group: Sequence[Work], since: float, *, begun: bool = False) -> None:
        outcomes: Outcomes
        try:
            if begun:  # it was looked at then, and the loop is slow to release the lock
                connection = cast("WriterConnection", self._connection)
                self._log_filled, self._log_copied = True, False
            else:
                connection = self._connected()
                self._set_busy_timeout(connection, self._limits.patience)
            outcomes = apply_group(connection, group, begun=begun)
        except Exception as error:  # noqa: BLE001 - each caller is told; the thread has to live on
            self._disconnect()
            outcomes = [translated_error(error) for _ in group]
        self._post(self._settle if begun else self._settle_on_thread, group, outcomes, since)

    def _do_job(self, job: WriterTask) -> None:
        answer: Any = None
        fault: Exception | None = None
        try:
            connection = self._connected()
            self._set_busy_timeout(connection, self._limits.patience)
            answer = in_transaction(connection, job.run)
        except Exception as error:  # noqa: BLE001 - the caller is told; the thread has to live on
            fault = translated_error(error)
            if is_of_the_store(error):
                self._disconnect()
        self._post(self._settle_job, job, answer, fault)

    def _do_checkpoint(self, *, empty: bool) -> None:
        self._checkpoint(empty=empty)
        self._post(self._next_task)

    def _connected(self) -> WriterConnection:
        self._source.check()
        if self._connection is None:
            self._connection, self._busy_timeout = self._source.connect(), -1
        self._log_filled, self._log_copied = True, False
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection, self._log_filled = self._connection, None, False
        if connection is not None:
            with suppress(Error):  # what keeps it from closing was told with the group that met it
                connection.close()

    def _checkpoint(self, *, empty: bool) -> None:
        """Move the log into the database while idle; ``empty``: no removed data lingers in it."""
        self._log_filled = False
        if self._connection is None:
            return
        try:
            self._set_busy_timeout(self._connection, _CHECKPOINT_WAIT)
            mode = "TRUNCATE" if empty else "PASSIVE"
            busy = self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()[0][0]
            self._log_filled, self._log_copied = bool(busy) or not empty, True
        except Error:  # the log keeps everything; the next group meets the fault and tells it
            self._disconnect()

    def _post(self, call: Callable[..., None], *arguments: Any) -> None:
        self._loop.call_soon_threadsafe(call, *arguments)


def _resolve(future: CommitWaiter, answer: Any, fault: Exception | None) -> None:
    if future.done():  # the caller was cancelled
        return
    if fault is None:
        future.set_result(answer)
    else:
        future.set_exception(fault)


def _abandon(connection: WriterConnection) -> None:
    with suppress(Error):  # the thread meets the fault of the connection at its next use
        roll_back(connection)
