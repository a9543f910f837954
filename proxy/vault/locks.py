"""Locks that let one writer at a time change a record.

So the application and the vault see updates in the same order.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Final

from proxy.crypto.prf import Digest, either
from proxy.storage.base import Replicas

#: In the place of a salt (``Underway``): a record was deleted that the vault knew.
ENDED: Final = b"ended"
#: Before the name of a record that is being deleted.
_DELETING: Final = b"delete "


class RecordLocks:
    """Named locks that exist only while they are held or awaited.

    Taking a free one costs a dictionary entry: nearly every request finds its record free.
    """

    def __init__(self) -> None:
        self._queues: dict[bytes, deque[asyncio.Future[None]] | None] = {}

    def __len__(self) -> int:
        return len(self._queues)

    def take(self, name: bytes) -> bool:
        """Take one lock at once, if it is free; ``release`` it as any other."""
        if isinstance(name, Digest):
            if name.other in self._queues or bytes(name) in self._queues:
                return False
            self._queues.update(dict.fromkeys(either((name,))))
            return True
        if name in self._queues:
            return False
        self._queues[name] = None
        return True

    def deleting(self, names: Sequence[bytes]) -> Sequence[bytes]:
        """The names that a delete of these locks: where there are other replicas, further ones tell
        them that it is one.
        """
        return names

    async def attempt(self, name: bytes) -> bool:
        """``take`` that also asks other replicas."""
        return self.take(name)

    async def acquire(self, names: Iterable[bytes]) -> tuple[bytes, ...]:
        """Hold the locks of all names; give the answer to ``release``.

        They are taken in order, so that two holders of overlapping sets cannot block each other.
        """
        taken: list[bytes] = []
        try:
            for name in sorted(set(either(names))):
                if name in self._queues:
                    await self._wait(name)
                else:
                    self._queues[name] = None
                taken.append(name)
        except BaseException:
            self.release(taken)
            raise
        return tuple(taken)

    @asynccontextmanager
    async def hold(self, names: Iterable[bytes]) -> AsyncIterator[None]:
        """Hold the locks of all names until the block ends."""
        taken = await self.acquire(names)
        try:
            yield
        finally:
            self.release(taken)

    def release(self, names: Iterable[bytes]) -> None:
        """Let the next one of each name go on."""
        for name in names:
            if isinstance(name, Digest):
                self.release(either((name,)))
                continue
            waiting = self._queues[name]
            while waiting:
                following = waiting.popleft()
                if not following.done():
                    following.set_result(None)  # the lock passes on without ever being free
                    break
            else:
                del self._queues[name]

    async def _wait(self, name: bytes) -> None:
        waiting = self._queues[name]
        if waiting is None:
            waiting = self._queues[name] = deque()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release((name,))  # our turn came at the moment we were cancelled
            raise


class SharedLocks(RecordLocks):
    """The locks of a table whose records other replicas change as well.

    Nothing can be taken at once: the others have to be asked.
    """

    def __init__(self, replicas: Replicas, table: str) -> None:
        super().__init__()
        self._replicas = replicas
        self._table = table.encode() + b"\0"

    def take(self, name: bytes) -> bool:  # noqa: ARG002  # as it is called
        return False

    async def attempt(self, name: bytes) -> bool:
        if not super().take(name):
            return False
        had = False
        try:
            had = await self._replicas.lock(self.shared((name,)), wait=False)
        finally:
            if not had:
                super().release((name,))
        return had

    def deleting(self, names: Sequence[bytes]) -> Sequence[bytes]:
        return [*names, *(_DELETING + name for name in either(names))]

    async def acquire(self, names: Iterable[bytes]) -> tuple[bytes, ...]:
        taken = await super().acquire(names)
        try:
            await self._replicas.lock(self.shared(taken))
        except BaseException:
            self.release(taken)
            raise
        return taken

    def release(self, names: Iterable[bytes]) -> None:
        digests = tuple(either(names))
        self._replicas.unlock(self.shared(digests))
        super().release(digests)

    def deletes(self, names: Iterable[bytes]) -> list[bytes]:
        """The names by which other replicas see that records are being deleted."""
        return self.shared([_DELETING + name for name in names])

    def shared(self, names: Iterable[bytes]) -> list[bytes]:
        """The names as other replicas see them."""
        return [self._table + name for name in either(names)]


# Tracks in-flight requests, so that a change can wait for those that started before it.


class InFlight:
    """Pieces of work that began and have not ended. Costs two entries in a set for each."""

    def __init__(self) -> None:
        self.last = 0  #: the number of the piece of work that began last
        self.own: ContextVar[int] = ContextVar("own", default=0)
        self.active: set[int] = set()
        self._waiting: list[tuple[set[int], asyncio.Future[None]]] = []

    def work(self) -> "PieceOfWork":
        """Return a context manager for a piece of work, such as a request."""
        return PieceOfWork(self)

    async def passed(self) -> None:
        """Wait until all work that is going on now has ended, but for the caller's own."""
        before = self.active - {self.own.get()}
        if not before:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (before, turn)
        self._waiting.append(entry)
        try:
            await turn
        finally:
            self._waiting.remove(entry)

    def leave(self) -> None:
        """End the caller's own piece of work now: it is to wait for all, and nobody for it."""
        self.ended(self.own.get())

    def ended(self, number: int) -> None:
        """End a piece of work. Ended already: no effect."""
        self.active.discard(number)
        for before, turn in self._waiting:
            before.discard(number)
            if not before and not turn.done():
                turn.set_result(None)


class PieceOfWork:
    """A piece of work for the length of a ``with`` block."""

    __slots__ = ("_flight", "_number", "_token")

    def __init__(self, flight: InFlight) -> None:
        self._flight = flight

    def __enter__(self) -> None:
        flight = self._flight
        flight.last = self._number = number = flight.last + 1
        flight.active.add(number)
        self._token = flight.own.set(number)

    def __exit__(self, *_: object) -> None:
        self._flight.own.reset(self._token)
        self._flight.ended(self._number)
