"""The tables of a schema: made, widened while the store is in use, removed, and copied row by row.

Texts are kept as the bytes of UTF-8: their order is that of code points whatever the collation,
and they may hold a NUL. An index takes their first bytes (``PREFIX``), for PostgreSQL bounds the
size of an entry. Beside a text that case-folding changes stands the folded one (``y_<column>``).
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from proxy.storage.base import TABLE_PARTS, RawRow, TablePart, columns_of
from proxy.storage.postgres.columns import PREFIX, enter, index_of, new_column, present_columns
from proxy.storage.postgres.link import LONG_QUESTION, LONG_WORK, DatabaseLink
from proxy.storage.postgres.replicas import JOINING
from proxy.storage.query import fold
from proxy.storage.rows import Cells, Column, ColumnType, ColumnValue, TableLayout

# ruff: noqa: S608 - names have passed query.check_names

#: The types of columns and parameters that are no ``bigint``.
COLUMN_TYPES = {
    **dict.fromkeys(
        ("key", "key_sealed", "salt", "body", "hash", "file_id", "name", "sealed", "digest"),
        "bytea",
    ),
    **dict.fromkeys(("state", "kind", "answered"), "smallint"),
    "object": "text",
}
#: The column whose hash names the part of a row, by the letter of the table.
_PARTED_BY = {"r": "rid", "t": "hash", "h": "rid", "i": "key", "l": "rid"}

_NULLABLE = {"key", "key_sealed", "expires_at"}
_TABLE = "SELECT 1 FROM tables WHERE name = $1 FOR UPDATE"  # another replica may drop it, too


class EncodedCells(Cells):
    """The cells of a layout with texts as bytes; behind all cells the folded texts, and whether a
    text is longer than what its index holds.
    """

    __slots__ = ("texts",)

    def __init__(self, columns: tuple[Column, ...]) -> None:
        super().__init__(columns)
        self.texts = [at for at, column in enumerate(columns) if column.type is ColumnType.TEXT]
        self.unchanged = self.unchanged and not self.texts

    def stored(self, cells: tuple[ColumnValue, ...]) -> tuple[ColumnValue, ...]:
        return self.encoded(super().stored(cells))

    def encoded(self, whole: tuple[ColumnValue, ...]) -> tuple[ColumnValue, ...]:
        """Numbers as they are kept, texts encoded."""
        if not self.texts:
            return whole
        encoded = list(whole)
        folds: list[ColumnValue] = []
        wide = False
        for at in self.texts:
            text = whole[at]
            if text is None:
                folds.append(None)
                continue
            folded, content = fold(str(text)), str(text).encode()
            folds.append(None if folded == text else folded.encode())
            encoded[at] = content
            wide = wide or len(content) > PREFIX
        return (*encoded, *folds, wide)

    def read(self, cells: tuple[ColumnValue, ...]) -> tuple[ColumnValue, ...]:
        return super().read(self.decoded(cells))

    def decoded(self, cells: tuple[ColumnValue, ...]) -> tuple[ColumnValue, ...]:
        """Numbers as they are kept, texts decoded."""
        if not any(cells[at] is not None for at in self.texts):
            return cells
        return tuple(
            cell.decode() if at in self.texts and isinstance(cell, bytes) else cell
            for at, cell in enumerate(cells)
        )


async def make_tables(connection: Any, layout: TableLayout, partitions: int = 0) -> dict[str, str]:
    """Make the tables of a layout, where they are missing, inside the caller's transaction; the
    columns that they have then. New tables have so many partitions.
    """
    await connection.execute(JOINING)  # another replica may make the same
    present = await present_columns(connection, layout)
    if present is not None:
        return present
    for statement in _create(layout, partitions):
        await connection.execute(statement)
    for column in layout.columns:
        for statement in (*new_column(layout.table, column), index_of(layout.table, column)):
            await connection.execute(statement)
    return await enter(connection, layout, {})


async def drop_tables(connection: Any, table: str) -> None:
    """Remove the tables of a schema, and doom the objects of its files. Gone already: no effect."""
    if not await connection.fetchval(_TABLE, table):
        return
    await connection.execute(
        f"INSERT INTO doomed (object) SELECT object FROM f_{table} ORDER BY file_id"
        " ON CONFLICT DO NOTHING"
    )
    for prefix in "rsthfil":
        await connection.execute(f"DROP TABLE {prefix}_{table}")
    await connection.execute(f"DROP TABLE IF EXISTS k_{table}; DROP FUNCTION IF EXISTS k_{table}()")
    for book in ("columns", "counts", "tables"):
        await connection.execute(f"DELETE FROM {book} WHERE name = $1", table)


def _create(layout: TableLayout, partitions: int) -> list[str]:
    """The statements that make the tables of a layout, without its columns."""
    if partitions:
        return _create_parts(layout, partitions)
    table = layout.table
    fixed = ", ".join(
        [
            f"{name} {COLUMN_TYPES.get(name, 'bigint')}{'' if name in _NULLABLE else ' NOT NULL'}"
            for name in TABLE_PARTS["records"].columns[1:]
        ]
    )
    return [
        f"CREATE TABLE r_{table} (rid bigint PRIMARY KEY, {fixed}, wide boolean)",
        f"CREATE UNIQUE INDEX ON r_{table} (key) WHERE key IS NOT NULL",
        f"CREATE INDEX ON r_{table} (updated_at, rid) WHERE state = 1",
        f"CREATE INDEX ON r_{table} (expires_at, rid) WHERE expires_at IS NOT NULL",
        f"CREATE INDEX ON r_{table} (created_at, rid)",
        f"CREATE INDEX ON r_{table} (rid) WHERE wide",
        (
            f"CREATE TABLE s_{table} (sid bigint PRIMARY KEY, rid bigint NOT NULL,"
            " kind smallint NOT NULL, at bigint NOT NULL, doubt bigint, answered smallint NOT NULL,"
            " body bytea NOT NULL)"
        ),
        f"CREATE INDEX ON s_{table} (rid)",
        f"CREATE INDEX ON s_{table} (at, sid)",
        (
            f"CREATE TABLE t_{table} (hash bytea, rid bigint,"
            " claimed boolean NOT NULL DEFAULT false, PRIMARY KEY (hash, rid))"
        ),
        f"CREATE UNIQUE INDEX ON t_{table} (hash) WHERE claimed",
        f"CREATE INDEX ON t_{table} (rid)",
        (
            f"CREATE TABLE h_{table} (rid bigint, version bigint, key bytea NOT NULL,"
            " at bigint NOT NULL, salt bytea NOT NULL, body bytea NOT NULL,"
            " PRIMARY KEY (rid, version))"
        ),
        f"CREATE INDEX ON h_{table} (key, at, version, rid)",
        f"CREATE INDEX ON h_{table} (at, rid, version)",
        (
            f"CREATE TABLE f_{table} (file_id bytea PRIMARY KEY, rid bigint NOT NULL,"
            " name bytea NOT NULL, object text NOT NULL, size bigint NOT NULL,"
            " created_at bigint NOT NULL, updated_at bigint NOT NULL, sealed bytea NOT NULL,"
            " UNIQUE (rid, name))"
        ),
        (
            f"CREATE TABLE i_{table} (key bytea PRIMARY KEY, expires_at bigint NOT NULL,"
            " digest bytea NOT NULL, sealed bytea NOT NULL)"
        ),
        f"CREATE INDEX ON i_{table} (expires_at, key)",
        (
            f"CREATE TABLE l_{table} (rid bigint NOT NULL, reply bytea NOT NULL,"
            " files boolean NOT NULL)"
        ),
        f"CREATE INDEX ON l_{table} (rid)",
        f"CREATE INDEX ON l_{table} (reply)",
        f"INSERT INTO tables (name) VALUES ('{table}')",
    ]


def _create_parts(layout: TableLayout, partitions: int) -> list[str]:
    """The same with tables in parts, by a hash of the column that finds most of their rows.

    An index of a table in parts can hold unique only what names the part. So a table of its own
    (``k_<table>``) has the keys of rows, each once, and a trigger writes it; all else that has to
    be unique names its part.
    """
    table = layout.table
    statements = []
    for text in _create(layout, 0):
        table_of = re.match(r"CREATE TABLE (([rthil])_\w+)", text)
        if table_of is not None:
            name = table_of[1]
            statements.append(f"{text} PARTITION BY HASH ({_PARTED_BY[table_of[2]]})")
            statements += _parts(name, partitions)
        else:
            statements.append(text.replace("UNIQUE INDEX ON r_", "INDEX ON r_"))
    keys = f"k_{table}"
    return [
        *statements,
        f"CREATE TABLE {keys} (key bytea PRIMARY KEY) PARTITION BY HASH (key)",
        *_parts(keys, partitions),
        (
            f"CREATE FUNCTION {keys}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF TG_OP <> 'INSERT' AND OLD.key IS NOT NULL THEN"
            f" DELETE FROM {keys} WHERE key = OLD.key; END IF;"
            " IF TG_OP <> 'DELETE' AND NEW.key IS NOT NULL THEN"
            f" INSERT INTO {keys} VALUES (NEW.key); END IF; RETURN NULL; END $$"
        ),
        (
            f"CREATE TRIGGER keys AFTER INSERT OR DELETE OR UPDATE OF key ON r_{table}"
            f" FOR EACH ROW EXECUTE FUNCTION {keys}()"
        ),
    ]


def _parts(name: str, count: int) -> list[str]:
    """The statements that make the parts of a table."""
    return [
        f"CREATE TABLE p{at}_{name} PARTITION OF {name}"
        f" FOR VALUES WITH (MODULUS {count}, REMAINDER {at})"
        for at in range(count)
    ]


# The tables of a store, row by row (``storage.base.RawTables``).

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
