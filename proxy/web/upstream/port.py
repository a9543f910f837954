"""The upstream port: what the gateway may ask of the way to the application, and what it gets back.

A ``Call`` goes out, a ``Reply`` comes back as soon as the head of the final answer is there; its body is read from
the reply piece by piece. Everything that can go wrong is an ``UpstreamFault``, which says whether any byte of the
request went out: only then may the application have acted.
"""

import enum
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec

from proxy.errors import Code, VaultError
from proxy.redactor.message import RawHeaders

#: Told of every interim answer (1xx but 101) with its status, reason and fields, in order, before the reply.
Interim = Callable[[int, bytes, RawHeaders], None]

#: Methods whose repetition means the same as one (RFC 9110 section 9.2.2): the only ones sent a second time.
IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})


class Address(NamedTuple):
    """Where an application listens."""

    scheme: str  #: ``http`` or ``https``
    host: str
    port: int
    special: str = ""  #: the endpoint, where it is reached in a way of its own

    @classmethod
    def parse(cls, url: str) -> "Address":
        """``http://host:port`` or ``https://host:port``, as an endpoint of a rule file names it."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise VaultError(Code.BAD_RULES, f"{url!r} is not an address: write http://host:port or https://host:port.")
        return cls(parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80))

    @property
    def authority(self) -> bytes:
        """The value of a ``Host`` field for this address; a standard port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        standard = 443 if self.scheme == "https" else 80
        return (host if self.port == standard else f"{host}:{self.port}").encode("latin-1")


class Call(msgspec.Struct, frozen=True):
    """One request, ready to be written."""

    address: Address
    method: str
    head: bytes  #: request line and fields, the empty line included
    body: bytes | AsyncIterator[bytes] = b""
    chunked: bool = False  #: frame the pieces of a streamed body as chunks
    upgrade: bool = False  #: the head asks for another protocol; 101 is a fit answer
    interim: Interim | None = None
    once: bool = False  #: never send it twice, whatever its method: the answer to the second would tell something else
    trailers: Callable[[], bytes] | None = None  #: fields that follow a chunked body, asked for when it has ended

    @property
    def last(self) -> bytes:
        """What ends a chunked body."""
        return b"0\r\n%b\r\n" % (b"" if self.trailers is None else self.trailers())

    @property
    def replayable(self) -> bool:
        """Whether a second sending would mean the same, and could be done at all."""
        return self.method in IDEMPOTENT and isinstance(self.body, bytes) and not self.once


class Framing(enum.IntEnum):
    """How the end of an answer's body is known (RFC 9112 section 6.3)."""

    NONE = 0  #: there is none: HEAD, 204, 304
    LENGTH = 1
    CHUNKED = 2
    CLOSE = 3  #: by the end of the connection
    TUNNEL = 4  #: 101: what follows is another protocol


#: The members by themselves: looking one up in its class takes as long as calling a function.
NONE, LENGTH, CHUNKED, CLOSE, TUNNEL = Framing


class Head:
    """The head of an answer, checked and kept as bytes, and what it says about the connection."""

    __slots__ = ("_fields", "block", "chunked", "close", "drop", "length", "minor", "plain", "reason", "status", "wire")

    def __init__(self, start: tuple[int, int, bytes], block: bytes) -> None:
        self.minor, self.status, self.reason = start  #: ``minor``: 0 or 1, of the HTTP version
        self.block = block  #: the fields, each with its line end, as they came
        self.length = -1  #: Content-Length, or -1
        self.chunked = False
        self.close = self.minor == 0  #: the connection ends with this answer
        self.plain = True  #: without the lines in ``drop``, all fields may be forwarded as they are
        self.drop: tuple[bytes, ...] = ()  #: lines that only steer keep-alive
        self.wire: bytes | None = None  #: as it was written for a caller of HTTP/1.1 whose connection goes on
        self._fields: RawHeaders | None = None

    @property
    def headers(self) -> RawHeaders:
        """The fields in order, spelled as they came, hop-by-hop fields included."""
        if self._fields is None:
            parts = [line.partition(b":") for line in self.block.split(b"\r\n")[:-1]]
            self._fields = tuple([(name, value.strip()) for name, _, value in parts])
        return self._fields

    def forwarded(self) -> bytes:
        """The fields as bytes without those in ``drop``; what to forward if ``plain``."""
        block = self.block
        for line in self.drop:
            # The first field of a block has no line end before it.
            block = (b"\r\n" + block).replace(b"\r\n%b\r\n" % line, b"\r\n", 1)[2:]
        return block


class Reply(Protocol):
    """The final answer. Its body is consumed once: ``whole`` if it is there, else ``read`` until it gives ``b""``."""

    head: Head
    framing: Framing
    trailers: RawHeaders  #: filled when the body ends

    @property
    def whole(self) -> bytes | None:
        """The whole body, if it came together with the head; taking it empties the reply."""

    async def read(self) -> bytes:
        """The next bytes as soon as there are any; ``b""`` at the end. Raises ``UpstreamFault``."""

    def abort(self) -> None:
        """Drop the exchange; the application sees its connection end. Does nothing after the end of the body."""


class Tunnel(Protocol):
    """The sending half of an exchange that left HTTP (101); the receiving half is the reply's ``read``."""

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""

    def write_eof(self) -> None:
        """Nothing more comes from this side."""

    async def drained(self) -> None:
        """Return when the application reads again; at once if it does."""

    def abort(self) -> None:
        """Drop the connection."""


class Upstream(Protocol):
    """The way to the application."""

    async def send(self, call: Call) -> Reply:
        """Send the request and wait for the head of the final answer.

        Raises ``UpstreamFault``, or whatever iterating over a streamed body raises. Cancelling drops the connection.
        """

    def refusal(self, address: Address) -> "UpstreamFault | None":
        """What ``send`` would raise at this moment without trying, because the application failed too often."""

    def tunnel(self, reply: Reply) -> Tunnel:
        """The sending half that belongs to a reply of status 101."""

    def close(self) -> None:
        """Drop idle connections now, and the others as soon as their exchange is over."""


class UpstreamFault(VaultError):
    """The application, or the way to it, failed: one of the codes UPSTREAM_…."""

    #: The body of the request stopped coming while the application was ready for it: the caller's fault.
    starved = False

    def __init__(self, code: Code, message: str, *, sent: bool, silent: bool = False) -> None:
        super().__init__(code, message)
        self.sent = sent  #: at least one byte of the request may have reached the application
        self.silent = silent  #: the peer closed before the first byte of an answer
