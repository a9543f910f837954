"""Base classes and alphabets that tokenizers of several shapes share."""

import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.tokenization.base import Resolution, SealedSpelling, Shape, TokenKeys
from proxy.tokenization.normalize import normalize

# ruff: noqa: ARG002 - methods of the port take what some shape needs, not what each does

#: The pattern of shapes whose tokens cannot be told from ordinary text.
NEVER_MATCHES = re.compile(r"(?!)")

#: Draws before a token that is not the value is given up.
MOST_DRAWS = 100

_BORDER_LEFT = r"(?<![0-9A-Za-z])"
_BORDER_RIGHT = r"(?![0-9A-Za-z])"


def bordered(body: str) -> re.Pattern[str]:
    """The expression between word borders, so that a part of a longer word never counts."""
    return re.compile(f"{_BORDER_LEFT}(?:{body}){_BORDER_RIGHT}")


def unfit_value(shape: str, reason: str) -> VaultError:
    """The error of a value that this shape cannot take; ``reason`` never shows it."""
    return VaultError(Code.VALUE_UNFIT, f"A value does not fit the token shape {shape}: {reason}.")


class Binding(NamedTuple):
    """A shape joined to one field."""

    shape: Shape
    keys: TokenKeys
    kind: str
    region: str

    def normal(self, text: str) -> str:
        """The normal form of a value of the field."""
        return normalize(self.kind, text, self.region)

    def unfit(self, reason: str) -> VaultError:
        """``unfit`` for this shape."""
        return unfit_value(self.shape.name, reason)


class BoundTokenizer:
    """The answers most shapes share: nothing sealed, all in the index or nothing."""

    __slots__ = ("_binding", "pattern", "resolution", "same", "spelling")

    def __init__(self, binding: Binding, pattern: re.Pattern[str]) -> None:
        self._binding = binding
        self.pattern = pattern
        self.resolution: Resolution = binding.shape.resolution
        self.same: bool = binding.shape.same
        self.spelling: SealedSpelling | None = None

    def identify(self, text: str) -> tuple[int, int] | None:
        return None

    def carried(self, texts: Sequence[str]) -> list[int | None]:
        return [None if (pair := self.identify(text)) is None else pair[0] for text in texts]

    def resembles(self, text: str) -> bool:
        return self.pattern.fullmatch(text) is not None

    def indexed(self, token: Value) -> bool:
        return self.resolution is Resolution.INDEXED


class ValueTokenizer(BoundTokenizer, ABC):
    """Tokens made of the value, or of nothing, but not of the record."""

    __slots__ = ()

    def mint(self, value: Value, rid: int, number: int) -> Value:
        return self._token(value)

    @abstractmethod
    def _token(self, value: Value) -> Value:
        """The token of a value; refuses as ``mint`` does."""


class SealedTokenizer(BoundTokenizer):
    """Tokens that carry the sealed id of their record, and ``unseal`` reads it back."""

    __slots__ = ("_spelling", "_takes_json", "_unseal")

    def __init__(
        self,
        binding: Binding,
        pattern: re.Pattern[str],
        spelling: SealedSpelling,
        unseal: Callable[[str], tuple[int, int] | None],
        takes_json: bool,
    ) -> None:
        super().__init__(binding, pattern)
        self.spelling = self._spelling = spelling
        self._unseal = unseal
        self._takes_json = takes_json

    def mint(self, value: Value, rid: int, number: int) -> Value:
        if value.json and not self._takes_json:
            raise self._binding.unfit("it takes text only, and this is not a JSON string")
        block, write, before, behind, *_ = self._spelling
        token = f"{before}{write(block(rid, number))}{behind}"
        if token == value.text:
            raise self._binding.unfit("it already is the token that it would get")
        return Value(token)

    def identify(self, text: str) -> tuple[int, int] | None:
        return self._unseal(text) if self.pattern.fullmatch(text) is not None else None

    def carried(self, texts: Sequence[str]) -> list[int | None]:
        unseal_each = self._spelling.unseal_each
        if unseal_each is None or not texts or not all(map(self.pattern.fullmatch, texts)):
            return super().carried(texts)
        return unseal_each(texts)


class DrawnTokenizer(ValueTokenizer):
    """Tokens numbered 0 to ``space`` - 1: a number is drawn, or computed of the normal form, and
    spelled as a token.

    ``space`` says how many tokens there are for a value (and refuses values that do not fit);
    ``spell`` gives the token of a number, or ``None`` where that number has none and the next is to
    be tried.
    """

    __slots__ = ("_space", "_spell")

    def __init__(
        self,
        binding: Binding,
        pattern: re.Pattern[str],
        space: Callable[[Value], int],
        spell: Callable[[Value, int], Value | None],
    ) -> None:
        super().__init__(binding, pattern)
        self._space = space
        self._spell = spell

    def _token(self, value: Value) -> Value:
        size = self._space(value)
        # 64 bits more than needed: the remainder favours none
        length = (size.bit_length() + 7) // 8 + 8
        binding = self._binding
        normal = binding.normal(value.text) if self.same else ""
        for attempt in range(MOST_DRAWS):
            drawn = (
                binding.keys.prf(f"{attempt}:{normal}", length)
                if self.same
                else binding.keys.random(length)
            )
            token = self._spell(value, int.from_bytes(drawn, "big") % size)
            if token is None or token.text == value.text:
                continue
            # Other spellings of the value must come to the same attempt, so for them all its own
            # normal form is out.
            if not self.same or binding.normal(token.text) != normal:
                return token
        raise binding.unfit("no token of the shape differs from it")


def text_only(binding: Binding, value: Value) -> None:
    """Refuse any value but a JSON string or form text."""
    if value.json:
        raise binding.unfit("it takes text only, and this is not a JSON string")


# Blocks of 16 bytes as words of letters and digits, and back.
#
# Both spellings begin with a letter, so that a token also serves as a name, and both have spare
# room that a look-alike rarely fits: only words written here can be read.

#: 22 characters, two halves of 8 bytes each: 62^11 is a little more than 2^64, so a half begins
#: with one of 22 letters.
WORD62 = "[A-V][0-9A-Za-z]{10}[A-V][0-9A-Za-z]{10}"
#: 26 characters of five bits each, the first of them with two spare bits: one of g to n.
WORD32 = "[g-n][0-9a-v]{25}"

_LETTERS62 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_PAIRS62 = tuple(one + other for one in _LETTERS62 for other in _LETTERS62)
_LETTERS32 = "0123456789abcdefghijklmnopqrstuv"
_PAIRS32 = tuple(one + other for one in _LETTERS32 for other in _LETTERS32)
_SPARE = 0b10 << 128
_halves = struct.Struct(">QQ")
_IS_WORD32 = re.compile(WORD32).fullmatch


def write62(block: bytes) -> str:
    """16 bytes as a ``WORD62``."""
    # Spelled out: a loop, or a function for each half, takes half as long again, and a request
    # writes several words.
    left, right = _halves.unpack(block)
    left, b = divmod(left, 14776336)  # four letters each, so that the rest are small numbers
    left, a = divmod(left, 14776336)
    right, d = divmod(right, 14776336)
    right, c = divmod(right, 14776336)
    one, two = _LETTERS62, _PAIRS62
    return f"{one[left // 3844]}{two[left % 3844]}{two[a // 3844]}{two[a % 3844]}{two[b // 3844]}{two[b % 3844]}{one[right // 3844]}{two[right % 3844]}{two[c // 3844]}{two[c % 3844]}{two[d // 3844]}{two[d % 3844]}"


_VALUES62 = bytes.maketrans(_LETTERS62.encode(), bytes(range(62)))
_ZEROS62 = b"A" * 5  #: before a half: 16 digits are read at once
_HALF62 = 11  #: letters


@lru_cache(maxsize=256)  # the pages of lists have few lengths
def _lanes(words: int) -> tuple[int, ...]:
    """Of so many words of 32 bytes every second byte, pair, four and eight of them, as masks."""
    return tuple(
        int.from_bytes((bytes(size) + b"\xff" * size) * (16 * words // size), "big")
        for size in (1, 2, 4, 8)
    )


_ONE_WORD = _lanes(1)
_LOWER = (1 << 128) - 1


def _numbers62(text: bytes, words: int) -> bytes:
    """Two numbers of 16 bytes for each of so many words in a text.

    Digits are put together two by two, in all words at once: those of base 62, then of 62², ….
    """
    halves = [text[start : start + _HALF62] for start in range(0, len(text), _HALF62)]
    number = int.from_bytes((_ZEROS62 + _ZEROS62.join(halves)).translate(_VALUES62), "big")
    ones, twos, fours, eights = _lanes(words)
    number = (number & ones) + (number >> 8 & ones) * 62
    number = (number & twos) + (number >> 16 & twos) * 62**2
    number = (number & fours) + (number >> 32 & fours) * 62**4
    number = (number & eights) + (number >> 64 & eights) * 62**8
    return number.to_bytes(32 * words, "big")


def read62(word: str) -> bytes | None:
    """The 16 bytes of a text of ``WORD62``'s syntax; ``None`` if a half exceeds 64 bits."""
    text, (ones, twos, fours, eights) = word.encode(), _ONE_WORD
    halves = _ZEROS62 + text[:_HALF62] + _ZEROS62 + text[_HALF62:]
    number = int.from_bytes(halves.translate(_VALUES62), "big")
    number = (number & ones) + (number >> 8 & ones) * 62
    number = (number & twos) + (number >> 16 & twos) * 62**2
    number = (number & fours) + (number >> 32 & fours) * 62**4
    number = (number & eights) + (number >> 64 & eights) * 62**8
    left, right = number >> 128, number & _LOWER
    return None if left >> 64 or right >> 64 else (left << 64 | right).to_bytes(16, "big")


def read62_each(words: Sequence[str]) -> bytes | None:
    """``read62`` of each, joined; ``None`` if a half of any exceeds 64 bits."""
    numbers = _numbers62("".join(words).encode(), len(words))
    starts = range(0, len(numbers), 16)
    if any(b"".join([numbers[start : start + 8] for start in starts])):
        return None
    return b"".join([numbers[start + 8 : start + 16] for start in starts])


def write32(block: bytes) -> str:
    """16 bytes as a ``WORD32`` (digits of RFC 4648 base32hex in lower case)."""
    left, right = _halves.unpack(block)
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
