"""Resumable passes over all rows of a table, and background jobs (``NotedJob``).

Of several replicas the one that leads does what a ``NotedJob`` has to do, and
the others read how far it is.

A pass goes batch by batch and holds each record's lock. Migrations and other jobs use it.

Reads never wait. A write to a record waits some milliseconds for the commit of its batch. The
position of the pass stands in a note of the store, so that another process resumes there; rows that
are visited twice stay the same.
"""

import asyncio
import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from proxy.errors import CannotOpen, Code, VaultError
from proxy.model.values import Unfit
from proxy.storage.base import Store
from proxy.storage.changes import Change, Conflict
from proxy.storage.rows import Row
from proxy.vault.collection import Collection
from proxy.vault.schema_store import Phase

#: Rows of one batch: opened, sealed and committed while their records are locked.
_BATCH = 100
#: Batches after which it is written down how far the pass is.
_NOTED = 20

#: Changes of a row; raises ``Unfit`` if a value cannot be converted.
RowVisitor = Callable[[Row], Sequence[Change]]


@dataclass(slots=True)
class JobProgress:
    """Progress of a pass."""

    phase: Phase | None = None  #: of a migration
    total: int = 0  #: records when the pass began
    done: int = 0  #: records visited, or added since
    failed: int = 0  #: records with a value that cannot be converted
    unreadable: int = 0  #: records that do not open; they stay as they are


class _Noted(msgspec.Struct, frozen=True):
    """The note of a pass under way. ``change`` tells which pass it is of."""

    change: str
    after: int
    total: int
    done: int
    failed: int
    unreadable: int


_decode = msgspec.json.Decoder(_Noted).decode
_encode = msgspec.json.Encoder().encode


class Pass:
    """A pass over one table.

    ``change`` identifies it, so that the note of an earlier one of its ``kind`` is not taken for
    its own.
    """

    def __init__(
        self, collection: Collection, change: str, progress: JobProgress, kind: str = "migration"
    ) -> None:
        self._collection = collection
        self._store: Store = collection.store
        self._table = collection.table
        self._note = f"{kind}/{collection.name}:{collection.context.environment}"
        self._written: bytes | None = None
        self._change = change
        self._after = 0
        self.progress = progress

    async def run(self, visit: RowVisitor) -> None:
        """Visit every row from where this pass is.

        Raises the errors of the store; a later call resumes.
        """
        await self._resume()
        batches = 0
        while rows := await self._store.scan(self._table, self._after, _BATCH):
            await self._batch(rows, visit)
            self._after = rows[-1].rid
            self.progress.done += len(rows)
            batches += 1
            if batches % _NOTED == 0:
                await self._save()
        await self._save()

    async def _batch(self, rows: Sequence[Row], visit: RowVisitor) -> None:
        keys = (row.key for row in rows if row.key is not None)
        async with self._collection.state.locks.hold(keys):
            while True:
                current = await self._store.rows(self._table, [row.rid for row in rows])
                changes, failed, unreadable = self._visited(current.values(), visit)
                if await self._committed(changes):
                    break
        self.progress.failed += failed
        self.progress.unreadable += unreadable
        await asyncio.sleep(0)

    def _visited(self, rows: Iterable[Row], visit: RowVisitor) -> tuple[list[Change], int, int]:
        """Return the changes of a batch, and its numbers of failed and of unreadable records."""
        changes: list[Change] = []
        failed = unreadable = 0
        for row in rows:
            try:
                changes.extend(visit(row))
            except Unfit:
                failed += 1
            except CannotOpen:
                unreadable += 1
        return changes, failed, unreadable

    async def _committed(self, changes: Sequence[Change]) -> bool:
        if not changes:
            return True
        try:
            await self._store.commit(self._table, changes)
        except Conflict:
            return False  # a foreign program without locks has changed a row: visit it again
        return True

    async def _resume(self) -> None:
        self._written = await self._store.note(self._note)
        noted = _decode(self._written) if self._written else None
        if noted is None or noted.change != self._change:
            noted = _Noted(self._change, 0, (await self._store.count(self._table))[0], 0, 0, 0)
        self._after = noted.after
        self.progress.total, self.progress.done = noted.total, noted.done
        self.progress.failed, self.progress.unreadable = noted.failed, noted.unreadable

    async def _save(self) -> None:
        at = self.progress
        content = _encode(
            _Noted(self._change, self._after, at.total, at.done, at.failed, at.unreadable)
        )
        if content != self._written:
            await self._store.put_note(self._note, content, self._written)
            self._written = content


#: Seconds until a run that the store has interrupted is tried again.
_RETRY = 5.0


class JobState(enum.StrEnum):
    """State of a run."""

    NONE = "none"  #: there was none
    RUNNING = "running"
    STOPPED = "stopped"  #: by an administrator; it can resume
    DONE = "done"


class JobRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run, as its note stores it."""

    state: JobState = JobState.RUNNING


RunT = TypeVar("RunT", bound=JobRun)


class BackgroundJob:
    """A job with one task at most, in the background."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    async def settled(self) -> None:
        """Wait until no run is under way."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Pause; the run resumes at the next start."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class NotedJob(BackgroundJob, ABC, Generic[RunT]):
    """Background runs, one at a time, whose state stands in a note of the store.

    The next process that opens the store resumes there, and another replica where the
    one that led is gone. ``load`` before use, ``follow_up`` now and then, ``close`` after it.
    """

    def __init__(
        self, store: Store, note: str, of: type[RunT], report: Callable[[VaultError], None]
    ) -> None:
        super().__init__()
        self._store = store
        self._note = note
        self._decode = msgspec.json.Decoder(of).decode
        self._report = report
        self._stored: bytes | None = None
        #: how far it is; ``None``: there never was a run
        self.run: RunT | None = None

    @property
    def state(self) -> JobState:
        """State of the last run."""
        return JobState.NONE if self.run is None else self.run.state

    async def load(self) -> None:
        """Read where it stands."""
        self._stored = await self._store.note(self._note)
        self.run = None if self._stored is None else self._decode(self._stored)

    async def resume(self) -> None:
        """Resume an interrupted run, or start a missing one, where that is for this replica to do.

        After ``load``. Raises the errors of the store.
        """
        if self.leads:
            await self._start()

    async def follow_up(self) -> None:
        """Resume a run that is nobody's, leave one that is another's by now, and look again at what
        the last one has left where it is time to.

        Raises the errors of the store.
        """
        if not self.leads:
            await self.close()
            await self.load()
        elif not self._busy:
            if self._store.replicas is not None:
                await self.load()
                await self._start()
            if self.state is JobState.DONE and not self._busy:
                await self._look_again()

    async def alone(self) -> int | None:
        """Tell one time without another replica from the next; ``None``: there is one.

        Whoever sees the same number twice has been alone all the while.
        """
        return 0 if self._store.replicas is None else await self._store.replicas.alone()

    async def stop(self) -> None:
        """Stop a run; ``begin`` resumes it. Raises the errors of the store."""
        await self.close()
        if self.run is not None and self.run.state is JobState.RUNNING:
            await self._save(msgspec.structs.replace(self.run, state=JobState.STOPPED))

    @abstractmethod
    async def _start(self) -> None:
        """Resume an interrupted run, or start a missing one."""

    @abstractmethod
    async def _look_again(self) -> None:
        """Look again at what the last run has left, where it is time to."""

    @abstractmethod
    async def _through(self) -> None:
        """Carry the run out, from where it is to its end."""

    @property
    def leads(self) -> bool:
        return self._store.replicas is None or self._store.replicas.leads()

    @property
    def _busy(self) -> bool:
        return self._task is not None and not self._task.done()

    def _go(self) -> None:
        self._task = asyncio.create_task(self._carry_out())

    async def _carry_out(self) -> None:
        while True:
            try:
                await self._through()
                return
            except VaultError as error:
                if error.code is Code.CONFLICT and await self._is_of_another():
                    return
                self._report(error)
                await asyncio.sleep(_RETRY)

    async def _is_of_another(self) -> bool:
        """Whether another replica has led meanwhile; ``follow_up`` tells who goes on."""
        if self._store.replicas is None:
            return False
        with suppress(VaultError):  # it is tried again, and then reported
            return await self._store.note(self._note) != self._stored
        return False

    async def _save(self, run: RunT) -> None:
        """Write down how far it is.

        A cancelled caller waits until the note is written. The write itself notes the stored state,
        so that no cancellation comes between the two.
        """
        writing = asyncio.ensure_future(self._write(run))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])
            raise

    async def _write(self, run: RunT) -> None:
        content = _encode(run)
        await self._store.put_note(self._note, content, self._stored)
        self._stored, self.run = content, run
