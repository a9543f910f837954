"""Documents of JSON in the texts of a body, an address, or one another.

Their values are read and written in the escaping of every layer.

Also texts of an XML document (feeds, exports): what stands between two tags, CDATA sections and
references undone, or an attribute. A reader of feeds takes many texts for HTML: where one holds
markup, a value is written as HTML, so that it never becomes a part of it. Addresses, scripts and
styles keep their tokens, and so does a document that cannot be read safely: one with declarations
of its own, or in a charset whose bytes below 128 may be parts of other characters. Source: XML 1.0,
sections 2.4 and 3.1.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from html import unescape
from typing import NamedTuple

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.redactor import form
from proxy.redactor.checks import Outline
from proxy.redactor.json.text import Layer
from proxy.redactor.json.tree import read_json_value, write_json_value
from proxy.redactor.message import Media, read_text, write_text
from proxy.redactor.pages import is_markup, opens_tag, references, text
from proxy.redactor.request_rules import TextPlace
from proxy.redactor.select import Selection

#: How a value is written at a place.
Write = Callable[[Value], bytes]

_BLANKS = re.compile(rb"(?:[ \t+]|%20|%09)*")


class Spelling(NamedTuple):
    """Codec of values that stand behind one another in a text."""

    read: Callable[[bytes], str]
    write: Callable[[Value], bytes]
    escape: Callable[[str], bytes]  #: one character, as an expression for its spellings
    blanks: re.Pattern[bytes]
    character: re.Pattern[bytes]  #: the bytes of one character, however it is spelled
    escaped: re.Pattern[bytes]  #: escapes of other bytes
    decode: Callable[[bytes], bytes]  #: those


def _url_escape(char: str) -> bytes:
    raw = char.encode()
    escaped = b"".join(b"%%%02X" % byte for byte in raw)
    ways = [re.escape(raw), b"(?i:%b)" % escaped, *([rb"\+"] if char == " " else [])]
    return b"(?:%b)" % b"|".join(ways)


def _read_json_part(raw: bytes) -> str:
    value = read_json_value(b'"%b"' % raw)
    return "" if value is None else value.text


URL_VALUE = Spelling(
    form.read_form_value,
    lambda value: form.write_form_value(value.text),
    _url_escape,
    _BLANKS,
    re.compile(
        rb"%[0-7][0-9A-Fa-f]|[\x00-\x24\x26-\x7f]"
        rb"|(?:%[C-Fc-f][0-9A-Fa-f]|[\xc0-\xff])(?:%[89ABab][0-9A-Fa-f]|[\x80-\xbf])+"
    ),
    re.compile(rb"\+|%[0-9A-Fa-f]{2}"),
    lambda raw: b" " if raw == b"+" else bytes([int(raw[1:], 16)]),
)
JSON_TEXT = Spelling(
    _read_json_part,
    lambda value: write_json_value(Value(value.text))[1:-1],
    lambda char: re.escape(char.encode()),
    re.compile(rb"[ ]*"),
    re.compile(
        rb"\\u[dD][89ABab][0-9A-Fa-f]{2}\\u[dD][C-Fc-f][0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\[^u]"
        rb"|[\x00-\x5b\x5d-\x7f]|[\xc0-\xff][\x80-\xbf]+"
    ),
    re.compile(rb"(?:\\u[dD][89ABab][0-9A-Fa-f]{2})?\\(?:u[0-9A-Fa-f]{4}|.)"),
    lambda raw: _read_json_part(raw).encode(),
)
#: A part of a form, where nothing is escaped.
PART_TEXT = Spelling(
    lambda raw: read_text(raw).text, write_text, lambda char: re.escape(char.encode()),
    re.compile(rb"[ ]*"), re.compile(rb"[\x00-\x7f]|[\xc0-\xff][\x80-\xbf]+"),
    re.compile(rb"(?!)"), bytes,
)  # fmt: skip
_SPELLINGS = {Media.JSON: JSON_TEXT, Media.FORM: URL_VALUE, Media.MULTIPART: PART_TEXT}

#: Bytes of a document within a text, with each escape as a unit.
_MOST_INNER = 1 << 20


class InnerText(Layer):
    """A document in a text."""

    def __init__(self, name: str, at: tuple[bytes, int, int], spelling: Spelling) -> None:
        _, start, end = at
        if end - start > _MOST_INNER:
            raise VaultError(Code.TOO_LARGE, f"The text of '{name}' is too long.")
        super().__init__(at, spelling.escaped, spelling.decode)
        self._spelling = spelling

    def stretch(self, start: int, end: int, write: Write) -> tuple[int, int, Write]:
        """A stretch of the document as one of the text round it; how a value is written there."""
        outer = partial(_written_twice, self._spelling.write, write)
        return self.outside(start), self.outside(end), outer


def _written_twice(outer: Write, inner: Write, token: Value) -> bytes:
    return outer(Value(inner(token).decode()))


class InnerValue(NamedTuple):
    """A value in such a document: its field, its bytes in the body, and how it is written there."""

    field: str
    start: int
    end: int
    value: Value | None
    write: Write


#: What holds no document.
_NOTHING = ("true", "false")


class TextPlan:
    """Reads the documents of one place; made when rules load."""

    def __init__(self, text: TextPlace, *, strict: bool) -> None:
        """``strict``: as of requests, in which nothing may stand that is not understood."""
        self._name = text.label
        self._fields = [name for _, name in text.fields]
        paths = [*(path for path, _ in text.fields), *(one.path for one in text.texts)]
        self._selection = Selection(None, (), paths, nested=strict)
        self._outline = Outline(None, (), paths) if strict else None
        self._texts = [TextPlan(one, strict=strict) for one in text.texts]

    def values(
        self, media: Media, value: Value | None, at: tuple[bytes, int, int], depth: int
    ) -> list[InnerValue]:
        """The values in the text that ``value`` is, which stands in a body of this kind.

        Raises ``VaultError`` for a text that is no such document, where that matters.
        """
        data, start, end = at
        if value is None:
            return []
        if value.json or not value.text.strip():
            if self._outline is not None and value.json and value.text not in _NOTHING:
                raise self._refusal("something else than a text of JSON stands at")
            return []
        quotes = int(media is Media.JSON)
        text = data, start + quotes, end - quotes
        try:
            inner = InnerText(self._name, text, _SPELLINGS[media])
            values = [
                one._replace(start=start, end=end, write=write)
                for one in self._inside(inner.content, depth)
                for start, end, write in (inner.stretch(one.start, one.end, one.write),)
            ]
        except VaultError as error:
            if self._outline is not None or error.code not in _UNREADABLE:
                raise
            return []  # the application's own text: it passes unchanged
        return values

    def _inside(self, document: bytes, depth: int) -> Iterator[InnerValue]:
        """The values of a document, where they stand in it."""
        for leaf in self._selection.find(document, depth).anchored:
            value = read_json_value(document[leaf.start : leaf.end])
            if leaf.name < len(self._fields):
                name = self._fields[leaf.name]
                yield InnerValue(name, leaf.start, leaf.end, value, write_json_value)
            elif value is not None:
                further = self._texts[leaf.name - len(self._fields)]
                yield from further.values(
                    Media.JSON, value, (document, leaf.start, leaf.end), depth
                )
        if self._outline is not None and self._outline.strayed(document):
            raise self._refusal("something else stands where the way to a place goes on, in")

    def _refusal(self, what: str) -> VaultError:
        return VaultError(
            Code.VALUE_UNFIT,
            f"The request holds what is not understood: {what} '{self._name}', whose text is a "
            "document of JSON by its rule.",
        )


_UNREADABLE = (Code.UNREADABLE_BODY, Code.MALFORMED_JSON, Code.AMBIGUOUS_JSON, Code.TOO_LARGE)


#: Characters that are searched at once, and more than any token has.
_SEARCHED, _LONGEST = 64 * 1024, 4096


class Candidate(NamedTuple):
    """A stretch of text that may be a token.

    ``whole``: a complete value; ``quoted``: in a JSON string; ``write``: a special escaping.
    """

    text: str
    start: int
    end: int
    whole: bool
    quoted: bool
    write: Callable[[str], bytes] | None = None


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield all matches in a text; of a long one in pieces, as a search holds the lock.

    A piece is looked at so far beyond its end that no token lies across it unseen.
    """
    if len(text) <= _SEARCHED:
        yield from pattern.finditer(text)
        return
    reached = 0
    for start in range(0, len(text), _SEARCHED):
        for match in pattern.finditer(text, max(start, reached), start + _SEARCHED + _LONGEST):
            if match.start() >= start + _SEARCHED:
                break
            yield match
            reached = match.end()


def found_inside(
    text: str, offset: int, quoted: bool, patterns: Sequence[re.Pattern[str]]
) -> Iterator[Candidate]:
    """Yield the tokens in a text that begins at ``offset``: the longest at each place."""
    last = -1
    spans = sorted(
        (m.start(), -m.end(), m[0]) for pattern in patterns for m in _matches(pattern, text)
    )
    for start, negative_end, token in spans:
        if start >= last:
            last = -negative_end
            yield Candidate(token, offset + start, offset + last, False, quoted)


_PART = re.compile(
    rb"<!--.*?-->|<!\[CDATA\[(?P<cdata>.*?)\]\]>|<\?.*?\?>|<!DOCTYPE[^\[<>]*+>"
    rb"|<(?P<name>/?[^\s/<>!?\"'=]++)(?P<rest>(?:[^<>\"']++|\"[^<\"]*+\"|'[^<']*+')*+)>",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(rb"([^\s/=\"']++)\s*+=\s*+(?:\"([^\"]*+)\"|'([^']*+)')")
_REFERENCE = re.compile(rb"&(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9A-Fa-f]{1,6});")
_CHARSET = re.compile(rb"charset\s*=\s*[\"']?([^\s\"';]+)", re.IGNORECASE)
_ENCODING = re.compile(rb"(?:\xef\xbb\xbf)?<\?xml[^>]*?\sencoding\s*=\s*[\"']([^\"']+)")
#: Charsets in which every byte below 128 is that character of ASCII.
_ASCII_BASED = re.compile(rb"(?i)utf-?8|(?:us-)?ascii|iso-8859-[0-9]+|latin-?1|windows-125[0-9]")
#: A text that is an address, and attributes that hold one, or what a browser runs.
_ADDRESS = re.compile(
    rb"(?i)\s*(?:[a-z][a-z0-9+.-]*:/|/|\?|(?:mailto|tel|sms|data|javascript|urn|tag):)"
)
_ACTIVE = re.compile(
    rb"(?i)(?:.*:)?(?:on.*|style|href|src|url|uri|action|formaction|data|rel|xmlns.*)|xmlns:.*"
)
_RUN = (b"script", b"style")
#: What cannot be written in XML 1.0, not even as a reference (section 2.2).
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class XmlText:
    """A text of the document without references and sections, and where its bytes stand in it."""

    def __init__(self, attribute: bytes | None = None) -> None:
        self.page = bytearray()
        self.attribute = attribute  #: the name of the one that it is
        self._begins, self._places = [0], [(-1, False)]

    def add(self, body: bytes, start: int, end: int, *, cdata: bool) -> None:
        for reference in () if cdata else _REFERENCE.finditer(body, start, end):
            self._add(body[start : reference.start()], start, cdata)
            self._add(unescape(reference[0].decode()).encode("utf-8", "replace"), -1, cdata)
            start = reference.end()
        self._add(body[start:end], start, cdata)

    def _add(self, content: bytes, at: int, cdata: bool) -> None:
        self._begins.append(len(self.page))
        self._places.append((at, cdata))
        self.page += content

    def position(self, start: int, end: int) -> tuple[int, int, bool] | None:
        """The place of bytes of the text in the document, and whether in a section; ``None`` where
        they stand in several pieces.
        """
        number = bisect_right(self._begins, start) - 1
        at, cdata = self._places[number]
        lone = number + 1 == len(self._begins) or end <= self._begins[number + 1]
        at += start - self._begins[number]
        return (at, at + end - start, cdata) if lone and self._places[number][0] >= 0 else None

    def writers(self, spans: Sequence[tuple[int, int]]) -> "Writers":
        """Return the writers of values in place of these stretches of the text."""
        whole = spans == [(0, len(self.page))]
        if self.attribute is not None:
            open_to = whole and not _ACTIVE.fullmatch(self.attribute)
        else:
            open_to = whole or not _ADDRESS.match(self.page)
        without = bytearray(self.page)
        for start, end in spans:
            without[start:end] = b"_" * (end - start)
        return Writers(open_to, not whole and is_markup(bytes(without)), whole)


class Writers:
    """Writers of values in one text."""

    def __init__(self, open_to: bool, markup: bool, whole: bool) -> None:
        self.open, self.markup, self._whole = open_to, markup, whole

    def writer(self, token: bytes, *, cdata: bool) -> Callable[[str], bytes]:
        """Return what writes a value; the token where that cannot stand there."""
        return partial(self._written, token, cdata)

    def _written(self, token: bytes, cdata: bool, value: str) -> bytes:
        tag = not self.markup and not self._whole and opens_tag(value)
        if _UNFIT.search(value) or tag:
            return token
        written = text(value).decode() if self.markup else value
        if not cdata:
            return references(written)
        if written.isascii() and written and {"]", ">", "\r"}.isdisjoint(written):
            return written.encode()
        return b"]]>" + references(written) + b"<![CDATA["


def is_readable_xml(declared: bytes | None, body: bytes) -> bool:
    """Whether a document of that type can be read safely."""
    named = [_CHARSET.search(declared or b""), _ENCODING.match(body)]
    if any(one is not None and not _ASCII_BASED.fullmatch(one[1]) for one in named):
        return False
    at = 0
    while (at := body.find(b"<", at)) >= 0:
        part = _PART.match(body, at)
        if part is None:
            return False
        at = part.end()
    return b"\0" not in body[:4]


def xml_texts(body: bytes) -> Iterator[XmlText]:
    """The texts and attributes of a document that can be read."""
    at, one, running = 0, XmlText(), b""
    for part in _PART.finditer(body):
        one.add(body, at, part.start(), cdata=False)
        at, name = part.end(), part["name"]
        if part["cdata"] is not None:
            one.add(body, *part.span("cdata"), cdata=True)
        if name is None:
            continue
        if one.page and not running:
            yield one
        one, local = XmlText(), name.rpartition(b":")[2].lstrip(b"/").lower()
        closes = name[:1] == b"/"
        if closes and local == running:
            running = b""
        elif not closes and not running and local in _RUN and not part["rest"].endswith(b"/"):
            running = local
        for attribute in _ATTRIBUTE.finditer(body, *part.span("rest")):
            value = XmlText(attribute[1])
            value.add(body, *attribute.span(2 if attribute[2] is not None else 3), cdata=False)
            if value.page:
                yield value


_XML_BETWEEN = re.compile(rb" ?(?:<!--|-->|<!\[CDATA\[|\]\]>|[<>]) ?|(?<==)'|'(?=[ />?])")
# bounded: sections may hold very many beginnings without an end
_XML_INSIDE = re.compile(rb"<!--.{0,64}?-->|<\?.{0,64}?\?>|<!\[CDATA\[|\]\]>", re.DOTALL)

#: Matches a text that begins as a document of XML.
is_xml = re.compile(rb"[\xef\xbb\xbf \t\r\n]*+<").match


def xml_readings(document: bytes) -> list[bytes]:
    """A document with its texts apart and references undone; also without comments in them."""
    whole = re.sub(rb"\s+", b" ", document)
    apart = (_XML_BETWEEN.sub(b'"', one) for one in (whole, _XML_INSIDE.sub(b"", whole)))
    texts = (unescape(one.decode("utf-8", "replace")) for one in apart)
    return [one.encode("utf-8", "replace") for one in dict.fromkeys(texts)]
