"""An external issuer of access tokens: keys of several kinds, the document that publishes them, and
tokens.
"""

import asyncio
import base64
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from proxy.net.outbound import Outbound, UnansweredError
from proxy.net.tls import machine_context

ISSUER = "https://login.example.com"
AUDIENCE = "https://se-vault.example.com"

Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def made(algorithm: str, bits: int = 2048, which: int = 0) -> Private:
    """A key for that algorithm: a fresh one, but of RSA, which takes a tenth of a second, the one of
    that size and number.
    """
    if algorithm.startswith("ES"):
        curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
        return ec.generate_private_key(curves[algorithm])
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa_key(bits, which)


@cache
def rsa_key(bits: int = 2048, which: int = 0) -> rsa.RSAPrivateKey:
    """An RSA key, made once in a process; another number is another key."""
    return rsa.generate_private_key(65537, bits)


def public(private: Private, **more: Any) -> dict[str, Any]:
    """Its public half as an issuer publishes it."""
    kinds = {
        "RSA": jwt.algorithms.RSAAlgorithm,
        "EC": jwt.algorithms.ECAlgorithm,
        "OKP": jwt.algorithms.OKPAlgorithm,
    }
    kind = (
        "RSA"
        if isinstance(private, rsa.RSAPrivateKey)
        else "EC"
        if isinstance(private, ec.EllipticCurvePrivateKey)
        else "OKP"
    )
    told: dict[str, Any] = kinds[kind].to_jwk(private.public_key(), as_dict=True)  # type: ignore[attr-defined]  # each has it
    return {**{name: value for name, value in told.items() if name != "key_ops"}, **more}


def document(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def claims(now: int, **more: Any) -> dict[str, Any]:
    """What a good token says; ``now`` in milliseconds. ``None`` leaves a claim out."""
    usual = {
        "iss": ISSUER, "aud": AUDIENCE, "client_id": "crm-there", "scope": "openid default",
        "iat": now // 1000, "exp": now // 1000 + 300,
    }  # fmt: skip
    return {name: value for name, value in {**usual, **more}.items() if value is not None}


def token(private: Private, said: dict[str, Any], algorithm: str = "ES256", **header: Any) -> str:
    """A signed token."""
    fields = {"typ": "at+jwt", "kid": "one", **header}
    return jwt.encode(
        said,
        private,
        algorithm,
        headers={name: value for name, value in fields.items() if value is not None},
    )


def unsigned(said: dict[str, Any], **header: Any) -> str:
    """A token that nobody has signed."""
    parts = ({"alg": "none", "typ": "at+jwt", **header}, said)
    return (
        ".".join(
            base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
            for part in parts
        )
        + "."
    )


class AskedIssuer(Outbound):
    """Publishes keys, or knows tokens, and counts how often it is asked."""

    def __init__(self, body: bytes) -> None:
        super().__init__(1.0, machine_context())
        self.asked: list[tuple[str, str, Mapping[str, str], bytes]] = []
        self.body = body
        self.down = False

    async def ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> bytes:
        self.asked.append((method, url, headers, body))
        await asyncio.sleep(0)
        if self.down:
            raise UnansweredError("it cannot be reached")
        return self.body
