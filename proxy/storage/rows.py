"""What engines keep: layouts of tables, rows, and what stands beside them. Nothing here tells a personal value but ``indexed`` columns."""

import enum
from typing import NamedTuple

#: What a column outside the sealed body may hold. Hashes are 16 bytes.
Cell = str | int | float | bytes | None

#: A token hash answers at most this many records (``Store.by_tokens``).
TOKEN_RIDS = 32


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


class Past(NamedTuple):
    """A version that a row once had, or the note of its end. Found by the record's key, also when the row is gone."""

    rid: int
    version: int  #: unique among the past versions of a row
    key: bytes
    at: int  #: when it became a past one; how long it is kept counts from then
    salt: bytes
    body: bytes


class File(NamedTuple):
    """An attachment of a row: what is known of it, sealed, and the name of the object that holds its content.

    An object never has two files and never comes back once it is let go: its name is drawn anew for each content.
    """

    file_id: bytes  #: 16 random bytes, unique in the table
    rid: int
    name: bytes  #: 16-byte keyed hash of the file name, unique within the row
    object: str
    size: int  #: bytes of content
    created_at: int
    updated_at: int
    sealed: bytes


class Reply(NamedTuple):
    """What was answered to a request that may be sent again (idempotency)."""

    key: bytes  #: 16-byte keyed hash of who sent which key to which operation; unique in the table
    expires_at: int
    digest: bytes  #: of the request, so that another one under the same key is told apart
    sealed: bytes  #: the answer; empty once a record that it showed is gone
