"""Callers' connections to the proxy listener: their requests in order, answered as bytes.

aiohttp's parser would lose trailers and refuse harmless messages, and its answers would change
bytes. So ``http1.reader`` reads, and all bytes to the caller are written to the transport
unchanged. A request begins as soon as its bytes are there; the task of its connection takes over
whatever has to wait.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Final, cast

from aiohttp import web

from proxy.errors import Code, VaultError
from proxy.net import problem
from proxy.net.http1.body import REQUEST_BUFFER, BodyQueue
from proxy.net.http1.fields import BadMessageError
from proxy.net.http1.head import Heads
from proxy.net.http1.reader import READ_AHEAD, Message, RequestReader
from proxy.net.problem import STATUS
from proxy.net.reply import LATER, PendingReply
from proxy.net.response import RequestContext
from proxy.net.server import ON_ITS_WAY, BareConnection
from proxy.telemetry import logs

_log = logs.logger("web")

#: A caller that ends its side later than so many seconds after its last byte has left; earlier it
#: may only mean that nothing more follows, and wait for its answer (RFC 9112 section 9.6).
_HALF_CLOSE_SECONDS: Final = 1.0
#: Writes the whole answer to a request, or raises.
ContextHandler = Callable[[RequestContext], Awaitable[None]]
#: Starts the exchange of a request, if that needs no wait. It does not raise. The exchange then
#: ends with a call of ``answered`` or ``resume``; otherwise the request goes to the
#: ``ContextHandler``. ``LATER``: it is to be asked again when the body is there.
Beginner = Callable[[RequestContext], "PendingReply | None"]


class CallerConnection(BareConnection):
    """A connection of a caller: requests in order, errors for non-HTTP, half-open tunnels."""

    __slots__ = (
        *("_pending", "_body_full", "_clock", "_current", "_ending", "_last_bytes", "_no_more"),
        *("_queue", "_queue_full", "_reader", "_reading_stopped", "_runner", "_server", "_feed"),
        *("_turn", "_turn_waiter", "_on_eof", "_awaiting"),
    )

    def __init__(self, server: "CallerServer") -> None:
        super().__init__(server, server.heads.keep)
        self._server = server
        self._clock = asyncio.get_running_loop().time
        self._reader = RequestReader(self, server.heads)
        self._queue: deque[Message] = deque()  #: requests that were read and not begun
        self._current: RequestContext | None = None  #: the request under way
        self._pending: PendingReply | None = None  #: its exchange, unless the task waits for it
        self._turn: RequestContext | Message | None = None  #: request of the task
        self._turn_waiter: asyncio.Future[None] | None = None
        self._awaiting: asyncio.TimerHandle | None = None  #: while its body is on its way
        self._runner: asyncio.Task[None] | None = None
        self._last_bytes = self._clock()
        self._queue_full = self._body_full = self._reading_stopped = False
        self._ending = False  #: nothing more is begun
        self._no_more = False  #: the caller sends nothing more
        self._feed: Callable[[bytes], None] | None = None  #: takes the bytes of another protocol
        self._on_eof: Callable[[], bool] | None = None

    @property
    def busy(self) -> bool:
        """Whether a request is being handled or waits to be."""
        return self._current is not None or bool(self._queue)

    @property
    def idle_since(self) -> float | None:
        """In loop time, since when no request is under way; ``None``: one is, or still arrives."""
        return None if self._turn is not None else super().idle_since

    @property
    def head_seconds(self) -> float:
        return self._server.heads.seconds

    # ------------------------------------------------ what the event loop calls

    def connection_lost(self, exc: BaseException | None) -> None:
        """End pass-through requests and streams; other matched ones are completed all the same."""
        super().connection_lost(exc)
        self._drop()
        if self._on_eof is not None:
            self._on_eof()
        current = self._current
        if current is not None:
            current.payload.fail(exc or ConnectionResetError("Connection lost"))
            self._awaited()
        if self._runner is not None and (not current or current.match is None or current.lasting):
            self._runner.cancel()

    def data_received(self, data: bytes) -> None:
        """Read requests, and begin the first one unless one is under way."""
        self._last_bytes = self._clock()
        if self._feed is not None:
            self._feed(data)
        elif not self._ending:
            current = self._current
            free = current is None and self._turn is None
            alone = free and not self._queue and self.waiting is None
            message = self._reader.complete_message(data) if alone else None
            if message is None:
                self._read(data)
                message = self._queue.popleft() if free and self._queue else None
                if self._awaiting is not None and current is not None and current.payload.done:
                    self._awaited()
            if message is not None:
                self._next(message)

    def eof_received(self) -> bool | None:  # type: ignore[override]  # the base always closes; here it may stay half open
        """Note that the caller sends nothing more; true: keep the connection for coming answers."""
        if self._on_eof is not None:
            return self._on_eof()
        self._no_more = True
        current = self._current
        late = self._clock() - self._last_bytes > _HALF_CLOSE_SECONDS
        begun = current is not None and (current.began or not current.payload.done)
        if not self.busy or late or begun:
            return None  # gone, or idle: no answer has begun
        if not self._queue_full:  # else requests are there that are still to be read
            self._reader.end()
        return self.transport is not None

    def pause_reading(self) -> None:
        """Pause reading of a body until the waiting bytes are taken."""
        self._body_full = True
        self._steer()

    def resume_reading(self, resume_parser: bool = True) -> None:
        del resume_parser
        self._body_full = False
        self._steer()

    def _steer(self) -> None:
        """Read from the caller, or pause, by the waiting bytes."""
        stop = self._body_full or self._queue_full
        transport = self.transport
        if stop != self._reading_stopped and transport is not None and not transport.is_closing():
            self._reading_stopped = stop
            if stop:
                transport.pause_reading()
            else:
                self._last_bytes = self._clock()  # the bytes meanwhile could not be read
                transport.resume_reading()

    # ------------------------------------------------ requests

    def _read(self, data: bytes) -> None:
        """Queue the requests that begin in these bytes."""
        reader, queue = self._reader, self._queue
        messages = reader.feed(data, READ_AHEAD - len(queue))
        if messages:
            queue.extend(messages)
            if self.waiting is not None:
                self.head_complete()
        if reader.pending:
            if self.waiting is None and reader.in_head:
                self.await_head()
            self._queue_full = len(queue) >= READ_AHEAD or len(reader.pending) > REQUEST_BUFFER
            self._steer()

    def _next(self, message: Message) -> None:
        """Begin a request; the task takes over what has to wait."""
        if self._queue_full and len(self._queue) <= READ_AHEAD // 2:
            self._read_on()
        head, payload = message
        if isinstance(head, BadMessageError):
            self._turn = message
            self._wake()
            return
        facts = head.headers, head.minor, head.target, perf_counter(), head.close
        context = self._current = RequestContext(self, head, payload, *facts)
        pending = self._server.begin(context)
        if pending is None:
            self._turn = context
            self._wake()
        elif pending is LATER:
            self._awaiting = asyncio.get_running_loop().call_later(ON_ITS_WAY, self._awaited)
        elif self._turn is None and not pending.lasting:
            self._pending = pending

    def _awaited(self) -> None:
        """Begin the request whose body is there now; the task waits for one that is not."""
        timer, self._awaiting, context = self._awaiting, None, self._current
        if timer is not None and context is not None:
            timer.cancel()
            pending = self._server.begin(context) if context.payload.done else None
            if pending is None:
                self.resume(context, None)
            elif self._turn is None and not pending.lasting:
                self._pending = pending

    def _read_on(self) -> None:
        self._queue_full = False
        self._read(b"")
        if self._no_more and not self._queue_full:
            self._reader.end()
        self._steer()

    def _wake(self) -> None:
        waiter, self._turn_waiter = self._turn_waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def answered(self, context: RequestContext) -> None:
        """Go on behind an exchange that was begun at once and has come to its end."""
        self._pending = None
        if not self._go_on(context):
            self.force_close()

    def resume(self, context: RequestContext, pending: PendingReply | None) -> None:
        """Let the task go on with an exchange that was begun at once; ``None``: do all of it."""
        context.pending = pending
        self._pending = None
        self._turn = context
        self._wake()

    async def start(self) -> None:
        """Handle whatever has to wait, until the connection ends; called by aiohttp."""
        self._runner = asyncio.current_task()
        # an exchange that was begun at once may need it still when the caller has gone
        while not self._ending or self._current is not None:
            turn = self._turn
            if turn is None:
                self._turn_waiter = asyncio.get_running_loop().create_future()
                await self._turn_waiter
            elif isinstance(turn, RequestContext):
                try:
                    await self._server.handler(turn)
                except asyncio.CancelledError:
                    self.force_close()
                    raise
                except Exception:  # noqa: BLE001  # the one catch-all: a fault of ours must not end the service
                    self._fail(turn)
                self._turn = None
                if not self._go_on(turn):
                    self._turn = turn
                    await turn.payload.linger(lambda: self.transport is None)
                    break
            else:
                await self._misread(cast("BadMessageError", turn[0]), turn[1])
                break
        self._ending = True
        if self.transport is not None:
            self.transport.close()

    def _fail(self, context: RequestContext) -> None:
        """Log what went wrong inside with one request, and answer without a word of it."""
        _log.error("a request failed inside the proxy", exc_info=True)
        context.close = True
        if context.began:
            context.cut()
        else:
            self._answer(
                500, VaultError(Code.INTERNAL, "The proxy failed; its log names the place.")
            )

    def _go_on(self, context: RequestContext) -> bool:
        """Wait for the next request, or begin it if it is there; false: that was the last one."""
        self._current = None
        if context.close or self._ending or self.transport is None:
            return False
        if context.head.upgrade:  # declined: the bytes since are the caller's next request
            self._reader.decline()
            self._read_on()
        if self._no_more and not self._queue:
            return False
        self.idle_until = self._clock() + self._server.heads.keep
        if self.idle_timer is None:
            self.start_idle_timer()
        if self._queue:
            self._next(self._queue.popleft())
        return True

    def _drop(self) -> None:
        """End the exchange that was begun at once: the caller has gone."""
        pending, self._pending = self._pending, None
        if pending is not None:
            self._current = None
            pending.drop()

    # ------------------------------------------------ ends

    async def stop(self) -> None:
        """End the connection and whatever is under way on it."""
        self.force_close()
        self._drop()
        if self._runner is not None and not self._runner.done():
            self._runner.cancel()
            await asyncio.wait([self._runner])

    def finish(self, *, idle: bool = True) -> None:
        """End the connection with the answer under way; at once if ``idle`` and so wanted."""
        if self._current is not None:
            self._current.close = True
        elif idle and not self._queue:
            self.force_close()

    def expire(self) -> None:
        """End the connection as its caller proves nothing any more, a stream at once."""
        current = self._current
        if self._feed is not None or (current is not None and current.lasting):
            self.force_close()
        else:
            self.finish()

    def force_close(self) -> None:
        """End the connection once the written bytes are sent."""
        self._ending = True
        super().force_close()
        self._wake()

    def switch(self, feed: Callable[[bytes], None], on_eof: Callable[[], bool]) -> None:
        """Speak another protocol from now on: ``feed`` gets all bytes of the caller, ``on_eof`` is
        called at their end; true: stay half open.
        """
        self._feed, self._on_eof = feed, on_eof
        if data := self._reader.switched():
            feed(data)
        self._queue_full = False
        self._steer()
        if self._no_more and not on_eof() and self.transport is not None:
            self.transport.close()

    async def _misread(self, fault: BadMessageError, rest: BodyQueue) -> None:
        """Answer an invalid request, and drop the bytes after it.

        Its end is unknown: the caller is to close.
        """
        what = (
            "This is not a request of HTTP/1.1"
            if fault.code is Code.BAD_REQUEST
            else "The request is too large"
        )
        self._answer(STATUS[fault.code], VaultError(fault.code, f"{what}: {fault}."))
        self._server.unreadable(fault.code)
        # over TLS it would end the other way as well
        if self.transport is not None and self.transport.can_write_eof():
            self.transport.write_eof()
            await rest.linger(lambda: self.transport is None)

    def _answer(self, status: int, error: VaultError) -> None:
        if self.transport is not None:
            self.transport.write(problem.own_answer(status, error, close=True))


class CallerServer(web.Server):
    """Makes a ``CallerConnection`` for each connection and lists them all.

    ``unreadable`` is called after each refusal of an invalid request, ``begin`` with each request
    that arrived whole.
    """

    def __init__(
        self,
        handler: ContextHandler,
        heads: Heads,
        unreadable: Callable[[Code], None] = lambda _: None,
        begin: Beginner = lambda _context: None,
    ) -> None:
        super().__init__(self._never)
        self.begin = begin
        self.heads = heads
        self.handler = handler
        self.unreadable = unreadable
        #: Makes the protocol of a new connection; layers before HTTP are added here.
        self.acceptor: Callable[[], asyncio.BaseProtocol] = self
        #: the sockets that listen for callers; ``listener`` fills it
        self.listeners: list[asyncio.Server] = []

    async def _never(self, request: web.BaseRequest) -> web.StreamResponse:
        raise RuntimeError(f"{request!r} was not handled by its CallerConnection")

    def __call__(self) -> CallerConnection:
        """A protocol for a new connection."""
        return CallerConnection(self)

    @property
    def callers(self) -> list[CallerConnection]:
        """The open connections."""
        return [one for one in self.connections if isinstance(one, CallerConnection)]
