"""What tokenizers of several shapes share."""

# ruff: noqa: ARG002 - methods of the port take what some shape needs, not what each does

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from proxy.errors import Code, VaultError
from proxy.model.value import Value
from proxy.tokenization.base import Resolution, Shape, TokenKeys
from proxy.tokenization.normal import normalize

#: The pattern of shapes whose tokens cannot be told from ordinary text.
NOWHERE = re.compile(r"(?!)")

#: Draws before a token that is not the value is given up.
TRIES = 100

_BORDER_LEFT = r"(?<![0-9A-Za-z])"
_BORDER_RIGHT = r"(?![0-9A-Za-z])"


def bordered(body: str) -> re.Pattern[str]:
    """The expression between word borders, so that a part of a longer word never counts."""
    return re.compile(f"{_BORDER_LEFT}(?:{body}){_BORDER_RIGHT}")


def unfit(shape: str, reason: str) -> VaultError:
    """The error of a value that cannot have a token of this shape; ``reason`` never shows the value."""
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
        return unfit(self.shape.name, reason)


class BoundTokenizer:
    """The answers that most shapes give alike: nothing sealed, and found by the index or not at all."""

    __slots__ = ("_binding", "pattern", "resolution", "same")

    def __init__(self, binding: Binding, pattern: re.Pattern[str]) -> None:
        self._binding = binding
        self.pattern = pattern
        self.resolution: Resolution = binding.shape.resolution
        self.same: bool = binding.shape.same

    def identify(self, text: str) -> tuple[int, int] | None:
        return None

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
    """Tokens that carry the sealed id of their record: ``seal`` spells a pair, ``unseal`` reads it back."""

    __slots__ = ("_seal", "_takes_json", "_unseal")

    def __init__(
        self,
        binding: Binding,
        pattern: re.Pattern[str],
        seal: Callable[[int, int], str],
        unseal: Callable[[str], tuple[int, int] | None],
        takes_json: bool,
    ) -> None:
        super().__init__(binding, pattern)
        self._seal = seal
        self._unseal = unseal
        self._takes_json = takes_json

    def mint(self, value: Value, rid: int, number: int) -> Value:
        if value.json and not self._takes_json:
            raise self._binding.unfit("it takes text only, and this is not a JSON string")
        token = self._seal(rid, number)
        if token == value.text:
            raise self._binding.unfit("it already is the token that it would get")
        return Value(token)

    def identify(self, text: str) -> tuple[int, int] | None:
        return self._unseal(text) if self.pattern.fullmatch(text) is not None else None


class DrawnTokenizer(ValueTokenizer):
    """Tokens numbered 0 to ``space`` - 1: a number is drawn, or computed of the normal form, and spelled as a token.

    ``space`` says how many tokens there are for a value (and refuses values that do not fit); ``spell`` gives the
    token of a number, or ``None`` where that number has none and the next is to be tried.
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
        length = (size.bit_length() + 7) // 8 + 8  # 64 bits more than needed: the remainder favours none
        binding = self._binding
        normal = binding.normal(value.text) if self.same else ""
        for attempt in range(TRIES):
            drawn = binding.keys.prf(f"{attempt}:{normal}", length) if self.same else binding.keys.random(length)
            token = self._spell(value, int.from_bytes(drawn, "big") % size)
            if token is None or token.text == value.text:
                continue
            # Other spellings of the value must come to the same attempt, so for them all its own normal form is out.
            if not self.same or binding.normal(token.text) != normal:
                return token
        raise binding.unfit("no token of the shape differs from it")


def text_only(binding: Binding, value: Value) -> None:
    """Refuse what is not a JSON string or form text."""
    if value.json:
        raise binding.unfit("it takes text only, and this is not a JSON string")
