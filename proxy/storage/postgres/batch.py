"""A segment of changes as PostgreSQL runs it: each statement once, its changes as arrays.

Other instances may write concurrently. A statement that checks and changes one row is safe alone; a
change that depends on a row of another table locks that row first, and rows are removed before
their parts.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from proxy.storage.changes import (
    Attach,
    Change,
    Detach,
    Insert,
    Replace,
    SealedPart,
    StageRow,
    UpdateFile,
)
from proxy.storage.postgres.statements import TableSql, arrays
from proxy.storage.segment import PreconditionFailed, Segment, amended, row_left_by

#: One accepted commit: the future that waits for it, the statements of its table, its changes.
QueuedCommit = tuple[asyncio.Future[None], TableSql, Sequence[Change]]

#: Seconds for which a locked row is remembered.
_REMEMBERED: Final = 60.0


class LockedRows:
    """Rows that sessions of others had locked when they were last written, and when that was.

    Of a commit that writes several, nobody knows which one it is: it is not remembered.
    """

    def __init__(self) -> None:
        self._at: dict[tuple[str, int], float] = {}

    def since(self, work: QueuedCommit) -> float | None:
        """Return when its row was locked; ``None``: it was not."""
        written = _row_of(work) if self._at else None
        return None if written is None else self._at.get(written)

    def note(self, group: Sequence[QueuedCommit], now: float) -> None:
        """Remember the row of a commit that is alone in its group."""
        written = _row_of(group[0]) if len(group) == 1 else None
        if written is not None:
            self._at = {one: at for one, at in self._at.items() if at > now - _REMEMBERED}
            self._at[written] = now

    def forget(self, work: QueuedCommit) -> None:
        """It is tried again."""
        if (written := _row_of(work)) is not None:
            self._at.pop(written, None)


def _row_of(work: QueuedCommit) -> tuple[str, int] | None:
    """The table and the row that a commit writes, where it is one and was there before."""
    _, sql, changes = work
    rids = {rid for change in changes if (rid := _rid(change))}
    return (sql.layout.table, rids.pop()) if len(rids) == 1 else None


def _rid(change: Change) -> int:
    if isinstance(change, Replace):
        return change.row.rid
    if isinstance(change, StageRow):
        return change.staged.rid
    return 0 if isinstance(change, Insert) else getattr(change, "rid", 0)


class PostgresSegment(Segment[TableSql]):
    """All at once within each statement."""

    __slots__ = ()
    once: ClassVar[bool] = True

    async def run(self, connection: Any) -> int:
        """Run everything inside the caller's transaction; answers by how many rows the table grew.

        Raises ``PreconditionFailed`` or the driver's error when a precondition does not hold; the
        transaction has to be rolled back then.
        """
        sql = self._sql
        await self._write_new(connection)
        for text, moves in ((sql.release, self._releases), (sql.accept, self._accepts)):
            await _many(connection, text, moves)
        await _each(connection, sql.bind, self._binds)
        await _many(connection, sql.inscribe, self._inscribes)
        await _each(connection, sql.replace, self._replaces)
        for text, moves in (
            (sql.doubt, self._doubts),
            (sql.unstage, self._unstages),
            (sql.drop_token, self._drops),
            (sql.add_existing, self._adds),
            (sql.blank, self._cleared),
        ):
            await _many(connection, text, moves)
        for change in self._files:  # one may free the name that the next one takes
            await self._write_file(connection, change)
        if self._replies:
            await _each(connection, sql.remember, self.replies())
            await _many(connection, sql.link, self.links())
        for part in SealedPart if self._recasts else ():
            await _many(connection, sql.recast[part], self.recasts(part))
        for text, moves in self.rerooted():
            await _many(connection, text, moves)
        return len(self._inserts) - (await self._remove(connection) if self._removes else 0)

    async def _write_new(self, connection: Any) -> None:
        sql = self._sql
        if self._inserts:
            text, values = sql.insert(self._inserts)
            await connection.execute(text, *values)
        await _each(connection, sql.stage, self._stages)
        await _many(connection, sql.share, self._shares)
        if self._claims and self._alone:
            hashes = [token for token, _ in self._claims]
            if taken := await connection.fetch(sql.taken, hashes):
                raise PreconditionFailed(frozenset(row[0] for row in taken))
        await _each(connection, sql.claim, self._claims)

    async def _write_file(self, connection: Any, change: Attach | UpdateFile | Detach) -> None:
        sql = self._sql
        if isinstance(change, Attach):
            await _each(connection, sql.attach, [change.file])
        elif isinstance(change, Detach):
            if not await connection.fetchval(sql.detach, change.file_id, change.rid):
                raise PreconditionFailed
        else:
            values = amended(change)
            await connection.execute(sql.doom_other, *values[6:8], change.file.object)
            await _each(connection, sql.amend, [values])
        if (rid := row_left_by(change)) is not None:
            await connection.execute(sql.blank_files, rid)

    async def _remove(self, connection: Any) -> int:
        rids = [rid for (rid,) in self._removes]
        gone = [row[0] for row in await connection.fetch(self._sql.remove, rids)]
        if gone:
            forgets = {rid for (rid,) in self._forgets}
            past = [rid for rid in gone if rid in forgets]
            await connection.execute(self._sql.remove_beside, gone, past)
        return len(gone)


async def _many(connection: Any, text: str, changes: Sequence[tuple[Any, ...]]) -> None:
    if changes:
        await connection.execute(text, *arrays(changes))


async def _each(connection: Any, text: str, changes: Sequence[tuple[Any, ...]]) -> None:
    """``PreconditionFailed`` unless the statement changed one row for each of its changes."""
    if changes and _count(await connection.execute(text, *arrays(changes))) != len(changes):
        raise PreconditionFailed


def _count(status: str) -> int:
    """The rows that a command says it has changed: the last word of ``INSERT 0 5``."""
    return int(status.rpartition(" ")[2])
