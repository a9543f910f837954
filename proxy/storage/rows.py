"""Data types of engines: table layouts, rows and their companions.

Nothing here tells a personal value but ``indexed`` columns.
"""

import enum
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from proxy.errors import Code, VaultError

#: Type of a column outside the sealed body. Hashes are 16 bytes.
ColumnValue = str | int | float | bytes | None

#: A token hash answers at most this many records (``Store.by_tokens``).
TOKEN_RIDS = 32


class ColumnType(enum.StrEnum):
    """Types of columns outside the sealed body."""

    HASH = "hash"
    TEXT = "text"
    INTEGER = "integer"
    DECIMAL = "decimal"


class Column(NamedTuple):
    """A column outside the sealed body; every one has an index."""

    name: str
    type: ColumnType


class TableLayout(NamedTuple):
    """The table of one schema of one environment.

    ``table`` is ``[a-z][a-z0-9_]{0,47}``, so are column names.
    """

    table: str
    columns: tuple[Column, ...]

    def begins_with(self, other: "TableLayout") -> bool:
        """Whether the other one is this one, or an earlier one of the table."""
        return self.columns[: len(other.columns)] == other.columns


class RowState(enum.IntEnum):
    """Whether a row is bound to a record of the application."""

    LIVE = 0  #: the application took it; has a key as soon as the application tells one
    #: written before the application answered; has no key yet (or lost it to a newer record)
    PENDING = 1


#: When the mark of an erased record was updated: later than any, so that nothing settles it.
ERASED_AT = 1 << 52


class Row(NamedTuple):
    """A sealed row. Instants are milliseconds since the epoch.

    ``rid`` is 1..2^63-1 and time-ordered.
    """

    rid: int
    #: 16-byte keyed hash of the record key; unique in the table; ``None`` while unbound
    key: bytes | None
    key_sealed: bytes | None
    state: RowState
    version: int
    created_at: int
    updated_at: int
    expires_at: int | None
    salt: bytes
    body: bytes
    cells: tuple[ColumnValue, ...] = ()  #: in the order of the layout's columns
    staged: int = 0  #: number of its staged changes (maintained by the engine)


class StagedKind(enum.IntEnum):
    """Effect of a staged change when it is settled."""

    UPDATE = 1
    DELETE = 2


#: The time of a staged change whose tokens a page has shown: later than any, so that it is kept
#: until an answer decides it.
SEEN_IN_PAGE = 1 << 52


class Staged(NamedTuple):
    """A change that waits for the application's answer."""

    sid: int  #: 1..2^63-1, time-ordered, unique in the table
    rid: int
    kind: StagedKind
    at: int  #: when it was made, or ``SEEN_IN_PAGE``
    doubt: int | None  #: when the application's answer became doubtful; ``None`` while in flight
    answered: bool  #: whether the application answered at all (5xx) or fell silent
    body: bytes  #: sealed; empty for a delete


def read_staged(raw: Sequence[Any]) -> Staged:
    """Return a staged change from its stored members, in order.

    An unknown kind, written by a foreign program, is read as an update.
    """
    sid, rid, number, at, doubt, answered, body = raw
    kind = StagedKind.DELETE if number == StagedKind.DELETE else StagedKind.UPDATE
    return Staged(sid, rid, kind, at, doubt, bool(answered), body)


class Past(NamedTuple):
    """A version that a row once had, or the note of its end.

    Found by the record's key, also when the row is gone.
    """

    rid: int
    version: int  #: unique among the past versions of a row
    key: bytes
    at: int  #: when it became a past one; how long it is kept counts from then
    salt: bytes
    body: bytes


class File(NamedTuple):
    """An attachment of a row: sealed metadata, and the name of the object with its content.

    An object never has two files, and never returns once released: each content gets a fresh name.
    """

    file_id: bytes  #: 16 random bytes, unique in the table
    rid: int
    name: bytes  #: 16-byte keyed hash of the file name, unique within the row
    object: str
    size: int  #: bytes of content
    created_at: int
    updated_at: int
    sealed: bytes


class StoredReply(NamedTuple):
    """Answer stored for a request that may be sent again (idempotency)."""

    key: bytes  #: 16-byte keyed hash of who sent which key to which operation; unique in the table
    expires_at: int
    digest: bytes  #: of the request, so that another one under the same key is recognized
    sealed: bytes  #: the answer; empty once a record that it showed is gone


# Decimals outside the sealed body, exact: a whole number of ten-thousandths.
#
# The interface allows decimals of 16 digits, 4 of them after the point, "never through binary
# floating point". As a whole number of ten-thousandths each fits 64 bits, sorts and adds up exactly
# in every engine, and costs an index entry of 8 bytes. A caller writes ``"12.50"`` or ``12``; it
# reads the shortest spelling, ``"12.5"`` or ``"12"``.

#: Digits after the point; the digits before it follow from the 16 that the interface allows.
DECIMAL_PLACES = 4
_SCALE = 10**DECIMAL_PLACES
_LARGEST = 10**16


def scaled(cell: ColumnValue) -> int | None:
    """A decimal as ten-thousandths; ``VaultError(INTERNAL)``, without it, if it does not fit."""
    if cell is None:
        return None
    try:
        exact = Decimal(str(cell)) * _SCALE
        whole = int(exact)
    except (InvalidOperation, ValueError, OverflowError) as error:
        raise _unfit() from error
    if whole != exact or abs(whole) >= _LARGEST:
        raise _unfit()
    return whole


def spelled(stored: ColumnValue) -> str | None:
    """The shortest spelling of a number of ten-thousandths."""
    if stored is None:
        return None
    whole, rest = divmod(abs(int(stored)), _SCALE)
    sign = "-" if int(stored) < 0 else ""
    fraction = f".{rest:0{DECIMAL_PLACES}d}".rstrip("0") if rest else ""
    return f"{sign}{whole}{fraction}"


def spelled_exactly(value: Decimal | int) -> str:
    """The canonical text of a decimal: what ``spelled`` gives for its stored form."""
    return str(spelled(scaled(str(value))))


class Cells:
    """The cells of one list of columns on their way in and out."""

    __slots__ = ("decimals", "unchanged", "width")

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self.width = len(columns)  #: how many there are
        self.decimals = [
            index for index, column in enumerate(columns) if column.type is ColumnType.DECIMAL
        ]
        self.unchanged = not self.decimals  #: whether they are kept as they come

    def stored(self, cells: tuple[ColumnValue, ...]) -> tuple[ColumnValue, ...]:
        """As they are kept; ``VaultError(INTERNAL)`` when they are more than the columns.

        A shorter row belongs to the first columns: the layout grew after the row was made.
        """
        if len(cells) != self.width:
            if len(cells) > self.width:
                text = f"A row has {len(cells)} cells where its layout has {self.width} columns."
                raise VaultError(Code.INTERNAL, text)
            cells = (*cells, *[None] * (self.width - len(cells)))
        return self._changed(cells, scaled) if self.decimals else cells

    def read(self, cells: tuple[ColumnValue, ...]) -> tuple[ColumnValue, ...]:
        """As the caller gets them."""
        return self._changed(cells, spelled)

    def _changed(
        self, cells: tuple[ColumnValue, ...], change: Callable[[ColumnValue], ColumnValue]
    ) -> tuple[ColumnValue, ...]:
        """With each decimal changed.

        Most rows have values in few columns, and many in no decimal.
        """
        indexes = [index for index in self.decimals if cells[index] is not None]
        if not indexes:
            return cells
        changed = list(cells)
        for index in indexes:
            changed[index] = change(cells[index])
        return tuple(changed)


def _unfit() -> VaultError:
    return VaultError(
        Code.INTERNAL,
        f"A cell of a decimal column is not a decimal of at most 16 digits with {DECIMAL_PLACES} "
        "of them after the point: "
        "the caller has to refuse such a value before it is stored.",
    )
