"""Pass-through of requests that no rule names, streamed byte for byte."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final, cast

import msgspec

from proxy.errors import Code, VaultError
from proxy.gateway.ports import ActiveRules
from proxy.net import response
from proxy.net.caller_connection import CallerConnection
from proxy.net.coverage import Coverage, Sample
from proxy.net.coverage_report import Unruled
from proxy.net.hop_headers import RequestFields, authority, encode_fields, trailing
from proxy.net.http1.fields import BadMessageError
from proxy.net.http1.head import LENGTH, TUNNEL, Framing, RequestHead, ResponseHead
from proxy.net.reply import (
    Call,
    PendingReply,
    Tunnel,
    UpstreamAddress,
    UpstreamFault,
    UpstreamPort,
    UpstreamResponse,
)
from proxy.net.response import RequestContext
from proxy.redactor.content_coding import field
from proxy.redactor.message import RawHeaders, carries_unseen
from proxy.redactor.method_override import RouteWatch
from proxy.redactor.routing import UNNAMED
from proxy.redactor.rules import Endpoint, Unmatched

# Another protocol on a connection that began as HTTP (101): raw bytes both ways until both sides
# have ended.


class _FromCaller:
    """Carries the caller's bytes after the switch; stops reading while the application does not."""

    def __init__(self, connection: CallerConnection, tunnel: Tunnel) -> None:
        self.ended = asyncio.get_running_loop().create_future()
        self._connection = connection
        self._tunnel = tunnel
        self._waiting: asyncio.Task[None] | None = None

    def feed_data(self, data: bytes) -> None:
        self._tunnel.write(data)
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_task(self._hold())

    async def _hold(self) -> None:
        """Stop reading from the caller until the application has taken the sent bytes."""
        transport = self._connection.transport
        if transport is not None and not transport.is_closing():
            transport.pause_reading()
            await self._tunnel.drained()
            transport.resume_reading()
        self._waiting = None

    def half_closed(self) -> bool:
        """End the caller's direction: it sends nothing more; true keeps its connection open."""
        if not self.ended.done():
            self.ended.set_result(None)
            self._tunnel.write_eof()
        return True


async def relay(
    incoming: RequestContext, reply: UpstreamResponse, tunnel: Tunnel, write_timeout: float
) -> None:
    """Answer 101 and carry bytes both ways; returns when both directions ended, or one broke."""
    connection = cast("CallerConnection", incoming.connection)
    incoming.close = True
    incoming.write(response.begin_response(incoming, reply.head, reply.framing))
    caller = _FromCaller(connection, tunnel)
    connection.switch(caller.feed_data, caller.half_closed)
    try:
        while piece := await reply.read():
            incoming.size += len(piece)
            incoming.write(piece)
            await incoming.drained(write_timeout)
        transport = connection.transport
        if transport is not None and transport.can_write_eof():
            transport.write_eof()
            await caller.ended
    finally:
        tunnel.abort()


# Fast path: forward an unmatched request without a body at once.
#
# No await is needed: its connection to the application is idle, and its answer nearly always
# arrives whole, with its head. So the task of the caller's connection is not woken, which would
# cost as much as all work here. The task takes over in unusual cases: a long answer, a slow caller,
# a fault.


class PassthroughReply(PendingReply, eq=False, kw_only=True):
    """An exchange without a body that was begun as soon as the caller's bytes came."""

    incoming: RequestContext
    tell: Callable[[RequestContext, None], None]  #: at its end
    fault: Exception | None = None  #: a fault of ours while the answer was passed back

    def interim(self, status: int, reason: bytes, headers: RawHeaders) -> None:
        """Pass an interim answer on."""
        response.pass_interim(self.incoming, status, reason, headers)

    def on_complete(self, head: ResponseHead, body: bytes) -> None:
        """Pass a whole answer back without a reply, of which nobody would read."""
        if self._is_taken(len(body)):
            if self.watch.engaged:
                self.watch.answered()
            self._pass_back(head, LENGTH, body)
        else:
            super().on_complete(head, body)

    def on_response(self) -> None:
        """A whole answer that need not wait for the caller is passed on; the task does the rest."""
        reply = self.reply
        if reply is not None and reply.done and self._is_taken(reply.waiting):
            self._pass_back(reply.head, reply.framing, reply.whole or b"", reply.trailers)
        else:
            self.incoming.connection.resume(self.incoming, self)

    def _is_taken(self, size: int) -> bool:
        """Whether the caller takes so many bytes at once."""
        transport = self.incoming.connection.transport
        unsent = transport.get_write_buffer_size() if transport is not None else 0
        return size + unsent <= response.WRITE_BUFFER

    def _pass_back(
        self, head: ResponseHead, framing: Framing, body: bytes, trailers: RawHeaders = ()
    ) -> None:
        incoming = self.incoming
        try:
            response.whole_response(incoming, head, framing, body, trailers)
            self.tell(incoming, None)
        except Exception as fault:  # noqa: BLE001  # raised again by the caller's task, which tells of it
            self.fault = self.error = fault
            incoming.connection.resume(incoming, self)
        else:
            incoming.connection.answered(incoming)

    def drop(self) -> None:
        """The caller has gone."""
        super().drop()
        self.tell(self.incoming, None)


class PassthroughHandler:
    """Streams exchanges to an upstream."""

    def __init__(self, upstream: UpstreamPort, write_timeout: float) -> None:
        self._upstream = upstream
        self._write_timeout = write_timeout  #: seconds a caller may take no byte of its answer

    async def resume(self, reply: PassthroughReply) -> None:
        """Relay the answer to a started exchange, or repeat the request, as ``forward`` does."""
        if reply.fault is not None:
            raise reply.fault
        await self._carry(
            reply.incoming, msgspec.structs.replace(reply.call, interim=reply.interim), reply
        )

    async def forward(
        self,
        incoming: RequestContext,
        fields: RequestFields,
        address: UpstreamAddress,
        read: bytes | None = None,
    ) -> None:
        """Send the request on and pass the answer back; returns when the caller has taken all of it
        but a rest.

        ``read`` is the whole body, if already read; its caller then needs no permission to send it.
        """

        def interim(status: int, reason: bytes, headers: RawHeaders) -> None:
            if read is None or status != 100:
                response.pass_interim(incoming, status, reason, headers)

        body = body_of(incoming) if read is None else read
        if incoming.endpoint is not None and incoming.endpoint.rest_routes:
            coded = field(incoming.raw, b"content-encoding")
            body = RouteWatch(incoming.head.values(b"content-type"), coded).of(body)
        call = Call(
            address,
            incoming.head.method,
            forwarded_head(incoming, fields, address),
            body if incoming.sample is None else incoming.sample.asking(body),
            fields.chunked,
            fields.upgrade,
            interim,
            trailers=partial(trailers_of, incoming) if fields.chunked else None,
        )
        await self._carry(incoming, call)

    async def _carry(
        self, incoming: RequestContext, call: Call, pending: PassthroughReply | None = None
    ) -> None:
        try:
            reply = await self._upstream.send(call, pending)
        except BadMessageError:
            raise VaultError(
                Code.BAD_REQUEST, "The body of the request is not framed as its head says."
            ) from None
        except UpstreamFault as fault:
            if fault.starved:
                raise VaultError(
                    Code.REQUEST_TIMEOUT, "The body of the request did not arrive in time."
                ) from None
            raise
        if incoming.sample is not None:
            incoming.sample.begin(reply.head.headers)
        body = reply.whole
        if body is not None:
            if incoming.sample is not None:
                incoming.sample.take(body)
            response.whole_response(incoming, reply.head, reply.framing, body, reply.trailers)
            if incoming.unsent > response.WRITE_BUFFER:
                await response.drain(incoming, self._write_timeout)
            return
        try:
            if reply.framing is TUNNEL:
                await relay(incoming, reply, self._upstream.tunnel(reply), self._write_timeout)
            else:
                await response.stream(incoming, reply, self._write_timeout)
            await response.drain(incoming, self._write_timeout)
        except (UpstreamFault, BadMessageError, TimeoutError):
            incoming.cut()
            raise
        finally:
            reply.abort()


def forwarded_head(
    incoming: RequestContext, fields: RequestFields, address: UpstreamAddress
) -> bytes:
    """The request's head for the application: the caller's bytes if no field is hop-by-hop."""
    head = incoming.head
    always = (fields is head.apart or fields.headers is head.headers) and head.host is not None
    if always and head.wire is not None:
        return head.wire
    block = head.block if fields.headers is head.headers else encode_fields(fields.headers)
    if head.host is None:
        block += b"Host: %b\r\n" % address.authority
    whole = b"%b %b HTTP/1.1\r\n%b\r\n" % (head.method.encode("ascii"), incoming.target, block)
    if always:
        head.wire = whole
    return whole


def body_of(incoming: RequestContext) -> bytes | AsyncIterator[bytes]:
    """The body as bytes if it came together with the head, else as a stream."""
    payload = incoming.payload
    if payload.done:
        return payload.take()
    return payload.pieces()


def trailers_of(incoming: RequestContext) -> bytes:
    """Encode the trailers of a chunked body for the application, once the body has ended."""
    return encode_fields(trailing(incoming.payload.trailers))


# Fate of unmatched requests, and their report.

_DENIED = "No rule names this request, and the endpoint answers only what its rules name."

#: Reports that browsers send by themselves (CSP, Reporting API): they tell the addresses of pages.
_REPORTS: Final = frozenset({"application/csp-report", "application/reports+json"})
_REPORT: Final = (
    "A report of a browser tells the address of a page, and here addresses hold what people search "
    "for. Write an operation for it, with 'pass: true' if its values may leave."
)


def look_unnamed(
    rules: ActiveRules, coverage: Coverage | None, incoming: RequestContext, endpoint: Endpoint
) -> None:
    """Refuse a request that no rule names (``VaultError``), or sample it while it passes."""
    head = incoming.head
    denied = _DENIED if endpoint.unmatched is Unmatched.DENY else None
    bodied, types = bool(head.length or head.chunked), _media_types(head)
    if denied is None and (head.upgrade or carries_unseen(head.method, types, bodied=bodied)):
        ruled = rules.ruled(authority(incoming.target, head.host), incoming.target)
        denied = UNNAMED if ruled else None
    if denied is None and endpoint.searched and not _REPORTS.isdisjoint(types):
        denied = _REPORT
    if denied is not None:
        if coverage is not None:  # else the missing rule would stay unknown
            incoming.unruled = coverage.find(endpoint.name, head.method, incoming.target)
        raise VaultError(Code.OPERATION_DENIED, denied)
    unruled = incoming.unruled = unruled_shape(coverage, incoming, endpoint)
    if unruled is not None and not unruled.settled:
        incoming.sample = Sample(incoming.target, incoming.raw)


def unruled_shape(
    coverage: Coverage | None, incoming: RequestContext, endpoint: Endpoint
) -> Unruled | None:
    """The shape of a path that no rule names, where that is to be told."""
    if (
        coverage is None
        or incoming.passed is not None
        or endpoint.unmatched is not Unmatched.REPORT
    ):
        return None
    return coverage.find(endpoint.name, incoming.head.method, incoming.target)


def _media_types(head: RequestHead) -> list[str]:
    return [one.partition(";")[0].strip().lower() for one in head.values(b"content-type")]
