"""``domicile adopt``: the values that an application holds already become tokens, record by record,
by its own list and update operations, while people work with it.

``domicile release`` is the reverse, for leaving: tokens become values again; the vault keeps its
data.
"""

import argparse
import contextlib
import os
import re
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from proxy.cli import SUMMARIES, command
from proxy.cli.command import (
    FAULT,
    OK,
    Arguments,
    Command,
    argument,
    argument_list,
    number_option,
    parsed_by,
    progress,
)
from proxy.cli.health import reachable
from proxy.cli.options import site_address
from proxy.cli.site import IGNORES_CONDITIONS, PAGING_HELP, Paging, Site
from proxy.cli.walk import RecordWalk
from proxy.cli.walk_state import RecordOutcome, WalkDirection, WalkOptions
from proxy.config import Settings, load_settings
from proxy.errors import Code, VaultError
from proxy.redactor.load.sources import resolve_references
from proxy.redactor.tools.adoption import WalkChoice, clear_for, plan_walk
from proxy.redactor.tools.adoption_records import ReadRecord, RecordState, WalkPlan

_MOST_PARALLEL: Final = 32

_ADOPTION: Final = WalkDirection(
    "adopt", frozenset((RecordState.CLEAR, RecordState.MIXED)), through_proxy=True
)


def run(arguments: Arguments) -> int:
    """Adopt; status 1 where a record is left in the clear, with the reason of each refusal."""
    return _walk_records(arguments, lambda _: _ADOPTION)


def _walk_records(arguments: Arguments, direction_of: Callable[[WalkPlan], WalkDirection]) -> int:
    """Plan and walk as the command line says; what both commands do."""
    from proxy.bootstrap.rules import load_rules

    settings = load_settings(arguments.config, os.environ)
    choice = WalkChoice(arguments.entity or "", arguments.endpoint, arguments.list)
    plan = plan_walk(load_rules(settings), choice)
    direction = direction_of(plan)
    name = f"domicile-{direction.name}-{plan.endpoint.name}-{plan.entity.name}.json"
    options = WalkOptions(
        arguments.pages,
        arguments.rate,
        arguments.dry_run,
        arguments.state or Path(name),
        arguments.parallel,
        settings.country.upper(),
    )
    direct, proxied = _sites(arguments, settings, plan)
    with contextlib.closing(direct), contextlib.closing(proxied):
        walk = RecordWalk(direction, plan, (direct, proxied), options)
        bar = progress(f"{direction.name} {plan.entity.name}", None, "records")
        try:
            walk.run(bar)
        finally:
            bar.close()
    return _report(walk, arguments)


def _sites(arguments: Arguments, settings: Settings, plan: WalkPlan) -> tuple[Site, Site]:
    """The application itself, and the proxy before it."""
    headers = dict(_header(text) for text in arguments.header)
    host = min(plan.endpoint.hosts, default="")
    own = str(reachable(settings.listen.proxy))
    scheme = "https" if settings.listen.tls.secures("proxy") else "http"
    proxied = arguments.proxy or f"{scheme}://{own}"
    direct = arguments.application or plan.endpoint.upstream
    if urllib.parse.urlsplit(direct).netloc == urllib.parse.urlsplit(proxied).netloc:
        raise VaultError(
            Code.BAD_SETTINGS,
            f"{direct} is the proxy: name the application's own address with --application.",
        )
    return (
        Site(direct, headers, arguments.patience),
        Site(proxied, {**({"Host": host} if host else {}), **headers}, arguments.patience),
    )


def _header(text: str) -> tuple[str, str]:
    try:
        text = resolve_references(text, Path.cwd(), os.environ)
    except ValueError as error:
        raise VaultError(Code.BAD_SETTINGS, f"--header: {error}.") from None
    name, colon, value = text.partition(":")
    if not colon or not _FIELD_NAME.fullmatch(name.strip()):
        raise VaultError(
            Code.BAD_SETTINGS, "--header: write 'NAME: VALUE', such as 'Authorization: Bearer …'."
        )
    return name.strip(), value.strip()


_FIELD_NAME: Final = re.compile(r"[-\w!#$%&'*+.^`|~]+", re.ASCII)


def _report(walk: RecordWalk, arguments: Arguments) -> int:
    tally, states = walk.tally, walk.last.states
    data: dict[str, Any] = {
        "endpoint": walk.plan.endpoint.name,
        "entity": walk.plan.entity.name,
        "entities": [one.name for one in walk.plan.entities],
        "operations": dict(walk.plan.steps),
        "list": walk.plan.listing.operation.label,
        "update": walk.plan.update.label,
        "dry_run": walk.options.dry_run,
        "complete": walk.complete,
        "records": states.total(),
        "unseen_fields": sorted(walk.unseen) if states.total() else [],
        **{str(state): states[state] for state in RecordState},
        "missing": walk.last.outcomes[RecordOutcome.GONE],
        "passes": tally.passes,
        "converted": tally.converted,
        "conditional": tally.conditional,
        "conditions": tally.heeds,
        "changed_members": tally.members,
        "refusable": dict(walk.refusable),
        "refused": walk.refusals,
        "refusals": [{"source": one.source, "text": one.text} for one in walk.refused],
    }
    command.show(arguments, data, _lines(walk, data))
    return OK if walk.complete or walk.options.dry_run else FAULT


def _lines(walk: RecordWalk, data: dict[str, Any]) -> list[str]:
    counts = ", ".join(f"{data[str(state)]} {_WORDS[state]}" for state in RecordState)
    entities = " and ".join(data["entities"])
    lines = [
        f"{entities} of {data['endpoint']}, by {data['list']} and {data['update']}",
        f"{command.count_noun(data['records'], 'record')}: {counts}",
    ]
    if data["missing"]:
        lines.append(
            f"{command.count_noun(data['missing'], 'record')} in the list, and not found by "
            f"{walk.plan.reading.operation.label}: not counted above, and not written. Does the "
            "rule of the list name the id that stands in that path?"
        )
    if not data["records"]:
        lines.append(
            f"{data['list']} showed no record. If the application has some, the rule names another "
            "place than the one where they stand (response: {each: …}), or this caller may not see "
            "them."
        )
    if data["unseen_fields"]:
        lines.append(
            f"No record showed {', '.join(data['unseen_fields'])}: such values stay as they are. "
            "Name operations that read and write them, or save them once through the proxy."
        )
    if walk.options.dry_run:
        due = sum(data[str(state)] for state in walk.direction.todo)
        steps = [f"  {label}: {text}" for label, text in data["operations"].items()]
        through = walk.direction.through_proxy
        counts = ", ".join(f"{name} {count}" for name, count in walk.refusable.items())
        refusable = (
            f"Values that check refuses, as far as the list shows them: {counts}. Correct them, or "
            "loosen check, first."
        )
        return [
            *lines,
            *steps,
            *([refusable] if counts and through else []),
            f"Nothing was changed. {command.count_noun(due, 'record')} to write again.",
        ]
    lines.append(f"{data['converted']} written again, passes: {data['passes']}")
    if data["conditions"] is False:
        lines.append(IGNORES_CONDITIONS)
    elif data["conditional"] < data["converted"]:
        lines.append(
            "Not every record had a strong entity tag: a change of one of these between two "
            "requests of this walk may have been overwritten."
        )
    if data["changed_members"]:
        lines.append(f"With it the application changed: {', '.join(data['changed_members'])}")
    lines += command.detail_lines(walk.refused)
    if not walk.complete:
        lines.append("Not complete: see to what was refused, and run the same command again.")
    return lines


_WORDS: Final = {
    RecordState.CLEAR: "in the clear",
    RecordState.TOKENS: "as tokens",
    RecordState.MIXED: "in part",
    RecordState.EMPTY: "without values",
}


def _patience(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e6:
        raise argparse.ArgumentTypeError("write a number of seconds, such as 120")
    return seconds


def _path(text: str) -> str:
    if text and not text.startswith("/"):
        raise argparse.ArgumentTypeError("write a path and its query, such as '/people?limit=200'")
    return text


def _rate(text: str) -> float:
    number, _, unit = text.partition("/")
    try:
        rate = float(number) / {"s": 1, "": 1, "m": 60, "h": 3600}[unit]
    except (ValueError, KeyError):
        rate = 0.0
    if not 0 < rate < 1e9:
        raise argparse.ArgumentTypeError("write a number and a unit, such as 20/s, 600/m or 1000/h")
    return rate


#: The arguments of a walk in either direction.
_walk_arguments: Final = argument_list(
    argument("--application", type=site_address, metavar="URL",
        help="the application's own address (default: the upstream of the rules)"),
    argument("--proxy", type=site_address, metavar="URL",
        help="the proxy before it (default: the proxy listener of the settings)"),
    argument("--header", action="append", default=[], metavar="'NAME: VALUE'",
        help="sent with each request, such as 'Authorization: Bearer ${env:TOKEN}' or "
        "${file:PATH}"),
    argument("--list", type=_path, default="", metavar="PATH",
        help="path of the list with its query, e.g. '/people?limit=200&sort=id'"),
    argument("--pages", type=parsed_by(Paging), default=Paging(""), metavar="HOW",
        help=f"how the pages of the list follow each other: {PAGING_HELP}"),
    argument("--rate", type=_rate, metavar="N/s",
        help="records written at most, such as 20/s or 600/m"),
    argument("--parallel", default=8, metavar="N",
        type=number_option(1, _MOST_PARALLEL, f"write a number from 1 to {_MOST_PARALLEL}"),
        help="records that are looked at at the same time, 1 to 32 (default: 8)"),
    argument("--patience", type=_patience, default=120.0, metavar="SECONDS",
        help="longest time without an answer of either side (default: 120)"),
    argument("--dry-run", action="store_true", help="count, and change nothing"),
    argument("--state", type=Path, metavar="FILE",
        help="how far the walk is (default: a file here)"),
    argument("--endpoint", default="", metavar="NAME",
        help="which application, where there are several"),
    argument("entity", nargs="?", metavar="ENTITY",
        help="which entity, where the rules have several"),
)  # fmt: skip

ADOPT_COMMAND: Final = Command(
    SUMMARIES["adopt"],
    "domicile adopt --dry-run contact", run, _walk_arguments)  # fmt: skip


def run_release(arguments: Arguments) -> int:
    """Release; status 1 where a record is left with tokens, with the reason of each refusal."""
    return _walk_records(arguments, lambda plan: _release_direction(plan, arguments.role))


def _release_direction(plan: WalkPlan, role: str) -> WalkDirection:
    """Raises ``VaultError`` where something else than values might be taken for them."""
    name = plan.endpoint.name
    if not clear_for(plan, role):
        raise VaultError(
            Code.BAD_SETTINGS,
            f"Callers of {name} see by their role: name with --role one whose view shows every "
            f"field of {plan.entity.name} clear, and prove it with --header.",
        )
    if plan.endpoint.on_error.vault_down_read in ("default", "tokens"):
        raise VaultError(
            Code.BAD_RULES,
            f"The rules of {name} show tokens while the vault is down, and a token must not be "
            "taken for a value: write on_error: {vault_down: {read: 503}} while releasing.",
        )

    def unfit(record: ReadRecord) -> str:
        masked = bool(plan.endpoint.views) and plan.masked(record)
        return "a value looks like a mask: has the caller the role of --role?" if masked else ""

    todo = frozenset((RecordState.TOKENS, RecordState.MIXED))
    return WalkDirection("release", todo, through_proxy=False, unfit=unfit)


_release_arguments: Final = argument_list(
    _walk_arguments,
    argument("--role", default="", help="role of the caller, where the rules have views by role"),
)  # fmt: skip

RELEASE_COMMAND: Final = Command(
    SUMMARIES["release"],
    "domicile release --dry-run contact", run_release, _release_arguments)  # fmt: skip
