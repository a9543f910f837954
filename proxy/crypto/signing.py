"""Signatures of tokens: JSON Web Signature (RFC 7515) in its compact form with ES256, ECDSA over P-256 (RFC 7518, section 3.4).

ES256 is the signature that every library for tokens verifies; the name that Ed25519 goes by in most of them was withdrawn
(RFC 9864). The algorithm is fixed on this side: what a token's header says is compared, never followed (RFC 8725, section 3.1).
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from proxy.crypto.secret import Secret

ALGORITHM: Final = "ES256"
SEED_BYTES: Final = 32

#: Longer than any token that is made here; more is not looked at.
_LONGEST: Final = 4096

_CURVE: Final = ec.SECP256R1()

_jws = jwt.PyJWS(algorithms=[ALGORITHM])


class SigningKey(Secret):
    """One key. ``kid`` is its thumbprint (RFC 7638) and not secret; ``jwk`` its public half (RFC 7518, section 6.2)."""

    __slots__ = ("_private", "_public", "jwk", "kid")

    def __init__(self, seed: bytes) -> None:
        self._private = ec.derive_private_key(int.from_bytes(seed, "big"), _CURVE)
        self._public = self._private.public_key()
        point = self._public.public_numbers()
        x, y = (_text(number.to_bytes(SEED_BYTES, "big")) for number in (point.x, point.y))
        named = {"crv": "P-256", "kty": "EC", "x": x, "y": y}
        spelled = json.dumps(named, separators=(",", ":"), sort_keys=True)
        self.kid = _text(hashlib.sha256(spelled.encode()).digest())
        self.jwk: dict[str, Any] = {**named, "kid": self.kid, "use": "sig", "alg": ALGORITHM}

    @classmethod
    def create(cls) -> "SigningKey":
        """A fresh random key."""
        return cls(_seed(ec.generate_private_key(_CURVE)))

    def seed(self) -> bytes:
        """The 32 secret bytes, to be sealed."""
        return _seed(self._private)

    def sign(self, payload: bytes, kind: str) -> str:
        """The payload as a signed token of that ``typ``."""
        return _jws.encode(payload, self._private, ALGORITHM, {"typ": kind, "kid": self.kid})

    def payload(self, token: str) -> bytes:
        """What a token says that this key signed; ``ValueError`` otherwise."""
        try:
            found = _jws.decode_complete(token, self._public, [ALGORITHM])
        except jwt.PyJWTError:
            raise ValueError("the signature does not hold") from None
        if token.rpartition(".")[2] != _text(found["signature"]):
            raise ValueError("the signature is spelled in another way than ours")
        payload: bytes = found["payload"]
        return payload


def signed_by(token: str, keys: Mapping[str, SigningKey], kind: str) -> bytes:
    """What a token of that ``typ`` says which one of these keys signed; ``ValueError`` for everything else."""
    if len(token) > _LONGEST or not token.isascii():
        raise ValueError("this is not a token")
    try:
        header = _jws.get_unverified_header(token)
    except jwt.PyJWTError:
        raise ValueError("this is not a token") from None
    if (header.get("alg"), header.get("typ")) != (ALGORITHM, kind):
        raise ValueError("this is a token of another kind")
    key = keys.get(header["kid"]) if isinstance(header.get("kid"), str) else None
    if key is None:
        raise ValueError("the token was signed with a key that is not in use")
    return key.payload(token)


def _seed(private: ec.EllipticCurvePrivateKey) -> bytes:
    return private.private_numbers().private_value.to_bytes(SEED_BYTES, "big")


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
