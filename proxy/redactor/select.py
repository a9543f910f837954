"""Compiled selectors: where the objects of a body are, and the values in them.

A selection is made when rules load and used for every message. It compiles on first use, and equal
selections share the result.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

import msgspec

from proxy.errors import VaultError
from proxy.model.schema import Path, PathStep, Value
from proxy.redactor.ambiguity import located
from proxy.redactor.json.arrays import PATTERN_DEPTH, AlikeObjects, ListRows
from proxy.redactor.json.fast import FastRun
from proxy.redactor.json.grammar import ambiguous, not_utf8, too_deep
from proxy.redactor.json.names import escapes
from proxy.redactor.json.nested import Nested, Way
from proxy.redactor.json.text import (
    depth_fits,
    is_even,
    is_utf8,
    lone_surrogate,
    replace_surrogates,
    skip_space,
)
from proxy.redactor.json.tree import (
    HALF_PAIR,
    Ambiguous,
    Leaf,
    Located,
    PathNode,
    TreeSelection,
    Undecided,
    Unsuitable,
    check_tree,
    leaf_node,
    watch,
)
from proxy.redactor.json.walk import locate, walk, walk_nested

__all__ = ["Leaf", "Located", "Selection", "TreeSelection"]

#: Compiled selections kept; a rule set has two per operation at most.
_COMPILED = 4096


class Selection:
    """Objects of a document, leaves in each of them, and leaves that count from the root.

    ``objects`` selects objects from the root; an array there means each of its elements, however
    nested, and anything else there selects nothing. ``leaves`` start at each object, ``anchored``
    at the root. A leaf may be any JSON value, ``null`` and containers included, and one selector
    may choose several. Of leaves that lie inside each other only the outermost is found.
    """

    __slots__ = ("_anchored", "_compiled", "_leaves", "_levels", "_nested", "_objects")

    def __init__(
        self,
        objects: Path | None,
        leaves: Sequence[Path],
        anchored: Sequence[Path] = (),
        *,
        nested: bool = False,
    ) -> None:
        """``nested``: member names such as ``address.street`` are other spellings of a place, as
        for requests.
        """
        self._objects = objects
        self._leaves = tuple(leaves)
        self._anchored = tuple(anchored)
        self._nested = nested
        self._levels: FastSelector | None = None
        self._compiled = False

    @property
    def flat(self) -> AlikeObjects | None:
        """Patterns of documents that are the selected object, their members the leaves; ``None``
        for other selections.
        """
        self._compile()
        return None if self._levels is None else self._levels.flat

    def _compile(self) -> None:
        if not self._compiled:
            self._levels = _compile(self._objects, self._leaves, self._anchored, self._nested)
            self._compiled = True

    def find(self, body: bytes, depth: int = 64) -> TreeSelection:
        """Every selected object and leaf, as byte spans, in order of the document.

        The whole document is validated. Raises ``VaultError``, never with content in its text:
        MALFORMED_JSON, UNREADABLE_BODY (not UTF-8), TOO_LARGE (nests deeper than ``depth``),
        AMBIGUOUS_JSON (a name on a selected path twice, or different only in letter case; with
        ``nested``, one that spells out the path to a place; half of a surrogate pair in a selected
        value or beside a selected name; data after the document).
        """
        try:
            return self._selected(body, depth)
        except VaultError as error:
            fault = error  # raised outside of here, so that it is nobody's context
        selectors, document = (self._objects, self._leaves, self._anchored), (body, depth)
        raise located(fault, selectors, document, nested=self._nested)

    def _selected(self, body: bytes, depth: int) -> TreeSelection:
        if not self._compiled:
            self._compile()
        if self._levels is not None:
            try:
                return self._levels.find(body, depth)
            except Undecided:
                pass
            # Most bodies that come here are no JSON, and this pass tells so at a fraction of the
            # other's time.
            walk(None, (), (), body, depth)
        find = walk_nested if self._nested else walk
        return find(self._objects, self._leaves, self._anchored, body, depth)

    def rows(self, body: bytes, depth: int = 64) -> ListRows | None:
        """A reader, page by page, of a document that is, or holds, one long array of selected
        objects; ``None`` where ``find`` has to read it.

        All but the objects is validated by then, and they are as far as they were read.
        """
        return self._levels.rows(body, depth) if self._levels is not None else None


class _ArrayRun(FastRun):
    """Looks for the one array of a document whose elements are the selected objects."""

    span: tuple[int, int] | None = None

    def _object(self, *_: object) -> None:
        raise Undecided

    def _spread(
        self, raw: bytes | memoryview | msgspec.Raw, start: int, end: int, nested: int
    ) -> None:
        del raw, nested
        if self.span is not None or self._body[end - 1] != 0x5D:  # ]
            raise Undecided
        self.span, self._decoded = (start, end), True


class FastSelector:
    """Selectors as two trees: one from the document's root, one from each selected object."""

    def __init__(
        self,
        objects: Path | None,
        leaves: Sequence[Path],
        anchored: Sequence[Path],
        *,
        nested: bool = False,
    ) -> None:
        """``Unsuitable`` when a step needs the walker, or when selected places may lie inside each
        other.

        ``nested``: a name that writes out the way to a place is another spelling of it, and makes a
        document ambiguous.
        """
        self.root = PathNode()
        self.item = PathNode()
        for number, path in enumerate(leaves):
            leaf_node(self.item, path).leaf = number
        for number, path in enumerate(anchored):
            leaf_node(self.root, path).leaf = number
        if objects is not None:
            end = leaf_node(self.root, objects)
            end.objects = True
            if end.each or end.indexes or self.item.each or (end.names and self.item.leaf >= 0):
                raise Unsuitable
            if not end.folds.isdisjoint(self.item.folds):
                raise Unsuitable
        check_tree(self.root)
        check_tree(self.item)
        if nested:
            self._watch(objects, leaves, anchored)
        leaves_of_item = {name: child.leaf for name, child in self.item.names.items()}
        #: for objects whose members are the places: most rules are no more than that
        self._alike: AlikeObjects | None = None
        if leaves_of_item and self.item.leaf < 0 and min(leaves_of_item.values()) >= 0:
            self._alike = AlikeObjects(leaves_of_item)
        #: levels that the objects of an array nest at most, where patterns fit
        self._deepest = PATTERN_DEPTH + 1 + len(objects or ())
        #: where the document is the selected object
        self.flat = self._alike if self.root.objects and self.root.is_end else None
        self._escapes = escapes(
            step
            for path in (objects or (), *leaves, *anchored)
            for step in path
            if isinstance(step, str)
        )

    def _watch(
        self, objects: Path | None, leaves: Sequence[Path], anchored: Sequence[Path]
    ) -> None:
        ways: dict[PathNode, list[Way]] = {}
        laid = [watch(self.item, path) for path in leaves] + [
            watch(self.root, path) for path in anchored
        ]
        for node, further in chain(
            *laid, watch(self.root, objects, leaves) if objects is not None else ()
        ):
            ways.setdefault(node, []).extend(further)
        for node, paths in ways.items():
            node.nested = Nested(paths)

    def find(self, body: bytes, depth: int) -> TreeSelection:
        """Return the selected values of a document.

        ``Doubt`` when the walker has to look, ``VaultError`` for a document that it would refuse
        too.
        """
        if not (body.isascii() or is_utf8(body)):
            raise not_utf8()
        flat = self.flat
        even = None if flat is None and self._alike is None else is_even(body)
        if (
            flat is not None
            and even is not None
            and depth >= PATTERN_DEPTH
            and body.startswith(b"{")
        ):
            # Matches of a pattern in a document that is the selected object, from its first byte to
            # its last.
            objects = flat.run(body, 0, len(body), even)
            if objects and objects[0].end == len(body):
                return TreeSelection(objects, [])
        try:
            return self._select(body, body, depth, even)
        except (msgspec.DecodeError, RecursionError):
            pass
        if body.find(b"\\u") < 0:
            raise Undecided
        # The decoder accepts no half of a surrogate pair, not even in an unselected value.
        try:
            return self._select(replace_surrogates(body), body, depth, None)
        except (msgspec.DecodeError, RecursionError):
            raise Undecided from None

    def rows(self, body: bytes, depth: int) -> ListRows | None:
        """As ``Selection.rows``."""
        alike = self._alike
        if alike is None or not any(alike.rows.values()) or depth < self._deepest:
            return None
        even = is_even(body) if body.isascii() or is_utf8(body) else None
        if even is None:
            return None
        run = _ArrayRun((self.item, None, None), body, self._escapes, False)
        try:
            run.document(self.root)
        except (msgspec.DecodeError, RecursionError, Undecided, Ambiguous):
            return None
        span: tuple[int, int] | None = run.span
        if span is None:
            return None
        start, end = span
        first = skip_space(body, start + 1)
        if body[first] != 0x7B or not depth_fits(body[:first] + body[end - 1 :], depth):
            return None
        return ListRows(body, span, (alike, even), first)

    def _select(self, readable: bytes, body: bytes, depth: int, even: bool | None) -> TreeSelection:
        """Select from a text that can be decoded, which is the body or differs from it in halves of
        surrogate pairs; ``even``: as ``is_even`` says of the body.
        """
        run = FastRun((self.item, self._alike, even), readable, self._escapes, readable is not body)
        reason = ""
        try:
            run.document(self.root)
        except Ambiguous as fault:
            reason = str(fault)
            run.validate()
        if not depth_fits(readable, depth):
            raise too_deep(depth)
        selection = run.selection()
        if (
            readable is not body
            and not reason
            and any(lone_surrogate(body, leaf.start, leaf.end) for leaf in _leaves(selection))
        ):
            reason = HALF_PAIR
        if reason:
            raise ambiguous(reason)
        return selection


def _leaves(selection: TreeSelection) -> Iterator[Leaf]:
    for one in selection.objects:
        yield from one.leaves
    yield from selection.anchored


@lru_cache(maxsize=_COMPILED)
def _compile(
    objects: Path | None, leaves: tuple[Path, ...], anchored: tuple[Path, ...], nested: bool
) -> FastSelector | None:
    """The fast path of these selectors, or ``None`` where they need the walker."""
    try:
        return FastSelector(objects, leaves, anchored, nested=nested)
    except Unsuitable:
        return None


# Fields that a request clears, by the values on the way to their places.
#
# ``$.tags[*]`` selects nothing in ``{"tags": []}``, and ``$.address.street`` nothing in
# ``{"address": null}``. Such an update differs from one that omits them: the application drops the
# values, and the vault would keep invisible ones. An object without members says nothing (RFC
# 7396), nor does a list that ends before its index.


_NOTHING: Final = re.compile(rb"\[[ \t\n\r]*\]\Z")
_EMPTY: Final = Value("")


class Emptied:
    """Made when rules load; asked for each object of an update."""

    def __init__(self, fields: Sequence[str], paths: Sequence[Path]) -> None:
        """``fields`` by their ``paths``, which all start where the object does."""
        self._ways: list[tuple[str, bytes, list[tuple[Path, bool]]]] = []
        for name, path in zip(fields, paths, strict=True):
            way = _way(path)
            first = path[0]
            if way:
                self._ways.append(
                    (
                        name,
                        first.encode("utf-8", "surrogatepass") if isinstance(first, str) else b"",
                        way,
                    )
                )

    def __bool__(self) -> bool:
        return bool(self._ways)

    def among(self, present: Collection[str], body: bytes, depth: int) -> dict[str, Value | None]:
        """The fields that are not ``present`` and hold nothing: ``None`` by a null, an empty value
        by an empty array or text.

        ``body`` is a valid document. Raises ``VaultError`` as ``Selection.find``.
        """
        emptied: dict[str, Value | None] = {}
        for name, first, way in self._ways:
            if name in present or (first not in body and b"\\" not in body):
                continue
            for path, listed in way:
                stands = [body[start:end] for start, end in locate(path, body, depth)]
                if b"null" in stands:
                    emptied[name] = None
                elif b'""' in stands or (listed and any(map(_NOTHING.match, stands))):
                    emptied[name] = _EMPTY
        return emptied


def _way(path: Path) -> list[tuple[Path, bool]]:
    """The places before the last one, as far as they can be told, and whether an array is expected
    there.
    """
    definite = path.index(PathStep.DEEP) if PathStep.DEEP in path else len(path) - 1
    return [
        (path[:at], path[at] is PathStep.EACH or path[at] is PathStep.DEEP)
        for at in range(1, definite + 1)
    ]
