"""The columns of a table and their indexes, and how a table that is in use gets more of them."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from proxy.errors import Code, VaultError
from proxy.storage.postgres.faults import is_locked, vault_error
from proxy.storage.postgres.link import LONG_WORK, DatabaseLink, connect
from proxy.storage.postgres.replicas import JOINING
from proxy.storage.rows import Column, ColumnType, TableLayout

#: Bytes of a text that its index holds.
PREFIX = 600

#: Type of a column by its kind.
SQL_TYPES = {
    ColumnType.HASH: "bytea",
    ColumnType.TEXT: "bytea",
    ColumnType.INTEGER: "bigint",
    ColumnType.DECIMAL: "bigint",
}

#: Milliseconds that a new column waits for its table: all writes of it wait behind, and wait longer
#: before they are refused. Seconds after which it tries again.
_COLUMN_WAITS: Final = 400
_BETWEEN: Final = 0.2
#: Bytes of a table from which on its indexes are made beside writes.
_LARGE: Final = 4 << 20
#: Partitions of a table, each with its size; a table without any is its only one.
_PARTS = (
    "SELECT part::regclass::text, pg_relation_size(part) AS size FROM"
    " (SELECT coalesce(inhrelid, $1::regclass) AS part FROM (SELECT) AS one"
    " LEFT JOIN pg_inherits ON inhparent = $1::regclass) AS parts"
)
#: Of those that give tables columns one does at a time. It asks again and again: one that waited in
#: the database would be waited for by the index.
_TURN = "SELECT pg_try_advisory_lock(17480, hashtext(current_schema()))"
_ENTER = "INSERT INTO columns VALUES ($1, $2, $3)"
_COLUMNS = "SELECT place, type FROM columns WHERE name = $1"
_TABLE = "SELECT 1 FROM tables WHERE name = $1"


def text_prefix(name: str) -> str:
    """The expression that the index of a text column is on."""
    return f"substr({name}, 1, {PREFIX})"


async def present_columns(connection: Any, layout: TableLayout) -> dict[str, str] | None:
    """Type by name of the columns that the table has; ``None`` where there is no such table.

    ``VaultError(BAD_STORE)`` when a column is of another type.
    """
    if not await connection.fetchval(_TABLE, layout.table):
        return None
    present = {raw[0]: raw[1] for raw in await connection.fetch(_COLUMNS, layout.table)}
    for column in layout.columns:
        if present.get(column.name, column.type) != column.type:
            raise VaultError(
                Code.BAD_STORE,
                f"Column {column.name} of the vault's table {layout.table} holds another type "
                f"than {column.type}: restore the database that belongs to these schemas.",
            )
    return present


async def enter(connection: Any, layout: TableLayout, present: Mapping[str, str]) -> dict[str, str]:
    """Have the columns of a layout count from now on; all that its table has."""
    new = {one.name: str(one.type) for one in layout.columns if one.name not in present}
    await connection.executemany(_ENTER, [(layout.table, *one) for one in new.items()])
    return {**present, **new}


def new_column(table: str, column: Column) -> list[str]:
    """The statements that give a table one more column.

    One that is there already was never entered, and so never used: a process ended before its index
    was made.
    """
    kinds = {f"x_{column.name}": SQL_TYPES[column.type]}
    if column.type is ColumnType.TEXT:
        kinds[f"y_{column.name}"] = "bytea"
    return [
        f"ALTER TABLE r_{table} DROP COLUMN IF EXISTS {name}, ADD COLUMN {name} {kind}"
        for name, kind in kinds.items()
    ]


def index_of(table: str, column: Column, how: str = "", on: str = "") -> str:
    """The statement that makes the index of a column, on the whole table or that part of it.

    A hash is only ever asked for by its value.
    """
    name = f"x_{column.name}"
    indexed = text_prefix(name) if column.type is ColumnType.TEXT else name
    where = f" WHERE {name} IS NOT NULL" if column.type is ColumnType.HASH else ""
    return f"CREATE INDEX {how} ON {on or f'r_{table}'} ({indexed} NULLS FIRST, rid){where}"


def _index_name(table: str, column: Column, part: str = "") -> str:
    """The name of an index that is put together of those of the parts: no longer than names are."""
    of = f"{table}/{column.name}/{part}".encode()
    return f"x_{hashlib.blake2b(of, digest_size=12).hexdigest()}"


class Widening:
    """More columns for a table in use; ``write`` runs a job in a transaction.

    No write is refused meanwhile: the columns come as soon as nobody else is at the table, and the
    indexes of a large one are made while others write, in each partition for itself. Only then the
    columns count.
    """

    def __init__(
        self,
        link: DatabaseLink,
        write: Callable[[Callable[[Any], Any], float], Awaitable[Any]],
        layout: TableLayout,
    ) -> None:
        self._link, self._write, self._layout = link, write, layout
        self._large = False
        self._parts: list[str] = []  #: partitions of a large table; none where it is whole
        self._lacking: list[Column] = []

    async def run(self) -> dict[str, str]:
        """Add what the table lacks; all columns that it has then. Raises ``VaultError``."""
        try:
            async with asyncio.timeout(LONG_WORK):
                connection = await connect(self._link.address)
                try:
                    return await self._turn(connection)
                finally:
                    connection.terminate()
        except Exception as error:
            raise vault_error(error) from error

    async def _turn(self, connection: Any) -> dict[str, str]:
        table = self._layout.table
        while not await connection.fetchval(_TURN):  # noqa: ASYNC110  # another process ends
            await asyncio.sleep(_BETWEEN)
        parts = await connection.fetch(_PARTS, f"r_{table}")
        self._large = sum(size for _, size in parts) > _LARGE
        self._parts = [part for part, _ in parts if self._large and part != f"r_{table}"]
        present = await self._unhindered(self._add)
        if not self._large:
            return present
        for column in self._lacking:
            if not self._parts:
                await connection.execute(index_of(table, column, "CONCURRENTLY"))
            for part in self._parts:
                how = f"CONCURRENTLY {_index_name(table, column, part)}"
                await connection.execute(index_of(table, column, how, part))
        return await self._unhindered(self._enter)

    async def _unhindered(self, job: Callable[[Any], Any]) -> dict[str, str]:
        """The columns that count after that job, as soon as nobody else is at the table."""
        while True:
            try:
                present: dict[str, str] = await self._write(job, LONG_WORK)
            except VaultError as error:
                if error.__cause__ is None or not is_locked(error.__cause__):
                    raise
            else:
                return present
            await asyncio.sleep(_BETWEEN)

    async def _add(self, connection: Any) -> dict[str, str]:
        table, present = self._layout.table, await self._present(connection)
        self._lacking = [one for one in self._layout.columns if one.name not in present]
        await connection.execute(f"SET LOCAL lock_timeout = {_COLUMN_WAITS}")
        for column in self._lacking:
            for statement in new_column(table, column):
                await connection.execute(statement)
            if self._parts:
                whole = _index_name(table, column), f"ONLY r_{table}"
                await connection.execute(index_of(table, column, *whole))
            elif not self._large:
                await connection.execute(index_of(table, column))
        return present if self._large else await enter(connection, self._layout, present)

    async def _enter(self, connection: Any) -> dict[str, str]:
        table = self._layout.table
        await connection.execute(f"SET LOCAL lock_timeout = {_COLUMN_WAITS}")
        for column in self._lacking:
            whole = _index_name(table, column)
            for part in self._parts:
                own = _index_name(table, column, part)
                await connection.execute(f"ALTER INDEX {whole} ATTACH PARTITION {own}")
        return await enter(connection, self._layout, await self._present(connection))

    async def _present(self, connection: Any) -> dict[str, str]:
        await connection.execute(JOINING)  # another replica may add the same
        return await present_columns(connection, self._layout) or {}
