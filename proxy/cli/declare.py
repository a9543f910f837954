"""``domicile schema`` and ``domicile policy``: apply the schemas and access policies of files, list
them, show one.
"""

import contextlib
import json
from typing import Any, Final

from proxy.cli import SUMMARIES, command, remote
from proxy.cli.command import Arguments, Command, argument, argument_list
from proxy.cli.options import files_arguments, instance_arguments
from proxy.config.declarations import read_policies, read_schemas
from proxy.model import schema_warnings, write_definition
from proxy.model.policy import AccessPolicy, write_policy
from proxy.model.schema import Schema

_SCHEMAS: Final = "/api/schemas"
_POLICIES: Final = "/api/policies"


def apply_schemas(arguments: Arguments) -> int:
    """Declare every schema of the files in turn; all are read first, so a fault changes nothing."""
    schemas = read_schemas(arguments.files).declared
    with contextlib.closing(remote.remote(arguments)) as instance:
        results = [_applied(instance, schema, dry_run=arguments.dry_run) for schema in schemas]
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
    with contextlib.closing(remote.remote(arguments)) as instance:
        schemas = instance.listed(_SCHEMAS)
    lines = [
        f"{item['name']}  {item['origin']}  {item['records']} records  {_migration(item)}".rstrip()
        for item in schemas
    ]
    return command.show(arguments, {"schemas": schemas}, lines)


def show_schema(arguments: Arguments) -> int:
    """Print the definition of one schema."""
    item = remote.ask_once(remote.remote(arguments), "GET", remote.below(_SCHEMAS, arguments.name))
    head = f"{item['name']}: declared by {item['origin']}, {item['records']} records"
    lines = [f"{head} {_migration(item)}".rstrip()]
    width = max((len(name) for name in item["fields"]), default=0)
    lines += [
        f"  {name:<{width}}  {_field(described)}" for name, described in item["fields"].items()
    ]
    return command.show(arguments, item, lines)


def _applied(instance: remote.Remote, schema: Schema, *, dry_run: bool) -> dict[str, Any]:
    """The effect of a definition, and the schema as it is then."""
    path, definition = remote.below(_SCHEMAS, schema.name), write_definition(schema)
    if dry_run:
        return dict(instance.content("PUT", f"{path}?dry_run=true", definition))
    answer = instance.successful("PUT", path, definition)
    effect = {"created": answer.status == 201, "changes": answer.content["changes"]}
    return {**instance.content("GET", path), **effect}


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

_show_schema_arguments: Final = argument_list(
    instance_arguments,
    argument("name", metavar="NAME", help="the schema"),
)  # fmt: skip

SCHEMA_COMMAND: Final = Command(SUMMARIES["schema"],
    "domicile schema list", children={
        "apply": Command(
            "Declare the schemas of files; records are rewritten where a change needs it.",
            "domicile schema apply --dry-run customer.yaml", apply_schemas, _apply_arguments),
        "list": Command("List the schemas: who declared each, and how many records it has.",
            "domicile schema list --json", list_schemas_command, instance_arguments),
        "show": Command("Show the fields of one schema.", "domicile schema show customer",
            show_schema, _show_schema_arguments),
    },
)  # fmt: skip


def apply_policies(arguments: Arguments) -> int:
    """Apply every policy of the files, which are all read first: a fault changes nothing."""
    policies = read_policies(arguments.files).declared
    with contextlib.closing(remote.remote(arguments)) as instance:
        for policy in policies:
            _put(instance, policy, "?dry_run=true")
        answers = [_put(instance, policy) for policy in policies]
    results = [answer.content for answer in answers]
    lines = [
        f"{answer.content['name']}: {'new' if answer.status == 201 else 'in force'}"
        for answer in answers
    ]
    return command.show(arguments, {"policies": results}, lines)


def list_policies_command(arguments: Arguments) -> int:
    """Print a line for each policy."""
    with contextlib.closing(remote.remote(arguments)) as instance:
        policies = instance.listed(_POLICIES)
    lines = [
        f"{item['name']}  {item['schema']}  {', '.join(item['actions'])}{_faults(item)}"
        for item in policies
    ]
    return command.show(arguments, {"policies": policies}, lines or ["There is no policy yet."])


def show_policy(arguments: Arguments) -> int:
    """Print one policy."""
    item = remote.ask_once(remote.remote(arguments), "GET", remote.below(_POLICIES, arguments.name))
    lines = [f"{item['name']}: {', '.join(item['actions'])} {item['schema']}{_faults(item)}"]
    lines += [f"  {name}  {_sight(sight)}" for name, sight in item["fields"].items()]
    lines += [
        f"  {name}: {_member(item[name])}"
        for name in ("rows", "external_acl", "firewall", "cors", "purpose")
        if name in item
    ]
    lines += [
        f"  does not fit: {fault['source']}: {fault['detail']}" for fault in item.get("faults", ())
    ]
    return command.show(arguments, item, lines)


def _put(instance: remote.Remote, policy: AccessPolicy, query: str = "") -> remote.RemoteAnswer:
    path = remote.below(_POLICIES, policy.name) + query
    return instance.successful("PUT", path, write_policy(policy))


def _sight(sight: Any) -> str:
    if isinstance(sight, str):
        return sight
    more = sight.get("format") or ", ".join(
        f"{name} {value}" for name, value in sight.get("mask", {}).items()
    )
    return f"{sight['valueType']}: {more}"


def _member(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _faults(item: dict[str, Any]) -> str:
    return "  (does not fit its schema any more)" if item.get("faults") else ""


_show_policy_arguments: Final = argument_list(
    instance_arguments,
    argument("name", metavar="NAME", help="the policy"),
)  # fmt: skip

POLICY_COMMAND: Final = Command(SUMMARIES["policy"], "domicile policy list",
    children={
        "apply": Command("Apply the policies of files.", "domicile policy apply support.yaml",
            apply_policies, files_arguments),
        "list": Command("List the policies: schema and actions of each.",
            "domicile policy list --json", list_policies_command, instance_arguments),
        "show": Command("Show what one policy allows and how it shows fields.",
            "domicile policy show support", show_policy, _show_policy_arguments),
    },
)  # fmt: skip
