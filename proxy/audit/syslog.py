"""The form of a syslog message (RFC 5424), and the ways to a collector: UDP (RFC 5426), TCP (RFC 6587, octets counted), a local socket."""

import os
import re
import socket
from typing import Any, Final, Literal, NamedTuple

#: Facility "log audit" (13), and severities by event (RFC 5424, section 6.2.1).
_FACILITY: Final = 13
_NOTICE: Final = 5
_SEVERITY: Final = {b"alarm": 1, b"refused": 4, b"log": 6}

#: Seconds that the collector may take.
_PATIENCE: Final = 5.0

_EVENT: Final = re.compile(rb'^\{"n":\d+,"at":"([^"]*)","event":"([a-z]+)"')


class Place(NamedTuple):
    """Where a collector is."""

    transport: Literal["udp", "tcp", "unix"]
    host: str  #: the path of a local socket
    port: int = 0


class Syslog:
    """The way to one collector. Not for several threads."""

    def __init__(self, place: Place) -> None:
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
