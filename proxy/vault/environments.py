"""The environments of a store: their register, their keysets, and their removal.

An environment begins with its keyset, wrapped by the same master key as that of ``default``; the
line in the register makes it valid. Its removal is a line in the register, too, and final: first
its keyset is destroyed, so that none of its data can be opened any more; then its tables and its
notes go. The next ``load`` resumes an interrupted removal. An id is never reused. The keyset of
``default`` seals the register.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final

import msgspec

from proxy.auth.sealed_notes import NewWrite, SealedNote, note_root
from proxy.clock import Clock, system_clock
from proxy.crypto.client_secrets import new_ident
from proxy.crypto.key_sources import KeySource
from proxy.crypto.keyset import Keyset
from proxy.crypto.master_key import MasterKey
from proxy.errors import Code, Detail, VaultError, coded
from proxy.model.record import DEFAULT, IDENT, Environment
from proxy.storage.base import Store
from proxy.storage.notes import (
    ROOT,
    AgreedNote,
    Agreement,
    FollowedNote,
    NoteWrite,
    RootState,
    note_digest,
)
from proxy.telemetry import logs
from proxy.vault.replicas import agreement_on, removed_by_all, taking_turns
from proxy.vault.schema_store import Entries, placed_schemas

_log = logs.logger("vault")

#: Environments at one time: each is looked after every few seconds.
MOST_ENVIRONMENTS: Final = 100

_NAME: Final = 128  # characters of a name
_NUMBER_BITS: Final = 62  # of an attempt to remove one

_decode = msgspec.json.Decoder(list[Environment]).decode
_encode = msgspec.json.Encoder().encode


async def has_keyset(store: Store, environment: str) -> bool:
    """Whether the store belongs to a master key: a missing key file must then be restored."""
    return await store.note(keyset_note(environment)) is not None


async def open_keyset(store: Store, source: KeySource, environment: str) -> Keyset:
    """The environment's keyset, opened by ``source``; made if missing. Raises as ``open_vault``."""
    master = source.load()
    keyset = await make_keyset(store, master, environment)
    if environment == DEFAULT and not await read_root(store, keyset):
        await make_root(store, master, keyset)
    return keyset


async def read_root(store: Store, keyset: Keyset) -> bool:
    """Have the notes of a store compared with their root, by the keyset of ``default``; whether
    there is one: a vault of an earlier version has none.

    Raises ``VaultError(CANNOT_OPEN)`` where it is gone or not that of this vault. Notes that are
    not as they were written raise the alarm, and are refused when they are read.
    """
    stored = (await store.read_notes((ROOT,))).get(ROOT)
    if stored is None and not keyset.rooted:
        return False
    root = note_root(keyset.aead())
    root.alarm = report_note
    root.read(stored)
    store.root = root
    await store.check_notes()
    return True


async def make_root(store: Store, master: MasterKey, keyset: Keyset) -> None:
    """Create the root over the current notes; the keyset of ``default`` records its existence."""
    await accept_notes(store, keyset)
    name = keyset_note(DEFAULT)
    before, keyset.rooted = await store.note(name), True
    wrapped = keyset.wrap(master)
    Keyset.unwrap(wrapped, master)
    await store.put_note(name, wrapped, before)
    if await store.note(f"environments:{DEFAULT}") is not None:  # made by an earlier version
        _log.info("the notes of the vault have a common root from now on")


async def accept_notes(store: Store, keyset: Keyset) -> None:
    """Accept all current notes as last written; nothing is stored before the next note is."""
    notes = await store.read_notes()
    counter = store.root.state.counter if store.root is not None else 0
    store.root = root = note_root(keyset.aead())
    root.alarm = report_note
    root.stored = notes.pop(ROOT, None)
    root.state = RootState(counter, {name: note_digest(note) for name, note in notes.items()})


def report_note(name: str) -> None:
    """Log a note that is not as it was written last."""
    _log.error("a note of the store was changed, rolled back, added or removed", source=name)


async def make_keyset(store: Store, master: MasterKey, environment: str) -> Keyset:
    """The environment's keyset; a new one, wrapped by that master key and read back, where the
    store has none. Raises as ``load_keyset``.
    """
    if not await has_keyset(store, environment):
        wrapped = Keyset.create(environment).date(None, system_clock()).wrap(master)
        await store.put_notes((FollowedNote(keyset_note(environment), wrapped, None),))
    return await load_keyset(store, master, environment)


async def load_keyset(store: Store, master: MasterKey, environment: str) -> Keyset:
    """The environment's keyset.

    Raises ``VaultError(BAD_KEYS)`` when it is lost, damaged, or wrapped by another master key.
    """
    note = await store.note(keyset_note(environment))
    if note is None:
        raise VaultError(
            Code.BAD_KEYS,
            f"The keys of the environment {environment!r} are not in the store: restore the "
            "store from a backup.",
        )
    return Keyset.unwrap(note, master)


def keyset_note(environment: str) -> str:
    """The note of the store that holds the environment's wrapped keyset."""
    return f"keyset:{environment}"


async def _at_once(_environment: Environment) -> None:
    """Nothing has to be made ready."""


class Environments:
    """The environments of one store; ``load`` before use.

    ``master``: where the master key comes from when it is needed.
    """

    def __init__(
        self, store: Store, root: Keyset, master: Callable[[], MasterKey], clock: Clock
    ) -> None:
        self._store = store
        self._master = master
        self._clock = clock
        self._note = SealedNote(store, root.aead(), DEFAULT, "environments")
        self._book: dict[str, Environment] = {}

    async def load(self) -> None:
        """Read the book, or begin it. Raises ``VaultError(CANNOT_OPEN)`` when it was changed."""
        content = await self._note.read()
        if content is not None:
            self._book = {environment.id: environment for environment in _decode(content)}
        else:
            await self._write(Environment(DEFAULT, DEFAULT, self._clock()))

    def listed(self) -> Sequence[Environment]:
        """Return the environments that exist, oldest first."""
        return [
            environment for environment in self._book.values() if environment.removed_at is None
        ]

    def find(self, ident: str) -> Environment | None:
        environment = self._book.get(ident)
        return environment if environment is not None and environment.removed_at is None else None

    def doomed(self) -> Sequence[str]:
        """The ids of those that have ended and are still to be erased."""
        return [
            environment.id
            for environment in self._book.values()
            if environment.removed_at is not None and not environment.erased
        ]

    async def keyset(self, ident: str) -> Keyset:
        """The keyset of an environment.

        Raises ``VaultError(BAD_KEYS)`` when it is lost, or the master key is another one.
        """
        return await load_keyset(self._store, await asyncio.to_thread(self._master), ident)

    async def create(
        self,
        ident: str | None,
        name: str,
        ready: Callable[[Environment], Awaitable[None]] = _at_once,
    ) -> Environment:
        """Make an environment; without an id it gets a random one. It is there, for other replicas
        as well, when it is ``ready``.

        Raises ``VaultError``: INVALID_INPUT with every fault, CONFLICT for an id that was given
        before, UNPROCESSABLE when there are as many as there may be, BAD_KEYS when the master key
        cannot be read or is not that of this vault.
        """
        faults = _faults(ident, name)
        if faults:
            raise VaultError(
                Code.INVALID_INPUT, "The environment cannot be made as described.", tuple(faults)
            )
        if ident in self._book:
            raise VaultError(
                Code.CONFLICT,
                "There is an environment of this id, or there was one: choose another id, or "
                "leave it out.",
                (Detail("/environment_id", "Was given before."),),
            )
        if len(self.listed()) >= MOST_ENVIRONMENTS:
            raise VaultError(
                Code.UNPROCESSABLE,
                f"There are {MOST_ENVIRONMENTS} environments, the most that one instance looks "
                "after.",
            )
        master = await asyncio.to_thread(self._master)  # a key service may be asked
        await load_keyset(
            self._store, master, DEFAULT
        )  # the key of another vault would make keys that no start could open
        root = await self._store.note(keyset_note(DEFAULT))
        ident = ident or f"e{new_ident()}"  # names of tables have to begin with a letter
        environment = Environment(ident, name, self._clock())
        # the key in use, which another replica may have rotated before the key file here follows
        used = master if root is None else master.others.get(Keyset.wrapper(root), master)
        await self._new_keyset(used, environment.id)
        try:
            await ready(environment)
            await self._write(environment, FollowedNote)
        except BaseException:  # also for a stop: no client knows of it, and it is empty
            with suppress(VaultError):  # beside other replicas its keys stay, which nothing uses
                await self._write(msgspec.structs.replace(environment, removed_at=self._clock()))
                await self._store.drop_notes(keyset_note(environment.id))
            raise
        return environment

    async def _new_keyset(self, master: MasterKey, ident: str) -> None:
        """Make the keyset of an environment that nobody knows of; one that a death left behind is
        taken, unless the master key has changed since.
        """
        try:
            await make_keyset(self._store, master, ident)
        except coded(Code.BAD_KEYS):
            await self._store.drop_notes(keyset_note(ident))
            await make_keyset(self._store, master, ident)

    def removable(self, ident: str) -> Environment:
        """The environment of that id.

        Raises ``VaultError``: NOT_FOUND; CONFLICT for the one that stays.
        """
        environment = self.find(ident)
        if environment is None:
            raise VaultError(Code.NOT_FOUND, "There is no environment of that id.")
        if ident == DEFAULT:
            raise VaultError(
                Code.CONFLICT, f"The environment {DEFAULT!r} stays: the proxy works in it."
            )
        return environment

    async def records(self, ident: str) -> int:
        """Count the records of an environment, also of schemas that are no longer declared.

        Its tables have to be awake.
        """
        tables = await placed_schemas(self._store, ident)
        return sum([(await self._store.count(table))[0] for table in tables.values()])

    @property
    def agreement(self) -> Agreement:
        """The proposal that a replica agrees to who acts by this register."""
        return agreement_on(self._note.name, self._note.stored)

    def turn_of_end(self, ident: str) -> AbstractAsyncContextManager[None]:
        """The right to remove an environment, or to take that back, which one replica has."""
        return taking_turns(self._store, f"ending {ident}")

    async def end_with_others(
        self,
        ident: str,
        agree: Callable[[], Awaitable[Agreement]],
        end: Callable[[Agreement | None], Awaitable[None]],
        patience: float,
    ) -> None:
        """Mark an environment as one that ends, and ``end`` it when all replicas agree.

        Raises as ``mark``, as ``end``, and ``VaultError(REPLICAS_RUNNING)`` where not all agree
        within so many seconds; the mark then stays.
        """
        await self.mark(ident, secrets.randbits(_NUMBER_BITS) + 1)
        await removed_by_all(self._store, agree, end, patience)

    async def give_back(self, ident: str) -> None:
        """Take the mark away, if there is one. Raises as ``mark``."""
        environment = self.find(ident)
        if environment is not None and environment.ending:
            await self.mark(ident, 0)

    async def mark(self, ident: str, ending: int) -> None:
        """Say that this replica is about to remove an environment; 0: that none is.

        Raises ``VaultError(CONFLICT)`` where another one has changed it meanwhile.
        """
        environment = msgspec.structs.replace(self._book[ident], ending=ending)
        await self._write(environment, FollowedNote)

    async def end(self, ident: str, agreement: Agreement | None = None) -> None:
        """End an environment and destroy its keys, for ever, even if interrupted. Idempotent.

        ``agreement``: of all replicas, to use it no more. Raises ``VaultError``: CONFLICT,
        REPLICAS_RUNNING where not all agree, and SCHEMA_BUSY where one has taken the mark away.
        """
        environment = self._book[ident]
        if environment.removed_at is None:
            if agreement is not None and not environment.ending:
                text = f"Another instance goes on with the environment {ident!r}; try again."
                raise VaultError(Code.SCHEMA_BUSY, text)
            ended = msgspec.structs.replace(environment, removed_at=self._clock(), ending=0)

            def write(name: str, content: bytes | None, expected: bytes | None) -> NoteWrite:
                change = NoteWrite(name, content, expected)
                return change if agreement is None else AgreedNote.of(change, agreement)

            await self._write(ended, write)
        await self._store.drop_notes(keyset_note(ident), FollowedNote)

    async def erase(self, ident: str) -> None:
        """Remove the rest of an ended environment, which no replica uses: tables, then notes.

        May be interrupted and begun again.
        """
        await self._store.drop_notes(keyset_note(ident), FollowedNote)
        gone = Entries(self._store, ident)
        await gone.load()
        for table in (*(await placed_schemas(self._store, ident)).values(), *gone.doomed):
            await self._store.drop(table)
        await self._store.drop_notes(f":{ident}", FollowedNote)
        await self._write(msgspec.structs.replace(self._book[ident], erased=True), FollowedNote)

    async def _write(self, changed: Environment, kind: NewWrite = NoteWrite) -> None:
        before = self._book.get(changed.id)
        while True:
            book = {**self._book, changed.id: changed}
            try:
                await self._note.write(_encode(list(book.values())), kind)
            except VaultError as error:
                if error.code is not Code.CONFLICT or kind is not FollowedNote:
                    raise
                await self.load()  # another replica has changed another one
                if self._book.get(changed.id) != before:
                    raise
            else:
                self._book = book
                return


def in_use(ident: str) -> VaultError:
    """The refusal to remove an environment that holds records."""
    return VaultError(
        Code.ENVIRONMENT_IN_USE,
        f"The environment {ident!r} still holds records: delete them first, or say records=delete.",
        (Detail("records", "May be delete, which removes all of them."),),
    )


def _faults(ident: str | None, name: str) -> list[Detail]:
    faults = []
    if ident is not None and not IDENT.fullmatch(ident):
        faults.append(
            Detail(
                "/environment_id", "has to be 1 to 32 lower-case letters and digits, a letter first"
            )
        )
    if not (0 < len(name) <= _NAME and name.isprintable() and name.strip()):
        faults.append(Detail("/name", f"must be 1 to {_NAME} printable characters"))
    return faults
