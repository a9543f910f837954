"""Twice the load that an application can take: what is too much is refused at once, what is taken is
answered in time, nothing grows, and the moment the load falls all is as before.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.support.application import Application
from tests.support.crowd import Crowd, body, faults
from tests.support.lives import Installation, nursery
from tests.support.patience import PATIENCE, Pace, paced
from tests.support.people import rules
from tests.support.scraping import FIELD
from tests.support.serving import serving

CONNECTIONS, QUEUE = 4, 8  #: what the proxy may have under way at the application, and waiting
TAKES = 0.1  #: seconds that the application takes for each request
CAPACITY = CONNECTIONS / TAKES  #: requests a second that it can take
SECONDS = 3.0


@pytest.fixture
async def crowd(tmp_path: Path) -> AsyncIterator[Crowd]:
    """Callers before an application that is slow, and a proxy that knows how much it can take."""
    application = Application()
    app = application.app()

    @web.middleware
    async def slow(request: web.Request, handler: Callable[[web.Request], Any]) -> Any:
        await asyncio.sleep(TAKES)
        return await handler(request)

    app.middlewares.append(slow)
    async with (
        serving(app) as upstream,
        nursery() as cradle,
        aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(PATIENCE), connector=aiohttp.TCPConnector(limit=0)
        ) as caller,
    ):
        settings = {
            "DOMICILE__UPSTREAM__CONNECTIONS": str(CONNECTIONS),
            "DOMICILE__UPSTREAM__QUEUE": str(QUEUE),
            "DOMICILE__UPSTREAM__CONNECT": f"{PATIENCE:.0f}s",
        }
        installation = Installation(cradle, tmp_path, settings)
        installation.rules.mkdir()
        (installation.rules / "rules.yaml").write_text(rules(upstream))
        yield Crowd(application, caller, installation)


async def arrive(crowd: Crowd, rate: float, seconds: float) -> list[tuple[int, str, float]]:
    """Creates that come at that rate whether others are answered or not: status, Retry-After or
    code, and seconds of each.
    """
    results: list[tuple[int, str, float]] = []

    async def one(sent: dict[str, object]) -> None:
        begun = time.perf_counter()
        url = crowd.installation.proxy + "/people"
        async with crowd.caller.post(url, json=sent) as answer:
            content = await answer.json(content_type=None)
            if answer.status == 201:
                crowd.every.add(content["id"])
                assert faults(content) == []
            told = answer.headers.get("Retry-After", "") + " " + content.get("code", "")
            results.append((answer.status, told.strip(), time.perf_counter() - begun))

    async with asyncio.TaskGroup() as group:
        begin, came = time.perf_counter(), 0
        while (passed := time.perf_counter() - begin) < seconds or not came:
            # all that are due, however slow the machine is
            for _ in range(came, 1 + int(rate * min(passed, seconds))):
                group.create_task(one(body(crowd.next())))
                came += 1
            await asyncio.sleep(1 / rate)
    return results


async def metric(crowd: Crowd, name: str, *labels: str) -> int:
    """The sum of a metric over all of its lines that have these labels."""
    async with crowd.caller.get(crowd.installation.admin + "/metrics", headers=FIELD) as answer:
        lines = (await answer.text()).splitlines()
    return sum(
        int(float(line.rsplit(" ", 1)[1]))
        for line in lines
        if line.startswith(name + "{") and all(label in line for label in labels)
    )


async def in_state(crowd: Crowd, state: str) -> int:
    """Records in the vault of that state."""
    return await metric(crowd, "domicile_records", f'state="{state}"')


def memory(crowd: Crowd) -> int:
    """Bytes that the process has in memory."""
    lines = Path(f"/proc/{crowd.installation.process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


@pytest.fixture
async def pace() -> AsyncIterator[Pace]:
    async with paced() as made:
        yield made


async def test_twice_the_load_is_half_refused_and_nothing_grows(crowd, pace):
    assert await crowd.installation.start(quick=True)
    sizes: list[int] = []
    served: list[int] = []
    waited: list[float] = []
    at_once: list[float] = []
    for _ in range(3):
        results = await arrive(crowd, 2 * CAPACITY, SECONDS)
        counts = Counter(status for status, _, _ in results)
        assert set(counts) == {201, 503}, counts
        assert {told for status, told, _ in results if status == 503} == {"1 upstream_busy"}
        served.append(counts[201])
        taken = sorted(seconds for status, _, seconds in results if status == 201)
        refused = sorted(seconds for status, _, seconds in results if status == 503)
        at_once.append(refused[len(refused) // 2] / taken[len(taken) // 2])
        waited.append(taken[len(taken) // 2])
        sizes.append(memory(crowd))
    # a refusal comes at once, but when the machine paused
    assert min(at_once) < 1, at_once
    # all that the application can take was taken, but when the machine paused: the refusals cost
    # the others nothing
    slower = pace.stretched
    assert max(served) > 0.5 * CAPACITY * SECONDS / slower, (served, slower)
    # nobody who was taken waited longer than the line is, likewise
    assert min(waited) < 4 * (CONNECTIONS + QUEUE) / CAPACITY * slower, (waited, slower)
    assert sizes[-1] - sizes[0] < 8 << 20, sizes
    # what was refused reached neither the application nor the vault
    assert crowd.every == set(crowd.application.records)
    async with asyncio.timeout(PATIENCE):
        while await in_state(crowd, "live") != len(crowd.every):  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.05)
    assert await in_state(crowd, "staged") == await in_state(crowd, "pending") == 0
    # and it is over when it is over
    alone = [result for _ in range(3) for result in await arrive(crowd, 1000, 0.0005)]
    assert {status for status, _, _ in alone} == {201}
    assert min(seconds for _, _, seconds in alone) < 2


async def test_a_full_line_refuses_before_anything_is_stored(crowd):
    """A request that finds the line full costs no write: its values are not even staged."""
    crowd.application.gate = asyncio.Event()
    assert await crowd.installation.start(quick=True)
    in_line = [asyncio.create_task(arrive(crowd, 1, 0.001)) for _ in range(CONNECTIONS + QUEUE)]
    async with asyncio.timeout(PATIENCE):
        while await in_state(crowd, "pending") < len(in_line):  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.05)
    async with asyncio.TaskGroup() as group:
        refused = [group.create_task(arrive(crowd, 1, 0.001)) for _ in range(20)]
    assert {result[0][:2] for result in map(asyncio.Task.result, refused)} == {
        (503, "1 upstream_busy")
    }
    assert await metric(crowd, "domicile_vault_events_total", 'event="dropped"') == 0
    crowd.application.gate.set()
    assert [status for task in in_line for status, _, _ in await task] == [201] * len(in_line)
