"""A caller's request and the answer to it, which is written to the transport as bytes: in order, in
its own spelling, as soon as they are there.
"""

import asyncio
import socket
import struct
from typing import Final, Protocol

import msgspec

from proxy.net.client_address import ClientAddress
from proxy.net.coverage import Sample
from proxy.net.coverage_report import Unruled
from proxy.net.hop_headers import encode_fields, response_fields
from proxy.net.http1.body import BodyQueue, frame
from proxy.net.http1.head import (
    CHUNKED,
    CLOSE,
    LENGTH,
    NONE,
    TUNNEL,
    Framing,
    RequestHead,
    ResponseHead,
)
from proxy.net.memory_budget import Reservation
from proxy.net.reply import PendingReply, UpstreamResponse
from proxy.redactor.message import RawHeaders, Timing
from proxy.redactor.rules import Endpoint, Match, PassRule
from proxy.telemetry.tracing import Trace

#: Closing a socket with this option sends a reset: a truncated answer cannot be taken for a
#: complete one.
_RESET: Final = struct.pack("ii", 1, 0)


class CallerPort(Protocol):
    """The caller's connection, as far as handlers of a request need it."""

    transport: asyncio.Transport | None  #: none: the caller has gone

    @property
    def client(self) -> ClientAddress:
        """Address of the caller."""

    @property
    def writing_paused(self) -> bool:
        """Whether the caller takes no bytes for now."""

    async def drained(self) -> None:
        """Return when the caller takes bytes again."""

    def answered(self, incoming: "RequestContext") -> None:
        """Continue after the answer to a request that was forwarded at once."""

    def resume(self, incoming: "RequestContext", pending: PendingReply | None) -> None:
        """Let the connection's task take over a request that was forwarded at once, or all."""


class RequestContext(msgspec.Struct, eq=False):
    """A request as it came, and the answer so far."""

    connection: CallerPort
    head: RequestHead
    payload: BodyQueue
    raw: RawHeaders  #: the fields, as received
    minor: int  #: 1 or 0, of the HTTP version
    target: bytes  #: byte for byte as received
    started: float  #: by ``perf_counter``: the loop's own clock has steps of a millisecond
    close: bool  #: the connection ends with this answer
    request_id: str = ""
    answer_fields: bytes = b""  #: of ours, to be written into the head of the final answer
    trace: Trace | None = None
    timing: Timing | None = None  #: of the steps of a matched request
    endpoint: Endpoint | None = None  #: which the rules found
    match: Match | None = None
    passed: PassRule | None = None  #: the rule that lets it pass
    #: the label of the rule that its body chose among several; empty: as if none named it
    chosen: str | None = None
    #: the shape of its path, where no rule names it and that is to be told
    unruled: Unruled | None = None
    sample: Sample | None = None  #: sample of a passing request
    reservation: Reservation | None = None  #: room that its body takes while it is held whole
    pending: PendingReply | None = None  #: the exchange that the task is to go on with
    began: bool = False  #: the head of the final answer is written
    lasting: bool = False  #: the answer is a stream, which ends with its caller
    status: int = 0
    size: int = 0  #: bytes of body written

    def find(self, rule: Match | PassRule | None) -> None:
        """Set the rule of the request."""
        self.match = rule if isinstance(rule, Match) else None
        self.passed = rule if isinstance(rule, PassRule) else None

    @property
    def gone(self) -> bool:
        """Whether the caller has left."""
        return self.connection.transport is None

    def begin(self, status: int) -> None:
        """The head of the final answer is about to be written.

        A body still on its way would be read as the next request.
        """
        self.began = True
        self.status = status
        if not self.payload.done:
            self.close = True

    def write(self, data: bytes) -> None:
        """Send bytes to the caller; nothing happens if the caller has gone."""
        transport = self.connection.transport
        if transport is not None:
            if self.answer_fields and self.began:
                data = self.with_fields(data)
            transport.write(data)

    def with_fields(self, data: bytes) -> bytes:
        """The first bytes of the final answer, our fields first; others of their names go."""
        fields, self.answer_fields = self.answer_fields, b""
        head, _, body = data.partition(b"\r\n\r\n")
        status, *lines = head.split(b"\r\n")
        name = fields.partition(b":")[0].lower()
        lines = [line for line in lines if line.partition(b":")[0].lower() != name]
        return b"\r\n".join([status, fields[:-2], *lines]) + b"\r\n\r\n" + body

    async def drained(self, seconds: float) -> None:
        """Return when the caller takes bytes again; at once if it does.

        Raises ``TimeoutError`` after so long.
        """
        connection = self.connection
        if connection.writing_paused:
            async with asyncio.timeout(seconds):
                await connection.drained()

    @property
    def unsent(self) -> int:
        """Bytes written for the caller that it did not take yet, as far as the system tells."""
        transport = self.connection.transport
        return transport.get_write_buffer_size() if transport is not None else 0

    def cut(self) -> None:
        """End the connection so that the caller sees that the answer is incomplete."""
        transport = self.connection.transport
        if transport is not None:
            tcp = transport.get_extra_info("socket")
            if tcp is not None:
                tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            transport.abort()


#: Bytes that a caller may leave untaken without a wait, and its minimum pace in bytes a second.
WRITE_BUFFER: Final = 64 * 1024
_SLOWEST: Final = 8 * 1024

#: Fields that frame or route a message mean nothing after it (RFC 9110 section 6.5.1).
_NEVER_TRAILERS: Final = frozenset(
    {b"content-length", b"content-encoding", b"content-type", b"content-range", b"host", b"trailer"}
)


def pass_interim(incoming: RequestContext, status: int, reason: bytes, headers: RawHeaders) -> None:
    """Pass an interim answer (1xx) on; callers of HTTP/1.0 do not know such."""
    if incoming.minor == 1 and not incoming.began:
        fields = encode_fields(response_fields(headers, NONE, status, 1))
        incoming.write(b"HTTP/1.1 %d %b\r\n%b\r\n" % (status, reason, fields))


def begin_response(incoming: RequestContext, head: ResponseHead, framing: Framing) -> bytes:
    """The head of the application's answer; decides whether the connection stays open."""
    minor = incoming.minor
    incoming.begin(head.status)
    if framing is CLOSE or (framing is CHUNKED and minor == 0):
        incoming.close = True
    usual = minor == 1 and not incoming.close and framing is LENGTH
    if usual and head.wire is not None:
        return head.wire
    if head.verbatim and (minor or not head.chunked) and not (head.status == 204 and head.chunked):
        fields = head.forwarded()
    else:
        fields = encode_fields(response_fields(head.headers, framing, head.status, minor))
    if framing is TUNNEL:
        tail = b"\r\n"
    elif incoming.close:
        tail = b"Connection: close\r\n\r\n"
    else:
        tail = b"\r\n" if minor else b"Connection: keep-alive\r\n\r\n"
    whole = b"HTTP/1.1 %d %b\r\n%b%b" % (head.status, head.reason, fields, tail)
    if usual:
        head.wire = whole
    return whole


async def stream(incoming: RequestContext, reply: UpstreamResponse, write_timeout: float) -> None:
    """Pass the answer on as it arrives, no faster than the caller takes it.

    Raises ``UpstreamFault`` if the application breaks off, ``TimeoutError`` if the caller takes
    nothing for ``write_timeout`` seconds.
    """
    incoming.write(begin_response(incoming, reply.head, reply.framing))
    chunked = reply.framing is CHUNKED and incoming.minor == 1
    sample = incoming.sample
    while piece := await reply.read():
        if incoming.gone:
            return
        incoming.size += len(piece)
        if sample is not None:
            sample.take(piece)
        incoming.write(frame(piece) if chunked else piece)
        await incoming.drained(write_timeout)
    if chunked:
        incoming.write(_last(reply.head.status, reply.trailers))


def _last(status: int, trailers: RawHeaders) -> bytes:
    """The end of a chunked body."""
    if not trailers:
        return b"0\r\n\r\n"
    fields = [field for field in trailers if field[0].lower() not in _NEVER_TRAILERS]
    return b"0\r\n%b\r\n" % encode_fields(response_fields(tuple(fields), NONE, status, 0))


def whole_response(
    incoming: RequestContext,
    head: ResponseHead,
    framing: Framing,
    body: bytes,
    trailers: RawHeaders = (),
) -> None:
    """Write the application's unchanged answer, whose whole body is there."""
    start = begin_response(incoming, head, framing)
    incoming.size += len(body)
    if framing is CHUNKED and incoming.minor == 1:
        body = (frame(body) if body else b"") + _last(head.status, trailers)
    incoming.write(start + body)


async def drain(incoming: RequestContext, write_timeout: float) -> None:
    """Wait until the caller has taken its bytes, but for a rest.

    Raises ``TimeoutError`` if it is too slow.

    Nearly always nothing but a rest is unsent, and this need not be called. ``write_timeout`` is
    the time in which a caller takes a part worth waiting for.
    """
    least = int(_SLOWEST * write_timeout)
    while (before := incoming.unsent) > WRITE_BUFFER:
        try:
            await incoming.drained(write_timeout)
            return
        except TimeoutError:
            if incoming.unsent > before - least:
                raise


def restored(
    incoming: RequestContext, start: tuple[int, bytes], lines: list[bytes], body: bytes
) -> None:
    """A rewritten answer, with its own fields and length.

    It starts with a status and its reason.
    """
    incoming.begin(start[0])
    if incoming.close:
        tail = b"Connection: close\r\n\r\n"
    else:
        tail = b"\r\n" if incoming.minor else b"Connection: keep-alive\r\n\r\n"
    incoming.size += len(body)
    incoming.write(b"".join((b"HTTP/1.1 %d %b\r\n" % start, *lines, tail, body)))
