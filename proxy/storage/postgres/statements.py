"""Every statement on the tables of one schema, and what makes these tables.

A schema has the tables that the embedded engine has, under the same names: ``r_<table>`` the rows,
``s_`` the staged changes, ``t_`` the token index, ``h_`` past versions, ``f_`` files, ``i_``
replies and ``l_`` the rows that they show. Changes travel as arrays, one for each column, so that a
statement serves any number of them.
"""

from collections.abc import Sequence
from typing import Any

from proxy.storage.postgres.columns import SQL_TYPES
from proxy.storage.postgres.tables import FIXED, EncodedCells
from proxy.storage.query import ValidatedQuery
from proxy.storage.rows import (
    ERASED_AT,
    TOKEN_RIDS,
    ColumnType,
    ColumnValue,
    Row,
    RowState,
    TableLayout,
)

# ruff: noqa: S608 - names have passed query.check_names; every value is a parameter

#: By whether the column is set: a foreign program may have written any number there.
_STATES = (RowState.LIVE, RowState.PENDING)
_WIDTH = len(FIXED)
_STAGED = "sid, rid, kind, at, doubt, answered, body"
_PAST = "rid, version, key, at, salt, body"
_FILE = "file_id, rid, name, object, size, created_at, updated_at, sealed"
_REPLY = "key, expires_at, digest, sealed"

DOOMED_OBJECTS = "SELECT object FROM doomed ORDER BY id LIMIT $1"
FORGET_DOOMED = "DELETE FROM doomed WHERE object = ANY($1::text[])"


def arrays(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """The parameters of a statement over many rows: an array for each column."""
    return [list(column) for column in zip(*rows, strict=True)]


class TableSql:
    """The statements on one layout.

    ``dropped`` are columns of the table (``x_city``) that the layout does not name.
    """

    def __init__(self, layout: TableLayout, dropped: Sequence[str] = ()) -> None:
        self.layout = layout
        self.cells = EncodedCells(layout.columns)
        self.validated = ValidatedQuery(layout)
        self.types = {column.name: column.type for column in layout.columns}
        texts = [column for column in layout.columns if column.type is ColumnType.TEXT]
        self._columns = [
            *FIXED,
            *((f"x_{column.name}", SQL_TYPES[column.type]) for column in layout.columns),
            *((f"y_{column.name}", "bytea") for column in texts),
            *((("wide", "boolean"),) if texts else ()),
        ]
        self._used = frozenset(range(_WIDTH))
        self._writing(layout.table, dropped)
        self._staging(layout.table)
        self._filing(layout.table)
        self._replying(layout.table)
        self._reading(layout)
        self._rerooting(layout)

    def insert(self, rows: Sequence[tuple[Any, ...]]) -> tuple[str, list[list[Any]]]:
        """The statement that inserts these rows and its parameters; of the columns that some row
        has had a value in, so that few statements get prepared.
        """
        columns = arrays(rows)
        self._used |= {at for at, column in enumerate(columns) if column.count(None) < len(column)}
        used = sorted(self._used)
        names = ", ".join([self._columns[at][0] for at in used])
        marks = ", ".join([f"${n}::{self._columns[at][1]}[]" for n, at in enumerate(used, 1)])
        text = f"INSERT INTO r_{self.layout.table} ({names}) SELECT * FROM unnest({marks})"
        return text, [columns[at] for at in used]

    def _writing(self, table: str, dropped: Sequence[str]) -> None:
        rows, tokens = f"r_{table}", f"t_{table}"
        self.release = (
            f"UPDATE {rows} AS r SET key = NULL, key_sealed = n.sealed, state = 1,"
            " updated_at = n.at FROM"
            " unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bytea[])"
            " AS n(at, key, rid, holder, sealed) WHERE r.key = n.key AND r.rid <> n.rid"
            " AND r.rid = coalesce(n.holder, r.rid)"
        )
        self.accept = (
            f"UPDATE {rows} AS r SET state = 0, updated_at = n.at,"
            " key_sealed = coalesce(n.sealed, r.key_sealed)"
            " FROM unnest($1::bigint[], $2::bytea[], $3::bigint[]) AS n(at, sealed, rid)"
            " WHERE r.rid = n.rid AND r.state = 1"
        )
        self.bind = (
            f"UPDATE {rows} AS r SET key = n.key, key_sealed = n.sealed, state = 0,"
            " updated_at = n.at FROM"
            " unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[])"
            " AS n(key, sealed, at, rid)"
            " WHERE r.rid = n.rid AND (r.key IS NULL OR r.key = n.key)"
        )
        moved = [*self._columns[4:], ("rid", "bigint"), ("expected", "bigint")]
        names = ", ".join([name for name, _ in moved])
        marks = ", ".join([f"${n}::{kind}[]" for n, (_, kind) in enumerate(moved, 1)])
        sets = ", ".join(
            [f"{name} = n.{name}" for name, _ in moved[:-2]]
            + [f"{name} = NULL" for name in dropped]
        )
        self.replace = (
            f"UPDATE {rows} AS r SET {sets} FROM unnest({marks}) AS n({names})"
            " WHERE r.rid = n.rid AND r.version = n.expected"
        )
        pairs = "unnest($1::bytea[], $2::bigint[]) AS n(hash, rid)"
        self.share = (
            f"INSERT INTO {tokens} (hash, rid) SELECT n.hash, n.rid FROM {pairs}"
            " ON CONFLICT (hash, rid) DO NOTHING"
        )
        # Two instances may claim a hash in the same moment: the index of claims lets one through.
        self.claim = (
            f"INSERT INTO {tokens} (hash, rid, claimed) SELECT n.hash, n.rid, true FROM {pairs}"
            f" WHERE NOT EXISTS (SELECT 1 FROM {tokens} AS t WHERE t.hash = n.hash)"
        )
        self.taken = f"SELECT DISTINCT hash FROM {tokens} WHERE hash = ANY($1::bytea[])"
        self.drop_tokens = (
            f"DELETE FROM {tokens} AS t USING {pairs} WHERE t.hash = n.hash AND t.rid = n.rid"
        )
        self.add_existing = (
            f"INSERT INTO {tokens} (hash, rid) SELECT n.hash, n.rid FROM {pairs}"
            f" JOIN {rows} AS r ON r.rid = n.rid FOR KEY SHARE OF r"
            " ON CONFLICT (hash, rid) DO NOTHING"
        )
        self.grow = (
            "INSERT INTO counts (name, writer, rows) VALUES ('{table}', {writer}, {rows})"
            " ON CONFLICT (name, writer) DO UPDATE SET rows = counts.rows + excluded.rows"
        )

    def _staging(self, table: str) -> None:
        rows, staged = f"r_{table}", f"s_{table}"
        marks = (
            "$1::bigint[], $2::bigint[], $3::smallint[], $4::bigint[], $5::bigint[],"
            " $6::smallint[], $7::bytea[]"
        )
        # The lock on the row keeps another instance from removing it meanwhile.
        self.stage = (
            f"INSERT INTO {staged} ({_STAGED}) SELECT n.* FROM unnest({marks}) AS n({_STAGED})"
            f" JOIN {rows} AS r ON r.rid = n.rid FOR KEY SHARE OF r"
        )
        self.doubt = (
            f"UPDATE {staged} AS s SET doubt = n.at, answered = n.answered FROM"
            " unnest($1::bigint[], $2::smallint[], $3::bigint[], $4::bigint[])"
            " AS n(at, answered, sid, rid) WHERE s.sid = n.sid AND s.rid = n.rid"
        )
        self.unstage = (
            f"DELETE FROM {staged} AS s USING unnest($1::bigint[], $2::bigint[]) AS n(sid, rid)"
            " WHERE s.sid = n.sid AND s.rid = n.rid"
        )

    def _filing(self, table: str) -> None:
        rows, past, files = f"r_{table}", f"h_{table}", f"f_{table}"
        self.inscribe = (
            f"INSERT INTO {past} ({_PAST}) SELECT * FROM unnest($1::bigint[], $2::bigint[],"
            " $3::bytea[], $4::bigint[], $5::bytea[], $6::bytea[])"
        )
        self.attach = (
            f"INSERT INTO {files} ({_FILE}) SELECT $1::bytea, r.rid, $3::bytea, $4::text,"
            " $5::bigint, $6::bigint, $7::bigint, $8::bytea"
            f" FROM {rows} AS r WHERE r.rid = $2 FOR KEY SHARE OF r"
        )
        doom = "INSERT INTO doomed (object) SELECT object FROM gone ON CONFLICT DO NOTHING"
        self.doom_other = (
            f"WITH gone AS (SELECT object FROM {files} WHERE file_id = $1 AND rid = $2"
            f" AND object <> $3 FOR UPDATE) {doom}"
        )
        self.amend = (
            f"UPDATE {files} AS f SET rid = r.rid, name = $2, object = $3, size = $4,"
            " updated_at = $5, sealed = $6 FROM"
            f" (SELECT rid FROM {rows} WHERE rid = $1 FOR KEY SHARE) AS r"
            " WHERE f.file_id = $7 AND f.rid = $8 AND f.object = coalesce($9::text, f.object)"
        )
        self.detach = (
            f"WITH gone AS (DELETE FROM {files} WHERE file_id = $1 AND rid = $2"
            f" RETURNING object), doom AS ({doom}) SELECT count(*) FROM gone"
        )
        self.remove = f"DELETE FROM {rows} WHERE rid = ANY($1::bigint[]) RETURNING rid"
        of_rows = "WHERE rid = ANY($1::bigint[])"
        of_reply = "(rid = ANY($1::bigint[]) OR rid = -1)"  # of any row: ANY_ROW
        #: Behind ``remove``, for the rows that it answers, and for those whose past goes too.
        self.remove_beside = (
            f"WITH tokens AS (DELETE FROM t_{table} {of_rows}),"
            f" staged AS (DELETE FROM s_{table} {of_rows}),"
            f" past AS (DELETE FROM {past} WHERE rid = ANY($2::bigint[])),"
            f" replies AS (UPDATE i_{table} SET sealed = '' WHERE key IN"
            f" (SELECT reply FROM l_{table} WHERE {of_reply})),"
            f" links AS (DELETE FROM l_{table} WHERE {of_reply}),"
            f" gone AS (DELETE FROM {files} {of_rows} RETURNING object, created_at, file_id)"
            " INSERT INTO doomed (object) SELECT object FROM gone ORDER BY created_at, file_id"
            " ON CONFLICT DO NOTHING"
        )
        self._recasting(table)

    def _recasting(self, table: str) -> None:
        rows, past, files = f"r_{table}", f"h_{table}", f"f_{table}"
        #: By ``SealedPart``: the new bytes, the place, the bytes that have to be there.
        self.recast = (
            (
                f"UPDATE {rows} AS r SET body = n.body, key_sealed = n.sealed FROM"
                " unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bytea[], $5::bytea[])"
                " AS n(body, sealed, rid, was, had) WHERE r.rid = n.rid AND r.body = n.was"
                " AND r.key_sealed IS NOT DISTINCT FROM n.had"
            ),
            (
                f"UPDATE s_{table} AS s SET body = n.body FROM"
                " unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bytea[])"
                " AS n(body, sid, rid, was)"
                " WHERE s.sid = n.sid AND s.rid = n.rid AND s.body = n.was"
            ),
            (
                f"UPDATE {past} AS h SET body = n.body FROM unnest($1::bytea[], $2::bigint[],"
                " $3::bigint[], $4::bytea[]) AS n(body, rid, version, was)"
                " WHERE h.rid = n.rid AND h.version = n.version AND h.body = n.was"
            ),
            (
                f"UPDATE {files} AS f SET sealed = n.body FROM unnest($1::bytea[], $2::bytea[],"
                " $3::bigint[], $4::bytea[]) AS n(body, file_id, rid, was)"
                " WHERE f.file_id = n.file_id AND f.rid = n.rid AND f.sealed = n.was"
            ),
        )

    def _rerooting(self, layout: TableLayout) -> None:
        rows, tokens = f"r_{layout.table}", f"t_{layout.table}"
        hashes = [at for at, one in enumerate(layout.columns) if one.type is ColumnType.HASH]
        self._hashes = hashes
        rooted = ["key", "body", *(f"x_{layout.columns[at].name}" for at in hashes)]
        fresh = ", ".join(f"{name} = ${at}" for at, name in enumerate(rooted, 1))
        start = len(rooted) + 2
        was = [f"{name} IS NOT DISTINCT FROM ${at}" for at, name in enumerate(rooted, start)]
        self.reroot_row = (
            f"UPDATE {rows} SET {fresh} WHERE rid = ${start - 1} AND {' AND '.join(was)}"
        )
        self.reroot_tokens = (
            "WITH n AS (SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bigint[])"
            f" AS n(new, old, rid)), gone AS (DELETE FROM {tokens} AS t USING n"
            " WHERE t.hash = n.old AND t.rid = n.rid RETURNING n.new, n.rid)"
            f" INSERT INTO {tokens} (hash, rid) SELECT new, rid FROM gone ON CONFLICT DO NOTHING"
        )
        self.reroot_past = f"UPDATE h_{layout.table} SET key = $2 WHERE key = $1"
        self.reroot_file = (
            f"UPDATE f_{layout.table} SET name = $1, sealed = $2 WHERE file_id = $3 AND rid = $4"
            " AND name = $5 AND sealed = $6"
        )

    def _replying(self, table: str) -> None:
        rows, replies, links = f"r_{table}", f"i_{table}", f"l_{table}"
        self.remember = (
            f"WITH links AS (DELETE FROM {links} WHERE reply = ANY($1::bytea[]))"
            f" INSERT INTO {replies} AS i ({_REPLY})"
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

    def _reading(self, layout: TableLayout) -> None:
        rows, staged, tokens, past, files, replies = (f"{p}_{layout.table}" for p in "rsthfi")
        fixed = [f"r.{name}" for name, _ in FIXED]
        waiting = f"(SELECT count(*) FROM {staged} AS s WHERE s.rid = r.rid)"
        columns = ", ".join([*fixed, waiting, *(f"r.x_{c.name}" for c in layout.columns)])
        self.columns = columns
        head = f"SELECT {columns} FROM {rows} AS r WHERE"
        self.rows = f"{head} r.rid = ANY($1::bigint[])"
        self.by_keys = f"{head} r.key = ANY($1::bytea[])"
        self.scan = f"{head} r.rid > $1 ORDER BY r.rid LIMIT $2"
        self.pending = (
            f"{head} r.state = 1 AND r.updated_at < $1 ORDER BY r.updated_at, r.rid LIMIT $2"
        )
        self.by_tokens = (
            "SELECT n.hash, o.rid FROM unnest($1::bytea[]) AS n(hash) CROSS JOIN LATERAL"
            f" (SELECT rid FROM {tokens} AS t WHERE t.hash = n.hash ORDER BY rid"
            f" LIMIT {TOKEN_RIDS}) AS o"
        )
        self.staged = f"SELECT {_STAGED} FROM {staged} WHERE rid = ANY($1::bigint[]) ORDER BY sid"
        self.waiting = f"SELECT {_STAGED} FROM {staged} WHERE at < $1 ORDER BY at, sid LIMIT $2"
        self.expired = (
            f"SELECT rid FROM {rows} WHERE expires_at <= $1 ORDER BY expires_at, rid LIMIT $2"
        )
        self.counted = (
            f"SELECT coalesce(sum(rows), 0)::bigint FROM counts WHERE name = '{layout.table}'"
        )
        hidden = f"(SELECT count(*) FROM {rows} WHERE state = 1 AND updated_at"
        self.count = (
            f"SELECT ({self.counted}) - {hidden} >= {ERASED_AT}), {hidden} < {ERASED_AT}),"
            f" (SELECT count(*) FROM {staged})"
        )
        newest = (
            f"{past} WHERE key = $1 ORDER BY at DESC, version DESC, rid DESC LIMIT $2 OFFSET $3"
        )
        self.past = f"SELECT {_PAST} FROM {newest}"
        self.past_sizes = f"SELECT length(body) FROM {newest}"
        self.pasts = f"SELECT count(*) FROM {past} WHERE key = $1"
        self.past_scan = (
            f"SELECT {_PAST} FROM {past} WHERE (rid, version) > ($1, $2)"
            " ORDER BY rid, version LIMIT $3"
        )
        self.files = (
            f"SELECT {_FILE} FROM {files} WHERE rid = ANY($1::bigint[])"
            " ORDER BY created_at, file_id"
        )
        self.file_scan = f"SELECT {_FILE} FROM {files} WHERE file_id > $1 ORDER BY file_id LIMIT $2"
        self.reply = f"SELECT {_REPLY} FROM {replies} WHERE key = $1 AND expires_at > $2"
        self.reply_scan = f"SELECT {_REPLY} FROM {replies} WHERE key > $1 ORDER BY key LIMIT $2"
        self.prune_past = (
            f"WITH old AS (SELECT rid, version FROM {past} WHERE at < $1"
            f" ORDER BY at, rid, version LIMIT $2) DELETE FROM {past} AS h USING old"
            " WHERE h.rid = old.rid AND h.version = old.version"
        )
        self.prune_replies = (
            f"WITH old AS (SELECT key FROM {replies} WHERE expires_at <= $1"
            f" ORDER BY expires_at, key LIMIT $2), links AS (DELETE FROM l_{layout.table} AS l"
            f" USING old WHERE l.reply = old.key) DELETE FROM {replies} AS i USING old"
            " WHERE i.key = old.key"
        )

    def hashed(self, row: Row) -> tuple[ColumnValue, ...]:
        """The parameters of ``reroot_row`` for one form of a row."""
        cells = dict(enumerate(row.cells))
        return (row.key, row.body, *(cells.get(at) for at in self._hashes))

    def stored(self, row: Row) -> tuple[ColumnValue, ...]:
        """The parameters of ``insert`` for one row."""
        rid, key, sealed, state, version, created, updated, expires, salt, body, cells, _ = row
        fixed = (
            rid,
            key,
            sealed,
            1 if state else 0,
            version,
            created,
            updated,
            expires,
            salt,
            body,
        )
        return (*fixed, *self.cells.stored(cells))

    def read(self, raw: Sequence[Any]) -> Row:
        """A row from what ``rows`` and its kin select."""
        cells = self.cells.read(tuple(raw[_WIDTH + 1 :]))
        fixed = (*raw[:3], _STATES[raw[3] != 0], *raw[4:_WIDTH])
        return tuple.__new__(Row, (*fixed, cells, raw[_WIDTH]))
