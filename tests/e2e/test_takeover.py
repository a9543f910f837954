"""Two instances on one database: one owns the vault, the other one waits for it."""

import asyncio
import random
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import asyncpg
import psutil
import pytest

from tests.e2e.test_kill import WORKERS, before, nowhere
from tests.support.application import Application
from tests.support.crowd import Crowd, moody
from tests.support.effort import rounds
from tests.support.lives import Installation
from tests.support.patience import PATIENCE, paced
from tests.support.postgres import fresh_address


class Pair:
    """Two installations with one database, key, folder of attachments and audit log."""

    def __init__(self, crowd: Crowd, address: str) -> None:
        first = crowd.installation
        first.environment |= {"DOMICILE__STORE": address, "DOMICILE__DATA": str(first.data)}
        second = Installation(first.nursery, first.folder / "two", dict(first.environment))
        second.folder.mkdir()
        shutil.copytree(first.rules, second.rules)
        self.crowd, self.address = crowd, address
        self.owner, self.waiting = first, second
        self.slowest = 0.0

    async def begin(self) -> None:
        assert await self.owner.start(), self.owner.log.decode()
        await self.waiting.begin()

    async def taken_over(self) -> None:
        """Wait until the one that waited serves; the other one waits from now on."""
        since = time.monotonic()
        self.owner, self.waiting = self.waiting, self.owner
        async with asyncio.timeout(PATIENCE):
            while not self.owner._listening():  # noqa: ASYNC110  # another process brings it about
                await asyncio.sleep(0.005)
        self.slowest = max(self.slowest, time.monotonic() - since)
        self.crowd.installation = self.owner
        await self.waiting.begin()

    async def end(self) -> None:
        for one in (self.owner, self.waiting):
            await one.kill()


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    application = Application()
    async with before(application, moody(application), tmp_path) as crowd:
        made = Pair(crowd, fresh_address(wait="600"))
        await made.begin()
        yield made
        await made.end()
        nowhere(crowd)


@pytest.mark.slow
async def test_either_is_killed_at_random_and_the_other_one_loses_nothing(pair: Pair) -> None:
    crowd = pair.crowd
    async with paced() as pace:
        for number in range(rounds(6)):
            if number % 4 == 3:
                await crowd.judge()
            work = [crowd.visit(worker, WORKERS) for worker in range(WORKERS)]
            if random.random() < 0.3:  # the one that waits; nobody notices
                await pair.waiting.kill()
                await pair.waiting.begin()
            await pair.owner.kill_at_work(work, crowd.counts, 40)
            await pair.taken_over()
        most = PATIENCE / 8 * pace.stretched
    await crowd.judge(len(crowd.every))
    print("slowest", pair.slowest, crowd.counts)
    assert pair.slowest < most, "a fraction of a second, on a machine at rest"


@pytest.mark.slow
async def test_who_lost_the_vault_ends_by_himself_and_leaves_the_audit_log_to_the_other(
    pair: Pair,
) -> None:
    """Its connection breaks at the server, and the one that waits is faster."""
    crowd = pair.crowd
    for _ in range(3):
        for _ in range(5):
            await crowd.create(0)
        loser = pair.owner
        end = loser.nursery.end_of(loser.process)
        async with asyncio.timeout(PATIENCE):
            while not end.done():
                await unlock(pair.address, loser.process)
                await asyncio.wait([end], timeout=0.5)
        assert end.result() == 1
        assert loser.events("another instance has taken over the vault, and this one ends")
        await pair.taken_over()
        await crowd.judge()
    assert await pair.owner.stop() == 0
    await pair.waiting.kill()
    assert await pair.owner.run("audit", "verify") == 0, pair.owner.output + pair.owner.log


async def unlock(address: str, process: int) -> None:
    """End the session that owns the vault, at the server, if that process has it: as soon as the
    other one serves, the session is that of the other one.
    """
    with suppress(psutil.NoSuchProcess):
        ports = [one.laddr.port for one in psutil.Process(process).net_connections("tcp")]
        await _end_session(address, ports)


async def _end_session(address: str, ports: list[int]) -> None:
    schema = address.partition("schema=")[2].partition("&")[0]
    connection = await asyncpg.connect(address.partition("?")[0])
    try:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
            " AND classid = 17485"  # _OWNER_LOCK of the link
            f" AND objid = (hashtext('{schema}')::bigint & 4294967295)::oid"
            " AND pid IN (SELECT pid FROM pg_stat_activity WHERE client_port = ANY($1))",
            ports,
        )
    finally:
        await connection.close()
