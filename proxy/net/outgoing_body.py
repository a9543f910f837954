"""Request bodies that are still on their way, and how many connections to an application they may
occupy.

A caller that sends its body one byte at a time keeps a connection to the application for as long as
it likes; a few hundred such callers would keep all of them, and everybody else would wait. So
bodies on their way get half of the connections at most, and where that half is full, the slowest of
those that wait for their own caller gives way.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from proxy.errors import Code
from proxy.net.memory_budget import BodyRate
from proxy.net.reply import UpstreamFault

#: Seconds after which a waiting body checks again for a slow one to drop.
_AGAIN: Final = 0.25


class Upload:
    """A request body on its way: passes its pieces on and measures their rate."""

    def __init__(self, body: AsyncIterator[bytes], uploads: "Uploads") -> None:
        self._body = body
        self._uploads = uploads
        self._task: asyncio.Task[None] | None = None
        self._given_up = False
        self._clock = asyncio.get_running_loop().time
        self._rate = BodyRate()

    def __aiter__(self) -> "Upload":
        return self

    async def __anext__(self) -> bytes:
        if self._task is None:
            self._task = asyncio.current_task()
            if self._task is not None:
                self._task.add_done_callback(lambda _: self.leave())
        self._rate.wait(self._clock())
        try:
            piece = await anext(self._body)
        except asyncio.CancelledError:
            if not self._given_up or self._task is None or self._task.uncancel():
                raise
            fault = UpstreamFault(
                Code.UPSTREAM_TIMEOUT, "The body of the request came too slowly.", sent=True
            )
            fault.starved = True
            raise fault from None
        self._rate.received(len(piece), self._clock())
        return piece

    def deficit(self, now: float) -> float:
        """Return the caller's arrears; see ``BodyRate.deficit``."""
        return self._rate.deficit(now)

    def give_way(self) -> None:
        """End with a fault that is the caller's own."""
        self._given_up = True
        if self._task is not None:
            self._task.cancel()
        self.leave()

    def leave(self) -> None:
        """End the body, in any way. Idempotent."""
        self._uploads.left(self)


class Uploads:
    """The bodies on their way to one application: ``most`` at once, others wait ``seconds``."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = max(1, most)
        self._seconds = seconds
        self._under_way: set[Upload] = set()
        self._waiters: deque[asyncio.Future[None]] = deque()

    async def enter(self, body: AsyncIterator[bytes]) -> Upload:
        """Let a body start, at once where there is a place.

        Raises ``UpstreamFault`` when none became free.
        """
        if len(self._under_way) >= self._most or self._waiters:
            await self._wait()
        upload = Upload(body, self)
        self._under_way.add(upload)
        return upload

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._seconds
        turn: asyncio.Future[None] = loop.create_future()
        self._waiters.append(turn)
        try:
            while not turn.done():
                self._make_room(loop.time())
                await asyncio.wait([turn], timeout=max(0.0, min(_AGAIN, until - loop.time())))
                if not turn.done() and loop.time() >= until:
                    busy = (
                        f"The application has no free connection for a body: {self._most} are on "
                        "their way."
                    )
                    raise UpstreamFault(Code.UPSTREAM_BUSY, busy, sent=False)
        except BaseException:
            if turn in self._waiters:
                self._waiters.remove(turn)
            else:
                self._wake()  # its turn came while it was leaving
            raise

    def _make_room(self, now: float) -> None:
        slowest = max(self._under_way, key=lambda upload: upload.deficit(now), default=None)
        if slowest is not None and slowest.deficit(now) > 0:
            slowest.give_way()

    def left(self, upload: Upload) -> None:
        """End a body: the next may start."""
        if upload in self._under_way:
            self._under_way.discard(upload)
            self._wake()

    def _wake(self) -> None:
        if self._waiters and len(self._under_way) < self._most:
            self._waiters.popleft().set_result(None)
