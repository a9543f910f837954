"""Handlers of the point-of-presence interface: records as clients made for hosted services of this
kind speak of them.

Its records are those of ``/api/records``. With ``X-Encrypted-Storage: true`` a caller sends values
in the clear. Without it the caller has sealed and hashed them itself, and gets them back unchanged.
The vault seals and hashes both kinds once more.

Requests are those of ``model.legacy_dialect``, and what only such clients say:

- A record may say ``is_encrypted``: whether its sender has sealed it. Then its texts are whatever
  the sender made of them, hashes of keys and a sealed body, and are kept and compared as they are;
  ``version`` is the version of the key that it was sealed with.
- ``$not`` may be asked of integers and of instants, too, alone or beside comparisons.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from proxy.api import legacy_records, request, wire
from proxy.api.context import ApiHandler, ApiRequest, ApiResponse
from proxy.api.records import keys_of_filter, overwritten
from proxy.api.search import one, page_meta
from proxy.errors import Code, Detail, VaultError
from proxy.model import (
    ALIASES,
    COUNTRY,
    NOT,
    field_of,
    parse_legacy_record,
    read_record_find,
    read_records,
)
from proxy.model.policy import Act
from proxy.model.query import CREATED_AT, EXPIRES_AT, UPDATED_AT, Equals, Query, Test
from proxy.model.record import Record, RecordDraft, RecordLimits
from proxy.model.schema import BODY, IS_ENCRYPTED, RECORD_KEY, RECORDS_SCHEMA, FieldType, Schema
from proxy.model.values import CHECKS, Unfit, ValueCheck, ValueFaults, boolean, instant, step
from proxy.vault.records import PageAsker, Records, delete_many, delete_one, page_of

#: Where the files of a record are.
FILES: Final = "/v2/storage/records/{country}/{record_key}/attachments"

_ENVIRONMENT: Final = "x-env-id"
_SEALED_HERE: Final = "X-Encrypted-Storage"

#: Names of this instance's own that the answers of this interface do not have.
_ELSEWHERE: Final = frozenset((*ALIASES, COUNTRY))

_EMPTY: Final = wire.json_answer(200, {})


def require_own_environment(handler: ApiHandler) -> ApiHandler:
    """Wrap a handler: country and environment of the request have to be the caller's."""

    async def checked(call: ApiRequest) -> ApiResponse:
        check_environment(call)
        request.check_country(call, call.path, source=COUNTRY, spelled=True)
        return await handler(call)

    return checked


def check_environment(call: ApiRequest) -> None:
    """Raise ``VaultError`` (INVALID_INPUT, UNAUTHORIZED) unless the header names the token's."""
    sent = call.request.headers.getall(_ENVIRONMENT, [])
    if len(sent) != 1:
        detail = Detail(_ENVIRONMENT, "Has to stand once, with the id of the environment.")
        raise VaultError(Code.INVALID_INPUT, "The environment is not named.", (detail,))
    if sent[0] != call.principal.environment:
        raise VaultError(
            Code.UNAUTHORIZED, "The access token is for another environment than x-env-id names."
        )


async def health(call: ApiRequest) -> ApiResponse:
    """Whether records can be read."""
    check_environment(call)
    collection = call.records(RECORDS_SCHEMA, Act.READ).collection
    await collection.store.rows(collection.table, [0])
    return wire.json_answer(200, {"status": "ok"})


async def put_pop_record(call: ApiRequest) -> ApiResponse:
    """Create a record, or replace the one that has its key."""
    records = request.with_preconditions(call.request, call.records(RECORDS_SCHEMA, Act.WRITE))
    draft = read_pop_record(
        records.full_schema, call.content, call.services.limits, sealed_here=_sealed_here(call)
    )
    return await overwritten(call, records, [draft], partial(_one, call, 201, records))


async def batch_write(call: ApiRequest) -> ApiResponse:
    """A batch of them, all or none."""
    records = call.records(RECORDS_SCHEMA, Act.WRITE)
    content = request.checked_members(call.content, ("records",), ("records",))
    drafts = read_pop_records(
        records.full_schema,
        content["records"],
        call.services.limits,
        sealed_here=_sealed_here(call),
    )
    return await overwritten(call, records, drafts, partial(_many, call, records))


async def get_pop_record(call: ApiRequest) -> ApiResponse:
    """The record with that key."""
    records = call.records(RECORDS_SCHEMA, Act.READ)
    return await one(call, records, lambda record: _body(call, records, record))


async def search(call: ApiRequest) -> ApiResponse:
    """The records that match."""
    records, limits = call.records(RECORDS_SCHEMA, Act.READ), call.services.limits
    content = request.checked_members(call.content, ("filter", "options"))
    query = read_pop_find(records.full_schema, content, limits)
    asker = PageAsker(lambda record: wire.encode_json(_body(call, records, record)))
    result = await page_of(records, query, limits, asker)
    count = len(result.records)
    meta = wire.meta_of(count, query.limit, query.offset, result.total, page_meta(result))
    return wire.pages(result.records, meta)


async def delete_pop_record(call: ApiRequest) -> ApiResponse:
    """The end of one record."""
    key = call.path[RECORD_KEY]
    await delete_one(
        request.with_preconditions(call.request, call.records(RECORDS_SCHEMA, Act.DELETE)),
        key,
        call.principal.client,
        call.closing(lambda _: _EMPTY),
    )
    return _EMPTY


async def batch_delete(call: ApiRequest) -> ApiResponse:
    """The end of those of some records that exist."""
    records = call.records(RECORDS_SCHEMA, Act.DELETE)
    content = request.checked_members(call.content, ("filter",), ("filter",))
    keys = keys_of_filter(call, content["filter"], (RECORD_KEY,))
    await delete_many(records, keys, call.principal.client, call.closing(lambda _: _EMPTY))
    return _EMPTY


# ---------------------------------------------------------------------- parts


def _sealed_here(call: ApiRequest) -> bool:
    """Tell whether the values are in the clear, for the vault alone to seal and hash."""
    sent = call.request.headers.getall(_SEALED_HERE, [])
    if len(sent) > 1 or (sent and sent[0].lower() not in ("true", "false")):
        detail = Detail(_SEALED_HERE, "May stand once, as true or false.")
        raise VaultError(Code.INVALID_INPUT, "It is not told who seals.", (detail,))
    return bool(sent) and sent[0].lower() == "true"


def _one(call: ApiRequest, status: int, records: Records, stored: Sequence[Record]) -> ApiResponse:
    return wire.json_answer(status, _body(call, records, stored[0]))


def _many(call: ApiRequest, records: Records, stored: Sequence[Record]) -> ApiResponse:
    return wire.json_answer(201, {"records": [_body(call, records, record) for record in stored]})


def _body(call: ApiRequest, records: Records, record: Record) -> dict[str, Any]:
    """A record as this interface answers with it: every visible member, ``null`` for no value."""
    visible = records.rights.render(record)
    body = legacy_records.record_json(visible, call.services.country, records.rights)
    for name in _ELSEWHERE:
        body.pop(name, None)
    if BODY in body:
        body[BODY] = body[BODY] or ""
    body[IS_ENCRYPTED] = visible.fields.get(IS_ENCRYPTED)
    base = wire.filled(FILES, {COUNTRY: call.services.country, RECORD_KEY: record.key or ""})
    body["attachments"] = [wire.attachment(base, item) for item in visible.attachments]
    return body


_INSTANTS: Final = (CREATED_AT, UPDATED_AT, EXPIRES_AT)


def read_pop_record(
    schema: Schema, raw: Any, limits: RecordLimits, *, sealed_here: bool
) -> RecordDraft:
    """The record of a write. ``sealed_here``: the sender says that it has sealed nothing.

    Raises as ``parse_legacy_record``.
    """
    faults = ValueFaults(limits.faults)
    rest, sealed = _without_sealing(raw, "", sealed_here, faults)
    _refuse(faults)
    return _with(parse_legacy_record(schema, rest, partial=False, limits=limits), sealed)


def read_pop_records(
    schema: Schema, raw: Any, limits: RecordLimits, *, sealed_here: bool
) -> list[RecordDraft]:
    """The records of a batch, which stand at ``/records``. Raises as ``read_records``."""
    faults = ValueFaults(limits.faults)
    items = raw if isinstance(raw, list) and len(raw) <= limits.batch else []
    split = [
        _without_sealing(item, f"/records/{number}", sealed_here, faults)
        for number, item in enumerate(items)
    ]
    _refuse(faults)
    records = [rest for rest, _ in split] if items else raw
    drafts = read_records(schema, records, partial=False, limits=limits, pointer="/records")
    return [_with(draft, flag) for draft, (_, flag) in zip(drafts, split, strict=True)]


def read_pop_find(schema: Schema, raw: Mapping[str, Any], limits: RecordLimits) -> Query:
    """The question of a search. Raises as ``read_record_find``."""
    content = dict(raw)
    tests: list[Test] = []
    if isinstance(wanted := raw.get("filter"), dict) and len(wanted) <= limits.conditions:
        content["filter"], tests = _without_not(schema, wanted, limits)
    query = read_record_find(schema, content, limits)
    return msgspec.structs.replace(query, tests=(*query.tests, *tests))


# ---------------------------------------------------------------------- who has sealed a record


def _without_sealing(
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

    Those have their ``$not`` in ``model.legacy_dialect``.
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
