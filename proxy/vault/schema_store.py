"""Stored schemas of an environment: one note, changed atomically."""

import asyncio
import enum
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple

import msgspec

from proxy.errors import Code, VaultError, coded
from proxy.model.schema import Field, FieldType, Schema, Storage
from proxy.storage.base import Store
from proxy.storage.notes import AgreedNote, Agreement, FollowedNote, NoteWrite
from proxy.storage.query import changed_meanwhile
from proxy.storage.rows import Column, ColumnType, TableLayout
from proxy.vault.replicas import agreement_on, conflict_ignored


class Origin(enum.StrEnum):
    """Declarer of a schema, who alone may change it."""

    API = "api"  #: over the interface or by ``domicile schema apply``
    FILE = "file"  #: a file of the setting ``schemas``
    RULES = "rules"  #: an entity of a rule file: the proxy collects its records
    BUILTIN = "builtin"  #: the program itself: the schema of the record-based family


class Phase(enum.StrEnum):
    """Phase of a migration."""

    #: the old definition is active, and data of the new one is added
    FILLING = "filling"
    #: the new definition is active, and data of the old one is removed
    CLEANING = "cleaning"
    #: the old definition stays active, and data of the new one is removed
    REVERTING = "reverting"


class MigrationState(msgspec.Struct, frozen=True):
    """A migration under way.

    ``other`` is the inactive definition: the new one while filling and reverting, then the old.
    """

    phase: Phase
    other: Schema
    at: int  #: when the phase began, milliseconds since the epoch


class MigrationOutcome(msgspec.Struct, frozen=True):
    """Outcome of the last migration; while it is reverted, the reason."""

    total: int  #: records at its start
    #: those of them with a value that cannot be converted: if there is one, the old definition
    #: stayed
    failed: int
    at: int  #: milliseconds since the epoch


class SchemaEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schema with its state. ``schema`` is the active definition."""

    schema: Schema
    origin: Origin
    lives: dict[str, int] = {}  #: the last life of every field that there ever was
    change: MigrationState | None = None
    outcome: MigrationOutcome | None = None
    #: number of the attempt of a replica to remove it, during which no other one uses it; 0: none
    ending: int = 0


class _Book(msgspec.Struct, frozen=True, omit_defaults=True):
    schemas: dict[str, SchemaEntry] = {}
    doomed: tuple[str, ...] = ()  #: tables of schemas that are gone, which are still to be dropped
    #: whether fields say which index of parts they have; before they did, each had the fine one
    parts_told: bool = False


_decode = msgspec.json.Decoder(_Book).decode
_encode = msgspec.json.Encoder().encode


class Entries:
    """The schema entries of an environment by name; ``put`` and ``remove`` are durable."""

    def __init__(self, store: Store, environment: str) -> None:
        self._store = store
        self._environment = environment
        self._note = f"catalog:{environment}"
        self._written: bytes | None = None  #: as last read or written
        #: of reads and writes: one that was asked for earlier may be answered later
        self._reading = asyncio.Lock()
        self._book = _Book(parts_told=True)

    async def load(self) -> None:
        """Read the note."""
        async with self._reading:
            written = await self._store.note(self._note)
            if written is not None and written != self._written:
                self._book = _with_fine_parts(_decode(written))
            self._written = written

    @property
    def agreement(self) -> Agreement:
        """The proposal that a replica agrees to who acts by these entries.

        It has another name while a schema ends: an earlier version would use that one further.
        """
        ending = any(entry.ending for entry in self.schemas.values())
        return agreement_on(f"ending {self._note}" if ending else self._note, self._written)

    @property
    def schemas(self) -> dict[str, SchemaEntry]:
        """Every entry by name, in the order in which the schemas were declared.

        Not to be changed.
        """
        return self._book.schemas

    @property
    def doomed(self) -> tuple[str, ...]:
        """Tables that are still to be dropped."""
        return self._book.doomed

    async def put(self, *entries: SchemaEntry) -> None:
        """Write these entries, all at once, also beside other replicas.

        Raises ``VaultError``: ``CONFLICT`` when another process has changed one of them.
        """
        added = {entry.schema.name: entry for entry in entries}
        while True:
            book = self._book
            following = msgspec.structs.replace(book, schemas={**book.schemas, **added})
            try:
                return await self._write(following, FollowedNote)
            except coded(Code.CONFLICT):
                await self.load()
                if any(
                    self.schemas.get(name) not in (book.schemas.get(name), entry)
                    for name, entry in added.items()
                ):
                    raise

    async def remove(self, name: str, table: str, agreement: Agreement | None = None) -> None:
        """Forget a schema and the place of its records, and remember that their table has to be
        dropped; ``agreement``: of the other replicas, to use it no more.

        Raises ``VaultError``: ``CONFLICT`` when another process has changed one of the notes,
        ``REPLICAS_RUNNING`` where not all agree, and ``SCHEMA_BUSY`` where one has taken the mark
        of the end away: others agreed to a catalog in which the schema stays.
        """
        if agreement is not None and not (name in self.schemas and self.schemas[name].ending):
            raise VaultError(
                Code.SCHEMA_BUSY,
                f"Another instance goes on with the schema {name!r}, perhaps one of an earlier "
                "version; try again.",
            )
        async with self._reading:
            left = {other: entry for other, entry in self.schemas.items() if other != name}
            doomed = (*self._book.doomed, table)
            book = msgspec.structs.replace(self._book, schemas=left, doomed=doomed)
            write = NoteWrite(self._note, _encode(book), self._written)
            registry = await _without_table(self._store, self._environment, table)
            first = write if agreement is None else AgreedNote.of(write, agreement)
            await self._store.put_notes((first, *registry))
            self._written, self._book = write.content, book

    async def dropped(self, table: str) -> None:
        """Forget a table that has been dropped, also beside other replicas."""
        while table in self.doomed:
            doomed = tuple(other for other in self.doomed if other != table)
            book = msgspec.structs.replace(self._book, doomed=doomed)
            with conflict_ignored():
                await self._write(book, FollowedNote)
            await self.load()

    async def _write(self, book: _Book, kind: type[NoteWrite]) -> None:
        """Write a book just made from the present one; CONFLICT where that is another by now."""
        before = self._book
        if book == before:
            return
        async with self._reading:
            if self._book is not before:
                raise changed_meanwhile(self._note)
            content = _encode(book)
            await self._store.put_notes((kind(self._note, content, self._written),))
            self._written, self._book = content, book


def with_parts(schema: Schema, *, fine: bool) -> Schema:
    """Return the schema with the part index of earlier versions (``fine``), or the current one."""
    fields = [
        msgspec.structs.replace(field, fine_parts=fine and field.hashed_parts)
        for field in schema.fields
    ]
    return Schema(schema.name, tuple(fields))


def _with_fine_parts(book: _Book) -> _Book:
    """The same with every partial match marked as fine, where the book does not tell."""
    if book.parts_told:
        return book

    def entry(one: SchemaEntry) -> SchemaEntry:
        marked = msgspec.structs.replace(one, schema=with_parts(one.schema, fine=True))
        if one.change is None:
            return marked
        other = with_parts(one.change.other, fine=True)
        return msgspec.structs.replace(
            marked, change=msgspec.structs.replace(one.change, other=other)
        )

    entries = {name: entry(one) for name, one in book.schemas.items()}
    return msgspec.structs.replace(book, schemas=entries, parts_told=True)


# Tables and columns of schemas; stored in the store itself, so that names never move.
#
# A field keeps its column: if it changes its storage class it gets a new one, and the old one is no
# longer queried. A table's name is never reused, not even after its schema is gone.
#
# The layout of a table has all its columns, also unused ones: the columns that a body binds can
# then be read with its row, whatever the schema is now. It only grows, at its end: rows of an
# earlier layout have the cells of its first columns.

_COLUMN_TYPES = {
    FieldType.INTEGER: ColumnType.INTEGER,
    FieldType.DECIMAL: ColumnType.DECIMAL,
    FieldType.BOOLEAN: ColumnType.INTEGER,
    FieldType.DATETIME: ColumnType.TEXT,
}


class Placed(NamedTuple):
    """Stored form of a schema: table layout, and the columns of its fields in order."""

    layout: TableLayout
    columns: tuple[str, ...]


class _TablePlacement(msgspec.Struct, frozen=True):
    """The table of a schema and each column (field, type, life if not the first)."""

    table: str
    columns: dict[str, str]

    @property
    def layout(self) -> TableLayout:
        """The table with every column that it was ever given, in the order of their numbers."""
        columns = sorted(
            (int(name[1:]), Column(name, ColumnType(of.rstrip("/0123456789").rsplit("/", 1)[1])))
            for of, name in self.columns.items()
        )
        return TableLayout(self.table, tuple(column for _, column in columns))


class _Registry(msgspec.Struct, frozen=True, omit_defaults=True):
    schemas: dict[str, _TablePlacement]
    #: number of tables ever named; from before tables could be dropped it is unknown
    tables: int = 0
    #: whether a replica may write by it before all others know it
    unheard: bool = False

    @property
    def named(self) -> int:
        return max(self.tables, len(self.schemas))


_decode_layout = msgspec.json.Decoder(_Registry).decode
_encode_layout = msgspec.json.Encoder(order="deterministic").encode


def column_type(field: Field) -> ColumnType:
    """The type of a field's column."""
    if field.storage is Storage.INDEXED_HASHED:
        return ColumnType.HASH
    return _COLUMN_TYPES.get(field.type, ColumnType.TEXT)


def removed(name: str) -> VaultError:
    """Return the error of work on a schema that somebody has removed meanwhile."""
    return VaultError(Code.UNKNOWN_SCHEMA, f"The schema {name!r} was removed.")


async def _nobody() -> None:
    """Nobody else has to hear of a change."""


async def place_schema(
    store: Store,
    environment: str,
    schema: Schema,
    heard: Callable[[], Awaitable[None]] = _nobody,
    table: str = "",
) -> Placed:
    """Return the table of the schema; create and record it if it is new. Idempotent.

    ``table``: that it is known to have. Raises ``VaultError(UNKNOWN_SCHEMA)`` where it has that no
    more: somebody has removed it meanwhile, and nothing is made in its place.

    ``heard`` waits until every replica knows the columns of the registry, and has those
    in its rows: a replica that does not know a column leaves in it what another one has written. It
    is called before the first change as well, so that a replica that never hears of one refuses it.
    """
    while True:
        stored, registry = await _registry(store, environment)
        placement = registry.schemas.get(schema.name)
        if table and (placement is None or placement.table != table):
            raise removed(schema.name)
        updated, own = _with_columns(schema, placement, f"r{registry.named + 1}_{environment}")
        fresh = updated != placement
        if not fresh and not registry.unheard:
            await store.ensure(updated.layout)
            return Placed(updated.layout, own)
        if stored is not None:  # one that is not there yet is in nobody's use
            await heard()
        schemas = {**registry.schemas, schema.name: updated}
        named = registry.named + len(schemas) - len(registry.schemas)
        unheard = fresh and stored is not None and store.replicas is not None
        content = _encode_layout(_Registry(schemas, named, unheard))
        with conflict_ignored():  # another replica was faster: look at what it has made
            await store.put_notes((FollowedNote(_note(environment), content, stored),))


def _with_columns(
    schema: Schema, placement: _TablePlacement | None, table: str
) -> tuple[_TablePlacement, tuple[str, ...]]:
    """The placement with all columns of the schema, and theirs; ``table``: of a new one."""
    placement = placement or _TablePlacement(table, {})
    columns = dict(placement.columns)
    own: list[str] = []
    for field in schema.column_fields:
        life = f"/{field.life}" if field.life else ""
        of = f"{field.name}/{column_type(field)}{life}"
        own.append(columns.setdefault(of, f"c{len(columns) + 1}"))
    return _TablePlacement(placement.table, columns), tuple(own)


async def _registry(store: Store, environment: str) -> tuple[bytes | None, _Registry]:
    stored = await store.note(_note(environment))
    return stored, _Registry({}) if stored is None else _decode_layout(stored)


async def known_layouts(store: Store, environment: str) -> tuple[list[TableLayout], Agreement]:
    """The layouts of all tables, and what a replica agrees to that knows them."""
    _, registry = await _registry(store, environment)
    content = _encode_layout(msgspec.structs.replace(registry, unheard=False))
    layouts = [placement.layout for placement in registry.schemas.values()]
    return layouts, agreement_on(_note(environment), content)


async def forget_schema(store: Store, environment: str, table: str) -> None:
    """Take the schema that has this table out of the registry. Gone already: no effect."""
    while writes := await _without_table(store, environment, table):
        with conflict_ignored():
            await store.put_notes(writes)


async def _without_table(store: Store, environment: str, table: str) -> Sequence[NoteWrite]:
    """The write that takes a table out of the registry; none where it is not there."""
    stored, registry = await _registry(store, environment)
    left = {
        name: placement for name, placement in registry.schemas.items() if placement.table != table
    }
    if len(left) == len(registry.schemas):
        return ()
    content = _encode_layout(msgspec.structs.replace(registry, schemas=left, tables=registry.named))
    return (FollowedNote(_note(environment), content, stored),)


async def placed_schemas(store: Store, environment: str) -> dict[str, str]:
    """The tables of all schemas in the registry, by name of schema, in use or not."""
    _, registry = await _registry(store, environment)
    return {name: placement.table for name, placement in registry.schemas.items()}


async def has_hashes(store: Store, environment: str, name: str) -> bool:
    """Whether the table of a schema has columns of hashes."""
    entry = (await _registry(store, environment))[1].schemas.get(name)
    hashed = f"/{ColumnType.HASH}"
    return entry is not None and any(hashed in column for column in entry.columns)


async def wake(store: Store, environment: str, in_use: Collection[str] = ()) -> list[TableLayout]:
    """Make the tables of all schemas known to the store, but for those ``in_use``; their layouts.

    Then their content can be counted although their schema is not declared.
    """
    _, registry = await _registry(store, environment)
    asleep = [
        placement.layout for placement in registry.schemas.values() if placement.table not in in_use
    ]
    for layout in asleep:
        await store.ensure(layout)
    return asleep


def _note(environment: str) -> str:
    return f"schemas:{environment}"
