"""The keyed functions that tokens of one field are made with (``proxy.tokenization.base.TokenKeys``)."""

import struct

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from proxy.crypto.fpe import FF1
from proxy.crypto.prf import derive, keyed
from proxy.crypto.randomness import random_bytes
from proxy.crypto.secret import Secret

#: Bits of a narrow block: what a UUID leaves free beside its version and variant (RFC 9562).
NARROW_BITS = 122

_CHECK = b"\x00\x00\x00\x00"
_pair = struct.Struct(">QL4x").pack
_NARROW_CHECK_BITS = NARROW_BITS - 64 - 32
_SHA256 = SHA256()


class FieldKeys(Secret):
    """The token keys of one field. Blocks are under a key of the schema, all else under keys of the field.

    A token that carries its record is one encrypted block: record id (8 bytes), number of the value (4), check part
    (4 zero bytes). One block under a block cipher is a permutation of the pairs, so no two tokens meet, and a text
    that was not made here opens to a good check part once in 2^32. Not for use from two threads at once.
    """

    __slots__ = ("_decrypt", "_digits", "_encrypt", "_narrow", "_prf", "_text_key")

    def __init__(self, root: bytes, environment: str, schema: str, field: str) -> None:
        block = derive(root, "token block", environment, schema)
        # One block at a time is the bare block cipher; the pair is unique, so no two blocks are ever equal.
        cipher = Cipher(AES(block), ECB())  # noqa: S305  # one block, never a message
        self._encrypt = cipher.encryptor().update
        self._decrypt = cipher.decryptor().update
        self._narrow = FF1(derive(root, "token narrow block", environment, schema), 2)
        self._digits = FF1(derive(root, "token digits", environment, schema, field), 10)
        self._text_key = derive(root, "token text", environment, schema, field)
        self._prf = keyed(self._text_key)

    def block(self, rid: int, number: int) -> bytes:
        """16 bytes: the sealed pair (record id 0..2^64-1, value number 0..2^32-1) with its check part."""
        return self._encrypt(_pair(rid, number))

    def open_block(self, block: bytes) -> tuple[int, int] | None:
        """The pair a ``block`` carries, or ``None`` when its check part does not hold (a look-alike)."""
        if len(block) != 16:
            return None
        plain = self._decrypt(block)
        if plain[12:] != _CHECK:
            return None
        return int.from_bytes(plain[:8], "big"), int.from_bytes(plain[8:12], "big")

    def narrow_block(self, rid: int, number: int) -> int:
        """The same pair sealed in 122 bits, with 26 zero bits as its check part (FF1 over bits)."""
        pair = int.from_bytes(rid.to_bytes(8, "big") + number.to_bytes(4, "big"), "big")
        return self._narrow.encrypt(pair << _NARROW_CHECK_BITS, NARROW_BITS)

    def open_narrow_block(self, bits: int) -> tuple[int, int] | None:
        """The pair a ``narrow_block`` carries, or ``None`` for a look-alike (missed once in 2^26)."""
        plain = self._narrow.decrypt(bits, NARROW_BITS)
        pair, check = divmod(plain, 1 << _NARROW_CHECK_BITS)
        return None if check else divmod(pair, 1 << 32)

    def prf(self, text: str, length: int) -> bytes:
        """``length`` bytes (to 8160), a keyed pseudorandom function of the field and ``text``."""
        message = text.encode("utf-8", "surrogatepass")
        if length <= 32:
            return self._prf(message + b"\x01")[:length]  # HKDF-Expand of one block, with the keyed state at hand
        return HKDFExpand(_SHA256, length, message).derive(self._text_key)

    def permute(self, digits: str, tweak: bytes) -> str:
        """A keyed permutation of decimal digit strings of one length, 2 to 56 digits, that leaves none in its place.

        It is FF1, one step on, and back through FF1: one cycle through all strings of the length, in a secret order.
        Fewer than 6 digits are below what NIST SP 800-38G rev. 1 asks for: still a permutation, but a small one.
        """
        length = len(digits)
        number = self._digits.encrypt(int(digits), length, tweak)
        return str(self._digits.decrypt((number + 1) % 10**length, length, tweak)).zfill(length)

    def random(self, length: int) -> bytes:
        """``length`` bytes from the system's source of randomness."""
        return random_bytes(length)
