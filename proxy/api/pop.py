"""Handlers of the point-of-presence interface: records as clients made for hosted services of this
kind speak of them.

Its records are those of ``/api/records``. With ``X-Encrypted-Storage: true`` a caller sends values
in the clear. Without it the caller has sealed and hashed them itself, and gets them back unchanged.
The vault seals and hashes both kinds once more.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from proxy.api import legacy_records, request, wire
from proxy.api.context import ApiHandler, ApiRequest, ApiResponse
from proxy.api.records import keys_of_filter, overwritten
from proxy.api.search import one, page_meta
from proxy.errors import Code, Detail, VaultError
from proxy.model import ALIASES, COUNTRY, read_pop_find, read_pop_record, read_pop_records
from proxy.model.policy import Act
from proxy.model.record import Record
from proxy.model.schema import BODY, IS_ENCRYPTED, RECORD_KEY, RECORDS_SCHEMA
from proxy.vault.records import Records, delete_many, delete_one, find_page

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
    result = await find_page(records, query, limits)
    data = [_body(call, records, record) for record in result.records]
    return wire.page_pieces(data, query.limit, query.offset, result.total, page_meta(result))


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
