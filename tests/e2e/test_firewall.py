"""The data firewall in a whole instance: both listeners, a database that is exchanged, and a start
that is refused.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.bootstrap.instance import Running, running
from proxy.cli import main
from proxy.config import load_settings
from proxy.errors import Code, VaultError
from tests.support.application import Application
from tests.support.countries import AMERICAN, SWEDISH, nested, write
from tests.support.patience import PATIENCE
from tests.support.people import ANN, rules
from tests.support.serving import serving

FROM = "X-Forwarded-For"


class Asking:
    """Requests to a running instance; what it answers is a status and, where there is JSON, its
    content.
    """

    def __init__(self, instance: Running, session: aiohttp.ClientSession) -> None:
        self.instance = instance
        self._session = session

    async def _ask(self, address: str, method: str, host: str, **more: Any) -> tuple[int, Any]:
        headers = {FROM: host} if host else {}
        async with self._session.request(
            method, f"http://{address}", headers=headers, **more
        ) as answer:
            return answer.status, await answer.json(
                content_type=None
            ) if answer.content_length != 0 else None

    async def proxy(self, method: str, path: str, host: str, **more: Any) -> tuple[int, Any]:
        return await self._ask(self.instance.proxy + path, method, host, **more)

    async def vault(self, method: str, path: str, host: str, **more: Any) -> tuple[int, Any]:
        return await self._ask(self.instance.interface + path, method, host, **more)

    async def admin(self, path: str) -> tuple[int, Any]:
        return await self._ask(self.instance.admin + path, "GET", AMERICAN)


@asynccontextmanager
async def started(folder: Path, upstream: str, mode: str) -> AsyncIterator[Asking]:
    (folder / "rules.yaml").write_text(rules(upstream))
    settings = folder / "domicile.yaml"
    settings.write_text(
        f"country: se\ndata: {folder / 'data'}\nrules: {folder / 'rules.yaml'}\ntrusted_proxies: "
        "[127.0.0.1]\n"
        "listen: {proxy: '127.0.0.1:0', vault: '127.0.0.1:0', admin: '127.0.0.1:0'}\n"
        f"firewall: {{mode: {mode}, country_database: {write(folder / 'country.mmdb')}}}\n"
    )
    async with running(load_settings(settings, {})) as instance, aiohttp.ClientSession() as session:
        yield Asking(instance, session)


@asynccontextmanager
async def served(folder: Path, mode: str) -> AsyncIterator[tuple[Asking, Application]]:
    application = Application()
    async with serving(application.app()) as upstream, started(folder, upstream, mode) as asking:
        yield asking, application


async def test_blocked_callers_are_told_nothing_at_either_listener(tmp_path):
    async with served(tmp_path, "block") as (asking, application):
        assert (await asking.proxy("POST", "/people", SWEDISH, json=ANN))[0] == 201
        requests = [("GET", "/people/1"), ("GET", "/style.css"), ("POST", "/people")]
        for method, path in requests:
            status, told = await asking.proxy(method, path, AMERICAN)
            assert (status, told["code"]) == (403, "outside_country")
        assert len(application.records) == 1
        for path in ("/docs", "/openapi.json", "/oauth2/jwks", "/nothing", "/api/schemas"):
            status, told = await asking.vault("GET", path, AMERICAN)
            assert (status, told["code"]) == (403, "outside_country")
        assert (await asking.vault("GET", "/oauth2/jwks", SWEDISH))[0] == 200
        assert (await asking.admin("/readyz"))[0] == 200


async def test_masked_callers_read_tokens_and_write_nothing(tmp_path):
    async with served(tmp_path, "mask") as (asking, application):
        status, made = await asking.proxy("POST", "/people", SWEDISH, json=ANN)
        assert (status, made["name"]) == (201, ANN["name"])
        status, seen = await asking.proxy("GET", "/people/1", AMERICAN)
        assert (status, seen) == (200, application.records[1])
        assert seen["name"] != ANN["name"]
        assert (await asking.proxy("GET", "/people/1", SWEDISH))[1]["name"] == ANN["name"]
        for method, path in (("POST", "/people"), ("PUT", "/people/1"), ("DELETE", "/people/1")):
            status, told = await asking.proxy(method, path, AMERICAN, json=ANN)
            assert (status, told["code"]) == (403, "outside_country")
        status, told = await asking.proxy("GET", f"/people?email={ANN['email']}", AMERICAN)
        assert (status, told["code"]) == (403, "outside_country")
        assert (await asking.vault("GET", "/api/schemas", AMERICAN))[0] == 401
        assert (await asking.vault("GET", "/oauth2/jwks", AMERICAN))[0] == 200


async def test_the_database_is_followed_and_a_broken_one_is_said_and_changes_nothing(
    tmp_path, capsys
):
    async with served(tmp_path, "block") as (asking, _):
        path = tmp_path / "country.mmdb"
        path.write_bytes(path.read_bytes()[:64])
        async with asyncio.timeout(PATIENCE):
            while not (await asking.admin("/readyz"))[1]["stale"]:  # noqa: ASYNC110  # the instance looks by itself
                await asyncio.sleep(0.05)
        status, told = await asking.admin("/readyz")
        assert (status, told["stale"]) == (200, ["countries"])
        assert told["checks"]["countries"] == "stale", "why is told to watchers only"
        assert "is no whole database" in capsys.readouterr().err
        assert (await asking.vault("GET", "/oauth2/jwks", SWEDISH))[0] == 200
        assert (await asking.vault("GET", "/oauth2/jwks", AMERICAN))[0] == 403
        write(path, {"8.8.8.0/24": nested("SE")})
        async with asyncio.timeout(PATIENCE):
            while (await asking.vault("GET", "/oauth2/jwks", AMERICAN))[0] == 403:  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.05)
        assert (await asking.admin("/readyz"))[1]["stale"] == []
        assert (await asking.vault("GET", "/oauth2/jwks", SWEDISH))[0] == 403


async def test_a_start_without_its_database_is_refused_with_a_sentence(tmp_path, capsys):
    (tmp_path / "rules.yaml").write_text(rules("http://127.0.0.1:1"))
    settings = tmp_path / "domicile.yaml"
    settings.write_text(
        f"country: se\ndata: {tmp_path / 'data'}\nrules: {tmp_path / 'rules.yaml'}\n"
        f"firewall: {{mode: block, country_database: {tmp_path / 'none.mmdb'}}}\n"
    )
    with pytest.raises(VaultError) as caught:
        async with running(load_settings(settings, {})):
            pass
    assert caught.value.code is Code.BAD_SETTINGS
    assert "none.mmdb is not there: download a database of countries" in caught.value.message
    assert not (tmp_path / "data").exists()
    assert await asyncio.to_thread(main, ["check", "--config", str(settings)]) == 1
    assert "firewall: The database of countries cannot be used" in capsys.readouterr().out


def test_a_mode_that_would_let_nobody_in_is_a_fault(tmp_path):
    settings = tmp_path / "domicile.yaml"
    settings.write_text("firewall: {mode: block}\n")
    with pytest.raises(VaultError) as caught:
        load_settings(settings, {})
    (detail,) = caught.value.details
    assert detail.source.endswith("domicile.yaml:1:18")
    assert "name a database of countries" in detail.text
