import base64
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.auth.credentials import (
    DESCRIPTION,
    Credentials,
    OAuthError,
    credentials,
    invalid_client,
    invalid_request,
    read_form,
    slow_down,
)
from tests.support.auth import basic
from tests.support.table import table


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
