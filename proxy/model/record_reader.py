"""Records as callers send them, read into drafts: all faults at once, each with its place, none
with its value.

What reads the records of a schema is compiled once and kept while the schema is in use.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proxy.errors import Code
from proxy.model.query import CREATED_AT, EXPIRES_AT, KEY, UPDATED_AT, VERSION_FIELD
from proxy.model.record import Fields, RecordDraft, RecordLimits
from proxy.model.schema import Schema
from proxy.model.values import (
    Unfit,
    ValueCheck,
    ValueFaults,
    check_of,
    instant,
    step,
    unknown_field,
)

_MESSAGE = "The record does not fit its schema."
_MANY = "Records of the batch do not fit their schema; nothing of it was stored."
_BUILT_IN = frozenset((CREATED_AT, UPDATED_AT, VERSION_FIELD, "attachments", "meta"))

#: So many unknown members get a fault each.
_UNKNOWN = 100

#: Reads one record: (the record as decoded, whether absent fields stay as they are, where it
#: stands, faults found).
RecordParser = Callable[[Any, bool, str, ValueFaults], RecordDraft]

_compiled: dict[tuple[int, int], tuple[Schema, RecordLimits, RecordParser]] = {}
_MOST_COMPILED = 1024


def read_draft(
    schema: Schema, raw: Any, *, partial: bool, limits: RecordLimits, pointer: str = ""
) -> RecordDraft:
    """Parse and check a record as a caller wants it to be.

    ``partial``: an update, in which an absent field stays as it is.

    ``VaultError(INVALID_RECORD)`` with one detail for each fault; their JSON Pointers begin with
    ``pointer``.
    """
    faults = ValueFaults(limits.faults)
    draft = _reader(schema, limits)(raw, partial, pointer, faults)
    if faults:
        raise faults.error(Code.INVALID_RECORD, _MESSAGE)
    return draft


def read_drafts(
    schema: Schema, raw: Any, *, partial: bool, limits: RecordLimits, pointer: str = ""
) -> list[RecordDraft]:
    """The drafts of a batch, in its order; the pointers of faults begin with ``pointer`` and the
    number of the record.

    Raises ``INVALID_RECORD`` with the faults of all records, ``INVALID_INPUT`` when this is no list
    or has nothing in it, ``BATCH_TOO_LARGE`` when there are more than the limits allow. A key that
    occurs twice is a fault of the later record.
    """
    records = _batch(raw, limits, pointer)
    read, faults, drafts = _reader(schema, limits), ValueFaults(limits.faults), []
    keys: set[str] = set()
    for number, record in enumerate(records):
        at = f"{pointer}/{number}"
        draft = read(record, partial, at, faults)
        if draft.key is not None and draft.key in keys:
            faults.add(at + _key_step(schema), "The batch has another record with this key.")
        if draft.key is not None:
            keys.add(draft.key)
        drafts.append(draft)
    if faults:
        raise faults.error(Code.INVALID_RECORD, _MANY)
    return drafts


def read_texts(
    schema: Schema, raw: Mapping[str, Sequence[Any]], *, limits: RecordLimits
) -> dict[str, list[str]]:
    """Fields of several texts each, as the proxy collects them.

    ``VaultError(INVALID_RECORD)`` with one detail for each fault.
    """
    checks = {field.name: check_of(field, limits) for field in schema.fields}
    faults = ValueFaults(limits.faults)
    for name, values in raw.items():
        if name not in checks:
            faults.add(step(name), unknown_field(name, checks))
            continue
        for number, value in enumerate(values):
            try:
                checks[name](value)
            except Unfit as fault:
                faults.add(f"{step(name)}/{number}", fault.text)
    if faults:
        raise faults.error(Code.INVALID_RECORD, _MESSAGE)
    return {name: list(values) for name, values in raw.items()}


def _batch(raw: Any, limits: RecordLimits, pointer: str) -> Sequence[Any]:
    faults = ValueFaults(1)
    if not isinstance(raw, list):
        faults.add(pointer, "Has to be an array of records.")
    elif not raw:
        faults.add(pointer, "Has to hold one record at least.")
    if faults:
        raise faults.error(Code.INVALID_INPUT, "The batch cannot be read.")
    if len(raw) > limits.batch:
        faults.add(pointer, f"Must not hold more than {limits.batch} records.")
        raise faults.error(
            Code.BATCH_TOO_LARGE, f"A batch has at most {limits.batch} records; send several."
        )
    return list(raw)


def _key_step(schema: Schema) -> str:
    return "" if schema.primary is None else step(schema.primary.name)


def _reader(schema: Schema, limits: RecordLimits) -> RecordParser:
    """The compiled reader.

    Kept by identity, which costs nothing to compare; both objects are held, so no other can take
    their ids.
    """
    identity = (id(schema), id(limits))
    compiled = _compiled.get(identity)
    if compiled is None:
        if len(_compiled) >= _MOST_COMPILED:
            _compiled.clear()
        compiled = _compiled[identity] = (schema, limits, _compile(schema, limits))
    return compiled[2]


def _compile(schema: Schema, limits: RecordLimits) -> RecordParser:
    checks = {field.name: check_of(field, limits) for field in schema.fields}
    primary = schema.primary.name if schema.primary is not None else None
    required = tuple(
        field.name for field in schema.fields if field.required or field.name == primary
    )

    def read(raw: Any, partial: bool, pointer: str, faults: ValueFaults) -> RecordDraft:
        if not isinstance(raw, dict):
            faults.add(pointer, "Has to be a JSON object.")
            return RecordDraft(None, {}, at=pointer)
        if len(raw) > len(checks) + _UNKNOWN:
            raw = _without_unknown(raw, checks, pointer, faults)
        fields: Fields = {}
        stated: dict[str, Any] = {}
        expires: int | msgspec.UnsetType | None = msgspec.UNSET
        for name, value in raw.items():
            check = checks.get(name)
            try:
                if check is not None:
                    fields[name] = None if value is None else check(value)
                elif name == EXPIRES_AT:
                    expires = None if value is None else instant(value)
                elif name in _BUILT_IN:
                    stated[name] = value
                else:
                    faults.add(pointer + step(name), _unknown(name, primary, (*checks, EXPIRES_AT)))
            except Unfit as fault:
                fields[name] = None
                faults.add(pointer + step(name) + fault.pointer, fault.text)
        # in an update absent ones stay as they are, so only a null is a fault there
        for name in required:
            if raw.get(name, partial or None) is None:
                text = "Must not be null" if name in raw else "Is missing"
                faults.add(pointer + step(name), f"{text}: the field is required.")
        key = fields.get(primary) if primary is not None else None
        return (
            RecordDraft(key, fields, expires, pointer, stated=stated)
            if stated
            else RecordDraft(key, fields, expires, pointer)
        )

    return read


def _without_unknown(
    raw: dict[str, Any], checks: Mapping[str, ValueCheck], pointer: str, faults: ValueFaults
) -> dict[str, Any]:
    """Return the members that the schema knows. A body may have hundreds of thousands of others."""
    unknown = [name for name in raw if name not in checks and name != EXPIRES_AT]
    faults.each(pointer, unknown, "The schema has no field of this name.")
    return {name: raw[name] for name in (*checks, EXPIRES_AT) if name in raw}


def _unknown(name: str, primary: str | None, names: Iterable[str]) -> str:
    if name == KEY and primary is not None:
        return f"The key of this schema's records is sent as {primary}."
    return unknown_field(name, names)
