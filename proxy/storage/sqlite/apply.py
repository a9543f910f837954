"""One group of commits as one transaction: all together where nothing stands against it, else one
by one.

Nearly every group has no conflict, so it is tried whole. When a precondition fails, the transaction
is rolled back and each commit runs again by itself behind a savepoint: only those that fail are
left out.
"""

import asyncio
from collections.abc import Iterable, Sequence
from sqlite3 import Connection, IntegrityError

from proxy.errors import VaultError
from proxy.storage.changes import Change, Conflict, Insert, StageRow
from proxy.storage.segment import PreconditionFailed
from proxy.storage.sqlite.batch import ChangeBatch
from proxy.storage.sqlite.file import is_of_the_store, is_taken, translated_error
from proxy.storage.sqlite.statements import Statements
from proxy.storage.sqlite.tallies import WriterConnection

#: One accepted commit: what is told of it, the statements of its table, its changes. A plain tuple,
#: made for each.
Work = tuple[asyncio.Future[None], Statements, Sequence[Change]]

#: What became of each commit of a group; ``None`` for the whole group means that all are durable.
Outcomes = list[Exception | None] | None


def begin_group(connection: WriterConnection, group: Sequence[Work]) -> None:
    """Run the statements of the group; nothing is stored before ``apply``.

    Whatever it raises: ``roll_back``.
    """
    connection.execute("BEGIN IMMEDIATE")
    _together(connection, group)
    connection.tallies.write(connection)


def apply_group(
    connection: WriterConnection, group: Sequence[Work], *, begun: bool = False
) -> Outcomes:
    """Make the group durable, save commits that fail by themselves.

    Raises when the store itself fails: then nothing is stored.

    ``begun``: its statements have run already, in the transaction that is open.
    """
    try:
        if not begun:
            begin_group(connection, group)
        connection.tallies.commit(connection)
        return None
    except Exception as error:  # whatever went wrong, the second run tells whose fault it was
        roll_back(connection)
        if is_of_the_store(error):
            raise
    return _one_by_one(connection, group)


def roll_back(connection: WriterConnection) -> None:
    """End a transaction that failed; SQLite may have ended it already."""
    connection.tallies.roll_back()
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _together(connection: Connection, group: Sequence[Work]) -> None:
    segments: dict[Statements, ChangeBatch] = {}
    adding = ChangeBatch.adding
    growth: dict[Statements, int] = {}
    for _, sql, changes in group:
        segment = segments.get(sql)
        if segment is None:
            segment = segments[sql] = ChangeBatch(sql)
        for change in changes:
            add = adding[type(change)]
            if not add(segment, change):
                growth[sql] = growth.get(sql, 0) + segment.run(connection)
                segment = segments[sql] = ChangeBatch(sql)
                add(segment, change)
    for sql, segment in segments.items():
        if rows := growth.get(sql, 0) + segment.run(connection):
            _grow(connection, sql, rows)


def _one_by_one(connection: WriterConnection, group: Sequence[Work]) -> Outcomes:
    connection.execute("BEGIN IMMEDIATE")
    try:
        outcomes = [_alone(connection, sql, changes) for _, sql, changes in group]
        connection.tallies.commit(connection)
    except BaseException:
        roll_back(connection)
        raise
    return outcomes


def _alone(
    connection: WriterConnection, sql: Statements, changes: Iterable[Change]
) -> Exception | None:
    connection.execute("SAVEPOINT one")
    moved = connection.tallies.moved()
    fault: Exception | None = None
    try:
        if rows := sum(_change(connection, sql, change) for change in changes):
            _grow(connection, sql, rows)
    except (Conflict, VaultError) as error:
        fault = error
    except (
        Exception
    ) as error:  # a driver's complaint about this one commit must not touch the others
        if is_of_the_store(error):
            raise
        fault = translated_error(error)
    if fault is not None:
        connection.execute("ROLLBACK TO one")
        connection.tallies.roll_back(moved)
    connection.execute("RELEASE one")
    return fault


def _change(connection: Connection, sql: Statements, change: Change) -> int:
    segment = ChangeBatch(sql, alone=True)
    segment.adding[type(change)](segment, change)
    try:
        return segment.run(connection)
    except PreconditionFailed as unmet:
        raise Conflict(change, _in_order(change, unmet.hashes)) from None
    except IntegrityError as error:
        if is_taken(error):
            raise Conflict(change) from None
        raise


def _in_order(change: Change, taken: frozenset[bytes]) -> tuple[bytes, ...]:
    unique = change.unique if isinstance(change, Insert | StageRow) else ()
    return tuple(token for token in dict.fromkeys(unique) if token in taken)


def _grow(connection: Connection, sql: Statements, rows: int) -> None:
    connection.execute(sql.grow, (rows, sql.layout.table))
