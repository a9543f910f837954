"""Tokens that are alike for all: ``fixed``, ``zero`` and ``one``. They resolve by their record."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from proxy.model.schema import Value
from proxy.tokenization.base import Parser, Resolution, ShapeOptions, Tokenizer, TokenKeys
from proxy.tokenization.common import NEVER_MATCHES, Binding, ValueTokenizer, bordered

#: Characters between the digits of a written number.
_BETWEEN = r"\s+\-./(),:;#*'_"
# Neither goes back over a run that it has read: texts of any length are read in one go.
_DIGITS_ONLY = re.compile(rf"[{_BETWEEN}]*+\d[\d{_BETWEEN}]*+")
_LOOKS_ZERO = re.compile(rf"(?<![0{_BETWEEN}])[{_BETWEEN}]*+0[0{_BETWEEN}]*+")


class ConstantTokenizer(ValueTokenizer):
    """``choose`` gives the token of a value, or ``None`` when the value cannot have one."""

    __slots__ = ("_choose",)

    def __init__(
        self, binding: Binding, pattern: re.Pattern[str], choose: Callable[[Value], Value | None]
    ) -> None:
        super().__init__(binding, pattern)
        self._choose = choose

    def _token(self, value: Value) -> Value:
        token = self._choose(value)
        if token is None:
            raise self._binding.unfit(
                "it takes text and JSON numbers, and this is another JSON type"
            )
        if token.text == value.text:
            raise self._binding.unfit("it already is the token that it would get")
        return token


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same text or number for every value."""

    value: Value
    name: str = "fixed"
    same: bool = False
    resolution: Resolution = Resolution.BY_RECORD

    def capacity(self) -> float:
        return 1.0

    def bind(self, keys: TokenKeys, kind: str, region: str) -> Tokenizer:
        pattern = bordered(re.escape(self.value.text))
        return ConstantTokenizer(Binding(self, keys, kind, region), pattern, lambda _: self.value)


@dataclass(frozen=True, slots=True)
class Digit:
    """``zero`` and ``one``: a number for numbers, a text for text."""

    name: str
    digit: str
    spread: bool  #: whether a text that is a written number keeps its form, each digit swapped
    same: bool = False
    resolution: Resolution = Resolution.BY_RECORD

    def capacity(self) -> float:
        return 1.0

    def bind(self, keys: TokenKeys, kind: str, region: str) -> Tokenizer:
        pattern = _LOOKS_ZERO if self.spread else NEVER_MATCHES
        return ConstantTokenizer(Binding(self, keys, kind, region), pattern, self._choose)

    def _choose(self, value: Value) -> Value | None:
        if value.json:
            return Value(self.digit, json=True) if value.text[:1] in "-0123456789" else None
        if self.spread and _DIGITS_ONLY.fullmatch(value.text) is not None:
            return Value(re.sub(r"\d", self.digit, value.text))
        return Value(self.digit)


def _fixed(options: ShapeOptions) -> Fixed:
    value = options.options.get("value")
    if isinstance(value, str) and value:
        return Fixed(Value(value))
    if isinstance(value, (int, float)):
        return Fixed(Value(json.dumps(value, allow_nan=False), json=True))
    raise ValueError(
        "token shape fixed needs value: the text, number, true or false that stands for every value"
    )


FIXED_SHAPE = Parser("fixed", {"value": "the text or number that stands for every value"}, _fixed)
ZERO = Parser(
    "zero", {}, lambda options: Digit(options.shape, "0", spread=True), looks_like="number"
)
ONE = Parser(
    "one", {}, lambda options: Digit(options.shape, "1", spread=False), looks_like="number"
)


# ``plain``: no token; the value itself goes to the application, and the vault keeps a copy.


class PlainTokenizer(ValueTokenizer):
    """Returns its input; nothing is a token."""

    __slots__ = ()

    def _token(self, value: Value) -> Value:
        return value


@dataclass(frozen=True, slots=True)
class PlainShape:
    """The shape of fields that the application may see."""

    name: str = "plain"
    same: bool = False
    resolution: Resolution = Resolution.CLEAR

    def capacity(self) -> float:
        return math.inf

    def bind(self, keys: TokenKeys, kind: str, region: str) -> Tokenizer:
        return PlainTokenizer(Binding(self, keys, kind, region), NEVER_MATCHES)


CLEAR_TEXT = Parser("plain", {}, lambda _: PlainShape())
