"""``domicile schema``: declare the schemas of files, list them, show one."""

import argparse
import os
from typing import TYPE_CHECKING, Any, Final

from proxy.cli import output
from proxy.cli.command import OK, Arguments, Command
from proxy.cli.instance import files_arguments, instance_arguments
from proxy.config import load
from proxy.config.schemas import read_schemas

if TYPE_CHECKING:
    from proxy.model.schema import Schema


def apply(arguments: Arguments) -> int:
    """Declare every schema of the files, one after the other; the files are read whole first, so a fault changes nothing."""
    import asyncio

    schemas = read_schemas(arguments.files).found
    results = asyncio.run(_apply(arguments, schemas))
    lines = [line for schema, result in zip(schemas, results, strict=True) for line in _lines(schema.name, result)]
    data = [{"name": schema.name, **result} for schema, result in zip(schemas, results, strict=True)]
    output.show({"schemas": data, "dry_run": arguments.dry_run}, "\n".join(lines), as_json=arguments.json)
    return OK


def listing(arguments: Arguments) -> int:
    """Print a line for each schema."""
    from proxy.cli.declared import all_of
    from proxy.cli.schemas import opened

    found = all_of(opened, arguments)
    lines = [
        f"{item['name']}  {item['origin']}  {item['records']} records  {_migration(item)}".rstrip() for item in found
    ]
    output.show({"schemas": found}, "\n".join(lines), as_json=arguments.json)
    return OK


def show(arguments: Arguments) -> int:
    """Print the definition of one schema."""
    from proxy.cli.declared import named
    from proxy.cli.schemas import opened

    item = named(opened, arguments)
    lines = [f"{item['name']}: declared by {item['origin']}, {item['records']} records {_migration(item)}".rstrip()]
    width = max((len(name) for name in item["fields"]), default=0)
    lines += [f"  {name:<{width}}  {_field(described)}" for name, described in item["fields"].items()]
    output.show(item, "\n".join(lines), as_json=arguments.json)
    return OK


async def _apply(arguments: Arguments, schemas: "tuple[Schema, ...]") -> list[dict[str, Any]]:
    from proxy.cli.schemas import opened

    async with opened(arguments, load(arguments.config, os.environ)) as where:
        return [await where.apply(schema, dry_run=arguments.dry_run) for schema in schemas]


def _lines(name: str, result: dict[str, Any]) -> list[str]:
    """What came of one schema, or would."""
    changes = [f"  {change['source'] or '/'}: {change['detail']}" for change in result["changes"]]
    if result.get("created"):
        return [f"{name}: new", *changes]
    return [f"{name}: {'changed' if changes else 'as it was'} {_migration(result)}".rstrip(), *changes]


def _migration(item: dict[str, Any]) -> str:
    at = item.get("migration")
    return f"(migration {at['state']}, {at['done']} of {at['total']}, {at['failed']} do not fit)" if at else ""


def _field(described: dict[str, Any]) -> str:
    words = [described["type"], described["storage"]]
    words += [name for name in ("required", "partial_match") if described.get(name)]
    return ", ".join(words) + (f", at most {described['max_length']}" if described.get("max_length") else "")


def _apply_arguments(parser: argparse.ArgumentParser) -> None:
    files_arguments(parser)
    parser.add_argument("--dry-run", action="store_true", help="only tell what would come of it")


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    instance_arguments(parser)
    parser.add_argument("name", metavar="NAME", help="the schema")


COMMAND: Final = Command(
    summary="Declare, list and show the schemas of records.",
    example="domicile schema list",
    children={
        "apply": Command(
            summary="Declare the schemas of files; records are rewritten where a change needs it.",
            example="domicile schema apply --dry-run customer.yaml",
            run=apply,
            arguments=_apply_arguments,
            data=True,
        ),
        "list": Command(
            summary="List the schemas: who declared each, and how many records it has.",
            example="domicile schema list --json",
            run=listing,
            arguments=instance_arguments,
            data=True,
        ),
        "show": Command(
            summary="Show the fields of one schema.",
            example="domicile schema show customer",
            run=show,
            arguments=_show_arguments,
            data=True,
        ),
    },
)
