"""Access policies of files on a real process: SIGHUP puts changed ones in force for tokens that are
out already, and refuses broken ones.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.auth.clients import Grant, NewClient
from proxy.bootstrap.offline import stopped_clients
from proxy.config import load_settings
from tests.support.auth import basic
from tests.support.instance import Instance
from tests.support.patience import PATIENCE
from tests.support.people import rules

GUEST = "name: guest\nfields:\n  id: {type: primary_key}\n  email: {type: string}\n"
DESK = "name: desk\nschema: guest\nactions: [read]\n"
IN_FORCE = "an access policy was declared by a file"
REFUSED = "policy files rejected; previous policies stay active"
FAULT = "a fault in a file with policies"  # logged after that, once for each


@dataclass
class Scene:
    """A running instance, and the tokens of an administrator and of a client under the policy of
    the file.
    """

    instance: Instance
    caller: aiohttp.ClientSession
    files: Path
    tokens: dict[str, str] = field(default_factory=dict)

    async def enter(self, made: NewClient) -> None:
        form, sent = (
            {"grant_type": "client_credentials"},
            {"Authorization": basic(made.client.id, made.secret)},
        )
        async with self.caller.post("/oauth2/token", data=form, headers=sent) as answer:
            self.tokens[made.client.name] = (await answer.json())["access_token"]

    async def said(self, name: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.tokens[name]}"}
        async with self.caller.request(method, path, json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    async def seen(self) -> Any:
        """What the one token of the desk shows of the record, or the code of its refusal."""
        _, told = await self.said("desk", "POST", "/api/models/guest/find", {})
        return told["data"][0].get("email") if "data" in told else told["code"]

    async def again(self, text: str, event: str, lines: int = 1) -> None:
        """Write the file, send SIGHUP, and wait for so many lines of the log."""
        count = len(self.instance.events(event)) + lines
        (self.files / "desk.yaml").write_text(text)
        self.instance.send(signal.SIGHUP)
        await self.instance.logged(event, count)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    files = tmp_path / "policies"
    more = {"DOMICILE__SCHEMAS": str(tmp_path / "guest.yaml"), "DOMICILE__POLICIES": str(files)}
    instance = Instance(tmp_path, environment=more)
    for folder in (instance.rules, files):
        folder.mkdir()
    (instance.rules / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
    (tmp_path / "guest.yaml").write_text(GUEST)
    (files / "desk.yaml").write_text(DESK)
    await instance.start()
    await instance.stop()
    async with stopped_clients(load_settings(None, instance.settings())) as clients:
        made = [await clients.create("chief", "default", Grant(admin=True))]
        made.append(await clients.create("desk", "default", Grant(policies=("desk",))))
    await instance.start()
    try:
        async with aiohttp.ClientSession(
            instance.vault, timeout=aiohttp.ClientTimeout(PATIENCE)
        ) as caller:
            here = Scene(instance, caller, files)
            for client in made:
                await here.enter(client)
            yield here
    finally:
        await instance.kill()


async def test_a_changed_policy_file_counts_at_once_and_a_broken_one_changes_nothing(
    scene: Scene,
) -> None:
    body = {"id": "a", "email": "ann@example.com"}
    assert (await scene.said("chief", "POST", "/api/models/guest", body))[0] == 201
    assert await scene.seen() == "ann@example.com"
    await scene.again(DESK + "fields: {email: hidden}\n", IN_FORCE)
    assert await scene.seen() is None
    for broken, told in (
        (DESK + "fields: {mail: hidden}\n", "desk.yaml:4"),
        (DESK.replace("[read]", "[peek]"), "desk.yaml:3"),
        ("name: desk\nschema: [", "desk.yaml"),
        (DESK.replace("guest", "nobody"), "desk.yaml:2"),
    ):
        await scene.again(broken, FAULT)
        assert await scene.seen() is None
        assert told in scene.instance.events(FAULT)[-1]["source"]
    (scene.files / "other.yaml").write_text("name: other\nschema: guest\nactions: [write]\n")
    await scene.again(DESK.replace("[read]", "[peek]"), FAULT)  # all of the files, or none
    assert (await scene.said("chief", "GET", "/api/policies/other"))[0] == 404
    await scene.again(
        DESK + "fields: {email: {valueType: masked, mask: {last: 3}}}\n", IN_FORCE, lines=2
    )
    assert await scene.seen() == "***@*******.com"
    assert (await scene.said("chief", "GET", "/api/policies/other"))[0] == 200
    status, told = await scene.said(
        "chief", "PUT", "/api/policies/desk", {"schema": "guest", "actions": ["read"]}
    )
    assert (status, told["code"]) == (409, "conflict")
    await scene.again(DESK.replace("[read]", "[delete]"), IN_FORCE)
    assert await scene.seen() == "access_denied"
    assert await scene.instance.stop() == 0
    assert [len(scene.instance.events(event)) for event in (REFUSED, FAULT)] == [5, 5]


async def test_broken_schemas_and_policies_leave_the_instance_ready_and_are_named_until_they_are_mended(
    scene: Scene,
):
    schemas = scene.files.parent / "guest.yaml"

    async def ready() -> tuple[int, list[str], str]:
        async with scene.caller.get(scene.instance.admin + "/readyz") as answer:
            told = await answer.json()
            return answer.status, told["stale"], await answer.text()

    assert (await ready())[:2] == (200, [])
    schemas.write_text(GUEST.replace("string", "strong"))
    await scene.again(DESK.replace("read", "reed"), REFUSED)
    status, stale, text = await ready()
    assert (status, stale) == (200, ["schemas", "policies"])
    assert str(scene.files.parent) not in text
    assert "strong" not in text
    schemas.write_text(GUEST)
    (scene.files / "desk.yaml").write_text(DESK)
    scene.instance.send(signal.SIGHUP)
    async with asyncio.timeout(PATIENCE):
        while (await ready())[1]:  # noqa: ASYNC110  # the log has no line for what stays the same
            await asyncio.sleep(0.02)
