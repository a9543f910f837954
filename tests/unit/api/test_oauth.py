import ipaddress

import pytest

from proxy.api.oauth import oauth_refusal
from proxy.auth.secret_checks import BY_ADDRESS, BY_CLIENT
from proxy.errors import Code, VaultError
from proxy.net.client_address import Trusted
from tests.support.api import Said, services, serving
from tests.support.auth import HERE, basic, form, office
from tests.support.table import table

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
async def scene():
    async with office() as here, serving(services(auth=here.service)) as client:
        yield here, client


def unkept(answer: Said) -> bool:
    return bool(
        answer.headers["Cache-Control"] == "no-store" and answer.headers["Pragma"] == "no-cache"
    )


@pytest.mark.parametrize("path", ["/oauth2/token", "/oauth2/token/"])
@pytest.mark.parametrize(
    "more", [{}, {"audience": HERE}, {"audience": f"{HERE} {HERE}/", "scope": "default"}]
)
async def test_a_client_gets_a_token_that_nobody_keeps(scene, path, more):
    here, client = scene
    made = await here.client()
    headers = {**FORM, "Authorization": basic(made.client.id, made.secret)}
    answer = await client("POST", path, "", data=form(**more), headers=headers)
    assert (answer.status, answer.json["token_type"], answer.json["expires_in"]) == (
        200,
        "bearer",
        300,
    )
    assert answer.json["scope"] == "default"
    assert answer.headers["Content-Type"] == "application/json"
    assert unkept(answer)
    assert here.service.tokens.principal(answer.json["access_token"]).client == made.client.id


#: (what is changed of a good request, status, error): RFC 6749 section 5.2, RFC 8707 section 2.
FAULTS = [
    ({"data": b""}, 400, "invalid_request"),
    ({"data": form(grant_type="")}, 400, "invalid_request"),
    ({"data": form(grant_type="authorization_code")}, 400, "unsupported_grant_type"),
    ({"data": form(grant_type="refresh_token")}, 400, "unsupported_grant_type"),
    ({"data": form(scope="other")}, 400, "invalid_scope"),
    ({"data": form(audience="https://other.example")}, 400, "invalid_target"),
    ({"data": form() + b"&grant_type=client_credentials"}, 400, "invalid_request"),
    ({"data": form(client_secret="x")}, 400, "invalid_request"),
    ({"data": b"\xff\xfe"}, 400, "invalid_request"),
    ({"data": b"x" * 5000}, 413, "invalid_request"),
    ({"data": form(), "headers": {"Content-Type": "application/json"}}, 400, "invalid_request"),
    ({"data": form(), "headers": {"Content-Type": "text/plain"}}, 400, "invalid_request"),
    ({"data": form(), "headers": {"Content-Encoding": "gzip"}}, 400, "invalid_request"),
    ({"data": form(), "headers": {"Authorization": basic("nobody", "x")}}, 401, "invalid_client"),
    ({"data": form(), "headers": {"Authorization": "Basic !"}}, 401, "invalid_client"),
    ({"data": form(), "headers": {"Authorization": "Bearer x"}}, 401, "invalid_client"),
    (
        {"data": form(client_id="nobody", client_secret="x"), "headers": {"Authorization": None}},
        401,
        "invalid_client",
    ),
    ({"data": form(client_id="nobody"), "headers": {"Authorization": None}}, 401, "invalid_client"),
    ({"data": form(), "headers": {"Authorization": None}}, 401, "invalid_client"),
]


@pytest.mark.parametrize(("change", "status", "error"), FAULTS)
async def test_each_fault_is_told_in_the_words_of_rfc_6749(scene, change, status, error):
    here, client = scene
    made = await here.client()
    headers = {
        **FORM,
        "Authorization": basic(made.client.id, made.secret),
        **change.get("headers", {}),
    }
    headers = {name: value for name, value in headers.items() if value is not None}
    answer = await client("POST", "/oauth2/token", "", data=change["data"], headers=headers)
    assert (answer.status, answer.json["error"]) == (status, error)
    assert set(answer.json) == {"error", "error_description"}
    assert answer.headers["Content-Type"] == "application/json"
    assert unkept(answer)
    assert ("WWW-Authenticate" in answer.headers) == (status == 401)
    assert answer.headers.get("WWW-Authenticate", "Basic").startswith("Basic")


async def test_a_stranger_sends_little():
    async with (
        office() as here,
        serving(services(auth=here.service, body_limit=4 * 1024 * 1024)) as client,
    ):
        answer = await client("POST", "/oauth2/token", "", data=b"x" * 16_385, headers=FORM)
        assert (answer.status, answer.json["error"]) == (413, "invalid_request")


async def test_two_credentials_at_once_prove_nothing(scene):
    here, client = scene
    made = await here.client()
    proof = basic(made.client.id, made.secret)
    headers = [*FORM.items(), ("Authorization", proof), ("Authorization", proof)]
    async with client.session.post(
        client.address + "/oauth2/token", data=form(), headers=headers
    ) as answer:
        assert answer.status == 401


async def test_a_query_is_no_place_for_credentials(scene):
    here, client = scene
    made = await here.client()
    query = f"?client_id={made.client.id}&client_secret={made.secret}"
    answer = await client("POST", "/oauth2/token" + query, "", data=form(), headers=FORM)
    assert (answer.status, answer.json["error"]) == (400, "invalid_request")


async def test_another_method_is_told_which_one_is_taken(scene):
    _, client = scene
    answer = await client("GET", "/oauth2/token", "")
    assert (answer.status, answer.headers["Allow"]) == (405, "POST")


async def test_who_guesses_waits_and_is_told_how_long(scene):
    here, client = scene
    made = await here.client()
    headers = {**FORM, "Authorization": basic(made.client.id, "wrong")}
    for _ in range(BY_CLIENT.burst):
        assert (
            await client("POST", "/oauth2/token", "", data=form(), headers=headers)
        ).status == 401
    answer = await client("POST", "/oauth2/token", "", data=form(), headers=headers)
    assert (answer.status, answer.headers["Retry-After"]) == (429, "5")
    assert answer.json["error"] == "temporarily_unavailable"


async def test_behind_a_trusted_proxy_callers_are_told_apart():
    trusted = Trusted((ipaddress.ip_network("127.0.0.1"),))
    async with office() as here, serving(services(auth=here.service, trusted=trusted)) as client:

        async def guess(number: int, address: str) -> int:
            headers = {
                **FORM,
                "Authorization": basic(f"c{number}", "wrong"),
                "X-Forwarded-For": address,
            }
            return (await client("POST", "/oauth2/token", "", data=form(), headers=headers)).status

        assert {await guess(number, "198.51.100.7") for number in range(BY_ADDRESS.burst)} == {401}
        assert await guess(99, "198.51.100.7") == 429
        assert await guess(99, "198.51.100.8") == 401


async def test_introspection_needs_a_client_and_tells_it(scene):
    here, client = scene
    made = await here.client()
    token = await here.token(made)
    headers = {**FORM, "Authorization": basic(made.client.id, made.secret)}
    answer = await client("POST", "/oauth2/introspect", "", data=form(token=token), headers=headers)
    assert (answer.status, answer.json["active"], answer.json["client_id"]) == (
        200,
        True,
        made.client.id,
    )
    assert unkept(answer)
    answer = await client("POST", "/oauth2/introspect", token, data=form(token="x"), headers=FORM)
    assert (answer.status, answer.json) == (200, {"active": False})
    answer = await client("POST", "/oauth2/introspect", "", data=form(token=token), headers=FORM)
    assert (answer.status, answer.json["error"]) == (401, "invalid_client")


async def test_metadata_and_keys_are_for_everybody(scene):
    here, client = scene
    answer = await client("GET", "/.well-known/oauth-authorization-server", "")
    assert (answer.status, answer.json["issuer"]) == (200, HERE)
    assert answer.headers["Cache-Control"] == "public, max-age=300"
    answer = await client("GET", "/oauth2/jwks", "")
    assert [key["kid"] for key in answer.json["keys"]] == [here.service.keys.current.kid]


@table(
    ("code", "status", "error"),
    [
        (Code.REQUEST_TIMEOUT, 408, "invalid_request"),
        (Code.VAULT_DOWN, 503, "temporarily_unavailable"),
        (Code.INTERNAL, 500, "server_error"),
    ],
)
def test_what_fails_before_the_token_service_is_told_in_its_words(code, status, error):
    answer = oauth_refusal(VaultError(code, "a path of this machine"))
    assert answer.status == status
    assert f'"error":"{error}"'.encode() in answer.body
    assert b"machine" not in answer.body
