"""The storage port: sealed rows in, sealed rows out.

An engine is treated as untrusted: nothing that reaches it tells a personal value, save columns that a schema
declares ``indexed``. It knows tables, rows and versions; not fields' meaning, keys or HTTP.

Every write goes through ``commit``: one call is one atomic, durable transaction. Engines group many calls into
one disk flush. Reads see everything whose ``commit`` has returned (read-your-writes within the process).
"""

import enum
from collections.abc import Sequence
from typing import NamedTuple, Protocol

#: What a column outside the sealed body may hold. Hashes are 16 bytes.
Cell = str | int | float | bytes | None


class ColumnType(enum.StrEnum):
    """Types of columns beside the sealed body."""

    HASH = "hash"
    TEXT = "text"
    INTEGER = "integer"
    DECIMAL = "decimal"


class Column(NamedTuple):
    """A column beside the sealed body; every one has an index."""

    name: str
    type: ColumnType


class Layout(NamedTuple):
    """The table of one schema of one environment. ``table`` is ``[a-z][a-z0-9_]{0,47}``, so are column names."""

    table: str
    columns: tuple[Column, ...]


class State(enum.IntEnum):
    """Whether a row is bound to a record of the application."""

    LIVE = 0  #: the application took it; has a key as soon as the application tells one
    PENDING = 1  #: written before the application answered; has no key yet (or lost it to a newer record)


class Row(NamedTuple):
    """One sealed row. ``rid`` is 1..2^63-1, time-ordered; instants are milliseconds since the epoch."""

    rid: int
    key: bytes | None  #: 16-byte keyed hash of the record key; unique in the table; ``None`` while unbound
    key_sealed: bytes | None
    state: State
    version: int
    created_at: int
    updated_at: int
    expires_at: int | None
    salt: bytes
    body: bytes
    cells: tuple[Cell, ...] = ()  #: in the order of the layout's columns
    staged: int = 0  #: how many staged changes wait beside this row (maintained by the engine)


class StagedKind(enum.IntEnum):
    """What a staged change will do when it is settled."""

    UPDATE = 1
    DELETE = 2


class Staged(NamedTuple):
    """A change that waits for the application's answer, beside the live row."""

    sid: int  #: 1..2^63-1, time-ordered, unique in the table
    rid: int
    kind: StagedKind
    at: int
    doubt: int | None  #: when the application's answer became doubtful; ``None`` while in flight
    answered: bool  #: whether the application answered at all (5xx) or fell silent
    body: bytes  #: sealed; empty for a delete


class Insert(NamedTuple):
    """Insert a row. ``hashes`` go into the token index; those in ``unique`` must be new there (``Conflict``)."""

    row: Row
    hashes: tuple[bytes, ...] = ()
    unique: tuple[bytes, ...] = ()


class Release(NamedTuple):
    """Take the key away from whichever row but ``rid`` holds it: that row becomes PENDING. No row: no effect."""

    key: bytes
    rid: int
    at: int


class Accept(NamedTuple):
    """Make a PENDING row LIVE although it has no key yet: it was taken, and its name will be told later. Else no effect."""

    rid: int
    at: int


class Bind(NamedTuple):
    """Give a row without a key its key and make it LIVE. ``Conflict`` when the row is gone, has another key, or the key is taken."""

    rid: int
    key: bytes
    key_sealed: bytes
    at: int


class Replace(NamedTuple):
    """Overwrite version, times, salt, body and cells of the row ``row.rid``; key and state stay as they are.

    ``Conflict`` when the stored version is not ``expected``.
    """

    row: Row
    expected: int


class Stage(NamedTuple):
    """Put a staged change beside its row. ``Conflict`` when the row is gone, or a ``unique`` hash is not new."""

    staged: Staged
    hashes: tuple[bytes, ...] = ()
    unique: tuple[bytes, ...] = ()


class Unstage(NamedTuple):
    """Remove a staged change; no effect when it is gone."""

    rid: int
    sid: int


class Doubt(NamedTuple):
    """Mark a staged change as doubtful since ``at``; no effect when it is gone."""

    rid: int
    sid: int
    at: int
    answered: bool


class Reindex(NamedTuple):
    """Set the token index entries of a row: remove ``drop``, add ``add``."""

    rid: int
    add: tuple[bytes, ...] = ()
    drop: tuple[bytes, ...] = ()


class Remove(NamedTuple):
    """Remove a row with everything beside it: staged changes and token index entries. Gone already: no effect."""

    rid: int


Change = Insert | Release | Accept | Bind | Replace | Stage | Unstage | Doubt | Reindex | Remove


class Conflict(Exception):
    """A change's precondition does not hold; nothing of its transaction is stored. ``change`` says which one."""

    def __init__(self, change: Change, hashes: tuple[bytes, ...] = ()) -> None:
        super().__init__(type(change).__name__)
        self.change = change
        self.hashes = hashes  #: the ``unique`` hashes that were taken, where that was the reason


class Store(Protocol):
    """One open database. Drivers' errors come out as ``VaultError``: ``VAULT_DOWN`` for what may pass."""

    async def close(self) -> None:
        """Finish what was accepted, then close. Idempotent."""

    async def ensure(self, layout: Layout) -> None:
        """Create the table of the layout, or add the columns it lacks. Online and idempotent."""

    async def commit(self, table: str, changes: Sequence[Change]) -> None:
        """Apply all changes in order, or none; durable when it returns.

        Raises ``Conflict`` when a precondition fails, ``VaultError(VAULT_DOWN)`` when the store cannot write.
        """

    async def rows(self, table: str, rids: Sequence[int]) -> dict[int, Row]:
        """The rows with these ids; absent ones are left out."""

    async def by_keys(self, table: str, keys: Sequence[bytes]) -> dict[bytes, Row]:
        """The LIVE rows with these key hashes; absent ones are left out."""

    async def by_tokens(self, table: str, hashes: Sequence[bytes]) -> dict[bytes, tuple[int, ...]]:
        """Record ids by token hash, ascending (several where equal tokens are allowed, at most 32 each)."""

    async def staged(self, table: str, rids: Sequence[int]) -> dict[int, tuple[Staged, ...]]:
        """The staged changes beside these rows, oldest first; rows without any are left out."""

    async def unsettled(self, table: str, before: int, limit: int) -> tuple[list[Row], list[Staged]]:
        """PENDING rows last updated, and staged changes made, before that instant: oldest first, at most ``limit`` of each."""

    async def expired(self, table: str, now: int, limit: int) -> list[int]:
        """Ids of rows whose ``expires_at`` is at or before ``now``, at most ``limit``."""

    async def count(self, table: str) -> tuple[int, int, int]:
        """(rows, of them PENDING, staged changes); may be a cheap, slightly old answer."""

    async def note(self, name: str) -> bytes | None:
        """A named note of the store itself (wrapped keyset, schema registry), or ``None``."""

    async def put_note(self, name: str, content: bytes, expected: bytes | None) -> None:
        """Write a note durably if it still is ``expected`` (``None``: absent); else ``VaultError(CONFLICT)``."""
