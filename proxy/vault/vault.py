"""The vault of one environment: its keys, its collections, its upkeep."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from proxy.auth.sealed_notes import SealedNote
from proxy.clock import Clock
from proxy.crypto.key_sources import KeySource
from proxy.crypto.keyset import Keyset
from proxy.crypto.master_key import MasterKey
from proxy.crypto.passwords import new_ident
from proxy.errors import Code, Detail, VaultError
from proxy.model.record import DEFAULT, IDENT, Environment
from proxy.objectstore.base import ObjectStore
from proxy.storage.base import Store
from proxy.storage.rows import TableLayout
from proxy.vault.attachment_content import Contents
from proxy.vault.attachments.sweep import ObjectSweep, belong
from proxy.vault.collection import (
    Collection,
    HistoryPolicy,
    ObserveVault,
    Sequencer,
    TableSpec,
    VaultContext,
)
from proxy.vault.janitor import prune, reap, sweep_expired
from proxy.vault.schema_store import Entries, forget_schema, place_schema, placed_schemas, wake
from proxy.vault.table_state import TableState


@dataclass(frozen=True, slots=True)
class VaultOptions:
    """What the operator decides about the vault."""

    environment: str
    region: str  #: upper-case ISO country code: the default region of telephone numbers
    pending_keep: int  #: milliseconds after which what stays pending is reaped
    history: HistoryPolicy = field(default_factory=HistoryPolicy)


class Vault:
    """Gives collections for schemas and looks after them."""

    def __init__(self, around: VaultContext, options: VaultOptions) -> None:
        self._around = around
        self._options = options
        self._states: dict[str, TableState] = {}
        self._layouts: dict[str, TableLayout] = {}  # in use, by schema
        self._placing = asyncio.Lock()
        self._collections: dict[str, Collection] = {}
        self._late: deque[Callable[[], Awaitable[None]]] = deque()
        self._settling = asyncio.Lock()
        self._fault: VaultError | None = None  # of the last late settling that failed
        self._sweep: ObjectSweep | None = None
        self.contents: Contents | None = None  #: of attachments, once there is a place for them

    async def collection(self, recipe: TableSpec) -> Collection:
        """The collection of a schema; its table is made, or gets the columns it lacks."""
        name = recipe.schema.name
        async with self._placing:
            present = self._layouts[name].columns if name in self._layouts else ()
            placed = await place_schema(
                self._around.store, self._around.environment, recipe.schema, present
            )
            self._layouts[name] = placed.layout
        state = self.state(placed.layout.table)
        made = Collection(recipe, placed, self._around, state)
        self._collections[name] = made
        return made

    async def drop(self, table: str) -> None:
        """Remove a table with everything in it; nobody may use its collections any more.

        Gone already: no effect.
        """
        async with self._placing:
            await forget_schema(self._around.store, self._around.environment, table)
            await self._around.store.drop(table)
        for name in [
            name for name, collection in self._collections.items() if collection.table == table
        ]:
            del self._collections[name]
        for name in [name for name, layout in self._layouts.items() if layout.table == table]:
            del self._layouts[name]
        self._states.pop(table, None)

    @property
    def clock(self) -> Clock:
        """The clock of the vault."""
        return self._around.clock

    @property
    def store(self) -> Store:
        """The store that it is in; for notes of the environment."""
        return self._around.store

    @property
    def environment(self) -> str:
        """The environment whose keys and records these are."""
        return self._around.environment

    @property
    def keyset(self) -> Keyset:
        """The keys of the environment."""
        return self._around.keyset

    async def keep_files(
        self,
        objects: ObjectStore,
        limit: int,
        environments: Callable[[], Iterable[str]] | None = None,
    ) -> Contents:
        """The contents of attachments, ``limit`` bytes each, in that object store, which upkeep
        sweeps from now on.

        ``environments`` are all that keep something there, by id; this one alone where none are
        given. Raises ``VaultError`` (BAD_STORE) when store and object store do not belong together.
        """
        around = self._around
        await belong(objects, around.store)
        await self.wake()
        contents = self.contents = Contents(objects, around.keyset.streams(), limit)
        everybody = environments or (lambda: (around.environment,))
        self._sweep = ObjectSweep(contents, around.store, everybody, around.clock)
        return contents

    async def share_files(self, contents: Contents) -> Contents:
        """The contents of attachments beside those of another environment, whose upkeep sweeps all."""
        await self.wake()
        self.contents = contents.beside(self._around.keyset.streams())
        return self.contents

    async def wake(self) -> None:
        """Make the tables of schemas known that nobody declares any more: what they hold, their
        files above all, counts, too.
        """
        async with self._placing:
            in_use = {layout.table for layout in self._layouts.values()}
            await wake(self._around.store, self._around.environment, in_use)

    def collections(self) -> Iterable[Collection]:
        """The collections in use, as last asked for; not those that the vault keeps for itself
        (``@…``).
        """
        return tuple(made for name, made in self._collections.items() if not name.startswith("@"))

    def state(self, table: str) -> TableState:
        """What this process knows of a table, whoever declares it."""
        return self._states.setdefault(table, TableState())

    def later(self, settle: Callable[[], Awaitable[None]]) -> None:
        """Try a settling again at the next upkeep: the application has answered, but the store
        could not be written.
        """
        self._late.append(settle)

    @property
    def behind(self) -> bool:
        """Whether a settling waits for the store to be writable again."""
        return bool(self._late)

    async def catch_up(self) -> None:
        """Settle now what waits for it: a write that comes after it must build on it, or be undone
        by it later.

        Raises ``VaultError(VAULT_DOWN)`` when the store still cannot be written.
        """
        if self._late:
            await self._settle_late()
            if self._late and self._fault is not None:
                raise self._fault

    async def upkeep(self) -> None:
        """One round of the janitor.

        Raises what the store raises; a later round goes on where this one stopped.
        """
        await self._settle_late()
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault
        for collection in tuple(self._collections.values()):
            await sweep_expired(collection)
            await prune(collection)
            await reap(collection, self._options.pending_keep)
        if self._sweep is not None:
            await self._sweep.round()

    async def _settle_late(self) -> None:
        """Settle what waits, oldest first.

        What the store still cannot write stays; another fault ends only its own.
        """
        async with self._settling:
            while self._late and not await self._is_down(self._late[0]):
                self._late.popleft()

    async def _is_down(self, settle: Callable[[], Awaitable[None]]) -> bool:
        """Settle; whether the store could not be written, so that it must be tried again."""
        try:
            await settle()
        except VaultError as error:
            self._fault = error
            return error.code is Code.VAULT_DOWN
        return False


async def open_vault(
    store: Store, source: KeySource, clock: Clock, observe: ObserveVault, options: VaultOptions
) -> Vault:
    """The vault in that store, with the environment's keyset opened by the master key of
    ``source``.

    A store without a keyset gets a new one. Raises ``VaultError(BAD_KEYS)`` when the master key is
    not the one this store was made with; nothing is changed then.
    """
    return new_vault(
        await open_keyset(store, source, options.environment), store, clock, observe, options
    )


def new_vault(
    keyset: Keyset, store: Store, clock: Clock, observe: ObserveVault, options: VaultOptions
) -> Vault:
    """The vault of an opened keyset."""
    sequence, history = Sequencer(clock), options.history
    around = VaultContext(
        options.environment, keyset, store, clock, sequence, options.region, observe, history
    )
    return Vault(around, options)


async def has_keyset(store: Store, environment: str) -> bool:
    """Whether the store already belongs to a master key: then a missing key file must be restored,
    never replaced.
    """
    return await store.note(keyset_note(environment)) is not None


async def open_keyset(store: Store, source: KeySource, environment: str) -> Keyset:
    """The environment's keyset, opened by the master key of ``source``; made where the store has
    none. Raises as ``open_vault``.
    """
    return await make_keyset(store, source.load(), environment)


async def make_keyset(store: Store, master: MasterKey, environment: str) -> Keyset:
    """The environment's keyset; a new one, wrapped by that master key and read back, where the
    store has none. Raises as ``load_keyset``.
    """
    if not await has_keyset(store, environment):
        wrapped = Keyset.create(environment).wrap(master)
        await store.put_note(keyset_note(environment), wrapped, None)
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


# The book of environments: which there are, their keysets, and the end of one.
#
# An environment begins with its keyset, wrapped by the same master key as that of ``default``; the
# line in the book makes it one. Its end is a line in the book, too. From that line on it never
# comes back, whatever happens: first its keyset is destroyed, so that nothing it held can be opened
# any more by anybody; then its tables and its notes go. Whoever opens the book next goes on where
# somebody was interrupted. An id is given once.
#
# The keyset of ``default`` seals the book.


#: Environments at one time: each is looked after every few seconds.
MOST_ENVIRONMENTS: Final = 100

_NAME: Final = 128  # characters of a name

_decode = msgspec.json.Decoder(list[Environment]).decode
_encode = msgspec.json.Encoder().encode


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
            self._book = {found.id: found for found in _decode(content)}
        else:
            await self._write(Environment(DEFAULT, DEFAULT, self._clock()))

    def listed(self) -> Sequence[Environment]:
        """Those that are there, the oldest first."""
        return [found for found in self._book.values() if found.removed_at is None]

    def find(self, ident: str) -> Environment | None:
        """The environment of that id, if it is there."""
        found = self._book.get(ident)
        return found if found is not None and found.removed_at is None else None

    def doomed(self) -> Sequence[str]:
        """The ids of those that have ended and are still to be erased."""
        return [
            found.id
            for found in self._book.values()
            if found.removed_at is not None and not found.erased
        ]

    async def keyset(self, ident: str) -> Keyset:
        """The keyset of an environment.

        Raises ``VaultError(BAD_KEYS)`` when it is lost, or the master key is another one.
        """
        return await load_keyset(self._store, self._master(), ident)

    async def create(self, ident: str | None, name: str) -> Environment:
        """Make an environment; without an id it gets a random one.

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
        master = self._master()
        await load_keyset(
            self._store, master, DEFAULT
        )  # the key of another vault would make keys that no start could open
        made = Environment(ident or _letters(new_ident()), name, self._clock())
        await make_keyset(self._store, master, made.id)
        await self._write(made)
        return made

    def removable(self, ident: str) -> Environment:
        """The environment of that id.

        Raises ``VaultError``: NOT_FOUND; CONFLICT for the one that stays.
        """
        found = self.find(ident)
        if found is None:
            raise VaultError(Code.NOT_FOUND, "There is no environment of that id.")
        if ident == DEFAULT:
            raise VaultError(
                Code.CONFLICT, f"The environment {DEFAULT!r} stays: the proxy works in it."
            )
        return found

    async def records(self, ident: str) -> int:
        """How many records an environment holds, also of schemas that nobody declares any more.

        Its tables have to be awake.
        """
        tables = await placed_schemas(self._store, ident)
        return sum([(await self._store.count(table))[0] for table in tables.values()])

    async def end(self, ident: str) -> None:
        """End an environment and destroy its keys; it never comes back, also when this is
        interrupted. Ended already: no effect.
        """
        found = self._book[ident]
        if found.removed_at is None:
            await self._write(msgspec.structs.replace(found, removed_at=self._clock()))
        await self._store.drop_notes(keyset_note(ident))

    async def erase(self, ident: str) -> None:
        """Remove what is left of an environment that has ended: tables, then notes.

        May be interrupted and begun again.
        """
        await self._store.drop_notes(keyset_note(ident))
        gone = Entries(self._store, ident)
        await gone.load()
        for table in (*(await placed_schemas(self._store, ident)).values(), *gone.doomed):
            await self._store.drop(table)
        await self._store.drop_notes(f":{ident}")
        await self._write(msgspec.structs.replace(self._book[ident], erased=True))

    async def _write(self, changed: Environment) -> None:
        book = {**self._book, changed.id: changed}
        await self._note.write(_encode(list(book.values())))
        self._book = book


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


def _letters(ident: str) -> str:
    """A random id that begins with a letter, as names of tables have to."""
    return "e" + ident
