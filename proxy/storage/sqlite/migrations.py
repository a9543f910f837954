"""The store's own format, step by step: numbered, append-only, never edited once released.

The position of a step in ``STEPS`` (from 1) is the format after it; format N is the result of steps
1..N on an empty file. Tables of schemas are not created here (``statements.make``), but a step that
changes their form has to change every one in the table ``tables``. A store of a newer format than
``FORMAT`` is refused, never guessed at.
"""

from collections.abc import Callable
from sqlite3 import Connection

#: Marks a database as a vault of this program in its file header: ``DMCL``.
APPLICATION_ID = 0x444D434C


def make_notes_and_tables(connection: Connection) -> None:
    """Format 1: named notes, and the list of tables with the number of rows in each."""
    connection.execute(
        "CREATE TABLE notes (name TEXT PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID"
    )
    connection.execute(
        "CREATE TABLE tables (name TEXT PRIMARY KEY, rows INTEGER NOT NULL) WITHOUT ROWID"
    )


def add_aux_tables(connection: Connection) -> None:
    """Format 2: past versions, files and replies of the rows of every schema, and released objects.

    Rows are found in the order of their creation as well.
    """
    connection.execute("CREATE TABLE doomed (id INTEGER PRIMARY KEY, object TEXT NOT NULL UNIQUE)")
    for (table,) in connection.execute("SELECT name FROM tables ORDER BY name").fetchall():
        past = (
            f"CREATE TABLE h_{table} (rid INTEGER NOT NULL, version INTEGER NOT NULL, key BLOB NOT "
            "NULL, at INTEGER NOT NULL, salt BLOB NOT NULL, body BLOB NOT NULL)"
        )
        files = (
            f"CREATE TABLE f_{table} (file_id BLOB NOT NULL, rid INTEGER NOT NULL, name BLOB NOT "
            "NULL, object TEXT NOT NULL, size INTEGER NOT NULL, created_at INTEGER NOT NULL, "
            "updated_at INTEGER NOT NULL, sealed BLOB NOT NULL)"
        )
        replies = (
            f"CREATE TABLE i_{table} (key BLOB NOT NULL, expires_at INTEGER NOT NULL, digest BLOB "
            "NOT NULL, sealed BLOB NOT NULL)"
        )
        for statement in (
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
        ):
            connection.execute(statement)


def add_reply_links(connection: Connection) -> None:
    """Format 3: which rows a kept answer shows, so that it goes with them.

    For existing answers the rows are unknown, so each goes with the first row that is removed from
    its table.
    """
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


def add_tallies(connection: Connection) -> None:
    """Format 4: a sum over the rows of each table, as the vault seals it."""
    connection.execute("ALTER TABLE tables ADD COLUMN tally BLOB")


#: Every step in order. Each runs inside its caller's transaction.
STEPS: tuple[Callable[[Connection], None], ...] = (
    make_notes_and_tables,
    add_aux_tables,
    add_reply_links,
    add_tallies,
)

#: The format that this program reads and writes; kept as the database's ``user_version``.
FORMAT = len(STEPS)


def run_migrations(
    connection: Connection, steps: tuple[Callable[[Connection], None], ...] = STEPS
) -> int:
    """Run the steps that the store lacks, each in one transaction, and answer how many."""
    start = int(connection.execute("PRAGMA user_version").fetchall()[0][0])
    for number, step in enumerate(steps[start:], start + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            step(connection)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    return max(len(steps) - start, 0)
