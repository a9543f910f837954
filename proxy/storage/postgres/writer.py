"""Group commit: commits that wait go into one transaction, in the order in which they were called.

While a group is on its way to the disk the next one gathers, so that a hundred callers cost one
flush. A group with a failed precondition is halved until the failing commit is alone, and that one
runs change by change while no other instance writes. So is a group that waits for a row which a
session of somebody else has locked: only the commits of that row are refused. If the connection
breaks, the group is tried once more on a new one; if it breaks in a ``COMMIT``, the table
``writers`` tells the outcome.
"""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import groupby
from time import perf_counter
from typing import Any, Final, NamedTuple

import asyncpg

from proxy.errors import Code, VaultError
from proxy.storage.base import Hooks
from proxy.storage.changes import Change, Conflict, Underway
from proxy.storage.postgres.faults import (
    is_link_fault,
    is_locked,
    is_race,
    is_store_fault,
    vault_error,
)
from proxy.storage.postgres.link import DatabaseLink, begin
from proxy.storage.postgres.replicas import tell
from proxy.storage.postgres.statements import LockedRows, PostgresSegment, QueuedCommit, TableSql
from proxy.storage.postgres.tallies import TableSums
from proxy.storage.query import closed
from proxy.storage.segment import PreconditionFailed

#: Commits that may wait; later ones await room.
_WAITING: Final = 4096
#: Commits and changes in one transaction at most.
_GROUP_COMMITS, _GROUP_CHANGES = 512, 20_000
#: Tries of a transaction that another session was in the way of.
_TRIES: Final = 3
#: Seconds that a transaction waits for a lock of another session; that a part of a group waits
#: where the whole has waited so long; and after which the rest of it is refused as well: the table
#: is locked, then, and not a row.
_LOCKED: Final = 1.0
_LOCKED_STILL: Final = 0.1
_SORTING: Final = 5.0
#: Seconds for which a row that was locked is not tried again.
_PAUSE: Final = 1.0

#: What became of each commit of a group; ``None``: it is durable.
_Outcomes = list[Exception | None]


class _Job(NamedTuple):
    """Any other work in a separate transaction."""

    future: asyncio.Future[Any]
    run: Callable[[Any], Awaitable[Any]]
    patience: float | None  #: seconds that it may take


class PostgresWriter:
    """Must be made on the running event loop. ``hooks`` gets every group."""

    def __init__(self, link: DatabaseLink, hooks: Hooks) -> None:
        self.tallies = TableSums()
        self._link = link
        self._hooks = hooks
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[QueuedCommit | _Job] = deque()
        self._room = asyncio.Condition()
        self._since = 0.0  # when the oldest of those that wait was accepted
        self._closed = False
        self._work: asyncio.Task[None] | None = None
        self._locked = LockedRows()
        hooks.waiting = self._waiting.__len__

    @property
    def full(self) -> bool:
        """Whether as many commits wait as may."""
        return len(self._waiting) >= _WAITING

    async def room(self) -> None:
        """Wait until there is room for one more commit."""
        async with self._room:
            await self._room.wait_for(lambda: not self.full or self._closed)

    def submit(self, sql: TableSql, changes: Sequence[Change]) -> asyncio.Future[None]:
        """Accept a commit; they are applied in the order in which they are accepted."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._accept((future, sql, changes))
        return future

    def call(
        self, run: Callable[[Any], Awaitable[Any]], patience: float | None = None
    ) -> asyncio.Future[Any]:
        """Accept a job with its time limit in seconds; the future gets its result or error."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._accept(_Job(future, run, patience))
        return future

    async def close(self) -> None:
        """Finish accepted work. Idempotent."""
        self._closed = True
        while self._work is not None and not self._work.done():
            await asyncio.wait([self._work])

    def _accept(self, item: QueuedCommit | _Job) -> None:
        if self._closed:
            raise closed()
        if not self._waiting:
            self._since = perf_counter()
        self._waiting.append(item)
        if self._work is None or self._work.done():
            self._work = self._loop.create_task(self._run())

    async def _run(self) -> None:
        while self._waiting:
            before = 0
            while before < len(self._waiting) < _GROUP_COMMITS:  # others are ready in this turn
                before = len(self._waiting)
                await asyncio.sleep(0)
            since = self._since
            first = self._waiting[0]
            if isinstance(first, _Job):
                self._waiting.popleft()
                await self._do_job(first)
            else:
                await self._do_group(self._take(), since)
            self._since = perf_counter()
            async with self._room:
                self._room.notify_all()

    def _take(self) -> list[QueuedCommit]:
        """Take the waiting commits, up to the next job."""
        group: list[QueuedCommit] = []
        size = 0
        while self._waiting and len(group) < _GROUP_COMMITS and size < _GROUP_CHANGES:
            item = self._waiting[0]
            if isinstance(item, _Job):
                break
            group.append(item)
            size += len(item[2])
            self._waiting.popleft()
        return group

    async def _do_group(self, group: Sequence[QueuedCommit], since: float) -> None:
        for locked, some in groupby(group, lambda work: self._locked.since(work) is not None):
            for part in [[work] for work in some] if locked else [[*some]]:
                await self._do_part(part, locked=locked)
        self._hooks.on_batch(len(group), perf_counter() - since)

    async def _do_part(self, part: Sequence[QueuedCommit], *, locked: bool) -> None:
        outcomes: _Outcomes
        try:
            outcomes = await (self._retried(part) if locked else self._applied(part, _LOCKED))
        except Exception as error:  # noqa: BLE001 - each caller is told; the writer has to live on
            outcomes = [vault_error(error) for _ in part]
        for (future, _, _), fault in zip(part, outcomes, strict=True):
            _resolve(future, None, fault)

    async def _retried(self, part: Sequence[QueuedCommit]) -> _Outcomes:
        """Try a commit whose row was locked; refuse it where that was a moment ago."""
        since = self._locked.since(part[0])
        if since is not None and self._loop.time() - since < _PAUSE:
            return [vault_error(asyncpg.LockNotAvailableError())]
        self._locked.forget(part[0])
        return await self._applied(part, _LOCKED_STILL)

    async def _do_job(self, job: _Job) -> None:
        answer: Any = None
        fault: Exception | None = None

        async def run(connection: Any) -> None:
            nonlocal answer
            answer = await job.run(connection)

        try:
            wait = 0.0 if job.patience else _LOCKED
            await self._transaction(run, patience=job.patience, wait=wait)
        except Exception as error:  # noqa: BLE001 - the caller is told; the writer has to live on
            fault = vault_error(error)
        _resolve(job.future, answer, fault)

    async def _applied(
        self, group: Sequence[QueuedCommit], wait: float, end: float = math.inf
    ) -> _Outcomes:
        """Make the group durable, except for failing commits.

        ``wait``: seconds for each lock of another session. After ``end``, what meets one is refused
        without a closer look. Raises if the store fails: then nothing of it is stored.
        """
        try:
            await self._transaction(lambda one: self._together(one, group), wait=wait)
            return [None] * len(group)
        except Exception as error:
            if is_locked(error):
                now, wait = self._loop.time(), _LOCKED_STILL
                if len(group) == 1 or now > end:
                    self._locked.note(group, now)
                    return [vault_error(error) for _ in group]
                end = min(end, now + _SORTING)
            elif is_store_fault(error) or (isinstance(error, VaultError) and _is_down(error)):
                raise
        if len(group) == 1:
            return [await self._alone(group[0])]
        half = len(group) // 2
        first = await self._applied(group[:half], wait, end)
        return [*first, *await self._applied(group[half:], wait, end)]

    async def _alone(self, work: QueuedCommit) -> Exception | None:
        """Run a commit change by change while no other instance writes; return its conflict."""
        _, sql, changes = work

        async def run(connection: Any) -> None:
            rows = 0
            for change in changes:
                if isinstance(change, Underway):
                    await self._tell(connection, sql, change)
                else:
                    rows += await _change(connection, sql, change)
            await self._grow(connection, {sql: rows})

        try:
            await self._transaction(run, alone=True, wait=_LOCKED)
        except (Conflict, VaultError) as error:
            return error
        except Exception as error:
            if is_store_fault(error) and not is_locked(error):
                raise
            return vault_error(error)
        return None

    async def _tell(self, connection: Any, sql: TableSql, work: Underway) -> None:
        try:
            await tell(connection, self._link.writer_id, [(sql.layout.table, work)])
        except asyncpg.IntegrityConstraintViolationError:
            raise Conflict(work) from None

    async def _together(self, connection: Any, group: Sequence[QueuedCommit]) -> None:
        segments: dict[TableSql, PostgresSegment] = {}
        growth: dict[TableSql, int] = {}
        works: list[tuple[str, Underway]] = []
        for _, sql, changes in group:
            segment = segments.get(sql)
            if segment is None:
                segment = segments[sql] = PostgresSegment(sql)
            for change in changes:
                if type(change) is Underway:
                    works.append((sql.layout.table, change))
                    continue
                if not segment.adding[type(change)](segment, change):
                    growth[sql] = growth.get(sql, 0) + await segment.run(connection)
                    segment = segments[sql] = PostgresSegment(sql)
                    segment.adding[type(change)](segment, change)
        for sql, segment in segments.items():
            growth[sql] = growth.get(sql, 0) + await segment.run(connection)
        await self._grow(connection, growth)
        if works:
            await tell(connection, self._link.writer_id, works)

    async def _grow(self, connection: Any, growth: dict[TableSql, int]) -> None:
        texts = [
            sql.grow.format(table=sql.layout.table, writer=self._link.writer_id, rows=rows)
            for sql, rows in growth.items()
            if rows
        ]
        if texts:
            await connection.execute("; ".join(texts))

    async def _transaction(
        self,
        run: Callable[[Any], Awaitable[None]],
        *,
        alone: bool = False,
        patience: float | None = None,
        wait: float,
    ) -> None:
        """Run it in a transaction that is durable when this returns; again where another session
        was in the way, or the connection broke before the end.
        """
        async with asyncio.timeout(patience or 3 * self._link.address.timeout):
            for _ in range(_TRIES - 1):
                fault = await self._fault_of(run, alone=alone, wait=wait)
                if fault is None:
                    return
                alone = alone or is_race(fault)  # then no other writer is in the way
            await self._try(run, alone=alone, wait=wait)

    async def _fault_of(
        self, run: Callable[[Any], Awaitable[None]], *, alone: bool, wait: float
    ) -> Exception | None:
        """Return the fault of one try that may be repeated; raise any other."""
        try:
            await self._try(run, alone=alone, wait=wait)
        except Exception as error:
            if isinstance(error, TimeoutError) or not (is_race(error) or is_link_fault(error)):
                raise
            return error
        return None

    async def _try(
        self, run: Callable[[Any], Awaitable[None]], *, alone: bool, wait: float
    ) -> None:
        connection = await self._link.writer()
        number = 0
        ending = False
        try:
            await self.tallies.collect(connection)
            number = await begin(connection, self._link, alone=alone, wait=wait)
            await run(connection)
            await self.tallies.write(connection)
            ending = True
            await connection.execute("COMMIT")
            self.tallies.durable()
        except BaseException as error:
            if is_link_fault(error) or not isinstance(error, Exception):
                self._link.drop_writer()
                if ending and await self._happened(number):
                    self.tallies.durable()
                    return
            else:
                await self._roll_back(connection)
            raise

    async def _happened(self, number: int) -> bool:
        """Whether a transaction of unknown outcome is stored.

        It asks any server that answers within the time limit of a write.
        """
        end = self._loop.time() + self._link.address.timeout
        while True:
            try:
                return await self._link.happened(number)
            except Exception:
                if self._loop.time() > end:
                    raise
            await asyncio.sleep(0.05)

    async def _roll_back(self, connection: asyncpg.Connection) -> None:
        try:
            await connection.execute("ROLLBACK")
        except Exception:  # noqa: BLE001 - the next one begins on another connection
            self._link.drop_writer()


async def _change(connection: Any, sql: TableSql, change: Change) -> int:
    segment = PostgresSegment(sql, alone=True)
    segment.adding[type(change)](segment, change)
    try:
        return await segment.run(connection)
    except PreconditionFailed as unmet:
        raise unmet.conflict(change) from None
    except asyncpg.IntegrityConstraintViolationError:
        raise Conflict(change) from None


def _is_down(error: VaultError) -> bool:
    return error.code in (Code.VAULT_DOWN, Code.STORE_BUSY, Code.BAD_STORE)


def _resolve(future: asyncio.Future[Any], answer: Any, fault: Exception | None) -> None:
    if future.done():  # the caller was cancelled
        return
    with suppress(asyncio.InvalidStateError):
        if fault is None:
            future.set_result(answer)
        else:
            future.set_exception(fault)
