"""``INSERT`` of many rows: as few statements as can be, and only of the columns that rows have values in.

What the driver and SQLite do for each statement is done once for many rows. What they do for each value of a row is spared where there
is none: a record of the record-based family has 63 columns beside its body and values in a few of them, mostly the same ones.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import itemgetter
from sqlite3 import Connection
from typing import Any

#: Rows from which on they are inserted many a statement; fewer go row by row, which costs no more.
_FEW = 16
#: Rows that one statement then inserts: any number is a few of these. Each statement makes the thread wait for the interpreter's
#: lock several times, so what batches of 100 come to, which is as many as a caller may send, takes one.
_RUNS = (512, 400, 300, 256, 200, 128, 100, 64, 32, 16, 8, 4, 2, 1)
#: Values in such a statement at most. SQLite takes 32,766 (https://www.sqlite.org/limits.html, section 9); texts and compiled
#: statements stay small.
_VALUES = 8192

#: Columns that have to be left out, so that looking whether they can be is worth it.
WORTH = 12
#: Calls after which it is looked anew which columns are needed: some row may have had more than all others.
AGE = 1000

#: The values of one row, in the order of the columns.
_Values = tuple[Any, ...]


class Rows:
    """An ``INSERT``, many rows a statement: what the driver does for each statement is done once for all of them."""

    __slots__ = ("_head", "_marks", "_runs", "_texts", "single")

    def __init__(self, head: str, width: int) -> None:
        self._head = f"{head} VALUES "
        self._marks = f"({', '.join('?' * width)})"
        self.single = self._text(1)
        self._runs = [length for length in _RUNS if length * width <= _VALUES]
        self._texts: dict[int, str] = {}  # of those lengths that came up: most tables never see a large batch

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
        left = [place for place in range(len(columns)) if place not in places]
        self.places = places
        self._rows = Rows(f"INSERT INTO {table} ({', '.join([columns[place] for place in chosen])})", len(chosen))
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
    """The rows of one table. The columns that are named are those of the rows before, so that few statements get compiled."""

    __slots__ = ("_age", "_chosen", "_columns", "_table", "_whole", "single")

    def __init__(self, table: str, columns: Sequence[str]) -> None:
        self._table = table
        self._columns = tuple(columns)
        self._whole = Rows(f"INSERT INTO {table} ({', '.join(columns)})", len(self._columns))
        self._chosen: _Chosen | None = None
        self._age = AGE
        self.single = self._whole.single

    def write(self, connection: Connection, rows: Sequence[_Values]) -> None:
        """Insert all of them, in their order."""
        if len(self._columns) <= 2 * WORTH:
            self._whole.write(connection, rows)
            return
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
    return frozenset(place for place, column in enumerate(zip(*rows, strict=True)) if column.count(None) < len(column))
