"""A schema changes under load: readers and writers notice nothing, and kill -9 in the middle only
delays it.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from proxy.errors import VaultError
from tests.e2e.conftest import World
from tests.e2e.test_workers import STORES, ready, team
from tests.support.application import Misbehaviour
from tests.support.instance import Instance
from tests.support.patience import PATIENCE
from tests.support.people import ANN, MARKERS, rules

RECORDS = 3000
KEY = {"type": "primary_key"}
BEFORE = {
    "fields": {
        "id": KEY,
        "code": {"type": "string", "storage": "indexed"},
        "note": {"type": "string"},
    }
}
AFTER = {"fields": {"id": KEY, "code": {"type": "integer", "storage": "indexed_hashed"}}}


class Vault:
    """An administrator of an instance."""

    def __init__(
        self, instance: Instance, session: aiohttp.ClientSession, access: dict[str, str]
    ) -> None:
        self.instance, self.session, self.access = instance, session, access
        self.token = ""

    async def enter(self) -> None:
        own = {name: self.access[name] for name in ("client_id", "client_secret")}
        form = {"grant_type": "client_credentials", "scope": self.access["environment_id"], **own}
        async with self.session.post(f"{self.instance.vault}/oauth2/token", data=form) as answer:
            assert answer.status == 200, await answer.text()
            self.token = (await answer.json())["access_token"]

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.token}"}
        async with self.session.request(
            method, self.instance.vault + path, json=body, headers=headers
        ) as answer:
            content = await answer.read()
            return answer.status, json.loads(content) if content else None

    async def found(self, code: Any) -> list[str]:
        status, answer = await self.ask(
            "POST", "/api/models/contact/find", {"filter": {"code": code}}
        )
        assert status == 200, answer
        return [record["id"] for record in answer["data"]]

    async def schema(self) -> Any:
        status, answer = await self.ask("GET", "/api/schemas/contact")
        assert status == 200, answer
        return answer

    async def fill(self) -> None:
        for start in range(0, RECORDS, 100):
            batch = [
                {"id": f"r{n}", "code": str(n), "note": "x"} for n in range(start, start + 100)
            ]
            status, answer = await self.ask("POST", "/api/models/contact/batch", batch)
            assert status == 201, answer

    async def migrated(self) -> Any:
        async with asyncio.timeout(4 * PATIENCE):
            while (answer := await self.schema())["migration"]["state"] != "done":
                assert answer["migration"]["state"] in ("filling", "cleaning"), answer
                await asyncio.sleep(0.02)
        return answer


@asynccontextmanager
async def vault(folder: Path) -> AsyncIterator[Vault]:
    instance = Instance(folder)
    instance.rules.mkdir()
    (instance.rules / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
    made = await instance.command("init")
    await instance.start()
    try:
        async with aiohttp.ClientSession() as session:
            one = Vault(instance, session, made)
            await one.enter()
            assert (await one.ask("PUT", "/api/schemas/contact", BEFORE))[0] == 201
            await one.fill()
            yield one
    finally:
        await instance.kill()


@pytest.mark.slow
async def test_readers_and_writers_notice_nothing_of_a_migration(tmp_path: Path) -> None:
    async with vault(tmp_path) as one:
        over = asyncio.Event()
        written: dict[str, int] = {}

        async def read() -> int:
            rounds = 0
            while not over.is_set():
                number = rounds % RECORDS
                kind = {"string": str, "integer": int}
                status, answer = 0, cast(Any, None)
                # the definition may change between the question about it and the one by it
                for _ in range(3):
                    definition = (await one.schema())["fields"]["code"]["type"]
                    code = kind[definition](number)
                    status, answer = await one.ask(
                        "POST", "/api/models/contact/find", {"filter": {"record_key": f"r{number}"}}
                    )
                    assert status == 200, answer
                    assert len(answer["data"]) == 1
                    status, answer = await one.ask(
                        "POST", "/api/models/contact/find", {"filter": {"code": code}}
                    )
                    if status == 200:
                        break
                assert status == 200, answer
                assert [record["id"] for record in answer["data"]] == [f"r{number}"]
                rounds += 1
            return rounds

        async def write() -> int:
            rounds = 0
            while not over.is_set():
                number = 50_000 + rounds
                status, answer = 0, cast(Any, None)
                for kind in (str, int):
                    record = {"id": f"w{number}", "code": kind(number)}
                    status, answer = await one.ask("POST", "/api/models/contact", record)
                    if status == 201:
                        written[f"w{number}"] = number
                        break
                assert status == 201, answer
                rounds += 1
            return rounds

        tasks = [asyncio.create_task(read()), asyncio.create_task(write())]
        assert (await one.ask("PUT", "/api/schemas/contact", AFTER))[0] == 202
        answer = await one.migrated()
        over.set()
        assert min(await asyncio.gather(*tasks)) > 0
        assert answer["fields"]["code"]["type"] == "integer"
        for name, number in written.items():
            assert await one.found(number) == [name]
        assert await one.found(RECORDS - 1) == [f"r{RECORDS - 1}"]


@pytest.mark.slow
async def test_kill_9_in_the_middle_of_a_migration_only_delays_it(tmp_path: Path) -> None:
    async with vault(tmp_path) as one:
        assert (await one.ask("PUT", "/api/schemas/contact", AFTER))[0] == 202
        for _ in range(6):
            await asyncio.sleep(0.03)
            await one.instance.kill()
            await one.instance.start()
            await one.enter()
        answer = await one.migrated()
        assert answer["records"] == RECORDS
        assert answer["migration"]["failed"] == 0
        for number in range(0, RECORDS, 97):
            assert await one.found(number) == [f"r{number}"]
        status, page = await one.ask(
            "POST", "/api/models/contact/find", {"options": {"limit": 1000}}
        )
        assert status == 200
        assert all(
            set(record) == {"id", "code", "created_at", "updated_at", "version", "attachments"}
            for record in page["data"]
        )
        assert all(type(record["code"]) is int for record in page["data"])


# ---------------------------------------------------------------------- several workers


BOATS = {"fields": {"id": {"type": "primary_key"}, "name": {"type": "string"}}}
RENAMED = {"fields": {**BOATS["fields"], "home": {"type": "string", "storage": "indexed"}}}


@pytest.mark.slow
@STORES
async def test_a_schema_of_one_worker_is_that_of_all_when_it_is_answered(
    tmp_path: Path, store: str
) -> None:
    async with team(tmp_path, store) as instance:
        assert await instance.stop() == 0
        create = ("client", "create", "--environment", "default", "--admin", "chief")
        made = await instance.command(*create)
        await instance.start()
        await ready(instance)
        proof = {name: made[name] for name in ("client_id", "client_secret")}
        form = {"grant_type": "client_credentials", **proof}
        fresh = aiohttp.TCPConnector(force_close=True)  # whichever worker accepts the connection
        async with aiohttp.ClientSession(instance.vault, connector=fresh) as caller:
            async with caller.post("/oauth2/token", data=form) as answer:
                assert answer.status == 200, await answer.text()
                bearer = {"Authorization": f"Bearer {(await answer.json())['access_token']}"}

            took = 0.0  #: seconds of the last change; after one it is answered, whoever knows of it

            async def told(method: str, path: str, sent: dict[str, Any] | None = None) -> int:
                nonlocal took
                began = time.monotonic()
                async with caller.request(method, path, json=sent, headers=bearer) as answer:
                    await answer.read()
                if "/models/" not in path and "/clients" not in path:
                    took = time.monotonic() - began
                return answer.status

            async def tells(status: int, method: str, path: str, sent: dict[str, Any]) -> None:
                async with asyncio.timeout(PATIENCE):
                    while (said := await told(method, path, sent)) != status and took > 0.9:  # noqa: ASYNC110  # others hear of it
                        await asyncio.sleep(0.1)
                assert said == status

            for turn in range(3):  # one that is removed begins anew
                assert await told("PUT", "/api/schemas/boats", BOATS) == 201
                for number in range(8):
                    await tells(201, "POST", "/api/models/boats", {"id": f"b{number}"})
                assert await told("PUT", "/api/schemas/boats", RENAMED) in (200, 202)
                boat = {"id": "late", "home": "Visby"}
                await tells(201, "POST", "/api/models/boats", boat)
                found = {"filter": {"home": "Visby"}}
                for _ in range(8):
                    await tells(200, "POST", "/api/models/boats/find", found)
                assert await told("DELETE", "/api/schemas/boats?records=delete") == 204
                for _ in range(8):
                    assert await told("POST", "/api/models/boats", {"id": "no"}) == 400
                more = {"name": "more", "environment_id": f"more{turn}"}
                assert await told("POST", "/api/environments", more) == 201
                for number in range(8):
                    client = {"name": f"c{number}", "environment_id": f"more{turn}"}
                    await tells(201, "POST", "/api/clients", client)
                path = f"/api/environments/more{turn}"
                assert await told("DELETE", path) == 204
                for _ in range(8):
                    assert await told("DELETE", path) == 404


async def test_values_of_a_field_that_the_rules_rename_are_restored_and_not_overwritten(
    world: World,
) -> None:
    """Also while a create is in doubt, whose record was told by fields that have gone."""
    made = await world.call("POST", "/people", 201, json=ANN)
    world.application.plan = [Misbehaviour(act=True, cut=True)]
    await world.call("POST", "/people", 502, json={**ANN, "name": "Quibblethwaite"})
    token = world.application.records[1]["email"]
    file = world.instance.rules / "rules.yaml"
    before = renamed = file.read_text()
    for old, new in (
        ("      email:  {kind", "      mail:   {at: $.email, kind"),
        ("      born:   {kind", "      birth:  {at: $.born, kind"),
        ("      name:   {kind", "      called: {at: $.name, kind"),
        ("{field: email}", "{field: mail}"),
        ("name: name, email: email", "name: called, email: mail"),
    ):
        assert old in renamed
        renamed = renamed.replace(old, new)
    file.write_text(renamed)
    await world.instance.logged("rules are active")
    warned = world.instance.events("the new rules give another name")
    assert {one["source"] for one in warned} == {"person.email", "person.born", "person.name"}
    people = [made, {**ANN, "name": "Quibblethwaite", "id": 2}]
    for _ in range(2):
        assert (await world.call("GET", "/people", 200))["items"] == people
        assert await world.call("GET", "/people/1", 200) == made
        # a token is no value, whatever its field is called
        await world.call("PATCH", "/people/1", 422, json={"email": token})
        await world.instance.kill()
        await world.instance.start()
    again = {**made, "vip": "no"}
    assert await world.call("PUT", "/people/1", 200, json=again) == again
    found = await world.call("GET", "/people", 200, params={"email": ANN["email"]})
    assert [one["id"] for one in found["items"]] == [1]
    file.write_text(before)
    await world.instance.logged("rules are active")
    assert await world.call("GET", "/people", 200) == {"items": [again, people[1]], "total": 2}
    assert not [one for one in MARKERS if world.application.holds(one)]


async def test_an_entity_that_seems_to_have_another_name_has_to_say_which_schema_it_has(
    world: World,
) -> None:
    """Under the new name nothing of it would be found, and tokens of dates look like dates."""
    made = await world.call("POST", "/people", 201, json=ANN)
    file = world.instance.rules / "rules.yaml"
    before = file.read_text()
    renamed = re.sub(r"\bperson\b", "human", before)
    file.write_text(renamed)
    await world.instance.logged("a fault in the rules")
    assert "1 records of 'person'" in world.instance.events("a fault in the rules")[0]["text"]
    assert await world.call("GET", "/people/1", 200) == made
    await world.instance.kill()
    with pytest.raises(VaultError, match="schema: person"):
        await world.instance.start()
    for schema, shown in (
        ("person", made["born"]),
        ("human", world.application.records[1]["born"]),
    ):
        file.write_text(renamed.replace("  human:\n", f"  human:\n    schema: {schema}\n"))
        await world.instance.start()
        assert (await world.call("GET", "/people/1", 200))["born"] == shown
        await world.instance.kill()
    file.write_text(before)
    await world.instance.start()
    assert await world.call("GET", "/people/1", 200) == made
