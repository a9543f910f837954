"""The containers on the way to a rule's places, and whether a request keeps to them.

A rule that names ``$.address.street`` finds nothing in ``{"address": "Main Street 1"}``, and an application that
forgives may well take it. So where a path goes on and the document does not, or goes on with another kind of
container, a request holds something that nobody understood. What holds nothing (null, an empty text, array or object)
and what holds a bare true or false may stand anywhere.
"""

from collections.abc import Iterable, Sequence

import msgspec

from proxy.model.path import Path, Step
from proxy.redactor.grammar import mended

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_NOTHING = (b"null", b"true", b"false", b'""')
_WHITE = b" \t\n\r"


class _Node:
    """One place on the way: where its paths go on to."""

    __slots__ = ("each", "end", "indexes", "item", "names")

    def __init__(self) -> None:
        self.end = False  #: a protected place: whatever stands here is swapped as a whole
        self.names: dict[str, _Node] = {}
        self.indexes: dict[int, _Node] = {}
        self.each: _Node | None = None
        self.item: _Node | None = None  #: objects are selected here, alone or in arrays, and this is the way on in each

    def lay(self, path: Path) -> "_Node | None":
        """The node at the end of a path; ``None`` behind a descent, which expects nothing of what it passes."""
        node = self
        for step in path:
            if step is Step.DEEP:
                return None
            if isinstance(step, str):
                node = node.names.setdefault(step, _Node())
            elif isinstance(step, int):
                node = node.indexes.setdefault(step, _Node())
            else:
                node.each = node = node.each or _Node()
        return node

    @property
    def expects(self) -> bool:
        return bool(self.names or self.indexes or self.each or self.item)

    @property
    def goes_on(self) -> bool:
        """Whether something lies behind the members of an object here."""
        return bool(self.each) or any(not child.end for child in self.names.values())


class Outline:
    """Made when rules load; asked for every request."""

    def __init__(self, objects: Path | None, leaves: Iterable[Path], anchored: Iterable[Path]) -> None:
        self._root = _Node()
        for path in anchored:
            _end(self._root, path)
        selected = self._root.lay(objects) if objects is not None else None
        if selected is not None:
            selected.item = selected.item or _Node()
            for path in leaves:
                _end(selected.item, path)
        item = self._root.item
        #: A document that is an object is a selected one, and its members are the places themselves: none can lie behind another.
        self._flat = item is not None and not (self._root.end or self._root.goes_on or item.goes_on)

    def strayed(self, body: bytes) -> bool:
        """Whether a valid JSON document holds something else where a path to a protected place goes on."""
        if self._flat and body.startswith(b"{"):
            return False
        try:
            return _strayed([self._root], body.strip(_WHITE))
        except msgspec.DecodeError:  # half of a surrogate pair, somewhere
            return _strayed([self._root], mended(body).strip(_WHITE))


def _end(start: _Node, path: Path) -> None:
    node = start.lay(path)
    if node is not None:
        node.end = True


def _strayed(nodes: Sequence[_Node], raw: bytes | msgspec.Raw) -> bool:
    if not any(node.expects for node in nodes) or any(node.end for node in nodes):
        return False
    kind = memoryview(raw)[0]
    if kind == 0x7B:  # {
        return _object([*nodes, *(node.item for node in nodes if node.item)], raw)
    if kind == 0x5B:  # [
        return _array(nodes, raw)
    return bytes(raw) not in _NOTHING


def _object(nodes: Sequence[_Node], raw: bytes | msgspec.Raw) -> bool:
    every = [node.each for node in nodes if node.each]
    leads = bool(every) or any(node.names or node.item for node in nodes)
    if leads and not any(node.goes_on for node in nodes):
        return False
    members = _MEMBERS.decode(raw)
    if not leads:
        return bool(members)
    further = {name for node in nodes for name, child in node.names.items() if not child.end and name in members}
    names = members if every else further
    return any(
        _strayed([*every, *(node.names[name] for node in nodes if name in node.names)], members[name]) for name in names
    )


def _array(nodes: Sequence[_Node], raw: bytes | msgspec.Raw) -> bool:
    every = [following for node in nodes for following in (node.each, node if node.item else None) if following]
    if any(following.end for following in every):
        return False
    elements = _ELEMENTS.decode(raw)
    indexed = [node.indexes for node in nodes if node.indexes]
    if not every and not indexed:
        return bool(elements)
    return any(
        _strayed([*every, *(places[at] for places in indexed if at in places)], element)
        for at, element in enumerate(elements)
    )
