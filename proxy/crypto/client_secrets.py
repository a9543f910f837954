"""Client secrets: drawn here, and kept as argon2id (RFC 9106) alone.

A secret is 43 letters and digits, 256 random bits, so that no dictionary helps and nothing in it
needs escaping in a form, a header, a shell or a settings file. argon2id on top keeps a stolen
database from being tried quickly, should an operator ever give out secrets of his own.
"""

import secrets
import string
from typing import Final

import argon2
from argon2.exceptions import InvalidHashError, VerificationError

_LETTERS: Final = string.ascii_letters + string.digits
_SECRET: Final = 43  # log2(62 ** 43) = 256
_IDENT_LETTERS: Final = "abcdefghijkmnpqrstuvwxyz23456789"  # nothing that is misread: no l, o, 0, 1
_IDENT: Final = 16  # 80 bits

#: 19 MiB, two passes, one lane: the smallest cost that the OWASP cheat sheet on password storage
#: gives for argon2id. More would only help those who flood the token endpoint; the secrets
#: themselves cannot be guessed.
_HASHER: Final = argon2.PasswordHasher(
    time_cost=2, memory_cost=19 * 1024, parallelism=1, type=argon2.Type.ID
)

#: Made once of a drawn secret that nobody has: checking against it costs what any other check does.
NOBODYS_HASH: Final = (
    "$argon2id$v=19$m=19456,t=2,p=1$pEZOZBWcYEPxWE3xguer1A$"
    "RCq8sJsElKXh3oKQUKzQnXyKBmxsSOYbJzv5FGZsthY"
)


def new_secret() -> str:
    """A fresh secret for a client."""
    return "".join(secrets.choice(_LETTERS) for _ in range(_SECRET))


def new_ident() -> str:
    """A fresh client id: not secret, and unique without asking anybody."""
    return "".join(secrets.choice(_IDENT_LETTERS) for _ in range(_IDENT))


def hash_secret(secret: str) -> str:
    """The secret as it is stored: argon2id with its parameters and a fresh salt.

    Takes some 20 ms of processor.
    """
    return _HASHER.hash(secret.encode("utf-8", "surrogatepass"))


def verify_secret(stored: str, secret: str) -> bool:
    """Whether ``stored`` was made of this secret.

    Takes as long for a wrong secret as for the right one.
    """
    try:
        return _HASHER.verify(stored, secret.encode("utf-8", "surrogatepass"))
    except (VerificationError, InvalidHashError):
        return False
