"""Requests that ask for records, read into questions: find, aggregate, and the filter alone; all
faults at once.

The filter language is read by ``conditions``. Where the specification is silent about the rest:

- ``next`` is the cursor of the page before, with the same filter and order, and no ``offset``;
- ``limit`` is 1 up to the maximum and ``offset`` 0 up to 2^31 - 1; more is refused, not cut down,
  and so is 0;
- a field is sorted by, or grouped by, once; only what stands beside the body in the clear has an
  order;
- members that are not known are refused, in the request, in ``options``, in a metric and in
  ``group_by``;
- names of functions are read in either letter case; ``count`` takes no ``key``;
- an aggregation has one metric at least, and ``group_by`` one key at least.

Details are ``INVALID_FILTER`` for ``/filter``, ``INVALID_OPTIONS`` for ``/options``, else
``INVALID_INPUT``. If all of them concern a partial match that is off, the code is
``PARTIAL_MATCH_DISABLED``.
"""

from typing import Any

from msgspec import structs

from proxy.errors import Code
from proxy.model.filter_language import NUMBERS, TIMES, Conditions, field_of
from proxy.model.query import (
    CREATED_AT,
    EXPIRES_AT,
    UPDATED_AT,
    Aggregation,
    MetricFunction,
    MetricQuery,
    Query,
    Sort,
    Test,
)
from proxy.model.record import RecordLimits
from proxy.model.schema import RECORDS_SCHEMA, ConcealedField, Field, FieldType, Schema, Storage
from proxy.model.values import Unfit, ValueFaults, integer, step, text_of, unknown_field

_INSTANTS = (CREATED_AT, UPDATED_AT, EXPIRES_AT)
_SORTED = (FieldType.STRING, FieldType.INTEGER, *TIMES)
_LARGEST_OFFSET = 2**31 - 1
_FUNCS = {str(func): func for func in MetricFunction}
_metric_name = text_of(128, least=1)

#: Codes of refused requests, the gravest first, and their messages.
_GRAVITY = {
    Code.INVALID_INPUT: "The request cannot be read.",
    Code.INVALID_FILTER: "The filter cannot be asked of this schema.",
    Code.INVALID_OPTIONS: "The options of the search cannot be used.",
    Code.PARTIAL_MATCH_DISABLED: (
        "Partial match is off for what was searched; its schema has to turn it on (for records: "
        "records.partial_match)."
    ),
}


def read_find(schema: Schema, raw: Any, limits: RecordLimits) -> Query:
    """The question of a find request, ``{filter, options}``; both may be absent."""
    faults = ValueFaults(limits.faults)
    members = _members(raw, "", ("filter", "options"), faults)
    tests = Conditions(schema, limits, faults).read(members.get("filter", {}), "/filter")
    query = _options(schema, members.get("options", {}), limits, faults)
    _refuse(faults)
    return structs.replace(query, tests=tests)


def read_filter(
    schema: Schema, raw: Any, limits: RecordLimits, pointer: str = "/filter"
) -> tuple[Test, ...]:
    """The tests of a filter that stands at ``pointer``."""
    faults = ValueFaults(limits.faults)
    tests = Conditions(schema, limits, faults).read(raw, pointer)
    _refuse(faults)
    return tests


def read_aggregate(schema: Schema, raw: Any, limits: RecordLimits) -> Aggregation | str:
    """The question of an aggregation, ``{metrics, filter, group_by}``; or the cursor of ``{next}``
    or ``{cursor}``.
    """
    faults = ValueFaults(limits.faults)
    members = _members(raw, "", ("metrics", "filter", "group_by", "next", "cursor"), faults)
    cursors = {name: members[name] for name in ("next", "cursor") if members.get(name) is not None}
    if cursors:
        return _cursor(members, cursors, faults)
    tests = Conditions(schema, limits, faults).read(members.get("filter", {}), "/filter")
    metrics = _metrics(schema, members, limits, faults)
    keys, limit = _group_by(schema, members, limits, faults)
    _refuse(faults)
    return Aggregation(metrics, tests, keys, limit)


def _refuse(faults: ValueFaults) -> None:
    if faults.details:
        code = next(code for code in _GRAVITY if code in faults.codes)
        raise faults.error(code, _GRAVITY[code])


def _members(
    raw: Any,
    pointer: str,
    members: tuple[str, ...],
    faults: ValueFaults,
    code: Code = Code.INVALID_INPUT,
) -> dict[str, Any]:
    """The members of an object that may have those; of anything else none."""
    if not isinstance(raw, dict):
        faults.add(pointer, "Has to be a JSON object.", code)
        return {}
    if not raw.keys() <= set(members):
        unknown = [name for name in raw if name not in members]
        faults.each(pointer, unknown, f"Is not known here; there are {', '.join(members)}.", code)
    return raw


def _number(
    raw: Any, pointer: str, bounds: tuple[int, int], faults: ValueFaults, code: Code
) -> int:
    try:
        number = integer(raw)
    except Unfit:
        number = bounds[0] - 1
    if not bounds[0] <= number <= bounds[1]:
        faults.add(pointer, f"Has to be an integer from {bounds[0]} to {bounds[1]}.", code)
    return number


# ---------------------------------------------------------------------- options of find


def _options(schema: Schema, raw: Any, limits: RecordLimits, faults: ValueFaults) -> Query:
    code = Code.INVALID_OPTIONS
    members = _members(raw, "/options", ("limit", "offset", "sort", "next"), faults, code)
    limit = _number(
        members.get("limit", limits.find_default),
        "/options/limit",
        (1, limits.find_maximum),
        faults,
        code,
    )
    offset = _number(
        members.get("offset", 0), "/options/offset", (0, _LARGEST_OFFSET), faults, code
    )
    cursor = members.get("next")
    if cursor is not None and (not isinstance(cursor, str) or not cursor):
        faults.add("/options/next", "Has to be the string that the page before gave.", code)
    elif cursor is not None and offset:
        faults.add(
            "/options/offset", "Cannot be combined with next, which has the place in it.", code
        )
    sort = members.get("sort", [])
    if not isinstance(sort, list):
        faults.add("/options/sort", "Has to be an array of objects with one member each.", code)
        return Query((), (), limit, offset)
    if len(sort) > (most := len(schema.fields) + len(_INSTANTS)):
        faults.add(
            "/options/sort",
            f"Must not hold more than {most} fields: there are no more, and each counts once.",
            code,
        )
        return Query((), (), limit, offset)
    keys: dict[str, Sort] = {}
    for number, item in enumerate(sort):
        pointer = f"/options/sort/{number}"
        if not isinstance(item, dict) or len(item) != 1:
            faults.add(
                pointer, "Has to be an object with one member, a field and asc or desc.", code
            )
            continue
        ((name, direction),) = item.items()
        reason = "Is sorted by already." if name in keys else _unsortable(schema, name)
        if reason:
            faults.add(pointer + step(name), reason, code)
        elif direction not in ("asc", "desc"):
            faults.add(pointer + step(name), "Has to be asc or desc.", code)
        keys[name] = Sort(name, direction == "desc")
    return Query((), tuple(keys.values()), limit, offset, cursor)


def _unsortable(schema: Schema, name: str) -> str:
    """Describe why records cannot be sorted by that; empty if they can."""
    if name in _INSTANTS:
        return ""
    field = field_of(schema, name)
    if field is None:
        return unknown_field(name, (*(other.name for other in schema.fields), *_INSTANTS))
    if field.type is FieldType.PRIMARY_KEY:
        return "Cannot be sorted by: only a hash of the record key is kept, which has no order."
    if field.type not in _SORTED:
        return (
            "Cannot be sorted by: only string, integer, datetime, date and time fields can, and "
            f"{', '.join(_INSTANTS)}."
        )
    if isinstance(field, ConcealedField):
        return f"Cannot be sorted by: {field.no_query_reason}."
    if field.storage is not Storage.INDEXED:
        fault = (
            "Cannot be sorted by: the storage of the field is not indexed, and what is kept of "
            "it has no order"
        )
        return (
            f"{fault}."
            if schema.name != RECORDS_SCHEMA
            else f"{fault}; the setting records.plain changes that for key1 to key25."
        )
    return ""


# ---------------------------------------------------------------------- aggregation


def _cursor(members: dict[str, Any], cursors: dict[str, Any], faults: ValueFaults) -> str:
    code = Code.INVALID_INPUT
    for name in members:
        if name not in ("next", "cursor"):
            faults.add(
                step(name),
                "Cannot be sent with a cursor, which has the whole question in it.",
                code,
            )
    for name, cursor in cursors.items():
        if not isinstance(cursor, str) or not cursor:
            faults.add(step(name), "Has to be the string that the page before gave.", code)
    if len(cursors) > 1:
        faults.add("/cursor", "Cannot be combined with next.", code)
    _refuse(faults)
    return str(next(iter(cursors.values())))


def _metrics(
    schema: Schema, members: dict[str, Any], limits: RecordLimits, faults: ValueFaults
) -> tuple[MetricQuery, ...]:
    code = Code.INVALID_INPUT
    raw = members.get("metrics")
    if not isinstance(raw, dict) or not 1 <= len(raw) <= limits.metrics:
        faults.add("/metrics", f"Has to be an object of 1 to {limits.metrics} metrics.", code)
        return ()
    metrics: list[MetricQuery] = []
    for name, item in raw.items():
        pointer = "/metrics" + step(name)
        try:
            _metric_name(name)
        except Unfit as fault:
            faults.add(pointer, f"The name of a metric: {fault.text}", code)
        members = _members(item, pointer, ("func", "key"), faults)
        func = members.get("func")
        function = _FUNCS.get(func.lower()) if isinstance(func, str) else None
        if function is None:
            faults.add(f"{pointer}/func", f"Has to be one of {', '.join(_FUNCS)}.", code)
            continue
        reason = _unfit_key(schema, function, members)
        if reason:
            faults.add(f"{pointer}/key", reason, code)
        metrics.append(MetricQuery(name, function, members.get("key")))
    return tuple(metrics)


def _unfit_key(schema: Schema, func: MetricFunction, metric: dict[str, Any]) -> str:
    """Describe why the function cannot be computed of its key; empty if it can."""
    if func is MetricFunction.COUNT:
        return "Is not for count, which counts records." if "key" in metric else ""
    name = metric.get("key")
    field = field_of(schema, name) if isinstance(name, str) else None
    if field is None:
        wanted = "Has to be the name of an integer or decimal field."
        return f"{wanted} {_unnamed(schema, name)}" if isinstance(name, str) else wanted
    if field.type not in NUMBERS:
        return f"Has to be an integer or decimal field for {func}."
    if field.storage is not Storage.INDEXED:
        return (
            "Cannot be computed: the storage of the field is not indexed, so its numbers are "
            "sealed."
        )
    return ""


def _group_by(
    schema: Schema, members: dict[str, Any], limits: RecordLimits, faults: ValueFaults
) -> tuple[tuple[str, ...], int]:
    code = Code.INVALID_INPUT
    if "group_by" not in members:
        return (), limits.groups
    grouping = _members(members["group_by"], "/group_by", ("limit", "keys"), faults)
    limit = _number(
        grouping.get("limit", limits.groups), "/group_by/limit", (1, limits.groups), faults, code
    )
    keys = grouping.get("keys")
    if not isinstance(keys, list) or not 1 <= len(keys) <= limits.group_keys:
        faults.add(
            "/group_by/keys", f"Has to be an array of 1 to {limits.group_keys} field names.", code
        )
        return (), limit
    keyed: set[str] = set()
    for number, name in enumerate(keys):
        field = field_of(schema, name) if isinstance(name, str) else None
        reason = _ungroupable(field, keyed) if field is not None else _unnamed(schema, name)
        if reason:
            faults.add(f"/group_by/keys/{number}", reason, code)
        if field is not None:
            keyed.add(field.name)
    return tuple(keys), limit


def _unnamed(schema: Schema, name: Any) -> str:
    """Describe the fault of an unknown field name."""
    return unknown_field(name if isinstance(name, str) else "", [one.name for one in schema.fields])


def _ungroupable(field: Field, keyed: set[str]) -> str:
    """Describe why records cannot be grouped by that; empty if they can."""
    if field.name in keyed:
        return "Is grouped by already."
    if field.type is FieldType.JSON:
        return "Cannot be grouped by: a JSON field has no single value."
    if field.storage is Storage.ENCRYPTED and field.type is not FieldType.PRIMARY_KEY:
        return f"Cannot be grouped by: {field.no_query_reason}."
    return ""
