"""An answer on its way: the head is there, the pieces of the body arrive and are taken."""

import asyncio
from typing import Protocol

from proxy.redactor.message import RawHeaders
from proxy.web.upstream.port import Framing, Head


class Feed(Protocol):
    """The connection behind a reply, as far as the reply steers it."""

    def resume(self) -> None:
        """The pieces were taken: read on."""

    def abort(self) -> None:
        """Drop the connection."""


class BufferedReply:
    """The reply of a real connection: a queue of pieces between the connection, which fills it, and one reader."""

    __slots__ = ("_error", "_pieces", "_waiter", "done", "feed", "framing", "head", "held", "trailers")

    def __init__(self, head: Head, framing: Framing, feed: Feed) -> None:
        self.head = head
        self.framing = framing
        self.feed = feed
        self.trailers: RawHeaders = ()
        self.done = False  #: the body is complete
        self.held = 0  #: bytes of body that wait to be read
        self._pieces: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None
        self._error: BaseException | None = None

    # ------------------------------------------------ the connection's side

    def push(self, piece: bytes) -> None:
        """More of the body."""
        self._pieces.append(piece)
        self.held += len(piece)
        if self._waiter is not None:
            self._wake()

    def finish(self) -> None:
        """The body is complete."""
        self.done = True
        if self._waiter is not None:
            self._wake()

    def fail(self, error: BaseException) -> None:
        """The body will never be complete; the reader gets what came, then the error."""
        self._error = error
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # ------------------------------------------------ the reader's side

    @property
    def whole(self) -> bytes | None:
        """See ``Reply.whole``."""
        return self._take() if self.done else None

    async def read(self) -> bytes:
        """See ``Reply.read``."""
        while True:
            if self._pieces:
                return self._take()
            if self.done:
                return b""
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def _take(self) -> bytes:
        pieces = self._pieces
        if not pieces:
            return b""
        if len(pieces) == 1:
            data = pieces.pop()
        else:
            data = b"".join(pieces)
            pieces.clear()
        self.held = 0
        if not self.done:
            self.feed.resume()
        return data

    def abort(self) -> None:
        """See ``Reply.abort``."""
        if not self.done:
            self.feed.abort()
