"""Lines of the folder in their order, those that are still to come included."""

import io
from collections.abc import Iterator
from pathlib import Path

from proxy.audit.segments import first_of, segments


class Reader:
    """What stands in a folder after a line. Reads files only; may be asked again and again while somebody writes them."""

    def __init__(self, folder: Path, after: int = 0) -> None:
        self._folder = folder
        self._after = after
        self._path: Path | None = None
        self._file: io.BufferedReader | None = None

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The whole lines that are there by now and were not read yet, with their numbers. Raises ``OSError``."""
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
        paths = segments(self._folder)
        if not paths:
            return False
        earlier = [path for path in paths if first_of(path) <= self._after + 1]
        self._enter(earlier[-1] if earlier else paths[0])
        return True

    def _following(self) -> Path | None:
        return next((path for path in segments(self._folder) if self._path is not None and path > self._path), None)

    def _enter(self, path: Path) -> None:
        self.close()
        self._path, self._file = path, path.open("rb")


def number_of(line: bytes) -> int:
    """The number of a line; 0 for what is none of ours."""
    digits = line[5 : line.find(b",", 5)] if line.startswith(b'{"n":') else b""
    return int(digits) if digits.isdigit() else 0
