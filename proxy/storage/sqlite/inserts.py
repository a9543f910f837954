"""``INSERT`` of many rows: as few statements as can be, and only of the columns that rows have
values in.

The fixed cost of each statement in the driver and SQLite is paid once for many rows. The cost of
each value is avoided for absent ones: a record of the record-based family has 63 columns and values
in a few of them, mostly the same ones.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import itemgetter
from sqlite3 import Connection
from typing import Any

#: Rows from which on they are inserted many a statement; fewer go row by row, which costs no more.
_FEW = 16
#: Rows that one statement then inserts: any number is a few of these. Each statement makes the
#: thread wait for the interpreter's lock several times, so what batches of 100 come to, which is as
#: many as a caller may send, takes one.
_RUNS = (512, 400, 300, 256, 200, 128, 100, 64, 32, 16, 8, 4, 2, 1)
#: Values in such a statement at most. SQLite takes 32,766 (https://www.sqlite.org/limits.html,
#: section 9); texts and compiled statements stay small.
_VALUES = 8192

#: Columns that have to be left out, so that looking whether they can be is worth it.
WORTH = 12
#: Calls after which the needed columns are determined again: one row may have had more than all
#: others.
AGE = 1000

#: The values of one row, in the order of the columns.
_Values = tuple[Any, ...]


class Rows:
    """An ``INSERT`` of many rows per statement, to pay the driver's fixed cost once."""

    __slots__ = ("_head", "_marks", "_runs", "_texts", "single")

    def __init__(self, head: str, width: int) -> None:
        self._head = f"{head} VALUES "
        self._marks = f"({', '.join('?' * width)})"
        self.single = self._text(1)
        self._runs = [length for length in _RUNS if length * width <= _VALUES]
        # of those lengths that came up: most tables never see a large batch
        self._texts: dict[int, str] = {}

    def write(self, connection: Connection, rows: Sequence[_Values]) -> None:
        """Insert all of them, in their order."""
        start, count = 0, len(rows)
        if count < _FEW:
            connection.executemany(self.single, rows)
            return
        for length in self._runs:
            while count - start >= length:
                end = start + length
                text = self._texts.get(length) or self._texts.setdefault(length, self._text(length))
                connection.execute(text, [*chain.from_iterable(rows[start:end])])
                start = end

    def _text(self, length: int) -> str:
        return self._head + ", ".join([self._marks] * length)


class _Chosen:
    """The statement on some of the columns."""

    __slots__ = ("_left", "_nothing", "_pick", "_rows", "places")

    def __init__(self, table: str, columns: Sequence[str], places: frozenset[int]) -> None:
        chosen = sorted(places)
        left = [index for index in range(len(columns)) if index not in places]
        self.places = places
        self._rows = Rows(
            f"INSERT INTO {table} ({', '.join([columns[index] for index in chosen])})", len(chosen)
        )
        self._pick = itemgetter(*chosen)
        self._left = itemgetter(*left)
        self._nothing = (None,) * len(left)

    def serves(self, rows: Iterable[_Values]) -> bool:
        """Whether the rows have values in these columns only."""
        left, nothing = self._left, self._nothing
        return all(left(row) == nothing for row in rows)

    def write(self, connection: Connection, rows: Iterable[_Values]) -> None:
        """Insert rows that it ``serves``."""
        self._rows.write(connection, [*map(self._pick, rows)])


class Inserts:
    """The rows of one table.

    The columns that are named are those of the rows before, so that few statements get compiled.
    """

    __slots__ = ("_age", "_chosen", "_columns", "_table", "_whole", "single")

    def __init__(self, table: str, columns: Sequence[str]) -> None:
        self._table = table
        self._columns = tuple(columns)
        self._whole = Rows(f"INSERT INTO {table} ({', '.join(columns)})", len(self._columns))
        self._chosen: _Chosen | None = None
        self._age = AGE
        self.single = self._whole.single

    @property
    def writer(self) -> Callable[[Connection, Sequence[_Values]], None]:
        """Return what inserts rows: of few columns always all."""
        return self._whole.write if len(self._columns) <= 2 * WORTH else self.write

    def write(self, connection: Connection, rows: Sequence[_Values]) -> None:
        """Insert all of them, in their order."""
        chosen, self._age = self._chosen, self._age + 1
        if self._age > AGE:
            self._age = 0
            chosen = self._choose(_used(rows))
        elif chosen is not None and not chosen.serves(rows):
            chosen = self._choose(chosen.places | _used(rows))
        (chosen or self._whole).write(connection, rows)

    def _choose(self, places: frozenset[int]) -> _Chosen | None:
        worth = len(self._columns) - len(places) >= WORTH
        self._chosen = _Chosen(self._table, self._columns, places) if worth else None
        return self._chosen


def _used(rows: Sequence[_Values]) -> frozenset[int]:
    """The places in which any row has a value."""
    return frozenset(
        index
        for index, column in enumerate(zip(*rows, strict=True))
        if column.count(None) < len(column)
    )


# Auxiliary tables of the rows: past versions (``h_<table>``), files (``f_``), replies (``i_``) with
# the rows that they show (``l_``), and released objects (``doomed``).
#
# Most tables of most vaults never have any of these. So they cost no statement before the first of
# their kind was written (``Used``): removing a row looks for past versions and files only if there
# have been some.

DOOMED = "SELECT object FROM doomed ORDER BY id LIMIT ?"
ABSOLVE = "DELETE FROM doomed WHERE object = ?"


class Used:
    """Whether a table may have past versions, files, and replies that show rows.

    It is set before they are written, and never reset.
    """

    __slots__ = ("files", "links", "past")

    def __init__(self, *, past: bool = True, files: bool = True, links: bool = True) -> None:
        self.past = past
        self.files = files
        self.links = links


def create_aux_tables(table: str) -> list[str]:
    """The statements that create the four auxiliary tables of a schema."""
    past = (
        f"CREATE TABLE h_{table} (rid INTEGER NOT NULL, version INTEGER NOT NULL, "
        "key BLOB NOT NULL, at INTEGER NOT NULL, salt BLOB NOT NULL, body BLOB NOT NULL)"
    )
    files = (
        f"CREATE TABLE f_{table} (file_id BLOB NOT NULL, rid INTEGER NOT NULL, "
        "name BLOB NOT NULL, object TEXT NOT NULL, size INTEGER NOT NULL, "
        "created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, sealed BLOB NOT NULL)"
    )
    replies = (
        f"CREATE TABLE i_{table} (key BLOB NOT NULL, expires_at INTEGER NOT NULL, "
        "digest BLOB NOT NULL, sealed BLOB NOT NULL)"
    )
    return [
        past,
        f"CREATE UNIQUE INDEX hr_{table} ON h_{table} (rid, version)",
        f"CREATE INDEX hk_{table} ON h_{table} (key, at, version, rid)",
        f"CREATE INDEX ha_{table} ON h_{table} (at, rid, version)",
        files,
        f"CREATE UNIQUE INDEX fi_{table} ON f_{table} (file_id)",
        f"CREATE UNIQUE INDEX fr_{table} ON f_{table} (rid, name)",
        replies,
        f"CREATE UNIQUE INDEX ii_{table} ON i_{table} (key)",
        f"CREATE INDEX iy_{table} ON i_{table} (expires_at, key)",
        (
            f"CREATE TABLE l_{table} (rid INTEGER NOT NULL, reply BLOB NOT NULL, files INTEGER NOT "
            "NULL)"
        ),
        f"CREATE INDEX lr_{table} ON l_{table} (rid)",
        f"CREATE INDEX lk_{table} ON l_{table} (reply)",
    ]
