"""The port that lines go through, and the one that takes them all and keeps none."""

import os
import re
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol

from proxy.audit.files import LogReader
from proxy.errors import VaultError
from proxy.telemetry import logs


class Sink(Protocol):
    """Where lines go. ``proxy.audit.log.Trail`` is the one of a running instance."""

    @property
    def fault(self) -> str | None:
        """Why lines cannot be written; ``None`` while they can."""

    @property
    def flushes(self) -> bool:
        """Whether ``flushed`` has to be awaited before an answer leaves."""

    def ready(self) -> None:
        """Raise ``VaultError(AUDIT_DOWN)`` while lines cannot be written."""

    def put(self, *bodies: bytes) -> None:
        """Write lines, all or none.

        Raises ``VaultError(AUDIT_DOWN)``: then what they tell of must not happen.
        """

    def happened(self, *bodies: bytes) -> None:
        """The same of what was done already: what cannot be written now is written later.

        Raises as ``put``.
        """

    async def flushed(self) -> None:
        """Return when what was put is on the disk. Raises ``VaultError(AUDIT_DOWN)``."""


class Nowhere:
    """For trials of rules in memory, where no values of people are and nobody is shown anything."""

    flushes = False

    @property
    def fault(self) -> str | None:
        """See ``Sink.fault``."""
        return None

    def ready(self) -> None:
        """See ``Sink.ready``."""

    def put(self, *bodies: bytes) -> None:
        """See ``Sink.put``."""

    def happened(self, *bodies: bytes) -> None:
        """See ``Sink.happened``."""

    async def flushed(self) -> None:
        """See ``Sink.flushed``."""


def quietly(sink: Sink, *bodies: bytes) -> None:
    """Tell of what was done where nobody is waiting for an answer: if it cannot be written now, it
    is later.
    """
    try:
        sink.happened(*bodies)
    except VaultError:
        return


# Lines of the folder to other places, after they were written: one thread for each place, so that a
# slow one hinders nobody.
#
# Where a place has been left is kept beside the files. After a break some lines are sent again,
# since nobody knows what became of the last ones; their numbers tell them apart.


_log = logs.logger("audit")

#: Seconds between looks for new lines, and between notes of the position.
_LOOK: Final = 0.25
_NOTE: Final = 1.0

#: Seconds before a place that failed is tried again: the first and the longest wait.
_FIRST: Final = 0.5
_LONGEST: Final = 30.0

#: Lines that are sent again after a break.
AGAIN: Final = 100


class Sender(Protocol):
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

    def __init__(self, folder: Path, name: str, way: Sender) -> None:
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
                    "a place for the audit log cannot be reached",
                    reason=error.strerror or "no answer",
                    sink=self.name,
                )
                self.position = max(0, self.position - AGAIN)
                last = last or self._ended.wait(wait)
                wait = min(_LONGEST, wait * 2)
        self._way.close()

    def _ship(self) -> None:
        """Everything there is. Raises ``OSError``."""
        reader, ended = LogReader(self._folder, self.position), False
        try:
            while not ended:
                self._hand_over(reader)
                ended = self._ended.wait(_LOOK)
        finally:
            reader.close()
            self._keep()

    def _hand_over(self, reader: LogReader) -> None:
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


# The form of a syslog message (RFC 5424), and the ways to a collector: UDP (RFC 5426), TCP (RFC
# 6587, octets counted), a local socket.


#: Facility "log audit" (13), and severities by event (RFC 5424, section 6.2.1).
_FACILITY: Final = 13
_NOTICE: Final = 5
_SEVERITY: Final = {b"alarm": 1, b"refused": 4, b"log": 6}

#: Seconds that the collector may take.
_PATIENCE: Final = 5.0

_EVENT: Final = re.compile(rb'^\{"n":\d+,"at":"([^"]*)","event":"([a-z]+)"')


class Collector(NamedTuple):
    """Where a collector is."""

    transport: Literal["udp", "tcp", "unix"]
    host: str  #: the path of a local socket
    port: int = 0


class SyslogSink:
    """The way to one collector. Not for several threads."""

    def __init__(self, place: Collector) -> None:
        self._place = place
        self._socket: socket.socket | None = None
        self._head = f"{_word(socket.gethostname(), 255)} domicile {os.getpid()} audit -".encode()

    def send(self, line: bytes) -> None:
        """Hand a line over. Raises ``OSError``; the connection is made anew by the next call then."""
        told = message(line, self._head)
        try:
            if self._socket is None:
                self._socket = self._connected()
            if self._place.transport == "tcp":
                self._socket.sendall(b"%d %b" % (len(told), told))
            else:
                self._socket.send(told)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the collector. Idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self) -> socket.socket:
        place = self._place
        if place.transport == "tcp":
            return socket.create_connection((place.host, place.port), _PATIENCE)
        if place.transport == "unix":
            return _datagrams(socket.AF_UNIX, place.host)
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_DGRAM)
        return _datagrams(found[0][0], found[0][4])


def _datagrams(family: int, address: Any) -> socket.socket:
    made = socket.socket(family, socket.SOCK_DGRAM)
    try:
        made.settimeout(_PATIENCE)
        made.connect(address)
    except OSError:
        made.close()
        raise
    return made


def message(line: bytes, head: bytes) -> bytes:
    """A line as a message; ``head``: host, program, process, kind and structured data."""
    line = line.rstrip(b"\n")
    found = _EVENT.match(line)
    at, event = found.groups() if found else (b"-", b"")
    return b"<%d>1 %b %b %b" % (_FACILITY * 8 + _SEVERITY.get(event, _NOTICE), at, head, line)


def _word(text: str, most: int) -> str:
    """Printable ASCII without spaces, as a head takes it."""
    return "".join(letter for letter in text if "!" <= letter <= "~")[:most] or "-"
