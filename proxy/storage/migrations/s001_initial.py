"""Format 1: named notes, and the list of tables with the number of rows in each."""

from sqlite3 import Connection


def apply(connection: Connection) -> None:
    """Make the two tables that every store has; inside the caller's transaction."""
    connection.execute(
        "CREATE TABLE notes (name TEXT PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID"
    )
    connection.execute(
        "CREATE TABLE tables (name TEXT PRIMARY KEY, rows INTEGER NOT NULL) WITHOUT ROWID"
    )
