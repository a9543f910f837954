"""A connection of aiohttp's server that has to ask for something in time, and again for each further request.

The library itself waits for ever for the first head of a connection, and for as long as it keeps an idle one for what follows a
head that was begun. Nor does it tell what it cannot read from what is too large, and its answers quote the request.
"""

import asyncio
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler

from proxy.errors import Code, VaultError
from proxy.web.errors import STATUS
from proxy.web.own import PROBLEM, document

#: Seconds that the head of a request may take, from the beginning of its connection or from its own first byte.
HEAD_SECONDS: Final = 10.0

#: Seconds for which a connection without a request is kept, and for which a body that nobody wants may go on arriving.
_KEEP_SECONDS: Final = 75.0
_LINGER_SECONDS: Final = 5.0

#: Bounds of a head, in bytes and fields. The library has one exception for both lengths; it names the limit, so they differ.
_TARGET: Final = 16384
_FIELD: Final = 8190
_FIELDS: Final = 128

FAILED: Final = VaultError(Code.INTERNAL, "The service failed; its log names the place.")
_UNREAD: Final = VaultError(Code.BAD_REQUEST, "This is not HTTP as it is understood here.")
_LONG_TARGET: Final = VaultError(Code.URI_TOO_LONG, f"The target of the request is longer than {_TARGET} bytes.")
_LONG_FIELD: Final = VaultError(Code.HEADER_TOO_LARGE, f"A field of the head is longer than {_FIELD} bytes.")
_MANY_FIELDS: Final = VaultError(Code.HEADER_TOO_LARGE, f"The head has more than {_FIELDS} fields.")


class PatientConnection(RequestHandler):
    """``options`` are those of aiohttp's ``RequestHandler``. Requests are not listed: their paths hold keys of people."""

    __slots__ = ("_begun_at", "_make", "waiting")

    def __init__(self, server: web.Server, **options: Any) -> None:
        fixed: dict[str, Any] = {"keepalive_timeout": _KEEP_SECONDS, "lingering_time": _LINGER_SECONDS}
        fixed |= {"max_line_size": _TARGET, "max_field_size": _FIELD, "max_headers": _FIELDS}
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
