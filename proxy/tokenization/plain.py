"""``plain``: no token; the value itself goes on to the application, and the vault keeps a copy."""

import math
from dataclasses import dataclass

from proxy.model.value import Value
from proxy.tokenization.base import Resolution, Tokenizer, TokenKeys
from proxy.tokenization.common import NOWHERE, Binding, ValueTokenizer
from proxy.tokenization.options import Parser


class PlainTokenizer(ValueTokenizer):
    """Gives back what it gets; nothing is a token."""

    __slots__ = ()

    def _token(self, value: Value) -> Value:
        return value


@dataclass(frozen=True, slots=True)
class Plain:
    """The shape of fields that the application may see."""

    name: str = "plain"
    same: bool = False
    resolution: Resolution = Resolution.CLEAR

    def capacity(self) -> float:
        return math.inf

    def bind(self, keys: TokenKeys, kind: str, region: str) -> Tokenizer:
        return PlainTokenizer(Binding(self, keys, kind, region), NOWHERE)


PLAIN = Parser("plain", {}, lambda _: Plain())
