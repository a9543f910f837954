"""Binding of new records to the application's ids, and the memory of records in flight.

``StagedWrite`` is one record's part in an exchange. Whether a name can still be given is decided in
one breath with the commit that gives it: what takes time is done before.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

import msgspec

from proxy.crypto.prf import either
from proxy.offload import busy, give_way
from proxy.storage.changes import (
    Accept,
    AddVersion,
    Bind,
    Change,
    Insert,
    Release,
    StageRow,
    Underway,
)
from proxy.storage.rows import SEEN_IN_PAGE, Past, Row, RowState, Staged, StagedKind
from proxy.vault.body import RecordBody, TokenizedValue
from proxy.vault.collection import LONG, Collection
from proxy.vault.erasure import may_end
from proxy.vault.locks import ENDED
from proxy.vault.seal import RecordSealer

#: Records that are processed between two turns of the event loop.
BIND_STRIDE = 8
#: Deletes of unknown records that are remembered before those are forgotten that no longer matter
#: to anybody.
_MOST_GONE = 1000


class StagedWrite(msgspec.Struct, eq=False):
    """The part of one record in an exchange, from staging to settling."""

    rid: int
    content: RecordBody | None  #: next content of the record; ``None`` for a delete
    #: the draft's values with their tokens, in the draft's order
    tokens: Mapping[str, tuple[TokenizedValue, ...]]
    row: Row | None  #: the live row as it was; ``None`` for a new record
    live: RecordBody | None = None
    sid: int | None = None  #: the staged change; ``None``: a new record, or nothing changes
    key: str | None = None
    own: frozenset[str] = frozenset()
    masked: frozenset[str] = frozenset()  #: fields in which the mask of a value came back
    salt: bytes = b""
    sealer: RecordSealer | None = None  #: of a new record
    displaces: bool = False  #: whether it got the id of another record that the vault has
    twins: tuple[int, int] = (0, 0)  #: a nameless record, and the newer one with its name; 0: none
    promoted: RecordBody | None = None  #: live version after the update, once accepted
    attempt: bytes = b""  #: finds a new record that is sent again
    keep: int | None = None  #: of a delete: for how long values stay; 0: until another delete
    unnamed: bool = False  #: accepted with several, and the answer names others alone
    #: accepted, and nothing tells whether it was carried out: the version before stays as well
    both: bool = False


#: How long a request without any answer may still be at work in the application, in milliseconds.
RECONCILE_GRACE = 300_000


def is_over(collection: Collection, staged: Staged) -> bool:
    """Whether the application is certainly done with a doubtful request."""
    return staged.answered or collection.clock() - (staged.doubt or staged.at) > RECONCILE_GRACE


def removes(keep: int | None) -> bool:
    """Whether a delete with this ``keep`` removes its record, and does not mark it."""
    return keep is None or is_promised(keep)


#: Beyond every version of a record: marks the promise to delete one record alone.
_ALONE = 1 << 52


def promise(row: Row, *, alone: bool = False) -> int:
    """``keep`` of a delete that the application acknowledged without saying whether it was carried
    out: it happens after ``pending.keep``, unless an answer shows the record before, or the record
    is then another version.

    ``alone``: of this record only. The page after that may speak of the record that was deleted.
    """
    return -1 - row.version - (_ALONE if alone else 0)


def is_promise_of(keep: int | None, row: Row) -> bool:
    """Whether this ``keep`` is a promise to delete the record in this very version."""
    return keep in (promise(row), promise(row, alone=True))


def is_promised_alone(keep: int | None) -> bool:
    """Whether this ``keep`` is a promise to delete one record alone."""
    return keep is not None and keep < -_ALONE


def is_promised(keep: int | None) -> bool:
    """Whether this ``keep`` is that of such a delete."""
    return keep is not None and keep < 0


def is_unsure_mark(collection: Collection, staged: Staged, salt: bytes) -> bool:
    """Whether this stands for a mark of which nothing tells that the application made it."""
    if staged.kind is not StagedKind.DELETE or staged.at < SEEN_IN_PAGE:
        return False
    return (collection.sealer.open_keep(staged, salt) or 0) > 0


def is_large(write: StagedWrite) -> bool:
    """Whether the stored record is so large that it is long work to look through it."""
    return write.row is not None and len(write.row.body) > LONG


def insert_at_once(
    collection: Collection,
    content: RecordBody,
    tokens: Mapping[str, tuple[TokenizedValue, ...]],
    of: tuple[int, int],
    entries: tuple[Sequence[bytes], Sequence[bytes]],
) -> tuple[StagedWrite, Insert]:
    """Stage one new record, ``of`` an id and the present instant, as ``Collection.new_row`` makes
    its row. ``entries``: hashes of tokens that several records may have, and of others.
    """
    (rid, now), cells = of, collection.cells(content)
    expires = None if collection.expires is None else now + collection.expires
    binding = collection.state.columns.bind(now, now, expires, cells)
    values = content.values, content.following
    salt, (body, statement), sealer = collection.sealer.begin(rid, values, binding, now)
    row = Row(rid, None, statement, RowState.PENDING, 1, now, now, expires, salt, body, cells, 0)
    write = StagedWrite(rid, content, tokens, None, salt=salt, sealer=sealer)
    return write, Insert(row, (*entries[0], *entries[1]), tuple(entries[1]))


def binding_of(collection: Collection, write: StagedWrite, key: str) -> list[Change]:
    """The changes that name one new record, where nothing stands against it; none where ``bind``
    has to look closer. To be committed in the same breath.
    """
    if write.sealer is None:
        return []
    now = collection.clock()
    one = Bind(write.rid, collection.key_hash(key), write.sealer.key(key, now), now)
    state = collection.state
    if (  # nearly always
        type(one.key) is bytes
        and not state.gone
        and one.key not in state.named
        and one.key not in state.ended
        and not state.ending
    ):
        if len(state.in_flight) > 1:
            if len(state.named) < _MOST_GONE:  # nearly always, and as ``_remember`` does then
                state.named[one.key] = write.rid, write.salt, collection.context.sequence.at(now)
            else:
                _remember(collection, (one,), {write.rid: write.salt})
        return [one]
    changes, overtaken, _ = decided(collection, (one,), {write.rid: write.salt})
    return changes if len(changes) == 1 and not overtaken else []


async def bindings(
    collection: Collection, pairs: Sequence[tuple[StagedWrite, str]]
) -> dict[Bind, bytes]:
    """The changes that give these names, each with the salt of its record."""
    now, binds = collection.clock(), dict[Bind, bytes]()
    for write, key in pairs:
        sealer = write.sealer or collection.sealer.record(write.rid, write.salt)
        one = Bind(write.rid, collection.key_hash(key), sealer.key(key, now), now)
        binds[one] = write.salt
        if len(binds) % BIND_STRIDE == 0 and busy():
            await give_way()
    return binds


def decided(
    collection: Collection, binds: Sequence[Bind], salts: Mapping[int, bytes]
) -> tuple[list[Change], int, dict[int, int]]:
    """Return the changes that bind these keys now, the number of records deleted meanwhile, and
    those that stay without a name, each with the one that has it. ``salts``: of their records.
    """
    twins: dict[int, int] = {}
    changes: list[Change] = []
    twice: dict[int, bytes] = {}  #: records without a name that are another's, too
    overtaken = 0
    state = collection.state
    gone, named, since = state.gone, state.named, collection.context.sequence.issued_at
    last = {binding.key: binding.rid for binding in binds} if len(binds) > 1 else {}
    for binding in binds:
        own = binding.rid
        if last and last[binding.key] != own:
            continue  # the answer gives two of them one id: the other waits for what tells more
        if gone and max([gone.get(one, 0) for one in either((binding.key,))]) > own:
            overtaken += 1
            continue
        holders = named and [named[one] for one in either((binding.key,)) if one in named]
        rid, salt, at = max(holders, key=itemgetter(2)) if holders else (own, b"", 0)
        if rid != own and at > own:
            if rid > own:
                twice[own], twins[own] = salts[own], rid
                continue
            twice[rid], twins[rid] = salt, own
            changes.append(releasing(collection, rid, salt, Release(binding.key, own, binding.at)))
        changes.append(binding)
        doubtful = state.ended or state.ending or state.ending_elsewhere
        if doubtful and may_be_deleted(collection, binding, since(own)):
            changes.append(delete_in_doubt(collection, binding, salts[own]))
    for rid, salt in twice.items():
        changes.append(accepting(collection, rid, salt, binds[0].at))
    if state.replicas is not None:
        changes.append(_announced(collection, binds, salts))
    elif len(state.in_flight) > len(binds):
        _remember(collection, binds, salts)
    return changes, overtaken, twins


def may_be_deleted(collection: Collection, binding: Bind, since: int) -> bool:
    """Whether a delete of this key has ended since then, of another record, or one of an unknown id
    is under way: the application may have deleted both, or given the id again.
    """
    state, keys = collection.state, list(either((binding.key,)))
    ended = any(state.ended.get(one, -1) >= since for one in keys)
    return ended or any(one in state.ending or one in state.ending_elsewhere for one in keys)


def delete_in_doubt(collection: Collection, binding: Bind, salt: bytes) -> StageRow:
    """Put a delete in doubt that may still be at work, of a record that gets its key."""
    collection.state.deletes = True
    sid, now = collection.context.sequence(), binding.at
    one = Staged(sid, binding.rid, StagedKind.DELETE, now, now, False, b"")
    return StageRow(collection.sealer.record(binding.rid, salt).staged(one, None))


async def displacing(collection: Collection, names: Sequence[tuple[bytes, int]]) -> list[Change]:
    """Return the changes that take these keys from other records.

    ``names`` are (key, new holder). The displaced version goes into the history of the key, unless
    it is in that of a key that its record lost before. The record stays, without a key, for nothing
    tells that the application has it no more.
    """
    now, others = collection.clock(), dict(names)
    rows = await collection.store.by_keys(collection.table, list(others))
    changes: list[Change] = []
    for key, row in rows.items():
        if row.rid == others[key]:
            continue
        lasting = collection.alive(row) or not await may_end(collection, row)
        if collection.context.history.keep > 0 and lasting:
            at = max(now, row.updated_at)
            past = await collection.store.past_scan(collection.table, (row.rid, row.version - 1), 1)
            if (row.rid, row.version) not in {(one.rid, one.version) for one in past}:
                changes.append(AddVersion(Past(row.rid, row.version, key, at, row.salt, row.body)))
        changes.append(releasing(collection, row.rid, row.salt, Release(key, others[key], now)))
        changes.append(accepting(collection, row.rid, row.salt, now))
    return changes


def releasing(collection: Collection, rid: int, salt: bytes, change: Release) -> Release:
    """The change that takes a key from the record of that id and salt, with its statement."""
    statement = collection.sealer.record(rid, salt).unbound(RowState.PENDING, change.at)
    return change._replace(holder=rid, key_sealed=statement)


def accepting(collection: Collection, rid: int, salt: bytes, at: int) -> Accept:
    """The change that keeps a record for good that has no name yet, with its statement."""
    return Accept(rid, at, collection.sealer.record(rid, salt).unbound(RowState.LIVE, at))


def end_unknown(collection: Collection, keys: Iterable[str]) -> list[bytes]:
    """The application is about to delete records that the vault does not know: a create may get
    such an id meanwhile. Return what ``ended_unknown`` is to be given.
    """
    state, digests = collection.state, list(map(collection.key_hash, keys))
    state.ending.update(digests)
    for digest in digests:
        state.named.pop(digest, None)
    return digests


def ended_unknown(collection: Collection, digests: Sequence[bytes]) -> None:
    """The application has deleted these, or may have."""
    collection.state.ending.subtract(digests)
    for digest in digests:
        if not collection.state.ending[digest]:
            del collection.state.ending[digest]
        collection.state.end(digest, collection.clock())


def overtake(collection: Collection, keys: Iterable[str]) -> None:
    """The application deleted records that the vault does not know: one of them may be just about
    to be bound.
    """
    state = collection.state
    if not state.in_flight:
        return
    if len(state.gone) >= _MOST_GONE:
        oldest = min(state.in_flight)
        state.gone = {digest: at for digest, at in state.gone.items() if at > oldest}
    for one in either(map(collection.key_hash, keys)):
        state.gone[one] = collection.context.sequence()


def overtaking(collection: Collection, keys: Iterable[str], salt: bytes = b"") -> Underway:
    """``overtake`` for other replicas, who may have it under way; ``salt``: ``ENDED`` of a delete
    that may come to nothing.
    """
    at = collection.state.stamp(collection.context.sequence())
    names = [(one, None, salt, at) for one in either(map(collection.key_hash, keys))]
    return Underway(names=tuple(names))


def _remember(collection: Collection, binds: Sequence[Bind], salts: Mapping[int, bytes]) -> None:
    """Remember which record has which key, while others in flight may turn out to be the same."""
    state = collection.state
    if len(state.named) >= _MOST_GONE:
        oldest = min(state.in_flight)
        state.named = {digest: named for digest, named in state.named.items() if named[2] > oldest}
    for one in binds:
        for key in either((one.key,)):
            if state.named.get(key, (0,))[0] <= one.rid:
                state.named[key] = one.rid, salts[one.rid], collection.context.sequence()


def _announced(
    collection: Collection, binds: Sequence[Bind], salts: Mapping[int, bytes]
) -> Underway:
    """The same for other replicas with work in flight; these are settled by that."""
    at, ended = collection.state.stamp(collection.context.sequence()), tuple(salts)
    names = [(key, one.rid, salts[one.rid], at) for one in binds for key in either((one.key,))]
    return Underway(ended=ended, names=tuple(names), heard=collection.state.heard)


def forget_staged(collection: Collection, writes: Sequence[StagedWrite]) -> None:
    """End the exchange of these records in this process."""
    state = collection.state
    for write in writes:
        state.in_flight.discard(write.rid)
        state.begun.pop(write.rid, None)
        if write.sid is not None:
            state.in_flight.discard(write.sid)
    if not state.in_flight and (state.gone or state.named):
        state.gone.clear()
        state.named.clear()


async def finish(
    collection: Collection,
    writes: Sequence[StagedWrite],
    changes: Sequence[Change],
    deleted: Sequence[bytes] = (),
) -> None:
    """Commit what ends the part of these records in their exchange; ``deleted``: their keys."""
    if collection.state.replicas is not None:
        ids = [one for item in writes for one in (item.rid, item.sid) if one is not None]
        at = collection.state.stamp(collection.context.sequence()) if deleted else 0
        names = [(one, None, ENDED, at) for one in either(deleted)]
        changes = [*changes, Underway(ended=tuple(ids), names=tuple(names))]
    if changes:
        await collection.store.commit(collection.table, changes)
    forget_staged(collection, writes)


async def accept(collection: Collection, writes: Sequence[StagedWrite]) -> None:
    """The application took new records and told no ids: they stay, and are bound once it does."""
    now = collection.clock()
    changes = [accepting(collection, item.rid, item.salt, now) for item in writes]
    await finish(collection, writes, changes)
    collection.observe("nameless", len(writes))


async def accept_open(
    collection: Collection, writes: Sequence[StagedWrite], binds: Sequence[Bind]
) -> None:
    """Store records without a key for good, as others got their keys again and again.

    An answer that shows them decides. The application has accepted them, and no caller may be told
    otherwise.
    """
    salts, now = {one.rid: one.salt for one in writes}, collection.clock()
    rows = await collection.store.rows(collection.table, [one.rid for one in binds])
    changes = [
        accepting(collection, one.rid, salts[one.rid], now)
        for one in binds
        if (row := rows.get(one.rid)) is not None and row.key is None
    ]
    await finish(collection, writes, changes)
    collection.observe("nameless", len(changes))


async def still_open(collection: Collection, binds: Sequence[Bind]) -> list[Bind]:
    """Return the bindings whose record still exists and has no other key."""
    rows = await collection.store.rows(collection.table, [one.rid for one in binds])
    return [
        one
        for one in binds
        if (row := rows.get(one.rid)) is not None
        and (row.key is None or row.key in either((one.key,)))
    ]
