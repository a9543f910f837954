"""Handlers that write, copy and end the records of a schema."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from proxy.api import request, wire
from proxy.api.context import ApiRequest, ApiResponse
from proxy.clock import to_wire
from proxy.errors import Code, Detail, VaultError
from proxy.model import read_draft, read_drafts, read_filter, read_texts
from proxy.model.policy import Act
from proxy.model.query import CREATED_AT, EXPIRES_AT, KEY, UPDATED_AT, Query, Test
from proxy.model.record import Record, RecordDraft
from proxy.model.values import step, unknown_field
from proxy.offload import each, run_in_thread
from proxy.vault.proxied import correct_record
from proxy.vault.records import (
    Records,
    change_records,
    clone,
    delete_many,
    delete_one,
    find_page,
    merge_records,
    refuse_of_rules,
    store_records,
)

#: Renders the answer of a write from its result.
Show = Callable[[Sequence[Record]], ApiResponse]

#: Records of a batch that are read within the event loop.
_MANY = 100

#: Renders the answer of a delete.
GONE = ApiResponse(204)


def records_of_call(call: ApiRequest, act: Act, *acts: Act) -> Records:
    """Return the records of the request's schema, for the operation's action.

    Raises ``VaultError`` (UNKNOWN_SCHEMA, ACCESS_DENIED).
    """
    return call.records(call.schema or "", act, *acts)


def updated_json(
    records: Records, drafts: Sequence[RecordDraft], updated: Sequence[Record]
) -> list[Record]:
    """Return the records after an update; without the right to read, only the fields sent."""
    if records.rights.allows(Act.READ):
        return list(updated)
    sent = {draft.key: draft for draft in drafts}
    visible: list[Record] = []
    for record in updated:
        draft = sent[record.key]
        fields = {name: record.fields[name] for name in draft.fields}
        ends = None if draft.expires_at is UNSET else record.expires_at
        visible.append(replace(record, fields=fields, expires_at=ends, attachments=()))
    return visible


def _writable(call: ApiRequest) -> Records:
    """The records for writing; raises before any fault of the body is looked for."""
    records = call.records(call.schema or "", Act.WRITE)
    refuse_of_rules(records)
    return records


async def create_record(call: ApiRequest) -> ApiResponse:
    """Create a record."""
    records = request.with_preconditions(call.request, _writable(call))
    draft = read_draft(
        records.full_schema, call.content, partial=False, limits=call.services.limits
    )
    show = partial(_one, records, 201)
    return show(await _store_drafts(call, records, [draft], show))


async def replace_record(call: ApiRequest) -> ApiResponse:
    """Replace the record with that key by the body."""
    return await _changed_one(call, whole=True)


async def change_record(call: ApiRequest) -> ApiResponse:
    """Replace the values of the record with that key by those sent."""
    records = records_of_call(call, Act.WRITE)
    if records.primary is None:
        return await _corrected(call, request.with_preconditions(call.request, records))
    return await _changed_one(call, whole=False)


async def _corrected(call: ApiRequest, records: Records) -> ApiResponse:
    """A record that the proxy has collected, put right."""
    content, lists = call.content, dict[str, list[str]]()
    if isinstance(content, dict):
        lists = {name: value for name, value in content.items() if isinstance(value, list)}
        content = {name: value for name, value in content.items() if name not in lists}
    limits = call.services.limits
    draft = read_draft(records.full_schema, content, partial=True, limits=limits)
    draft.fields.update(read_texts(records.full_schema, lists, limits=limits))
    if draft.expires_at is not UNSET:
        text = "Is set by the rule of the entity (expires), and cannot be corrected."
        raise VaultError(
            Code.INVALID_RECORD, "The record cannot take this.", (Detail(step(EXPIRES_AT), text),)
        )
    draft = replace(draft, key=call.path[KEY])

    def show(stored: Sequence[Record]) -> ApiResponse:
        return _one(records, 200, updated_json(records, [draft], stored))

    stored = await correct_record(records, draft, call.principal.client, call.closing(show))
    if stored is None:
        raise VaultError(Code.NOT_FOUND, f"There is no such record of {records.name!r}.")
    return show([stored])


async def _changed_one(call: ApiRequest, *, whole: bool) -> ApiResponse:
    records, key = request.with_preconditions(call.request, _writable(call)), call.path[KEY]
    primary = "" if records.primary is None else records.primary.name
    content = call.content
    if isinstance(content, dict) and primary not in content:
        content = {**content, primary: key}
    draft = read_draft(records.full_schema, content, partial=not whole, limits=call.services.limits)
    if draft.key != key:
        text = "Is another key than that in the address: the key of a record cannot be changed."
        raise VaultError(
            Code.INVALID_RECORD,
            "The record is not the one in the address.",
            (Detail(step(primary), text),),
        )
    drafts = [replace(draft, whole=whole)]

    def show(stored: Sequence[Record]) -> ApiResponse:
        if not stored:
            raise VaultError(Code.NOT_FOUND, f"There is no such record of {records.name!r}.")
        return _one(records, 200, updated_json(records, drafts, stored))

    return show(await change_records(records, drafts, call.principal.client, call.closing(show)))


async def create_record_v2(call: ApiRequest) -> ApiResponse:
    """Create one record or several; answer with their keys and times of creation only."""
    records = _writable(call)
    if several := isinstance(call.content, list):
        drafts = await _drafts(call, records, call.content)
    else:
        limits = call.services.limits
        drafts = [read_draft(records.full_schema, call.content, partial=False, limits=limits)]
    show = partial(_receipts, not several)
    return show(await _store_drafts(call, records, drafts, show))


async def create_records(call: ApiRequest) -> ApiResponse:
    """A batch of new records, all or none."""
    records = _writable(call)
    raw, pointer, _ = request.batch(call)
    drafts = await _drafts(call, records, raw, pointer)
    stored = await _store_drafts(call, records, drafts, partial(_many, records))
    return wire.json_answer(201, await each(partial(_written, records), stored))


async def update_records(call: ApiRequest) -> ApiResponse:
    """A batch of changes to records that exist, all or none."""
    records = _writable(call)
    raw, pointer, options = request.batch(call, "search_key", "return_keys")
    drafts = await _drafts(call, records, raw, pointer, partial=True)
    search_key = options.get("search_key")
    if search_key is not None and not isinstance(search_key, str):
        raise request.invalid("/search_key", "Has to be the name of a field.")
    names = _return_keys(records, options["return_keys"]) if "return_keys" in options else None

    def show(stored: Sequence[Record]) -> ApiResponse:
        visible = updated_json(records, drafts, stored)
        return _many(records, visible) if names is None else _chosen(records, names, visible)

    updated = await change_records(
        records, drafts, call.principal.client, call.closing(show), search_key=search_key
    )
    return show(updated)


async def clone_record(call: ApiRequest) -> ApiResponse:
    """Copy a record under a new key."""
    records = _writable(call)
    readable = records_of_call(call, Act.READ)
    content = request.checked_members(
        call.content, ("filter", "update_with"), ("filter", "update_with")
    )
    tests = read_filter(records.full_schema, content["filter"], call.services.limits)
    draft = read_draft(
        records.full_schema,
        content["update_with"],
        partial=True,
        limits=call.services.limits,
        pointer="/update_with",
    )

    return await cloned(call, (records, readable), tests, draft, partial(_many, records))


async def cloned(
    call: ApiRequest,
    sides: tuple[Records, Records],
    tests: Sequence[Test],
    draft: RecordDraft,
    show: Show,
) -> ApiResponse:
    """Copy the record that matches; ``sides``: the records to write, and those to read."""
    records, readable = sides

    async def sources(most: int) -> list[Record]:
        result = await find_page(readable, Query(tuple(tests), limit=most), call.services.limits)
        if result.unreadable:
            raise VaultError(Code.CANNOT_OPEN, "A record that matches the filter does not open.")
        return result.records

    return show(await clone(records, sources, draft, call.principal.client, call.closing(show)))


async def migrate_record(call: ApiRequest) -> ApiResponse:
    """Everything of one record goes to another, and the first one ends."""
    source, destination = call.path["source"], call.path["destination"]
    records = records_of_call(call, Act.WRITE, Act.DELETE)
    await merge_records(records, source, destination, call.principal.client, call.closing(gone))
    return GONE


async def delete_record(call: ApiRequest) -> ApiResponse:
    """The end of one record."""
    await delete_one(
        request.with_preconditions(call.request, records_of_call(call, Act.DELETE)),
        call.path["record_key"],
        call.principal.client,
        call.closing(gone),
        cascade_by=call.query.get("cascadeBy"),
    )
    return GONE


def keys_of_filter(call: ApiRequest, chosen: Any, names: Sequence[str]) -> list[str]:
    """The keys of the records to delete: a filter has one member, of one of these names.

    Raises ``VaultError(INVALID_FILTER)``.
    """
    if not isinstance(chosen, dict) or len(chosen) != 1 or not chosen.keys() <= set(names):
        text = (
            f"Has to be an object whose one member is {' or '.join(names)}: records are deleted "
            "by their keys alone."
        )
        raise VaultError(
            Code.INVALID_FILTER,
            "The filter does not fit this operation.",
            (Detail("/filter", text),),
        )
    ((name, values),) = chosen.items()
    return request.strings(values, "/filter" + step(name), call.services.limits.find_maximum)


async def delete_records(call: ApiRequest) -> ApiResponse:
    """The end of those of some records that exist."""
    records = records_of_call(call, Act.DELETE)
    content = request.checked_members(call.content, ("filter",), ("filter",))
    names = (KEY,) if records.primary is None else (KEY, records.primary.name)
    return await records_deleted(call, records, keys_of_filter(call, content["filter"], names))


async def records_deleted(call: ApiRequest, records: Records, keys: Sequence[str]) -> ApiResponse:
    """The end of the records with these keys, and of what goes with them by the query."""
    cascade_by, client = call.query.get("cascadeBy"), call.principal.client
    await delete_many(records, keys, client, call.closing(gone), cascade_by=cascade_by)
    return GONE


async def overwritten(
    call: ApiRequest, records: Records, drafts: Sequence[RecordDraft], show: Show
) -> ApiResponse:
    """Store records over those that have their keys, as the families with fixed fields do."""
    stored = await store_records(
        records, drafts, call.principal.client, call.closing(show), on_existing="update"
    )
    return show(stored)


# ---------------------------------------------------------------------- parts


async def _drafts(
    call: ApiRequest, records: Records, raw: Any, pointer: str = "", *, partial: bool = False
) -> list[RecordDraft]:
    """Read the records of a batch; those of a long one on another thread."""
    long = isinstance(raw, list) and len(raw) > _MANY
    limits = call.services.limits
    return await run_in_thread(
        long, read_drafts, records.full_schema, raw, partial=partial, limits=limits, pointer=pointer
    )


def _store_drafts(
    call: ApiRequest, records: Records, drafts: Sequence[RecordDraft], show: Show
) -> Awaitable[list[Record]]:
    return store_records(
        records,
        drafts,
        call.principal.client,
        call.closing(show),
        on_existing=call.services.on_existing,
    )


def _return_keys(records: Records, value: Any) -> list[str]:
    names = request.strings(value, "/return_keys", 1000)
    valid = {field.name for field in records.full_schema.fields} | {
        CREATED_AT,
        UPDATED_AT,
        EXPIRES_AT,
    }
    faults = tuple(
        Detail(f"/return_keys/{index}", unknown_field(name, valid))
        for index, name in enumerate(value)
        if name not in valid
    )
    if faults:
        raise VaultError(Code.INVALID_INPUT, "The body does not fit this operation.", faults)
    return names


def _one(records: Records, status: int, stored: Sequence[Record]) -> ApiResponse:
    return tagged(records, stored[0], wire.json_answer(status, _written(records, stored[0])))


def tagged(records: Records, record: Record, answer: ApiResponse) -> ApiResponse:
    """The answer with the entity tag of its record, for callers that may read it."""
    if not records.rights.allows(Act.READ):
        return answer
    return answer._replace(headers={**answer.headers, "ETag": records.entity_tag(record)})


def _many(records: Records, stored: Sequence[Record]) -> ApiResponse:
    return wire.json_answer(201, [_written(records, record) for record in stored])


def _written(records: Records, record: Record) -> dict[str, Any]:
    rights = records.rights
    return wire.written_json(rights.render(record), rights.redacted_fields)


def _chosen(records: Records, names: Sequence[str], stored: Sequence[Record]) -> ApiResponse:
    rights = records.rights
    redacted = [name for name in rights.redacted_fields if name in names]
    members = (*names, "meta")
    bodies = (wire.written_json(rights.render(record), redacted) for record in stored)
    return wire.json_answer(
        201, [{name: record[name] for name in members if name in record} for record in bodies]
    )


def _receipts(single: bool, stored: Sequence[Record]) -> ApiResponse:
    receipts = [{KEY: one.key, CREATED_AT: to_wire(one.created_at)} for one in stored]
    return wire.json_answer(201, receipts[0] if single else receipts)


def gone(_result: Sequence[Record]) -> ApiResponse:
    """``GONE``, whatever the result."""
    return GONE
