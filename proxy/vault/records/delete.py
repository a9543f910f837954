"""The end of records over the vault's own interface: one, many, and what hangs on them.

``cascade_by`` names a field: records whose field holds the key of a deleted record are deleted as
well, and those that depend on them, also in circles; all in one commit. Only records visible to the
caller are included: a refusal because of others would reveal their fields. A visible one that it
may not delete refuses the whole. Locks are taken in one order, so that two deletes cannot block
each other: dependents are found first, and again when everything found is locked.

Where the operator keeps the history of deleted records (``history.keep_deleted``), the last version
and a note of the end stay among the past versions under the key; else no value of the record stays.
Of what the proxy has collected the tokens stay, as those of an erased record (``erasure``).
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from proxy.audit.events import EventKind
from proxy.auth.external_acl import AclDecisions
from proxy.crypto.prf import either
from proxy.errors import CannotOpen, Code, Detail, VaultError
from proxy.model.policy import Act
from proxy.model.query import Equals
from proxy.model.record import Record
from proxy.model.rights import denied
from proxy.model.schema import Field, FieldType
from proxy.offload import busy, give_way
from proxy.storage.changes import AddVersion, Change, Remove
from proxy.storage.query import All, Is, Select
from proxy.storage.rows import Row
from proxy.vault.erasure import hosts_others, leave_marks
from proxy.vault.records.commit import (
    COMMIT_TRIES,
    ExtraChanges,
    attempt,
    check_end,
    locked,
    overtaken,
)
from proxy.vault.records.repository import Records
from proxy.vault.records.sent_back import check_condition
from proxy.vault.records.visibility import RowPolicyCheck, Verified, visible
from proxy.vault.seal import Tampered

#: Records that one delete may take with it.
MOST_DELETED = 10_000
#: Keys asked for at once.
_AT_ONCE = 500
_TEXTS = (FieldType.STRING,)


async def delete_one(
    records: Records, key: str, by: str, closing: ExtraChanges, *, cascade_by: str | None = None
) -> None:
    """Delete a record, and what hangs on it. ``closing`` is given nothing: nothing is left to tell.

    Raises ``VaultError``: ``NOT_FOUND``; ``ACCESS_DENIED`` where something hangs on it that the
    caller sees and may not delete; ``INVALID_INPUT`` when ``cascade_by`` cannot be asked for
    equality; ``UNPROCESSABLE`` when more than ``MOST`` records would go; ``CANNOT_OPEN`` for a key
    that has to be followed, and where a row that does not open bears something of another record;
    ``CONFLICT``.
    """
    if not await _delete(
        _Delete(records, (key,), by, _followed(records, cascade_by), set()), closing
    ):
        raise VaultError(Code.NOT_FOUND, f"There is no such record of {records.name!r}.")


async def delete_many(
    records: Records,
    keys: Sequence[str],
    by: str,
    closing: ExtraChanges,
    *,
    cascade_by: str | None = None,
) -> None:
    """Delete those of the records that exist.

    Raises as ``delete_one``, but ``NO_MATCH`` when none of them does.
    """
    if not await _delete(
        _Delete(records, keys, by, _followed(records, cascade_by), set()), closing
    ):
        raise VaultError(Code.NO_MATCH, f"None of these records of {records.name!r} exists.")


class _Delete(NamedTuple):
    records: Records
    keys: Sequence[str]
    by: str
    field: Field | None  #: that is followed from record to record
    unseen: set[int]  #: rows that the filter endpoint denies the caller, as far as it was asked


async def _delete(delete: _Delete, closing: ExtraChanges) -> int:
    """Delete; how many records have gone."""
    records = delete.records
    names = set(either(records.collection.key_hash(key) for key in delete.keys))
    await records.permit(Act.DELETE, delete.keys)
    for _ in range(COMMIT_TRIES):
        async with locked(records, names):
            rows = await _doomed(delete)
            present = {row.key for row in rows if row.key is not None}
            await _check_named(delete, rows)
            if present <= names and await _end(delete, rows, closing):
                return len(rows)
        if records.gate is not None:
            delete.unseen.update(await _kept_from(records, records.gate, rows))
        names |= present
    raise overtaken(records)


async def _check_named(delete: _Delete, rows: Sequence[Row]) -> None:
    """Check the preconditions of the request on its records."""
    records = delete.records
    if records.condition is None:
        return
    named = set(either(records.collection.key_hash(key) for key in delete.keys))
    for row in rows:
        if row.key in named:
            await check_condition(records, records.open(row))


async def _kept_from(records: Records, gate: AclDecisions, rows: Sequence[Row]) -> set[int]:
    """Return the rows that the filter endpoint lets the caller neither delete nor see.

    Raises ``VaultError`` (ACCESS_DENIED) for one that it lets the caller see, and as
    ``AclDecisions.allowed``.
    """
    keys = {row.rid: records.open(row).key for row in rows}
    allowed = await gate.allowed(Act.DELETE, [key for key in keys.values() if key is not None])
    others = {rid: key for rid, key in keys.items() if key not in allowed}
    named = [key for key in others.values() if key is not None]
    if named and records.rights.allows(Act.READ) and await gate.allowed(Act.READ, named):
        raise denied()
    return set(others)


async def _end(delete: _Delete, rows: Sequence[Row], closing: ExtraChanges) -> bool:
    """Commit the end of these rows; whether nothing came between."""
    if not rows:
        return True
    for row in rows:
        if await hosts_others(delete.records.collection, row):
            await check_end(delete.records, row)  # reports it, and refuses unreadable ones
        if busy():
            await give_way()
    changes = [change for row in rows for change in _ending(delete.records, row, delete.by)]
    changes += await leave_marks(delete.records.collection, rows)
    if not await attempt(delete.records, [*changes, *closing(())]):
        return False
    delete.records.collection.observe("deleted", len(rows))
    digests, hash_of = {row.key for row in rows}, delete.records.collection.key_hash
    named = [key for key in delete.keys if not digests.isdisjoint(either((hash_of(key),)))]
    others = [None] * (len(rows) - len(named))  # that hung on them
    delete.records.note(EventKind.DELETE, [*named, *others])
    return True


def _followed(records: Records, cascade_by: str | None) -> Field | None:
    if cascade_by is None:
        return None
    field = next((field for field in records.full_schema.fields if field.name == cascade_by), None)
    if field is None or not field.has_column or field.type not in _TEXTS:
        why = (
            "There is no such field."
            if field is None
            else "Only text fields that can be asked for equality are followed."
        )
        raise VaultError(
            Code.INVALID_INPUT,
            "Records are followed by a field that holds keys.",
            (Detail("cascadeBy", why),),
        )
    return field


async def _doomed(delete: _Delete) -> list[Row]:
    """The rows of these keys that the caller sees, and all it sees that hangs on them."""
    records, field = delete.records, delete.field
    within = RowPolicyCheck(records)
    rows: dict[int, Row] = {}
    following: list[str] = []
    for row in (await records.by_key(delete.keys)).values():
        there, key = _there(delete, within, row)
        if there:
            rows[row.rid] = row
            following += [] if key is None else [key]
    if field is None:
        return list(rows.values())
    column, in_sight = records.column(field.name), visible(records)
    while following:
        some, following = following[:_AT_ONCE], following[_AT_ONCE:]
        cells = tuple(records.cell(field.name, key) for key in some)
        query = Select(
            All((Is(column, cells), in_sight)),
            records.collection.clock(),
            limit=MOST_DELETED + 1,
            counted=False,
        )
        page = await records.collection.store.select(records.collection.table, query)
        fresh = [row for row in page.rows if row.rid not in rows and row.rid not in delete.unseen]
        hanging = _hanging(delete, field, some, fresh)
        if any(within.open(row) is None for row, _ in hanging):
            raise denied(
                (
                    Detail(
                        "cascadeBy",
                        "What hangs on these records goes beyond what this client may delete.",
                    ),
                )
            )
        rows.update((row.rid, row) for row, _ in hanging)
        if len(rows) > MOST_DELETED or len(page.rows) > MOST_DELETED:
            raise VaultError(
                Code.UNPROCESSABLE,
                f"More than {MOST_DELETED:,} records hang on these; a delete takes so many at "
                "most.",
            )
        following.extend([record.key for _, record in hanging if record.key is not None])
        await asyncio.sleep(0)
    return list(rows.values())


def _there(delete: _Delete, within: RowPolicyCheck, row: Row) -> tuple[bool, str | None]:
    """Whether the row of a key is there for the caller, and the key.

    One that does not open at all can be deleted by who is under no row policies, unless what hangs
    on it goes as well.
    """
    try:
        record = within.open(row)
    except Tampered:
        raise
    except CannotOpen:
        if delete.field is not None:
            raise
        return True, None
    return record is not None, None if record is None else record.key


def _hanging(
    delete: _Delete, field: Field, keys: Sequence[str], rows: Sequence[Row]
) -> list[tuple[Row, Record]]:
    """Return the rows whose records really depend on these keys and are visible to the caller."""
    records = delete.records
    verified = Verified(records, (Equals(field.name, tuple(keys)), *records.rights.visible))
    dependents: list[tuple[Row, Record]] = []
    for row in rows:
        try:
            record = records.open(row)
        except Tampered:
            continue
        if verified.only((record,)):
            dependents.append((row, record))
    return dependents


def _ending(records: Records, row: Row, by: str) -> list[Change]:
    """The changes that end a record; one that does not open is deleted without its last values."""
    if not records.keeps_deleted:
        return [Remove(row.rid)]
    changes: list[Change] = [AddVersion(records.outlived(row)), Remove(row.rid, keep_past=True)]
    try:
        changes.insert(1, AddVersion(records.last_past(row, by)))
    except CannotOpen:
        pass
    return changes
