import re

import pytest

from proxy.api.access import BearerAccess
from proxy.api.context import Access, ApiOperation, ApiResponse, Takes
from proxy.api.operation_table import OPERATIONS as TABLE
from proxy.auth.clients import Grant
from tests.support.api import Interface, services, serving
from tests.support.auth import office
from tests.support.examples import CONTACT
from tests.unit.model.test_policy_reader import EXAMPLE


async def who(call):
    return ApiResponse(200, call.principal.client.encode(), media_type="text/plain")


OPERATIONS = (
    ApiOperation("who", "GET", "/api/who", who, 200, (401,), Takes.NOTHING),
    ApiOperation("chief", "GET", "/api/chief", who, 200, (401, 403), Takes.NOTHING, Access.ADMIN),
)


@pytest.fixture
async def scene():
    async with office() as here:
        made = services(auth=here.service, access=BearerAccess(here.service.tokens))
        async with serving(made, *OPERATIONS) as client:
            yield here, client


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer "])
async def test_the_bearer_of_a_token_is_known(scene, scheme):
    here, client = scene
    made = await here.client()
    token = await here.token(made)
    answer = await client("GET", "/api/who", "", headers={"Authorization": f"{scheme} {token}"})
    assert (answer.status, answer.body) == (200, made.client.id.encode())


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": ""}, {"Authorization": "Basic YTpi"}, {"Authorization": "Bearer"}],
)
async def test_without_a_token_the_answer_says_which_kind_is_wanted(scene, headers):
    _, client = scene
    answer = await client("GET", "/api/who", "", headers=headers)
    assert (answer.status, answer.json["code"]) == (401, "unauthorized")
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["WWW-Authenticate"].startswith('Bearer realm="domicile"')
    assert answer.headers["Cache-Control"] == "no-store"


async def test_without_any_proof_no_error_is_named(scene):
    _, client = scene
    assert (await client("GET", "/api/who", "")).headers[
        "WWW-Authenticate"
    ] == 'Bearer realm="domicile"'


@pytest.mark.parametrize("token", ["nonsense", "a.b.c", "x" * 8000])
async def test_a_token_that_is_not_valid_is_named_as_that(scene, token):
    _, client = scene
    answer = await client("GET", "/api/who", token)
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="domicile", error="invalid_token"'
    assert token not in answer.body.decode()


async def test_an_expired_token_is_not_valid(scene):
    here, client = scene
    token = await here.token(await here.client())
    assert (await client("GET", "/api/who", token)).status == 200
    here.clock.advance(300_000)
    assert (await client("GET", "/api/who", token)).status == 401


async def test_a_token_elsewhere_than_in_its_field_is_not_looked_at(scene):
    here, client = scene
    token = await here.token(await here.client())
    assert (await client("GET", f"/api/who?access_token={token}", "")).status == 401


async def test_two_tokens_at_once_are_refused(scene):
    here, client = scene
    token = await here.token(await here.client())
    headers = [("Authorization", f"Bearer {token}")] * 2
    async with client.session.get(client.address + "/api/who", headers=headers) as answer:
        assert answer.status == 400


async def test_an_administrator_may_do_more_and_others_are_told_what_lacks(scene):
    here, client = scene
    refused = await client("GET", "/api/chief", await here.token(await here.client()))
    assert (refused.status, refused.json["code"]) == (403, "forbidden")
    assert (
        refused.headers["WWW-Authenticate"] == 'Bearer realm="domicile", error="insufficient_scope"'
    )
    assert (
        await client("GET", "/api/chief", await here.token(await here.client(admin=True)))
    ).status == 200


async def test_a_client_that_ends_is_refused_with_its_next_request(scene):
    here, client = scene
    made = await here.client()
    token = await here.token(made)
    assert (await client("GET", "/api/who", token)).status == 200
    await here.service.clients.disable(made.client.id)
    assert (await client("GET", "/api/who", token)).status == 401


#: Whatever is not in this list needs a token: to add to it is a decision.
OPEN = {"token", "token_slash", "introspect", "jwks", "metadata", "openapi", "docs", "docs_file"}


def test_what_stands_open_is_known():
    assert {operation.name for operation in TABLE if operation.access is Access.OPEN} == OPEN


async def test_every_other_operation_refuses_who_shows_no_token_and_administration_who_is_no_administrator():
    async with (
        office() as here,
        serving(services(auth=here.service, access=BearerAccess(here.service.tokens))) as client,
    ):
        made = await here.client()
        member = await here.token(made)
        ended = await here.token(await here.client())
        await here.service.clients.remove(here.service.tokens.principal(ended).client)
        for operation in TABLE:
            path = re.sub(r"\{\w+\}", "x", operation.path)
            places = {path, path.replace("/api/", "/webapi/")}
            if operation.name in OPEN:
                continue
            for place in places:
                for token in ("", "nonsense", ended):
                    answer = await client(operation.method, place, token)
                    assert (answer.status, answer.json["code"]) == (401, "unauthorized"), (
                        operation.name
                    )
                if operation.access is Access.ADMIN:
                    answer = await client(operation.method, place, member)
                    assert (answer.status, answer.json["code"]) == (403, "forbidden"), (
                        operation.name
                    )


SUPPORT = {
    "schema": "contact",
    "actions": ["read"],
    "fields": {"email": {"valueType": "redacted", "format": "[a-z]{8}"}, "name": "hidden"},
    "rows": {"filter": {"age": {"$gte": 18}}},
}
PATH = "/api/policies/support"


async def test_a_policy_is_put_shown_listed_changed_and_removed(here: Interface):
    made = await here.client("PUT", PATH, "chief", json=SUPPORT)
    assert (made.status, made.json) == (201, {"name": "support", **SUPPORT})
    assert (await here.client("GET", PATH, "chief")).json == made.json
    other = await here.client("PUT", PATH, "chief", json={**made.json, "actions": ["write"]})
    assert (other.status, other.json["actions"]) == (200, ["write"])
    await here.client(
        "PUT", "/api/policies/a", "chief", json={"schema": "contact", "actions": ["read"]}
    )
    listed = (await here.client("GET", "/api/policies", "chief")).json
    assert ([item["name"] for item in listed["data"]], listed["meta"]["total"]) == (
        ["a", "support"],
        2,
    )
    page = (await here.client("GET", "/api/policies?limit=1&offset=1", "chief")).json
    assert [item["name"] for item in page["data"]] == ["support"]
    assert (await here.client("DELETE", PATH, "chief")).status == 204
    for method in ("GET", "DELETE"):
        gone = await here.client(method, PATH, "chief")
        assert (gone.status, gone.json["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("body", "places"),
    [
        ({"actions": ["fly"]}, ["/schema", "/actions/0"]),
        ({**SUPPORT, "schema": "none"}, ["/schema"]),
        (
            {**SUPPORT, "fields": {"iban": "hidden", "age": "masked"}},
            ["/fields/iban", "/fields/age"],
        ),
        ({**SUPPORT, "rows": {"filter": {"iban": 5}}}, ["/rows/filter/iban"]),
        (EXAMPLE, ["/fields/phone", "/fields/passport", "/rows/filter/region"]),
    ],
)
async def test_a_policy_with_faults_or_that_does_not_fit_is_refused(here: Interface, body, places):
    said = await here.client("PUT", PATH, "chief", json=body)
    assert (said.status, said.json["code"]) == (400, "invalid_policy")
    assert [error["source"] for error in said.json["errors"]] == places
    assert (await here.client("GET", PATH, "chief")).status == 404


async def test_a_policy_that_a_client_is_under_stays(here: Interface):
    await here.client("PUT", PATH, "chief", json=SUPPORT)
    clients = here.office.service.clients
    made = await clients.create("desk", "default", Grant(policies=("support",)))
    kept = await here.client("DELETE", PATH, "chief")
    assert (kept.status, kept.json["code"]) == (409, "policy_in_use")
    await clients.remove(made.client.id)
    assert (await here.client("DELETE", PATH, "chief")).status == 204


async def test_what_does_not_fit_any_more_is_shown(here: Interface):
    await here.client("PUT", PATH, "chief", json=SUPPORT)
    less = {name: field for name, field in CONTACT["fields"].items() if name not in ("name", "age")}
    await here.declare("contact", {"fields": less})
    await here.catalog.settled("contact")
    shown = (await here.client("GET", PATH, "chief")).json
    assert [fault["source"] for fault in shown["faults"]] == ["/fields/name", "/rows/filter/age"]
    await here.catalog.drop("contact")
    assert [
        fault["source"] for fault in (await here.client("GET", PATH, "chief")).json["faults"]
    ] == ["/schema"]


async def test_what_a_file_declares_is_changed_there(here: Interface):
    policies = here.services.spaces["default"].policies
    await here.client("PUT", PATH, "chief", json=SUPPORT)
    found = policies.find("support")
    assert found is not None
    await policies.declare([found])
    for method, more in (("PUT", {"json": SUPPORT}), ("DELETE", {})):
        said = await here.client(method, PATH, "chief", **more)
        assert (said.status, said.json["code"]) == (409, "conflict")
