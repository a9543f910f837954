"""Deletes that the application accepted: remove the record, or mark it (``keep``).

A marked record is read, found, corrected and erased as any other; an update that the application
takes gives it back. A delete in doubt is decided by an answer that says that the record is gone
(404, 410), or by a list of all records that lacks it.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from proxy.errors import Code, VaultError
from proxy.offload import busy, give_way, run_in_thread
from proxy.storage.changes import Change, Conflict, MarkInDoubt, Remove, Replace, StageRow, Unstage
from proxy.storage.rows import SEEN_IN_PAGE, Row, Staged, StagedKind
from proxy.vault.collection import LONG, LOOKED_UP, Collection
from proxy.vault.erasure import is_genuine_change, may_end
from proxy.vault.locks import ENDED
from proxy.vault.proxied.binding import (
    RECONCILE_GRACE,
    StagedWrite,
    finish,
    is_promise_of,
    is_promised,
    is_promised_alone,
    is_unsure_mark,
    overtake,
    overtaking,
    promise,
    removes,
)
from proxy.vault.proxied.reconcile import is_doubtful
from proxy.vault.proxied.staging import doubt, stage_deletes

_DELETE = StagedKind.DELETE
#: How often a record that changed meanwhile is tried again.
_TRIES = 8
#: How old a list may be that a cache of the application gives, in milliseconds: one from before a
#: record was made, or given back, lacks it, too.
OLDEST_LIST = 3_600_000
#: Staged changes that are looked through for deletes in doubt, the oldest first.
_LOOK = 1000


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
            if item.row.key is not None:
                collection.state.end(item.row.key, collection.clock())
    if gone:
        keys = [key for item in gone if item.row is not None and (key := item.row.key) is not None]
        await finish(collection, gone, [Remove(item.rid) for item in gone], keys)
        collection.observe("deleted", len(gone))


async def deleted_unknown(
    collection: Collection, keys: Sequence[str], keep: int | None = None
) -> None:
    """The application deleted records that the vault did not know: of one that got such an id while
    the delete was under way, that is in doubt.
    """
    overtake(collection, keys)
    if collection.state.replicas is not None:
        await collection.store.commit(collection.table, [overtaking(collection, keys)])
    others = collection.state.in_flight or collection.state.replicas is not None
    stage = stage_behind if others else stage_deletes
    if writes := await stage(collection, keys, keep):
        await doubt(collection, writes, answered=True)


async def stage_behind(
    collection: Collection, keys: Sequence[str], keep: int | None
) -> list[StagedWrite]:
    """Stage deletes of ids that the vault did not know, once these are announced: whoever gives
    such a name from now on knows of them, and who was about to has done it behind these commits.
    """
    changes: list[Change] = [Unstage(0, 0)]  # nothing, behind those that were accepted before
    if (replicas := collection.state.replicas) is not None:
        changes.append(overtaking(collection, keys, ENDED))
    await collection.store.commit(collection.table, changes)
    if replicas is not None:
        await replicas.settled()
    return await stage_deletes(collection, keys, keep)


async def _mark(collection: Collection, item: StagedWrite, delete: tuple[int, int]) -> None:
    for _ in range(_TRIES):
        try:
            marks = await _marked(collection, item.rid, delete, unsure=item.both)
            return await finish(collection, [item], marks)
        except Conflict:
            continue  # an answer has settled something else of it meanwhile
    raise VaultError(Code.CONFLICT, "The record kept changing while it was being deleted.")


def _stands(collection: Collection, delete: Staged, row: Row) -> bool:
    """Whether a delete in doubt may have been carried out: a promised one was not where the record
    has changed since, unless that change may have been refused, too.
    """
    keep = collection.sealer.open_keep(delete, row.salt)
    return not is_promised(keep) or delete.at >= SEEN_IN_PAGE or is_promise_of(keep, row)


async def _is_marked(collection: Collection, row: Row, staged: Sequence[Staged]) -> bool:
    """Whether a record is marked, or was before an update in doubt, which may have been refused."""
    try:
        content = await run_in_thread(len(row.body) > LONG, collection.sealer.open, row)
    except VaultError as error:
        if error.code is not Code.CANNOT_OPEN:
            raise
        return False  # what may end all the same
    before = (collection.sealer.open_staged(one, row.salt) for one in staged)
    return bool(content.deleted or any(of is not None and of.deleted for of in before))


async def _marked(
    collection: Collection, rid: int, delete: tuple[int, int], *, unsure: bool = False
) -> list[Change]:
    """Mark a record as deleted by a staged delete (its id, and how long to keep values).

    0 keeps them until another delete. A second mark postpones nothing. ``unsure``: nothing tells
    that the application has made it, so that what shows the record puts its end off (``put_off``).
    """
    sid, keep = delete
    rows = await collection.store.rows(collection.table, [rid])
    if rid not in rows:
        return []
    several = rows[rid].staged > 1
    staged = (await collection.staged_beside(rows)).get(rid, ()) if several else ()
    row = rows[rid]
    long = len(row.body) > LONG
    content = await run_in_thread(long, collection.sealer.open, row)
    now = collection.clock()
    ends = [one for one in (content.until, now + keep if keep else 0) if one]
    marks: list[Change] = []
    if unsure and keep and not content.deleted:
        one = Staged(collection.context.sequence(), rid, _DELETE, SEEN_IN_PAGE, now, True, b"")
        marks = [StageRow(collection.sealer.record(rid, row.salt).staged(one, None, keep))]
    elif not unsure:
        before = (one for one in staged if is_unsure_mark(collection, one, row.salt))
        marks = [Unstage(rid, one.sid) for one in before]
    content = replace(content, deleted=content.deleted or now, until=min(ends, default=0))
    following = await run_in_thread(long, collection.next_row, row, content)
    return [Replace(following, row.version), Unstage(rid, sid), *marks]


async def promised(collection: Collection, writes: Sequence[StagedWrite]) -> None:
    """The application acknowledged a delete of several records, and does not say which it deleted.

    Each is in doubt. What no answer shows until then is removed after ``pending.keep``
    (``overdue``), unless the application only marks records: no answer tells which are marked.
    """
    now, changes = collection.clock(), list[Change]()
    for item in writes:
        if item.sid is not None and item.keep is not None:
            changes.append(MarkInDoubt(item.rid, item.sid, now, answered=True))
        elif item.sid is not None and item.row is not None:
            sid = collection.context.sequence()
            one = Staged(sid, item.rid, _DELETE, now, now, True, b"")
            sealer = collection.sealer.record(item.rid, item.salt)
            keep = promise(item.row, alone=len(writes) == 1)
            changes += [Unstage(item.rid, item.sid), StageRow(sealer.staged(one, None, keep))]
        if busy():
            await give_way()
    await finish(collection, writes, changes)
    collection.state.deletes = True
    collection.observe("in_doubt", len(writes))


async def overdue(collection: Collection, staged: Sequence[Staged]) -> set[int]:
    """Remove the records of promised deletes among these, which no answer has shown; the numbers of
    the deletes that are done, or wait because their record is locked.

    A record that was changed since stays, and so does one of which an update is in doubt. The last
    of several deletes counts. Versions that were kept before it go with the record.
    """
    waiting = [one for one in staged if one.kind is _DELETE]
    rows = await collection.store.rows(collection.table, [one.rid for one in waiting])
    ended: set[int] = set()
    for one in waiting:
        row = rows.get(one.rid)
        if row is None or row.key is None or not is_genuine_change(collection, one, row.salt):
            continue
        if not is_promised(collection.sealer.open_keep(one, row.salt)):
            continue
        if not await collection.state.locks.attempt(row.key):
            ended.add(one.sid)
            continue
        try:
            if await _removed(collection, one):
                ended.add(one.sid)
        finally:
            collection.state.locks.release((row.key,))
    return ended


async def _removed(collection: Collection, delete: Staged) -> bool:
    """Remove the locked record of a promised delete, unless it has changed since.

    Its version tells, whatever the clocks say.
    """
    rows = await collection.store.rows(collection.table, [delete.rid])
    staged = (await collection.staged_beside(rows)).get(delete.rid, ())
    row = rows.get(delete.rid)
    if row is None or row.updated_at > delete.at:
        return False
    keep = collection.sealer.open_keep(delete, row.salt)
    if not is_promise_of(keep, row):
        return False
    for one in staged:
        if one.sid == delete.sid or _leaves_gone(collection, one, delete, row.salt):
            continue
        # an earlier update, that may still have been at work, ends by itself: it waits for that
        earlier = one.kind is StagedKind.UPDATE and one.sid < delete.sid
        return earlier and is_promised_alone(keep)
    if not await may_end(collection, row):
        return False
    await collection.store.commit(collection.table, [Remove(row.rid)])
    collection.observe("deleted", 1)
    return True


def _leaves_gone(collection: Collection, other: Staged, delete: Staged, salt: bytes) -> bool:
    """Whether the record is gone by this promised delete whatever came of another change in doubt:
    of an update that was over before, or of a delete, unless that is a later promise or mark.
    """
    if other.kind is _DELETE:
        lasting = collection.sealer.open_keep(other, salt)
        return other.sid < delete.sid or lasting is None
    ended = other.answered or delete.at - (other.doubt or other.at) > RECONCILE_GRACE
    return other.sid < delete.sid and (ended or other.at >= SEEN_IN_PAGE)


async def reconcile_gone(collection: Collection, keys: Sequence[str], began: int) -> None:
    """The application says that these records do not exist (404, 410): a delete in doubt has
    happened, unless they are marked as deleted.
    """
    rows = await collection.by_key(keys)
    await _reconcile(collection, [row for row in rows.values() if row.staged], began)


async def reconcile_absent(collection: Collection, keys: Iterable[str], began: int) -> None:
    """The application lists all of its records, and these are their ids: deletes in doubt of others
    have happened.

    Nothing is decided by a list without any record that the vault knows, for its ids may be others
    than those of the rules, nor for a record that was changed within ``OLDEST_LIST``, or that is
    marked as deleted, and so not listed.
    """
    doubtful = await _records_to_be_deleted(collection)
    listed = list(keys)
    if not doubtful or not await collection.by_key(listed[:LOOKED_UP]):
        return
    rows = await collection.store.rows(collection.table, list(doubtful))
    spellings = set(map(_spelling, listed))
    absent: list[Row] = []
    for row in rows.values():
        key = await _key_of_old(collection, row, began)
        if key is not None and _spelling(key) not in spellings:
            absent.append(row)
    await _reconcile(collection, absent, began, alone=True)


async def _records_to_be_deleted(collection: Collection) -> set[int]:
    """The records of which deletes are staged, as far as those are among the ``_LOOK`` oldest."""
    state, left = collection.state, True
    state.deletes = False  # another one may be staged while this looks
    try:
        before = collection.clock() + 1
        _, staged = await collection.store.unsettled(collection.table, before, _LOOK)
        deletes = {one.rid for one in staged if one.kind is _DELETE}
        left = bool(deletes) or len(staged) == _LOOK
    finally:
        state.deletes = state.deletes or left
    return deletes


async def _key_of_old(collection: Collection, row: Row, began: int) -> str | None:
    """The key of a record of this very collection that every list of all records shows."""
    if row.key is None or row.updated_at > began - OLDEST_LIST:
        return None
    try:
        content, key = await run_in_thread(
            len(row.body) > LONG, collection.sealer.open_with_key, row
        )
    except VaultError as error:
        if error.code is not Code.CANNOT_OPEN:
            raise
        return None  # it is reported where it is read
    if key is None or content.deleted or collection.key_hash(key) != row.key:
        return None
    return key


def _spelling(key: str) -> str:
    """The id of a record without what applications leave open: zeros before it, and letter case."""
    return (key.lstrip("0") or "0").casefold() if key.isdecimal() else key.casefold()


async def _reconcile(
    collection: Collection, rows: Sequence[Row], began: int, *, alone: bool = False
) -> None:
    """Carry out the deletes in doubt of these records, of which nothing else is under way.

    ``alone``: nothing else is in doubt either.
    """
    by_rid = {row.rid: row for row in rows}
    staged = await collection.store.staged(collection.table, list(by_rid)) if by_rid else {}
    if not staged:
        return
    await collection.state.look()
    began = collection.state.before(began, collection.clock())
    locks, taken = collection.state.locks, list[bytes]()
    try:
        for rid in staged:
            key = by_rid[rid].key
            if key is not None and await locks.attempt(key):
                taken.append(key)
        staged = await collection.store.staged(collection.table, list(staged))
        chosen = {
            rid: by_rid[rid]
            for rid, writes in staged.items()
            if not alone or all(one.kind is _DELETE for one in writes)
        }
        await _carry_out(collection, chosen, taken, began)
    finally:
        locks.release(taken)


async def _carry_out(
    collection: Collection, rows: Mapping[int, Row], locked: Sequence[bytes], began: int
) -> None:
    """The same, as far as records are locked; as they are now."""
    now = await collection.store.rows(collection.table, list(rows))
    free = {
        rid: row
        for rid, row in now.items()
        if row.key in locked and (row.version, row.key) == (rows[rid].version, rows[rid].key)
    }
    staged = await collection.store.staged(collection.table, list(free)) if free else {}
    changes: list[Change] = []
    for rid, writes in staged.items():
        changes += await _gone(collection, free[rid], writes, began)
    if not changes:
        return
    try:
        await collection.store.commit(collection.table, changes)
    except Conflict:
        return  # one of them is being changed: the next such answer decides
    collection.observe("reconciled", sum(type(one) is not Unstage for one in changes))


async def _gone(
    collection: Collection, row: Row, staged: Sequence[Staged], began: int
) -> Sequence[Change]:
    """Return the changes for a deleted record whose deletes were in doubt when this was asked.

    The last delete says how long its values stay. Of a marked record nothing is proven: it is in
    the application's bin, where its usual path is answered with 404 as well.
    """
    deletes = [one for one in staged if one.kind is _DELETE]
    deletes = [one for one in deletes if is_doubtful(collection, one, began)]
    genuine = [one for one in deletes if is_genuine_change(collection, one, row.salt)]
    genuine = [one for one in genuine if _stands(collection, one, row)]
    if not genuine or not await may_end(collection, row):
        return ()
    if await _is_marked(collection, row, staged):
        return ()
    keep = collection.sealer.open_keep(genuine[-1], row.salt)
    if keep is None or removes(keep):
        return (Remove(row.rid),)
    sids = [one.sid for one in genuine]
    marks = await _marked(collection, row.rid, (sids.pop(), keep))
    return (*marks, *(Unstage(row.rid, sid) for sid in sids))
