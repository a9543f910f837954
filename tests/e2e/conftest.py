"""The whole program as a process, before an application that records every byte."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.application import Application
from tests.support.instance import Instance, running
from tests.support.people import rules
from tests.support.serving import serving


@dataclass
class World:
    """An application, a running instance before it, and a caller."""

    application: Application
    upstream: str
    instance: Instance
    caller: aiohttp.ClientSession

    async def call(self, method: str, path: str, status: int | None = None, **options: Any) -> Any:
        """Call through the proxy; the decoded JSON answer, or ``None`` without a body. Checks the status where one is given."""
        options.setdefault("allow_redirects", False)
        async with self.caller.request(method, self.instance.proxy + path, **options) as answer:
            body = await answer.read()
            assert status is None or answer.status == status, (answer.status, body)
            return await answer.json(content_type=None) if body else None

    async def metrics(self) -> str:
        """The text of /metrics."""
        async with self.caller.get(self.instance.admin + "/metrics") as answer:
            return await answer.text()

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
