import asyncio

import pytest

from proxy.auth.credentials import DESCRIPTION, OAuthError
from proxy.auth.passwords import BY_CLIENT
from proxy.errors import Code, VaultError
from tests.support.audit import audit_context
from tests.support.auth import HERE, Office, basic, form, office
from tests.support.table import table

HOME = "192.0.2.1"


async def refusal(
    here: Office, body: bytes, authorization: str | None, verb: str = "token"
) -> OAuthError:
    with pytest.raises(OAuthError) as caught:
        await getattr(here.service, verb)(body, authorization, HOME, audit_context())
    assert DESCRIPTION.fullmatch(caught.value.description)
    return caught.value


async def test_a_client_gets_a_token_with_the_members_of_the_specification():
    async with office() as here:
        made = await here.client()
        body = form(audience=HERE, scope="default")
        answer = await here.service.token(
            body, basic(made.client.id, made.secret), HOME, audit_context()
        )
        assert here.service.tokens.principal(answer.pop("access_token")).client == made.client.id
        assert answer == {"token_type": "bearer", "expires_in": 300, "scope": "default"}
        assert here.outcomes == {"issued": 1}


async def test_credentials_in_the_form_do_as_well():
    async with office() as here:
        made = await here.client()
        body = form(client_id=made.client.id, client_secret=made.secret)
        assert (await here.service.token(body, None, HOME, audit_context()))["scope"] == "default"


@table(
    ("body", "error"),
    [
        (form(grant_type=""), "invalid_request"),
        (form(grant_type="password"), "unsupported_grant_type"),
        (form(grant_type="Client_Credentials"), "unsupported_grant_type"),
        (form(scope="other"), "invalid_scope"),
        (form(scope="default other"), "invalid_scope"),
        (form(scope="default default"), "invalid_scope"),
        (form(scope="Default"), "invalid_scope"),
        (form(audience="https://other.example"), "invalid_target"),
        (form(audience=f"{HERE} https://other.example"), "invalid_target"),
        (form(audience="se-vault.example.com"), "invalid_target"),
        (form() + b"&scope=default&scope=default", "invalid_request"),
        (b'{"grant_type":"client_credentials"}', "invalid_request"),
        (b"\xff", "invalid_request"),
        (form(client_secret="x"), "invalid_request"),
    ],
)
async def test_each_fault_of_a_request_has_its_word(body, error):
    async with office() as here:
        made = await here.client()
        found = await refusal(here, body, basic(made.client.id, made.secret))
        assert (found.status, found.error, found.challenge) == (400, error, None)
        assert here.outcomes == {error: 1}


async def test_who_is_not_known_disabled_or_wrong_hears_the_same():
    async with office() as here:
        made, ended = await here.client(), await here.client()
        await here.service.clients.disable(ended.client.id)
        found = [
            await refusal(here, form(), basic("nobody", made.secret)),
            await refusal(here, form(), basic(made.client.id, "wrong")),
            await refusal(here, form(), basic(ended.client.id, ended.secret)),
        ]
        assert (
            len(
                {(error.status, error.error, error.description, error.challenge) for error in found}
            )
            == 1
        )
        assert (found[0].status, found[0].error) == (401, "invalid_client")


async def test_the_same_work_is_done_whoever_asks(monkeypatch):
    async with office() as here:
        made, ended = await here.client(), await here.client()
        await here.service.clients.disable(ended.client.id)
        compared: list[str | None] = []
        fits = here.service._passwords.matches

        async def watched(stored: str | None, secret: str) -> bool:
            compared.append(stored)
            return await fits(stored, secret)

        monkeypatch.setattr(here.service._passwords, "matches", watched)
        for client, secret in (
            (made.client.id, "wrong"),
            ("nobody", "wrong"),
            (ended.client.id, ended.secret),
        ):
            await refusal(here, form(), basic(client, secret))
        assert compared == [made.client.secret, None, ended.client.secret]


async def test_guessing_is_slowed_and_costs_no_work_then(monkeypatch):
    async with office() as here:
        made = await here.client()
        for _ in range(BY_CLIENT.burst):
            assert (await refusal(here, form(), basic(made.client.id, "wrong"))).status == 401
        monkeypatch.setattr(here.service._passwords, "matches", None)
        found = await refusal(here, form(), basic(made.client.id, made.secret))
        assert (found.status, found.retry_after) == (429, BY_CLIENT.every // 1000)
        assert here.outcomes == {"invalid_client": BY_CLIENT.burst, "slowed": 1}
        monkeypatch.undo()
        here.clock.advance(BY_CLIENT.every)
        assert await here.token(made)


async def test_who_is_slowed_takes_no_place_in_the_queue(monkeypatch):
    async with office() as here:
        made = await here.client()
        for _ in range(BY_CLIENT.burst):
            await refusal(here, form(), basic(made.client.id, "wrong"))
        monkeypatch.setattr(here.service._passwords, "slot", None)
        assert (await refusal(here, form(), basic(made.client.id, "wrong"))).status == 429


async def test_guesses_at_the_same_moment_do_not_get_around_it():
    async with office() as here:
        made = await here.client()
        tries = (
            refusal(here, form(), basic(made.client.id, f"wrong{n}"))
            for n in range(3 * BY_CLIENT.burst)
        )
        found = [error.status for error in await asyncio.gather(*tries)]
        assert found.count(401) <= BY_CLIENT.burst + 1  # one more on each further thread
        assert found.count(429) >= 2 * BY_CLIENT.burst - 1


async def test_more_requests_than_can_wait_are_told_to_come_later(monkeypatch):
    async with office() as here:
        made = await here.client()
        error = VaultError(Code.OVERLOADED, "later")
        error.retry_after = 1

        def full(_source: str, *, first: bool) -> None:
            raise error

        monkeypatch.setattr(here.service._passwords, "slot", full)
        found = await refusal(here, form(), basic(made.client.id, made.secret))
        assert (found.status, found.retry_after, found.error) == (503, 1, "temporarily_unavailable")


async def test_a_client_that_ends_while_its_secret_is_checked_gets_no_token(monkeypatch):
    async with office() as here:
        made = await here.client()

        async def meanwhile(_stored: str | None, _secret: str) -> bool:
            await here.service.clients.disable(made.client.id)
            return True

        monkeypatch.setattr(here.service._passwords, "matches", meanwhile)
        assert (
            await refusal(here, form(), basic(made.client.id, made.secret))
        ).error == "invalid_client"


async def test_introspection_tells_what_a_valid_token_says():
    async with office() as here:
        made = await here.client()
        token, proof = await here.token(made), basic(made.client.id, made.secret)
        told = await here.service.introspection(form(token=token), proof, HOME, audit_context())
        now = here.clock() // 1000
        assert told.pop("jti")
        assert told == {
            "active": True, "scope": "default", "client_id": made.client.id, "sub": made.client.id, "aud": [HERE],
            "iss": HERE, "iat": now, "exp": now + 300, "token_type": "bearer",
        }  # fmt: skip
        assert (
            await here.service.introspection(
                form(token=token), f"Bearer {token}", HOME, audit_context()
            )
        )["active"]


async def test_introspection_of_anything_else_says_no_more_than_that():
    async with office() as here:
        made, ended = await here.client(), await here.client()
        token, proof = await here.token(ended), basic(made.client.id, made.secret)
        await here.service.clients.remove(ended.client.id)
        for text in (token, "no token", token[:-1]):
            assert await here.service.introspection(
                form(token=text), proof, HOME, audit_context()
            ) == {"active": False}


async def test_introspection_is_not_for_everybody():
    async with office() as here:
        made = await here.client()
        for authorization in (None, "Bearer no token", basic(made.client.id, "wrong")):
            found = await refusal(here, form(token="x"), authorization, "introspection")
            assert (found.status, found.error) == (401, "invalid_client")
        found = await refusal(here, form(), basic(made.client.id, made.secret), "introspection")
        assert found.error == "invalid_request"


async def test_the_metadata_has_what_rfc_8414_requires():
    async with office() as here:
        told = here.service.metadata()
        assert told["issuer"] == HERE
        assert told["token_endpoint"] == f"{HERE}/oauth2/token"
        assert told["jwks_uri"] == f"{HERE}/oauth2/jwks"
        assert told["introspection_endpoint"] == f"{HERE}/oauth2/introspect"
        assert told["grant_types_supported"] == ["client_credentials"]
        assert told["response_types_supported"] == ["none"]


async def test_the_published_keys_are_public():
    async with office() as here:
        (key,) = here.service.jwks()["keys"]
        assert "d" not in key
        assert key["kid"] == here.service.keys.current.kid
