"""Lines of the folder to other places, after they were written: one thread for each place, so that a slow one hinders nobody.

Where a place has been left is kept beside the files. After a break some lines are sent again, since nobody knows what became of the
last ones; their numbers tell them apart.
"""

import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from proxy.audit.reading import Reader
from proxy.telemetry import logs

_log = logs.logger("audit")

#: Seconds between looks for new lines, and between notes of the position.
_LOOK: Final = 0.25
_NOTE: Final = 1.0

#: Seconds before a place that failed is tried again: the first and the longest wait.
_FIRST: Final = 0.5
_LONGEST: Final = 30.0

#: Lines that are sent again after a break.
AGAIN: Final = 100


class Way(Protocol):
    """How a place takes lines."""

    def send(self, line: bytes) -> None:
        """Hand a line over. Raises ``OSError``."""

    def close(self) -> None:
        """Let go of the place. Idempotent."""


class StandardOutput:
    """The standard output of the process."""

    def send(self, line: bytes) -> None:
        """See ``Way.send``."""
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()

    def close(self) -> None:
        """See ``Way.close``."""


class Shipper:
    """What brings lines to one place. ``start`` it once, ``stop`` it at the end."""

    def __init__(self, folder: Path, name: str, way: Way) -> None:
        self.name = name
        self._folder = folder
        self._way = way
        self._note = folder / f"shipped-{name}"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"audit-{name}", daemon=True)
        self.position = self._noted()  #: the last line that was handed over

    def start(self) -> None:
        """Begin behind the line where it was left."""
        self._thread.start()

    def stop(self, seconds: float = 2.0) -> None:
        """Hand over what is there, for at most so long."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        wait, last = _FIRST, False
        while not last:
            last = self._ended.wait(_LOOK)
            try:
                self._ship()
                wait = _FIRST
            except OSError as error:
                _log.warning(
                    "a place for the audit log cannot be reached", reason=error.strerror or "no answer", sink=self.name
                )
                self.position = max(0, self.position - AGAIN)
                last = last or self._ended.wait(wait)
                wait = min(_LONGEST, wait * 2)
        self._way.close()

    def _ship(self) -> None:
        """Everything there is. Raises ``OSError``."""
        reader, ended = Reader(self._folder, self.position), False
        try:
            while not ended:
                self._hand_over(reader)
                ended = self._ended.wait(_LOOK)
        finally:
            reader.close()
            self._keep()

    def _hand_over(self, reader: Reader) -> None:
        noted, before = time.monotonic(), self.position
        for number, line in reader.lines():
            self._way.send(line)
            self.position = number
            if time.monotonic() - noted > _NOTE:
                self._keep()
                noted = time.monotonic()
        if self.position != before:
            self._keep()

    def _keep(self) -> None:
        with suppress(OSError):  # on a full disk more lines are sent again after the next start
            fresh = self._note.with_suffix(".new")
            fresh.write_text(f"{self.position}\n", "ascii")
            fresh.replace(self._note)

    def _noted(self) -> int:
        try:
            text = self._note.read_text("ascii").strip()
        except (OSError, ValueError):
            return 0
        return int(text) if text.isdecimal() else 0
