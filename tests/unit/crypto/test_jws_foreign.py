import json

import jwt
import pytest

from proxy.crypto.jws import MOST_ISSUER_KEYS, ForeignKeys, UnknownKeyError
from tests.support.issuer import document, made, public, token, unsigned

SAID = {"client_id": "crm"}
KEY = made("ES256")
KEYS = ForeignKeys.read(document(public(KEY, kid="one")))


@pytest.mark.parametrize(
    "algorithm", ["RS256", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA"]
)
def test_each_kind_of_key_verifies_its_own_tokens(algorithm):
    private = made(algorithm)
    for more in ({"kid": "one"}, {"kid": "one", "alg": algorithm, "use": "sig"}):
        keys = ForeignKeys.read(document(public(KEY, kid="other"), public(private, **more)))
        assert json.loads(keys.payload(token(private, SAID, algorithm))) == SAID


@pytest.mark.parametrize("kind", ["at+jwt", "AT+JWT", "application/at+jwt", "JWT"])
def test_kinds_of_tokens_that_may_be_shown(kind):
    assert json.loads(KEYS.payload(token(KEY, SAID, typ=kind))) == SAID


def test_a_token_without_a_key_id_is_tried_with_all_keys():
    keys = ForeignKeys.read(document(public(made("ES256")), public(KEY), public(made("RS256"))))
    assert json.loads(keys.payload(token(KEY, SAID, kid=None))) == SAID


def test_a_key_that_is_not_there_is_told_apart():
    with pytest.raises(UnknownKeyError):
        KEYS.payload(token(KEY, SAID, kid="two"))


def shared() -> str:
    """A token signed with the public key as a shared secret, as in the oldest of these attacks."""
    return jwt.encode(
        SAID, "-----public key-----" * 4, "HS256", headers={"kid": "one", "typ": "at+jwt"}
    )


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "a.b.c", "é.b.c", "a" * 20_000, unsigned(SAID, kid="one"), unsigned(SAID), shared(),
        token(made("ES256"), SAID), token(made("RS256"), SAID, "RS256"), token(KEY, SAID, typ="dpop+jwt"),
        token(KEY, SAID, typ="id_token"), token(KEY, SAID)[:-4], token(KEY, SAID, crit=["x"], x=1),
    ],
)  # fmt: skip
def test_everything_else_is_refused(text):
    with pytest.raises(ValueError):
        KEYS.payload(text)


@pytest.mark.parametrize("more", [{"use": "enc"}, {"alg": "ES384"}, {"alg": "RS256"}])
def test_a_key_for_something_else_verifies_nothing(more):
    keys = ForeignKeys.read(document(public(KEY, kid="one", **more)))
    with pytest.raises(ValueError):
        keys.payload(token(KEY, SAID))


def test_a_short_key_verifies_nothing():
    weak = made("RS256", 1024)
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        text = token(weak, SAID, "RS256")
    with pytest.raises(ValueError):
        ForeignKeys.read(document(public(weak, kid="one"))).payload(text)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"keys": {}}', b'{"keys": [1]}', b'{"keys": [{"kid": "a"}]}', b"\xff", document(*[public(KEY)] * (MOST_ISSUER_KEYS + 1))]
)  # fmt: skip
def test_what_is_no_set_of_keys_is_refused(body):
    with pytest.raises(ValueError):
        ForeignKeys.read(body)


def test_keys_of_kinds_that_nobody_knows_do_not_disturb():
    keys = ForeignKeys.read(
        document(
            {"kty": "oct", "k": "AAAA", "kid": "one"},
            {"kty": "new", "kid": "one"},
            public(KEY, kid="one"),
        )
    )
    assert json.loads(keys.payload(token(KEY, SAID))) == SAID
