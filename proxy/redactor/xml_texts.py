"""Texts of an XML document (feeds, exports), and how a value is written in each.

A text is what stands between two tags, CDATA sections and references undone; or an attribute. A
reader of feeds takes many texts for HTML: where one holds markup, a value is written as HTML, so
that it never becomes a part of it. Addresses, scripts and styles keep their tokens, and so does a
document that cannot be read safely: one with declarations of its own, or in a charset whose bytes
below 128 may be parts of other characters. Source: XML 1.0, sections 2.4 and 3.1.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from html import unescape

from proxy.redactor.pages import is_markup, opens_tag, references, text

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
        """Add a stretch of the document."""
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


def is_readable(declared: bytes | None, body: bytes) -> bool:
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


def texts(body: bytes) -> Iterator[XmlText]:
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
