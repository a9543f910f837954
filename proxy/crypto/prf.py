"""Keyed hashing and key derivation: HMAC-SHA-256 (RFC 2104) and HKDF-SHA-256 (RFC 5869).

Every sub-key is derived with a label that spells its use, part by part with its length, so that no
two uses can ever meet in one key ("a", "bc" is another key than "ab", "c").
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Final, NamedTuple, Protocol, Self

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

#: A keyed function of a message.
Prf = Callable[[bytes], bytes]

#: Bytes of a look-up hash: 2^64 entries before two are expected to collide, and a fifth less file
#: than 32 bytes.
HASH_BYTES = 16

_SHA256 = SHA256()
_LABEL = b"domicile/1"


class _Hash(Protocol):
    def update(self, message: bytes, /) -> None: ...

    def digest(self) -> bytes: ...


_BLOCK: Final = 64  #: bytes of a block of SHA-256
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))


def _states(key: bytes) -> tuple[Callable[[], _Hash], Callable[[], _Hash]]:
    """Copies of the two keyed states of HMAC-SHA-256 (RFC 2104, section 2)."""
    block = (key if len(key) <= _BLOCK else sha256(key).digest()).ljust(_BLOCK, b"\0")
    return sha256(block.translate(_INNER)).copy, sha256(block.translate(_OUTER)).copy


def keyed(key: bytes) -> Prf:
    """HMAC-SHA-256 under the key, 32 bytes.

    The keyed states are made once and copied for each message, which takes three quarters of the
    time that a copy of a library's whole ``HMAC`` does.
    """
    inner, outer = _states(key)

    def prf(message: bytes) -> bytes:
        within, over = inner(), outer()
        within.update(message)
        over.update(within.digest())
        return over.digest()

    return prf


def hasher(key: bytes) -> Prf:
    """HMAC-SHA-256 under the key, cut to its first 16 bytes (RFC 2104, section 5)."""
    inner, outer = _states(key)

    def digest(message: bytes) -> bytes:
        within, over = inner(), outer()
        within.update(message)
        over.update(within.digest())
        return over.digest()[:HASH_BYTES]

    return digest


class Digest(bytes):
    """A hash under one root that knows the hash of the same under the other one.

    It equals both, so that a comparison holds while rows are on their way from one root to the
    other. Sets and dictionaries know it by its own bytes alone: see ``either``.
    """

    other: bytes
    late: bool  #: the other root is the current one, or will be

    def __new__(cls, own: bytes, other: bytes, *, late: bool = False) -> Self:
        digest = super().__new__(cls, own)
        digest.other, digest.late = other, late
        return digest

    def __eq__(self, value: object) -> bool:
        return super().__eq__(value) is True or (isinstance(value, bytes) and self.other == value)

    def __ne__(self, value: object) -> bool:
        return not self == value

    __hash__ = bytes.__hash__


def either(digests: Iterable[bytes]) -> Iterator[bytes]:
    """The digests as plain bytes under each root that they are under: the other one first."""
    for digest in digests:
        if isinstance(digest, Digest):
            yield digest.other
            yield bytes(digest)
        else:
            yield digest


class Roots(NamedTuple):
    """The roots of hashes and of tokens."""

    hash: bytes
    token: bytes
    older_hash: bytes | None = None  #: rows may still have hashes under it
    older_tokens: tuple[bytes, ...] = ()  #: oldest first; tokens under them only resolve
    audit: bytes | None = None  #: of the audit chain; ``None``: the hash root, which never changed

    def follow(self, before: "Roots") -> bool:
        """Whether these are the roots of before, or one more and all that is needed of them."""
        tokens = (*before.older_tokens, before.token)
        resolve = (*self.older_tokens, self.token)[: len(tokens)] == tokens
        return resolve and before.hash in (self.hash, self.older_hash)


def root_id(root: bytes) -> str:
    """Return a public id of a root, which does not reveal it."""
    return derive(root, "root id", length=4).hex()


class HashRoots(NamedTuple):
    """The root that hashes are made under, and the other one that rows have or will get."""

    own: bytes
    other: bytes | None = None
    late: bool = False  #: the other root is the one that follows


#: States that no message meets: what a hasher has until it is called. A vault makes hundreds.
_NO_STATES: Final = _states(b"")


def turning_hasher(roots: Sequence[HashRoots], *label: str) -> Prf:
    """``hasher`` of sub-keys of the current roots at each call; two roots give a ``Digest``.

    ``roots`` has one element.
    """
    current: HashRoots | None = None
    (inner, outer), other = _NO_STATES, None

    def digest(message: bytes) -> bytes:
        nonlocal current, inner, outer, other
        if (present := roots[0]) is not current:
            current = present
            inner, outer = _states(derive(present.own, *label))
            other = None if present.other is None else hasher(derive(present.other, *label))
        within, over = inner(), outer()
        within.update(message)
        over.update(within.digest())
        own = over.digest()[:HASH_BYTES]
        return own if other is None else Digest(own, other(message), late=present.late)

    return digest


def derive(root: bytes, *label: str, length: int = 32) -> bytes:
    """A sub-key of a uniformly random root: HKDF-Expand (RFC 5869, section 3.3); info: the use."""
    return HKDFExpand(_SHA256, length, spell_label(*label)).derive(root)


def spell_label(*parts: str) -> bytes:
    """The parts as one byte string that no other list of parts gives."""
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    return _LABEL + b"".join(len(part).to_bytes(4, "big") + part for part in encoded)


# Random bytes, each drawn from the kernel when needed. Bytes drawn ahead would be repeated by every
# machine that resumes from one snapshot, and a repeated salt and nonce give two records the same
# key and stream. After a resume the kernel reseeds, if the hypervisor reports it (VM Generation ID;
# Linux 5.18), and after a fork.
#
# ``os.getrandom`` keeps the interpreter's lock, unlike ``os.urandom``, which returns tens of
# microseconds later when a writer thread is busy. A signal may cut it short above 256 bytes.

_PIECE: Final = 16  #: bytes: a salt, a nonce or the digits of a token

#: ``random_bytes`` for at most 256 of them, which no signal interrupts.
fresh_bytes: Final[Callable[[int], bytes]] = getattr(os, "getrandom", os.urandom)  # Linux has both


#: So many random bytes, fresh from the kernel.
random_bytes: Final[Callable[[int], bytes]] = os.urandom


def random_pieces(count: int) -> list[bytes]:
    """So many pieces of 16 random bytes, for work on many records at once."""
    drawn = random_bytes(count * _PIECE)
    return [drawn[start : start + _PIECE] for start in range(0, len(drawn), _PIECE)]
