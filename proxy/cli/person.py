"""``domicile person``: find or erase the data of a person in a running instance, over all schemas.

The values that identify the person (an e-mail address, a telephone number, any other) come from the
standard input, a line each, for every user of a machine sees command lines.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import msgspec

from proxy.audit import log_lines, shipped_lines
from proxy.audit.events import MARKED, REPEATED, EventKind
from proxy.cli import SUMMARIES, command, remote
from proxy.cli.command import FAULT, OK, Arguments, Command, argument, argument_list
from proxy.cli.options import running_arguments
from proxy.clock import to_wire
from proxy.config import load_settings
from proxy.errors import Code, VaultError
from proxy.model.values import Unfit, instant

#: Names of deleted records in one request.
_DELETED: Final = 10_000
_DELETE: Final = b'"event":"%b"' % EventKind.DELETE.encode()
#: Operations that delete a record in one place to have it in another.
_MOVES: Final = frozenset({"migrate_record"})

_PURPOSE_HEADER: Final = "x-purpose"

_encode = msgspec.json.Encoder(decimal_format="number").encode


def export_person(arguments: Arguments) -> int:
    """Write every record that has one of the values as JSON; finding nothing is no fault."""
    target: Path | None = arguments.file
    command.refuse_existing(target)
    content = _content(mentions=arguments.mentions)
    with contextlib.closing(remote.remote(arguments)) as instance:
        records, meta = _all(instance, "find", content, arguments)
    data = {**meta, "records": records}
    document = msgspec.json.format(_encode(data), indent=2).decode() + "\n"
    if target is None:
        sys.stdout.write(document)
        sys.stderr.writelines(f"{line}\n" for line in _hints(records))
    else:
        command.write_file(target, [document.encode()])
        summary = {**meta, "file": str(target), "records": len(records)}
        text = (
            f"{_counted(records, meta)}; in {target}, in the clear: keep it as you keep the person"
        )
        command.show(arguments, summary, [text, *_hints(records)])
    return FAULT if meta.get("unreadable") else OK


def erase_records(arguments: Arguments) -> int:
    """Delete every record that has one of the values, or show which; status 1 if one is left."""
    content = _content()
    with contextlib.closing(remote.remote(arguments)) as instance:
        records, meta = _all(instance, "erase" if arguments.yes else "find", content, arguments)
    return _show_erased(arguments, records, meta, [_counted(records, meta), *_hints(records)])


def erase_again(arguments: Arguments) -> int:
    """Delete what a restored backup has brought back, or show which; status 1 if one is left."""
    names, unclear = _deleted_since(arguments)
    records, meta = list[Any](), dict[str, Any]()
    with contextlib.closing(remote.remote(arguments)) as instance:
        for start in range(0, len(names), _DELETED):
            content = {"deleted": dict(islice(names.items(), start, start + _DELETED))}
            part, meta = _all(instance, "erase" if arguments.yes else "find", content, arguments)
            records += part
    meta |= {"deleted": len(names), "unclear": unclear}
    text = [f"{len(names)} records were deleted since; {len(records)} are back"]
    if unclear:
        text.append(f"{unclear} deletes are in doubt, or name no record: look at their lines")
    return _show_erased(arguments, records, meta, text)


def _show_erased(
    arguments: Arguments, records: list[Any], meta: dict[str, Any], text: list[str]
) -> int:
    """Show what was, or would be, deleted; the exit status."""
    left = [one for one in records if arguments.yes and not one["erased"]]
    if records and not arguments.yes:
        text.append("Nothing was deleted: say --yes to delete these records.")
    named = [_named(one) for one in records]
    data = {**meta, "records": named, "erased": arguments.yes and not left}
    command.show(arguments, data, [*map(_line, records), *text])
    return FAULT if left or meta.get("unreadable") else OK


def _deleted_since(arguments: Arguments) -> tuple[dict[str, str], int]:
    """When each record was deleted, by its name, as the audit log tells since an instant; and the
    number of lines that tell of deletes and not of which, or that were in doubt.

    Records that a rule only marked, and those that were moved, are not among them. Raises
    ``VaultError(BAD_SETTINGS)``.
    """
    try:
        since = to_wire(instant(arguments.since))
    except Unfit as unfit:
        raise VaultError(Code.BAD_SETTINGS, f"--since: {unfit}") from None
    names, unclear = dict[str, str](), 0
    for line in _delete_lines(arguments):
        if str(line.get("at")) <= since or "files" in line or line.get("operation") in _MOVES:
            continue
        if (reason := line.get("reason")) in (MARKED, REPEATED):
            continue  # it ended nothing then: who has the key may have been made again since
        if reason is None and line.get("records"):
            names |= {one: max(line["at"], names.get(one, "")) for one in line["records"]}
        else:
            unclear += 1
    return names, unclear


def _delete_lines(arguments: Arguments) -> Iterator[Mapping[str, Any]]:
    """The lines of deletes in these files, or else in the log of the settings."""
    if arguments.lines:
        chains = [shipped_lines(arguments.lines)]
    else:
        folders = load_settings(arguments.config, os.environ).chain_folders()
        chains = [log_lines(folder) for folder in folders]
    for name, number, line in chain.from_iterable(chains):
        if _DELETE not in line:
            continue
        try:
            yield msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.MsgspecError:
            text = f"Line {number} of {name} is no line of an audit log."
            raise VaultError(Code.BAD_SETTINGS, text) from None


def _hints(records: list[Any]) -> Iterator[str]:
    """The fields by which further records of the person may be found, without their values."""
    others = sorted(
        {f"{one['schema']}.{name}" for one in records for name in one.get("others", ())}
    )
    if others:
        yield (
            f"The same records have other values of a person in {', '.join(others)}: look at them, "
            "and add those of this person, a line each, to find records that have only them."
        )


def _content(*, mentions: bool = False) -> dict[str, Any]:
    """The values to look for, from the standard input: a line each.

    Raises ``VaultError(BAD_SETTINGS)``.
    """
    if sys.stdin.isatty():
        sys.stderr.write("E-mail address, telephone number or other value of the person: ")
        sys.stderr.flush()
    first = sys.stdin.readline()
    lines = [first] if sys.stdin.isatty() else [first, *sys.stdin.readlines()]
    values = [value for line in lines if (value := line.strip())]
    if not values:
        raise VaultError(
            Code.BAD_SETTINGS,
            "No value came: write it to the standard input, as in `domicile person export < FILE`.",
        )
    also = {"also": values[1:]} if values[1:] else {}
    return {"value": values[0], **also, **({"mentions": True} if mentions else {})}


def _all(
    instance: remote.Remote, what: str, content: Mapping[str, Any], arguments: Arguments
) -> tuple[list[Any], dict[str, Any]]:
    """The answers of all requests that it takes as one: records, and what there is to tell."""
    records: list[Any] = []
    meta: dict[str, Any] = {"looked_at": 0, "schemas": []}
    headers = {} if arguments.purpose is None else {_PURPOSE_HEADER: arguments.purpose}
    for page in instance.pages(f"/api/persons/{what}", content, headers):
        records += page["data"]
        meta["looked_at"] += page["meta"]["looked_at"]
        meta["schemas"] = page["meta"]["schemas"]
        if lost := page["meta"].get("unreadable"):
            meta["unreadable"] = meta.get("unreadable", 0) + lost
    return records, meta


def _named(one: Mapping[str, Any]) -> dict[str, Any]:
    """A record by its name, without its values."""
    named = {name: value for name, value in one.items() if name != "record"}
    return named | {"in_doubt": True} if named.get("in_doubt") else named


def _line(one: Mapping[str, Any]) -> str:
    about = _named(one)
    state = "found" if "erased" not in about else "erased" if about["erased"] else about["code"]
    key = about["record_key"] or "(the application has not told its id)"
    doubt = "; in doubt, look at its versions first" if about.get("in_doubt") else ""
    return f"{state}  {about['schema']}  {key}  {', '.join(about['fields'])}{doubt}"


def _counted(records: list[Any], meta: Mapping[str, Any]) -> str:
    lost = meta.get("unreadable")
    text = (
        f"{len(records)} records of {meta['looked_at']} that were looked at, in the schemas "
        f"{', '.join(meta['schemas'])}"
    )
    return f"{text}; {lost} do not open (see `domicile store verify`)" if lost else text


_arguments: Final = argument_list(
    running_arguments,
    argument("--purpose", metavar="TEXT",
        help="what it is for, where a policy of the client asks that"),
)  # fmt: skip

_export_arguments: Final = argument_list(
    _arguments,
    argument("--mentions", action="store_true",
        help="also records that have a value of six or more characters within a longer text"),
    argument("file", type=Path, nargs="?", metavar="FILE",
        help="the JSON file to make, for its owner alone (default: the standard output)"),
)  # fmt: skip

_erase_arguments: Final = argument_list(
    _arguments,
    argument("--yes", action="store_true", help="delete, and do not only show"),
)  # fmt: skip

_again_arguments: Final = argument_list(
    _erase_arguments,
    argument("--since", required=True, metavar="INSTANT",
        help="when the restored backup was made, as its name says: 2026-11-22T02:00:00Z"),
    argument("--lines", nargs="+", type=Path, default=[], metavar="FILE",
        help="lines that a collector received (default: the audit log of the settings)"),
)  # fmt: skip

COMMAND: Final = Command(
    SUMMARIES["person"],
    "domicile person export ann.json", children={
        "export": Command(
            "Write every record that has the value as JSON (GDPR, articles 15 and 20).",
            "domicile person export ann.json", export_person, _export_arguments),
        "erase": Command(
            "Delete every record that has the value (GDPR, article 17), or show which.",
            "domicile person erase --yes", erase_records, _erase_arguments),
        "erase-again": Command(
            "After a restore, delete the records that were deleted since the backup, by the audit "
            "log, or show which.", "domicile person erase-again --since 2026-11-22T02:00:00Z --yes",
            erase_again, _again_arguments),
    },
)  # fmt: skip
