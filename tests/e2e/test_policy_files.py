"""Access policies of files on a real process: SIGHUP puts changed ones in force for tokens that are out already, and refuses broken ones."""

import signal
from pathlib import Path
from typing import Any

import aiohttp

from proxy.composition.stopped import stopped_clients
from proxy.config import load
from tests.support.auth import basic
from tests.support.instance import Instance
from tests.support.patience import PATIENCE
from tests.support.people import rules

GUEST = "name: guest\nfields:\n  id: {type: primary_key}\n  email: {type: string}\n"
DESK = "name: desk\nschema: guest\nactions: [read]\n"
IN_FORCE = "an access policy was declared by a file"
REFUSED = "policies of files were refused, those before stay in force"
FAULT = "a fault in a file with policies"  # logged after that, once for each


async def test_a_changed_policy_file_counts_at_once_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    files = {"DOMICILE__SCHEMAS": str(tmp_path / "guest.yaml"), "DOMICILE__POLICIES": str(tmp_path / "policies")}
    instance = Instance(tmp_path, environment=files)
    instance.rules.mkdir()
    (instance.rules / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
    (tmp_path / "guest.yaml").write_text(GUEST)
    (tmp_path / "policies").mkdir()
    desk, other = tmp_path / "policies/desk.yaml", tmp_path / "policies/other.yaml"
    desk.write_text(DESK)
    await instance.start()
    await instance.stop()
    async with stopped_clients(load(None, instance.settings())) as clients:
        chief = await clients.create("chief", "default", admin=True)
        reader = await clients.create("desk", "default", admin=False, policies=["desk"])
    await instance.start()
    try:
        async with aiohttp.ClientSession(instance.vault, timeout=aiohttp.ClientTimeout(PATIENCE)) as caller:

            async def token(made: Any) -> dict[str, str]:
                sent = {"Authorization": basic(made.client.id, made.secret)}
                form = {"grant_type": "client_credentials"}
                async with caller.post("/oauth2/token", data=form, headers=sent) as answer:
                    return {"Authorization": f"Bearer {(await answer.json())['access_token']}"}

            async def said(headers: dict[str, str], method: str, path: str, body: Any) -> tuple[int, Any]:
                async with caller.request(method, path, json=body, headers=headers) as answer:
                    return answer.status, await answer.json()

            async def seen() -> Any:
                """The record as the one token of the desk shows it, or the code of its refusal."""
                _, told = await said(living, "POST", "/api/models/guest/find", {})
                return told["data"][0].get("email") if "data" in told else told["code"]

            root, living = await token(chief), await token(reader)
            assert (await said(root, "POST", "/api/models/guest", {"id": "a", "email": "ann@example.com"}))[0] == 201
            assert await seen() == "ann@example.com"

            async def again(text: str, event: str, lines: int = 1) -> None:
                count = len(instance.events(event)) + lines
                desk.write_text(text)
                instance.send(signal.SIGHUP)
                await instance.logged(event, count)

            await again(DESK + "fields: {email: hidden}\n", IN_FORCE)
            assert await seen() is None
            for broken, told in (
                (DESK + "fields: {mail: hidden}\n", "desk.yaml:4"),
                (DESK.replace("[read]", "[peek]"), "desk.yaml:3"),
                ("name: desk\nschema: [", "desk.yaml"),
                (DESK.replace("guest", "nobody"), "desk.yaml:2"),
            ):
                await again(broken, FAULT)
                assert await seen() is None
                assert told in instance.events(FAULT)[-1]["source"]
            other.write_text("name: other\nschema: guest\nactions: [write]\n")
            await again(DESK.replace("[read]", "[peek]"), FAULT)  # all of the files, or none
            assert (await said(root, "GET", "/api/policies/other", None))[0] == 404
            await again(DESK + "fields: {email: {valueType: masked, mask: {last: 3}}}\n", IN_FORCE, lines=2)
            assert await seen() == "***@*******.com"
            status, told = await said(root, "PUT", "/api/policies/desk", {"schema": "guest", "actions": ["read"]})
            assert (status, told["code"]) == (409, "conflict")
            await again(DESK.replace("[read]", "[delete]"), IN_FORCE)
            assert await seen() == "access_denied"
            assert (await said(root, "GET", "/api/policies/other", None))[0] == 200
        assert await instance.stop() == 0
        assert [len(instance.events(event)) for event in (REFUSED, FAULT)] == [5, 5]
    finally:
        await instance.kill()
