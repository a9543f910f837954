"""Deletes that the application accepted: remove the record, or mark it (``keep``).

A marked record is read, found, corrected and erased as any other; an update that the application
takes gives it back. A delete in doubt is decided by an answer that says that the record is gone.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from proxy.errors import Code, VaultError
from proxy.offload import busy, give_way, run_in_thread
from proxy.storage.changes import Change, Conflict, Remove, Replace, Unstage
from proxy.storage.rows import Row, Staged, StagedKind
from proxy.vault.collection import LONG, Collection
from proxy.vault.genuine import is_genuine_change, may_end
from proxy.vault.proxied.binding import StagedWrite, finish
from proxy.vault.proxied.reconcile import is_doubtful

#: How often a record that changed meanwhile is tried again.
_TRIES = 8


async def deleted(collection: Collection, writes: Sequence[StagedWrite]) -> None:
    """The application deleted the records, or marked them where their rule says so."""
    lasting = [item for item in writes if item.keep is not None]
    for item in lasting:
        if item.sid is not None and item.keep is not None:
            await _mark(collection, item, (item.sid, item.keep))
        if busy():
            await give_way()
    if lasting:
        collection.observe("marked", len(lasting))
    gone = [item for item in writes if item.keep is None]
    for item in gone:
        if item.row is not None:
            await may_end(collection, item.row)  # reports parts of another record
    if gone:
        await finish(collection, gone, [Remove(item.rid) for item in gone])
        collection.observe("deleted", len(gone))


async def _mark(collection: Collection, item: StagedWrite, delete: tuple[int, int]) -> None:
    for _ in range(_TRIES):
        try:
            return await finish(collection, [item], await _marked(collection, item.rid, delete))
        except Conflict:
            continue  # an answer has settled something else of it meanwhile
    raise VaultError(Code.CONFLICT, "The record kept changing while it was being deleted.")


async def _marked(collection: Collection, rid: int, delete: tuple[int, int]) -> list[Change]:
    """Mark a record as deleted by a staged delete (its id, and how long to keep values).

    0 keeps them until another delete. A second mark postpones nothing.
    """
    sid, keep = delete
    row = (await collection.store.rows(collection.table, [rid])).get(rid)
    if row is None:
        return []
    long = len(row.body) > LONG
    content = await run_in_thread(long, collection.sealer.open, row)
    now = collection.clock()
    ends = [one for one in (content.until, now + keep if keep else 0) if one]
    content = replace(content, deleted=content.deleted or now, until=min(ends, default=0))
    following = await run_in_thread(long, collection.next_row, row, content)
    return [Replace(following, row.version), Unstage(rid, sid)]


async def reconcile_gone(collection: Collection, keys: Sequence[str], began: int) -> None:
    """The application says that these records do not exist (404, 410): a delete in doubt has
    happened.
    """
    rows = await collection.by_key(keys)
    waiting = [row.rid for row in rows.values() if row.staged]
    staged = await collection.store.staged(collection.table, waiting) if waiting else {}
    by_rid = {row.rid: row for row in rows.values()}
    await collection.state.look()
    began = collection.state.before(began)
    changes: list[Change] = []
    for rid, writes in staged.items():
        doubtful = [one for one in writes if one.kind is StagedKind.DELETE]
        doubtful = [one for one in doubtful if is_doubtful(collection, one, began)]
        changes += await _gone(collection, by_rid[rid], doubtful)
    if not changes:
        return
    try:
        await collection.store.commit(collection.table, changes)
    except Conflict:
        return  # one of them is being changed: the next such answer decides
    collection.observe("reconciled", sum(type(one) is not Unstage for one in changes))


async def _gone(collection: Collection, row: Row, deletes: Sequence[Staged]) -> Sequence[Change]:
    """Return the changes for a deleted record whose deletes were in doubt.

    The last delete says how long its values stay.
    """
    genuine = [one for one in deletes if is_genuine_change(collection, one, row.salt)]
    if not genuine or not await may_end(collection, row):
        return ()
    keep = collection.sealer.open_keep(genuine[-1], row.salt)
    if keep is None:
        return (Remove(row.rid),)
    sids = [one.sid for one in genuine]
    marks = await _marked(collection, row.rid, (sids.pop(), keep))
    return (*marks, *(Unstage(row.rid, sid) for sid in sids))
