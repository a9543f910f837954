"""A connection to the vault listener: who its caller is, and what it waits for."""

from typing import Any

from aiohttp import StreamReader, web
from aiohttp.http_parser import HttpRequestParser

from proxy.web.api.expecting import expects, note, without
from proxy.web.patient import PatientConnection
from proxy.web.peers import Client, Trusted, caller_of, peer_of, plain


class VaultConnection(PatientConnection):
    """A connection whose caller is known, and which waits with ``100 Continue`` until a body is wanted.

    Compressed bodies stay as they are, so that they can be refused by their size and kind.
    """

    __slots__ = ("learned",)

    def __init__(self, server: web.Server) -> None:
        super().__init__(server, auto_decompress=False)
        self.learned: Client | None = None  #: who the caller is, once somebody asked or a trusted proxy told

    @property
    def client(self) -> Client:
        """Who the caller is."""
        if self.learned is None:
            self.learned = peer_of(self.transport)
        return self.learned

    def request(self, message: Any, *parts: Any) -> web.BaseRequest:
        """The request object of a head that is complete."""
        if not expects(message):
            return super().request(message, *parts)
        request = super().request(without(message), *parts)
        note(request)
        return request

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer. What the library refuses before any operation is asked (an unknown ``Expect``) quotes the request."""
        if isinstance(resp, web.HTTPException):
            resp = self.handle_error(request, 400)
        return await super().finish_response(request, resp, start_time)

    def passed(self, content: StreamReader) -> None:
        """The body of the request was read past the parser, to its end: what comes now is the next request."""
        if self.transport is None:
            return
        self._parser = HttpRequestParser(  # the old one waits for the body; as the library makes it
            self,
            self._loop,
            self._read_bufsize,
            max_line_size=self.max_line_size,
            max_field_size=self.max_field_size,
            max_headers=self.max_headers,
            payload_exception=web.RequestPayloadError,
            auto_decompress=False,
            max_msg_queue_size=self._max_msg_queue_size,
        )
        content.feed_eof()  # reading goes on


def peer(request: web.Request) -> str:
    """The address at the other end, or the one that a trusted proxy told of in its preamble; empty: unknown."""
    connection = request.protocol
    return connection.client.host if isinstance(connection, VaultConnection) else plain(request.remote or "")


def caller(request: web.Request, trusted: Trusted) -> str:
    """The address that a request comes from; empty: unknown. A trusted proxy may tell of another than its own."""
    return caller_of(peer(request), request.headers.getall("X-Forwarded-For", ()), trusted)
