"""Settles records in doubt by pages that show them.

A page proves less than an object in JSON: it may show what the caller typed, from its session, or a
log of changes. So it decides which version is live, and both stay.
"""

from collections import Counter
from collections.abc import Collection as Some

from proxy.storage.changes import Change, Replace, StageRow, Unstage
from proxy.storage.rows import SEEN_IN_PAGE, Row, Staged
from proxy.tokenization.base import Resolution
from proxy.vault.body import RecordBody, changed
from proxy.vault.collection import Collection
from proxy.vault.next_version import adopt
from proxy.vault.proxied.binding import is_promise_of, is_promised, is_promised_alone
from proxy.vault.proxied.open_rows import AnswerObject, OpenRow
from proxy.vault.proxied.promotion import rebase
from proxy.vault.proxied.reconcile import (
    PUT_OFF,
    Settlement,
    commit_settlement,
    is_doubtful,
    put_off,
    verdicts_on,
)

#: A token of a page tells which version it shows if its shape has so many, and it is so long:
#: others stand there by chance.
_DISTINCT, _SHORTEST = 1000.0, 6
#: Milliseconds after which a page shows neither a form of its caller's session nor what was lately.
_LONG_AFTER = 7 * 86_400_000


async def settle_page(
    collection: Collection, opened: Some[OpenRow], texts: Some[str], began: int, *, alone: bool
) -> None:
    """Keep for good what is in doubt of records that a successful page shows, asked at ``began``.

    ``texts``: the tokens that stand in it, without those that its caller wrote. Where it shows a
    version in doubt and nothing of the live one, the two are exchanged: that version is live then,
    and found by searches, and the replaced one is in doubt. Its tokens resolve until an answer in
    JSON or a later write decides it, so nothing is lost where the page did not show what is stored.

    ``alone``: the page is about one record. Another one may say that a record was deleted.
    """
    state = collection.state
    doubtful = [one for one in opened if one.row.staged]
    if not doubtful:
        return
    began = state.before(began, collection.clock())
    await state.look()
    lasting = [one for one in opened if one.row.key and not (one.row.staged or one.live.deleted)]
    theirs = {pair for one in lasting for pair in one.live.value_tokens() if pair[1] in texts}
    # that a record is not deleted is told by no token of another one that stays, doubtful or not
    holders = Counter(pair for one in opened for pair in one.values if pair[1] in texts)
    alone_in = {pair for pair, count in holders.items() if count == 1}
    shared = theirs.copy()
    for one in doubtful:
        own = {pair for pair in alone_in & one.values.keys() if _tells_version(collection, *pair)}
        if one.row.key and not one.live.deleted and (own or not _ends(one)):
            shared |= one.live.value_tokens() - (own if _ends(one) else set())
    for one in doubtful:
        if one.row.rid in state.at_work:
            continue
        look = texts, shared if _ends(one) else theirs, alone
        outcome = _page_outcome(collection, one, look, began)
        if outcome is not None and await commit_settlement(collection, one.row, outcome):
            one.live = outcome.live


def _ends(opened: OpenRow) -> bool:
    """Whether a delete of the record is in doubt."""
    return any(version is None for _, version in opened.staged)


def _page_outcome(
    collection: Collection, opened: OpenRow, look: tuple[Some[str], Some[object], bool], began: int
) -> Settlement | None:
    """The outcome of a page for one record; ``None`` where it changes nothing.

    ``look``: its texts, the tokens in it of records that stay (of others these tell nothing), and
    whether it is about this record alone.
    """
    row, live, (texts, theirs, alone) = opened.row, opened.live, look
    places = tuple(
        pair
        for pair in opened.values
        if pair[1] in texts and pair not in theirs and _tells_version(collection, *pair)
    )
    if places:
        collection.state.unsure.pop(row.rid, None)  # it is decided now
    verdicts = verdicts_on(opened, AnswerObject(None, places), page=True)
    doubtful = [pair for pair in opened.staged if is_doubtful(collection, pair[0], began)]
    deletes = [staged for staged, version in doubtful if version is None]
    undone, promised = _deletes(collection, opened, deletes, bool(places), alone)
    if promised:
        # the page may name whom it has deleted, and another version would outlive that
        displayed = [pair for pair in doubtful if verdicts.get(pair[0].sid)]
        changes, left = _put_off(collection, opened, promised, displayed)
        changes = [*changes, *undone] if places else []
        return Settlement(live, changes, left, set()) if changes else None
    for staged, version in reversed(doubtful):
        if version is None:
            continue
        if not verdicts[staged.sid]:
            if alone and _is_superseded(collection, (staged, version), live, places):
                undone.append(Unstage(row.rid, staged.sid))
            continue
        against = set(places) & (live.value_tokens() - version.value_tokens())
        if not (live.deleted or row.updated_at > began):
            standing = set(places) & (version.value_tokens() - live.value_tokens())
            names = {name for name, _ in standing} - {name for name, _ in against}
            if not against or names:
                some = names if against else ()
                outcome = _exchanged(collection, opened, (staged, version), some)
                return outcome._replace(changes=[*outcome.changes, *undone])
        if staged.at < SEEN_IN_PAGE:
            marked = staged._replace(doubt=staged.doubt or staged.at)
            changes = _keep_version(collection, row, marked, version)
            return Settlement(live, [*changes, *undone], [live, version], set())
    return Settlement(live, undone, [live], set()) if undone else None


def _deletes(
    collection: Collection, opened: OpenRow, deletes: Some[Staged], displays: bool, alone: bool
) -> tuple[list[Change], list[tuple[Staged, int | None]]]:
    """The changes of deletes in doubt by a page, and the acknowledged ones that it may put off.

    ``displays``: it shows a token that tells the record.
    """
    row, undone = opened.row, list[Change]()
    promised: list[tuple[Staged, int | None]] = []
    for staged in deletes:
        keep = collection.sealer.open_keep(staged, row.salt)
        if displays and is_promised(keep) and (alone or not is_promised_alone(keep)):
            undone.append(Unstage(row.rid, staged.sid))
        elif is_promise_of(keep, row):
            promised.append((staged, keep))
        elif displays and not is_promised(keep):
            undone += put_off(collection, opened, staged)
        elif displays and staged.at >= SEEN_IN_PAGE and _is_old(collection, staged):
            undone.append(Unstage(row.rid, staged.sid))  # an edit came after it, without a word
    return undone, promised


def _is_old(collection: Collection, delete: Staged) -> bool:
    """Whether a page that is asked for now is no longer the one that tells of a delete."""
    now = collection.clock()
    return now - (delete.doubt or now) >= PUT_OFF


def _put_off(
    collection: Collection,
    opened: OpenRow,
    promised: Some[tuple[Staged, int | None]],
    displayed: Some[tuple[Staged, RecordBody | None]],
) -> tuple[list[Change], list[RecordBody]]:
    """Deletes that the application acknowledged, and a page of something else shows the record:
    they are carried out so much later, for a list may show it, and the application have refused.
    Versions in doubt that the page shows stay for as long. The changes, and the versions left.
    """
    row, now, later = opened.row, collection.clock(), list[Staged]()
    sealer, left = collection.sealer.record(row.rid, row.salt), [opened.live]
    for delete, keep in promised:
        if now - delete.at >= PUT_OFF:
            later.append(sealer.staged(delete._replace(at=now), None, keep))
    for one, body in displayed:
        if body is not None and one.at < SEEN_IN_PAGE:
            lasting = one._replace(at=SEEN_IN_PAGE, doubt=one.doubt or one.at)
            later.append(sealer.staged(lasting, body))
            left.append(body)
    changes: list[Change] = [Unstage(row.rid, one.sid) for one in later]
    return [*changes, *map(StageRow, later)], left


def _is_superseded(
    collection: Collection,
    earlier: tuple[Staged, RecordBody],
    live: RecordBody,
    places: Some[tuple[str, str]],
) -> bool:
    """Whether a page shows, long after, each value that took the place of one of this version."""
    staged, version = earlier
    if (
        staged.at < SEEN_IN_PAGE
        or collection.clock() - (staged.doubt or collection.clock()) < _LONG_AFTER
    ):
        return False
    newer = set(places) & (live.value_tokens() - version.value_tokens())
    return changed(live.values, version.values) <= {name for name, _ in newer}


def _exchanged(
    collection: Collection, opened: OpenRow, doubtful: tuple[Staged, RecordBody], some: Some[str]
) -> Settlement:
    """The version is live, and the one before in its place; of ``some`` fields alone, both stay
    beside what is live then.
    """
    row, live, now, (staged, version) = opened.row, opened.live, collection.clock(), doubtful
    names = some or (live.values.keys() | version.values.keys())
    fields = {name: version.values.get(name, ()) for name in names}
    content = adopt(live, fields, opened.following, version.written)
    others = [
        (one, body) for one, body in opened.staged if body and not some and one.sid != staged.sid
    ]
    rebased = rebase(collection, row, others, (live, content))
    replaced = staged._replace(doubt=now, answered=True)
    changes: list[Change] = [Replace(collection.next_row(row, content), row.version)]
    changes += collection.parts.moves(row.rid, live, content)
    replacing = _keep_version(collection, row, replaced, live)
    changes += [*replacing[1 if some else 0 :], *rebased.changes]
    left = [body for _, body in opened.staged if body] if some else rebased.left
    return Settlement(content, changes, [content, live, *left], set())


def _keep_version(
    collection: Collection, row: Row, staged: Staged, version: RecordBody
) -> list[Change]:
    """The changes that put a version in the place of a staged one, until an answer decides it."""
    one = staged._replace(sid=collection.context.sequence(), at=SEEN_IN_PAGE)
    sealer = collection.sealer.record(row.rid, row.salt)
    return [Unstage(row.rid, staged.sid), StageRow(sealer.staged(one, version))]


def _tells_version(collection: Collection, name: str, token: str) -> bool:
    """Whether a token of the field hardly stands in a page by chance."""
    shape = collection.shapes.get(name)
    return (
        shape is not None
        and len(token) >= _SHORTEST
        and shape.resolution is not Resolution.CLEAR
        and shape.capacity() >= _DISTINCT
    )
