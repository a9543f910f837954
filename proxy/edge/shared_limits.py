"""Rate limits shared by several replicas through Redis, Valkey or a compatible store.

No request waits for the store. Each replica applies the whole limit locally (``rate_limit``); ten
times a second it reports its count there. Requests beyond the shared limit become a debt: the
caller is refused here until it is paid. So all replicas together admit at most the limit, plus what
they admit between two reports. A caller so slow that it could not exceed the limit at thirty-two
replicas is not reported at all.

While the store is down, each replica applies the limit alone: a caller may then get as many times
the limit as there are replicas, and nobody is refused because of the store.

The counting in the store is that of ``bucket_store``, by the same library: a replica and all of
them together let the same pace pass.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, cast

import redis.asyncio as redis
from throttled.asyncio import RedisStore, Throttled, per_sec
from throttled.exceptions import StoreUnavailableError

from proxy.edge.bucket_store import GCRA
from proxy.edge.rate_limit import RateLimit
from proxy.telemetry import logs

_log = logs.logger("limits")

#: Seconds between two reports, and until a store that was away is tried again.
_EVERY: Final = 0.1
_AGAIN: Final = 1.0

#: Seconds that the store has for an answer, and for all answers of a report.
_ANSWER: Final = 0.5
_REPORT: Final = 5.0

#: The part of a quota below which a replica keeps its count to itself.
_SMALL: Final = 32

#: Concurrent reports, each of a key over its own connection.
_TOGETHER: Final = 8

#: How the names of counts begin in the store.
_PREFIX: Final = "domicile"


class _Store(RedisStore):
    """The store of several replicas, over its official client."""

    def __init__(self, url: str) -> None:
        connections = {"max_connections": _TOGETHER * 2}
        timeouts = {"SOCKET_TIMEOUT": _ANSWER, "SOCKET_CONNECT_TIMEOUT": _ANSWER}
        super().__init__(url, options={**timeouts, "CONNECTION_POOL_KWARGS": connections})

    async def close(self) -> None:
        await cast("redis.Redis", self._backend.get_client()).aclose(close_connection_pool=True)


class Shared:
    """Joins the counts of ``rates`` with those of other replicas.

    ``name`` turns (limit, key) into the key that the store may see.

    ``on_change`` is called with whether the store could be reached, whenever that changes.
    ``close`` it after use, unless ``run`` ran.
    """

    def __init__(
        self,
        url: str,
        rates: Sequence[RateLimit],
        name: Callable[[str, str], str],
        on_change: Callable[[bool], None],
    ) -> None:
        self._store = _Store(url)
        self._rates = tuple(rates)
        #: requests that were not taken yet
        self._owed: tuple[dict[str, int], ...] = tuple({} for _ in self._rates)
        self._name = name
        self._on_change = on_change
        self._there: bool | None = None
        self._limiters = tuple(self._limiter(limit) for limit in self._rates)
        for limit in self._rates:
            limit.used = {}

    async def run(self, every: float = _EVERY) -> None:
        """Report every so many seconds for ever; at the end the connections are closed."""
        try:
            while True:
                await asyncio.sleep(every if self._there is not False else _AGAIN)
                await self.report()
        finally:
            await self.close()

    async def report(self) -> None:
        """Report new requests to the store, and learn whose limit is used up elsewhere."""
        try:
            async with asyncio.timeout(_REPORT):
                if self._there is not True:
                    await self._store.exists("there")
                for limit, limiter, owed in zip(
                    self._rates, self._limiters, self._owed, strict=True
                ):
                    await self._report(limit, limiter, owed)
        except (StoreUnavailableError, TimeoutError, OSError):
            self._alone()
            self._say(False)
        else:
            self._say(True)

    async def close(self) -> None:
        await self._store.close()

    def _limiter(self, limit: RateLimit) -> Throttled:
        per_second, quota = limit.policy.per_second, limit.policy.quota
        return Throttled(
            using=GCRA, quota=per_sec(per_second, quota), store=self._store, key_prefix=_PREFIX
        )

    async def _report(self, limit: RateLimit, limiter: Throttled, owed: dict[str, int]) -> None:
        used, limit.used = limit.used or {}, {}
        quota = limit.policy.quota
        for key, count in used.items():
            owed[key] = min(owed.get(key, 0) + count, quota)
        due = [key for key, count in owed.items() if key in limit.owing or count * _SMALL >= quota]
        for key in owed.keys() - used.keys() - set(due):
            del owed[key]  # it came rarely, and comes no more
        part = max(1, quota // 10)
        turns = asyncio.Semaphore(_TOGETHER)

        async def pay(key: str) -> None:
            async with turns:
                if await self._paid(limiter, self._name(limit.policy.name, key), key, owed, part):
                    limit.owing.discard(key)
                else:
                    limit.owing.add(key)

        for outcome in await asyncio.gather(*map(pay, due), return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def _paid(
        self, limiter: Throttled, name: str, key: str, owed: dict[str, int], most: int
    ) -> bool:
        """Report the debt in parts; return whether the store took all of it."""
        while owed[key]:
            part = min(owed[key], most)
            if (await limiter.limit(name, part)).limited:
                return False
            owed[key] -= part
        del owed[key]
        return True

    def _alone(self) -> None:
        for limit, owed in zip(self._rates, self._owed, strict=True):
            limit.used = {}
            limit.owing.clear()
            owed.clear()

    def _say(self, there: bool) -> None:
        if there is self._there:
            return
        if not there:
            _log.warning("the shared limit store is down: each replica enforces its limits locally")
        elif self._there is False:
            _log.info("the shared limit store is back")
        self._there = there
        self._on_change(there)
