"""Whether every line of the log is there, unchanged and in its place.

A fault names the file and the line. Beside the chain itself two ends are compared with the memory
that does not lie in the folder: the line that must be the first one kept, and a line near the end
that was there at a checkpoint. Whoever cuts the end off takes that line away; only what was written
after the last checkpoint, a few seconds, can go unseen.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from proxy.audit.chain import CHAIN_START, Known, Link, Mac, ParsedLine, parse_line
from proxy.audit.files import log_segments

#: Faults that are told one by one; more of them are counted.
MOST_FAULTS: Final = 1_000

#: Lines after which progress is told.
_STEP: Final = 10_000


class LogFault(NamedTuple):
    """Something that is wrong with a line, or between it and the one before."""

    file: str
    line: int  #: 0: of the file as a whole
    text: str


@dataclass
class LogFindings:
    """What a look at the whole log has found."""

    lines: int = 0
    files: int = 0
    last: Link = CHAIN_START
    faults: list[LogFault] = field(default_factory=list)
    more: int = 0  #: faults that are not listed

    def tell(self, file: str, line: int, text: str) -> None:
        """Add a fault."""
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(LogFault(file, line, text))
        else:
            self.more += 1


def verify_log(
    folder: Path,
    mac: Mac,
    known: Known | None,
    progress: Callable[[int], None] = lambda _lines: None,
) -> LogFindings:
    """Look at every line of a folder.

    ``known``: ``None`` where there is no memory to compare with. Raises ``OSError``.
    """
    found = LogFindings()
    before = known.base if known is not None else None
    met = known is None or known.checkpoint == CHAIN_START
    step = 0
    for name, number, line in log_lines(folder):
        if number == 1:
            found.files += 1
        if not line:
            continue
        found.lines += 1
        step += 1
        if step == _STEP:
            progress(step)
            step = 0
        seen = parse_line(line)
        if seen is None or not line.endswith(b"\n"):
            found.tell(name, number, "Is no line of an audit log: it was changed, or cut.")
            before = None
            continue
        if not seen.genuine(mac):
            found.tell(
                name, number, "Was changed, or written by somebody without the key of the log."
            )
        elif before is not None:
            _compare(found, (name, number), before, seen)
        before = seen.link
        if known is not None and seen.n == known.checkpoint.n:
            met = met or seen.hash == known.checkpoint.hash
    progress(step)
    found.last = before or CHAIN_START
    if not met and known is not None:
        text = (
            f"Line {known.checkpoint.n} of the log was there and is missing, or another one "
            "stands in its place."
        )
        found.tell(str(folder), 0, text)
    return found


def _compare(found: LogFindings, at: tuple[str, int], before: Link, seen: ParsedLine) -> None:
    """A genuine line beside the genuine one before it."""
    name, number = at
    if seen.prev == before.hash and seen.n == before.n + 1:
        return
    if seen.n > before.n + 1:
        first, last = before.n + 1, seen.n - 1
        missing = f"Line {first} is" if first == last else f"Lines {first} to {last} are"
        text = f"{missing} missing before it."
    elif seen.n <= before.n:
        text = (
            f"Is line {seen.n} of the log, but stands behind line {before.n}: moved, or there "
            "twice."
        )
    else:
        text = "Does not follow the line before it."
    found.tell(name, number, text)


def log_lines(folder: Path) -> Iterator[tuple[str, int, bytes]]:
    """Every line with the name of its file and its number in it, oldest first; an empty one for an
    empty file.
    """
    for path in log_segments(folder):
        with path.open("rb") as file:
            number = 0
            for number, line in enumerate(file, 1):
                yield path.name, number, line
            if number == 0:
                yield path.name, 1, b""
