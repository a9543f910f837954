"""Numbers and telephone numbers: ``numeric`` swaps digits and nothing else."""

from dataclasses import dataclass

from proxy.tokenization.base import Resolution, Tokenizer, TokenKeys
from proxy.tokenization.common import Binding
from proxy.tokenization.digits import DigitRule, DigitTokenizer
from proxy.tokenization.options import SAME, Given, Parser

#: Options that keep digits in place.
KEPT = {
    "keep_first": "how many digits at the beginning stay as they are; default 0",
    "keep_last": "how many digits at the end stay as they are; default 0",
}

_TYPICAL = 10  # digits of a telephone number without its country


@dataclass(frozen=True, slots=True)
class Numeric:
    """Tokens with the digits of the value swapped. Short ones resolve by record (``DigitTokenizer.indexed``)."""

    same: bool
    keep_first: int
    keep_last: int
    name: str = "numeric"
    resolution: Resolution = Resolution.INDEXED

    def capacity(self) -> float:
        free = _TYPICAL - self.keep_first - self.keep_last
        return 0.9 * 10.0**free if free > 0 else 1.0

    def bind(self, keys: TokenKeys, kind: str, region: str) -> Tokenizer:
        return DigitTokenizer(Binding(self, keys, kind, region), DigitRule(self.keep_first, self.keep_last))


def _numeric(given: Given) -> Numeric:
    return Numeric(given.flag("same"), given.count("keep_first"), given.count("keep_last"))


NUMERIC = Parser("numeric", {**SAME, **KEPT}, _numeric)
