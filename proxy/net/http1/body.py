"""Bodies of HTTP/1: chunked transfer coding (RFC 9112 section 7.1) and a queue of pieces.

The connection fills the queue, and a reader takes from it. Chunks are read strictly.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

from proxy.net.http1.fields import BadMessageError, parse_trailers
from proxy.redactor.message import RawHeaders

#: The size line: up to 15 hexadecimal digits; extensions are read over, as RFC 9112 section 7.1.1
#: asks.
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_LINE_MAX: Final = 1024


def frame(piece: bytes) -> bytes:
    """Return a piece as a chunk; it must not be empty, which would end the body."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


class ChunkReader:
    """Feed it bytes; it gives the pieces of content in them.

    ``done`` is set at the end, with trailers and the rest.
    """

    __slots__ = ("_left", "_pending", "_trailer_max", "_trailing", "done", "rest", "trailers")

    def __init__(self, trailer_max: int) -> None:
        self.done = False
        self.rest = b""  #: bytes that came after the end
        self.trailers: RawHeaders = ()
        self._pending = b""  #: an incomplete size line, or the trailer so far
        #: bytes of the current chunk still to come, its line end included; 0: a size line is next
        self._left = 0
        self._trailing = False
        self._trailer_max = trailer_max

    def feed(self, data: bytes) -> list[bytes]:
        """The content in these bytes, in order. Raises ``BadMessageError``."""
        pieces: list[bytes] = []
        if self._pending:
            data, self._pending = self._pending + data, b""
        at = 0
        while not self.done:
            if self._trailing:
                self._trailer(data[at:])
                break
            if not self._left:
                at = self._size(data, at)
                if at < 0:
                    break
                continue
            if at >= len(data):
                break
            at = self._content(data, at, pieces)
        return pieces

    def _size(self, data: bytes, at: int) -> int:
        """Read a size line at ``at``; gives the place behind it, or -1 if it is not complete."""
        end = data.find(b"\r\n", at)
        if end < 0:
            if len(data) - at > _LINE_MAX:
                raise BadMessageError("the size line of a chunk is too long")
            if data.find(b"\n", at) >= 0:
                raise BadMessageError("the size line of a chunk ends with a bare line end")
            self._pending = data[at:]
            return -1
        line = _SIZE.fullmatch(data, at, end)
        if line is None or end - at > _LINE_MAX:
            raise BadMessageError("the size line of a chunk is not a hexadecimal number")
        size = int(line[1], 16)
        if size:
            self._left = size + 2
        else:
            self._trailing = True
        return end + 2

    def _content(self, data: bytes, at: int, pieces: list[bytes]) -> int:
        here = min(len(data) - at, self._left)
        content = min(here, self._left - 2)
        if content > 0:
            pieces.append(data[at : at + content])
        else:
            content = 0
        ending = data[at + content : at + here]
        self._left -= here
        if ending and ending != b"\r\n"[2 - self._left - len(ending) : 2 - self._left]:
            raise BadMessageError("a chunk is longer or shorter than its size line says")
        return at + here

    def _trailer(self, data: bytes) -> None:
        if data.startswith(b"\r\n"):
            self.done, self.rest = True, data[2:]
            return
        end = data.find(b"\r\n\r\n")
        if end > self._trailer_max or (end < 0 and len(data) > self._trailer_max):
            raise BadMessageError("the trailers are too large")
        if end < 0:
            if data.count(b"\n") != data.count(b"\r\n"):
                raise BadMessageError("the trailers hold a bare line end")
            self._pending = data
            return
        self.trailers = parse_trailers(data[: end + 2])
        self.done, self.rest = True, data[end + 4 :]


#: Bytes that wait for a slow taker before its connection is read no further.
REQUEST_BUFFER: Final = 131072
#: The same in pieces: each costs more than the bytes in it where they come one by one.
_MANY: Final = 512

#: Seconds and bytes of an unwanted body that are read, and seconds for which nothing may come.
_LINGER_SECONDS: Final = 10.0
_LINGER_BYTES: Final = 256 * 1024 * 1024
_LINGER_IDLE: Final = 3.0


class Flow(Protocol):
    """The connection behind a body, as far as the body steers it."""

    def pause_reading(self) -> None:
        """Read no more for now."""

    def resume_reading(self) -> None:
        """Read on."""


class BodyWaiter(Protocol):
    """Hears that more of a body, its end or its fault is there: a future, or the like."""

    def done(self) -> bool:
        """Whether it hears nothing more."""

    def set_result(self, result: None, /) -> None:
        """Something is there."""


class BodyQueue:
    """A queue of pieces between the connection, which fills it, and one taker.

    ``flow`` reads no more while over ``most`` bytes wait; ``whole``: all of the body is here.
    """

    __slots__ = (
        "_error", "_flow", "_joins", "_most", "_paused", "_pieces", "_waiter", "done", "total",
        "trailers", "waiting",
    )  # fmt: skip

    def __init__(
        self, flow: Flow | None, whole: bytes | None = None, most: int = REQUEST_BUFFER
    ) -> None:
        self._flow = flow
        self._most = most
        self._joins = False  #: many small pieces become one
        self._pieces: list[bytes] = [whole] if whole else []
        self._paused = False
        self._error: BaseException | None = None
        self._waiter: BodyWaiter | None = None
        self.done = whole is not None  #: all of it has come, taken or not
        self.total = self.waiting = len(whole) if whole else 0  #: bytes so far, and not taken yet
        self.trailers: RawHeaders = ()  #: filled when the body ends

    # ------------------------------------------------ the connection's side

    def feed(self, data: bytes) -> None:
        """Add more of the body."""
        pieces = self._pieces
        pieces.append(data)
        self.waiting += len(data)
        if len(pieces) > _MANY and self._joins:
            pieces[:] = [b"".join(pieces)]
        self.total += len(data)
        if self._waiter is not None:
            self._wake()
        if (
            (self.waiting > self._most or len(self._pieces) > _MANY)
            and not self._paused
            and self._flow is not None
        ):
            self._paused = True
            self._flow.pause_reading()

    def hold(self, most: int) -> None:
        """Let so many bytes wait from now on, in however many pieces they come."""
        self._most, self._joins = most, True
        if self._paused and self.waiting <= most:
            self._paused = False
            if self._flow is not None:
                self._flow.resume_reading()

    def finish(self, trailers: RawHeaders = ()) -> None:
        """Mark the body complete."""
        self.trailers = trailers
        self.done = True
        if self._waiter is not None:
            self._wake()

    def fail(self, error: BaseException) -> None:
        """End a body that stays incomplete: the reader gets its bytes, then the error."""
        if not self.done and self._error is None:
            self._error = error
            self._wake()

    def detach(self) -> None:
        """Steer the connection no more."""
        self._flow = None

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # ------------------------------------------------ the taker's side

    @property
    def buffered(self) -> bytes | None:
        """The whole body where it is here, which stays; else ``None``."""
        pieces = self._pieces
        if not (self.done and pieces) or self._paused:
            return None
        if len(pieces) > 1:
            pieces[:] = [b"".join(pieces)]
        return pieces[0]

    def tell(self, waiter: BodyWaiter) -> bool:
        """Have ``waiter`` hear what comes next; ``False``: nothing does."""
        if self.done or self._error is not None:
            return False
        self._waiter = waiter
        return True

    @property
    def joined(self) -> bytes | None:
        """All bytes that wait, in one piece from now on, which stays; ``None``: more may come."""
        if not self.done or self._paused:
            return None
        if len(self._pieces) > 1:
            self._pieces = [b"".join(self._pieces)]
        return self._pieces[0] if self._pieces else b""

    def take(self) -> bytes:
        """Take all bytes that have arrived and were not taken yet."""
        pieces = self._pieces
        if not pieces:
            return b""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self.waiting = 0
        if self._paused:
            self._paused = False
            if self._flow is not None:
                self._flow.resume_reading()
        return data

    async def read(self) -> bytes:
        """The next bytes as soon as there are any; ``b""`` at the end.

        Raises what went wrong on the connection.
        """
        while not self._pieces:
            if self.done:
                return b""
            if self._error is not None:
                raise self._error
            self._waiter = waiter = asyncio.get_running_loop().create_future()
            await waiter
        return self.take()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Iterate over the pieces as they arrive, to the end."""
        while piece := await self.read():
            yield piece

    async def linger(self, gone: Callable[[], bool]) -> None:
        """Read and drop what is unwanted, within limits, until its sender is ``gone``.

        So that it can read its answer: closing at once would reset the connection, and many read
        nothing before they have sent everything.
        """
        clock, limit = asyncio.get_running_loop().time, self.total + _LINGER_BYTES
        until = clock() + _LINGER_SECONDS
        try:
            while not self.done and self.total < limit and not gone():
                async with asyncio.timeout_at(min(until, clock() + _LINGER_IDLE)):
                    await self.read()
        except (TimeoutError, OSError, BadMessageError):
            return


#: Of every request without a body.
EMPTY: Final = BodyQueue(None, b"")
