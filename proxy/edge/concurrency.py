"""How much of one caller is carried out at the same time; what is more waits in a line of its own.

Whoever sends a thousand requests at once then waits for itself, and others for a few of them at
most. A request that works on many records weighs more than one, for so much longer does it keep
others waiting.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from proxy.errors import Code, VaultError


class ConcurrencyLimit:
    """``most`` at one time for each key, and as many as ``waiting`` behind them.

    ``told``: of each that is refused.
    """

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
        self._running: dict[str, int] = {}  # weights together
        self._lines: dict[str, deque[tuple[asyncio.Future[None], int]]] = {}

    def __len__(self) -> int:
        return len(self._running)

    async def enter(self, key: str, weight: int = 1) -> None:
        """Return when it is this one's turn; call ``leave`` when it is over.

        Raises ``VaultError`` where the line is full.

        One that weighs more than ``most`` has its turn alone.
        """
        running = self._running.get(key, 0)
        line = self._lines.get(key)
        if line is None and (running == 0 or running + weight <= self._most):
            self._running[key] = running + weight
            return
        if line is None:
            line = deque()
        if len(line) >= self._waiting:
            raise self._refused()
        self._lines[key] = line
        mine = asyncio.get_running_loop().create_future()
        line.append((mine, weight))
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                # the turn came in the very moment in which the caller went away
                self.leave(key, weight)
            else:
                self._go_on(key)  # whoever stood behind may find room
            raise

    def leave(self, key: str, weight: int = 1) -> None:
        """One is over; those next in line that fit take its place."""
        self._running[key] -= weight
        self._go_on(key)

    def _go_on(self, key: str) -> None:
        line, running = self._lines.get(key), self._running[key]
        while line:
            following, weight = line[0]
            if not following.done():
                if running and running + weight > self._most:
                    break
                running += weight
                following.set_result(None)
            line.popleft()
        if not line:
            self._lines.pop(key, None)
        if running:
            self._running[key] = running
        else:
            del self._running[key]

    def _refused(self) -> VaultError:
        self._told()
        if self._code is Code.OVERLOADED:
            refusal = VaultError(
                self._code,
                "Too many large pages are under way at the same time; ask again, or for fewer "
                "records.",
            )
            refusal.retry_after = 1
            return refusal
        what = "uploads" if self._code is Code.TOO_MANY_UPLOADS else "requests"
        refusal = VaultError(
            self._code, f"This client has too many {what} under way at the same time."
        )
        refusal.retry_after = 1
        return refusal


class LargePages:
    """Turns of pages that are too large to be held by everybody at once: a few in all, and fewer of
    one caller.

    Each one is in memory until it is sent, sealed and encoded.
    """

    def __init__(
        self, most: int = 3, waiting: int = 256, told: Callable[[], None] = lambda: None
    ) -> None:
        self._own = ConcurrencyLimit(max(1, most - 1), waiting, told=told)
        self._all = ConcurrencyLimit(most, waiting, Code.OVERLOADED, told)

    async def enter(self, key: str) -> None:
        """Return when it is this one's turn; call ``leave`` when it is over.

        Raises ``VaultError`` where the line is full.
        """
        await self._own.enter(key)
        try:
            await self._all.enter("")
        except BaseException:
            self._own.leave(key)
            raise

    def leave(self, key: str) -> None:
        """One is over."""
        self._all.leave("")
        self._own.leave(key)
