"""A trie over path segments: which of many templates matches a path most specifically.

Looking up costs the depth of the path, not the number of templates. At each segment the most
specific child is tried first; that this finds the most specific template is what ``load/rivals.py``
checks when rules load.
"""

import re
from collections.abc import Sequence
from typing import Generic, TypeAlias, TypeVar

from proxy.redactor import form
from proxy.redactor.path_template import PathTemplate, SegmentKind, TemplateSegment

_T = TypeVar("_T")


#: The value of the template that matched, its placeholders' names and the bytes that stood there.
RouteMatch: TypeAlias = tuple[_T, tuple[str, ...], tuple[bytes, ...]]


class _Node(Generic[_T]):
    __slots__ = ("found", "literals", "mixed", "one", "rest")

    def __init__(self) -> None:
        self.literals: dict[bytes, _Node[_T]] = {}
        self.mixed: list[tuple[str, re.Pattern[bytes], _Node[_T]]] = []
        self.one: _Node[_T] | None = None
        self.rest: _Node[_T] | None = None
        self.found: tuple[_T, tuple[str, ...]] | None = None


class Trie(Generic[_T]):
    """Templates to values.

    ``fold`` takes ASCII letters of either case; what placeholders take stays as it came.
    """

    def __init__(self, *, fold: bool = False) -> None:
        self._root: _Node[_T] = _Node()
        self._fold = fold

    def add(self, template: PathTemplate, value: _T) -> None:
        """Put a template in; the first of two with the same shape stays."""
        node = self._root
        for segment in template.segments:
            node = self._child(node, segment)
        if node.found is None:
            node.found = (value, template.names)

    def _child(self, node: _Node[_T], segment: TemplateSegment) -> _Node[_T]:
        if segment.kind is SegmentKind.LITERAL:
            key = segment.text.encode()
            return node.literals.setdefault(key.lower() if self._fold else key, _Node())
        if segment.kind is SegmentKind.ONE:
            node.one = node.one or _Node()
            return node.one
        if segment.kind is SegmentKind.REST:
            node.rest = node.rest or _Node()
            return node.rest
        for text, _, child in node.mixed:
            if text == segment.text:
                return child
        child = _Node()
        node.mixed.append((segment.text, segment.regex(re.IGNORECASE if self._fold else 0), child))
        node.mixed.sort(key=lambda entry: form.pattern_weight(entry[0]), reverse=True)
        return child

    def find(self, path: Sequence[bytes]) -> RouteMatch[_T] | None:
        """The most specific template for these segments, or ``None``."""
        keys = [segment.lower() for segment in path] if self._fold else path
        node = self._root
        values: list[bytes] = []
        # a less specific child was passed by, so that a dead end is not the last word
        passed = False
        for index, key in enumerate(keys):
            child = node.literals.get(key)
            if child is None:
                if node.mixed or node.rest is not None or node.one is None:
                    passed = passed or bool(node.mixed) or node.rest is not None
                    return _walk(self._root, keys, path, ()) if passed else None
                child = node.one
                values.append(path[index])
            elif node.one is not None or node.mixed or node.rest is not None:
                passed = True
            node = child
        if node.found is not None:
            return (*node.found, tuple(values))
        return _walk(self._root, keys, path, ()) if passed else None


def _walk(
    node: _Node[_T],
    keys: Sequence[bytes],
    path: Sequence[bytes],
    values: tuple[bytes, ...],
    index: int = 0,
) -> RouteMatch[_T] | None:
    """Depth first, the most specific child first; ``index`` is the segment to match next."""
    if index == len(keys):
        return (*node.found, values) if node.found else None
    child = node.literals.get(keys[index])
    if child is not None and (found := _walk(child, keys, path, values, index + 1)):
        return found
    for _, regex, child in node.mixed:
        hit = regex.fullmatch(path[index])
        if hit and (found := _walk(child, keys, path, values + hit.groups(), index + 1)):
            return found
    if node.one is not None and (
        found := _walk(node.one, keys, path, (*values, path[index]), index + 1)
    ):
        return found
    if node.rest is not None and node.rest.found:
        return (*node.rest.found, (*values, b"/".join(path[index:])))
    return None
