"""What a second person approves, and whose hand a client is."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.api.operations import OPERATIONS
from proxy.auth.clients import Grant
from proxy.model.record import Role
from tests.support.api import Said
from tests.support.examples import CONTACT
from tests.support.rehashing import DTK
from tests.support.world import Desk, world

RULES = {"key1": {"strategy": "emailPersistent"}}
ADMINISTRATOR = {"role": "administrator", "reason": "fire"}


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with world(tmp_path, "sqlite", tokens=True) as here:
        await here.declare("contact", CONTACT)
        await here.policy("red", "contact", "read", "write", rows={"filter": {"city": "Lund"}})
        await here.policy("why", "contact", "read", purpose="any")
        made = Desk(here, {})
        for name in ("chief", "other"):
            await made.hire(name, admin=True)
        for key, city in (("c-1", "Lund"), ("c-2", "Umeå")):
            record = {"id": key, "city": city}
            path = "/api/models/contact"
            answer = await here.client("POST", path, made.tokens["chief"], json=record)
            assert answer.status == 201
        yield made


def hold(desk: Desk, *kinds: str) -> None:
    approvals = desk.here.services.approvals
    assert approvals is not None
    approvals.kinds = frozenset(kinds)


async def ask(desk: Desk, as_: str, method: str, path: str, body: Any = None, **more: Any) -> Said:
    content = {} if body is None else {"json": body}
    return await desk.here.client(method, path, desk.tokens[as_], **content, **more)


async def decide(desk: Desk, as_: str, ident: str) -> int:
    body = {"decision": "approve"}
    return (await ask(desk, as_, "POST", f"/api/approvals/{ident}", body)).status


HELD: dict[str, tuple[str, str, Any]] = {
    "create_environment": ("POST", "/api/environments", {"name": "A", "environment_id": "acme"}),
    "remove_environment": ("DELETE", "/api/environments/beta", None),
    "remove_schema": ("DELETE", "/api/schemas/contact?records=delete", None),
    "remove_bait": ("DELETE", "/api/models/contact/c-1/bait", None),
    "reload": ("POST", "/api/reload", None),
    "create_client": ("POST", "/api/clients", {"name": "x", "environment_id": "default"}),
    "remove_client": ("DELETE", "/api/clients/{desk}", None),
    "put_policy": ("PUT", "/api/policies/new", {"schema": "contact", "actions": ["read"]}),
    "remove_policy": ("DELETE", "/api/policies/red", None),
    "rotate_key": ("POST", "/api/keys/rotate", {"key": "signing"}),
    "begin_rehash": ("POST", "/api/records/rehash/all", {"dtk": DTK, "rules": RULES}),
    "list_tokens": ("GET", "/api/records/rehash/tokens", None),
    "find_person": ("POST", "/api/persons/find", {"value": "Lund"}),
    "erase_person": ("POST", "/api/persons/erase", {"value": "Lund"}),
    "export_records": ("GET", "/api/models/contact/export", None),
}


def test_every_operation_that_waits_is_tried() -> None:
    assert HELD.keys() == {one.name for one in OPERATIONS if one.approval}


@pytest.mark.parametrize("operation", HELD)
async def test_what_waits_changes_nothing_until_another_hand_approves(
    desk: Desk, operation: str
) -> None:
    made = await ask(
        desk, "chief", "POST", "/api/environments", {"name": "B", "environment_id": "beta"}
    )
    assert made.status == 201
    await desk.hire("desk")
    (ident,) = [one.id for one in desk.here.office.service.clients.listed() if one.name == "desk"]
    assert (await ask(desk, "chief", "PUT", "/api/models/contact/c-1/bait")).status == 204
    hold(desk, "keys", "access", "exports")
    method, path, body = HELD[operation]
    path = path.format(desk=ident)
    waits = await ask(desk, "chief", method, path, body)
    assert (waits.status, waits.json["state"]) == (202, "pending")
    assert DTK not in waits.body.decode()
    again = await ask(desk, "chief", method, path, body)
    assert again.json["approval_id"] == waits.json["approval_id"]
    assert await decide(desk, "chief", waits.json["approval_id"]) == 403
    assert await decide(desk, "other", waits.json["approval_id"]) == 200
    done = await ask(desk, "chief", method, path, body)
    (line,) = [one for one in OPERATIONS if one.name == operation]
    assert done.status in (line.success, 201)
    assert "approval_id" not in (done.json or {})
    last = [one for one in desk.here.audit.lines if one.get("operation") == operation][-1]
    assert last["approved"] is not None


async def test_another_key_of_the_caller_is_another_request(desk: Desk) -> None:
    hold(desk, "exports")
    _, path, body = HELD["begin_rehash"]
    first = await ask(desk, "chief", "POST", path, body)
    other = await ask(desk, "chief", "POST", path, {**body, "dtk": DTK[::-1]})
    assert first.json["approval_id"] != other.json["approval_id"]


async def test_a_client_is_of_its_makers_hand_whoever_approved_it(desk: Desk) -> None:
    hold(desk, "access")
    body = {"name": "puppet", "environment_id": "default", "admin": True}
    waits = await ask(desk, "chief", "POST", "/api/clients", body)
    assert await decide(desk, "other", waits.json["approval_id"]) == 200
    made = await ask(desk, "chief", "POST", "/api/clients", body)
    client = desk.here.office.service.clients.find(made.json["client_id"])
    (chief,) = [one for one in desk.here.office.service.clients.listed() if one.name == "chief"]
    assert client is not None
    assert client.hand == chief.id
    # one of an external issuer proves itself by that: its maker has no secret of it
    body = {**body, "external_id": "bo@example.com"}
    waits = await ask(desk, "chief", "POST", "/api/clients", body)
    assert await decide(desk, "other", waits.json["approval_id"]) == 200
    made = await ask(desk, "chief", "POST", "/api/clients", body)
    client = desk.here.office.service.clients.find(made.json["client_id"])
    assert client is not None
    assert client.hand == client.id


async def test_an_approval_of_an_export_counts_for_its_purpose_alone(desk: Desk) -> None:
    hold(desk, "exports")
    await desk.hire("reader", policies=("why",))
    path = "/api/models/contact/export"
    tax, sale = ({"x-purpose": name} for name in ("tax audit", "sale"))
    waits = await ask(desk, "reader", "GET", path, headers=tax)
    assert waits.json["request"]["purpose"] == "tax audit"
    assert await decide(desk, "other", waits.json["approval_id"]) == 200
    assert (await ask(desk, "reader", "GET", path, headers=tax)).status == 200
    assert (await ask(desk, "reader", "GET", path, headers=sale)).status == 202


async def test_an_approver_may_what_the_asker_may_in_its_emergency(desk: Desk) -> None:
    """An administrator for some time is approved by administrators, not by clients of its kind."""
    hold(desk, "exports")
    for name in ("night", "clerk"):
        await desk.hire(name, policies=("red",), emergency_roles=("administrator",))
    assert (await ask(desk, "night", "POST", "/api/emergency", ADMINISTRATOR)).status == 201
    waits = await ask(desk, "night", "GET", "/api/models/contact/export")
    assert waits.status == 202
    assert await decide(desk, "clerk", waits.json["approval_id"]) == 403
    assert await decide(desk, "other", waits.json["approval_id"]) == 200


async def test_an_emergency_raises_one_alarm_however_many_ask_at_once(desk: Desk) -> None:
    await desk.hire("night", emergency_roles=("administrator",))
    answers = await asyncio.gather(
        *(ask(desk, "night", "POST", "/api/emergency", ADMINISTRATOR) for _ in range(8))
    )
    assert sorted(answer.status for answer in answers) == [201] + [409] * 7
    assert sum(line["event"] == "alarm" for line in desk.here.audit.lines) == 1


@pytest.mark.parametrize("role", ["administrator", "key_officer"])
async def test_an_officer_ends_nobody_who_may_more_in_an_emergency(desk: Desk, role: str) -> None:
    await desk.hire("officer", roles=(Role.ACCESS_OFFICER,))
    clients = desk.here.office.service.clients
    night = (await clients.create("night", "default", Grant(emergency_roles=(role,)))).client
    day = (await clients.create("day", "default", Grant(policies=("red",)))).client
    assert (await ask(desk, "officer", "DELETE", f"/api/clients/{night.id}")).status == 403
    assert (await ask(desk, "officer", "DELETE", f"/api/clients/{day.id}")).status == 204
    assert clients.find(night.id) is not None


async def test_marks_are_seen_and_changed_within_the_rows_of_the_caller(desk: Desk) -> None:
    await desk.hire("bound", admin=True, policies=("red",))
    for key in ("c-1", "c-2"):
        path = f"/api/models/contact/{key}/bait"
        assert (await ask(desk, "chief", "PUT", path)).status == 204
    own, beyond, none = (f"/api/models/contact/{key}/bait" for key in ("c-1", "c-2", "c-9"))
    assert (await ask(desk, "bound", "GET", own)).json == {"bait": True}
    assert (await ask(desk, "bound", "DELETE", own)).status == 204
    assert (await ask(desk, "chief", "GET", own)).json == {"bait": False}
    for path in (beyond, none):
        assert (await ask(desk, "bound", "GET", path)).json == {"bait": False}
        assert (await ask(desk, "bound", "PUT", path)).status == 404
        assert (await ask(desk, "bound", "DELETE", path)).status == 204
    assert (await ask(desk, "chief", "GET", beyond)).json == {"bait": True}
