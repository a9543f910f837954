"""Signatures of tokens: JSON Web Signature (RFC 7515) in its compact form with Ed25519 (RFC 8032, RFC 8037).

Ed25519 has one valid signature for a key and a message, and draws no random number that could go wrong. The algorithm
is fixed on this side: what a token's header says is compared, never followed (RFC 8725, sections 3.1 and 3.2).
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from proxy.crypto.secret import Secret

ALGORITHM: Final = "EdDSA"
SEED_BYTES: Final = 32

#: Longer than any token that is made here; more is not looked at.
_LONGEST: Final = 4096

_jws = jwt.PyJWS(algorithms=[ALGORITHM])


class SigningKey(Secret):
    """One Ed25519 key. ``kid`` is its thumbprint (RFC 7638) and not secret; ``jwk`` its public half (RFC 8037)."""

    __slots__ = ("_private", "_public", "jwk", "kid")

    def __init__(self, seed: bytes) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self._public = self._private.public_key()
        named = {"crv": "Ed25519", "kty": "OKP", "x": _text(self._public.public_bytes_raw())}
        spelled = json.dumps(named, separators=(",", ":"), sort_keys=True)
        self.kid = _text(hashlib.sha256(spelled.encode()).digest())
        self.jwk: dict[str, Any] = {**named, "kid": self.kid, "use": "sig", "alg": ALGORITHM}

    @classmethod
    def create(cls) -> "SigningKey":
        """A fresh random key."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    def seed(self) -> bytes:
        """The 32 secret bytes, to be sealed."""
        return self._private.private_bytes_raw()

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


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
