"""A tree of selectors, one node for each place that some selector passes or ends at.

Only names, element numbers and ``[*]``, and only places that cannot lie inside each other: what that leaves out is
``Unsuitable`` and goes to the walker.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from proxy.model.path import Path, Step
from proxy.redactor.names import fold, needle
from proxy.redactor.nested import MOST_NAMES, Nested, Way, onward

#: Why a document is ambiguous.
TWICE = "a member name occurs twice"
LETTER_CASE = "a member name differs from the expected one only in letter case or white space around it"
NESTED = "a member name writes out the way to an expected member, by dots, brackets or slashes"
HALF_PAIR = "a selected value holds half of a surrogate pair"

#: Harmless names that a node remembers, and how long they may be.
_KNOWN = 1000
_KNOWN_LENGTH = 64

#: Sequences of names that a node remembers, and how many names one may have.
_LAYOUTS = 64
NARROW = 100


class Doubt(Exception):
    """The fast path cannot tell; the walker can."""


class Ambiguous(Exception):
    """Somebody takes another member for a selected one; the text says how."""


class Unsuitable(Exception):
    """These selectors need the walker for every document."""


class Layout(NamedTuple):
    """An object with certain names and no white space: its length but for the values, and the selected members.

    Of those: name, node, number among the members, and what stands before the value but for other values.
    """

    fixed: int
    places: "tuple[tuple[str, Node, int, int], ...]"


class Node:
    """One place of a tree of selectors, with what is selected at it and below it."""

    __slots__ = (
        *("_known", "_layouts", "each", "folds", "indexes", "leaf"),
        *("names", "needle", "nested", "objects", "width"),
    )

    def __init__(self, name: str = "") -> None:
        self.leaf = -1  #: number of the leaf that ends here
        self.objects = False  #: the selected objects are here
        self.names: dict[str, Node] = {}
        self.indexes: dict[int, Node] = {}
        self.each: Node | None = None
        self.needle = needle(name)
        self.width = len(self.needle) + 1  #: of the name with its colon
        self.folds: set[str] = set()  #: the selected names, letter case ignored
        self.nested: Nested | None = (
            None  #: what other names lead to selected places; ``None`` where nobody reads them so
        )
        self._known: set[str] = set()  #: names that are selected, or that nobody takes for a selected one
        self._layouts: dict[tuple[str, ...], Layout] = {}

    def child(self, step: str | int | Step) -> "Node":
        """The node one step on; ``Unsuitable`` when the step is ``.*`` or ``..``."""
        if isinstance(step, str):
            self._known.add(step)
            self.folds.add(fold(step))
            return self.names.setdefault(step, Node(step))
        if isinstance(step, int):
            return self.indexes.setdefault(step, Node())
        if step is not Step.EACH:
            raise Unsuitable
        if self.each is None:
            self.each = Node()
        return self.each

    def children(self) -> "list[Node]":
        """Every node one step on."""
        return [*self.names.values(), *self.indexes.values(), *([self.each] if self.each else [])]

    def knows(self, found: Mapping[str, object]) -> bool:
        """Whether every name was admitted before."""
        return self._known.issuperset(found)

    def admit(self, found: Mapping[str, bytes | msgspec.Raw]) -> bool:
        """See that nobody takes another name for a selected one; ``Ambiguous`` otherwise.

        Whether that holds for other objects of the same names, too: of some names it is their value that tells.
        """
        if self._known.issuperset(found):
            return True
        if len(self._known) > _KNOWN:
            self._known = set(self.names)
        suspects = self.watch(found) if self.nested else ()
        for name in found:
            if name not in self._known:
                folded = fold(name)
                if folded in self.folds or folded.strip() in self.folds:
                    raise Ambiguous(LETTER_CASE)
                if len(name) <= _KNOWN_LENGTH and name not in suspects:
                    self._known.add(name)
        return not suspects

    def watch(self, found: Mapping[str, bytes | msgspec.Raw]) -> Collection[str]:
        """See that no member puts anything at a place by a name that writes out the way; ``Ambiguous`` otherwise.

        The names that could, and do not for what they hold.
        """
        if self.nested is None:
            return ()
        suspects = self.nested.suspects(name for name in found if name not in self._known)
        if len(suspects) > MOST_NAMES or any(self.nested.reaches(name, found[name]) for name in suspects):
            raise Ambiguous(NESTED)
        return suspects

    def layout(self, found: Mapping[str, bytes | msgspec.Raw]) -> Layout:
        """Where the values of an object with these names stand; ``Ambiguous`` as for ``admit``."""
        names = tuple(found)
        layout = self._layouts.get(names)
        if layout is None:
            settled = self.admit(found)
            layout = self._lay_out(names)
            if not settled:
                return layout
            if len(self._layouts) >= _LAYOUTS:
                self._layouts.clear()
            self._layouts[names] = layout
        return layout

    def _lay_out(self, names: tuple[str, ...]) -> Layout:
        places = []
        fixed = 0
        for number, name in enumerate(names):
            fixed += len(name.encode()) + 4  # a brace or comma, two quotes, a colon
            child = self.names.get(name)
            if child is not None:
                places.append((name, child, number, fixed))
        return Layout(fixed + 1, tuple(places))


def end_of(node: Node, path: Path) -> Node:
    """The node at the end of a path, made where it is missing; two leaves at one place are ``Unsuitable``."""
    for step in path:
        node = node.child(step)
    if node.leaf >= 0:
        raise Unsuitable
    return node


def watch(node: Node, path: Path, leaves: Sequence[Path] | None = None) -> Iterator[tuple[Node, list[Way]]]:
    """Every node on a laid path, with the ways that lead on from it; ``leaves`` as for ``onward``."""
    for at, step in enumerate(path):
        yield node, onward(path[at:], leaves)
        node = node.child(step)


def check(node: Node) -> None:
    """``Unsuitable`` when selected places may lie inside each other, or selected names differ only in letter case."""
    children = node.children()
    if (node.leaf >= 0 and (children or node.objects)) or (node.each and node.indexes):
        raise Unsuitable
    if len(node.folds) < len(node.names):
        raise Unsuitable
    for child in children:
        check(child)
