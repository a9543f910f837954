"""Reader of the log's files: lines in order, filtered lines, and verification.

A fault names the file and the line. Besides the chain itself, two ends are compared with the memory
outside the folder: the line that must be the first one kept, and a line near the end that existed
at a checkpoint. A cut at the end removes that line; only lines written after the last checkpoint, a
few seconds, can vanish unseen. Signed lines are proven by public keys: without any secret they
prove the lines up to the last signed one.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from proxy.audit.chain import (
    CHAIN_START,
    Checkpoint,
    Link,
    LogFindings,
    LogKey,
    ParsedLine,
    parse_line,
)
from proxy.audit.events import RecordId
from proxy.audit.files import first_of, log_segments
from proxy.audit.signatures import SignatureHolds, Signatures

#: Lines that one search reads.
MOST_READ: Final = 20_000

#: Numbers of lines that each of several chains has in ``after`` of a search.
_A_CHAIN: Final = 2**44

#: Lines between reports of progress.
_STEP: Final = 10_000

#: Shipped lines that are remembered, since some are sent again after a break.
_AGAIN: Final = 10_000

#: Lines with the name of their file and their number in it.
Lines = Iterable[tuple[str, int, bytes]]

ROLLED_BACK: Final = (
    "These lines tell of more than the vault has, in its notes (clients, policies, keys) or in its "
    "log: it was put back to an earlier state."
)


class Auditor(NamedTuple):
    """The files of a log, its keys and its last checkpoint: what reads and verifies it."""

    folder: Path
    keys: Sequence[LogKey]
    record_id: RecordId
    holds: SignatureHolds
    checkpoint: Checkpoint
    notes: int  #: the counter of the root over the notes of the store
    others: "tuple[Auditor, ...]" = ()  #: of the chains of workers

    def verify(self, progress: Callable[[int], None] = lambda _lines: None) -> LogFindings:
        """Check every line; ``progress`` counts lines. Raises ``OSError``."""
        lines = log_lines(self.folder)
        findings = verify_log(lines, self._signatures(), self.keys, self.checkpoint, progress)
        for other in self.others:
            findings.join(other.folder.name, other.verify(progress))
        return findings

    def verify_shipped(self, files: Sequence[Path], progress: Callable[[int], None]) -> LogFindings:
        """Check lines of this log that were shipped; as ``verify``."""
        return verify_log(shipped_lines(files), self._signatures(), self.keys, None, progress)

    def compare(self, findings: LogFindings) -> None:
        """Add a fault where the vault is in an earlier state than lines that were verified before
        this auditor was made. Raises ``OSError``.
        """
        if findings.workers:
            there = in_log(self.folder, findings.last) and all(
                in_log(one.folder, findings.workers[one.folder.name].last)
                for one in self.others
                if one.folder.name in findings.workers
            )
        else:  # of one chain; lines that were shipped do not tell which
            there = any(in_log(one.folder, findings.last) for one in (self, *self.others))
        if findings.notes > self.notes or not there:
            findings.add("the log", 0, ROLLED_BACK)

    def _signatures(self) -> Signatures:
        return Signatures({key.id: key.public for key in self.keys}, self.holds)

    def search(self, wanted: "LineFilter", after: int, limit: int) -> "LinePage":
        """The lines behind one of them that fit, oldest first. Raises ``OSError``.

        Reads at most ``MOST_READ`` lines, so that no search takes long; ``after`` of the page
        continues it. The chains of workers follow one after the other.
        """
        at, after = divmod(after, _A_CHAIN)
        chains = (self, *self.others)
        if at >= len(chains):
            return LinePage([], at * _A_CHAIN + after, more=False)
        page = chains[at].search_chain(wanted, after, limit)
        if page.more or at + 1 == len(chains):
            return page._replace(after=at * _A_CHAIN + page.after)
        return page._replace(after=(at + 1) * _A_CHAIN, more=True)

    def search_chain(self, wanted: "LineFilter", after: int, limit: int) -> "LinePage":
        """The same of this chain alone."""
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
    """Filter for lines; an empty member admits all.

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
    """Lines that were looked for, the number of the last one read, and whether more may follow."""

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
    lines: Lines,
    signatures: Signatures,
    keys: Sequence[LogKey] = (),
    memory: Checkpoint | None = None,
    progress: Callable[[int], None] = lambda _lines: None,
) -> LogFindings:
    """Check every line.

    ``keys``: oldest first; without any, keyed hashes are compared with each other alone.
    ``memory``: ``None`` where there is no checkpoint to compare with. Raises ``OSError``.
    """
    findings, step = LogFindings(), 0
    before = memory.base if memory is not None else None
    met = memory is None or memory.checkpoint == CHAIN_START
    for name, number, line in lines:
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
            signatures.interrupt()
            before = None
            continue
        at = next((at for at, key in enumerate(keys) if parsed.genuine(key.mac)), None)
        fault = None if before is None else _between(before, parsed)
        forged = bool(keys) and at is None
        if forged:
            fault = "Was changed, or written without the key of the log."
        if fault is not None:
            signatures.interrupt()
        keys = keys[at or 0 :]
        unsigned = None if forged else signatures.add(parsed.n, line)
        if fault or unsigned:
            findings.add(name, number, fault or unsigned or "")
        before = parsed.link
        if memory is not None and parsed.n == memory.checkpoint.n:
            met = met or parsed.hash == memory.checkpoint.hash
    progress(step)
    findings.last = before or CHAIN_START
    findings.proven, findings.notes = signatures.proven, signatures.notes
    if not met and memory is not None:
        text = (
            f"Line {memory.checkpoint.n} of the log was there and is missing, or another one "
            "stands in its place."
        )
        findings.add("the log", 0, text)
    return findings


def _between(before: Link, line: ParsedLine) -> str | None:
    """Describe the break between two lines; ``None`` if the second follows the first."""
    if line.prev == before.hash and line.n == before.n + 1:
        return None
    if line.n > before.n + 1:
        first, last = before.n + 1, line.n - 1
        missing = f"Line {first} is" if first == last else f"Lines {first} to {last} are"
        return f"{missing} missing before it."
    if line.n <= before.n:
        return (
            f"Is line {line.n} of the log, but stands behind line {before.n}: moved, or there "
            "twice."
        )
    return "Does not follow the line before it."


def log_lines(folder: Path) -> Iterator[tuple[str, int, bytes]]:
    """Every line with the name of its file and its number in it; an empty one for an empty file."""
    for path in log_segments(folder):
        with path.open("rb") as file:
            number = 0
            for number, line in enumerate(file, 1):
                yield path.name, number, line
            if number == 0:
                yield path.name, 1, b""


def shipped_lines(paths: Sequence[Path]) -> Iterator[tuple[str, int, bytes]]:
    """Return the lines that a collector received, in the order of its files.

    Its own prefix is removed, and a repeated line left out. Raises ``OSError``.
    """
    recent: dict[bytes, None] = {}
    for path in paths:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                body = line[max(0, line.find(b'{"n":')) :]
                yield from [(path.name, number, body)] if _first_time(body, recent) else ()


def _first_time(line: bytes, recent: dict[bytes, None]) -> bool:
    if line in recent:
        return False
    recent[line] = None
    if len(recent) > _AGAIN:
        del recent[next(iter(recent))]
    return True


def in_log(folder: Path, line: Link) -> bool:
    """Whether a line is in a folder, or older than all that are kept. Raises ``OSError``."""
    if line == CHAIN_START:
        return True
    reader = LogReader(folder, line.n - 1)
    try:
        number, present = next(reader.lines(), (0, b""))
    finally:
        reader.close()
    parsed = parse_line(present)
    return number > line.n or (parsed is not None and parsed.link == line)


class LogReader:
    """Follow the lines of a folder after one of them while they are written."""

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
            yield from self._rest()  # lines between the end and the next file
            self._enter(following)

    def close(self) -> None:
        """Close the file. Idempotent."""
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
