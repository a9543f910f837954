"""Against a real Redis server, stopped and started again."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.edge.rate_limit import RateLimit, RatePolicy
from proxy.edge.shared_limits import Shared
from tests.support.patience import PATIENCE
from tests.support.redis import Server, redis_server

#: Local counts stand still, so that what is refused is refused for the store's sake.
pytestmark = pytest.mark.usefixtures("limits_clock")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with redis_server() as server:
        yield server


class Replica:
    def __init__(self, url: str, per_second: int, burst: int) -> None:
        self.rates = RateLimit(RatePolicy("credential", per_second, burst))
        self.states: list[bool] = []
        self.shared = Shared(
            url, [self.rates], lambda limit, key: f"{limit}-{key[::-1]}", self.states.append
        )

    def take(self, count: int, key: str = "abc") -> int:
        return sum(self.rates.take(key).allowed for _ in range(count))


@asynccontextmanager
async def replicas(
    url: str, per_second: int = 1, burst: int = 100
) -> AsyncIterator[tuple[Replica, Replica]]:
    """Two of them, with a quota of a hundred in a window that is longer than any of these tests."""
    one, other = Replica(url, per_second, burst), Replica(url, per_second, burst)
    try:
        yield one, other
    finally:
        await one.shared.close()
        await other.shared.close()


async def test_what_one_replica_took_is_missing_at_another(server):
    async with replicas(server.url) as (one, other):
        assert one.take(100) == 100
        await one.shared.report()
        assert other.take(20) == 20  # it cannot know yet
        await other.shared.report()
        assert other.take(20) == 0
        assert other.take(20, "somebody else") == 20
        assert one.states == other.states == [True]


async def test_a_debt_is_paid_in_time_and_the_caller_is_taken_again(server):
    async with replicas(server.url, 50, 2) as (one, other):
        one.take(100)
        await one.shared.report()
        other.take(10)
        await other.shared.report()
        async with asyncio.timeout(PATIENCE):  # within about two windows
            while not other.take(1):
                await other.shared.report()
                await asyncio.sleep(0.05)


async def test_all_replicas_together_let_the_pace_of_one_pass(server):
    """The store refills as a bucket in memory does: a quota at once, and then so many a second,
    whoever asks for them.
    """
    async with replicas(server.url, 100, 1) as (one, other), asyncio.timeout(PATIENCE):
        started, passed = time.monotonic(), 0
        assert one.take(100) == 100
        await one.shared.report()
        while passed < 100:
            passed += other.take(10)
            await other.shared.report()
            await asyncio.sleep(0.01)
        assert time.monotonic() - started > 0.8  # ten of them passed before anybody could know


async def test_who_asks_rarely_is_not_reported(server):
    async with replicas(server.url, 20, 50) as (one, _):
        one.take(5)
        await one.shared.report()
        assert await server.keys() == []
        one.take(40)
        await one.shared.report()
        assert len(await server.keys()) == 1


async def test_names_in_the_store_are_those_that_it_may_see(server):
    async with replicas(server.url) as (one, _):
        one.take(50, "203.0.113.7")
        await one.shared.report()
        (name,) = await server.keys()
        assert "203.0.113.7" not in name
        assert "7.311.0.302" in name
        assert "domicile:" in name


async def test_while_the_store_is_away_each_replica_counts_by_itself(server):
    async with replicas(server.url) as (one, other):
        one.take(100)
        await one.shared.report()
        other.take(50)
        await other.shared.report()
        assert other.take(1) == 0
        await server.stop()
        other.take(1)
        await other.shared.report()
        assert other.take(50) == 50
        assert other.take(1) == 0, "the local limit holds"
        await server.start()
        await other.shared.report()
        assert other.states == [True, False, True]


async def test_a_store_that_was_never_there_is_told_once():
    async with replicas("redis://127.0.0.1:1/0") as (one, _):
        for _ in range(3):
            one.take(1)
            await one.shared.report()
        assert one.states == [False]


async def test_reports_go_on_by_themselves(server):
    async with replicas(server.url) as (one, _):
        running = asyncio.create_task(one.shared.run(0.01))
        one.take(100)
        async with asyncio.timeout(PATIENCE):
            while not await server.keys():  # noqa: ASYNC110  # another process has them
                await asyncio.sleep(0.02)
        running.cancel()
