"""How the log of a folder is gone on with: what is there is compared with what is remembered, and a
gap is told.
"""

import os
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from proxy.audit.chain import CHAIN_START, Known, Link, Mac, Memory, parse_line, recall
from proxy.audit.events import EventKind, encode_event
from proxy.audit.files import LogSegment, log_end, log_segments
from proxy.audit.log import Options, Trail
from proxy.clock import Clock
from proxy.errors import Code, VaultError
from proxy.telemetry import logs

_log = logs.logger("audit")

MISSING = "lines at the end of the audit log are missing that were there before"
FOREIGN = "the last line of the audit log was changed, or belongs to another vault"
CUT = "an unfinished line at the end of the audit log was cut off"


class _Found(NamedTuple):
    """Where to go on, and what has to be told of it."""

    link: Link
    segment: LogSegment | None
    alarm: str | None
    torn: bool


async def open_trail(
    options: Options,
    mac: Mac,
    clock: Clock,
    memory: Memory,
    alarm: Callable[[str], None] = lambda _kind: None,
) -> Trail:
    """The log of a folder, which is made where it is missing.

    Nothing is written before ``Trail.begin``. Raises ``VaultError`` (NOT_WRITABLE) when the folder
    cannot be used at all, or what the memory raises. ``alarm`` is told of every alarm that the log
    itself raises.
    """
    known = await recall(memory)
    try:
        options.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_unusable(options.folder)
        found = _found(options.folder, mac, known)
    except OSError as error:
        raise _unusable(options.folder, error) from None
    trail = Trail(options, mac, clock, found.link, found.segment)
    trail.alarm = alarm
    first = [encode_event(EventKind.LOG, reason="started")]
    if found.torn:
        first.append(encode_event(EventKind.LOG, reason=CUT))
    if found.alarm is not None:
        first.append(encode_event(EventKind.ALARM, reason=found.alarm))
        _log.error(
            "the audit log is not as it was left", reason=found.alarm, file=str(options.folder)
        )
        alarm("log")
    trail.found(*first)
    return trail


def check_folder(folder: Path) -> None:
    """Raise what ``open_trail`` would say of the folder; makes nothing.

    One that is not there is made by the first start.
    """
    try:
        place = next(path for path in (folder, *folder.parents) if path.exists())
        _refuse_unusable(place)
    except OSError as error:
        raise _unusable(folder, error) from None


def _refuse_unusable(folder: Path) -> None:
    if not folder.is_dir():
        raise NotADirectoryError(0, "not a folder")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise PermissionError(0, "no permission")


def _unusable(folder: Path, error: OSError) -> VaultError:
    return VaultError(
        Code.NOT_WRITABLE,
        f"The audit log cannot be kept in {folder} ({error.strerror}): make that a folder which "
        "this program may write to, or "
        "name another one in the setting audit.folder.",
    )


def _found(folder: Path, mac: Mac, known: Known) -> _Found:
    """What there is to go on with. Raises ``OSError``."""
    paths = log_segments(folder)
    if not paths:
        return _Found(
            known.checkpoint, None, MISSING if known.checkpoint != CHAIN_START else None, torn=False
        )
    ends = [log_end(paths[-1])]
    for path in reversed(paths[:-1]):
        if ends[-1].last:
            break
        ends.append(log_end(path))
    last, segment = parse_line(ends[-1].last), LogSegment(paths[-1], ends[0].size)
    torn = ends[0].torn > 0
    if last is None and not ends[-1].last and known.checkpoint == CHAIN_START:
        return _Found(CHAIN_START, segment, None, torn)
    if last is None or not last.genuine(mac):
        number = max(known.checkpoint.n, last.n if last is not None else 0)
        return _Found(Link(number, known.checkpoint.hash), segment, FOREIGN, torn)
    if last.n < known.checkpoint.n:
        return _Found(known.checkpoint, segment, MISSING, torn)
    return _Found(last.link, segment, None, torn)


# Which record a line is about: a keyed hash of its key, since a key may itself be somebody's
# number.


#: Bytes of a mark: among ten million records two are alike once in 10^7 logs.
_BYTES: Final = 9

#: The mark of the record with that key: (environment, schema, key).
Mark = Callable[[str, str, str], str]


def marks(keyed: Callable[[bytes], bytes]) -> Mark:
    """What marks records; ``keyed``: a keyed hash of 9 bytes or more, used for nothing else."""

    def mark(environment: str, schema: str, key: str) -> str:
        # no name has a NUL
        message = f"{environment}\0{schema}\0{key}".encode("utf-8", "surrogatepass")
        return urlsafe_b64encode(keyed(message)[:_BYTES]).decode("ascii")

    return mark
