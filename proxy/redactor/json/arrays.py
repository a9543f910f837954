"""Patterns of objects, and decoding of long arrays part by part.

Objects of a list have the same members in the same order, and so do most bodies of one operation. A
pattern of admitted names finds all values of such an object in one step, and validates it. An
object that does not fit, if only by a name in another place, is decoded. Of a long array each call
decodes a part only: the decoder holds the interpreter's lock.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec
from _cffi_backend import FFI  # what cffi's generated modules import: no C parser is loaded

from proxy.redactor.json.native import FoundLeaves, find_leaves
from proxy.redactor.json.text import CONTROLS, is_even, is_utf8, most_steps
from proxy.redactor.json.tree import Leaf, LeafLayouts, Located

_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_MEMBERS_OF = msgspec.json.Decoder(dict[str, msgspec.Raw])

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
#: as several; and objects that have to precede it, for its creation takes milliseconds.
_PATTERNS: Final = 16
_MEMBERS: Final = 48
_CONTAINER: Final = 4
_BEFORE: Final = 4
#: Bytes of an object for a pattern, which holds the interpreter's lock meanwhile.
PATTERN_LIMIT: Final = 256 * 1024
#: Objects of the same names after which nothing more is learned of them.
_LEARNED: Final = 64

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
#: How a place is cut out: the text between its quotes, which an escape does not belong to, or the
#: number; nothing for null.
_CUT_TEXT = rb'"?+)((?<=")[^"\\\x00-\x1f]*+|(?<!"))((?:"|null)'
_CUT_NUMBER = (
    rb")(-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|)((?:(?<=[0-9])|(?<![0-9])null)"
)
#: First bytes of values that can be cut out.
_CUT: Final = frozenset(b"%c" % byte for byte in b'"n-0123456789')
#: What separates the parts of an object: as most serialisers write it, as Python's does, and
#: anything.
_COMPACT: Final = (b":", b",")
_SPACED: Final = (b": ", b", ")
_ANY: Final = (_COLON, _SEPARATOR)
#: Bytes between an element and the next, or the end of the array.
_AFTER = re.compile(_SEPARATOR + rb"(?!\])|" + _WS + rb"(?=\])")
#: Letters that a name may have in a pattern: those that JSON spells in one way only.
_PLAIN_NAME = re.compile(r'[^"\\\x00-\x1f]*')


class RowShape(NamedTuple):
    """Objects of the same members in the same order that are cut at their places."""

    #: its groups alternate between fixed bytes and the content of a place: a text without its
    #: quotes, a number, or nothing
    match: Callable[..., re.Match[bytes] | None]
    leaves: tuple[int, ...]  #: number of the selected leaf of each place
    bare: tuple[bool, ...]  #: of each place whether a number stands there


class AlikeObjects:
    """Learned patterns of repeated objects in one selection."""

    __slots__ = ("_counts", "_layouts", "_leaves", "_lessons", "_patterns", "rows")

    def __init__(self, leaves: Mapping[str, int], layouts: LeafLayouts) -> None:
        """``leaves``: the selected members by name, numbered; ``layouts``: of such objects."""
        self._leaves = leaves
        self._layouts = layouts
        self._counts: Counter[tuple[object, ...]] = Counter()
        self._lessons: Counter[tuple[str, ...]] = Counter()  #: how often it learned, by the names
        self._patterns: dict[bool, list[tuple[Callable[..., re.Match[bytes] | None], list[int]]]]
        self._patterns = {True: [], False: []}
        #: those that cut objects at their places, likewise
        self.rows: dict[bool, list[RowShape]] = {True: [], False: []}

    def learn(self, members: Mapping[str, msgspec.Raw], even: bool, size: int) -> None:
        """Learn the unambiguous members of an object of so many bytes."""
        names = tuple(members)
        if not self.learns(names):
            return
        if len(self._lessons) > 8 * _PATTERNS:
            self._lessons.clear()
        self._lessons[names] += 1
        if len(self._patterns[even]) < _PATTERNS and self._is_usual((even, names), members):
            numbers = [self._leaves[name] for name in names if name in self._leaves]
            match = _pattern(members, self._leaves, even).match
            self._patterns[even].append((match, numbers))
        self._learn_row(members, even, size)

    def _learn_row(self, members: Mapping[str, msgspec.Raw], even: bool, size: int) -> None:
        """Learn to cut such an object at its places."""
        rows, leaves, names = self.rows[even], self._leaves, tuple(members)
        firsts = [bytes(memoryview(members[name])[:1]) for name in names if name in leaves]
        if len(rows) >= _PATTERNS or not _CUT.issuperset(firsts):
            return
        bare = tuple([first not in (b'"', b"n") for first in firsts])
        parts = [len(name.encode()) + len(raw) + 4 for name, raw in members.items()]
        spaces = size - sum(parts) - 1
        if self._is_usual((even, names, bare, spaces), members):
            spaced = _SPACED if spaces == 2 * len(names) - 1 else _ANY
            pattern = _cutting(members, (leaves, bare), even, spaced if spaces else _COMPACT)
            numbers = tuple([leaves[name] for name in names if name in leaves])
            rows.append(RowShape(pattern.match, numbers, bare))

    def learns(self, names: tuple[str, ...]) -> bool:
        """Whether an object of these names may teach anything."""
        return len(names) <= _MEMBERS and self._lessons[names] < _LEARNED

    def miss(self, body: bytes, at: int, end: int, even: bool) -> None:
        """The object at a place has none of the shapes so far, though a pattern may fit it."""
        for match, _ in self._patterns[even]:
            if (hit := match(body, at, min(at + PATTERN_LIMIT, end))) is not None:
                size = hit.end() - at
                self._learn_row(_MEMBERS_OF.decode(body[at : hit.end()]), even, size)
                return

    def _is_usual(self, mark: tuple[object, ...], members: Mapping[str, msgspec.Raw]) -> bool:
        """Whether objects of this mark have come so often now that they get a pattern."""
        if len(self._counts) >= 8 * _PATTERNS:
            self._counts.clear()
        self._counts[mark] += 1
        if self._counts[mark] != _BEFORE or not all(map(_PLAIN_NAME.fullmatch, members)):
            return False
        weight: int = sum([_CONTAINER ** _levels(raw) for raw in members.values()])
        return weight <= _MEMBERS

    def whole(self, body: bytes, checked: bool = False) -> FoundLeaves | None:
        """The leaves of a document that is one object in UTF-8 which a pattern fits, or in which
        native code finds them.

        ``checked``: it is known to be in UTF-8.
        """
        if find_leaves is not None:
            leaves = find_leaves(body, PATTERN_DEPTH, self._layouts)
            if leaves is not None:
                return leaves
        if not (checked or body.isascii() or is_utf8(body)):
            return None
        measured: bool | None = None  #: whether it is even, where a pattern fits
        for even, patterns in self._patterns.items():
            for pattern in patterns:
                if (hit := pattern[0](body)) is None or hit.end() != len(body):
                    continue
                # It holds where the body is as even as the pattern expects: that takes a pass over
                # all of it, which only a match is worth; as nearly always, with one call less.
                if measured is None:
                    bare = body.find(b"\\") < 0 and len(body.translate(None, CONTROLS)) == len(body)
                    measured = bare or is_even(body)
                if measured is not even:
                    break
                if pattern is not patterns[0]:  # it is asked first from now on
                    patterns.remove(pattern)
                    patterns.insert(0, pattern)
                return pattern[1], hit.regs
        return None

    def run(self, body: bytes, at: int, end: int, even: bool) -> list[Located]:
        """The objects that stand at a place one after the other, as far as a pattern fits.

        ``even``: the body has neither a backslash nor a control character.
        """
        patterns = self._patterns[even]
        objects: list[Located] = []
        while True:
            hit, limit = None, min(at + PATTERN_LIMIT, end)
            for pattern in patterns:
                if (hit := pattern[0](body, at, limit)) is not None:
                    break
            else:
                return objects
            if pattern is not patterns[0]:  # it is tried first from now on
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
                hit = match(body, at, min(at + PATTERN_LIMIT, end))


class ListRows:
    """Yield the objects of an array in pages of pieces: fixed bytes and the content of places."""

    __slots__ = ("_alike", "_at", "_body", "_end", "_even", "_left", "_shapes", "after", "before")

    def __init__(
        self, body: bytes, span: tuple[int, int], alike: tuple[AlikeObjects, bool], first: int
    ) -> None:
        """``span``: of the array with its brackets; ``first``: where its first element begins.

        ``alike``: the learned patterns, and whether the body is even.
        """
        self._body = body
        self._alike, self._even = alike
        self._at = first
        self._end = span[1] - 1
        self._left = most_steps(len(body))
        self._shapes = list(self._alike.rows[self._even])
        self.before = body[:first]  #: bytes before the first object
        self.after = body[self._end :]  #: and behind the last

    @property
    def ended(self) -> bool:
        return self._at == self._end

    def page(self, most: int, room: int) -> tuple[list[bytes], list[tuple[RowShape, int]]] | None:
        """The pieces of the next objects, limited in number and bytes, with their shapes.

        ``None``: no shape fits the next object.
        """
        body, at, end, shapes = self._body, self._at, self._end, self._shapes
        pieces: list[bytes] = []
        runs: list[tuple[RowShape, int]] = []
        stop, room, last = most, min(at + room, end), end + 1
        while stop and at < room:
            hit = None
            for shape in shapes:
                if (hit := shape.match(body, at, min(at + PATTERN_LIMIT, last))) is not None:
                    break
            else:
                self._alike.miss(body, at, end, self._even)
                return None
            if shape is not shapes[0]:  # it is tried first from now on
                shapes.remove(shape)
                shapes.insert(0, shape)
            match, before = shape.match, stop
            while hit is not None:
                pieces += hit.groups()
                at = hit.end()
                stop -= 1
                if not stop or at >= room:
                    break
                hit = match(body, at, min(at + PATTERN_LIMIT, last))
            runs.append((shape, before - stop))
        self._at = at
        self._left -= most - stop
        return (pieces, runs) if self._left >= 0 else None


def _levels(value: msgspec.Raw) -> int:
    """Levels of arrays and objects that a value seems to have: two stand for more, too."""
    text = bytes(value)
    return min(2, text.count(b"{") + text.count(b"[")) if text[:1] in (b"[", b"{") else 0


def _written(members: Mapping[str, msgspec.Raw], even: bool) -> Iterator[tuple[str, bytes, bytes]]:
    """Each name, and patterns of it and of its value."""
    string = _STRINGS[even]
    scalar = string + rb"|" + _BARE
    shallow = _containers(scalar, string)
    deep = _containers(scalar + rb"|" + rb"|".join(shallow.values()), string)
    for name, raw in members.items():
        levels, kind = _levels(raw), bytes(memoryview(raw)[:1])
        value = (shallow if levels == 1 else deep)[kind] if levels else scalar
        yield name, re.escape(f'"{name}"'.encode()), value


def _pattern(
    members: Mapping[str, msgspec.Raw], leaves: Iterable[str], even: bool
) -> re.Pattern[bytes]:
    """An object of these members in this order; its groups are the values of the leaves."""
    parts: list[bytes] = []
    for name, written, value in _written(members, even):
        group = rb"(%b)" if name in leaves else rb"(?:%b)"
        parts.append(written + _COLON + group % value)
    return re.compile(rb"\{" + _WS + _SEPARATOR.join(parts) + _WS + rb"\}")


def _cutting(
    members: Mapping[str, msgspec.Raw],
    places: tuple[Mapping[str, int], tuple[bool, ...]],
    even: bool,
    separators: tuple[bytes, bytes],
) -> re.Pattern[bytes]:
    """An object of these members in this order and what separates it from the next, cut at its
    places.

    ``places``: the selected names, and of each whether a number stands there; null may always.
    """
    leaves, bare = places
    colon, comma = separators
    numbers, parts = iter(bare), list[bytes]()
    for name, written, value in _written(members, even):
        if name in leaves:
            parts.append(written + colon + (_CUT_NUMBER if next(numbers) else _CUT_TEXT))
        else:
            parts.append(written + colon + rb"(?:%b)" % value)
    end = _WS + rb"\}(?:" + comma + rb"(?!\])|" + _WS + rb"(?=\])))"
    return re.compile(rb"(\{" + _WS + comma.join(parts) + end)


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

    A part ends at a comma that seems to separate two elements. If it is inside one, or in a string,
    the part before it is no list of values. ``None``: these are no elements.
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
    at = start + _PART
    for _ in range(_GUESSES if end - start > _PART + _NEAR else 0):
        match = _BETWEEN.search(body, at, at + _NEAR) or _COMMA.search(body, at, at + _NEAR)
        if match is None:
            break
        yield match.start(1)
        at = match.end(1)
    yield end
