"""What the proxy collects of entities with ``schema: records``, found over the record-based family;
and what callers may do to it there.
"""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.conftest import World
from tests.support.application import Application
from tests.support.instance import Instance
from tests.support.lives import command
from tests.support.patience import PATIENCE
from tests.support.people import ANN, KEPT, KEPT_PLAIN
from tests.support.serving import serving

R = "/api/records"


class Vault:
    """An administrator of the instance."""

    def __init__(self, world: World, access: dict[str, str]) -> None:
        self.world, self.access, self.token = world, access, ""

    async def enter(self) -> None:
        own = {name: self.access[name] for name in ("client_id", "client_secret")}
        form = {"grant_type": "client_credentials", **own}
        async with self.world.caller.post(
            f"{self.world.instance.vault}/oauth2/token", data=form
        ) as answer:
            assert answer.status == 200, await answer.text()
            self.token = (await answer.json())["access_token"]

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.token}"}
        url = self.world.instance.vault + path
        async with self.world.caller.request(method, url, json=body, headers=headers) as answer:
            content = await answer.read()
            return answer.status, json.loads(content) if content else None

    async def found(self, **filter_: Any) -> list[dict[str, Any]]:
        status, answer = await self.ask("POST", R + "/find", {"country": "se", "filter": filter_})
        assert status == 200, answer
        return list(answer["data"])


async def domicile(instance: Instance, *arguments: str) -> tuple[int, bytes]:
    status, said, complained = await command(instance.folder, instance.settings(), *arguments)
    return status, said + complained


@asynccontextmanager
async def installed(folder: Path) -> AsyncIterator[tuple[World, Vault]]:
    """An instance with these rules, not started."""
    application = Application()
    async with serving(application.app()) as upstream, aiohttp.ClientSession() as caller:
        instance = Instance(folder)
        instance.rules.mkdir()
        (instance.rules / "rules.yaml").write_text(KEPT.format(upstream=upstream))
        status, out = await domicile(instance, "init", "--json")
        assert status == 0, out
        world = World(application, upstream, instance, caller)
        try:
            yield world, Vault(world, json.loads(out))
        finally:
            await instance.kill()


@pytest.mark.slow
async def test_people_of_an_application_are_records_among_others(tmp_path: Path) -> None:
    async with installed(tmp_path) as (world, vault):
        await world.instance.start()
        await vault.enter()
        own = {"country": "se", "record_key": "r-1", "key3": "bo@example.com", "range_key2": 5}
        assert (await vault.ask("POST", R, own))[0] == 201
        card = str(ANN["card"]).replace(" ", "")
        ann = await world.call("POST", "/people", 201, json={**ANN, "card": card})
        assert ann["email"] == ANN["email"]
        assert not world.application.holds("Zorbina")
        key = f"rules:person/{ann['id']}"

        await _is_found(vault, key, card)
        await _is_written_by_the_application_alone(vault, key)

        changed = await world.call(
            "PATCH", f"/people/{ann['id']}", 200, json={"email": "new@example.com", "tags": []}
        )
        assert changed["email"] == "new@example.com"
        assert [record["record_key"] for record in await vault.found(key3="new@example.com")] == [
            key
        ]
        assert await vault.found(key3=ANN["email"]) == []
        await world.instance.kill()
        await world.instance.start()
        await vault.enter()
        assert (await world.call("GET", f"/people/{ann['id']}", 200))["email"] == "new@example.com"

        bob = await world.call("POST", "/people", 201, json={**ANN, "name": "Bob"})
        # no number
        assert [record["range_key2"] for record in await vault.found(profile_key="Bob")] == [None]
        await world.call("DELETE", f"/people/{bob['id']}")
        assert await vault.found(profile_key="Bob") == []
        assert (await vault.ask("DELETE", f"{R}/se/rules:person%2F{ann['id']}"))[0] == 204
        assert [record["record_key"] for record in await vault.found()] == ["r-1"]
        left = await world.call("GET", f"/people/{ann['id']}", 200)
        assert {left[name] for name in ("name", "email", "phone", "born", "card")} == {None}
        assert await world.instance.stop() == 0
        status, out = await domicile(world.instance, "store", "verify")
        assert status == 0, out


async def _is_found(vault: Vault, key: str, card: str) -> None:
    (record,) = await vault.found(key3=ANN["email"])
    assert (record["record_key"], record["key"], record["country"]) == (key, key, "se")
    assert (record["profile_key"], record["key3"], record["key4"]) == (
        ANN["name"],
        ANN["email"],
        ANN["phone"],
    )
    assert (record["range_key2"], record["body"]) == (
        int(card),
        json.dumps(ANN["tags"], separators=(",", ":")),
    )
    assert record["precommit_body"] is record["key1"] is record["parent_key"] is None
    assert {record["record_key"] for record in await vault.found(range_key2={"$gt": 1})} == {
        "r-1",
        key,
    }
    assert [record["record_key"] for record in await vault.found(record_key=key)] == [key]
    question = {
        "metrics": {"n": {"func": "count"}, "sum": {"func": "sum", "key": "range_key2"}},
        "group_by": {"keys": ["key3"]},
    }
    _, answer = await vault.ask("POST", R + "/aggregate", question)
    assert {name: group["metrics"] for name, group in answer["data"].items()} == {
        "bo@example.com": {"n": 1, "sum": 5},
        ANN["email"]: {"n": 1, "sum": int(card)},
    }
    status, history = await vault.ask("GET", f"{R}/se/{key.replace('/', '%2F')}/history")
    assert (status, [entry["record"]["key3"] for entry in history["data"]]) == (200, [ANN["email"]])


async def _is_written_by_the_application_alone(vault: Vault, key: str) -> None:
    refused = [
        ("POST", R, {"country": "se", "record_key": key}),
        ("POST", R, {"country": "se", "record_key": "rules:mine"}),
        ("POST", R + "/batch", {"country": "se", "records": [{"key": "r-2"}, {"key": key}]}),
        ("POST", R + "/batch/update", {"country": "se", "records": [{"key": key, "key1": "x"}]}),
        ("POST", R + "/batch/update", {"country": "se", "search_key": "key4", "records": [{"key4": ANN["phone"], "key1": "x"}]}),
        ("POST", R + "/clone", {"filter": {"key": "r-1"}, "update_with": {"key": key}}),
        ("POST", f"/api/models/records/r-1/migrate/{key.replace('/', '%2F')}", None),
        ("POST", f"/api/models/records/{key.replace('/', '%2F')}/migrate/r-1", None),
        ("POST", "/api/models/records", {"record_key": key}),
    ]  # fmt: skip
    for method, path, body in refused:
        status, answer = await vault.ask(method, path, body)
        assert (status, answer["code"]) == (400, "schema_of_rules"), (path, body, answer)
    assert len(await vault.found()) == 2
    status, answer = await vault.ask(
        "POST", R + "/clone", {"filter": {"key": key}, "update_with": {"key": "copy"}}
    )
    assert (status, answer[0]["key3"], answer[0]["version"]) == (201, ANN["email"], 1)
    assert (await vault.ask("DELETE", f"{R}/se/copy"))[0] == 204


@pytest.mark.slow
async def test_a_key_that_is_kept_otherwise_is_rewritten_for_them_too(tmp_path: Path) -> None:
    async with installed(tmp_path) as (world, vault):
        (world.instance.rules / "rules.yaml").write_text(KEPT_PLAIN.format(upstream=world.upstream))
        await world.instance.start()
        await world.call("POST", "/people", 201, json=ANN)
        await world.instance.kill()
        for plain, sorts in (("[key4]", 200), ("[]", 400)):
            world.instance.environment["DOMICILE__RECORDS__PLAIN"] = plain
            await world.instance.start()
            await vault.enter()
            await _settled(vault)
            (record,) = await vault.found(key4=ANN["phone"])
            assert record["key3"] == ANN["email"]
            sorted_ = {"country": "se", "options": {"sort": [{"key4": "asc"}]}}
            assert (await vault.ask("POST", R + "/find", sorted_))[0] == sorts
            for parts in ({"key4": {"$like": "918 27"}}, {"search_keys": "918 27"}):
                status, answer = await vault.ask(
                    "POST", R + "/find", {"country": "se", "filter": parts}
                )
                assert (status, len(answer.get("data", []))) == (
                    (200, 1) if sorts == 200 else (401, 0)
                ), answer
            assert await world.instance.stop() == 0
            assert _in_columns(world.instance.data / "vault.db", str(ANN["phone"])) is (
                sorts == 200
            )
            status, out = await domicile(world.instance, "store", "verify")
            assert status == 0, out


async def _settled(vault: Vault) -> None:
    """Wait until no record is being rewritten."""
    async with asyncio.timeout(2 * PATIENCE):
        while True:
            _, schema = await vault.ask("GET", "/api/schemas/records")
            if schema["migration"] is None or schema["migration"]["state"] in ("done", "failed"):
                return
            await asyncio.sleep(0.05)


def _in_columns(store: Path, text: str) -> bool:
    """Whether a text stands in the clear in a column of a table."""
    with contextlib.closing(sqlite3.connect(store)) as connection:
        tables = [
            name
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE name LIKE 'r\\_%' ESCAPE '\\'"
            )
        ]
        # its own names
        rows = [row for table in tables for row in connection.execute(f"SELECT * FROM {table}")]
    return any(text in row for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "word"), [("PLAIN", "stored: plain"), ("PARTIAL_MATCH", "parts")]
)
async def test_a_key_that_rules_and_settings_keep_otherwise_is_told_at_start(
    tmp_path: Path, setting: str, word: str
) -> None:
    async with installed(tmp_path) as (world, _):
        world.instance.environment[f"DOMICILE__RECORDS__{setting}"] = "[key3]"
        status, out = await domicile(world.instance, "serve")
        assert status == 1
        assert b"person.email" in out
        assert word.encode() in out
