"""Changes to existing records: a draft replaces the fields that it names, the rest stays.

A record is found by its primary key, or by another field that can be asked for equality
(``search_key``); then every record that has the value is changed. A draft that finds nothing
changes nothing and is not in the answer. The whole is one commit.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from proxy.errors import Code, Detail, VaultError
from proxy.model.policy import Act
from proxy.model.query import KEY, Equals
from proxy.model.record import Record, RecordDraft
from proxy.model.schema import Field, FieldType
from proxy.model.values import step
from proxy.storage.changes import Change
from proxy.storage.query import All, Is, Select
from proxy.storage.rows import Row
from proxy.vault.records.attachment_metadata import with_attachments
from proxy.vault.records.commit import (
    COMMIT_TRIES,
    ExtraChanges,
    attempt,
    locked,
    overtaken,
    refuse_of_rules,
)
from proxy.vault.records.create import overwriting, place_of_key, store_records, successor
from proxy.vault.records.repository import Records
from proxy.vault.records.sent_back import (
    check_condition,
    check_stated,
    may_read,
    refuse_masks,
    refuse_stated,
    without,
    without_unchanged,
)
from proxy.vault.records.visibility import RowPolicyCheck, Verified, permitted_rows

#: Records that one update may change.
MOST_UPDATED = 10_000
#: Records changed without letting others run.
_AT_ONCE = 100


async def change_records(
    records: Records,
    drafts: Sequence[RecordDraft],
    by: str,
    closing: ExtraChanges,
    *,
    search_key: str | None = None,
) -> list[Record]:
    """Change records, all or none; return them with their files, by draft, older ones first.

    Raises ``VaultError``: ``SCHEMA_OF_RULES``; ``ACCESS_DENIED``; ``INVALID_INPUT`` if records
    cannot be found by ``search_key``; ``INVALID_RECORD`` if a draft lacks the value to find its
    record by, repeats that of an earlier one, or gives another primary key to its record;
    ``UNPROCESSABLE`` over ``MOST`` records; ``CANNOT_OPEN``; ``CONFLICT``.
    """
    refuse_of_rules(records)
    update = _Update(records, drafts, by, _searched(records, search_key))
    _refuse_unfindable(update)
    for _ in range(COMMIT_TRIES):
        wanted = await _matching(update, update.field) if update.field is not None else []
        wanted = await _permitted(update, wanted)
        async with locked(records, _keys(update, wanted)):
            rows_of_drafts = (
                await _again(update, update.field, wanted)
                if update.field is not None
                else await _named(update)
            )
            update = update._replace(
                drafts=await _meant(update._replace(drafts=drafts), rows_of_drafts)
            )
            changed, changes = await _changed(update, rows_of_drafts)
            changed = await with_attachments(records, changed)
            if await attempt(records, [*changes, *closing(changed)]):
                records.collection.observe("updated", len(changed))
                records.note_written(changed, update.drafts)
                records.note_shown([record.key for record in changed])
                return changed
    raise overtaken(records)


class _Update(NamedTuple):
    records: Records
    drafts: Sequence[RecordDraft]
    by: str
    field: Field | None  #: that records are found by; ``None``: the primary key


def _searched(records: Records, search_key: str | None) -> Field | None:
    if search_key is None or search_key == KEY:
        return None
    field = next((field for field in records.full_schema.fields if field.name == search_key), None)
    if field is not None and field.type is FieldType.PRIMARY_KEY:
        return None
    records.rights.need(Act.READ)  # a search reveals its matches
    if field is None or not field.has_column:
        why = (
            "There is no such field."
            if field is None
            else "This field cannot be asked for equality."
        )
        raise VaultError(
            Code.INVALID_INPUT,
            "Records are found by the primary key or by a field that is indexed, or indexed and "
            "hashed.",
            (Detail("/search_key", why),),
        )
    return field


def _refuse_unfindable(update: _Update) -> None:
    """Raise unless each draft has a value to be found by that no other draft has."""
    records, field = update.records, update.field
    details: list[Detail] = []
    texts: set[object] = set()
    for draft in update.drafts:
        value = draft.key if field is None else draft.fields.get(field.name)
        pointer = place_of_key(records, draft) if field is None else draft.at + step(field.name)
        if value is None:
            details.append(Detail(pointer, "A value is needed here: the record is found by it."))
            continue
        cell = (
            records.collection.key_hash(value) if field is None else records.cell(field.name, value)
        )
        if cell in texts:
            details.append(Detail(pointer, "An earlier record of the batch has this value."))
        texts.add(cell)
    if details:
        raise VaultError(
            Code.INVALID_RECORD,
            "Each record of an update needs a value of its own to be found by.",
            tuple(details),
        )


def _keys(update: _Update, wanted: Sequence[Sequence[Row]]) -> list[bytes]:
    """Key hashes of the records that may be changed."""
    if update.field is not None:
        return [row.key for rows in wanted for row in rows if row.key is not None]
    return [
        update.records.collection.key_hash(draft.key)
        for draft in update.drafts
        if draft.key is not None
    ]


async def _permitted(update: _Update, wanted: list[list[Row]]) -> list[list[Row]]:
    """Raise unless the filter endpoint allows to change these records, and to see them: the answer
    shows them whole.

    Searched records that the caller may not see are absent: else a refusal would reveal their
    field.
    """
    records = update.records
    if records.gate is None:
        return wanted
    if update.field is None:
        keys = [draft.key for draft in update.drafts if draft.key is not None]
        for act in (Act.WRITE, Act.READ):
            await records.permit(act, keys)
        return wanted
    readable = await records.readable([row for rows in wanted for row in rows])
    await records.permit(Act.WRITE, readable.values())
    return [[row for row in rows if row.rid in readable] for rows in wanted]


async def _named(update: _Update) -> list[list[Row]]:
    """The rows that the drafts name by their primary keys."""
    rows = await update.records.by_key(
        draft.key for draft in update.drafts if draft.key is not None
    )
    return [[rows[draft.key]] if draft.key in rows else [] for draft in update.drafts]


async def _matching(update: _Update, field: Field) -> list[list[Row]]:
    """The rows that have the values of the drafts, as they are now."""
    records, left = update.records, MOST_UPDATED
    collection, column = records.collection, records.column(field.name)
    matches: list[list[Row]] = []
    for draft in update.drafts:
        cell = records.cell(field.name, draft.fields[field.name])
        where = All((Is(column, (cell,)), permitted_rows(records)))
        query = Select(where, collection.clock(), limit=left + 1, counted=False)
        matches.append((await collection.store.select(collection.table, query)).rows)
        left -= len(matches[-1])
        if left < 0:
            raise VaultError(
                Code.UNPROCESSABLE,
                f"More than {MOST_UPDATED:,} records match; an update changes so many at most.",
            )
    return matches


async def _again(update: _Update, field: Field, wanted: Sequence[Sequence[Row]]) -> list[list[Row]]:
    """Return the rows under their locks, without those that are gone or match no more."""
    records = update.records
    collection, stored = records.collection, records.stored
    rows = await collection.store.rows(
        collection.table, [row.rid for group in wanted for row in group]
    )

    def fits(before: Row) -> bool:
        now = rows.get(before.rid)
        return (
            now is not None
            and collection.alive(now)
            and stored(now, field.name) == stored(before, field.name)
        )

    return [[rows[row.rid] for row in group if fits(row)] for group in wanted]


async def _changed(
    update: _Update, rows_of_drafts: Sequence[Sequence[Row]]
) -> tuple[list[Record], list[Change]]:
    changed: list[Record] = []
    changes: list[Change] = []
    within = RowPolicyCheck(update.records)
    for draft, rows in zip(update.drafts, rows_of_drafts, strict=True):
        matches = _matched(update, draft)
        for row in rows:
            before = within.open(row)
            if before is None or not matches.only((before,)):
                continue
            refuse_of_rules(update.records, (before.key,))
            if draft.key is not None and draft.key != before.key:
                raise _other_key(update, draft)
            fresh = update.records.rights.unseen(draft.fields)
            after = (
                overwriting(update.records, before, draft) if draft.whole else merged(before, draft)
            )
            whole = msgspec.structs.replace(after, fresh=fresh)
            record, more = successor(update.records, row, before, whole, update.by)
            changed.append(record)
            changes.extend(more)
            if len(changed) % _AT_ONCE == 0:
                await asyncio.sleep(0)
    return changed, changes


def _matched(update: _Update, draft: RecordDraft) -> Verified:
    """Return the check that a record has the value by which its row was found."""
    field = update.field
    return Verified(
        update.records, () if field is None else (Equals(field.name, (draft.fields[field.name],)),)
    )


async def _meant(update: _Update, rows_of_drafts: Sequence[Sequence[Row]]) -> list[RecordDraft]:
    """Return the drafts without unchanged visible forms.

    The visible form of one record is no value for the others.
    """
    records = update.records
    within, readable, drafts = RowPolicyCheck(records), may_read(records), []
    for draft, rows in zip(update.drafts, rows_of_drafts, strict=True):
        if not (records.rights.veils or draft.stated or records.condition):
            drafts.append(draft)
            continue
        preserved: set[str] = set()
        matches, there = _matched(update, draft), False
        for number, row in enumerate(rows, 1):
            before = within.open(row)
            if before is not None and matches.holds(before):
                there = True
                await check_condition(records, before)
                await check_stated(records, draft, before, readable=readable)
                preserved |= without_unchanged(records, draft, before, readable=readable).preserved
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        drafts.append(without(draft, preserved))
        if there:
            refuse_masks(records, drafts[-1:])
    return drafts


def merged(before: Record, draft: RecordDraft) -> RecordDraft:
    """Return the whole record: the draft's fields over the stored ones; the primary key stays."""
    expires = before.expires_at if draft.expires_at is UNSET else draft.expires_at
    fields = {**before.fields, **draft.fields}
    return msgspec.structs.replace(draft, key=before.key, fields=fields, expires_at=expires)


def _other_key(update: _Update, draft: RecordDraft) -> VaultError:
    if update.field is None:
        return VaultError(
            Code.CANNOT_OPEN, "The row of a record stands under another record's key: it was moved."
        )
    return VaultError(
        Code.INVALID_RECORD,
        "The primary key of a record cannot be changed; clone it, or migrate it to another one.",
        (Detail(place_of_key(update.records, draft), "The record that is found has another key."),),
    )


# Copy of a record under a new key.
#
# The filter has to find exactly one record: a copy needs its own primary key, and the request has
# room for one. The copy is a new record, created now, with its own history. It keeps the
# ``expires_at`` of its source unless the request says otherwise, so that copying does not extend a
# life that had to end. Attachments are not copied: their content may be large, and the caller waits
# for one commit; upload them again, or move them.

#: Finds the records of a clone's filter; at most so many. Raises ``CANNOT_OPEN`` for one that does
#: not open.
Sources = Callable[[int], Awaitable[list[Record]]]


async def clone(
    records: Records, sources: Sources, update_with: RecordDraft, by: str, closing: ExtraChanges
) -> list[Record]:
    """Store the copy; return it, alone in its list.

    ``update_with`` replaces values of the source in the copy.

    Raises ``VaultError``: ``SCHEMA_OF_RULES``; ``NO_MATCH``; ``UNPROCESSABLE`` when several records
    match, or no new key is given; ``RECORD_EXISTS`` when the key is used; and what ``sources``
    raises.
    """
    refuse_of_rules(records)
    originals = await sources(2)
    if not originals:
        raise VaultError(Code.NO_MATCH, f"No record of {records.name!r} matches the filter.")
    if len(originals) > 1:
        raise _unusable(
            records,
            update_with,
            "Several records match the filter, and one key cannot serve all of their copies.",
        )
    if update_with.key is None:
        raise _unusable(records, update_with, "The copy needs a key of its own.")
    source = originals[0]
    refuse_stated((update_with,))
    update_with = without_unchanged(records, update_with, source, readable=True)
    refuse_masks(records, (update_with,))
    copy = msgspec.structs.replace(merged(source, update_with), key=update_with.key, copied=True)
    return await store_records(records, (copy,), by, closing)


def _unusable(records: Records, update_with: RecordDraft, why: str) -> VaultError:
    detail = Detail(place_of_key(records, update_with), why)
    return VaultError(
        Code.UNPROCESSABLE,
        "A clone makes one copy of one record, under a new primary key.",
        (detail,),
    )
