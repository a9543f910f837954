"""Format-preserving encryption: FF1 of NIST SP 800-38G on AES.

A numeral string is held as an integer with a length: "0042" is 42 of length 4. That makes the two halves plain
integer division, and the same code serves every radix.
"""

from functools import lru_cache
from typing import NamedTuple

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

from proxy.crypto.secret import Secret

_ROUNDS = 10
_BLOCK = 16


class _Plan(NamedTuple):
    """What depends on the radix, the length and the tweak's length alone."""

    split: int  #: radix to the length of the right half: divides a number into its halves
    moduli: tuple[int, int]  #: radix to the length of the half that an even or odd round replaces
    half_bits: int  #: 8 times b of the standard: the bytes that hold the longer half
    take: int  #: d of the standard: bytes of the round function's output that are used
    first: bytes  #: block P of the standard
    padding: bytes


class FF1(Secret):
    """FF1 under one AES key. Not for use from two threads at once.

    The standard asks for at least 100 (revision 1: a million) strings of one length; fewer than 100 are a
    ``ValueError``, and between the two bounds the caller must know that a small space hides little. The longer half
    must fit in 15 bytes (72 decimal digits in all), so that a round changes one block only.
    """

    __slots__ = ("_aes", "_radix")

    def __init__(self, key: bytes, radix: int) -> None:
        # Chaining single blocks is the standard's own construction (algorithm 6 and step 6.iii of algorithm 7).
        self._aes = Cipher(AES(key), ECB()).encryptor()  # noqa: S305  # the construction of the standard
        self._radix = radix

    def encrypt(self, number: int, length: int, tweak: bytes = b"") -> int:
        """The numeral string that takes this one's place (algorithm 7). ``ValueError`` outside the domain."""
        plan = _plan(self._radix, length, len(tweak))
        left, right = self._halves(plan, number)
        chain = self._chain(plan, tweak)
        for turn in range(_ROUNDS):
            left, right = right, (left + self._round(plan, chain, turn, right)) % plan.moduli[turn & 1]
        return left * plan.split + right

    def decrypt(self, number: int, length: int, tweak: bytes = b"") -> int:
        """The inverse of ``encrypt`` (algorithm 8)."""
        plan = _plan(self._radix, length, len(tweak))
        left, right = self._halves(plan, number)
        chain = self._chain(plan, tweak)
        for turn in range(_ROUNDS - 1, -1, -1):
            left, right = (right - self._round(plan, chain, turn, left)) % plan.moduli[turn & 1], left
        return left * plan.split + right

    def _halves(self, plan: _Plan, number: int) -> tuple[int, int]:
        if not 0 <= number < plan.moduli[0] * plan.moduli[1]:
            raise ValueError("the number has more digits than its length says")
        return divmod(number, plan.split)

    def _chain(self, plan: _Plan, tweak: bytes) -> int:
        """The CBC-MAC's state before its last block, with what no round changes of that block mixed in."""
        message = plan.first + tweak + plan.padding
        state = 0
        for start in range(0, len(message) - _BLOCK + 1, _BLOCK):
            block = int.from_bytes(message[start : start + _BLOCK], "big")
            state = int.from_bytes(self._aes.update((state ^ block).to_bytes(_BLOCK, "big")), "big")
        rest = message[len(message) - len(message) % _BLOCK :]
        return state ^ int.from_bytes(rest.ljust(_BLOCK, b"\0"), "big")

    def _round(self, plan: _Plan, chain: int, turn: int, half: int) -> int:
        """The round function: a pseudorandom number of ``take`` bytes from the round and one half."""
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
