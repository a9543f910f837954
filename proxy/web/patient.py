"""A connection of aiohttp's server that has to ask for something in time, and again for each further request.

The library itself waits for ever for the first head of a connection, and for as long as it keeps an idle one for what follows a
head that was begun.
"""

import asyncio
from typing import Any, Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

#: Seconds that the head of a request may take, from the beginning of its connection or from its own first byte.
HEAD_SECONDS: Final = 10.0

#: Seconds for which a connection without a request is kept, and for which a body that nobody wants may go on arriving.
_KEEP_SECONDS: Final = 75.0
_LINGER_SECONDS: Final = 5.0


class PatientConnection(RequestHandler):
    """``options`` are those of aiohttp's ``RequestHandler``. Requests are not listed: their paths hold keys of people."""

    __slots__ = ("_begun_at", "_make", "waiting")

    def __init__(self, server: web.Server, **options: Any) -> None:
        fixed: dict[str, Any] = {"keepalive_timeout": _KEEP_SECONDS, "lingering_time": _LINGER_SECONDS}
        super().__init__(server, loop=asyncio.get_running_loop(), access_log=None, **fixed, **options)  # type: ignore[arg-type]  # none is what aiohttp documents
        self.waiting: asyncio.TimerHandle | None = None  #: ends the connection unless a head is complete by then
        self._begun_at = asyncio.get_running_loop().time()
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

    def data_received(self, data: bytes) -> None:
        """Bytes of the caller. Where they begin a head and do not end it, the rest has to come in time."""
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

    def _wait(self) -> None:
        if self.transport is not None:
            self.waiting = asyncio.get_running_loop().call_later(HEAD_SECONDS, self.transport.close)

    def _heard(self) -> None:
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None
