"""What the store remembers of the schemas of an environment: one note, changed as a whole or not at all."""

import enum

import msgspec

from proxy.model.schema import Schema
from proxy.storage.base import Store


class Origin(enum.StrEnum):
    """Who declared a schema, and so who may change it."""

    API = "api"  #: over the interface or by ``domicile schema apply``
    FILE = "file"  #: a file of the setting ``schemas``
    RULES = "rules"  #: an entity of a rule file: the proxy collects its records
    BUILTIN = "builtin"  #: the program itself: the schema of the record-based family


class Phase(enum.StrEnum):
    """Where a migration stands."""

    FILLING = "filling"  #: the old definition is in force, and what the new one needs is made beside it
    CLEANING = "cleaning"  #: the new definition is in force, and what only the old one needed is removed
    REVERTING = "reverting"  #: the old definition stays in force, and what was made for the new one is removed


class Change(msgspec.Struct, frozen=True):
    """A migration under way. ``other`` is the definition that is not in force: the new one while filling and reverting, then the old."""

    phase: Phase
    other: Schema
    at: int  #: when the phase began, milliseconds since the epoch


class Outcome(msgspec.Struct, frozen=True):
    """How the last migration ended; while it is reverted, why."""

    total: int  #: records that there were
    failed: int  #: those of them with a value that cannot be converted: if there is one, the old definition stayed
    at: int  #: milliseconds since the epoch


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One schema. ``schema`` is the definition in force."""

    schema: Schema
    origin: Origin
    lives: dict[str, int] = {}  #: the last life of every field that there ever was
    change: Change | None = None
    outcome: Outcome | None = None


class _Book(msgspec.Struct, frozen=True, omit_defaults=True):
    schemas: dict[str, Entry] = {}
    doomed: tuple[str, ...] = ()  #: tables of schemas that are gone, which are still to be dropped


_decode = msgspec.json.Decoder(_Book).decode
_encode = msgspec.json.Encoder().encode


class Entries:
    """The entries of an environment by name of schema; ``put`` and ``remove`` are durable when they return."""

    def __init__(self, store: Store, environment: str) -> None:
        self._store = store
        self._note = f"catalog:{environment}"
        self._written: bytes | None = None
        self._book = _Book()

    async def load(self) -> None:
        """Read the note."""
        self._written = await self._store.note(self._note)
        self._book = _Book() if self._written is None else _decode(self._written)

    @property
    def schemas(self) -> dict[str, Entry]:
        """Every entry by name, in the order in which the schemas were declared; not to be changed."""
        return self._book.schemas

    @property
    def doomed(self) -> tuple[str, ...]:
        """Tables that are still to be dropped."""
        return self._book.doomed

    async def put(self, *entries: Entry) -> None:
        """Write these entries, all at once. Raises ``VaultError``: ``CONFLICT`` when another process has changed the note."""
        added = {entry.schema.name: entry for entry in entries}
        await self._write(msgspec.structs.replace(self._book, schemas={**self._book.schemas, **added}))

    async def remove(self, name: str, table: str) -> None:
        """Forget a schema, and remember that its table has to be dropped; raises as ``put``."""
        left = {known: entry for known, entry in self._book.schemas.items() if known != name}
        await self._write(_Book(left, (*self._book.doomed, table)))

    async def dropped(self, table: str) -> None:
        """Forget a table that has been dropped; raises as ``put``."""
        doomed = tuple(known for known in self._book.doomed if known != table)
        await self._write(msgspec.structs.replace(self._book, doomed=doomed))

    async def _write(self, book: _Book) -> None:
        if book == self._book:
            return
        content = _encode(book)
        await self._store.put_note(self._note, content, self._written)
        self._written, self._book = content, book
