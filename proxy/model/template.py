r"""Texts by a template: constant text and groups ``[alphabet]{n}``, e.g. ``PP-[A-Z0-9]{9}``.

Inside brackets stand characters and ranges (``A-Z``); ``-`` is meant itself at either end. Outside, everything is
constant text. ``\`` before any character takes it as it is.

Two parts of the house speak this language: the token shape ``template``, and access policies that redact.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

#: Characters of a text that a template gives.
LONGEST = 256

_COUNT = re.compile(r"\{([1-9][0-9]{0,2})\}", re.ASCII)


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


def read_template(text: str) -> tuple[Group, ...]:
    """The groups of a template. ``ValueError`` with a sentence that says what to write; it never repeats the template."""
    groups = tuple(_groups(text))
    if sum(len(group.choices[0]) * group.count for group in groups) > LONGEST:
        raise ValueError(f"a template gives at most {LONGEST} characters")
    return groups


def capacity(groups: Sequence[Group]) -> int:
    """How many texts the template can give."""
    return math.prod([group.capacity for group in groups])


def fill(groups: Sequence[Group], index: int) -> str:
    """The text of that number, 0 up to ``capacity``."""
    parts: list[str] = []
    for group in groups:
        for _ in range(group.count):
            index, choice = divmod(index, len(group.choices))
            parts.append(group.choices[choice])
    return "".join(parts)


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
