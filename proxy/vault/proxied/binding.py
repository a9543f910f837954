"""New records get the names that the application tells, and what is remembered of records while
they are under way.

``Held`` is one record's part in an exchange. Whether a name can still be given is decided in one
breath with the commit that gives it: what takes time is done before.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from proxy.offload import busy, give_way
from proxy.storage.changes import Accept, Bind, Change, Release
from proxy.storage.rows import Row
from proxy.vault.body import TokenizedBody, TokenizedValue
from proxy.vault.collection import LONG, Collection
from proxy.vault.seal import RecordSealer

#: Records that are worked on between two looks whether others have to be let go on.
BIND_STRIDE = 8
#: Deletes of unknown records that are remembered before those are forgotten that no longer matter
#: to anybody.
_MOST_GONE = 1000


class StagedWrite(msgspec.Struct, eq=False):
    """One record's part in an exchange, from staging to settling."""

    rid: int
    content: TokenizedBody | None  #: what the record becomes; ``None`` for a delete
    #: the draft's values with their tokens, in the draft's order
    given: Mapping[str, tuple[TokenizedValue, ...]]
    row: Row | None  #: the live row as it was; ``None`` for a new record
    live: TokenizedBody | None = None
    #: the staged change; ``None`` for a new record, and where nothing changes
    sid: int | None = None
    key: str | None = None
    own: frozenset[str] = frozenset()
    salt: bytes = b""
    sealer: RecordSealer | None = None  #: of a new record


def is_large(held: StagedWrite) -> bool:
    """Whether the stored record is so large that it is long work to look through it."""
    return held.row is not None and len(held.row.body) > LONG


async def bind(collection: Collection, pairs: Sequence[tuple[StagedWrite, str]]) -> None:
    """The application took new records and told their ids.

    A record that still held such an id loses it.

    An id that was deleted while the record was being made, and that nobody knew, may well have been
    this very record's: then it stays pending, until an answer shows it or nobody ever does.

    An id that another got while the record was under way is of both: an update by id overtook the
    answer to the create. The newer one holds the name, and both stay for good, until an answer
    shows what belongs together.
    """
    changes: list[Change] = []
    twice: list[int] = []  #: records without a name that are another's, too
    overtaken = 0
    now = collection.clock()
    named_so: list[tuple[int, Release, Bind]] = []
    for held, key in pairs:
        sealer, digest = (
            held.sealer or collection.sealer.record(held.rid, held.salt),
            collection.key_hash(key),
        )
        named_so.append(
            (held.rid, Release(digest, held.rid, now), Bind(held.rid, digest, sealer.key(key), now))
        )
        if len(named_so) % BIND_STRIDE == 0 and busy():
            await give_way()
    gone, named = collection.state.gone, collection.state.named
    for own, release, binding in named_so:  # in one breath with the commit
        if gone.get(release.key, 0) > own:
            overtaken += 1
            continue
        rid, at = named.get(release.key, (own, 0))
        if rid != own and at > own:
            twice.append(min(rid, own))
            if rid > own:
                continue
        changes += (release, binding)
    changes.extend([Accept(rid, now) for rid in twice])
    _remember(collection, [(own, release.key) for own, release, _ in named_so])
    await finish(collection, [held for held, _ in pairs], changes)
    if overtaken:
        collection.observe("in_doubt", overtaken)
    if overtaken < len(pairs):
        collection.observe("settled", len(pairs) - overtaken)


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
    state.gone.update((collection.key_hash(key), collection.around.sequence()) for key in keys)


def _remember(collection: Collection, pairs: Sequence[tuple[int, bytes]]) -> None:
    """Who has which name, as long as there is anybody else under way who may turn out to be the
    same.
    """
    state = collection.state
    if len(state.in_flight) <= len(pairs):
        return
    if len(state.named) >= _MOST_GONE:
        oldest = min(state.in_flight)
        state.named = {digest: named for digest, named in state.named.items() if named[1] > oldest}
    for rid, digest in pairs:
        if state.named.get(digest, (0, 0))[0] <= rid:
            state.named[digest] = rid, collection.around.sequence()


def forget_staged(collection: Collection, held: Sequence[StagedWrite]) -> None:
    """The exchange is over for these records as far as this process is concerned."""
    state = collection.state
    for item in held:
        state.in_flight.discard(item.rid)
        if item.sid is not None:
            state.in_flight.discard(item.sid)
    if not state.in_flight and (state.gone or state.named):
        state.gone.clear()
        state.named.clear()


async def finish(
    collection: Collection, held: Sequence[StagedWrite], changes: Sequence[Change]
) -> None:
    """Commit what ends the part of these records in their exchange."""
    if changes:
        await collection.store.commit(collection.table, changes)
    forget_staged(collection, held)
