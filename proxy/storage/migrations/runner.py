"""Brings a store to the format of this program, one durable step at a time."""

from sqlite3 import Connection

from proxy.storage.migrations import FORMAT, STEPS

#: Marks a database as a vault of this program in its file header: ``DMCL``.
APPLICATION_ID = 0x444D434C


def run_migrations(connection: Connection) -> int:
    """Run the steps that the store lacks and answer how many; each is one transaction, a failed one
    leaves no trace.
    """
    start = int(connection.execute("PRAGMA user_version").fetchall()[0][0])
    for number, step in enumerate(STEPS[start:], start + 1):
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
    return max(FORMAT - start, 0)
