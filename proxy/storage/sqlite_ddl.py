"""Tables and columns that come online while the store is in use."""

from sqlite3 import Connection

from proxy.errors import Code, VaultError
from proxy.storage.rows import Layout
from proxy.storage.sqlite_beside import Beside, Used
from proxy.storage.sqlite_sql import DECLARED, Statements, add_column, create

#: Prefix of every table of a schema.
TABLES = "rsthfil"


def columns_of(connection: Connection, table: str) -> dict[str, str] | None:
    """Declared type by name of the columns that the table of a schema has; ``None`` when there is no such table."""
    found = connection.execute("SELECT name, type FROM pragma_table_info(?)", (f"r_{table}",)).fetchall()
    return {name[2:]: kind for name, kind in found if name.startswith("x_")} if found else None


def is_complete(connection: Connection, layout: Layout) -> bool:
    """Whether nothing has to be made for the layout. ``VaultError(BAD_STORE)`` when a column is of another type."""
    present = columns_of(connection, layout.table)
    if present is None:
        return False
    for column in layout.columns:
        if present.get(column.name, DECLARED[column.type]) != DECLARED[column.type]:
            raise VaultError(
                Code.BAD_STORE,
                f"Column {column.name} of the vault's table {layout.table} holds another type than {column.type}: "
                "restore the database that belongs to these schemas.",
            )
    return all(column.name in present for column in layout.columns)


def make(connection: Connection, layout: Layout) -> None:
    """Make what the layout lacks; inside the caller's transaction. Idempotent."""
    present = columns_of(connection, layout.table)
    if present is None:
        for statement in create(layout):
            connection.execute(statement)
    for column in layout.columns:
        if column.name not in (present or {}):
            for statement in add_column(layout.table, column):
                connection.execute(statement)


def statements(connection: Connection, layout: Layout, used: Used | None = None) -> Statements:
    """The statements of a layout whose table is complete. ``used`` is what earlier ones of the same table share."""
    named = {column.name for column in layout.columns}
    present = columns_of(connection, layout.table) or {}
    used = used or Beside(layout.table).used(connection)
    return Statements(layout, [name for name in present if name not in named], used)


def empty(connection: Connection, table: str, limit: int) -> int:
    """Remove so many records of a schema, each with everything beside it, then so much of what they left; how many. 0: nothing is.

    Whoever is interrupted between two calls leaves a table that has fewer records and is sound.
    """
    if columns_of(connection, table) is None:
        return 0
    sql = Statements(Layout(table, ()))
    rids = connection.execute(f"SELECT rid FROM r_{table} LIMIT ?", (limit,)).fetchall()  # noqa: S608 - checked name
    beside = sql.beside
    for text in (
        beside.forget,
        beside.doom_of_row,
        beside.remove_files,
        sql.remove_tokens,
        sql.remove_staged,
        sql.remove,
    ):
        connection.executemany(text, rids)
    connection.execute(sql.grow, (-len(rids), table))
    return len(rids) or sum(
        connection.execute(
            f"DELETE FROM {prefix}_{table} WHERE rowid IN (SELECT rowid FROM {prefix}_{table} LIMIT ?)",  # noqa: S608 - checked name
            (limit,),
        ).rowcount
        for prefix in ("h", "i", "l")
    )


def drop(connection: Connection, table: str) -> None:
    """Remove the tables of a schema; inside the caller's transaction. Gone already: no effect."""
    for prefix in TABLES:
        connection.execute(f"DROP TABLE IF EXISTS {prefix}_{table}")
    connection.execute("DELETE FROM tables WHERE name = ?", (table,))
