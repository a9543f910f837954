"""Names that write out a way: ``address.street``, ``tags[0]``, ``tags[]``, ``address/street``.

A rule names ``$.address.street``. Many frameworks build that object out of one member
``address.street`` or
``address[street]``: of forms, and of JSON as well (MongoDB, qs, Spring, lodash, Firebase, Laravel).
So such a name is another spelling of the place. One reading of names serves JSON, forms and
parameters.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from proxy.model.schema import Path, PathStep
from proxy.redactor.json.text import JOINTS, fold_all, loose_name, replace_surrogates

#: What separates the pieces of a name: dots, brackets, slashes (JSON Pointer, Firebase), arrows
#: (Laravel).
_SEPARATOR: Final = re.compile(r"[.\[\]/]|->")
_BRACKETED: Final = re.compile(r"\[([^\]]*)\]?")
_BETWEEN: Final = re.compile(r"[./\]]|->")

#: Colons separate where a name begins as extensions of SCIM do, ``urn:…:2.0:User:department``, and
#: nowhere else.
_URN: Final = re.compile(r"\Aurn:[^/\[\]]*:", re.IGNORECASE)

#: Members of one object that write out a way to a place, and bytes of what such a member holds:
#: more is refused unread.
MOST_NAMES: Final = 100
_MOST_BYTES: Final = 8192
#: Members of one object whose names begin like a way to a place: more is refused with their ways
#: not followed.
MOST_FOLLOWED: Final = 2000

#: Names whose way was followed that are remembered, and the length from which one counts as leading
#: to a place unread.
_CAPACITY: Final = 1000
_LONGEST: Final = 512

_NOTHING_WRITTEN: Final = frozenset({b"null", b"true", b"false", b'""', b"[]", b"{}"})
_NOTHING: Final[tuple[object, ...]] = ("", [], {})


class _Elements:
    """The step from an array to its elements, where an array of objects is selected."""


_SPREAD: Final = _Elements()

#: A path in pieces, letter case and signs ignored: names, numbers, steps.
Way = tuple[Any, ...]


def is_nested(name: str) -> bool:
    """Whether a name holds anything that separates pieces."""
    return _SEPARATOR.search(name) is not None


def pieces(name: str) -> list[str]:
    """The steps that a name writes out between separators; ``[]`` and a last one are empty."""
    split: list[str] = []
    parts = _BRACKETED.split(
        _URN.sub(lambda urn: urn[0].replace(".", "\x1f").replace(":", "."), name)
    )
    for number, part in enumerate(parts):
        if number % 2:
            if split and split[-1] == "$":  # ``$[]`` of MongoDB, ``$[0]`` of JSONPath
                split.pop()
            within = part.strip("'\" ")
            is_condition = " " in within or within[:1] in ("?", "@")
            split += (
                [within]
                if is_condition
                else [piece for piece in _BETWEEN.split(within) if piece] or [""]
            )
        elif part:
            several = _BETWEEN.split(part)
            ends = number == len(parts) - 1 and not several[-1] and any(several)
            split += [piece for piece in several if piece] + [""] * ends
    return [piece.replace("\x1f", ".") for piece in (split[1:] if split[:1] == ["$"] else split)]


def first_piece(name: str) -> str:
    """The loose first step that a name of a rule writes out: itself, nearly always."""
    return loose_name(next(iter(pieces(name)), name)) if is_nested(name) else loose_name(name)


def selects(path: Path, way: Iterable[str | int]) -> bool:
    """Whether a selector selects what stands at a way of members and elements."""
    reached = {0}
    for step in way:
        live = {at for at in reached if at < len(path)}
        live |= {at + 1 for at in live if path[at] is PathStep.DEEP}
        reached = {
            at + (path[at] is not PathStep.DEEP)
            for at in live
            if isinstance(path[at], PathStep) or path[at] == step
        }
    return len(path) in reached


def onward(path: Path, leaves: Sequence[Path] | None) -> list[Way]:
    """The ways along a path; ``leaves``: of the objects at its end, ``None`` at a place."""
    return [_way(path)] if leaves is None else [_way((*path, _SPREAD, *leaf)) for leaf in leaves]


class _Lead(NamedTuple):
    """Destination of a name: at the end of a way, beyond one, and the rest of the others."""

    at: bool
    inside: bool
    rest: tuple[Way, ...]


_LONG: Final = _Lead(at=True, inside=True, rest=())


class Nested:
    """The ways that begin at one place of a document, asked for the names of the members there."""

    __slots__ = ("_heads", "_leads", "_ways")

    def __init__(self, ways: Iterable[Way]) -> None:
        self._ways = tuple(
            dict.fromkeys(one for one in ways if one[1:] or (one and isinstance(one[0], str)))
        )
        #: Finds a name that may be on a way, by the first name of the way.
        self._heads = _holding(frozenset(map(_head, self._ways)))
        self._leads: dict[str, _Lead] = {}

    def suspects(self, names: Iterable[str]) -> list[str]:
        """The names that write out a way to a place, or to a container on the way to one."""
        text = "\n".join(names := list(names))
        if not is_nested(text) or not self.may_lead(text):
            return []
        followed = [name for name in names if is_nested(name) and self.may_lead(name)]
        # So many that are followed one by one would take seconds: all are suspected, which is
        # refused.
        return (
            followed
            if len(followed) > MOST_FOLLOWED
            else [name for name in followed if any(self._lead(name))]
        )

    def suspect(self, name: str) -> bool:
        """``suspects`` of one name with separators."""
        return self.may_lead(name) and any(self._lead(name))

    def reaches(self, name: str, raw: bytes | msgspec.Raw) -> bool:
        """Whether a member of that name and value puts something at a place, or astray near one."""
        lead, text = self._lead(name), bytes(raw)
        if lead.at or text in _NOTHING_WRITTEN:
            return lead.at
        if lead.inside or len(text) > _MOST_BYTES:
            return True
        try:
            return _holds(msgspec.json.decode(replace_surrogates(text)), lead.rest)
        except (msgspec.DecodeError, RecursionError):
            return True

    def may_lead(self, text: str) -> bool:
        """Whether one of these names, on a line each, begins like a way to a place."""
        spelled = fold_all(text).replace("->", ">").translate(JOINTS)
        return self._heads.search(spelled) is not None

    def _lead(self, name: str) -> _Lead:
        lead = self._leads.get(name)
        if lead is None:
            lead = (
                _leading(pieces(name), self._ways, selected=True)
                if len(name) <= _LONGEST
                else _LONG
            )
            if len(self._leads) >= _CAPACITY:
                self._leads.clear()
            if len(name) <= _LONGEST:
                self._leads[name] = lead
        return lead


def _head(one: Way) -> tuple[bool, str]:
    """The first name of a way, ``""`` where it has none, and whether a name must begin with it."""
    head = next((step for step in one if isinstance(step, str)), "")
    return (isinstance(one[0], str), head) if head.translate(JOINTS) else (False, "")


@lru_cache(maxsize=4096)
def _holding(heads: frozenset[tuple[bool, str]]) -> re.Pattern[str]:
    """Finds one of these pieces, at the beginning or anywhere, in loose names on a line each."""
    first, anywhere = (
        "|".join(re.escape(head) for begins, head in heads if begins is where)
        for where in (True, False)
    )
    patterns = [rf"^[.\[\]/>'\"$ ]*(?:{first})(?=[.\[\]/>'\" :\0]|$)"] * bool(first)
    patterns += [rf"(?:^|[.\[\]/>'\"$ :])(?:{anywhere})(?=[.\[\]/>'\" :\0]|$)"] * bool(anywhere)
    return re.compile("" if (False, "") in heads else "|".join(patterns) or "(?!)", re.MULTILINE)


def _leading(steps: Sequence[str], ways: Iterable[Way], *, selected: bool) -> _Lead:
    reached = [_reach(one, steps, selected=selected) for one in ways]
    rest = tuple(way for lead in reached for way in lead.rest)
    return _Lead(any(lead.at for lead in reached), any(lead.inside for lead in reached), rest)


def _way(path: Iterable[object]) -> Way:
    steps: list[object] = []
    for step in path:
        written = pieces(step) if isinstance(step, str) and is_nested(step) else []
        steps += [loose_name(piece) for piece in written] or [
            loose_name(step) if isinstance(step, str) else step
        ]
    return tuple(steps)


def _member(name: str, value: object, ways: Iterable[Way]) -> bool:
    lead = _leading(pieces(name) if is_nested(name) else [name], ways, selected=False)
    if lead.at or (lead.inside and not _is_nothing(value)):
        return True
    return bool(lead.rest) and _holds(value, lead.rest)


def _holds(value: object, ways: Sequence[Way]) -> bool:
    """Whether a value holds something where these ways lead, or something else where they go on."""
    if isinstance(value, Mapping):
        return any(_member(name, item, ways) for name, item in value.items())
    if isinstance(value, list):
        return any(_member(str(number), item, ways) for number, item in enumerate(value))
    return not _is_nothing(value) and any(one[0] is not PathStep.DEEP for one in ways)


def _is_nothing(value: object) -> bool:
    """Whether a value is empty or not personal: null, a bare true or false."""
    return value is None or isinstance(value, bool) or value in _NOTHING


def _reach(one: Way, steps: Sequence[str], *, selected: bool) -> _Lead:
    """Follow the steps along one way.

    ``selected``: selectors examine the member itself, too. A match of a first ``..`` or ``[*]`` is
    no other reading.
    """
    reached, inside = {0}, False
    for step in steps:
        before = _skipping(one, reached)
        inside = inside or len(one) in before
        reached = {after for at in before if at < len(one) for after in _taken(one, at, step)}
    if selected and one[0] is PathStep.DEEP:
        reached -= {0}
    elif selected and isinstance(one[0], PathStep):
        reached -= {1} if len(steps) == 1 or len(one) == 1 else set()
        inside = inside and len(one) > 1
    rest = tuple(one[at:] for at in sorted(reached) if at < len(one) and (at or not selected))
    return _Lead(len(one) in reached, inside, rest)


def _skipping(one: Way, reached: Iterable[int]) -> set[int]:
    """The places in a way that are reached, and those behind steps that may stand for nothing."""
    skipped: set[int] = set()
    for at in reached:
        skipped.add(at)
        while at < len(one) and (one[at] in (PathStep.DEEP, PathStep.EACH) or one[at] is _SPREAD):
            at += 1  # noqa: PLW2901  # it walks on
            skipped.add(at)
    return skipped


def _taken(one: Way, at: int, step: str) -> Iterable[int]:
    """Yield the positions to which a step of a name leads from a position in a way."""
    expected = one[at]
    if expected is PathStep.DEEP or (expected is _SPREAD and _is_index(step)):
        yield at
    elif isinstance(expected, PathStep):
        yield at + 1
    elif isinstance(expected, int):
        if _is_index(step) and (not step.isdecimal() or int(step) == expected):
            yield at + 1
    elif expected == loose_name(step):
        yield at + 1


def _is_index(step: str) -> bool:
    """Whether a step tells elements: a number, none, a wildcard, or a SCIM condition."""
    return not step or step.lstrip("-").isdecimal() or step[0] in "*$?@" or " " in step
