"""Reconciliation: later answers decide what an earlier one left in doubt.

An object that the application shows tells by its tokens which version it kept. Only answers to
requests that began after the doubt arose and after the record was last settled count, and nothing
is dropped on the word of an answer while the application may still be working on the doubtful
request (``RECONCILE_GRACE``): promoting adds, dropping destroys.

A page proves less (``settle_page``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from proxy.crypto.prf import either
from proxy.offload import STRIDE, busy, give_way
from proxy.storage.changes import Bind, Change, Conflict, Replace, StageRow, Unstage
from proxy.storage.rows import SEEN_IN_PAGE, Row, Staged
from proxy.vault.body import RecordBody, TokenizedValue, alike, changed, tokens_of
from proxy.vault.collection import Collection
from proxy.vault.earlier_values import keeping, marked_values
from proxy.vault.next_version import adopt
from proxy.vault.proxied.binding import is_over, is_promised, is_unsure_mark, removes
from proxy.vault.proxied.merge_duplicates import (
    gone_since,
    join_objects,
    join_shown,
    keep,
    stage_lost_values,
)
from proxy.vault.proxied.naming import Displacement, bind_shown
from proxy.vault.proxied.open_rows import AnswerObject, OpenRow, Revealed
from proxy.vault.proxied.promotion import rebase
from proxy.vault.proxied.token_entries import unneeded
from proxy.vault.verdicts import adopted_values, taken, tells, verdict_together


async def reconcile_objects(
    collection: Collection, objects: Sequence[AnswerObject], revealed: Revealed, began: int
) -> set[str]:
    """Join, bind, promote or drop what these objects of an answer decide; ``began`` is when its
    request was received.

    ``revealed.rows`` are then the records as they are live now. Gives the fields of updates, met
    for the first time, that no answer can decide.
    """
    rows, state = revealed.rows, collection.state
    began = state.before(began, collection.clock())
    if state.replicas is not None:
        await state.look()
    gone = gone_since(collection, objects, began)
    if gone:
        loose = [one for one in revealed.loose if one[0] not in gone]
        pending = [one for one in revealed.pending if one[0] not in gone]
        revealed = revealed._replace(loose=loose, pending=pending)
    left: list[tuple[int, OpenRow]] = []
    if revealed.loose or revealed.pending:
        joins = partial(_joins, collection)
        rows[:], left = await join_objects(collection, objects, revealed, began, joins)
    for one in [row for row in rows if row is not None and row.lost_values]:
        await stage_lost_values(collection, one)
    decided, bound, undecided = set[int](), set[int](), set[str]()
    for index, (item, row) in enumerate(zip(objects, rows, strict=True), 1):
        if index % STRIDE == 0 and busy():
            await give_way()
        if row is None or row.row.rid in decided or row.row.rid in state.at_work:
            continue
        if row.row.key is None and index - 1 in gone:
            continue
        outcome = _judged(collection, item, row, began)
        undecided |= outcome.undecided
        if outcome.changes:
            decided.add(row.row.rid)
            if await _commit(collection, item, row, outcome, began):
                bound.add(row.row.rid)
    if left:
        ids = [ident for at, _ in left if (ident := objects[at].id) is not None]
        await state.hear(map(collection.key_hash, ids))  # of deletes at other replicas
        gone = gone_since(collection, objects, began)
        lasting = (one for at, one in left if at not in gone and one.row.rid not in bound)
        await keep(collection, lasting, began)
    return undecided


async def _commit(
    collection: Collection, item: AnswerObject, opened: OpenRow, outcome: "Settlement", began: int
) -> bool:
    """Commit what an object decides of its record. Return whether that has got its name by it, or
    ends with the one that has the name.
    """
    first, row = outcome.changes[0], opened.row
    if not isinstance(first, Bind):
        if await commit_settlement(collection, row, outcome):
            opened.live = outcome.live
        return False
    of, texts = (first, row.salt), _texts_by_field(item)
    if await bind_shown(collection, outcome.changes, of, texts, began):
        opened.live = outcome.live
        return True
    # the record with the id is under change: this one would outlive it
    joins = partial(_joins, collection, item)
    return await join_shown(collection, (row.rid, first.key), False, began, joins)


async def _joins(
    collection: Collection, of: AnswerObject, pair: tuple[int, int], tells: bool, under_way: bool
) -> Sequence[Change]:
    """The changes that join two records, ``JoinsOf``."""
    texts = _texts_by_field(of) if tells else {}
    join = Displacement(lambda _: texts, under_way=under_way, places=of.places)
    return (await join.changes(collection, dict([pair])))[pair]


#: Milliseconds for which views of a record put a delete off once.
PUT_OFF = 3_600_000


class Settlement(NamedTuple):
    """Outcome of an object: live version, changes that give it, new versions, undecided fields."""

    live: RecordBody
    changes: list[Change]
    left: list[RecordBody]
    undecided: set[str]


async def commit_settlement(collection: Collection, row: Row, outcome: Settlement) -> bool:
    """Commit the decisions, and remove index entries of the dropped versions.

    Return whether the record was still as read.
    """
    changes, left = outcome.changes, outcome.left
    settled = {change.sid for change in changes if isinstance(change, Unstage)}
    locks = collection.state.locks
    locked = bool(settled) and row.key is not None and await locks.attempt(row.key)
    try:
        if locked:  # else the record is being changed: the entries stay, and resolve to nothing
            changes.extend(await unneeded(collection, row, settled, left) or ())
        await collection.store.commit(collection.table, changes)
    except Conflict:
        return False  # another request settled it meanwhile; the next answer shows the rest
    finally:
        if locked and row.key is not None:
            locks.release((row.key,))
    collection.observe("reconciled")
    return True


def _judged(collection: Collection, item: AnswerObject, opened: OpenRow, began: int) -> Settlement:
    outcome = Settlement(opened.live, [], [], set())
    texts_by_field, row = _texts_by_field(item), opened.row
    has_tokens = not opened.values.keys().isdisjoint(item.places)
    ids = (item.id,) if row.staged and item.id is not None else ()
    named = row.key is not None and row.key in either(map(collection.key_hash, ids))
    copied = row.key is not None and bool(ids) and not named  # under another id: tells nothing
    if row.key is None and item.id is not None and has_tokens:
        outcome.changes.extend(_binding(collection, item.id, opened))
    content = opened.live
    verdicts = verdicts_on(opened, item)
    versions = [one for _, one in opened.staged if one is not None]
    waiting: list[tuple[Staged, RecordBody]] = []
    taken_back: list[tuple[Staged, RecordBody, RecordBody]] = []
    delayed: list[Change] = []
    ended: list[RecordBody] = []
    changes = opened.staged if row.updated_at <= began else ()
    for number, (staged, version) in enumerate(changes, 1):
        telling = (has_tokens and not copied) or (named and version is None)
        if not (telling and is_doubtful(collection, staged, began)):
            continue
        over = is_over(collection, staged)
        if version is None:
            # a marked record may be visible all the same, in a bin
            lasting = collection.sealer.open_keep(staged, row.salt)
            settled = over and (removes(lasting) if has_tokens else is_promised(lasting))
            delayed = delayed or put_off(collection, opened, staged)
        else:
            verdict = verdicts[staged.sid]
            later = [
                other
                for rival, other in changes[number:]
                if other is not None and (not verdict or verdicts[rival.sid])
            ]
            part = _not_superseded(content, version, later)
            before, replaced = content, staged.at >= SEEN_IN_PAGE
            follows = partial(verdict_together, {*item.places}, (opened.live, version), verdict)
            look = (content, part, *versions), texts_by_field, (verdict, follows)
            content, settled = _decide(*look, over=over, replaced=replaced)
            if content is not before and replaced:
                taken_back.append((staged, before, content))
            if content is not before and 0 < content.deleted < _staging_time(staged):
                content = replace(content, deleted=0, until=0)  # it was changed after its delete
            settled = settled and part is version
        if settled:
            outcome.changes.append(Unstage(row.rid, staged.sid))
            ended += [version] if version is not None else []
        elif version is not None:
            waiting.append((staged, version))
    if content is not opened.live:
        _replace_live(collection, opened, (content, ended), waiting, outcome)
        outcome.changes.extend(_doubted_again(collection, row, taken_back, (content, outcome.left)))
    _keep_ended(collection, opened, (content, ended), outcome)
    outcome.changes.extend(delayed if content is opened.live else ())
    for staged, version in waiting:
        names = alike(content.values, version.values)
        distinct = names != changed(content.values, version.values)
        if names and not distinct and collection.state.report(staged.sid):
            outcome.undecided.update(names)
    return outcome._replace(live=content)


def _keep_ended(
    collection: Collection,
    opened: OpenRow,
    versions: tuple[RecordBody, Sequence[RecordBody]],
    outcome: Settlement,
) -> None:
    """Keep what versions have that end where the live one stays, the first of ``versions``: the
    application may have them beside it.
    """
    content, ended = versions
    if not (collection.keeps and ended and content is opened.live):
        return
    numbered = keeping(collection, replace(content, following=opened.following), ended)
    same = collection.same_row(opened.row, numbered)
    outcome.changes.append(Replace(same, opened.row.version))
    outcome.left.append(content)


def put_off(collection: Collection, opened: OpenRow, delete: Staged) -> list[Change]:
    """The end of a record that a delete has marked, put off where nothing tells that the
    application has marked it, and an answer shows it: it may have refused, or it shows its bin.

    No later than the entity's own end.
    """
    row, live = opened.row, opened.live
    if not (live.until and row.expires_at == live.until):
        return []
    if not is_unsure_mark(collection, delete, row.salt):
        return []
    keep = collection.sealer.open_keep(delete, row.salt) or 0
    until = collection.clock() + keep
    if collection.expires is not None:
        until = min(until, live.deleted + collection.expires)
    if until - live.until < min(PUT_OFF, keep // 10):
        return []
    content = replace(live, until=until)
    return [Replace(collection.same_row(row._replace(expires_at=until), content), row.version)]


def _replace_live(
    collection: Collection,
    opened: OpenRow,
    versions: tuple[RecordBody, Sequence[RecordBody]],
    waiting: Sequence[tuple[Staged, RecordBody]],
    outcome: Settlement,
) -> None:
    """Add to an outcome what makes a version live, and those in doubt follow it; ``versions``: that
    one, and those that end.
    """
    row, live, (content, ended) = opened.row, opened.live, versions
    numbered = keeping(collection, replace(content, following=opened.following), ended)
    outcome.changes.append(Replace(collection.next_row(row, numbered), row.version))
    outcome.changes.extend(collection.parts.moves(row.rid, live, content))
    rebased = rebase(collection, row, waiting, (live, content))
    outcome.changes.extend(rebased.changes)
    outcome.left.extend((content, *rebased.left))


def _doubted_again(
    collection: Collection,
    row: Row,
    taken_back: Sequence[tuple[Staged, RecordBody, RecordBody]],
    live: tuple[RecordBody, list[RecordBody]],
) -> Iterator[Change]:
    """Put in doubt again, on top of ``live``, what pages had made live and an answer takes back.

    Its request may still be at work, and the answer may be of a copy that lags behind.
    """
    content, left = live
    now = collection.clock()
    for staged, before, after in taken_back:
        fields = {
            name: before.values.get(name, ()) for name in changed(before.values, after.values)
        }
        following = max(before.following, content.following)
        left.append(adopt(content, fields, following, before.written))
        sid = collection.context.sequence()
        one = staged._replace(sid=sid, at=now, doubt=now, answered=False)
        yield StageRow(collection.sealer.record(row.rid, row.salt).staged(one, left[-1]))


def verdicts_on(
    opened: OpenRow, item: AnswerObject, *, page: bool = False
) -> dict[int, bool | None]:
    """For each staged update whether the object as a whole shows that it was taken.

    ``page``: it may show parts of both.
    """
    sids = [staged.sid for staged, version in opened.staged if version is not None]
    versions, older = opened.versions()
    return dict(
        zip(sids, taken(item.places, opened.live, versions, () if page else older), strict=True)
    )


def _not_superseded(
    live: RecordBody, version: RecordBody, later: Sequence[RecordBody]
) -> RecordBody:
    """The version with the live value in fields for which a later one in doubt has the same token.

    An application that shows this token shows the later value where it carried out both requests.
    """
    fields = dict(version.values)
    for name, values in version.values.items():
        tokens, age = tokens_of(values), version.age(name, values)
        for other in later:
            rival = other.values.get(name, ())
            if rival and other.age(name, rival) > age and tokens_of(rival) == tokens:
                fields[name] = live.values.get(name, ())
    return version if fields == version.values else replace(version, values=fields)


def _decide(
    versions: Sequence[RecordBody],
    texts_by_field: Mapping[str, Sequence[str]],
    verdicts: tuple[bool | None, Callable[[str], bool | None]],
    *,
    over: bool,
    replaced: bool,
) -> tuple[RecordBody, bool]:
    """Field by field: a text of the doubtful version adopts it, a text of the live one rejects it.

    A field with the same token in both shows nothing: it follows what was written with it, or the
    object as a whole (``taken``), the pair of ``verdicts``.
    ``versions``: live, the doubtful one, and all of those in doubt. ``replaced``: it had been live,
    so it may be older.
    """
    (live, version, *others), (taken, follows) = versions, verdicts
    fields: dict[str, tuple[TokenizedValue, ...]] = {}
    names, marked = changed(live.values, version.values), marked_values(live)
    settled = over or bool(names)  # one without a change may still bring these values back
    for name in sorted(names):
        present, new = live.values.get(name, ()), version.values.get(name, ())
        old, texts = marked.get(name, ()) if new else present, texts_by_field.get(name, ())
        if tokens_of(old) != tokens_of(new):
            verdict = tells(texts, old, new)
            if verdict and not taken and not _stand_for(new, name, others):
                verdict = None  # its texts are another version's, too
        elif version.age(name, new) < live.age(name, old) and not replaced:
            continue  # it was written since
        else:
            verdict = follows(name)
        if verdict:
            fields[name] = adopted_values(texts, present, new)
            continue
        if verdict is None and taken and set(texts) & set(tokens_of(new)):  # others may be left
            fields[name] = adopted_values(tokens_of(present), present, new)
        settled = settled and verdict is False and over
    content = adopt(live, fields, version.following, version.written) if fields else live
    return content, settled


def _stand_for(values: Sequence[TokenizedValue], name: str, versions: Sequence[RecordBody]) -> bool:
    """Whether the tokens of these values stand for them in each version that has those."""
    meant = {one.token: one.value for one in values}
    stored = [one for version in versions for one in version.values.get(name, ())]
    return all(meant.get(one.token, one.value) == one.value for one in stored)


def _staging_time(staged: Staged) -> int:
    """When the change was made; one that a page has shown counts from its doubt."""
    return min(staged.at, staged.doubt or staged.at)


def is_doubtful(collection: Collection, staged: Staged, began: int) -> bool:
    """Whether the staged change is no longer in flight, and the answer was requested after that.

    A change neither in flight nor marked as doubtful was left by a dead process.
    """
    if staged.sid in collection.state.at_work:
        return False
    return (staged.at if staged.doubt is None else staged.doubt) <= began


def _texts_by_field(item: AnswerObject) -> dict[str, tuple[str, ...]]:
    texts: dict[str, list[str]] = {}
    for name, text in item.places:
        texts.setdefault(name, []).append(text)
    return {name: tuple(several) for name, several in texts.items()}


def _binding(collection: Collection, key: str, opened: OpenRow) -> list[Change]:
    row, now = opened.row, collection.clock()
    sealed = collection.sealer.record(row.rid, row.salt).key(key, now)
    return [Bind(row.rid, collection.key_hash(key), sealed, now)]


# Pages
