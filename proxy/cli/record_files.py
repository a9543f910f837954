"""Records in files: JSON Lines (https://jsonlines.org) and CSV (RFC 4180), read and written one by
one.

In JSON Lines a record is an object per line. In CSV the first line names the fields; a cell is the
text of its value, an empty one means no value, and JSON fields hold their JSON text. Both are
UTF-8.
"""

import base64
import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import msgspec

from proxy.crypto.aead import SALT_BYTES
from proxy.crypto.prf import random_bytes
from proxy.crypto.stream import LONGEST_HEAD, SealedReader, StreamAead
from proxy.errors import Code, VaultError

_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode

#: The longest line or cell that is read, in characters: nothing that the vault takes is longer.
LONGEST_LINE = 4 * 1024 * 1024

#: Type of a field by its name, as the schema tells.
Types = Mapping[str, str]


class FileRecord(NamedTuple):
    """A record of a file: first line (from 1), and content or fault."""

    line: int
    record: dict[str, Any] | None
    fault: str = ""
    #: content in place of a record: the text of the line, or texts by field
    unread: Any = None


RecordsReader = Callable[[TextIO, Types], Iterator[FileRecord]]
RecordsWriter = Callable[[Iterable[Mapping[str, Any]], Types], Iterator[str]]


def read_lines(file: TextIO, _types: Types) -> Iterator[FileRecord]:
    """The records of JSON Lines; empty lines count for nothing."""
    number = 0
    while line := file.readline(LONGEST_LINE):
        number += 1
        if not line.strip():
            continue
        try:
            record = _decode(line)
        except (msgspec.MsgspecError, RecursionError, InvalidOperation):
            yield FileRecord(number, None, "this line is not JSON", line.rstrip("\r\n"))
            continue
        if isinstance(record, dict):
            yield FileRecord(number, record)
        else:
            yield FileRecord(number, None, "this line is not a JSON object", line.rstrip("\r\n"))


def write_lines(records: Iterable[Mapping[str, Any]], _types: Types) -> Iterator[str]:
    """Yield a line for each record, with its line end."""
    for record in records:
        yield _encode(record).decode() + "\n"


def read_table(file: TextIO, types: Types) -> Iterator[FileRecord]:
    """The records of CSV with a head line.

    Raises ``ValueError`` for a head that names no fields, or one twice.
    """
    csv.field_size_limit(LONGEST_LINE)
    source = _Source(file)
    reader = csv.reader(source, strict=True)
    try:
        head = [name.strip().removeprefix("\ufeff") for name in next(reader, [])]
    except csv.Error:
        raise ValueError(
            "the first line is not CSV: a quotation mark is out of place, or a name is too long"
        ) from None
    if not head or "" in head or len(set(head)) != len(head):
        raise ValueError("the first line of a CSV file names the fields, each once")
    while True:
        line = reader.line_num + 1
        source.taken.clear()
        try:
            cells = next(reader, None)
        except csv.Error:
            fault = "this line is not CSV: a quotation mark is out of place, or a cell is too long"
            yield FileRecord(line, None, fault, source.text())
            continue
        if cells is None:
            return
        if cells and len(cells) != len(head):
            fault = f"this line has {len(cells)} cells where the first one has {len(head)}"
            yield FileRecord(line, None, fault, source.text())
        elif cells:
            yield _entry(line, head, cells, types)


class _Source:
    """The lines of a file, with those of the current record, to report an unreadable one."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.taken: list[str] = []

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.taken.append(line)
            yield line

    def text(self) -> str:
        return "".join(self.taken).rstrip("\r\n")


def _entry(line: int, head: Sequence[str], cells: Sequence[str], types: Types) -> FileRecord:
    record: dict[str, Any] = {}
    for name, cell in zip(head, cells, strict=True):
        if not cell:
            continue
        try:
            record[name] = _VALUES.get(types.get(name, "string"), str)(cell)
        except (ValueError, InvalidOperation, msgspec.MsgspecError):
            texts = {name: cell for name, cell in zip(head, cells, strict=True) if cell}
            return FileRecord(line, None, f"the cell of {name} is no {types[name]}", texts)
    return FileRecord(line, record)


def write_table(records: Iterable[Mapping[str, Any]], types: Types) -> Iterator[str]:
    """The head line, and one for each record, with line ends; columns are the schema's fields."""
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
    """Reader and writer of one kind of file."""

    read: RecordsReader
    write: RecordsWriter


#: Ending of a file's name → format.
FORMATS: dict[str, Format] = {
    "jsonl": Format(read_lines, write_lines),
    "csv": Format(read_table, write_table),
}


# A file of exported records that only the keys of this vault open: chunks of a sealed stream after
# a line of JSON.
#
# The line identifies the file without any value: ``{"domicile": "export", "version": 1, "schema":
# …, "format": …, "salt": …}``. It is bound to the content, so a file cannot be passed off as the
# export of another schema.


class SealedFileHead(msgspec.Struct, frozen=True):
    """The first line of a sealed file."""

    domicile: str
    version: int
    schema: str
    format: str
    salt: str  #: base64


def seal(pieces: Iterable[str], schema: str, kind: str, aead: StreamAead) -> Iterator[bytes]:
    """The bytes of a sealed file with these pieces of text."""
    salt = random_bytes(SALT_BYTES)
    line = (
        msgspec.json.encode(
            SealedFileHead("export", 1, schema, kind, base64.b64encode(salt).decode())
        )
        + b"\n"
    )
    sealer = aead.sealer(salt, line)
    yield line + sealer.header
    for piece in pieces:
        if sealed := sealer.update(piece.encode()):
            yield bytes(sealed)
    yield sealer.finish()


def sealed_file_head(file: Path) -> SealedFileHead | None:
    """Return the head of a sealed file; ``None`` for any other file.

    ``VaultError(BAD_SETTINGS)`` for one of a newer version.
    """
    with file.open("rb") as opened:
        line = opened.readline(LONGEST_HEAD)
    try:
        head = msgspec.json.decode(line, type=SealedFileHead)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if head.domicile != "export":
        return None
    if head.version != 1:
        raise VaultError(
            Code.BAD_SETTINGS,
            f"{file} was written by a newer version of domicile: read it with that one.",
        )
    return head


def open_sealed_file(path: Path, head: SealedFileHead, aead: StreamAead) -> SealedReader:
    """The content of a sealed file, for reading; raises as ``SealedReader``."""
    return SealedReader(path.open("rb"), aead, base64.b64decode(head.salt))
