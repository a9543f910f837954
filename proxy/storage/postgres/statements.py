"""The statements on the tables of one schema as PostgreSQL has them, and segments that run them.

Changes travel as arrays, one for each parameter, so that a statement serves any number of them.
Other instances may write concurrently. A statement that checks and changes one row is safe alone; a
change that depends on a row of another table locks that row first, and rows are removed before
their parts.
"""

import asyncio
import itertools
import re
from collections.abc import Sequence
from functools import lru_cache
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
from proxy.storage.postgres.columns import SQL_TYPES
from proxy.storage.postgres.tables import COLUMN_TYPES, EncodedCells
from proxy.storage.rows import TOKEN_RIDS, ColumnType, TableLayout
from proxy.storage.segment import PreconditionFailed, Segment, amended, row_left_by
from proxy.storage.statements import FIXED, REPLY, TableStatements

# ruff: noqa: S608 - names have passed query.check_names; every value is a parameter


DOOMED_OBJECTS = "SELECT object FROM doomed ORDER BY id LIMIT $1"
FORGET_DOOMED = "DELETE FROM doomed WHERE object = ANY($1::text[])"


def arrays(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """The parameters of a statement over many rows: an array for each column."""
    return [list(column) for column in zip(*rows, strict=True)]


@lru_cache(maxsize=1024)
def numbered(text: str) -> str:
    """The statement with the marks of its values numbered, as the server takes them."""
    numbers = itertools.count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", text)


class TableSql(TableStatements[str]):
    """The statements on one layout.

    ``dropped`` are columns of the table (``x_city``) that the layout does not name.
    """

    same = "IS NOT DISTINCT FROM"

    def __init__(self, layout: TableLayout, dropped: Sequence[str] = ()) -> None:
        table = layout.table
        self.types = {column.name: column.type for column in layout.columns}
        texts = [f"y_{name}" for name, type_ in self.types.items() if type_ is ColumnType.TEXT]
        self._kinds = {
            **COLUMN_TYPES,
            **{f"x_{name}": SQL_TYPES[it] for name, it in self.types.items()},
        }
        self._kinds |= {**dict.fromkeys(texts, "bytea"), "wide": "boolean"}
        self.counted = f"SELECT coalesce(sum(rows), 0)::bigint FROM counts WHERE name = '{table}'"
        super().__init__(layout, EncodedCells(layout.columns), [*texts, "wide"] if texts else ())
        self._columns = [*FIXED, *self._further]
        self._used = frozenset(range(len(FIXED)))
        self.replace = self.replacing(self._columns[4:], dropped, "")
        self._indexing(table)
        self._filing(table)
        self._replying(table)
        self._removing(table)

    def change(
        self, letter: str, sets: str, where: str, names: Sequence[str], *, there: bool = False
    ) -> str:
        name = f"{letter}_{self.layout.table} AS {letter}"
        head = f"UPDATE {name} SET {sets} FROM" if sets else f"DELETE FROM {name} USING"
        source = self._rows(names)
        if there:  # the lock on the row keeps another instance from removing it meanwhile
            marks = f"${names.index('rid') + 1}::bigint[]"
            locked = f"SELECT rid FROM r_{self.layout.table} WHERE rid = ANY({marks}) FOR KEY SHARE"
            source, where = f"{source}, ({locked}) AS h", f"{where} AND h.rid = n.rid"
        return re.sub(r":(\w+)", r"n.\1", f"{head} <source> WHERE {where}").replace(
            "<source>", source
        )

    def put(
        self, letter: str, names: Sequence[str], *, there: bool = False, unique: str = ""
    ) -> str:
        table = self.layout.table
        row = f" JOIN r_{table} AS r ON r.rid = n.rid FOR KEY SHARE OF r" if there else ""
        ignored = f" ON CONFLICT {unique} DO NOTHING" if unique else ""
        head = f"INSERT INTO {letter}_{table} ({', '.join(names)})"
        return f"{head} SELECT n.* FROM {self._rows(names)}{row}{ignored}"

    def question(self, text: str) -> str:
        return numbered(text)

    def listed(self, head: str, column: str, tail: str = "") -> str:
        kind = self._kinds.get(column.rpartition(".")[2], "bigint")
        return f"{head} {column} = ANY($1::{kind}[]) {tail}"

    def _rows(self, names: Sequence[str]) -> str:
        """The parameters as a table, from an array of each."""
        kinds = [self._kinds.get(name.removeprefix("was_"), "bigint") for name in names]
        marks = ", ".join([f"${number}::{kind}[]" for number, kind in enumerate(kinds, 1)])
        return f"unnest({marks}) AS n({', '.join(names)})"

    def insert(self, rows: Sequence[tuple[Any, ...]]) -> tuple[str, list[list[Any]]]:
        """The statement that inserts these rows and its parameters; of the columns that some row
        has had a value in, so that few statements get prepared.
        """
        columns = arrays(rows)
        self._used |= {at for at, column in enumerate(columns) if column.count(None) < len(column)}
        used = sorted(self._used)
        return self.put("r", [self._columns[at] for at in used]), [columns[at] for at in used]

    def _indexing(self, table: str) -> None:
        tokens = f"t_{table}"
        pairs = self._rows(("hash", "rid"))
        self.share = self.put("t", ("hash", "rid"), unique="(hash, rid)")
        # Two instances may claim a hash in the same moment: the index of claims lets one through.
        self.claim = (
            f"INSERT INTO {tokens} (hash, rid, claimed) SELECT n.hash, n.rid, true FROM {pairs}"
            f" WHERE NOT EXISTS (SELECT 1 FROM {tokens} AS t WHERE t.hash = n.hash)"
        )
        self.taken = f"SELECT DISTINCT hash FROM {tokens} WHERE hash = ANY($1::bytea[])"
        self.by_tokens = (
            "SELECT n.hash, o.rid FROM unnest($1::bytea[]) AS n(hash) CROSS JOIN LATERAL"
            f" (SELECT rid FROM {tokens} AS t WHERE t.hash = n.hash ORDER BY rid"
            f" LIMIT {TOKEN_RIDS}) AS o"
        )
        self.reroot_tokens = (
            "WITH n AS (SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bigint[])"
            f" AS n(new, old, rid)), gone AS (DELETE FROM {tokens} AS t USING n"
            " WHERE t.hash = n.old AND t.rid = n.rid RETURNING n.new, n.rid)"
            f" INSERT INTO {tokens} (hash, rid) SELECT new, rid FROM gone ON CONFLICT DO NOTHING"
        )
        self.grow = (
            "INSERT INTO counts (name, writer, rows) VALUES ('{table}', {writer}, {rows})"
            " ON CONFLICT (name, writer) DO UPDATE SET rows = counts.rows + excluded.rows"
        )

    def _filing(self, table: str) -> None:
        past, files = f"h_{table}", f"f_{table}"
        doom = "INSERT INTO doomed (object) SELECT object FROM gone ON CONFLICT DO NOTHING"
        self.doom_other = (
            f"WITH gone AS (SELECT object FROM {files} WHERE file_id = $1 AND rid = $2"
            f" AND object <> $3 FOR UPDATE) {doom}"
        )
        self.detach = (
            f"WITH gone AS (DELETE FROM {files} WHERE file_id = $1 AND rid = $2"
            f" RETURNING object), doom AS ({doom}) SELECT count(*) FROM gone"
        )
        self.prune_past = (
            f"WITH old AS (SELECT rid, version FROM {past} WHERE at < $1"
            f" ORDER BY at, rid, version LIMIT $2) DELETE FROM {past} AS h USING old"
            " WHERE h.rid = old.rid AND h.version = old.version"
        )

    def _replying(self, table: str) -> None:
        rows, replies, links = f"r_{table}", f"i_{table}", f"l_{table}"
        self.remember = (
            f"WITH links AS (DELETE FROM {links} WHERE reply = ANY($1::bytea[]))"
            f" INSERT INTO {replies} AS i ({', '.join(REPLY)})"
            " SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bytea[])"
            " ON CONFLICT (key) DO UPDATE SET expires_at = excluded.expires_at,"
            " digest = excluded.digest, sealed = excluded.sealed"
            " WHERE i.expires_at <= (SELECT max(n.now) FROM"
            " unnest($1::bytea[], $5::bigint[]) AS n(key, now) WHERE n.key = excluded.key)"
        )
        # A row may have gone between the write and the answer that shows it; the lock keeps another
        # instance from removing it in this moment.
        self.link = (
            f"WITH here AS (SELECT rid FROM {rows} WHERE rid = ANY($1::bigint[])"
            f" ORDER BY rid FOR KEY SHARE), links AS (INSERT INTO {links} (rid, reply, files)"
            " SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::boolean[]))"
            f" UPDATE {replies} SET sealed = '' WHERE key IN (SELECT n.reply FROM"
            " unnest($1::bigint[], $2::bytea[]) AS n(rid, reply)"
            " WHERE n.rid >= 0 AND NOT EXISTS (SELECT 1 FROM here WHERE here.rid = n.rid))"
        )
        self.blank = (
            f"UPDATE {replies} SET sealed = '' WHERE key IN (SELECT l.reply FROM {rows} AS r"
            f" JOIN {links} AS l ON l.rid = r.rid OR l.rid = -1 WHERE r.rid = ANY($1::bigint[]))"
        )
        self.blank_files = (
            f"UPDATE {replies} SET sealed = '' WHERE key IN"
            f" (SELECT reply FROM {links} WHERE files AND (rid = $1 OR rid = -1))"
        )
        self.prune_replies = (
            f"WITH old AS (SELECT key FROM {replies} WHERE expires_at <= $1"
            f" ORDER BY expires_at, key LIMIT $2), links AS (DELETE FROM {links} AS l"
            f" USING old WHERE l.reply = old.key) DELETE FROM {replies} AS i USING old"
            " WHERE i.key = old.key"
        )

    def _removing(self, table: str) -> None:
        self.remove = f"DELETE FROM r_{table} WHERE rid = ANY($1::bigint[]) RETURNING rid"
        of_rows = "WHERE rid = ANY($1::bigint[])"
        of_reply = "(rid = ANY($1::bigint[]) OR rid = -1)"  # of any row: ANY_ROW
        #: Behind ``remove``, for the rows that it answers, and for those whose past goes too.
        self.remove_beside = (
            f"WITH tokens AS (DELETE FROM t_{table} {of_rows}),"
            f" staged AS (DELETE FROM s_{table} {of_rows}),"
            f" past AS (DELETE FROM h_{table} WHERE rid = ANY($2::bigint[])),"
            f" replies AS (UPDATE i_{table} SET sealed = '' WHERE key IN"
            f" (SELECT reply FROM l_{table} WHERE {of_reply})),"
            f" links AS (DELETE FROM l_{table} WHERE {of_reply}),"
            f" gone AS (DELETE FROM f_{table} {of_rows} RETURNING object, created_at, file_id)"
            " INSERT INTO doomed (object) SELECT object FROM gone ORDER BY created_at, file_id"
            " ON CONFLICT DO NOTHING"
        )


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
    if changes:
        status = await connection.execute(text, *arrays(changes))
        if int(status.rpartition(" ")[2]) != len(changes):  # the last word of ``INSERT 0 5``
            raise PreconditionFailed
