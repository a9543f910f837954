"""Every statement on the tables of one schema, in one place and made once.

A schema has three main tables: ``r_<table>`` holds the rows, ``s_<table>`` the staged changes,
``t_<table>`` the token index; ``sqlite_beside`` has three more. The prefixes keep a layout's names
apart from SQLite's and from the fixed columns (``x_<column>``). The number of a row's staged
changes is counted at each read, not stored: the index of a nearly empty table answers in a fraction
of a microsecond, and a count that is not stored cannot drift or cost a rewrite.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from sqlite3 import Connection
from typing import Any

from proxy.errors import Code, VaultError
from proxy.storage.changes import Reroot
from proxy.storage.query import ValidatedQuery
from proxy.storage.rows import (
    ERASED_AT,
    TOKEN_RIDS,
    Cells,
    Column,
    ColumnValue,
    Row,
    RowState,
    TableLayout,
)
from proxy.storage.sqlite.inserts import AuxStatements, Inserts, Rows, Used, create_aux_tables

# ruff: noqa: S608 - names have passed names.check_names; every value is a parameter

#: Lengths of lists that a statement is made for: 1, 2, 3, 4, 6, 8, 12 ... 768, 1024.
_LENGTHS = (
    1,
    *(length for power in range(1, 10) for length in (2**power, 3 * 2 ** (power - 1))),
    1024,
)
_LONGEST = _LENGTHS[-1]
_MARKS = tuple(", ".join("?" * length) for length in _LENGTHS)
#: By whether the column is set: a foreign program may have written any number there.
_STATES = (RowState.LIVE, RowState.PENDING)
_FIXED = "rid, key, key_sealed, state, version, created_at, updated_at, expires_at, salt, body"
_WIDTH = 10  #: how many fixed columns there are
BODY_COLUMN = 9  #: which of them is the sealed body
#: Bytes of bodies that are read on the event loop at once: four million take it 8 ms.
SHORT_BODIES = 128 * 1024
_IS_SHORT = f"length(r.body) <= {SHORT_BODIES}"
_STAGED = "sid, rid, kind, at, doubt, answered, body"


class Listed:
    """A statement with a list of values; one for each of ``_LENGTHS`` serves any list."""

    __slots__ = ("_head", "_tail", "_texts", "single")

    def __init__(self, head: str, tail: str = "") -> None:
        self._head, self._tail = head, tail
        self._texts: dict[int, str] = {}  #: those that came up, by the index of their length
        self.single = self._text(0)

    def _text(self, index: int) -> str:
        tail = self._tail.replace("<limit>", str(self.limit(_LENGTHS[index])))
        return f"{self._head} ({_MARKS[index]}) {tail}"

    @staticmethod
    def limit(length: int) -> int:
        """The number that replaces ``<limit>`` in the text for so many values."""
        return (TOKEN_RIDS + 1) * length

    def runs(self, values: Sequence[Any]) -> Iterator[tuple[str, Sequence[Any]]]:
        """Text and parameters of each run; the last value is repeated up to the next length."""
        for start in range(0, len(values), _LONGEST):
            part = values[start : start + _LONGEST]
            index = bisect_left(_LENGTHS, len(part))
            text = self._texts.get(index) or self._texts.setdefault(index, self._text(index))
            yield text, [*part, *[part[-1]] * (_LENGTHS[index] - len(part))]


class Statements:
    """The statements on one layout; ``dropped``: columns of the table that it does not name."""

    def __init__(
        self, layout: TableLayout, dropped: Sequence[str] = (), used: Used | None = None
    ) -> None:
        self.layout = layout
        self.cells = Cells(layout.columns)
        self.validated = ValidatedQuery(layout)
        self.aux = AuxStatements(layout.table)
        self.used = used or Used()
        self.prompt: dict[Any, Any] = {}  #: statements of small questions, by their kind
        self._writing(layout, dropped)
        self._staging(layout.table)
        self._indexing(layout.table)
        self._reading(layout)

    def _writing(self, layout: TableLayout, dropped: Sequence[str]) -> None:
        rows = f"r_{layout.table}"
        extra = [f"x_{column.name}" for column in layout.columns]
        self.inserts = Inserts(rows, [*_FIXED.split(", "), *extra])
        self.insert = self.inserts.single
        self.write_rows = self.inserts.writer
        self.release = (
            f"UPDATE {rows} SET key = NULL, key_sealed = ?5, state = 1, updated_at = ?1 WHERE "
            "key = ?2 AND rid <> ?3 AND rid = coalesce(?4, rid)"
        )
        self.accept = (
            f"UPDATE {rows} SET state = 0, updated_at = ?, key_sealed = coalesce(?, key_sealed)"
            " WHERE rid = ? AND state = 1"
        )
        self.bind = (
            f"UPDATE {rows} SET key = ?1, key_sealed = ?2, state = 0, updated_at = ?3"
            " WHERE rid = ?4 AND (key IS NULL OR key = ?1)"
        )
        # Parameters: version, created_at, updated_at, expires_at, salt, body, the columns, rid,
        # version expected.
        last = 6 + len(extra)
        values = "".join(f", {name} = ?{number}" for number, name in enumerate(extra, 7))
        values += "".join(f", x_{name} = NULL" for name in dropped)
        fresh = f"version = ?1, updated_at = ?3, expires_at = ?4, salt = ?5, body = ?6{values}"
        at = f"WHERE rid = ?{last + 1} AND version = ?{last + 2}"
        # The creation time of a row never changes. A statement that sets it would move the index
        # entry all the same.
        self.replace = f"UPDATE {rows} SET {fresh} {at} AND created_at = ?2"
        self.replace_all = f"UPDATE {rows} SET created_at = ?2, {fresh} {at}"
        rooted = ["key", "body", *extra]
        self.reroot_row = (
            f"UPDATE {rows} SET {', '.join(f'{name} = ?' for name in rooted)} WHERE rid = ? AND "
            + " AND ".join(f"{name} IS ?" for name in rooted)
        )
        self.remove = f"DELETE FROM {rows} WHERE rid = ?"
        self.holders = Listed(f"SELECT 1 FROM {rows} WHERE key IN", "LIMIT 1")
        self.grow = "UPDATE tables SET rows = rows + ? WHERE name = ?"

    def _staging(self, table: str) -> None:
        staged = f"s_{table}"
        self.stage = (
            f"INSERT INTO {staged} ({_STAGED}) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7"
            f" WHERE EXISTS (SELECT 1 FROM r_{table} WHERE rid = ?2)"
        )
        self.doubt = f"UPDATE {staged} SET doubt = ?, answered = ? WHERE sid = ? AND rid = ?"
        self.unstage = f"DELETE FROM {staged} WHERE sid = ? AND rid = ?"
        self.remove_staged = f"DELETE FROM {staged} WHERE rid = ?"

    def _indexing(self, table: str) -> None:
        tokens = f"t_{table}"
        self.claims = Rows(f"INSERT INTO {tokens} (hash, rid)", 2)
        self.shares = Rows(f"INSERT OR IGNORE INTO {tokens} (hash, rid)", 2)
        self.add_existing = (
            f"INSERT OR IGNORE INTO {tokens} (hash, rid) SELECT ?1, ?2"
            f" WHERE EXISTS (SELECT 1 FROM r_{table} WHERE rid = ?2)"
        )
        self.drop_token = f"DELETE FROM {tokens} WHERE hash = ? AND rid = ?"
        self.reroot_token = f"UPDATE OR REPLACE {tokens} SET hash = ? WHERE hash = ? AND rid = ?"
        self.remove_tokens = f"DELETE FROM {tokens} WHERE rid = ?"
        self.taken = Listed(f"SELECT DISTINCT hash FROM {tokens} WHERE hash IN")

    def _reading(self, layout: TableLayout) -> None:
        rows, staged, tokens = (f"{prefix}_{layout.table}" for prefix in "rst")
        waiting = f"(SELECT count(*) FROM {staged} AS s WHERE s.rid = r.rid)"
        fixed, body = _FIXED.rsplit(", ", 1)
        others = [f"x_{one.name}" for one in layout.columns]
        self._columns = fixed, waiting, others
        columns = ", ".join((fixed, body, waiting, *others))
        select = self.head = f"SELECT {columns} FROM {rows} AS r WHERE"
        self.rows = Listed(f"{select} rid IN")
        self.sizes = Listed(f"SELECT rid, length(body) FROM {rows} WHERE rid IN")
        self.scan = f"{select} rid > ? ORDER BY rid LIMIT ?"
        self.files = Listed(self.aux.files_head, "ORDER BY created_at, file_id")
        short = f"SELECT {self.columns_with(_IS_SHORT)} FROM {rows} AS r WHERE"
        self.short_rows = Listed(f"{short} rid IN")
        self.by_keys = Listed(f"{short} key IN")
        self.by_tokens = Listed(
            f"SELECT hash, rid FROM {tokens} WHERE hash IN", "ORDER BY hash, rid LIMIT <limit>"
        )
        self.by_token = f"SELECT rid FROM {tokens} WHERE hash = ? ORDER BY rid LIMIT {TOKEN_RIDS}"
        self.staged = Listed(f"SELECT {_STAGED} FROM {staged} WHERE rid IN", "ORDER BY sid")
        self.pending = f"{select} state = 1 AND updated_at < ? ORDER BY updated_at, rid LIMIT ?"
        self.waiting = f"SELECT {_STAGED} FROM {staged} WHERE at < ? ORDER BY at, sid LIMIT ?"
        self.expired = (
            f"SELECT rid FROM {rows} WHERE expires_at <= ? ORDER BY expires_at, rid LIMIT ?"
        )
        hidden = f"(SELECT count(*) FROM {rows} WHERE state = 1 AND updated_at"
        self.count = (
            f"SELECT (SELECT rows FROM tables WHERE name = '{layout.table}')"
            f" - {hidden} >= {ERASED_AT}), {hidden} < {ERASED_AT}), (SELECT count(*) FROM {staged})"
        )

    def columns_with(self, test: str) -> str:
        """The columns that ``read`` takes, the body only of rows for which the test holds: short
        ones. The further columns stand behind it: SQLite would go through a long body to them.
        """
        fixed, waiting, others = self._columns
        behind = "".join(f", CASE WHEN {_IS_SHORT} THEN {name} END" for name in others)
        return f"{fixed}, CASE WHEN {test} THEN body END, {waiting}{behind}"

    def reroot(self, connection: Connection, change: Reroot) -> None:
        """Put hashes in place of others."""
        if change.row is not None:
            before, after = (
                (row.key, row.body, *self.cells.stored(row.cells)) for row in change.row
            )
            connection.execute(self.reroot_row, (*after, change.rid, *before))
        if change.entries:
            moves = [(new, old, change.rid) for old, new in change.entries]
            connection.executemany(self.reroot_token, moves)
        if change.past is not None:
            connection.execute(self.aux.reroot_past, change.past[::-1])
        for was, file in change.files:
            values = (file.name, file.sealed, file.file_id, change.rid, was.name, was.sealed)
            connection.execute(self.aux.reroot_file, values)

    def stored(self, row: Row) -> tuple[ColumnValue, ...]:
        """The parameters of ``insert``.

        Plain integers: the driver looks for an adapter for anything else.
        """
        rid, key, sealed, state, version, created, updated, expires, salt, body, cells, _ = row
        pending = 1 if state else 0
        form = self.cells
        if form.decimals or len(cells) != form.width:
            cells = form.stored(cells)
        return (rid, key, sealed, pending, version, created, updated, expires, salt, body, *cells)

    def read_each(self, raws: Sequence[tuple[Any, ...]]) -> list[Row]:
        """``read`` for many."""
        if self.cells.decimals:
            return [self.read(raw) for raw in raws]
        new, states, staged, cells = tuple.__new__, _STATES, _WIDTH, _WIDTH + 1
        return [
            new(Row, (*raw[:3], states[raw[3] != 0], *raw[4:staged], raw[cells:], raw[staged]))
            for raw in raws
        ]

    def read(self, raw: tuple[Any, ...]) -> Row:
        """A row from what ``rows`` and its kin select."""
        cells = raw[_WIDTH + 1 :]
        if self.cells.decimals:
            cells = self.cells.read(cells)
        return tuple.__new__(
            Row, (*raw[:3], _STATES[raw[3] != 0], *raw[4:_WIDTH], cells, raw[_WIDTH])
        )


def create_table(layout: TableLayout) -> list[str]:
    """The statements that make the tables of a layout, without its columns."""
    table = layout.table
    rows = (
        f"CREATE TABLE r_{table} (rid INTEGER PRIMARY KEY, key BLOB, key_sealed BLOB, state "
        "INTEGER NOT NULL,"
        " version INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, "
        "expires_at INTEGER,"
        " salt BLOB NOT NULL, body BLOB NOT NULL)"
    )
    staged = (
        f"CREATE TABLE s_{table} (sid INTEGER PRIMARY KEY, rid INTEGER NOT NULL, kind INTEGER "
        "NOT NULL,"
        " at INTEGER NOT NULL, doubt INTEGER, answered INTEGER NOT NULL, body BLOB NOT NULL)"
    )
    return [
        rows,
        f"CREATE UNIQUE INDEX ik_{table} ON r_{table} (key) WHERE key IS NOT NULL",
        f"CREATE INDEX ip_{table} ON r_{table} (updated_at) WHERE state = 1",
        f"CREATE INDEX ie_{table} ON r_{table} (expires_at) WHERE expires_at IS NOT NULL",
        # None by their last update: it would be moved with every write, for an order that one look
        # at all rows gives too.
        f"CREATE INDEX ic_{table} ON r_{table} (created_at)",
        staged,
        f"CREATE INDEX is_{table} ON s_{table} (rid)",
        f"CREATE INDEX ia_{table} ON s_{table} (at)",
        f"CREATE TABLE t_{table} (hash BLOB, rid INTEGER, PRIMARY KEY (hash, rid)) WITHOUT ROWID",
        f"CREATE INDEX it_{table} ON t_{table} (rid)",
        *create_aux_tables(table),
        f"INSERT INTO tables (name, rows) VALUES ('{table}', 0)",
    ]


#: Declared type of a column by its kind; ``DECIMAL`` keeps whole numbers as they are (``cells``).
DECLARED = {"hash": "BLOB", "text": "TEXT", "integer": "INTEGER", "decimal": "DECIMAL"}


def add_column(table: str, column: Column) -> list[str]:
    """The statements that give a table one more column and its index.

    A hash is only ever asked for by its value.
    """
    where = f" WHERE x_{column.name} IS NOT NULL" if column.type == "hash" else ""
    return [
        f"ALTER TABLE r_{table} ADD COLUMN x_{column.name} {DECLARED[column.type]}",
        f'CREATE INDEX "ix_{table}.{column.name}" ON r_{table} (x_{column.name}){where}',
    ]


# Tables and columns that come online while the store is in use.

#: Prefix of every table of a schema.
TABLES = "rsthfil"


def table_columns(connection: Connection, table: str) -> dict[str, str] | None:
    """Declared type by name of the columns of a schema's table; ``None``: no such table."""
    raw = connection.execute(
        "SELECT name, type FROM pragma_table_info(?)", (f"r_{table}",)
    ).fetchall()
    return {name[2:]: kind for name, kind in raw if name.startswith("x_")} if raw else None


def is_complete(connection: Connection, layout: TableLayout) -> bool:
    """Whether nothing has to be made for the layout.

    ``VaultError(BAD_STORE)`` when a column is of another type.
    """
    present = table_columns(connection, layout.table)
    if present is None:
        return False
    for column in layout.columns:
        if present.get(column.name, DECLARED[column.type]) != DECLARED[column.type]:
            raise VaultError(
                Code.BAD_STORE,
                f"Column {column.name} of the vault's table {layout.table} holds another type "
                f"than {column.type}: "
                "restore the database that belongs to these schemas.",
            )
    return all(column.name in present for column in layout.columns)


def make(connection: Connection, layout: TableLayout) -> None:
    """Create missing parts of the layout, inside the caller's transaction. Idempotent."""
    present = table_columns(connection, layout.table)
    if present is None:
        for statement in create_table(layout):
            connection.execute(statement)
    for column in layout.columns:
        if column.name not in (present or {}):
            for statement in add_column(layout.table, column):
                connection.execute(statement)


def statements(connection: Connection, layout: TableLayout, used: Used | None = None) -> Statements:
    """The statements of a layout whose table is complete.

    ``used`` is what earlier ones of the same table share.
    """
    named = {column.name for column in layout.columns}
    present = table_columns(connection, layout.table) or {}
    used = used or AuxStatements(layout.table).used(connection)
    return Statements(layout, [name for name in present if name not in named], used)


def empty(connection: Connection, table: str, limit: int) -> int:
    """Remove so many records of a schema with all their parts, or what is left of them.

    Returns the number removed; 0: nothing is left.

    An interruption between two calls leaves a sound table with fewer records.
    """
    if table_columns(connection, table) is None:
        return 0
    sql = Statements(TableLayout(table, ()))
    rids = connection.execute(f"SELECT rid FROM r_{table} LIMIT ?", (limit,)).fetchall()
    aux = sql.aux
    for text in (
        aux.forget,
        aux.doom_of_row,
        aux.remove_files,
        sql.remove_tokens,
        sql.remove_staged,
        sql.remove,
    ):
        connection.executemany(text, rids)
    connection.execute(sql.grow, (-len(rids), table))
    return len(rids) or sum(
        connection.execute(
            f"DELETE FROM {prefix}_{table} WHERE rowid IN (SELECT rowid FROM {prefix}_{table} "
            "LIMIT ?)",
            (limit,),
        ).rowcount
        for prefix in ("h", "i", "l")
    )


def drop_table(connection: Connection, table: str) -> None:
    """Remove the tables of a schema; inside the caller's transaction. Gone already: no effect."""
    for prefix in TABLES:
        connection.execute(f"DROP TABLE IF EXISTS {prefix}_{table}")
    connection.execute("DELETE FROM tables WHERE name = ?", (table,))
