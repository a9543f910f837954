"""Moves a vault to another store, and its attachments to another object store.

``copy`` brings the target up to the source, in rounds, while an instance serves from the source;
``finish`` does the last round on a stopped one, compares everything, and cuts over. Either may be
killed at any moment and called again. Until the end nothing starts on the target, and from then on
nothing on the source (``refuse_moving``); so no write is lost, or made on both sides.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Final

from proxy.bootstrap.backup import scratch_folder
from proxy.bootstrap.offline import OfflineChanges, open_offline
from proxy.bootstrap.open_vault import refuse_no_vault
from proxy.config import FileSettings, Settings, StoreSettings
from proxy.errors import Code, VaultError, bad_setting, coded
from proxy.objectstore import copy_objects, open_objects
from proxy.objectstore.base import SHARDS, ObjectStore
from proxy.storage import engine_of, open_store
from proxy.storage.base import OpenStore
from proxy.storage.notes import NoteWrite
from proxy.storage.transfer import INCOMING, MOVED, copy_vault, verify_copy
from proxy.vault.attachments import PAIR_NOTE

#: Called with the examined kind (a part of the tables, or ``bytes`` of attachments), and the
#: number.
MoveProgress = Callable[[str, int], object]

#: Rounds at most, and changes of a round from which on another one is worth it.
_ROUNDS: Final = 5
_WORTH: Final = 500
#: One of so many attachments is compared byte by byte, and so many in any case.
_SAMPLED, _SAMPLES = 50, 20


_NOT_SO: Final = "The vault cannot be moved so: fix what is listed."


@dataclass
class MoveResult:
    """Result of a call of ``migrate``."""

    rounds: list[dict[str, int]] = field(default_factory=list)  #: changed rows, by part
    attachments: int = 0  #: that were copied
    rows: int = 0  #: that were compared, all of them the same
    objects: int = 0  #: attachments that are there with their size
    samples: int = 0  #: of them, those that were compared byte by byte
    finished: bool = False


class Move:
    """A move to another store; ``files``: target of the attachments, ``None`` leaves them."""

    def __init__(
        self, settings: Settings, store: StoreSettings, files: FileSettings | None
    ) -> None:
        for name, one, other in (
            ("store", settings.store.label, store.label),
            ("files", settings.files.label, None if files is None else files.label),
        ):
            if one == other:
                raise bad_setting(
                    _NOT_SO, name, f"the vault is at {one} already: name another place"
                )
        self._settings, self._store, self._files = settings, store, files
        self._result = MoveResult()

    async def copy(self, progress: MoveProgress) -> MoveResult:
        """Copy the vault, then its changes, until they are few.

        Raises ``VaultError``: BAD_STORE where there is no source, or a vault at the target already.
        """
        refuse_no_vault(self._settings)
        async with self._targets() as (target, files):
            for _ in range(_ROUNDS):
                changed = await self._round(target, progress)
                self._result.rounds.append(dict(changed))
                if files is not None:
                    await self._copy_served_objects(files, progress)
                if changed.total() < _WORTH:
                    break
        return self._result

    async def finish(self, progress: MoveProgress) -> MoveResult:
        """The last round, on a stopped instance, and the cut-over. Raises as ``copy``, and
        ``VaultError(STORE_BUSY)`` while an instance runs.
        """
        refuse_no_vault(self._settings)
        if not await self._leave_line():
            self._result.finished = True
            return self._result
        async with self._targets() as (target, files), AsyncExitStack() as stack:
            source = await open_store(self._settings.store.uri)
            stack.push_async_callback(source.close)
            objects = None
            if files is not None:
                objects = await open_objects(self._settings.files.uri)
                stack.push_async_callback(objects.close)
                await self._copy_objects(objects, files, progress)
                await self._verify_objects(objects, files)
            with _stopping_at(self._store.label):
                self._result.rounds.append(dict(await copy_vault(source, target, progress)))
            self._result.rows = await verify_copy(source, target, progress)
            await self._cut_over(source, target, objects, files)
        self._result.finished = True
        return self._result

    async def _leave_line(self) -> bool:
        """Write the audit line, unless it exists; the log continues at the target.

        ``False``: the vault has moved already.
        """
        source = await open_store(self._settings.store.uri)
        try:
            moved = (await source.read_notes((MOVED,))).get(MOVED)
        finally:
            await source.close()
        if moved is None:
            record = OfflineChanges("migrate_store")
            async with open_offline(self._settings, record):
                await record.ready()
                record.did(self._store.label)
        elif moved.decode() != self._store.label:
            raise VaultError(
                Code.BAD_STORE,
                f"The vault at {self._settings.store.label} has moved to {moved.decode()}.",
            )
        engine, location = engine_of(self._store.uri)
        return moved is None or INCOMING in engine.peek(location)

    @asynccontextmanager
    async def _targets(self) -> AsyncIterator[tuple[OpenStore, ObjectStore | None]]:
        """The target, and where attachments go; refused where another vault is there."""
        async with AsyncExitStack() as stack:
            target = await open_store(self._store.uri)
            stack.push_async_callback(target.close)
            notes, mine = await target.read_notes(), self._settings.store.label.encode()
            if notes and notes.get(INCOMING) != mine:
                raise VaultError(
                    Code.BAD_STORE,
                    f"There is something at {self._store.label}, and a move overwrites nothing: "
                    "name another place, or remove it.",
                )
            if not notes:
                await target.write_notes([NoteWrite(INCOMING, mine, None)])
            files = None
            if self._files is not None:
                files = await open_objects(self._files.uri)
                stack.push_async_callback(files.close)
                await self._refuse_other_files(files, notes.get(PAIR_NOTE))
            yield target, files

    async def _refuse_other_files(self, files: ObjectStore, mark: bytes | None) -> None:
        owner = await files.owner()
        if owner is not None and (mark is None or owner != mark.decode()):
            assert self._files is not None  # noqa: S101 - they are open
            raise VaultError(
                Code.BAD_STORE,
                f"{self._files.label} holds the attachments of another vault: name another place.",
            )

    async def _round(self, target: OpenStore, progress: MoveProgress) -> Counter[str]:
        engine, location = engine_of(self._settings.store.uri)
        file = self._settings.store.file
        with scratch_folder("migrate", None if file is None else file.parent) as scratch:
            async with engine.snapshot(location, scratch) as source:
                with _stopping_at(self._store.label):
                    return await copy_vault(source, target, progress)

    async def _copy_objects(
        self, source: ObjectStore, target: ObjectStore, progress: MoveProgress
    ) -> None:
        label = "" if self._files is None else self._files.label
        with _stopping_at(label):
            copied = await copy_objects(source, target, lambda size: progress("bytes", size))
        self._result.attachments += copied

    async def _copy_served_objects(self, target: ObjectStore, progress: MoveProgress) -> None:
        source = await open_objects(self._settings.files.uri, own=False)
        try:
            await self._copy_objects(source, target, progress)
        finally:
            await source.close()

    async def _verify_objects(self, source: ObjectStore, target: ObjectStore) -> None:
        """Compare names and sizes of all, and the bytes of some."""
        for shard in SHARDS:
            sizes = {one.name: one.size for one in await target.listed(shard)}
            for stored in await source.listed(shard):
                if sizes.get(stored.name) != stored.size:
                    raise _differs(stored.name)
                sampled = self._result.objects < _SAMPLES or self._result.objects % _SAMPLED == 0
                if sampled and not await _is_same(source, target, stored.name):
                    raise _differs(stored.name)
                self._result.objects += 1
                self._result.samples += sampled

    async def _cut_over(
        self,
        source: OpenStore,
        target: OpenStore,
        objects: ObjectStore | None,
        files: ObjectStore | None,
    ) -> None:
        """After the note of the move there is no way back: a killed command resumes here."""
        notes = await source.read_notes((PAIR_NOTE, MOVED))
        mark = notes.get(PAIR_NOTE)
        if files is not None and mark is not None and await files.owner() is None:
            await files.claim(mark.decode())
        if MOVED not in notes:
            await source.write_notes([NoteWrite(MOVED, self._store.label.encode(), None)])
        if objects is not None:
            await objects.release()
        mine = self._settings.store.label.encode()
        await target.write_notes([NoteWrite(INCOMING, None, mine)])


@contextmanager
def _stopping_at(label: str) -> Iterator[None]:
    """Name the target where it cannot be written: the store in use has the same words."""
    try:
        yield
    except (coded(Code.VAULT_DOWN), coded(Code.FILES_UNAVAILABLE)) as error:
        text = f"The copy to {label} stopped, and goes on when this command is run again: {error}"
        raise VaultError(error.code, text) from None


async def _is_same(source: ObjectStore, target: ObjectStore, name: str) -> bool:
    opened = [await source.open(name), await target.open(name)]
    try:
        step = 1 << 20
        for at in range(0, opened[0].size, step):
            one, other = await asyncio.gather(*(each.read(at, step) for each in opened))
            if one != other:
                return False
    finally:
        for each in opened:
            each.close()
    return True


def _differs(name: str) -> VaultError:
    return VaultError(
        Code.BAD_STORE, f"The copy of the attachment {name} differs: remove it and copy it again."
    )
