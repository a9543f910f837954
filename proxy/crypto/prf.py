"""Keyed hashing and key derivation: HMAC-SHA-256 (RFC 2104) and HKDF-SHA-256 (RFC 5869).

Every sub-key is derived with a label that spells its use, part by part with its length, so that no
two uses can ever meet in one key ("a", "bc" is another key than "ab", "c").
"""

import os
from collections.abc import Callable
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

#: A keyed function of a message.
Prf = Callable[[bytes], bytes]

#: Bytes of a look-up hash: 2^64 entries before two are expected to collide, and a fifth less file
#: than 32 bytes.
HASH_BYTES = 16

_SHA256 = SHA256()
_LABEL = b"domicile/1"


def keyed(key: bytes) -> Prf:
    """HMAC-SHA-256 under the key, 32 bytes.

    The keyed state is made once and copied for each message.
    """
    state = HMAC(key, _SHA256)

    def prf(message: bytes) -> bytes:
        copy = state.copy()
        copy.update(message)
        return copy.finalize()

    return prf


def hasher(key: bytes) -> Prf:
    """HMAC-SHA-256 under the key, cut to its first 16 bytes (RFC 2104, section 5)."""
    state = HMAC(key, _SHA256)

    def digest(message: bytes) -> bytes:
        copy = state.copy()
        copy.update(message)
        return copy.finalize()[:HASH_BYTES]

    return digest


def hkdf(material: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    """HKDF-SHA-256, extract then expand (RFC 5869); ``length`` is 1..8160.

    ``ValueError`` beyond.
    """
    return HKDF(_SHA256, length, salt, info).derive(material)


def derive(root: bytes, *label: str, length: int = 32) -> bytes:
    """A sub-key of a uniformly random root: HKDF-Expand (RFC 5869, section 3.3) with the labelled
    use as info.
    """
    return HKDFExpand(_SHA256, length, spell_label(*label)).derive(root)


def spell_label(*parts: str) -> bytes:
    """The parts as one byte string that no other list of parts gives."""
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    return _LABEL + b"".join(len(part).to_bytes(4, "big") + part for part in encoded)


# Random bytes, each draw of them from the kernel: nothing is drawn ahead. Bytes that lay ready when
# a machine was snapshotted would be drawn by everything that is resumed from it, and a salt and a
# nonce that come twice give two records one key and one stream. The kernel draws anew after that,
# where the hypervisor tells it (VM Generation ID; Linux 5.18), and after a fork.
#
# ``os.getrandom`` keeps the interpreter's lock, unlike ``os.urandom``, which comes back tens of
# microseconds later when a writer thread is busy. It may be cut short by a signal above 256 bytes.

_PIECE: Final = 16  #: bytes: a salt, a nonce or the digits of a token
_UNINTERRUPTED: Final = 256

_draw: Callable[[int], bytes] = getattr(os, "getrandom", os.urandom)  # Linux alone has the first


def random_bytes(length: int) -> bytes:
    """So many random bytes, fresh from the kernel."""
    return _draw(length) if length <= _UNINTERRUPTED else os.urandom(length)


def random_pieces(count: int) -> list[bytes]:
    """So many pieces of 16 random bytes, for work on many records at once."""
    drawn = random_bytes(count * _PIECE)
    return [drawn[start : start + _PIECE] for start in range(0, len(drawn), _PIECE)]
