"""Room for bodies that are held whole: their sum is bounded, not only the size of each.

A matched request is read whole before a byte of it leaves, and its answer before a byte of it is passed on. So many
callers at once could fill the memory with bodies that are each within their limit. Here each of them takes room before
it is kept; where there is none it waits a while, and is then refused in words.
"""

import asyncio
from collections import deque
from typing import NamedTuple

from proxy.errors import Code, VaultError


class Room:
    """So many bytes for everybody together. One exchange alone always fits, whatever its size."""

    __slots__ = ("_patience", "_waiting", "held", "limit")

    def __init__(self, limit: int, patience: float) -> None:
        self.limit = limit
        self.held = 0  #: bytes taken now
        self._patience = patience  #: seconds to wait for room
        self._waiting: deque[_Waiter] = deque()

    def fits(self, size: int, own: int) -> bool:
        """Whether somebody who holds ``own`` bytes may take more now; who holds none stands behind those who wait."""
        held = self.held
        return held == own or (held + size <= self.limit and (own > 0 or not self._waiting))

    async def wait(self, size: int, own: int) -> None:
        """Return when so many bytes were taken. Raises ``VaultError`` (OVERLOADED) when nobody gave room in time."""
        waiter = _Waiter(asyncio.get_running_loop().create_future(), size, own)
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(self._patience):
                await waiter.turn
        except BaseException as fault:
            self._leave(waiter)
            if isinstance(fault, TimeoutError):
                raise VaultError(
                    Code.OVERLOADED, "The proxy holds as many bodies as it may at the moment: send this again later."
                ) from None
            raise

    def _leave(self, waiter: "_Waiter") -> None:
        if waiter.turn.done() and not waiter.turn.cancelled():
            self.give(waiter.size)  # its turn came while it was leaving
        else:
            self._waiting.remove(waiter)
            self.give(0)

    def give(self, size: int) -> None:
        """Give bytes back; those who wait come in, in their order, as far as they fit."""
        self.held -= size
        while self._waiting:
            waiter = self._waiting[0]
            if self.held != waiter.own and self.held + waiter.size > self.limit:
                return
            self._waiting.popleft()
            if not waiter.turn.done():
                self.held += waiter.size
                waiter.turn.set_result(None)


class _Waiter(NamedTuple):
    turn: asyncio.Future[None]
    size: int
    own: int


class Holding:
    """What one message holds of a room. ``close`` gives it back."""

    __slots__ = ("_room", "size")

    def __init__(self, room: Room) -> None:
        self._room = room
        self.size = 0

    def at_once(self, size: int) -> bool:
        """Hold so many bytes more if there is room for them now; says whether there was."""
        room = self._room
        if not room.fits(size, self.size):
            return False
        room.held += size
        self.size += size
        return True

    async def take(self, size: int) -> None:
        """Hold so many bytes more, as soon as there is room. Raises ``VaultError`` (OVERLOADED)."""
        if not self.at_once(size):
            await self._room.wait(size, self.size)
            self.size += size

    def add(self, size: int) -> None:
        """Hold so many bytes more that are there already: later ones wait for it."""
        self._room.held += size
        self.size += size

    def close(self) -> None:
        """Give everything back. Harmless when done twice."""
        size, self.size = self.size, 0
        if size:
            self._room.give(size)
