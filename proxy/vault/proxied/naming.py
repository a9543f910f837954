"""Names of new records: the application's ids, as an answer tells them.

A new record that gets the id of another one and that one are one record, as far as anybody knows.
An application answers a create with an id that is known where it updates what it has by a unique
field, or leaves that as it is, and where a form is sent twice. Others give an id again after they
deleted its record by themselves. The record before becomes a version of the new one: an object that
shows its tokens makes those values live, and a delete ends both.
"""

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from msgspec.structs import replace

from proxy.crypto.prf import either
from proxy.storage.changes import (
    Bind,
    Change,
    Conflict,
    Reindex,
    Release,
    Remove,
    Replace,
    StageRow,
    Underway,
)
from proxy.storage.rows import SEEN_IN_PAGE, Staged, StagedKind
from proxy.vault import verdicts
from proxy.vault.body import RecordBody, TokenizedValue, changed, renumbered_versions
from proxy.vault.collection import Collection
from proxy.vault.earlier_values import confuses, erased_values, keeping, stored_values
from proxy.vault.next_version import adopt
from proxy.vault.proxied.binding import (
    StagedWrite,
    accept_open,
    bindings,
    decided,
    delete_in_doubt,
    displacing,
    forget_staged,
    is_over,
    may_be_deleted,
    still_open,
)
from proxy.vault.proxied.merge_duplicates import attempts_before
from proxy.vault.proxied.open_rows import OpenRow, open_with_staged
from proxy.vault.proxied.promotion import rebase
from proxy.vault.proxied.recognize import has_token_of, telling_hashes

_MOST_VERSIONS: Final = 31  #: in doubt, with which a record is still joined: all are judged
_TRIES: Final = 8  #: how often names are given again where other records get them meanwhile
_Twins = dict[int, int]  #: records that lose their ids, each with the one that gets it


class Displacement(NamedTuple):
    """Joins records that lose their ids to the new ones of an exchange.

    A record stays as it is, without a name, where it is more than values of the application: in a
    bin, with files, about to be deleted or changed, has many versions in doubt, or was written by
    the interface.
    """

    #: of a record of the exchange the tokens by field that the answer shows: they tell which of two
    #: values is live
    tokens_of: Callable[[int], Mapping[str, tuple[str, ...]]]
    own: Container[int] = ()  #: the records of the exchange
    #: makes other writers of these records wait, where they do not yet
    hold: Callable[[Sequence[bytes]], Awaitable[None]] | None = None
    under_way: bool = False  #: a change of the record with the id is, or may be
    #: the (field, token) of an object that has values of both
    places: Sequence[tuple[str, str]] = ()
    attempts: Mapping[int, int] = {}  #: earlier ones to make a record that the answer does not show

    async def changes(
        self, collection: Collection, twins: _Twins
    ) -> dict[tuple[int, int], list[Change]]:
        """The changes that join these; none where they stay apart."""
        joined = dict[tuple[int, int], list[Change]]()
        rows = await collection.store.rows(collection.table, [*twins, *twins.values()])
        opened = await open_with_staged(collection, (), rows.values())
        await collection.state.look()
        for pair in twins.items():
            before, home = (opened.get(rid) for rid in pair)
            joined[pair] = []
            if before is None or home is None:
                continue
            if not _alone(collection, before, home, under_way=self.under_way):
                continue
            if await collection.store.files(collection.table, [before.row.rid]):
                continue
            fresh = home.row.rid in self.own
            texts = self.tokens_of(pair[1] if fresh else pair[0])
            tokens = texts, frozenset(self.places)
            joined[pair] = joining(collection, before, home, tokens, fresh=fresh)
        return joined


async def bind(
    collection: Collection,
    pairs: Sequence[tuple[StagedWrite, str]],
    displacement: Displacement | None = None,
) -> None:
    """The application took new records and told their ids.

    A record that still held such an id loses it. What it was is put into the history of the id, and
    it becomes a version of the new one in the same breath (``displacement``), or stays.

    An unknown id that was deleted while the record was being created may well be this record's own:
    then it stays pending, until an answer shows it or never.

    An id that another record got meanwhile is of both: an update by id overtook the answer to the
    create, or a form was sent twice. The newer one has the key.

    A record that got a name from another answer meanwhile keeps that one, or stays deleted by it.
    """
    first = pairs[0][0]
    if displacement is not None and first.attempt and not displacement.tokens_of(first.rid):
        displacement = displacement._replace(attempts=await attempts_before(collection, first))
    naming = _Naming(collection, await bindings(collection, pairs), displacement)
    for attempt in range(_TRIES):
        if collection.state.replicas is not None:
            await collection.state.hear([one.key for one in naming.open])
        if await naming.attempt():
            break
        if naming.stuck > 1 or attempt == _TRIES - 1:  # who did may have been deleted at once
            await accept_open(collection, [write for write, _ in pairs], naming.open)
            return
    writes = [write for write, _ in pairs]
    forget_staged(collection, writes)
    taken = {change.key for change in naming.displaced if isinstance(change, Release)}
    by_record = {rid: pair for pair in naming.twins.items() for rid in pair}
    for write, one in zip(writes, naming.binds, strict=True) if by_record else ():
        write.displaces = one.key in taken
        write.twins = by_record.get(write.rid, write.twins)
    overtaken = naming.overtaken + len(pairs) - len(naming.open)
    for event, count in (("in_doubt", overtaken), ("settled", len(pairs) - overtaken)):
        if count:
            collection.observe(event, count)
    if taken:
        collection.observe("displaced", len(taken))


async def bind_shown(
    collection: Collection,
    changes: Sequence[Change],
    of: tuple[Bind, bytes],
    texts: Mapping[str, tuple[str, ...]],
    began: int,
) -> bool:
    """Commit changes by an answer that shows a record without a name under an id: it gets that.

    A record that has the id joins it, as above; what else was to be changed waits for the next
    answer then. While another request changes that one, all of it does. Of an id that was deleted
    since the request of the answer (``began``) it proves nothing. Return whether all is done.

    ``of``: the change that gives the name, and the salt of the record.
    """
    (one, salt), state = of, collection.state
    locks, twins, joins = collection.state.locks, dict[int, int](), list[Change]()
    holders = await collection.store.by_keys(collection.table, [one.key])
    if holders and not await locks.attempt(one.key):
        return False
    try:
        if holders:
            displaced = await displacing(collection, [(one.key, one.rid)])
            twins = {it.holder or 0: one.rid for it in displaced if isinstance(it, Release)}
            joined = await Displacement(lambda _: texts, (one.rid,)).changes(collection, twins)
            joins = [change for some in joined.values() for change in some]
            changes = [*displaced, one, *joins]
        if state.replicas is not None:
            await state.hear([one.key])
            changes = [*changes, Underway(heard=state.heard)]
        # with no gap after this
        if any(began < state.ended.get(key, -1) for key in either((one.key,))):
            return False
        if may_be_deleted(collection, one, began + 1):  # a delete is under way
            changes = [*changes, delete_in_doubt(collection, one, salt)]
        await collection.store.commit(collection.table, changes)
    except Conflict:
        return False  # another request settled it meanwhile; the next answer shows the rest
    finally:
        if holders:
            locks.release((one.key,))
    for pair in twins.items() if joins else ():
        collection.state.retired.join(*pair)
    collection.observe("reconciled", 1)
    if twins:
        collection.observe("displaced", len(twins))
    return not twins


class _Naming:
    """Tries to give names in one commit, with what that means for others that have them."""

    def __init__(
        self, collection: Collection, binds: Mapping[Bind, bytes], displacement: Displacement | None
    ) -> None:
        self._collection, self._displacement = collection, displacement
        self._salts = {one.rid: salt for one, salt in binds.items()}
        self.open = self.binds = list(binds)  #: those that are still to be given, and all
        self.overtaken = 0
        self.stuck = 0  #: how often they could not be given, and nobody had them
        self.displaced: list[Change] = []
        self.twins: _Twins = {}
        self._joined: dict[tuple[int, int], list[Change]] = {}

    async def attempt(self) -> bool:
        """Give them; ``False``: others came in between, which is known now."""
        collection, displacement = self._collection, self._displacement
        changes, self.overtaken, self.twins = decided(collection, self.open, self._salts)
        self.twins |= self._displaced_by()
        if displacement is not None and not self.twins.items() <= self._joined.keys():
            self._take_back()
            if displacement.hold is not None:
                await displacement.hold([one.key for one in self.open])
            await self._displace(changes)
            self._joined = await displacement.changes(collection, self.twins)
            return False
        joins = [one for pair in self.twins.items() for one in self._joined.get(pair, ())]
        try:  # with no gap after the decision
            await collection.store.commit(collection.table, [*self.displaced, *changes, *joins])
        except Conflict as conflict:
            self._take_back()
            before, self._joined = len(self.open), {}
            self.open = await still_open(collection, self.open)
            left = set(self.open)
            await self._displace([one for one in changes if one in left])
            if type(conflict.change) is not Underway:  # of a delete at another replica
                self.stuck += not self.displaced and len(self.open) == before
            return False
        for pair in self.twins.items() if joins else ():
            collection.state.retired.join(*pair)
        return True

    def _take_back(self) -> None:
        """Names that are not given yet are nothing that others may join."""
        own, state = {one.rid for one in self.open}, self._collection.state
        state.named = {key: of for key, of in state.named.items() if of[0] not in own}

    async def _displace(self, changes: Sequence[Change]) -> None:
        """Find out who has the names by now."""
        names = [(one.key, one.rid) for one in changes if isinstance(one, Bind)]
        self.displaced = await displacing(self._collection, names)
        self.twins |= self._displaced_by()

    def _displaced_by(self) -> _Twins:
        twins = {one.holder or 0: one.rid for one in self.displaced if isinstance(one, Release)}
        return {**self._displacement.attempts, **twins} if self._displacement else twins


def joining(
    collection: Collection,
    before: OpenRow,
    home: OpenRow,
    tokens: tuple[Mapping[str, tuple[str, ...]], AbstractSet[tuple[str, str]]],
    *,
    fresh: bool,
) -> list[Change]:
    """The changes that make a record a version of the other, ``home``.

    ``tokens``: those of the answer by field, where they tell what is live, and those of an
    object that has values of both: what it has of ``home`` came behind the other.

    That is ``fresh``, or has the id already: then its values stay, too, where others are shown.

    Without ``versions: keep`` its values are in doubt, for as long as no object shows each field.
    """
    versions, (tokens_shown, both) = _renumbered(collection, before, home), tokens
    for _, old in versions if not collection.keeps else ():  # else what was replaced stays
        for name in verdicts.replaced_by(home.values, old, both):
            del old.values[name]
    new = home.live.values
    if collection.keeps and any(
        confuses(RecordBody(earlier=dict(stored_values(one))), home.live, collection.compared)
        for _, one in versions
    ):
        return []
    since = {} if fresh else home.live.written_since(before.row.rid, home.row.rid)
    places = [(name, text) for name, texts in tokens_shown.items() for text in texts]
    for _, old in versions:
        for name in verdicts.superseded(since, old.values, places):
            del old.values[name]
    untold = collection.single - before.live.written_since(home.row.rid, before.row.rid).keys()
    theirs = set[str]()
    for _, old in versions:  # what answers showed of the create before its own one came
        if has_token_of(collection, old.value_tokens(), home.live):
            for name in untold & old.values.keys() & new.keys():
                del old.values[name]
                theirs.add(name)
    whole = verdicts.shown_of(versions, places)
    if has_token_of(collection, {*places}, home.live):  # nor has it the live ones of these
        whole = {name: of for name, of in whole.items() if name not in theirs}
    # a newer one that lacks a field was sent without it
    later = fresh or before.row.rid < home.row.rid
    taken: dict[str, tuple[TokenizedValue, ...]] = {}
    # what an object has of the record before; then its live values, and the latest that are shown
    for values in (whole, *(of.values for _, of in reversed(versions))):
        own = new if later else {name: of for name, of in new.items() if name in values}
        for name in verdicts.fields_of_before(tokens_shown, own, values) - taken.keys():
            texts = tokens_shown.get(name, ())
            taken[name] = verdicts.adopted_values(texts, new.get(name, ()), values[name])
    hashes = {
        one: None for _, old in versions for one in telling_hashes(collection, stored_values(old))
    }
    collection.state.retired.keep(before.row, collection.clock())  # answers under way may show it
    return [
        Replace(collection.same_row(before.row, before.live), before.row.version),  # as it was read
        *_versions(collection, home, versions, taken, fresh=fresh),
        *_deletes(collection, before, home),
        Remove(before.row.rid, keep_past=True),
        Reindex(home.row.rid, add=tuple(hashes)),
    ]


_Version = tuple[Staged | None, RecordBody]  #: of before, with its request where it is in doubt


def _renumbered(collection: Collection, before: OpenRow, home: OpenRow) -> list[_Version]:
    """The versions of the record before under numbers that are free in the other: those of updates
    in doubt, such as a form that a redirect answered, and last its live one.
    """
    versions: list[_Version] = [(one, of) for one, of in before.staged if of is not None]
    versions.append((None, before.live))
    start = max(home.following, before.following)
    rid = before.row.rid if collection.single else 0
    bodies = renumbered_versions([of for _, of in versions], start, rid)
    return [(one, of) for (one, _), of in zip(versions, bodies, strict=True)]


def _alone(collection: Collection, before: OpenRow, home: OpenRow, *, under_way: bool) -> bool:
    """Whether nothing else is known of the first than its values, and no change is under way, of
    the other one at least where none may be (``under_way``).

    Either may be of another create that is about to be bound: that finds it as it is by then.
    """
    state, salt = collection.state, before.row.salt
    staged = [*before.staged, *home.staged]
    return (
        all(of or collection.sealer.open_keep(one, salt) is None for one, of in before.staged)
        and not any(one.sid in state.at_work for one, _ in (before.staged if under_way else staged))
        and len(staged) <= _MOST_VERSIONS
        and collection.alive(before.row)
        and not (before.live.deleted or before.live.fields or home.live.fields)
    )


def _versions(
    collection: Collection,
    home: OpenRow,
    versions: Sequence[_Version],
    taken: Mapping[str, tuple[TokenizedValue, ...]],
    *,
    fresh: bool,
) -> list[Change]:
    """The changes that give the record the versions before, and make ``taken`` of them live."""
    row, live, last = home.row, home.live, versions[-1][1]
    content = adopt(live, taken, last.following, verdicts.written_of(taken, versions))
    if erased := erased_values(last):
        own = content.earlier
        both = {name: (*of, *own.get(name, ())) for name, of in erased.items()}
        content = replace(content, earlier={**own, **both})
    numbered = keeping(collection, content, (live, *(of for _, of in versions)))
    under_way = [of for one, of in home.staged if one.sid in collection.state.at_work]
    # a delete is of the version that it found, and an update has to notice
    deletes = bool(under_way) and not any(under_way)
    after = collection.same_row(row, numbered) if deletes else collection.next_row(row, numbered)
    changes: list[Change] = [
        Replace(after, row.version),
        *collection.parts.moves(row.rid, live, content),
    ]
    others = [(one, of) for one, of in home.staged if of is not None]
    changes += rebase(collection, row, others, (live, content)).changes
    sealer = collection.sealer.record(row.rid, row.salt)
    sole = fresh and row.version == 1  # else others have joined it: their values stay as well
    for staged, old in versions if sole else (*versions, (None, live)):
        version = adopt(content, old.values, last.following, old.written)
        at_work = staged is not None and not is_over(collection, staged)
        if at_work or (not collection.keeps and changed(content.values, version.values)):
            now, sid = collection.clock(), collection.context.sequence()
            collection.state.report(sid)  # the new values are shown where no token tells
            one = Staged(sid, row.rid, StagedKind.UPDATE, SEEN_IN_PAGE, now, True, b"")
            if staged is not None and at_work:  # it may still bring its values
                one = _moved(staged, sid, row.rid)
            changes.append(StageRow(sealer.staged(one, version)))
            collection.state.doubt(row.rid)
    return changes


def _deletes(collection: Collection, before: OpenRow, home: OpenRow) -> list[Change]:
    """The changes that put deletes in doubt of the record before in doubt of the other."""
    rid, sequence = home.row.rid, collection.context.sequence
    sealer = collection.sealer.record(rid, home.row.salt)
    moved = [_moved(one, sequence(), rid) for one, version in before.staged if version is None]
    return [StageRow(sealer.staged(one, None)) for one in moved]


def _moved(staged: Staged, sid: int, rid: int) -> Staged:
    """A request in doubt, of another record."""
    return staged._replace(sid=sid, rid=rid, doubt=staged.doubt or staged.at, body=b"")
