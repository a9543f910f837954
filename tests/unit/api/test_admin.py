import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.api.access import BearerAccess
from proxy.auth.clients import Grant
from proxy.model.policy_reader import read_policy
from proxy.model.rights import Role
from tests.support.api import Desk, Interface, interface, no_policies, services, serving
from tests.support.auth import basic, form, office
from tests.support.examples import CONTACT
from tests.support.table import table


@pytest.fixture
async def scene():
    async with office() as here:
        async with serving(
            services(auth=here.service, access=BearerAccess(here.service.tokens))
        ) as client:
            yield here, client, await here.token(await here.client(admin=True))


async def test_a_new_client_gets_its_tokens_with_what_it_was_told(scene):
    here, client, chief = scene
    answer = await client(
        "POST", "/api/clients", chief, json={"name": "shop", "environment_id": "default"}
    )
    assert answer.status == 201
    assert set(answer.json) == {"client_id", "client_secret"}
    headers = {
        "Authorization": basic(answer.json["client_id"], answer.json["client_secret"]),
        "Content-Type": "application/x-www-form-urlencoded",
    }
    token = await client("POST", "/oauth2/token", "", data=form(), headers=headers)
    assert not here.service.tokens.principal(token.json["access_token"]).admin


async def test_an_administrator_may_make_another(scene):
    here, client, chief = scene
    body = {"name": "shop", "environment_id": "default", "admin": True}
    made = (await client("POST", "/api/clients", chief, json=body)).json
    assert here.service.clients.find(made["client_id"]).admin


@pytest.mark.parametrize(
    ("body", "places"),
    [
        ({}, ["/name", "/environment_id"]),
        ([], [""]),
        ({"name": 5, "environment_id": None, "admin": 1}, ["/name", "/environment_id", "/admin"]),
        ({"name": "", "environment_id": "default"}, ["/name"]),
        ({"name": "shop", "environment_id": "other"}, ["/environment_id"]),
        ({"name": "shop", "environment_id": "default", "secret": "mine"}, ["/secret"]),
    ],
)
async def test_a_client_that_cannot_be_made_is_refused_with_every_fault(scene, body, places):
    here, client, chief = scene
    answer = await client("POST", "/api/clients", chief, json=body)
    assert (answer.status, answer.json["code"]) == (400, "invalid_input")
    assert [error["source"] for error in answer.json["errors"]] == places
    assert len(here.service.clients) == 1


async def test_a_client_of_an_external_issuer_is_registered_and_gets_no_secret(scene):
    _, client, chief = scene
    body = {"name": "shop", "environment_id": "default", "external_id": "shop-there"}
    answer = await client("POST", "/api/clients", chief, json=body)
    assert (answer.status, set(answer.json)) == (201, {"client_id"})
    shown = await client("GET", f"/api/clients/{answer.json['client_id']}", chief)
    assert shown.json["external_id"] == "shop-there"
    again = await client("POST", "/api/clients", chief, json=body)
    assert (again.status, [error["source"] for error in again.json["errors"]]) == (
        409,
        ["/external_id"],
    )
    for unfit in (5, "", "a\nb", "x" * 257):
        answer = await client("POST", "/api/clients", chief, json={**body, "external_id": unfit})
        assert (answer.status, [error["source"] for error in answer.json["errors"]]) == (
            400,
            ["/external_id"],
        )


async def test_the_list_has_every_client_and_no_secret(scene):
    here, client, chief = scene
    made = await here.client()
    answer = await client("GET", "/api/clients", chief)
    assert answer.json["meta"] == {"count": 2, "limit": 100, "offset": 0, "total": 2}
    found = {item["client_id"]: item for item in answer.json["data"]}[made.client.id]
    assert set(found) == {
        "client_id", "name", "environment_id", "admin", "policies", "roles", "emergency_roles",
        "emergency", "disabled", "created_at",
    }  # fmt: skip
    assert (found["name"], found["admin"], found["disabled"]) == ("shop", False, False)
    assert b"argon2" not in answer.body
    page = await client("GET", "/api/clients?limit=1&offset=1", chief)
    assert page.json["meta"] == {"count": 1, "limit": 1, "offset": 1, "total": 2}
    assert (await client("GET", f"/api/clients/{made.client.id}", chief)).json == found


async def test_a_client_that_was_deleted_has_no_token_any_more(scene):
    here, client, chief = scene
    made = await here.client(admin=True)
    token = await here.token(made)
    assert (await client("GET", "/api/clients", token)).status == 200
    assert (await client("DELETE", f"/api/clients/{made.client.id}", chief)).status == 204
    assert (await client("GET", "/api/clients", token)).status == 401
    assert (await client("DELETE", f"/api/clients/{made.client.id}", chief)).status == 404


@pytest.mark.parametrize("path", ["/api/clients/nobody", "/api/clients/%00"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_nobody_is_not_found(scene, method, path):
    _, client, chief = scene
    answer = await client(method, path, chief)
    assert (answer.status, answer.json["code"]) == (404, "not_found")


async def test_a_client_is_made_under_policies_that_there_are():
    policies = no_policies()
    await policies.put(read_policy("support", {"schema": "contact", "actions": ["read"]}))
    async with office() as here:
        made = services(
            auth=here.service, access=BearerAccess(here.service.tokens), policies=policies
        )
        async with serving(made) as client:
            chief = await here.token(await here.client(admin=True))
            body = {"name": "desk", "environment_id": "default", "policies": ["support", "support"]}
            ident = (await client("POST", "/api/clients", chief, json=body)).json["client_id"]
            assert (await client("GET", f"/api/clients/{ident}", chief)).json["policies"] == [
                "support"
            ]
            for given in (["support", "none"], [5], ["support"] * 33, "support"):
                answer = await client(
                    "POST", "/api/clients", chief, json={**body, "policies": given}
                )
                assert (answer.status, answer.json["code"]) == (400, "invalid_input")
                (error,) = answer.json["errors"]
                assert error["source"] == ("/policies/1" if "none" in given else "/policies")


@pytest.fixture
async def desk(tmp_path):
    async with interface(tmp_path, tokens=True) as here:
        await here.declare("contact", CONTACT)
        await here.policy("support", "contact", "read", "write", fields={"name": "hidden"})
        await here.policy("looks", "contact", "read", fields={"name": "hidden"})
        await here.policy("sees", "contact", "read")
        made = Desk(here, {})
        await made.hire("chief", admin=True)
        await made.hire("bound", admin=True, policies=("support",))
        await made.hire("officer", roles=(Role.ACCESS_OFFICER,))
        await made.hire("bound officer", roles=(Role.ACCESS_OFFICER,), policies=("support",))
        yield made


@table(
    ("as_", "members", "status"),
    [
        ("chief", {}, 201),
        ("chief", {"admin": True}, 201),
        ("chief", {"roles": ["operator", "auditor"]}, 201),
        ("bound", {}, 403),
        ("bound", {"admin": True}, 403),
        ("bound", {"policies": ["sees"]}, 403),
        ("bound", {"policies": ["looks", "sees"]}, 403),
        ("bound", {"policies": ["looks"]}, 201),
        ("bound", {"policies": ["support"], "admin": True}, 201),
        ("bound", {"roles": ["auditor"]}, 201),
        ("bound", {"roles": ["access_officer"]}, 403),
        ("bound", {"roles": ["access_officer"], "policies": ["looks"]}, 201),
        ("bound", {"policies": [], "environment_id": "acme"}, 403),
        ("bound", {"policies": ["looks"], "emergency_roles": ["administrator"]}, 403),
        ("bound", {"policies": ["looks"], "emergency_roles": ["access_officer"]}, 201),
        ("bound", {"policies": ["sees"], "emergency_roles": ["auditor"]}, 403),
        ("officer", {"policies": ["sees"], "emergency_roles": ["administrator"]}, 403),
        ("officer", {"policies": ["sees"], "emergency_roles": ["key_officer"]}, 403),
        ("officer", {}, 403),
        ("officer", {"policies": ["sees"]}, 201),
        ("officer", {"admin": True}, 403),
        ("officer", {"roles": ["access_officer"]}, 201),
        ("officer", {"roles": ["key_officer"]}, 403),
        ("bound officer", {"policies": ["sees"]}, 403),
        ("bound officer", {"policies": ["looks"]}, 201),
        ("bound officer", {"roles": ["access_officer"]}, 403),
    ],
)
async def test_nobody_makes_a_client_that_may_more_than_himself(desk, as_, members, status):
    await desk.here.client(
        "POST",
        "/api/environments",
        desk.tokens["chief"],
        json={"name": "A", "environment_id": "acme"},
    )
    answered, detail = await desk.make(as_, **members)
    assert answered == status, detail
    assert (status == 403) == ("could do more than the one that makes it" in detail)


async def test_nobody_raises_himself_or_others_by_a_policy(desk):
    wide = {"actions": ["read", "write"]}
    for as_ in ("bound", "bound officer"):
        for name in ("support", "fresh"):
            status, detail = await desk.govern(as_, name, **wide)
            assert (status, "more than this client may itself" in detail) == (403, True)
        narrow = {"actions": ["read"], "fields": {"name": "hidden"}}
        assert (await desk.govern(as_, "fresh", **narrow))[0] in (200, 201)
    assert (await desk.govern("officer", "fresh", **wide))[0] == 200


async def test_a_guard_that_others_rely_on_is_not_taken_away(desk):
    """Under both, the clerk is asked about at the filter endpoint; without it, it would see all."""
    acl = {"actions": ["read"], "fields": {"name": "hidden"}, "external_acl": "https://a.example"}
    assert (await desk.govern("chief", "guard", **acl))[0] == 201
    await desk.hire("clerk", policies=("guard", "sees"))
    open_ = {name: value for name, value in acl.items() if name != "external_acl"}
    assert (await desk.govern("bound", "guard", **open_))[0] == 403
    assert (await desk.govern("bound", "guard", **acl))[0] == 200


async def test_an_officer_ends_no_administrator_and_nobody_of_another_duty(desk):
    clients = desk.here.office.service.clients
    await desk.hire("keys", roles=(Role.KEY_OFFICER,))
    await desk.hire("shop", policies=("sees",))
    ends = {client.name: client.id for client in clients.listed()}
    for name, status in (("chief", 403), ("keys", 403), ("shop", 204), ("bound officer", 204)):
        path = f"/api/clients/{ends[name]}"
        assert (await desk.here.client("DELETE", path, desk.tokens["officer"])).status == status


@pytest.mark.parametrize(
    ("members", "place"),
    [
        ({"roles": ["chief"]}, "/roles/0"),
        ({"roles": "auditor"}, "/roles"),
        ({"emergency_roles": ["auditor", "chief"]}, "/emergency_roles/1"),
        ({"roles": ["auditor"], "admin": True}, "/roles"),
        ({"roles": ["auditor"], "policies": ["sees"]}, "/policies"),
    ],
)
async def test_roles_that_make_no_sense_are_refused_with_their_place(desk, members, place):
    body = {"name": "new", "environment_id": "default", **members}
    answer = await desk.here.client("POST", "/api/clients", desk.tokens["chief"], json=body)
    assert (answer.status, [error["source"] for error in answer.json["errors"]]) == (400, [place])


# ---- Environments over HTTP: who may make and remove them, who sees which, and what becomes of


E = "/api/environments"
CONTACT_THERE = {"fields": {"id": {"type": "primary_key"}, "city": {"type": "string"}}}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Interface]:
    async with interface(tmp_path) as made:
        yield made


async def acme(here: Interface) -> None:
    """An environment with a schema."""
    assert (
        await here.client("POST", E, "chief", json={"name": "Acme AB", "environment_id": "acme"})
    ).status == 201
    assert (
        await here.client("PUT", "/api/schemas/contact", "chief of acme", json=CONTACT_THERE)
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
    async with interface(tmp_path / "real", tokens=True) as here:
        await here.realm.create("acme", "Acme AB")
        chief = await here.office.token(await here.office.client(admin=True))
        made = await here.office.service.clients.create("crm", "acme", Grant(admin=True))
        token = await here.office.token(made)
        assert (await here.client("GET", "/api/schemas", token)).status == 200
        assert (await here.client("DELETE", E + "/acme", chief)).status == 204
        assert (await here.client("GET", "/api/schemas", token)).status == 401
        assert here.office.service.tokens.claims(token) is None
        assert here.office.service.clients.find(made.client.id) is None
