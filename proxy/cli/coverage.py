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
    from proxy.net.coverage_report import CoverageReport, UnruledPath
    from proxy.redactor.rules import Rule, RuleSet


def show_coverage(arguments: Arguments) -> int:
    """Exit status 1 where values are suspected in what no rule names, be it a path or a parameter;
    with ``--strict`` where there is anything that no rule names.
    """
    from proxy.bootstrap.rules import coverage_until_now, load_rules

    settings = load_settings(arguments.config, os.environ)
    rules = load_rules(settings)
    report = coverage_until_now(settings)
    unknown = [path for path in report.unknown if not _is_ruled(rules, path)]
    parameters = _parameters(report, rules)
    if arguments.strict and not (rules.operations or rules.passed):
        text = f"There are no rules at {settings.rules}: nothing is protected."
        raise VaultError(Code.BAD_RULES, text)
    unnamed = [_unknown(path) for path in unknown]
    faults = [one for one in (*unnamed, *parameters) if one["suspected"] or arguments.strict]
    data = {
        "ok": not faults,
        "ruled": [_rule(rule, report) for rule in rules.operations],
        "passed": [_rule(rule, report) for rule in rules.passed],
        "parameters": parameters,
        "unknown": unnamed,
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


def _rule(rule: "Rule", report: "CoverageReport") -> dict[str, Any]:
    key = rule.endpoint.name, rule.label, "", ""
    uses = [one for one in report.ruled if one.key == key]
    return {
        "endpoint": rule.endpoint.name,
        "match": rule.label,
        "at": str(rule.position),
        "since": _instant(uses[0].since) if uses else None,
        "count": uses[0].count if uses else 0,
    }


def _parameters(report: "CoverageReport", rules: "RuleSet") -> list[dict[str, Any]]:
    """Parameters that the rules of now do not name; those met under others may be named by now."""
    if report.rules != rules.version:
        return []
    return [
        {
            "endpoint": one.endpoint,
            "match": one.operation,
            "place": one.part,
            "parameter": one.parameter,
            "suspected": list(one.kinds),
            "since": _instant(one.since),
            "count": one.count,
        }
        for one in report.ruled
        if one.part
    ]


def _unknown(path: "UnruledPath") -> dict[str, Any]:
    return {
        "endpoint": path.endpoint,
        "method": path.method,
        "path": path.path,
        "suspected": sorted(path.kinds),
        "places": {part: list(kinds) for part, kinds in path.places.items()},
        "since": _instant(path.since),
        "count": path.count,
    }


def _instant(since: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since / 1000))


def _lines(data: dict[str, Any]) -> list[str]:
    rows = [("", "ENDPOINT", "REQUEST", "SUSPECTED", "SINCE", "COUNT")]
    for what in ("ruled", "passed"):
        for one in data[what]:
            used = one["since"] or "never", str(one["count"])
            rows.append((what, one["endpoint"], one["match"], "", *used))
    for one in data["parameters"]:
        request = f"{one['match']}, {one['place']} {one['parameter']}"
        suspected = ", ".join(one["suspected"]) or "none"
        used = one["since"], str(one["count"])
        rows.append(("parameter", one["endpoint"], request, suspected, *used))
    for one in data["unknown"]:
        request, suspected = f"{one['method']} {one['path']}", _places(one)
        used = one["since"], str(one["count"])
        rows.append(("unknown", one["endpoint"], request, suspected, *used))
    parameters = f"{len(data['parameters'])} parameters of ruled requests that no rule names"
    unknown = f"{len(data['unknown'])} shapes of paths that no rule names"
    return [*_table(rows), *([parameters] if data["parameters"] else []), unknown]


def _places(unknown: dict[str, Any]) -> str:
    """The kinds by place; what earlier versions wrote has none."""
    if not unknown["places"]:
        return ", ".join(unknown["suspected"]) or "none"
    return "; ".join(f"{part}: {', '.join(kinds)}" for part, kinds in unknown["places"].items())


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
        "Show what rules protect, what passes on purpose, and the paths and parameters that no "
        "rule names: since when, how often, and the kinds of values suspected where."
    ),
    example="domicile coverage --strict",
    run=show_coverage,
    arguments=_arguments,
    data=True,
)
