"""Reading the files of the log: lines in order, those that somebody looks for, and whether every
line is there, unchanged.

A fault names the file and the line. Beside the chain itself two ends are compared with the memory
outside the folder: the line that must be the first one kept, and a line near the end that was there
at a checkpoint. A cut at the end takes that line away; only what was written after the last
checkpoint, a few seconds, can go unseen.
"""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from proxy.audit.chain import (
    CHAIN_START,
    Checkpoint,
    Link,
    Mac,
    Memory,
    ParsedLine,
    parse_line,
    recall,
)
from proxy.audit.events import RecordId
from proxy.audit.files import first_of, log_segments

#: Faults that are listed; more of them are counted.
MOST_FAULTS: Final = 1_000

#: Lines that one search reads.
MOST_READ: Final = 20_000

#: Lines between reports of progress.
_STEP: Final = 10_000


class LogFault(NamedTuple):
    """Something that is wrong with a line, or between it and the one before."""

    file: str
    line: int  #: 0: of the file as a whole
    text: str


@dataclass
class LogFindings:
    """The result of reading the whole log."""

    lines: int = 0
    files: int = 0
    last: Link = CHAIN_START
    faults: list[LogFault] = field(default_factory=list)
    more: int = 0  #: faults that are not listed

    def add(self, file: str, line: int, text: str) -> None:
        """Add a fault."""
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(LogFault(file, line, text))
        else:
            self.more += 1

    def as_json(self) -> dict[str, Any]:
        """The findings as commands and the interface tell them."""
        return {
            "ok": not self.faults,
            "files": self.files,
            "lines": self.lines,
            "last": {"n": self.last.n, "hash": self.last.hash},
            "faults": [fault._asdict() for fault in self.faults],
            "more": self.more,
        }


class Auditor(NamedTuple):
    """The files of a log, its keys and its last checkpoint: what reads and verifies it."""

    folder: Path
    mac: Mac
    record_id: RecordId
    checkpoint: Checkpoint

    @classmethod
    async def of(cls, folder: Path, mac: Mac, record_id: RecordId, memory: Memory) -> "Auditor":
        """The auditor with what the memory holds. Raises ``VaultError``."""
        return cls(folder, mac, record_id, await recall(memory))

    def verify(self, progress: Callable[[int], None] = lambda _lines: None) -> LogFindings:
        """Check every line; ``progress`` counts lines. Raises ``OSError``."""
        return verify_log(self.folder, self.mac, self.checkpoint, progress)

    def search(self, wanted: "LineFilter", after: int, limit: int) -> "LinePage":
        """The lines behind one of them that fit, oldest first. Raises ``OSError``.

        Reads at most ``MOST_READ`` lines, so that no search takes long; ``after`` of the page goes
        on.
        """
        reader = LogReader(self.folder, max(after, _line_before(self.folder, wanted.since)))
        lines: list[bytes] = []
        last, read = after, 0
        try:
            for last, line in reader.lines():
                read += 1
                if wanted.admits(line):
                    lines.append(line)
                if read == MOST_READ or len(lines) == limit:
                    return LinePage(lines, last, more=True)
        finally:
            reader.close()
        return LinePage(lines, last, more=False)


class LineFilter(NamedTuple):
    """What lines are looked for; what is empty admits all.

    Instants are those of lines: ISO 8601, UTC, with milliseconds; ``until`` is not included.
    """

    since: str = ""
    until: str = ""
    by: str = ""
    event: str = ""
    environment: str = ""
    record: str = ""  #: the keyed hash of its key

    def admits(self, line: bytes) -> bool:
        """Whether a line fits; one that cannot be read fits nothing."""
        try:
            members = _members(line)
        except msgspec.MsgspecError:
            return False
        return (
            self.since <= members.at
            and (not self.until or members.at < self.until)
            and self.by in ("", members.by)
            and self.event in ("", members.event)
            and self.environment in ("", members.environment)
            and (not self.record or self.record in members.records)
        )


class LinePage(NamedTuple):
    """Lines that were looked for, the number of the last one read, and whether there may be
    more.
    """

    lines: list[bytes]
    after: int
    more: bool


class _Members(msgspec.Struct, frozen=True):
    at: str
    event: str = ""
    by: str = ""
    environment: str = ""
    records: list[str] = []


_members = msgspec.json.Decoder(_Members).decode


def _line_before(folder: Path, instant: str) -> int:
    """The number of a line that is older than an instant; 0: none is known to be."""
    number = 0
    for path in log_segments(folder) if instant else ():
        with path.open("rb") as file:
            first = file.readline()
        if (
            not first.endswith(b"\n")
            or b'"at":"%b' % instant.encode() < first[first.find(b'"at"') :]
        ):
            break
        number = first_of(path) - 1
    return number


def verify_log(
    folder: Path,
    mac: Mac,
    memory: Checkpoint | None,
    progress: Callable[[int], None] = lambda _lines: None,
) -> LogFindings:
    """Check every line of a folder.

    ``memory``: ``None`` where there is no checkpoint to compare with. Raises ``OSError``.
    """
    findings = LogFindings()
    before = memory.base if memory is not None else None
    met = memory is None or memory.checkpoint == CHAIN_START
    step = 0
    for name, number, line in log_lines(folder):
        if number == 1:
            findings.files += 1
        if not line:
            continue
        findings.lines += 1
        step += 1
        if step == _STEP:
            progress(step)
            step = 0
        parsed = parse_line(line)
        if parsed is None or not line.endswith(b"\n"):
            findings.add(name, number, "Is no line of an audit log: it was changed, or cut.")
            before = None
            continue
        if not parsed.genuine(mac):
            findings.add(
                name, number, "Was changed, or written by somebody without the key of the log."
            )
        elif before is not None:
            _compare(findings, (name, number), before, parsed)
        before = parsed.link
        if memory is not None and parsed.n == memory.checkpoint.n:
            met = met or parsed.hash == memory.checkpoint.hash
    progress(step)
    findings.last = before or CHAIN_START
    if not met and memory is not None:
        text = (
            f"Line {memory.checkpoint.n} of the log was there and is missing, or another one "
            "stands in its place."
        )
        findings.add(str(folder), 0, text)
    return findings


def _compare(findings: LogFindings, at: tuple[str, int], before: Link, line: ParsedLine) -> None:
    """Compare a genuine line with the genuine one before it."""
    name, number = at
    if line.prev == before.hash and line.n == before.n + 1:
        return
    if line.n > before.n + 1:
        first, last = before.n + 1, line.n - 1
        missing = f"Line {first} is" if first == last else f"Lines {first} to {last} are"
        text = f"{missing} missing before it."
    elif line.n <= before.n:
        text = (
            f"Is line {line.n} of the log, but stands behind line {before.n}: moved, or there "
            "twice."
        )
    else:
        text = "Does not follow the line before it."
    findings.add(name, number, text)


def log_lines(folder: Path) -> Iterator[tuple[str, int, bytes]]:
    """Every line with the name of its file and its number in it; an empty one for an empty file."""
    for path in log_segments(folder):
        with path.open("rb") as file:
            number = 0
            for number, line in enumerate(file, 1):
                yield path.name, number, line
            if number == 0:
                yield path.name, 1, b""


class LogReader:
    """The lines of a folder after one of them, again and again while they are written."""

    def __init__(self, folder: Path, after: int = 0) -> None:
        self._folder = folder
        self._after = after
        self._path: Path | None = None
        self._file: io.BufferedReader | None = None

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The whole lines that were not read yet, with their numbers. Raises ``OSError``."""
        while True:
            if self._file is None and not self._open():
                return
            yield from self._rest()
            following = next(
                (path for path in log_segments(self._folder) if self._path and path > self._path),
                None,
            )
            if following is None:
                return
            yield from self._rest()  # what came between the end and the next file
            self._enter(following)

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _rest(self) -> Iterator[tuple[int, bytes]]:
        file = self._file
        while file is not None:
            at = file.tell()
            line = file.readline()
            if not line.endswith(b"\n"):
                file.seek(at)  # nothing, or a line that is being written
                return
            number = number_of(line)
            if number > self._after:
                self._after = number
                yield number, line

    def _open(self) -> bool:
        paths = log_segments(self._folder)
        if not paths:
            return False
        earlier = [path for path in paths if first_of(path) <= self._after + 1]
        self._enter(earlier[-1] if earlier else paths[0])
        return True

    def _enter(self, path: Path) -> None:
        self.close()
        self._path, self._file = path, path.open("rb")


def number_of(line: bytes) -> int:
    """The number of a line; 0 for anything else."""
    digits = line[5 : line.find(b",", 5)] if line.startswith(b'{"n":') else b""
    return int(digits) if digits.isdigit() else 0
