"""The reference engine: the storage port as plainly as it can be said.

Nothing lasts, nothing is fast.

What these files do is what every other engine has to do; the conformance suite and the property
tests compare them. A commit works on a copy of the table (``memory_table``) and takes its place
only when nothing stood against it. Questions look at every row.
"""

import asyncio
from collections.abc import Sequence
from itertools import islice
from time import perf_counter
from typing import Any as Anything
from typing import NoReturn

from proxy.errors import Code, VaultError
from proxy.storage.base import CommitGuard, Engine, Hooks, RawTables, Replicas, RowTally
from proxy.storage.changes import Change
from proxy.storage.notes import CopiedNotes, NoteWrite
from proxy.storage.query import (
    AggregateFunction,
    AggregateGroup,
    AggregateMetric,
    Grouping,
    Order,
    RowPage,
    Select,
    ValidatedQuery,
    Where,
    check_names,
    closed,
    fitting,
    holds,
    unknown,
)
from proxy.storage.rows import (
    ERASED_AT,
    TOKEN_RIDS,
    ColumnValue,
    File,
    Past,
    Row,
    RowState,
    Staged,
    StoredReply,
    TableLayout,
)
from tests.support.memory_table import Table

# Questions to a table of the reference engine: every row is looked at, in plain Python.


def memory_select(table: Table, query: Select) -> RowPage:
    """The answer to ``Store.select``."""
    query = ValidatedQuery(table.layout).select(query)
    rids = _matching(table, query.where, query.now)
    for column, descending in reversed(query.order):
        places = {rid: _sort_key(_cell(table, rid, column)) for rid in rids}
        rids.sort(key=places.__getitem__, reverse=descending)
    total = len(rids) if query.counted else 0
    if query.most is not None and total > query.most:
        return RowPage([], total, more=True)
    if query.after is not None:
        rids = [rid for rid in rids if _behind(table, rid, query.order, query.after)]
    stop = None if query.limit is None else query.offset + query.limit
    page = [table.row(rid) for rid in rids[query.offset : stop]]
    page = page[: fitting([len(row.body) for row in page], query.room)]
    return RowPage(page, total, query.offset + len(page) < len(rids))


def _behind(table: Table, rid: int, order: Sequence[Order], after: Sequence[ColumnValue]) -> bool:
    """Whether a row comes behind the place where a page ended."""
    for (column, descending), last in zip(order, after, strict=False):
        here, there = _sort_key(_cell(table, rid, column)), _sort_key(last)
        if here != there:
            return (here > there) is not descending
    return rid > int(str(after[-1]))


def memory_aggregate(table: Table, query: Grouping) -> list[AggregateGroup]:
    """The answer to ``Store.aggregate``."""
    validated = ValidatedQuery(table.layout)
    validated.grouping(query)
    groups: dict[tuple[ColumnValue, ...], list[int]] = {} if query.keys else {(): []}
    for rid in _matching(table, validated.where(query.where), query.now):
        groups.setdefault(tuple(_cell(table, rid, column) for column in query.keys), []).append(rid)
    after = None if query.after is None else _places(query.after)
    wanted = (
        keys for keys in sorted(groups, key=_places) if after is None or _places(keys) > after
    )
    return [
        AggregateGroup(
            keys,
            tuple(_figure(table, groups[keys], metric) for metric in query.metrics),
            min(groups[keys], default=0),
        )
        for keys in islice(wanted, query.limit)
    ]


def _matching(table: Table, where: Where, now: int) -> list[int]:
    """The rows that may be shown and hold, oldest first."""
    return [
        rid
        for rid, row in sorted(table.rows.items())
        if row.state is RowState.LIVE
        and (row.expires_at is None or row.expires_at > now)
        and _holds(table, rid, where)
    ]


def _holds(table: Table, rid: int, where: Where) -> bool:
    return holds(
        where,
        lambda column: _cell(table, rid, column),
        lambda token: rid in table.tokens.get(token, ()),
    )


def _cell(table: Table, rid: int, column: str) -> ColumnValue:
    if column.startswith("@"):
        fixed: ColumnValue = getattr(table.rows[rid], column[1:])
        return fixed
    return table.cells[rid].get(column)


def _sort_key(cell: ColumnValue) -> tuple[bool, Anything]:
    """Return the sort key of a value; ``None`` comes first."""
    return cell is not None, cell


def _places(cells: Sequence[ColumnValue]) -> tuple[tuple[bool, Anything], ...]:
    return tuple(_sort_key(cell) for cell in cells)


def _figure(table: Table, rids: Sequence[int], metric: AggregateMetric) -> int | None:
    if metric.column is None:
        return len(rids)
    cells: list[Anything] = [
        cell for rid in rids if (cell := _cell(table, rid, metric.column)) is not None
    ]
    if metric.func is AggregateFunction.COUNT:
        return len(cells)
    if metric.func is AggregateFunction.SUM:
        return int(sum(cells))
    figure: int | None = (min if metric.func is AggregateFunction.MIN else max)(cells, default=None)
    return figure


class MemoryStore(CopiedNotes):
    """A ``Store`` that forgets everything when it is dropped."""

    def __init__(self, hooks: Hooks | None = None) -> None:
        super().__init__({})
        self.guard: CommitGuard | None = None
        self.at_once = None
        self.replicas: Replicas | None = None
        self._hooks = hooks or Hooks()
        self._tables: dict[str, Table] = {}
        self._doomed: dict[str, None] = {}  # in the order of their release
        self._closed = False

    async def close(self) -> None:
        self._closed = True

    async def ensure(self, layout: TableLayout) -> None:
        self._refuse_closed()
        check_names(layout)
        self._tables.setdefault(layout.table, Table(layout)).relay(layout)

    async def commit(self, table: str, changes: Sequence[Change]) -> None:
        since = perf_counter()
        work = self._table(table).copy()
        if self.guard is not None:
            self.guard(changes)
        for change in changes:
            work.apply(change)
        self._tables[table] = work
        self._doomed.update(dict.fromkeys(work.doomed))
        await asyncio.sleep(0)  # as every engine does: others run before a commit returns
        self._hooks.on_batch(1, perf_counter() - since)

    async def keep_tally(self, table: str, tally: RowTally, *, first: bool) -> int | None:
        del table, tally, first  # no other process can change its rows
        return 0

    async def check_tally(self, table: str) -> int | None:
        del table
        return 0

    async def rows(self, table: str, rids: Sequence[int]) -> dict[int, Row]:
        content = self._table(table)
        return {rid: content.row(rid) for rid in rids if rid in content.rows}

    async def by_keys(self, table: str, keys: Sequence[bytes]) -> dict[bytes, Row]:
        content = self._table(table)
        wanted = set(keys)
        bound = [rid for rid, row in content.rows.items() if row.key in wanted]
        return {key: row for row in map(content.row, bound) if (key := row.key) is not None}

    async def by_tokens(self, table: str, hashes: Sequence[bytes]) -> dict[bytes, tuple[int, ...]]:
        tokens = self._table(table).tokens
        return {
            token: tuple(sorted(tokens[token])[:TOKEN_RIDS]) for token in hashes if token in tokens
        }

    async def staged(self, table: str, rids: Sequence[int]) -> dict[int, tuple[Staged, ...]]:
        waiting = sorted(self._table(table).staged.values())
        by_row = {rid: tuple(staged for staged in waiting if staged.rid == rid) for rid in rids}
        return {rid: changes for rid, changes in by_row.items() if changes}

    async def unsettled(
        self, table: str, before: int, limit: int
    ) -> tuple[list[Row], list[Staged]]:
        content = self._table(table)
        pending = [
            row
            for row in content.rows.values()
            if row.state is RowState.PENDING and row.updated_at < before
        ]
        waiting = [staged for staged in content.staged.values() if staged.at < before]
        rows = sorted(pending, key=lambda row: (row.updated_at, row.rid))[:limit]
        return [content.row(row.rid) for row in rows], sorted(
            waiting, key=lambda one: (one.at, one.sid)
        )[:limit]

    async def expired(self, table: str, now: int, limit: int) -> list[int]:
        rows = self._table(table).rows.values()
        due = sorted(
            (row.expires_at, row.rid)
            for row in rows
            if row.expires_at is not None and row.expires_at <= now
        )
        return [rid for _, rid in due[:limit]]

    async def count(self, table: str) -> tuple[int, int, int]:
        content = self._table(table)
        rows = [row for row in content.rows.values() if row.updated_at < ERASED_AT]
        pending = sum(row.state is RowState.PENDING for row in rows)
        return len(rows), pending, len(content.staged)

    async def select(self, table: str, query: Select) -> RowPage:
        return memory_select(self._table(table), query)

    async def aggregate(self, table: str, query: Grouping) -> list[AggregateGroup]:
        return memory_aggregate(self._table(table), query)

    async def scan(self, table: str, after: int, limit: int) -> list[Row]:
        content = self._table(table)
        return [
            content.row(rid) for rid in sorted(rid for rid in content.rows if rid > after)[:limit]
        ]

    async def past(
        self, table: str, key: bytes, limit: int, offset: int, room: int | None = None
    ) -> tuple[list[Past], int]:
        versions = [past for past in self._table(table).past.values() if past.key == key]
        versions.sort(key=lambda past: (past.at, past.version, past.rid), reverse=True)
        page = versions[offset : offset + limit]
        return page[: fitting([len(past.body) for past in page], room)], len(versions)

    async def past_scan(self, table: str, after: tuple[int, int], limit: int) -> list[Past]:
        versions = self._table(table).past
        return [versions[at] for at in sorted(at for at in versions if at > after)[:limit]]

    async def files(self, table: str, rids: Sequence[int]) -> dict[int, tuple[File, ...]]:
        content = self._table(table)
        return {rid: tuple(files) for rid in rids if (files := content.files_of(rid))}

    async def file_scan(self, table: str, after: bytes, limit: int) -> list[File]:
        files = self._table(table).files
        return [files[name] for name in sorted(name for name in files if name > after)[:limit]]

    async def reply(self, table: str, key: bytes, now: int) -> StoredReply | None:
        reply = self._table(table).replies.get(key)
        return reply if reply is not None and reply.expires_at > now else None

    async def reply_scan(self, table: str, after: bytes, limit: int) -> list[StoredReply]:
        replies = self._table(table).replies
        return [replies[key] for key in sorted(key for key in replies if key > after)[:limit]]

    async def prune(self, table: str, before: int, now: int, limit: int) -> int:
        content = self._table(table)
        old = sorted((past.at, at) for at, past in content.past.items() if past.at < before)[:limit]
        due = sorted(
            (reply.expires_at, key)
            for key, reply in content.replies.items()
            if reply.expires_at <= now
        )[:limit]
        for _, at in old:
            del content.past[at]
        for _, key in due:
            del content.replies[key]
            content.shows.pop(key, None)
        return len(old) + len(due)

    async def doomed(self, limit: int) -> list[str]:
        self._refuse_closed()
        return list(self._doomed)[:limit]

    async def absolve(self, objects: Sequence[str]) -> None:
        self._refuse_closed()
        for name in objects:
            self._doomed.pop(name, None)

    async def drop(self, table: str) -> None:
        self._refuse_closed()
        check_names(TableLayout(table, ()))
        gone = self._tables.pop(table, None)
        if gone is not None:
            self._doomed.update(
                dict.fromkeys(gone.files[name].object for name in sorted(gone.files))
            )

    async def read_notes(self, names: Sequence[str] | None = None) -> dict[str, bytes]:
        self._refuse_closed()
        return await super().read_notes(names)

    async def write_notes(self, writes: Sequence[NoteWrite]) -> None:
        self._refuse_closed()
        await super().write_notes(writes)

    async def notes(self, ending: str) -> list[str]:
        self._refuse_closed()
        return await super().notes(ending)

    def raw(self) -> RawTables:
        _no_copy()

    def _table(self, table: str) -> Table:
        self._refuse_closed()
        if table not in self._tables:
            raise unknown(table)
        return self._tables[table]

    def _refuse_closed(self) -> None:
        if self._closed:
            raise closed()


def _no_copy() -> NoReturn:
    raise VaultError(Code.BAD_SETTINGS, "A vault that is kept in memory alone cannot be copied.")


async def _open(_sort_key: str, hooks: Hooks) -> MemoryStore:
    return MemoryStore(hooks)


#: Every store is new and empty; its place has no meaning.
MEMORY = Engine(
    _open,
    lambda _sort_key: False,
    lambda _sort_key: None,
    lambda _sort_key: {},
    lambda *_: _no_copy(),
)
