"""Format 2: past versions, files and replies beside the rows of every schema, and objects that
nothing names any more.

Rows are found in the order of their creation as well.
"""

from sqlite3 import Connection


def apply(connection: Connection) -> None:
    """Give every schema's table what it lacks; inside the caller's transaction."""
    connection.execute("CREATE TABLE doomed (id INTEGER PRIMARY KEY, object TEXT NOT NULL UNIQUE)")
    for (table,) in connection.execute("SELECT name FROM tables ORDER BY name").fetchall():
        for statement in _aux_tables(table):
            connection.execute(statement)


def _aux_tables(table: str) -> list[str]:
    past = (
        f"CREATE TABLE h_{table} (rid INTEGER NOT NULL, version INTEGER NOT NULL, key BLOB NOT "
        "NULL,"
        " at INTEGER NOT NULL, salt BLOB NOT NULL, body BLOB NOT NULL)"
    )
    files = (
        f"CREATE TABLE f_{table} (file_id BLOB NOT NULL, rid INTEGER NOT NULL, name BLOB NOT "
        "NULL, object TEXT NOT NULL,"
        " size INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, "
        "sealed BLOB NOT NULL)"
    )
    replies = (
        f"CREATE TABLE i_{table} (key BLOB NOT NULL, expires_at INTEGER NOT NULL, digest BLOB "
        "NOT NULL,"
        " sealed BLOB NOT NULL)"
    )
    return [
        f"CREATE INDEX ic_{table} ON r_{table} (created_at)",
        past,
        f"CREATE UNIQUE INDEX hr_{table} ON h_{table} (rid, version)",
        f"CREATE INDEX hk_{table} ON h_{table} (key, at, version, rid)",
        f"CREATE INDEX ha_{table} ON h_{table} (at, rid, version)",
        files,
        f"CREATE UNIQUE INDEX fi_{table} ON f_{table} (file_id)",
        f"CREATE UNIQUE INDEX fr_{table} ON f_{table} (rid, name)",
        replies,
        f"CREATE UNIQUE INDEX ii_{table} ON i_{table} (key)",
        f"CREATE INDEX iy_{table} ON i_{table} (expires_at, key)",
    ]
