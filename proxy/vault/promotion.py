"""What an update that the application took makes of a record: its live version, and what is left of versions in doubt."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from proxy.offload import in_thread
from proxy.storage.changes import Change, Replace, Stage, Unstage
from proxy.storage.rows import Row
from proxy.vault.collection import LONG, Collection
from proxy.vault.content import Content, Kept, adopted, alike, changed, tells
from proxy.vault.drafting import adopt
from proxy.vault.indexing import outdated, unneeded


class Update(NamedTuple):
    """A staged update that the application took."""

    rid: int
    sid: int
    before: Content  #: the live version that it was made of
    after: Content
    named: AbstractSet[str]  #: the fields that the request carried


async def promotion(collection: Collection, update: Update, shown: Mapping[str, tuple[str, ...]]) -> list[Change]:
    """The changes that make the staged version live, on top of whatever is live by now; none where the record is gone.

    ``shown`` are the tokens by field that the answer shows: a field with its old tokens was not taken.
    """
    rows = await collection.store.rows(collection.table, [update.rid])
    row = rows.get(update.rid)
    if row is None:
        return []
    look = (collection, row, update, shown)
    current, content = await in_thread(_merged, *look) if len(row.body) > LONG else _merged(*look)
    changes: list[Change] = [
        Replace(collection.next_row(row, content), row.version),
        Unstage(update.rid, update.sid),
    ]
    if row.staged > 1:
        changes.extend(await unneeded(collection, row, {update.sid}, content))
        changes.extend(await _overruled(collection, update, row, content))
    else:
        changes.extend(await outdated(collection, update.rid, (current, update.after), (content,)))
    return changes


def _merged(
    collection: Collection, row: Row, update: Update, shown: Mapping[str, tuple[str, ...]]
) -> tuple[Content, Content]:
    """What is live by now, and what it becomes."""
    current, before, after = collection.sealer.open(row), update.before.fields, update.after.fields
    moved = changed(before, after)
    taken: dict[str, tuple[Kept, ...]] = {}
    for name in moved:
        texts, old, new = shown.get(name, ()), before.get(name, ()), after.get(name, ())
        if tells(texts, old, new) is not False:
            taken[name] = adopted(texts, old, new)
    for name in (changed(current.fields, after) & update.named) - moved:
        taken[name] = after.get(name, ())
    return current, adopt(current, taken, update.after.following)


async def _overruled(collection: Collection, update: Update, row: Row, content: Content) -> list[Change]:
    """Versions in doubt lose their values of the fields that this update carries, where no token can tell which one is right.

    What was acknowledged decides: else an answer that shows another field of theirs would put an older value over it.
    """
    changes: list[Change] = []
    for other in (await collection.beside({row.rid: row})).get(row.rid, ()):
        if other.sid in collection.state.in_flight or not other.body:
            continue
        version = collection.sealer.open_staged(other, row.salt)
        names = alike(content.fields, version.fields) & update.named
        if not names:
            continue
        changes.append(Unstage(row.rid, other.sid))
        left = adopt(version, {name: content.fields[name] for name in names}, content.following)
        if changed(content.fields, left.fields):
            sid = collection.around.sequence()
            if other.sid in collection.state.reported:
                collection.state.report(sid)
            body = collection.sealer.record(row.rid, row.salt).staged_body(left, sid)
            changes.append(Stage(other._replace(sid=sid, body=body)))
    return changes
