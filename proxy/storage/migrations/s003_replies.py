"""Format 3: which rows a kept answer shows, so that it goes with them.

Of the answers that are there nobody knows it, so each goes with the first row that is removed from
its table.
"""

from sqlite3 import Connection


def apply(connection: Connection) -> None:
    """Give every schema's table what it lacks; inside the caller's transaction."""
    for (table,) in connection.execute("SELECT name FROM tables ORDER BY name").fetchall():
        for statement in (
            (
                f"CREATE TABLE l_{table} (rid INTEGER NOT NULL, reply BLOB NOT NULL, files INTEGER "
                "NOT NULL)"
            ),
            f"CREATE INDEX lr_{table} ON l_{table} (rid)",
            f"CREATE INDEX lk_{table} ON l_{table} (reply)",
            f"INSERT INTO l_{table} (rid, reply, files) SELECT -1, key, 1 FROM i_{table}",  # noqa: S608 - a checked name
        ):
            connection.execute(statement)
