"""Compiled selectors: where the objects of a body are, and the values in them.

A selection is made when rules load and used for every message. It compiles on first use, and equal
selections share the result.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate

import msgspec

from proxy.errors import VaultError
from proxy.model.schema import Path
from proxy.offload import BRIEF, FEW, SMALL
from proxy.redactor.ambiguity import located
from proxy.redactor.json.arrays import PATTERN_DEPTH, PATTERN_LIMIT, AlikeObjects, ListRows
from proxy.redactor.json.fast import OBJECT_DECODER, FastRun
from proxy.redactor.json.grammar import ambiguous, not_utf8, too_deep
from proxy.redactor.json.native import FoundLeaves, find_leaves
from proxy.redactor.json.text import (
    depth_fits,
    escapes,
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
    LeafLayouts,
    Located,
    PathNode,
    Selectors,
    TreeSelection,
    Undecided,
    Unsuitable,
    check_tree,
    leaf_node,
    watch,
)
from proxy.redactor.json.walk import walk, walk_nested

#: Compiled selections kept; a rule set has two per operation at most.
_COMPILED = 4096
#: Documents in a row that no pattern fitted, before only one in so many is tried.
_MISSES = 16
#: Bytes of a document that tell whether there is space between its tokens.
_NEAR = 128
_new = tuple.__new__


class Selection:
    """Objects of a document, leaves in each of them, and leaves that count from the root.

    ``objects`` selects objects from the root; an array there means each of its elements, however
    nested, and anything else there selects nothing. ``leaves`` start at each object, ``anchored``
    at the root. A leaf may be any JSON value, ``null`` and containers included, and one selector
    may choose several. Of leaves that lie inside each other only the outermost is found.
    """

    __slots__ = ("_compiled", "_levels", "_nested", "_selectors")

    def __init__(
        self,
        objects: Path | None,
        leaves: Sequence[Path],
        anchored: Sequence[Path] = (),
        *,
        nested: bool = False,
        spared: Iterable[Path] = (),
    ) -> None:
        """``nested``: names such as ``address.street`` spell a place, too, and so do names that
        servers translate, as for requests; ``spared``: places from the root that may be called so.
        """
        others = tuple(dict.fromkeys(spared))
        self._selectors = (objects, tuple(leaves), tuple(anchored), others)
        self._nested = nested
        self._levels: FastSelector | None = None
        self._compiled = False

    @property
    def flat(self) -> AlikeObjects | None:
        """Patterns of documents that are the selected object with its leaves; else ``None``."""
        self._compile()
        return None if self._levels is None else self._levels.flat

    def _compile(self) -> None:
        if not self._compiled:
            self._levels = _compile(self._selectors, self._nested)
            self._compiled = True

    def find(self, body: bytes, depth: int = 64) -> TreeSelection:
        """Every selected object and leaf, as byte spans, in order of the document.

        The whole document is validated. Raises ``VaultError``, never with content in its text:
        MALFORMED_JSON, UNREADABLE_BODY (not UTF-8), TOO_LARGE (nests deeper than ``depth``),
        AMBIGUOUS_JSON (a name on a selected path twice, or different only in letter case; with
        ``nested``, one that spells out the path to a place, or differs in signs only; half of a
        surrogate pair in a selected value or beside a selected name; data after the document).
        """
        try:
            return self._selected(body, depth)
        except VaultError as error:
            fault = error  # raised outside of here, so that it is nobody's context
        raise located(fault, self._selectors, (body, depth), nested=self._nested)

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
        if self._nested:
            return walk_nested(self._selectors, body, depth)
        return walk(*self._selectors[:3], body, depth)

    def has_few_members(self, body: bytes) -> bool:
        """Whether a body is the one selected object, and has few members however much they hold."""
        try:
            return self.flat is not None and len(OBJECT_DECODER.decode(body)) <= FEW
        except (msgspec.DecodeError, RecursionError):
            return False

    def brief(self, body: bytes, depth: int) -> FoundLeaves | None:
        """The leaves of a document that is the one selected object and has few members, however
        much they hold; ``None`` or an error where ``find`` has to look.
        """
        return self._levels.brief(body, depth) if self._levels is not None else None

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

    def __init__(self, selectors: Selectors, *, nested: bool = False) -> None:
        """``Unsuitable`` when a step needs the walker, or when selected places may lie inside each
        other.

        ``nested``: a name that writes out the way to a place is another spelling of it, and makes a
        document ambiguous, as does one that differs in signs only.
        """
        objects, leaves, anchored, _ = selectors
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
            watch(self.root, self.item, selectors)
        self._layouts = LeafLayouts(self.item)
        leaves_of_item = {name: child.leaf for name, child in self.item.names.items()}
        #: for objects whose members are the places: most rules are no more than that
        self._alike: AlikeObjects | None = None
        if leaves_of_item and self.item.leaf < 0 and min(leaves_of_item.values()) >= 0:
            self._alike = AlikeObjects(leaves_of_item, self._layouts)
        #: levels that the objects of an array nest at most, where patterns fit
        self._deepest = PATTERN_DEPTH + 1 + len(objects or ())
        #: where the document is the selected object
        self._misses = 0  #: such documents in a row that no pattern fitted
        self.flat = self._alike if self.root.objects and self.root.is_end else None
        self._escapes = escapes(
            step
            for path in (objects or (), *leaves, *anchored)
            for step in path
            if isinstance(step, str)
        )

    def find(self, body: bytes, depth: int) -> TreeSelection:
        """Return the selected values of a document.

        ``Undecided`` when the walker has to look, ``VaultError`` for a document that it would
        refuse too.
        """
        flat, even = self.flat, None
        if (
            find_leaves is not None
            and flat is not None
            and (fit := find_leaves(body, depth, self._layouts)) is not None
        ):
            leaves = list(map(_leaf, fit[0], fit[1][1:]))
            return TreeSelection([Located(0, len(body), tuple(leaves))], [])
        if not (body.isascii() or is_utf8(body)):
            raise not_utf8()
        if flat is not None and body.startswith(b"{"):
            # the document is the selected object, from its first byte to its last
            fits = depth >= PATTERN_DEPTH and len(body) <= PATTERN_LIMIT
            tried = fits and (self._misses < _MISSES or self._misses % _MISSES == 0)
            if tried and (fit := flat.whole(body, True)) is not None:
                self._misses = 0
                leaves = list(map(_leaf, fit[0], fit[1][1:]))
                return TreeSelection([Located(0, len(body), tuple(leaves))], [])
            self._misses += 1
            if len(body) <= SMALL and (placed := self._by_layout(flat, body, depth)) is not None:
                return placed
        elif self._alike is not None:
            even = is_even(body)
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

    def brief(self, body: bytes, depth: int) -> FoundLeaves | None:
        if find_leaves is not None and self.flat is not None:
            fit = find_leaves(body, depth, self._layouts)
            if fit is not None or len(body) > BRIEF:
                return fit
        if self.flat is None or not (body.isascii() or is_utf8(body)):
            return None
        run = FastRun((self.item, None, None), body, self._escapes, False)
        run.scan_object()
        if len(run.members) > FEW or not depth_fits(body, depth):
            return None
        leaves = run.selection().objects[0].leaves
        spans = [(leaf.start, leaf.end) for leaf in leaves]
        return [leaf.name for leaf in leaves], [(0, len(body)), *spans]

    def _by_layout(self, flat: AlikeObjects, body: bytes, depth: int) -> TreeSelection | None:
        """The same of a document without spaces whose names came before, in few steps."""
        if body.find(b'": ', 0, _NEAR) >= 0:
            return None
        try:
            members = OBJECT_DECODER.decode(body)
        except (msgspec.DecodeError, RecursionError):
            return None
        names = tuple(members)
        layout = self.item.layouts.get(names)
        if layout is None or flat.learns(names):
            return None
        at = list(accumulate(map(len, members.values()), initial=0))
        if layout.fixed + at[-1] != len(body) or not depth_fits(body, depth):
            return None
        leaves = [
            _new(Leaf, (child.leaf, before + at[number], before + at[number + 1]))
            for _, child, number, before in layout.places
        ]
        return TreeSelection([_new(Located, (0, len(body), tuple(leaves)))], [])

    def rows(self, body: bytes, depth: int) -> ListRows | None:
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
        flat = self.flat if body.startswith(b"{") else None
        reason = ""
        try:
            if flat is not None:
                run.scan_object()
            else:
                run.document(self.root)
        except Ambiguous as fault:
            reason = str(fault)
            run.validate()
        if not depth_fits(readable, depth):
            raise too_deep(depth)
        selection = run.selection()
        if flat is not None and not reason and flat.learns(tuple(run.members)):
            self._learn(flat, run.members, body)
        if (
            readable is not body
            and not reason
            and any(lone_surrogate(body, leaf.start, leaf.end) for leaf in _leaves(selection))
        ):
            reason = HALF_PAIR
        if reason:
            raise ambiguous(reason)
        return selection

    def _learn(self, flat: AlikeObjects, members: Mapping[str, msgspec.Raw], body: bytes) -> None:
        """Learn from a document that no pattern fits, if one may fit the next."""
        even = is_even(body) if len(body) <= PATTERN_LIMIT and self.item.knows(members) else None
        if even is not None:
            flat.learn(members, even, len(body))


def _leaf(number: int, span: tuple[int, int]) -> Leaf:
    return Leaf(number, *span)


def _leaves(selection: TreeSelection) -> Iterator[Leaf]:
    for one in selection.objects:
        yield from one.leaves
    yield from selection.anchored


@lru_cache(maxsize=_COMPILED)
def _compile(selectors: Selectors, nested: bool) -> FastSelector | None:
    """The fast path of these selectors, or ``None`` where they need the walker."""
    try:
        return FastSelector(selectors, nested=nested)
    except Unsuitable:
        return None
