"""Selection at the speed of a C parser: one level of the document at a time, members as raw views
into the body.

msgspec decodes an object to names and raw values, skips the levels below, and validates all of it.
A raw value is a view into the body, so its offset is its address minus the body's. The decoder
keeps the last of equal names and ignores letter case, so every container on a selected path is
guarded. A case that the guard cannot settle is ``Undecided``, and the walker decides.
"""

import re
from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter

import msgspec
from _cffi_backend import FFI  # what cffi's generated modules import: no C parser is loaded

from proxy.errors import VaultError
from proxy.redactor.json.arrays import LONG_ARRAY, AlikeObjects, after_element, in_parts
from proxy.redactor.json.grammar import names_of, one_name, skip, too_many
from proxy.redactor.json.text import fold_name, holds_escape, mask_escapes, most_steps, skip_space
from proxy.redactor.json.tree import (
    NARROW_TREE,
    TWICE,
    Ambiguous,
    Leaf,
    Located,
    PathNode,
    TreeSelection,
    Undecided,
)

OBJECT_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_ANY = msgspec.json.Decoder(msgspec.Raw)

_FFI = FFI()
_CHARS = _FFI.typeof("char *")
_cast = _FFI.cast
_from_buffer = _FFI.from_buffer

_WHITE = b" \t\n\r"
#: A value as it is written.
_Raw = bytes | memoryview | msgspec.Raw
_start = itemgetter(1)
_new = tuple.__new__

#: Searching for a name costs per byte about 1/1500 of checking the bytes before a member's value.
_SEARCH = 1500

#: Arrays directly inside arrays that the fast path follows.
_SPREAD = 64
#: Objects of a list that no pattern fits, before the others are decoded together.
_ODD = 16
#: Levels that one of these may nest; the whole document is measured in the end.
_DEEPEST = 1000


class FastRun:
    """A pass over one document."""

    __slots__ = (
        *("_alike", "_anchored", "_base", "_body", "_compact", "_decoded", "_escaped"),
        *("_escapes", "_even", "_masked", "_item", "_mended", "_mixed", "_objects", "_steps"),
        "members",
    )

    def __init__(
        self,
        item: tuple[PathNode, AlikeObjects | None, bool | None],
        body: bytes,
        escapes_of_names: re.Pattern[bytes],
        mended: bool,
    ) -> None:
        #: ``_even``: as ``is_even`` says of the body, where patterns of alike objects ask for it
        self._item, self._alike, self._even = item
        self._body = body
        self._base = _cast(_CHARS, _from_buffer(body))
        self._escapes = escapes_of_names
        #: whether selected names may be spelled with escapes; told when asked
        self._escaped: bool | None = None
        self._masked: bytes | None = None  #: the body without escapes, once needed
        self._mended = mended  #: U+FFFD may stand for half of a surrogate pair
        self._decoded = False
        self._compact = True  #: as far as seen, the document has no white space between its tokens
        self._mixed = False  #: leaves may have been found in another order than the document's
        self._steps = most_steps(len(body))  #: left
        #: members of the last object
        self.members: dict[str, msgspec.Raw] = {}
        self._objects: list[Located] = []
        self._anchored: list[Leaf] = []

    def document(self, root: PathNode) -> None:
        """Select from the whole document, and see all of it validated."""
        body = self._body
        start = 0 if body[:1] == b"{" else skip_space(body, 0)
        if start < len(body):
            self._value(root, body, start, len(body.rstrip(_WHITE)), self._anchored)
        if not self._decoded:
            self.validate()

    def scan_object(self) -> None:
        """The same of a document that is the selected object, from its first byte on."""
        self._object(self._body, 0, len(self._body.rstrip(_WHITE)))

    def validate(self) -> None:
        """See that the whole document is JSON, also where only parts of it were decoded."""
        _ANY.decode(self._body)

    def selection(self) -> TreeSelection:
        """Return the selection, in order of the document."""
        return _new(TreeSelection, (self._objects, self._ordered(self._anchored)))

    def _ordered(self, leaves: list[Leaf]) -> list[Leaf]:
        if self._mixed:
            leaves.sort(key=_start)
        return leaves

    def _value(self, node: PathNode, raw: _Raw, start: int, end: int, leaves: list[Leaf]) -> None:
        if node.leaf >= 0:
            leaves.append(_new(Leaf, (node.leaf, start, end)))
            return
        kind = self._body[start]
        if kind == 0x7B:  # {
            if node.each:
                self._every(node, raw, start, end, leaves)
            if node.objects:
                self._object(raw, start, end)
            if node.names:
                self._members(node, raw, start, end, leaves)
        elif kind == 0x5B:  # [
            if node.spreads:
                self._spread(raw, start, end, 0)
            elif node.each or node.indexes:
                self._elements(node, raw, start, end, leaves)

    def _object(self, raw: _Raw, start: int, end: int) -> None:
        leaves: list[Leaf] = []
        if self._item.leaf >= 0:
            leaves.append(Leaf(self._item.leaf, start, end))
        elif self._item.names:
            members = self._members(self._item, raw, start, end, leaves)
            self.members = members
            if self._even is not None and self._alike is not None and self._item.knows(members):
                self._alike.learn(members, self._even, end - start)
        self._objects.append(_new(Located, (start, end, tuple(self._ordered(leaves)))))

    def _members(
        self, node: PathNode, raw: _Raw, start: int, end: int, leaves: list[Leaf]
    ) -> dict[str, msgspec.Raw]:
        members = self._decode(raw)
        if members and not (
            self._compact
            and len(members) <= NARROW_TREE
            and self._measure(node, members, start, end, leaves)
        ):
            self._search(node, members, start, end, leaves)
        return members

    def _decode(self, raw: _Raw) -> dict[str, msgspec.Raw]:
        members = OBJECT_DECODER.decode(raw)
        self._decoded = True
        if self._mended and any("\ufffd" in name for name in members):
            raise Undecided
        return members

    def _every(self, node: PathNode, raw: _Raw, start: int, end: int, leaves: list[Leaf]) -> None:
        """Select every member of an object where an array was expected: ``[*]`` means both."""
        members = self._decode(raw)
        if node.names:
            raise Undecided
        if len({fold_name(name) for name in members}) < len(members):
            raise Ambiguous(TWICE)
        node.watch(members)
        self._distinct(members, start, end, None)
        for value in members.values():
            at = _cast(_CHARS, _from_buffer(value)) - self._base
            self._value(node.each or node, value, at, at + len(value), leaves)

    def _measure(
        self,
        node: PathNode,
        members: dict[str, msgspec.Raw],
        start: int,
        end: int,
        leaves: list[Leaf],
    ) -> bool:
        """Select members of an object by the lengths of its names and values, if these leave no
        room for more.

        Otherwise there is white space or an escape, or a name stands twice; no other object needs
        to be asked then.
        """
        layout = node.layout(members)
        reached = list(accumulate(map(len, members.values()), initial=start))
        self._compact = layout.fixed + reached[-1] == end
        if not self._compact:
            return False
        for name, child, number, before in layout.places:
            at, stop = before + reached[number], before + reached[number + 1]
            if child.leaf >= 0:
                leaves.append(_new(Leaf, (child.leaf, at, stop)))
            else:
                self._value(child, members[name], at, stop, leaves)
        return True

    def _search(
        self,
        node: PathNode,
        members: dict[str, msgspec.Raw],
        start: int,
        end: int,
        leaves: list[Leaf],
    ) -> None:
        """Select members of an object whose lengths do not tell where they stand."""
        node.admit(members)
        self._mixed = True
        if self._escaped is None:
            self._escaped = holds_escape(self._escapes, self._body)
        distinct = False
        if self._escaped or (end - start) * len(node.names) > _SEARCH * len(members):
            distinct = self._distinct(members, start, end, node)
        for name, child in node.names.items():
            value = members.get(name)
            if value is None:
                continue
            at = _cast(_CHARS, _from_buffer(value)) - self._base
            # At most one space lies between the colon and the value: then the name there can only
            # be its own.
            if (
                not distinct
                and not 0 <= at - child.width - self._body.find(child.needle, start, at) <= 1
            ):
                distinct = self._distinct(members, start, end, node)
            if child.leaf >= 0:
                leaves.append(_new(Leaf, (child.leaf, at, at + len(value))))
            else:
                self._value(child, value, at, at + len(value), leaves)

    def _distinct(
        self, members: dict[str, msgspec.Raw], start: int, end: int, node: PathNode | None
    ) -> bool:
        """See that no two members of an object have the same name, if it is a selected one;
        ``Ambiguous`` otherwise.

        Of such members the decoder keeps the last one's value, in the first one's place; else one
        name stands between any two values. ``node`` tells which names are selected; without it all
        are.
        """
        at = start
        for value in members.values():
            next_at = _cast(_CHARS, _from_buffer(value)) - self._base
            if next_at < at or not one_name(self._body[at:next_at]):
                break
            at = next_at + len(value)
        else:
            return True
        names: set[str] = set()
        for name in names_of(self._body[start:end]):
            if name in names and (node is None or name in node.names):
                raise Ambiguous(TWICE)
            names.add(name)
        return True

    def _array(self, raw: _Raw, start: int, end: int) -> Sequence[msgspec.Raw | memoryview]:
        elements: Sequence[msgspec.Raw | memoryview] | None = None
        if end - start > LONG_ARRAY and self._body[end - 1] == 0x5D:  # ]
            elements = in_parts(self._body, start + 1, end - 1)
        if elements is None:
            elements = _ELEMENTS.decode(raw)
        self._decoded = True
        self._count(len(elements))
        return elements

    def _count(self, elements: int) -> None:
        self._steps -= elements
        if self._steps < 0:
            raise too_many()

    def _elements(
        self, node: PathNode, raw: _Raw, start: int, end: int, leaves: list[Leaf]
    ) -> None:
        elements = self._array(raw, start, end)
        if node.each:
            chosen = [(node.each, element) for element in elements]
        else:
            self._mixed = True
            chosen = [
                (child, elements[i]) for i, child in node.indexes.items() if i < len(elements)
            ]
        for child, element in chosen:
            at = _cast(_CHARS, _from_buffer(element)) - self._base
            self._value(child, element, at, at + len(element), leaves)

    def _spread(self, raw: _Raw, start: int, end: int, nested: int) -> None:
        """Every object of an array, and of arrays in it."""
        if nested == _SPREAD:
            raise Undecided
        rest = self._by_patterns(start, end)
        if rest == end:
            return
        elements: Sequence[msgspec.Raw | memoryview] | None
        if rest > start:
            elements = in_parts(self._body, rest, end - 1)
            if elements is None:
                raise Undecided
            self._count(len(elements))
        else:
            elements = self._array(raw, start, end)
        for element in elements:
            at = _cast(_CHARS, _from_buffer(element)) - self._base
            kind = self._body[at]
            if kind == 0x7B:
                self._object(element, at, at + len(element))
            elif kind == 0x5B:
                self._spread(element, at, at + len(element), nested + 1)

    def _by_patterns(self, start: int, end: int) -> int:
        """The objects that patterns fit, from the first of an array on.

        Gives the element from which on they do not; ``start`` if that is the first, ``end`` behind
        the last.
        """
        body, alike, even, objects = self._body, self._alike, self._even, self._objects
        if alike is None or even is None or body[end - 1] != 0x5D:
            return start
        at = first = skip_space(body, start + 1)
        odd = 0
        while at < end - 1 and body[at] == 0x7B:
            some = alike.run(body, at, end, even)
            objects += some
            self._count(len(some) or 1)
            if not some:
                odd += 1
                if odd > _ODD and odd * 8 > len(objects):
                    break
                stop = self._skip(at)
                self._object(memoryview(body)[at:stop], at, stop)
            at = after_element(body, objects[-1].end, end)
            if at < 0:
                raise Undecided
        if at == end - 1 and at > first:
            self._decoded = True
            return end
        return at if at > first else start

    def _skip(self, at: int) -> int:
        """Return the end of an object that is examined separately."""
        if self._masked is None:
            self._masked = mask_escapes(self._body)
        try:
            return skip(self._masked, at, _DEEPEST, _DEEPEST)
        except VaultError:
            raise Undecided from None  # the walker names the fault
