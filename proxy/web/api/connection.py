"""A connection to the vault listener: how long it may say nothing, who its caller is, and what is no HTTP at all."""

import asyncio
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from proxy.errors import Code, VaultError
from proxy.web.api.errors import refused
from proxy.web.peers import Client, Trusted, caller_of, peer_of, plain

#: Seconds that a new connection has to send the head of its first request. The library itself waits for ever.
_HEAD_SECONDS: Final = 30.0

#: Seconds for which a connection without a request is kept, and for which a body that nobody wants may go on arriving.
_KEEP_SECONDS: Final = 75.0
_LINGER_SECONDS: Final = 5.0

FAILED: Final = VaultError(Code.INTERNAL, "The vault failed; its log names the place.")


class VaultConnection(RequestHandler):
    """A connection whose bytes may be no HTTP at all: the answer to them is a problem document, too, and quotes nothing.

    Compressed bodies stay as they are, so that they can be refused by their size and kind.
    """

    __slots__ = ("learned", "waiting")

    def __init__(self, server: web.Server) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=cast(Any, None),  # requests are not listed: their paths hold keys of people
            keepalive_timeout=_KEEP_SECONDS,
            lingering_time=_LINGER_SECONDS,
            auto_decompress=False,
        )
        self.learned: Client | None = None  #: who the caller is, once somebody asked or a trusted proxy told
        self.waiting: asyncio.TimerHandle | None = None  #: ends the connection unless a request comes

    @property
    def client(self) -> Client:
        """Who the caller is."""
        if self.learned is None:
            self.learned = peer_of(self.transport)
        return self.learned

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A caller is there, and has to ask for something in time."""
        super().connection_made(transport)
        self.waiting = asyncio.get_running_loop().call_later(_HEAD_SECONDS, transport.close)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The caller has gone."""
        self.heard()
        super().connection_lost(exc)

    def heard(self) -> None:
        """A request came; from now on the library watches the time itself."""
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer. What the library refuses before any operation is asked (an unknown ``Expect``) quotes the request."""
        if isinstance(resp, web.HTTPException):
            resp = self.handle_error(request, 400)
        return await super().finish_response(request, resp, start_time)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        del request, message
        if status >= 500:
            self.log_exception("unhandled", exc_info=exc)
        fault = VaultError(Code.BAD_REQUEST, "This is not HTTP as it is understood here.") if status < 500 else FAILED
        answer = refused("", fault)
        response = web.Response(
            status=answer.status, body=answer.body, headers={"Content-Type": answer.media_type, "Server": "domicile"}
        )
        response.force_close()
        return response


def peer(request: web.Request) -> str:
    """The address at the other end, or the one that a trusted proxy told of in its preamble; empty: unknown."""
    connection = request.protocol
    return connection.client.host if isinstance(connection, VaultConnection) else plain(request.remote or "")


def caller(request: web.Request, trusted: Trusted) -> str:
    """The address that a request comes from; empty: unknown. A trusted proxy may tell of another than its own."""
    return caller_of(peer(request), request.headers.getall("X-Forwarded-For", ()), trusted)
