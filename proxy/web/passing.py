"""What no rule names: request and answer streamed through, byte for byte, as if the proxy were not there."""

from collections.abc import AsyncIterator
from functools import partial

import msgspec
from aiohttp.web_protocol import RequestPayloadError

from proxy.errors import Code, VaultError
from proxy.redactor.message import RawHeaders
from proxy.web import relay, writer
from proxy.web.forwarding import Asked, encode, trailing
from proxy.web.incoming import Incoming
from proxy.web.quick import Quick
from proxy.web.upstream.port import TUNNEL, Address, Call, Upstream, UpstreamFault


class Passing:
    """Streams exchanges to an upstream."""

    def __init__(self, upstream: Upstream, patience: float) -> None:
        self._upstream = upstream
        self._patience = patience  #: seconds a caller may take no byte of its answer

    async def go_on(self, quick: Quick) -> None:
        """Pass back the answer to what was begun, or send the request once more: as ``forward`` does."""
        if quick.fault is not None:
            raise quick.fault
        await self._carry(quick.incoming, msgspec.structs.replace(quick.call, interim=quick.interim), quick)

    async def forward(self, incoming: Incoming, asked: Asked, address: Address, read: bytes | None = None) -> None:
        """Send the request on and pass the answer back; returns when the caller has taken all of it but a rest.

        ``read`` is the whole body, if somebody has read it already; its caller then needs no leave to send it.
        """

        def interim(status: int, reason: bytes, headers: RawHeaders) -> None:
            if read is None or status != 100:
                writer.interim(incoming, status, reason, headers)

        body = body_of(incoming) if read is None else read
        call = Call(
            address,
            incoming.head.method,
            head_of(incoming, asked, address),
            body if incoming.sample is None else incoming.sample.asking(body),
            asked.chunked,
            asked.upgrade,
            interim,
            trailers=partial(trailers_of, incoming) if asked.chunked else None,
        )
        await self._carry(incoming, call)

    async def _carry(self, incoming: Incoming, call: Call, begun: Quick | None = None) -> None:
        try:
            reply = await self._upstream.send(call, begun)
        except RequestPayloadError:
            raise VaultError(Code.BAD_REQUEST, "The body of the request is not framed as its head says.") from None
        except UpstreamFault as fault:
            if fault.starved:
                raise VaultError(Code.REQUEST_TIMEOUT, "The body of the request did not arrive in time.") from None
            raise
        if incoming.sample is not None:
            incoming.sample.begin(reply.head.headers)
        body = reply.whole
        if body is not None:
            if incoming.sample is not None:
                incoming.sample.take(body)
            writer.whole(incoming, reply, body)
            if incoming.unsent > writer.REST:
                await writer.taken(incoming, self._patience)
            return
        try:
            if reply.framing is TUNNEL:
                await relay.relay(incoming, reply, self._upstream.tunnel(reply), self._patience)
            else:
                await writer.stream(incoming, reply, self._patience)
            await writer.taken(incoming, self._patience)
        except (UpstreamFault, RequestPayloadError, TimeoutError):
            incoming.cut()
            raise
        finally:
            reply.abort()


def head_of(incoming: Incoming, asked: Asked, address: Address) -> bytes:
    """The head of the request for the application: the very bytes of the caller where no field concerns its connection."""
    head = incoming.head
    always = (asked is head.apart or asked.headers is head.headers) and head.host is not None
    if always and head.wire is not None:
        return head.wire
    fields = head.block if asked.headers is head.headers else encode(asked.headers)
    if head.host is None:
        fields += b"Host: %b\r\n" % address.authority
    whole = b"%b %b HTTP/1.1\r\n%b\r\n" % (head.method.encode("ascii"), incoming.target, fields)
    if always:
        head.wire = whole
    return whole


def body_of(incoming: Incoming) -> bytes | AsyncIterator[bytes]:
    """The body as bytes if it came together with the head, else as a stream."""
    payload = incoming.payload
    if payload.is_eof():
        return payload.read_nowait()
    return payload.iter_any()


def trailers_of(incoming: Incoming) -> bytes:
    """What followed a body in chunks, for the application; known when the body has ended."""
    return encode(trailing(incoming.payload.trailers))
