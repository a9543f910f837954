"""Questions that a standby answers (``find_from=standby``), so that the primary need not.

A standby is behind by some milliseconds, or by much more. It answers a question only when it has
every write that was acknowledged before: each transaction of an instance counts up that one's line
in ``writers``, which every one of them touches first, so a standby whose lines are as far as those
of the primary has them all. No number comes twice, so this holds across a fail-over, where
positions in the log of two servers could not be compared. A standby that is behind, away or breaks
off is left alone until it has caught up, and the primary answers meanwhile.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

import asyncpg

from proxy.errors import VaultError
from proxy.storage.base import Hooks
from proxy.storage.postgres.faults import vault_error
from proxy.storage.postgres.link import LONG_QUESTION, DatabaseLink

_T = TypeVar("_T")

#: Seconds for which a question waits for a connection to a standby that answered a moment ago, and
#: for what that one lacks; between two looks at the latter; and between two tries otherwise.
_CONNECTING: Final = 0.25
_CATCHING_UP: Final = 0.05
_LOOK: Final = 0.005
_REST: Final = 1.0

_PROGRESS: Final = "SELECT id, done FROM writers"
_HAS_ALL: Final = (
    "SELECT pg_is_in_recovery(), NOT EXISTS (SELECT 1 FROM unnest($1::bigint[], $2::bigint[])"
    " AS n(id, done) WHERE NOT EXISTS"
    " (SELECT 1 FROM writers AS w WHERE w.id = n.id AND w.done >= n.done))"
)


class _Behind(Exception):
    """The standby lacks writes, or is none any more."""


class Questions:
    """Asks a standby where the address says so and one is fit for it, else the primary."""

    def __init__(self, link: DatabaseLink, hooks: Hooks) -> None:
        self._link, self._hooks = link, hooks
        self._pool: asyncpg.Pool | None = None
        self._fit = False
        self._looking: asyncio.Task[None] | None = None

    def begin(self) -> None:
        if self._link.address.standby and self._looking is None:
            self._looking = asyncio.create_task(self._look())

    async def close(self) -> None:
        """Let go of the standby. Idempotent."""
        self._fit = False
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.terminate()

    async def ask(self, question: Callable[[Any], Awaitable[_T]]) -> _T:
        """Ask a question of a state that has every write acknowledged so far; the answer.

        Raises ``VaultError``.
        """
        if self._fit and self._pool is not None:
            progress = await self._link.fetch(_PROGRESS)
            try:
                answer = await self._from_standby(self._pool, progress, question)
            except VaultError:
                raise
            except Exception:  # noqa: BLE001 - whatever it is, the primary answers or says what it is
                self._give_up()
            else:
                self._hooks.on_question("standby")
                return answer
        if self._looking is not None:
            self._hooks.on_question("primary")
        return await self._link.read(question, LONG_QUESTION)

    async def _from_standby(
        self, pool: asyncpg.Pool, progress: list[Any], question: Callable[[Any], Awaitable[_T]]
    ) -> _T:
        async with pool.acquire(timeout=_CONNECTING) as connection:
            async with asyncio.timeout(_CONNECTING + _CATCHING_UP):
                await self._catch_up(connection, progress)
            try:
                async with asyncio.timeout(LONG_QUESTION):
                    return await question(connection)
            except TimeoutError as error:  # the primary would take as long again
                raise vault_error(error) from error

    async def _catch_up(self, connection: Any, progress: list[Any]) -> None:
        """Wait a moment until it has these writes. Raises ``_Behind``."""
        ids, done = [one[0] for one in progress], [one[1] for one in progress]
        end = time.monotonic() + _CATCHING_UP
        while self._link.writer_id in ids:
            follows, has_all = await connection.fetchrow(_HAS_ALL, ids, done)
            if follows and has_all:
                return
            if not follows or time.monotonic() > end:
                break
            await asyncio.sleep(_LOOK)
        raise _Behind

    def _give_up(self) -> None:
        self._fit = False
        if self._looking is not None and self._looking.done():
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        """Until a standby is there that has every write."""
        while not self._fit:
            with suppress(Exception):  # it is tried again, and asked for nothing meanwhile
                self._fit = await self._is_fit()
                return
            await asyncio.sleep(_REST)

    async def _is_fit(self) -> bool:
        """Whether a standby has every write. Raises whatever stands against it."""
        address = self._link.address
        if self._pool is None:
            self._pool = await self._link.new_pool(address.standby, least=0)
        await self._pool.expire_connections()
        progress = await self._link.fetch(_PROGRESS)
        async with asyncio.timeout(2 * address.timeout), self._pool.acquire() as connection:
            await self._catch_up(connection, progress)
        return True
