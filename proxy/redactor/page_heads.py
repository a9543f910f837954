"""Values of a page by the words that people read before or above them.

A column of a table is named by its head; a cell, a definition or another text by the label before
it: ``<th>Born</th><td>``, ``<dt>Born</dt><dd>``, ``<strong>Born:</strong>``, ``Born: 1984-03-02``.
Tables are laid out as by the HTML standard, section 4.9.12: ``colspan`` and ``rowspan`` count.
"""

import re
from collections import Counter
from collections.abc import Mapping
from html import unescape
from itertools import pairwise
from typing import Final, NamedTuple

from proxy.redactor.pages import tags

#: Signs at both ends of a label, such as a colon or the arrow of an order.
_EDGES: Final = re.compile(r"^[\W_]+|[\W_]+\Z")
_BLANKS: Final = re.compile(r"\s+")
_COUNT: Final = re.compile(r"[\"']?\s*([0-9]{1,5})")
#: A label with its value behind it in one text.
_IN_TEXT: Final = re.compile(r"[^:\n]{1,100}:")
#: Columns of the widest table that is read.
_WIDEST: Final = 200

#: Elements within a text.
_INLINE: Final = frozenset(
    b"a abbr bdi bdo cite code data em font i kbd mark q s samp small span sub sup time u var wbr"
    .split()
)  # fmt: skip
#: Those that may stand between a label and its value, beside inline ones.
_BETWEEN: Final = frozenset(b"b br dd div output p strong".split())
#: Those whose end is the end of what a label stands for.
_CLOSING: Final = frozenset(
    b"article aside body dl fieldset footer form header li main nav ol section table tbody td"
    b" tfoot th thead tr ul".split()
)
#: Those with which another record may begin, and end.
_RECORDS: Final = frozenset((b"article", b"form", b"li", b"tr"))
_SKIPPED: Final = frozenset((b"datalist", b"select"))
#: Attributes that repeat what an element shows, and links.
_REPEATING: Final = frozenset((b"content", b"datetime", b"href", b"title"))

_Attributes = Mapping[bytes, tuple[int, int]]


#: Stands for a field where a head is that of the records' ids.
ROW_ID: Final = "id of the record"


def label_of(text: str) -> str:
    """A text as heads are compared: in lower case, without signs at its ends."""
    text = _BLANKS.sub(" ", text).strip()
    return (_EDGES.sub("", text) or text).casefold()  # ``#`` is the head of ids


class Run(NamedTuple):
    """A text between two tags, or of an attribute, without white space at its ends."""

    start: int
    end: int
    text: str


class HeadedPlace(NamedTuple):
    """Texts below a head, or behind a label.

    ``part``: the same number for what stands in one row of a table, or belongs to one record.
    ``attributes``: texts of its tags, for programs.
    """

    field: str
    part: int
    runs: tuple[Run, ...]
    attributes: tuple[Run, ...] = ()


class Headed(NamedTuple):
    """The places of a page, the fields of cells that could not be told apart, and links by part."""

    places: list[HeadedPlace]
    unread: set[str]
    links: Mapping[int, list[str]] = {}  # never written


class _Cell:
    __slots__ = ("attributes", "column", "head", "nested", "rows", "runs", "width")

    def __init__(self, head: bool, column: int, width: int, rows: int) -> None:
        self.head, self.column, self.width, self.rows = head, column, width, rows
        self.runs, self.attributes = list[Run](), list[Run]()
        self.nested = False  #: a table stands in it

    @property
    def columns(self) -> range:
        return range(self.column, min(self.column + self.width, _WIDEST))


class _Table:
    __slots__ = (
        *("cells", "fields", "first", "in_row", "labels", "part", "rows", "section", "spans"),
        "unclear",
    )

    def __init__(self, part: int) -> None:
        self.part = part  #: of its labels, where it has no heads
        self.labels = set[str]()  #: fields whose label it has shown in this part
        self.fields = dict[int, str]()  #: by column
        #: by column, whose head stands twice, or names two fields
        self.unclear = dict[int, set[str]]()
        self.spans = dict[int, int]()  #: by column, the last row that a cell above takes
        self.cells, self.in_row = list[_Cell](), False
        self.section = b""  #: ``thead``, ``tbody``, ``tfoot``
        self.rows = 0
        self.first = 0  #: how many places there were before this row

    @property
    def headed(self) -> bool:
        return bool(self.fields or self.unclear)


def headed_texts(page: bytes, heads: Mapping[str, str]) -> Headed:
    """The places of a page that these heads and labels name; ``heads``: with their fields."""
    reader, at = _Reader(page, {label_of(one): field for one, field in heads.items()}), 0
    for name, attributes, (start, _, end) in tags(page):
        if start > at:
            reader.text(at, start)
        if name:
            reader.tag(name.removeprefix(b"/"), name[0] == ord("/"), attributes)
        at = end
    reader.text(at, len(page))
    reader.finish()
    return Headed(reader.places, reader.unread, reader.links)


class _Reader:
    """Reads the tags and texts of a page in order."""

    def __init__(self, page: bytes, heads: Mapping[str, str]) -> None:
        self._page, self._heads = page, heads
        self.places = list[HeadedPlace]()
        self.unread, self.links = set[str](), dict[int, list[str]]()
        self._tables = list[_Table]()
        self._parts = 0
        self._part = 0  #: of labels that stand in no table of labels
        self._labels = set[str]()  #: fields whose label this part has shown
        self._skipped = 0  #: open elements whose texts are not read
        self._opened = b""  #: the tag just before, if it opens an element
        self._maybe: tuple[bytes, str] | None = None  #: the element, and the field, of a label
        self._field = ""  #: of the label whose value is to come
        self._runs, self._attributes = list[Run](), list[Run]()

    def tag(self, name: bytes, closing: bool, attributes: _Attributes) -> None:
        maybe, self._maybe = self._maybe, None
        self._opened = b"" if closing else name
        if name in _SKIPPED:
            self._skipped = max(0, self._skipped + (-1 if closing else 1))
        defined = maybe is not None and (maybe[0], name) == (b"dt", b"dd")
        if maybe is not None and (defined or (closing and name == maybe[0])):
            self._begin(maybe[1])
        elif self._field:
            self._between(name, closing)
        if name in (b"table", b"thead", b"tbody", b"tfoot", b"tr", b"td", b"th"):
            self._in_table(name, closing, attributes)
        if name in _RECORDS and not (self._tables and self._tables[-1].headed):
            self._part, self._labels = self._next_part(), set()
        if not closing and attributes:
            self._keep(attributes)

    def _between(self, name: bytes, closing: bool) -> None:
        """A tag behind a label: the value goes on, is still to come, or has ended."""
        if name in _INLINE:
            return
        passes = name not in _CLOSING if closing else name in _BETWEEN
        if self._runs or not passes:
            self._end()

    def _keep(self, attributes: _Attributes) -> None:
        """Note the attributes of a tag that repeat what its text shows."""
        cell = self._cell
        for name, (start, end) in attributes.items():
            if name not in _REPEATING and not name.startswith(b"data-"):
                continue
            shift = self._page[start : start + 1] in (b'"', b"'")
            run = _run(self._page, start + shift, end - shift)
            if run is not None and name == b"href":
                self.links.setdefault(self._current, []).append(run.text)
            elif run is not None:
                self._attributes += [run] if self._field else []
                (cell.attributes if cell is not None else []).append(run)

    def text(self, start: int, end: int) -> None:
        run = None if self._skipped else _run(self._page, start, end)
        if run is None:
            return
        if (cell := self._cell) is not None:
            cell.runs.append(run)
        if run.text != ":" and not any(map(str.isalnum, run.text)):
            return
        opened, self._opened = self._opened, b""
        field = self._heads.get(label_of(run.text))
        if field is not None and run.text.endswith(":"):
            self._begin(field)
        elif field is not None and opened and opened not in (b"td", b"th"):
            self._end()
            self._maybe = opened, field
        elif self._maybe is not None and run.text.startswith(":"):
            self._begin(self._maybe[1])
            self._maybe = None
            self._value(run)
        elif run.text.endswith(":") and run.text != ":":  # another label
            self._end()
        elif self._field:
            self._value(run)
        else:
            self._with_label(run)

    def _value(self, run: Run) -> None:
        if not self._runs and run.text.startswith(":"):  # behind the element of the label
            self._runs += self._behind_colon(run)
        else:
            self._runs.append(run)

    def _with_label(self, run: Run) -> None:
        """A text that may begin with a label."""
        label = _IN_TEXT.match(run.text)
        field = self._heads.get(label_of(label[0])) if label is not None else None
        if field is not None:
            self._begin(field)
            self._runs += self._behind_colon(run)

    def _behind_colon(self, run: Run) -> list[Run]:
        colon = self._page.find(b":", run.start, run.end)
        rest = _run(self._page, colon + 1, run.end) if colon >= 0 else None
        return [] if rest is None else [rest]

    def _begin(self, field: str) -> None:
        self._end()
        if field in self._labels:  # the same label again: another record
            self._part, self._labels = self._next_part(), set()
        self._labels.add(field)
        self._field = field

    def _end(self) -> None:
        """Note what stood behind the last label."""
        if self._field and (self._runs or self._attributes):
            texts = tuple(self._runs), tuple(self._attributes)
            self.places.append(HeadedPlace(self._field, self._current, *texts))
        self._field, self._runs, self._attributes = "", [], []

    @property
    def _current(self) -> int:
        """The part in which a text stands that is not named by a head above it."""
        table = self._tables[-1] if self._tables else None
        return table.part if table is not None and table.in_row and table.headed else self._part

    def _next_part(self) -> int:
        self._parts += 1
        return self._parts

    def finish(self) -> None:
        """The page has ended."""
        self._end()
        while self._tables:
            self._row_ends(self._tables.pop())

    @property
    def _cell(self) -> _Cell | None:
        table = self._tables[-1] if self._tables else None
        return table.cells[-1] if table is not None and table.in_row and table.cells else None

    def _in_table(self, name: bytes, closing: bool, attributes: _Attributes) -> None:
        table = self._tables[-1] if self._tables else None
        if name == b"table" and not closing:
            if (cell := self._cell) is not None:
                cell.nested = True
            self._tables.append(_Table(self._next_part()))
        elif table is None:
            return
        elif name == b"table":
            self._row_ends(self._tables.pop())
        elif name not in (b"td", b"th"):
            self._row_ends(table)
            table.in_row, table.first = name == b"tr" and not closing, len(self.places)
            table.rows += table.in_row
            if name != b"tr":
                table.section = b"" if closing else name
            if table.headed:
                table.part = self._next_part()
        elif not closing:
            self._cell_begins(table, name == b"th", attributes)

    def _cell_begins(self, table: _Table, head: bool, attributes: _Attributes) -> None:
        width, rows = (
            _count(self._page, attributes.get(name)) for name in (b"colspan", b"rowspan")
        )
        column = table.cells[-1].column + table.cells[-1].width if table.cells else 0
        while table.spans.get(column, -1) >= table.rows:
            column += 1
        table.in_row = True
        table.cells.append(_Cell(head, column, width, rows))

    def _row_ends(self, table: _Table) -> None:
        cells, table.cells, table.in_row = table.cells, [], False
        if not cells:
            return
        for cell in (one for one in cells if one.rows > 1):
            table.spans.update(dict.fromkeys(cell.columns, table.rows + cell.rows - 1))
        if self._names_columns(table, cells) or table.section == b"tfoot":
            return
        if table.headed:
            self._row(table, cells)
        else:
            self._labelled(table, cells)

    def _names_columns(self, table: _Table, cells: list[_Cell]) -> bool:
        """Whether a row is one of heads; then its columns are named by it."""
        fields = [self._field_of(cell) for cell in cells]
        named = {one for one in fields if one is not None}
        in_head = table.section == b"thead"
        if not (in_head or (named and all(cell.head for cell in cells))):
            # cells of a first row that look like heads, as of a table without any <th>
            like = len(named) > 1 and not any(one.head or _has_digit(one) for one in cells)
            if not like or table.rows > 1:
                return False
        if named and not in_head:
            table.fields, table.unclear = {}, {}
        texts = Counter(map(_label, cells))
        spots = [
            (cell, field, at)
            for cell, field in zip(cells, fields, strict=True)
            for at in cell.columns
        ]
        for cell, field, column in spots:
            other = field and table.fields.setdefault(column, field)
            if field and other and (texts[_label(cell)] > 1 or other != field):
                table.unclear.setdefault(column, set()).update((field, other))
        return True

    def _field_of(self, cell: _Cell) -> str | None:
        """The field that the text of a head names: all of it, or one of its parts."""
        labels = (_label(cell), *(label_of(run.text) for run in cell.runs))
        return next((self._heads[one] for one in labels if one in self._heads), None)

    def _row(self, table: _Table, cells: list[_Cell]) -> None:
        """A row below heads."""
        for cell in cells:
            fields = {table.fields[one] for one in cell.columns if one in table.fields}
            unclear = set[str]().union(*(table.unclear.get(one, ()) for one in cell.columns))
            if unclear or len(fields) > 1 or (fields and cell.nested):
                self.unread |= fields | unclear if cell.runs else set()
            elif fields:
                self._add(table, fields.pop(), cell)

    def _labelled(self, table: _Table, cells: list[_Cell]) -> None:
        """A row of a table without heads: a value behind each label."""
        for label, cell in pairwise(cells):
            field = None if cell.head else self._heads.get(_label(label))
            if field is None or cell.nested:
                continue
            if field in table.labels:
                table.part, table.labels = self._next_part(), set()
            table.labels.add(field)
            self._add(table, field, cell)

    def _add(self, table: _Table, field: str, cell: _Cell) -> None:
        """Add a cell, unless labels in it say more."""
        inner = [run.start for one in self.places[table.first :] for run in one.runs]
        labelled = any(run.start <= start < run.end for run in cell.runs for start in inner)
        if not labelled and (cell.runs or cell.attributes):
            texts = tuple(cell.runs), tuple(cell.attributes)
            self.places.append(HeadedPlace(field, table.part, *texts))


def _has_digit(cell: _Cell) -> bool:
    return any(char.isdigit() for run in cell.runs for char in run.text)


def _label(cell: _Cell) -> str:
    return label_of(" ".join(run.text for run in cell.runs))


def _run(page: bytes, start: int, end: int) -> Run | None:
    """The text of a stretch; ``None`` for white space."""
    raw = page[start:end]
    inner = raw.strip()
    if not inner:
        return None
    first = start + raw.index(inner)
    text = unescape(inner.decode("utf-8", "replace")).strip()
    return Run(first, first + len(inner), text) if text else None


def _count(page: bytes, at: tuple[int, int] | None) -> int:
    """The columns or rows that a cell takes; 0, the rest of the group, as very many."""
    number = _COUNT.match(page[slice(*at)].decode("latin-1")) if at is not None else None
    return (int(number[1]) or _WIDEST) if number is not None else 1
