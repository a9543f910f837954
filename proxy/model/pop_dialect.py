"""Requests of point-of-presence clients, in terms of the schema ``records``: what ``dialect``
reads, and what only they say.

- A record may say ``is_encrypted``: whether its sender has sealed it. Then its texts are whatever
  the sender made of them, hashes of keys and a sealed body, and are kept and compared as they are;
  ``version`` is the version of the key that it was sealed with.
- ``$not`` may be asked of integers and of instants, too, alone or beside comparisons.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from proxy.errors import Code
from proxy.model.filter_language import NOT, field_of
from proxy.model.legacy_dialect import (
    ALIASES,
    COUNTRY,
    parse_legacy_record,
    read_record_find,
    read_records,
)
from proxy.model.query import CREATED_AT, EXPIRES_AT, UPDATED_AT, Equals, Query, Test
from proxy.model.record import RecordDraft, RecordLimits
from proxy.model.schema import IS_ENCRYPTED, FieldType, Schema
from proxy.model.values import CHECKS, Unfit, ValueCheck, ValueFaults, boolean, instant, step

_INSTANTS: Final = (CREATED_AT, UPDATED_AT, EXPIRES_AT)


def read_pop_record(
    schema: Schema, raw: Any, limits: RecordLimits, *, sealed_here: bool
) -> RecordDraft:
    """The record of a write. ``sealed_here``: the sender says that it has sealed nothing.

    Raises as ``dialect.read_record``.
    """
    faults = ValueFaults(limits.faults)
    rest, sealed = _sealed_here(raw, "", sealed_here, faults)
    _refuse(faults)
    return _with(parse_legacy_record(schema, rest, partial=False, limits=limits), sealed)


def read_pop_records(
    schema: Schema, raw: Any, limits: RecordLimits, *, sealed_here: bool
) -> list[RecordDraft]:
    """The records of a batch, which stand at ``/records``. Raises as ``dialect.read_records``."""
    faults = ValueFaults(limits.faults)
    items = raw if isinstance(raw, list) and len(raw) <= limits.batch else []
    split = [
        _sealed_here(item, f"/records/{number}", sealed_here, faults)
        for number, item in enumerate(items)
    ]
    _refuse(faults)
    records = [rest for rest, _ in split] if items else raw
    drafts = read_records(schema, records, partial=False, limits=limits, pointer="/records")
    return [_with(draft, flag) for draft, (_, flag) in zip(drafts, split, strict=True)]


def read_pop_find(schema: Schema, raw: Mapping[str, Any], limits: RecordLimits) -> Query:
    """The question of a search. Raises as ``dialect.read_record_find``."""
    content = dict(raw)
    tests: list[Test] = []
    if isinstance(wanted := raw.get("filter"), dict) and len(wanted) <= limits.conditions:
        content["filter"], tests = _without_not(schema, wanted, limits)
    query = read_record_find(schema, content, limits)
    return msgspec.structs.replace(query, tests=(*query.tests, *tests))


# ---------------------------------------------------------------------- who has sealed a record


def _sealed_here(
    raw: Any, pointer: str, sealed_here: bool, faults: ValueFaults
) -> tuple[Any, bool | None]:
    """Return the record without the statement of its sealing, and that; ``None``: no statement."""
    if not isinstance(raw, dict):
        return raw, None
    if COUNTRY in raw:
        faults.add(pointer + step(COUNTRY), "Stands in the path alone.")
    flag = raw.get(IS_ENCRYPTED)
    if flag is None:
        return {name: value for name, value in raw.items() if name != IS_ENCRYPTED}, None
    try:
        flag = boolean(flag)
    except Unfit as fault:
        faults.add(pointer + step(IS_ENCRYPTED), fault.text)
        flag = False
    if flag and sealed_here:
        faults.add(
            pointer + step(IS_ENCRYPTED),
            "Cannot be true with X-Encrypted-Storage: true, which says that the server seals.",
        )
    return {name: value for name, value in raw.items() if name != IS_ENCRYPTED}, flag


def _with(draft: RecordDraft, flag: bool | None) -> RecordDraft:
    return (
        draft
        if flag is None
        else msgspec.structs.replace(draft, fields={**draft.fields, IS_ENCRYPTED: flag})
    )


# ---------------------------------------------------------------------- $not


def _without_not(
    schema: Schema, raw: Mapping[str, Any], limits: RecordLimits
) -> tuple[dict[str, Any], list[Test]]:
    """The filter without the ``$not`` of integers and instants, and those as tests."""
    faults = ValueFaults(limits.faults)
    left: dict[str, Any] = {}
    tests: list[Test] = []
    for name, wanted in raw.items():
        check = _check(schema, name) if isinstance(wanted, dict) and NOT in wanted else None
        if check is None:
            left[name] = wanted
            continue
        values = wanted[NOT]
        pointer = f"/filter{step(name)}/{NOT}"
        tests.append(
            Equals(
                ALIASES.get(name, name),
                _values(values, pointer, check, (limits, faults)),
                negated=True,
            )
        )
        if rest := {op: value for op, value in wanted.items() if op != NOT}:
            left[name] = rest
    if faults:
        raise faults.error(Code.INVALID_FILTER, "The filter cannot be asked of records.")
    return left, tests


def _check(schema: Schema, name: str) -> ValueCheck | None:
    """Return the parser of an integer, a decimal or an instant; ``None`` for other fields.

    Those have their ``$not`` in ``dialect``.
    """
    if name in _INSTANTS:
        return instant
    field = field_of(schema, ALIASES.get(name, name))
    return (
        CHECKS[field.type]
        if field is not None and field.type in (FieldType.INTEGER, FieldType.DECIMAL)
        else None
    )


def _values(
    raw: Any, pointer: str, check: ValueCheck, limits_and_faults: tuple[RecordLimits, ValueFaults]
) -> tuple[Any, ...]:
    limits, faults = limits_and_faults
    several = isinstance(raw, list)
    items = raw if several else [raw]
    if not items or len(items) > limits.values:
        faults.add(pointer, f"Has to be a value, or an array of 1 to {limits.values} values.")
        return ()
    values: list[Any] = []
    for number, item in enumerate(items):
        try:
            values.append(None if item is None else check(item))
        except Unfit as fault:
            faults.add(f"{pointer}/{number}" if several else pointer, fault.text)
    return tuple(values)


def _refuse(faults: ValueFaults) -> None:
    if faults:
        raise faults.error(Code.INVALID_RECORD, "The record does not fit its schema.")
