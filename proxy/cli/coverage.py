"""``domicile coverage``: what rules protect, what passes on purpose, and what no rule names."""

import os
from collections.abc import Sequence
from typing import Any, Final

from proxy.cli import command
from proxy.cli.command import FAULT, OK, Arguments, Command, argument
from proxy.config import load_settings
from proxy.errors import Code, VaultError


def show_coverage(arguments: Arguments) -> int:
    """Exit status 1 where values are suspected in what no rule names, be it a path, a parameter
    or a member; with ``--strict`` where there is anything that no rule names.
    """
    from proxy.bootstrap.rules import coverage_of_all, coverage_written, load_rules
    from proxy.net.coverage_report import coverage_data, instant_in_words
    from proxy.redactor.tools.rule_data import version_signs

    settings = load_settings(arguments.config, os.environ)
    rules = load_rules(settings)
    report, written = coverage_of_all(settings), coverage_written(settings)
    if arguments.strict and not (rules.operations or rules.passed):
        text = f"There are no rules at {settings.rules}: nothing is protected."
        raise VaultError(Code.BAD_RULES, text)
    data = {
        "as_of": instant_in_words(written) if written is not None else None,
        "data": str(settings.data),
        "rules": list(rules.files) or [str(settings.rules)],
        **coverage_data(report, rules, strict=arguments.strict),
    }
    paths = [one["path"] for one in data["unknown"]]
    names = [one["parameter"] for one in data["parameters"] if one["place"] == "query"]
    keeping = any(one.keeps for one in rules.entities)
    data["versions"] = [] if keeping else version_signs(paths, names)
    command.show(arguments, data, _lines(data))
    return OK if data["ok"] else FAULT


def _lines(data: dict[str, Any]) -> list[str]:
    rows = [("", "ENDPOINT", "REQUEST", "SUSPECTED", "ANSWERS", "SINCE", "COUNT")]
    for what in ("ruled", "passed"):
        for one in data[what]:
            shared = f" (of the {one['rules']} rules of this path)" if one.get("rules") else ""
            used = one["since"] or "never", f"{one['count']}{shared}"
            part = f", {one['place']} {one['parameter']}" if "place" in one else ""
            rows.append((what, one["endpoint"], one["match"] + part, "", "", *used))
    for one in data["parameters"]:
        request = f"{one['match']}, {one['place']} {one['parameter']}"
        suspected = ", ".join(one["suspected"]) or "none"
        used = one["since"], str(one["count"])
        rows.append(("parameter", one["endpoint"], request, suspected, "", *used))
    for one in data["unknown"]:
        request, suspected = f"{one['method']} {one['path']}", _places(one)
        request += f" (perhaps {one['perhaps']} by now)" if "perhaps" in one else ""
        answered, used = ", ".join(one["answers"]), (one["since"], str(one["count"]))
        rows.append(("unknown", one["endpoint"], request, suspected, answered, *used))
    parameters, unknown = len(data["parameters"]), len(data["unknown"])
    named = f"Parameters and members of ruled requests that no rule names: {parameters}"
    lines = [named] if parameters else []
    if data["ids"]:
        lines.append(
            f"Operations with ids in their path: {data['ids']}. Ids of letters and digits alone "
            "are not examined: where one can be a name or a number of a person, say path."
        )
    if data["versions"]:
        lines.append(
            f"Requests tell of versions ({', '.join(data['versions'])}): if the application keeps "
            "several of a record under one id, say versions: keep at its entity."
        )
    lines.append(f"Shapes of paths that no rule names: {unknown}")
    return [*_head(data), *_table(rows), *lines]


def _head(data: dict[str, Any]) -> tuple[str, str, str]:
    """The rules and the report that are shown, and of when that is."""
    state = "no instance has written one yet; a running one does so every ten seconds"
    if data["as_of"]:
        state = f"as of {data['as_of']} (a running instance writes it every 10 seconds)"
    return f"Rules: {', '.join(data['rules'])}", f"Report: {data['data']}, {state}", ""


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


_arguments: Final = argument("--strict", action="store_true",
    help="end with status 1 for anything that no rule names, not only where values are "
    "suspected")  # fmt: skip

COMMAND: Final = Command("Show what rules protect, what passes on purpose, and the paths, "
    "parameters and members that no rule names: since when, how often, and the kinds of values "
    "suspected where.", "domicile coverage --strict", show_coverage, _arguments)  # fmt: skip
