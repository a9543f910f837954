"""One request as it came and what was answered so far: what everybody who handles it shares."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from time import perf_counter
from typing import Final, Protocol

from proxy.net.client_address import ClientAddress
from proxy.net.coverage import Sample, Unruled
from proxy.net.http1 import RequestHead
from proxy.net.memory_budget import Reservation
from proxy.net.reply import Begun
from proxy.redactor.message import RawHeaders
from proxy.redactor.rules import Endpoint, Match, PassRule

# The body of a request on its way: the reader of the connection fills it, whoever handles the
# request takes from it.


#: Bytes held for a slow taker before the caller's connection is read no further.
_HIGH: Final = 131072
#: The same in pieces: each costs more than the bytes in it where they come one by one.
_MANY: Final = 512


class Flow(Protocol):
    """The connection behind a body, as far as the body steers it."""

    def pause_reading(self) -> None:
        """Read no more for now."""

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Read on."""


class BodyQueue:
    """A queue of pieces between the connection, which fills it, and one taker."""

    __slots__ = (
        "_eof",
        "_error",
        "_flow",
        "_held",
        "_paused",
        "_pieces",
        "_waiter",
        "total_bytes",
        "trailers",
    )

    def __init__(self, flow: Flow | None, whole: bytes | None = None) -> None:
        self._flow = flow
        self._pieces: list[bytes] = [whole] if whole else []
        self._held = 0
        self._paused = False
        self._eof = whole is not None  #: nothing more comes
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.total_bytes = len(whole) if whole else 0  #: bytes that have come so far
        self.trailers: RawHeaders = ()  #: filled when the body ends

    # ------------------------------------------------ the connection's side

    def feed_data(self, data: bytes) -> None:
        """More of it."""
        self._pieces.append(data)
        self._held += len(data)
        self.total_bytes += len(data)
        self._wake()
        if (
            (self._held > _HIGH or len(self._pieces) > _MANY)
            and not self._paused
            and self._flow is not None
        ):
            self._paused = True
            self._flow.pause_reading()

    def feed_eof(self) -> None:
        """It is complete."""
        self._eof = True
        self._wake()

    def set_exception(self, error: BaseException) -> None:
        """It will never be complete; the taker gets what came, then the error.

        Does nothing to a complete one.
        """
        if not self._eof and self._error is None:
            self._error = error
            self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # ------------------------------------------------ the taker's side

    def is_eof(self) -> bool:
        """Whether all of it has come, taken or not."""
        return self._eof

    def read_nowait(self) -> bytes:
        """What has come and was not taken yet."""
        pieces = self._pieces
        if not pieces:
            return b""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._held = 0
        if self._paused and self._flow is not None:
            self._paused = False
            self._flow.resume_reading(resume_parser=False)
        return data

    async def readany(self) -> bytes:
        """The next bytes as soon as there are any; ``b""`` at the end.

        Raises what went wrong on the connection.
        """
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self._eof:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self.read_nowait()

    async def iter_any(self) -> AsyncIterator[bytes]:
        """The pieces as they come, to the end."""
        while piece := await self.readany():
            yield piece


#: Of every request without a body.
EMPTY: Final = BodyQueue(None, b"")


#: Closing a socket with this option sends a reset: what was sent so far cannot be taken for a
#: complete answer.
_RESET: Final = struct.pack("ii", 1, 0)


class CallerPort(Protocol):
    """The caller's connection, as far as whoever handles a request needs it."""

    transport: asyncio.Transport | None  #: none: the caller has gone
    #: told of the end of what the caller sends; true: stay half open
    on_eof: Callable[[], bool] | None

    @property
    def client(self) -> ClientAddress:
        """Who the caller is."""

    @property
    def writing_paused(self) -> bool:
        """Whether the caller takes no bytes for now."""

    async def drained(self) -> None:
        """Return when the caller takes bytes again."""

    def answered(self, incoming: "RequestContext") -> None:
        """What was sent on at once is answered."""

    def resume(self, incoming: "RequestContext", begun: Begun) -> None:
        """The task of the connection has to go on with what was sent on at once."""


class RequestContext:
    """One request as it came, and what was answered so far."""

    __slots__ = (
        "began",
        "begun",
        "close",
        "connection",
        "endpoint",
        "head",
        "held",
        "match",
        "minor",
        "passed",
        "payload",
        "raw",
        "sample",
        "size",
        "started",
        "status",
        "target",
        "unruled",
    )

    def __init__(self, head: RequestHead, payload: BodyQueue, connection: "CallerPort") -> None:
        self.connection = connection
        self.head = head
        self.payload = payload
        self.raw: RawHeaders = head.headers  #: the fields, as they came
        self.minor = head.minor  #: 1 or 0, of the HTTP version
        self.target = head.target  #: byte for byte as it came
        self.started = perf_counter()  # the loop's own clock has steps of a millisecond
        self.endpoint: Endpoint | None = None  #: which the rules found
        self.match: Match | None = None
        self.passed: PassRule | None = None  #: the rule that lets it pass
        #: the shape of its path, where no rule names it and that is to be told
        self.unruled: Unruled | None = None
        self.sample: Sample | None = None  #: what is looked at while it passes by
        self.held: Reservation | None = None  #: room that its body takes while it is held whole
        self.begun: Begun | None = None  #: the exchange that the task is to go on with
        self.began = False  #: the head of the final answer is written
        self.status = 0
        self.size = 0  #: bytes of body written
        self.close = head.close  #: the connection ends with this answer

    def find(self, rule: Match | PassRule | None) -> None:
        """What the rules say of it."""
        self.match = rule if isinstance(rule, Match) else None
        self.passed = rule if isinstance(rule, PassRule) else None

    @property
    def gone(self) -> bool:
        """Whether nobody is there to read an answer."""
        return self.connection.transport is None

    def begin(self, status: int) -> None:
        """The head of the final answer is about to be written.

        A body still on its way would be read as the next request.
        """
        self.began = True
        self.status = status
        if not self.payload.is_eof():
            self.close = True

    def write(self, data: bytes) -> None:
        """Send bytes to the caller; nothing happens if the caller has gone."""
        transport = self.connection.transport
        if transport is not None:
            transport.write(data)

    async def drained(self, seconds: float) -> None:
        """Return when the caller takes bytes again; at once if it does.

        Raises ``TimeoutError`` after so long.
        """
        connection = self.connection
        if connection.writing_paused:
            async with asyncio.timeout(seconds):
                await connection.drained()

    @property
    def unsent(self) -> int:
        """Bytes that were written for the caller and that it did not take yet, as far as the system
        tells.
        """
        transport = self.connection.transport
        return transport.get_write_buffer_size() if transport is not None else 0

    def cut(self) -> None:
        """End the connection so that the caller sees a broken answer, never a complete-looking one."""
        transport = self.connection.transport
        if transport is not None:
            tcp = transport.get_extra_info("socket")
            if tcp is not None:
                tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            transport.abort()

    def _cancel(self, error: BaseException) -> None:
        """Called by aiohttp when the caller is gone."""
        self.payload.set_exception(error)
