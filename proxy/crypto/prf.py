"""Keyed hashing and key derivation: HMAC-SHA-256 (RFC 2104) and HKDF-SHA-256 (RFC 5869).

Every sub-key is derived with a label that spells its use, part by part with its length, so that no
two uses can ever meet in one key ("a", "bc" is another key than "ab", "c").
"""

import os
import struct
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


# Random bytes from the operating system, fetched in blocks.
#
# A call to the system gives up the interpreter's lock, and with a busy writer thread it comes back
# tens of microseconds later; four such calls a request were a third of its cost. A block is cut
# into pieces at once and a piece leaves it when it is handed out, so that nothing of it stays
# behind. A child process starts with no pieces, so that parent and child never hand out the same
# bytes.


_BLOCK: Final = 8192
_PIECE: Final = 16  # bytes; nearly all that is drawn is a salt, a nonce or the digits of a token
_cut = struct.Struct(f"{_PIECE}s" * (_BLOCK // _PIECE)).unpack


class _Pool:
    """For the thread of the event loop alone, as all sealing and minting is."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def take(self, length: int) -> bytes:
        pieces = self._pieces
        if length > _PIECE:
            return os.urandom(length) if length > _BLOCK // 8 else self._join(length)
        if not pieces:
            pieces.extend(_cut(os.urandom(_BLOCK)))
        return pieces.pop()[:length]

    def several(self, count: int) -> list[bytes]:
        pieces = self._pieces
        while len(pieces) < count:
            pieces.extend(_cut(os.urandom(_BLOCK)))
        first = len(pieces) - count
        taken = pieces[first:]
        del pieces[first:]
        return taken

    def clear(self) -> None:
        self._pieces.clear()

    def _join(self, length: int) -> bytes:
        return b"".join([self.take(_PIECE) for _ in range(-(-length // _PIECE))])[:length]


_pool = _Pool()
os.register_at_fork(after_in_child=_pool.clear)

random_bytes = _pool.take
#: So many pieces of 16 random bytes, for work on many records at once.
random_pieces = _pool.several
