"""httpx, the usual client of such applications, in the applications' own environment and steered
line by line.

One client is one session: it keeps cookies and connections, asks for compressed answers and undoes
them. Redirects are not followed by themselves, so that a test sees them.
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

base, user, password = sys.argv[1:]
auth = (user, password) if user else None
with httpx.Client(base_url=base, auth=auth, timeout=60, trust_env=False) as client:
    for line in sys.stdin:
        order = json.loads(line)
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
    """A client in a process of its own."""

    process: asyncio.subprocess.Process

    async def __call__(self, method: str, url: str, **order: Any) -> Reply:
        """Send one request; ``order`` is what ``httpx.Client.request`` takes: json, data, params,
        headers.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(
            json.dumps({"method": method, "url": url, **order}).encode() + b"\n"
        )
        await self.process.stdin.drain()
        line = await self.process.stdout.readline()
        assert line, "the client ended; its own words stand in the output of the test"
        status, headers, text = json.loads(line)
        assert status, f"{method} {url}: no answer came: {text}"
        return Reply(status, {name.lower(): value for name, value in headers}, text)


@asynccontextmanager
async def client(
    python: Path, base: str, user: str = "", password: str = ""
) -> AsyncIterator[Client]:
    """A client of that address; with a user, it sends the password with every request (HTTP Basic)."""
    process = await asyncio.create_subprocess_exec(
        *(str(python), "-c", _DRIVER, base, user, password),
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
