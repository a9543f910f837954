"""Payment card numbers: swapped digits whose check digit holds (ISO/IEC 7812-1, annex B)."""

from dataclasses import dataclass

from proxy.tokenization.base import Resolution, Tokenizer, TokenKeys
from proxy.tokenization.common import Binding
from proxy.tokenization.digits import DigitRule, DigitTokenizer
from proxy.tokenization.numeric import KEPT
from proxy.tokenization.options import SAME, Given, Parser

_TYPICAL = 16
_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)  # a digit doubled, its own digits summed


def luhn_holds(digits: str) -> bool:
    """Whether a string of decimal digits, check digit last, passes the Luhn check."""
    return len(digits) > 1 and _sum([int(digit) for digit in digits]) % 10 == 0


def mend_luhn(digits: list[str], place: int) -> None:
    """Change the one digit at ``place`` so that the check holds; exactly one digit does."""
    numbers = [int(digit) for digit in digits]
    numbers[place] = 0
    missing = -_sum(numbers) % 10
    digits[place] = str(_DOUBLED.index(missing) if (len(digits) - place) % 2 == 0 else missing)


def _sum(numbers: list[int]) -> int:
    return sum(numbers[-1::-2]) + sum([_DOUBLED[number] for number in numbers[-2::-2]])


@dataclass(frozen=True, slots=True)
class Luhn:
    """Tokens that pass the Luhn check. One digit of those swapped is spent on it: the last that is not kept."""

    same: bool
    keep_first: int
    keep_last: int
    name: str = "luhn"
    resolution: Resolution = Resolution.INDEXED

    def capacity(self) -> float:
        free = _TYPICAL - self.keep_first - self.keep_last - 1
        return 0.9 * 10.0**free if free > 0 else 1.0

    def bind(self, keys: TokenKeys, kind: str, region: str) -> Tokenizer:
        rule = DigitRule(self.keep_first, self.keep_last, luhn_holds, mend_luhn)
        return DigitTokenizer(Binding(self, keys, kind, region), rule)


def _luhn(given: Given) -> Luhn:
    return Luhn(given.flag("same"), given.count("keep_first"), given.count("keep_last"))


LUHN = Parser("luhn", {**SAME, **KEPT}, _luhn)
