"""Secrets checked beside the event loop, a few at a time, and with the same work for a client that does not exist.

One check takes some 20 ms of processor and 19 MiB. Done on the event loop it would hold up every other request; done
without a bound, a flood of token requests would take all memory. So half of the processors check, a bounded number of
requests wait for their turn, and more are told to come later.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final

from proxy.crypto.passwords import fits, hash_secret, new_secret
from proxy.errors import Code, VaultError

#: Requests that wait for their turn; at 20 ms each, the last one waits some five seconds.
_WAITING: Final = 256


class Passwords:
    """For the event loop it was made on. ``prepare`` before use, ``close`` after it."""

    def __init__(self, threads: int | None = None, waiting: int = _WAITING) -> None:
        threads = threads or max(1, (os.cpu_count() or 2) // 2)
        self._executor = ThreadPoolExecutor(threads, "secrets")
        self._turns = asyncio.Semaphore(threads)
        self._room = threads + waiting
        self._nobody: str | None = None  # what the secret of a client that does not exist is compared with

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn to check a secret. Raises ``VaultError(OVERLOADED)`` when too many wait already."""
        if self._room <= 0:
            error = VaultError(Code.OVERLOADED, "Too many requests for access tokens wait already: try again soon.")
            error.retry_after = 1
            raise error
        self._room -= 1
        try:
            async with self._turns:
                yield
        finally:
            self._room += 1

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
