"""Connection to an application: an asyncio protocol for one exchange after the other.

It writes the request, reads the answer by ``http1.reader``, holds at most
``CallLimits.buffer_bytes`` for a slow reader, stops sending when the application stops reading, and
carries its deadline as a number which the pool's sweeper compares: no timer is made per request.
"""

import asyncio
import select
import ssl
from collections.abc import AsyncIterator
from typing import Final, Protocol, cast

from proxy.errors import Code
from proxy.net.http1.body import EMPTY, frame
from proxy.net.http1.fields import BadMessageError
from proxy.net.http1.head import CLOSE, LENGTH, TUNNEL, ResponseHead
from proxy.net.http1.reader import ResponseReader
from proxy.net.reply import BufferedReply, Call, CallLimits, PendingReply, UpstreamFault

_NEVER = float("inf")

#: Bytes of a body that is copied behind its head: with longer ones that takes longer.
_COPIED: Final = 32 * 1024

#: Replaces the request once its answer has begun: an idle connection keeps no body in memory.
_NOTHING: Final = cast("Call", None)

_REJECTED: Final = (
    "The application ended the TLS connection without an answer: does it ask for a client "
    "certificate?"
)

# Expectation of the next bytes from the application.
_IDLE: Final = 0  #: no request; any byte is a fault
_HEAD: Final = 1
_BODY: Final = 2
_CLOSED: Final = 3


class ConnectionOwner(Protocol):
    """Owner of a connection."""

    def release(self, connection: "UpstreamConnection") -> None:
        """Mark the exchange as complete; the connection may carry another."""

    def lost(self, connection: "UpstreamConnection") -> None:
        """The connection is gone."""


class UpstreamConnection(asyncio.Protocol):
    """See the module. One exchange at a time; ``exchange`` raises on failure before the head."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limits: CallLimits, home: ConnectionOwner
    ) -> None:
        self.deadline = _NEVER  #: when the silence has lasted too long, in loop time
        self.expires = _NEVER  #: when the whole exchange has lasted too long
        self.served = 0  #: exchanges begun
        self._loop = loop
        self._limits = limits
        self._home = home
        self._state = _IDLE
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.poll: select.poll | None = None  #: what ``stale`` asks, from its first time on
        self._reader = ResponseReader(limits.head_bytes)
        self._call: Call = _NOTHING
        self._waiter: asyncio.Future[BufferedReply] | PendingReply | None = None
        self._reply: BufferedReply | None = None
        self._silent = True
        self._closing = False  #: the application ends the connection after this answer
        self._sender: asyncio.Task[None] | None = None
        self._reading_paused = False
        self._writable: asyncio.Future[None] | None = None

    # ------------------------------------------------ the exchange

    def begin(self, call: Call) -> "asyncio.Future[BufferedReply]":
        """Write the request; the future gives the final answer as soon as its head is there, or
        raises what went wrong.

        A caller that stops waiting calls ``leave``.
        """
        waiter: asyncio.Future[BufferedReply] = self._loop.create_future()
        self.start(call, waiter)
        return waiter

    def start(self, call: Call, waiter: "asyncio.Future[BufferedReply] | PendingReply") -> None:
        """The same for an observer that gets the answer without a future."""
        limits = self._limits
        now = self._loop.time()
        self.served += 1
        self._call = call
        self._silent = True
        self._state = _HEAD
        if limits.total:
            self.expires = now + limits.total
        self._waiter = waiter
        body = call.body
        if isinstance(body, bytes):
            if call.chunked:
                body = (frame(body) if body else b"") + call.last
            if len(body) > _COPIED:
                self._transport.writelines((call.head, body))
            else:
                self._transport.write(call.head + body if body else call.head)
            self.deadline = now + limits.head
        else:
            self._transport.write(call.head)
            self.deadline = now + limits.idle
            self._sender = self._loop.create_task(self._send(call, body))

    async def _send(self, call: Call, body: AsyncIterator[bytes]) -> None:
        """Send a streamed body, no faster than the application takes it."""
        chunked = call.chunked
        try:
            async for piece in body:
                if piece:
                    self.write(frame(piece) if chunked else piece)
                    await self.drained()
            if chunked:
                self.write(call.last)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # handed on, whatever it is, to who awaits the exchange
            self._sender = None
            self._fail(error)
        else:
            self._sender = None
            self.deadline = self._loop.time() + self._limits.head

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        if self._state != _CLOSED:
            self._touch()
            self._transport.write(data)

    def write_eof(self) -> None:
        """Nothing more comes from this side.

        Over TLS there is no such thing: then the connection ends.
        """
        if self._state == _CLOSED:
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    async def drained(self) -> None:
        """Return when the application takes bytes again; at once if it does."""
        if self._writable is not None:
            await self._writable
            self._touch()

    def stale(self) -> bool:
        """Whether the idle connection has something to read, by asking the kernel.

        That is its end, or an unsolicited answer.
        """
        if self.poll is None:
            self.poll = select.poll()
            self.poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(self.poll.poll(0))

    @property
    def usable(self) -> bool:
        """Whether it waits for an exchange.

        A connection that was handed over may have ended since.
        """
        return self._state == _IDLE

    def forgive(self, seconds: float) -> None:
        """The proxy stood still so long: an exchange gets that time, an idle connection ages."""
        if self._state != _IDLE:
            self.deadline += seconds
            self.expires += seconds

    def overdue(self) -> None:
        """The deadline has passed: an idle connection closes, an exchange ends as a time-out."""
        if self._state == _IDLE:
            self.retire()
            return
        what = "did not answer" if self._reply is None else "stopped in the middle of its answer"
        fault = UpstreamFault(Code.UPSTREAM_TIMEOUT, f"The application {what} in time.", sent=True)
        fault.starved = self._sender is not None and self._writable is None and self._reply is None
        self._fail(fault)

    def retire(self) -> None:
        """Close a connection that carries nothing."""
        self._fail(None)

    def leave(self, turn: int) -> None:
        """Drop the exchange of that number in ``served``.

        No effect after its end: the connection may carry another exchange.
        """
        if self.served == turn and self._state != _IDLE:
            self.abort()

    def abort(self) -> None:
        """Drop the connection and whatever it carries."""
        self._fail(UpstreamFault(Code.UPSTREAM_BROKEN, "The exchange was dropped.", sent=True))

    # ------------------------------------------------ what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Part of asyncio.Protocol."""
        state = self._state
        try:
            if state == _HEAD:
                waiter = self._waiter
                straight = isinstance(waiter, PendingReply) and self._sender is None
                whole = (
                    self._reader.complete_message(data)
                    if straight and self._call.method != "HEAD"
                    else None
                )
                if whole is None or whole[0].close:
                    self._on_head(data)
                    return
                self._call, self._waiter, self._state = _NOTHING, None, _IDLE
                self.expires = _NEVER  # as ``_rest``, without a call
                self.deadline = self._loop.time() + self._limits.keep
                self._home.release(self)
                cast("PendingReply", waiter).on_complete(*whole)
            elif state == _BODY:
                self._on_body(data)
            elif state == _IDLE:
                self.retire()
        except BadMessageError as why:
            self._fail(
                UpstreamFault(
                    Code.UPSTREAM_BROKEN, f"The application's answer is not HTTP: {why}.", sent=True
                )
            )

    def eof_received(self) -> bool:
        """Part of asyncio.Protocol: a tunnel stays open the other way, everything else ends."""
        reply = self._reply
        if reply is not None and reply.framing is TUNNEL:
            reply.finish()
            return True
        if self._state == _IDLE:
            self.retire()  # it must not be chosen until the transport is gone
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of asyncio.Protocol."""
        if self._reply is not None and exc is None and self._reply.framing in (CLOSE, TUNNEL):
            self._reply.finish()
            self._end(None)
            return
        text = (
            "closed the connection before it answered" if self._silent else "broke its answer off"
        )
        fault = UpstreamFault(
            Code.UPSTREAM_BROKEN, f"The application {text}.", sent=True, silent=self._silent
        )
        if (
            self._silent
            and self.served == 1
            and self._transport.get_extra_info("sslcontext") is not None
        ):
            # With TLS 1.3 the application judges our certificate after our side of the handshake;
            # its alert may be lost.
            code = (
                Code.UPSTREAM_UNREACHABLE if isinstance(exc, ssl.SSLError) else Code.UPSTREAM_BROKEN
            )
            fault = UpstreamFault(code, _REJECTED, sent=True)
        self._end(fault)

    def pause_writing(self) -> None:
        """Part of asyncio.Protocol: the application reads slower than we send."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """Part of asyncio.Protocol."""
        self._release_writer()

    # ------------------------------------------------ reading the answer

    def _on_head(self, data: bytes) -> None:
        self._silent = False
        while (complete := self._reader.read_head(data)) is not None:
            head, data = complete
            if head.status >= 200 or head.status == 101:
                self._begin(head, data)
                return
            tell = (
                self._waiter.interim
                if isinstance(self._waiter, PendingReply)
                else self._call.interim
            )
            if tell is not None:
                tell(head.status, head.reason, head.headers)
            if not data:
                return

    def _begin(self, head: ResponseHead, rest: bytes) -> None:
        """Make the reply of a final head, read the bytes after it, and wake the waiter."""
        call, self._call = self._call, _NOTHING
        framing = self._reader.framing(head, call.method)
        if framing is TUNNEL and not call.upgrade:
            raise BadMessageError("it switches to a protocol that was not requested")
        self._closing = head.close
        whole = rest if framing is LENGTH and len(rest) == head.length else None
        reply = BufferedReply(head, framing, self, self._limits.buffer_bytes, whole)
        if whole is None:
            self._reply = reply
            self._state = _BODY
            self._reader.start_body(reply, framing, head.length, self._limits.head_bytes)
            self._on_body(rest)
        else:
            self._finish(b"")
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(reply)

    def _on_body(self, data: bytes) -> None:
        rest = self._reader.feed_body(data)
        if self._reader.body.done:
            self._finish(rest)
        elif not self._reading_paused:
            self._touch()

    def pause_reading(self) -> None:
        """Pause reading of a body until its reader has taken the waiting bytes."""
        self._reading_paused = True
        self.deadline = _NEVER  # the silence is ours, not the application's
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            self._touch()
            self._transport.resume_reading()

    def _touch(self) -> None:
        """Something moved: the silence begins again."""
        self.deadline = self._loop.time() + self._limits.idle

    def _finish(self, rest: bytes) -> None:
        """Release the connection behind a complete answer.

        Bytes behind it, or a request not fully sent, end the connection's use.
        """
        if self._reading_paused:
            self._reader.body.detach()
        self._reader.body = EMPTY
        self._reply = None
        if rest or self._closing or self._sender is not None:
            self.retire()
            return
        if self._reading_paused:
            self.resume_reading()
        self._rest()

    def _rest(self) -> None:
        """Wait for another exchange."""
        self._state = _IDLE
        self.deadline = self._loop.time() + self._limits.keep
        self.expires = _NEVER
        self._home.release(self)

    # ------------------------------------------------ the end

    def _fail(self, error: BaseException | None) -> None:
        self._end(error)
        self._transport.abort()

    def _end(self, error: BaseException | None) -> None:
        """Inform all waiters, once, and leave the pool."""
        if self._state == _CLOSED:
            return
        self._state = _CLOSED
        self.deadline = _NEVER
        if self._sender is not None:
            self._sender.cancel()
            self._sender = None
        self._release_writer()
        if error is not None:
            waiter, self._waiter = self._waiter, None
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)
            if self._reply is not None:
                self._reply.fail(error)
        self._home.lost(self)

    def _release_writer(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)
