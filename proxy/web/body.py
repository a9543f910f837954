"""The body of a request on its way: the reader of the connection fills it, whoever handles the request takes from it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final, Protocol

from proxy.redactor.message import RawHeaders

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


class Body:
    """A queue of pieces between the connection, which fills it, and one taker."""

    __slots__ = ("_eof", "_error", "_flow", "_held", "_paused", "_pieces", "_waiter", "total_bytes", "trailers")

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
        if (self._held > _HIGH or len(self._pieces) > _MANY) and not self._paused and self._flow is not None:
            self._paused = True
            self._flow.pause_reading()

    def feed_eof(self) -> None:
        """It is complete."""
        self._eof = True
        self._wake()

    def set_exception(self, error: BaseException) -> None:
        """It will never be complete; the taker gets what came, then the error. Does nothing to a complete one."""
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
        """The next bytes as soon as there are any; ``b""`` at the end. Raises what went wrong on the connection."""
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
EMPTY: Final = Body(None, b"")
