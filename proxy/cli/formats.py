"""Records in files: JSON Lines (https://jsonlines.org) and CSV (RFC 4180), read and written one by one.

In JSON Lines a record is one object a line. In CSV the first line names the fields; a cell is the text of its value, an empty
one means that there is none, and JSON fields hold their JSON text. Both are UTF-8.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple, TextIO

import msgspec

_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode

#: The longest line or cell that is read, in characters: nothing that the vault takes is longer.
LONGEST = 4 * 1024 * 1024

#: Type of a field by its name, as the schema tells.
Types = Mapping[str, str]


class Entry(NamedTuple):
    """One record of a file: where it begins (from 1), and what it says or why it cannot be read."""

    line: int
    record: dict[str, Any] | None
    fault: str = ""
    unread: Any = None  #: what stands there instead of a record: the text of the line, or texts by field


Reader = Callable[[TextIO, Types], Iterator[Entry]]
Writer = Callable[[Iterable[Mapping[str, Any]], Types], Iterator[str]]


def read_lines(file: TextIO, _types: Types) -> Iterator[Entry]:
    """The records of JSON Lines; empty lines count for nothing."""
    number = 0
    while line := file.readline(LONGEST):
        number += 1
        if not line.strip():
            continue
        try:
            record = _decode(line)
        except (msgspec.MsgspecError, RecursionError, InvalidOperation):
            yield Entry(number, None, "this line is not JSON", line.rstrip("\r\n"))
            continue
        if isinstance(record, dict):
            yield Entry(number, record)
        else:
            yield Entry(number, None, "this line is not a JSON object", line.rstrip("\r\n"))


def write_lines(records: Iterable[Mapping[str, Any]], _types: Types) -> Iterator[str]:
    """One line for each record, with its end."""
    for record in records:
        yield _encode(record).decode() + "\n"


def read_table(file: TextIO, types: Types) -> Iterator[Entry]:
    """The records of CSV with a head line. Raises ``ValueError`` for a head that names no fields, or one twice."""
    csv.field_size_limit(LONGEST)
    source = _Source(file)
    reader = csv.reader(source, strict=True)
    try:
        head = [name.strip().removeprefix("\ufeff") for name in next(reader, [])]
    except csv.Error:
        raise ValueError("the first line is not CSV: a quotation mark is out of place, or a name is too long") from None
    if not head or "" in head or len(set(head)) != len(head):
        raise ValueError("the first line of a CSV file names the fields, each once")
    while True:
        line = reader.line_num + 1
        source.taken.clear()
        try:
            cells = next(reader, None)
        except csv.Error:
            fault = "this line is not CSV: a quotation mark is out of place, or a cell is too long"
            yield Entry(line, None, fault, source.text())
            continue
        if cells is None:
            return
        if cells and len(cells) != len(head):
            fault = f"this line has {len(cells)} cells where the first one has {len(head)}"
            yield Entry(line, None, fault, source.text())
        elif cells:
            yield _entry(line, head, cells, types)


class _Source:
    """The lines of a file, and those that were taken for the record of now: what cannot be read is told as it stands."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.taken: list[str] = []

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.taken.append(line)
            yield line

    def text(self) -> str:
        return "".join(self.taken).rstrip("\r\n")


def _entry(line: int, head: Sequence[str], cells: Sequence[str], types: Types) -> Entry:
    record: dict[str, Any] = {}
    for name, cell in zip(head, cells, strict=True):
        if not cell:
            continue
        try:
            record[name] = _VALUES.get(types.get(name, "string"), str)(cell)
        except (ValueError, InvalidOperation, msgspec.MsgspecError):
            texts = {name: cell for name, cell in zip(head, cells, strict=True) if cell}
            return Entry(line, None, f"the cell of {name} is no {types[name]}", texts)
    return Entry(line, record)


def write_table(records: Iterable[Mapping[str, Any]], types: Types) -> Iterator[str]:
    """The head line, and one line for each record, with their ends; columns are the fields of the schema."""
    names = list(types)
    yield _line(names)
    for record in records:
        yield _line([_cell(record.get(name)) for name in names])


def _line(cells: Sequence[str]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow(cells)
    return out.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else _encode(value).decode()


def _boolean(cell: str) -> bool:
    if cell not in ("true", "false"):
        raise ValueError(cell)
    return cell == "true"


_VALUES: Mapping[str, Callable[[str], Any]] = {
    "integer": int,
    "decimal": Decimal,
    "boolean": _boolean,
    "json": _decode,
}


class Format(NamedTuple):
    """How one kind of file is read and written."""

    read: Reader
    write: Writer


#: Ending of a file's name → format.
FORMATS: dict[str, Format] = {
    "jsonl": Format(read_lines, write_lines),
    "csv": Format(read_table, write_table),
}
