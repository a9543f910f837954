"""Swapping the digits of a written number: signs, spaces and separators stay where they are.

Some digits may be kept at either end. A zero that leads the swapped digits stays a zero (the trunk
zero of a telephone number, the zero before a decimal point), and any other leading digit is never
swapped for a zero; so no token loses a digit, and a JSON number stays one.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from proxy.errors import VaultError
from proxy.model.schema import Value
from proxy.tokenization.base import SAME, Parser, Resolution, ShapeOptions, Tokenizer, TokenKeys
from proxy.tokenization.common import MOST_DRAWS, Binding, ValueTokenizer

#: Fewest swapped digits of a token that can be looked up.
INDEXED_DIGITS = 6
#: More digits than these no number of a person has; FF1 takes this many (``TokenKeys.permute``).
MOST_DIGITS = 56

_LEAST = (0, *[10**digits for digits in range(MOST_DIGITS)])  #: number of so many digits

_ALLOWED = r"[\d\s+\-./(),:;#*'_\u00ad\u200b-\u200f\u2010-\u2015\u2019\u202a-\u202e\u2060-\u2069\u2212\ufeff]*"
_WRITTEN = re.compile(_ALLOWED)
#: Nearly every number is ASCII digits once these are left out; to see that takes a fraction of the
#: time.
_SEPARATORS = b" +-./(),:;#*'_"
_RESEMBLES = re.compile(r"(?=[^0-9]*[0-9])" + _ALLOWED)
_RUNS = re.compile(r"(\d+)")
_JSON_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
#: Finds numbers inside running text: digits with the separators of telephone numbers, not those of
#: lists.
NUMBER_IN_TEXT = re.compile(
    r"(?<![0-9A-Za-z])[+(\-]?\(?[0-9](?:[0-9 "
    r"\u00a0\u202f().'/\u2010-\u2015\-]{0,80}[0-9])?(?![0-9A-Za-z])"
)


def digits_of(text: str) -> str:
    """The digits of a number, in whatever manner it is written; none of any other text."""
    bare = text.encode("ascii", "replace").translate(None, _SEPARATORS)
    if bare.isdigit():
        return bare.decode()
    if _WRITTEN.fullmatch(text) is None:
        return ""
    digits = "".join(_RUNS.findall(text))
    return digits if digits.isascii() else "".join([str(int(digit)) for digit in digits])


#: Changes the digits of a token in place so that a check digit holds; the number is the place it
#: may change.
Mend = Callable[[list[str], int], None]


@dataclass(frozen=True, slots=True)
class DigitRule:
    """Digits of a number that are swapped, and those that stay."""

    first: int  #: digits kept at the beginning
    last: int  #: digits kept at the end
    checked: Callable[[str], bool] | None = None  #: a check that digits must pass, e.g. Luhn's
    #: with ``checked``: spends the last swapped digit to make the check hold
    mend: Mend | None = None


class Swapped(msgspec.Struct, frozen=True, gc=False):
    """The digits of one number and which of them are swapped."""

    value: Value
    digits: str
    start: int  #: swapped are the digits start..end-1
    end: int
    leads: bool  #: whether the first swapped digit must not become a zero

    @property
    def freedom(self) -> int:
        """Number of digits that are swapped freely."""
        return self.end - self.start

    def write(self, swapped: str, mend: Mend | None) -> Value:
        """The number with other digits in the swapped places."""
        digits = f"{self.digits[: self.start]}{swapped}{self.digits[self.end :]}"
        if mend is not None:
            single = list(digits)
            mend(single, self.end)
            digits = "".join(single)
        parts = _RUNS.split(self.value.text)  # the runs of digits are every second part
        start = 0
        for position in range(1, len(parts), 2):
            end = start + len(parts[position])
            parts[position] = digits[start:end]
            start = end
        return Value("".join(parts), self.value.json)


class DigitTokenizer(ValueTokenizer):
    """Random digits, or with ``same`` a keyed permutation (FF1) of the digits of the normal form.

    With ``same`` the token is written as the normal form is, so that equal values get equal texts;
    different normal forms never share a token.
    """

    __slots__ = ("_free", "_rule")

    def __init__(self, binding: Binding, rule: DigitRule) -> None:
        super().__init__(binding, NUMBER_IN_TEXT)
        self._rule = rule
        #: whether every digit is drawn, and no other number has to come of it
        self._free = not self.same and rule == DigitRule(0, 0)

    def mint(self, value: Value, rid: int, number: int) -> Value:  # noqa: ARG002  # the port
        text = value.text
        digits = text[1:] if text[:1] == "+" and not value.json else text
        size = len(digits)
        # ``+46701234567`` and its like, as nearly always: what ``_token`` makes of it, at once
        if (
            self._free
            and INDEXED_DIGITS <= size <= MOST_DIGITS
            and digits.isascii()
            and digits.isdigit()
            and digits[0] != "0"
        ):
            least = _LEAST[size]
            drawn = int.from_bytes(self._binding.keys.random(size // 2 + 9), "big")
            drawn_digits = str(least + drawn % (9 * least))
            if drawn_digits != digits:
                return Value(text[: len(text) - size] + drawn_digits, value.json)
        return self._token(value)

    def _token(self, value: Value) -> Value:
        # the value as sent must fit, whatever its normal form makes of it
        swapped = self._read(value)
        if self.same:
            if not value.json:
                swapped = self._read(Value(self._binding.normal(value.text)))
            token = swapped.write(self._permuted(swapped), self._rule.mend)
            if token.text != value.text:
                return token
        else:
            for _ in range(MOST_DRAWS):
                token = swapped.write(self._random(swapped), self._rule.mend)
                if token.text != value.text:
                    return token
        raise self._binding.unfit("no other digits can take its place")

    def resembles(self, text: str) -> bool:
        return _RESEMBLES.fullmatch(text) is not None

    def indexed(self, token: Value) -> bool:
        digits, rule = token.text.removeprefix("+"), self._rule
        if rule.checked is None and not token.json and digits.isascii() and digits.isdigit():
            # whatever its first digit, as nearly always
            swapped = len(digits) - rule.first - rule.last
            if swapped > INDEXED_DIGITS and len(digits) <= MOST_DIGITS:
                return self.resolution is Resolution.INDEXED
        try:
            return (
                self.resolution is Resolution.INDEXED
                and (read := self._read(token)).end - read.start >= INDEXED_DIGITS
            )
        except VaultError:
            return False

    def _read(self, value: Value) -> Swapped:
        unfit = self._binding.unfit
        bare = value.text.encode("ascii", "replace").translate(None, _SEPARATORS)
        digits = bare.decode() if bare.isdigit() and not value.json else self._digits(value)
        if len(digits) > MOST_DIGITS:
            raise unfit(f"it has more than {MOST_DIGITS} digits")
        rule = self._rule
        if rule.checked is not None and not rule.checked(digits):
            raise unfit("its check digit does not hold")
        start, end = rule.first, len(digits) - rule.last - (rule.mend is not None)
        if end <= start:
            raise unfit("it has no digits left to swap beside those that are kept")
        several = end - start > 1
        if several and digits[start] == "0":
            return Swapped(value, digits, start + 1, end, leads=False)
        # A digit that is swapped alone may become a zero, unless it leads a longer JSON number.
        leads = digits[start] != "0" and (several or (value.json and len(digits) > 1))
        return Swapped(value, digits, start, end, leads)

    def _digits(self, value: Value) -> str:
        written = _JSON_NUMBER if value.json else _WRITTEN
        if written.fullmatch(value.text) is None:
            raise self._binding.unfit(
                "it takes digits with spaces and separators, or a JSON number without exponent"
            )
        return digits_of(value.text)  # of every script

    def _random(self, swapped: Swapped) -> str:
        count = swapped.end - swapped.start
        drawn = int.from_bytes(self._binding.keys.random(count // 2 + 9), "big")
        if swapped.leads:
            least = 10 ** (count - 1)
            return str(least + drawn % (9 * least))
        return str(drawn % 10**count).zfill(count)

    def _permuted(self, swapped: Swapped) -> str:
        digits = swapped.digits[swapped.start : swapped.end]
        if swapped.freedom == 1:
            return self._turned(digits, swapped.leads)
        # Kept digits choose the permutation. A digit that is mended is not kept: it follows from
        # the others, and with it two numbers could come to one token.
        behind = len(swapped.digits) - self._rule.last
        tweak = f"{swapped.digits[: swapped.start]}.{swapped.digits[behind:]}".encode()
        permute = self._binding.keys.permute
        digits = permute(digits, tweak)
        # One cycle runs through all strings, so walking on to the next that fits is a permutation
        # of those that fit.
        while swapped.leads and digits[0] == "0":
            digits = permute(digits, tweak)
        return digits

    def _turned(self, digit: str, leads: bool) -> str:
        """Shift a single digit by a keyed number of steps: a permutation of ten, or of 1 to 9."""
        step = int.from_bytes(self._binding.keys.prf("one digit", 8), "big")
        if leads:
            return str((int(digit) + step % 8) % 9 + 1)
        return str((int(digit) + 1 + step % 9) % 10)


# Payment card numbers: swapped digits whose check digit holds (ISO/IEC 7812-1, annex B).

_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)  # a digit doubled, its own digits summed


def luhn_holds(digits: str) -> bool:
    """Whether a string of decimal digits, check digit last, passes the Luhn check."""
    return len(digits) > 1 and _sum([int(digit) for digit in digits]) % 10 == 0


def mend_luhn(digits: list[str], position: int) -> None:
    """Change the one digit at ``place`` so that the check holds; exactly one digit does."""
    numbers = [int(digit) for digit in digits]
    numbers[position] = 0
    missing = -_sum(numbers) % 10
    digits[position] = str(
        _DOUBLED.index(missing) if (len(digits) - position) % 2 == 0 else missing
    )


def _sum(numbers: list[int]) -> int:
    return sum(numbers[-1::-2]) + sum([_DOUBLED[number] for number in numbers[-2::-2]])


#: Digits of a telephone number without its country, and of a payment card.
_TYPICAL = {"numeric": 10, "luhn": 16}


@dataclass(frozen=True, slots=True)
class DigitShape:
    """Tokens with the digits of the value swapped; those of ``luhn`` pass the Luhn check, on which
    the last digit is spent that is not kept.

    Short ones resolve by record (``DigitTokenizer.indexed``).
    """

    name: str
    same: bool
    rule: DigitRule
    resolution: Resolution = Resolution.INDEXED

    def capacity(self) -> float:
        spent = self.rule.first + self.rule.last + (self.rule.mend is not None)
        free = _TYPICAL[self.name] - spent
        return 0.9 * 10.0**free if free > 0 else 1.0

    def bind(self, keys: TokenKeys, kind: str, region: str) -> Tokenizer:
        return DigitTokenizer(Binding(self, keys, kind, region), self.rule)


def _digits(
    options: ShapeOptions, checked: Callable[[str], bool] | None = None, mend: Mend | None = None
) -> DigitShape:
    rule = DigitRule(options.count("keep_first"), options.count("keep_last"), checked, mend)
    return DigitShape(options.shape, options.flag("same"), rule)


#: Options that keep digits in place.
KEEP_OPTIONS = {
    "keep_first": "how many digits at the beginning stay as they are; default 0",
    "keep_last": "how many digits at the end stay as they are; default 0",
}
NUMERIC = Parser(
    "numeric",
    {**SAME, **KEEP_OPTIONS},
    _digits,
    kind="number",
    looks_like="number",
    sometimes_short=True,
)
LUHN = Parser(
    "luhn",
    {**SAME, **KEEP_OPTIONS},
    lambda options: _digits(options, luhn_holds, mend_luhn),
    kind="card",
    looks_like="number",
)
