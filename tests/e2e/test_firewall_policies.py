"""A policy lets its clients in from outside the country of a blocked instance, and they see nothing
in clear.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from proxy.bootstrap.instance import prepare_instance, running
from proxy.bootstrap.offline import first_client
from proxy.config import load_settings
from tests.support.countries import AMERICAN, SWEDISH, write
from tests.support.people import rules

FIELDS = {
    "id": {"type": "primary_key"},
    "name": {"type": "string", "storage": "indexed_hashed"},
    "age": {"type": "integer", "storage": "indexed"},
}
ANN: dict[str, Any] = {"id": "k1", "name": "Quibblethwaite", "age": 41}


class Instance:
    """A running instance, asked from where one likes."""

    def __init__(self, address: str, session: aiohttp.ClientSession) -> None:
        self._address = address
        self._session = session

    async def token(self, client: str, secret: str, host: str) -> tuple[int, Any]:
        form = {"grant_type": "client_credentials", "client_id": client, "client_secret": secret}
        return await self._ask("POST", "/oauth2/token", host, data=form)

    async def ask(
        self, method: str, path: str, token: str, host: str, content: Any = None
    ) -> tuple[int, Any]:
        more = {} if content is None else {"json": content}
        return await self._ask(
            method, path, host, headers={"Authorization": f"Bearer {token}"}, **more
        )

    async def _ask(self, method: str, path: str, host: str, **more: Any) -> tuple[int, Any]:
        headers = {"X-Forwarded-For": host, **more.pop("headers", {})}
        async with self._session.request(
            method, f"http://{self._address}{path}", headers=headers, **more
        ) as answer:
            body = await answer.read()
            return answer.status, await answer.json(content_type=None) if body else None


@asynccontextmanager
async def started(folder: Path, mode: str) -> AsyncIterator[tuple[Instance, str]]:
    """An instance, and a token of its administrator."""
    (folder / "rules.yaml").write_text(rules("http://127.0.0.1:1"))
    file = folder / "domicile.yaml"
    file.write_text(
        f"country: se\ndata: {folder / 'data'}\nrules: {folder / 'rules.yaml'}\ntrusted_proxies: "
        "[127.0.0.1]\n"
        "listen: {proxy: '127.0.0.1:0', vault: '127.0.0.1:0', admin: '127.0.0.1:0'}\n"
        f"firewall: {{mode: '{mode}', country_database: {write(folder / 'country.mmdb')}}}\n"
    )
    settings = load_settings(file, {})
    await prepare_instance(settings)
    first = await first_client(settings)
    assert first is not None
    async with running(settings) as made, aiohttp.ClientSession() as session:
        instance = Instance(made.interface, session)
        status, told = await instance.token(first.client.id, first.secret, SWEDISH)
        assert status == 200
        yield instance, told["access_token"]


async def client(instance: Instance, chief: str, name: str, *policies: str) -> tuple[str, str]:
    """The id and the secret of a new client under these policies."""
    asked = {"name": name, "environment_id": "default", "policies": list(policies)}
    status, told = await instance.ask("POST", "/api/clients", chief, SWEDISH, asked)
    assert status == 201, told
    return told["client_id"], told["client_secret"]


async def test_a_policy_opens_the_door_for_its_clients_alone_and_shows_them_nothing_in_clear(
    tmp_path,
):
    async with started(tmp_path, "block") as (instance, chief):
        assert (
            await instance.ask("PUT", "/api/schemas/contact", chief, SWEDISH, {"fields": FIELDS})
        )[0] == 201
        assert (await instance.ask("POST", "/api/models/contact", chief, SWEDISH, ANN))[0] == 201
        plain = await client(instance, chief, "plain")
        assert (await instance.token(*plain, AMERICAN))[0] == 403, "no policy lets anybody in"
        body = {"schema": "contact", "actions": ["read"], "firewall": {"mode": "mask"}}
        assert (await instance.ask("PUT", "/api/policies/abroad", chief, SWEDISH, body))[0] in (
            200,
            201,
        )
        abroad = await client(instance, chief, "abroad", "abroad")

        status, told = await instance.token(*abroad, AMERICAN)
        assert status == 200
        find = {"filter": {"id": "k1"}}
        at_home = await instance.ask(
            "POST", "/api/models/contact/find", told["access_token"], SWEDISH, find
        )
        assert (at_home[0], at_home[1]["data"][0]["name"]) == (200, ANN["name"])
        status, seen = await instance.ask(
            "POST", "/api/models/contact/find", told["access_token"], AMERICAN, find
        )
        assert status == 200
        (record,) = seen["data"]
        assert ANN["name"] not in str(seen)
        assert record.get("age") != ANN["age"]
        by_value = {"filter": {"name": ANN["name"]}}
        asked = await instance.ask(
            "POST", "/api/models/contact/find", told["access_token"], AMERICAN, by_value
        )
        assert asked[0] == 400, "what is not shown cannot be searched by"

        status, told = await instance.token(*plain, AMERICAN)
        assert status == 200, "who calls is known only by a token"
        for token in (told["access_token"], chief):
            status, refused = await instance.ask(
                "POST", "/api/models/contact/find", token, AMERICAN, find
            )
            assert (status, refused["code"]) == (403, "outside_country")
            status, refused = await instance.ask("GET", "/openapi.json", token, AMERICAN)
            assert (status, refused["code"]) == (403, "outside_country"), (
                "what schemas there are stays at home, too"
            )
        status, refused = await instance.ask("GET", "/api/policies", chief, AMERICAN)
        assert (status, refused["code"]) == (403, "outside_country")


async def test_masked_is_everybody_outside(tmp_path):
    async with started(tmp_path, "mask") as (instance, chief):
        assert (
            await instance.ask("PUT", "/api/schemas/contact", chief, SWEDISH, {"fields": FIELDS})
        )[0] == 201
        assert (await instance.ask("POST", "/api/models/contact", chief, SWEDISH, ANN))[0] == 201
        find = {"filter": {"id": "k1"}}
        status, seen = await instance.ask("POST", "/api/models/contact/find", chief, AMERICAN, find)
        assert (status, len(seen["data"])) == (200, 1)
        assert ANN["name"] not in str(seen)
        status, seen = await instance.ask("GET", "/api/models/contact/k1/history", chief, AMERICAN)
        assert ANN["name"] not in str(seen)
        status, seen = await instance.ask("POST", "/api/functions/none", chief, AMERICAN, {})
        assert (status, seen["code"]) == (403, "outside_country")
