"""The limits of a whole instance: what settings say is what callers meet; two replicas count
together.
"""

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.bootstrap.instance import Running, prepare_instance, running
from proxy.bootstrap.offline import first_client
from proxy.config import load_settings
from proxy.errors import VaultError
from proxy.net import server
from tests.support.application import Application
from tests.support.patience import PATIENCE
from tests.support.people import rules
from tests.support.rawclient import RawClient
from tests.support.redis import redis_server
from tests.support.serving import serving


class Asking:
    """A client of a running instance, with an access token."""

    def __init__(self, instance: Running, session: aiohttp.ClientSession, token: str) -> None:
        self.instance = instance
        self._session = session
        self._token = token
        self.headers: Any = {}  #: of the last answer

    async def schemas(self) -> int:
        return (await self.vault("/api/schemas")).status

    async def docs(self) -> int:
        return (await self.vault("/docs", "")).status

    async def vault(self, path: str, token: str | None = None) -> aiohttp.ClientResponse:
        headers = {"Authorization": f"Bearer {self._token if token is None else token}"}
        async with self._session.get(
            f"http://{self.instance.interface}{path}", headers=headers
        ) as answer:
            await answer.read()
            self.headers = answer.headers
            return answer

    async def proxy(self, path: str) -> int:
        async with self._session.get(f"http://{self.instance.proxy}{path}") as answer:
            await answer.read()
            return answer.status

    async def metrics(self) -> str:
        headers = {"Authorization": f"Bearer {self._token}"}
        async with self._session.get(
            f"http://{self.instance.admin}/metrics", headers=headers
        ) as answer:
            return await answer.text()


def settings(folder: Path, upstream: str, limits: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "rules.yaml").write_text(rules(upstream))
    file = folder / "domicile.yaml"
    file.write_text(
        f"country: se\ndata: {folder / 'data'}\nrules: {folder / 'rules.yaml'}\nlimits: {limits}\n"
        "listen: {proxy: '127.0.0.1:0', vault: '127.0.0.1:0', admin: '127.0.0.1:0'}\n"
    )
    return file


async def first(file: Path) -> Any:
    """The first client of a new vault."""
    made = load_settings(file, {})
    await prepare_instance(made)
    return await first_client(made)


async def until(status: int, ask: Callable[[], Awaitable[int]], most: int) -> int:
    """Ask until that is the answer; how often it was another, fewer than ``most`` times."""
    for count in range(most):
        if await ask() == status:
            return count
        await asyncio.sleep(0.01)
    raise AssertionError(f"{most} answers, and none of them was {status}")


@asynccontextmanager
async def started(file: Path, client: Any = None) -> AsyncIterator[Asking]:
    made = load_settings(file, {})
    client = client or await first(file)
    async with running(made) as instance, aiohttp.ClientSession() as session:
        form = {
            "grant_type": "client_credentials",
            "client_id": client.client.id,
            "client_secret": client.secret,
        }
        async with session.post(f"http://{instance.interface}/oauth2/token", data=form) as answer:
            assert answer.status == 200, await answer.text()
            token = (await answer.json())["access_token"]
        yield Asking(instance, session, token)


async def test_a_client_meets_its_limit_and_is_told_so(tmp_path):
    async with started(
        settings(tmp_path, "http://127.0.0.1:1", "{requests_per_second: 1, burst: 60}")
    ) as asking:
        answers = [await asking.vault("/api/schemas") for _ in range(60)]
        assert {answer.status for answer in answers} == {200}
        assert answers[0].headers["RateLimit-Policy"] == '"credential";q=60;w=60'
        assert answers[0].headers["RateLimit"].startswith('"credential";r=59;t=')
        await until(429, asking.schemas, 500)
        assert int(asking.headers["Retry-After"]) >= 1
        assert (await asking.vault("/api/schemas", "")).status == 401
        assert (await asking.vault("/docs")).status == 200
        assert (
            'domicile_limited_requests_total{limit="credential",listener="vault"}'
            in await asking.metrics()
        )


async def test_an_address_meets_its_limit_at_both_listeners_together(tmp_path):
    application = Application()
    async with serving(application.app()) as upstream:
        limits = "{address_requests_per_second: 1, burst: 60}"
        async with started(settings(tmp_path, upstream, limits)) as asking:
            statuses = [await asking.proxy("/people") for _ in range(50)]
            assert statuses == [200] * 50
            assert await until(429, asking.docs, 500) > 5
            await until(429, lambda: asking.proxy("/people"), 500)
            text = await asking.metrics()
            for listener in ("proxy", "vault"):
                assert (
                    f'domicile_limited_requests_total{{limit="address",listener="{listener}"}}'
                    in text
                )


@pytest.mark.usefixtures("limits_clock")
async def test_who_keeps_searching_for_what_is_not_there_is_counted_alarmed_and_stopped(tmp_path):
    application = Application()
    async with serving(application.app()) as upstream:
        limits = "{misses_per_second: 1, burst: 10}"
        async with started(settings(tmp_path, upstream, limits)) as asking:

            def guess(path: str) -> Callable[[], Awaitable[int]]:
                return lambda: asking.proxy(path)

            assert await asking.proxy("/people") == 200
            statuses = [await asking.proxy(f"/people?email=a{n}@example.com") for n in range(8)]
            assert statuses == [200] * 8
            await until(429, guess("/people/99"), 50)
            assert await asking.proxy("/people?email=b@example.com") == 429
            text = await asking.metrics()
            assert 'domicile_alarms_total{kind="misses"} 1.0' in text
            assert 'domicile_limited_requests_total{limit="misses",listener="proxy"}' in text
    told = b"".join(path.read_bytes() for path in (tmp_path / "data" / "audit").iterdir())
    lines = [json.loads(line) for line in told.splitlines() if b'"event"' in line]
    counts = Counter[str]()
    for line in lines:
        if line["event"] == "miss":
            counts[line["operation"]] += line["count"]
    assert counts["GET /people"] == 8
    assert counts["GET /people/{id}"] >= 2
    (alarm,) = (line for line in lines if line["event"] == "alarm")
    assert alarm["endpoint"] == "people"
    assert b"example.com" not in told


async def test_two_replicas_count_together_and_each_by_itself_without_their_store(tmp_path):
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(redis_server())
        limits = f"{{requests_per_second: 1, burst: 60, store: '{server.url}'}}"
        one, other = (
            settings(tmp_path / name, "http://127.0.0.1:1", limits) for name in ("one", "other")
        )
        client = await first(one)
        shutil.copytree(tmp_path / "one" / "data", tmp_path / "other" / "data")
        busy = await stack.enter_async_context(started(one, client))
        second = await stack.enter_async_context(started(other, client))
        for _ in range(60):
            assert await busy.schemas() == 200
        await until(429, second.schemas, 60)  # it would take as many by itself
        assert "domicile_limits_store_up 1.0" in await second.metrics()
        assert all(
            name.strip("{}").isascii() and "credential" not in name for name in await server.keys()
        )
        await server.stop()
        async with asyncio.timeout(PATIENCE):
            await until(200, second.schemas, 1000)  # until it knows that it is alone
        assert "domicile_limits_store_up 0.0" in await second.metrics()


@pytest.mark.parametrize(
    "store", ["redis://", "http://cache:6379", "redis://cache:6379/0/1", "postgres"]
)
def test_a_store_that_is_none_is_a_fault(tmp_path, store):
    with pytest.raises(VaultError) as caught:
        load_settings(settings(tmp_path, "http://127.0.0.1:1", f"{{store: '{store}'}}"), {})
    assert (
        "limits.store: this is neither the word memory nor the address of a Redis"
        in caught.value.details[0].text
    )


@pytest.mark.parametrize("listener", ["admin", "interface"])
async def test_a_connection_that_never_ends_a_head_is_closed(tmp_path, monkeypatch, listener):
    async with started(settings(tmp_path, "http://127.0.0.1:1", "{concurrent: 3}")) as asking:
        monkeypatch.setattr(server, "HEAD_SECONDS", 0.05)
        async with RawClient(int(getattr(asking.instance, listener).rpartition(":")[2])) as client:
            await client.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
            async with asyncio.timeout(PATIENCE):
                assert await client.reader.read() == b""


@pytest.mark.parametrize("listener", ["proxy", "interface"])
async def test_an_address_meets_its_number_of_connections_at_both_listeners_together(
    tmp_path, listener
):
    async with started(
        settings(tmp_path, "http://127.0.0.1:1", "{address_connections: 3}")
    ) as asking:
        port = int(getattr(asking.instance, listener).rpartition(":")[2])
        async with AsyncExitStack() as stack:
            for _ in range(3):  # one of them may be that over which the token came
                await stack.enter_async_context(RawClient(port))
            await until_more(asking)
        assert (await asking.vault("/docs")).status == 200, (
            "there is room again, and the old connection is kept"
        )


async def until_more(asking: Asking) -> None:
    """Open connections to the other listeners until one is closed at once."""
    port = int(asking.instance.interface.rpartition(":")[2])
    for _ in range(10):
        async with RawClient(port) as client:
            try:
                await client.send(b"GET /docs HTTP/1.1\r\nHost: x\r\n\r\n")
                if await client.reader.read(1) == b"":
                    break
            except ConnectionError:
                break
    assert "domicile_limited_connections_total 0.0" not in await asking.metrics()
