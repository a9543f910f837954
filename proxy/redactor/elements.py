"""Elements of a document while it is read, be it of XML or the lines of a card."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from proxy.errors import Code, VaultError
from proxy.model.schema import Value

#: Texts that are read of a document of any size.
_FEW: Final = 20_000


class Piece(NamedTuple):
    """The bytes of a text, and how another one is written there."""

    start: int
    end: int
    write: Callable[[Value], bytes]


#: Nothing in an element yet, as in most; never changed.
_NONE: Final[list[Any]] = []


class Element:
    """An element while it is read. ``odd``: a comment or an instruction stands in it."""

    __slots__ = ("attributes", "body", "children", "name", "nil", "odd", "tag", "text")

    def __init__(self, name: str, tag: bytes = b"", body: int = 0) -> None:
        self.tag, self.name, self.body = tag, name, body
        #: texts, or a list of what stands under one name, by name
        self.attributes: list[tuple[str, str | list[str], Piece | None]] = _NONE
        self.children: list[Built] = _NONE
        self.nil = self.odd = self.text = False

    def add(self, *children: "Built") -> None:
        """Put elements into this one."""
        if self.children:
            self.children += children
        else:
            self.children = [*children]


#: An element that is whole: itself, its text, and where that is in one piece.
Built = tuple[Element, str, Piece | None]


class Document(NamedTuple):
    """A document as JSON, and its texts by where they begin in that."""

    content: bytes
    pieces: dict[int, Piece]


class DocumentReader:
    """Reads no more texts than a document of that size has, for each takes a kilobyte of memory.

    ``more``: beyond a few; ``outer``: reads the document round this one, and counts them.
    """

    def __init__(self, more: int, outer: "DocumentReader | None" = None) -> None:
        self._left, self._parent = _FEW + more, outer

    def count(self) -> None:
        """One more text. Raises ``VaultError`` (TOO_LARGE)."""
        self._left -= 1
        if self._parent is not None:
            self._parent.count()
        elif self._left < 0:
            raise VaultError(
                Code.TOO_LARGE,
                "The document has more elements than its size explains: send it in parts.",
            )
