"""Cards and calendars (vCard 3 and 4, iCalendar) as elements, and where each text stands.

``BEGIN:VCARD``, ``N:Lindqvist;Ann``, ``EMAIL;TYPE=home:a@b`` is read as an element ``VCARD`` with
the elements ``N``, in which ``surname`` and ``given`` stand, and ``EMAIL`` with an attribute
``TYPE``: components and properties by their names in capitals, without a group; the parts of a
value by their names in xCard and xCal, an element for each text of a list. Escapes are undone, and
an address in ``mailto:`` or ``tel:`` is the text behind that. Source: RFC 6350, 5545, 6351, 6321,
6868, 9554.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from html import unescape
from typing import Final
from urllib.parse import quote, unquote

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.redactor.elements import Built, DocumentReader, Element, Piece
from proxy.redactor.json.text import Layer, is_utf8

#: Bytes of a line without its end, at most (RFC 6350 section 3.2).
_WIDEST: Final = 75
#: Stands before a text that was written, until its line is folded; no document holds it.
UNFOLDED: Final = b"\x01"

_FOLD: Final = re.compile(rb"\r?\n[ \t]")
_LINE: Final = re.compile(rb"[^\r\n]*")
_END: Final = re.compile(rb"\r?\n|\Z")
#: What some readers take for the end of a line, or for nothing; and a fold of nothing.
_ODD: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|(?:\A|\n)\r?\n[ \t]|\A[ \t]")
_NAME: Final = re.compile(rb"(?:[A-Za-z0-9_-]++\.)?([A-Za-z0-9_-]++)")
_PARAMETER: Final = re.compile(rb";([A-Za-z0-9_-]++)=")
_PARAMETER_VALUE: Final = re.compile(rb'"([^"]*+)"|([^";:,]*+)')
_PART: Final = re.compile(rb"(?:[^;\\]++|\\.?)*+", re.DOTALL)
_ELEMENT: Final = re.compile(rb"(?:[^,\\]++|\\.?)*+", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\([\\;,nN])")
_CARET: Final = re.compile(r"\^([n^'])")
_CARET_WRITTEN: Final = re.compile(r"\^(?=[n^'\"\r\n])|\"|\r\n|[\r\n]")
_UNQUOTED: Final = re.compile("[;:,]")
_SPECIAL: Final = re.compile(r"[\\;,]|\r\n|[\r\n]")
_BREAKS: Final = re.compile(r"\r\n|[\r\n]")
_UNFIT: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_ADDRESS: Final = re.compile(rb"(?i)(?:mailto|tel|sms):")
_ESCAPED_BYTE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
#: What stands in an address as it is; signs of other scripts do, too.
_LITERAL: Final = "!#$&'()*+,-./:;=?@_~[]"

#: The names of the parts of a value; the last one is that of all that follow where it ends so.
_PARTS: Final = {
    "N": "surname given additional prefix suffix surname2 generation",
    "ADR": "pobox ext street locality region code country room apartment floor streetnumber "
    "streetname building block subdistrict district landmark direction",
    "ORG": "name unit*",
    "GENDER": "sex identity",
    "GEO": "latitude longitude",
    "REQUEST-STATUS": "code description data",
}
VALUE_PARTS: Final = {name: tuple(text.split()) for name, text in _PARTS.items()}
_LISTS: Final = frozenset(("CATEGORIES", "NICKNAME", "RESOURCES"))
#: Properties whose parts are lists.
_LISTED: Final = frozenset(("N", "ADR"))
#: Properties of addresses, also where none of their parameters says so.
_ADDRESSES: Final = frozenset(
    "ATTENDEE CALADRURI CALURI CONFERENCE FBURL IMPP MEMBER ORGANIZER RELATED SOURCE URL".split()
)
#: Properties of texts, in which signs are escaped.
_TEXTS: Final = frozenset(
    (
        "AGENT BDAY BIRTHPLACE CATEGORIES CLASS COMMENT CONTACT DEATHPLACE DESCRIPTION EMAIL "
        "EXPERTISE FN HOBBY INTEREST KIND LABEL LOCATION MAILER NAME NICKNAME NOTE PRODID "
        "RELATED-TO RESOURCES ROLE SORT-STRING STATUS SUMMARY TEL TITLE TZID TZNAME UID "
        "X-WR-CALDESC X-WR-CALNAME"
    ).split()
)
_SPELLED: Final = ("8BIT", "7BIT")
#: Parameters of one line that are read.
_MOST_PARAMETERS: Final = 200
_CHARSETS: Final = ("UTF-8", "US-ASCII")


def _unreadable(what: str) -> VaultError:
    """The error for a document that is not read."""
    return VaultError(Code.UNREADABLE_BODY, f"The card or calendar {what}.")


def text_bytes(value: Value) -> bytes:
    """The text itself."""
    return value.text.encode()


# Reading.


class LineReader(DocumentReader):
    """Reads the components of one document. ``outer``: the text round it, and how a text of this
    one is written in that.
    """

    def __init__(
        self,
        body: bytes,
        depth: int,
        outer: tuple[Layer, Callable[[Value], bytes], DocumentReader] | None = None,
    ) -> None:
        super().__init__(len(body) // 8, outer[2] if outer is not None else None)
        self._depth = depth
        start = 3 if body[:3] == b"\xef\xbb\xbf" else 0
        self._layer = Layer((body, start, len(body)), _FOLD, lambda _: b"")
        self._text = self._layer.content
        self._outer = outer
        self._writers: dict[Callable[[str], str], Callable[[Value], bytes]] = {}
        if _ODD.search(body) is not None or not is_utf8(self._text):
            raise _unreadable("is not UTF-8, holds control signs, or has a line that begins blank")

    def components(self) -> list[Built]:
        """The outermost components. Raises ``VaultError``: UNREADABLE_BODY, TOO_LARGE."""
        opened, at, size = [Element("")], 0, len(self._text)
        while at < size:
            line = _LINE.match(self._text, at)
            ending = _END.match(self._text, line.end()) if line is not None else None
            if line is None or ending is None:
                raise _unreadable("has a line that cannot be read")
            at = ending.end()
            if line[0].strip(b" \t"):
                self._line(opened, line.start(), line.end())
            if len(opened) > self._depth + 1:  # one of them is no component
                raise VaultError(
                    Code.TOO_LARGE,
                    f"The calendar nests deeper than {self._depth} levels: send a flatter one, or "
                    "raise limits.json_depth.",
                )
        if len(opened) != 1:
            raise _unreadable("has a component that does not end")
        return opened[0].children

    def _line(self, opened: list[Element], start: int, end: int) -> None:
        name = _NAME.match(self._text, start, end)
        if name is None:
            raise _unreadable("has a line that begins with no name")
        one, at = Element(name[1].decode().upper()), name.end()
        left = _MOST_PARAMETERS
        while (parameter := _PARAMETER.match(self._text, at, end)) and left:
            left -= 1
            at = self._parameter(one, parameter[1].decode().upper(), parameter.end(), end)
        if self._text[at : at + 1] != b":" or at >= end:
            raise _unreadable("has a line that cannot be read, as those of vCard 2.1 are")
        if one.name in ("BEGIN", "END"):
            self._bound(opened, one, self._text[at + 1 : end].strip().decode().upper())
            return
        if len(opened) == 1:
            raise _unreadable("has a property outside of its components")
        for built in self._values(one, at + 1, end):
            self.count()
            opened[-1].add(built)

    def _bound(self, opened: list[Element], one: Element, name: str) -> None:
        if one.attributes or not name:
            raise _unreadable("has a component whose name cannot be read")
        if one.name == "BEGIN":
            opened.append(Element(name))
        elif opened[-1].name == name:
            ended = opened.pop()
            opened[-1].add((ended, "", None))
        else:
            raise _unreadable("has a component that ends where another one began")

    def _parameter(self, one: Element, name: str, at: int, end: int) -> int:
        """Read the values of a parameter. Returns where they end."""
        self.count()
        texts, piece = list[str](), None
        while value := _PARAMETER_VALUE.match(self._text, at, end):
            group = 1 if value[1] is not None else 2
            texts.append(_CARET.sub(_from_caret, value[group].decode()))
            piece = self._piece(value.span(group), (_as_bare, _as_quoted)[group == 1])
            at = value.end()
            if self._text[at : at + 1] != b"," or at >= end:
                break
            at += 1
        if name == "ENCODING" and any(text.upper() == "QUOTED-PRINTABLE" for text in texts):
            raise _unreadable("has a text in quoted-printable, which is not read: send UTF-8")
        if name == "CHARSET" and any(text.upper() not in _CHARSETS for text in texts):
            raise _unreadable("has a text in another charset than UTF-8")
        for number, (called, others, _) in enumerate(one.attributes):
            if called == f"@{name}":
                before = others if isinstance(others, list) else [others]
                one.attributes[number] = called, [*before, *texts], None
                return at
        lone = len(texts) == 1
        said = f"@{name}", texts[0] if lone else texts, piece if lone else None
        one.attributes = [*one.attributes, said]
        return at

    def _values(self, one: Element, start: int, end: int) -> Iterator[Built]:
        """The property, or one for each text of a list."""
        said = {name: texts for name, texts, _ in one.attributes if isinstance(texts, str)}
        kind, raw = said.get("@VALUE", "").upper(), self._text[start:end]
        if one.name == "VERSION" and raw.strip() == b"2.1":
            raise _unreadable("is a vCard 2.1, which is not read: send 3.0 or 4.0")
        parts = VALUE_PARTS.get(one.name)
        if said.get("@ENCODING", "8BIT").upper() not in _SPELLED:
            one.text = True  # nobody sees a value in it
            yield one, "", None
        elif (
            kind in ("URI", "CAL-ADDRESS")
            or (one.name in _ADDRESSES and kind != "TEXT")
            or (one.name == "GEO" and raw[:4].lower() == b"geo:")
        ):
            yield one, *self._address(start, end)
        elif parts is not None and kind in ("", "TEXT"):
            for number, (first, last) in enumerate(_spans(_PART, self._text, start, end)):
                rest = parts[-1] if parts[-1].endswith("*") else f"part{number + 1}"
                name = parts[number] if number < len(parts) else rest
                listed = one.name in _LISTED
                several = _spans(_ELEMENT, self._text, first, last) if listed else [(first, last)]
                for span in several:
                    self.count()
                    one.add((Element(name.rstrip("*")), *self._escaped(span)))
            yield one, "", None
        elif one.name in _LISTS:
            for number, span in enumerate(_spans(_ELEMENT, self._text, start, end)):
                yield one if number == 0 else Element(one.name), *self._escaped(span)
        elif one.name in _TEXTS or kind == "TEXT":
            yield one, *self._escaped((start, end))
        else:
            yield one, raw.decode(), self._piece((start, end), _as_it_is)

    def _address(self, start: int, end: int) -> tuple[str, Piece]:
        """An address: of ``mailto:`` and its like the text behind that."""
        scheme = _ADDRESS.match(self._text, start, end)
        if scheme is None:
            return self._text[start:end].decode(), self._piece((start, end), _as_it_is)
        text = self._text[scheme.end() : end].decode()
        undone = unquote(text, errors="replace")
        if "\ufffd" in undone or _UNFIT.search(undone) or _BREAKS.search(undone):
            undone = text
        return undone, self._piece((scheme.end(), end), _as_address)

    def _escaped(self, span: tuple[int, int]) -> tuple[str, Piece]:
        text = _ESCAPE.sub(_from_escape, self._text[slice(*span)].decode())
        return text, self._piece(span, _as_text)

    def _piece(self, span: tuple[int, int], write: Callable[[str], str]) -> Piece:
        start, end = map(self._layer.outside, span)
        layer, outer = self._outer[:2] if self._outer is not None else (None, text_bytes)
        if layer is not None:
            start, end = layer.outside(start), layer.outside(end)
        if write not in self._writers:  # a few, of which many texts have one
            self._writers[write] = partial(_marked, outer, write)
        return Piece(start, end, self._writers[write])


def _spans(
    pattern: re.Pattern[bytes], text: bytes, start: int, end: int
) -> Iterator[tuple[int, int]]:
    """The parts of a text between its separators, which may be none."""
    while part := pattern.match(text, start, end):
        yield part.span()
        start = part.end() + 1
        if part.end() >= end:
            return


def _from_escape(match: re.Match[str]) -> str:
    return "\n" if match[1] in "nN" else match[1]


def _from_caret(match: re.Match[str]) -> str:
    return {"n": "\n", "'": '"'}.get(match[1], "^")


# Writing.


def _marked(outer: Callable[[Value], bytes], write: Callable[[str], str], value: Value) -> bytes:
    text = _UNFIT.sub("\ufffd", _BREAKS.sub("\n", value.text))
    return UNFOLDED + outer(Value(write(text)))


def _as_text(text: str) -> str:
    return _SPECIAL.sub(lambda sign: "\\n" if sign[0] == "\n" else f"\\{sign[0]}", text)


def _as_it_is(text: str) -> str:
    return text.replace("\n", "\\n")


def _as_address(text: str) -> str:
    return "".join(one if ord(one) > 127 else quote(one, safe=_LITERAL) for one in text)


def _as_quoted(text: str) -> str:
    signs = {"\n": "^n", '"': "^'", "^": "^^"}
    return _CARET_WRITTEN.sub(lambda sign: signs[sign[0]], text)


def _as_bare(text: str) -> str:
    written = _as_quoted(text)
    return f'"{written}"' if _UNQUOTED.search(written) else written


_CHARACTER: Final = re.compile(rb"[\xc0-\xff][\x80-\xbf]*|.", re.DOTALL)
_CHARACTER_IN_XML: Final = re.compile(rb"&[#\w]{1,9};|[\xc0-\xff][\x80-\xbf]*|.", re.DOTALL)
_FOLD_IN_XML: Final = re.compile(rb"(?:\r|&#(?:13|[xX]0?[dD]);)?\n[ \t]")
_END_IN_XML: Final = re.compile(rb"(?:\r|&#(?:13|[xX]0?[dD]);)?\n\Z")
_END_BEFORE: Final = re.compile(rb"\r?\n\Z")


def refold(document: bytes, *, xml: bool) -> bytes:
    """A document in which the lines of texts that were written are folded, and marked no longer.

    ``xml``: it is one of XML that holds cards.
    """
    pieces: list[bytes] = []
    reached, at = 0, document.find(UNFOLDED)
    while at >= 0:
        start = document.rfind(b"\n", reached, at) + 1
        while start > reached and document[start : start + 1] in (b" ", b"\t"):
            start = document.rfind(b"\n", reached, start - 1) + 1
        start = max(start, reached)
        end = document.find(b"\n", at)
        while end >= 0 and document[end + 1 : end + 2] in (b" ", b"\t"):
            end = document.find(b"\n", end + 1)
        end = len(document) if end < 0 else end + 1
        pieces += (document[reached:start], _folded(document[start:end], xml=xml))
        reached, at = end, document.find(UNFOLDED, end)
    return b"".join([*pieces, document[reached:]])


def _folded(line: bytes, *, xml: bool) -> bytes:
    """A line with its end, in rows."""
    ending = (_END_IN_XML if xml else _END_BEFORE).search(line)
    end = ending[0] if ending is not None else b""
    whole = (_FOLD_IN_XML if xml else _FOLD).sub(b"", line[: len(line) - len(end)])
    whole = whole.replace(UNFOLDED, b"")
    if len(whole) <= _WIDEST:
        return whole + end
    rows, size = list[bytes](), 0
    for one in (_CHARACTER_IN_XML if xml else _CHARACTER).finditer(whole):
        width = len(one[0])
        if xml and width > 2 and one[0][:1] == b"&":
            width = len(unescape(one[0].decode()).encode())
        if size + width > _WIDEST:
            rows.append((end or b"\r\n") + b" ")
            size = 1
        rows.append(one[0])
        size += width
    return b"".join([*rows, end])


#: Matches a text that begins as a card or a calendar.
is_content_lines: Final = re.compile(rb"[\xef\xbb\xbf \t\r\n]*+(?i:BEGIN:V)").match


def line_readings(document: bytes) -> list[bytes]:
    """A card or calendar without folds, and with its escapes undone."""
    whole = _FOLD.sub(b"", document)
    return [whole, re.sub(rb"\\([\\;,])", rb"\1", whole).replace(b"\\n", b"\n")]
