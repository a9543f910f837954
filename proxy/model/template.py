r"""Texts by a template: constant text and groups ``[alphabet]{n}``, e.g. ``PP-[A-Z0-9]{9}``.

Inside brackets stand characters and ranges (``A-Z``); ``-`` is meant itself at either end. Outside,
everything is constant text. ``\`` before any character takes it as it is.

Two parts of the house speak this language: the token shape ``template``, and access policies that
redact.

A template is checked before anything is built of it, and no alphabet is ever spelled out: it stays
the ranges that it was written in. So the work is that of reading the text, however many characters
a range may hold.
"""

import bisect
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

#: Characters of a text that a template gives.
LONGEST_TEMPLATE_TEXT = 256
#: Characters that a template itself may have; with escapes it is longer than the text that it
#: gives.
WRITTEN = 1024
#: Groups with an alphabet in one template, and ranges and single characters in all of them
#: together.
GROUPS = 32
TEMPLATE_PARTS = 256
#: Characters of all its alphabets together: every letter of any one script, and Chinese three times
#: over.
CHARACTERS = 65_536

_COUNT = re.compile(r"\{([1-9][0-9]{0,2})\}", re.ASCII)

#: Code points that are no characters: halves of UTF-16 (RFC 3629, section 3). They belong to no
#: alphabet.
_SURROGATES = (0xD800, 0xDFFF)

#: The first and the last code point of a range.
_Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Alphabet:
    """Characters in the order written, each once; kept as ranges of code points without overlap."""

    ranges: tuple[_Range, ...]
    #: characters up to the end of each range
    _ends: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "_ends", tuple(accumulate(last - first + 1 for first, last in self.ranges))
        )

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> str:
        at = bisect.bisect_right(self._ends, index)
        return chr(self.ranges[at][1] + 1 - (self._ends[at] - index))

    def __contains__(self, character: object) -> bool:
        return isinstance(character, str) and any(
            first <= ord(character) <= last for first, last in self.ranges
        )

    def isprintable(self) -> bool:
        """Whether every character can be printed."""
        return all(
            "".join(map(chr, range(first, last + 1))).isprintable() for first, last in self.ranges
        )


@dataclass(frozen=True, slots=True)
class TemplateGroup:
    """A part of a template: ``count`` characters of an alphabet, or a constant text."""

    choices: Alphabet | str  #: the characters; or the one constant text
    count: int = 1

    @property
    def length(self) -> int:
        """Number of characters of the group."""
        return len(self.choices) if isinstance(self.choices, str) else self.count

    @property
    def capacity(self) -> int:
        """In how many ways the group can be filled."""
        ways: int = 1 if isinstance(self.choices, str) else len(self.choices) ** self.count
        return ways


def read_template(text: str) -> tuple[TemplateGroup, ...]:
    """The groups of a template.

    ``ValueError`` with a sentence that says what to write; it never repeats the template.
    """
    if len(text) > WRITTEN:
        raise ValueError(f"a template has at most {WRITTEN} characters itself")
    groups: list[TemplateGroup] = []
    length = alphabets = parts = characters = 0
    for group in _groups(text):
        groups.append(group)
        length += group.length
        if isinstance(group.choices, Alphabet):
            alphabets += 1
            parts += len(group.choices.ranges)
            characters += len(group.choices)
        if length > LONGEST_TEMPLATE_TEXT:
            raise ValueError(f"a template gives at most {LONGEST_TEMPLATE_TEXT} characters")
        if alphabets > GROUPS or parts > TEMPLATE_PARTS:
            raise ValueError(
                f"a template has at most {GROUPS} groups in brackets, with {TEMPLATE_PARTS} "
                "ranges between them"
            )
        if characters > CHARACTERS:
            raise ValueError(
                f"the brackets of a template hold at most {CHARACTERS} characters together"
            )
    return tuple(groups)


def capacity(groups: Sequence[TemplateGroup]) -> int:
    """Count the texts that the template can give."""
    return math.prod([group.capacity for group in groups])


def fill(groups: Sequence[TemplateGroup], index: int) -> str:
    """The text of that number, 0 up to ``capacity``."""
    parts: list[str] = []
    for group in groups:
        if isinstance(group.choices, str):
            parts.append(group.choices)
            continue
        for _ in range(group.count):
            index, choice = divmod(index, len(group.choices))
            parts.append(group.choices[choice])
    return "".join(parts)


def can_produce(groups: Sequence[TemplateGroup], text: str) -> bool:
    """Whether the template can give this text."""
    at = 0
    for group in groups:
        part = text[at : at + group.length]
        at += group.length
        if len(part) != group.length:
            return False
        choices = group.choices
        fits = (
            part == choices
            if isinstance(choices, str)
            else all(character in choices for character in part)
        )
        if not fits:
            return False
    return at == len(text)


def _groups(text: str) -> Iterator[TemplateGroup]:
    at, constant = 0, ""
    while at < len(text):
        if text[at] != "[":
            character, at = _character(text, at)
            constant += character
            continue
        if constant:
            yield TemplateGroup(constant)
            constant = ""
        choices, at = _alphabet(text, at + 1)
        count = _COUNT.match(text, at)
        if count is None:
            raise ValueError(
                "in a template, how many characters follows the brackets: [A-Z0-9]{9}, 1 to 999"
            )
        yield TemplateGroup(choices, int(count[1]))
        at = count.end()
    if constant:
        yield TemplateGroup(constant)


def _alphabet(text: str, at: int) -> tuple[Alphabet, int]:
    """The characters up to the closing bracket, and the place behind it."""
    chosen: list[_Range] = []
    taken = [_SURROGATES]  # the same and those, by their code points
    while at < len(text) and text[at] != "]":
        first, at = _character(text, at)
        last = first
        if text[at : at + 1] == "-" and text[at + 1 : at + 2] not in ("", "]"):
            last, at = _character(text, at + 1)
        if last < first:
            raise ValueError(f"in a template, the range {first}-{last} runs backwards")
        for new in _untaken((ord(first), ord(last)), taken):
            bisect.insort(taken, new)
            if chosen and chosen[-1][1] + 1 == new[0]:
                chosen[-1] = (chosen[-1][0], new[1])  # ``abc`` is one range
            else:
                chosen.append(new)
        if len(chosen) > TEMPLATE_PARTS:
            raise ValueError(
                f"in a template, all brackets together hold at most {TEMPLATE_PARTS} ranges and "
                "single characters"
            )
    if at >= len(text) or not chosen:
        raise ValueError(
            "in a template, [ needs characters and a closing ]; a bracket that is meant itself "
            "is \\["
        )
    return Alphabet(tuple(chosen)), at + 1


def _untaken(new: _Range, taken: Sequence[_Range]) -> list[_Range]:
    """Return the parts of a range outside ``taken``, which is sorted and without overlaps."""
    pieces = []
    start, last = new
    at = bisect.bisect_right(taken, start, key=lambda other: other[0])
    if at and taken[at - 1][1] >= start:
        start = taken[at - 1][1] + 1
    while at < len(taken) and taken[at][0] <= last:
        pieces.append((start, taken[at][0] - 1))
        start = taken[at][1] + 1
        at += 1
    pieces.append((start, last))
    return [piece for piece in pieces if piece[0] <= piece[1]]


def _character(text: str, at: int) -> tuple[str, int]:
    if text[at] != "\\":
        return text[at], at + 1
    if at + 1 == len(text):
        raise ValueError("in a template, \\ stands before the character that it takes as it is")
    return text[at + 1], at + 2
