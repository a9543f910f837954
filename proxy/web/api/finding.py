"""Handlers that search records, add them up, and show what they were."""

from typing import Any

from proxy.model.filters import read_aggregate, read_find
from proxy.model.policy import Act
from proxy.vault.aggregate import aggregate
from proxy.vault.export import export
from proxy.vault.find import Found, find
from proxy.vault.history import history
from proxy.vault.records import Records
from proxy.web.api import shapes, wire
from proxy.web.api.models import records_of
from proxy.web.api.operation import Answer, Call


async def find_records(call: Call) -> Answer:
    """The records of a schema that match."""
    return await _find(call, records_of(call, Act.READ), call.content)


async def find_direct(call: Call) -> Answer:
    """The same, with the name of the schema in the body."""
    records, content = _named(call)
    return await _find(call, records, content)


async def find_ids(call: Call) -> Answer:
    """The keys of the records that match."""
    records, content = _named(call)
    query = read_find(records.known, content, call.services.limits)
    result = await find(records, query, call.services.limits)
    return wire.page([record.key for record in result.records], query.limit, query.offset, result.total, told(result))


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
    result = await export(records, call.query.get("next"), limit, call.principal.client)
    primary = records.primary.name if records.primary is not None else None
    shown = [wire.found(records.rights.shown(record), records.name, primary) for record in result.records]
    meta: dict[str, Any] = {"count": len(shown), "next": result.next, **wire.redacted_fields(records)}
    if result.unreadable:
        meta["unreadable"] = result.unreadable
    return wire.answer(200, {"data": shown, "meta": meta})


async def record_history(call: Call) -> Answer:
    """What a record was, newest version first."""
    limits = call.services.limits
    limit = shapes.number(call, "limit", limits.find_default, 1, limits.find_maximum)
    offset = shapes.number(call, "offset", 0, 0, 2**31 - 1)
    records = records_of(call, Act.READ)
    versions, total = await history(records, call.path["record_key"], limit, offset)
    shown = [wire.version(records.rights.shown(record)) for record in versions]
    return wire.page(shown, limit, offset, total, wire.redacted_fields(records))


async def _find(call: Call, records: Records, content: Any) -> Answer:
    query = read_find(records.known, content, call.services.limits)
    result = await find(records, query, call.services.limits)
    primary = records.primary.name if records.primary is not None else None
    shown = [wire.found(records.rights.shown(record), records.name, primary) for record in result.records]
    more = {**told(result), **wire.redacted_fields(records)}
    return wire.page(shown, query.limit, query.offset, result.total, more)


def _named(call: Call) -> tuple[Records, dict[str, Any]]:
    """The records of the schema that a body names, and the rest of the body."""
    content = shapes.members(call.content, ("schema", "filter", "options"), ("schema",))
    if not isinstance(content["schema"], str):
        raise shapes.invalid("/schema", "Has to be the name of a schema.")
    rest = {name: value for name, value in content.items() if name != "schema"}
    return call.records(content["schema"], Act.READ), rest


def told(result: Found) -> dict[str, int]:
    """What else ``meta`` tells: how many records of this page did not open, where there are any."""
    return {"unreadable": result.unreadable} if result.unreadable else {}
