"""Sealing anew, with the data key that seals now, what older ones have sealed: in the background, while others read and write.

A run goes through all tables of an environment, batch by batch (``migration.Pass``): the body, the key and the files' lines of each
record, in one commit, under the record's lock. How far it is stands in the store: whoever opens the vault next goes on there. A
record keeps its salt, its version and its times, so nobody notices.

Not sealed anew is what goes by itself: past versions (``history.keep``), staged changes (``pending.keep``), kept answers (a day), and the
contents of files, each of which has a key and a salt of its own; nor the tables of schemas that nobody declares any more, whose
columns nobody knows. Older data keys stay in the keyset and open all of it.
"""

import asyncio
import enum
from collections.abc import Callable, Iterable, Sequence

import msgspec

from proxy.errors import Code, VaultError
from proxy.storage.changes import Amend, Bind, Change, Replace
from proxy.storage.rows import File, Row
from proxy.vault.collection import Collection
from proxy.vault.migration import Pass, Progress
from proxy.vault.vault import Vault

#: Seconds until a run that the store has interrupted is tried again.
_RETRY = 5.0


class State(enum.StrEnum):
    """Where the run for the key that seals now stands."""

    NONE = "none"  #: nothing was sealed with another key
    RUNNING = "running"
    STOPPED = "stopped"  #: by somebody; it can go on
    DONE = "done"


class Run(msgspec.Struct, frozen=True):
    """One run, as its note has it."""

    key: str  #: the data key that everything is sealed with
    state: State = State.RUNNING
    done: int = 0  #: records; the figures of tables that are done, or of the whole run
    unreadable: int = 0  #: records that do not open; they stay as they are
    tables: tuple[str, ...] = ()  #: that are done


_decode = msgspec.json.Decoder(Run).decode
_encode = msgspec.json.Encoder().encode


class Resealing:
    """The runs of one environment, one at a time. ``load`` before use, ``close`` after it."""

    def __init__(self, vault: Vault, report: Callable[[VaultError], None]) -> None:
        self._vault = vault
        self._report = report
        self._note = f"reseal:{vault.environment}"
        self._stored: bytes | None = None
        self._run: Run | None = None
        self._progress = Progress()
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        """Where it stands."""
        return State.NONE if self._run is None else self._run.state

    @property
    def done(self) -> int:
        """Records that the run has been to."""
        return 0 if self._run is None else self._run.done + self._progress.done

    @property
    def unreadable(self) -> int:
        """Records that it could not open."""
        return 0 if self._run is None else self._run.unreadable + self._progress.unreadable

    async def load(self) -> None:
        """Read where it stands."""
        self._stored = await self._vault.store.note(self._note)
        self._run = None if self._stored is None else _decode(self._stored)

    async def start(self) -> None:
        """Go on with what was under way; begin where a key was rotated and nobody got as far as to begin. After ``load``."""
        keys = self._vault.keyset.data_keys
        if self._run is not None and self._run.key == keys[-1]:
            if self._run.state is State.RUNNING:
                self._go()
        elif len(keys) > 1:
            await self.begin()

    async def begin(self) -> None:
        """Seal everything with the key that seals now; a run for another one ends. Raises what the store raises."""
        await self.close()
        key = self._vault.keyset.data_keys[-1]
        if self._run is not None and self._run.key == key:
            await self._save(msgspec.structs.replace(self._run, state=State.RUNNING))
        else:
            await self._save(Run(key))
        self._go()

    async def stop(self) -> None:
        """Stop a run under way; ``begin`` goes on with it. Raises what the store raises."""
        await self.close()
        if self._run is not None and self._run.state is State.RUNNING:
            await self._save(msgspec.structs.replace(self._run, state=State.STOPPED))

    async def settled(self) -> None:
        """Wait until no run is under way."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Pause; a run under way goes on at the next start."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._progress = Progress()

    # ------------------------------------------------------------------ parts

    def _go(self) -> None:
        self._task = asyncio.create_task(self._carry_out())

    async def _carry_out(self) -> None:
        while True:
            try:
                await self._tables()
                return
            except VaultError as error:
                self._report(error)
                await asyncio.sleep(_RETRY)

    async def _tables(self) -> None:
        for collection in tuple(self._vault.collections()):
            run = self._run
            if run is None or collection.table in run.tables:
                continue
            self._progress = Progress()
            await ResealPass(collection, run.key, self._progress).run(lambda _: ())
            at, self._progress = self._progress, Progress()
            done, unreadable = run.done + at.done, run.unreadable + at.unreadable
            tables = (*run.tables, collection.table)
            await self._save(msgspec.structs.replace(run, done=done, unreadable=unreadable, tables=tables))
        if self._run is not None:
            await self._save(msgspec.structs.replace(self._run, state=State.DONE))

    async def _save(self, run: Run) -> None:
        content = _encode(run)
        await self._vault.store.put_note(self._note, content, self._stored)
        self._stored, self._run = content, run


class ResealPass(Pass):
    """A pass that seals records with their files' lines anew, where another key has sealed them."""

    def __init__(self, collection: Collection, change: str, progress: Progress) -> None:
        super().__init__(collection, change, progress, "reseal")

    async def _changes(self, rows: Iterable[Row], _visit: object) -> tuple[list[Change], int, int]:
        rows = list(rows)
        files = await self._store.files(self._table, [row.rid for row in rows])
        changes: list[Change] = []
        unreadable = 0
        for row in rows:
            try:
                changes.extend(resealed(self._collection, row, files.get(row.rid, ())))
            except VaultError as error:
                if error.code is not Code.CANNOT_OPEN:
                    raise
                unreadable += 1
        return changes, 0, unreadable


def resealed(collection: Collection, row: Row, files: Sequence[File]) -> list[Change]:
    """What seals a record anew; nothing where the present key has sealed all of it. Raises ``VaultError(CANNOT_OPEN)``."""
    sealer = collection.sealer
    changes: list[Change] = []
    key = row.key_sealed
    if not sealer.current(row.body) or (key is not None and not sealer.current(key)):
        record = sealer.record(row.rid, row.salt)
        body = record.plain_body(sealer.open_plain(row), row.version)
        name = sealer.open_key(row)
        if name is not None and row.key is not None:
            changes.append(Bind(row.rid, row.key, record.key(name), row.updated_at))
        changes.append(Replace(row._replace(body=body), row.version))
    for file in files:
        if not sealer.current(file.sealed):
            plain = sealer.open_file(file, row.salt)
            fresh = sealer.record(row.rid, row.salt).file(plain, file.file_id, file.object)
            changes.append(Amend(file._replace(sealed=fresh), row.rid))
    return changes
