import re

import pytest

from proxy.api.access import bearer
from proxy.api.context import Access, ApiOperation, ApiResponse, Takes
from proxy.api.operations import OPERATIONS as TABLE
from tests.support.api import services, serving
from tests.support.auth import office


async def who(call):
    return ApiResponse(200, call.principal.client.encode(), media_type="text/plain")


OPERATIONS = (
    ApiOperation("who", "GET", "/api/who", who, 200, (401,), Takes.NOTHING),
    ApiOperation("chief", "GET", "/api/chief", who, 200, (401, 403), Takes.NOTHING, Access.ADMIN),
)


@pytest.fixture
async def scene():
    async with office() as here:
        made = services(auth=here.service, access=bearer(here.service.tokens))
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
        serving(services(auth=here.service, access=bearer(here.service.tokens))) as client,
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
