"""Processes that stand still for a while (SIGSTOP), and one that has no descriptors left: callers get
an answer or are told, nothing acknowledged is lost, and all goes on afterwards.
"""

import asyncio
import resource
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import psutil
import pytest

from tests.e2e.test_restart import CALLERS, Callers, at_work
from tests.e2e.test_workers import Patient, all_there, owner_of, team, workers_of
from tests.support.application import Application
from tests.support.instance import SERVE, Instance, started
from tests.support.patience import PATIENCE, until
from tests.support.people import ANN, rules
from tests.support.postgres import own_server
from tests.support.serving import serving


@asynccontextmanager
async def still(*processes: psutil.Process) -> AsyncIterator[None]:
    """They do nothing for the length of a block."""
    try:
        for one in processes:
            one.send_signal(signal.SIGSTOP)
        yield
    finally:
        for one in processes:
            one.send_signal(signal.SIGCONT)


@pytest.mark.slow
async def test_while_a_worker_stands_still_the_other_serves_and_nobody_is_cut_off(
    tmp_path: Path,
) -> None:
    async with team(tmp_path, "embedded") as instance:
        fronts = workers_of(instance) - {owner_of(instance)}
        async with at_work(instance) as callers:
            for one in fronts:
                # of the callers of before all may be waiting for that one
                async with still(one), at_work(instance) as others:
                    await asyncio.sleep(2)
                assert others.broken == []
                await callers.further(30)
        assert callers.broken == []
        await all_there(instance, callers)


@pytest.mark.slow
async def test_callers_that_come_while_all_workers_stand_still_are_served_afterwards(
    tmp_path: Path,
) -> None:
    async def create() -> tuple[int, str]:
        connector = aiohttp.TCPConnector(force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector) as caller,
            caller.post(instance.proxy + "/people", json=ANN) as answer,
        ):
            return answer.status, (await answer.json()).get("code", "")

    async with team(tmp_path, "embedded") as instance:
        fronts = workers_of(instance) - {owner_of(instance)}
        async with still(*fronts):
            waiting = [asyncio.create_task(create()) for _ in range(300)]
            await asyncio.sleep(2)
            assert not any(one.done() for one in waiting)
        assert Counter(await asyncio.gather(*waiting)) == {(201, ""): 300}


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [3, 9], ids=["shortly", "until its workers leave it"])
async def test_an_owner_that_stands_still_takes_nothing_acknowledged_with_it(
    tmp_path: Path, seconds: int
) -> None:
    async with team(tmp_path, "embedded") as instance:
        callers = Patient(instance)
        async with asyncio.TaskGroup() as group:
            for number in range(CALLERS):
                group.create_task(callers.work(keep=bool(number % 2)))
            await callers.further(60)
            still_since = time.monotonic()
            async with still(owner_of(instance)):
                await asyncio.sleep(seconds)
            back = time.monotonic()
            await callers.further(60)
            again = time.monotonic()
            assert again - back < PATIENCE / 2, "at once, on a machine at rest"
            callers.over = True
        assert callers.broken == [], "callers wait, or are told"
        left = again - still_since > 6  # its workers leave it then, also on a machine that is slow
        assert callers.refused <= (2 * CALLERS if left else 0), "those on their way"
        await all_there(instance, callers)
        assert await instance.stop() == 0
        assert (await instance.command("audit", "verify"))["ok"]
        assert (await instance.command("store", "verify"))["ok"]


# ---------------------------------------------------------------------- descriptors


class Told(Callers):
    """Callers to whom whatever is no create counts as refused."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance)
        self.refused: Counter[str] = Counter()

    async def visit(self, caller: aiohttp.ClientSession) -> None:
        try:
            async with caller.post(self.instance.proxy + "/people", json=ANN) as answer:
                data = await answer.json(content_type=None)
                if answer.status == 201:
                    self.made.append(data["id"])
                    self.answers += 1
                else:
                    self.refused[f"{answer.status} {data['code']}"] += 1
        except aiohttp.ClientError as error:
            self.refused[type(error).__name__] += 1


def highest(process: psutil.Process) -> int:
    """The number of its last descriptor."""
    return max(int(one.name) for one in Path(f"/proc/{process.pid}/fd").iterdir())


def connections(process: psutil.Process, address: str) -> int:
    """How many connections a process has to that address."""
    port = int(address.rpartition(":")[2])
    return sum(bool(one.raddr) and one.raddr.port == port for one in process.net_connections())


async def test_without_descriptors_it_refuses_and_rests_and_serves_when_there_are_some(
    tmp_path: Path,
) -> None:
    instance = Instance(tmp_path / "here", SERVE, files=400)
    async with (
        serving(Application().app()) as upstream,
        started(instance, rules(upstream)),
        asyncio.TaskGroup() as group,
    ):
        assert instance.process is not None
        process = psutil.Process(instance.process.pid)
        kept, others = Told(instance), Told(instance)
        for _ in range(3):
            group.create_task(kept.work(keep=True))
        await kept.further(30)
        # each of them has a connection to the application that it may go on with
        await until(lambda: connections(process, upstream) >= 3)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (highest(process) + 5, 400))
        port = int(instance.proxy.rpartition(":")[2])
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]
        for _ in range(3):
            group.create_task(others.work(keep=False))
        async with asyncio.timeout(PATIENCE):
            while others.refused.total() < 30:  # noqa: ASYNC110  # the callers count
                await asyncio.sleep(0.01)
        others.over = True
        await kept.further(30)
        kept.over = True
        await asyncio.sleep(0.5)
        before, began = sum(process.cpu_times()[:2]), time.monotonic()
        await asyncio.sleep(2)
        used = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began)
        print("kept", kept.refused, "others", others.refused, "processor", round(used, 2))
        assert used < 0.3, "it turns round and round"
        assert not kept.refused, "who has a connection is served"
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (400, 400))
        afterwards = Told(instance)
        group.create_task(afterwards.work(keep=False))
        await afterwards.further(30)
        afterwards.over = True
        assert not afterwards.refused, "also while the idle ones stay"
        for _, writer in idle:
            writer.close()
        for callers in (kept, others, afterwards):
            await all_there(instance, callers)


# ---------------------------------------------------------------------- the end of a process

#: ``serve`` with the same limits of its end, a tenth as long.
SOON_OVER = """
from proxy.cli import ending, main
ending.Times.__new__.__defaults__ = ((0.5, 2.1), 2.6)
raise SystemExit(main(['serve']))
"""


async def test_a_database_that_stands_still_holds_no_end_up_and_what_was_acknowledged_is_there(
    tmp_path: Path,
) -> None:
    with own_server() as server:
        store = server.address("vault", replicas="true")
        instance = Instance(tmp_path, ("-c", SOON_OVER), {"DOMICILE__STORE": store})
        application = Application()
        async with (
            serving(application.app()) as upstream,
            started(instance, rules(upstream)),
        ):
            async with at_work(instance) as callers:
                await callers.further(20)
                server.freeze()
                callers.over = True
                began = time.monotonic()
                instance.send(signal.SIGTERM)
                assert await instance.ended() == 1
                assert time.monotonic() - began < 2.6 + PATIENCE / 3
            server.thaw()
            (forced,) = instance.events(
                "the end of this process was forced: what was acknowledged is durable"
            )
            assert "storage.postgres" in forced["text"]
            await instance.start()
            await all_there(instance, callers)
