"""``domicile coverage``: what rules protect, what passes on purpose, and what no rule names."""

import argparse
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from proxy.cli import command
from proxy.cli.command import FAULT, OK, Arguments, Command
from proxy.config import load_settings
from proxy.errors import Code, VaultError

if TYPE_CHECKING:
    from proxy.net.coverage import UnruledPath
    from proxy.redactor.rules import RuleSet


def show_coverage(arguments: Arguments) -> int:
    """Exit status 1 where values are suspected in what no rule names; with ``--strict`` where there
    is anything that no rule names.
    """
    from proxy.bootstrap.rules import load_rules, unruled_paths

    settings = load_settings(arguments.config, os.environ)
    rules = load_rules(settings)
    unknown = [path for path in unruled_paths(settings) if not _is_ruled(rules, path)]
    if arguments.strict and not (rules.operations or rules.passed):
        text = f"There are no rules at {settings.rules}: nothing is protected."
        raise VaultError(Code.BAD_RULES, text)
    faults = [path for path in unknown if path.kinds or arguments.strict]
    data = {
        "ok": not faults,
        "ruled": [_rule(rule) for rule in rules.operations],
        "passed": [_rule(rule) for rule in rules.passed],
        "unknown": [_unknown(path) for path in unknown],
    }
    command.show(data, "\n".join(_lines(data)), as_json=arguments.json)
    return FAULT if faults else OK


def _is_ruled(rules: "RuleSet", path: "UnruledPath") -> bool:
    """Whether the rules of now name what they did not when it was met."""
    from proxy.redactor.explain import find_operation

    hosts = [one.hosts for one in rules.endpoints if one.name == path.endpoint]
    if not hosts:  # without rules then, or under another name: nobody says that it is ruled now
        return False
    match = find_operation(rules, path.method, path.path, min(hosts[0], default=""))
    return match.rule is not None


def _rule(rule: Any) -> dict[str, str]:
    return {"endpoint": rule.endpoint.name, "match": rule.label, "at": str(rule.position)}


def _unknown(path: "UnruledPath") -> dict[str, Any]:
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(path.since / 1000))
    return {
        "endpoint": path.endpoint,
        "method": path.method,
        "path": path.path,
        "suspected": sorted(path.kinds),
        "since": since,
        "count": path.count,
    }


def _lines(data: dict[str, Any]) -> list[str]:
    rows = [("", "ENDPOINT", "REQUEST", "SUSPECTED", "SINCE", "COUNT")]
    rows += [("ruled", one["endpoint"], one["match"], "", "", "") for one in data["ruled"]]
    rows += [("passed", one["endpoint"], one["match"], "", "", "") for one in data["passed"]]
    for one in data["unknown"]:
        request, suspected = f"{one['method']} {one['path']}", ", ".join(one["suspected"]) or "none"
        count = str(one["count"])
        rows.append(("unknown", one["endpoint"], request, suspected, one["since"], count))
    return [*_table(rows), f"{len(data['unknown'])} shapes of paths that no rule names"]


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--strict",
        action="store_true",
        help="end with status 1 for anything that no rule names, not only where values are "
        "suspected",
    )


COMMAND: Final = Command(
    summary=(
        "Show what rules protect, what passes on purpose, and what no rule names: since when, how "
        "often, and the kinds of values suspected in it."
    ),
    example="domicile coverage --strict",
    run=show_coverage,
    arguments=_arguments,
    data=True,
)
