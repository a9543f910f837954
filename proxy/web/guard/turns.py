"""How many requests of one caller are carried out at the same time; further ones wait in a line of their own.

Whoever sends a thousand requests at once then waits for itself, and others for a few of them at most.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from proxy.errors import Code, VaultError


class Turns:
    """``most`` at one time for each key, and as many as ``waiting`` behind them. ``told``: of each that is refused."""

    def __init__(
        self,
        most: int,
        waiting: int,
        code: Code = Code.TOO_MANY_REQUESTS,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        self._most = most
        self._waiting = waiting
        self._code = code
        self._told = told
        self._running: dict[str, int] = {}
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        return len(self._running)

    async def enter(self, key: str) -> None:
        """Return when it is this one's turn; call ``leave`` when it is over. Raises ``VaultError`` where the line is full."""
        running = self._running.get(key, 0)
        if running < self._most:
            self._running[key] = running + 1
            return
        line = self._lines.setdefault(key, deque())
        if len(line) >= self._waiting:
            if not line:
                del self._lines[key]
            raise self._refused()
        mine = asyncio.get_running_loop().create_future()
        line.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self.leave(key)  # the turn came in the very moment in which the caller went away
            elif mine in line:
                line.remove(mine)
            raise

    def leave(self, key: str) -> None:
        """One is over; the next in line takes its place."""
        line = self._lines.get(key)
        while line:
            following = line.popleft()
            if not following.done():
                following.set_result(None)
                return
        self._lines.pop(key, None)
        running = self._running[key] - 1
        if running:
            self._running[key] = running
        else:
            del self._running[key]

    def _refused(self) -> VaultError:
        self._told()
        what = "uploads" if self._code is Code.TOO_MANY_UPLOADS else "requests"
        refusal = VaultError(self._code, f"This client has too many {what} under way at the same time.")
        refusal.retry_after = 1
        return refusal
