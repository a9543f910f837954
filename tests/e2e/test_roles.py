"""Clients with a role, on a real process and by the command line: each does its duty, sees no record,
and leaves its lines.
"""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.instance import Instance
from tests.support.people import rules
from tests.support.scraping import FIELD

SCHEMA = {"fields": {"id": {"type": "primary_key"}, "email": {"type": "string"}}}
ROLES = ("key_officer", "access_officer", "auditor", "operator")


class House:
    """An instance, and credentials of its clients by name."""

    def __init__(self, instance: Instance, session: aiohttp.ClientSession) -> None:
        self.instance = instance
        self.session = session
        self.proofs: dict[str, dict[str, str]] = {}

    async def token(self, name: str) -> str:
        form = {"grant_type": "client_credentials", **self.proofs[name]}
        async with self.session.post(self.instance.vault + "/oauth2/token", data=form) as answer:
            return str((await answer.json())["access_token"])

    async def ask(self, name: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {await self.token(name)}"}
        address = path if path.startswith("http") else self.instance.vault + path
        async with self.session.request(method, address, json=body, headers=headers) as answer:
            return answer.status, await answer.json(
                content_type=None
            ) if answer.status != 204 else None

    async def make(self, as_: str, name: str, **grant: Any) -> int:
        body = {"name": name, "environment_id": "default", **grant}
        status, answer = await self.ask(as_, "POST", "/api/clients", body)
        if status == 201:
            self.proofs[name] = answer
        return status

    async def command(self, name: str, *words: str, status: int = 0) -> Any:
        proof = self.proofs[name]
        variables = {
            "DOMICILE_CLIENT_ID": proof["client_id"],
            "DOMICILE_CLIENT_SECRET": proof["client_secret"],
        }
        return await self.instance.command(
            *words, "--url", self.instance.vault, status=status, **variables
        )


async def house_of(instance: Instance, session: aiohttp.ClientSession, *names: str) -> House:
    """A running instance with a schema and two records, an administrator, and clients made on the
    command line: an auditor, administrators called other, and readers.
    """
    instance.rules.mkdir()
    (instance.rules / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
    first = await instance.command("init")
    proof = {name: first[name] for name in ("client_id", "client_secret")}
    made = House(instance, session)
    made.proofs["chief"] = proof
    for name in ("auditor", *names):
        grant = {"auditor": ["--role", "auditor"], "other": ["--admin"]}.get(name, [])
        created = await instance.command(
            "client", "create", "--environment", "default", *grant, name
        )
        made.proofs[name] = {member: created[member] for member in proof}
    await instance.start()
    assert (await made.ask("chief", "PUT", "/api/schemas/guest", SCHEMA))[0] == 201
    for number in (1, 2):
        guest = {"id": f"g-{number}", "email": "ann@example.com"}
        assert (await made.ask("chief", "POST", "/api/models/guest", guest))[0] == 201
    return made


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    instance = Instance(tmp_path)
    async with aiohttp.ClientSession() as session:
        made = await house_of(instance, session)
        for role in ROLES:
            if role != "auditor":
                assert await made.make("chief", role, roles=[role]) == 201
        yield made
        assert await instance.stop() == 0


async def test_each_role_does_its_duty_by_the_command_line_and_sees_no_record(house: House) -> None:
    before = await house.command("key_officer", "keys", "list")
    after = await house.command("key_officer", "keys", "rotate", "signing")
    assert len(after["signing"]) == len(before["signing"]) + 1

    policy = {"schema": "guest", "actions": ["read"]}
    assert (await house.ask("access_officer", "PUT", "/api/policies/desk", policy))[0] == 201
    assert await house.make("access_officer", "shop", policies=["desk"]) == 201
    assert await house.make("access_officer", "chief too", admin=True) == 403
    assert (await house.ask("shop", "POST", "/api/models/guest/find", {}))[0] == 200

    found = await house.command("auditor", "audit", "verify")
    assert (found["ok"], found["faults"]) == (True, [])
    last = await house.command("auditor", "audit", "search", "--schema", "guest", "--record", "g-1")
    assert (last["event"], last["by"]) == ("reveal", house.proofs["shop"]["client_id"])
    assert "ann@example.com" not in str(last)
    last = await house.command(
        "chief", "audit", "search", "--by", house.proofs["auditor"]["client_id"]
    )
    assert last["operation"] == "list_audit"

    (house.instance.rules / "rules.yaml").write_text("version: 1\n")
    told = await house.command("operator", "reload", status=1)
    assert told["checks"]["rules"].startswith("stale: ")
    status, ready = await house.ask("operator", "GET", house.instance.admin + "/readyz")
    assert (status, ready["stale"]) == (200, ["rules"])
    headers = {"Authorization": f"Bearer {await house.token('operator')}"}
    async with house.session.get(house.instance.admin + "/metrics", headers=headers) as answer:
        assert answer.status == 200

    for role in ROLES:
        for method, path in (
            ("POST", "/api/models/guest/find"),
            ("GET", "/api/models/guest/g-1"),
            ("GET", "/api/models/guest/export"),
            ("PUT", "/api/schemas/guest"),
            ("POST", "/api/environments"),
        ):
            status, answer = await house.ask(role, method, path, {} if method != "GET" else None)
            assert (status, answer["code"]) == (403, "forbidden"), (role, path)
    for role, path in (("auditor", "/api/reload"), ("operator", "/api/keys/rotate")):
        assert (await house.ask(role, "POST", path, {}))[0] == 403


async def test_an_administrator_under_policies_does_not_raise_himself(house: House) -> None:
    hidden = {"schema": "guest", "actions": ["read"], "fields": {"email": "hidden"}}
    assert (await house.ask("chief", "PUT", "/api/policies/desk", hidden))[0] == 201
    assert await house.make("chief", "bound", admin=True, policies=["desk"]) == 201
    assert await house.make("bound", "free") == 403
    assert await house.make("bound", "officer", roles=["access_officer"]) == 403
    open_ = {"schema": "guest", "actions": ["read"]}
    for name in ("desk", "mine"):
        status, answer = await house.ask("bound", "PUT", f"/api/policies/{name}", open_)
        assert (status, answer["code"]) == (403, "forbidden")
    assert await house.make("bound", "clerk", policies=["desk"]) == 201
    status, page = await house.ask("clerk", "POST", "/api/models/guest/find", {})
    assert (status, "email" in page["data"][0]) == (200, False)


async def test_a_role_of_an_emergency_raises_an_alarm_and_ends_by_itself_also_over_a_restart(
    house: House,
) -> None:
    assert await house.make("chief", "night", policies=[], emergency_roles=["administrator"]) == 201
    assert await house.make("chief", "day") == 201
    body = {"role": "administrator", "reason": "the only officer is ill"}
    assert (await house.ask("day", "POST", "/api/emergency", body))[0] == 403
    for wrong in ({"reason": ""}, {"minutes": 61}, {"minutes": 0}, {"minutes": "9"}):
        assert (await house.ask("night", "POST", "/api/emergency", body | wrong))[0] == 400
    assert (await house.ask("night", "GET", "/api/keys"))[0] == 403

    taken = await house.command(
        "night", "emergency", "take", "administrator", "--reason", body["reason"], "--minutes", "10"
    )
    began = time.monotonic()
    assert (await house.ask("night", "GET", "/api/keys"))[0] == 200
    assert (await house.ask("night", "POST", "/api/emergency", body))[0] == 409
    await house.instance.logged("a client has taken a role in an emergency")
    async with house.session.get(house.instance.admin + "/metrics", headers=FIELD) as answer:
        assert 'domicile_alarms_total{kind="emergency"} 1' in await answer.text()
    line = await house.command("auditor", "audit", "search", "--event", "alarm")
    assert (line["by"], line["subject"]) == (house.proofs["night"]["client_id"], "administrator")
    assert line["purpose"] == body["reason"]

    await house.instance.kill()
    await house.instance.start()
    _, shown = await house.ask(
        "auditor", "GET", f"/api/clients/{house.proofs['night']['client_id']}"
    )
    assert shown["emergency"]["ends_at"] == taken["ends_at"]
    assert (await house.ask("night", "GET", "/api/keys"))[0] == 200
    await house.command("night", "emergency", "end")
    assert (await house.ask("night", "GET", "/api/keys"))[0] == 403
    assert time.monotonic() - began < 600, "it was ended, and did not end by itself"
