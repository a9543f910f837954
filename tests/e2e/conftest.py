"""The whole program as a process, before an application that records every byte."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.support.application import Application, found_in
from tests.support.instance import Instance, running
from tests.support.patience import PATIENCE
from tests.support.people import rules
from tests.support.rawclient import RawClient, get
from tests.support.rawhttp import Message
from tests.support.scraping import FIELD
from tests.support.serving import serving


@dataclass
class World:
    """An application, a running instance before it, and a caller."""

    application: Application
    upstream: str
    instance: Instance
    caller: aiohttp.ClientSession

    async def call(self, method: str, path: str, status: int | None = None, **options: Any) -> Any:
        """Call through the proxy; the decoded JSON answer, or ``None`` without a body.

        Checks the status where one is given.
        """
        options.setdefault("allow_redirects", False)
        async with self.caller.request(method, self.instance.proxy + path, **options) as answer:
            body = await answer.read()
            assert status is None or answer.status == status, (answer.status, body)
            return await answer.json(content_type=None) if body else None

    async def metrics(self) -> str:
        """The text of /metrics."""
        async with self.caller.get(self.instance.admin + "/metrics", headers=FIELD) as answer:
            return await answer.text()

    async def become(self, name: str, value: float, **labels: str) -> None:
        """Wait until a metric has that value; gauges are measured every ten seconds only."""
        found = None
        for _ in range(int(PATIENCE / 0.1)):
            if (found := await self.metric(name, **labels)) == value:
                return
            await asyncio.sleep(0.1)
        assert found == value

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry these labels."""
        total = 0.0
        for line in (await self.metrics()).splitlines():
            if line.startswith((name + "{", name + " ")) and all(
                f'{key}="{value}"' in line for key, value in labels.items()
            ):
                total += float(line.rsplit(" ", 1)[1])
        return total


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    application = Application()
    async with (
        serving(application.app()) as upstream,
        running(tmp_path, rules(upstream)) as instance,
        aiohttp.ClientSession() as caller,
    ):
        yield World(application, upstream, instance, caller)


#: The value that attacks try to lead past the rules.
MARKER = "Quibblethwaite"


@dataclass
class Scene:
    """The one installation of this module."""

    world: World
    port: int

    @property
    def application(self) -> Application:
        return self.world.application

    def fresh(self) -> None:
        """Forget what other tests did to the application."""
        self.application.records.clear()
        self.application.seen.clear()
        self.application.plan.clear()
        self.application.requests = 0

    async def send(self, request: bytes) -> Message:
        """Send raw bytes and read one answer; then the service answers the next one."""
        async with RawClient(self.port) as client:
            answer = await client.ask(request)
        async with RawClient(self.port) as client:
            assert (await client.ask(get("/next"))).status == 200
        return answer

    async def call(self, method: str, path: str, **options: Any) -> Any:
        return await self.world.call(method, path, **options)

    def nowhere(self, marker: str = MARKER) -> None:
        """The value is neither with the application nor in a log line or file."""
        assert not self.application.holds(marker)
        files = b"".join(
            path.read_bytes() for path in self.world.instance.data.rglob("*") if path.is_file()
        )
        assert not found_in(bytes(self.world.instance.log) + files, marker)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    application = Application()
    async with (
        serving(application.app()) as upstream,
        running(tmp_path_factory.mktemp("attacks"), rules(upstream)) as instance,
        aiohttp.ClientSession() as caller,
    ):
        yield Scene(
            World(application, upstream, instance, caller), int(instance.proxy.rpartition(":")[2])
        )


@pytest.fixture
def scene(installed: Scene) -> Scene:
    installed.fresh()
    return installed
