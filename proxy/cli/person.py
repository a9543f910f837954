"""``domicile person``: find or erase the data of a person in a running instance, over all schemas.

The values that identify the person (an e-mail address, a telephone number, any other) come from the
standard input, a line each, for every user of a machine sees command lines.
"""

import contextlib
import sys
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from proxy.cli import command, remote
from proxy.cli.command import FAULT, OK, Arguments, Command, argument, argument_list
from proxy.cli.options import running_arguments
from proxy.errors import Code, VaultError

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
    lines = [_line(one) for one in records]
    left = [one for one in records if arguments.yes and not one["erased"]]
    end = "Nothing was deleted: say --yes to delete these records."
    end = "" if arguments.yes or not records else end
    data = {
        **meta,
        "records": [_named(one) for one in records],
        "erased": arguments.yes and not left,
    }
    text = "\n".join([*lines, _counted(records, meta), *_hints(records), *([end] if end else [])])
    command.show(arguments, data, text)
    return FAULT if left or meta.get("unreadable") else OK


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
    for page in _pages(instance, what, content, arguments.purpose):
        records += page["data"]
        meta["looked_at"] += page["meta"]["looked_at"]
        meta["schemas"] = page["meta"]["schemas"]
        if lost := page["meta"].get("unreadable"):
            meta["unreadable"] = meta.get("unreadable", 0) + lost
    return records, meta


def _pages(
    instance: remote.Remote, what: str, content: Mapping[str, Any], purpose: str | None
) -> Iterator[Mapping[str, Any]]:
    headers = {} if purpose is None else {_PURPOSE_HEADER: purpose}
    following: str | None = ""
    while following is not None:
        page = instance.content("POST", f"/api/persons/{what}{following}", content, headers)
        yield page
        cursor = page["meta"]["next"]
        following = None if cursor is None else "?next=" + urllib.parse.quote(cursor, safe="")


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

COMMAND: Final = Command(
    "Export or erase everything that has a value of one person, over all schemas.",
    "domicile person export ann.json", children={
        "export": Command(
            "Write every record that has the value as JSON (GDPR, articles 15 and 20).",
            "domicile person export ann.json", export_person, _export_arguments),
        "erase": Command(
            "Delete every record that has the value (GDPR, article 17), or show which.",
            "domicile person erase --yes", erase_records, _erase_arguments),
    },
)  # fmt: skip
