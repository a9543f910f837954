"""Connection of a caller to the vault listener: its address, its waits, and its answers."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Container, Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict, CIMultiDictProxy

from proxy.api.context import ApiOperation, ApiResponse
from proxy.api.whole_request import WholeRequests
from proxy.net.caller_connection import CallerConnection
from proxy.net.client_address import Trusted, caller_of, canonical_address
from proxy.net.proxy_protocol import Preambles
from proxy.net.server import RequestKey
from proxy.net.tls_transport import TlsListener
from proxy.offload import busy, give_way
from proxy.telemetry import logs

# ``Expect: 100-continue`` (RFC 9110, section 10.1.1). The library would tell the caller to send its
# body before anything is known of the request, so the field is hidden from it. A reader of a body
# calls ``proceed`` first: a request that is refused for its caller, size or type is refused without
# its body.

#: Set on a request whose caller waits with its body; true until ``100 Continue`` is sent.
_EXPECTS: Final = RequestKey("expects", bool)

_FIELD: Final = "Expect"
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


def expects(message: Any) -> bool:
    """Tell whether the sender of a head waits for ``100 Continue``.

    Any other expectation is the library's to refuse.
    """
    if message.version != HttpVersion11:
        return False
    return {value.strip().lower() for value in message.headers.getall(_FIELD)} == {"100-continue"}


def without_expect(message: Any) -> Any:
    """The head without that field."""
    headers = CIMultiDict(message.headers)
    del headers[_FIELD]
    return message._replace(headers=CIMultiDictProxy(headers))


def note(request: web.BaseRequest) -> None:
    """The sender of that request waits."""
    request[_EXPECTS] = True


async def proceed(request: web.Request) -> None:
    """Tell a caller that waits that its body may come."""
    if request.get(_EXPECTS):
        request[_EXPECTS] = False
        writer = request.writer
        await writer.write(_CONTINUE)
        writer.output_size = 0  # the answer itself has not begun


def unsent(request: web.Request) -> bool:
    """Tell whether the caller may still hold its body back, so that the connection has to end."""
    return request.get(_EXPECTS, False) and request.can_read_body


class VaultConnection(WholeRequests):
    """A connection that knows its caller's address and defers ``100 Continue`` to the operation.

    Compressed bodies stay as they are, so that they can be refused by their size and kind.
    """

    __slots__ = ()

    def __init__(self, server: web.Server) -> None:
        super().__init__(server, auto_decompress=False)

    def request(self, make: Callable[..., web.BaseRequest], *parts: Any) -> web.BaseRequest:
        """The request object of a head that is complete."""
        message, *rest = parts
        self.learn(message)
        if _FIELD not in message.headers or not expects(message):
            return make(*parts)
        request = make(without_expect(message), *rest)
        note(request)
        return request

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer; the library's own errors quote the request and are replaced."""
        if type(resp) is not ReadyAnswer and isinstance(resp, web.HTTPException):
            resp = self.handle_error(request, 400)
        return await super().finish_response(request, resp, start_time)


#: In the application of the local socket the environments there are; elsewhere ``NOT_LOCAL``, or
#: nothing: the administration asks for access too.
LOCAL: Final = web.AppKey("local", Container[str])
NOT_LOCAL: Final[Container[str]] = ()

#: How audit lines name callers of that socket, before the user of the machine.
LOCAL_PREFIX: Final = "local:"


def peer(request: web.Request) -> str:
    """The peer's address, or the one in a trusted proxy's preamble; empty where unknown."""
    connection = request.protocol
    if request.app.get(LOCAL, NOT_LOCAL) is not NOT_LOCAL:
        return "127.0.0.1"
    if isinstance(connection, VaultConnection):
        return connection.client.host
    return canonical_address(request.remote or "")


def caller(request: web.Request, trusted: Trusted) -> str:
    """The address that a request comes from, through trusted proxies; empty where unknown."""
    return caller_of(peer(request), request.headers.getall("X-Forwarded-For", ()), trusted)


# How an answer is sent: as aiohttp's response, or piece by piece.

_log = logs.logger("web")

#: Bytes of an answer that may wait for its reader when the next request begins.
_SLOW: Final = 64 * 1024

#: Seconds within which a reader has to take a piece of an answer, which stays in memory until then.
_PIECE_SECONDS: Final = 30.0

#: The operation whose answer is streamed, for the log.
STREAMED: Final = RequestKey("streamed", ApiOperation)

#: Fields of every answer: none is cached, none has its type guessed.
_ALWAYS: Final = {
    "Cache-Control": "no-store",
    "Server": "domicile",
    "X-Content-Type-Options": "nosniff",
}

#: The fields of every answer as they stand in a head.
_ALWAYS_TEXT: Final = "".join(f"{name}: {value}\r\n" for name, value in _ALWAYS.items())

#: Fields that the head of an answer has once, whatever else it says.
_ONCE: Final = frozenset((*_ALWAYS, "Connection", "Content-Length", "Content-Type", "Date"))


async def send(
    request: web.Request, answer: ApiResponse, fields: Mapping[str, str]
) -> web.StreamResponse:
    """The response of an answer with these further fields; a streamed one is sent here."""
    if (ready := _ready(request, answer, fields)) is not None:
        return ready
    headers: CIMultiDict[str] = CIMultiDict(_ALWAYS)
    if answer.headers:
        headers.update(answer.headers)
    if fields:
        headers.update(fields)
    if answer.body or answer.stream is not None:
        headers.setdefault("Content-Type", answer.media_type)
    if answer.stream is None:
        response = web.Response(status=answer.status, body=answer.body or None, headers=headers)
        if request.can_read_body and unsent(request):
            response.force_close()
        return response
    return await _stream(request, answer, headers)


class ReadyAnswer(web.StreamResponse):
    """An answer whose head is made here, and that leaves in one write with its body.

    It costs a fraction of aiohttp's response, and reads the same on the wire. For requests of
    HTTP/1.1 whose connection stays open, and answers with a body in memory.
    """

    def __init__(self, status: int, fields: str, body: bytes) -> None:
        super().__init__(status=status)
        self.fields = fields  #: of the head, but for ``Date`` and ``Connection``
        self.content = body
        self.sent = False
        self.closing = False  #: the connection ends with it

    @property
    def prepared(self) -> bool:
        """Whether it has left."""
        return self.sent

    @property
    def keep_alive(self) -> bool:
        """Whether the connection stays open behind it."""
        return not self.closing

    def force_close(self) -> None:
        """End the connection with this answer."""
        self.closing = True

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send it whole; return when the caller takes bytes again."""
        if self.sent:
            return None
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("The caller has gone.")
        self.sent = True
        transport.write(_head(self.status, self.fields, close=self.closing) + self.content)
        await request.writer.drain()
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: the answer left whole."""
        del data


def _ready(
    request: web.Request, answer: ApiResponse, fields: Mapping[str, str]
) -> ReadyAnswer | None:
    """The response of an ordinary answer; ``None`` for any other."""
    body = answer.body
    if not body or request.version != HttpVersion11 or request.method == "HEAD":
        return None
    if not (request.keep_alive and request.content.is_eof()) or request.app.on_response_prepare:
        return None
    text = _fields_text(answer, fields)
    return None if text is None else ReadyAnswer(answer.status, text, body)


def _fields_text(answer: ApiResponse, fields: Mapping[str, str]) -> str | None:
    """The fields of a head but for ``Date`` and ``Connection``; ``None``: not to be written so."""
    further = {**answer.headers, **fields} if answer.headers else fields
    if not _ONCE.isdisjoint(further):
        return None
    text = _ALWAYS_TEXT
    for name, value in further.items():
        text = f"{text}{name}: {value}\r\n"
    lines = len(_ALWAYS) + len(further)
    if text.count("\n") != lines or text.count("\r") != lines or "\0" in text:
        return None  # aiohttp refuses to send that
    length = len(answer.body) if answer.stream is None else answer.length
    if not length and answer.stream is None:
        return text
    return f"{text}Content-Type: {answer.media_type}\r\nContent-Length: {length}\r\n"


class DirectAnswer:
    """An answer to a request that aiohttp has not read; ``operation`` is for the log."""

    __slots__ = ("_answer", "_fields", "_operation", "status")

    def __init__(self, answer: ApiResponse, fields: str, operation: str) -> None:
        self.status = answer.status
        self._answer, self._fields, self._operation = answer, fields, operation

    def leave_at_once(self, connection: WholeRequests) -> bool:
        """Send one that is no stream; whether the caller takes further bytes now."""
        transport = connection.transport
        if transport is None or transport.is_closing():
            return True
        head = _head(self.status, self._fields, close=connection.ending)
        transport.write(head + self._answer.body)
        return transport.get_write_buffer_size() <= _SLOW

    async def leave(self, connection: WholeRequests) -> None:
        """Send it; return when the caller takes bytes again."""
        answer, transport = self._answer, connection.transport
        if transport is None or transport.is_closing():
            await close_answer(answer)
            return
        try:
            transport.write(_head(self.status, self._fields, close=connection.ending) + answer.body)
            if transport.get_write_buffer_size() > _SLOW:
                await connection.drained()
            if answer.stream is not None:
                await _written(connection.put, answer.stream)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except TimeoutError:
            transport.abort()
        except Exception:  # noqa: BLE001  # after the head nothing else can be answered: it breaks off
            _log.exception("an answer broke off", operation=self._operation)
            transport.abort()
        finally:
            if answer.stream is not None:
                await close_answer(answer)


async def direct(
    request: web.Request, answer: ApiResponse, fields: Mapping[str, str]
) -> DirectAnswer:
    """As ``send``, of a request that aiohttp has not read."""
    return direct_answer(answer, fields, request[STREAMED].name if answer.stream else "")


def direct_answer(answer: ApiResponse, fields: Mapping[str, str], operation: str) -> DirectAnswer:
    """The same; ``operation`` is for the log, where the answer is a stream."""
    text = _fields_text(answer, fields)
    if text is None or (answer.stream is not None and answer.length is None):
        raise ValueError("the answer of a frequent operation has fields that it may not have")
    return DirectAnswer(answer, text, operation)


@lru_cache(64)
def _status_line(status: int) -> str:
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"


@lru_cache(1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


def _head(status: int, fields: str, *, close: bool) -> bytes:
    """A whole head, as aiohttp would write it."""
    ends = "Connection: close\r\n" if close else ""
    return f"{_status_line(status)}{fields}Date: {_date(int(time.time()))}\r\n{ends}\r\n".encode()


async def _stream(
    request: web.Request, answer: ApiResponse, headers: CIMultiDict[str]
) -> web.StreamResponse:
    stream: Any = answer.stream
    response = web.StreamResponse(status=answer.status, headers=headers)
    response.content_length = answer.length
    try:
        await response.prepare(request)
        if request.method != "HEAD":
            await _written(response.write, stream)
        await response.write_eof()
    except (ConnectionError, asyncio.CancelledError):
        raise  # the reader has gone
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    except Exception:  # after the head nothing else can be answered: the connection breaks
        if not response.prepared:
            raise
        _log.exception("an answer broke off", operation=request[STREAMED].name)
        if request.transport is not None:
            request.transport.abort()
    finally:
        await close_answer(answer)  # a reader that went away must not leave a file open
    return response


async def _written(write: Callable[[bytes], Awaitable[None]], stream: Any) -> None:
    async for piece in stream:
        async with asyncio.timeout(_PIECE_SECONDS):
            await write(piece)
        if busy():
            await give_way()


async def close_answer(answer: ApiResponse) -> None:
    """Release the unsent rest of an answer."""
    if (close := getattr(answer.stream, "aclose", None)) is not None:
        await close()


# Layers before HTTP on a new connection: the PROXY preamble, if enabled, then TLS.


class ConnectionAcceptor:
    """Puts the parts that are switched on before a connection. At least one of them is."""

    def __init__(self, preambles: Preambles | None, tls: TlsListener | None) -> None:
        self.preambles = preambles
        self._tls = tls

    def __call__(self, connection: CallerConnection | VaultConnection) -> asyncio.Protocol:
        """Wrap a new connection in the parts that come before HTTP."""
        inner: asyncio.Protocol = connection if self._tls is None else self._tls(connection)
        return inner if self.preambles is None else self.preambles(connection, inner)

    def of_vault(self, server: web.Server) -> asyncio.Protocol:
        """Wrap a new connection of the vault listener."""
        return self(VaultConnection(server))

    def close(self) -> None:
        """End the connections that have not begun to speak HTTP."""
        if self.preambles is not None:
            self.preambles.close()
        if self._tls is not None:
            self._tls.close()
