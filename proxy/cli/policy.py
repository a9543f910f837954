"""``domicile policy``: put the access policies of files in force, list them, show one."""

import argparse
import json
import os
from typing import TYPE_CHECKING, Any, Final

from proxy.cli import output
from proxy.cli.command import OK, Arguments, Command
from proxy.cli.instance import files_arguments, instance_arguments
from proxy.config import load
from proxy.config.policies import read_policies

if TYPE_CHECKING:
    from proxy.model.policy import Policy


def apply(arguments: Arguments) -> int:
    """Put every policy of the files in force; the files are read whole first, so a fault in one changes nothing."""
    import asyncio

    policies = read_policies(arguments.files).found
    results = asyncio.run(_apply(arguments, policies))
    lines = [f"{item['name']}: {'new' if item.pop('created') else 'in force'}" for item in results]
    output.show({"policies": results}, "\n".join(lines), as_json=arguments.json)
    return OK


def listing(arguments: Arguments) -> int:
    """Print a line for each policy."""
    from proxy.cli.declared import all_of
    from proxy.cli.policies import opened

    found = all_of(opened, arguments)
    lines = [f"{item['name']}  {item['schema']}  {', '.join(item['actions'])}{_faults(item)}" for item in found]
    output.show({"policies": found}, "\n".join(lines or ["There is no policy yet."]), as_json=arguments.json)
    return OK


def show(arguments: Arguments) -> int:
    """Print one policy."""
    from proxy.cli.declared import named
    from proxy.cli.policies import opened

    item = named(opened, arguments)
    lines = [f"{item['name']}: {', '.join(item['actions'])} {item['schema']}{_faults(item)}"]
    lines += [f"  {name}  {_sight(sight)}" for name, sight in item["fields"].items()]
    lines += [
        f"  {name}: {_member(item[name])}" for name in ("rows", "external_acl", "firewall", "cors") if name in item
    ]
    lines += [f"  does not fit: {fault['source']}: {fault['detail']}" for fault in item.get("faults", ())]
    output.show(item, "\n".join(lines), as_json=arguments.json)
    return OK


async def _apply(arguments: Arguments, policies: "tuple[Policy, ...]") -> list[dict[str, Any]]:
    from proxy.cli.policies import opened

    async with opened(arguments, load(arguments.config, os.environ)) as where:
        for policy in policies:
            await where.check(policy)
        return [await where.apply(policy) for policy in policies]


def _sight(sight: Any) -> str:
    if isinstance(sight, str):
        return sight
    more = sight.get("format") or ", ".join(f"{name} {value}" for name, value in sight.get("mask", {}).items())
    return f"{sight['valueType']}: {more}"


def _member(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _faults(item: dict[str, Any]) -> str:
    return "  (does not fit its schema any more)" if item.get("faults") else ""


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    instance_arguments(parser)
    parser.add_argument("name", metavar="NAME", help="the policy")


COMMAND: Final = Command(
    summary="Put access policies in force, list and show them.",
    example="domicile policy list",
    children={
        "apply": Command(
            summary="Put the policies of files in force.",
            example="domicile policy apply support.yaml",
            run=apply,
            arguments=files_arguments,
            data=True,
        ),
        "list": Command(
            summary="List the policies: schema and actions of each.",
            example="domicile policy list --json",
            run=listing,
            arguments=instance_arguments,
            data=True,
        ),
        "show": Command(
            summary="Show what one policy allows and how it shows fields.",
            example="domicile policy show support",
            run=show,
            arguments=_show_arguments,
            data=True,
        ),
    },
)
