"""Two records of the vault that are one record of the application.

A create whose answer got lost is kept without a name. When the record is then changed by its id,
before any answer has shown it, the vault has it twice: once without a name, once with the name that
the change told. An object that shows tokens of the first under the name of the second tells that
they are one. They are joined in one transaction.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from proxy.crypto.prf import either
from proxy.offload import give_way
from proxy.storage.changes import (
    Bind,
    Change,
    Conflict,
    Reindex,
    Release,
    Remove,
    Replace,
    StageRow,
    Unstage,
    UpdateFile,
)
from proxy.storage.rows import Row, RowState, Staged, StagedKind
from proxy.tokenization.base import TELLS_RECORD
from proxy.vault.body import (
    TOKEN_OF,
    RecordBody,
    TokenizedValue,
    alike,
    changed,
    next_generation,
    renumbered,
)
from proxy.vault.collection import Collection
from proxy.vault.earlier_values import RECORD_ID, keeping, stored_values
from proxy.vault.next_version import adopt
from proxy.vault.proxied.binding import StagedWrite, accepting, is_over, is_unsure_mark, releasing
from proxy.vault.proxied.open_rows import AnswerObject, OpenRow, Revealed, open_with_staged
from proxy.vault.proxied.recognize import note_lost_values, telling_hashes, visible_pending
from proxy.vault.records.attachment_metadata import adopted
from proxy.vault.verdicts import superseded, verdict_by_requests

_TRIES = 8  #: how often a record joins one that changes meanwhile

#: The changes that join two records: their ids, whether the object that shows them as one tells
#: what is live, and whether another change of the second may be under way.
Joins = Callable[[tuple[int, int], bool, bool], Awaitable[Sequence[Change]]]
#: The same of an object.
JoinsOf = Callable[[AnswerObject, tuple[int, int], bool, bool], Awaitable[Sequence[Change]]]


async def join_objects(
    collection: Collection,
    objects: Sequence[AnswerObject],
    revealed: Revealed,
    began: int,
    joins: JoinsOf,
) -> tuple[list[OpenRow | None], list[tuple[int, OpenRow]]]:
    """Merge records that an answer shows to be one, by ``joins`` where changes are in doubt of the
    one with the id. Return the record of each object, and the records without a name, with the
    number of their object, that are to be kept for good (``keep``) unless they get one.

    ``began`` is when the request of that answer was received: the application may have read an
    object before it took an acknowledged change, and a merge would put older values over that. Such
    an object tells that both are one, and not what is live.
    """
    rows = list(revealed.rows)
    ids = {ident for at, _ in revealed.loose if (ident := objects[at].id) is not None}
    rows_by_key = await collection.by_key(ids) if ids else {}
    homes = await open_with_staged(collection, (), rows_by_key.values()) if rows_by_key else {}
    await collection.state.look()
    joined, homed = set[int](), set[int]()
    for index, stray in revealed.loose:
        item = objects[index]
        row = rows_by_key.get(item.id) if item.id is not None else None
        home = homes.get(row.rid) if row is not None else None
        if home is not None and not _waits(collection, home):
            homed.add(index)
        if home is None:
            current = rows[index]
            if current is None or (item.id is not None and current.row.key is not None):
                rows[index] = stray
            continue
        if home.row.rid == stray.row.rid:  # it has got its name since the first look
            rows[index] = home
            homed.add(index)
            continue
        overtaken = began < max(home.row.updated_at, stray.row.updated_at)
        if not (overtaken or collection.keeps or _are_one(collection, home, stray, item)):
            rows[index] = stray  # the application has given the name to another record
            continue
        rows[index] = home
        if stray.row.rid in joined:
            continue
        if not overtaken and _may_take(collection, home) and _settled(collection, stray):
            joined.add(stray.row.rid)
            await _merge(collection, home, stray, item)
            continue
        pair = stray.row.rid, home.row.key or b""
        if await join_shown(collection, pair, not overtaken, began, partial(joins, item)):
            joined.add(stray.row.rid)
            homed.add(index)
        elif stray.row.rid in collection.state.at_work:  # and may never get its answer
            note_lost_values(collection, stray, home, item)
    left = [  # others of an id join its record later, or end: alone they would outlive it
        (index, stray)
        for index, stray in revealed.loose
        if objects[index].id is None or (rows[index] is not stray and index not in homed)
    ]
    later = {stray.row.rid for index, stray in revealed.loose if index in homed}
    visible = visible_pending(collection, objects, revealed, began)
    return rows, left + [one for one in visible if one[1].row.rid not in later]


async def join_shown(
    collection: Collection,
    pair: tuple[int, bytes],
    tells: bool,
    began: int,
    joins: Joins,
) -> bool:
    """Join a record without a name (``pair``) to the one with the id by which an answer shows it,
    where changes of that are in doubt. Return whether it ends with that one from now on.

    A change of that one that is at the application does not hinder it: then all values stay in
    doubt, and the change finds them as it is settled.
    """
    (rid, key), state, store = pair, collection.state, collection.store
    for _ in range(_TRIES):
        rows = await store.by_keys(collection.table, [key])
        await state.look()
        if key not in rows or began < state.ended.get(key, -1):
            return True  # it has ended meanwhile
        if (at := rows[key].rid) == rid:
            return True  # it has got that name itself
        if rid in state.at_work:
            return False
        if at in state.at_work:  # it is about to get its name
            await give_way()
            continue
        locked = await state.locks.attempt(key)
        try:
            changes = await joins((rid, at), tells and locked, not locked)
            if not changes:
                return False
            await store.commit(collection.table, changes)
        except Conflict:
            continue
        finally:
            if locked:
                state.locks.release((key,))
        state.retired.join(rid, at)
        collection.observe("reconciled")
        return True
    return False


def attempt_of(collection: Collection, label: str, key: bytes | None) -> bytes:
    """The hash that finds a new record that is sent again under that idempotency key of the
    application's, by the operation of that label; empty where there is no key.
    """
    return collection.token_hash(RECORD_ID, f"\0{label} {key.decode('latin-1')}") if key else b""


async def attempts_before(collection: Collection, write: StagedWrite) -> dict[int, int]:
    """The records without a name of earlier attempts to make the same one, each with that one."""
    hits = await collection.store.by_tokens(collection.table, [write.attempt])
    rids = {rid for several in hits.values() for rid in several if rid < write.rid}
    opened, texts = await open_with_staged(collection, rids, ()), _texts(write.content)
    same = (rid for rid, one in opened.items() if not one.row.key and _texts(one.live) == texts)
    return dict.fromkeys(same, write.rid)


def _texts(content: RecordBody | None) -> dict[str, list[str]]:
    values = content.values if content is not None else {}
    return {name: [one.text for one in several] for name, several in values.items()}


def gone_since(collection: Collection, objects: Sequence[AnswerObject], began: int) -> set[int]:
    """The numbers of objects whose records were deleted since ``began``: they prove nothing, and
    other records may have some of their tokens.
    """
    ended = collection.state.ended
    return {
        at
        for at, item in enumerate(objects if ended else ())
        if item.id is not None
        and any(began < ended.get(one, -1) for one in either((collection.key_hash(item.id),)))
    }


async def keep(collection: Collection, loose: Iterable[OpenRow], began: int) -> None:
    """Keep for good pending records of which an answer shows tokens, and not under which ids: the
    application has them.

    ``began`` is when the request of that answer was received.
    """
    await collection.state.look()
    began = collection.state.before(began, collection.clock())
    rows = {
        one.row.rid: one.row
        for one in loose
        if one.row.state is RowState.PENDING
        and one.row.updated_at <= began
        and one.row.rid not in collection.state.at_work
    }
    if rows:
        now = collection.clock()
        changes = [accepting(collection, rid, rows[rid].salt, now) for rid in sorted(rows)]
        await collection.store.commit(collection.table, changes)
        collection.observe("reconciled", len(rows))


async def rename(collection: Collection, rid: int, key: str) -> None:
    """The application names a record otherwise than the request did: it gets that name, or joins
    the record that has it.

    The caller holds the lock of the name.
    """
    rows = await collection.store.rows(collection.table, [rid])
    rows_by_key = await collection.by_key([key])
    opened = await open_with_staged(collection, (), [*rows.values(), *rows_by_key.values()])
    await collection.state.look()
    stray, home = opened.get(rid), opened.get(rows_by_key[key].rid) if key in rows_by_key else None
    if (
        stray is None
        or stray is home
        or not _settled(collection, stray)
        or not (home is None or _may_take(collection, home))
    ):
        return
    if home is not None:
        await _merge(collection, home, stray, AnswerObject(key, tuple(stray.live.value_tokens())))
        return
    now, row = collection.clock(), stray.row
    changes: list[Change] = []
    if row.key is not None:
        changes.append(releasing(collection, rid, row.salt, Release(row.key, 0, now)))
    sealed = collection.sealer.record(rid, row.salt).key(key, now)
    changes.append(Bind(rid, collection.key_hash(key), sealed, now))
    try:
        await collection.store.commit(collection.table, changes)
    except Conflict:
        return  # another request settled one of them meanwhile
    collection.observe("reconciled")


def _are_one(collection: Collection, home: OpenRow, stray: OpenRow, item: AnswerObject) -> bool:
    """Whether an object with the name of ``home``, and tokens of the nameless one, is both.

    It is when the nameless one is older: the application took a change of that name after it. Else
    the name may have passed on to a new record, unless the object shows what only ``home`` has.
    """
    return stray.row.rid < home.row.rid or any(
        (name, text) in home.values
        and (name, text) not in stray.values
        and collection.tokenizers[name].resolution in TELLS_RECORD
        for name, text in item.places
    )


def _settled(collection: Collection, one: OpenRow) -> bool:
    """Whether a record has no change in flight or in doubt; such a change is decided first."""
    return not one.row.staged and one.row.rid not in collection.state.at_work


def _may_take(collection: Collection, home: OpenRow) -> bool:
    """Whether a record may take another one in: of it nothing is under way, no delete is in doubt
    that ends it, and no update that may still be at work.
    """
    at_work, salt = collection.state.at_work, home.row.salt
    return home.row.rid not in at_work and all(
        (version is not None and staged.sid not in at_work and is_over(collection, staged))
        or is_unsure_mark(collection, staged, salt)
        for staged, version in home.staged
    )


def _waits(collection: Collection, home: OpenRow) -> bool:
    """Whether it is an update alone that has another record wait for this one."""
    updates = all(
        version is not None or is_unsure_mark(collection, staged, home.row.salt)
        for staged, version in home.staged
    )
    return updates and not _may_take(collection, home)


async def _merge(collection: Collection, home: OpenRow, stray: OpenRow, item: AnswerObject) -> None:
    mine, other = home.live.values, stray.live.values
    later = home.live.written_since(stray.row.rid, home.row.rid)
    cleared = {name for name, values in later.items() if not values}
    mine = {name: values for name, values in mine.items() if values}
    theirs = {
        name: other[name]
        for name in changed(mine, other) & other.keys()
        if not _shows(item, name, mine.get(name, ()), other[name])
        and (name not in cleared or _shows(item, name, other[name], ()))
    }
    same, here, both = alike(mine, other), {*item.places}, (home.live, stray.live)
    ours = {one for one in same if verdict_by_requests(here, both, one) is False}
    for name in ours | superseded(later, other, item.places):
        theirs.pop(name, None)
    versions = [version for _, version in home.staged if version is not None]
    moved, number = renumbered(theirs, next_generation([home.live, *versions]))
    rivals = {
        name
        for name in moved.keys() - same
        if mine.get(name) and not _shows(item, name, moved[name], mine[name])
    }
    taken = {name: values for name, values in moved.items() if name not in rivals}
    written = stray.live.with_create(stray.row.rid) if collection.single else {}
    content = adopt(home.live, taken, number, written)
    after = collection.next_row(home.row, keeping(collection, content, (stray.live,)))
    rid = home.row.rid
    hashes = telling_hashes(collection, stored_values(stray.live) if collection.keeps else moved)
    changes: list[Change] = [
        Replace(after, home.row.version),
        *await _files(collection, stray.row, after),
        *collection.parts.moves(rid, home.live, content),
    ]
    changes += [Remove(stray.row.rid), Reindex(rid, add=tuple(hashes))]
    # an older value that the application may have kept: in doubt until an answer shows the field
    doubtful = [(one, version, home.live) for one, version in home.staged if version is not None]
    if rivals:
        now, sid = collection.clock(), collection.context.sequence()
        older = adopt(content, {name: moved[name] for name in rivals}, number, written)
        one = Staged(sid, rid, StagedKind.UPDATE, now, now, True, b"")
        doubtful.append((one, older, content))
    changes += [Unstage(rid, one.sid) for one, version in home.staged if version is not None]
    left = [(one, _upon(content, version, base)) for one, version, base in doubtful]
    left = [(one._replace(sid=collection.context.sequence()), of) for one, of in left]
    sealer = collection.sealer.record(rid, home.row.salt)
    changes += [StageRow(sealer.staged(*pair)) for pair in left]
    try:
        await collection.store.commit(collection.table, changes)
    except Conflict:
        # the record has changed meanwhile; the next answer that shows it merges them
        return
    collection.state.retired.take_in(stray.row, rid, collection.clock())
    home.learn(content)
    home.staged = [*(pair for pair in home.staged if pair[1] is None), *left]  # marks stay
    home.row, home.live = after._replace(staged=len(home.staged)), content
    collection.observe("reconciled")


async def stage_lost_values(collection: Collection, home: OpenRow) -> None:
    """Put what a create without an answer has brought in doubt of its record, as an update without
    an answer would be: later changes may replace the values that led to the create.

    Not while the record is changed; the next answer shows it again.
    """
    row, live, at_work = home.row, home.live, collection.state.at_work
    if row.key is None or row.rid in at_work or any(one.sid in at_work for one, _ in home.staged):
        return
    written = dict.fromkeys(home.lost_values, home.lost_rid) if collection.single else {}
    version = adopt(live, *renumbered(home.lost_values, home.following), written)
    now, sid = collection.clock(), collection.context.sequence()
    one = Staged(sid, row.rid, StagedKind.UPDATE, now, now, True, b"")
    sealed = collection.sealer.record(row.rid, row.salt).staged(one, version)
    hashes = tuple(telling_hashes(collection, home.lost_values))
    # a change that has begun since has to notice
    later = Replace(collection.next_row(row, live), row.version)
    try:
        await collection.store.commit(collection.table, [later, StageRow(sealed, hashes)])
    except Conflict:
        return
    home.learn(version)
    home.row, home.lost_values = later.row._replace(staged=row.staged + 1), {}
    home.staged = [*home.staged, (one, version)]


def _upon(content: RecordBody, version: RecordBody, base: RecordBody) -> RecordBody:
    """A version in doubt upon another live one than it was made of (``base``)."""
    names = changed(base.values, version.values)
    own = {name: version.values.get(name, ()) for name in names}
    return adopt(content, own, max(version.following, content.following), version.written)


async def _files(collection: Collection, stray: Row, home: Row) -> list[UpdateFile]:
    """Return the changes that move the files of the stray record to the one that stays.

    Only a record that had a key can have files.
    """
    if stray.key is None:
        return []
    files = await collection.store.files(collection.table, [stray.rid, home.rid])
    if stray.rid not in files:
        return []
    return adopted(collection, (stray, home), files[stray.rid], files.get(home.rid, ()))


def _shows(
    item: AnswerObject, name: str, ours: Sequence[TokenizedValue], theirs: Sequence[TokenizedValue]
) -> bool:
    """Whether the object shows a token of a field that only the first has."""
    only = set(map(TOKEN_OF, ours)) - set(map(TOKEN_OF, theirs))
    return any(field == name and text in only for field, text in item.places)
