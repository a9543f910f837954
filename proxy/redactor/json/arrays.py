"""Objects by a pattern of their own, and the elements of long arrays part by part.

Objects of a list have the same members in the same order, and so do most bodies of one operation.
A pattern made of names that were admitted finds all values of such an object in one step, and
validates it. What it does not fit, if only by a name in another place, is decoded. Of a long array
each call decodes a part only: while the decoder runs nobody else gets the interpreter's lock.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec
from _cffi_backend import FFI  # what cffi's generated modules import: no C parser is loaded

from proxy.redactor.json.tree import Leaf, Located

_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])

_FFI = FFI()
_CHARS = _FFI.typeof("char *")
_cast = _FFI.cast
_from_buffer = _FFI.from_buffer
_new = tuple.__new__

#: Bytes of an array that is decoded part by part, of a part, and of a stretch in which the end of
#: one is looked for.
LONG_ARRAY: Final = 2 * 1024 * 1024
_PART: Final = 1024 * 1024
_NEAR: Final = 64 * 1024
#: Ends that are tried for each part.
_GUESSES: Final = 8
#: A comma that stands between two arrays or objects, and any.
_BETWEEN = re.compile(rb"[}\]][ \t\n\r]*+(,)[ \t\n\r]*+[{\[]")
_COMMA = re.compile(rb"(,)")

#: Patterns of one selection; members of an object that has one, of which an array or object counts
#: for several; and objects that have to come before it is made, which takes milliseconds.
_PATTERNS: Final = 16
_MEMBERS: Final = 48
_CONTAINER: Final = 4
_BEFORE: Final = 4
#: Bytes of an object that a pattern is shown: nobody else gets the interpreter's lock meanwhile.
_LONGEST: Final = 256 * 1024

#: Levels that an object nests at most, itself included, where a pattern fits.
PATTERN_DEPTH: Final = 3

_WS = rb"[ \t\n\r]*+"
_COLON = _WS + rb":" + _WS
_SEPARATOR = _WS + rb"," + _WS
_BARE = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null"
#: A string where the body has neither a backslash nor a control character, and any.
_STRINGS = {
    True: rb'"[^"]*+"',
    False: rb'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4})[^"\\\x00-\x1f]*+){0,500}"',
}
#: What stands between an element and the next, or the end of the array.
_AFTER = re.compile(_SEPARATOR + rb"(?!\])|" + _WS + rb"(?=\])")
#: Letters that a name may have in a pattern: those that JSON spells in one way only.
_PLAIN_NAME = re.compile(r'[^"\\\x00-\x1f]*')


class AlikeObjects:
    """Learned patterns of repeated objects in one selection."""

    __slots__ = ("_counts", "_leaves", "_patterns")

    def __init__(self, leaves: Mapping[str, int]) -> None:
        """``leaves``: by name the members that are selected, with their numbers."""
        self._leaves = leaves
        self._counts: Counter[tuple[bool, tuple[str, ...]]] = Counter()
        self._patterns: dict[bool, list[tuple[Callable[..., re.Match[bytes] | None], list[int]]]]
        self._patterns = {True: [], False: []}

    def learn(self, members: Mapping[str, msgspec.Raw], even: bool) -> None:
        """An object had these members, none of which anybody takes for another one."""
        patterns, mark = self._patterns[even], (even, tuple(members))
        if len(members) > _MEMBERS or len(patterns) >= _PATTERNS:
            return
        if len(self._counts) >= 4 * _PATTERNS:
            self._counts.clear()
        self._counts[mark] += 1
        if self._counts[mark] != _BEFORE or not all(map(_PLAIN_NAME.fullmatch, members)):
            return
        weights = [_CONTAINER ** _levels(raw) for raw in members.values()]
        if sum(weights) <= _MEMBERS:
            numbers = [self._leaves[name] for name in members if name in self._leaves]
            patterns.append((_pattern(members, self._leaves, even).match, numbers))

    def run(self, body: bytes, at: int, end: int, even: bool) -> list[Located]:
        """The objects that stand at a place one after the other, as far as a pattern fits.

        ``even``: the body has neither a backslash nor a control character.
        """
        patterns = self._patterns[even]
        objects: list[Located] = []
        while True:
            hit, limit = None, min(at + _LONGEST, end)
            for pattern in patterns:
                if (hit := pattern[0](body, at, limit)) is not None:
                    break
            else:
                return objects
            if pattern is not patterns[0]:  # it is asked first from now on
                patterns.remove(pattern)
                patterns.insert(0, pattern)
            match, numbers = pattern
            while hit is not None:
                spans = hit.regs
                start, stop = spans[0]
                leaves = []
                for index, number in enumerate(numbers, 1):
                    first, last = spans[index]
                    leaves.append(_new(Leaf, (number, first, last)))
                objects.append(_new(Located, (start, stop, tuple(leaves))))
                after = _AFTER.match(body, stop, end)
                if after is None:
                    return objects
                at = after.end()
                hit = match(body, at, min(at + _LONGEST, end))


def _levels(value: msgspec.Raw) -> int:
    """Levels of arrays and objects that a value seems to have: two stand for more, too."""
    text = bytes(value)
    return min(2, text.count(b"{") + text.count(b"[")) if text[:1] in (b"[", b"{") else 0


def _pattern(
    members: Mapping[str, msgspec.Raw], leaves: Iterable[str], even: bool
) -> re.Pattern[bytes]:
    """An object of these members in this order; its groups are the values of the leaves."""
    string = _STRINGS[even]
    scalar = string + rb"|" + _BARE
    shallow = _containers(scalar, string)
    deep = _containers(scalar + rb"|" + rb"|".join(shallow.values()), string)
    parts: list[bytes] = []
    for name, raw in members.items():
        levels = _levels(raw)
        kind = bytes(memoryview(raw)[:1])
        value = (shallow if levels == 1 else deep)[kind] if levels else scalar
        group = rb"(%b)" if name in leaves else rb"(?:%b)"
        parts.append(re.escape(f'"{name}"'.encode()) + _COLON + group % value)
    return re.compile(rb"\{" + _WS + _SEPARATOR.join(parts) + _WS + rb"\}")


def _containers(value: bytes, name: bytes) -> dict[bytes, bytes]:
    """By its first letter: an array of up to 31 such values, an object of as many."""
    element, pair = rb"(?:%b)" % value, name + _COLON + rb"(?:%b)" % value
    several = rb"%b(?:%b(?:%b%b){0,30}+)?+%b"
    array = rb"\[" + several % (_WS, element, _SEPARATOR, element, _WS) + rb"\]"
    table = rb"\{" + several % (_WS, pair, _SEPARATOR, pair, _WS) + rb"\}"
    return {b"[": array, b"{": table}


def after_element(body: bytes, at: int, end: int) -> int:
    """Return the start of the next element, or of the closing bracket; -1 if neither follows."""
    after = _AFTER.match(body, at, end)
    return -1 if after is None else after.end()


def in_parts(body: bytes, start: int, end: int) -> list[memoryview] | None:
    """The elements of an array from the one at ``start`` on, as views of the body; the bracket
    that closes the array stands at ``end``.

    A part ends at a comma that seems to stand between two elements. Where it stands inside one, or
    in a string, what comes before it is no list of values. ``None``: these are no elements.
    """
    view, elements = memoryview(body), list[memoryview]()
    while start <= end:
        for stop in _ends(body, start, end):
            text = b"[%b]" % body[start:stop]
            try:
                part = _ELEMENTS.decode(text)
            except (msgspec.DecodeError, RecursionError):
                continue
            break
        else:
            return None
        if not part:
            return None
        base = _cast(_CHARS, _from_buffer(text)) + 1
        for element in part:
            at = _cast(_CHARS, _from_buffer(element)) - base + start
            elements.append(view[at : at + len(element)])
        start = stop + 1
    return elements


def _ends(body: bytes, start: int, end: int) -> Iterator[int]:
    """Yield the possible ends of a part of an array that begins there."""
    at = start + _PART
    for _ in range(_GUESSES if end - start > _PART + _NEAR else 0):
        match = _BETWEEN.search(body, at, at + _NEAR) or _COMMA.search(body, at, at + _NEAR)
        if match is None:
            break
        yield match.start(1)
        at = match.end(1)
    yield end
