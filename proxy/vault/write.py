"""New records over the vault's own interface: one or a batch, each batch one commit.

Nearly every create meets free keys, so the rows are made and committed at once: the unique index of keys decides between
creates of one key, however many come together. Only when it refuses are the keys looked up, under their locks: a key whose
record has expired is free, one of a live record refuses the whole batch or, where the operator wants that, is overwritten.

An overwritten record is what was sent, as if it were new: fields that were not sent are gone, and so is an ``expires_at`` that
was not sent. It keeps the time of its creation, its history and its attachments.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import UNSET

from proxy.errors import Code, Detail, VaultError
from proxy.model.faults import step
from proxy.model.policy import Act
from proxy.model.query import KEY
from proxy.model.record import Action, Draft, Fields, Record
from proxy.storage.changes import Change, Inscribe, Insert, Reindex, Remove, Replace
from proxy.storage.rows import Row
from proxy.vault import telling
from proxy.vault.attached import with_attachments
from proxy.vault.closing import TRIES, Closing, attempt, locked, overtaken, refuse_of_rules
from proxy.vault.records import Records

#: What a create does with a key that is used.
OnExisting = Literal["refuse", "update"]


async def create(
    records: Records,
    drafts: Sequence[Draft],
    by: str,
    closing: Closing,
    *,
    on_existing: OnExisting = "refuse",
) -> list[Record]:
    """Store new records, all or none; what they are now, with their files, in the order of the drafts.

    Raises ``VaultError``: ``SCHEMA_OF_RULES``; ``INVALID_RECORD`` when a key comes twice; ``RECORD_EXISTS`` with a detail for
    each key that is used; ``CONFLICT`` when the records kept changing.
    """
    refuse_of_rules(records)
    await records.permit(Act.WRITE, [draft.key for draft in drafts if draft.key is not None])
    keys = _keys(records, drafts)
    made, changes = _inserts(records, drafts, keys, by)
    if await attempt(records, [*changes, *closing(made)]):
        records.collection.observe("created", len(made))
        telling.written(records, made, drafts)
        return made
    async with locked(records, keys):
        for _ in range(TRIES):
            rows = await records.collection.store.by_keys(records.collection.table, keys)
            alive = {key: row for key, row in rows.items() if records.collection.alive(row)}
            if alive and on_existing == "refuse":
                raise _taken(records, [draft for draft, key in zip(drafts, keys, strict=True) if key in alive])
            expired = [Remove(row.rid) for key, row in rows.items() if key not in alive]
            made, changes = _upserts(records, drafts, [alive.get(key) for key in keys], by)
            made = await with_attachments(records, made)
            if await attempt(records, [*expired, *changes, *closing(made)]):
                records.collection.observe("created", len(made))
                telling.written(records, made, drafts)
                return made
    raise overtaken(records)


def successor(records: Records, row: Row, before: Record, draft: Draft, by: str) -> tuple[Record, list[Change]]:
    """The next version of a row, whose fields are those of the draft; and the changes that make it so.

    What a rehash has made of the record goes on: it tells by itself which values it is of.
    """
    expires = None if draft.expires_at is UNSET else draft.expires_at
    following = records.next_row(row, draft.fields, by, expires, before.tokens)
    made = record_of(following, draft.key, draft.fields, by)
    return made, replacing(records, row, following, (before.fields, draft.fields))


def replacing(
    records: Records, row: Row, following: Row, fields: tuple[Mapping[str, object], Mapping[str, object]]
) -> list[Change]:
    """The changes that put another version in a row's place; ``fields`` are those of before and after."""
    changes: list[Change] = [Inscribe(records.outlived(row))] if records.keeps_history else []
    changes.append(Replace(following, row.version))
    drop, add = _moved(records, *fields)
    if drop or add:
        changes.append(Reindex(row.rid, tuple(add), tuple(drop)))
    return changes


def _inserts(
    records: Records, drafts: Sequence[Draft], keys: Sequence[bytes], by: str
) -> tuple[list[Record], list[Change]]:
    made: list[Record] = []
    changes: list[Change] = []
    collection, has_parts = records.collection, records.has_parts
    rids, now = collection.around.sequence.several(len(drafts)), collection.clock()
    for draft, key, rid in zip(drafts, keys, rids, strict=True):
        fields = draft.fields
        row = records.row_of(draft, key, (rid, now), by)
        changes.append(Insert(row, tuple(records.hashes(fields)) if has_parts else ()))
        made.append(Record(rid, draft.key, fields, 1, now, now, row.expires_at, Action.CREATE, by))
    return made, changes


def _upserts(
    records: Records, drafts: Sequence[Draft], rows: Sequence[Row | None], by: str
) -> tuple[list[Record], list[Change]]:
    made: list[Record] = []
    changes: list[Change] = []
    for draft, row in zip(drafts, rows, strict=True):
        if row is None:
            (record,), more = _inserts(records, (draft,), (records.collection.key_hash(draft.key or ""),), by)
        else:
            record, more = successor(records, row, records.open(row), draft, by)
        made.append(record)
        changes.extend(more)
    return made, changes


def _moved(
    records: Records, before: Mapping[str, object], after: Mapping[str, object]
) -> tuple[set[bytes], set[bytes]]:
    """The entries of the token index that go and that come, of the fields that changed."""
    names = [name for name in before.keys() | after.keys() if _differ(before.get(name), after.get(name))]
    old = records.hashes({name: before[name] for name in names if name in before})
    new = records.hashes({name: after[name] for name in names if name in after})
    return old - new, new - old


def _differ(before: object, after: object) -> bool:
    """Whether two values may have different entries; of documents that is not told by ``==`` (``True`` equals ``1``)."""
    return isinstance(after, dict) or before != after


def record_of(row: Row, key: str | None, fields: Fields, by: str) -> Record:
    """The record of a row that was made of these just now, without opening it."""
    action = Action.CREATE if row.version == 1 else Action.UPDATE
    return Record(row.rid, key, fields, row.version, row.created_at, row.updated_at, row.expires_at, action, by)


def _keys(records: Records, drafts: Sequence[Draft]) -> list[bytes]:
    """The key hashes of the drafts; a key may come once."""
    keys = [records.collection.key_hash(draft.key or "") for draft in drafts]
    if len(set(keys)) == len(keys):
        return keys
    first = dict(zip(reversed(keys), reversed(drafts), strict=True))
    text = "An earlier record of the batch has this key."
    twice = [_detail(records, draft, text) for draft, key in zip(drafts, keys, strict=True) if first[key] is not draft]
    raise VaultError(Code.INVALID_RECORD, "A primary key may come once in a batch.", tuple(twice))


def _taken(records: Records, drafts: Iterable[Draft]) -> VaultError:
    return VaultError(
        Code.RECORD_EXISTS,
        "A primary key that is used cannot be given to another record; nothing was stored.",
        tuple(_detail(records, draft, "There is a record with this key.") for draft in drafts),
    )


def _detail(records: Records, draft: Draft, text: str) -> Detail:
    return Detail(place_of_key(records, draft), text)


def place_of_key(records: Records, draft: Draft) -> str:
    """JSON Pointer to the primary key of a draft."""
    return draft.at + step(records.primary.name if records.primary is not None else KEY)
