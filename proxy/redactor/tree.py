"""A tree of selectors, one node for each place that some selector passes or ends at.

Only names, element numbers and ``[*]``, and only places that cannot lie inside each other: what that leaves out is
``Unsuitable`` and goes to the walker.
"""

from collections.abc import Mapping
from typing import NamedTuple

from proxy.model.path import Path, Step
from proxy.redactor.names import fold, needle

#: Why a document is ambiguous.
TWICE = "a member name occurs twice"
LETTER_CASE = "a member name differs from the expected one only in letter case"
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

    __slots__ = ("_known", "_layouts", "each", "folds", "indexes", "leaf", "names", "needle", "objects", "width")

    def __init__(self, name: str = "") -> None:
        self.leaf = -1  #: number of the leaf that ends here
        self.objects = False  #: the selected objects are here
        self.names: dict[str, Node] = {}
        self.indexes: dict[int, Node] = {}
        self.each: Node | None = None
        self.needle = needle(name)
        self.width = len(self.needle) + 1  #: of the name with its colon
        self.folds: set[str] = set()  #: the selected names, letter case ignored
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

    def admit(self, found: Mapping[str, object]) -> None:
        """See that nobody takes another name for a selected one; ``Ambiguous`` otherwise."""
        if self._known.issuperset(found):
            return
        if len(self._known) > _KNOWN:
            self._known = set(self.names)
        for name in found:
            if name not in self._known:
                if fold(name) in self.folds:
                    raise Ambiguous(LETTER_CASE)
                if len(name) <= _KNOWN_LENGTH:
                    self._known.add(name)

    def layout(self, found: Mapping[str, object]) -> Layout:
        """Where the values of an object with these names stand; ``Ambiguous`` as for ``admit``."""
        names = tuple(found)
        layout = self._layouts.get(names)
        if layout is None:
            self.admit(found)
            layout = self._lay_out(names)
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


def check(node: Node) -> None:
    """``Unsuitable`` when selected places may lie inside each other, or selected names differ only in letter case."""
    children = node.children()
    if (node.leaf >= 0 and (children or node.objects)) or (node.each and node.indexes):
        raise Unsuitable
    if len(node.folds) < len(node.names):
        raise Unsuitable
    for child in children:
        check(child)
