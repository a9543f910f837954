"""Answers and messages that a rule names and that come piece by piece: streams of events, and the
messages of WebSockets, each passed on with tokens or values.

No extension of WebSockets is spoken. Whatever cannot be read from the caller's side closes the
connection.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from time import perf_counter
from typing import Final, NamedTuple, cast

from proxy.errors import Code, VaultError
from proxy.gateway import headers as rewriting
from proxy.gateway.callers import Confirm
from proxy.gateway.ports import Exchange
from proxy.net import response
from proxy.net.caller_connection import CallerConnection
from proxy.net.hop_headers import response_fields
from proxy.net.http1.body import BodyQueue, frame
from proxy.net.http1.head import NONE
from proxy.net.reply import Tunnel, UpstreamResponse
from proxy.net.response import RequestContext
from proxy.net.websocket import (
    FORBIDDEN,
    INTERNAL_FAULT,
    NO_SUCH_KIND,
    NO_TEXT,
    MessageReader,
    Opcode,
    ProtocolFault,
    SocketMessage,
    encode_close,
    encode_message,
)
from proxy.offload import SMALL, busy, give_way, run_in_thread
from proxy.redactor.bodies.events import MessageStream
from proxy.redactor.message import header
from proxy.redactor.rules import Operation, Stream
from proxy.telemetry import logs

_log = logs.logger("web")

#: What asks for the change of protocol, before the end of a head.
UPGRADE: Final = b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
#: Pings of one side that may wait for their pongs.
_PINGS: Final = 16


async def restore_stream(
    incoming: RequestContext,
    reply: UpstreamResponse,
    exchange: Exchange,
    write_timeout: float,
    confirm: Confirm | None = None,
) -> bool:
    """Pass a stream of events on as it comes and is taken; false: the answer is none.

    ``confirm`` is asked before each piece. Raises what that does, ``UpstreamFault`` if the
    application breaks off, ``TimeoutError`` if the caller takes nothing for ``write_timeout``
    seconds, ``VaultError`` if an event must not pass.
    """
    head = reply.head
    fields = tuple(response_fields(head.headers, NONE, head.status, 0))
    stream = await exchange.stream(head.status, fields)
    if stream is None:
        return False
    exchange.timing.answered = perf_counter()
    try:
        incoming.begin(head.status)
        chunked = incoming.minor == 1
        incoming.close = incoming.close or not chunked
        incoming.write(
            b"HTTP/1.1 %d %b\r\n%b%b%b\r\n"
            % (
                head.status,
                head.reason,
                b"".join(rewriting.answer_lines(fields, None, None)),
                b"Transfer-Encoding: chunked\r\n" * chunked,
                b"Connection: close\r\n" * incoming.close,
            )
        )
        incoming.lasting = True
        while not incoming.gone and (piece := await reply.read()):
            if confirm is not None:
                await confirm()
            await _pass(incoming, await stream.restore(piece), write_timeout)
        await _pass(incoming, await stream.rest(), write_timeout)
        incoming.write(b"0\r\n\r\n" * chunked)
        await response.drain(incoming, write_timeout)
    finally:
        await stream.end()
    return True


async def _pass(incoming: RequestContext, content: bytes, write_timeout: float) -> None:
    if content:
        incoming.size += len(content)
        incoming.write(frame(content) if incoming.minor == 1 else content)
        await incoming.drained(write_timeout)


class ConfirmedMessages(NamedTuple):
    """Messages that pass as long as their caller and their rule are confirmed."""

    stream: MessageStream
    confirm: Confirm | None


async def message_stream(
    incoming: RequestContext,
    operation: Operation,
    exchange: Exchange,
    confirm: Confirm | None = None,
) -> ConfirmedMessages | None:
    """Return the relay of this handshake's messages; ``None`` if no rule names it.

    ``confirm`` is asked before each message.
    """
    if not incoming.head.upgrade or operation.response.stream is not Stream.WEBSOCKET:
        return None
    if (header(incoming.raw, b"upgrade") or b"").strip().lower() != b"websocket":
        return None
    stream = await exchange.stream(101, ())
    if not isinstance(stream, MessageStream):
        return None
    return ConfirmedMessages(stream, confirm)


async def relay_messages(
    incoming: RequestContext,
    reply: UpstreamResponse,
    tunnel: Tunnel,
    messages: ConfirmedMessages,
    write_timeout: float,
) -> None:
    """Answer 101 and carry messages both ways until one side ends.

    Raises ``VaultError`` where the application speaks an extension that it was not asked for.
    """
    connection = cast("CallerConnection", incoming.connection)
    queue = BodyQueue(_CallerFlow(connection))
    relay = _Relay(incoming, tunnel, messages, write_timeout)
    ways: list[asyncio.Future[None]] = []
    try:
        if header(reply.head.headers, b"sec-websocket-extensions") is not None:
            raise VaultError(
                Code.UNREADABLE_ANSWER, "The application speaks a WebSocket extension unasked."
            )
        incoming.close = True
        incoming.write(response.begin_response(incoming, reply.head, reply.framing))
        connection.switch(queue.feed, partial(_finish, queue))
        ways += (
            asyncio.ensure_future(relay.carry(queue.read, relay.from_caller, masked=True)),
            asyncio.ensure_future(relay.carry(reply.read, relay.from_application, masked=False)),
        )
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        tunnel.abort()
        await messages.stream.end()


class _CallerFlow:
    """Steers the reading from a caller after the switch."""

    def __init__(self, connection: CallerConnection) -> None:
        self._connection = connection

    def pause_reading(self) -> None:
        transport = self._connection.transport
        if transport is not None and not transport.is_closing():
            transport.pause_reading()

    def resume_reading(self) -> None:
        transport = self._connection.transport
        if transport is not None and not transport.is_closing():
            transport.resume_reading()


def _finish(queue: BodyQueue) -> bool:
    """The caller sends nothing more, which ends a WebSocket."""
    queue.finish()
    return True


class _Relay:
    """A WebSocket between caller and application."""

    def __init__(
        self,
        incoming: RequestContext,
        tunnel: Tunnel,
        messages: ConfirmedMessages,
        write_timeout: float,
    ) -> None:
        self._incoming = incoming
        self._tunnel = tunnel
        self._stream, self._confirm = messages
        self._write_timeout = write_timeout
        self._stand_ins: dict[bytes, bytes] = {}  #: contents of the caller's pings, by stand-in
        self._pings: dict[bytes, bytes] = {}  #: contents of pings of the application

    async def carry(
        self,
        read: Callable[[], Awaitable[bytes]],
        take: Callable[[SocketMessage], Awaitable[None]],
        *,
        masked: bool,
    ) -> None:
        """Carry one direction to its end; close both where something must not pass."""
        reader = MessageReader(self._stream.longest, masked=masked)
        try:
            while data := await read():
                await self._each(take, reader.feed(data))
        except ProtocolFault as fault:
            self._close(fault.code, fault.reason)
        except VaultError as error:
            refused = masked or error.code in (Code.UNAUTHORIZED, Code.OPERATION_DENIED)
            code = FORBIDDEN if refused else INTERNAL_FAULT
            self._close(code, str(error.code), error)
        except (ConnectionError, TimeoutError):
            pass  # who went away needs no close frame; the other side sees its connection end

    async def _each(
        self, take: Callable[[SocketMessage], Awaitable[None]], messages: Iterable[SocketMessage]
    ) -> None:
        for message in messages:
            if self._confirm is not None:
                await self._confirm()
            await take(message)
            if busy():
                await give_way()

    async def from_caller(self, message: SocketMessage) -> None:
        """Pass a message on to the application, with tokens in place of values."""
        content = await _content(message)
        if message.opcode is Opcode.TEXT:
            content = await self._stream.redact(_checked(content))
        elif message.opcode is Opcode.BINARY and not self._stream.passes_binary:
            raise ProtocolFault(NO_SUCH_KIND, "only text messages are taken here")
        elif message.opcode is not Opcode.BINARY:
            content = self._leaving(message.opcode, content)
        encode = partial(encode_message, message.opcode, content, masked=True)
        self._tunnel.write(await run_in_thread(len(content) > SMALL, encode))
        await self._tunnel.drained()

    async def from_application(self, message: SocketMessage) -> None:
        """Pass a message on to the caller, with values in place of tokens."""
        content = await _content(message)
        if message.opcode is Opcode.TEXT:
            content = await self._stream.restore(_checked(content))
        elif message.opcode is Opcode.PING:
            _remember(self._pings, content, content)
        elif message.opcode is Opcode.PONG:
            content = self._stand_ins.pop(content, content)
        self._incoming.size += len(content)
        self._incoming.write(encode_message(message.opcode, content, masked=False))
        await self._incoming.drained(self._write_timeout)

    def _leaving(self, opcode: Opcode, content: bytes) -> bytes:
        """The content that leaves of a control frame of the caller, which no rule reads: of a close
        its code, of a pong that of the ping, of a ping something in its place.
        """
        if opcode is Opcode.CLOSE:
            return content[:2]
        if opcode is Opcode.PONG:
            return self._pings.get(content, b"")
        if not content:
            return content
        stand_in = os.urandom(8)
        _remember(self._stand_ins, stand_in, content)
        return stand_in

    def _close(self, code: int, reason: str, error: VaultError | None = None) -> None:
        """Close both sides; where something stands that must not pass is told to the caller alone,
        whose message it is, and to the log.
        """
        fault = Code.BAD_REQUEST if error is None else error.code
        text = reason if error is None else error.message
        where = error.details[0].source if error is not None and error.details else ""
        _log.warning("a WebSocket was closed by the proxy", code=fault, text=text, source=where)
        full = f"{reason}: {where}" if where else reason
        self._incoming.write(encode_close(code, full, masked=False))
        self._tunnel.write(encode_close(code, reason, masked=True))


def _remember(contents: dict[bytes, bytes], name: bytes, content: bytes) -> None:
    """Remember the content of a ping, and of few before it."""
    while len(contents) >= _PINGS:
        del contents[next(iter(contents))]
    contents[name] = content


async def _content(message: SocketMessage) -> bytes:
    return await run_in_thread(message.size > SMALL, message.content)


def _checked(text: bytes) -> bytes:
    """The text; raises ``ProtocolFault`` where it is no UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError:
        raise ProtocolFault(NO_TEXT, "a text message is not UTF-8") from None
    return text
