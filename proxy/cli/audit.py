"""``domicile audit``: whether the audit log is whole, and what stands in it; on a stopped vault,
beside a running one, or over HTTP, as an auditor.
"""

import argparse
import contextlib
import json
import os
import sys
import time
import urllib.parse
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxy.audit.events import EventKind
from proxy.audit.verify import LogReader
from proxy.cli import command
from proxy.cli.backend import instance_arguments
from proxy.cli.command import FAULT, OK, Arguments, Command, Progress, progress
from proxy.cli.remote import remote
from proxy.config import Settings, load_settings
from proxy.errors import Code, VaultError

if TYPE_CHECKING:
    from proxy.audit.verify import Auditor

#: Seconds between looks for new lines.
_LOOK: Final = 0.25

#: Members that people are shown, in this order, after the instant and the event.
_SHOWN: Final = (
    "via",
    "by",
    "environment",
    "endpoint",
    "operation",
    "status",
    "code",
    "subject",
    "schema",
    "count",
)
_LISTS: Final = ("fields", "revealed", "covered", "files", "records")


def verify_audit(arguments: Arguments) -> int:
    """Exit status 0 when every line is there, unchanged and in its place."""
    findings = _content(arguments, "/api/audit/verify") if arguments.url else _verified(arguments)
    command.show(findings, findings_text(findings), as_json=arguments.json)
    return OK if findings["ok"] else FAULT


def _verified(arguments: Arguments) -> dict[str, Any]:
    settings = load_settings(arguments.config, os.environ)
    auditor = _auditor(settings)
    _folder(settings)
    bar = progress("lines", None, "lines")
    try:
        return auditor.verify(_counting(bar)).as_json()
    except OSError as error:
        raise _unreadable(settings, error) from None
    finally:
        bar.close()


def _counting(bar: Progress) -> Callable[[int], None]:
    def count(lines: int) -> None:
        bar.update(lines)

    return count


def _content(arguments: Arguments, path: str) -> Any:
    """The content of an answer of the instance that the command line names."""
    with contextlib.closing(remote(arguments)) as instance:
        return instance.content("GET", path)


def findings_text(findings: Mapping[str, Any]) -> str:
    """The findings for people."""
    looked = (
        f"{command.count_noun(findings['lines'], 'line')} in "
        f"{command.count_noun(findings['files'], 'file')}"
    )
    lines = [f"Looked at {looked}; the last one is line {findings['last']['n']}."]
    for fault in findings["faults"]:
        at = f":{fault['line']}" if fault["line"] else ""
        lines.append(f"  {fault['file']}{at}: {fault['text']}")
    if findings["more"]:
        lines.append(f"  and {findings['more']} faults more.")
    count = len(findings["faults"]) + findings["more"]
    whole = "Every line is there, unchanged and in its place."
    lines.append(f"{command.count_noun(count, 'fault')} in all." if count else whole)
    return "\n".join(lines)


#: Parameters of a search, by the name of the option.
_PARAMETERS: Final = ("from", "to", "by", "event", "schema", "record")


def search_audit(arguments: Arguments) -> int:
    """Print the lines of a running instance that fit, oldest first."""
    wanted = {
        name: value for name in _PARAMETERS if (value := getattr(arguments, name)) is not None
    }
    after, more, left = 0, True, arguments.lines
    with contextlib.closing(remote(arguments)) as instance:
        while more and left > 0:
            query = urllib.parse.urlencode({**wanted, "after": after, "limit": min(left, 100)})
            page = instance.content("GET", f"/api/audit?{query}")
            for line in page["data"]:
                (_raw if arguments.json else _pretty)(json.dumps(line).encode())
            left -= len(page["data"])
            after, more = page["meta"]["after"], page["meta"]["more"]
    return OK


def tail(arguments: Arguments) -> int:
    """Print the last lines, and those that come."""
    settings = load_settings(arguments.config, os.environ)
    wanted = _wanted(settings, arguments)
    reader = LogReader(_folder(settings))
    show: Callable[[bytes], None] = _raw if arguments.json else _pretty
    try:
        for line in deque(_chosen(reader, wanted), maxlen=arguments.lines):
            show(line)
        while arguments.follow:
            sys.stdout.flush()
            time.sleep(_LOOK)
            for line in _chosen(reader, wanted):
                show(line)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise _unreadable(settings, error) from None
    finally:
        reader.close()
    return OK


def _chosen(reader: LogReader, wanted: bytes) -> Iterator[bytes]:
    return (line for _, line in reader.lines() if wanted in line)


def _wanted(settings: Settings, arguments: Arguments) -> bytes:
    """What a line has to hold."""
    if arguments.record is None:
        return b""
    if arguments.schema is None:
        raise VaultError(
            Code.BAD_SETTINGS, "A record has a key in a schema: name that with --schema."
        )
    auditor = _auditor(settings)
    record_id = auditor.record_id(arguments.environment, arguments.schema, arguments.record)
    return b'"%b"' % record_id.encode()


def _auditor(settings: Settings) -> "Auditor":
    import asyncio

    from proxy.bootstrap.audit import auditor

    return asyncio.run(auditor(settings))


def _folder(settings: Settings) -> Path:
    folder = settings.audit.folder
    if not folder.is_dir():
        raise VaultError(
            Code.BAD_STORE,
            f"There is no audit log in {folder}: the first start of the service makes it.",
        )
    return folder


def _unreadable(settings: Settings, error: OSError) -> VaultError:
    return VaultError(
        Code.BAD_STORE,
        f"The audit log in {settings.audit.folder} cannot be read ({error.strerror}).",
    )


def _raw(line: bytes) -> None:
    print(line.decode("utf-8", "replace").rstrip("\n"))


def _pretty(line: bytes) -> None:
    try:
        members = json.loads(line)
    except ValueError:
        print("?  a line that is none of the audit log; see `domicile audit verify`")
        return
    words = [str(members[name]) for name in _SHOWN if name in members]
    words += [f"{name}={','.join(map(str, members[name]))}" for name in _LISTS if name in members]
    if "reason" in members:
        words.append(f"({members['reason']})")
    print(
        f"{members.get('n', '?'):>8}  {members.get('at', '')}  {members.get('event', '?'):<8} "
        f"{' '.join(words)}"
    )


def _tail_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lines",
        type=int,
        default=20,
        metavar="N",
        help="how many of the last lines (default: 20)",
    )
    parser.add_argument(
        "--follow", action="store_true", help="go on with the lines that come, until Ctrl-C"
    )
    parser.add_argument(
        "--record", metavar="KEY", help="only what happened to the record with this key"
    )
    parser.add_argument("--schema", metavar="NAME", help="the schema of that record")
    parser.add_argument(
        "--environment",
        metavar="ID",
        default="default",
        help="the environment of that record (default: default)",
    )


def _search_arguments(parser: argparse.ArgumentParser) -> None:
    instance_arguments(parser, "the vault listener of the settings")
    parser.add_argument("--from", metavar="INSTANT", help="lines of that instant or later")
    parser.add_argument("--to", metavar="INSTANT", help="lines from before that instant")
    parser.add_argument("--by", metavar="ID", help="what that client did")
    parser.add_argument(
        "--event", choices=[str(kind) for kind in EventKind], help="lines of that kind"
    )
    parser.add_argument("--schema", metavar="NAME", help="the schema of the record")
    parser.add_argument("--record", metavar="KEY", help="what happened to the record with this key")
    parser.add_argument(
        "--lines", type=int, default=1000, metavar="N", help="at most so many (default: 1000)"
    )


COMMAND: Final = Command(
    summary="Verify and read the audit log, also while an instance runs.",
    example="domicile audit verify",
    children={
        "verify": Command(
            summary=(
                "Look at every line of the audit log; name those that were changed, moved, or "
                "are missing."
            ),
            example="domicile audit verify --config domicile.yaml",
            run=verify_audit,
            arguments=lambda parser: instance_arguments(parser, "the log of the settings"),
            data=True,
        ),
        "search": Command(
            summary="Print the lines of a running instance's audit log that fit, as an auditor.",
            example="domicile audit search --event alarm --from 2026-05-04T00:00:00Z",
            run=search_audit,
            arguments=_search_arguments,
            data=True,
        ),
        "tail": Command(
            summary="Print the last lines of the audit log; all, or those about one record.",
            example="domicile audit tail --schema contact --record 4711",
            run=tail,
            arguments=_tail_arguments,
            data=True,
        ),
    },
)
