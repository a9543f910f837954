"""Environments over HTTP: who may make and remove them, who sees which, and what becomes of
requests meanwhile.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.auth.clients import Grant
from tests.support.world import World, world

E = "/api/environments"
CONTACT = {"fields": {"id": {"type": "primary_key"}, "city": {"type": "string"}}}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as made:
        yield made


async def acme(here: World) -> None:
    """An environment with a schema."""
    assert (
        await here.client("POST", E, "chief", json={"name": "Acme AB", "environment_id": "acme"})
    ).status == 201
    assert (
        await here.client("PUT", "/api/schemas/contact", "chief of acme", json=CONTACT)
    ).status == 201


async def test_an_environment_can_be_used_at_once(here):
    await acme(here)
    listed = await here.client("GET", E, "chief")
    assert [item["environment_id"] for item in listed.json["data"]] == ["default", "acme"]
    assert listed.json["meta"] == {"count": 2, "limit": 100, "offset": 0, "total": 2}
    assert (await here.client("GET", E + "?limit=1&offset=1", "chief")).json["data"] == listed.json[
        "data"
    ][1:]
    assert (
        await here.client("POST", "/api/models/contact", "acme", json={"id": "k"})
    ).status == 201


@pytest.mark.parametrize(
    ("body", "places"),
    [
        ({}, ["/name"]), ([], [""]), ({"name": 5, "environment_id": 5}, ["/name", "/environment_id"]),
        ({"name": "", "environment_id": "A"}, ["/environment_id", "/name"]), ({"name": "x", "keys": "mine"}, ["/keys"]),
    ],
)  # fmt: skip
async def test_what_makes_no_environment_is_refused_with_every_fault(here, body, places):
    answer = await here.client("POST", E, "chief", json=body)
    assert (answer.status, answer.json["code"]) == (400, "invalid_input")
    assert [error["source"] for error in answer.json["errors"]] == places


async def test_only_administrators_of_default_make_and_remove_and_others_see_their_own(here):
    await acme(here)
    await here.realm.create("other", "Other")
    for caller in ("writer", "acme", "chief of acme"):
        assert (await here.client("POST", E, caller, json={"name": "x"})).status == 403
        # no difference between what is there and what is not
        for ident in ("acme", "other", "default", "nobody"):
            assert (await here.client("DELETE", f"{E}/{ident}", caller)).status == 403
    seen = (await here.client("GET", E, "chief of acme")).json
    assert ([item["environment_id"] for item in seen["data"]], seen["meta"]["total"]) == (
        ["acme"],
        1,
    )
    assert (await here.client("GET", E, "acme")).status == 403
    assert (await here.client("GET", E, "")).status == 401


async def test_records_keep_an_environment_unless_they_are_to_go_too(here):
    await acme(here)
    await here.client("POST", "/api/models/contact", "acme", json={"id": "k"})
    refused = await here.client("DELETE", E + "/acme", "chief")
    assert (refused.status, refused.json["code"]) == (409, "environment_in_use")
    assert (await here.client("POST", "/api/models/contact/find", "acme", json={})).json["meta"][
        "total"
    ] == 1
    assert (await here.client("DELETE", E + "/acme?records=all", "chief")).status == 400
    assert (await here.client("DELETE", E + "/acme?records=delete", "chief")).status == 204
    assert (await here.client("POST", "/api/models/contact/find", "acme", json={})).status == 401
    assert (await here.client("DELETE", E + "/acme?records=delete", "chief")).status == 404
    assert (
        await here.client("POST", E, "chief", json={"name": "x", "environment_id": "acme"})
    ).status == 409


async def test_default_stays(here):
    answer = await here.client("DELETE", E + "/default?records=delete", "chief")
    assert (answer.status, answer.json["code"]) == (409, "conflict")


async def test_a_request_under_way_ends_before_its_environment_does(here):
    await acme(here)
    with here.realm.spaces["acme"].catalog.using():
        removing = asyncio.create_task(here.client("DELETE", E + "/acme", "chief"))
        while "acme" in here.realm.spaces:  # noqa: ASYNC110  # what is waited for happens in the interface
            await asyncio.sleep(0.001)
        assert (
            await here.client("POST", "/api/models/contact/find", "acme", json={})
        ).status == 401
        assert not removing.done()
    assert (await removing).status == 204


async def test_clients_of_every_environment_are_administered_from_default_and_otherwise_ones_own(
    here,
):
    await acme(here)
    made = {}
    for caller, environment in (("chief", "default"), ("chief", "acme"), ("chief of acme", "acme")):
        body = {"name": caller, "environment_id": environment}
        answer = await here.client("POST", "/api/clients", caller, json=body)
        assert answer.status == 201
        made[caller, environment] = answer.json["client_id"]
    refusals = []
    for environment in ("default", "nobody"):
        body = {"name": "x", "environment_id": environment}
        refusals.append(
            (await here.client("POST", "/api/clients", "chief of acme", json=body)).json
        )
    assert refusals[0] == refusals[1]
    assert (refusals[0]["status"], refusals[0]["errors"][0]["source"]) == (400, "/environment_id")
    listed = {
        (caller, query): (await here.client("GET", "/api/clients" + query, caller)).json["meta"][
            "total"
        ]
        for caller in ("chief", "chief of acme")
        for query in (
            "",
            "?environment_id=default",
            "?environment_id=acme",
            "?environment_id=nobody",
        )
    }
    assert list(listed.values()) == [3, 1, 2, 0, 2, 0, 2, 0]
    stranger = made["chief", "default"]
    for method in ("GET", "DELETE"):
        answers = [
            await here.client(method, f"/api/clients/{ident}", "chief of acme")
            for ident in (stranger, "nobody")
        ]
        assert [answer.status for answer in answers] == [404, 404]
        assert answers[0].body == answers[1].body
    assert (
        await here.client("DELETE", f"/api/clients/{made['chief', 'acme']}", "chief of acme")
    ).status == 204
    assert (
        await here.client("DELETE", f"/api/clients/{made['chief of acme', 'acme']}", "chief")
    ).status == 204


async def test_the_end_of_an_environment_ends_its_tokens_and_its_clients(tmp_path):
    async with world(tmp_path / "real", tokens=True) as here:
        await here.realm.create("acme", "Acme AB")
        chief = await here.office.token(await here.office.client(admin=True))
        made = await here.office.service.clients.create("crm", "acme", Grant(admin=True))
        token = await here.office.token(made)
        assert (await here.client("GET", "/api/schemas", token)).status == 200
        assert (await here.client("DELETE", E + "/acme", chief)).status == 204
        assert (await here.client("GET", "/api/schemas", token)).status == 401
        assert here.office.service.tokens.claims(token) is None
        assert here.office.service.clients.find(made.client.id) is None
