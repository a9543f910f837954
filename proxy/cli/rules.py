"""``domicile rules``: check, test, explain, compare, propose and describe rule files; ``domicile
coverage``: what rules protect. None of it needs a vault, keys or a network.
"""

import argparse
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from proxy.cli import SUMMARIES, command
from proxy.cli.command import FAULT, OK, Arguments, Command, argument, argument_list
from proxy.config import load_settings
from proxy.errors import Code, VaultError


def check_rules(arguments: Arguments) -> int:
    """Load the rules; a fault ends with status 1 and its places, a warning does not."""
    from proxy.bootstrap.rules import rules_at
    from proxy.redactor.tools.rule_data import rules_data

    path = rules_path(arguments)
    rules = rules_at(path)
    data = rules_data(rules)
    if not rules.endpoints:
        none = f"there is no rule file at {path}: an instance would serve no application"
        data["warnings"] = [none]
    counts = (
        f"endpoints {len(rules.endpoints)}, entities {len(rules.entities)}, operations "
        f"{len(rules.operations)} protected and {len(rules.on_purpose)} passed on purpose, tests "
        f"{len(rules.tests)}"
    )
    lines = [
        f"rules {rules.version} are in order: {counts}",
        *(f"  warning: {text}" for text in data["warnings"]),
        *(f"  hint: {text}" for text in data["hints"]),
    ]
    return command.show(arguments, data, lines)


def test(arguments: Arguments) -> int:
    """Run the tests of the rule files against temporary vaults; status 1 if one does not hold."""
    import asyncio

    from proxy.bootstrap.rules import try_rules
    from proxy.redactor.load import load_rule_set
    from proxy.redactor.tools.rule_data import results_data

    rules = load_rule_set(rules_path(arguments))
    results = asyncio.run(try_rules(rules))
    failed = sum(1 for problems in results.values() if problems)
    data = results_data(results)
    lines: list[str] = []
    for name, problems in results.items():
        lines.append(f"{'FAILED' if problems else 'holds '}  {name}")
        lines.extend(f"          {problem}" for problem in problems)
    lines.append(f"{len(results)} {'test' if len(results) == 1 else 'tests'}, {failed} failed")
    command.show(arguments, data, lines)
    return FAULT if failed else OK


def explain(arguments: Arguments) -> int:
    """Print the effective rule of one request."""
    from proxy.redactor.load import load_rule_set
    from proxy.redactor.tools import explain as effective

    rules = load_rule_set(rules_path(arguments))
    method, _, quoted = arguments.method.partition(" ")  # "POST /contacts", as match has it
    path = arguments.path or quoted.strip()
    if not path:
        text = "A request has a method and a path: domicile rules explain POST /contacts"
        raise VaultError(Code.BAD_REQUEST, text)
    rule = effective.find_operation(rules, method, path, arguments.host)
    data = effective.as_data(rule, arguments.role)
    return command.show(arguments, data, effective.explanation_text(data))


#: Changes without effect on protection that are listed without ``--all``.
_FEW: Final = 5


def diff(arguments: Arguments) -> int:
    """Print what other rules mean for each value; status 1 when one loses protection."""
    from proxy.redactor.load import load_rule_set
    from proxy.redactor.tools.difference import differences
    from proxy.redactor.tools.rule_data import changes_data

    with rules_of_revision(arguments.old) as old, rules_of_revision(arguments.new) as new:
        changes = differences(load_rule_set(old), load_rule_set(new))
    data = changes_data(changes)
    counts = (
        f"{len(data['loses'])} lose protection, {len(data['gains'])} gain it, "
        f"{len(data['changes'])} are different otherwise"
    )
    lines = [
        *_listed("loses protection", data["loses"]),
        *_listed("gains protection", data["gains"]),
        *_others(data["changes"], everything=arguments.all),
        counts,
    ]
    command.show(arguments, data, lines)
    return OK if data["ok"] else FAULT


def _listed(title: str, changes: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """A title and the changes below it, those of one text together."""
    subjects: dict[str, list[str]] = {}
    for one in changes:
        subjects.setdefault(one["text"], []).append(one["subject"])
    if subjects:
        yield title
    for text, of in subjects.items():
        if len(of) == 1:
            yield f"  {of[0]}: {text}"
        else:
            yield f"  {text}, of {len(of)}:"
            yield from (f"    {subject}" for subject in of)


def _others(changes: Sequence[Mapping[str, str]], *, everything: bool) -> Iterator[str]:
    """Changes without effect on protection: new names, and of many others how many of each."""
    from proxy.redactor.tools.difference import CALLED

    names = [one for one in changes if one["text"].startswith(CALLED)]
    others = [one for one in changes if not one["text"].startswith(CALLED)]
    yield from _listed("has another name", names)
    if everything or len(others) <= _FEW:
        yield from _listed("is different otherwise", others)
        return
    counts = Counter(one["text"].partition(":")[0] for one in others)
    of = ", ".join(f"{what} ({count})" for what, count in counts.most_common(8))
    rest = f" and {len(counts) - 8} more" if len(counts) > 8 else ""
    yield f"is different otherwise; --all lists each\n  {of}{rest}"


@contextmanager
def rules_of_revision(named: str) -> Iterator[Path]:
    """The rule file or folder of that name; of ``REVISION:PATH``, where there is no such file, as
    git has it, in a folder for the time of the context.
    """
    import subprocess
    import tarfile
    import tempfile

    revision, colon, path = named.partition(":")
    if not colon or Path(named).exists():
        yield Path(named)
        return
    git = ["git", "archive", "--format=tar", "--", revision, path]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as archive:
        try:
            done = subprocess.run(git, stdout=archive, stderr=subprocess.PIPE, check=False)  # noqa: S603 - no shell, and what begins with a dash is no revision
        except OSError:
            raise VaultError(
                Code.BAD_RULES, f"{named} is no file, and there is no git to ask for a revision."
            ) from None
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            raise VaultError(Code.BAD_RULES, f"git has no {path} of {revision}: {said}.")
        archive.seek(0)
        with tarfile.open(fileobj=archive) as content:
            for member in filter(tarfile.TarInfo.isfile, content):
                copy = Path(folder, member.name)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(cast("BinaryIO", content.extractfile(member)).read())
        yield Path(folder, path)


def learn_rules(arguments: Arguments) -> int:
    """Print or write a proposal of rules, and never where a running instance would load it."""
    from proxy.bootstrap.rules import coverage_files
    from proxy.redactor.tools.proposal import propose_from

    settings = load_settings(arguments.config, os.environ)
    if arguments.out is not None:
        _refuse_active(arguments.out, settings.rules)
    met = arguments.source or coverage_files(settings) or [settings.data / "coverage.json"]
    contents = [_content(source) for source in met]
    port = settings.listen.proxy.port
    own = {
        f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]", settings.listen.proxy.host)
    }
    text, left_out = propose_from(contents, arguments.word, arguments.name, own)
    listed = [one._asdict() for one in left_out]
    data: dict[str, object] = {"ok": True, "rules": text, "left_out": listed}
    if arguments.out is None:
        return command.show(arguments, data, text.rstrip("\n"))
    try:
        with arguments.out.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        text = f"{arguments.out} cannot be written ({error.strerror})."
        raise VaultError(Code.BAD_REQUEST, text) from None
    said = (
        f"{arguments.out} is a proposal: go through it, then domicile rules check {arguments.out}"
    )
    if left_out:
        gaps = command.count_noun(len(left_out), "thing")
        said += f"\n{gaps} left out: nothing of it is protected; the file says what, and why"
    return command.show(arguments, {**data, "file": str(arguments.out)}, said)


def _refuse_active(out: Path, rules: Path) -> None:
    if out.resolve().is_relative_to(rules.resolve()) and not out.exists():
        raise VaultError(
            Code.BAD_REQUEST,
            f"{out} would be among the rules of the settings, {rules}, and an instance loads what "
            "it finds there: write the proposal elsewhere, go through it, then move it there.",
        )


def _content(source: Path) -> bytes:
    try:
        return source.read_bytes()
    except OSError as error:
        text = f"{source} cannot be read ({error.strerror})."
        raise VaultError(Code.BAD_REQUEST, text) from None


def schema(arguments: Arguments) -> int:
    """Print the JSON Schema of the language, or its reference as Markdown."""
    import json

    from proxy.redactor.load.rule_keys import reference, rule_schema

    if arguments.markdown:
        command.show(arguments, {"markdown": reference()}, reference())
    else:
        described = rule_schema()
        command.show(arguments, described, json.dumps(described, indent=2, ensure_ascii=False))
    return OK


def rules_path(arguments: Arguments) -> Path:
    """The file or folder named on the command line, else the one of the settings."""
    named: Path | None = arguments.rules
    return named if named is not None else load_settings(arguments.config, os.environ).rules


#: The rules that a subcommand is about, as its one argument.
rules_argument: Final = argument("rules", metavar="RULES", nargs="?", type=Path,
    help="rule file or folder (default: that of the settings)")  # fmt: skip

_request_arguments: Final = argument_list(
    argument("--rules", type=Path, help="rule file or folder (default: that of the settings)"),
    argument("--host", default="",
        help="host name of the request, where endpoints are told apart by it"),
    argument("--as", dest="role", metavar="ROLE", default="",
        help="role of the caller: what its view shows (default: every view)"),
    argument("method", metavar="METHOD", help="method of the request, e.g. POST"),
    argument("path", metavar="PATH", nargs="?",
        help="path of the request, e.g. /contacts/17, or a template of a rule"),
)  # fmt: skip


def _endpoint_name(text: str) -> str:
    from proxy.redactor.load.parsers import RULE_NAME

    if not re.fullmatch(RULE_NAME, text):
        raise argparse.ArgumentTypeError("write letters, digits, - and _")
    return text


_REVISION: Final = "a rule file, a folder, or REVISION:PATH as git has it (main:rules)"

_diff_arguments: Final = argument_list(
    argument("old", metavar="OLD", help=f"the rules before: {_REVISION}"),
    argument("new", metavar="NEW", help=f"the rules after: {_REVISION}"),
    argument("--all", action="store_true",
        help="list every difference that changes no protection, too"),
)  # fmt: skip

_learn_arguments: Final = argument_list(
    argument("source", metavar="SOURCE", type=Path, nargs="*",
        help="HAR files, an OpenAPI document, or coverage.json of an instance (of each worker; "
            "default: those of the settings)"),
    argument("--out", metavar="FILE", type=Path,
        help="a new file for the proposal (default: print it)"),
    argument("--name", type=_endpoint_name,
        help="name of the endpoint (default: app, or the only one that was met)"),
    argument("--word", action="append", default=[], metavar="WORD",
        help="a word of recorded paths and members that is nobody's; again for more"),
)  # fmt: skip

_schema_arguments: Final = argument("--markdown", action="store_true",
    help="print the reference of all keys as Markdown instead")  # fmt: skip

COMMAND: Final = Command(SUMMARIES["rules"],
    "domicile rules check", children={
        "check": Command("Load the rules and name every fault by file, line and column.",
            "domicile rules check rules/contacts.yaml", check_rules, rules_argument),
        "test": Command("Run the tests that stand in the rule files; needs no network, no keys and "
            "no application.", "domicile rules test rules/contacts.yaml", test, rules_argument),
        "explain": Command("Show the effective rule of a request, with every default filled in.",
            "domicile rules explain POST /api/contacts", explain, _request_arguments),
        "diff": Command("Show which values lose or gain protection; status 1 when one loses it.",
            "domicile rules diff main:rules rules", diff, _diff_arguments),
        "learn": Command("Propose a rule file from traffic that an instance has met "
            "(coverage.json), a recording (HAR) or an OpenAPI document: paths, members and kinds, "
            "never values.", "domicile rules learn --out proposal.yaml crm.har", learn_rules,
            _learn_arguments),
        "schema": Command("Print the JSON Schema of the rule language, so that editors complete "
            "and check rule files.", "domicile rules schema", schema, _schema_arguments),
    },
)  # fmt: skip


def show_coverage(arguments: Arguments) -> int:
    """Exit status 1 where values are suspected in what no rule names, be it a path, a parameter
    or a member; with ``--strict`` where there is anything that no rule names.
    """
    from proxy.bootstrap.rules import coverage_of_all, coverage_written, load_rules
    from proxy.net.coverage_report import coverage_data, instant_in_words
    from proxy.redactor.tools.rule_data import version_signs
    from proxy.redactor.tools.watched import steps_in_words

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
    data["versions"] = [] if any(e.keeps for e in rules.entities) else version_signs(paths, names)
    command.show(arguments, data, [*_lines(data), *steps_in_words(data["unknown"])])
    return OK if data["ok"] else FAULT


def _lines(data: dict[str, Any]) -> list[str]:
    rows = [("", "ENDPOINT", "REQUEST", "SUSPECTED", "ANSWERS", "SINCE", "COUNT")]
    for what in ("ruled", "passed"):
        for one in data[what]:
            shared = f" (of the {one['rules']} rules of this path)" if one.get("rules") else ""
            used = one["since"] or "never", f"{one['count']}{shared}"
            part = f", {one['place']} {one['parameter']}" if "place" in one else ""
            when = f" when {one['when']}" if "when" in one else ""
            rows.append((what, one["endpoint"], f"{one['match']}{when}{part}", "", "", *used))
    for one in data["parameters"]:
        request = f"{one['match']}, {one['place']} {one['parameter']}"
        suspected = ", ".join(one["suspected"]) or "none"
        used = one["since"], str(one["count"])
        rows.append(("parameter", one["endpoint"], request, suspected, "", *used))
    for one in data["unknown"]:
        request = f"{one['method']} {one['path']}"
        request += f" (perhaps {one['perhaps']} by now)" if "perhaps" in one else ""
        last = ", ".join(one["answers"]), one["since"], str(one["count"])
        rows.append(("unknown", one["endpoint"], request, _places(one), *last))
    parameters = len(data["parameters"])
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
    lines.append(f"Shapes of paths that no rule names: {len(data['unknown'])}")
    state = "no instance has written one yet; a running one does so every ten seconds"
    if data["as_of"]:
        state = f"as of {data['as_of']} (a running instance writes it every 10 seconds)"
    head = f"Rules: {', '.join(data['rules'])}", f"Report: {data['data']}, {state}", ""
    return [*head, *_table(rows), *lines]


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


_coverage_arguments: Final = argument("--strict", action="store_true",
    help="end with status 1 for anything that no rule names, not only where values are "
    "suspected")  # fmt: skip

COVERAGE_COMMAND: Final = Command(
    SUMMARIES["coverage"],
    "domicile coverage --strict", show_coverage, _coverage_arguments)  # fmt: skip
