"""Handlers that search records, aggregate them, and return their history."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, cast

from proxy.api import request, wire
from proxy.api.access import approval_pending
from proxy.api.context import ApiRequest, ApiResponse
from proxy.api.records import records_of_call
from proxy.errors import Code, Detail, VaultError
from proxy.model import read_aggregate, read_find
from proxy.model.policy import Act
from proxy.model.query import KEY, Query
from proxy.model.record import Record
from proxy.net.memory_budget import release
from proxy.vault.records import (
    FoundPage,
    PageAsker,
    Records,
    Render,
    aggregate_groups,
    export,
    history_page,
    page_of,
    record_of_key,
)

#: Bytes of sealed records in a page that needs no slot.
SMALL_PAGE: Final = 2**20


async def find_records(call: ApiRequest) -> ApiResponse:
    """The records of a schema that match."""
    return await _find(call, records_of_call(call, Act.READ), call.content)


async def read_record(call: ApiRequest) -> ApiResponse:
    """The record with that key."""
    records = records_of_call(call, Act.READ)
    primary = records.primary.name if records.primary is not None else None

    if records.rights.view is None:
        name = records.schema.name
        return await one(call, records, lambda record: _whole_json(record, name, primary))

    def show(record: Record) -> dict[str, Any]:
        body = wire.found_json(records.rights.render(record), records.name, primary)
        if meta := wire.record_meta(record, records.rights.redacted_fields):
            body["meta"] = meta
        return body

    return await one(call, records, show)


async def one(
    call: ApiRequest, records: Records, show: Callable[[Record], dict[str, Any]]
) -> ApiResponse:
    """The record whose key is in the path, as the caller is shown it; 304 where it has that.

    Raises ``VaultError`` (NOT_FOUND).
    """

    def render(record: Record) -> bytes:
        return wire.encode_json(show(record))

    pair = await record_of_key(records, call.path[KEY], call.services.limits, render)
    if pair is None:
        raise VaultError(Code.NOT_FOUND, "There is no record with this key.")
    record, text = pair
    tag = records.entity_tag(record)
    conditions = request.preconditions(call.request)
    if conditions is not None and conditions.unchanged(tag):
        return ApiResponse(304, b"", {"ETag": tag})
    return wire.long_text(text, {"ETag": tag})


async def find_direct(call: ApiRequest) -> ApiResponse:
    """The same, with the name of the schema in the body."""
    records, content = _named(call)
    return await _find(call, records, content)


async def find_ids(call: ApiRequest) -> ApiResponse:
    """The keys of the records that match."""
    records, content = _named(call)
    return await found_answer(
        call, records, read_find(records.full_schema, content, call.services.limits), _key
    )


async def aggregate_records(call: ApiRequest) -> ApiResponse:
    """Figures over the records that match, by group."""
    records = records_of_call(call, Act.READ)
    limits = call.services.limits
    wanted = read_aggregate(records.full_schema, call.content, limits)
    result = await aggregate_groups(records, wanted, call.principal.client, limits)
    groups = [{"group": {"keys": group.keys}, "metrics": group.metrics} for group in result.groups]
    return wire.json_answer(200, {"data": groups, "meta": {"next": result.next}})


async def export_records(call: ApiRequest) -> ApiResponse:
    """All records, page by page, while others write."""
    records = records_of_call(call, Act.READ)
    limits, limit = call.services.limits, request.page_limit(call)
    if (waiting := await approval_pending(call)) is not None:
        return waiting
    render = _render(records)

    async def fetch(room: int | None) -> tuple[ApiResponse, bool]:
        asker = PageAsker(render, call.principal.client, room)
        result = await export(records, call.query.get("next"), limit, asker, limits)
        meta: dict[str, Any] = {
            "count": len(result.records),
            "next": result.next,
            **wire.redacted_fields(records),
        }
        if result.unreadable:
            meta["unreadable"] = result.unreadable
        return wire.pages(result.records, meta), result.cut

    return await sized(call, fetch)


async def record_history(call: ApiRequest) -> ApiResponse:
    """Answer with the versions of a record, newest first."""
    records = records_of_call(call, Act.READ)

    def render(record: Record) -> bytes:
        return wire.encode_json(wire.version_json(records.rights.render(record)))

    return await version_pages(call, records, render)


async def _find(call: ApiRequest, records: Records, content: Any) -> ApiResponse:
    query = read_find(records.full_schema, content, call.services.limits)
    return await found_answer(call, records, query, _render(records), wire.redacted_fields(records))


async def found_answer(
    call: ApiRequest,
    records: Records,
    query: Query,
    render: Render[bytes],
    more: Mapping[str, Any] | None = None,
) -> ApiResponse:
    """The page of a question, each record rendered as JSON; ``more`` of its ``meta``."""

    async def fetch(room: int | None) -> tuple[ApiResponse, bool]:
        alike = isinstance(render, _Whole)
        asker = PageAsker(render, call.principal.client, room, alike)
        result = await page_of(records, query, call.services.limits, asker)
        meta = wire.meta_of(
            len(result.records),
            query.limit,
            query.offset,
            result.total,
            {**page_meta(result), **(more or {})},
        )
        return wire.pages(result.records, meta), result.cut

    return await sized(call, fetch)


async def version_pages(call: ApiRequest, records: Records, render: Render[bytes]) -> ApiResponse:
    """A page of the versions of a record, each rendered as JSON."""
    most = call.services.limits.page_bytes
    limit, offset = request.page_span(call)
    cursor = call.query.get("next")
    if cursor is not None and "offset" in call.query:
        text = "Cannot be combined with next, which has the place in it."
        raise request.misfit_query(Detail("offset", text))
    span = limit, offset if cursor is None else cursor

    async def fetch(room: int | None) -> tuple[ApiResponse, bool]:
        asker = PageAsker(render, call.principal.client, min(most, room or most))
        page = await history_page(records, call.path["record_key"], span, asker)
        more = {} if page.next is None else {"next": page.next}
        more |= wire.redacted_fields(records)
        meta = wire.meta_of(len(page.versions), limit, offset, page.total, more)
        return wire.pages(page.versions, meta), page.cut

    return await sized(call, fetch)


async def sized(
    call: ApiRequest, fetch: Callable[[int | None], Awaitable[tuple[ApiResponse, bool]]]
) -> ApiResponse:
    """The answer of ``fetch`` within ``SMALL_PAGE`` bytes, or else as one of the few large pages.

    A large page holds its slot until it is sent, so the memory of all of them is bounded.
    """
    answer, cut = await fetch(SMALL_PAGE)
    if not cut:
        return answer
    large, key = call.services.large_pages, call.principal.client
    await large.enter(key)
    try:
        answer, _ = await fetch(None)
        if answer.stream is None:
            large.leave(key)
            return answer
        return answer._replace(stream=_Leaving(answer.stream, partial(large.leave, key)))
    except BaseException:
        large.leave(key)
        raise


class _Leaving:
    """A stream that gives its slot back as soon as it has ended or is dropped."""

    def __init__(self, stream: AsyncIterator[bytes], leave: Callable[[], None]) -> None:
        self._stream: AsyncIterator[bytes] | None = stream
        self._leave = leave

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._stream is None:
            raise StopAsyncIteration
        try:
            return await anext(self._stream)
        except StopAsyncIteration:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Release the unsent rest. Idempotent."""
        if self._stream is not None:
            self._stream = None
            self._leave()
            release()

    def __del__(self) -> None:
        if self._stream is not None:  # it was never sent: the request ended before
            self._leave()


def _render(records: Records) -> Render[bytes]:
    """Build the JSON encoder of records that were found."""
    primary = records.primary.name if records.primary is not None else None
    rights, name, encode = records.rights, records.name, wire.encode_json
    if rights.view is None:  # a record is shown as it is
        return whole_records(name, primary)
    visible = rights.render
    return lambda record: encode(wire.found_json(visible(record), name, primary))


#: The JSON of a record that is shown as it is, by its schema and the name of its key.
_whole_json = cast("Callable[[Record, str, str | None], dict[str, Any]]", wire.found_json)


class _Whole:
    """Renders records of a schema whole."""

    __slots__ = ("_primary", "_schema")

    def __init__(self, schema: str, primary: str | None) -> None:
        self._schema, self._primary = schema, primary

    def __call__(self, record: Record) -> bytes:
        return wire.encode_json(_whole_json(record, self._schema, self._primary))


#: What renders records of a schema that are shown whole.
whole_records: Final = lru_cache(64)(_Whole)


def _key(record: Record) -> bytes:
    return wire.encode_json(record.key)


def _named(call: ApiRequest) -> tuple[Records, dict[str, Any]]:
    """The records of the schema that a body names, and the rest of the body."""
    content = request.checked_members(call.content, ("schema", "filter", "options"), ("schema",))
    if not isinstance(content["schema"], str):
        raise request.invalid("/schema", "Has to be the name of a schema.")
    rest = {name: value for name, value in content.items() if name != "schema"}
    return call.records(content["schema"], Act.READ), rest


def page_meta(result: FoundPage[Any]) -> dict[str, Any]:
    """The optional members of ``meta``: unreadable records of this page, and the next cursor."""
    unreadable = {"unreadable": result.unreadable} if result.unreadable else {}
    return unreadable if result.next is None else {**unreadable, "next": result.next}
