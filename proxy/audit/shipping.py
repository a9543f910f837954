"""Lines of the folder to other places, after they were written: one thread for each place.

A slow sink delays no request. The position of each sink is a file in the log's folder. After a
break some lines are sent again, since the fate of the last ones is unknown; their numbers reveal
repetitions.

A syslog message has the form of RFC 5424, over UDP (RFC 5426), TCP (RFC 6587, octets counted) or a
local socket.
"""

import os
import re
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from proxy.audit.verify import LogReader
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

#: Facility "log audit" (13), and severities by event (RFC 5424, section 6.2.1).
_FACILITY: Final = 13
_NOTICE: Final = 5
_SEVERITY: Final = {b"alarm": 1, b"refused": 4, b"log": 6}

#: Seconds that a collector may take.
_TIMEOUT: Final = 5.0

_EVENT: Final = re.compile(rb'^\{"n":\d+,"at":"([^"]*)","event":"([a-z]+)"')

#: A collector: transport, host (of "unix": the path of a local socket), port.
SyslogPlace = tuple[Literal["udp", "tcp", "unix"], str, int]


class Sender(Protocol):
    """Transport that delivers lines to a remote sink."""

    def send(self, line: bytes) -> None:
        """Hand a line over. Raises ``OSError``."""

    def close(self) -> None:
        """Close the sink. Idempotent."""


class StandardOutput:
    """The standard output of the process."""

    def send(self, line: bytes) -> None:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()

    def close(self) -> None:
        """See ``Sender.close``."""


class SyslogSink:
    """The connection to one collector. Not for several threads."""

    def __init__(
        self,
        transport: Literal["udp", "tcp", "unix"],
        host: str,
        port: int = 0,
        process: str | None = None,
    ) -> None:
        self._transport = transport
        self._address = (host, port)
        self._socket: socket.socket | None = None
        host_name = _word(socket.gethostname(), 255)
        self._head = f"{host_name} domicile {process or os.getpid()} audit -".encode()

    def send(self, line: bytes) -> None:
        """Hand a line over. Raises ``OSError``; the next call connects again then."""
        text = message(line, self._head)
        try:
            if self._socket is None:
                self._socket = _connected(self._transport, *self._address)
            if self._transport == "tcp":
                self._socket.sendall(b"%d %b" % (len(text), text))
            else:
                self._socket.send(text)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the collector. Idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Shipper:
    """Brings lines to one place. ``start`` it once, ``stop`` it at the end."""

    def __init__(
        self, folder: Path, name: str, sender: Sender, look: float = _LOOK, first: float = _FIRST
    ) -> None:
        """``look``: seconds between looks; ``first``: before the first retry."""
        self.name = name
        self._folder = folder
        self._sender = sender
        self._look = look
        self._first = first
        self._note = folder / f"shipped-{name}"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"audit-{name}", daemon=True)
        self.position = self._stored()  #: the last line that was handed over

    def start(self) -> None:
        """Begin behind the stored position."""
        self._thread.start()

    def stop(self, seconds: float = 2.0) -> None:
        """Send the waiting lines, for at most ``seconds``."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        wait, last = self._first, False
        while not last:
            last = self._ended.wait(self._look)
            try:
                self._ship()
                wait = self._first
            except OSError as error:
                _log.warning(
                    "a sink of the audit log is unreachable",
                    reason=error.strerror or "no answer",
                    sink=self.name,
                )
                self.position = max(0, self.position - AGAIN)
                last = last or self._ended.wait(wait)
                wait = min(_LONGEST, wait * 2)
        self._sender.close()

    def _ship(self) -> None:
        """Everything there is. Raises ``OSError``."""
        reader, ended = LogReader(self._folder, self.position), False
        try:
            while not ended:
                self._hand_over(reader)
                ended = self._ended.wait(self._look)
        finally:
            reader.close()
            self._store()

    def _hand_over(self, reader: LogReader) -> None:
        noted, before = time.monotonic(), self.position
        for number, line in reader.lines():
            self._sender.send(line)
            self.position = number
            if time.monotonic() - noted > _NOTE:
                self._store()
                noted = time.monotonic()
        if self.position != before:
            self._store()

    def _store(self) -> None:
        with suppress(OSError):  # on a full disk more lines are sent again after the next start
            fresh = self._note.with_suffix(".new")
            fresh.write_text(f"{self.position}\n", "ascii")
            fresh.replace(self._note)

    def _stored(self) -> int:
        try:
            text = self._note.read_text("ascii").strip()
        except (OSError, ValueError):
            return 0
        return int(text) if text.isdecimal() else 0


def start_shippers(
    folder: Path, *, stdout: bool, syslog: SyslogPlace | None, process: str | None = None
) -> tuple[Shipper, ...]:
    """Start a shipper for each place of the settings."""
    senders: dict[str, Sender] = {}
    if stdout:
        senders["stdout"] = StandardOutput()
    if syslog is not None:
        senders["syslog"] = SyslogSink(*syslog, process)
    shippers = tuple(Shipper(folder, name, sender) for name, sender in senders.items())
    for shipper in shippers:
        shipper.start()
    return shippers


def message(line: bytes, head: bytes) -> bytes:
    """A line as a message; ``head``: host, program, process, kind and structured data."""
    line = line.rstrip(b"\n")
    match = _EVENT.match(line)
    at, event = match.groups() if match else (b"-", b"")
    return b"<%d>1 %b %b %b" % (_FACILITY * 8 + _SEVERITY.get(event, _NOTICE), at, head, line)


def _connected(transport: str, host: str, port: int) -> socket.socket:
    if transport == "tcp":
        return socket.create_connection((host, port), _TIMEOUT)
    if transport == "unix":
        return _datagrams(socket.AF_UNIX, host)
    resolved = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    return _datagrams(resolved[0][0], resolved[0][4])


def _datagrams(family: int, address: Any) -> socket.socket:
    connected = socket.socket(family, socket.SOCK_DGRAM)
    try:
        connected.settimeout(_TIMEOUT)
        connected.connect(address)
    except OSError:
        connected.close()
        raise
    return connected


def _word(text: str, most: int) -> str:
    """Printable ASCII without spaces, as a head takes it."""
    return "".join(letter for letter in text if "!" <= letter <= "~")[:most] or "-"
