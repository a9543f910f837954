"""Merge of one record into another in one commit; fields, attachments and history go over.

One commit.

A value of the source replaces that of the destination; the primary key and the time of creation are
those of the destination. If one of the two was to expire, the whole expires at the earlier time.

Past versions are sealed for their record and its number, so those of the source are re-encrypted.
They get the numbers after the destination's present one, and keep their times of creation and
replacement.
"""

from collections.abc import Sequence
from typing import NamedTuple

from proxy.audit.events import EventKind
from proxy.errors import Code, Detail, VaultError
from proxy.model.policy import Act
from proxy.model.record import Record
from proxy.storage.changes import AddVersion, Change, Reindex, Remove, UpdateFile
from proxy.storage.rows import Past, Row
from proxy.vault.body import Extras, moved, next_eras
from proxy.vault.records.attachment_metadata import handed_over
from proxy.vault.records.commit import (
    COMMIT_TRIES,
    ExtraChanges,
    attempt,
    check_end,
    locked,
    overtaken,
    refuse_of_rules,
)
from proxy.vault.records.create import record_of, replacing
from proxy.vault.records.repository import Records
from proxy.vault.records.visibility import RowPolicyCheck

#: Past versions that may go over.
MOST_VERSIONS = 10_000
_PAGE = 1_000


async def merge_records(
    records: Records, source: str, destination: str, by: str, closing: ExtraChanges
) -> None:
    """Take the record ``source`` into ``destination``, both named by their keys.

    ``closing`` gets the merged record.

    Raises ``VaultError``: ``SCHEMA_OF_RULES``; ``NOT_FOUND`` with a detail for each record that is
    missing; ``UNPROCESSABLE`` when both are one, or the source has more than ``MOST`` past
    versions; ``FILE_EXISTS`` when both have a file of one name; ``CANNOT_OPEN``; ``CONFLICT``.
    """
    refuse_of_rules(records, (source, destination))
    if source == destination:
        raise VaultError(Code.UNPROCESSABLE, "A record cannot be migrated to itself.")
    within = RowPolicyCheck(records)
    for act, key in ((Act.READ, source), (Act.DELETE, source), (Act.WRITE, destination)):
        await records.permit(act, (key,))
    async with locked(records, [records.collection.key_hash(key) for key in (source, destination)]):
        for _ in range(COMMIT_TRIES):
            rows = await records.by_key((source, destination))
            rows = {key: row for key, row in rows.items() if within.open(row) is not None}
            _refuse_missing(records, {"source": source in rows, "destination": destination in rows})
            pair = _Pair(rows[source], rows[destination])
            taken = records.open(pair.source)
            merged, changes = _merged(records, (pair, taken), await _past(records, pair.source), by)
            changes += await _files(records, pair)
            await check_end(records, pair.source)
            if await attempt(records, [*changes, Remove(pair.source.rid), *closing((merged,))]):
                records.collection.observe("migrated")
                # readers of the destination see the values of the source
                records.note(EventKind.REVEAL, (source,), taken.fields)
                records.note(EventKind.WRITE, (destination,), merged.fields)
                records.note(EventKind.DELETE, (source,))
                return
    raise overtaken(records)


class _Pair(NamedTuple):
    source: Row
    destination: Row


def _refuse_missing(records: Records, there: dict[str, bool]) -> None:
    missing = tuple(
        Detail(name, "There is no record with this key.")
        for name, is_there in there.items()
        if not is_there
    )
    if missing:
        raise VaultError(
            Code.NOT_FOUND, f"A record of {records.name!r} that is needed does not exist.", missing
        )


async def _past(records: Records, source: Row) -> list[Past]:
    """The past versions of the row, oldest first; not those of an earlier record of its key."""
    versions: list[Past] = []
    if not records.keeps_history:
        return versions
    while True:
        page, total = await records.collection.store.past(
            records.collection.table, source.key or b"", _PAGE, len(versions)
        )
        versions.extend(page)
        if total > MOST_VERSIONS:
            raise VaultError(
                Code.UNPROCESSABLE, f"The source has more than {MOST_VERSIONS:,} past versions."
            )
        if not page or len(versions) >= total:
            return sorted(
                (past for past in versions if past.rid == source.rid), key=lambda past: past.version
            )


async def _files(records: Records, pair: _Pair) -> list[UpdateFile]:
    """Return the changes that move the source's files. ``VaultError``: FILE_EXISTS, CANNOT_OPEN."""
    files = await records.collection.store.files(
        records.collection.table, [row.rid for row in pair]
    )
    taken = {f"source/{number}": file for number, file in enumerate(files.get(pair.source.rid, ()))}
    return handed_over(records.collection, pair, taken, files.get(pair.destination.rid, ()))


def _merged(
    records: Records, sources: tuple[_Pair, Record], past: Sequence[Past], by: str
) -> tuple[Record, list[Change]]:
    """Return the merged destination record, and the changes that make it."""
    pair, other = sources
    before = records.open(pair.destination)
    fields = {
        **before.fields,
        **{name: value for name, value in other.fields.items() if value is not None},
    }
    if records.primary is not None:
        fields[records.primary.name] = before.key
    ends = min([at for at in (before.expires_at, other.expires_at) if at is not None], default=None)
    taken = _taken(records, pair, past) if records.keeps_history else []
    row = pair.destination._replace(version=pair.destination.version + len(taken))
    # Values of the source count as new, even if they equal the former ones: that must not be
    # revealed.
    eras = next_eras(
        before,
        fields,
        [name for name in other.fields if other.fields[name] is not None],
        row.version + 1,
    )
    extras = Extras({**(before.tokens or {}), **(other.tokens or {})}, eras)
    following = records.next_row(row, fields, by, ends, extras)
    RowPolicyCheck(records).refuse(following, fields, "")
    changes = replacing(records, pair.destination, following, (before.fields, fields))
    if token_hashes := records.token_hashes(other.tokens or {}):
        changes.append(Reindex(row.rid, add=tuple(token_hashes)))
    return record_of(following, before.key, fields, by, eras), [*taken, *changes]


def _taken(records: Records, pair: _Pair, past: Sequence[Past]) -> list[Change]:
    """The versions of the source, the present one last, as past versions of the destination."""
    source, destination = pair
    sealer = records.collection.sealer
    changes: list[Change] = []
    first, versions = destination.version + 1, [*past, records.outlived(source)]
    documents = moved(map(sealer.open, versions), first)
    for version, (one, document) in enumerate(zip(versions, documents, strict=True), first):
        body = sealer.past_body(destination, document, version)
        taken = Past(
            destination.rid, version, destination.key or b"", one.at, destination.salt, body
        )
        changes.append(AddVersion(taken))
    return changes
