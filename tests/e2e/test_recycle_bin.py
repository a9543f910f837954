"""An application that only marks what is deleted: values stay as long as its rule says."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from proxy.audit.events import MARKED
from tests.e2e.conftest import World
from tests.e2e.test_kept_rules import Vault, domicile
from tests.support.application import Application, Misbehaviour
from tests.support.audit import told
from tests.support.instance import Instance
from tests.support.patience import PATIENCE
from tests.support.serving import serving

FILE = Path(__file__).parents[2] / "rules" / "examples" / "recycle-bin.yaml"
ANN = {"name": "Zorbina Quistwood", "email": "zorbina@example.com"}
PEOPLE = "/api/models/person"


class Office(Application):
    """People and notes; a delete puts a person into the bin, and a note is archived."""

    def app(self) -> web.Application:
        made = web.Application(middlewares=[self._record])
        made.add_routes(
            [
                web.post("/{kind}", self._create),
                web.get("/people", self._shown),
                web.get("/bin", self._shown),
                web.get("/{kind}/{id:\\d+}", self._read),
                web.patch("/{kind}/{id:\\d+}", self._change),
                web.delete("/people/{id:\\d+}", self._bin),
                web.delete("/{kind}/{id:\\d+}", self._delete),
            ]
        )
        return made

    async def _shown(self, request: web.Request) -> web.Response:
        binned = request.path == "/bin"
        people = [one for one in self.records.values() if bool(one.get("binned")) is binned]
        return web.json_response(people)

    async def _bin(self, request: web.Request) -> web.Response:
        self.records[int(request.match_info["id"])]["binned"] = True
        return web.Response(status=204)


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[tuple[World, Vault]]:
    application = Office()
    async with serving(application.app()) as upstream, aiohttp.ClientSession() as caller:
        instance = Instance(tmp_path)
        instance.rules.mkdir()
        text = FILE.read_text().replace("http://127.0.0.1:8000", upstream)
        (instance.rules / "rules.yaml").write_text(text)
        status, out = await domicile(instance, "init", "--json")
        assert status == 0, out
        world = World(application, upstream, instance, caller)
        vault = Vault(world, json.loads(out))
        try:
            await instance.start()
            await vault.enter()
            yield world, vault
        finally:
            await instance.kill()


async def record(vault: Vault, ident: int) -> dict[str, Any]:
    status, body = await vault.ask("GET", f"{PEOPLE}/{ident}")
    assert status == 200, body
    return dict(body)


async def test_what_is_in_the_bin_is_shown_found_corrected_and_given_back(
    office: tuple[World, Vault],
) -> None:
    world, vault = office
    ann = await world.call("POST", "/people", 201, json=ANN)
    path = f"/people/{ann['id']}"
    assert "meta" not in await record(vault, ann["id"])
    await world.call("DELETE", path, 204)
    assert await world.call("GET", "/people", 200) == []
    assert await world.call("GET", "/bin", 200) == [{**ann, "binned": True}]
    marked = await record(vault, ann["id"])
    assert marked["meta"]["deleted_at"] < marked["expires_at"]
    found = (await vault.ask("POST", f"{PEOPLE}/find", {"filter": {"email": ANN["email"]}}))[1]
    assert found["data"][0]["meta"] == marked["meta"]
    back = {"name": "Zorbina Oakfield", "meta": marked["meta"]}
    status, corrected = await vault.ask("PATCH", f"{PEOPLE}/{ann['id']}", back)
    assert (status, corrected["meta"]) == (200, marked["meta"]), corrected
    assert corrected["expires_at"] == marked["expires_at"]
    await world.instance.kill()
    await world.instance.start()
    await vault.enter()
    assert (await world.call("GET", "/bin", 200))[0]["name"] == "Zorbina Oakfield"
    await world.call("PATCH", path, 200, json={"binned": False})
    given_back = await record(vault, ann["id"])
    assert "meta" not in given_back
    assert "expires_at" not in given_back
    assert (await world.call("GET", "/people", 200))[0]["name"] == "Zorbina Oakfield"
    await world.call("DELETE", path, 204)
    await world.call("DELETE", f"/bin/{ann['id']}", 204)
    assert (await vault.ask("GET", f"{PEOPLE}/{ann['id']}"))[0] == 404
    assert not world.application.holds("Zorbina")
    reasons = [line.get("reason") for line in told(world.instance.data / "audit", "delete")]
    assert reasons == [MARKED, MARKED, None]  # who reads the log knows which values are gone


async def test_a_note_is_archived_by_what_the_body_says_and_stays(
    office: tuple[World, Vault],
) -> None:
    world, vault = office
    note = await world.call("POST", "/notes", 201, json={"text": "Quistwood owes us"})
    path = f"/notes/{note['id']}"
    await world.call("PATCH", path, 200, json={"archived": True})
    status, shown = await vault.ask("GET", f"/api/models/note/{note['id']}")
    assert status == 200
    assert "expires_at" not in shown
    assert shown["meta"].keys() == {"deleted_at"}
    assert (await world.call("GET", path, 200))["text"] == "Quistwood owes us"
    await world.call("DELETE", path, 204)
    assert (await vault.ask("GET", f"/api/models/note/{note['id']}"))[0] == 404


async def test_what_is_in_the_bin_belongs_to_its_person_and_is_erased_with_the_rest(
    office: tuple[World, Vault],
) -> None:
    world, vault = office
    ann = await world.call("POST", "/people", 201, json=ANN)
    await world.call("DELETE", f"/people/{ann['id']}", 204)
    status, found = await vault.ask("POST", "/api/persons/find", {"value": ANN["email"]})
    assert status == 200
    (held,) = found["data"]
    assert held["record"]["meta"].keys() == {"deleted_at"}
    assert (await vault.ask("POST", "/api/persons/erase", {"value": ANN["email"]}))[0] == 200
    assert (await vault.ask("GET", f"{PEOPLE}/{ann['id']}"))[0] == 404
    assert [one["name"] for one in await world.call("GET", "/bin", 200)] == [None]


async def test_a_delete_that_nobody_answered_is_made_when_the_record_is_gone(
    office: tuple[World, Vault],
) -> None:
    world, vault = office
    ann = await world.call("POST", "/people", 201, json=ANN)
    world.application.plan = [Misbehaviour(cut=True, act=True)]
    await world.call("DELETE", f"/people/{ann['id']}", 502)
    assert (await record(vault, ann["id"]))["meta"] == {"in_doubt": True}
    world.application.plan = [Misbehaviour(status=404)]
    await world.call("GET", f"/people/{ann['id']}", 404)
    assert (await record(vault, ann["id"]))["meta"].keys() == {"deleted_at"}


@pytest.mark.slow
async def test_when_the_time_is_over_nothing_of_the_values_is_in_the_store(tmp_path: Path) -> None:
    application = Office()
    async with serving(application.app()) as upstream, aiohttp.ClientSession() as caller:
        instance = Instance(tmp_path)
        instance.rules.mkdir()
        text = FILE.read_text().replace("http://127.0.0.1:8000", upstream)
        (instance.rules / "rules.yaml").write_text(text.replace("keep: 30d", "keep: 10s"))
        await instance.start()
        world = World(application, upstream, instance, caller)
        try:
            ann = await world.call("POST", "/people", 201, json=ANN)
            await world.call("DELETE", f"/people/{ann['id']}", 204)
            assert (await world.call("GET", "/bin", 200))[0]["name"] == ANN["name"]
            async with asyncio.timeout(PATIENCE):
                while (await world.call("GET", "/bin", 200))[0]["name"] == ANN["name"]:  # noqa: ASYNC110  # nothing tells of it
                    await asyncio.sleep(0.2)
            await world.become("domicile_vault_events_total", 1, event="expired")
        finally:
            await instance.stop()
