"""Promotion of accepted updates to live versions, with what remains of those in doubt."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from msgspec.structs import replace

from proxy.offload import run_in_thread
from proxy.storage.changes import Change, ForgetReplies, Reindex, Replace, StageRow, Unstage
from proxy.storage.rows import SEEN_IN_PAGE, Row, Staged, StagedKind
from proxy.tokenization.base import SealedSpelling
from proxy.vault.body import (
    RecordBody,
    TokenizedValue,
    alike,
    changed,
    pack,
    pack_plain,
    renumbered,
    tokens_of,
)
from proxy.vault.collection import LONG, Collection
from proxy.vault.earlier_values import keeping
from proxy.vault.next_version import adopt
from proxy.vault.proxied.binding import (
    StagedWrite,
    is_over,
    is_promise_of,
    is_promised_alone,
    is_unsure_mark,
)
from proxy.vault.proxied.token_entries import outdated, unneeded, with_entries
from proxy.vault.verdicts import adopted_values, shows_before, tells

#: Earlier versions that stay where no answer tells whether updates were carried out: the oldest,
#: for all since may have been refused, and the newest.
_EARLIER = 8


class Update(NamedTuple):
    """A staged update that the application took."""

    rid: int
    sid: int
    before: RecordBody  #: the live version that it was made of
    after: RecordBody
    named: AbstractSet[str]  #: the fields that the request carried
    both: bool = False  #: whether the version before stays in doubt, until an answer decides


async def promotion(
    collection: Collection,
    update: Update,
    tokens_shown: Mapping[str, tuple[str, ...]],
    row: Row | None = None,
) -> tuple[list[Change], RecordBody | None]:
    """The changes that make the staged version live, on top of whatever is live by now, and the
    live version that they give; nothing where the record is gone.

    ``tokens_shown`` are the tokens by field in the answer: a field with its old tokens was not
    accepted, if another one is shown with its new ones. ``row`` is the staged record, if nothing
    was in doubt: the changes are made for it, and refused (``Conflict``) if it has changed since.
    """
    current = update.before if row is not None else None
    if row is None:
        row = (await collection.store.rows(collection.table, [update.rid])).get(update.rid)
    if row is None:
        return [], None
    long = len(row.body) > LONG or update.after.many
    if current is None:
        current = await run_in_thread(long, collection.sealer.open, row)
    pairs = await _staged_with(collection, row) if row.staged > 1 else []
    others = [(one, version) for one, version in pairs if version is not None]
    versions = [version for _, version in others]
    moved = await run_in_thread(long, changed, update.before.values, update.after.values)
    spelled = _as_sent(collection, update, tokens_shown, (versions, moved))
    both = update.before.values, update.after.values
    if not update.both and await run_in_thread(long, shows_before, both, spelled, moved):
        update = update._replace(both=True)
        spelled = {name: texts for name, texts in spelled.items() if name not in moved}
    content = await run_in_thread(long, _merged, current, update, spelled, versions)
    if collection.single:  # no token tells of some
        content = _noted(content, update, moved)
    changes: list[Change] = [
        Replace(
            collection.next_row(row, keeping(collection, content, (update.after,))), row.version
        ),
        Unstage(update.rid, update.sid),
    ]
    if collection.parts.names:
        moves = collection.parts.moves
        changes.extend(await run_in_thread(long, moves, update.rid, current, content))
    if current.fields and any(
        of and not content.fields.get(name) for name, of in current.fields.items()
    ):
        changes.append(ForgetReplies(update.rid))  # answers of the interface show it
    if update.both:  # nobody knows of this record whether it was changed at all
        others = [(other, of) for other, of in others if other.at >= SEEN_IN_PAGE]
        others.sort(key=lambda one: one[0].sid)
        others = others[_EARLIER // 2 : -_EARLIER // 2]
    changes += _earlier_deletes(collection, row, pairs, content, update.both)
    rebased = Rebased([], set(), [])
    if others:
        rebased = rebase(collection, row, others, (current, content), update.named)
    left = [content, *rebased.left]
    unsure = bool(update.both or rebased.late)
    if (update.both and current.deleted) or (unsure and changed(current.values, content.values)):
        changes.append(StageRow(_before(collection, row, current, update.both, rebased.late)))
        left.append(current)
        collection.state.doubt(row.rid)
    if row.staged > 1:
        gone = {update.sid, *rebased.gone}
        changes.extend([*rebased.changes, *(await unneeded(collection, row, gone, left) or ())])
    else:
        changes.extend(await outdated(collection, update.rid, (current, update.after), left))
    return changes, content


def _noted(content: RecordBody, update: Update, moved: AbstractSet[str]) -> RecordBody:
    """The version with the time of the update at what is of it; others' values keep theirs."""
    after = update.after.values
    own = [n for n in update.named | moved if content.values.get(n, ()) == after.get(n, ())]
    return replace(content, written={**content.written, **dict.fromkeys(own, update.sid)})


async def _staged_with(collection: Collection, row: Row) -> list[tuple[Staged, RecordBody | None]]:
    """The versions of a record in doubt, and its deletes, without those of requests that are under
    way.
    """
    staged = (await collection.staged_beside({row.rid: row})).get(row.rid, ())
    await collection.state.look()
    at_work, open_staged = collection.state.at_work, collection.sealer.open_staged
    return [(one, open_staged(one, row.salt)) for one in staged if one.sid not in at_work]


def _earlier_deletes(
    collection: Collection,
    row: Row,
    staged: Sequence[tuple[Staged, RecordBody | None]],
    content: RecordBody,
    unsure: bool,
) -> list[Change]:
    """The changes of earlier deletes that nothing tells of, by an update that gives ``content``.

    A mark ends with what gives the record back. A delete of this record alone is not carried out by
    time from now on; where the update may have been refused as well (``unsure``), 404 still does.
    """
    changes: list[Change] = []
    for one, version in staged:
        if version is not None:
            continue
        keep = collection.sealer.open_keep(one, row.salt)
        if is_unsure_mark(collection, one, row.salt):
            changes += [] if content.deleted else [Unstage(row.rid, one.sid)]
        elif is_promised_alone(keep) and (one.at >= SEEN_IN_PAGE or is_promise_of(keep, row)):
            changes.append(Unstage(row.rid, one.sid))
            if unsure:
                sealer = collection.sealer.record(row.rid, row.salt)
                lasting = one._replace(at=SEEN_IN_PAGE, doubt=collection.clock())
                changes.append(StageRow(sealer.staged(lasting, None, keep)))
    return changes


def _as_sent(
    collection: Collection,
    update: Update,
    tokens_shown: Mapping[str, tuple[str, ...]],
    differing: tuple[Sequence[RecordBody], AbstractSet[str]],
) -> Mapping[str, tuple[str, ...]]:
    """The tokens that the answer shows, as they were sent: the application may write a number in
    its own manner. ``differing``: further versions that it may show, and the fields that changed.
    """
    spelled, (others, moved) = dict(tokens_shown), differing
    names = moved | update.named if others else moved
    for name in names & collection.respells & tokens_shown.keys():
        versions = [one.values.get(name, ()) for one in (update.before, update.after, *others)]
        tokens = {one.token for values in versions for one in values}
        if not tokens.issuperset(spelled[name]):
            meant = dict(collection.respelled(name, spelled[name], tokens))
            spelled[name] = tuple([meant.get(text, text) for text in spelled[name]])
    return spelled


def _before(collection: Collection, row: Row, version: RecordBody, both: bool, late: int) -> Staged:
    """Put the version before an update in doubt, in place of the update, which is live.

    Its tokens resolve, and an answer that shows it makes it live again.

    ``both``: no answer tells whether the update was carried out. ``late``: since when another one
    is in doubt that may still be at work, and bring back what this one replaced; 0: none.
    """
    sid, now = collection.context.sequence(), collection.clock()
    collection.state.report(sid)  # the new values are shown where no token tells
    at = SEEN_IN_PAGE if both else now
    one = Staged(sid, row.rid, StagedKind.UPDATE, at, late or now, not late, b"")
    return collection.sealer.record(row.rid, row.salt).staged(one, version)


def unchanged_in_doubt(collection: Collection, write: StagedWrite) -> StageRow:
    """Put an update without an answer in doubt that changes nothing: it may still be at work, and
    bring back what a later one replaces.
    """
    sid, now = collection.context.sequence(), collection.clock()
    one = Staged(sid, write.rid, StagedKind.UPDATE, now, now, False, b"")
    return StageRow(collection.sealer.record(write.rid, write.salt).staged(one, write.content))


def undecided(collection: Collection, writes: Sequence[StagedWrite]) -> set[str]:
    """The fields of which no answer will tell whether the application took these updates."""
    names_undecided: set[str] = set()
    for item in writes:
        if item.sid is not None and item.content is not None and item.live is not None:
            names = alike(item.live.values, item.content.values)
            if names and names == changed(item.live.values, item.content.values):
                collection.state.report(item.sid)
                names_undecided |= names
    return names_undecided


def update_at_once(
    collection: Collection,
    write: StagedWrite,
    number: int,
    entries: tuple[Sequence[bytes], Sequence[bytes]],
    now: int,
) -> Change:
    """Stage an update of single values, beside nothing staged: the next version has these tokens,
    and then this value number. ``entries``: hashes of tokens that several may have, and of others.
    """
    live = write.live or RecordBody()
    values = {**live.values, **write.tokens}
    if () in write.tokens.values():
        values = {name: of for name, of in values.items() if of}
    write.sid = sid = collection.context.sequence.at(now)
    written = live.written
    if collection.single:  # as above
        written = {**written, **dict.fromkeys(write.tokens, sid)}
    write.content = RecordBody(values, number, written=written)
    one = Staged(sid, write.rid, StagedKind.UPDATE, now, None, False, b"")
    packed = pack(write.content) if written else pack_plain((values, number))
    staged, write.sealer = collection.sealer.stage(one, write.salt, packed)
    return StageRow(staged, (*entries[0], *entries[1]), tuple(entries[1]))


def promotion_of(collection: Collection, write: StagedWrite) -> list[Change]:
    """The changes that make an update of ``update_at_once`` live, whose answer shows no token that
    it replaced; nothing for any other write. To be committed in the same breath.
    """
    row, live, content, sid = write.row, write.live, write.content, write.sid
    if row is None or live is None or content is None or sid is None:
        return []
    before, seal = live.values, None
    left: list[tuple[str, str, SealedSpelling | None]] = []
    numbers: list[int] = []
    for name, values in write.tokens.items():
        stored = before.get(name, values)
        if stored is not values:
            left.append((name, stored[0].token, spelling := collection.tokenizers[name].spelling))
            numbers.append(stored[0].number)
            seal = seal or (spelling and spelling.blocks)
    blocks = seal(write.rid, numbers) if seal else b""
    drop: list[bytes] = []
    for at, (name, token, spelling) in enumerate(left):
        if spelling is not None:  # that of this very value has no entry, as nearly always
            together = spelling.blocks is not None
            block = blocks[16 * at :][:16] if together else spelling.block(write.rid, numbers[at])
            if token == f"{spelling.before}{spelling.write(block)}{spelling.behind}":
                continue
        drop += [
            collection.token_hash(name, one)
            for one in with_entries(collection, write.rid, name, (token,))
        ]
    changes: list[Change] = [
        Replace(collection.next_row(row, content, write.sealer), row.version),
        Unstage(write.rid, sid),
    ]
    if drop:
        changes.append(Reindex(write.rid, drop=tuple(drop)))
    write.promoted = content
    return changes


def _merged(
    current: RecordBody,
    update: Update,
    tokens_shown: Mapping[str, tuple[str, ...]],
    others: Sequence[RecordBody],
) -> RecordBody:
    """Merge an update into the version that is live by now; an update revives a marked record.

    Of a field that is shown with the tokens of another version (``others``) that one is taken.
    """
    before, after = update.before.values, update.after.values
    moved = changed(before, after)
    taken: dict[str, tuple[TokenizedValue, ...]] = {}
    for name in moved:
        texts, old, new = tokens_shown.get(name, ()), before.get(name, ()), after.get(name, ())
        if tells(texts, old, new) is not False:
            taken[name] = adopted_values(texts, old, new)
    if current is not update.before:
        for name in (changed(current.values, after) & update.named) - moved:
            taken[name] = after.get(name, ())
    merged = adopt(current, taken, update.after.following)
    for name in tokens_shown.keys() & (moved | update.named) if others else ():
        tokens, versions = set(tokens_shown[name]), (current, update.after, *others)
        values = [one.values.get(name, ()) for one in versions]
        at = next((at for at, of in enumerate(values) if of and {*tokens_of(of)} == tokens), 0)
        if at > 1:
            merged = adopt(merged, {name: values[at]}, merged.following, versions[at].written)
    return replace(merged, deleted=0, until=0) if merged.deleted else merged


class Rebased(NamedTuple):
    """The outcome for versions in doubt: changes, dropped ones, and successors."""

    changes: list[Change]
    gone: set[int]
    left: list[RecordBody]
    #: since when a request is in doubt that may still be at work and bring back a value of before;
    #: 0: none
    late: int = 0


def rebase(
    collection: Collection,
    row: Row,
    opened: Sequence[tuple[Staged, RecordBody]],
    live: tuple[RecordBody, RecordBody],
    named: AbstractSet[str] = frozenset(),
) -> Rebased:
    """Versions in doubt follow the live version, ``live`` before and after, where they have a field
    only as that had it.

    Else an answer that shows another field of theirs would put the older value over a newer one.
    For the same reason fields that were acknowledged (``named``) decide where no token can tell,
    and in versions that a page has shown: what wrote those had been carried out before.
    """
    before, after = live
    rebased, late = Rebased([], set(), []), 0
    moved = changed(before.values, after.values)
    for staged, version in opened:
        names = {
            name for name in moved if version.values.get(name, ()) == before.values.get(name, ())
        }
        over = is_over(collection, staged)
        if names and not over:
            late = max(late, staged.doubt or staged.at)
        ended = over and staged.at >= SEEN_IN_PAGE
        same = alike(after.values, version.values) & named - names
        differing = changed(after.values, version.values) & named - names
        later = bool(same) and same != differing and not ended
        names |= named if ended else differing if later else same
        if not names:
            continue
        rebased.gone.add(staged.sid)
        rebased.changes.append(Unstage(row.rid, staged.sid))
        fields = {name: after.values.get(name, ()) for name in names}
        left = [adopt(version, fields, after.following, after.written)]
        if later:  # carried out behind this one it has what no token tells as well, and is newer
            own = {name: version.values.get(name, ()) for name in differing}
            start = max(left[0].following, version.following)
            written = dict.fromkeys(own, collection.context.sequence()) if version.written else {}
            left.append(adopt(left[0], *renumbered(own, start), written))
        for one in left:
            if not changed(after.values, one.values) or _among(rebased.left, one):
                continue
            sid = collection.context.sequence()
            if staged.sid in collection.state.reported:
                collection.state.report(sid)
            sealer = collection.sealer.record(row.rid, row.salt)
            rebased.changes.append(StageRow(sealer.staged(staged._replace(sid=sid), one)))
            rebased.left.append(one)
    return rebased._replace(late=late)


def _among(versions: Sequence[RecordBody], one: RecordBody) -> bool:
    """Whether one of these has the same values."""
    return any(not changed(other.values, one.values) for other in versions)


async def forgotten(
    collection: Collection, write: StagedWrite, row: Row, sid: int
) -> list[Reindex]:
    """Return the index entries that go with a staged change that the application refused."""
    if write.content is None or write.live is None:
        return []
    rows = await collection.store.rows(collection.table, [write.rid])
    now = rows.get(write.rid)
    if now is not None and now.version == row.version and now.staged == 1:  # nothing else is staged
        return await outdated(collection, write.rid, (write.content,), (write.live,))
    ended = await unneeded(collection, now, {sid}) if now is not None else None
    return [one for one in ended or () if isinstance(one, Reindex)]  # nobody has got its tokens
