"""Further faces of a SQLite store: its tables row by row (``storage.base.RawTables``), and commits
and reads without waiting (``storage.base.AtOnce``).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from sqlite3 import Connection
from typing import Any, Final, Protocol, cast

from proxy.errors import VaultError
from proxy.storage.base import CommitGuard, RawRow, TablePart, columns_of
from proxy.storage.changes import Change, CommitWaiter, Conflict
from proxy.storage.query import RowPage, Select
from proxy.storage.rows import Column, ColumnType, Row, TableLayout
from proxy.storage.sqlite.prompt import frequent_page
from proxy.storage.sqlite.statements import BODY_COLUMN, DECLARED, Statements, table_columns
from proxy.storage.sqlite.tallies import WriterConnection
from proxy.storage.sqlite.writer import SqliteWriter

# ruff: noqa: S608 - names come from the store's own list of tables, or have passed check_names

_TYPES: Final = {declared: ColumnType(kind) for kind, declared in DECLARED.items()}

#: Runs a question, or a change in a transaction, on a connection.
OnConnection = Callable[[Callable[[Connection], Any]], Awaitable[Any]]


class SqliteTables:
    """The tables behind a store's connections."""

    def __init__(
        self, ask: OnConnection, write: OnConnection, written: Callable[[str], None]
    ) -> None:
        self._ask, self._write = ask, write
        self._written = written  # told the name of a table

    async def layouts(self) -> list[TableLayout]:
        layouts: list[TableLayout] = await self._ask(_layouts)
        return layouts

    async def page(
        self, layout: TableLayout, part: TablePart, after: RawRow | None, limit: int
    ) -> list[RawRow]:
        key = ", ".join(part.columns[: part.key])
        behind = "" if after is None else f"WHERE ({key}) > ({', '.join('?' * part.key)})"
        text = (
            f"SELECT DISTINCT {', '.join(columns_of(layout, part))}"
            f" FROM {part.letter}_{layout.table} {behind} ORDER BY {key} LIMIT ?"
        )
        if part.letter != "l":
            text = text.replace("DISTINCT ", "", 1)  # their keys are unique
        rows: list[RawRow] = await self._ask(
            lambda reader: reader.execute(text, (*(after or ()), limit)).fetchall()
        )
        return rows

    async def replace(
        self, layout: TableLayout, part: TablePart, gone: Sequence[RawRow], rows: Sequence[RawRow]
    ) -> None:
        if gone or rows:
            self._written(layout.table)
            await self._write(lambda connection: _replace(connection, (layout, part), gone, rows))

    async def tallies(self) -> dict[str, bytes]:
        text = "SELECT name, tally FROM tables WHERE tally IS NOT NULL"
        tallies: dict[str, bytes] = await self._ask(lambda reader: dict(reader.execute(text)))
        return tallies

    async def put_tallies(self, tallies: Mapping[str, bytes]) -> None:
        text = "UPDATE tables SET tally = ? WHERE name = ?"
        rows = [(sealed, name) for name, sealed in tallies.items()]
        await self._write(lambda connection: connection.executemany(text, rows))


def _layouts(reader: Connection) -> list[TableLayout]:
    tables = reader.execute("SELECT name FROM tables ORDER BY name").fetchall()
    return [
        TableLayout(
            table,
            tuple(
                Column(name, _TYPES[declared])
                for name, declared in (table_columns(reader, table) or {}).items()
            ),
        )
        for (table,) in tables
    ]


def _replace(
    connection: Connection,
    what: tuple[TableLayout, TablePart],
    gone: Sequence[RawRow],
    rows: Sequence[RawRow],
) -> None:
    layout, part = what
    name, columns = f"{part.letter}_{layout.table}", columns_of(layout, part)
    key = " AND ".join(f"{column} = ?" for column in part.columns[: part.key])
    removed = connection.executemany(f"DELETE FROM {name} WHERE {key}", gone).rowcount
    marks = ", ".join("?" * len(columns))
    connection.executemany(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({marks})", rows)
    if part.letter == "r":
        cast("WriterConnection", connection).tallies.add(layout.table, rows)
        grown = len(rows) - max(removed, 0)
        connection.execute(
            "UPDATE tables SET rows = rows + ? WHERE name = ?", (grown, layout.table)
        )


class _Guarded(Protocol):
    guard: CommitGuard | None


class SqliteAtOnce:
    """See ``storage.base.AtOnce``."""

    __slots__ = ("_fetch", "_query", "_store", "_tables", "_writer")

    def __init__(
        self,
        store: _Guarded,
        writer: SqliteWriter,
        tables: Mapping[str, Statements],
        reads: tuple[
            Callable[[str, Sequence[Any]], list[tuple[Any, ...]]],
            Callable[[Callable[[Connection], Any]], Any],
        ],
    ) -> None:
        """``reads``: run a statement, and a question, on the connection of the event loop."""
        self._store = store
        self._writer = writer
        self._tables = tables
        self._fetch, self._query = reads

    def begin_commit(self, table: str, changes: Sequence[Change], waiter: CommitWaiter) -> bool:
        sql = self._tables.get(table)
        if sql is None:
            return False
        try:
            if self._store.guard is not None:
                self._store.guard(changes)
            return self._writer.accept((waiter, sql, changes), small=True)
        except (Conflict, VaultError):  # ``commit`` raises it where somebody is told
            return False

    def row_by_key(self, table: str, key: bytes) -> Row | None:
        """See ``AtOnce.row_by_key``; nothing of a table that is not known."""
        sql = self._tables.get(table)
        raws = self._fetch(sql.by_keys.single, (key,)) if sql is not None else ()
        if sql is None or not raws or raws[0][BODY_COLUMN] is None:
            return None
        return sql.read(raws[0])

    def frequent(self, table: str, query: Select) -> RowPage | None:
        sql = self._tables.get(table)
        if sql is None or sql.used.files:
            return None
        page: RowPage | None = self._query(partial(frequent_page, sql=sql, query=query))
        return page

    def has_files(self, table: str) -> bool:
        sql = self._tables.get(table)
        return sql is None or sql.used.files
