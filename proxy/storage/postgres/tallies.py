"""A running sum over the rows of each table, as the embedded engine keeps it (``sqlite.tallies``).

A trigger of each table puts the ends of its rows' old and new forms into a temporary table of the
session that writes, whatever statement changes them; they are taken out of the sum and put into it
as the transaction ends, and written with it. Rows that another session changes move no sum.

An attacker who may replace the trigger in the database controls its result: this protects against
changes of rows, not of tables (docs/threat-model.md).
"""

import asyncio
from typing import Any, Final

from proxy.storage.base import RowTally

# ruff: noqa: S608 - names have passed query.check_names; every value is a parameter

#: Rows that are summed up before others get a turn.
_ROWS: Final = 500
#: Bytes that a sealed part ends with: its tag, which is another one for each sealing.
_ENDS: Final = (
    "rid, substr(body, octet_length(body) - 15), substr(key_sealed, octet_length(key_sealed) - 15)"
)
_MOVES: Final = (
    "CREATE TEMP TABLE IF NOT EXISTS row_moves"
    " (name text, rid bigint, body bytea, key_sealed bytea) ON COMMIT DELETE ROWS"
)
_MOVED: Final = (
    "SELECT t.name, t.tally, m.rid, m.body, m.key_sealed"
    " FROM pg_temp.row_moves AS m JOIN tables AS t ON m.name = 'r_' || t.name"
)
_READ: Final = "SELECT tally FROM tables WHERE name = $1"
_WRITE: Final = (
    "UPDATE tables AS t SET tally = n.tally FROM unnest($1::text[], $2::bytea[]) AS n(name, tally)"
    " WHERE t.name = n.name"
)
_TRIGGERS: Final = "SELECT tgname FROM pg_trigger WHERE tgrelid = $1::regclass AND NOT tgisinternal"
_FORMS: Final = {
    "INSERT": "NEW TABLE AS became",
    "DELETE": "OLD TABLE AS was",
    "UPDATE": "OLD TABLE AS was NEW TABLE AS became",
}

#: Functions that the triggers call; of no effect in other sessions. A step of ``migrations``: never
#: edited.
MOVES_FUNCTION: Final = (
    "CREATE FUNCTION row_moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    " IF to_regclass('pg_temp.row_moves') IS NULL THEN RETURN NULL; END IF;"
    " IF TG_OP <> 'INSERT' THEN"
    f" INSERT INTO pg_temp.row_moves SELECT TG_TABLE_NAME, {_ENDS} FROM was; END IF;"
    " IF TG_OP <> 'DELETE' THEN"
    f" INSERT INTO pg_temp.row_moves SELECT TG_TABLE_NAME, {_ENDS} FROM became; END IF;"
    " RETURN NULL; END $$"
)


class TableSums:
    """The sums of one database, by table."""

    def __init__(self) -> None:
        self._by_table: dict[str, RowTally] = {}
        self._least: dict[str, int] = {}  #: counter of writes that are durable
        self._written: dict[str, int] = {}  #: by the transaction under way
        self._session: Any = None  #: the connection that collects what moves

    async def collect(self, connection: Any) -> None:
        """Make a session collect its changes; outside of transactions."""
        if self._by_table and connection is not self._session:
            await connection.execute(_MOVES)
            self._session = connection

    async def begin(
        self, connection: Any, table: str, tally: RowTally, *, first: bool
    ) -> int | None:
        """Keep the sum of a table from now on, in this transaction; as ``Store.keep_tally``."""
        self.forget(table)
        await connection.execute(_MOVES)
        present = {raw[0] for raw in await connection.fetch(_TRIGGERS, f"r_{table}")}
        for event, forms in _FORMS.items():
            name = f"row_moved_{event.lower()}"
            if name not in present:
                await connection.execute(
                    f"CREATE TRIGGER {name} AFTER {event} ON r_{table} REFERENCING {forms}"
                    " FOR EACH STATEMENT EXECUTE FUNCTION row_moved()"
                )
        if first:
            total = await _total(connection, table, tally)
            await connection.execute(_WRITE, [table], [tally.seal(0, total)])
        sealed = await connection.fetchval(_READ, table)
        stored = None if sealed is None else tally.open(sealed)
        if stored is None:
            return None
        # before the transaction ends: the next one follows it at once
        self._by_table[table], self._least[table] = tally, stored[0]
        return stored[0]

    def forget(self, table: str) -> None:
        """The table goes, or its sum is not kept after all."""
        self._by_table.pop(table, None)
        self._least.pop(table, None)

    async def write(self, connection: Any) -> None:
        """Write the sums that the transaction has moved; it ends next."""
        self._written = {}
        if not self._by_table:
            return
        moved: dict[str, int] = {}
        sums: dict[str, bytes | None] = {}
        for table, sealed, rid, body, key_sealed in await connection.fetch(_MOVED):
            if (tally := self._by_table.get(table)) is not None:
                digest = tally.digest(rid, body, key_sealed or b"")
                moved[table] = moved.get(table, 0) ^ digest
                sums[table] = sealed
        fresh: dict[str, bytes] = {}
        for table, change in moved.items():
            sealed, tally = sums[table], self._by_table[table]
            stored = None if sealed is None else tally.open(sealed)
            # a foreign sum stays: it does not fit, which is to be noticed
            if stored is not None and stored[0] >= self._least[table]:
                self._written[table] = stored[0] + 1
                fresh[table] = tally.seal(stored[0] + 1, stored[1] ^ change)
        if fresh:
            await connection.execute(_WRITE, list(fresh), list(fresh.values()))

    def durable(self) -> None:
        """The transaction has ended, with its sums."""
        for table, counter in self._written.items():
            if table in self._least:
                self._least[table] = counter
        self._written = {}

    async def check(self, connection: Any, table: str) -> int | None:
        """Return the result of ``Store.check_tally``; ``connection`` is in no transaction."""
        tally, least = self._by_table.get(table), self._least.get(table, 0)
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            sealed = await connection.fetchval(_READ, table)
            if tally is None or sealed is None or (stored := tally.open(sealed)) is None:
                return None
            counter, total = stored
            fits = counter >= least and total == await _total(connection, table, tally)
            return counter if fits else None


async def _total(connection: Any, table: str, tally: RowTally) -> int:
    total, count = 0, 0
    async for rid, body, key_sealed in connection.cursor(
        f"SELECT {_ENDS} FROM r_{table}", prefetch=_ROWS
    ):
        total ^= tally.digest(rid, body, key_sealed or b"")
        count += 1
        if not count % _ROWS:
            await asyncio.sleep(0)
    return total
