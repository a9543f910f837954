"""A running sum over the rows of each table, which foreign changes do not fit.

A foreign program may roll rows back, remove or add them.

Triggers of the writer's own connection take the digest of a row's old form out of the sum and put
that of its new form in, whatever statement changes it. New rows are added by who inserts them: a
trigger would cost as much as the insert. The sum is written in the transaction of the rows, once
for each group of commits, so no crash comes between the two.
"""

from collections.abc import Callable, Iterable, Sequence
from sqlite3 import Connection
from time import sleep
from typing import Any, Final

from proxy.storage.base import RowTally

# ruff: noqa: S608 - names have passed query.check_names; every value is a parameter

_READ: Final = "SELECT tally FROM tables WHERE name = ?"
#: Rows that are summed up before others get a turn, and how long that is, in seconds.
_ROWS: Final = 500
_PAUSE: Final = 0.0005
_WRITE: Final = "UPDATE tables SET tally = ?, rows = rows + ? WHERE name = ?"
_GROW: Final = "UPDATE tables SET rows = rows + ? WHERE name = ?"
#: Bytes that a sealed part ends with: its tag, which is another one for each sealing.
_TAG: Final = 16
_ENDS: Final = f"substr({{0}}.body, -{_TAG}), substr({{0}}.key_sealed, -{_TAG})"
_BODY: Final = 9  #: the column of a row as it is stored


class WriterConnection(Connection):
    """The connection that writes, with the sums that it keeps."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.tallies = Tallies()


class Tallies:
    """The sums of one database, by table."""

    def __init__(self) -> None:
        self._by_table: dict[str, RowTally] = {}
        self._stored: dict[str, tuple[int, int]] = {}  #: counter of writes, and sum
        self._moved: dict[str, int] = {}  #: by the transaction under way; its identity stays
        self._written: dict[str, tuple[int, int]] = {}  #: by it, not yet durable

    def install(self, connection: WriterConnection) -> None:
        """Make a connection count its changes."""
        connection.tallies = self
        self.roll_back()
        for table in self._by_table:
            self._count(connection, table)

    def begin(
        self, connection: Connection, table: str, tally: RowTally, *, first: bool
    ) -> int | None:
        """Keep the sum of a table from now on; the counter of its writes, ``None`` where the stored
        sum is not one that ``tally`` has sealed. The ``first`` sum is that of the rows as they are.
        """
        sealed = connection.execute(_READ, (table,)).fetchone()[0]
        if first:
            sealed = tally.seal(0, _total(connection, table, tally))
            connection.execute(_WRITE, (sealed, 0, table))
        stored = None if sealed is None else tally.open(sealed)
        if stored is None:
            return None
        self._stored[table], self._by_table[table] = stored, tally
        self._count(connection, table)
        return stored[0]

    def forget(self, table: str) -> None:
        self._by_table.pop(table, None)
        self._moved.pop(table, None)

    def check(self, table: str) -> Callable[[Connection], int | None]:
        """Return a function that runs ``Store.check_tally`` in a read transaction begun later."""
        tally, (least, _) = self._by_table.get(table), self._stored.get(table, (0, 0))

        def checked(connection: Connection) -> int | None:
            sealed = connection.execute(_READ, (table,)).fetchone()[0]
            if tally is None or sealed is None or (stored := tally.open(sealed)) is None:
                return None
            counter, total = stored
            fits = counter >= least and total == _total(connection, table, tally)
            return counter if fits else None

        return checked

    def add(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        """Count new rows as they are stored: id, key, statement, …, body at ``_BODY``."""
        tally = self._by_table.get(table)
        if tally is not None:
            self._moved[table] = self._moved.get(table, 0) ^ tally.added(rows, _BODY)

    def write(self, connection: Connection, growth: dict[str, int]) -> None:
        """Write the sums that the transaction has moved, and by how many rows tables grew."""
        for table, moved in self._moved.items():
            counter, total = self._stored[table]
            self._written[table] = counter + 1, total ^ moved
            sealed = self._by_table[table].seal(*self._written[table])
            connection.execute(_WRITE, (sealed, growth.pop(table, 0), table))
        self._moved.clear()
        for table, rows in growth.items():
            if rows:
                connection.execute(_GROW, (rows, table))

    def commit(self, connection: Connection) -> None:
        """End the transaction, with its sums."""
        if self._moved:
            self.write(connection, {})
        connection.commit()  # takes the interpreter's lock once, a statement several times
        self._stored.update(self._written)
        self._written = {}

    def moved(self) -> dict[str, int]:
        """Return the changes of the transaction so far."""
        return dict(self._moved)

    def roll_back(self, moved: dict[str, int] | None = None) -> None:
        """The transaction has gone back to where it had moved that; nothing where it has ended."""
        self._moved.clear()
        self._moved.update(moved or {})
        self._written = {}

    def _count(self, connection: Connection, table: str) -> None:
        """Count the rows of a table that a connection changes."""
        move = self._by_table[table].mover(self._moved)
        connection.create_function(f"tally_{table}", -1, move)
        _add_triggers(connection, table)


def _total(connection: Connection, table: str, tally: RowTally) -> int:
    total = 0
    rows = connection.execute(f"SELECT rid, {_ENDS.format('r')} FROM r_{table} AS r")
    while some := rows.fetchmany(_ROWS):
        for rid, body, key_sealed in some:
            total ^= tally.digest(rid, body, key_sealed or b"")
        sleep(_PAUSE)
    return total


def _add_triggers(connection: Connection, table: str) -> None:
    before, after = _ENDS.format("old"), _ENDS.format("new")
    for event, counted in (
        ("DELETE", f"old.rid, {before}"),
        ("UPDATE OF body, key_sealed", f"new.rid, {before}, {after}"),
    ):
        connection.execute(
            f"CREATE TEMP TRIGGER IF NOT EXISTS tally_{event[:6].lower()}_{table}"
            f" AFTER {event} ON main.r_{table} BEGIN SELECT tally_{table}({counted}); END"
        )
