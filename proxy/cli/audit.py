"""``domicile audit``: whether the audit log is whole, and what stands in it; on a stopped vault and
beside a running one.
"""

import argparse
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxy.audit.verify import LogReader
from proxy.cli import command
from proxy.cli.command import FAULT, OK, Arguments, Command, Progress, progress
from proxy.config import Settings, load_settings
from proxy.errors import Code, VaultError

if TYPE_CHECKING:
    from proxy.audit.verify import Auditor, LogFindings

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
    settings = load_settings(arguments.config, os.environ)
    auditor = _auditor(settings)
    bar = progress("lines", None, "lines")
    try:
        findings = auditor.verify(_folder(settings), _counting(bar))
    except OSError as error:
        raise _unreadable(settings, error) from None
    finally:
        bar.close()
    command.show(findings_json(findings), findings_text(findings), as_json=arguments.json)
    return FAULT if findings.faults else OK


def _counting(bar: Progress) -> Callable[[int], None]:
    def count(lines: int) -> None:
        bar.update(lines)

    return count


def findings_json(findings: "LogFindings") -> dict[str, Any]:
    """The findings as JSON tells them."""
    return {
        "ok": not findings.faults,
        "files": findings.files,
        "lines": findings.lines,
        "last": {"n": findings.last.n, "hash": findings.last.hash},
        "faults": [fault._asdict() for fault in findings.faults],
        "more": findings.more,
    }


def findings_text(findings: "LogFindings") -> str:
    """The same for people."""
    looked = (
        f"{command.count_noun(findings.lines, 'line')} in "
        f"{command.count_noun(findings.files, 'file')}"
    )
    lines = [f"Looked at {looked}; the last one is line {findings.last.n}."]
    lines += [
        f"  {fault.file}{f':{fault.line}' if fault.line else ''}: {fault.text}"
        for fault in findings.faults
    ]
    if findings.more:
        lines.append(f"  and {findings.more} faults more.")
    count = len(findings.faults) + findings.more
    whole = "Every line is there, unchanged and in its place."
    lines.append(f"{command.count_noun(count, 'fault')} in all." if count else whole)
    return "\n".join(lines)


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
