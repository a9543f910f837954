"""Handlers of the record-based family: the use cases of the other family, in the names and shapes
of this one (``model.legacy_dialect``).

Where the specification is silent: ``country`` has to stand in the bodies that it shows with one,
and may stand in the others; in a batch each record may repeat it. A batch overwrites as a single
create does. Records that nobody has are no reason to refuse an update.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from proxy.api import request, wire
from proxy.api.context import ApiHandler, ApiRequest, ApiResponse
from proxy.api.records import (
    cloned,
    keys_of_filter,
    overwritten,
    records_deleted,
    records_of_call,
    tagged,
    updated_json,
)
from proxy.api.search import found_answer, one, version_pages
from proxy.clock import to_wire
from proxy.model import (
    ALIASES,
    COUNTRY,
    field_of_name,
    parse_legacy_record,
    read_record_aggregate,
    read_record_filter,
    read_record_find,
    read_records,
)
from proxy.model.policy import Act
from proxy.model.query import CREATED_AT, EXPIRES_AT, UPDATED_AT, VERSION_FIELD
from proxy.model.record import Fields, Record
from proxy.model.rights import FULL, Rights, VisibleRecord
from proxy.model.schema import IS_ENCRYPTED, RECORD_KEY, STATED_VERSION, records_schema
from proxy.vault.records import AggregateRow, Records, aggregate_groups, change_records

# How records of the record-based family are written: every field of every record, ``null`` where it
# has no value.
#
# ``key`` and ``range_key`` say once more what ``record_key`` and ``range_key1`` say, for callers of
# older times.

_OTHER_NAMES: Final = {field: name for name, field in ALIASES.items()}

#: Fields of a record in an answer, in order: the name, and the field with the value.
_NAMES_IN_ANSWERS: Final = tuple(
    (name, field.name)
    for field in records_schema().fields
    if field.name not in (STATED_VERSION, IS_ENCRYPTED)
    for name in (field.name, _OTHER_NAMES.get(field.name))
    if name is not None
)

#: Between the values of a group's name, and before a character of a value that means something
#: there.
_BETWEEN: Final = "|"
_BEFORE: Final = "\\"
_NOTHING: Final = "null"


def record_json(record: VisibleRecord, country: str, rights: Rights = FULL) -> dict[str, Any]:
    """A record as every answer has it, without the fields that these rights hide."""
    body = _fields(record.fields, rights)
    body[RECORD_KEY] = body[_OTHER_NAMES[RECORD_KEY]] = record.key
    body[VERSION_FIELD] = stated_version(record)
    body[CREATED_AT] = to_wire(record.created_at)
    body[UPDATED_AT] = to_wire(record.updated_at)
    body[EXPIRES_AT] = None if record.expires_at is None else to_wire(record.expires_at)
    body[COUNTRY] = country
    if meta := wire.record_meta(record):
        body["meta"] = meta
    base = wire.files_of(record.key or "", "", country) if record.attachments else ""
    body["attachments"] = [wire.attachment(base, item) for item in record.attachments]
    return body


def stated_version(record: Record) -> int:
    """The version that the caller stated, or how often the record was written."""
    stated: int | None = record.fields.get(STATED_VERSION)
    return record.version if stated is None else stated


def legacy_version_json(record: VisibleRecord, rights: Rights = FULL) -> dict[str, Any]:
    """An entry of a record's history.

    ``version`` counts them; a version stated by a caller is in the record.
    """
    fields = {**_fields(record.fields, rights), VERSION_FIELD: stated_version(record)}
    return wire.version_json(record, fields)


def groups(figures: Iterable[AggregateRow]) -> dict[str, Any]:
    """Groups by their names."""
    return {
        group_name(group.keys): {"group": {"keys": group.keys}, "metrics": group.metrics}
        for group in figures
    }


def group_name(keys: Mapping[str, Any]) -> str:
    r"""The values of the keys, with ``|`` between them; ``null`` is no value.

    No two groups have one name.

    In a value a backslash stands before ``|`` and ``\``, and before the text ``null``. Without keys
    there is one group, ``all``.
    """
    return _BETWEEN.join(map(_named, keys.values())) if keys else "all"


def _named(value: Any) -> str:
    if value is None:
        return _NOTHING
    text = str(value)
    if text == _NOTHING:
        return _BEFORE + text
    return text.replace(_BEFORE, _BEFORE * 2).replace(_BETWEEN, _BEFORE + _BETWEEN)


def _fields(fields: Fields, rights: Rights) -> dict[str, Any]:
    get = fields.get
    if rights.view is None:
        return {name: get(field) for name, field in _NAMES_IN_ANSWERS}
    return {name: get(field) for name, field in _NAMES_IN_ANSWERS if field in rights.names}


#: What only find, aggregate and clone of this family know the record key by.
_KEY_NAMES: Final = (RECORD_KEY, *(name for name, field in ALIASES.items() if field == RECORD_KEY))

_UNTOLD: Final = (
    "A group is left out: none of its records opens, so that the values of its keys are not known."
)


def require_own_country(handler: ApiHandler, *, spelled: bool = True) -> ApiHandler:
    """The handler of an operation whose path names the country, which has to be the instance's.

    Without ``spelled``, what is no country's code is another country like any.
    """

    async def checked(call: ApiRequest) -> ApiResponse:
        request.check_country(call, call.path, source=COUNTRY, spelled=spelled)
        return await handler(call)

    return checked


async def put_legacy_record(call: ApiRequest) -> ApiResponse:
    """Create a record, or replace the one that has its key."""
    _in_country(call, call.content)
    records = request.with_preconditions(call.request, records_of_call(call, Act.WRITE))
    draft = parse_legacy_record(
        records.full_schema, call.content, partial=False, limits=call.services.limits
    )
    return await overwritten(call, records, [draft], partial(_one, call, records))


async def show_record(call: ApiRequest) -> ApiResponse:
    """The record with that key."""
    records = records_of_call(call, Act.READ)
    return await one(call, records, partial(_written, call, records))


async def put_legacy_records(call: ApiRequest) -> ApiResponse:
    """A batch of them, all or none."""
    raw, records = _batch(call)["records"], records_of_call(call, Act.WRITE)
    drafts = read_records(
        records.full_schema, raw, partial=False, limits=call.services.limits, pointer="/records"
    )
    return await overwritten(call, records, drafts, partial(_many, call, records, 201))


async def update_legacy_records(call: ApiRequest) -> ApiResponse:
    """A batch of changes to records that exist, all or none."""
    content = _batch(call, "search_key")
    records = records_of_call(call, Act.WRITE)
    search_key = content.get("search_key", RECORD_KEY)
    if not isinstance(search_key, str):
        raise request.invalid("/search_key", "Has to be the name of a field.")
    drafts = read_records(
        records.full_schema,
        content["records"],
        partial=True,
        limits=call.services.limits,
        pointer="/records",
    )

    def show(stored: Sequence[Record]) -> ApiResponse:
        return _many(call, records, 200, updated_json(records, drafts, stored))

    stored = await change_records(
        records,
        drafts,
        call.principal.client,
        call.closing(show),
        search_key=field_of_name(search_key),
    )
    return show(stored)


async def clone_legacy_record(call: ApiRequest) -> ApiResponse:
    """Copy a record under a new key."""
    readable, records, limits = (
        records_of_call(call, Act.READ),
        records_of_call(call, Act.WRITE),
        call.services.limits,
    )
    content = request.checked_members(
        call.content, ("filter", "update_with", COUNTRY), ("filter", "update_with")
    )
    request.check_country(call, content, spelled=True)
    tests = read_record_filter(records.full_schema, content["filter"], limits)
    _in_country(call, content["update_with"], "/update_with", required=False)
    draft = parse_legacy_record(
        records.full_schema,
        content["update_with"],
        partial=True,
        limits=limits,
        pointer="/update_with",
    )

    show = partial(_many, call, records, 201)
    return await cloned(call, (records, readable), tests, draft, show)


async def find_legacy_records(call: ApiRequest) -> ApiResponse:
    """The records that match."""
    content = request.checked_members(call.content, (COUNTRY, "filter", "options"), (COUNTRY,))
    request.check_country(call, content, spelled=True)
    records, limits = records_of_call(call, Act.READ), call.services.limits
    query = read_record_find(records.full_schema, _without_country(content), limits)
    rights, country = records.rights, call.services.country

    def render(record: Record) -> bytes:
        return wire.encode_json(record_json(rights.render(record), country, rights))

    return await found_answer(call, records, query, render, wire.redacted_fields(records))


async def aggregate_legacy_records(call: ApiRequest) -> ApiResponse:
    """Figures over the records that match, by group."""
    content = call.content
    if not isinstance(content, dict):
        raise request.invalid("", "Has to be a JSON object.")
    request.check_country(call, content, spelled=True)
    records, limits = records_of_call(call, Act.READ), call.services.limits
    wanted = read_record_aggregate(records.full_schema, _without_country(content), limits)
    result = await aggregate_groups(records, wanted, call.principal.client, limits, lenient=True)
    data = groups(result.groups)
    errors = [_UNTOLD] * result.untold
    return wire.json_answer(200, {"data": data, "meta": {"next": result.next}, "errors": errors})


async def delete_legacy_records(call: ApiRequest) -> ApiResponse:
    """The end of those of some records that exist."""
    content = request.checked_members(call.content, ("filter", COUNTRY), ("filter",))
    request.check_country(call, content, spelled=True)
    keys = keys_of_filter(call, content["filter"], _KEY_NAMES)
    return await records_deleted(call, records_of_call(call, Act.DELETE), keys)


async def legacy_record_history(call: ApiRequest) -> ApiResponse:
    """Answer with the versions of a record, newest first."""
    records = records_of_call(call, Act.READ)

    def render(record: Record) -> bytes:
        return wire.encode_json(legacy_version_json(records.rights.render(record), records.rights))

    return await version_pages(call, records, render)


# ---------------------------------------------------------------------- parts


def _batch(call: ApiRequest, *more: str) -> dict[str, Any]:
    """The body of a batch, its country and those of its records being the instance's."""
    content = request.checked_members(
        call.content, (COUNTRY, "records", *more), (COUNTRY, "records")
    )
    request.check_country(call, content, spelled=True)
    if isinstance(content["records"], list):
        for number, record in enumerate(content["records"]):
            _in_country(call, record, f"/records/{number}", required=False)
    return content


def _in_country(call: ApiRequest, record: Any, pointer: str = "", *, required: bool = True) -> None:
    """Raise unless a record names the instance's country, or none where that is enough."""
    if not isinstance(record, dict):
        return  # the reader of the record reports it
    if required and COUNTRY not in record:
        raise request.invalid(f"{pointer}/{COUNTRY}", "Is missing.")
    request.check_country(call, record, source=f"{pointer}/{COUNTRY}", spelled=True)


def _without_country(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if name != COUNTRY}


def _one(call: ApiRequest, records: Records, stored: Sequence[Record]) -> ApiResponse:
    return tagged(records, stored[0], wire.json_answer(201, _written(call, records, stored[0])))


def _many(call: ApiRequest, records: Records, status: int, stored: Sequence[Record]) -> ApiResponse:
    return wire.json_answer(status, [_written(call, records, record) for record in stored])


def _written(call: ApiRequest, records: Records, record: Record) -> dict[str, Any]:
    body = record_json(records.rights.render(record), call.services.country, records.rights)
    return {**body, **({"meta": meta} if (meta := wire.redacted_fields(records)) else {})}
