"""The tables of a store as they are stored, for copies from one engine to another: what stands in
them has the same meaning in every engine.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from proxy.storage.rows import TableLayout

#: A row of a part, in the order of its columns; texts are ``str`` and truth values 0 and 1.
RawRow = tuple[Any, ...]


class TablePart(NamedTuple):
    """One of the tables of a schema; columns of the layout come behind those of ``rows``."""

    letter: str  #: what its name begins with
    key: int  #: how many of its columns, from the first on, tell its rows apart
    columns: tuple[str, ...]


_ROW = (
    "rid", "key", "key_sealed", "state", "version", "created_at", "updated_at", "expires_at",
    "salt", "body",
)  # fmt: skip
_FILE = ("file_id", "rid", "name", "object", "size", "created_at", "updated_at", "sealed")

TABLE_PARTS: Final = {
    "records": TablePart("r", 1, _ROW),
    "staged": TablePart("s", 1, ("sid", "rid", "kind", "at", "doubt", "answered", "body")),
    "tokens": TablePart("t", 2, ("hash", "rid")),
    "versions": TablePart("h", 2, ("rid", "version", "key", "at", "salt", "body")),
    "attachments": TablePart("f", 1, _FILE),
    "replies": TablePart("i", 1, ("key", "expires_at", "digest", "sealed")),
    "links": TablePart("l", 3, ("rid", "reply", "files")),
}


def columns_of(layout: TableLayout, part: TablePart) -> list[str]:
    """The columns of a part, as all engines call them."""
    own = [f"x_{column.name}" for column in layout.columns] if part.letter == "r" else []
    return [*part.columns, *own]


class RawTables(Protocol):
    """The tables of an open store, row by row as they are stored."""

    async def layouts(self) -> list[TableLayout]:
        """Every table with all of its columns, by name."""

    async def page(
        self, layout: TableLayout, part: TablePart, after: RawRow | None, limit: int
    ) -> list[RawRow]:
        """Rows with a larger key than ``after``, ascending; at most ``limit``."""

    async def replace(
        self, layout: TableLayout, part: TablePart, gone: Sequence[RawRow], rows: Sequence[RawRow]
    ) -> None:
        """Remove the rows with these keys and add others, in one durable transaction."""

    async def tallies(self) -> dict[str, bytes]:
        """The sealed sums over rows, by table; empty where none are kept."""

    async def put_tallies(self, tallies: Mapping[str, bytes]) -> None:
        """Store sealed sums of the rows as they are."""
