"""``domicile schema``: declare the schemas of files, list them, show one."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from proxy.cli import backend, command, remote
from proxy.cli.backend import JsonObject, files_arguments, instance_arguments
from proxy.cli.command import Arguments, Command, argument, argument_list
from proxy.config import Settings
from proxy.config.declarations import read_schemas
from proxy.model import schema_warnings, write_definition
from proxy.model.schema import Schema
from proxy.vault.schemas import Catalog, Origin

if TYPE_CHECKING:
    from proxy.bootstrap.offline import OfflineChanges


def apply_schemas(arguments: Arguments) -> int:
    """Declare every schema of the files in turn; all are read first, so a fault changes nothing."""
    schemas = read_schemas(arguments.files).declared

    async def apply(where: OfflineSchemas | RemoteSchemas) -> list[dict[str, Any]]:
        return [await where.apply(schema, dry_run=arguments.dry_run) for schema in schemas]

    results = backend.answer_of(schema_backend, arguments, apply)
    lines = [
        line
        for schema, result in zip(schemas, results, strict=True)
        for line in (
            *_lines(schema.name, result),
            *(f"  warning: {text}" for text in schema_warnings(schema)),
        )
    ]
    data = [
        {"name": schema.name, **result} for schema, result in zip(schemas, results, strict=True)
    ]
    return command.show(arguments, {"schemas": data, "dry_run": arguments.dry_run}, lines)


def list_schemas_command(arguments: Arguments) -> int:
    """Print a line for each schema."""
    schemas = backend.answer_of(schema_backend, arguments, lambda where: where.listed())
    lines = [
        f"{item['name']}  {item['origin']}  {item['records']} records  {_migration(item)}".rstrip()
        for item in schemas
    ]
    return command.show(arguments, {"schemas": schemas}, lines)


def show_schema(arguments: Arguments) -> int:
    """Print the definition of one schema."""
    item = backend.answer_of(schema_backend, arguments, lambda where: where.one(arguments.name))
    head = f"{item['name']}: declared by {item['origin']}, {item['records']} records"
    lines = [f"{head} {_migration(item)}".rstrip()]
    width = max((len(name) for name in item["fields"]), default=0)
    lines += [
        f"  {name:<{width}}  {_field(described)}" for name, described in item["fields"].items()
    ]
    return command.show(arguments, item, lines)


def _lines(name: str, result: dict[str, Any]) -> list[str]:
    """Return the lines about one schema that was applied or compared."""
    changes = [f"  {change['source'] or '/'}: {change['detail']}" for change in result["changes"]]
    if result.get("created"):
        return [f"{name}: new", *changes]
    return [
        f"{name}: {'changed' if changes else 'as it was'} {_migration(result)}".rstrip(),
        *changes,
    ]


def _migration(item: dict[str, Any]) -> str:
    at = item.get("migration")
    return (
        f"(migration {at['state']}, {at['done']} of {at['total']}, {at['failed']} do not fit)"
        if at
        else ""
    )


def _field(described: dict[str, Any]) -> str:
    words = [described["type"], described["storage"]]
    words += [name for name in ("required", "partial_match") if described.get(name)]
    return ", ".join(words) + (
        f", at most {described['max_length']}" if described.get("max_length") else ""
    )


_apply_arguments: Final = argument_list(
    files_arguments,
    argument("--dry-run", action="store_true", help="only tell what would come of it"),
)  # fmt: skip

_show_arguments: Final = argument_list(
    instance_arguments,
    argument("name", metavar="NAME", help="the schema"),
)  # fmt: skip

COMMAND: Final = Command("Declare, list and show the schemas of records.", "domicile schema list",
    children={
        "apply": Command(
            "Declare the schemas of files; records are rewritten where a change needs it.",
            "domicile schema apply --dry-run customer.yaml", apply_schemas, _apply_arguments),
        "list": Command("List the schemas: who declared each, and how many records it has.",
            "domicile schema list --json", list_schemas_command, instance_arguments),
        "show": Command("Show the fields of one schema.", "domicile schema show customer",
            show_schema, _show_arguments),
    },
)  # fmt: skip


# Both backends show the same: what ``/api/schemas`` answers.


class OfflineSchemas:
    """The schemas of a vault that no instance runs on.

    A change that rewrites records is complete when ``apply`` returns.
    """

    def __init__(self, catalog: Catalog, record: "OfflineChanges") -> None:
        self._catalog = catalog
        self._record = record

    async def apply(self, schema: Schema, *, dry_run: bool) -> JsonObject:
        from proxy.api.schemas import change_json

        if not dry_run:
            await self._record.ready()
        applied = await self._catalog.apply(schema, Origin.API, dry_run=dry_run)
        changes = [change_json(step) for step in applied.steps]
        if dry_run:
            return {"created": applied.created, "migrates": applied.migrating, "changes": changes}
        self._record.did(schema.name)
        await self._catalog.settled(schema.name)
        return {**await self.one(schema.name), "created": applied.created, "changes": changes}

    async def listed(self) -> Sequence[JsonObject]:
        return [await self.one(schemas.schema.name) for schemas in self._catalog.schemas()]

    async def one(self, name: str) -> JsonObject:
        from proxy.api.schemas import schema_json

        return await schema_json(self._catalog.declared(name))


class RemoteSchemas(backend.RemoteBackend):
    """The schemas of an instance that runs."""

    def __init__(self, instance: remote.Remote) -> None:
        super().__init__(instance, "/api/schemas")

    async def apply(self, schema: Schema, *, dry_run: bool) -> JsonObject:
        change_json = self._put(
            schema.name, write_definition(schema), "?dry_run=true" if dry_run else ""
        )
        content: JsonObject = change_json.content
        return content if dry_run else {**content, "created": change_json.status == 201}


@contextlib.asynccontextmanager
async def schema_backend(
    arguments: Arguments, settings: Settings
) -> AsyncIterator[OfflineSchemas | RemoteSchemas]:
    """The schemas of the instance at ``--url``, else of the stopped vault."""
    if arguments.url is not None:
        with contextlib.closing(remote.remote(arguments)) as instance:
            yield RemoteSchemas(instance)
        return
    async with backend.stopped(arguments, settings, "put_schema") as (_, catalog, record):
        yield OfflineSchemas(catalog, record)
