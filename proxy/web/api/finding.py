"""Handlers that search records, add them up, and show what they were."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from proxy.errors import Code, VaultError
from proxy.model.filters import read_aggregate, read_find
from proxy.model.policy import Act
from proxy.model.query import KEY, Equals, Query
from proxy.model.record import Record
from proxy.vault.aggregate import aggregate
from proxy.vault.export import export
from proxy.vault.find import Asker, Found, Render, find, page
from proxy.vault.history import history
from proxy.vault.records import Records
from proxy.web.api import shapes, wire
from proxy.web.api.conditions import asked
from proxy.web.api.models import records_of
from proxy.web.api.operation import Answer, Call
from proxy.web.memory import release

#: Bytes of sealed records in a page that waits for nobody.
SMALL: Final = 2**20


async def find_records(call: Call) -> Answer:
    """The records of a schema that match."""
    return await _find(call, records_of(call, Act.READ), call.content)


async def read_record(call: Call) -> Answer:
    """The record with that key."""
    records = records_of(call, Act.READ)
    primary = records.primary.name if records.primary is not None else None

    def show(record: Record) -> dict[str, Any]:
        shown = wire.found(records.rights.shown(record), records.name, primary)
        return {**shown, **({"meta": meta} if (meta := wire.redacted_fields(records)) else {})}

    return await one(call, records, show)


async def one(call: Call, records: Records, show: Callable[[Record], dict[str, Any]]) -> Answer:
    """The record whose key is in the path, as the caller is shown it; 304 where it has that. Raises ``VaultError`` (NOT_FOUND)."""
    query = Query((Equals(KEY, (call.path[KEY],)),), limit=1)
    found = (await find(records, query, call.services.limits)).records
    if not found:
        raise VaultError(Code.NOT_FOUND, "There is no record with this key.")
    tag, conditions = {"ETag": records.entity_tag(found[0])}, asked(call.request)
    if conditions is not None and conditions.unchanged(tag["ETag"]):
        return Answer(304, b"", tag)
    return wire.answer(200, show(found[0]))._replace(headers=tag)


async def find_direct(call: Call) -> Answer:
    """The same, with the name of the schema in the body."""
    records, content = _named(call)
    return await _find(call, records, content)


async def find_ids(call: Call) -> Answer:
    """The keys of the records that match."""
    records, content = _named(call)
    return await answered(call, records, read_find(records.known, content, call.services.limits), _key)


async def aggregate_records(call: Call) -> Answer:
    """Figures over the records that match, by group."""
    records = records_of(call, Act.READ)
    limits = call.services.limits
    wanted = read_aggregate(records.known, call.content, limits)
    result = await aggregate(records, wanted, call.principal.client, limits)
    groups = [{"group": {"keys": group.keys}, "metrics": group.metrics} for group in result.groups]
    return wire.answer(200, {"data": groups, "meta": {"next": result.next}})


async def export_records(call: Call) -> Answer:
    """All records, page by page, while others write."""
    records = records_of(call, Act.READ)
    limits = call.services.limits
    limit = shapes.number(call, "limit", limits.find_default, 1, limits.find_maximum)
    render = _render(records)

    async def asked(room: int | None) -> tuple[Answer, bool]:
        asker = Asker(render, call.principal.client, room)
        result = await export(records, call.query.get("next"), limit, asker, limits)
        meta: dict[str, Any] = {"count": len(result.records), "next": result.next, **wire.redacted_fields(records)}
        if result.unreadable:
            meta["unreadable"] = result.unreadable
        return wire.pages(result.records, meta), result.cut

    return await sized(call, asked)


async def record_history(call: Call) -> Answer:
    """What a record was, newest version first."""
    limits = call.services.limits
    limit = shapes.number(call, "limit", limits.find_default, 1, limits.find_maximum)
    offset = shapes.number(call, "offset", 0, 0, 2**31 - 1)
    records = records_of(call, Act.READ)

    def render(record: Record) -> bytes:
        return wire.encode(wire.version(records.rights.shown(record)))

    return await versions(call, records, (limit, offset), render)


async def _find(call: Call, records: Records, content: Any) -> Answer:
    query = read_find(records.known, content, call.services.limits)
    return await answered(call, records, query, _render(records), wire.redacted_fields(records))


async def answered(
    call: Call, records: Records, query: Query, render: Render[bytes], more: Mapping[str, Any] | None = None
) -> Answer:
    """The page of a question, each record rendered as JSON; ``more`` of its ``meta``."""

    async def asked(room: int | None) -> tuple[Answer, bool]:
        asker = Asker(render, call.principal.client, room)
        result = await page(records, query, call.services.limits, asker)
        meta = wire.meta_of(
            len(result.records), query.limit, query.offset, result.total, {**told(result), **(more or {})}
        )
        return wire.pages(result.records, meta), result.cut

    return await sized(call, asked)


async def versions(call: Call, records: Records, span: tuple[int, int], render: Render[bytes]) -> Answer:
    """A page of the versions of a record, each rendered as JSON."""
    limit, offset = span
    most = call.services.limits.page_bytes

    async def asked(room: int | None) -> tuple[Answer, bool]:
        found, total = await history(records, call.path["record_key"], limit, offset, min(most, room or most))
        meta = wire.meta_of(len(found), limit, offset, total, wire.redacted_fields(records))
        cut = len(found) < limit and offset + len(found) < total
        found.reverse()  # what was rendered is let go
        return wire.pages([render(found.pop()) for _ in range(len(found))], meta), cut

    return await sized(call, asked)


async def sized(call: Call, asked: Callable[[int | None], Awaitable[tuple[Answer, bool]]]) -> Answer:
    """The answer to a question, within ``SMALL`` bytes if it has room there; else it waits for one of the few large pages.

    A large page holds its place until it is sent, so what all of them have in memory together is bounded.
    """
    answer, cut = await asked(SMALL)
    if not cut:
        return answer
    large, key = call.services.large_pages, call.principal.client
    await large.enter(key)
    try:
        answer, _ = await asked(None)
        if answer.stream is None:
            large.leave(key)
            return answer
        return answer._replace(stream=_Leaving(answer.stream, partial(large.leave, key)))
    except BaseException:
        large.leave(key)
        raise


class _Leaving:
    """A stream that gives its place to others as soon as it has ended, or nobody wants it any more."""

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
        """Let go of what was not sent. Idempotent."""
        if self._stream is not None:
            self._stream = None
            self._leave()
            release()

    def __del__(self) -> None:
        if self._stream is not None:  # it was never sent: the request ended before
            self._leave()


def _render(records: Records) -> Render[bytes]:
    """What makes the JSON of a record that was found."""
    primary = records.primary.name if records.primary is not None else None
    shown, name = records.rights.shown, records.name
    return lambda record: wire.encode(wire.found(shown(record), name, primary))


def _key(record: Record) -> bytes:
    return wire.encode(record.key)


def _named(call: Call) -> tuple[Records, dict[str, Any]]:
    """The records of the schema that a body names, and the rest of the body."""
    content = shapes.members(call.content, ("schema", "filter", "options"), ("schema",))
    if not isinstance(content["schema"], str):
        raise shapes.invalid("/schema", "Has to be the name of a schema.")
    rest = {name: value for name, value in content.items() if name != "schema"}
    return call.records(content["schema"], Act.READ), rest


def told(result: Found[Any]) -> dict[str, Any]:
    """What else ``meta`` tells: how many records of this page did not open, where there are any; the cursor, where there is more."""
    unreadable = {"unreadable": result.unreadable} if result.unreadable else {}
    return unreadable if result.next is None else {**unreadable, "next": result.next}
