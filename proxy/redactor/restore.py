"""Reading and rewriting an answer: tokens out, values in. Pure functions on bytes."""

import enum
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from proxy.errors import VaultError
from proxy.model.schema import Value
from proxy.offload import FEW, free, strides
from proxy.redactor import form
from proxy.redactor.inner_texts import Candidate, XmlText, found_inside, is_readable_xml, xml_texts
from proxy.redactor.json import tree as json_codec
from proxy.redactor.json.text import mask_escapes, unescaped, unwrapped
from proxy.redactor.message import CODECS, Media, cell_writers, write_cell
from proxy.redactor.pages import Region, acting, in_references, is_markup, opens_tag, text
from proxy.redactor.redact import ParsedBody, Spot

#: Bytes ``start`` to ``end`` become ``content``.
Edit = tuple[int, int, bytes]

_by_start = itemgetter(0)
#: Bytes of a body whose pieces are copied: of longer ones the memory comes from the system.
_COPIED = 32 * 1024


def splice(body: bytes, edits: Sequence[Edit]) -> bytes:
    """The body with each ``body[start:end]`` replaced by its bytes.

    Edits may come in any order; an empty stretch is an insertion, and insertions at one place keep
    their order. ``ValueError`` when two overlap or one lies outside of the body.
    """
    joined: list[bytes | memoryview] = []
    reached, size = 0, len(body)
    rest = memoryview(body) if size > _COPIED and len(edits) <= FEW else body
    # To sort many keeps the interpreter's lock all the while, and nearly always they are in order.
    in_order = len(edits) > FEW and all(first[0] <= second[0] for first, second in pairwise(edits))
    ordered = edits if in_order else sorted(edits, key=_by_start)
    for some in strides(ordered, FEW) if len(ordered) > FEW else (ordered,):
        pieces: list[bytes | memoryview] = []  # no call joins, or frees, more than so many
        for start, end, content in some:
            if not reached <= start <= end <= size:
                raise ValueError(
                    f"the edit of bytes {start} to {end} overlaps another one or lies outside of "
                    "the body"
                )
            pieces += (rest[reached:start], content)
            reached = end
        joined += pieces if some is ordered else (b"".join(pieces),)
    joined.append(rest[reached:])
    return b"".join(joined)


#: Where a token can stand in a text without escapes: a JSON string literal, or a bare number.
_JSON_LITERAL = re.compile(rb'"[^"]*+"|-?[0-9][0-9.eE+-]*+')
_JSON_ESCAPE = re.compile(rb"\\(?:u[0-9A-Fa-f]{4}|.)")
_JSON_NAME = re.compile(rb"[ \t\n\r]*:")


class Written(NamedTuple):
    """A body with other values in it, and how many there are of each field."""

    content: bytes
    counts: Mapping[str, int]
    #: what stayed of a short one, where that was looked at: quotes between its pieces
    rest: bytes | None = None


def rewritten(
    content: bytes,
    body: ParsedBody,
    values: Sequence[Sequence[Value | None]],
    more: Sequence[Edit] = (),
) -> Written:
    """The body with these values in the places of its objects; ``None`` leaves a place alone.

    ``more``: further edits, besides those places.
    """
    lone = body.items[0].spots if len(body.items) == 1 and body.media is Media.JSON else ()
    simple = 0 < len(lone) <= FEW and not (more or body.writers)
    if simple and (done := _in_one(content, lone, values[0])):
        return done  # as nearly always
    counts: dict[str, int] = {}
    spots, changed = list[Spot](), list[Value]()
    for item, row in zip(body.items, values, strict=True):
        for spot, value in zip(item.spots, row, strict=True):
            if value is None:
                continue
            if value.text or not value.json:  # an erased one reveals nothing
                counts[spot.field] = counts.get(spot.field, 0) + 1
            if value != spot.value:
                spots.append(spot)
                changed.append(value)
    if body.media is Media.JSON:
        texts = json_codec.write_json_values(changed)
    elif body.media is Media.CSV:
        signs = [content[spot.start : spot.start + 1] for spot in spots]
        texts = list(map(write_cell, changed, signs))
    else:
        texts = list(map(CODECS[body.media].write, changed))
    if body.writers:
        writers, pairs = body.writers, zip(spots, changed, texts, strict=True)
        texts = [
            writers[spot.start](value) if spot.start in writers else text
            for spot, value, text in pairs
        ]
    edits = [
        (spot.start, spot.end, b"=" + text if spot.bare else text)
        for spot, text in zip(spots, texts, strict=True)
    ]
    spliced = splice(content, [*edits, *more] if more else edits)
    written = Written(spliced if body.finish is None else body.finish(spliced), counts)
    if len(spots) > FEW:
        free(edits, spots, changed, texts)
    return written


def _in_one(content: bytes, spots: Sequence[Spot], row: Sequence[Value | None]) -> Written | None:
    """``rewritten`` where texts alone become other ones, in their order; else ``None``."""
    counts: dict[str, int] = {}
    pieces: list[bytes | memoryview] = []
    part = memoryview(content) if (long := len(content) > _COPIED) else content
    reached, add, encode = 0, pieces.append, json_codec.encode_text
    try:
        for index, spot in enumerate(spots):
            if (value := row[index]) is None:
                continue
            field, start, before, text = spot.field, spot.start, spot.value, value.text
            if value.text or not value.json:
                counts[field] = counts.get(field, 0) + 1
            if start < reached or before is None or value.json != before.json:
                return None
            if text != before.text:
                add(part[reached:start])
                add(text.encode() or b"null" if value.json else encode(text))
                reached = spot.end
    except UnicodeEncodeError:  # its context holds the value: the other way tells it without
        return None
    add(part[reached:])
    return Written(b"".join(pieces), counts, None if long else b'"'.join(pieces[::2]))


class EscapingKinds(enum.Enum):
    """The kinds of text in which tokens are restored wherever they stand."""

    JSON = "json"
    FORM = "form"
    HTML = "html"
    TEXT = "plain"
    CSV = "csv"
    XML = "xml"
    SCRIPT = "script"  #: JSON in the call of a function (JSONP); another script is none of them


_SCRIPTS = (b"application/javascript", b"application/x-javascript", b"text/javascript")
_SURROUNDINGS = {
    b"application/json": EscapingKinds.JSON,
    b"application/x-www-form-urlencoded": EscapingKinds.FORM,
    b"text/html": EscapingKinds.HTML,
    b"application/xhtml+xml": EscapingKinds.HTML,
    b"text/plain": EscapingKinds.TEXT,
    b"text/csv": EscapingKinds.CSV,
    b"application/xml": EscapingKinds.XML,
    b"text/xml": EscapingKinds.XML,
    **dict.fromkeys(_SCRIPTS, EscapingKinds.SCRIPT),
}


@lru_cache(maxsize=256)  # an application has few; the bounds on heads bound each
def surroundings(declared: bytes | None) -> EscapingKinds | None:
    """Return the escaping of an answer of that type; ``None`` if it is no restorable text."""
    declared = (declared or b"").partition(b";")[0].strip().lower()
    if declared.endswith(b"+json"):
        return EscapingKinds.JSON
    kind = _SURROUNDINGS.get(declared)
    return EscapingKinds.XML if kind is None and declared.endswith(b"+xml") else kind


def taken_as(declared: bytes | None, body: bytes) -> tuple[EscapingKinds | None, bytes]:
    """The escaping of an answer by type and first bytes; the body, other bytes in their places."""
    kind = surroundings(declared)
    if kind is EscapingKinds.XML and not is_readable_xml(declared, body):
        return None, body
    script = kind is EscapingKinds.SCRIPT
    if script or kind is EscapingKinds.JSON:
        inner = unwrapped(body)
        return (None if script and inner is None else EscapingKinds.JSON), inner or body
    if kind is EscapingKinds.TEXT and _PAGE.match(body):
        kind = EscapingKinds.HTML  # a piece of a page, which some script asks for
    return kind, body


_PAGE = re.compile(rb"[ \t\r\n]*<[A-Za-z!]")


def candidates(
    kind: EscapingKinds,
    body: bytes,
    patterns: Sequence[re.Pattern[str]],
    meant: Mapping[str, Value],
    *,
    wide: bool = False,
) -> list[Candidate]:
    """Return possible tokens of ours in the body, by the shapes' patterns or because it is known.

    ``wide``: also where only ``restore: html`` puts values into a page.
    """
    if kind is EscapingKinds.XML:
        return [one for part in xml_texts(body) for one in _in_xml(body, part, patterns, meant)]
    likely: list[Candidate] = []
    for start, end, quoted in _stretches(kind, body):
        raw = body[start:end]
        if not raw:
            continue  # no token is empty
        text = _read(kind, raw)
        if text is not None and (
            text in meant or any(pattern.fullmatch(text) for pattern in patterns)
        ):
            names = quoted and _JSON_NAME.match(body, end + 1) is not None
            likely.append(Candidate(text, start, end, not names, quoted, _json if names else None))
        elif kind is not EscapingKinds.FORM and len(raw) > 1:
            inside = found_inside(_as_seen(kind, raw), start, quoted, patterns)
            likely.extend(_in_string(raw, start, list(inside)) if quoted else inside)
    if kind is EscapingKinds.HTML:
        likely = _with_references(body, likely, patterns)
    if kind is EscapingKinds.CSV:
        writers = cell_writers(body, [(one.text, one.start, one.end) for one in likely])
        return [one._replace(write=write) for one, write in zip(likely, writers, strict=True)]
    return likely if kind is not EscapingKinds.HTML else _written_in(body, likely, wide=wide)


def _with_references(
    page: bytes, items: list[Candidate], patterns: Sequence[re.Pattern[str]]
) -> list[Candidate]:
    """Candidates in order, with those of which the page spells signs as numeric references."""
    spelled = [
        item._replace(start=at[item.start], end=at[item.end])
        for word, at in in_references(page)
        for item in found_inside(word, 0, False, patterns)
        if b"&" in page[at[item.start] : at[item.end]]
    ]
    return sorted([*items, *spelled], key=itemgetter(1)) if spelled else items


def _in_xml(
    body: bytes, part: XmlText, patterns: Sequence[re.Pattern[str]], meant: Mapping[str, Value]
) -> Iterator[Candidate]:
    """Yield the candidates of one text of a document of XML at which a value can be written."""
    page = bytes(part.page)
    readable = page.decode("latin-1")
    if readable in meant or any(pattern.fullmatch(readable) for pattern in patterns):
        items = [Candidate(readable, 0, len(page), True, False)]
    else:
        items = list(found_inside(readable, 0, False, patterns))
        items = _with_references(page, items, patterns) if is_markup(page) else items
    writers = part.writers([(one.start, one.end) for one in items])
    writable = _written_in(page, items, wide=False) if writers.markup else items
    for item in writable if writers.open else ():
        if (position := part.position(item.start, item.end)) is not None:
            start, end, cdata = position
            write = writers.writer(body[start:end], cdata=cdata)
            yield item._replace(start=start, end=end, write=write)


def _read(kind: EscapingKinds, raw: bytes) -> str | None:
    """The text of a whole stretch; ``None`` where it has none."""
    try:
        if kind is EscapingKinds.FORM:
            return form.read_form_value(raw)
        if kind is EscapingKinds.JSON and b"\\" in raw:
            value = json_codec.read_json_value(b'"' + raw + b'"')
            return value.text if value is not None else None
        return raw.decode()
    except (VaultError, UnicodeDecodeError):
        return None


def _as_seen(kind: EscapingKinds, raw: bytes) -> str:
    """Running text, a byte for each character.

    Letters and digits of a JSON escape do not count as neighbours of a token.
    """
    if kind is EscapingKinds.JSON and b"\\" in raw:
        raw = _JSON_ESCAPE.sub(lambda escape: b" " * len(escape[0]), raw)
    return raw.decode("latin-1")


def _written_in(page: bytes, items: Sequence[Candidate], *, wide: bool) -> list[Candidate]:
    """Return the candidates at which a value can be written into a page."""
    writable: list[Candidate] = []
    regions = acting(page, wide=wide)
    region = next(regions, None)
    for item in items:
        while region is not None and region.end <= item.start:
            region = next(regions, None)
        if region is None or item.end <= region.start:
            writable.append(item)
        elif region.write is not None and _stands(region, item):
            writable.append(item._replace(write=region.write))
    return writable


def _in_string(raw: bytes, offset: int, items: list[Candidate]) -> Iterable[Candidate]:
    """Return the candidates of a string of JSON at which a value can be written.

    In a piece of HTML, those that a page shows: a page may insert the string as it is.
    """
    if not items or (b"<" not in raw and b"&" not in raw and b"\\" not in raw):
        return items
    without = bytearray(raw)
    for item in items:
        without[item.start - offset : item.end - offset] = b"_" * (item.end - item.start)
    if not is_markup(unescaped(without)[0]):
        return items
    page, escapes = unescaped(raw)
    ends = [end for end, _ in escapes]
    moved: list[Candidate] = []
    for item in items:
        before = bisect_right(ends, item.start - offset)
        shift = offset + (escapes[before - 1][1] if before else 0)
        moved.append(item._replace(start=item.start - shift, end=item.end - shift))
    writable = {id(one) for one in _written_in(page, moved, wide=False)}
    return [
        item._replace(write=text)
        for item, one in zip(items, moved, strict=True)
        if id(one) in writable
    ]


def _stands(region: Region, item: Candidate) -> bool:
    """Whether a candidate is one that can be written in the region that it begins in."""
    if region.whole:
        return (item.start, item.end) == (region.start, region.end)
    return region.start <= item.start < item.end <= region.end


def rewrite(
    kind: EscapingKinds, items: Iterable[Candidate], values: Mapping[str, Value]
) -> list[Edit]:
    """The edits that put resolved values into the body, escaped for their surroundings."""
    edits: list[Edit] = []
    for item in items:
        value = values.get(item.text)
        if value is None:
            continue
        if kind is EscapingKinds.JSON and item.write is None:
            # A page may insert such a text, as the application's own text had no tag.
            if item.whole or not item.quoted or not opens_tag(value.text):
                edits.append(_json_edit(item, value))
        else:
            write = item.write or _ESCAPES[kind]
            edits.append((item.start, item.end, write(value.text)))
    return edits


def untouched(items: list[Candidate], taken: Sequence[tuple[int, int]]) -> list[Candidate]:
    """The candidates that lie in none of these stretches, which come in order."""
    ends = [end for _, end in taken]

    def free_of(item: Candidate) -> bool:
        at = bisect_right(ends, item.start)
        return at == len(ends) or item.end <= taken[at][0]

    return list(filter(free_of, items)) if ends else items


_ESCAPES: Mapping[EscapingKinds, Callable[[str], bytes]] = {
    EscapingKinds.FORM: form.write_form_value,
    EscapingKinds.HTML: text,
    EscapingKinds.TEXT: str.encode,
}


def _json(value: str) -> bytes:
    return json_codec.write_json_value(Value(value))[1:-1]


def _json_edit(item: Candidate, value: Value) -> Edit:
    if item.quoted and not item.whole:
        return (item.start, item.end, _json(value.text))
    quote = int(item.quoted)
    return (item.start - quote, item.end + quote, json_codec.write_json_value(value))


def _stretches(kind: EscapingKinds, body: bytes) -> Iterator[tuple[int, int, bool]]:
    if kind is EscapingKinds.JSON:
        for match in _JSON_LITERAL.finditer(mask_escapes(body)):
            quote = int(body[match.start()] == 0x22)
            yield match.start() + quote, match.end() - quote, bool(quote)
    elif kind is EscapingKinds.FORM:
        for member in form.form_members(body, len(body) + 1):
            yield member.start, member.end, False
    else:
        yield 0, len(body), False
