"""Looks up data under both hash roots during a rotation (``maintenance.hash_rotation``).

Hashes are ``Digest`` then, which know their other one. Writes use the root of the given hash;
uniqueness checks and look-ups use both. Moving rows only lose hashes of the older root, so that one
is read first: a missing one has moved to the newer one by then. With one root, everything goes
straight to the engine.
"""

import operator
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any as Anything

from proxy.crypto.prf import Digest, either
from proxy.errors import Code, VaultError
from proxy.storage.base import CommitGuard, Store
from proxy.storage.changes import (
    AddVersion,
    Attach,
    Bind,
    Change,
    Conflict,
    Insert,
    Reindex,
    Release,
    Remember,
    Remove,
    Replace,
    Reroot,
    StageRow,
    UpdateFile,
)
from proxy.storage.query import (
    AggregateFunction,
    AggregateGroup,
    All,
    Any,
    Grouping,
    Indexed,
    Is,
    RowPage,
    Select,
    Where,
    fitting,
)
from proxy.storage.rows import TOKEN_RIDS, ColumnValue, File, Past, Row, StoredReply
from proxy.vault.locks import SharedLocks

_METHODS = (
    "by_keys", "by_tokens", "select", "aggregate", "past", "reply",
)  # fmt: skip

#: Changes after which nothing that was opened of a row may be remembered.
_ENDING = (Remove, Replace)


class BothRoots:
    """A store as the records of one environment see it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: Commits of hashes that are not under the newest root, so far.
        self.late = 0
        #: by table, of keys that are about to be given to a record
        self._locks: dict[str, SharedLocks] = {}
        #: hears which rows are gone, or others
        self.ended: Callable[[Sequence[int]], object] = len
        #: asked for each request, and the same of any hash
        self.rows, self.staged, self.files = store.rows, store.staged, store.files
        self.at_once = store.at_once

    def __getattr__(self, name: str) -> Anything:
        return getattr(self._store, name)

    @property
    def guard(self) -> CommitGuard | None:
        """Asked before a commit is accepted."""
        return self._store.guard

    @guard.setter
    def guard(self, guard: CommitGuard | None) -> None:
        self._store.guard = guard

    def ask_both(self, *, on: bool) -> None:
        """Whether there are two roots from now on."""
        for name in _METHODS:
            setattr(self, name, getattr(self, f"_{name}") if on else getattr(self._store, name))
        self._write = self._commit if on else self._store.commit

    # ------------------------------------------------------------------ questions

    async def _by_keys(self, table: str, keys: Sequence[bytes]) -> dict[bytes, Row]:
        rows = await self._store.by_keys(table, list(either(keys)))
        by_digest = {key: rows.get(key) or rows.get(getattr(key, "other", key)) for key in keys}
        return {key: row for key, row in by_digest.items() if row is not None}

    async def _by_tokens(self, table: str, hashes: Sequence[bytes]) -> dict[bytes, tuple[int, ...]]:
        hits = await self._store.by_tokens(table, list(either(hashes)))
        rids_of = {
            digest: tuple(sorted({rid for one in either((digest,)) for rid in hits.get(one, ())}))
            for digest in hashes
        }
        return {digest: rids[:TOKEN_RIDS] for digest, rids in rids_of.items() if rids}

    async def _select(self, table: str, query: Select) -> RowPage:
        return await self._store.select(table, query._replace(where=_where(query.where)))

    async def _aggregate(self, table: str, query: Grouping) -> list[AggregateGroup]:
        return await self._store.aggregate(table, query._replace(where=_where(query.where)))

    async def _past(
        self, table: str, key: bytes, limit: int, offset: int, room: int | None = None
    ) -> tuple[list[Past], int]:
        counts = {one: (await self._store.past(table, one, 0, 0))[1] for one in either((key,))}
        having = [one for one, count in counts.items() if count]
        if len(having) == 1:  # nearly always: only what is shown is read
            page, total = await self._store.past(table, having[0], limit, offset, room)
            if total == counts[having[0]]:  # else it may have moved meanwhile
                return page, total
        parts = [await self._store.past(table, one, limit + offset, 0) for one in either((key,))]
        versions = [past for page, _ in parts for past in page]
        versions.sort(key=lambda past: (past.at, past.version, past.rid), reverse=True)
        page = versions[offset : offset + limit]
        return page[: fitting([len(past.body) for past in page], room)], sum(
            total for _, total in parts
        )

    async def _reply(self, table: str, key: bytes, now: int) -> StoredReply | None:
        for one in either((key,)):
            if (reply := await self._store.reply(table, one, now)) is not None:
                return reply
        return None

    # ------------------------------------------------------------------ commits

    def commit(self, table: str, changes: Sequence[Change]) -> Awaitable[None]:
        for change in changes:
            if type(change) in _ENDING:
                return self._end(table, changes)
        return self._write(table, changes)

    async def _end(self, table: str, changes: Sequence[Change]) -> None:
        try:
            await self._write(table, changes)
        finally:
            removed = [change.rid for change in changes if isinstance(change, Remove)]
            replaced = [change.row.rid for change in changes if isinstance(change, Replace)]
            self.ended([*removed, *replaced])

    async def _commit(self, table: str, changes: Sequence[Change]) -> None:
        """Commit what has no hash under the other root; of several replicas one makes
        both of its steps at a time, for another one may write under the other root.
        """
        replicas, keys = self._store.replicas, list(_new_keys(changes))
        if replicas is None or not keys:
            await self._store.commit(table, await self._bare(table, changes))
            return
        locks = self._locks.setdefault(table, SharedLocks(replicas, f"{table}\1"))
        async with locks.hold(keys):
            await self._store.commit(table, await self._bare(table, changes))

    async def _bare(self, table: str, changes: Sequence[Change]) -> list[Change]:
        released: set[bytes] = set()
        bare: list[Change] = []
        for change in changes:
            bare += await self._checked(table, change, released)
        return bare

    async def _checked(self, table: str, change: Change, released: set[bytes]) -> Sequence[Change]:
        """Return the changes with plain hashes.

        Raises ``Conflict`` if something that must be new exists under the other root.
        """
        match change:
            case Insert(row, hashes, unique):
                await self._refuse_taken(table, change, row.key, released)
                await self._refuse_known(table, change, unique)
                return (
                    Insert(self._row(row), self._bare_hashes(hashes), self._bare_hashes(unique)),
                )
            case StageRow(staged, hashes, unique):
                await self._refuse_known(table, change, unique)
                return (StageRow(staged, self._bare_hashes(hashes), self._bare_hashes(unique)),)
            case Bind(rid, key):
                holder = await self._refuse_taken(table, change, key, released, rid)
                moved = [] if holder is None else [_moved(holder, bytes(key))]
                return (*moved, *_past(key), change._replace(key=bytes(key)))
            case Release(key):
                released.update(either((key,)))
                return tuple(change._replace(key=one) for one in either((key,)))
            case Replace(row, expected):
                return (Replace(self._row(row), expected),)
            case Reindex(rid, add, drop):
                return (Reindex(rid, self._bare_hashes(add), tuple(either(drop))),)
            case AddVersion(past):
                return (*_past(past.key), AddVersion(past._replace(key=bytes(past.key))))
            case Attach(file) | UpdateFile(file):
                await self._refuse_named(table, change, file)
                return (change._replace(file=file._replace(name=bytes(file.name))),)
            case Remember(reply, now):
                if isinstance(reply.key, Digest) and await self._store.reply(
                    table, reply.key.other, now
                ):
                    raise Conflict(change)
                key, digest = self._bare_hashes((reply.key, reply.digest))
                return (change._replace(reply=reply._replace(key=key, digest=digest)),)
        return (change,)

    async def _refuse_taken(
        self,
        table: str,
        change: Change,
        key: bytes | None,
        released: set[bytes],
        rid: int | None = None,
    ) -> Row | None:
        """The row ``rid`` where it has the key under the other root."""
        if not isinstance(key, Digest) or key.other in released:
            return None
        holder = (await self._store.by_keys(table, (key.other,))).get(key.other)
        if holder is not None and holder.rid != rid:
            raise Conflict(change)
        return holder

    async def _refuse_known(self, table: str, change: Change, unique: Sequence[bytes]) -> None:
        others = {one.other: one for one in unique if isinstance(one, Digest)}
        taken = await self._store.by_tokens(table, list(others)) if others else {}
        if taken:
            raise Conflict(change, tuple(others[one] for one in taken))

    async def _refuse_named(self, table: str, change: Change, file: File) -> None:
        if isinstance(file.name, Digest):
            files = (await self._store.files(table, (file.rid,))).get(file.rid, ())
            if any(one.name == file.name.other and one.file_id != file.file_id for one in files):
                raise Conflict(change)

    def _row(self, row: Row) -> Row:
        key = None if row.key is None else self._bare_hashes((row.key,))[0]
        cells = tuple(
            self._bare_hashes((cell,))[0] if isinstance(cell, bytes) else cell for cell in row.cells
        )
        return row._replace(key=key, cells=cells)

    def _bare_hashes(self, hashes: Iterable[bytes]) -> tuple[bytes, ...]:
        """The hashes as engines keep them."""
        digests = tuple(hashes)
        self.late += any(isinstance(one, Digest) and one.late for one in digests)
        return tuple(map(bytes, digests))


def _new_keys(changes: Iterable[Change]) -> Iterator[Digest]:
    """The keys with two hashes that these changes give to a record."""
    for change in changes:
        key = change.row.key if isinstance(change, Insert) else None
        key = change.key if isinstance(change, Bind) else key
        if isinstance(key, Digest):
            yield key


def _marks(touched: int | bytes) -> Iterable[int | bytes]:
    return (touched,) if isinstance(touched, int) else either((touched,))


def _moved(holder: Row, key: bytes) -> Reroot:
    """Return the change that gives a row its own key under the root of another hash of it."""
    return Reroot(holder.rid, (holder, holder._replace(key=key)))


def _past(key: bytes) -> list[Change]:
    """Return the changes that unite past versions under one root, before another is added."""
    return [Reroot(0, past=(key.other, bytes(key)))] if isinstance(key, Digest) else []


def _where(where: Where) -> Where:
    """The condition, which holds under either root."""
    if isinstance(where, Is):
        return where._replace(values=tuple(_cells(where.values)))
    if isinstance(where, Indexed):
        digests = [one for one in where.hashes if isinstance(one, Digest)]
        if not digests:
            return where
        rest = Indexed(tuple(one for one in where.hashes if not isinstance(one, Digest)))
        each = [Any((Indexed((one.other,)), Indexed((bytes(one),)))) for one in digests]
        if not where.negated:
            return All((rest, *each) if rest.hashes else tuple(each))
        none = [
            All((Indexed((one.other,), negated=True), Indexed((bytes(one),), negated=True)))
            for one in digests
        ]
        return Any((rest._replace(negated=True), *none) if rest.hashes else tuple(none))
    if isinstance(where, All | Any):
        return type(where)(tuple(map(_where, where.parts)))
    return where


def _cells(values: Iterable[ColumnValue]) -> Iterable[ColumnValue]:
    for value in values:
        yield from either((value,)) if isinstance(value, bytes) else (value,)


# Groups of records by hashes, while a value may stand under two of them.

#: Groups that are read at once then: all, so that no row moves from one to another meanwhile.
_MOST_GROUPS = 10_000
#: Combination of two figures of one group.
_JOINED: dict[AggregateFunction, Callable[[int, int], int]] = {
    AggregateFunction.COUNT: operator.add,
    AggregateFunction.SUM: operator.add,
    AggregateFunction.MIN: min,
    AggregateFunction.MAX: max,
}
#: The keys of a group under the current root, from its oldest row.
OwnKeys = Callable[[AggregateGroup, Row | None], tuple[ColumnValue, ...]]


async def joined_groups(
    store: Store, table: str, query: Grouping, own_keys: OwnKeys
) -> list[AggregateGroup]:
    """``Store.aggregate`` with one group for a value that stands under two hashes.

    Raises ``VaultError`` (TOO_BROAD) where there are too many groups to be joined.
    """
    whole = query._replace(after=None, limit=_MOST_GROUPS)
    groups = await store.aggregate(table, whole)
    if len(groups) == _MOST_GROUPS:
        raise VaultError(
            Code.TOO_BROAD,
            "While the hash root is rotated there may be at most "
            f"{_MOST_GROUPS:,} groups; add conditions, or ask again when that is done.",
        )
    oldest = await store.rows(table, [group.rid for group in groups])
    joined: dict[tuple[ColumnValue, ...], AggregateGroup] = {}
    for group in groups:
        keys = own_keys(group, oldest.get(group.rid))
        joined[keys] = _joined(query, joined.get(keys), group._replace(keys=keys))
    ordered = sorted(joined.values(), key=lambda group: _order_of(group.keys))
    if query.after is not None:
        ordered = [group for group in ordered if _order_of(group.keys) > _order_of(query.after)]
    return ordered[: query.limit]


def _joined(query: Grouping, one: AggregateGroup | None, other: AggregateGroup) -> AggregateGroup:
    if one is None:
        return other
    figures = [
        _JOINED[metric.func](first, second)
        if first is not None and second is not None
        else (second if first is None else first)
        for metric, first, second in zip(query.metrics, one.figures, other.figures, strict=True)
    ]
    return AggregateGroup(other.keys, tuple(figures), min(one.rid, other.rid))


def _order_of(keys: tuple[ColumnValue, ...]) -> tuple[tuple[bool, Anything], ...]:
    """Return the sort key of a group, as engines sort: ``None`` first."""
    return tuple((key is not None, 0 if key is None else key) for key in keys)
