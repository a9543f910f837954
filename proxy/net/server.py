"""aiohttp's server, told to read requests by our reader and to write nothing itself.

aiohttp keeps connections alive, registers them and holds back what comes too fast. Its parser would
lose trailers and refuse what harms nobody; its request and response objects, and the task it makes
for each request, would cost more than the rest of the gateway, and its answers would change header
bytes. So ``request_reader`` reads, requests are handled one after the other in the task of their
connection (but for those that need none: ``quick``), ``incoming`` records what came, and all bytes
to the caller are written to the transport as they are.

``CallerConnection.start`` replaces aiohttp's own loop over the requests of a connection and leans
on its inner names; ``tests/unit/net/test_server.py`` holds what we rely on, and the version of
aiohttp is locked.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from proxy.errors import Code, VaultError
from proxy.net import response
from proxy.net.client_address import ClientAddress, peer_of
from proxy.net.errors import STATUS
from proxy.net.http1 import BadRequestError, Heads, RequestHead
from proxy.net.reply import Begun
from proxy.net.request import EMPTY, BodyQueue, RequestContext
from proxy.net.request_reader import Message, RequestReader
from proxy.telemetry import logs

_log = logs.logger("web")

#: Seconds and bytes that a caller may go on sending what nobody reads any more, so that it gets to
#: see its answer: closing at once would reset the connection under it. Many callers read nothing
#: before they have sent everything.
_LINGER_SECONDS: Final = 10.0
_LINGER_BYTES: Final = 256 * 1024 * 1024
#: Seconds for which nothing may come of it.
_LINGER_IDLE: Final = 3.0

#: A caller that ends its side later than so many seconds after its last byte has gone away;
#: earlier, it may only have said that nothing more comes, and waits for its answer (RFC 9112
#: section 9.6).
_HALF_CLOSE_SECONDS: Final = 1.0

#: What handles a request: writes the whole answer, or raises.
ContextHandler = Callable[[RequestContext], Awaitable[None]]
#: What may send a request without a body on in the moment it came. It does not raise. The exchange
#: then ends with a call of ``answered``, or with one of ``resume``; without one, the request is
#: handled as any other.
Beginner = Callable[[RequestContext], "Begun | None"]


class CallerConnection(RequestHandler):
    """One connection of a caller: its requests in order, own answers to what is not HTTP, half-open
    tunnels.
    """

    __slots__ = (
        "_begin",
        "_begun",
        "_ended",
        "_handler",
        "_head_seconds",
        "_head_timer",
        "_heard",
        "_made",
        "_reader",
        "_runner",
        "_serving",
        "_unreadable",
        "learned",
        "on_eof",
    )

    def __init__(self, server: "CallerServer", **options: Any) -> None:
        super().__init__(
            server,
            access_log=None,  # type: ignore[arg-type]  # none is what aiohttp itself documents
            **options,
        )
        self._reader = RequestReader(self, server.heads)
        self._parser = cast("Any", self._reader)  # in place of aiohttp's own
        self._handler = server.handler
        self._unreadable = server.unreadable
        self._begin = server.begin
        #: what was sent on while the task of this connection waits for requests
        self._begun: Begun | None = None
        self._serving: RequestContext | None = None
        self._runner: asyncio.Task[None] | None = None
        self._heard = 0.0  #: when bytes came last, in loop time
        self._made = self._loop.time()
        self._head_seconds = server.heads.seconds
        #: ends the connection unless a head is complete by then
        self._head_timer: asyncio.TimerHandle | None = None
        self._ended = False  #: the caller sends nothing more
        #: who the caller is, once somebody asked or a trusted proxy told
        self.learned: ClientAddress | None = None
        #: told of the end of what the caller sends; true: stay half open
        self.on_eof: Callable[[], bool] | None = None

    @property
    def busy(self) -> bool:
        """Whether a request is being handled or waits to be."""
        return self._serving is not None or bool(self._messages)

    @property
    def idle_since(self) -> float | None:
        """In loop time, since when no request is under way and none is complete; ``None``: one is,
        or another protocol is spoken.
        """
        waiter = self._waiter
        if waiter is None or waiter.done() or self._begun is not None or self.busy:
            return None
        return max(self._made, self._next_keepalive_close_time - self._keepalive_timeout)

    @property
    def client(self) -> ClientAddress:
        """Who the caller is."""
        if self.learned is None:
            self.learned = peer_of(self.transport)
        return self.learned

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A caller has come."""
        super().connection_made(transport)
        self._runner = self._task_handler
        self._await_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The caller has gone.

        What passes through ends with it; what a rule names is brought to its end all the same.
        """
        super().connection_lost(exc)
        self._head_complete()
        self._drop()
        if self._runner is not None and (self._serving is None or self._serving.match is None):
            self._runner.cancel()

    async def stop(self) -> None:
        """End the connection and whatever is under way on it."""
        self.force_close()
        self._drop()
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
            head, payload = cast(
                "Message | tuple[RequestContext, BodyQueue]", self._messages.popleft()
            )
            # else it was told when that was begun
            if self._parser is not None and self._begun is None:
                self._parser.message_consumed()
            if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
                self._resume_reading_if_drained()
            if isinstance(head, BadRequestError):
                await self._misread(head, payload)
                break
            if isinstance(head, RequestContext):
                incoming, self._begun = head, None
            else:
                incoming = RequestContext(head, payload, self)
            await self._serve(incoming)
            if incoming.close or self._close or (self._ended and not self._messages):
                if not payload.is_eof():
                    await self._linger(payload)
                break
            if incoming.head.upgrade:
                self._stay()
            self._keep()
        if not self._force_close:
            self._task_handler = None
            if self.transport is not None:
                self.transport.close()

    async def _misread(self, fault: BadRequestError, rest: BodyQueue) -> None:
        """Answer what is no request, and what comes behind it.

        Where that ends nobody knows: the caller is to close.
        """
        what = (
            "This is not a request of HTTP/1.1"
            if fault.code is Code.BAD_REQUEST
            else "The request is too large"
        )
        self._answer(STATUS[fault.code], VaultError(fault.code, f"{what}: {fault}."))
        self._unreadable(fault.code)
        # over TLS it would end the other way as well
        if self.transport is not None and self.transport.can_write_eof():
            self.transport.write_eof()
            await self._linger(rest)

    def _keep(self) -> None:
        """Wait for the next request from now on, for so long."""
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(
                self._next_keepalive_close_time, self._process_keepalive
            )

    def _process_keepalive(self) -> None:
        """Called by aiohttp's timer, which takes a connection for idle whose task waits."""
        if self._begun is not None:
            self._keepalive_handle = None  # set again with the answer
        else:
            super()._process_keepalive()

    # ------------------------------------------------ requests that are sent on without the task

    def _hurry(self, head: RequestHead, payload: BodyQueue) -> bool:
        """Send the one request there is on at once, if that can be."""
        incoming = RequestContext(head, payload, self)
        begun = self._begin(incoming)
        if begun is None:
            self._messages.append(
                cast("Any", (incoming, payload))
            )  # what was found out about it is not found out twice
            return False
        self._serving = incoming
        self._begun = begun
        # now: it must not take the place of one that could be read behind it
        self._reader.message_consumed()
        return True

    def answered(self, incoming: RequestContext) -> None:
        """What was sent on at once is answered."""
        self._begun = self._serving = None
        if incoming.close or self._close or (self._ended and not self._messages):
            self.force_close()
            return
        self._keep()
        if self._messages:
            self._wake()

    def resume(self, incoming: RequestContext, begun: Begun) -> None:
        """The task has to go on with what was sent on at once, before all that came since."""
        incoming.begun = begun
        self._messages.appendleft(cast("Any", (incoming, incoming.payload)))
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _drop(self) -> None:
        """The caller has gone: so has what was sent on for it."""
        begun, self._begun = self._begun, None
        if begun is not None:
            self._serving = None
            begun.drop()

    async def _serve(self, incoming: RequestContext) -> None:
        """Handle one request.

        Whatever goes wrong inside ends here: logged by class and place, answered without a word of
        it.
        """
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
                self._answer(
                    500, VaultError(Code.INTERNAL, "The proxy failed; its log names the place.")
                )
        finally:
            self._serving = self._current_request = None

    def _stay(self) -> None:
        """The other protocol was declined: what the caller sent since is its next request."""
        self._upgraded = False
        tail, self._message_tail = self._message_tail, b""
        self.data_received(tail)
        if self._buffer_paused:
            self._resume_reading_if_drained()

    def data_received(self, data: bytes) -> None:
        """Bytes of the caller.

        Requests take the short way here; aiohttp holds back another protocol, or hands it on.
        """
        self._heard = self._loop.time()
        if self._payload_parser is not None or self._upgraded:
            RequestHandler.data_received(self, data)
            return
        if self._force_close or self._close:
            return
        messages, self._upgraded, self._message_tail = self._reader.feed_data(data)
        if not messages:
            if self._head_timer is None and self._reader.in_head:
                self._await_head()
            return
        if self._head_timer is not None:
            self._head_complete()
        if self._reader.in_head:
            self._await_head()
        waiter = self._waiter
        if waiter is not None and not waiter.done() and self._begun is None:
            head, payload = messages[0]
            if (
                payload is EMPTY
                and len(messages) == 1
                and isinstance(head, RequestHead)
                and not self._messages
            ):
                if self._hurry(head, payload):
                    return
            else:
                self._messages.extend(cast("Any", messages))
            waiter.set_result(None)
        else:
            self._messages.extend(cast("Any", messages))
        if len(self._messages) >= self._max_msg_queue_size and not self._buffer_paused:
            self._pause_reading_for_buffer()

    def _await_head(self) -> None:
        self._head_timer = self._loop.call_later(self._head_seconds, self._head_late)

    def _head_complete(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_late(self) -> None:
        """The head did not come in time.

        While the request before it is under way, its answer is waited for.
        """
        self._head_timer = None
        if self.busy or self._begun is not None:
            self._await_head()
        elif self.transport is not None:
            self.transport.close()

    def _answer(self, status: int, error: VaultError) -> None:
        if self.transport is not None:
            self.transport.write(response.own_answer(status, error, close=True))

    async def _linger(self, payload: BodyQueue) -> None:
        """Read and forget what nobody wants, within bounds."""
        limit = payload.total_bytes + _LINGER_BYTES
        until = self._loop.time() + _LINGER_SECONDS
        try:
            while (
                not payload.is_eof() and payload.total_bytes < limit and self.transport is not None
            ):
                async with asyncio.timeout_at(min(until, self._loop.time() + _LINGER_IDLE)):
                    await payload.readany()
        except (TimeoutError, OSError, web.RequestPayloadError):
            return

    def eof_received(self) -> bool | None:  # type: ignore[override]  # the base always closes; here it may stay half open
        """The caller sends nothing more; true keeps the connection open for answers it still waits
        for.
        """
        if self.on_eof is not None:
            return self.on_eof()
        self._ended = True
        serving = self._serving
        late = self._loop.time() - self._heard > _HALF_CLOSE_SECONDS
        if (
            not self.busy
            or late
            or (serving is not None and (serving.began or not serving.payload.is_eof()))
        ):
            return None  # gone, or idle: whoever still takes an answer has not begun to get it
        self._reader.feed_eof()
        return self.transport is not None


class CallerServer(web.Server):
    """Makes a ``CallerConnection`` for each connection and knows them all.

    ``unreadable`` is called after each refusal of what is not a request, ``begin`` with each
    request that has no body and finds its connection idle.
    """

    def __init__(
        self,
        handler: ContextHandler,
        heads: Heads,
        unreadable: Callable[[Code], None] = lambda _: None,
        begin: Beginner = lambda _incoming: None,
    ) -> None:
        super().__init__(self._never)
        self.begin = begin
        self.heads = heads
        self.handler = handler
        self.unreadable = unreadable
        #: Makes what a new connection is handed to; whatever reads something before HTTP is put
        #: here.
        self.entrance: Callable[[], asyncio.BaseProtocol] = self
        #: where it is listened for callers; ``listening`` fills it
        self.listeners: list[asyncio.Server] = []

    async def _never(self, request: web.BaseRequest) -> web.StreamResponse:
        raise RuntimeError(f"{request!r} was not handled by its CallerConnection")

    def __call__(self) -> CallerConnection:
        """A protocol for a new connection."""
        return CallerConnection(self, loop=self._loop, keepalive_timeout=self.heads.keep)

    @property
    def callers(self) -> list[CallerConnection]:
        """The open connections."""
        return [
            connection
            for connection in self.connections
            if isinstance(connection, CallerConnection)
        ]
