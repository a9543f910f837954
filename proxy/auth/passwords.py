"""Secrets checked beside the event loop, a few at a time, and with the same work for a client that does not exist.

One check takes some 20 ms of processor and 19 MiB. Done on the event loop it would hold up every other request; done
without a bound, a flood of token requests would take all memory. So half of the processors check, and a bounded number of
requests wait for their turn in a fair queue: each source has its turn after every other one, and known sources (a client at a
network from which it has authenticated before) come first. Where no room is left, the longest line gives way.
"""

import asyncio
import os
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final

from proxy.crypto.passwords import fits, hash_secret, new_secret
from proxy.errors import Code, VaultError

#: Requests that wait for their turn; at 20 ms each, the last one waits some five seconds.
_WAITING: Final = 256

#: Turns of known sources after which another one has its turn, too.
_AHEAD: Final = 4

#: Requests that wait, by their source, in the order in which the sources have their turn.
_Lines = OrderedDict[str, deque[asyncio.Future[None]]]


class Passwords:
    """For the event loop it was made on. ``prepare`` before use, ``close`` after it."""

    def __init__(self, threads: int | None = None, waiting: int = _WAITING) -> None:
        threads = threads or max(1, (os.cpu_count() or 2) // 2)
        self._executor = ThreadPoolExecutor(threads, "secrets")
        self._free = threads
        self._room = waiting
        self._known: _Lines = OrderedDict()
        self._others: _Lines = OrderedDict()
        self._ahead = 0  #: turns of known sources since the last one of another
        self._nobody: str | None = None  # what the secret of a client that does not exist is compared with

    @asynccontextmanager
    async def turn(self, source: str = "", *, known: bool = False) -> AsyncIterator[None]:
        """Wait for a turn to check a secret. Raises ``VaultError(OVERLOADED)`` when too many wait already."""
        if self._free > 0:
            self._free -= 1
        else:
            await self._wait(self._known if known else self._others, source)
        try:
            yield
        finally:
            self._leave()

    async def _wait(self, lines: _Lines, source: str) -> None:
        if self._room <= 0 and not self._displaced(lines, source):
            raise _overloaded()
        mine = asyncio.get_running_loop().create_future()
        lines.setdefault(source, deque()).append(mine)
        self._room -= 1
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled() and mine.exception() is None:
                self._leave()  # the turn came in the very moment in which the caller went away
            elif mine in lines.get(source, ()):
                self._remove(lines, source, mine)
            raise

    def _leave(self) -> None:
        """A check is over: whoever is next has its turn."""
        lines = self._others if not self._known or (self._others and self._ahead >= _AHEAD) else self._known
        if not lines:
            self._free += 1
            return
        self._ahead = 0 if lines is self._others else self._ahead + 1
        source = next(iter(lines))
        following = lines[source][0]
        self._remove(lines, source, following)
        if source in lines:
            lines.move_to_end(source)
        following.set_result(None)

    def _remove(self, lines: _Lines, source: str, waiting: asyncio.Future[None]) -> None:
        lines[source].remove(waiting)
        self._room += 1
        if not lines[source]:
            del lines[source]

    def _displaced(self, lines: _Lines, source: str) -> bool:
        """Whether the last one of the longest line has given way to this source."""
        among = self._known if lines is self._known and not self._others else self._others
        if not among:
            return False
        longest = max(among, key=lambda other: len(among[other]))
        if among is lines and len(among[longest]) <= len(lines.get(source, ())) + 1:
            return False
        last = among[longest][-1]
        self._remove(among, longest, last)
        last.set_exception(_overloaded())
        return True

    async def fits(self, stored: str | None, secret: str) -> bool:
        """Whether this is the secret. ``None`` for a client that does not exist: the same work, and never true."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._compare, stored, secret)

    async def made(self) -> tuple[str, str]:
        """A new secret, and what to store of it."""
        secret = new_secret()
        return secret, await asyncio.get_running_loop().run_in_executor(self._executor, hash_secret, secret)

    async def prepare(self) -> None:
        """Make what unknown clients are compared with, so that the first one takes no longer than those after it."""
        _, self._nobody = await self.made()

    def close(self) -> None:
        """Let the threads end; checks under way are finished."""
        self._executor.shutdown(wait=False)

    def _compare(self, stored: str | None, secret: str) -> bool:
        against = stored or self._nobody
        if against is None:
            raise RuntimeError("prepare was not called")
        return fits(against, secret) and stored is not None


def _overloaded() -> VaultError:
    error = VaultError(Code.OVERLOADED, "Too many requests for access tokens wait already: try again soon.")
    error.retry_after = 1
    return error
