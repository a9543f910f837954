"""Signatures of tokens: JSON Web Signature (RFC 7515) in its compact form with ES256, ECDSA over
P-256 (RFC 7518, section 3.4).

ES256 is the signature that every library for tokens verifies; the common name for Ed25519 was
withdrawn (RFC 9864). The algorithm is fixed on this side: the header of a token is compared, never
followed (RFC 8725, section 3.1).
"""

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from proxy.crypto.secret import Secret

if TYPE_CHECKING:
    from jwt import PyJWS

SIGNATURE_ALGORITHM: Final = "ES256"
SEED_BYTES: Final = 32

#: Longer than any token that is made here; more is not looked at.
_LONGEST: Final = 4096

_CURVE: Final = ec.SECP256R1()
#: Of the group (FIPS 186-4, D.1.2.3): a private key is less.
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@cache
def _jws(*algorithms: str) -> "PyJWS":
    """The verifier for these algorithms; loaded with the first token."""
    import jwt

    return jwt.PyJWS(algorithms=list(algorithms))


class SigningKey(Secret):
    """A signing key. ``kid`` is its thumbprint (RFC 7638) and not secret.

    ``jwk`` is its public half (RFC 7518, section 6.2).
    """

    __slots__ = ("_private", "_public", "jwk", "kid")

    def __init__(self, seed: bytes) -> None:
        self._private = ec.derive_private_key(int.from_bytes(seed, "big"), _CURVE)
        self._public = self._private.public_key()
        point = self._public.public_numbers()
        x, y = (_text(number.to_bytes(SEED_BYTES, "big")) for number in (point.x, point.y))
        named = {"crv": "P-256", "kty": "EC", "x": x, "y": y}
        spelled = json.dumps(named, separators=(",", ":"), sort_keys=True)
        self.kid = _text(hashlib.sha256(spelled.encode()).digest())
        self.jwk: dict[str, Any] = {
            **named,
            "kid": self.kid,
            "use": "sig",
            "alg": SIGNATURE_ALGORITHM,
        }

    @classmethod
    def create(cls) -> "SigningKey":
        """A fresh random key, drawn from the kernel.

        The library's own generator would draw it alike in two resumptions of one snapshot.
        """
        while not 0 < int.from_bytes(seed := os.urandom(SEED_BYTES), "big") < _ORDER:
            pass  # once in 2^32 draws
        return cls(seed)

    def seed(self) -> bytes:
        """The 32 secret bytes, to be sealed."""
        return self._private.private_numbers().private_value.to_bytes(SEED_BYTES, "big")

    def sign(self, payload: bytes, kind: str) -> str:
        """The payload as a signed token of that ``typ``."""
        return _jws(SIGNATURE_ALGORITHM).encode(
            payload, self._private, SIGNATURE_ALGORITHM, {"typ": kind, "kid": self.kid}
        )

    def payload(self, token: str) -> bytes:
        """Return the payload of a token that this key signed; ``ValueError`` for any other."""
        import jwt

        try:
            decoded = _jws(SIGNATURE_ALGORITHM).decode_complete(
                token, self._public, [SIGNATURE_ALGORITHM]
            )
        except jwt.PyJWTError:
            raise ValueError("the signature does not hold") from None
        if token.rpartition(".")[2] != _text(decoded["signature"]):
            raise ValueError("the signature is spelled in another way than ours")
        payload: bytes = decoded["payload"]
        return payload


def signed_by(token: str, keys: Mapping[str, SigningKey], kind: str) -> bytes:
    """Return the payload of a token of this ``typ``, signed by one of the keys.

    Raises ``ValueError`` for every other text.
    """
    if len(token) > _LONGEST or not token.isascii():
        raise ValueError("this is not a token")
    import jwt

    try:
        header = _jws(SIGNATURE_ALGORITHM).get_unverified_header(token)
    except jwt.PyJWTError:
        raise ValueError("this is not a token") from None
    if (header.get("alg"), header.get("typ")) != (SIGNATURE_ALGORITHM, kind):
        raise ValueError("this is a token of another kind")
    key = keys.get(header["kid"]) if isinstance(header.get("kid"), str) else None
    if key is None:
        raise ValueError("the token was signed with a key that is not in use")
    return key.payload(token)


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


# Verification of tokens from an external issuer: its public keys (RFC 7517), and tokens signed by
# one of them.
#
# The allowed algorithms are decided here, each for one kind of key: the header of a token is
# compared, never followed (RFC 8725, section 3.1). Shared secrets are not allowed, for every
# verifier could sign with them.

#: Longer than any token that issuers make; more is not looked at.
_LONGEST_TOKEN: Final = 16_384

#: Keys of one issuer; more are not read.
MOST_ISSUER_KEYS: Final = 64

_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")

#: Algorithm -> (type of key, curve).
_KINDS: Final[Mapping[str, tuple[str, str | None]]] = {
    **dict.fromkeys(_RSA, ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}

#: Bits of an RSA key; fewer can be taken apart.
_BITS: Final = 2048

#: What kind of token may be shown (RFC 9068, section 2.1); issuers from before that say ``JWT``, or
#: nothing.
_TYPES: Final = ("at+jwt", "application/at+jwt", "jwt", None)


class UnknownKeyError(ValueError):
    """The token names a key that is not among these: the issuer may have a new one."""


class _Key(msgspec.Struct):
    kty: str
    kid: str | None = None
    use: str | None = None
    alg: str | None = None
    crv: str | None = None
    n: str | None = None
    e: str | None = None
    x: str | None = None
    y: str | None = None
    key_ops: list[str] | None = None

    @property
    def verifies(self) -> bool:
        """Whether it is for signatures, as far as it says."""
        return self.use in (None, "sig") and (self.key_ops is None or "verify" in self.key_ops)


class _Keys(msgspec.Struct):
    keys: list[msgspec.Raw]


_read = msgspec.json.Decoder(_Keys).decode
_read_key = msgspec.json.Decoder(_Key).decode


class ForeignKeys:
    """The keys of one issuer, made by ``read``."""

    def __init__(self, keys: list[_Key]) -> None:
        self._keys = keys

    @classmethod
    def read(cls, document: bytes) -> "ForeignKeys":
        """The keys of a document that can verify tokens; ``ValueError`` for none, or too many."""
        try:
            keys = _read(document).keys
        except msgspec.MsgspecError:
            raise ValueError("this is no set of keys") from None
        if len(keys) > MOST_ISSUER_KEYS:
            raise ValueError("these are too many keys")
        understood = [key for key in map(_understood, keys) if key is not None]
        if keys and not understood:
            raise ValueError("this is no set of keys")
        return cls([key for key in understood if key.verifies])

    def payload(self, token: str) -> bytes:
        """Return the payload of a token that one of these keys signed.

        ``UnknownKeyError`` when its key is not here, else ``ValueError``.
        """
        if len(token) > _LONGEST_TOKEN or not token.isascii():
            raise ValueError("this is not a token")
        import jwt

        try:
            header = _jws(*_KINDS).get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise ValueError("this is not a token") from None
        algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ")
        if not isinstance(algorithm, str) or algorithm not in _KINDS or not _is_access(kind):
            raise ValueError("this is a token of another kind")
        named = [key for key in self._keys if kid is None or key.kid == kid]
        if not named:
            raise UnknownKeyError("the token was signed with a key that is not known")
        for key in named:
            if (key.kty, key.crv) == _KINDS[algorithm] and key.alg in (None, algorithm):
                decoded = _verified(token, key, algorithm)
                if decoded is not None:
                    return decoded
        raise ValueError("the signature does not hold")


def _understood(key: msgspec.Raw) -> _Key | None:
    """The key; ``None`` for one of another form, which disturbs no other (RFC 7517, section 5)."""
    try:
        return _read_key(key)
    except msgspec.MsgspecError:
        return None


def _is_access(kind: Any) -> bool:
    return (kind.lower() if isinstance(kind, str) else kind) in _TYPES


def _verified(token: str, key: _Key, algorithm: str) -> bytes | None:
    """Return the payload of the token if this key signed it."""
    members = {
        name: value for name in key.__struct_fields__ if (value := getattr(key, name)) is not None
    }
    import jwt

    try:
        public = jwt.PyJWK(members, algorithm).key
        if isinstance(public, RSAPublicKey) and public.key_size < _BITS:
            return None
        payload: bytes = _jws(*_KINDS).decode_complete(token, public, [algorithm])["payload"]
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    return payload
