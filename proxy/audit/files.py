"""The files of the log: names, the end of the last one, and appending whole lines or nothing.

A file is named after the number of its first line, so that the names are in order. Only the last
one grows.
"""

import io
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

_PATTERN: Final = "audit-*.jsonl"
_BLOCK: Final = 64 * 1024


def log_segments(folder: Path) -> list[Path]:
    """The files of the log, oldest first. Raises ``OSError``."""
    return sorted(folder.glob(_PATTERN))


def segment_path(folder: Path, number: int) -> Path:
    """The file whose first line has that number."""
    return folder / f"audit-{number:018d}.jsonl"


def first_of(path: Path) -> int:
    """The number of the first line of a file, by its name; 0 for a name that is none of ours."""
    digits = path.stem.removeprefix("audit-")
    return int(digits) if digits.isdecimal() else 0


class End(NamedTuple):
    """How a file ends."""

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


class LogSegment:
    """The file that grows. Raises ``OSError`` for what the disk does not take."""

    def __init__(self, path: Path, size: int | None = None) -> None:
        """``size``: of a file that is there, up to the end of its last whole line; ``None``: it is
        made.
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
        """Whether the file is still where it was made, and as long as what was written."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity and (
            self._torn or status.st_size == self.size
        )

    def flush(self) -> None:
        """Put on the disk what was written; nothing is left to do for a closed file."""
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
        """Take away what a write that failed has left."""
        os.ftruncate(self.descriptor, self.size)
        self._torn = False


def flush_folder(folder: Path) -> None:
    """Make the names in a folder durable. Raises ``OSError``."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Lines of the folder in their order, those that are still to come included.


class LogReader:
    """What stands in a folder after a line.

    Reads files only; may be asked again and again while somebody writes them.
    """

    def __init__(self, folder: Path, after: int = 0) -> None:
        self._folder = folder
        self._after = after
        self._path: Path | None = None
        self._file: io.BufferedReader | None = None

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The whole lines that are there by now and were not read yet, with their numbers.

        Raises ``OSError``.
        """
        while True:
            if self._file is None and not self._open():
                return
            yield from self._rest()
            following = self._following()
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

    def _following(self) -> Path | None:
        return next(
            (
                path
                for path in log_segments(self._folder)
                if self._path is not None and path > self._path
            ),
            None,
        )

    def _enter(self, path: Path) -> None:
        self.close()
        self._path, self._file = path, path.open("rb")


def number_of(line: bytes) -> int:
    """The number of a line; 0 for what is none of ours."""
    digits = line[5 : line.find(b",", 5)] if line.startswith(b'{"n":') else b""
    return int(digits) if digits.isdigit() else 0
