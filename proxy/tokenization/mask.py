"""Masks: a few characters stay readable, every other letter and digit (or what ``type`` names)
becomes the mask character.

White space and ASCII punctuation stay, so that a masked telephone number still looks like one. At
least one character is masked: where everything would stay readable, nothing does. Masks collide, so
they resolve by their record.
"""

import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from proxy.model.schema import Value
from proxy.tokenization.base import Parser, Resolution, ShapeOptions, Tokenizer, TokenKeys
from proxy.tokenization.common import NEVER_MATCHES, Binding, ValueTokenizer, text_only
from proxy.tokenization.normalize import read_date

#: Characters of a value that a mask takes; longer ones would keep others waiting.
LONGEST_MASKED: Final = 1024 * 1024

_YEAR = re.compile(r"(?<![0-9])[0-9]{4}")


@dataclass(frozen=True, slots=True)
class Visible:
    """Parts of a value that stay readable."""

    first: int = 0  #: letters and digits at the beginning
    last: int = 0  #: letters and digits at the end
    domain: bool = False  #: of a mail address, the part after the last ``@``
    year: bool = False  #: of a date, the year


#: Kind of a field -> what its mask leaves readable where the rule says nothing.
DEFAULT_MASK: Mapping[str, Visible] = {
    "text": Visible(),
    "name": Visible(first=1),
    "email": Visible(first=1, domain=True),
    "phone": Visible(last=2),
    "date": Visible(year=True),
    "card": Visible(last=4),
    "number": Visible(),
    "uuid": Visible(last=4),
    "iban": Visible(last=4),
    "national_id": Visible(),
}


def _letter_or_digit(character: str) -> bool:
    return not (character.isspace() or character in string.punctuation)


#: What kinds of characters a mask takes the place of: the option ``type`` (service specification,
#: "Rehash").
TYPES: Mapping[str, Callable[[str], bool]] = {
    "alphanumeric": _letter_or_digit,
    "alphabetic": lambda character: _letter_or_digit(character) and not character.isnumeric(),
    "numeric": str.isnumeric,
    "all": lambda character: not character.isspace(),
}


class _Signs(dict[int, str]):
    """Replacement of each character by code point; ``None`` keeps the character."""

    def __init__(self, kind: str, masked: str, other: str | None = None) -> None:
        super().__init__()
        self._is_masked, self._masked, self._other = TYPES[kind], masked, other

    def __missing__(self, code: int) -> str:
        one = chr(code)
        self[code] = sign = (
            self._masked if self._is_masked(one) else one if self._other is None else self._other
        )
        return sign


@lru_cache(maxsize=256)
def _signs(kind: str, character: str) -> tuple[_Signs, _Signs]:
    """The tables for masked text, and for ``1`` where a character is masked, else ``0``."""
    return _Signs(kind, character), _Signs(kind, "1", "0")


def mask_text(text: str, visible: Visible, character: str, kind: str = "alphanumeric") -> str:
    """The text masked; ``kind`` is one of ``TYPES``."""
    signs, marking = _signs(kind, character)
    head, tail = text, ""
    if visible.domain and "@" in text:
        head, at, domain = text.rpartition("@")
        tail = at + domain
    marks, masked = head.translate(marking), head.translate(signs)
    year = _year(head) if visible.year else None
    if year:
        marks = marks[: year.start] + "0" * len(year) + marks[year.stop :]
        masked = masked[: year.start] + head[year.start : year.stop] + masked[year.stop :]
    begin, end, count = 0, len(head), marks.count("1")
    if count > visible.first + visible.last:
        for _ in range(visible.first):
            begin = marks.index("1", begin) + 1
        for _ in range(visible.last):
            end = marks.rindex("1", 0, end)
    elif not count:
        return text.translate(signs)
    return head[:begin] + masked[begin:end] + head[end:] + tail


def _year(text: str) -> range | None:
    match = _YEAR.search(text) if read_date(text) is not None else None
    return None if match is None else range(*match.span())


@dataclass(frozen=True, slots=True)
class Mask:
    """Mask shown in place of a value: computed in an answer, never stored."""

    visible: Visible = Visible()
    character: str = "*"

    def of(self, text: str) -> str:
        """The mask of a text; where nothing in it could be masked, of signs alone."""
        if len(text) <= LONGEST_MASKED:
            masked = mask_text(text, self.visible, self.character)
            if masked != text:
                return masked
        return self.character * 3


def field_mask(kind: str, options: Mapping[str, object] | None = None) -> Mask:
    """The mask of a field of that kind; ``ValueError`` for options that do not fit."""
    shape = _mask(ShapeOptions("mask", options or {}))
    if shape.character not in string.punctuation and shape.character.isalnum():
        raise ValueError(
            "char of a mask is a sign, such as * or •: nobody could tell a letter apart"
        )
    return Mask(shape.visible or DEFAULT_MASK[kind], shape.character)


@dataclass(frozen=True, slots=True)
class MaskShape:
    """Tokens that show a part of the value."""

    visible: Visible | None  #: ``None``: as the kind of the field says
    character: str
    type: str = "alphanumeric"  #: one of ``TYPES``
    name: str = "mask"
    same: bool = False
    resolution: Resolution = Resolution.BY_RECORD

    def capacity(self) -> float:
        return 1.0

    def bind(self, keys: TokenKeys, kind: str, region: str) -> Tokenizer:
        return MaskTokenizer(
            Binding(self, keys, kind, region), self, self.visible or DEFAULT_MASK[kind]
        )


class MaskTokenizer(ValueTokenizer):
    """Masks the values of one field."""

    __slots__ = ("_character", "_type", "_visible")

    def __init__(self, binding: Binding, mask: MaskShape, visible: Visible) -> None:
        super().__init__(binding, NEVER_MATCHES)
        self._visible = visible
        self._character = mask.character
        self._type = mask.type

    def _token(self, value: Value) -> Value:
        text_only(self._binding, value)
        if len(value.text) > LONGEST_MASKED:
            raise self._binding.unfit(f"it is longer than {LONGEST_MASKED} characters")
        token = mask_text(value.text, self._visible, self._character, self._type)
        if token == value.text:
            raise self._binding.unfit("it has nothing that could be masked")
        return Value(token)

    def resembles(self, text: str) -> bool:
        return self._character in text


def _mask(options: ShapeOptions) -> MaskShape:
    character = options.text("char", "*")
    if len(character) != 1 or not character.isprintable() or character.isspace():
        raise ValueError("char of token shape mask is one printable character")
    kind = options.text("type", "alphanumeric")
    if kind not in TYPES:
        raise ValueError(f"type of token shape mask is one of {', '.join(TYPES)}")
    if not options.options.keys() - {"char", "type"}:
        return MaskShape(None, character, kind)
    visible = Visible(
        options.count("first"), options.count("last"), options.flag("domain"), options.flag("year")
    )
    return MaskShape(visible, character, kind)


MASK = Parser(
    "mask",
    {
        "first": "how many letters and digits at the beginning stay readable",
        "last": "how many letters and digits at the end stay readable",
        "type": (
            "which characters are masked: alphanumeric (letters and digits, the default), "
            "alphabetic, numeric, or all but white space"
        ),
        "char": "the character that takes the place of the others; default *",
        "domain": "true: what stands behind the @ stays readable",
        "year": "true: the year of a date stays readable",
    },
    _mask,
)
