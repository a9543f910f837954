"""httpx, the usual client of such applications, in the applications' own environment and steered
line by line.

A session keeps cookies and connections, asks for compressed answers and undoes them. Redirects are
not followed by themselves, so that a test sees them.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_DRIVER = """\
import json, sys
import httpx

client = None
for line in sys.stdin:
    order = json.loads(line)
    if "session" in order:
        base, user, password = order["session"]
        auth = (user, password) if user else None
        client = httpx.Client(base_url=base, auth=auth, timeout=60, trust_env=False)
        continue
    try:
        answer = client.request(order.pop("method"), order.pop("url"), **order)
        told = [answer.status_code, list(answer.headers.multi_items()), answer.text]
    except httpx.HTTPError as error:
        told = [0, [], repr(error)]
    print(json.dumps(told), flush=True)
"""

_LINE = 16 * 1024 * 1024  # bytes; a page of a site fits well


@dataclass(frozen=True)
class Reply:
    """An answer as the client understood it."""

    status: int
    headers: dict[str, str]  #: by lower-case name; the last of several
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def location(self) -> str:
        """Where the answer sends the caller; empty when nowhere."""
        return self.headers.get("location", "")


@dataclass(frozen=True)
class Client:
    """A client in a process of its own, which takes longer to start than most of its sessions."""

    process: asyncio.subprocess.Process

    async def begin(self, base: str, user: str = "", password: str = "") -> None:
        """Begin a session with that address, which knows nothing of an earlier one; with a user, it
        sends the password with every request (HTTP Basic).
        """
        await self._tell({"session": (base, user, password)})

    async def __call__(self, method: str, url: str, **order: Any) -> Reply:
        """Send one request; ``order`` is what ``httpx.Client.request`` takes: json, data, params,
        headers.
        """
        assert self.process.stdout is not None
        await self._tell({"method": method, "url": url, **order})
        line = await self.process.stdout.readline()
        assert line, "the client ended; its own words stand in the output of the test"
        status, headers, text = json.loads(line)
        assert status, f"{method} {url}: no answer came: {text}"
        return Reply(status, {name.lower(): value for name, value in headers}, text)

    async def _tell(self, order: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        await self.process.stdin.drain()


@asynccontextmanager
async def started(python: Path) -> AsyncIterator[Client]:
    """A client that has no session yet."""
    process = await asyncio.create_subprocess_exec(
        *(str(python), "-c", _DRIVER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE,
    )
    try:
        yield Client(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


@asynccontextmanager
async def client(
    python: Path, base: str, user: str = "", password: str = ""
) -> AsyncIterator[Client]:
    """A client for one session."""
    async with started(python) as one:
        await one.begin(base, user, password)
        yield one
