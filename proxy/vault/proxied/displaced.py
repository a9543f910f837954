"""A new record that has got the id of another one: both are one record, as far as anybody knows.

An application answers a create with an id that is known where it updates what it has by a unique
field, or leaves that as it is, and where a form is sent twice. Others give an id again after they
deleted its record by themselves. The record before becomes a version of the new one: an object that
shows its tokens makes those values live, and a delete ends both.
"""

from collections.abc import Mapping

from proxy.storage.changes import Change, Conflict, Reindex, Remove, Replace, StageRow
from proxy.storage.rows import SEEN_IN_PAGE, Row, Staged, StagedKind
from proxy.vault.body import (
    RecordBody,
    TokenizedValue,
    adopted_values,
    changed,
    next_generation,
    tells,
)
from proxy.vault.collection import Collection
from proxy.vault.earlier_values import confuses, keeping, stored_values
from proxy.vault.next_version import adopt
from proxy.vault.proxied.binding import StagedWrite
from proxy.vault.proxied.merge_duplicates import renumbered, telling_hashes
from proxy.vault.proxied.open_rows import OpenRow, open_with_staged


async def join_displaced(
    collection: Collection, write: StagedWrite, tokens_shown: Mapping[str, tuple[str, ...]]
) -> None:
    """Make the record that ``bind`` left without a name a version of the one that has it.

    ``tokens_shown`` are the tokens by field in the answer: they tell which of two values is live.
    Without ``versions: keep`` the others are in doubt, for as long as no object shows each field.

    It stays as it is, without a name, where it is more than values of the application: in a bin,
    with files, in doubt itself, or written by the interface.
    """
    rows = await collection.store.rows(collection.table, write.twins)
    opened = await open_with_staged(collection, (), rows.values())
    await collection.state.look()
    before, home = (opened.get(rid) for rid in write.twins)
    if before is None or home is None or not _alone(collection, before, home):
        return
    if await collection.store.files(collection.table, [before.row.rid]):
        return
    earlier_values, number = renumbered(
        before.live.earlier, next_generation([home.live, before.live])
    )
    values, number = renumbered(before.live.values, number)
    old = RecordBody(values, number, earlier=earlier_values)
    earlier = RecordBody(earlier=dict(stored_values(old)))
    if collection.keeps and confuses(earlier, home.live, collection.compared):
        return
    new = home.live.values
    names = [
        name
        for name in values
        if tells(tokens_shown.get(name, ()), new.get(name, ()), values[name])
    ]
    taken = {
        name: adopted_values(tokens_shown[name], new.get(name, ()), values[name]) for name in names
    }
    changes: list[Change] = [
        *_versions(collection, home, old, taken),
        Remove(before.row.rid, keep_past=True),
        Reindex(home.row.rid, add=tuple(telling_hashes(collection, stored_values(old)))),
    ]
    try:
        await collection.store.commit(collection.table, changes)
    except Conflict:
        return  # it is being changed: an answer that shows its tokens joins them


def _alone(collection: Collection, before: OpenRow, home: OpenRow) -> bool:
    """Whether nothing else is known of the first than its values, and nothing is under way."""
    at_work = collection.state.at_work
    rows: tuple[Row, Row] = (before.row, home.row)
    return (
        before.row.key is None
        and home.row.key is not None
        and not any(row.staged or row.rid in at_work for row in rows)
        and not (before.live.deleted or before.live.fields or home.live.fields)
    )


def _versions(
    collection: Collection,
    home: OpenRow,
    old: RecordBody,
    taken: Mapping[str, tuple[TokenizedValue, ...]],
) -> list[Change]:
    """The changes that give the record the version before, and make ``taken`` of it live."""
    row, live = home.row, home.live
    content = adopt(live, taken, old.following)
    changes: list[Change] = []
    if collection.keeps or taken:
        numbered = keeping(collection, content, (live, old))
        changes.append(Replace(collection.next_row(row, numbered), row.version))
        changes += collection.parts.moves(row.rid, live, content)
    version = adopt(content, old.values, old.following)
    if not collection.keeps and changed(content.values, version.values):
        now, sid = collection.clock(), collection.context.sequence()
        collection.state.report(sid)  # the new values are shown where no token tells
        one = Staged(sid, row.rid, StagedKind.UPDATE, SEEN_IN_PAGE, now, True, b"")
        changes.append(StageRow(collection.sealer.record(row.rid, row.salt).staged(one, version)))
        collection.state.doubt(row.rid)
    return changes
