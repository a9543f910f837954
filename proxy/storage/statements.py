"""The statements on the tables of one schema that every engine runs, and the reads of a store by
them (``StatementStore``), each written once.

``r_<table>`` holds the rows, ``s_`` the staged changes, ``t_`` the token index, ``h_`` past
versions, ``f_`` files, ``i_`` replies and ``l_`` the rows that they show. The prefixes keep a
layout's names apart from an engine's own and from the fixed columns (``x_<column>``). The number
of a row's staged changes is counted at each read, not stored: the index of a nearly empty table
answers in a fraction of a microsecond, and a count that is not stored cannot drift or cost a
rewrite.

A change names its parameters (``:rid``), which an engine runs for one row of them after the other
or for all at once; a question has a ``?`` for each. Tables go by their letter.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

from proxy.storage.base import TABLE_PARTS, CommitGuard, Replicas, columns_of
from proxy.storage.notes import RootedNotes
from proxy.storage.query import ValidatedQuery, closed, fitting, unknown
from proxy.storage.rows import (
    ERASED_AT,
    Cells,
    ColumnType,
    ColumnValue,
    File,
    Past,
    Row,
    RowState,
    Staged,
    StoredReply,
    TableLayout,
    read_staged,
)

# ruff: noqa: S608 - names have passed query.check_names; every value is a parameter

FIXED, STAGED, PAST, FILE, REPLY = (
    TABLE_PARTS[part].columns
    for part in ("records", "staged", "versions", "attachments", "replies")
)
_WIDTH = len(FIXED)
#: By whether the column is set: a foreign program may have written any number there.
_STATES = (RowState.LIVE, RowState.PENDING)

_Listed = TypeVar("_Listed")


class TableStatements(ABC, Generic[_Listed]):
    """The statements on one layout; ``_Listed`` is one with a list of values."""

    same: ClassVar[str]  #: compares where both may be missing
    counted: str  #: the question for the number of all rows
    reroot_tokens: (
        str  #: the change of entries of the token index: the new hash, the old one, the row
    )

    def __init__(self, layout: TableLayout, cells: Cells, moved: Sequence[str]) -> None:
        """``moved``: further columns that hold what the cells of a row come to."""
        self.layout = layout
        self.cells = cells
        self.validated = ValidatedQuery(layout)
        self._further = [*columns_of(layout, TABLE_PARTS["records"])[_WIDTH:], *moved]
        self._hashes = [
            at for at, column in enumerate(layout.columns) if column.type is ColumnType.HASH
        ]
        self._changing()
        self._swapping()
        self._reading()
        self._reading_past()

    @abstractmethod
    def change(
        self, letter: str, sets: str, where: str, names: Sequence[str], *, there: bool = False
    ) -> str:
        """A change of rows, or their removal where it sets nothing; ``there``: of a row that is."""

    @abstractmethod
    def put(
        self, letter: str, names: Sequence[str], *, there: bool = False, unique: str = ""
    ) -> str:
        """An ``INSERT``; ``there``: for rows that are; ``unique``: what present entries share."""

    @abstractmethod
    def question(self, text: str) -> str:
        """A question with its marks."""

    @abstractmethod
    def listed(self, head: str, column: str, tail: str = "") -> _Listed:
        """A question for rows that have one of the values of a list."""

    def replacing(self, columns: Sequence[str], dropped: Sequence[str], where: str) -> str:
        """The change of a row that sets these columns, and clears those that no layout names."""
        names = [*FIXED[4:], *self._further, "rid", "expected"]
        sets = [*[f"{name} = :{name}" for name in columns], *[f"{name} = NULL" for name in dropped]]
        return self.change(
            "r", ", ".join(sets), f"r.rid = :rid AND r.version = :expected{where}", names
        )

    def _changing(self) -> None:
        self.release = self.change(
            "r", "key = NULL, key_sealed = :sealed, state = 1, updated_at = :at",
            "r.key = :key AND r.rid <> :rid AND r.rid = coalesce(:holder, r.rid)",
            ("at", "key", "rid", "holder", "sealed"),
        )  # fmt: skip
        self.accept = self.change(
            "r", "state = 0, updated_at = :at, key_sealed = coalesce(:sealed, r.key_sealed)",
            "r.rid = :rid AND r.state = 1", ("at", "sealed", "rid"),
        )  # fmt: skip
        self.bind = self.change(
            "r", "key = :key, key_sealed = :sealed, state = 0, updated_at = :at",
            "r.rid = :rid AND (r.key IS NULL OR r.key = :key)", ("key", "sealed", "at", "rid"),
        )  # fmt: skip
        self.stage = self.put("s", STAGED, there=True)
        self.doubt = self.change(
            "s", "doubt = :at, answered = :answered", "s.sid = :sid AND s.rid = :rid",
            ("at", "answered", "sid", "rid"),
        )  # fmt: skip
        self.unstage = self.change("s", "", "s.sid = :sid AND s.rid = :rid", ("sid", "rid"))
        token = ("hash", "rid")
        self.add_existing = self.put("t", token, there=True, unique="(hash, rid)")
        self.drop_token = self.change("t", "", "t.hash = :hash AND t.rid = :rid", token)
        self.inscribe = self.put("h", PAST)
        self.attach = self.put("f", FILE, there=True)
        self.amend = self.change(
            "f",
            "rid = :rid, name = :name, object = :object, size = :size, updated_at = :updated_at,"
            " sealed = :sealed",
            "f.file_id = :file_id AND f.rid = :holder"
            " AND f.object = coalesce(:was_object, f.object)",
            (*FILE[1:5], *FILE[6:], "file_id", "holder", "was_object"),
            there=True,
        )  # fmt: skip

    def _swapping(self) -> None:
        #: By ``SealedPart``.
        self.recast = (
            self._swap("r", ("body", "key_sealed"), ("rid",)),
            self._swap("s", ("body",), ("sid", "rid")),
            self._swap("h", ("body",), ("rid", "version")),
            self._swap("f", ("sealed",), ("file_id", "rid")),
        )
        rooted = [f"x_{self.layout.columns[at].name}" for at in self._hashes]
        self.reroot_row = self._swap("r", ("key", "body", *rooted), ("rid",))
        self.reroot_past = self.change("h", "key = :key", "h.key = :was_key", ("was_key", "key"))
        self.reroot_file = self._swap("f", ("name", "sealed"), ("file_id", "rid"))

    def _swap(self, letter: str, parts: Sequence[str], keys: Sequence[str]) -> str:
        """A change of a row's parts. Parameters: the new ones, its keys, those that it has."""
        tests = [f"{letter}.{name} = :{name}" for name in keys]
        tests += [f"{letter}.{name} {self.same} :was_{name}" for name in parts]
        names = (*parts, *keys, *(f"was_{name}" for name in parts))
        sets = ", ".join([f"{name} = :{name}" for name in parts])
        return self.change(letter, sets, " AND ".join(tests), names)

    def _reading(self) -> None:
        table, (fixed, staged) = self.layout.table, map(", ".join, (FIXED, STAGED))
        fixed = ", ".join([f"r.{name}" for name in FIXED])
        others = [f"r.x_{column.name}" for column in self.layout.columns]
        self.waiting_count = f"(SELECT count(*) FROM s_{table} AS s WHERE s.rid = r.rid)"
        self.columns = ", ".join([fixed, self.waiting_count, *others])
        self.head = f"SELECT {self.columns} FROM r_{table} AS r WHERE"
        self.rows = self.listed(self.head, "r.rid")
        self.by_keys = self.listed(self.head, "r.key")
        self.scan = self.question(f"{self.head} r.rid > ? ORDER BY r.rid LIMIT ?")
        self.pending = self.question(
            f"{self.head} r.state = 1 AND r.updated_at < ? ORDER BY r.updated_at, r.rid LIMIT ?"
        )
        self.expired = self.question(
            f"SELECT rid FROM r_{table} WHERE expires_at <= ? ORDER BY expires_at, rid LIMIT ?"
        )
        self.staged = self.listed(f"SELECT {staged} FROM s_{table} WHERE", "rid", "ORDER BY sid")
        self.waiting = self.question(
            f"SELECT {staged} FROM s_{table} WHERE at < ? ORDER BY at, sid LIMIT ?"
        )
        hidden = f"(SELECT count(*) FROM r_{table} WHERE state = 1 AND updated_at"
        self.count = (
            f"SELECT ({self.counted}) - {hidden} >= {ERASED_AT}), {hidden} < {ERASED_AT}),"
            f" (SELECT count(*) FROM s_{table})"
        )

    def _reading_past(self) -> None:
        past, files, replies = (f"{letter}_{self.layout.table}" for letter in "hfi")
        ask, (version, file, reply) = self.question, map(", ".join, (PAST, FILE, REPLY))
        newest = f"{past} WHERE key = ? ORDER BY at DESC, version DESC, rid DESC LIMIT ? OFFSET ?"
        self.past = ask(f"SELECT {version} FROM {newest}")
        self.past_sizes = ask(f"SELECT length(body) FROM {newest}")
        self.pasts = ask(f"SELECT count(*) FROM {past} WHERE key = ?")
        self.past_scan = ask(
            f"SELECT {version} FROM {past} WHERE (rid, version) > (?, ?)"
            " ORDER BY rid, version LIMIT ?"
        )
        self.files = self.listed(
            f"SELECT {file} FROM {files} WHERE", "rid", "ORDER BY created_at, file_id"
        )
        self.file_scan = ask(
            f"SELECT {file} FROM {files} WHERE file_id > ? ORDER BY file_id LIMIT ?"
        )
        self.reply = ask(f"SELECT {reply} FROM {replies} WHERE key = ? AND expires_at > ?")
        self.reply_scan = ask(f"SELECT {reply} FROM {replies} WHERE key > ? ORDER BY key LIMIT ?")

    def hashed(self, row: Row) -> tuple[ColumnValue, ...]:
        """The parts of a row that ``reroot_row`` changes."""
        cells = dict(enumerate(row.cells))
        return (row.key, row.body, *(cells.get(at) for at in self._hashes))

    def stored(self, row: Row) -> tuple[ColumnValue, ...]:
        """The parameters of an ``INSERT`` of all columns.

        Plain integers: a driver looks for an adapter for anything else.
        """
        rid, key, sealed, state, version, created, updated, expires, salt, body, cells, _ = row
        pending = 1 if state else 0
        form = self.cells
        if not form.unchanged or len(cells) != form.width:
            cells = form.stored(cells)
        return (rid, key, sealed, pending, version, created, updated, expires, salt, body, *cells)

    def read_each(self, raws: Sequence[Sequence[Any]]) -> list[Row]:
        """``read`` for many."""
        if not self.cells.unchanged:
            return [self.read(raw) for raw in raws]
        new, states, staged, cells = tuple.__new__, _STATES, _WIDTH, _WIDTH + 1
        return [
            new(Row, (*raw[:3], states[raw[3] != 0], *raw[4:staged], raw[cells:], raw[staged]))
            for raw in raws
        ]

    def read(self, raw: Sequence[Any]) -> Row:
        """A row from what ``rows`` and its kin select."""
        cells = raw[_WIDTH + 1 :]
        if not self.cells.unchanged:
            cells = self.cells.read(tuple(cells))
        state = _STATES[raw[3] != 0]
        return tuple.__new__(Row, (*raw[:3], state, *raw[4:_WIDTH], cells, raw[_WIDTH]))


_Sql = TypeVar("_Sql", bound=TableStatements[Any])


class StatementStore(RootedNotes, Generic[_Sql]):
    """Reads of a ``Store`` that are one statement each, whatever the engine."""

    def __init__(self) -> None:
        super().__init__()
        self.guard: CommitGuard | None = None
        self.replicas: Replicas | None = None
        self._tables: dict[str, _Sql] = {}
        self._closed = False

    @abstractmethod
    async def _ask(self, text: str, *values: Any) -> Sequence[Any]:
        """The rows that a question finds. Raises ``VaultError``."""

    @abstractmethod
    async def _ask_listed(self, statement: Any, values: Sequence[Any]) -> Sequence[Any]:
        """The same of a question with a list (``TableStatements.listed``)."""

    async def staged(self, table: str, rids: Sequence[int]) -> dict[int, tuple[Staged, ...]]:
        by_row: dict[int, tuple[Staged, ...]] = {}
        for raw in await self._ask_listed(self._statements(table).staged, rids):
            change = read_staged(raw)
            by_row[change.rid] = (*by_row.get(change.rid, ()), change)
        return by_row

    async def unsettled(
        self, table: str, before: int, limit: int
    ) -> tuple[list[Row], list[Staged]]:
        sql = self._statements(table)
        rows = [sql.read(raw) for raw in await self._ask(sql.pending, before, limit)]
        return rows, [read_staged(raw) for raw in await self._ask(sql.waiting, before, limit)]

    async def expired(self, table: str, now: int, limit: int) -> list[int]:
        return [raw[0] for raw in await self._ask(self._statements(table).expired, now, limit)]

    async def count(self, table: str) -> tuple[int, int, int]:
        ((rows, pending, staged),) = await self._ask(self._statements(table).count)
        return rows, pending, staged

    async def past(
        self, table: str, key: bytes, limit: int, offset: int, room: int | None = None
    ) -> tuple[list[Past], int]:
        sql = self._statements(table)
        if room is not None:
            sizes = await self._ask(sql.past_sizes, key, limit, offset)
            limit = fitting([raw[0] for raw in sizes], room)
        versions = [Past(*raw) for raw in await self._ask(sql.past, key, limit, offset)]
        return versions, (await self._ask(sql.pasts, key))[0][0]

    async def past_scan(self, table: str, after: tuple[int, int], limit: int) -> list[Past]:
        raws = await self._ask(self._statements(table).past_scan, *after, limit)
        return [Past(*raw) for raw in raws]

    async def files(self, table: str, rids: Sequence[int]) -> dict[int, tuple[File, ...]]:
        by_row: dict[int, tuple[File, ...]] = {}
        for raw in await self._ask_listed(self._statements(table).files, rids):
            file = File(*raw)
            by_row[file.rid] = (*by_row.get(file.rid, ()), file)
        return by_row

    async def file_scan(self, table: str, after: bytes, limit: int) -> list[File]:
        raws = await self._ask(self._statements(table).file_scan, after, limit)
        return [File(*raw) for raw in raws]

    async def reply(self, table: str, key: bytes, now: int) -> StoredReply | None:
        raws = await self._ask(self._statements(table).reply, key, now)
        return StoredReply(*raws[0]) if raws else None

    async def reply_scan(self, table: str, after: bytes, limit: int) -> list[StoredReply]:
        raws = await self._ask(self._statements(table).reply_scan, after, limit)
        return [StoredReply(*raw) for raw in raws]

    def _statements(self, table: str) -> _Sql:
        sql = self._tables.get(table)
        return self._missing(table) if sql is None or self._closed else sql

    def _missing(self, table: str) -> _Sql:
        raise closed() if self._closed else unknown(table)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise closed()
