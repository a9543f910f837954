"""Blocks of 16 bytes as words of letters and digits, and back.

Both spellings begin with a letter, so that a token also serves where a name is expected, and both have spare room that
a look-alike rarely fits: only what was written here reads back.
"""

import re
import struct

#: 22 characters, two halves of 8 bytes each: 62^11 is a little more than 2^64, so a half begins with one of 22 letters.
WORD62 = "[A-V][0-9A-Za-z]{10}[A-V][0-9A-Za-z]{10}"
#: 26 characters of five bits each, the first of them with two spare bits: one of g to n.
WORD32 = "[g-n][0-9a-v]{25}"

_LETTERS62 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_PAIRS62 = tuple(one + other for one in _LETTERS62 for other in _LETTERS62)
_NUMBERS62 = {pair: number for number, pair in enumerate(_PAIRS62)}
_LETTERS32 = "0123456789abcdefghijklmnopqrstuv"
_PAIRS32 = tuple(one + other for one in _LETTERS32 for other in _LETTERS32)
_SPARE = 0b10 << 128
_halves = struct.Struct(">QQ").unpack
_IS_WORD32 = re.compile(WORD32).fullmatch


def write62(block: bytes) -> str:
    """16 bytes as a ``WORD62``."""
    # Spelled out: a loop, or a function for each half, takes half as long again, and a request writes several words.
    left, right = _halves(block)
    left, e = divmod(left, 3844)
    left, d = divmod(left, 3844)
    left, c = divmod(left, 3844)
    left, b = divmod(left, 3844)
    left, a = divmod(left, 3844)
    right, j = divmod(right, 3844)
    right, i = divmod(right, 3844)
    right, h = divmod(right, 3844)
    right, g = divmod(right, 3844)
    right, f = divmod(right, 3844)
    one, two = _LETTERS62, _PAIRS62
    return f"{one[left]}{two[a]}{two[b]}{two[c]}{two[d]}{two[e]}{one[right]}{two[f]}{two[g]}{two[h]}{two[i]}{two[j]}"


def read62(word: str) -> bytes | None:
    """The 16 bytes of a text of ``WORD62``'s syntax; ``None`` when a half is beyond 64 bits."""
    left, right = _number62(word[:11]), _number62(word[11:])
    if left >> 64 or right >> 64:
        return None
    return (left << 64 | right).to_bytes(16, "big")


def write32(block: bytes) -> str:
    """16 bytes as a ``WORD32`` (digits of RFC 4648 base32hex in lower case)."""
    left, right = _halves(block)
    two = _PAIRS32
    begin = f"{two[512 | left >> 56]}{two[left >> 46 & 1023]}{two[left >> 36 & 1023]}{two[left >> 26 & 1023]}"
    middle = f"{two[left >> 16 & 1023]}{two[left >> 6 & 1023]}{two[(left & 63) << 4 | right >> 60]}"
    end = f"{two[right >> 50 & 1023]}{two[right >> 40 & 1023]}{two[right >> 30 & 1023]}{two[right >> 20 & 1023]}"
    return f"{begin}{middle}{end}{two[right >> 10 & 1023]}{two[right & 1023]}"


def read32(word: str) -> bytes | None:
    """The 16 bytes of a word; ``None`` for anything that ``write32`` does not write."""
    if _IS_WORD32(word) is None:
        return None
    return (int(word, 32) ^ _SPARE).to_bytes(16, "big")


def _number62(half: str) -> int:
    number = _NUMBERS62["A" + half[0]]
    for start in (1, 3, 5, 7, 9):
        number = number * 3844 + _NUMBERS62[half[start : start + 2]]
    return number
