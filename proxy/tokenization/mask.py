"""Masks: a few characters stay readable, every other letter and digit becomes the mask character.

White space and ASCII punctuation stay, so that a masked telephone number still looks like one. At least one character
is masked: where everything would stay readable, nothing does. Masks collide, so they resolve by their record.
"""

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass

from proxy.model.value import Value
from proxy.tokenization.base import Resolution, Tokenizer, TokenKeys
from proxy.tokenization.common import NOWHERE, Binding, ValueTokenizer, text_only
from proxy.tokenization.dateformat import read_date
from proxy.tokenization.options import Given, Parser

_YEAR = re.compile(r"(?<![0-9])[0-9]{4}")


@dataclass(frozen=True, slots=True)
class Visible:
    """What of a value stays readable."""

    first: int = 0  #: letters and digits at the beginning
    last: int = 0  #: letters and digits at the end
    domain: bool = False  #: of a mail address, what stands behind the last ``@``
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
}


def mask_text(text: str, visible: Visible, character: str) -> str:
    """The text masked."""
    head, tail = text, ""
    if visible.domain and "@" in text:
        head, at, domain = text.rpartition("@")
        tail = at + domain
    shown = _year(head) if visible.year else None
    hidden = [place for place, one in enumerate(head) if _masked(one) and not (shown and place in shown)]
    if len(hidden) > visible.first + visible.last:
        hidden = hidden[visible.first : len(hidden) - visible.last]
    elif not hidden:
        return "".join(character if _masked(one) else one for one in text)
    out = list(head)
    for place in hidden:
        out[place] = character
    return "".join(out) + tail


def _masked(character: str) -> bool:
    return not (character.isspace() or character in string.punctuation)


def _year(text: str) -> range | None:
    found = _YEAR.search(text) if read_date(text) is not None else None
    return None if found is None else range(found.start(), found.end())


@dataclass(frozen=True, slots=True)
class Mask:
    """Tokens that show a part of the value."""

    visible: Visible | None  #: ``None``: as the kind of the field says
    character: str
    name: str = "mask"
    same: bool = False
    resolution: Resolution = Resolution.BY_RECORD

    def capacity(self) -> float:
        return 1.0

    def bind(self, keys: TokenKeys, kind: str, region: str) -> Tokenizer:
        return MaskTokenizer(Binding(self, keys, kind, region), self.visible or DEFAULT_MASK[kind], self.character)


class MaskTokenizer(ValueTokenizer):
    """Masks the values of one field."""

    __slots__ = ("_character", "_visible")

    def __init__(self, binding: Binding, visible: Visible, character: str) -> None:
        super().__init__(binding, NOWHERE)
        self._visible = visible
        self._character = character

    def _token(self, value: Value) -> Value:
        text_only(self._binding, value)
        token = mask_text(value.text, self._visible, self._character)
        if token == value.text:
            raise self._binding.unfit("it has nothing that could be masked")
        return Value(token)

    def resembles(self, text: str) -> bool:
        return self._character in text


def _mask(given: Given) -> Mask:
    character = given.text("char", "*")
    if len(character) != 1 or not character.isprintable() or character.isspace():
        raise ValueError("char of token shape mask is one printable character")
    if not given.options.keys() - {"char"}:
        return Mask(None, character)
    visible = Visible(given.count("first"), given.count("last"), given.flag("domain"), given.flag("year"))
    return Mask(visible, character)


MASK = Parser(
    "mask",
    {
        "first": "how many letters and digits at the beginning stay readable",
        "last": "how many letters and digits at the end stay readable",
        "char": "the character that takes the place of the others; default *",
        "domain": "true: what stands behind the @ stays readable",
        "year": "true: the year of a date stays readable",
    },
    _mask,
)
