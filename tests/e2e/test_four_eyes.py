"""What a second person approves (``auth.four_eyes``), on a real process and by the command line, also
over a restart.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.test_roles import House, house_of
from tests.support.instance import Instance

pytestmark = pytest.mark.usefixtures("house")
POLICY = {"schema": "guest", "actions": ["read"]}


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """With a second administrator and a second reader, both made on the command line."""
    instance = Instance(tmp_path, environment={"DOMICILE__AUTH__FOUR_EYES": "all"})
    async with aiohttp.ClientSession() as session:
        made = await house_of(instance, session, "other", "reader", "second reader")
        yield made
        assert await instance.stop() == 0


async def decide(house: House, name: str, ident: str, decision: str = "approve") -> int:
    status, _ = await house.ask(name, "POST", f"/api/approvals/{ident}", {"decision": decision})
    return status


async def lines(house: House, **wanted: Any) -> list[dict[str, Any]]:
    _, page = await house.ask("chief", "GET", "/api/audit?limit=1000")
    return [line for line in page["data"] if wanted.items() <= line.items()]


async def test_keys_are_rotated_when_another_person_has_approved_also_over_a_restart(
    house: House,
) -> None:
    refused = await house.command("chief", "keys", "rotate", "signing", status=1)
    assert refused["code"] == "approval_needed"
    (waits,) = (await house.command("other", "approval", "list"))["approvals"]
    assert (waits["operation"], waits["state"]) == ("rotate_key", "pending")
    assert waits["request"]["content"] == {"key": "signing"}
    ident = waits["approval_id"]
    assert ident in refused["message"]
    assert await decide(house, "chief", ident) == 403
    assert await decide(house, "reader", ident) == 403

    await house.instance.kill()
    await house.instance.start()
    approved = await house.command("other", "approval", "approve", ident)
    assert approved["decided_by"] == house.proofs["other"]["client_id"]
    assert await decide(house, "other", ident) == 409
    before = (await house.ask("chief", "GET", "/api/keys"))[1]["signing"]
    assert (await house.ask("chief", "POST", "/api/keys/rotate", {"key": "data"}))[0] == 202
    after = await house.command("chief", "keys", "rotate", "signing")
    assert len(after["signing"]) == len(before) + 1
    # used up
    assert (await house.ask("chief", "POST", "/api/keys/rotate", {"key": "signing"}))[0] == 202
    (line,) = await lines(house, operation="rotate_key", status=200)
    assert line["by"] == house.proofs["chief"]["client_id"]
    assert line["approved"] == house.proofs["other"]["client_id"]
    (line,) = await lines(house, operation="decide_approval", status=200)
    assert (line["by"], line["subject"]) == (house.proofs["other"]["client_id"], ident)


async def test_nobody_approves_by_a_client_of_his_own_hand(house: House) -> None:
    body = {"name": "puppet", "environment_id": "default", "admin": True}
    status, waits = await house.ask("chief", "POST", "/api/clients", body)
    assert status == 202
    assert await decide(house, "other", waits["approval_id"]) == 200
    status, puppet = await house.ask("chief", "POST", "/api/clients", body)
    assert status == 201  # who has asked has the secret, whoever approved it
    house.proofs["puppet"] = puppet
    assert (await house.ask("chief", "PUT", "/api/policies/desk", POLICY))[0] == 202
    (waits,) = [
        one
        for one in (await house.ask("other", "GET", "/api/approvals"))[1]["data"]
        if one["operation"] == "put_policy"
    ]
    assert await decide(house, "puppet", waits["approval_id"]) == 403
    assert await decide(house, "other", waits["approval_id"], "refuse") == 200
    status, answer = await house.ask("chief", "PUT", "/api/policies/desk", POLICY)
    assert (status, answer["code"]) == (403, "approval_refused")


async def test_clients_made_before_by_one_hand_are_one_person(house: House) -> None:
    """Made while nobody had to approve: the maker has seen their secrets."""
    assert await house.instance.stop() == 0
    house.instance.environment["DOMICILE__AUTH__FOUR_EYES"] = "[keys]"
    await house.instance.start()
    assert await house.make("chief", "one", roles=["key_officer"]) == 201
    assert await house.make("chief", "two", roles=["key_officer"]) == 201
    status, waits = await house.ask("one", "POST", "/api/keys/rotate", {"key": "signing"})
    assert status == 202
    for name in ("one", "two", "chief"):
        assert await decide(house, name, waits["approval_id"]) == 403
    assert await decide(house, "other", waits["approval_id"]) == 200
    assert (await house.ask("one", "POST", "/api/keys/rotate", {"key": "signing"}))[0] == 200


async def test_an_export_goes_on_for_all_its_pages_and_an_idempotency_key_holds_no_waiting(
    house: House,
) -> None:
    path = "/api/models/guest/export?limit=1"
    status, waits = await house.ask("reader", "GET", path)
    assert (status, waits["request"]["path"]) == (202, {"schema": "guest"})
    assert "ann@example.com" not in str(waits)
    assert await decide(house, "reader", waits["approval_id"]) == 403
    assert await decide(house, "second reader", waits["approval_id"]) == 200
    seen, following = [], ""
    for _ in range(2):
        status, page = await house.ask("reader", "GET", path + following)
        assert status == 200
        seen += [record["id"] for record in page["data"]]
        following = f"&next={page['meta']['next']}"
    assert seen == ["g-1", "g-2"]
    assert (await house.ask("second reader", "GET", path))[0] == 202  # approved for the other one
    (line, *_) = await lines(house, operation="export_records", status=200)
    assert line["approved"] == house.proofs["second reader"]["client_id"]
