"""The sweep: expired records go, so do old past versions and answers, and what stays pending too
long is reported and reaped.
"""

from collections.abc import Sequence

from proxy.errors import Code, VaultError
from proxy.storage.changes import Change, Reindex, Remove, Unstage
from proxy.storage.rows import Row
from proxy.vault.collection import Collection
from proxy.vault.genuine import is_genuine_change, may_end
from proxy.vault.proxied.deletes import overdue
from proxy.vault.proxied.merge_duplicates import unneeded

#: Rows handled in one transaction, so that a sweep never holds up other writers for long.
_BATCH = 200


async def sweep_expired(collection: Collection) -> int:
    """Delete records whose time has come, with their past versions; how many.

    A record under change is left to the next sweep: its end may be put off. The others are checked
    once more under their locks.
    """
    swept = 0
    while rids := await collection.store.expired(collection.table, collection.clock(), _BATCH):
        gone = await _expire(collection, rids)
        swept += gone
        if not gone:
            break  # all of them are being changed
    if swept:
        collection.observe("expired", swept)
    return swept


async def _expire(collection: Collection, rids: Sequence[int]) -> int:
    locks = collection.state.locks
    rows = await collection.store.rows(collection.table, rids)
    free: list[Row] = []
    try:
        for row in rows.values():
            if row.key is None or await locks.attempt(row.key):
                free.append(row)  # noqa: PERF401  # what is locked is let go if this is stopped
        rows = await collection.store.rows(collection.table, [row.rid for row in free])
        due = [
            row.rid
            for row in rows.values()
            if not collection.alive(row) and await may_end(collection, row)
        ]
        if due:
            await collection.store.commit(collection.table, [Remove(rid) for rid in due])
        return len(due)
    finally:
        locks.release([row.key for row in free if row.key is not None])


async def prune(collection: Collection) -> int:
    """Remove past versions beyond their retention, and expired answers; return the number."""
    now = collection.clock()
    before = now - collection.context.history.keep
    pruned = 0
    while some := await collection.store.prune(collection.table, before, now, _BATCH):
        pruned += some
    return pruned


async def reap(collection: Collection, keep: int) -> int:
    """Drop changes that are pending longer than ``keep`` milliseconds, without any answer.

    Deletes that were acknowledged as some of several are carried out.

    A version under a key that another record has got stays in its history.
    """
    before = collection.clock() - keep
    reaped = 0
    while True:
        rows, staged = await collection.store.unsettled(collection.table, before, _BATCH)
        await collection.state.look()
        flight = collection.state.at_work
        changes: list[Change] = [
            Remove(row.rid, keep_past=True)
            for row in rows
            if row.rid not in flight and await may_end(collection, row)
        ]
        waiting = [change for change in staged if change.sid not in flight]
        ended = await overdue(collection, waiting)
        waiting = [change for change in waiting if change.sid not in ended]
        rows_of = await collection.store.rows(collection.table, [change.rid for change in waiting])
        changes.extend(
            Unstage(change.rid, change.sid)
            for change in waiting
            if change.rid not in rows_of
            or is_genuine_change(collection, change, rows_of[change.rid].salt)
        )
        if not changes:
            break
        reaped += len(changes)
        await _commit(collection, changes)
    if reaped:
        collection.observe("reaped", reaped)
    return reaped


async def _commit(collection: Collection, changes: list[Change]) -> None:
    """Drop it with the index entries of the dropped versions only, unless the record is locked."""
    settled: dict[int, set[int]] = {}
    for change in changes:
        if isinstance(change, Unstage):
            settled.setdefault(change.rid, set()).add(change.sid)
    rows = await collection.store.rows(collection.table, list(settled)) if settled else {}
    locks, taken = collection.state.locks, []
    try:
        for rid, row in rows.items():
            if row.key is not None and await locks.attempt(row.key):
                taken.append(row.key)
                changes.extend(await _unneeded(collection, row, settled[rid]))
        await collection.store.commit(collection.table, changes)
    finally:
        locks.release(taken)


async def _unneeded(collection: Collection, row: Row, settled: set[int]) -> list[Reindex]:
    try:
        return await unneeded(collection, row, settled)
    except VaultError as error:
        if error.code is not Code.CANNOT_OPEN:
            raise
        collection.observe("unopenable")
        return []


async def pending(collections: Sequence[Collection]) -> dict[str, tuple[int, int, int]]:
    """(records, pending records, staged changes) by schema, for gauges and ``/readyz``."""
    return {item.name: await item.store.count(item.table) for item in collections}
