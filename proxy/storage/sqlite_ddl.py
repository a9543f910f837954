"""Tables and columns that come online while the store is in use."""

from sqlite3 import Connection

from proxy.errors import Code, VaultError
from proxy.storage.rows import Layout
from proxy.storage.sqlite_sql import DECLARED, Statements, add_column, create


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


def statements(connection: Connection, layout: Layout) -> Statements:
    """The statements of a layout whose table is complete."""
    named = {column.name for column in layout.columns}
    present = columns_of(connection, layout.table) or {}
    return Statements(layout, [name for name in present if name not in named])
