"""A whole installation on PostgreSQL: kill -9 of the service and of the database under load, a
standby that takes over, a database that is away.
"""

import asyncio
import random
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.e2e.test_kill import WORKERS, before, converge, nowhere
from tests.support.application import Application
from tests.support.crowd import Crowd, body, faults, moody
from tests.support.effort import rounds
from tests.support.lives import Installation
from tests.support.patience import PATIENCE
from tests.support.postgres import Server, fresh_address

#: Seconds for which the database is away.
AWAY = 6.0


@pytest.fixture
async def crowd(tmp_path: Path) -> AsyncIterator[Crowd]:
    """Callers before an application with moods, and an installation on a schema of its own."""
    application = Application()
    async with before(application, moody(application), tmp_path) as made:
        made.installation.environment["DOMICILE__STORE"] = fresh_address()
        yield made
        await made.installation.kill()


@pytest.mark.slow
async def test_the_service_is_killed_at_random_and_loses_nothing(crowd: Crowd) -> None:
    installation = crowd.installation
    for number in range(rounds(10)):
        assert await installation.start(), installation.log.decode()
        if number % 4 == 3:
            await crowd.judge()
        work = (crowd.visit(worker, WORKERS) for worker in range(WORKERS))
        await installation.kill_at_work(work, crowd.counts, 40)
    await converge(crowd)
    nowhere(crowd)
    assert crowd.counts["POST killed"] > 2, crowd.counts


class Writers:
    """Callers that create people and read them again, whatever becomes of the database."""

    def __init__(self, crowd: Crowd) -> None:
        self.crowd = crowd
        self.acknowledged: dict[int, int] = {}  #: number of the values by id
        self.slowest = 0.0
        self.refused = 0
        self.since = 0.0  #: when the last write was acknowledged
        self.over = False

    async def work(self) -> None:
        while not self.over:
            number = self.crowd.next()
            status, seen = await self.ask("POST", "/people", json=body(number))
            if status == 201:
                self.acknowledged[seen["id"]] = number
                self.since = time.monotonic()
            else:
                assert (status, seen["code"]) == (503, "vault_down"), (status, seen)
                self.refused += 1
                await asyncio.sleep(0.01)
            if self.acknowledged:
                await self.read(random.choice([*self.acknowledged]))

    async def read(self, ident: int, *, whole: bool = False) -> None:
        """One of them; restored in full, or tokens while the database is away."""
        status, seen = await self.ask("GET", f"/people/{ident}")
        assert status == 200, (status, seen)
        if whole:
            assert seen["name_w"] == self.acknowledged[ident]
            assert not faults(seen)

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        began = time.monotonic()
        url = self.crowd.installation.proxy + path
        async with self.crowd.caller.request(method, url, **options) as answer:
            seen = await answer.json(content_type=None)
        self.slowest = max(self.slowest, time.monotonic() - began)
        return answer.status, seen

    async def judge(self) -> None:
        """Everything that was acknowledged is there, and shows its own values."""
        for ident in self.acknowledged:
            await self.read(ident, whole=True)


@asynccontextmanager
async def writing(folder: Path, address: str) -> AsyncIterator[Writers]:
    """A running installation on that store, with callers at work until the block ends."""
    application = Application()
    async with before(application, application.app(), folder) as crowd:
        crowd.installation.environment["DOMICILE__STORE"] = address
        assert await crowd.installation.start(), crowd.installation.log.decode()
        writers = Writers(crowd)
        tasks = [asyncio.create_task(writers.work()) for _ in range(WORKERS)]
        try:
            yield writers
            writers.over = True
            await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
            await writers.judge()
        finally:
            for task in tasks:
                task.cancel()
            await crowd.installation.kill()


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of this test alone, which keeps what it has acknowledged."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # the server runs as another user
        made = Server(Path(folder, "primary"))
        made.make()
        made.start()
        yield made
        made.kill()


async def recovered(writers: Writers, since: float, within: float) -> None:
    """Wait until a write is acknowledged that began after that moment."""
    async with asyncio.timeout(max(within, PATIENCE)):
        while writers.since < since + 0.05:  # noqa: ASYNC110  # callers bring it about
            await asyncio.sleep(0.02)
    assert writers.since - since < within


@pytest.mark.slow
async def test_the_database_is_killed_at_random_and_loses_nothing(
    tmp_path: Path, server: Server
) -> None:
    address = server.address(pool="4", timeout="5")
    async with writing(tmp_path, address) as writers:
        for _ in range(rounds(4)):
            await asyncio.sleep(random.uniform(0.1, 1.0))
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(random.uniform(0, 0.5))
            await asyncio.to_thread(server.start)
            await recovered(writers, time.monotonic(), 5)
    assert writers.refused > 0
    assert len(writers.acknowledged) > 20
    assert writers.slowest < 20


@pytest.mark.slow
async def test_a_standby_takes_over_and_nothing_acknowledged_is_lost(
    tmp_path: Path, server: Server
) -> None:
    standby = Server(server.folder.with_name("standby"))
    standby.copy(server)
    standby.start()
    server.run("psql", "-q", "-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres", "-c",
               "ALTER SYSTEM SET synchronous_standby_names = 'standby'", "-c", "SELECT pg_reload_conf()")  # fmt: skip
    try:
        address = server.address(pool="4", timeout="5").replace(
            f":{server.port}/", f":{server.port},127.0.0.1:{standby.port}/"
        )
        async with writing(tmp_path, address) as writers:
            await asyncio.sleep(1.0)
            before = len(writers.acknowledged)
            assert before > 5
            since = time.monotonic()
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(standby.promote)
            await recovered(writers, since, 10)
        assert len(writers.acknowledged) > before
    finally:
        standby.kill()


@pytest.mark.parametrize(
    ("leave", "come_back"), [(Server.kill, Server.start), (Server.freeze, Server.thaw)]
)
async def test_while_the_database_is_away_nothing_waits_beyond_its_time(
    tmp_path: Path,
    server: Server,
    leave: Callable[[Server], None],
    come_back: Callable[[Server], None],
) -> None:
    async with writing(tmp_path, server.address(pool="4", timeout="1")) as writers:
        await asyncio.sleep(0.5)
        await asyncio.to_thread(leave, server)
        refused = writers.refused
        await asyncio.sleep(AWAY)
        assert writers.refused > refused
        url = writers.crowd.installation.admin + "/readyz"
        async with writers.crowd.caller.get(url) as answer:
            assert answer.status == 503
        await asyncio.to_thread(come_back, server)
        await recovered(writers, time.monotonic(), 5)
        assert writers.slowest < 8, "longer than three times the time-out"


async def test_a_second_instance_waits_and_takes_over_when_the_first_is_killed(
    tmp_path: Path,
) -> None:
    address = fresh_address(wait="60")
    async with writing(tmp_path, address) as writers:
        await asyncio.sleep(0.5)
        first = writers.crowd.installation
        shared = {"DOMICILE__DATA": str(first.data)}  # key, attachments and audit log
        second = Installation(first.nursery, tmp_path / "two", {**first.environment, **shared})
        second.folder.mkdir()
        shutil.copytree(first.rules, second.rules)
        starting = asyncio.create_task(second.start())
        await asyncio.sleep(1.0)
        assert not starting.done()
        writers.over = True
        await asyncio.sleep(0.2)
        await first.kill()
        since = time.monotonic()
        assert await asyncio.wait_for(starting, PATIENCE), second.log.decode()
        assert time.monotonic() - since < PATIENCE / 10, "a second, on a machine at rest"
        writers.crowd.installation = second
        await writers.judge()
