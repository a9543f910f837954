"""The tables of a PostgreSQL store, row by row (``storage.raw.RawTables``)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from proxy.storage.base import RawRow, TablePart, columns_of
from proxy.storage.postgres.link import LONG_QUESTION, LONG_WORK, DatabaseLink
from proxy.storage.postgres.tables import EncodedCells
from proxy.storage.rows import Column, ColumnType, TableLayout

# ruff: noqa: S608 - names come from the store's own list of tables, or have passed check_names

_LAYOUTS = (
    "SELECT t.name, c.place, c.type FROM tables AS t LEFT JOIN columns AS c USING (name)"
    ' ORDER BY t.name COLLATE "C", c.place'
)
#: The columns that hold a truth value here, as the numbers that they are elsewhere.
_TRUTH = {"files": "files::int"}
_GROW = (
    "INSERT INTO counts (name, writer, rows) VALUES ($1, 0, $2)"
    " ON CONFLICT (name, writer) DO UPDATE SET rows = counts.rows + excluded.rows"
)

_TALLIES = "SELECT name, tally FROM tables WHERE tally IS NOT NULL"
_PUT_TALLY = "UPDATE tables SET tally = $1 WHERE name = $2"


class PostgresTables:
    """The tables behind a store's link; ``write`` runs a job in a transaction."""

    def __init__(
        self, link: DatabaseLink, write: Callable[[Callable[[Any], Any], float], Awaitable[Any]]
    ) -> None:
        self._link, self._write = link, write

    async def layouts(self) -> list[TableLayout]:
        columns: dict[str, list[Column]] = {}
        for table, name, kind in await self._link.fetch(_LAYOUTS):
            listed = columns.setdefault(table, [])
            if name is not None:
                listed.append(Column(name, ColumnType(kind)))
        return [TableLayout(table, tuple(listed)) for table, listed in columns.items()]

    async def page(
        self, layout: TableLayout, part: TablePart, after: RawRow | None, limit: int
    ) -> list[RawRow]:
        columns = [_TRUTH.get(name, name) for name in columns_of(layout, part)]
        key = ", ".join(columns[: part.key])
        marks = ", ".join(f"${number}" for number in range(2, part.key + 2))
        behind = "" if after is None else f"WHERE ({key}) > ({marks})"
        text = (
            f"SELECT {'DISTINCT ' if part.letter == 'l' else ''}{', '.join(columns)}"
            f" FROM {part.letter}_{layout.table} {behind} ORDER BY {key} LIMIT $1"
        )
        raws = await self._link.read(
            lambda connection: connection.fetch(text, limit, *(after or ())), LONG_QUESTION
        )
        cells = EncodedCells(layout.columns)
        if part.letter != "r" or not cells.texts:
            return [tuple(raw) for raw in raws]
        width = len(part.columns)
        return [(*raw[:width], *cells.decoded(tuple(raw[width:]))) for raw in raws]

    async def replace(
        self, layout: TableLayout, part: TablePart, gone: Sequence[RawRow], rows: Sequence[RawRow]
    ) -> None:
        if not gone and not rows:
            return
        name, columns = f"{part.letter}_{layout.table}", columns_of(layout, part)
        cells, width = EncodedCells(layout.columns), len(part.columns)
        if part.letter == "r" and cells.texts:
            columns += [*(f"y_{layout.columns[at].name}" for at in cells.texts), "wide"]
            rows = [(*row[:width], *cells.encoded(row[width:])) for row in rows]
        marks = [
            f"${number}::int::boolean" if column in _TRUTH else f"${number}"
            for number, column in enumerate(columns, 1)
        ]
        insert = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({', '.join(marks)})"
        tests = [f"{column} = {mark}" for column, mark in zip(columns, marks, strict=True)]
        delete = f"DELETE FROM {name} WHERE {' AND '.join(tests[: part.key])}"

        async def run(connection: Any) -> None:
            await connection.executemany(delete, gone)
            await connection.executemany(insert, rows)
            if part.letter == "r":
                await connection.execute(_GROW, layout.table, len(rows) - len(gone))

        await self._write(run, LONG_WORK)

    async def tallies(self) -> dict[str, bytes]:
        return dict(await self._link.fetch(_TALLIES))

    async def put_tallies(self, tallies: Mapping[str, bytes]) -> None:
        rows = [(sealed, name) for name, sealed in tallies.items()]
        await self._write(lambda connection: connection.executemany(_PUT_TALLY, rows), LONG_WORK)
