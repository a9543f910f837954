"""Administration of schemas: ``/api/schemas``.

``model.schema_document`` parses a definition; ``model.schema_change`` computes its cost.
"""

from typing import Any

from proxy.api import request, wire
from proxy.api.access import approval_pending
from proxy.api.context import ApiRequest, ApiResponse
from proxy.clock import to_wire
from proxy.model import ChangeStep, read_definition, write_definition
from proxy.vault.schemas import Applied, DeclaredSchema, Origin, Phase


async def put_schema(call: ApiRequest) -> ApiResponse:
    """Declare a schema (201) or change it: 202 while its records are rewritten, else 200."""
    dry_run = request.query_flag(call, "dry_run", "true")
    schema = read_definition(call.path["schema"], call.content)
    applied = await call.space.catalog.apply(schema, Origin.API, dry_run=dry_run)
    changes = [change_json(step) for step in applied.steps]
    if dry_run:
        return wire.json_answer(
            200, {"created": applied.created, "migrates": applied.migrating, "changes": changes}
        )
    described = await schema_json(call.space.catalog.declared(schema.name))
    return wire.json_answer(_status(applied), {**described, "changes": changes})


async def get_schema(call: ApiRequest) -> ApiResponse:
    """Return a schema, with the progress of its migration."""
    return wire.json_answer(
        200, await schema_json(call.space.catalog.declared(call.path["schema"]))
    )


async def list_schemas(call: ApiRequest) -> ApiResponse:
    """The schemas, in the order in which they were declared, page by page."""
    limit, offset = request.page_span(call)
    declared = call.space.catalog.schemas()
    return wire.page_pieces(
        [await schema_json(item) for item in declared[offset : offset + limit]],
        limit,
        offset,
        len(declared),
    )


async def delete_schema(call: ApiRequest) -> ApiResponse:
    """End a schema; one that holds records only where the caller says that they go, too."""
    name, records = call.path["schema"], request.query_flag(call, "records", "delete")
    call.space.catalog.declared(name)
    if (waiting := await approval_pending(call)) is not None:
        return waiting
    await call.space.catalog.drop(name, records=records)
    return ApiResponse(204)


def _status(applied: Applied) -> int:
    if applied.created:
        return 201
    return 202 if applied.migrating else 200


def change_json(step: ChangeStep) -> dict[str, str]:
    """Return one effect of a changed definition."""
    return {"source": step.pointer, "detail": step.text, "effect": str(step.effect)}


async def schema_json(declared: DeclaredSchema) -> dict[str, Any]:
    """A schema as administrators see it; its definition can be sent back as it is."""
    collection = declared.records.collection
    rows, pending, _ = await collection.store.count(collection.table)
    return {
        "name": declared.schema.name,
        "origin": str(declared.origin),
        **write_definition(declared.schema),
        "records": rows - pending,
        "migration": _migration(declared),
    }


def _migration(declared: DeclaredSchema) -> dict[str, Any] | None:
    """The migration under way, or how the last one ended; ``None`` where there was none."""
    change, outcome, progress = declared.change, declared.outcome, declared.progress
    if change is not None:
        progress_json: dict[str, Any] = {
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
            progress_json["fields"] = write_definition(change.other)["fields"]
        return progress_json
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
