"""The statements on the tables of one schema as SQLite has them, and what makes these tables."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from sqlite3 import Connection
from typing import Any

from proxy.errors import Code, VaultError
from proxy.storage.changes import ANY_ROW
from proxy.storage.rows import TOKEN_RIDS, Cells, Column, TableLayout
from proxy.storage.sqlite.inserts import Inserts, Rows, Used, create_aux_tables
from proxy.storage.statements import FIXED, REPLY, TableStatements

# ruff: noqa: S608 - names have passed query.check_names; every value is a parameter

#: Lengths of lists that a statement is made for: 1, 2, 3, 4, 6, 8, 12 ... 768, 1024.
_LENGTHS = (
    1,
    *(length for power in range(1, 10) for length in (2**power, 3 * 2 ** (power - 1))),
    1024,
)
_LONGEST = _LENGTHS[-1]
_MARKS = tuple(", ".join("?" * length) for length in _LENGTHS)
BODY_COLUMN = 9  #: which of the fixed columns is the sealed body
#: Bytes of bodies that are read on the event loop at once: four million take it 8 ms.
SHORT_BODIES = 128 * 1024
_IS_SHORT = f"length(r.body) <= {SHORT_BODIES}"
#: Keys whose rows' ids are remembered, and keys from which on a look-up tries these first.
_PLACES = 8192
MANY_KEYS = 8


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


class Statements(TableStatements[Listed]):
    """The statements on one layout; ``dropped``: columns of the table that it does not name.

    Most tables of most vaults never have past versions, files or replies. So these cost no
    statement before the first of their kind was written (``used``).
    """

    same = "IS"

    def __init__(
        self, layout: TableLayout, dropped: Sequence[str] = (), used: Used | None = None
    ) -> None:
        self.used = used or Used()
        self.prompt: dict[Any, Any] = {}  #: statements of small questions, by their kind
        self._places: dict[bytes, int] = {}  #: ids of rows by the keys that these had lately
        table = layout.table
        self.counted = f"SELECT rows FROM tables WHERE name = '{table}'"
        self.reroot_tokens = f"UPDATE OR REPLACE t_{table} SET hash = ? WHERE hash = ? AND rid = ?"
        super().__init__(layout, Cells(layout.columns), ())
        self._inserting(dropped)
        self._filing(table)
        self._replying(table)
        self.sizes = Listed(f"SELECT rid, length(body) FROM r_{table} WHERE rid IN")
        short = f"SELECT {self.columns_with(_IS_SHORT)} FROM r_{table} AS r WHERE"
        self.short_rows = Listed(f"{short} rid IN")
        self.by_keys = Listed(f"{short} key IN")
        entries = f"FROM t_{table} WHERE hash"
        self.by_tokens = Listed(
            f"SELECT hash, rid {entries} IN", "ORDER BY hash, rid LIMIT <limit>"
        )
        self.by_token = f"SELECT rid {entries} = ? ORDER BY rid LIMIT {TOKEN_RIDS}"

    def change(
        self, letter: str, sets: str, where: str, names: Sequence[str], *, there: bool = False
    ) -> str:
        name = f"{letter}_{self.layout.table} AS {letter}"
        head = f"UPDATE {name} SET {sets}" if sets else f"DELETE FROM {name}"
        row = f" AND {self._there(':rid')}" if there else ""
        marks = {name: f"?{number}" for number, name in enumerate(names, 1)}
        return re.sub(r":(\w+)", lambda mark: marks[mark[1]], f"{head} WHERE {where}{row}")

    def put(
        self, letter: str, names: Sequence[str], *, there: bool = False, unique: str = ""
    ) -> str:
        marks = ", ".join([f"?{number}" for number in range(1, len(names) + 1)])
        row = f"?{names.index('rid') + 1}" if there else ""
        values = f"SELECT {marks} WHERE {self._there(row)}" if there else f"VALUES ({marks})"
        ignored = f" ON CONFLICT {unique} DO NOTHING" if unique else ""
        return f"INSERT INTO {letter}_{self.layout.table} ({', '.join(names)}) {values}{ignored}"

    def question(self, text: str) -> str:
        return text

    def listed(self, head: str, column: str, tail: str = "") -> Listed:
        return Listed(f"{head} {column} IN", tail)

    def _there(self, rid: str = "?1") -> str:
        return f"EXISTS (SELECT 1 FROM r_{self.layout.table} WHERE rid = {rid})"

    def _inserting(self, dropped: Sequence[str]) -> None:
        table, columns = self.layout.table, [*FIXED, *self._further]
        self.inserts = Inserts(f"r_{table}", columns)
        self.insert = self.inserts.single
        self.write_rows = self.inserts.writer
        moved = columns[4:]
        self.replace_all = self.replacing(moved, dropped, "")
        # The creation time of a row never changes. A statement that sets it would move the index
        # entry all the same.
        others = [name for name in moved if name != "created_at"]
        self.replace = self.replacing(others, dropped, " AND r.created_at = :created_at")
        self.claims = Rows(f"INSERT INTO t_{table} (hash, rid)", 2)
        self.shares = Rows(f"INSERT OR IGNORE INTO t_{table} (hash, rid)", 2)
        self.taken = Listed(f"SELECT DISTINCT hash FROM t_{table} WHERE hash IN")
        self.holders = Listed(f"SELECT 1 FROM r_{table} WHERE key IN", "LIMIT 1")
        self.remove, self.remove_staged, self.remove_tokens, self.remove_files = (
            f"DELETE FROM {letter}_{table} WHERE rid = ?" for letter in "rstf"
        )
        self.grow = "UPDATE tables SET rows = rows + ? WHERE name = ?"

    def _filing(self, table: str) -> None:
        past, files = f"h_{table}", f"f_{table}"
        self.forget = f"DELETE FROM {past} WHERE rid = ?1 AND {self._there()}"
        self.detach = f"DELETE FROM {files} WHERE file_id = ? AND rid = ?"
        doom = f"INSERT OR IGNORE INTO doomed (object) SELECT object FROM {files} WHERE"
        self.doom_one = f"{doom} file_id = ? AND rid = ?"
        self.doom_other = f"{self.doom_one} AND object <> ?"
        self.doom_of_row = f"{doom} rid = ? ORDER BY created_at, file_id"
        self.prune_past = (
            f"DELETE FROM {past} WHERE rowid IN"
            f" (SELECT rowid FROM {past} WHERE at < ? ORDER BY at, rid, version LIMIT ?)"
        )

    def _replying(self, table: str) -> None:
        replies, links = f"i_{table}", f"l_{table}"
        self.remember = (
            f"INSERT INTO {replies} ({', '.join(REPLY)}) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (key) DO UPDATE SET expires_at = excluded.expires_at,"
            " digest = excluded.digest, sealed = excluded.sealed WHERE expires_at <= ?"
        )
        self.unlink_reply = f"DELETE FROM {links} WHERE reply = ?"
        self.link = f"INSERT INTO {links} (rid, reply, files) VALUES (?, ?, ?)"
        blank = f"UPDATE {replies} SET sealed = x'' WHERE key"
        # Its row may have gone between the write and this answer, which is kept after it.
        self.blank_late = f"{blank} = ?2 AND ?1 >= 0 AND NOT {self._there()}"
        of_row = f"WHERE rid IN (?1, {ANY_ROW})"
        self.blank = f"{blank} IN (SELECT reply FROM {links} {of_row} AND {self._there()})"
        self.blank_files = f"{blank} IN (SELECT reply FROM {links} {of_row} AND files)"
        self.unlink = f"DELETE FROM {links} {of_row} AND {self._there()}"
        old = f"FROM {replies} WHERE expires_at <= ? ORDER BY expires_at, key LIMIT ?"
        self.prune_links = f"DELETE FROM {links} WHERE reply IN (SELECT key {old})"
        self.prune_replies = f"DELETE FROM {replies} WHERE rowid IN (SELECT rowid {old})"

    def look_up(
        self,
        keys: Sequence[bytes],
        listed: Callable[[Listed, Sequence[Any]], list[tuple[Any, ...]]],
    ) -> list[tuple[Any, ...]]:
        """The rows with these keys, as ``by_keys`` selects them; ``listed`` runs a statement.

        SQLite finds a row by its id in two thirds of the time. The ids are hints: each row tells
        the key that it has now, and what is not found by them is looked up.
        """
        places, wanted = self._places, set(keys)
        hints = {rid for rid in map(places.get, keys) if rid is not None}  # keys may have moved
        raws = [raw for raw in listed(self.short_rows, [*hints]) if raw[1] in wanted]
        if missing := wanted.difference([raw[1] for raw in raws]):
            raws += listed(self.by_keys, [*missing])
            if len(places) + len(raws) > _PLACES:
                places.clear()
            places.update([(raw[1], raw[0]) for raw in raws])
        return raws

    def columns_with(self, test: str) -> str:
        """The columns that ``read`` takes, the body only of rows for which the test holds: short
        ones. The further columns stand behind it: SQLite would go through a long body to them.
        """
        fixed = ", ".join(FIXED[:BODY_COLUMN])
        behind = "".join(f", CASE WHEN {_IS_SHORT} THEN {name} END" for name in self._further)
        return f"{fixed}, CASE WHEN {test} THEN body END, {self.waiting_count}{behind}"

    def prune(self, connection: Connection, before: int, now: int, limit: int) -> int:
        """Run ``Store.prune`` inside the caller's transaction."""
        past = connection.execute(self.prune_past, (before, limit)).rowcount
        connection.execute(self.prune_links, (now, limit))
        return past + connection.execute(self.prune_replies, (now, limit)).rowcount


def used_parts(connection: Connection, table: str) -> Used:
    """Report which of the tables behind a table's rows have rows now."""
    past, files, links = (
        bool(connection.execute(f"SELECT EXISTS (SELECT 1 FROM {letter}_{table})").fetchone()[0])
        for letter in "hfl"
    )
    return Used(past=past, files=files, links=links)


def create_table(layout: TableLayout) -> list[str]:
    """The statements that make the tables of a layout, with its columns: to add one later takes
    SQLite a reading of the whole schema.
    """
    table = layout.table
    own = "".join(f", {_declared(column)}" for column in layout.columns)
    rows = (
        f"CREATE TABLE r_{table} (rid INTEGER PRIMARY KEY, key BLOB, key_sealed BLOB, state "
        "INTEGER NOT NULL,"
        " version INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, "
        "expires_at INTEGER,"
        f" salt BLOB NOT NULL, body BLOB NOT NULL{own})"
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
        *(_index(table, column) for column in layout.columns),
        f"INSERT INTO tables (name, rows) VALUES ('{table}', 0)",
    ]


#: Declared type of a column by its kind; ``DECIMAL`` keeps whole numbers as they are (``cells``).
DECLARED = {"hash": "BLOB", "text": "TEXT", "integer": "INTEGER", "decimal": "DECIMAL"}


def add_column(table: str, column: Column) -> list[str]:
    """The statements that give a table one more column and its index."""
    return [f"ALTER TABLE r_{table} ADD COLUMN {_declared(column)}", _index(table, column)]


def _declared(column: Column) -> str:
    return f"x_{column.name} {DECLARED[column.type]}"


def _index(table: str, column: Column) -> str:
    """Create the index of a column. A hash is only ever asked for by its value."""
    where = f" WHERE x_{column.name} IS NOT NULL" if column.type == "hash" else ""
    return f'CREATE INDEX "ix_{table}.{column.name}" ON r_{table} (x_{column.name}){where}'


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
        missing = create_table(layout)
    else:
        added = [column for column in layout.columns if column.name not in present]
        missing = [text for column in added for text in add_column(layout.table, column)]
    for statement in missing:
        connection.execute(statement)


def statements(connection: Connection, layout: TableLayout, used: Used | None = None) -> Statements:
    """The statements of a layout whose table is complete.

    ``used`` is what earlier ones of the same table share.
    """
    named = {column.name for column in layout.columns}
    present = table_columns(connection, layout.table) or {}
    used = used or used_parts(connection, layout.table)
    return Statements(layout, [f"x_{name}" for name in present if name not in named], used)


def empty(connection: Connection, table: str, limit: int) -> int:
    """Remove so many records of a schema with all their parts, or what is left of them.

    Returns the number removed; 0: nothing is left.

    An interruption between two calls leaves a sound table with fewer records.
    """
    if table_columns(connection, table) is None:
        return 0
    sql = Statements(TableLayout(table, ()))
    rids = connection.execute(f"SELECT rid FROM r_{table} LIMIT ?", (limit,)).fetchall()
    for text in (
        sql.forget,
        sql.doom_of_row,
        sql.remove_files,
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
