"""Expiry of records, past versions and stored answers, and of writes that stay pending too long."""

from collections.abc import Sequence

from proxy.crypto.prf import either
from proxy.errors import CannotOpen
from proxy.storage.changes import Change, Conflict, Remove, Unstage
from proxy.storage.rows import Row, Staged
from proxy.vault.collection import Collection
from proxy.vault.erasure import is_genuine_change, leave_marks, may_end
from proxy.vault.proxied.deletes import overdue
from proxy.vault.proxied.token_entries import unneeded
from proxy.vault.seal import Tampered

#: Rows handled in one transaction, so that expiry never holds up other writers for long.
_BATCH = 200


async def delete_expired(collection: Collection) -> int:
    """Delete records whose time has come, with their past versions; how many.

    A record under change is left to the next round: its end may be put off. The others are checked
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
            row
            for row in rows.values()
            if not collection.alive(row) and await may_end(collection, row)
        ]
        if due:
            marks = await leave_marks(collection, due, over=True)
            changes: list[Change] = [*(Remove(row.rid) for row in due), *marks]
            await collection.store.commit(collection.table, changes)
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

    A version under a key that another record has got stays in its history. What stands beside a row
    that is locked, or does not open as it was sealed, stays: the next round tries again.
    """
    before = collection.clock() - keep
    reaped = 0
    while True:
        rows, staged = await collection.store.unsettled(collection.table, before, _BATCH)
        await collection.state.look()
        flight = collection.state.at_work
        ended = [row for row in rows if row.rid not in flight and await may_end(collection, row)]
        gone = {row.rid for row in ended}
        changes: list[Change] = [Remove(rid, keep_past=True) for rid in sorted(gone)]
        waiting = [
            one for one in staged if not (one.sid in flight or one.rid in flight or one.rid in gone)
        ]
        carried_out = await overdue(collection, waiting)
        waiting = [change for change in waiting if change.sid not in carried_out]
        dropped = await _drop(collection, waiting, changes, ended)
        if not dropped:
            break
        reaped += dropped
    if reaped:
        collection.observe("reaped", reaped)
    return reaped


async def _drop(
    collection: Collection, waiting: Sequence[Staged], changes: list[Change], ended: Sequence[Row]
) -> int:
    """Commit these changes, and drop the staged ones; the number of both.

    ``ended``: the records that end by the changes. The application may have them.
    """
    settled: dict[int, list[Staged]] = {}
    for one in waiting:
        settled.setdefault(one.rid, []).append(one)
    rows = await collection.store.rows(collection.table, list(settled)) if settled else {}
    changes += [Unstage(one.rid, one.sid) for one in waiting if one.rid not in rows]
    dropped = len(changes)
    locks, taken = collection.state.locks, []
    try:
        for rid, row in rows.items():
            if row.key is not None and not await locks.attempt(row.key):
                continue
            if row.key is not None:
                taken.append(row.key)
            genuine = [
                one.sid for one in settled[rid] if is_genuine_change(collection, one, row.salt)
            ]
            more = await _without(collection, row, set(genuine)) if genuine else []
            dropped += len(genuine) if more else 0
            changes += more
        if changes:
            marks = await leave_marks(collection, ended, over=True)
            await collection.store.commit(collection.table, [*changes, *marks])
    except Conflict:
        return 0  # an answer has settled one of them meanwhile
    finally:
        locks.release(taken)
    return dropped


async def _without(collection: Collection, row: Row, sids: set[int]) -> list[Change]:
    """The changes that drop staged ones of a locked row; none where it has changed meanwhile, or
    does not prove to be what was sealed.
    """
    try:
        _, key = collection.sealer.open_with_key(row)
        if row.key is not None and row.key not in either((collection.key_hash(key or ""),)):
            raise Tampered
        ended = await unneeded(collection, row, sids, untold=True)
    except CannotOpen as error:
        collection.observe("tampered" if isinstance(error, Tampered) else "unopenable")
        return []
    return [] if ended is None else [*(Unstage(row.rid, sid) for sid in sids), *ended]


async def pending(collections: Sequence[Collection]) -> dict[str, tuple[int, int, int]]:
    """(records, pending records, staged changes) by schema, for gauges and ``/readyz``."""
    return {item.name: await item.store.count(item.table) for item in collections}
