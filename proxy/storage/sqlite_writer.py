"""The one thread that writes: takes what waits, makes it durable as one group, wakes the event loop once.

While one group is being flushed to disk the next one gathers by itself, so that a hundred callers cost one flush.
The thread survives every error: the group that met it fails, the next one is tried on a fresh connection.
Methods of the first half run on the event loop, those of the second half on the writer's thread. The two share a
deque, a flag and a bell; each is written by single operations that the interpreter does not interrupt.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from sqlite3 import Connection, Error
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from proxy.storage.base import Change
from proxy.storage.hooks import Hooks
from proxy.storage.names import closed
from proxy.storage.sqlite_apply import Outcomes, Work, apply, roll_back
from proxy.storage.sqlite_errors import is_of_the_store, translated
from proxy.storage.sqlite_sql import Statements

#: Commits that may wait; who comes then awaits room.
WAITING = 4096
#: Commits in one transaction at most.
GROUP = 512
#: Seconds without work after which the log is moved into the database.
IDLE = 1.0


class Job(NamedTuple):
    """Anything else to be done in a transaction of its own; the future gets what ``run`` answers."""

    future: asyncio.Future[Any]
    run: Callable[[Connection], Any]


class Source(Protocol):
    """Where the writer gets its connection from; both methods are called on the writer's thread."""

    def connect(self) -> Connection:
        """A new connection that may write."""

    def check(self) -> None:
        """``VaultError(VAULT_DOWN)`` when the file that was opened is no longer in its place."""


class Writer:
    """Must be made on the running event loop. ``hooks`` is told of every group."""

    def __init__(self, source: Source, hooks: Hooks, waiting: int = WAITING) -> None:
        self._source = source
        self._hooks = hooks
        self._bound = waiting
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Work | Job] = deque()
        self._blocked: deque[asyncio.Future[None]] = deque()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._asleep = False
        self._closed: asyncio.Future[None] | None = None
        self._connection: Connection | None = None
        self._dirty = False
        self._since = 0.0  # when the oldest of those that wait was accepted
        hooks.waiting = self._waiting.__len__
        self._thread = threading.Thread(target=self._run, name="vault-writer", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------ on the event loop

    @property
    def full(self) -> bool:
        """Whether as many commits wait as may."""
        return len(self._waiting) >= self._bound

    async def room(self) -> None:
        """Wait until there is room for one more commit."""
        while self.full:
            if self._closed is not None:
                raise closed()
            turn = self._loop.create_future()
            self._blocked.append(turn)
            await turn

    def submit(self, sql: Statements, changes: Sequence[Change]) -> asyncio.Future[None]:
        """Accept a commit; they are applied in the order in which they are accepted."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._accept((future, sql, changes))
        return future

    def call(self, run: Callable[[Connection], Any]) -> asyncio.Future[Any]:
        """Accept a job; what it answers or raises comes out of the future."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._accept(Job(future, run))
        return future

    async def close(self) -> None:
        """Finish what was accepted, close the connection, end the thread. Idempotent."""
        if self._closed is None:
            self._closed = self._loop.create_future()
            self._bell.put(None)
        await asyncio.shield(self._closed)
        self._thread.join()

    def _accept(self, item: Work | Job) -> None:
        if self._closed is not None:
            raise closed()
        if not self._waiting:
            self._since = perf_counter()
        self._waiting.append(item)
        if self._asleep:
            self._asleep = False
            self._bell.put(None)

    def _settle(self, group: Sequence[Work], outcomes: Outcomes, since: float) -> None:
        if outcomes is None:
            for future, _, _ in group:
                if not future.done():  # else the caller was cancelled
                    future.set_result(None)
        else:
            for (future, _, _), fault in zip(group, outcomes, strict=True):
                _resolve(future, None, fault)
        if self._blocked:
            self._unblock()
        self._hooks.on_batch(len(group), perf_counter() - since)

    def _settle_job(self, job: Job, answer: Any, fault: Exception | None) -> None:
        _resolve(job.future, answer, fault)
        self._unblock()

    def _unblock(self) -> None:
        free = self._bound - len(self._waiting)
        while free > 0 and self._blocked:
            turn = self._blocked.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1

    def _settle_close(self) -> None:
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)
        self._unblock()

    # ------------------------------------------------------------ on the writer's thread

    def _run(self) -> None:
        try:
            while self._wait():
                first = self._waiting[0]
                if isinstance(first, Job):
                    self._waiting.popleft()
                    self._do_job(first)
                else:
                    self._do_group()
            self._disconnect()
            self._post(self._settle_close)
        except RuntimeError:  # the event loop is gone: nobody is left to be told, and nothing more will come
            self._disconnect()

    def _wait(self) -> bool:
        """Sleep until there is work; ``False`` when the store closes and everything is done."""
        while not self._waiting:
            if self._closed is not None:
                return False
            self._asleep = True
            if self._waiting or self._closed is not None:  # it came while the flag was still down
                self._asleep = False
                continue
            try:
                self._bell.get(timeout=IDLE if self._dirty else None)
            except Empty:
                self._move_log()
            self._asleep = False
        return True

    def _take(self) -> list[Work]:
        """What waits, up to the next job."""
        group: list[Work] = []
        waiting = self._waiting
        for _ in range(min(len(waiting), GROUP)):
            item = waiting[0]
            if isinstance(item, Job):
                break
            group.append(item)
            waiting.popleft()
        return group

    def _do_group(self) -> None:
        since, group = self._since, self._take()
        outcomes: Outcomes
        try:
            outcomes = apply(self._connected(), group)
        except Exception as error:  # noqa: BLE001 - each caller is told; the thread has to live on
            self._disconnect()
            outcomes = [translated(error) for _ in group]
        self._post(self._settle, group, outcomes, since)

    def _do_job(self, job: Job) -> None:
        answer: Any = None
        fault: Exception | None = None
        try:
            answer = _in_transaction(self._connected(), job.run)
        except Exception as error:  # noqa: BLE001 - the caller is told; the thread has to live on
            fault = translated(error)
            if is_of_the_store(error):
                self._disconnect()
        self._post(self._settle_job, job, answer, fault)

    def _connected(self) -> Connection:
        self._source.check()
        if self._connection is None:
            self._connection = self._source.connect()
        self._dirty = True
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._dirty = False
        if connection is not None:
            try:
                connection.close()
            except Error:  # whatever kept it from closing has been told with the group that met it
                return

    def _move_log(self) -> None:
        """Empty the log into the database while nobody waits; what is removed then no longer lingers in the log."""
        self._dirty = False
        if self._connection is None:
            return
        try:
            self._connection.execute("PRAGMA busy_timeout = 50")
            busy = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
            self._connection.execute("PRAGMA busy_timeout = 2000")
            self._dirty = bool(busy)
        except Error:  # the log keeps everything; the next group meets the fault and tells it
            self._disconnect()

    def _post(self, call: Callable[..., None], *arguments: Any) -> None:
        self._loop.call_soon_threadsafe(call, *arguments)


def _resolve(future: asyncio.Future[Any], answer: Any, fault: Exception | None) -> None:
    if future.done():  # the caller was cancelled
        return
    if fault is None:
        future.set_result(answer)
    else:
        future.set_exception(fault)


def _in_transaction(connection: Connection, run: Callable[[Connection], Any]) -> Any:
    connection.execute("BEGIN IMMEDIATE")
    try:
        answer = run(connection)
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise
    return answer
