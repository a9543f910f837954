"""Kinto, a server of JSON records, with ``kinto-http``, its own client."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.application import found_in
from tests.support.real.served import served
from tests.support.real.wire import Wire, tapped

_WSGI = """\
import kinto

application = kinto.main(
    {},
    None,
    **{
        "kinto.includes": "kinto.plugins.accounts",
        "kinto.storage_backend": "kinto.core.storage.memory",
        "kinto.cache_backend": "kinto.core.cache.memory",
        "kinto.permission_backend": "kinto.core.permission.memory",
        "kinto.userid_hmac_secret": "only-for-tests",
        "kinto.paginate_by": "3",
        "multiauth.policies": "account",
        "multiauth.policy.account.use": "kinto.plugins.accounts.AccountsPolicy",
        "kinto.account_create_principals": "system.Everyone",
        "kinto.bucket_create_principals": "system.Authenticated",
    },
)
"""

#: Runs in the applications' environment: each line names a method of the client and its arguments.
_DRIVER = """\
import json, sys, warnings

warnings.simplefilter("ignore")
import kinto_http, requests

base = sys.argv[1] + "/v1"
if sys.argv[2]:
    requests.put(base + "/accounts/editor", json={"data": {"password": "correct horse"}}).raise_for_status()
client = kinto_http.Client(server_url=base, auth=("editor", "correct horse"), bucket="crm", collection="people", retry=0)
if sys.argv[2]:
    client.create_bucket(id="crm")
    client.create_collection(id="people")
for line in sys.stdin:
    method, order = json.loads(line)
    try:
        told = getattr(client, method)(**order)
    except kinto_http.KintoException as error:
        told = {"status": error.response.status_code, "refused": error.response.json()}
    print(json.dumps(told), flush=True)
"""


@dataclass(frozen=True)
class Kinto:
    """A running server. It keeps its records in memory: what can be searched is what it was sent
    and what it says.
    """

    wire: Wire
    log: bytearray

    def holds(self, marker: str) -> list[str]:
        """The forms in which the marker reached the server."""
        return found_in(bytes(self.wire.sent + self.log), marker)


@dataclass(frozen=True)
class KintoClient:
    """The server's own client, in a process of its own, on the collection ``people``."""

    process: asyncio.subprocess.Process

    async def refused(self, method: str, **order: Any) -> Any:
        """Call a method that the server is to refuse; its status and words as ``{"status": …,
        "refused": …}``.
        """
        told = await self._call(method, order)
        assert isinstance(told, dict)
        assert "refused" in told, told
        return told

    async def __call__(self, method: str, **order: Any) -> Any:
        """Call a method of ``kinto_http.Client`` and give what it gives."""
        told = await self._call(method, order)
        assert not (isinstance(told, dict) and "refused" in told), told
        return told

    async def _call(self, method: str, order: dict[str, Any]) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([method, order]).encode() + b"\n")
        await self.process.stdin.drain()
        line = await self.process.stdout.readline()
        assert line, "the client ended; its own words stand in the output of the test"
        return json.loads(line)


def written(folder: Path) -> Path:
    """A folder with the server's settings."""
    folder.mkdir(parents=True)
    (folder / "wsgi.py").write_text(_WSGI)
    return folder


@asynccontextmanager
async def serving(python: Path, folder: Path) -> AsyncIterator[Kinto]:
    """A server of its own, empty, in a folder that ``written`` made."""
    async with served(python, folder) as server, tapped(server.port) as wire:
        yield Kinto(wire, server.log)


@asynccontextmanager
async def client(python: Path, base: str, *, first: bool) -> AsyncIterator[KintoClient]:
    """A client of the server at that address; the ``first`` one makes the account and the
    collection.
    """
    process = await asyncio.create_subprocess_exec(
        *(str(python), "-W", "ignore", "-c", _DRIVER, base, "first" if first else ""),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield KintoClient(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
