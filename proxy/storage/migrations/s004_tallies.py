"""Format 4: a sum over the rows of each table, as the vault seals it."""

from sqlite3 import Connection


def apply(connection: Connection) -> None:
    """Make the column; inside the caller's transaction."""
    connection.execute("ALTER TABLE tables ADD COLUMN tally BLOB")
