"""A group of commits as one transaction; after a conflict, one by one.

Nearly every group has no conflict, so it is tried whole. When a precondition fails, the transaction
is rolled back and each commit runs again alone in a savepoint: only failing ones are left out.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from queue import Empty, SimpleQueue
from sqlite3 import Connection, IntegrityError
from typing import Any, Final, NamedTuple

from proxy.errors import VaultError
from proxy.storage.changes import (
    AddVersion,
    Attach,
    Change,
    CommitWaiter,
    Conflict,
    Detach,
    Insert,
    Reindex,
    Replace,
    SealedPart,
    StageRow,
    UpdateFile,
)
from proxy.storage.segment import PreconditionFailed, Segment, amended, row_left_by
from proxy.storage.sqlite.file import is_of_the_store, is_taken, translated_error
from proxy.storage.sqlite.statements import Statements
from proxy.storage.sqlite.tallies import WriterConnection

#: Token index entries from which on sorting them costs less than it spares.
_SORTED = 64

_hash_of = itemgetter(0)


class ChangeBatch(Segment[Statements]):
    """Changes run one after the other within each statement."""

    __slots__ = ()

    def run(self, connection: WriterConnection) -> int:
        """Run everything inside the caller's transaction; answers by how many rows the table grew.

        Raises ``PreconditionFailed`` or ``sqlite3.IntegrityError`` when a precondition does not
        hold; the transaction then holds a part of the segment and must be rolled back.
        """
        many, sql = connection.executemany, self._sql
        if self._inserts or self._stages:
            self._write_new(connection)
        if self._releases and self._holds_released(connection):
            many(sql.release, self._releases)
        if self._accepts:
            many(sql.accept, self._accepts)
        if self._inscribes:
            self._write_past(connection)
        for text, rows in (
            (sql.bind, self._binds),
            (sql.replace_all if self._alone else sql.replace, self._replaces),
        ):
            if rows and many(text, rows).rowcount != len(rows):
                raise PreconditionFailed
        for text, moves in (
            (sql.doubt, self._doubts),
            (sql.unstage, self._unstages),
            (sql.drop_token, self._drops),
            (sql.add_existing, self._adds),
        ):
            if moves:
                many(text, moves)
        if self._cleared or self._files or self._replies:
            self._write_beside(connection)
        if self._recasts or self._reroots:
            self._recast(connection)
        return len(self._inserts) - (self._remove(connection) if self._removes else 0)

    def _write_new(self, connection: WriterConnection) -> None:
        many, sql = connection.executemany, self._sql
        if self._inserts:
            sql.write_rows(connection, self._inserts)
            connection.tallies.add(sql.layout.table, self._inserts)
        if self._stages and many(sql.stage, self._stages).rowcount != len(self._stages):
            raise PreconditionFailed
        if self._shares:
            if len(self._shares) > _SORTED:
                # entries of one hash lie side by side: each page of the index is touched once
                self._shares.sort()
            sql.shares.write(connection, self._shares)
        if self._claims:  # one question for all of them
            hashes = [*map(_hash_of, self._claims)]
            if len({*hashes}) < len(hashes):
                raise PreconditionFailed
            one = len(hashes) == 1
            for text, values in ((sql.taken.single, hashes),) if one else sql.taken.runs(hashes):
                taken = connection.execute(text, values).fetchall()
                if taken:
                    raise PreconditionFailed(frozenset(row[0] for row in taken))
            sql.claims.write(connection, self._claims)

    def _holds_released(self, connection: Connection) -> bool:
        """Whether any row holds a key that is to be released.

        Hardly ever, so one question spares most statements.
        """
        keys = [release[1] for release in self._releases]
        return any(
            connection.execute(text, values).fetchall()
            for text, values in self._sql.holders.runs(keys)
        )

    def _write_past(self, connection: Connection) -> None:
        self._sql.used.past = True
        connection.executemany(self._sql.inscribe, self._inscribes)

    def _write_beside(self, connection: Connection) -> None:
        sql, many = self._sql, connection.executemany
        if self._cleared and sql.used.links:
            many(sql.blank, self._cleared)
        if self._files:
            sql.used.files = True
        for change in self._files:  # one may free the name that the next one takes
            if not run_file_change(connection, sql, change):
                raise PreconditionFailed
            if sql.used.links and (rid := row_left_by(change)) is not None:
                connection.execute(sql.blank_files, (rid,))
        if self._replies:
            if many(sql.remember, self.replies()).rowcount != len(self._replies):
                raise PreconditionFailed
            links = self.links()
            sql.used.links = sql.used.links or bool(links)
            if sql.used.links:  # of rows that are gone by now they show nothing
                many(sql.unlink_reply, [(change.reply.key,) for change in self._replies])
                many(sql.link, links)
                many(sql.blank_late, [link[:2] for link in links])

    def _recast(self, connection: Connection) -> None:
        for part in SealedPart:
            if moves := self.recasts(part):
                connection.executemany(self._sql.recast[part], moves)
        for text, rows in self.rerooted():
            connection.executemany(text, rows)

    def _remove(self, connection: Connection) -> int:
        sql, many, rids = self._sql, connection.executemany, self._removes
        if sql.used.past:
            many(sql.forget, self._forgets)
        if sql.used.files:
            many(sql.doom_of_row, rids)
            many(sql.remove_files, rids)
        if sql.used.links:
            many(sql.blank, rids)
            many(sql.unlink, rids)
        many(sql.remove_tokens, rids)
        many(sql.remove_staged, rids)
        return many(sql.remove, rids).rowcount


def run_file_change(
    connection: Connection, sql: Statements, change: Attach | UpdateFile | Detach
) -> bool:
    """Make one change to files; ``False`` when its precondition does not hold."""
    values: tuple[Any, ...]
    if isinstance(change, Attach):
        text, values = sql.attach, change.file
    elif isinstance(change, Detach):
        text, values = sql.detach, (change.file_id, change.rid)
        connection.execute(sql.doom_one, values)
    else:
        text, values = sql.amend, amended(change)
        connection.execute(sql.doom_other, (*values[6:8], change.file.object))
    return connection.execute(text, values).rowcount == 1


#: An accepted commit: its waiter, the statements of its table, its changes. A tuple, for speed.
Work = tuple[CommitWaiter, Statements, Sequence[Change]]

#: What became of each commit of a group; ``None`` for the whole group means that all are durable.
Outcomes = list[Exception | None] | None


def begin_group(connection: WriterConnection, group: Sequence[Work]) -> None:
    """Run the statements of the group; nothing is stored before ``apply``.

    Whatever it raises: ``roll_back``.
    """
    connection.execute("BEGIN IMMEDIATE")
    segments: dict[Statements, ChangeBatch] = {}
    adding = ChangeBatch.adding
    growth: dict[str, int] = {}  #: by table
    for _, sql, changes in group:
        segment = segments.get(sql)
        if segment is None:
            segment = segments[sql] = ChangeBatch(sql)
        for change in changes:
            add = adding[type(change)]
            if not add(segment, change):
                table = sql.layout.table
                growth[table] = growth.get(table, 0) + segment.run(connection)
                segment = segments[sql] = ChangeBatch(sql)
                add(segment, change)
    for sql, segment in segments.items():
        table = sql.layout.table
        growth[table] = growth.get(table, 0) + segment.run(connection)
    connection.tallies.write(connection, growth)


def apply_group(
    connection: WriterConnection, group: Sequence[Work], *, begun: bool = False
) -> Outcomes:
    """Make the group durable, except for failing commits.

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


def in_transaction(connection: WriterConnection, run: Callable[[Connection], Any]) -> Any:
    """Run other work in a transaction of its own, and return its answer."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        answer = run(connection)
        connection.tallies.commit(connection)
    except BaseException:
        roll_back(connection)
        raise
    return answer


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
            connection.execute(sql.grow, (rows, sql.layout.table))
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


def _change(connection: WriterConnection, sql: Statements, change: Change) -> int:
    segment = ChangeBatch(sql, alone=True)
    segment.adding[type(change)](segment, change)
    try:
        return segment.run(connection)
    except PreconditionFailed as unmet:
        raise unmet.conflict(change) from None
    except IntegrityError as error:
        if is_taken(error):
            raise Conflict(change) from None
        raise


# Large groups of commits in a line before the writer's thread.
#
# While the thread writes one batch, the loop seals the next ones: on two cores both are at work.
# That needs two things. The thread must not wait for a turn of the loop between two groups, so
# ready groups stand in its queue, and all of them share one flush. And it must get the
# interpreter's lock soon: by default a busy loop releases it after five milliseconds, and a group
# needs it a dozen times.

#: Changes of a commit from which on it is large: its statements take the thread longer than asking
#: for it.
LARGE_COMMIT: Final = 50
#: Entries of the token index, and bytes of a body, that take as long as one more change.
_ENTRIES: Final = 8
_BODY: Final = 16 * 1024


class LargeCommits(NamedTuple):
    """Commits whose statements the thread has to run."""

    group: list[Work]
    since: float  #: when the first of them was accepted


#: Next task of the thread; ``None``: end.
Task = Callable[[], None] | LargeCommits | None


def is_large_commit(changes: Sequence[Change]) -> bool:
    """Whether a commit is large: by its changes, and by what each of them brings with it."""
    weight = len(changes)
    if weight >= LARGE_COMMIT:
        return True
    for change in changes:  # most are a Release and a Bind, or one of the first two
        if isinstance(change, Insert):
            weight += len(change.row.body) // _BODY
            weight += (len(change.hashes) + len(change.unique)) // _ENTRIES
        elif isinstance(change, StageRow):
            weight += len(change.staged.body) // _BODY
            weight += (len(change.hashes) + len(change.unique)) // _ENTRIES
        elif isinstance(change, Replace):
            weight += len(change.row.body) // _BODY
        elif isinstance(change, AddVersion):
            weight += len(change.past.body) // _BODY
        elif isinstance(change, Reindex):
            weight += (len(change.add) + len(change.drop)) // _ENTRIES
    return weight >= LARGE_COMMIT


def joined_commits(
    first: LargeCommits, tasks: "SimpleQueue[Task]", most: int
) -> tuple[LargeCommits, list[Task]]:
    """Join the commits queued right behind ``first``, up to ``most``.

    Also returns the other task that was taken from the queue, if any.
    """
    group = list(first.group)
    while len(group) < most:
        try:
            task = tasks.get_nowait()
        except Empty:
            break
        if not isinstance(task, LargeCommits):
            return LargeCommits(group, first.since), [task]
        group += task.group
    return LargeCommits(group, first.since), []
