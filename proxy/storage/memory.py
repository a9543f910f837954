"""The reference engine: the storage port as plainly as it can be said. Nothing lasts, nothing is fast.

What this file does is what every other engine has to do; the conformance suite and the property tests compare them.
A commit works on a copy of the table and takes its place only when nothing stood against it.
"""

import asyncio
from collections.abc import Sequence
from functools import singledispatchmethod
from time import perf_counter

from proxy.errors import Code, VaultError
from proxy.storage.cells import Cells
from proxy.storage.changes import (
    Accept,
    Bind,
    Change,
    Conflict,
    Doubt,
    Insert,
    Reindex,
    Release,
    Remove,
    Replace,
    Stage,
    Unstage,
)
from proxy.storage.hooks import Hooks
from proxy.storage.names import changed_meanwhile, check_names, closed, unknown
from proxy.storage.rows import Cell, Layout, Row, Staged, State

#: A token hash answers at most this many records (``Store.by_tokens``).
_TOKEN_RIDS = 32


class _Table:
    """One table; every value in its dictionaries is immutable, so that a copy of them is a snapshot."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.types = {column.name: column.type for column in layout.columns}
        self.rows: dict[int, Row] = {}
        self.cells: dict[int, dict[str, Cell]] = {}
        self.staged: dict[int, Staged] = {}
        self.tokens: dict[bytes, frozenset[int]] = {}

    def copy(self) -> "_Table":
        other = _Table(self.layout)
        other.types = self.types
        other.rows, other.cells = dict(self.rows), dict(self.cells)
        other.staged, other.tokens = dict(self.staged), dict(self.tokens)
        return other

    def relay(self, layout: Layout) -> None:
        """Take another layout; columns that it does not name keep what they hold."""
        for column in layout.columns:
            if self.types.setdefault(column.name, column.type) is not column.type:
                raise VaultError(
                    Code.BAD_STORE,
                    f"Column {column.name} of the vault's table {layout.table} holds another type than {column.type}.",
                )
        self.layout = layout

    def row(self, rid: int) -> Row:
        """The row as the port shows it: cells in the order of the layout, staged changes counted."""
        columns = self.layout.columns
        cells = Cells(columns).read(tuple(self.cells[rid].get(column.name) for column in columns))
        waiting = sum(staged.rid == rid for staged in self.staged.values())
        return self.rows[rid]._replace(cells=cells, staged=waiting)

    def keep(self, row: Row) -> None:
        names = [column.name for column in self.layout.columns]
        stored = Cells(self.layout.columns).stored(row.cells)
        self.rows[row.rid] = row._replace(cells=(), staged=0)
        self.cells[row.rid] = dict(zip(names, stored, strict=True))

    def index(self, rid: int, shared: tuple[bytes, ...], unique: tuple[bytes, ...], change: Change) -> None:
        taken = tuple(token for token in dict.fromkeys(unique) if token in self.tokens)
        if taken:
            raise Conflict(change, taken)
        for token in (*shared, *unique):
            self.tokens[token] = self.tokens.get(token, frozenset()) | {rid}

    def unindex(self, rid: int, tokens: Sequence[bytes]) -> None:
        for token in tokens:
            left = self.tokens.get(token, frozenset()) - {rid}
            if left:
                self.tokens[token] = left
            else:
                self.tokens.pop(token, None)

    def holder(self, key: bytes) -> int | None:
        return next((rid for rid, row in self.rows.items() if row.key == key), None)

    @singledispatchmethod
    def apply(self, change: Change) -> None:
        raise TypeError(f"{type(change).__name__} is not a change")

    @apply.register
    def _(self, change: Insert) -> None:
        row = change.row
        if row.rid in self.rows or (row.key is not None and self.holder(row.key) is not None):
            raise Conflict(change)
        self.keep(row)
        self.index(row.rid, change.hashes, change.unique, change)

    @apply.register
    def _(self, change: Release) -> None:
        rid = self.holder(change.key)
        if rid is not None and rid != change.rid:
            self.rows[rid] = self.rows[rid]._replace(
                key=None, key_sealed=None, state=State.PENDING, updated_at=change.at
            )

    @apply.register
    def _(self, change: Accept) -> None:
        row = self.rows.get(change.rid)
        if row is not None and row.state is State.PENDING:
            self.rows[change.rid] = row._replace(state=State.LIVE, updated_at=change.at)

    @apply.register
    def _(self, change: Bind) -> None:
        row = self.rows.get(change.rid)
        if row is None or row.key not in {None, change.key}:
            raise Conflict(change)
        if self.holder(change.key) not in {None, change.rid}:
            raise Conflict(change)
        self.rows[change.rid] = row._replace(
            key=change.key, key_sealed=change.key_sealed, state=State.LIVE, updated_at=change.at
        )

    @apply.register
    def _(self, change: Replace) -> None:
        before = self.rows.get(change.row.rid)
        if before is None or before.version != change.expected:
            raise Conflict(change)
        self.keep(change.row._replace(key=before.key, key_sealed=before.key_sealed, state=before.state))

    @apply.register
    def _(self, change: Stage) -> None:
        if change.staged.rid not in self.rows or change.staged.sid in self.staged:
            raise Conflict(change)
        self.staged[change.staged.sid] = change.staged
        self.index(change.staged.rid, change.hashes, change.unique, change)

    @apply.register
    def _(self, change: Unstage) -> None:
        if self._beside(change.rid, change.sid):
            del self.staged[change.sid]

    @apply.register
    def _(self, change: Doubt) -> None:
        if self._beside(change.rid, change.sid):
            staged = self.staged[change.sid]
            self.staged[change.sid] = staged._replace(doubt=change.at, answered=change.answered)

    @apply.register
    def _(self, change: Reindex) -> None:
        if change.rid in self.rows:
            self.unindex(change.rid, change.drop)
            self.index(change.rid, change.add, (), change)

    @apply.register
    def _(self, change: Remove) -> None:
        if self.rows.pop(change.rid, None) is not None:
            del self.cells[change.rid]
            self.staged = {sid: staged for sid, staged in self.staged.items() if staged.rid != change.rid}
            self.unindex(change.rid, list(self.tokens))

    def _beside(self, rid: int, sid: int) -> bool:
        return sid in self.staged and self.staged[sid].rid == rid


class MemoryStore:
    """A ``Store`` that forgets everything when it is dropped."""

    def __init__(self, hooks: Hooks | None = None) -> None:
        self._hooks = hooks or Hooks()
        self._tables: dict[str, _Table] = {}
        self._notes: dict[str, bytes] = {}
        self._closed = False

    async def close(self) -> None:
        self._closed = True

    async def ensure(self, layout: Layout) -> None:
        self._refuse_closed()
        check_names(layout)
        self._tables.setdefault(layout.table, _Table(layout)).relay(layout)

    async def commit(self, table: str, changes: Sequence[Change]) -> None:
        since = perf_counter()
        work = self._table(table).copy()
        for change in changes:
            work.apply(change)
        self._tables[table] = work
        await asyncio.sleep(0)  # as every engine does: others run before a commit returns
        self._hooks.on_batch(1, perf_counter() - since)

    async def rows(self, table: str, rids: Sequence[int]) -> dict[int, Row]:
        held = self._table(table)
        return {rid: held.row(rid) for rid in rids if rid in held.rows}

    async def by_keys(self, table: str, keys: Sequence[bytes]) -> dict[bytes, Row]:
        held = self._table(table)
        wanted = set(keys)
        live = [rid for rid, row in held.rows.items() if row.state is State.LIVE and row.key in wanted]
        return {key: row for row in map(held.row, live) if (key := row.key) is not None}

    async def by_tokens(self, table: str, hashes: Sequence[bytes]) -> dict[bytes, tuple[int, ...]]:
        tokens = self._table(table).tokens
        return {token: tuple(sorted(tokens[token])[:_TOKEN_RIDS]) for token in hashes if token in tokens}

    async def staged(self, table: str, rids: Sequence[int]) -> dict[int, tuple[Staged, ...]]:
        waiting = sorted(self._table(table).staged.values())
        found = {rid: tuple(staged for staged in waiting if staged.rid == rid) for rid in rids}
        return {rid: changes for rid, changes in found.items() if changes}

    async def unsettled(self, table: str, before: int, limit: int) -> tuple[list[Row], list[Staged]]:
        held = self._table(table)
        pending = [row for row in held.rows.values() if row.state is State.PENDING and row.updated_at < before]
        waiting = [staged for staged in held.staged.values() if staged.at < before]
        rows = sorted(pending, key=lambda row: (row.updated_at, row.rid))[:limit]
        return [held.row(row.rid) for row in rows], sorted(waiting, key=lambda one: (one.at, one.sid))[:limit]

    async def expired(self, table: str, now: int, limit: int) -> list[int]:
        rows = self._table(table).rows.values()
        due = sorted((row.expires_at, row.rid) for row in rows if row.expires_at is not None and row.expires_at <= now)
        return [rid for _, rid in due[:limit]]

    async def count(self, table: str) -> tuple[int, int, int]:
        held = self._table(table)
        pending = sum(row.state is State.PENDING for row in held.rows.values())
        return len(held.rows), pending, len(held.staged)

    async def note(self, name: str) -> bytes | None:
        self._refuse_closed()
        return self._notes.get(name)

    async def put_note(self, name: str, content: bytes, expected: bytes | None) -> None:
        self._refuse_closed()
        if self._notes.get(name) != expected:
            raise changed_meanwhile(name)
        self._notes[name] = content

    def _table(self, table: str) -> _Table:
        self._refuse_closed()
        if table not in self._tables:
            raise unknown(table)
        return self._tables[table]

    def _refuse_closed(self) -> None:
        if self._closed:
            raise closed()


async def open_memory(place: str, hooks: Hooks) -> MemoryStore:
    """A new, empty store; ``place`` has no meaning."""
    del place
    return MemoryStore(hooks)
