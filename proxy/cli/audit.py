"""``domicile audit``: verify the audit log and search its lines.

It works on a stopped vault, beside a running one, or over HTTP as an auditor.
"""

import contextlib
import heapq
import json
import os
import sys
import time
import urllib.parse
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxy.audit import LogReader, Signatures, key_id, log_lines, shipped_lines, verify_log
from proxy.audit.events import EventKind
from proxy.cli import SUMMARIES, command
from proxy.cli.command import (
    FAULT,
    OK,
    Arguments,
    Command,
    Progress,
    argument,
    argument_list,
    printable,
    progress,
)
from proxy.cli.options import environment_argument, optional_url, running_arguments
from proxy.cli.remote import remote
from proxy.config import Settings, load_settings
from proxy.errors import Code, VaultError

if TYPE_CHECKING:
    from proxy.audit import Auditor, LogFindings

#: Seconds between looks for new lines.
_LOOK: Final = 0.25

#: Members that people are shown, in this order, after the instant and the event.
_PRINTED: Final = (
    "via", "by", "environment", "endpoint", "operation", "status", "code", "subject", "schema",
    "count",
)  # fmt: skip
#: Limits of a verification by signatures.
_UNPROVEN: Final = (
    "Nothing contradicts them. Without a secret nobody can tell whether the vault wrote other "
    "lines, whether some came before the first or after the last of these, and whether the vault "
    "is in the state that they tell of."
)
_LISTS: Final = ("fields", "revealed", "covered", "files", "records")


def verify_audit(arguments: Arguments) -> int:
    """Exit status 0 when every line is there, unchanged and in its place."""
    public = arguments.public_key is not None
    if arguments.url and (public or arguments.lines):
        text = "An instance verifies its own log: leave out --url, or --public-key and --lines."
        raise VaultError(Code.BAD_SETTINGS, text)
    findings = _content(arguments, "/api/audit/verify") if arguments.url else _verified(arguments)
    text = findings_text(findings, public=public)
    command.show(arguments, findings, text)
    return OK if findings["ok"] else FAULT


def _verified(arguments: Arguments) -> dict[str, Any]:
    settings = load_settings(arguments.config, os.environ)
    public, files = arguments.public_key, arguments.lines
    if public is None or not files:
        _folder(settings)
    bar = progress("lines", None, "lines")
    try:
        if public is not None:
            findings = _proven(settings, public, files, _counting(bar))
        else:
            auditor, count = _auditor(settings), _counting(bar)
            findings = auditor.verify_shipped(files, count) if files else auditor.verify(count)
            _auditor(settings).compare(findings)  # as it is now: lines were written meanwhile
        return findings.as_json()
    except OSError as error:
        raise _unreadable(error.filename or settings.audit.folder, error) from None
    finally:
        bar.close()


def _proven(
    settings: Settings, key: Path, files: Sequence[Path], count: Callable[[int], None]
) -> "LogFindings":
    from proxy.crypto.public_keys import read_public_keys, signature_holds

    try:
        trusted = {key_id(public): public for public in read_public_keys(key.read_bytes())}
    except ValueError:
        raise VaultError(
            Code.BAD_SETTINGS,
            f"{key} holds no public key of an audit log: `domicile audit public-key` prints it.",
        ) from None
    own, *workers = [shipped_lines(files)] if files else map(log_lines, settings.chain_folders())
    findings = verify_log(own, Signatures(trusted, signature_holds), progress=count)
    for lines, folder in zip(workers, settings.chain_folders()[1:], strict=True):
        signatures = Signatures(trusted, signature_holds)
        findings.join(folder.name, verify_log(lines, signatures, progress=count))
    if not (findings.proven or any(one.proven for one in findings.workers.values())):
        findings.add(str(key), 0, "No line is signed by this key.")
    return findings


def public_key(arguments: Arguments) -> int:
    """Print the public half of the key that writes the log."""
    from proxy.crypto.public_keys import spell_public_key

    auditor = _auditor(load_settings(arguments.config, os.environ))
    writing = {one.checkpoint.key for one in (auditor, *auditor.others)}
    key = next((key for key in reversed(auditor.keys) if key.id in writing), None)
    if key is None:
        raise VaultError(Code.BAD_STORE, "No line of the audit log is signed yet: start it once.")
    data = {"key_id": key.id, "public_key": spell_public_key(key.public)}
    return command.show(arguments, data, data["public_key"].rstrip("\n"))


def _counting(bar: Progress) -> Callable[[int], None]:
    def count(lines: int) -> None:
        bar.update(lines)

    return count


def _content(arguments: Arguments, path: str) -> Any:
    """The content of an answer of the instance that the command line names."""
    with contextlib.closing(remote(arguments)) as instance:
        return instance.content("GET", path)


def findings_text(findings: Mapping[str, Any], *, public: bool = False) -> str:
    """The findings for people; ``public``: verified without a secret."""
    looked = (
        f"{command.count_noun(findings['lines'], 'line')} in "
        f"{command.count_noun(findings['files'], 'file')}"
    )
    lines = [f"Looked at {looked}; the last one is line {findings['last']['n']}."]
    chains = findings.get("workers", ())
    lines += [f"The last one of {one['worker']} is line {one['last']['n']}." for one in chains]
    ranges = ", ".join(
        f"{one['first']} to {one['last']}{chain}"
        for chain, proven in [
            ("", findings.get("proven", ())),
            *((f" of {one['worker']}", one["proven"]) for one in chains),
        ]
        for one in proven
    )
    lines.append(f"Proven by signatures: lines {ranges}." if ranges else "No signature proves any.")
    for fault in findings["faults"]:
        at = f":{fault['line']}" if fault["line"] else ""
        lines.append(f"  {fault['file']}{at}: {fault['text']}")
    if findings["more"]:
        lines.append(f"  and {findings['more']} faults more.")
    count = len(findings["faults"]) + findings["more"]
    if count:
        lines.append(f"{command.count_noun(count, 'fault')} in all.")
    elif public:
        lines += [_UNPROVEN, f"The vault had written notes {findings['notes']:,} times by then."]
    else:
        lines.append("Every line is there, unchanged and in its place.")
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
    _folder(settings)
    readers = [LogReader(folder) for folder in settings.chain_folders()]
    show: Callable[[bytes], None] = _raw if arguments.json else partial(_pretty, record=wanted)
    try:
        for line in deque(_chosen(readers, wanted), maxlen=arguments.lines):
            show(line)
        while arguments.follow:
            sys.stdout.flush()
            time.sleep(_LOOK)
            for line in _chosen(readers, wanted):
                show(line)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise _unreadable(settings.audit.folder, error) from None
    finally:
        for reader in readers:
            reader.close()
    return OK


def _chosen(readers: Sequence[LogReader], wanted: bytes) -> Iterator[bytes]:
    """The lines that were not read yet; those of several chains in the order of their instants."""
    chains = [(line for _, line in reader.lines() if wanted in line) for reader in readers]
    return chains[0] if len(chains) == 1 else heapq.merge(*chains, key=_instant)


def _instant(line: bytes) -> bytes:
    return line[line.find(b'"at":"') :][:30]


def _wanted(settings: Settings, arguments: Arguments) -> bytes:
    """Return the bytes that a wanted line contains."""
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


def _unreadable(source: Path | str, error: OSError) -> VaultError:
    return VaultError(
        Code.BAD_STORE, f"The audit log in {source} cannot be read ({error.strerror})."
    )


def _raw(line: bytes) -> None:
    text = line.decode("utf-8", "replace").rstrip("\n")
    print(printable(text) if sys.stdout.isatty() else text)


def _pretty(line: bytes, record: bytes = b"") -> None:
    """Print a line for people; with ``record``, none of another one: it may be handed on."""
    try:
        members = json.loads(line)
        if record and "records" in members:
            members["records"] = [json.loads(record)]
    except ValueError:
        print("?  a line that is none of the audit log; see `domicile audit verify`")
        return
    words = [str(members[name]) for name in _PRINTED if name in members]
    words += [f"{name}={','.join(map(str, members[name]))}" for name in _LISTS if name in members]
    if "reason" in members:
        words.append(f"({members['reason']})")
    head = f"{members.get('n', '?'):>8}  {members.get('at', '')}  {members.get('event', '?'):<8} "
    print(printable(f"{head}{' '.join(words)}"))


_verify_arguments: Final = argument_list(
    optional_url("the log of the settings"),
    environment_argument,
    # the log is there for everybody who may read it
    lambda parser: parser.set_defaults(prepare=None),
    argument("--public-key", type=Path, metavar="FILE",
        help="verify signatures alone, without any secret, by the key in this file (PEM)"),
    argument("--lines", type=Path, nargs="+", default=(), metavar="FILE",
        help="files with lines that were shipped, in their order (default: the log of the vault)"),
)  # fmt: skip

_tail_arguments: Final = argument_list(
    argument("--lines", type=int, default=20, metavar="N",
        help="how many of the last lines (default: 20)"),
    argument("--follow", action="store_true", help="go on with the lines that come, until Ctrl-C"),
    argument("--record", metavar="KEY", help="only what happened to the record with this key"),
    argument("--schema", metavar="NAME", help="the schema of that record"),
    argument("--environment", metavar="ID", default="default",
        help="the environment of that record (default: default)"),
)  # fmt: skip

_search_arguments: Final = argument_list(
    running_arguments,
    argument("--from", metavar="INSTANT", help="lines of that instant or later"),
    argument("--to", metavar="INSTANT", help="lines from before that instant"),
    argument("--by", metavar="ID", help="what that client did"),
    argument("--event", choices=[str(kind) for kind in EventKind], help="lines of that kind"),
    argument("--schema", metavar="NAME", help="the schema of the record"),
    argument("--record", metavar="KEY", help="what happened to the record with this key"),
    argument("--lines", type=int, default=1000, metavar="N",
        help="at most so many (default: 1000)"),
)  # fmt: skip

COMMAND: Final = Command(SUMMARIES["audit"],
    "domicile audit verify", children={
        "verify": Command("Look at every line of the audit log; name those that were changed, "
            "moved, or are missing.",
            "domicile audit verify --public-key audit.pem --lines shipped.log", verify_audit,
            _verify_arguments),
        "search": Command(
            "Print the lines of a running instance's audit log that fit, as an auditor.",
            "domicile audit search --event alarm --from 2026-05-04T00:00:00Z", search_audit,
            _search_arguments),
        "public-key": Command("Print the public key that the audit log is signed with (PEM), for "
            "whoever is to verify it and not to write it.",
            "domicile audit public-key --config domicile.yaml", public_key),
        "tail": Command("Print the last lines of the audit log; all, or those about one record.",
            "domicile audit tail --schema contact --record 4711", tail, _tail_arguments),
    },
)  # fmt: skip
