"""Compiled selectors: where the objects of a body are, and the values in them.

A selection is made when rules load and used for every message. It compiles on first use, and equal
selections share what was compiled.
"""

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final

from proxy.model.schema import Path, PathStep, Value
from proxy.redactor.json.fast import FastSelector
from proxy.redactor.json.tree import Leaf, Located, TreeSelection, Undecided, Unsuitable
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

    def find(self, body: bytes, depth: int = 64) -> TreeSelection:
        """Every selected object and leaf, as byte spans, in order of the document.

        The whole document is validated, whatever it holds. Raises ``VaultError``, never with
        content in its text: MALFORMED_JSON, UNREADABLE_BODY (not UTF-8), TOO_LARGE (nests deeper
        than ``depth``), AMBIGUOUS_JSON (a name on a selected path twice, or different only in
        letter case; with ``nested``, one that writes out the way to a place; half of a surrogate
        pair in a selected value or beside a selected name; data behind the document).
        """
        if not self._compiled:
            self._levels = _compile(self._objects, self._leaves, self._anchored, self._nested)
            self._compiled = True
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


@lru_cache(maxsize=_COMPILED)
def _compile(
    objects: Path | None, leaves: tuple[Path, ...], anchored: tuple[Path, ...], nested: bool
) -> FastSelector | None:
    """The fast path of these selectors, or ``None`` where they need the walker."""
    try:
        return FastSelector(objects, leaves, anchored, nested=nested)
    except Unsuitable:
        return None


# Fields of which a request says that they hold nothing any more, by what stands on the way to their
# places.
#
# ``$.tags[*]`` selects nothing in ``{"tags": []}``, and ``$.address.street`` nothing in
# ``{"address": null}``. An update that says so is another one than an update that does not speak of
# them: the application holds no such value from then on, and the vault would keep what nobody sees
# any more. An object without members says nothing (RFC 7396), nor does a list that ends before its
# index.


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

    def among(self, given: Collection[str], body: bytes, depth: int) -> dict[str, Value | None]:
        """The fields that are not ``given`` and hold nothing: ``None`` by a null, an empty value by
        an empty array or text.

        ``body`` is a valid document. Raises ``VaultError`` as ``Selection.find``.
        """
        found: dict[str, Value | None] = {}
        for name, first, way in self._ways:
            if name in given or (first not in body and b"\\" not in body):
                continue
            for path, listed in way:
                stands = [body[start:end] for start, end in locate(path, body, depth)]
                if b"null" in stands:
                    found[name] = None
                elif b'""' in stands or (listed and any(map(_NOTHING.match, stands))):
                    found[name] = _EMPTY
        return found


def _way(path: Path) -> list[tuple[Path, bool]]:
    """The places before the last one, as far as they can be told, and whether an array is expected
    there.
    """
    told = path.index(PathStep.DEEP) if PathStep.DEEP in path else len(path) - 1
    return [
        (path[:at], path[at] is PathStep.EACH or path[at] is PathStep.DEEP)
        for at in range(1, told + 1)
    ]
