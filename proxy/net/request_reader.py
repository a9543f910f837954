"""Requests out of the bytes of one caller's connection: heads, bodies and what is pipelined behind
them, in order.

It stands where aiohttp's parser would stand, and answers to the same names, so that aiohttp's
server keeps the connection. Nothing is read twice: a head waits until it is whole, a body is handed
on as it comes.
"""

import asyncio
import re
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from proxy.errors import Code, VaultError
from proxy.net.errors import STATUS
from proxy.net.framing import ChunkReader
from proxy.net.http1 import (
    BadAnswerError,
    BadRequestError,
    Heads,
    RequestHead,
    check_start,
    parse_request_head,
)
from proxy.net.request import EMPTY, BodyQueue, Flow
from proxy.net.response import PROBLEM, document

#: A request and its body; or why what came is no request, and whatever came behind that.
Message = tuple[RequestHead | BadRequestError, BodyQueue]

#: Empty lines; taken off in one step, for a megabyte may hold half a million.
_NOTHING: Final = re.compile(rb"\A(?:\r\n)+")

#: Requests read ahead of the one that is handled; more wait as bytes.
_AHEAD: Final = 32

#: Bytes of a head that is remembered: ten thousand idle connections do so.
_REMEMBERED: Final = 4096

# What the next bytes are.
_HEAD: Final = 0
_LENGTH: Final = 1
_CHUNKED: Final = 2
_UPGRADE: Final = 3  #: perhaps another protocol: nobody knows until the request before is answered
_DEAD: Final = 4  #: whatever: the connection ends


#: No head at all: none is without bytes.
_UNSEEN: Final = (b"", RequestHead(("", b"", 1), b"", ()))


class RequestReader:
    """See the module. ``flow`` is the connection."""

    __slots__ = (
        "_ahead",
        "_body",
        "_chunks",
        "_flow",
        "_held",
        "_last",
        "_left",
        "_limits",
        "_scanned",
        "_state",
        "_upgrading",
    )

    def __init__(self, flow: Flow, limits: Heads) -> None:
        self._flow = flow
        self._limits = limits
        self._state = _HEAD
        self._held = bytearray()  #: the beginning of a head, or requests that are too far ahead
        self._scanned = 0  #: so much of it holds no end of a head
        self._ahead = 0
        self._body: BodyQueue = EMPTY
        self._left = 0
        self._chunks: ChunkReader | None = None
        self._upgrading = False
        #: The last head and its bytes: one that is the same to the byte need not be read again. Not
        #: where it is long, or its target has a query: nothing that somebody searched for stays in
        #: memory for that.
        self._last: tuple[bytes, RequestHead] = _UNSEEN

    @property
    def midway(self) -> bool:
        """Whether the last request read has a body that is not complete."""
        return self._state in (_LENGTH, _CHUNKED)

    @property
    def in_head(self) -> bool:
        """Whether a head has begun and is not complete."""
        return self._state == _HEAD and bool(self._held)

    # ------------------------------------------------ the names that aiohttp's server calls

    def feed_data(self, data: bytes) -> tuple[list[Message], bool, bytes]:
        """The requests that begin in these bytes; whether another protocol may follow; and the
        bytes of that.
        """
        messages: list[Message] = []
        if self._state == _UPGRADE:
            # it did not come to that: aiohttp holds the bytes back until it is known
            self._state = _HEAD
        while data or self._held:
            if self._state == _HEAD:
                rest = self._on_head(data, messages)
                if rest is None:
                    break
                data = rest
            elif self._state == _LENGTH:
                data = self._on_length(data)
            elif self._state == _CHUNKED:
                data = self._on_chunks(data)
            else:
                if self._state == _DEAD and data:
                    self._body.feed_data(data)  # that nobody will read
                break
            if not data:
                break
        if self._state == _UPGRADE:
            return messages, True, data
        return messages, False, b""

    def message_consumed(self) -> None:
        """One of the requests given is being handled."""
        self._ahead -= 1

    def pause_reading(self) -> None:
        """A body is full. What this reader was given, it has handed on; the transport pauses."""

    def feed_eof(self) -> None:
        """Nothing more comes."""
        self._broken("the connection ended before the body did")

    # ------------------------------------------------ reading

    def _on_head(self, data: bytes, messages: list[Message]) -> bytes | None:
        """Read a head at the beginning of what is held and ``data``; gives what is behind it,
        ``None`` if it is not whole.
        """
        held = self._held
        if held or self._ahead >= _AHEAD:
            held += data
            if self._ahead >= _AHEAD:
                return None
            end = held.find(b"\r\n\r\n", self._scanned)
            if end >= 0 or held[:1] == b"\r":
                data = bytes(held)
                held.clear()
        else:
            end = data.find(b"\r\n\r\n")
        try:
            # empty lines before a request are read over (RFC 9112 section 2.2)
            if data[:1] == b"\r":
                data = _NOTHING.sub(b"", data, 1)
                end = data.find(b"\r\n\r\n")
            if end < 0:
                self._hold(data)
                return None
            self._scanned = 0
            if end > self._limits.whole:
                check_start(data[:end], self._limits)  # says which limit it is over
            raw, head = self._last
            if not raw or len(raw) != end or not data.startswith(raw):
                head = parse_request_head(data, end, self._limits)
                self._last = (
                    _UNSEEN if end > _REMEMBERED or b"?" in head.target else (data[:end], head)
                )
        except BadRequestError as why:
            self._state = _DEAD
            held.clear()
            self._body = BodyQueue(self._flow)
            messages.append((why, self._body))
            return None
        return self._begin(head, data[end + 4 :], messages)

    def _hold(self, data: bytes) -> None:
        """Keep what is no whole head yet, if it may become one."""
        held = self._held
        if not held:
            held += data
        self._scanned = max(0, len(held) - 3)
        if held and held != b"\r":
            check_start(held, self._limits)

    def _begin(self, head: RequestHead, rest: bytes, messages: list[Message]) -> bytes:
        """A head is there: its body begins, or the next request."""
        self._ahead += 1
        self._upgrading = head.upgrade
        if head.chunked:
            body = BodyQueue(self._flow)
            self._chunks = ChunkReader(self._limits.whole // 4)
            self._state = _CHUNKED
        elif len(rest) >= head.length:
            body = BodyQueue(None, rest[: head.length]) if head.length else EMPTY
            rest = rest[head.length :]
            self._end()
        else:
            body = BodyQueue(self._flow)
            self._left = head.length
            self._state = _LENGTH
        self._body = body
        messages.append((head, body))
        return rest

    def _on_length(self, data: bytes) -> bytes:
        here = data if len(data) <= self._left else data[: self._left]
        self._left -= len(here)
        body = self._body
        if here:
            body.feed_data(here)
        if not self._left:
            self._end()
            body.feed_eof()
        return data[len(here) :]

    def _on_chunks(self, data: bytes) -> bytes:
        reader, body = cast("ChunkReader", self._chunks), self._body
        try:
            pieces = reader.feed(data)
        except BadAnswerError:
            self._broken("the body is not framed as its head says")
            return b""
        if pieces:
            body.feed_data(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if not reader.done:
            return b""
        body.trailers = reader.trailers
        self._end()
        body.feed_eof()
        return reader.rest

    def _end(self) -> None:
        self._chunks = None
        self._state = _UPGRADE if self._upgrading else _HEAD

    def _broken(self, why: str) -> None:
        """The body under way will never be complete; where the next request begins, nobody knows."""
        self._body.set_exception(RequestPayloadError(why))
        self._state = _DEAD
        self._held.clear()


# A connection of aiohttp's server that has to ask for something in time, and again for each further
# request.
#
# The library itself waits for ever for the first head of a connection, and for as long as it keeps
# an idle one for what follows a head that was begun. Nor does it tell what it cannot read from what
# is too large, and its answers quote the request.


#: Seconds that the head of a request may take, from the beginning of its connection or from its own
#: first byte.
HEAD_SECONDS: Final = 10.0

#: Seconds for which a connection without a request is kept, and for which a body that nobody wants
#: may go on arriving.
_KEEP_SECONDS: Final = 75.0
_LINGER_SECONDS: Final = 5.0

#: Bytes behind a head that was refused that are read and forgotten, and seconds of silence among
#: them: a caller that is still sending would see its connection reset in place of the answer.
_LINGER_BYTES: Final = 256 * 1024 * 1024
_LINGER_IDLE: Final = 2.0

#: Bounds of a head, in bytes and fields. The library has one exception for both lengths; it names
#: the limit, so they differ.
_TARGET: Final = 16384
_FIELD: Final = 8190
_FIELDS: Final = 128

FAILED: Final = VaultError(Code.INTERNAL, "The service failed; its log names the place.")
_UNREAD: Final = VaultError(Code.BAD_REQUEST, "This is not HTTP as it is understood here.")
_LONG_TARGET: Final = VaultError(
    Code.URI_TOO_LONG, f"The target of the request is longer than {_TARGET} bytes."
)
_LONG_FIELD: Final = VaultError(
    Code.HEADER_TOO_LARGE, f"A field of the head is longer than {_FIELD} bytes."
)
_MANY_FIELDS: Final = VaultError(Code.HEADER_TOO_LARGE, f"The head has more than {_FIELDS} fields.")


class PatientConnection(RequestHandler):
    """``options`` are those of aiohttp's ``RequestHandler``.

    Requests are not listed: their paths hold keys of people.
    """

    __slots__ = ("_begun_at", "_forgotten", "_make", "_more", "waiting")

    def __init__(self, server: web.Server, **options: Any) -> None:
        fixed: dict[str, Any] = {
            "keepalive_timeout": _KEEP_SECONDS,
            "lingering_time": _LINGER_SECONDS,
        }
        fixed |= {"max_line_size": _TARGET, "max_field_size": _FIELD, "max_headers": _FIELDS}
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # none is what aiohttp documents
            **fixed,
            **options,
        )
        #: ends the connection unless a head is complete by then
        self.waiting: asyncio.TimerHandle | None = None
        self._begun_at = asyncio.get_running_loop().time()
        #: bytes that came behind what was refused, and a sign of each; ``None``: nothing was
        self._forgotten = 0
        self._more: asyncio.Event | None = None
        self._make = self._request_factory
        self._request_factory = self.request

    @property
    def idle_since(self) -> float | None:
        """In loop time, since when no request is under way; ``None``: one is."""
        waiter = self._waiter
        if waiter is None or waiter.done() or self._current_request is not None:
            return None
        return max(self._begun_at, self._next_keepalive_close_time - _KEEP_SECONDS)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A caller is there, and has to ask for something in time."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The caller has gone."""
        self._heard()
        super().connection_lost(exc)
        if self._more is not None:
            self._more.set()

    def data_received(self, data: bytes) -> None:
        """Bytes of the caller.

        Where they begin a head and do not end it, the rest has to come in time.
        """
        if self._more is not None:
            self._forgotten += len(data)
            self._more.set()
            return
        super().data_received(data)
        idle = self._waiter
        if self.waiting is None and idle is not None and not idle.done():
            self._wait()

    def request(self, message: Any, *parts: Any) -> web.BaseRequest:
        """The request object of a head that is complete; called by the library."""
        self._heard()
        if self._make is None:
            raise RuntimeError("the server of this connection makes no requests")
        return self._make(message, *parts)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer; where it refuses what cannot be read, wait until the caller has seen it."""
        finished = await super().finish_response(request, resp, start_time)
        if self._more is not None:
            await self._linger(self._more)
        return finished

    async def _linger(self, more: asyncio.Event) -> None:
        """Read and forget what nobody wants, within bounds."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _LINGER_SECONDS
        if self.transport is not None and self.transport.can_write_eof():
            self.transport.write_eof()
        try:
            while self.transport is not None and self._forgotten < _LINGER_BYTES:
                async with asyncio.timeout_at(min(until, loop.time() + _LINGER_IDLE)):
                    await more.wait()
                more.clear()
        except TimeoutError:
            return

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what is no request, or failed: a problem document that quotes nothing."""
        del request, message
        if status >= 500:
            self.log_exception("unhandled", exc_info=exc)
        else:
            self._more = asyncio.Event()
        error = FAILED if status >= 500 else _fault(exc)
        status = STATUS[error.code]
        headers = {"Content-Type": PROBLEM, "Server": "domicile"}
        response = web.Response(status=status, body=document(status, error), headers=headers)
        response.force_close()
        return response

    def _wait(self) -> None:
        if self.transport is not None:
            self.waiting = asyncio.get_running_loop().call_later(HEAD_SECONDS, self.transport.close)

    def _heard(self) -> None:
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None


def _fault(exc: BaseException | None) -> VaultError:
    """What the parser of the library found wrong."""
    if isinstance(exc, LineTooLong):
        return _LONG_TARGET if exc.args[1] == _TARGET else _LONG_FIELD
    if isinstance(exc, HttpProcessingError) and exc.message == "Too many headers received":
        return _MANY_FIELDS
    return _UNREAD
