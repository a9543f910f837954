"""Administration of schemas: ``/api/schemas``. What a definition is, is told by ``model.definition``; what it costs, by ``model.change``."""

from typing import Any

from proxy.clock import to_wire
from proxy.model.change import Step
from proxy.model.definition import read_definition, write_definition
from proxy.vault.catalog import Applied, Declared
from proxy.vault.entries import Origin, Phase
from proxy.web.api import shapes, wire
from proxy.web.api.operation import Answer, Call


async def put(call: Call) -> Answer:
    """Declare a schema or change it: 201 for a new one, 202 while its records are being rewritten, else 200."""
    dry_run = shapes.flag(call, "dry_run", "true")
    schema = read_definition(call.path["schema"], call.content)
    applied = await call.space.catalog.apply(schema, Origin.API, dry_run=dry_run)
    changes = [told(step) for step in applied.steps]
    if dry_run:
        return wire.answer(200, {"created": applied.created, "migrates": applied.migrating, "changes": changes})
    described = await shown(call.space.catalog.declared(schema.name))
    return wire.answer(_status(applied), {**described, "changes": changes})


async def one(call: Call) -> Answer:
    """One schema, with the progress of its migration."""
    return wire.answer(200, await shown(call.space.catalog.declared(call.path["schema"])))


async def listing(call: Call) -> Answer:
    """The schemas, in the order in which they were declared, page by page."""
    limits = call.services.limits
    limit = shapes.number(call, "limit", limits.find_default, 1, limits.find_maximum)
    offset = shapes.number(call, "offset", 0, 0, 2**31 - 1)
    declared = call.space.catalog.schemas()
    return wire.page([await shown(item) for item in declared[offset : offset + limit]], limit, offset, len(declared))


async def remove(call: Call) -> Answer:
    """End a schema; one that holds records only where the caller says that they go, too."""
    await call.space.catalog.drop(call.path["schema"], records=shapes.flag(call, "records", "delete"))
    return Answer(204)


def _status(applied: Applied) -> int:
    if applied.created:
        return 201
    return 202 if applied.migrating else 200


def told(step: Step) -> dict[str, str]:
    """One thing that a change of a definition does."""
    return {"source": step.pointer, "detail": step.text, "effect": str(step.effect)}


async def shown(declared: Declared) -> dict[str, Any]:
    """A schema as administrators see it; its definition can be sent back as it is."""
    collection = declared.records.collection
    return {
        "name": declared.schema.name,
        "origin": str(declared.origin),
        **write_definition(declared.schema),
        "records": (await collection.store.count(collection.table))[0],
        "migration": _migration(declared),
    }


def _migration(declared: Declared) -> dict[str, Any] | None:
    """The migration under way, or how the last one ended; ``None`` where there was none."""
    change, outcome, progress = declared.change, declared.outcome, declared.progress
    if change is not None:
        shown: dict[str, Any] = {
            "state": str(change.phase),
            "done": progress.done if progress else 0,
            "total": progress.total if progress else 0,
            "failed": outcome.failed
            if change.phase is Phase.REVERTING and outcome
            else progress.failed
            if progress
            else 0,
        }
        if change.phase is Phase.FILLING:
            shown["fields"] = write_definition(change.other)["fields"]
        return shown
    if outcome is None:
        return None
    state = "failed" if outcome.failed else "done"
    return {
        "state": state,
        "done": outcome.total,
        "total": outcome.total,
        "failed": outcome.failed,
        "ended_at": to_wire(outcome.at),
    }
