"""A segment of changes as SQLite runs it: each statement once, with all its parameters."""

from sqlite3 import Connection

from proxy.storage.changes import SealedPart
from proxy.storage.segment import PreconditionFailed, Segment, row_left_by
from proxy.storage.sqlite.statements import Statements

#: Token index entries from which on sorting them costs less than it spares.
_SORTED = 64


class ChangeBatch(Segment[Statements]):
    """One after the other within each statement."""

    __slots__ = ()

    def run(self, connection: Connection) -> int:
        """Run everything inside the caller's transaction; answers by how many rows the table grew.

        Raises ``Unmet`` or ``sqlite3.IntegrityError`` when a precondition does not hold; the
        transaction then holds a part of the segment and must be rolled back.
        """
        many, sql = connection.executemany, self._sql
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
        if self._cleared and sql.used.links:
            many(sql.aux.blank, self._cleared)
        if self._files or self._replies:
            self._write_beside(connection)
        if self._recasts:
            self._recast(connection)
        for change in self._reroots:
            sql.reroot(connection, change)
        return len(self._inserts) - (self._remove(connection) if self._removes else 0)

    def _write_new(self, connection: Connection) -> None:
        many, sql = connection.executemany, self._sql
        if self._inserts:
            sql.inserts.write(connection, self._inserts)
        if self._stages and many(sql.stage, self._stages).rowcount != len(self._stages):
            raise PreconditionFailed
        if self._shares:
            if len(self._shares) > _SORTED:
                # entries of one hash lie side by side: each page of the index is touched once
                self._shares.sort()
            sql.shares.write(connection, self._shares)
        if self._claims:
            self._claim(connection)

    def _claim(self, connection: Connection) -> None:
        for text, values in self._sql.taken.runs(
            [claim[0] for claim in self._claims] if self._alone else ()
        ):
            taken = connection.execute(text, values).fetchall()
            if taken:
                raise PreconditionFailed(frozenset(row[0] for row in taken))
        if connection.executemany(self._sql.claim, self._claims).rowcount != len(self._claims):
            raise PreconditionFailed

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
        connection.executemany(self._sql.aux.inscribe, self._inscribes)

    def _write_beside(self, connection: Connection) -> None:
        aux = self._sql.aux
        if self._files:
            self._sql.used.files = True
        for change in self._files:  # one may free the name that the next one takes
            if not aux.file(connection, change):
                raise PreconditionFailed
            if self._sql.used.links and (rid := row_left_by(change)) is not None:
                connection.execute(aux.blank_files, (rid,))
        if self._replies:
            replies = [(*change.reply, change.now) for change in self._replies]
            if connection.executemany(aux.remember, replies).rowcount != len(replies):
                raise PreconditionFailed
            if any(change.rids for change in self._replies):
                self._sql.used.links = True
            if self._sql.used.links:
                aux.show(connection, self._replies)

    def _recast(self, connection: Connection) -> None:
        for part in SealedPart:
            moves = [
                (*after, *key, *before) for of, key, before, after in self._recasts if of is part
            ]
            if moves:
                connection.executemany(self._sql.aux.recast[part], moves)

    def _remove(self, connection: Connection) -> int:
        aux, used = self._sql.aux, self._sql.used
        if used.past:
            connection.executemany(aux.forget, self._forgets)
        if used.files:
            connection.executemany(aux.doom_of_row, self._removes)
            connection.executemany(aux.remove_files, self._removes)
        if used.links:
            aux.remove_shown(connection, self._removes)
        connection.executemany(self._sql.remove_tokens, self._removes)
        connection.executemany(self._sql.remove_staged, self._removes)
        return connection.executemany(self._sql.remove, self._removes).rowcount
