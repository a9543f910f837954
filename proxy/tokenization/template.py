r"""Tokens by a template: constant text and groups ``[alphabet]{n}``, e.g. ``PP-[A-Z0-9]{9}``.

Inside brackets stand characters and ranges (``A-Z``); ``-`` is meant itself at either end. Outside, everything is
constant text. ``\`` before any character takes it as it is.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from proxy.model.value import Value
from proxy.tokenization.base import Resolution, Tokenizer, TokenKeys
from proxy.tokenization.common import Binding, DrawnTokenizer, bordered, text_only
from proxy.tokenization.options import SAME, Given, Parser

#: Tokens that a template must hold for them to be found by themselves.
INDEXED_CAPACITY = 1_000_000
#: The same for same-value tokens: two values must never come to one token, and nothing else keeps them apart.
SAME_CAPACITY = 2**64
#: Characters of a token.
LONGEST = 256

_COUNT = re.compile(r"\{([1-9][0-9]{0,2})\}")


@dataclass(frozen=True, slots=True)
class Group:
    """A part of a template: ``count`` characters of an alphabet. Constant text is a group of one choice."""

    choices: tuple[str, ...]  #: the characters; or the one constant text
    count: int

    @property
    def capacity(self) -> int:
        """In how many ways the group can be filled."""
        ways: int = len(self.choices) ** self.count
        return ways


@dataclass(frozen=True, slots=True)
class Template:
    """Tokens of a template. Small ones resolve by their record."""

    same: bool
    template: str
    groups: tuple[Group, ...]
    name: str = "template"

    @property
    def resolution(self) -> Resolution:
        enough = SAME_CAPACITY if self.same else INDEXED_CAPACITY
        return Resolution.INDEXED if self._space() >= enough else Resolution.BY_RECORD

    def capacity(self) -> float:
        return float(self._space())

    def bind(self, keys: TokenKeys, kind: str, region: str) -> Tokenizer:
        binding = Binding(self, keys, kind, region)

        def space(value: Value) -> int:
            text_only(binding, value)
            return self._space()

        pattern = bordered("".join(map(_expression, self.groups)))
        return DrawnTokenizer(binding, pattern, space, lambda _, index: Value(self._fill(index)))

    def _space(self) -> int:
        return math.prod([group.capacity for group in self.groups])

    def _fill(self, index: int) -> str:
        parts: list[str] = []
        for group in self.groups:
            for _ in range(group.count):
                index, choice = divmod(index, len(group.choices))
                parts.append(group.choices[choice])
        return "".join(parts)


def _expression(group: Group) -> str:
    if len(group.choices) == 1:
        return re.escape(group.choices[0] * group.count)
    return f"[{''.join(map(re.escape, group.choices))}]{{{group.count}}}"


def _template(given: Given) -> Template:
    text = given.text("template", "")
    groups = tuple(_groups(text))
    shape = Template(given.flag("same"), text, groups)
    if sum(len(group.choices[0]) * group.count for group in groups) > LONGEST:
        raise ValueError(f"a template gives at most {LONGEST} characters")
    if shape.capacity() < 2:
        raise ValueError("a template needs a group such as [A-Z0-9]{9}; for one constant text use the shape fixed")
    return shape


def _groups(text: str) -> Iterator[Group]:
    place, constant = 0, ""
    while place < len(text):
        if text[place] != "[":
            character, place = _character(text, place)
            constant += character
            continue
        if constant:
            yield Group((constant,), 1)
            constant = ""
        choices, place = _alphabet(text, place + 1)
        count = _COUNT.match(text, place)
        if count is None:
            raise ValueError("in a template, how many characters follows the brackets: [A-Z0-9]{9}, 1 to 999")
        yield Group(choices, int(count[1]))
        place = count.end()
    if constant:
        yield Group((constant,), 1)


def _alphabet(text: str, place: int) -> tuple[tuple[str, ...], int]:
    """The characters up to the closing bracket, each once in order, and the place behind it."""
    chosen: dict[str, None] = {}
    while place < len(text) and text[place] != "]":
        first, place = _character(text, place)
        last = first
        if text[place : place + 1] == "-" and text[place + 1 : place + 2] not in ("", "]"):
            last, place = _character(text, place + 1)
        if last < first:
            raise ValueError(f"in a template, the range {first}-{last} runs backwards")
        chosen.update(dict.fromkeys(map(chr, range(ord(first), ord(last) + 1))))
    if place >= len(text) or not chosen:
        raise ValueError("in a template, [ needs characters and a closing ]; a bracket that is meant itself is \\[")
    return tuple(chosen), place + 1


def _character(text: str, place: int) -> tuple[str, int]:
    if text[place] != "\\":
        return text[place], place + 1
    if place + 1 == len(text):
        raise ValueError("in a template, \\ stands before the character that it takes as it is")
    return text[place + 1], place + 2


TEMPLATE = Parser(
    "template", {**SAME, "template": "constant text and groups of random characters, e.g. PP-[A-Z0-9]{9}"}, _template
)
