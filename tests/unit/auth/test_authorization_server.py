import asyncio
import base64
import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.auth.authorization_server import (
    Credentials,
    OAuthError,
    credentials,
    invalid_client,
    invalid_request,
    read_form,
    slow_down,
)
from proxy.auth.secret_checks import BY_CLIENT
from proxy.errors import Code, VaultError
from tests.support.audit import audit_context
from tests.support.auth import HERE, Office, basic, form, office
from tests.support.table import table

#: Characters of an ``error_description`` (RFC 6749, section 5.2).
DESCRIPTION = re.compile(r"[\x20-\x21\x23-\x5b\x5d-\x7e]+")

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
        fits = here.service._secret_checks.matches

        async def watched(stored: str | None, secret: str) -> bool:
            compared.append(stored)
            return await fits(stored, secret)

        monkeypatch.setattr(here.service._secret_checks, "matches", watched)
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
        monkeypatch.setattr(here.service._secret_checks, "matches", None)
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
        monkeypatch.setattr(here.service._secret_checks, "slot", None)
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

        monkeypatch.setattr(here.service._secret_checks, "slot", full)
        found = await refusal(here, form(), basic(made.client.id, made.secret))
        assert (found.status, found.retry_after, found.error) == (503, 1, "temporarily_unavailable")


async def test_a_client_that_ends_while_its_secret_is_checked_gets_no_token(monkeypatch):
    async with office() as here:
        made = await here.client()

        async def meanwhile(_stored: str | None, _secret: str) -> bool:
            await here.service.clients.disable(made.client.id)
            return True

        monkeypatch.setattr(here.service._secret_checks, "matches", meanwhile)
        assert (
            await refusal(here, form(), basic(made.client.id, made.secret))
        ).error == "invalid_client"


async def test_a_client_that_is_read_again_while_its_secret_is_checked_gets_its_token(monkeypatch):
    """As another replica, or this one, has written clients of its part: it is the same as before."""
    async with office() as here:
        made, clients = await here.client(), here.service.clients
        fits = here.service._secret_checks.matches

        async def meanwhile(stored: str | None, secret: str) -> bool:
            for number in range(clients.count):
                await clients.read_again("default", number)
            return await fits(stored, secret)

        monkeypatch.setattr(here.service._secret_checks, "matches", meanwhile)
        assert await here.token(made)


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


def plain(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def error_of(authorization: str | None, **form: str) -> str:
    with pytest.raises(OAuthError) as caught:
        credentials(authorization, form)
    assert DESCRIPTION.fullmatch(caught.value.description)
    return caught.value.error


def test_basic_credentials_are_form_encoded_first():
    assert credentials(basic("a:b c", "s%+ö"), {}) == Credentials("a:b c", "s%+ö")
    assert credentials(plain("shop:secret"), {}) == Credentials("shop", "secret")


@table("scheme", ["basic", "BASIC", "Basic"])
def test_the_scheme_is_compared_without_case(scheme):
    assert credentials(plain("shop:a:b").replace("Basic", scheme), {}) == Credentials("shop", "a:b")


def test_credentials_may_stand_in_the_form():
    assert credentials(None, {"client_id": "shop", "client_secret": "secret"}) == Credentials(
        "shop", "secret"
    )


def test_the_client_id_may_be_repeated_beside_basic_credentials():
    assert credentials(plain("shop:secret"), {"client_id": "shop"}) == Credentials("shop", "secret")


@table(
    "authorization",
    [None, "", "Basic", "Basic ", "Basic !!!!", "Basic " + base64.b64encode(b"shop").decode(), plain("a%ff:b"),
     "Basic " + base64.b64encode(b"\xff:x").decode(), "Bearer abc", "Digest x", "Basic YTpi YTpi", "Basic ä"],
)  # fmt: skip
def test_what_cannot_be_read_proves_nothing(authorization):
    assert error_of(authorization) == "invalid_client"


@table("form", [{"client_id": "shop"}, {"client_secret": "secret"}])
def test_half_of_the_credentials_proves_nothing(form):
    assert error_of(None, **form) == "invalid_client"


@table("form", [{"client_secret": "secret"}, {"client_id": "other"}])
def test_two_ways_at_once_are_refused(form):
    assert error_of(plain("shop:secret"), **form) == "invalid_request"


def test_a_form_is_read_and_values_that_are_empty_count_as_absent():
    assert read_form(b"grant_type=client_credentials&scope=&x=a%20b+c") == {
        "grant_type": "client_credentials",
        "x": "a b c",
    }
    assert read_form(b"") == {}


def test_only_the_audience_may_be_repeated():
    assert read_form(b"audience=a&audience=b") == {"audience": "a b"}


@table(
    "body", [b"scope=a&scope=a", b"x=%ff", b"\xff=a", "scope=ö".encode(), b"&".join([b"a=b"] * 40)]
)
def test_what_is_no_form_is_refused(body):
    with pytest.raises(OAuthError) as caught:
        read_form(body)
    assert caught.value.error == "invalid_request"


@given(
    st.one_of(
        st.binary(max_size=200), st.text(alphabet="&=%+ab0ü\x00", max_size=60).map(str.encode)
    )
)
def test_whatever_a_body_is_it_is_a_form_or_refused(body):
    with suppress(OAuthError):
        form = read_form(body)
        assert all(form.values())


@given(
    st.one_of(
        st.none(),
        st.text(max_size=40),
        st.binary(max_size=40).map(lambda raw: "Basic " + base64.b64encode(raw).decode()),
    ),
    st.dictionaries(st.sampled_from(["client_id", "client_secret", "scope"]), st.text(max_size=10)),
)
def test_whatever_is_sent_as_proof_is_credentials_or_refused(authorization, form):
    with suppress(OAuthError):
        sent = credentials(authorization, form)
        assert isinstance(sent, Credentials)
        assert authorization is not None or sent == (form["client_id"], form["client_secret"])


@given(st.text(max_size=20), st.text(max_size=20))
def test_what_a_client_encodes_is_what_is_read(client, secret):
    assert credentials(basic(client, secret), {}) == Credentials(client, secret)


@table("error", [invalid_request("The body is no form."), invalid_client(), slow_down(3)])
def test_a_description_has_only_the_characters_of_rfc_6749(error):
    assert DESCRIPTION.fullmatch(error.description)


def test_who_did_not_prove_itself_is_told_how():
    error = invalid_client()
    assert (error.status, error.error) == (401, "invalid_client")
    assert error.challenge is not None
    assert error.challenge.startswith("Basic ")


def test_who_is_slowed_is_told_for_how_long():
    assert (slow_down(3).status, slow_down(3).retry_after) == (429, 3)
    assert slow_down(1, 503).status == 503
