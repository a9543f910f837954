"""New records over the vault's own interface: one or a batch, each batch one commit.

Nearly every create meets free keys, so the rows are made and committed at once: the unique index of
keys decides between creates of one key, however many come together. Only when it refuses are the
keys looked up, under their locks: a key whose record has expired is free, one of a live record
refuses the whole batch or, where the operator wants that, is overwritten.

An overwritten record has exactly the sent fields: others are gone, and so is an absent
``expires_at``. It keeps the time of its creation, its history and its attachments.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Literal

import msgspec
from msgspec import UNSET

from proxy.errors import Code, Detail, VaultError
from proxy.model.policy import Act
from proxy.model.query import KEY
from proxy.model.record import Action, Eras, Fields, Record, RecordDraft
from proxy.model.rights import denied
from proxy.model.values import step
from proxy.offload import busy, each, give_way
from proxy.storage.changes import (
    AddVersion,
    Change,
    ForgetReplies,
    Insert,
    Reindex,
    Remove,
    Replace,
)
from proxy.storage.rows import Row
from proxy.vault.body import Extras, next_eras
from proxy.vault.records.attachment_metadata import with_attachments
from proxy.vault.records.commit import (
    COMMIT_TRIES,
    ExtraChanges,
    attempt,
    check_end,
    locked,
    overtaken,
    refuse_of_rules,
)
from proxy.vault.records.repository import Records
from proxy.vault.records.sent_back import (
    check_condition,
    check_stated,
    refuse_masks,
    refuse_stated,
    without_unchanged,
)
from proxy.vault.records.visibility import RowPolicyCheck

#: Records that are sealed between two turns of the event loop.
_AT_ONCE = 50

_key_of = attrgetter("key")

#: Treatment of a create whose key exists.
OnExisting = Literal["refuse", "update"]


async def store_records(
    records: Records,
    drafts: Sequence[RecordDraft],
    by: str,
    closing: ExtraChanges,
    *,
    on_existing: OnExisting = "refuse",
) -> list[Record]:
    """Store new records, all or none; return them with visible files, in the order of the drafts.

    A key of a record that the caller cannot see is used all the same. In an overwritten record,
    fields hidden from the caller stay, and so does a value for which its visible replacement is
    sent.

    Raises ``VaultError``: ``SCHEMA_OF_RULES``; ``ACCESS_DENIED``; ``INVALID_RECORD`` when a key
    comes twice, or a masked text is no value; ``RECORD_EXISTS`` with a detail for each key that is
    used; ``CANNOT_OPEN`` where a record that is there was changed in the store; ``CONFLICT`` when
    the records kept changing.
    """
    refuse_of_rules(records, map(_key_of, drafts))
    if records.gate is not None:
        await records.permit(Act.WRITE, [draft.key for draft in drafts if draft.key is not None])
    _refuse_incomplete(records, drafts)
    alone = len(drafts) == 1  # without a coroutine for each step
    keys = [_key(records, drafts[0])] if alone else await _keys(records, drafts)
    new = records, drafts, keys, by
    stored, changes = _new(*new) if alone else await _inserts(*new)
    # Masked values may belong to an existing record, so that is looked up first.
    sent_back, veils, masked = False, records.rights.veils, records.rights.masked
    for draft in drafts:  # a generator would be two calls more with every create
        sent_back |= bool(draft.stated or (veils and not draft.copied and masked(draft.fields)))
    if (
        not sent_back
        and records.condition is None
        and await attempt(records, [*changes, *closing(stored)])
    ):
        records.collection.observe("created", len(stored))
        records.note_written(stored, drafts)
        return stored
    readable = (
        await _readable(records, drafts) if on_existing == "update" else frozenset[str | None]()
    )
    async with locked(records, keys):
        for _ in range(COMMIT_TRIES):
            keys = await _keys(records, drafts)  # a rotation may have gone by while it waited
            rows = await records.collection.store.by_keys(records.collection.table, keys)
            alive = {key: row for key, row in rows.items() if records.collection.alive(row)}
            before = _visible_records(records, [alive.get(key) for key in keys])
            for one in before:
                await check_condition(records, one)
            taken = alive.keys() if on_existing == "refuse" else _elsewhere(records, alive)
            if taken:
                raise _taken(
                    records,
                    [draft for draft, key in zip(drafts, keys, strict=True) if key in taken],
                )
            expired = [row for key, row in rows.items() if key not in alive]
            for row in expired:
                await check_end(records, row)
            await _check_sent_back(records, list(zip(drafts, before, strict=True)), readable)
            stored, changes = await _upserts(
                records, drafts, [alive.get(key) for key in keys], by, readable
            )
            stored = await with_attachments(records, stored, readable)
            ends = [Remove(row.rid) for row in expired]
            if await attempt(records, [*ends, *changes, *closing(stored)]):
                records.collection.observe("created", len(stored))
                records.note_written(stored, drafts)
                records.note_attached(stored)
                return stored
    raise overtaken(records)


def _visible_records(records: Records, rows: Iterable[Row | None]) -> list[Record | None]:
    """The records of rows, as far as the caller sees them: of another one nothing is told but that
    its key is used.
    """
    within = RowPolicyCheck(records)
    return [None if row is None else within.open(row) for row in rows]


async def _check_sent_back(
    records: Records,
    drafts: Sequence[tuple[RecordDraft, Record | None]],
    readable: frozenset[str | None],
) -> None:
    """Raise ``VaultError(INVALID_RECORD)`` for masks without a stored value behind them."""
    new = [draft for draft, before in drafts if before is None]
    refuse_masks(records, new)
    refuse_stated(new)
    for draft, before in drafts:
        if before is not None:
            await check_stated(records, draft, before, readable=draft.key in readable)


async def _readable(records: Records, drafts: Sequence[RecordDraft]) -> frozenset[str | None]:
    """The keys of those records whose files the caller may see if it overwrites them."""
    if not records.rights.allows(Act.READ):
        return frozenset()
    keys = frozenset([draft.key for draft in drafts])
    return (
        keys
        if records.gate is None
        else await records.gate.allowed(Act.READ, [key for key in keys if key])
    )


def successor(
    records: Records, row: Row, before: Record, draft: RecordDraft, by: str
) -> tuple[Record, list[Change]]:
    """The next version of a row, whose fields are those of the draft; and the changes that make it
    so.

    The rehash tokens of the record stay: they know their values. Raises
    ``VaultError(ACCESS_DENIED)`` for a version that the caller could no longer see.
    """
    expires = None if draft.expires_at is UNSET else draft.expires_at
    eras = next_eras(before, draft.fields, draft.fresh, row.version + 1)
    following = records.next_row(row, draft.fields, by, expires, Extras(before.tokens, eras))
    RowPolicyCheck(records).refuse(following, draft.fields, draft.at)
    record = record_of(following, draft.key, draft.fields, by, eras)
    return record, replacing(records, row, following, (before.fields, draft.fields))


def replacing(
    records: Records,
    row: Row,
    following: Row,
    fields: tuple[Mapping[str, object], Mapping[str, object]],
) -> list[Change]:
    """The changes that put another version in a row's place; ``fields`` are those of before and
    after. A value that is cleared goes from the answers that are kept, too.
    """
    changes: list[Change] = [AddVersion(records.outlived(row))] if records.keeps_history else []
    changes.append(Replace(following, row.version))
    before, after = fields
    if any(after.get(name) is None for name in before if before[name] is not None):
        changes.append(ForgetReplies(row.rid))
    drop, add = _moved(records, *fields)
    if drop or add:
        changes.append(Reindex(row.rid, tuple(add), tuple(drop)))
    return changes


async def _inserts(
    records: Records, drafts: Sequence[RecordDraft], keys: Sequence[bytes], by: str
) -> tuple[list[Record], list[Change]]:
    now = records.collection.clock()
    changes: list[Change] = []
    inserted: list[Record] = []
    for start in range(0, len(drafts), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        more, inserts = _new(records, drafts[some], keys[some], by, now)
        inserted += more
        changes += inserts
        if start + _AT_ONCE < len(drafts) and busy():
            await give_way()
    return inserted, changes


def _new(
    records: Records,
    drafts: Sequence[RecordDraft],
    keys: Sequence[bytes],
    by: str,
    now: int | None = None,
) -> tuple[list[Record], list[Change]]:
    """The records that the drafts become, at one instant, and the changes that store them."""
    collection = records.collection
    now = collection.clock() if now is None else now
    rids = collection.context.sequence.several(len(drafts), now)
    rows = records.new_rows(drafts, keys, rids, by, now)
    if records.rights.rows:
        within = RowPolicyCheck(records)
        for row, draft in zip(rows, drafts, strict=True):
            within.refuse(row, draft.fields, draft.at)
    hashes, create = records.hashes if records.has_parts else None, Action.CREATE
    changes: list[Change] = []
    created: list[Record] = []
    for row, draft in zip(rows, drafts, strict=True):
        fields = draft.fields
        changes.append(Insert(row, tuple(hashes(fields)) if hashes else ()))
        created.append(Record(row[0], draft.key, fields, 1, now, now, row[7], create, by))
    return created, changes


async def _upserts(
    records: Records,
    drafts: Sequence[RecordDraft],
    rows: Sequence[Row | None],
    by: str,
    readable: frozenset[str | None],
) -> tuple[list[Record], list[Change]]:
    written: list[Record] = []
    changes: list[Change] = []
    for draft, row in zip(drafts, rows, strict=True):
        if row is None:
            (record,), more = _new(records, (draft,), (_key(records, draft),), by)
        else:
            record, more = _overwritten(records, row, draft, by, readable=draft.key in readable)
        written.append(record)
        changes.extend(more)
        if busy():
            await give_way()
    return written, changes


def _overwritten(
    records: Records, row: Row, draft: RecordDraft, by: str, *, readable: bool
) -> tuple[Record, list[Change]]:
    """Return the record as sent, except for hidden fields and unchanged visible replacements."""
    before = records.open(row)
    draft = without_unchanged(records, draft, before, readable=readable)
    refuse_masks(records, (draft,))
    whole = msgspec.structs.replace(
        overwriting(records, before, draft), fresh=records.rights.unseen(draft.fields)
    )
    return successor(records, row, before, whole, by)


def overwriting(records: Records, before: Record, draft: RecordDraft) -> RecordDraft:
    """The record as sent, but for fields hidden from the sender and those that stay."""
    preserved = {name: before.fields[name] for name in draft.preserved if name in before.fields}
    return msgspec.structs.replace(
        draft, fields={**records.rights.beyond(before.fields), **preserved, **draft.fields}
    )


def _refuse_incomplete(records: Records, drafts: Sequence[RecordDraft]) -> None:
    """Raise ``VaultError(ACCESS_DENIED)`` if the caller may not know a required field."""
    if records.rights.creates:
        return
    required = {field.name for field in records.schema.fields if field.required}
    for draft in drafts:
        if not draft.fields.keys() >= required:
            raise denied()


def _elsewhere(records: Records, rows: Mapping[bytes, Row]) -> set[bytes]:
    """The keys of those rows that are not there for the caller."""
    within = RowPolicyCheck(records)
    return {key for key, row in rows.items() if not within.holds_row(row)}


def _moved(
    records: Records, before: Mapping[str, object], after: Mapping[str, object]
) -> tuple[set[bytes], set[bytes]]:
    """The entries of the token index that go and that come, of the fields that changed."""
    names = [
        name for name in before.keys() | after.keys() if _differ(before.get(name), after.get(name))
    ]
    old = records.hashes({name: before[name] for name in names if name in before}, before=True)
    new = records.hashes({name: after[name] for name in names if name in after})
    # hashes of texts may be under one root before, and under another one now
    return old - new, new if records.two_roots else new - old


def _differ(before: object, after: object) -> bool:
    """Whether two values may have different entries; ``==`` does not tell (``True``, ``1``)."""
    return isinstance(after, dict) or before != after


def record_of(
    row: Row, key: str | None, fields: Fields, by: str, eras: Eras | None = None
) -> Record:
    """The record of a row that was made of these just now, without opening it."""
    action = Action.CREATE if row.version == 1 else Action.UPDATE
    return Record(
        row.rid,
        key,
        fields,
        row.version,
        row.created_at,
        row.updated_at,
        row.expires_at,
        action,
        by,
        eras=eras or None,
    )


def _key(records: Records, draft: RecordDraft) -> bytes:
    return records.collection.key_hash(draft.key or "")


async def _keys(records: Records, drafts: Sequence[RecordDraft]) -> list[bytes]:
    """The key hashes of the drafts; a key may come once."""
    keys = await each(partial(_key, records), drafts)
    if len(set(keys)) == len(keys):
        return keys
    first = dict(zip(reversed(keys), reversed(drafts), strict=True))
    text = "An earlier record of the batch has this key."
    twice = [
        _detail(records, draft, text)
        for draft, key in zip(drafts, keys, strict=True)
        if first[key] is not draft
    ]
    raise VaultError(Code.INVALID_RECORD, "A primary key may come once in a batch.", tuple(twice))


def _taken(records: Records, drafts: Iterable[RecordDraft]) -> VaultError:
    return VaultError(
        Code.RECORD_EXISTS,
        "A primary key that is used cannot be given to another record; nothing was stored.",
        tuple(_detail(records, draft, "There is a record with this key.") for draft in drafts),
    )


def _detail(records: Records, draft: RecordDraft, text: str) -> Detail:
    return Detail(place_of_key(records, draft), text)


def place_of_key(records: Records, draft: RecordDraft) -> str:
    """JSON Pointer to the primary key of a draft."""
    return draft.at + step(records.primary.name if records.primary is not None else KEY)
