"""The keyed functions that tokens of a field are made with (``tokenization.base.TokenKeys``)."""

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from typing import NamedTuple

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from proxy.crypto.prf import derive, keyed, random_bytes
from proxy.crypto.secret import Secret

# Format-preserving encryption: FF1 of NIST SP 800-38G on AES.
#
# A numeral string is held as an integer with a length: "0042" is 42 of length 4. That makes the two
# halves plain integer division, and the same code serves every radix.

_ROUNDS = 10
_BLOCK = 16


class _Plan(NamedTuple):
    """Constants that depend on radix, length and tweak length only."""

    split: int  #: radix to the length of the right half: divides a number into its halves
    moduli: tuple[int, int]  #: radix to the length of the half that an even or odd round replaces
    half_bits: int  #: 8 times b of the standard: the bytes that hold the longer half
    take: int  #: d of the standard: bytes of the round function's output that are used
    first: bytes  #: block P of the standard
    padding: bytes


class FF1(Secret):
    """FF1 under one AES key. Not for use from two threads at once.

    The standard asks for at least 100 (revision 1: a million) strings of one length; fewer than 100
    are a ``ValueError``, and between the two bounds the caller must know that a small space hides
    little. The longer half must fit in 15 bytes (72 decimal digits in all), so that a round changes
    one block only.
    """

    __slots__ = ("_aes", "_radix")

    def __init__(self, key: bytes, radix: int) -> None:
        # Chaining single blocks is the standard's own construction (algorithm 6 and step 6.iii of
        # algorithm 7).
        self._aes = Cipher(AES(key), ECB()).encryptor()  # noqa: S305  # the construction of the standard
        self._radix = radix

    def encrypt(self, number: int, length: int, tweak: bytes = b"") -> int:
        """The numeral string that takes this one's place (algorithm 7).

        ``ValueError`` outside the domain.
        """
        plan = _plan(self._radix, length, len(tweak))
        left, right = self._halves(plan, number)
        chain = self._chain(plan, tweak)
        for turn in range(_ROUNDS):
            left, right = (
                right,
                (left + self._round(plan, chain, turn, right)) % plan.moduli[turn & 1],
            )
        return left * plan.split + right

    def decrypt(self, number: int, length: int, tweak: bytes = b"") -> int:
        """The inverse of ``encrypt`` (algorithm 8)."""
        plan = _plan(self._radix, length, len(tweak))
        left, right = self._halves(plan, number)
        chain = self._chain(plan, tweak)
        for turn in range(_ROUNDS - 1, -1, -1):
            left, right = (
                (right - self._round(plan, chain, turn, left)) % plan.moduli[turn & 1],
                left,
            )
        return left * plan.split + right

    def _halves(self, plan: _Plan, number: int) -> tuple[int, int]:
        if not 0 <= number < plan.moduli[0] * plan.moduli[1]:
            raise ValueError("the number has more digits than its length says")
        return divmod(number, plan.split)

    def _chain(self, plan: _Plan, tweak: bytes) -> int:
        """The CBC-MAC's state before its last block, mixed with what is fixed of that block."""
        message = plan.first + tweak + plan.padding
        state = 0
        for start in range(0, len(message) - _BLOCK + 1, _BLOCK):
            block = int.from_bytes(message[start : start + _BLOCK], "big")
            state = int.from_bytes(self._aes.update((state ^ block).to_bytes(_BLOCK, "big")), "big")
        rest = message[len(message) - len(message) % _BLOCK :]
        return state ^ int.from_bytes(rest.ljust(_BLOCK, b"\0"), "big")

    def _round(self, plan: _Plan, chain: int, turn: int, half: int) -> int:
        """The round function: a pseudorandom number of ``take`` bytes of round and half."""
        block = self._aes.update((chain ^ (turn << plan.half_bits) ^ half).to_bytes(_BLOCK, "big"))
        number = int.from_bytes(block, "big")
        if plan.take <= _BLOCK:
            return number >> 8 * (_BLOCK - plan.take)
        more = self._aes.update((number ^ 1).to_bytes(_BLOCK, "big"))
        return int.from_bytes(block + more[: plan.take - _BLOCK], "big")


@lru_cache(maxsize=512)
def _plan(radix: int, length: int, tweak_length: int) -> _Plan:
    left = length // 2
    right = length - left
    half_bytes = ((radix**right - 1).bit_length() + 7) // 8
    if radix**length < 100 or half_bytes >= _BLOCK:
        raise ValueError(f"FF1 of radix {radix} does not take numeral strings of length {length}")
    first = bytes((1, 2, 1)) + radix.to_bytes(3, "big") + bytes((_ROUNDS, left % 256))
    return _Plan(
        split=radix**right,
        moduli=(radix**left, radix**right),
        half_bits=8 * half_bytes,
        take=4 * ((half_bytes + 3) // 4) + 4,
        first=first + length.to_bytes(4, "big") + tweak_length.to_bytes(4, "big"),
        padding=bytes(-(tweak_length + half_bytes + 1) % _BLOCK),
    )


#: Bits of a narrow block: those that a UUID has besides version and variant (RFC 9562).
NARROW_BITS = 122

_pair = struct.Struct(">QL4x").pack
_opened = struct.Struct(">QLL")  #: and the check part, which is 0
_NARROW_CHECK_BITS = NARROW_BITS - 64 - 32
_SHA256 = SHA256()


class FieldKeys(Secret):
    """The token keys of one field.

    Blocks are under a key of the schema, all else under keys of the field.

    A token that carries its record is one encrypted block: record id (8 bytes), number of the value
    (4), check part (4 zero bytes). A block cipher permutes these blocks, so no two tokens collide,
    and a foreign text passes the check part once in 2^32. Of several roots the first makes tokens;
    all of them open. Not thread-safe.
    """

    __slots__ = (
        "__weakref__", "_decrypt", "_digits", "_encrypt", "_label", "_narrow", "_prf", "_text_key",
        "older", "others",
    )  # fmt: skip

    def __init__(self, roots: Sequence[bytes], environment: str, schema: str, field: str) -> None:
        self._label = environment, schema, field
        self.turn(roots)

    def turn(self, roots: Sequence[bytes], coming: Sequence[bytes] = ()) -> None:
        """Have these roots, the one that makes tokens first, and one that another replica of the
        store may make them with already.
        """
        environment, schema, field = self._label
        root = roots[0]
        #: the same keys under the roots before, the newest first
        self.older = tuple(FieldKeys((before,), *self._label) for before in roots[1:])
        #: those and the coming one, the newest first: all that only open
        self.others = (*(FieldKeys((root,), *self._label) for root in coming), *self.older)
        block = derive(root, "token block", environment, schema)
        # One block at a time is the bare block cipher; the pair is unique, so no two blocks are
        # ever equal.
        cipher = Cipher(AES(block), ECB())  # noqa: S305  # one block, never a message
        self._encrypt = cipher.encryptor().update
        self._decrypt = cipher.decryptor().update
        self._narrow = FF1(derive(root, "token narrow block", environment, schema), 2)
        self._digits = FF1(derive(root, "token digits", environment, schema, field), 10)
        self._text_key = derive(root, "token text", environment, schema, field)
        self._prf = keyed(self._text_key)

    def block(self, rid: int, number: int) -> bytes:
        """16 bytes: the sealed pair (record id < 2^64, value number < 2^32) and its check."""
        return self._encrypt(_pair(rid, number))

    def blocks(self, rid: int, numbers: Iterable[int]) -> bytes:
        """The blocks of several value numbers of a record, enciphered together."""
        return self._encrypt(b"".join(map(_pair, repeat(rid), numbers)))

    def open_block(self, block: bytes) -> tuple[int, int] | None:
        """The pair a ``block`` carries, or ``None`` if its check fails (a look-alike)."""
        if len(block) != 16:
            return None
        rid, number, check = _opened.unpack(self._decrypt(block))
        if check:
            return next(filter(None, [keys.open_block(block) for keys in self.others]), None)
        return rid, number

    def open_blocks(self, blocks: bytes) -> list[int | None]:
        """The record ids that many blocks behind each other carry; as ``open_block``."""
        rids: list[int | None] = []
        for rid, _, check in _opened.iter_unpack(self._decrypt(blocks)):
            if check:
                pair = self.open_block(blocks[16 * len(rids) : 16 * len(rids) + 16])
                rids.append(None if pair is None else pair[0])
            else:
                rids.append(rid)
        return rids

    def narrow_block(self, rid: int, number: int) -> int:
        """The same pair sealed in 122 bits, with 26 zero bits as its check part (FF1 over bits)."""
        pair = int.from_bytes(rid.to_bytes(8, "big") + number.to_bytes(4, "big"), "big")
        return self._narrow.encrypt(pair << _NARROW_CHECK_BITS, NARROW_BITS)

    def open_narrow_block(self, bits: int) -> tuple[int, int] | None:
        """The pair in a ``narrow_block``; ``None`` for a look-alike (missed once in 2^26)."""
        plaintext = self._narrow.decrypt(bits, NARROW_BITS)
        pair, check = divmod(plaintext, 1 << _NARROW_CHECK_BITS)
        if check:
            return next(filter(None, [keys.open_narrow_block(bits) for keys in self.others]), None)
        return divmod(pair, 1 << 32)

    def prf(self, text: str, length: int) -> bytes:
        """``length`` bytes (to 8160), a keyed pseudorandom function of the field and ``text``."""
        message = text.encode("utf-8", "surrogatepass")
        if length <= 32:
            # HKDF-Expand of one block, with the keyed state at hand
            return self._prf(message + b"\x01")[:length]
        return HKDFExpand(_SHA256, length, message).derive(self._text_key)

    def permute(self, digits: str, tweak: bytes) -> str:
        """A keyed permutation of decimal digit strings of one length, 2 to 56 digits, that leaves
        none in its place.

        It is FF1, one step on, and back through FF1: one cycle through all strings of the length,
        in a secret order. Fewer than 6 digits are below what NIST SP 800-38G rev. 1 asks for: still
        a permutation, but a small one.
        """
        length = len(digits)
        number = self._digits.encrypt(int(digits), length, tweak)
        return str(self._digits.decrypt((number + 1) % 10**length, length, tweak)).zfill(length)

    #: ``length`` bytes from the system's source of randomness.
    random = staticmethod(random_bytes)
