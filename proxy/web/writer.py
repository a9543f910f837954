"""Answers written to the caller's transport as bytes: in order, in their own spelling, as soon as they are there."""

from typing import Final

from proxy.errors import VaultError
from proxy.redactor.codecs import coding
from proxy.redactor.message import RawHeaders
from proxy.web import own
from proxy.web.forwarding import answered, encode
from proxy.web.incoming import Incoming
from proxy.web.upstream.chunks import frame
from proxy.web.upstream.port import CHUNKED, CLOSE, LENGTH, NONE, TUNNEL, Reply

#: What a caller may leave untaken without being waited for, and the slowest that one is waited for, in bytes a second.
REST: Final = 64 * 1024
_SLOWEST: Final = 8 * 1024

#: Fields that frame or route a message mean nothing after it (RFC 9110 section 6.5.1).
_NEVER_TRAILERS: Final = frozenset(
    {b"content-length", b"content-encoding", b"content-type", b"content-range", b"host", b"trailer"}
)


def interim(incoming: Incoming, status: int, reason: bytes, headers: RawHeaders) -> None:
    """Pass an interim answer (1xx) on; callers of HTTP/1.0 do not know such."""
    if incoming.minor == 1 and not incoming.began:
        fields = encode(answered(headers, NONE, status, 1))
        incoming.write(b"HTTP/1.1 %d %b\r\n%b\r\n" % (status, reason, fields))


def refuse(incoming: Incoming, status: int, error: VaultError) -> None:
    """Answer in the proxy's own name."""
    incoming.begin(status)
    accept = coding.field(incoming.raw, b"accept")
    whole = own.answer(status, error, head=incoming.head.method == "HEAD", close=incoming.close, accept=accept)
    incoming.size += len(whole) - whole.index(b"\r\n\r\n") - 4
    incoming.write(whole)


def begin(incoming: Incoming, reply: Reply) -> bytes:
    """The head of the application's answer, for this caller; decides whether the connection goes on."""
    minor = incoming.minor
    framing = reply.framing
    head = reply.head
    incoming.begin(head.status)
    if framing is CLOSE or (framing is CHUNKED and minor == 0):
        incoming.close = True
    usual = minor == 1 and not incoming.close and framing is LENGTH
    if usual and head.wire is not None:
        return head.wire
    if head.plain and (minor or not head.chunked) and not (head.status == 204 and head.chunked):
        fields = head.forwarded()
    else:
        fields = encode(answered(head.headers, framing, head.status, minor))
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


async def stream(incoming: Incoming, reply: Reply, patience: float) -> None:
    """Pass the answer on as it arrives, no faster than the caller takes it.

    Raises ``UpstreamFault`` if the application breaks off, ``TimeoutError`` if the caller takes nothing for ``patience``
    seconds.
    """
    incoming.write(begin(incoming, reply))
    chunked = reply.framing is CHUNKED and incoming.minor == 1
    sample = incoming.sample
    while piece := await reply.read():
        if incoming.gone:
            return
        incoming.size += len(piece)
        if sample is not None:
            sample.take(piece)
        incoming.write(frame(piece) if chunked else piece)
        await incoming.drained(patience)
    if chunked:
        incoming.write(_last(reply))


def _last(reply: Reply) -> bytes:
    if not reply.trailers:
        return b"0\r\n\r\n"
    kept = [field for field in reply.trailers if field[0].lower() not in _NEVER_TRAILERS]
    return b"0\r\n%b\r\n" % encode(answered(tuple(kept), NONE, reply.head.status, 0))


def whole(incoming: Incoming, reply: Reply, body: bytes) -> None:
    """The application's answer as it came, of which the whole body is there."""
    start = begin(incoming, reply)
    incoming.size += len(body)
    if reply.framing is CHUNKED and incoming.minor == 1:
        body = (frame(body) if body else b"") + _last(reply)
    incoming.write(start + body)


async def taken(incoming: Incoming, patience: float) -> None:
    """Return when the caller has taken what was written for it, but for a rest. Raises ``TimeoutError`` if it is too slow.

    Nearly always nothing but a rest is unsent, and this need not be called. ``patience`` is the time in which a caller
    takes a part worth waiting for.
    """
    least = int(_SLOWEST * patience)
    while (before := incoming.unsent) > REST:
        try:
            await incoming.drained(patience)
            return
        except TimeoutError:
            if incoming.unsent > before - least:
                raise


def restored(incoming: Incoming, start: tuple[int, bytes], lines: list[bytes], body: bytes) -> None:
    """A rewritten answer, with its own fields and length; it starts with a status and its reason."""
    incoming.begin(start[0])
    if incoming.close:
        tail = b"Connection: close\r\n\r\n"
    else:
        tail = b"\r\n" if incoming.minor else b"Connection: keep-alive\r\n\r\n"
    incoming.size += len(body)
    incoming.write(b"".join((b"HTTP/1.1 %d %b\r\n" % start, *lines, tail, body)))
