"""aiohttp's server, told to hand over raw requests and to write nothing itself.

aiohttp reads requests, keeps connections alive and registers them. Its request and response objects, and the task it makes
for each request, would cost more than the rest of the gateway, and its answers would change header bytes. So requests are
handled one after the other in the task of their connection, ``Incoming`` records what came, and all bytes to the caller are
written to the transport as they are.

``CallerConnection.start`` replaces aiohttp's own loop over the requests of a connection and leans on its inner names;
``tests/unit/web/test_server.py`` holds what we rely on, and the version of aiohttp is locked.
"""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, Final

from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from proxy.errors import Code, VaultError
from proxy.redactor.message import RawHeaders
from proxy.redactor.rules import Endpoint, Match
from proxy.telemetry import logs
from proxy.web import own
from proxy.web.room import Holding

_log = logs.logger("web")

#: Seconds and bytes that a caller may go on sending a body which nobody reads any more, so that it gets to see its answer.
_LINGER_SECONDS: Final = 5.0
_LINGER_BYTES: Final = 4 * 1024 * 1024

#: Closing a socket with this option sends a reset: what was sent so far cannot be taken for a complete answer.
_RESET: Final = struct.pack("ii", 1, 0)


class Incoming:
    """One request as it came, and what was answered so far."""

    __slots__ = (
        "began",
        "close",
        "connection",
        "endpoint",
        "head",
        "held",
        "match",
        "minor",
        "payload",
        "raw",
        "size",
        "started",
        "status",
        "target",
    )

    def __init__(self, head: RawRequestMessage, payload: StreamReader, connection: "CallerConnection") -> None:
        self.connection = connection
        self.head = head
        self.payload = payload
        self.raw: RawHeaders = head.raw_headers  #: the fields, as they came
        version = head.version
        #: 1 or 0, of the HTTP version; -1 for any other version
        self.minor = 1 if version is HttpVersion11 else 0 if version is HttpVersion10 else -1
        self.target = head.path.encode("utf-8", "surrogateescape")  #: byte for byte as it came
        self.started = perf_counter()  # the loop's own clock has steps of a millisecond
        self.endpoint: Endpoint | None = None  #: which the rules found
        self.match: Match | None = None
        self.held: Holding | None = None  #: room that its body takes while it is held whole
        self.began = False  #: the head of the final answer is written
        self.status = 0
        self.size = 0  #: bytes of body written
        #: The connection ends with this answer. So it does after a request for another protocol: aiohttp's parser has
        #: stopped behind it, and what a caller sends next may already be that protocol.
        self.close: bool = head.should_close or head.upgrade

    @property
    def gone(self) -> bool:
        """Whether nobody is there to read an answer."""
        return self.connection.transport is None

    def begin(self, status: int) -> None:
        """The head of the final answer is about to be written. A body still on its way would be read as the next request."""
        self.began = True
        self.status = status
        if not self.payload.is_eof():
            self.close = True

    def write(self, data: bytes) -> None:
        """Send bytes to the caller; nothing happens if the caller has gone."""
        transport = self.connection.transport
        if transport is not None:
            transport.write(data)

    async def drained(self, seconds: float) -> None:
        """Return when the caller takes bytes again; at once if it does. Raises ``TimeoutError`` after so long."""
        connection = self.connection
        if connection.writing_paused:
            async with asyncio.timeout(seconds):
                await connection.drained()

    @property
    def unsent(self) -> int:
        """Bytes that were written for the caller and that it did not take yet, as far as the system tells."""
        transport = self.connection.transport
        return transport.get_write_buffer_size() if transport is not None else 0

    def cut(self) -> None:
        """End the connection so that the caller sees a broken answer, never a complete-looking one."""
        transport = self.connection.transport
        if transport is not None:
            tcp = transport.get_extra_info("socket")
            if tcp is not None:
                tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            transport.abort()

    def _cancel(self, error: BaseException) -> None:
        """Called by aiohttp when the caller is gone."""
        self.payload.set_exception(error)


#: What handles a request: writes the whole answer, or raises.
Handler = Callable[[Incoming], Awaitable[None]]


class CallerConnection(RequestHandler):
    """One connection of a caller: its requests in order, own answers to what is not HTTP, half-open tunnels."""

    __slots__ = ("_handler", "_runner", "_serving", "_unreadable", "on_eof")

    def __init__(self, server: "CallerServer", **options: Any) -> None:
        super().__init__(
            server,
            access_log=None,  # type: ignore[arg-type]  # none is what aiohttp itself documents
            auto_decompress=False,
            **options,
        )
        self._handler = server.handler
        self._unreadable = server.unreadable
        self._serving: Incoming | None = None
        self._runner: asyncio.Task[None] | None = None
        self.on_eof: Callable[[], bool] | None = None  #: told of the end of what the caller sends; true: stay half open

    @property
    def busy(self) -> bool:
        """Whether a request is being handled or waits to be."""
        return self._serving is not None or bool(self._messages)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A caller has come."""
        super().connection_made(transport)
        self._runner = self._task_handler

    def connection_lost(self, exc: BaseException | None) -> None:
        """The caller has gone. What passes through ends with it; what a rule names is brought to its end all the same."""
        super().connection_lost(exc)
        if self._runner is not None and (self._serving is None or self._serving.match is None):
            self._runner.cancel()

    async def stop(self) -> None:
        """End the connection and whatever is under way on it."""
        self.force_close()
        if self._runner is not None and not self._runner.done():
            self._runner.cancel()
            await asyncio.wait([self._runner])

    def finish(self) -> None:
        """End the connection: at once if it is idle, else with the answer under way."""
        if self._serving is not None:
            self._serving.close = True
        elif not self._messages:
            self.force_close()

    async def drained(self) -> None:
        """Return when the caller takes bytes again."""
        await self._drain_helper()

    async def start(self) -> None:
        """Handle the requests of this connection one after the other, until it ends."""
        while not self._force_close:
            if not self._messages:
                self._waiter = self._loop.create_future()
                await self._waiter
                self._waiter = None
            head, payload = self._messages.popleft()
            if self._parser is not None:
                self._parser.message_consumed()
            if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
                self._resume_reading_if_drained()
            if not isinstance(head, RawRequestMessage):
                self._answer(
                    400, VaultError(Code.BAD_REQUEST, "This is not a request that all readers of HTTP/1.1 agree on.")
                )
                self._unreadable()
                break
            incoming = Incoming(head, payload, self)
            await self._serve(incoming)
            if incoming.close or self._close or self._upgraded:
                if not payload.is_eof():
                    await self._linger(payload)
                break
            self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
            if self._keepalive_handle is None:
                self._keepalive_handle = self._loop.call_at(self._next_keepalive_close_time, self._process_keepalive)
        if not self._force_close:
            self._task_handler = None
            if self.transport is not None:
                self.transport.close()

    async def _serve(self, incoming: Incoming) -> None:
        """Handle one request. Whatever goes wrong inside ends here: logged by class and place, answered without a word of it."""
        self._serving = incoming
        self._current_request = incoming  # type: ignore[assignment]  # aiohttp asks it for _cancel alone
        try:
            await self._handler(incoming)
        except asyncio.CancelledError:
            self.force_close()
            raise
        except Exception:  # noqa: BLE001  # the one catch-all: a fault of ours must not end the service
            _log.error("a request failed inside the proxy", exc_info=True)
            incoming.close = True
            if incoming.began:
                incoming.cut()
            else:
                self._answer(500, VaultError(Code.INTERNAL, "The proxy failed; its log names the place."))
        finally:
            self._serving = self._current_request = None

    def data_received(self, data: bytes) -> None:
        """Bytes of the caller. After a fault aiohttp lets a body that had begun wait for ever: here it ends with an error."""
        RequestHandler.data_received(self, data)
        if self._messages and not isinstance(self._messages[-1][0], RawRequestMessage):
            begun = [payload for _, payload in self._messages]
            if self._serving is not None:
                begun.append(self._serving.payload)
            for payload in begun:
                if not payload.is_eof() and payload.exception() is None:
                    payload.set_exception(web.RequestPayloadError("the body is not framed as its head says"))

    def _answer(self, status: int, error: VaultError) -> None:
        if self.transport is not None:
            self.transport.write(own.answer(status, error, close=True))

    async def _linger(self, payload: StreamReader) -> None:
        """Read and forget a body that nobody wants, within bounds: closing at once could take the answer from the caller."""
        limit = payload.total_bytes + _LINGER_BYTES
        try:
            async with asyncio.timeout(_LINGER_SECONDS):
                while not payload.is_eof() and payload.total_bytes < limit and self.transport is not None:
                    await payload.readany()
        except (TimeoutError, OSError, web.RequestPayloadError):
            return

    def eof_received(self) -> bool | None:  # type: ignore[override]  # the base always closes; a tunnel may stay half open
        """The caller sends nothing more."""
        return self.on_eof() if self.on_eof is not None else None


class CallerServer(web.Server):
    """Makes a ``CallerConnection`` for each connection and knows them all.

    ``unreadable`` is called after each refusal of what is not a request; ``options`` are those of aiohttp's handler.
    """

    def __init__(self, handler: Handler, unreadable: Callable[[], None] = lambda: None, **options: Any) -> None:
        super().__init__(self._never)
        self.handler = handler
        self.unreadable = unreadable
        self.listeners: list[asyncio.Server] = []  #: where it is listened for callers; ``listening`` fills it
        self._options = options

    async def _never(self, request: web.BaseRequest) -> web.StreamResponse:
        raise RuntimeError(f"{request!r} was not handled by its CallerConnection")

    def __call__(self) -> CallerConnection:
        """A protocol for a new connection."""
        return CallerConnection(self, loop=self._loop, **self._options)

    @property
    def callers(self) -> list[CallerConnection]:
        """The open connections."""
        return [connection for connection in self.connections if isinstance(connection, CallerConnection)]
