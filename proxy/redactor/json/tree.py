"""A tree of selectors, one node for each place that some selector passes or ends at.

Only names, element numbers and ``[*]``, and only places that cannot lie inside each other: what
that leaves out is ``Unsuitable`` and goes to the walker.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from proxy.errors import Code, VaultError
from proxy.model.schema import Path, PathStep, Value
from proxy.redactor.json.native import Layout
from proxy.redactor.json.nested import MOST_NAMES, Nested, Way, onward
from proxy.redactor.json.text import fold_name, loose_name, needle

#: Why a document is ambiguous.
TWICE = "a member name occurs twice"
LETTER_CASE = (
    "a member name differs from the expected one only in letter case or white space around it"
)
MISSPELT = (
    "a member name differs from the expected one only in the signs _ and -, or in letter case "
    "without them, as in birthDate and birth_date; if the application has both, name the other in "
    "the rule, too, as a field of its own; pass: true for its place under values lets it leave in "
    "the clear"
)
NESTED = "a member name writes out the way to an expected member, by dots, brackets or slashes"
HALF_PAIR = "a selected value holds half of a surrogate pair"

#: Harmless names that a node remembers, and how long they may be.
_CAPACITY = 1000
_KNOWN_LENGTH = 64

#: Sequences of names that a node remembers, and how many names one may have.
_LAYOUTS = 64
NARROW_TREE = 100


class Undecided(Exception):
    """The fast path cannot tell; the walker can."""


class Ambiguous(Exception):
    """Somebody takes another member for a selected one; the text says how."""


class Unsuitable(Exception):
    """These selectors need the walker for every document."""


#: Selectors of objects, of leaves in them, of leaves from the root, and of what may stand beside.
Selectors = tuple[Path | None, Sequence[Path], Sequence[Path], Sequence[Path]]


class ObjectLayout(NamedTuple):
    """An object with certain names and no white space: its length but for the values, and the
    selected members.

    Of those: name, node, number among the members, and the bytes before the value except other
    values.
    """

    fixed: int
    places: "tuple[tuple[str, PathNode, int, int], ...]"


class PathNode:
    """A place in a tree of selectors, with the selections at it and below it."""

    __slots__ = (
        *("_admitted", "chosen", "each", "folds", "indexes", "layouts", "leaf", "loose", "names"),
        *("needle", "nested", "objects", "spared", "spreads", "width"),
    )

    def __init__(self, name: str = "") -> None:
        self.leaf = -1  #: number of the leaf that ends here
        self.objects = False  #: the selected objects are here
        #: so are they in each element of an array that stands here
        self.spreads = False
        self.names: dict[str, PathNode] = {}
        self.indexes: dict[int, PathNode] = {}
        self.each: PathNode | None = None
        self.needle = needle(name)
        self.width = len(self.needle) + 1  #: of the name with its colon
        self.folds: set[str] = set()  #: the selected names, letter case ignored
        #: places to which other names lead; ``None`` if no reader follows them
        self.nested: Nested | None = None
        self.loose: frozenset[str] = frozenset()  #: the selected names, if readers translate them
        self.spared: frozenset[str] = frozenset()  #: names that may stand beside them elsewhere
        self.chosen: set[str] = set()  #: names that are selected or spared here
        #: those, and names that no reader takes for a selected one
        self._admitted: set[str] = set()
        #: of objects of these names, of which none can be taken for a selected one
        self.layouts: dict[tuple[str, ...], ObjectLayout] = {}

    def child(self, step: str | int | PathStep) -> "PathNode":
        """The node one step on; ``Unsuitable`` when the step is ``.*`` or ``..``."""
        if isinstance(step, str):
            self.chosen.add(step)
            self._admitted.add(step)
            self.folds.add(fold_name(step))
            return self.names.setdefault(step, PathNode(step))
        if isinstance(step, int):
            return self.indexes.setdefault(step, PathNode())
        if step is not PathStep.EACH:
            raise Unsuitable
        if self.each is None:
            self.each = PathNode()
        return self.each

    def spare(self, way: Path, spared: Sequence[Path]) -> None:
        """Learn names without signs, and those that ``spared`` allows; ``way``: to this node."""
        self.loose = frozenset(map(loose_name, self.names))
        self.spared = frozenset(
            step for one in spared for step in one[-1:] if isinstance(step, str)
        )
        self.chosen |= {one[-1] for one in spared if one[:-1] == way and one[-1] in self.spared}
        self._admitted |= self.chosen

    def children(self) -> "list[PathNode]":
        return [*self.names.values(), *self.indexes.values(), *([self.each] if self.each else [])]

    @property
    def is_end(self) -> bool:
        """Whether no selector continues from here."""
        return not (self.names or self.indexes or self.each)

    def knows(self, members: Mapping[str, object]) -> bool:
        """Whether every name was admitted before."""
        return self._admitted.issuperset(members)

    def admit(self, members: Mapping[str, bytes | msgspec.Raw]) -> bool:
        """Ensure that no reader takes another name for a selected one; ``Ambiguous`` otherwise.

        Whether that holds for other objects of the same names, too: of some names it is their value
        that tells.
        """
        if self._admitted.issuperset(members):
            return True
        if len(self._admitted) > _CAPACITY:
            self._admitted = set(self.chosen)
        suspects = self.watch(members) if self.nested else ()
        for name in members:
            if name not in self._admitted:
                self._compare(name)
                if len(name) <= _KNOWN_LENGTH and name not in suspects:
                    self._admitted.add(name)
        return not suspects

    def _compare(self, name: str) -> None:
        folded = fold_name(name)
        if folded in self.folds or folded.strip() in self.folds:
            raise Ambiguous(LETTER_CASE)
        if self.loose and loose_name(name) in self.loose:
            # only the walker knows whether a spared name may stand in this object
            raise Undecided if name in self.spared else Ambiguous(MISSPELT)

    def watch(self, members: Mapping[str, bytes | msgspec.Raw]) -> Collection[str]:
        """See that no member puts anything at a place by a name that writes out the way;
        ``Ambiguous`` otherwise.

        The names that could, but do not because of their values.
        """
        if self.nested is None:
            return ()
        suspects = self.nested.suspects(name for name in members if name not in self._admitted)
        if len(suspects) > MOST_NAMES or any(
            self.nested.reaches(name, members[name]) for name in suspects
        ):
            raise Ambiguous(NESTED)
        return suspects

    def settles(self, names: Sequence[str]) -> bool:
        """Whether no reader takes one of these names for another, whatever the values are."""
        unusual = len(set(names)) < len(names) or (self.nested and self.nested.suspects(names))
        try:
            return not unusual and self.admit(dict.fromkeys(names, b""))
        except (Ambiguous, Undecided):
            return False

    def layout(self, members: Mapping[str, bytes | msgspec.Raw]) -> ObjectLayout:
        """Return the positions of an object's values; ``Ambiguous`` as for ``admit``."""
        names = tuple(members)
        layout = self.layouts.get(names)
        if layout is None:
            settled = self.admit(members)
            layout = self._lay_out(names)
            if not settled:
                return layout
            if len(self.layouts) >= _LAYOUTS:
                self.layouts.clear()
            self.layouts[names] = layout
        return layout

    def _lay_out(self, names: tuple[str, ...]) -> ObjectLayout:
        places = []
        fixed = 0
        for number, name in enumerate(names):
            fixed += len(name.encode()) + 4  # a brace or comma, two quotes, a colon
            child = self.names.get(name)
            if child is not None:
                places.append((name, child, number, fixed))
        return ObjectLayout(fixed + 1, tuple(places))


class LeafLayouts(dict[tuple[str, ...], Layout]):
    """Layouts of objects whose members are the leaves, by their names; see ``native``."""

    __slots__ = ("_node",)

    def __init__(self, node: PathNode) -> None:
        super().__init__()
        self._node = node

    def __missing__(self, names: tuple[str, ...]) -> Layout:
        layout: Layout = None
        if self._node.settles(names):
            nodes = self._node.names
            chosen = [number for number, name in enumerate(names) if name in nodes]
            layout = tuple([nodes[names[number]].leaf for number in chosen]), tuple(chosen)
        if max(map(len, names), default=0) <= _KNOWN_LENGTH:
            if len(self) >= _LAYOUTS:
                self.clear()
            self[names] = layout
        return layout


def leaf_node(node: PathNode, path: Path) -> PathNode:
    """The node at the end of a path, made if missing; two leaves there are ``Unsuitable``."""
    for step in path:
        node = node.child(step)
    if node.leaf >= 0:
        raise Unsuitable
    return node


def watch(root: PathNode, item: PathNode, selectors: Selectors) -> None:
    """Have every node of two laid trees know the names that readers take for its own.

    ``Unsuitable`` where one object has places of both trees that are called nearly alike.
    """
    objects, leaves, anchored, spared = selectors
    laid: list[tuple[PathNode, Path, Path, Sequence[Path] | None]] = []
    laid += [(item, objects or (), path, None) for path in leaves]
    laid += [(root, (), path, None) for path in anchored]
    laid += [(root, (), objects, leaves)] if objects is not None else []
    ways: dict[PathNode, list[Way]] = {}
    for node, before, path, behind in laid:
        for at, step in enumerate(path):
            ways.setdefault(node, []).extend(onward(path[at:], behind))
            node.spare((*before, *path[:at]), spared)
            node = node.child(step)  # noqa: PLW2901  # it walks on
        if behind is not None and not node.loose.isdisjoint(item.loose):
            raise Unsuitable
    for node, some in ways.items():
        node.nested = Nested(some)


def check_tree(node: PathNode) -> None:
    """``Unsuitable`` if places may lie inside each other, or names differ in letter case only."""
    children = node.children()
    if (node.leaf >= 0 and (children or node.objects)) or (node.each and node.indexes):
        raise Unsuitable
    if len(node.folds) < len(node.names):
        raise Unsuitable
    each = node.each
    node.spreads = node.objects or (each is not None and each.objects and each.is_end)
    for child in children:
        check_tree(child)


# Where selected values stand in a body: byte spans, never content.


class Leaf(NamedTuple):
    """A selected value: ``body[start:end]`` is its raw JSON; ``name`` numbers its selector."""

    name: int
    start: int
    end: int


class Located(NamedTuple):
    """A selected object and the leaves selected from it, in order of the document."""

    start: int
    end: int
    leaves: tuple[Leaf, ...]


class TreeSelection(NamedTuple):
    """Result of a selection: objects, and leaves counted from the root, in document order."""

    objects: list[Located]
    anchored: list[Leaf]


class Hit(NamedTuple):
    """A leaf while it is not known yet whether another one encloses it.

    ``owner`` -1: counted from the root.
    """

    start: int
    end: int
    owner: int
    name: int


def assemble(objects: Sequence[tuple[int, int]], hits: Iterable[Hit]) -> TreeSelection:
    """Give every leaf to its object; of leaves inside each other only the outermost stays.

    Where one place was selected twice, a leaf from the root wins, then the outer object, then the
    earlier selector.
    """
    owned: list[list[Leaf]] = [[] for _ in objects]
    anchored: list[Leaf] = []
    reached = 0
    for hit in sorted(hits, key=lambda hit: (hit.start, -hit.end, hit.owner, hit.name)):
        if hit.start >= reached:
            reached = hit.end
            (anchored if hit.owner < 0 else owned[hit.owner]).append(
                Leaf(hit.name, hit.start, hit.end)
            )
    located = [Located(*span, tuple(leaves)) for span, leaves in zip(objects, owned, strict=True)]
    return TreeSelection(located, anchored)


# One JSON value as it stands in a body, read and written (RFC 8259).

_TEXT = msgspec.json.Decoder(str)
#: Text as raw JSON; ``UnicodeEncodeError`` for text that is no Unicode.
encode_text = msgspec.json.Encoder().encode


def read_json_value(raw: bytes | memoryview) -> Value | None:
    """The value that a raw JSON text spells; ``None`` for ``null``.

    A string gives its decoded text; anything else keeps its exact spelling. ``raw`` is one value
    without white space round it, out of a document that was validated.
    ``VaultError(AMBIGUOUS_JSON)`` for half of a surrogate pair.
    """
    first = raw[0]
    if first == 0x22:
        try:
            return Value(_TEXT.decode(raw), False)
        except msgspec.DecodeError:
            pass  # the error holds the text; it must not become the context of ours
        raise VaultError(
            Code.AMBIGUOUS_JSON,
            "A string of the body is ambiguous: it holds half of a surrogate pair. Send "
            "whole characters.",
        )
    if first == 0x6E:
        return None
    return Value(bytes(raw).decode(), json=True)


def write_json_value(value: Value) -> bytes:
    """The value as raw JSON: text in quotes, in UTF-8, with only the escapes that JSON demands.

    ``VaultError(VALUE_UNFIT)`` for text that is no Unicode (half of a surrogate pair).
    """
    try:
        return value.text.encode() or b"null" if value.json else encode_text(value.text)
    except UnicodeEncodeError:
        pass  # The error holds the text; it must not become the context of ours.
    raise _no_text()


def write_json_values(values: Iterable[Value]) -> list[bytes]:
    """``write_json_value`` of each."""
    texts: list[bytes] = []
    try:
        for value in values:  # no comprehension: that is one more call with every message
            texts.append(value.text.encode() or b"null" if value.json else encode_text(value.text))  # noqa: PERF401  # saves a call
        return texts
    except UnicodeEncodeError:
        pass  # likewise
    raise _no_text()


def _no_text() -> VaultError:
    return VaultError(
        Code.VALUE_UNFIT, "A value holds half of a surrogate pair and cannot be written as JSON."
    )
