"""Promotion of accepted updates to live versions, with what remains of those in doubt."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from msgspec.structs import replace

from proxy.offload import in_thread, run_in_thread
from proxy.storage.changes import Change, ForgetReplies, Reindex, Replace, StageRow, Unstage
from proxy.storage.rows import SEEN_IN_PAGE, Row, Staged, StagedKind
from proxy.vault.body import (
    RecordBody,
    TokenizedValue,
    adopted_values,
    alike,
    changed,
    tells,
)
from proxy.vault.collection import LONG, Collection
from proxy.vault.next_version import adopt
from proxy.vault.proxied.binding import StagedWrite
from proxy.vault.proxied.merge_duplicates import has_entry, outdated, unneeded

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
    accepted. ``row`` is the staged record, if nothing was in doubt: the changes are made for it,
    and refused (``Conflict``) if it has changed since.
    """
    current = update.before if row is not None else None
    if row is None:
        rows = await collection.store.rows(collection.table, [update.rid])
        row = rows.get(update.rid)
    if row is None:
        return [], None
    long = len(row.body) > LONG or update.after.many
    if current is None:
        current = await run_in_thread(long, collection.sealer.open, row)
    merge = current, update, _as_sent(collection, update, tokens_shown)
    content = await in_thread(_merged, *merge) if long else _merged(*merge)
    changes: list[Change] = [
        Replace(collection.next_row(row, content), row.version),
        Unstage(update.rid, update.sid),
    ]
    if collection.parts.names:
        moves = collection.parts.moves
        changes.extend(await run_in_thread(long, moves, update.rid, current, content))
    if current.fields and any(
        of and not content.fields.get(name) for name, of in current.fields.items()
    ):
        changes.append(ForgetReplies(update.rid))  # answers of the interface show it
    replaced = [current] if update.both and changed(current.values, content.values) else []
    changes += [StageRow(_before(collection, row, one)) for one in replaced]
    if row.staged > 1:
        staged = (await collection.staged_beside({row.rid: row})).get(row.rid, ())
        await collection.state.look()
        others = [other for other in staged if other.sid not in collection.state.at_work]
        opened = [
            (other, version)
            for other in others
            if (version := collection.sealer.open_staged(other, row.salt)) is not None
        ]
        if update.both:  # nobody knows of this record whether it was changed at all
            opened = [(other, of) for other, of in opened if other.at >= SEEN_IN_PAGE]
            opened.sort(key=lambda one: one[0].sid)
            opened = opened[_EARLIER // 2 : -_EARLIER // 2]
        rebased = Rebased([], set(), [])
        if opened:
            rebased = rebase(collection, row, opened, (current, content), update.named)
        gone = {update.sid, *rebased.gone}
        changes.extend(
            [
                *rebased.changes,
                *(await unneeded(collection, row, gone, (content, *rebased.left, *replaced)) or ()),
            ]
        )
    else:
        gone_versions = (current, update.after)
        changes.extend(await outdated(collection, update.rid, gone_versions, (content, *replaced)))
    return changes, content


def _as_sent(
    collection: Collection, update: Update, tokens_shown: Mapping[str, tuple[str, ...]]
) -> Mapping[str, tuple[str, ...]]:
    """The tokens that the answer shows, as they were sent: the application may write a number in
    its own manner.
    """
    spelled = dict(tokens_shown)
    for name in changed(update.before.values, update.after.values) & tokens_shown.keys():
        versions = update.before.values.get(name, ()), update.after.values.get(name, ())
        tokens = {one.token for values in versions for one in values}
        if not tokens.issuperset(spelled[name]):
            spelled[name] = tuple(
                [collection.respelled(name, text, tokens) or text for text in spelled[name]]
            )
    return spelled


def _before(collection: Collection, row: Row, version: RecordBody) -> Staged:
    """Put the version before an update in doubt, in place of the update, which is live.

    Its tokens resolve, and an answer that shows it makes it live again.
    """
    sid, now = collection.context.sequence(), collection.clock()
    collection.state.report(sid)  # the new values are shown where no token tells
    one = Staged(sid, row.rid, StagedKind.UPDATE, SEEN_IN_PAGE, now, True, b"")
    return collection.sealer.record(row.rid, row.salt).staged(one, version)


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


def promotion_of(collection: Collection, write: StagedWrite) -> list[Change]:
    """The changes that make an update of ``update_at_once`` live, whose answer shows no token that
    it replaced; nothing for any other write. To be committed in the same breath.
    """
    row, live, content, sid = write.row, write.live, write.content, write.sid
    if row is None or live is None or content is None or sid is None:
        return []
    before = live.values
    drop: list[bytes] = []
    for name, values in write.tokens.items():
        stored = before.get(name, values)
        if stored is not values and has_entry(collection, write.rid, name, stored[0].token):
            drop.append(collection.token_hash(name, stored[0].token))
    changes: list[Change] = [
        Replace(collection.next_row(row, content, write.sealer), row.version),
        Unstage(write.rid, sid),
    ]
    if drop:
        changes.append(Reindex(write.rid, drop=tuple(drop)))
    write.promoted = content
    return changes


def _merged(
    current: RecordBody, update: Update, tokens_shown: Mapping[str, tuple[str, ...]]
) -> RecordBody:
    """Merge an update into the version that is live by now; an update revives a marked record."""
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
    return replace(merged, deleted=0, until=0) if merged.deleted else merged


class Rebased(NamedTuple):
    """The outcome for versions in doubt: changes, dropped ones, and successors."""

    changes: list[Change]
    gone: set[int]
    left: list[RecordBody]


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
    rebased = Rebased([], set(), [])
    moved = changed(before.values, after.values)
    for staged, version in opened:
        names = {
            name for name in moved if version.values.get(name, ()) == before.values.get(name, ())
        }
        names |= named if staged.at >= SEEN_IN_PAGE else alike(after.values, version.values) & named
        if not names:
            continue
        rebased.gone.add(staged.sid)
        rebased.changes.append(Unstage(row.rid, staged.sid))
        left = adopt(version, {name: after.values.get(name, ()) for name in names}, after.following)
        if changed(after.values, left.values):
            sid = collection.context.sequence()
            if staged.sid in collection.state.reported:
                collection.state.report(sid)
            sealer = collection.sealer.record(row.rid, row.salt)
            rebased.changes.append(StageRow(sealer.staged(staged._replace(sid=sid), left)))
            rebased.left.append(left)
    return rebased


async def forgotten(
    collection: Collection, write: StagedWrite, row: Row, sid: int
) -> list[Reindex]:
    """Return the index entries that go with a staged change that the application refused."""
    if write.content is None or write.live is None:
        return []
    # it had no changes when it was staged, and nothing was staged since
    if not row.staged:
        return await outdated(collection, write.rid, (write.content,), (write.live,))
    rows = await collection.store.rows(collection.table, [write.rid])
    ended = await unneeded(collection, rows[write.rid], {sid}) if write.rid in rows else None
    return [one for one in ended or () if isinstance(one, Reindex)]  # nobody has got its tokens
