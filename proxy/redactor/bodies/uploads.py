"""Reading uploads: the texts of forms of parts, and CSV files whose rows are records.

What such a body holds in places that no rule names passes byte for byte, so whatever only some
applications would read as a named place is refused.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.redactor import form
from proxy.redactor.message import Media, Request, classify, read_text
from proxy.redactor.multipart import FormPart, form_parts
from proxy.redactor.plan import BodyPlan, OperationPlan, id_in_text
from proxy.redactor.redact import (
    MOST_OBJECTS,
    BodyObject,
    ParsedBody,
    Spot,
    read_request,
    refuse_many,
    upload_kind,
    with_texts,
)
from proxy.redactor.rules import Operation, Verb
from proxy.redactor.words import OtherKinds

#: Kinds of bodies that are read here.
UPLOADS: Final = frozenset({Media.MULTIPART, Media.CSV})
#: Bytes of a text by which it is looked at.
_BEGINNING: Final = 400


def read_upload(plan: OperationPlan, request: Request) -> ParsedBody | None:
    """As ``redact.read_request``, of an operation that names an upload, too."""
    named = plan.request
    if named is not None and classify(request.headers, request.body) is Media.OTHER:
        kind = upload_kind(named, request.headers)
        if kind is Media.CSV:
            return _from_rows(named, request.body, (0, len(request.body)))
        if kind is Media.MULTIPART:
            return _from_parts(named, request, plan.operation)
    return read_request(plan, request)


def _from_parts(plan: BodyPlan, request: Request, operation: Operation) -> ParsedBody:
    item = BodyObject()
    items: list[BodyObject] = []  #: of files that become a record each
    each = operation.verb is Verb.CREATE and bool(plan.file_names) and operation.response.several
    ids: list[str] = []
    declared = (*plan.multipart, *plan.file_names, *filter(None, (plan.id_member, plan.part)))
    names = {one: one for one in (*plan.multipart, *plan.file_names)}
    body, file, passed = request.body, (0, 0), plan.passed.multipart
    for part in form_parts(request.headers, body, operation.endpoint.limits.form_fields):
        named, is_id = form.named_field(names, part.name, passed), part.name == plan.id_member
        content = b"" if part.is_file else body[part.start : part.end]
        form.check_member(declared, part.name, content, passed)
        if part.name == plan.part and part.is_file and not file[1]:
            file = part.start, part.end
        elif part.name == plan.part:
            raise _unclear(f"does not hold its part '{plan.part}' once, as a file")
        elif named is not None and named in plan.file_names and not is_id:
            spots = [*_file_names(plan.file_names[named], part)]
            item.spots += spots
            items += [BodyObject(spots)] if spots else []
            if content and "*" not in named:
                raise _unlike_rule(operation, "a text where its rule names a file")
        elif part.is_file and (named or is_id or operation.request.files is OtherKinds.REFUSE):
            raise _unlike_rule(
                operation,
                "a file, or not a plain text, that its rule does not let pass (files: pass)",
            )
        elif named is not None:
            field = plan.multipart[named]
            item.spots.append(Spot(field, part.start, part.end, read_text(content)))
        elif is_id:
            ids.append(id_in_text(plan.id_template, read_text(content).text) or "")
    if plan.part:
        return _from_rows(plan, body, file)
    ids = [text for text in dict.fromkeys(ids) if text]
    item.id = ids[0] if len(ids) == 1 else None
    if plan.file_names and operation.verb is Verb.UPDATE:
        if len(ids) > 1:
            raise VaultError(
                Code.BAD_REQUEST,
                f"The request matches {operation.label}, and its files would be those of several "
                "records: send one id.",
            )
        item.appended = frozenset(plan.file_names.values())  # the application may keep all files
    parsed = ParsedBody(Media.MULTIPART, items if each and len(items) > 1 else [item], ids)
    depth = operation.endpoint.limits.json_depth
    return with_texts(plan, parsed, body, depth) if plan.texts else parsed


def _file_names(field: str, part: FormPart) -> Iterator[Spot]:
    """The names of a file; none where no file was chosen."""
    for one in part.file_names:
        if one.end > one.start:
            yield Spot(field, one.start, one.end, Value(one.read()))


def _unlike_rule(operation: Operation, what: str) -> VaultError:
    return VaultError(
        Code.UNREADABLE_BODY,
        f"The request matches {operation.label}, and one part of its form is {what}.",
    )


def upload_members(
    plan: BodyPlan, request: Request, limit: int, rows: int
) -> Iterator[tuple[str, str]]:
    """The names of ``upload_spans`` in the first ``rows`` rows, each with its value's start."""
    for name, start, end in upload_spans(plan, request, limit, rows):
        content = request.body[start : min(end, start + _BEGINNING)]
        yield name, content.decode("utf-8", "replace")


def upload_spans(
    plan: BodyPlan, request: Request, limit: int, rows: int = MOST_OBJECTS
) -> Iterator[tuple[str, int, int]]:
    """The names of texts of a form of parts, or of the columns of a CSV file, and where each
    stands, of an upload that ``read_upload`` has read.
    """
    kind, span = upload_kind(plan, request.headers), (0, len(request.body))
    if kind is Media.MULTIPART:
        for part in form_parts(request.headers, request.body, limit):
            if plan.part == part.name:
                span = part.start, part.end
            elif not part.is_file:
                yield part.name, part.start, part.end
    if kind is Media.CSV or plan.part:
        start = span[0] + len(_BOM) * request.body.startswith(_BOM, span[0])
        delimiter, _, width = _columns(plan, request.body, (start, span[1]))
        cells = islice(_cells(request.body, start, span[1], delimiter), width * (rows + 1))
        names = [cell.text for cell in islice(cells, width)]
        yield from ((names[at % width], cell.start, cell.end) for at, cell in enumerate(cells))


# CSV (RFC 4180): a first line of names, then a record a row. Programs disagree about quotes inside
# of cells, about rows of another length, and which sign stands between cells: each reading would
# move values to other columns. So a file is refused unless all of them read it alike.

_BOM: Final = b"\xef\xbb\xbf"
_DELIMITERS: Final = (b",", b";", b"\t", b"|")
#: Ends lines to importers that cut texts as Python's ``str.splitlines`` does; the others are bytes.
_LINE_ENDS: Final = re.compile("[\x85\u2028\u2029]")


class _Cell(NamedTuple):
    start: int
    end: int
    text: str
    last: bool  #: of its row


@lru_cache(maxsize=len(_DELIMITERS))
def _cell_pattern(delimiter: bytes) -> re.Pattern[bytes]:
    sign = re.escape(delimiter)
    return re.compile(
        rb'(?:"((?:[^"]|"")*+)"|([^"\r\n\v\f\x1c-\x1e'
        + sign
        + rb"]*+))(?:("
        + sign
        + rb")|(\r\n|\n|\Z))"
    )


def _cells(body: bytes, start: int, end: int, delimiter: bytes) -> Iterator[_Cell]:
    """The cells of a file, an empty line as one cell of nothing."""
    pattern = _cell_pattern(delimiter)
    while start < end:
        match = pattern.match(body, start, end)
        if match is None or b'\\"' in match[0]:
            raise _unclear("has a quote or a line separator where programs read it differently")
        quoted = match[1] is not None
        raw = match[1].replace(b'""', b'"') if quoted else match[2]
        if b"\0" in raw:
            raise _unclear("holds a NUL: it is no UTF-8, or no text")
        text = read_text(raw).text
        if not (quoted or text.isascii()) and _LINE_ENDS.search(text):
            raise _unclear("has a line separator outside of quotes")
        stop = match.end(1) + 1 if quoted else match.end(2)
        yield _Cell(start, stop, text, match[3] is None)
        start = match.end()
        if match[3] and start == end:  # nothing behind the last delimiter
            yield _Cell(start, start, "", last=True)


def _from_rows(plan: BodyPlan, body: bytes, span: tuple[int, int]) -> ParsedBody:
    start, end = span
    if body.startswith(_BOM, start):
        start += len(_BOM)
    delimiter, columns, width = _columns(plan, body, (start, end))
    parsed = ParsedBody(Media.CSV, [])
    row: list[_Cell] = []
    header = True
    for cell in _cells(body, start, end, delimiter):
        row.append(cell)
        if not cell.last:
            continue
        blank = not any(one.text.strip() for one in row)
        if not header and not (blank and len(row) in (1, width)):
            if len(row) != width:
                raise _unclear("has a row with more or fewer cells than its first line")
            parsed.items.append(
                BodyObject(
                    [
                        Spot(name, row[at].start, row[at].end, Value(row[at].text))
                        for at, name in columns.items()
                    ]
                )
            )
            if len(parsed.items) > MOST_OBJECTS:
                break
        header = False
        row = []
    refuse_many(parsed)
    return parsed


def _header(body: bytes, span: tuple[int, int], delimiter: bytes) -> list[str]:
    """The names in the first line, with that sign between them; none where it cannot be read."""
    names: list[str] = []
    try:
        for cell in _cells(body, *span, delimiter):
            names.append(cell.text)
            if cell.last:
                break
    except VaultError:
        return []
    return names


def _columns(
    plan: BodyPlan, body: bytes, span: tuple[int, int]
) -> tuple[bytes, dict[int, str], int]:
    """Return the delimiter, the fields by column number, and the number of columns."""
    readings = []
    for delimiter in _DELIMITERS:
        names = _header(body, span, delimiter)
        columns = {
            at: name
            for at, column in enumerate(names)
            if (name := form.named_field(plan.csv, column, plan.passed.csv)) is not None
        }
        if columns:
            readings.append((delimiter, columns, names))
    alike = all(names == readings[0][2] for _, _, names in readings)  # one column has no delimiter
    if not readings or not alike:
        raise _unclear("has none of the columns that the rule names, or no clear delimiter")
    delimiter, columns, names = readings[0]
    for name in names:
        form.check_member(tuple(plan.csv), name, b"", plan.passed.csv)
    if len(set(names)) < len(names):
        raise _unclear("has two columns of one name")
    return delimiter, columns, len(names)


def _unclear(what: str) -> VaultError:
    return VaultError(
        Code.AMBIGUOUS_UPLOAD,
        f"The upload {what}: send a CSV file as RFC 4180 has it, in UTF-8, with names in its "
        "first line.",
    )
