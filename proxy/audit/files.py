"""The files of a log: their names, how they end, and the one that grows.

A name has the number of the file's first line, so names in order are lines in order. Only the last
one grows; a new one begins with each day, and where it is full.
"""

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from proxy.audit.chain import (
    CHAIN_START,
    Chain,
    Checkpoint,
    Link,
    LogKey,
    newest_keys,
    parse_line,
    read_tail,
)
from proxy.audit.events import EventKind, encode_event
from proxy.audit.signatures import SIGNATURE
from proxy.offload import flush_folder

_PATTERN: Final = "audit-*.jsonl"
_BLOCK: Final = 64 * 1024
#: Files at the end in which a signed line is looked for; one is written every ten seconds.
_TAIL: Final = 3

MISSING: Final = "lines at the end of the audit log are missing that were there before"
FOREIGN: Final = "the last line of the audit log was changed, or belongs to another vault"
CUT: Final = "an unfinished line at the end of the audit log was cut off"


def log_segments(folder: Path) -> list[Path]:
    """The files of the log, oldest first. Raises ``OSError``."""
    return sorted(folder.glob(_PATTERN))


def segment_path(folder: Path, number: int) -> Path:
    """The file whose first line has that number."""
    return folder / f"audit-{number:018d}.jsonl"


def first_of(path: Path) -> int:
    """The number of the first line of a file, by its name; 0 for any other name."""
    digits = path.stem.removeprefix("audit-")
    return int(digits) if digits.isdecimal() else 0


class End(NamedTuple):
    """The end of a log file."""

    last: bytes  #: its last whole line; empty where there is none
    size: int  #: bytes up to there
    torn: int  #: bytes of a line behind it that was never finished


def log_end(path: Path) -> End:
    """Read a file from its end. Raises ``OSError``."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        tail, at = b"", size
        while at and tail.count(b"\n") < 2:
            at = max(0, at - _BLOCK)
            file.seek(at)
            tail = file.read(size - at)
    whole = tail.rfind(b"\n") + 1
    torn = len(tail) - whole
    last = tail[:whole]
    return End(last[last.rfind(b"\n", 0, max(0, whole - 1)) + 1 :], size - torn, torn)


def last_instant(folder: Path) -> int:
    """The instant of the last line of a log, in milliseconds; 0 where there is none to read."""
    with suppress(OSError, ValueError, IndexError):
        for path in reversed(log_segments(folder)):
            if last := log_end(path).last:
                at = last.split(b'"at":"', 1)[1].split(b'"', 1)[0].decode()
                return round(datetime.fromisoformat(at).timestamp() * 1000)
    return 0


def expired_segments(folder: Path, instant: int) -> tuple[list[Path], Link | None]:
    """The files that ended before an instant, never the last one, and the last line of them."""
    expired: list[Path] = []
    base: Link | None = None
    for path, following in pairwise(log_segments(folder)):
        last = parse_line(log_end(path).last)
        if (
            path.stat().st_mtime * 1000 > instant
            or last is None
            or last.n + 1 != first_of(following)
        ):
            break
        base = last.link
        expired.append(path)
    return expired, base


class LogSegment:
    """A file of the log, open for appending. Raises ``OSError`` if the disk refuses."""

    def __init__(self, path: Path, size: int | None = None) -> None:
        """``size``: of a file that exists, up to the end of its last whole line; ``None``: a new
        file is made.
        """
        fresh = os.O_CREAT | os.O_EXCL if size is None else 0
        self.path = path
        self.descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | fresh, 0o600)
        self.size = size or 0
        self._torn = size is not None
        status = os.fstat(self.descriptor)
        self._identity = (status.st_dev, status.st_ino)

    def append(self, lines: bytes) -> None:
        """Hand lines to the operating system, all of them or none."""
        if self._torn:
            self._mend()
        try:
            written = os.write(self.descriptor, lines)
            while written < len(lines):  # a disk that runs full takes a part and refuses the rest
                written += os.write(self.descriptor, lines[written:])
        except OSError:
            self._torn = True
            with suppress(OSError):  # the next one tries it again
                self._mend()
            raise
        self.size += len(lines)

    @property
    def intact(self) -> bool:
        """Whether the file is still at its path, and as long as written."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity and (
            self._torn or status.st_size == self.size
        )

    def flush(self) -> None:
        """Flush to disk; a closed file has nothing left."""
        if self.descriptor >= 0:
            os.fsync(self.descriptor)

    def close(self) -> None:
        """Flush to disk and close. Idempotent."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _mend(self) -> None:
        """Cut off the rest of a failed write."""
        os.ftruncate(self.descriptor, self.size)
        self._torn = False


class LogStart(NamedTuple):
    """State in which the log starts: the chain to continue, and the condition of the folder."""

    chain: Chain
    segment: LogSegment | None
    alarm: str | None = None
    torn: bool = False  #: the last file ended with an unfinished line
    notes: int = 0  #: counter of the store's notes in the last signed line

    def first_lines(self, rules: str = "") -> tuple[bytes, ...]:
        """The lines with which it goes on; ``rules``: the version of those in force."""
        lines = [encode_event(EventKind.LOG, subject=rules, reason="started")]
        if self.torn:
            lines.append(encode_event(EventKind.LOG, reason=CUT))
        if self.alarm is not None:
            lines.append(encode_event(EventKind.ALARM, reason=self.alarm))
        return tuple(lines)


def find_start(folder: Path, keys: Sequence[LogKey], checkpoint: Checkpoint) -> LogStart:
    """Compare the folder with the last checkpoint. Raises ``OSError``."""
    paths, link = log_segments(folder), checkpoint.checkpoint
    writing = newest_keys(keys, checkpoint.key)
    if not paths:
        return LogStart(Chain(link, writing[0]), None, MISSING if link != CHAIN_START else None)
    ends = [log_end(paths[-1])]
    for path in reversed(paths[:-1]):
        if ends[-1].last:
            break
        ends.append(log_end(path))
    last, segment = parse_line(ends[-1].last), LogSegment(paths[-1], ends[0].size)
    torn = ends[0].torn > 0
    if last is None and not ends[-1].last and link == CHAIN_START:
        return LogStart(Chain(CHAIN_START, writing[0]), segment, None, torn)
    key = next((one for one in writing if last is not None and last.genuine(one.mac)), None)
    if last is None or key is None:
        number = max(link.n, last.n if last is not None else 0)
        return LogStart(Chain(Link(number, link.hash), writing[0]), segment, FOREIGN, torn)
    tail = signed_tail(paths)
    digest, notes = read_tail(tail, keys, last) if tail else (None, 0)
    if last.n < link.n:
        return LogStart(Chain(link, key), segment, MISSING, torn, notes)
    alarm = FOREIGN if tail and digest is None else None
    return LogStart(Chain(last.link, key, digest), segment, alarm, torn, notes)


def signed_tail(paths: Sequence[Path]) -> bytes:
    """The lines from the last signed one on; nothing where none is near the end."""
    tail = b""
    for path in reversed(paths[-_TAIL:]):
        content = path.read_bytes()
        content = content[: content.rfind(b"\n") + 1]
        at = content.rfind(SIGNATURE)
        if at >= 0:
            return content[content.rfind(b"\n", 0, at) + 1 :] + tail
        tail = content + tail
    return b""


def refuse_unusable(folder: Path) -> None:
    """Raise ``OSError`` unless this program may write to the folder."""
    if not folder.is_dir():
        raise NotADirectoryError(0, "not a folder")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise PermissionError(0, "no permission")


class SegmentWriter:
    """Appends lines to the file that grows, and begins the next one."""

    def __init__(self, folder: Path, limit: int, segment: LogSegment | None) -> None:
        """``limit``: bytes of one file; ``segment``: the one to go on in."""
        self._folder = folder
        self._limit = limit
        self._segment = segment
        #: The day of the file; of one that existed before, that of the first line appended.
        self._day: int | None = None
        self._unnamed = False  #: the folder has a name that is not on the disk yet
        self._disk = ThreadPoolExecutor(1, "audit")  # flushes take turns
        self._unflushed: OSError | None = None  #: fault of a full file; of that thread alone

    def append(self, lines: bytes, day: int, number: int) -> None:
        """Append lines, all or none; ``number``: of the first of them. Raises ``OSError``."""
        segment = self._segment
        if segment is None or day != self._day or segment.size + len(lines) > self._limit:
            segment = self._segment_for(len(lines), day, number)
        segment.append(lines)

    @property
    def intact(self) -> bool:
        """Whether the file that grows is as this program left it."""
        return self._segment is None or self._segment.intact

    async def flush(self) -> None:
        """Flush everything appended so far to disk. Raises ``OSError``."""
        segment, unnamed, self._unnamed = self._segment, self._unnamed, False
        try:
            await asyncio.get_running_loop().run_in_executor(
                self._disk, self._flush, segment, unnamed
            )
        except OSError:
            self._unnamed = self._unnamed or unnamed
            raise

    def release(self) -> None:
        """Close the file; the next line begins another one."""
        segment, self._segment = self._segment, None
        if segment is not None:
            with suppress(OSError):  # a checkpoint told the fault, or the file was removed
                segment.close()

    def close(self) -> None:
        """End the thread and close the file."""
        self._disk.shutdown()
        self.release()

    def _segment_for(self, more: int, day: int, number: int) -> LogSegment:
        full = self._segment
        if full is not None and self._day is None and full.size + more <= self._limit:
            self._day = day
            return full
        self._segment = fresh = LogSegment(segment_path(self._folder, number))
        self._unnamed = True
        self._day = day
        if full is not None:
            self._disk.submit(self._close_full, full)
        return fresh

    def _close_full(self, segment: LogSegment) -> None:
        try:
            segment.close()
        except OSError as error:
            self._unflushed = error  # the next flush raises it

    def _flush(self, segment: LogSegment | None, unnamed: bool) -> None:
        error, self._unflushed = self._unflushed, None
        if error is not None:
            raise error
        if segment is not None:
            segment.flush()
        if unnamed:
            flush_folder(self._folder)
