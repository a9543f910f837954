"""A new record that has got the id of another one: both are one record, as far as anybody knows.

An application answers a create with an id that is known where it updates what it has by a unique
field, or leaves that as it is, and where a form is sent twice. Others give an id again after they
deleted its record by themselves. The record before becomes a version of the new one: an object that
shows its tokens makes those values live, and a delete ends both.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from proxy.storage.changes import Change, Conflict, Reindex, Remove, Replace, StageRow
from proxy.storage.rows import SEEN_IN_PAGE, Staged, StagedKind
from proxy.vault.body import (
    RecordBody,
    TokenizedFields,
    TokenizedValue,
    adopted_values,
    alike,
    changed,
    is_as_before,
    next_generation,
    tells,
)
from proxy.vault.collection import Collection
from proxy.vault.earlier_values import confuses, erased_values, keeping, stored_values
from proxy.vault.next_version import adopt
from proxy.vault.proxied.binding import StagedWrite, is_over
from proxy.vault.proxied.merge_duplicates import renumbered, telling_hashes
from proxy.vault.proxied.open_rows import OpenRow, open_with_staged

#: Versions in doubt with which a record is still joined: each create opens and judges all of them.
_MOST_VERSIONS: Final = 9


async def join_displaced(
    collection: Collection, write: StagedWrite, tokens_shown: Mapping[str, tuple[str, ...]]
) -> None:
    """Make the record that ``bind`` left without a name a version of the one that has it.

    ``tokens_shown`` are the tokens by field in the answer: they tell which of two values is live.
    Without ``versions: keep`` the others are in doubt, for as long as no object shows each field.

    It stays as it is, without a name, where it is more than values of the application: in a bin,
    with files, about to be deleted or changed, has many versions in doubt, or was written by the
    interface.
    """
    rows = await collection.store.rows(collection.table, write.twins)
    opened = await open_with_staged(collection, (), rows.values())
    await collection.state.look()
    before, home = (opened.get(rid) for rid in write.twins)
    if before is None or home is None or not _alone(collection, before, home):
        return
    if await collection.store.files(collection.table, [before.row.rid]):
        return
    versions = _renumbered(before, home)
    new = home.live.values
    if collection.keeps and any(
        confuses(RecordBody(earlier=dict(stored_values(one))), home.live, collection.compared)
        for one in versions
    ):
        return
    taken: dict[str, tuple[TokenizedValue, ...]] = {}
    for old in reversed(versions):  # the live one, then the latest that the answer shows
        for name in _of_before(tokens_shown, new, old.values) - taken.keys():
            texts = tokens_shown.get(name, ())
            taken[name] = adopted_values(texts, new.get(name, ()), old.values[name])
    hashes = {
        one: None for old in versions for one in telling_hashes(collection, stored_values(old))
    }
    changes: list[Change] = [
        *_versions(collection, home, versions, taken),
        Remove(before.row.rid, keep_past=True),
        Reindex(home.row.rid, add=tuple(hashes)),
    ]
    try:
        await collection.store.commit(collection.table, changes)
    except Conflict:
        return  # it is being changed: an answer that shows its tokens joins them


def _renumbered(before: OpenRow, home: OpenRow) -> list[RecordBody]:
    """The versions of the record before under numbers that are free in the other: those of updates
    in doubt, such as a form that a redirect answered, and last its live one, which counts where
    tokens do not tell.
    """
    versions = [*(one for _, one in before.staged if one is not None), before.live]
    number = next_generation([home.live, *versions])
    renamed: list[RecordBody] = []
    for one in versions:
        earlier, number = renumbered(one.earlier, number)
        values, number = renumbered(one.values, number)
        renamed.append(RecordBody(values, number, earlier=earlier))
    return renamed


def _of_before(
    tokens_shown: Mapping[str, tuple[str, ...]], new: TokenizedFields, values: TokenizedFields
) -> set[str]:
    """The fields of which the answer shows the values of before.

    Of a field whose old and new value have one token, the answer as a whole tells: it shows the
    record as it was where no field has its new value.
    """
    verdicts = {
        name: tells(tokens_shown.get(name, ()), new.get(name, ()), values[name]) for name in values
    }
    names = {name for name, verdict in verdicts.items() if verdict}
    places = [(name, text) for name, texts in tokens_shown.items() for text in texts]
    return names | alike(values, new) if is_as_before(places, new, values) else names


def _alone(collection: Collection, before: OpenRow, home: OpenRow) -> bool:
    """Whether nothing else is known of the first than its values, and nothing is under way."""
    at_work = collection.state.at_work
    over = all(
        version is not None and staged.sid not in at_work and is_over(collection, staged)
        for staged, version in before.staged
    )
    return (
        before.row.key is None
        and home.row.key is not None
        and over
        and not home.row.staged
        and len(before.staged) <= _MOST_VERSIONS
        and not any(one.row.rid in at_work for one in (before, home))
        and not (before.live.deleted or before.live.fields or home.live.fields)
    )


def _versions(
    collection: Collection,
    home: OpenRow,
    versions: Sequence[RecordBody],
    taken: Mapping[str, tuple[TokenizedValue, ...]],
) -> list[Change]:
    """The changes that give the record the versions before, and make ``taken`` of them live."""
    row, live, following = home.row, home.live, versions[-1].following
    content = adopt(live, taken, following)
    changes: list[Change] = []
    if erased := erased_values(versions[-1]):
        own = content.earlier
        both = {name: (*of, *own.get(name, ())) for name, of in erased.items()}
        content = replace(content, earlier={**own, **both})
    if collection.keeps or taken or erased:
        numbered = keeping(collection, content, (live, *versions))
        changes.append(Replace(collection.next_row(row, numbered), row.version))
        changes += collection.parts.moves(row.rid, live, content)
    sealer = collection.sealer.record(row.rid, row.salt)
    for old in () if collection.keeps else versions:
        version = adopt(content, old.values, following)
        if changed(content.values, version.values):
            now, sid = collection.clock(), collection.context.sequence()
            collection.state.report(sid)  # the new values are shown where no token tells
            one = Staged(sid, row.rid, StagedKind.UPDATE, SEEN_IN_PAGE, now, True, b"")
            changes.append(StageRow(sealer.staged(one, version)))
            collection.state.doubt(row.rid)
    return changes
