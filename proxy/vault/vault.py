"""The vault of one environment: its keys, its collections, its maintenance."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

from proxy.clock import Clock
from proxy.crypto.key_sources import KeySource
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.model.schema import Schema
from proxy.objectstore.base import ObjectStore
from proxy.storage.base import Store
from proxy.storage.notes import Agreement
from proxy.storage.rows import TableLayout
from proxy.vault.attachment_content import Contents
from proxy.vault.attachments.object_cleanup import ObjectCleanup, mark_pair
from proxy.vault.both_roots import BothRoots
from proxy.vault.collection import Collection, HistoryPolicy, ObserveVault, TableSpec, VaultContext
from proxy.vault.column_binding import ColumnBinding
from proxy.vault.environments import open_keyset
from proxy.vault.expiry import delete_expired, prune, reap
from proxy.vault.replicas import AGREED_WITHIN, until_agreed
from proxy.vault.row_tallies import RowTallies
from proxy.vault.schema_store import (
    forget_schema,
    known_layouts,
    place_schema,
    placed_schemas,
    removed,
    wake,
)
from proxy.vault.seal import Sealer
from proxy.vault.table_state import OpenedRecords, Sequencer, TableState

#: Milliseconds after which every row is compared with the sum of its table again.
_COMPARED = 3_600_000

#: A deferred settlement, and its callback.
_Late = tuple[Callable[[], Awaitable[None]], Callable[[], None] | None]


@dataclass(frozen=True, slots=True)
class VaultOptions:
    """Settings of the vault."""

    environment: str
    region: str  #: upper-case ISO country code: the default region of telephone numbers
    pending_keep: int  #: milliseconds after which what stays pending is reaped
    history: HistoryPolicy = field(default_factory=HistoryPolicy)
    detect_rollback: bool = False  #: whether rows are summed up, and compared with their sum
    opened_records: int = 8 * 1024 * 1024  #: bytes of those that lists have shown lately


class Vault:
    """Gives collections for schemas and looks after them."""

    def __init__(self, context: VaultContext, options: VaultOptions) -> None:
        #: the store, with look-ups under both hash roots
        self.both_roots = BothRoots(context.store)
        self.both_roots.ask_both(on=len(context.keyset.hash_roots) > 1)
        opened = OpenedRecords(options.opened_records)
        self.both_roots.ended = opened.forget
        self._collections: dict[str, Collection] = {}
        self._context = context._replace(
            store=cast(Store, self.both_roots), opened=opened, collections=self._collections
        )
        self._options = options
        self._states: dict[str, TableState] = {}
        self._layouts: dict[str, TableLayout] = {}  # in use, by schema
        self._binding = ColumnBinding(context.store, context.keyset, options.environment)
        self._tallies = RowTallies(
            context.store, context.keyset, options.environment, enabled=options.detect_rollback
        )
        self._rows_checked: int | None = None  #: when every row was last compared with its sum
        self._placing = asyncio.Lock()
        self.late: deque[_Late] = deque()
        self._settling = asyncio.Lock()
        self._fault: VaultError | None = None  # of the last late settling that failed
        self._cleanup: ObjectCleanup | None = None
        self.contents: Contents | None = None  #: of attachments, once there is a place for them

    async def collection(self, recipe: TableSpec, *, earlier: bool = False) -> Collection:
        """The collection of a schema; its table is made, or gets the columns it lacks.

        ``earlier``: by another definition than the one in force, which stays.
        """
        collection = await self._placed(recipe)
        if earlier:
            return collection
        self._collections[recipe.schema.name] = collection
        return collection

    async def heard(self, patience: float = AGREED_WITHIN) -> None:
        """Wait until every replica knows the columns of all tables.

        Raises ``VaultError(REPLICAS_RUNNING)`` where one does not follow, so that nothing may be
        changed that others have to know.
        """
        await until_agreed(self.store, self.follow, patience)

    async def follow(self) -> Agreement:
        """Know the columns that other replicas have given to tables, and agree to it:
        what they write there stays in the rows that are written here, too.
        """
        layouts, agreement = await known_layouts(self.store, self.environment)
        fresh = [one.table for one in layouts if one.table not in self._states]
        for layout in layouts:
            await self.store.ensure(layout)
            await self._bound_state(layout)
        await self._drop_gone(fresh)
        if self.store.replicas is not None:
            await self.store.replicas.agree(agreement)
        return agreement

    async def unshaped(self, schema: Schema, table: str = "") -> Collection:
        """Return the records of a schema for maintenance, without shapes; ``table`` as of
        ``place_schema``.
        """
        return await self._placed(TableSpec(schema, {}, None, addressed=False), table)

    async def _placed(self, recipe: TableSpec, table: str = "") -> Collection:
        async with self._placing:
            await self._begin_binding()
            placed = await place_schema(
                self._context.store, self._context.environment, recipe.schema, self.heard, table
            )
            state = await self._bound_state(placed.layout)
            if table and await self._drop_gone([table]):
                raise removed(recipe.schema.name)
            self._layouts[recipe.schema.name] = placed.layout
        return Collection(recipe, placed, self._context, state)

    async def _drop_gone(self, tables: Sequence[str]) -> bool:
        """Remove tables that were made here again, empty, after another replica had removed them;
        whether there are any.
        """
        if not tables:
            return False
        registered = set((await placed_schemas(self.store, self.environment)).values())
        gone = [table for table in tables if table not in registered]
        for table in gone:
            await self._context.store.drop(table)
            self._states.pop(table, None)
        return bool(gone)

    async def drop(self, table: str) -> None:
        """Remove a table with its content; its collections must be out of use.

        Gone already: no effect.
        """
        async with self._placing:
            await forget_schema(self._context.store, self._context.environment, table)
            await self._context.store.drop(table)
            await self._tallies.forget(table)
        for name in [name for name, layout in self._layouts.items() if layout.table == table]:
            self.let_go(name)
        self._states.pop(table, None)

    def suspend(self, name: str) -> None:
        """Leave the records of a schema that may be removed out of all maintenance."""
        self._collections.pop(name, None)

    def let_go(self, name: str) -> None:
        """Forget a schema that is removed from the store; it must be out of use."""
        self.suspend(name)
        if (layout := self._layouts.pop(name, None)) is not None:
            self._states.pop(layout.table, None)

    @property
    def clock(self) -> Clock:
        return self._context.clock

    @property
    def store(self) -> Store:
        """The store that it is in; for notes of the environment."""
        return self._context.store

    @property
    def environment(self) -> str:
        """The environment whose keys and records these are."""
        return self._context.environment

    @property
    def keyset(self) -> Keyset:
        """The keys of the environment."""
        return self._context.keyset

    async def keep_files(
        self,
        objects: ObjectStore,
        limit: int,
        environments: Callable[[], Iterable[str]] | None = None,
    ) -> Contents:
        """The contents of attachments, ``limit`` bytes each, in that object store, which
        maintenance cleans up from now on.

        ``environments`` are all that keep something there, by id; this one alone where none are
        given. Raises ``VaultError`` (BAD_STORE) when store and object store do not belong together.
        """
        context = self._context
        await mark_pair(objects, context.store)
        await self.wake()
        contents = self.contents = Contents(objects, context.keyset.streams(), limit)
        everybody = environments or (lambda: (context.environment,))
        self._cleanup = ObjectCleanup(contents, context.store, everybody, context.clock)
        return contents

    async def share_files(self, contents: Contents) -> Contents:
        """The contents of attachments; the maintenance of another environment cleans up all."""
        await self.wake()
        self.contents = contents.sharing_streams(self._context.keyset.streams())
        return self.contents

    async def wake(self) -> None:
        """Make the tables of undeclared schemas known to the store: their content counts, too."""
        async with self._placing:
            await self._binding.load()
            await self._tallies.load()
            in_use = {layout.table for layout in self._layouts.values()}
            for layout in await wake(self.store, self.environment, in_use):
                await self._bound_state(layout)

    def collections(self) -> Iterable[Collection]:
        """The collections in use, as last asked for; not the vault's own (``@…``)."""
        return tuple(
            collection for name, collection in self._collections.items() if not name.startswith("@")
        )

    def state(self, table: str) -> TableState:
        """Return this process's state of a table, whoever declares it."""
        state = self._states.get(table)
        if state is None:
            state = self._states[table] = TableState(table, self._context.store.replicas)
        return state

    async def altered(self) -> list[str]:
        """Return the schemas whose rows were rolled back, removed or added by a foreign program."""
        await self.wake()
        placed = await placed_schemas(self.store, self.environment)
        tables = await self._tallies.altered(placed.values())
        return [name for name, table in placed.items() if table in tables]

    async def _compare_rows(self) -> None:
        """Compare every row with the sum of its table, now and then."""
        now = self.clock()
        if self._rows_checked is None or now - self._rows_checked >= _COMPARED:
            self._rows_checked = now
            for name in await self.altered():
                self._context.observe("altered", name, 1)

    async def _bound_state(self, layout: TableLayout) -> TableState:
        """The state of a table whose bodies bind the layout's columns and whose rows are summed."""
        await self._tallies.keep(layout.table)
        state = self.state(layout.table)
        state.columns.adopt([column.name for column in layout.columns])
        state.columns.required = self._binding.complete
        return state

    async def _begin_binding(self) -> None:
        """Bind the columns in every body from the start, if nothing was ever stored."""
        await self._binding.load()
        await self._tallies.load()
        if not self._binding.complete and not await placed_schemas(self.store, self.environment):
            await self._binding.finish()

    async def _bind_columns(self) -> None:
        """Go on with sealing bodies again that bind no columns."""
        if self._binding.complete:
            return
        await self.wake()
        aead, placed = self.keyset.aead(), await placed_schemas(self.store, self.environment)
        sealers = {
            table: Sealer(aead, self.environment, name, self.state(table).columns)
            for name, table in placed.items()
        }
        await self._binding.round(sealers)
        for state in self._states.values():
            state.columns.required = self._binding.complete

    def later(
        self, settle: Callable[[], Awaitable[None]], done: Callable[[], None] | None = None
    ) -> None:
        """Try a settling again at the next maintenance: the application has answered, but the store
        could not be written. ``done`` is called when it has come to its end.
        """
        self.late.append((settle, done))

    async def catch_up(self) -> None:
        """Settle deferred writes now: a later write must build on them, or be undone by them later.

        Raises ``VaultError(VAULT_DOWN)`` when the store still cannot be written.
        """
        if self.late:
            await self._settle_late()
            if self.late and self._fault is not None:
                raise self._fault

    async def maintain(self) -> None:
        """Run one round of maintenance.

        Raises the errors of the store; a later round resumes here.
        """
        await self._settle_late()
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault
        replicas = self._context.store.replicas
        if replicas is not None and not replicas.leads():
            return  # another replica does the rest for all
        for collection in tuple(self._collections.values()):
            await delete_expired(collection)
            await prune(collection)
            await reap(collection, self._options.pending_keep)
        await self._bind_columns()
        await self._compare_rows()
        if self._cleanup is not None:
            await self._cleanup.round()

    async def _settle_late(self) -> None:
        """Settle deferred writes, oldest first.

        Writes that the store still refuses stay deferred; another fault ends only its own.
        """
        async with self._settling:
            while self.late and not await self._is_down(self.late[0][0]):
                done = self.late.popleft()[1]
                if done is not None:
                    done()

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
    sequence, history = Sequencer(clock, store.replicas), options.history
    context = VaultContext(
        options.environment, keyset, store, clock, sequence, options.region, observe, history
    )
    return Vault(context, options)
