"""aiohttp's connections; the one file that knows inner names of aiohttp.

On the proxy listener aiohttp registers the connections, sets their sockets, runs one task for each
and slows writers down (``BareConnection``). On the vault's and the administration's listener it
serves applications as usual, with time-outs for heads that it does not have, and refusals that
quote nothing (``ApplicationConnection``).

``tests/arch/test_aiohttp.py`` lists the inner names, and ``make aiohttp`` runs the tests of these
connections on the minor version before.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from proxy.errors import Code, VaultError
from proxy.net import problem
from proxy.net.client_address import ClientAddress, peer_of
from proxy.net.problem import STATUS

if TYPE_CHECKING:
    RequestKey = web.RequestKey
else:
    #: Makes a typed key of a request's state; aiohttp 3.13 has its name alone.
    RequestKey = getattr(web, "RequestKey", lambda name, _kind: name)

#: Seconds that the head of a request may take, from the beginning of its connection or from its own
#: first byte.
HEAD_SECONDS: Final = 10.0

#: Seconds in which a request that its caller has sent already comes in, after the last connection
#: was accepted.
ON_ITS_WAY: Final = 0.25


class _TimedConnection(web.RequestHandler):
    """A connection on which the head of a request has to come in time."""

    __slots__ = ("_opened", "learned", "waiting")

    def __init__(self, server: web.Server, **options: Any) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(server, loop=loop, access_log=None, **options)  # type: ignore[arg-type]  # none is what aiohttp itself documents
        #: ends the connection unless a head is complete by then
        self.waiting: asyncio.TimerHandle | None = None
        #: address of the caller, once asked for or reported by a trusted proxy
        self.learned: ClientAddress | None = None
        self._opened = loop.time()

    @property
    def client(self) -> ClientAddress:
        if self.learned is None:
            self.learned = peer_of(self.transport)
        return self.learned

    @property
    def busy(self) -> bool:
        """Whether a request is being handled or waits to be, so that no head is due."""
        return False

    @property
    def head_seconds(self) -> float:
        """Seconds from the beginning of a connection, or of a head, to the end of the head."""
        return HEAD_SECONDS

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self.await_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop waiting: the caller has gone."""
        self.head_complete()
        super().connection_lost(exc)

    def await_head(self) -> None:
        """Wait for a head from now on."""
        if self.transport is not None:
            loop = asyncio.get_running_loop()
            self.waiting = loop.call_later(self.head_seconds, self._late)

    def head_complete(self) -> None:
        """Stop waiting for a head."""
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None

    async def drained(self) -> None:
        """Return when the caller takes bytes again."""
        await self._drain_helper()

    def _late(self) -> None:
        """End a connection whose head did not come in time, behind the answer under way."""
        self.waiting = None
        if self.busy:
            self.await_head()
        elif self.transport is not None:
            self.transport.close()


#: Where a connection of aiohttp keeps its parser, by version: 3.14 and newer, 3.13.
_PARSERS: Final = ("_parser", "_request_parser")


class BareConnection(_TimedConnection):
    """A connection of aiohttp's server that does not parse; ``start`` is its task.

    ``keep``: seconds for which it is kept for a next request.
    """

    __slots__ = ("_keep", "idle_timer", "idle_until")

    def __init__(self, server: web.Server, keep: float) -> None:
        super().__init__(server, keepalive_timeout=0)
        for name in _PARSERS:
            if hasattr(self, name):
                setattr(self, name, None)
        self._keep = keep
        self.idle_until = (
            0.0  #: in loop time; put off with each answer, the timer only when it fires
        )
        self.idle_timer: asyncio.TimerHandle | None = None

    @property
    def idle_since(self) -> float | None:
        """In loop time, since when no request is under way; ``None``: one is."""
        return None if self.busy else self.idle_until - self._keep

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.idle_until = asyncio.get_running_loop().time() + self._keep
        self.start_idle_timer()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop waiting: the caller has gone."""
        super().connection_lost(exc)
        if self.idle_timer is not None:
            self.idle_timer.cancel()

    def start_idle_timer(self) -> None:
        """End the connection at ``idle_until``, unless it was put off or a request runs."""
        self.idle_timer = asyncio.get_running_loop().call_at(self.idle_until, self._idle)

    def _idle(self) -> None:
        self.idle_timer = None
        if self.busy:
            return  # set again with the answer
        if asyncio.get_running_loop().time() < self.idle_until:
            self.start_idle_timer()
        else:
            self.force_close()


#: Seconds for which an idle connection is kept, and for which an unwanted body is drained.
_KEEP_SECONDS: Final = 75.0
_LINGER: Final = 5.0

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


class ApplicationConnection(_TimedConnection):
    """A connection of an aiohttp application that has to ask for something in time.

    The library waits for ever for the first head of a connection, and as long as for an idle one
    for the rest of a head. Nor does it distinguish invalid from too large, and its answers quote
    the request. Requests are not logged: their paths hold personal keys. ``options`` are those of
    aiohttp's ``RequestHandler``.
    """

    __slots__ = ("_forgotten", "_more", "_task", "ending")

    def __init__(self, server: web.Server, **options: Any) -> None:
        self.ending = False  #: the next answer is the last one
        self._task: asyncio.Task[Any] | None = None
        super().__init__(
            server,
            keepalive_timeout=_KEEP_SECONDS,
            lingering_time=_LINGER,
            max_line_size=_TARGET,
            max_field_size=_FIELD,
            max_headers=_FIELDS,
            **options,
        )
        #: bytes after a refused request, and a signal of each; ``None``: no refusal
        self._forgotten = 0
        self._more: asyncio.Event | None = None

    @property
    def idle(self) -> bool:
        """Whether aiohttp waits for a request."""
        waiter = self._waiter
        return waiter is not None and not waiter.done() and self._current_request is None

    @property
    def idle_since(self) -> float | None:
        """In loop time, since when no request is under way; ``None``: one is."""
        if not self.idle:
            return None
        return max(self._opened, self._next_keepalive_close_time - _KEEP_SECONDS)

    def keep(self, *, busy: bool = False) -> None:
        """Keep the connection for a next request from now on, or for one that aiohttp does not see:
        that takes no more than ten times as long.
        """
        seconds = 10 * _KEEP_SECONDS if busy else _KEEP_SECONDS
        self._next_keepalive_close_time = asyncio.get_running_loop().time() + seconds

    def expire(self) -> None:
        """End the connection behind the answer under way: its caller proves nothing any more."""
        self.ending = True
        if self.idle_since is not None:
            self.force_close()

    async def shutdown(self, timeout: float | None = 15.0) -> None:  # noqa: ASYNC109  # as aiohttp has it
        """Let the request under way end, then the connection. One that is cancelled may clean up:
        what it needs for that is closed next.
        """
        await super().shutdown(timeout)
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout)

    async def start(self) -> None:
        """Read and answer requests, in a task for all of them."""
        self._task = asyncio.current_task()
        await super().start()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop waiting: the caller has gone."""
        super().connection_lost(exc)
        if self._more is not None:
            self._more.set()

    def data_received(self, data: bytes) -> None:
        """Read bytes; where they begin a head and do not end it, the rest has to come in time."""
        if self._more is not None:
            self._forgotten += len(data)
            self._more.set()
            return
        super().data_received(data)
        idle = self._waiter
        if self.waiting is None and idle is not None and not idle.done():
            self.await_head()

    def request(self, make: Callable[..., web.BaseRequest], *parts: Any) -> web.BaseRequest:
        """The request object of a head that is complete; ``make`` is the application's."""
        return make(*parts)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer; after a refusal of unread bytes, wait until the caller has it."""
        if self.ending:
            resp.force_close()
        finished = await super().finish_response(request, resp, start_time)
        if self._more is not None:
            await self._linger(self._more)
        return finished

    async def _linger(self, more: asyncio.Event) -> None:
        """Read and drop unwanted bytes, within limits."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _LINGER
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
        """Answer an invalid or failed request: a problem document that quotes nothing."""
        del request, message
        if status >= 500:
            self.log_exception("unhandled", exc_info=exc)
        else:
            self._more = asyncio.Event()
        error = FAILED if status >= 500 else _parser_fault(exc)
        status = STATUS[error.code]
        headers = {"Content-Type": problem.PROBLEM, "Server": "domicile"}
        answer = web.Response(
            status=status, body=problem.problem_document(status, error), headers=headers
        )
        answer.force_close()
        return answer


async def finish_open_requests(server: web.Server, late: float, until: float) -> None:
    """Finish open requests of a server that accepts no more; each answer announces the close.

    ``late``: seconds for which more may be on its way; ``until``: instant of the loop after which
    nothing is waited for.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    while (now := loop.time()) < max(until, began + late):
        for connection in server.connections:
            if isinstance(connection, ApplicationConnection):
                connection.ending = True
        if now >= began + late and not any(map(_is_busy, server.connections)):
            break
        await asyncio.sleep(0.02)


def _is_busy(connection: web.RequestHandler) -> bool:
    if isinstance(connection, ApplicationConnection):
        return connection.idle_since is None
    return connection._current_request is not None  # noqa: SLF001  # aiohttp tells it nowhere else


def time_heads(server: web.Server) -> None:
    """Let the ``ApplicationConnection`` of a server know when a head is complete."""
    make = server.request_factory

    def request(message: Any, payload: Any, protocol: Any, *rest: Any) -> web.BaseRequest:
        if protocol.waiting is not None:
            protocol.head_complete()
        created: web.BaseRequest = protocol.request(make, message, payload, protocol, *rest)
        return created

    server.request_factory = request


def _parser_fault(exc: BaseException | None) -> VaultError:
    """The refusal of what aiohttp's parser found wrong."""
    if isinstance(exc, LineTooLong):
        return _LONG_TARGET if exc.args[1] == _TARGET else _LONG_FIELD
    if isinstance(exc, HttpProcessingError) and exc.message == "Too many headers received":
        return _MANY_FIELDS
    return _UNREAD
