"""Documents of XML as the JSON that selectors are followed in, and where each text stands in them.

``<person id="7"><mail>a@b</mail></person>`` is read as ``{"person": [{"@id": "7", "#text": [],
"mail": [{"#text": "a@b"}]}]}``: elements and attributes by their local names, each element in an
array, its text under ``#text``, and the name of a lone one in it under ``#element``. A text that is
not in one piece (elements or comments stand in it) is an array there, and an element that says
``nil`` is null. Calls of XML-RPC are read as the values that they spell out. Only UTF-8 is read,
and no document with a DTD. Source: XML 1.0 (2.4, 2.7, 2.11, 4.1), Namespaces in XML, XML-RPC.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final
from xml.parsers import expat

import msgspec

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.redactor.content_lines import LineReader, is_content_lines
from proxy.redactor.elements import Built, Document, DocumentReader, Element, Piece
from proxy.redactor.json.text import Layer, is_utf8
from proxy.redactor.words import DocumentKind

_WHITE: Final = b" \t\r\n"
_BLANK: Final = " \t\r\n"
#: The last step of a place that is the text of an element, or the name of the only one in it.
TEXT: Final = "#text"
LONE: Final = "#element"

_TAG: Final = re.compile(rb"<([^\s/>]+)((?:[^\"'>]+|\"[^\"]*\"|'[^']*')*)>")
_ATTRIBUTE: Final = re.compile(rb"([^\s=]+)\s*=\s*(\"[^\"]*\"|'[^']*')")
_SECTION: Final = re.compile(rb"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_REFERENCE: Final = re.compile("&(?:#x([0-9A-Fa-f]+)|#([0-9]+)|(amp|lt|gt|quot|apos));")
_NAMED: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_LINES: Final = re.compile("\r\n?")
#: Signs of a text that are written as references; and those that cannot be written at all.
_SPECIAL: Final = re.compile(r"[&<>\r]|\A[ \t\n]+|(?<![ \t\n])[ \t\n]+\Z")
_QUOTED: Final = re.compile("[&<>\"'\t\n\r]")
_SIGNS: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
#: The same of a part of a text; and what a text spells otherwise than it means it.
_INNER: Final = re.compile(r"[&<>\r]")
_BREAK: Final = re.compile(rb"\r\n?")
_SPELLED: Final = re.compile(rb"\r\n?|&(?:#x[0-9A-Fa-f]+|#[0-9]+|amp|lt|gt|quot|apos);")
#: Elements whose text is a card or a calendar (RFC 6352, RFC 4791).
_CARDS: Final = ("address-data", "calendar-data")
_UNFIT: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_UTF8: Final = ("", "utf-8", "utf8", "us-ascii", "ascii")
_DEEPEST: Final = 800  #: levels of elements, each of which takes a call
#: Namespaces by which an element stands for another one: XInclude, and SOAP 1.2 (part 2, 3.1.5).
_INCLUDING: Final = "http://www.w3.org/2001/XInclude"
_REFERRING: Final = "http://www.w3.org/2003/05/soap-encoding"


def _unreadable(what: str) -> VaultError:
    """The error for a document that is not read."""
    return VaultError(Code.UNREADABLE_BODY, f"The XML {what}.")


class _Reader(DocumentReader):
    """Reads one document by the events of the parser. ``depth``: levels of elements at most."""

    def __init__(self, body: bytes, depth: int) -> None:
        super().__init__(len(body) // 12)
        self._body, self._depth = body, depth
        self._open = [Element("")]
        self._ids, self._references, self._spaces = set[str](), set[str](), set[str]()
        parser = self._parser = expat.ParserCreate("utf-8")
        parser.ordered_attributes = parser.buffer_text = True
        parser.XmlDeclHandler = self._declared
        parser.StartDoctypeDeclHandler = self._typed
        parser.StartElementHandler = self._begin
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.CommentHandler = parser.ProcessingInstructionHandler = self._interrupted

    def root(self) -> Built:
        """The root element. Raises ``VaultError`` (UNREADABLE_BODY, TOO_LARGE)."""
        body, line = self._body, 0
        if not is_utf8(body) or b"\0" in body:  # the parser would read UTF-16, too
            raise _unreadable("is not UTF-8")
        try:
            self._parser.Parse(body, True)
        except expat.ExpatError as error:
            line = error.lineno
        if line:
            raise _unreadable(f"is not well-formed, in line {line}")
        bare = _REFERRING in self._spaces
        targets = {one.lstrip("#") for one in self._references if bare or one[:1] == "#"}
        if not self._ids.isdisjoint(targets):
            raise _unreadable("says by href or ref what stands in another element: send it there")
        return self._open[0].children[0]

    def _declared(self, version: str, encoding: str | None, _: int) -> None:
        if version != "1.0" or (encoding or "").lower() not in _UTF8:
            raise _unreadable("says that it is no XML 1.0, or in another encoding than UTF-8")

    def _typed(self, *_: object) -> None:
        raise _unreadable("has a document type (DTD), which is not read: send it without")

    def _begin(self, name: str, attributes: Sequence[str]) -> None:
        if len(self._open) > self._depth:
            raise VaultError(
                Code.TOO_LARGE,
                f"The XML nests deeper than {self._depth} levels: send a flatter document, or "
                "raise limits.json_depth.",
            )
        at = self._parser.CurrentByteIndex
        tag = _TAG.match(self._body, at)
        local = _local(name)
        written = [*_ATTRIBUTE.finditer(self._body, *tag.span(2))] if tag is not None else []
        if tag is None or local == "EncryptedData" or len(written) * 2 != len(attributes):
            raise _unreadable("is encrypted, or has a tag that cannot be read")
        one = Element(local, tag[1], tag.end())
        self.count()
        one.attributes = [] if written else one.attributes
        for number, match in enumerate(written):
            called, text = attributes[2 * number], attributes[2 * number + 1]
            named = _local(called), text
            if called == "xmlns" or called.startswith("xmlns:"):
                self._spaces.add(text)
            else:
                self._attribute(one, named, match.span(2))
        if local == "include" and _INCLUDING in self._spaces:
            raise _unreadable("includes other documents (XInclude)")
        self._open.append(one)

    def _attribute(self, one: Element, named: tuple[str, str], span: tuple[int, int]) -> None:
        name, text = named
        one.nil |= name == "nil" and text in ("true", "1")
        if name in ("href", "ref"):
            self._references.add(text)
        elif name == "id":
            self._ids.add(text)
        self.count()
        one.attributes.append((f"@{name}", text, Piece(span[0] + 1, span[1] - 1, _write_attribute)))

    def _text(self, text: str) -> None:
        self._open[-1].text = self._open[-1].text or bool(text.strip(_BLANK))

    def _interrupted(self, *_: object) -> None:
        self._open[-1].odd = True

    def _end(self, _: str) -> None:
        one, end = self._open.pop(), self._parser.CurrentByteIndex
        whole = not (one.children or one.odd)
        text, piece = self._content(one, end) if whole else ("", None)
        if one.name in _CARDS and piece is not None and (cards := self._cards(text, piece)):
            text, piece = "", None
            next((at for at in self._open[::-1] if at.name == "response"), one).add(*cards)
        elif one.name == "prop-filter":  # of a search: by the name of the property
            named = [str(text).upper() for name, text, _ in one.attributes if name == "@name"]
            inner = Element("".join(named))
            inner.children, one.children = one.children, [(inner, "", None)]
        self._open[-1].add((one, text, piece))

    def _cards(self, text: str, piece: Piece) -> list[Built]:
        """The components of a text that is a card; none: another one, or it cannot be read."""
        section, at = piece.write is _write_section, (self._body, piece.start, piece.end)
        layer = Layer(at, _BREAK if section else _SPELLED, lambda one: _unescaped(one).encode())
        if layer.content == text.encode() and is_content_lines(layer.content):
            write = _write_section if section else partial(_write, _INNER)
            with suppress(VaultError):
                return LineReader(
                    layer.content.rstrip(), self._depth, (layer, write, self)
                ).components()
        return []

    def _content(self, one: Element, end: int) -> tuple[str, Piece]:
        """The text between two tags without the white space round it, and its place."""
        start, body = one.body, self._body
        if start == end and body[end - 2 : end] == b"/>":
            return "", Piece(start - 2, end, partial(_write_element, one.tag))
        raw = body[start:end]
        start += len(raw) - len(raw.lstrip(_WHITE))
        raw = raw.strip(_WHITE)
        section = _SECTION.fullmatch(raw)
        if section is not None and raw.count(b"]]>") == 1:
            text = _LINES.sub("\n", section[1].decode())
            first, last = section.span(1)
            return text, Piece(start + first, start + last, _write_section)
        return _text_of(raw), Piece(start, start + len(raw), write_xml_text)


def _local(name: str) -> str:
    prefix, colon, local = name.rpartition(":")
    if colon and (not prefix or not local or ":" in prefix):
        raise _unreadable("has a name that is none with a prefix")
    return local


def _text_of(raw: bytes) -> str:
    """The text that bytes between two tags mean, sections and references undone."""
    texts, at = list[str](), 0
    for section in _SECTION.finditer(raw):
        texts += (_unescaped(raw[at : section.start()]), _LINES.sub("\n", section[1].decode()))
        at = section.end()
    return "".join([*texts, _unescaped(raw[at:])])


def _unescaped(raw: bytes) -> str:
    return _REFERENCE.sub(_character, _LINES.sub("\n", raw.decode()))


def _character(match: re.Match[str]) -> str:
    if match[3]:
        return _NAMED[match[3]]
    return chr(int(match[1], 16) if match[1] else int(match[2]))


def _fit(text: str) -> str:
    """The text, with a sign in place of what XML cannot hold."""
    return _UNFIT.sub("\ufffd", text)


def _reference(sign: re.Match[str]) -> str:
    return _SIGNS.get(sign[0]) or "".join([f"&#{ord(one)};" for one in sign[0]])


def _write(special: re.Pattern[str], value: Value) -> bytes:
    return special.sub(_reference, _fit(value.text)).encode()


_write_attribute: Final = partial(_write, _QUOTED)


def write_xml_text(value: Value) -> bytes:
    """The text between two tags."""
    return _write(_SPECIAL, value)


def text_value(raw: bytes | memoryview) -> Value:
    """The value that stands between two tags."""
    return Value(_text_of(bytes(raw)))


def _write_section(value: Value) -> bytes:
    """A text within a section, which ends and opens again where the text would end it."""
    text = _fit(value.text).replace("]]>", "]]]]><![CDATA[>")
    return text.replace("\r", "]]>&#13;<![CDATA[").encode()


def _write_element(name: bytes, value: Value) -> bytes:
    """The end of a tag with a text behind it, in place of ``/>``."""
    return b">%b</%b>" % (write_xml_text(value), name) if value.text else b"/>"


class _Writer:
    """Writes a document as JSON. ``pieces``: texts by where they begin there."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._size = 0
        self.pieces: dict[int, Piece] = {}

    def _add(self, part: bytes) -> None:
        self.parts.append(part)
        self._size += len(part)

    def _string(self, text: str | list[str], piece: Piece) -> None:
        self.pieces[self._size] = piece
        self._add(msgspec.json.encode(text))

    def _name(self, name: str, comma: bool) -> None:
        self._add(b",%b:"[not comma :] % msgspec.json.encode(name))

    def document(self, roots: Sequence[Built]) -> None:
        """The object whose members are these elements."""
        self._add(b"{")
        self._elements(roots)
        self._add(b"}")

    def _elements(self, elements: Sequence[Built], *, comma: bool = False) -> None:
        """The members of an object that are elements; ``comma``: behind another one."""
        called: dict[str, list[Built]] = {}
        for one in elements:
            called.setdefault(one[0].name, []).append(one)
        for name, some in called.items():
            self._name(name, comma)
            comma = True
            for number, one in enumerate(some):
                self._add(b"," if number else b"[")
                self._element(one)
            self._add(b"]")

    def _element(self, ended: Built) -> None:
        one, text, piece = ended
        if one.nil and len(one.attributes) == 1 and piece is not None and not text:
            self._add(b"null")
            return
        names = [child[0].name for child in one.children]
        lone = names[0] if len(names) == 1 else names
        self._add(b'{"%b":%b,' % (LONE.encode(), msgspec.json.encode(lone)))
        for name, content, where in one.attributes:
            self._name(name, False)
            if where is None:
                self._add(msgspec.json.encode(content))
            else:
                self._string(content, where)
            self._add(b",")
        self._name(TEXT, False)
        if piece is None:
            self._add(b"[0]" if one.text else b"[]")
        else:
            self._string(text, piece)
        self._elements(one.children, comma=True)
        self._add(b"}")

    def call(self, root: Built) -> None:
        """An object with ``methodName``, ``params`` and ``fault``, as far as they are there."""
        if root[0].name not in ("methodCall", "methodResponse"):
            raise _no_call()
        self._add(b"{")
        for number, part in enumerate(_elements(root)):
            self._name(part[0].name, number > 0)
            match part[0].name:
                case "methodName" if part[2] is not None:
                    self._string(part[1], part[2])
                case "params":
                    self._list([_only(one, "param") for one in _elements(part)])
                case "fault":
                    self._value(_only(part, "fault"))
                case _:
                    raise _no_call()
        self._add(b"}")

    def _list(self, values: Sequence[Built]) -> None:
        self._add(b"[")
        for number, value in enumerate(values):
            self._add(b"," if number else b"")
            self._value(value)
        self._add(b"]")

    def _value(self, value: Built) -> None:
        """A ``<value>``: the element of a type in it, or a text."""
        if value[0].name != "value":
            raise _no_call()
        if value[2] is not None:
            self._string(value[1], value[2])
            return
        (one,) = _some(_elements(value), 1)
        match one[0].name:
            case "struct":
                self._add(b"{")
                for number, member in enumerate(_elements(one)):
                    name, inner = _some(_elements(member), 2)
                    if name[0].name != "name" or name[2] is None:
                        raise _no_call()
                    self._name(name[1], number > 0)
                    self._value(inner)
                self._add(b"}")
            case "array":
                self._list(_elements(_only(one, "array", "data")))
            case "nil" if not one[1]:
                self._add(b"null")
            case "base64":
                self._add(b"[0]")  # nobody sees a value in it
            case _ if one[2] is not None:
                self._string(one[1], one[2])
            case _:
                raise _no_call()


def _no_call() -> VaultError:
    return _unreadable("is no call of XML-RPC as its specification has it")


def _elements(ended: Built) -> Sequence[Built]:
    """The elements in one that holds elements alone."""
    if ended[1] or ended[0].text:
        raise _no_call()
    return ended[0].children


def _some(elements: Sequence[Built], number: int) -> Sequence[Built]:
    if len(elements) != number:
        raise _no_call()
    return elements


def _only(ended: Built, name: str, inner: str = "value") -> Built:
    """The one element in one of that name."""
    (one,) = _some(_elements(ended), 1)
    if ended[0].name != name or one[0].name != inner:
        raise _no_call()
    return one


def read_xml_document(body: bytes, depth: int, kind: DocumentKind) -> Document:
    """A document as JSON. Raises ``VaultError``: UNREADABLE_BODY, TOO_LARGE."""
    writer, levels = _Writer(), min(depth, _DEEPEST)
    if kind is DocumentKind.CALL:
        writer.call(_Reader(body, levels).root())
    elif kind is DocumentKind.VOBJECT:
        writer.document(LineReader(body, levels).components())
    else:
        writer.document([_Reader(body, levels).root()])
    return Document(b"".join(writer.parts), writer.pieces)
