"""CSV as bytes: records and cells where they stand, and values written as their cells were.

The dialect is the file's own (RFC 4180 and what programs make of it): a byte order mark, one of
four delimiters, quotes or none, any line end. Whatever is no cell of a named column stays as it is.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from proxy.model.schema import NO_VALUE, Value
from proxy.redactor.message import RawHeaders, canonical_uuid, header
from proxy.redactor.redact import BodyObject, Spot
from proxy.redactor.restore import Edit, splice

_DELIMITERS: Final = b",;\t|"
_BOM: Final = b"\xef\xbb\xbf"
_TYPES: Final = (b"text/csv", b"application/csv", b"text/tab-separated-values")
_CHARSET: Final = re.compile(rb";\s*charset\s*=\s*\"?([^\s\";]+)", re.IGNORECASE)
#: Charsets whose delimiters and quotes are single bytes that nothing else holds.
_CHARSETS: Final = {
    name: codec
    for codec, names in {
        "utf-8": (b"utf-8", b"utf8", b"us-ascii", b"ascii"),
        "cp1252": (b"iso-8859-1", b"latin1", b"windows-1252", b"cp1252"),
    }.items()
    for name in names
}


def charset(headers: RawHeaders) -> str | None:
    """Return the charset of a CSV answer; ``None`` for another type, or an unsupported charset."""
    declared = header(headers, b"content-type") or b""
    if declared.partition(b";")[0].strip().lower() not in _TYPES:
        return None
    named = _CHARSET.search(declared)
    return "utf-8" if named is None else _CHARSETS.get(named[1].lower())


#: Beginnings of what a spreadsheet computes, also in their full width, and numbers with a sign that
#: it does not: a telephone number has nothing to compute.
_FORMULA: Final = re.compile(r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER: Final = re.compile(r"[+-]?[0-9][0-9 \u00a0]*(?:[.,][0-9]+)?", re.ASCII)


class Cell(NamedTuple):
    """A cell of a record, its quotes among its bytes."""

    start: int
    end: int
    text: str


class _Dialect:
    """Line ends and delimiters of a file."""

    def __init__(self, delimiter: bytes, codec: str) -> None:
        mark = re.escape(delimiter)
        bare = rb"[^\r\n" + mark + rb"]"
        quoted = rb"\"(?:[^\"]++|\"\")*+\""
        #: a quote that opens no whole cell is a sign like others
        self._cell = re.compile(rb"(" + quoted + rb"(?![^\r\n" + mark + rb"])|" + bare + rb"*+)")
        cell = rb"(?:" + quoted + bare + rb"*+|(?!\")" + bare + rb"*+)"
        self.record = re.compile(cell + rb"(?:" + mark + cell + rb")*+(?:\r\n|\n|\r(?!\n|\Z))")
        self._special = re.compile('["\r\n' + re.escape(delimiter.decode()) + "]|^[ \t]|[ \t]$")
        self._codec = codec

    def cells(self, block: bytes, start: int, end: int) -> Iterator[Cell]:
        end -= len(block[start:end]) - len(block[start:end].rstrip(b"\r\n"))
        while (match := self._cell.match(block, start, end)) is not None:
            raw = match[1]
            if raw[:1] == b'"':
                raw = raw[1:-1].replace(b'""', b'"')
            yield Cell(*match.span(1), raw.decode(self._codec, "replace"))
            start = match.end() + 1
            if start > end:
                break

    def written(self, text: str, was: bytes) -> bytes | None:
        """A value in place of a cell; ``None`` where the charset cannot hold it."""
        try:
            if was[:1] == b'"' or self._special.search(text):
                return b'"' + text.replace('"', '""').encode(self._codec) + b'"'
            return text.encode(self._codec)
        except UnicodeEncodeError:
            return None


class CsvSlice(NamedTuple):
    """Whole records of a file as received, and their objects."""

    raw: bytes
    items: Sequence[BodyObject]


class CsvRecords:
    """Cuts a file into slices of whole records as it arrives.

    ``columns``: field by name of the column. ``ident``: the column of the ids; empty: none.
    ``most``: bytes of the longest record that is looked into. ``escapes_formulas``: an apostrophe
    stands before values that a spreadsheet would compute.
    """

    def __init__(
        self,
        columns: Mapping[str, str],
        ident: str,
        codec: str,
        most: int,
        *,
        escapes_formulas: bool = False,
    ) -> None:
        self._escapes_formulas = escapes_formulas
        self._columns = columns
        self._ident = ident
        self._codec = codec
        self._most = most
        self._rest = b""
        self._dialect: _Dialect | None = None
        self._fields: dict[int, str] = {}  #: by number of the column
        self._id_column = -1
        self.names: list[str] = []  #: of all columns, once the first line has come
        self.unread = False  #: the rest of the file passes as it comes

    def feed(self, piece: bytes) -> CsvSlice:
        """The records that this piece completes.

        A file that has none of the columns is ``unread``, and one from a record over the limit on.
        """
        block, self._rest = self._rest + piece, b""
        at = 0
        if self._dialect is None and not self.unread:
            at = self._open(block)
        items: list[BodyObject] = []
        dialect = self._dialect
        while (
            dialect is not None
            and not self.unread
            and (record := dialect.record.match(block, at)) is not None
        ):
            items.append(self._item(dialect, block, *record.span()))
            at = record.end()
        if not self.unread and len(block) - at > self._most:
            self.unread = True
        if self.unread:
            return CsvSlice(block, items)
        self._rest = block[at:]
        return CsvSlice(block[:at], items)

    def end(self) -> CsvSlice:
        """Return the rest at the end: a last record without a line end."""
        block, self._rest = self._rest, b""
        if self._dialect is None and not self.unread:
            self.unread = bool(block)  # not even a header
        if self._dialect is None or self.unread or not block:
            return CsvSlice(block, ())
        return CsvSlice(block, (self._item(self._dialect, block, 0, len(block)),))

    def written(
        self, some: CsvSlice, values: Sequence[Sequence[Value | None]]
    ) -> tuple[bytes, dict[str, int]]:
        """A slice with values in it, and how many there are of each field."""
        edits: list[Edit] = []
        counts: dict[str, int] = {}
        for item, row in zip(some.items, values, strict=True):
            for spot, value in zip(item.spots, row, strict=True):
                if value is None or self._dialect is None:
                    continue
                was = some.raw[spot.start : spot.end]
                guarded = was.lstrip(b'"').startswith(b"'") or (  # by the application
                    self._escapes_formulas and is_formula(value.text)
                )
                sign = "'" * (guarded and value != NO_VALUE)
                text = self._dialect.written(sign + value.text, was)
                if text is not None:
                    edits.append((spot.start, spot.end, text))
                if text is not None and value != NO_VALUE:
                    counts[spot.field] = counts.get(spot.field, 0) + 1
        return splice(some.raw, edits), counts

    def _open(self, block: bytes) -> int:
        """Return the start of the first record after the header; 0 until that is complete."""
        ends = [at for at in (block.find(b"\n"), block.find(b"\r")) if at >= 0]
        if not ends or (block[min(ends)] == 0x0D and min(ends) + 1 == len(block)):
            return 0
        end = min(ends) + 1
        if block[end - 1 : end + 1] == b"\r\n":
            end += 1
        self._head(block, end)
        return end

    def _head(self, block: bytes, end: int) -> None:
        start = len(_BOM) if block.startswith(_BOM) else 0
        for delimiter in _DELIMITERS:
            dialect = _Dialect(bytes([delimiter]), self._codec)
            names = [cell.text.strip() for cell in dialect.cells(block, start, end)]
            fields = {
                at: self._columns[one] for at, one in enumerate(names) if one in self._columns
            }
            if len(fields) > len(self._fields):
                self._dialect, self._fields, self.names = dialect, fields, names
                self._id_column = names.index(self._ident) if self._ident in names else -1
        self.unread = self._dialect is None

    def _item(self, dialect: _Dialect, block: bytes, start: int, end: int) -> BodyObject:
        item = BodyObject([])
        for at, cell in enumerate(dialect.cells(block, start, end)):
            if at == self._id_column:
                item.id = canonical_uuid(cell.text) or None
            field = self._fields.get(at)
            if field is not None and cell.text:
                item.spots.append(
                    Spot(field, cell.start, cell.end, Value(cell.text.removeprefix("'")))
                )
        return item


def is_formula(text: str) -> bool:
    """Whether a spreadsheet would compute a cell with this text, as OWASP names them."""
    return _FORMULA.match(text) is not None and _NUMBER.fullmatch(text) is None
