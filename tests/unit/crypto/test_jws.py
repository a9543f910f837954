import base64
import hashlib
import json

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from proxy.crypto.jws import (
    MOST_ISSUER_KEYS,
    SEED_BYTES,
    SIGNATURE_ALGORITHM,
    ForeignKeys,
    SigningKey,
    UnknownKeyError,
    signed_by,
)
from tests.support.issuer import document, made, public, token, unsigned
from tests.support.table import table

KEY, OTHER = SigningKey(bytes(range(SEED_BYTES))), SigningKey(bytes([7] * SEED_BYTES))
KEYS = {KEY.kid: KEY}
PAYLOAD = b'{"sub":"client","exp":1700000300}'
TOKEN = KEY.sign(PAYLOAD, "at+jwt")


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def forged(header: dict[str, object], payload: bytes = PAYLOAD, signature: bytes = b"") -> str:
    return ".".join([encoded(json.dumps(header).encode()), encoded(payload), encoded(signature)])


def refused(token: str) -> bool:
    with pytest.raises(ValueError, match=r"^(this is|the token was|the signature)"):
        signed_by(token, KEYS, "at+jwt")
    return True


def test_what_a_key_signed_is_read_back():
    assert signed_by(TOKEN, KEYS, "at+jwt") == PAYLOAD
    assert jwt.get_unverified_header(TOKEN) == {"alg": "ES256", "typ": "at+jwt", "kid": KEY.kid}


def test_somebody_elses_library_verifies_with_the_published_key():
    public = jwt.PyJWK(KEY.jwk)
    assert (
        jwt.decode(TOKEN, public, algorithms=["ES256"], options={"verify_exp": False})["sub"]
        == "client"
    )


def test_the_key_id_is_the_thumbprint_of_rfc_7638():
    members = {name: KEY.jwk[name] for name in ("crv", "kty", "x", "y")}
    spelled = json.dumps(members, sort_keys=True, separators=(",", ":")).encode()
    assert KEY.kid == encoded(hashlib.sha256(spelled).digest())


def test_the_published_key_has_no_private_half():
    assert set(KEY.jwk) == {"crv", "kty", "x", "y", "kid", "use", "alg"}
    assert SigningKey(KEY.seed()).jwk == KEY.jwk
    assert SigningKey.create().seed() != SigningKey.create().seed()


@given(st.integers(0, len(TOKEN) - 1), st.characters(max_codepoint=0x17F))
def test_every_changed_character_is_refused(place, character):
    changed = TOKEN[:place] + character + TOKEN[place + 1 :]
    assert changed == TOKEN or refused(changed)


def test_every_other_spelling_of_the_signature_is_refused():
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    assert all(refused(TOKEN[:-1] + letter) for letter in letters if letter != TOKEN[-1])
    assert refused(TOKEN + "=")
    assert refused(TOKEN + "\n")


@given(st.text(max_size=60))
def test_any_other_text_is_refused(text):
    assert refused(text)


@table("algorithm", ["none", "None", "HS256", "RS256", "ES384", "EdDSA", "", None, 5])
def test_a_header_cannot_choose_the_algorithm(algorithm):
    header = {"alg": algorithm, "typ": "at+jwt", "kid": KEY.kid}
    assert refused(forged(header))
    hmac = hashlib.sha256(KEY.jwk["x"].encode()).digest()
    assert refused(forged(header, signature=hmac))


@table("kid", [OTHER.kid, "", "../key", None, 7, ["a"]])
def test_a_key_that_is_not_ours_is_refused(kid):
    signature = base64.urlsafe_b64decode(TOKEN.rpartition(".")[2] + "==")
    assert refused(
        forged({"alg": SIGNATURE_ALGORITHM, "typ": "at+jwt", "kid": kid}, signature=signature)
    )
    assert refused(OTHER.sign(PAYLOAD, "at+jwt"))


def test_a_key_within_the_header_is_not_looked_at():
    private = ec.generate_private_key(ec.SECP256R1())
    public = SigningKey(private.private_numbers().private_value.to_bytes(32, "big")).jwk
    headers = {"typ": "at+jwt", "kid": KEY.kid, "jwk": public, "jku": "https://example.com/keys"}
    assert refused(jwt.PyJWS().encode(PAYLOAD, private, "ES256", headers))


def test_a_token_of_another_kind_is_refused():
    assert refused(KEY.sign(PAYLOAD, "JWT"))


def test_an_extension_that_must_be_understood_is_refused():
    private = ec.derive_private_key(int.from_bytes(KEY.seed(), "big"), ec.SECP256R1())
    headers = {"typ": "at+jwt", "kid": KEY.kid, "crit": ["exp"], "exp": 1}
    assert refused(jwt.PyJWS().encode(PAYLOAD, private, "ES256", headers))


def test_a_huge_text_is_not_looked_at():
    assert refused(KEY.sign(b"x" * 4096, "at+jwt"))


SAID = {"client_id": "crm"}
KEY_FOREIGN = made("ES256")
KEYS_FOREIGN = ForeignKeys.read(document(public(KEY_FOREIGN, kid="one")))


@table("algorithm", ["RS256", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA"])
def test_each_kind_of_key_verifies_its_own_tokens(algorithm):
    private = made(algorithm)
    for more in ({"kid": "one"}, {"kid": "one", "alg": algorithm, "use": "sig"}):
        keys = ForeignKeys.read(document(public(KEY_FOREIGN, kid="other"), public(private, **more)))
        assert json.loads(keys.payload(token(private, SAID, algorithm))) == SAID


@table("kind", ["at+jwt", "AT+JWT", "application/at+jwt", "JWT"])
def test_kinds_of_tokens_that_may_be_shown(kind):
    assert json.loads(KEYS_FOREIGN.payload(token(KEY_FOREIGN, SAID, typ=kind))) == SAID


def test_a_token_without_a_key_id_is_tried_with_all_keys():
    keys = ForeignKeys.read(
        document(public(made("ES256")), public(KEY_FOREIGN), public(made("RS256")))
    )
    assert json.loads(keys.payload(token(KEY_FOREIGN, SAID, kid=None))) == SAID


def test_a_key_that_is_not_there_is_told_apart():
    with pytest.raises(UnknownKeyError):
        KEYS_FOREIGN.payload(token(KEY_FOREIGN, SAID, kid="two"))


def shared() -> str:
    """A token signed with the public key as a shared secret, as in the oldest of these attacks."""
    return jwt.encode(
        SAID, "-----public key-----" * 4, "HS256", headers={"kid": "one", "typ": "at+jwt"}
    )


@table(
    "text",
    [
        "", "a", "a.b.c", "é.b.c", "a" * 20_000, unsigned(SAID, kid="one"), unsigned(SAID), shared(),
        token(made("ES256"), SAID), token(made("RS256"), SAID, "RS256"), token(KEY_FOREIGN, SAID, typ="dpop+jwt"),
        token(KEY_FOREIGN, SAID, typ="id_token"), token(KEY_FOREIGN, SAID)[:-4], token(KEY_FOREIGN, SAID, crit=["x"], x=1),
    ],
)  # fmt: skip
def test_everything_else_is_refused(text):
    with pytest.raises(ValueError):
        KEYS_FOREIGN.payload(text)


@table(
    "more", [{"use": "enc"}, {"alg": "ES384"}, {"alg": "RS256"}, {"key_ops": ["encrypt"]}, {"key_ops": []}]
)  # fmt: skip
def test_a_key_for_something_else_verifies_nothing(more):
    keys = ForeignKeys.read(document(public(KEY_FOREIGN, kid="one", **more)))
    with pytest.raises(ValueError):
        keys.payload(token(KEY_FOREIGN, SAID))


def test_a_short_key_verifies_nothing():
    weak = made("RS256", 1024)
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        text = token(weak, SAID, "RS256")
    with pytest.raises(ValueError):
        ForeignKeys.read(document(public(weak, kid="one"))).payload(text)


@table(
    "body", [b"", b"[]", b"{}", b'{"keys": {}}', b'{"keys": [1]}', b'{"keys": [{"kid": "a"}]}', b"\xff", document(*[public(KEY_FOREIGN)] * (MOST_ISSUER_KEYS + 1))]
)  # fmt: skip
def test_what_is_no_set_of_keys_is_refused(body):
    with pytest.raises(ValueError):
        ForeignKeys.read(body)


def test_keys_of_kinds_or_forms_that_nobody_knows_do_not_disturb():
    keys = ForeignKeys.read(
        document(
            {"kty": "oct", "k": "AAAA", "kid": "one"},
            {"kty": "new", "kid": "one"},
            {"kid": "one"},
            {"kty": "EC", "kid": 1},
            {**public(made("ES256"), kid="one"), "use": ["sig"]},
            public(KEY_FOREIGN, kid="one", key_ops=["verify"]),
        )
    )
    assert json.loads(keys.payload(token(KEY_FOREIGN, SAID))) == SAID
