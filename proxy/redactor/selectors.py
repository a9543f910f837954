"""Compiled selectors: where the objects of a body are, and the values in them.

A selection is made when rules load and used for every message. It compiles on first use, and equal selections
share what was compiled.
"""

from collections.abc import Sequence
from functools import lru_cache

from proxy.model.path import Path
from proxy.redactor.levels import Levels
from proxy.redactor.spans import Found, Leaf, Located
from proxy.redactor.tree import Doubt, Unsuitable
from proxy.redactor.walker import walk, walk_nested

__all__ = ["Found", "Leaf", "Located", "Selection"]

#: Compiled selections kept; a rule set has two per operation at most.
_COMPILED = 4096


class Selection:
    """Objects of a document, leaves in each of them, and leaves that count from the root.

    ``objects`` selects objects from the root; an array there means each of its elements, however nested, and
    anything else there selects nothing. ``leaves`` start at each object, ``anchored`` at the root. A leaf may be any
    JSON value, ``null`` and containers included, and one selector may choose several. Of leaves that lie inside each
    other only the outermost is found.
    """

    __slots__ = ("_anchored", "_compiled", "_leaves", "_levels", "_nested", "_objects")

    def __init__(
        self, objects: Path | None, leaves: Sequence[Path], anchored: Sequence[Path] = (), *, nested: bool = False
    ) -> None:
        """``nested``: member names such as ``address.street`` are other spellings of a place, as for requests."""
        self._objects = objects
        self._leaves = tuple(leaves)
        self._anchored = tuple(anchored)
        self._nested = nested
        self._levels: Levels | None = None
        self._compiled = False

    def find(self, body: bytes, depth: int = 64) -> Found:
        """Every selected object and leaf, as byte spans, in order of the document.

        The whole document is validated, whatever it holds. Raises ``VaultError``, never with content in its text:
        MALFORMED_JSON, UNREADABLE_BODY (not UTF-8), TOO_LARGE (nests deeper than ``depth``), AMBIGUOUS_JSON (a name on a
        selected path twice, or different only in letter case; with ``nested``, one that writes out the way to a place; half of
        a surrogate pair in a selected value or beside a selected name; data behind the document).
        """
        if not self._compiled:
            self._levels = _compile(self._objects, self._leaves, self._anchored, self._nested)
            self._compiled = True
        if self._levels is not None:
            try:
                return self._levels.find(body, depth)
            except Doubt:
                pass
            # Most bodies that come here are no JSON, and this pass tells so at a fraction of the other's time.
            walk(None, (), (), body, depth)
        find = walk_nested if self._nested else walk
        return find(self._objects, self._leaves, self._anchored, body, depth)


@lru_cache(maxsize=_COMPILED)
def _compile(objects: Path | None, leaves: tuple[Path, ...], anchored: tuple[Path, ...], nested: bool) -> Levels | None:
    """The fast path of these selectors, or ``None`` where they need the walker."""
    try:
        return Levels(objects, leaves, anchored, nested=nested)
    except Unsuitable:
        return None
