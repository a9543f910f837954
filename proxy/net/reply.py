"""An answer on its way: the head is there, the pieces of the body arrive and are taken."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, Protocol, cast
from urllib.parse import urlsplit

import msgspec

from proxy.errors import Code, VaultError
from proxy.net.http1.body import BodyQueue, BodyWaiter, Flow
from proxy.net.http1.head import Framing, ResponseHead
from proxy.redactor.message import RawHeaders

# Port of the HTTP client: calls of the gateway to the application, and their replies.
#
# A ``Call`` goes out, an ``UpstreamResponse`` comes back as soon as the head of the final answer is
# there; its body is read from the reply piece by piece. Every failure is an ``UpstreamFault``,
# which says whether any byte of the request was sent: only then may the application have acted.

#: Told of every interim answer (1xx but 101) with its status, reason and fields, in order, before
#: the reply.
Interim = Callable[[int, bytes, RawHeaders], None]

#: Methods whose repetition means the same as one (RFC 9110 section 9.2.2): the only ones sent a
#: second time.
IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})


class UpstreamAddress(NamedTuple):
    """Address of an application."""

    scheme: str  #: ``http`` or ``https``
    host: str
    port: int
    special: str = ""  #: the endpoint, if it has its own route

    @classmethod
    def parse(cls, url: str) -> "UpstreamAddress":
        """``http://host:port`` or ``https://host:port``, as an endpoint of a rule file names it."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise VaultError(
                Code.BAD_RULES,
                f"{url!r} is not an address: write http://host:port or https://host:port.",
            )
        return cls(parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80))

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority.decode('latin-1')}"

    @property
    def authority(self) -> bytes:
        """The value of a ``Host`` field for this address; a standard port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        standard = 443 if self.scheme == "https" else 80
        return (host if self.port == standard else f"{host}:{self.port}").encode("latin-1")


class Call(msgspec.Struct, frozen=True):
    """A request, ready to be written."""

    address: UpstreamAddress
    method: str
    head: bytes  #: request line and fields, the empty line included
    body: bytes | AsyncIterator[bytes] = b""
    chunked: bool = False  #: frame the pieces of a streamed body as chunks
    upgrade: bool = False  #: the head asks for another protocol; 101 is a fit answer
    interim: Interim | None = None
    #: never send it twice, whatever its method: the answer to the second would tell something else
    once: bool = False
    #: fields that follow a chunked body, asked for when it has ended
    trailers: Callable[[], bytes] | None = None

    @property
    def last(self) -> bytes:
        """Return the end of a chunked body."""
        return b"0\r\n%b\r\n" % (b"" if self.trailers is None else self.trailers())

    @property
    def replayable(self) -> bool:
        """Whether a second sending would mean the same, and could be done at all."""
        return self.method in IDEMPOTENT and isinstance(self.body, bytes) and not self.once


class UpstreamResponse(Protocol):
    """The final answer. Its body is consumed once: ``whole``, else ``read`` until ``b""``."""

    head: ResponseHead
    framing: Framing
    trailers: RawHeaders  #: filled when the body ends
    done: bool  #: the body is complete
    waiting: int  #: bytes of body that wait to be read

    @property
    def whole(self) -> bytes | None:
        """The whole body, if it came together with the head; taking it empties the reply."""

    @property
    def buffered(self) -> bytes | None:
        """The whole body, if it is here, in one piece; it stays."""

    def tell(self, waiter: BodyWaiter) -> bool:
        """Have ``waiter`` hear of the next bytes, the end or a fault; ``False``: nothing comes."""

    async def read(self) -> bytes:
        """The next bytes as soon as there are any; ``b""`` at the end. Raises ``UpstreamFault``."""

    def abort(self) -> None:
        """Drop the exchange; the application sees its connection end.

        Does nothing after the end of the body.
        """


class Tunnel(Protocol):
    """The sending half of an exchange that left HTTP (101); ``read`` of the reply receives."""

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""

    def write_eof(self) -> None:
        """Nothing more comes from this side."""

    async def drained(self) -> None:
        """Return when the application reads again; at once if it does."""

    def abort(self) -> None:
        """Drop the connection."""


class ResponseObserver(Protocol):
    """Observer of answers, which judges whether an application is up."""

    engaged: bool  #: an answer is worth telling

    def answered(self) -> None:
        """The application answered."""


_NOBODY: Final = cast("Tunnel", None)
_UNASKED: Final = cast("Call", None)
_UNWATCHED: Final = cast("ResponseObserver", None)


class PendingReply(msgspec.Struct, eq=False):
    """An exchange begun outside of any task; subclasses implement ``on_response`` for its result.

    It takes the place of the future for an answer, so that nothing is woken for an answer that
    arrives whole. A task takes over any other result: see ``UpstreamPort.send``.
    """

    #: whether it is brought to its end when its caller has gone
    lasting: ClassVar[bool] = False

    call: Call = _UNASKED
    carrier: Tunnel = _NOBODY  #: the connection
    watch: ResponseObserver = _UNWATCHED  #: of the address
    reply: UpstreamResponse | None = None
    error: BaseException | None = None  #: what went wrong before the head of an answer

    def done(self) -> bool:
        """Whether the head of the answer came, or what went wrong."""
        return self.reply is not None or self.error is not None

    def set_result(self, reply: UpstreamResponse) -> None:
        """Called by the connection: the head of the answer is there."""
        self.reply = reply
        if self.watch.engaged:
            self.watch.answered()
        self.on_response()

    def on_complete(self, head: ResponseHead, body: bytes) -> None:
        """Called by the connection: an answer came whole, of a known length."""
        carrier = cast("ReplyConnection", self.carrier)
        self.set_result(BufferedReply(head, Framing.LENGTH, carrier, len(body), body))

    def set_exception(self, error: BaseException) -> None:
        """Called by the connection: there will be no answer."""
        self.error = error
        self.on_response()

    def interim(self, status: int, reason: bytes, headers: RawHeaders) -> None:
        """In place of the call's own, so that one call serves all requests that are the same."""
        raise NotImplementedError

    def on_response(self) -> None:
        """The head of the answer is there, or will never be. Must not raise."""
        raise NotImplementedError

    async def outcome(self) -> UpstreamResponse:
        """Return the answer, for the task that takes over. Raises the fault."""
        if self.error is not None:
            raise self.error
        return cast("UpstreamResponse", self.reply)

    def drop(self) -> None:
        """Nobody wants the answer now: its connection ends, unless all of it has come."""
        if self.reply is not None:
            self.reply.abort()
        elif self.error is None:
            # ``done`` from now on: the abort is reported to no one
            self.error = ConnectionAbortedError("dropped")
            self.carrier.abort()


#: In place of the exchange of a request that is to be begun once its body is there.
LATER: Final = PendingReply()


class UpstreamPort(Protocol):
    """The way to the application."""

    def begin(self, call: Call, pending: PendingReply) -> bool:
        """Send a request at once, if a connection waits idle for it and nothing speaks against.

        False: nothing was done. True: ``pending`` gets the result, and goes to ``send`` if that is
        not final.
        """

    async def send(self, call: Call, pending: PendingReply | None = None) -> UpstreamResponse:
        """Send the request and wait for the head of the final answer; ``pending`` if that has been
        done.

        Raises ``UpstreamFault``, or whatever iterating over a streamed body raises. Cancelling
        drops the connection.
        """

    def refusal(self, address: UpstreamAddress) -> "UpstreamFault | None":
        """Return the fault ``send`` would raise without trying: many failures, or a full queue."""

    def tunnel(self, reply: UpstreamResponse) -> Tunnel:
        """The sending half that belongs to a reply of status 101."""

    def close(self) -> None:
        """Drop idle connections now, and the others when their exchange ends."""


class UpstreamFault(VaultError):
    """The application, or the way to it, failed: one of the codes UPSTREAM_…."""

    #: The body of the request stopped coming while the application was ready for it: the caller's
    #: fault.
    starved = False

    def __init__(self, code: Code, message: str, *, sent: bool, silent: bool = False) -> None:
        super().__init__(code, message)
        self.sent = sent  #: at least one byte of the request may have reached the application
        self.silent = silent  #: the peer closed before the first byte of an answer


class ReplyConnection(Flow, Protocol):
    """The connection behind a reply, as far as the reply steers it."""

    def abort(self) -> None:
        """Drop the connection."""


class BufferedReply(BodyQueue):
    """The reply of a real connection; its body is a queue for one reader.

    ``whole``: the body, where all of it came with the head.
    """

    __slots__ = ("connection", "framing", "head")

    def __init__(
        self,
        head: ResponseHead,
        framing: Framing,
        connection: ReplyConnection,
        most: int,
        whole: bytes | None = None,
    ) -> None:
        BodyQueue.__init__(self, connection, whole, most)  # a third of the time of super()
        self.head = head
        self.framing = framing
        self.connection = connection

    @property
    def whole(self) -> bytes | None:
        if not self.done:
            return None
        pieces = self._pieces
        if len(pieces) == 1 and not self._paused:  # as nearly always: it came with the head
            self.waiting = 0
            return pieces.pop()
        return self.take()

    def abort(self) -> None:
        if not self.done:
            self.connection.abort()


# Bounds towards one application.


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Times in seconds, sizes in bytes."""

    #: until the connection stands, the TLS handshake included; and the wait for a free place
    connect: float = 5.0
    head: float = 60.0  #: from the end of the request to the head of the answer
    idle: float = 60.0  #: longest silence within a message, either way, and within a tunnel
    total: float = 0.0  #: the whole exchange; 0: no limit
    #: concurrent connections to one address; more requests wait up to ``connect``
    connections: int = 512
    queue: int = 1024  #: requests that wait so; more are refused at once
    #: How long a connection waits for its next request. Shorter than the keep-alive of common
    #: application servers (5 seconds), so that they seldom close one that was just chosen.
    keep: float = 4.0
    head_bytes: int = 65536  #: the head of an answer, and its trailers
    failures: int = 0  #: failures in a row that suspend the address, see ``breaker``; 0: never
    pause: float = 2.0  #: for so long
    buffer_bytes: int = 262144  #: of an answer's body held for a slow caller before reading pauses
