"""Pages: where a value may stand in one, and how it is written there so that it can never become
markup.

A value in displayed text is written as numeric references. Active content (an address, a style, an
event handler, a script) keeps its token, because the browser undoes escapes before it runs it. A
rule with ``restore: html`` opens four more places, each with its own escaping: ``mailto:`` and
similar, ``data-`` attributes, and whole strings of JSON and of scripts; a string with more in it
may be a fragment of HTML, whose escapes those of the string would undo. Tags are read by the HTML
standard, "Tokenization".
"""

import html
import re
from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from typing import NamedTuple
from urllib.parse import quote

#: Attributes that are only ever shown.
_VISIBLE = frozenset({b"value", b"title", b"alt", b"placeholder", b"label", b"aria-label"})
#: Those that lead elsewhere.
_LINKS = frozenset({b"href", b"action", b"formaction"})
#: What is not the reference of an ampersand alone, beside such ones and where there are none.
_REFERENCE = re.compile(rb"&(?!amp;)")
_ANY_REFERENCE = re.compile(rb"&#|&[A-Za-z0-9]+;")
#: Those that name an element, and those that hold its value, in this order.
_NAMES = (b"name", b"id", b"itemprop")
_VALUES = (b"value", b"content", b"datetime")

_OPENING = re.compile(rb"<!--|<(/?[A-Za-z][^ \t\n\f\r/>]*+)")
_ATTRIBUTE = re.compile(
    rb"[ \t\n\f\r/]*+([^ \t\n\f\r/>][^ \t\n\f\r/>=]*+)"
    rb"(?:[ \t\n\f\r]*+=[ \t\n\f\r]*+(\"[^\"]*+\"|'[^']*+'|[^ \t\n\f\r>\"'][^ \t\n\f\r>]*+)?)?"
)
_SPACE = b" \t\n\f\r"
_COMMENT_END = re.compile(rb"--!?>")
_PERSON_ADDRESS = re.compile(rb"[\"']?[ \t\n\f\r]*(?:mailto|tel|sms):", re.IGNORECASE)
_JSON_ATTRIBUTE = re.compile(rb"[\"']?[ \t\n\f\r]*[\[{]")

#: Elements whose content is text to the browser, up to their end tag; ``True``: text that it shows,
#: escapes undone.
_TEXT = {b"textarea": True, b"title": True} | dict.fromkeys(
    (b"script", b"style", b"xmp", b"iframe", b"noembed", b"noframes", b"noscript", b"plaintext"),
    False,
)
#: Types of scripts that a browser runs; another one is text to it.
_PROGRAMS = frozenset({b"", b"module", b"text/javascript", b"application/javascript"})


def _json_part(quote: bytes, escape: bytes) -> re.Pattern[bytes]:
    """Return a pattern of JSON tokens with this quote and escape; its group is a string's text."""
    return re.compile(
        rb"[\[\]{}:, \t\n\r]++|[0-9eE.+-]++|true|false|null|(?:" + quote + rb")((?:(?:" + escape
        + rb")(?:" + quote + rb"|" + escape + rb"|.)|(?!" + quote + rb"|" + escape + rb").)*+)(?:"
        + quote + rb")", re.DOTALL,
    )  # fmt: skip


_JSON = _json_part(rb'"', rb"\\")
_JSON_IN_ATTRIBUTE = _json_part(rb'"|&quot;|&#34;|&#[xX]22;', rb"\\|&#92;|&#[xX]5[cC];")
#: Further, unusual spellings of quotes and backslashes: such an attribute is not read.
_ODD_REFERENCE = re.compile(
    rb"&(?:#[xX]?0|#(?:34|92|[xX]22|[xX]5[cC])(?!;)|quot(?!;)|QUOT|bsol)", re.ASCII
)
#: Tokens of a script; the texts of quoted strings are its groups.
_SCRIPT = re.compile(
    rb"[^\"'`/<-]++|(?://|<!--)(?:(?!\xe2\x80[\xa8\xa9])[^\n\r])*+|/\*.*?\*/"
    rb"|\"((?:[^\"\\\n\r]|\\(?:\r\n|.))*+)\"|'((?:[^'\\\n\r]|\\(?:\r\n|.))*+)'"
    rb"|`(?:[^`\\]|\\.)*+`|<(?!!--)|-(?!->)",
    re.DOTALL,
)
_EXPRESSION = re.compile(rb"/(?:[^/\\\[\n\r]|\\.|\[(?:[^\]\\\n\r]|\\.)*+\])++/")
_LONGEST_EXPRESSION = 200
#: After these a slash cannot divide.
_OPERATORS = frozenset(b"(,=:[!&|?{;*%~^<>")
#: Content of a template without another one inside.
_PLAIN_PLACE = re.compile(rb"\$\{[^{}\"'`/]*+\}")


def text(value: str) -> bytes:
    """A value for any place that only shows it: all but letters and digits as numeric references.

    Safe in text and in attributes, quoted or not, and whatever the page's charset is. Signs from
    U+0080 to U+009F, which no reference means (HTML, section 13.2.5.80), stand as in UTF-8.
    """
    return references(value, _UNREFERABLE)


def references(value: str, literal: Container[str] = "") -> bytes:
    """All but letters, digits and ``literal`` signs as numeric references, as XML reads them."""
    return "".join(
        char if (char.isascii() and char.isalnum()) or char in literal else f"&#{ord(char)};"
        for char in value
    ).encode()


_UNREFERABLE = frozenset(map(chr, range(0x80, 0xA0)))
#: Signs of HTML in a text: a tag, a comment, or an escaped character.
_MARKUP = re.compile(
    rb"<(?:[A-Za-z!?]|/[A-Za-z])|&(?:amp|lt|gt|quot|apos|nbsp|#[0-9]+|#[xX][0-9A-Fa-f]+);"
)
_TAG = re.compile(r"<(?:[A-Za-z!?/]|\Z)")


def is_markup(text: bytes) -> bool:
    """Whether a text is a piece of HTML, as far as it tells."""
    return _MARKUP.search(text) is not None


#: A sign as a numeric reference, and the signs of a mail address or a word with one of those.
_ENCODED = (
    rb"&#0{0,4}(?:3[3-9]|[4-9][0-9]|1[01][0-9]|12[0-6]|[xX](?:[2-6][0-9a-fA-F]|7[0-9a-eA-E]));"
)
_SPELLED = re.compile(rb"(?<![\w@.+-])[\w@.+-]*+(?:%b[\w@.+-]*+)++" % _ENCODED, re.ASCII)
_SIGN = re.compile(rb"[\w@.+-]|%b" % _ENCODED, re.ASCII)
_ENCODED_SIGN = re.compile(_ENCODED)


def in_references(page: bytes) -> Iterator[tuple[str, list[int]]]:
    """Yield words of which signs stand as numeric references, as those of mail addresses do that
    robots should not read: as a page shows them, with the begin of each sign and the end of all.
    """
    for run in _SPELLED.finditer(page) if b"&#" in page else ():
        signs = _SIGN.finditer(page, run.start(), run.end())
        yield _decoded(run[0]), [*(one.start() for one in signs), run.end()]


def without_references(text: bytes) -> bytes:
    """A text with those signs in place of their references."""
    return _ENCODED_SIGN.sub(lambda one: _decoded(one[0]).encode(), text)


def opens_tag(value: str) -> bool:
    """Whether a value would begin a tag if read as HTML, alone or with the text after it."""
    return _TAG.search(value) is not None


def _literal(value: str) -> bytes:
    """A value inside a string of JSON or of a script, also where that is an attribute: all but
    letters and digits as escapes of four digits.
    """
    units = value.encode("utf-16-be", "surrogatepass")
    pairs = zip(units[::2], units[1::2], strict=True)
    return b"".join(
        bytes([low]) if not high and bytes([low]).isalnum() else b"\\u%02x%02x" % (high, low)
        for high, low in pairs
    )


def _address(value: str) -> bytes:
    return quote(value, safe="@").encode()


class Region(NamedTuple):
    """A stretch of a page in which a value is not written as in text."""

    start: int
    end: int
    #: how a value is written there; ``None``: not at all
    write: Callable[[str], bytes] | None = None
    whole: bool = False  #: only a token that is all of the stretch


def acting(page: bytes, *, wide: bool = False) -> Iterator[Region]:
    """The stretches of a page, in order, in which a value is not written as in text.

    ``wide``: with the places that ``restore: html`` opens.
    """
    at = 0
    while (opening := _OPENING.search(page, at)) is not None:
        if opening[1] is None:
            end = _COMMENT_END.search(page, opening.start() + 2)  # ``<!-->`` is a whole comment
            at = end.end() if end else len(page)
            continue
        at = opening.start()
        kind = b""
        end_of_tag = opening.end()
        for name, start, end_of_value in _attributes(page, opening.end()):
            if not name:
                end_of_tag = _end_of_tag(page, start)
                break
            value = page[start:end_of_value] if wide else b""
            if name == b"type":
                kind = value.strip(b"\"' \t\n\f\r").lower()
            if name in _VISIBLE:
                yield Region(at, start)
                at = end_of_value
            elif (inner := _opened(name, value)) is not None:
                shift = value[0] in b"\"'"
                yield Region(at, start + shift)
                yield from inner(page, start + shift, end_of_value - shift)
                at = end_of_value - shift
        yield Region(at, end_of_tag)
        at = end_of_tag
        element = opening[1].lower()
        if element in _TEXT:
            end_of_text = _end_of_text(page, element, at)
            if not _TEXT[element]:
                read = _reader(kind) if wide and element == b"script" else None
                yield from _strings(page, at, end_of_text, read)
            at = end_of_text


_Inside = Callable[[bytes, int, int], Iterator[Region]]
_Reader = Callable[[bytes, int, int], Iterator[tuple[int, int]]]


def _opened(name: bytes, value: bytes) -> _Inside | None:
    """The stretches of an attribute that is more than shown."""
    if name == b"href" and _PERSON_ADDRESS.match(value):
        return _person
    if value and name.startswith(b"data-") and _JSON_ATTRIBUTE.match(value):
        odd = _ODD_REFERENCE.search(value)
        return partial(_strings, read=None if odd else partial(_json_strings, _JSON_IN_ATTRIBUTE))
    if value and (name.startswith(b"data-") or name in (b"content", b"datetime")):
        return _whole
    return None


def _person(_: bytes, start: int, end: int) -> Iterator[Region]:
    yield Region(start, end, _address)


def _whole(_: bytes, start: int, end: int) -> Iterator[Region]:
    yield Region(start, end, text, True)


def _strings(page: bytes, start: int, end: int, read: _Reader | None) -> Iterator[Region]:
    """Whole strings are open, and nothing else."""
    at = start
    for opening, closing in read(page, start, end) if read else ():
        yield Region(at, opening)
        yield Region(opening, closing, _literal, True)
        at = closing
    yield Region(at, end)


def _reader(kind: bytes) -> _Reader | None:
    if kind.endswith(b"json"):
        return partial(_json_strings, _JSON)
    return _script_strings if kind in _PROGRAMS else None


def _json_strings(
    parts: re.Pattern[bytes], page: bytes, at: int, end: int
) -> Iterator[tuple[int, int]]:
    """Yield the spans of texts of strings, up to the first byte that is not JSON."""
    while part := parts.match(page, at, end):
        at = part.end()
        if part[1] is not None:
            yield part.span(1)


def _script_strings(page: bytes, at: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of texts of strings, up to the first ambiguous byte."""
    last = ord(";")
    while at < end:
        part = _SCRIPT.match(page, at, end)
        after = part.end() if part else _past_slash(page, at, end, last in _OPERATORS)
        if after is None or (part and b"${" in _PLAIN_PLACE.sub(b"", part[0])):
            return
        if part and part.lastindex:
            yield part.span(part.lastindex)
        if not page.startswith((b"//", b"/*", b"<!--"), at):
            last = (page[at:after].rstrip(_SPACE) or bytes([last]))[-1]
        at = after


def _past_slash(page: bytes, at: int, end: int, begins: bool) -> int | None:
    """The end of a regular expression, or of a division; ``None`` where it may be either.

    ``begins``: nothing can be divided here.
    """
    if page[at] != ord("/") or page.startswith(b"/*", at):
        return None
    part = _EXPRESSION.match(page, at, min(end, at + _LONGEST_EXPRESSION))
    if begins:
        return part.end() if part else None
    return None if part and re.search(rb"[\"'`]|/[/*]", part[0][1:]) else at + 1


class NamedText(NamedTuple):
    """Content of an element whose name, id or item property a rule names."""

    field: str
    start: int
    end: int
    text: str


def named_texts(page: bytes, members: Mapping[str, str]) -> Iterator[NamedText]:
    """The value, or the shown text, of each element that one of these members is the name of.

    ``members``: field by member.
    """
    for element, own, start, end in _elements(page):
        content = page[start:end] if end >= 0 else page[start:]
        names = (_unquoted(page, *own[name])[2] for name in _NAMES if name in own)
        field = next((members[name] for name in names if name in members), None)
        if field is None:
            continue
        value = next((own[name] for name in _VALUES if name in own), None)
        if value is not None:
            yield NamedText(field, *_unquoted(page, *value))
        elif (inner := content.strip(_SPACE)) and _TEXT.get(element, True):
            first = start + content.index(inner)
            yield NamedText(field, first, first + len(inner), _decoded(inner))


_Places = dict[bytes, tuple[int, int]]


def tags(page: bytes) -> Iterator[tuple[bytes, _Places, tuple[int, int, int]]]:
    """Each tag and comment: its name with its slash, its attributes, where it begins and ends, and
    the end of what stands in it that is no text of the page, as a script. A comment has no name.
    """
    at = 0
    while (opening := _OPENING.search(page, at)) is not None:
        start, own = opening.start(), _Places()
        if opening[1] is None:
            comment = _COMMENT_END.search(page, start + 2)
            at = comment.end() if comment else len(page)
            yield b"", own, (start, at, at)
            continue
        for name, first, end in _attributes(page, opening.end()):
            own.setdefault(name, (first, end))
        end = at = _end_of_tag(page, own.pop(b"")[0])
        element = opening[1].lower()
        if element in _TEXT:
            at = _end_of_text(page, element, at)
        yield element, own, (start, end, at)


def _elements(page: bytes) -> Iterator[tuple[bytes, _Places, int, int]]:
    """Each tag with its attributes, and the text behind it: of a script all that is in it."""
    for element, own, (_, start, end) in tags(page):
        if element:
            yield element, own, start, end if element in _TEXT else page.find(b"<", start)


def linked(page: bytes, restore: Callable[[bytes], bytes]) -> bytes:
    """The page with each address of a link or form as ``restore`` returns it, percent-encoded.

    Addresses with other references than ``&amp;`` stay.
    """
    parts, at = list[bytes](), 0
    for _, own, _, _ in _elements(page):
        for start, end in sorted(own[name] for name in _LINKS & own.keys()):
            raw = page[start:end]
            shift = raw[:1] in (b'"', b"'")
            raw = raw[shift : len(raw) - shift]
            if (_REFERENCE if b"&amp;" in raw else _ANY_REFERENCE).search(raw):
                continue
            address = raw.replace(b"&amp;", b"&")
            written = restore(address)
            if written != address:
                written = written.replace(b"&", b"&amp;") if b"&amp;" in raw else written
                parts += [page[at : start + shift], written]
                at = end - shift
    return b"".join([*parts, page[at:]])


def _unquoted(page: bytes, start: int, end: int) -> tuple[int, int, str]:
    shift = page[start : start + 1] in (b'"', b"'")
    return start + shift, end - shift, _decoded(page[start + shift : end - shift])


def _decoded(raw: bytes) -> str:
    return html.unescape(raw.decode("utf-8", "replace"))


def _attributes(page: bytes, at: int) -> Iterator[tuple[bytes, int, int]]:
    """Names in lower case of the attributes of a tag that have a value, and where that stands.

    The last one has no name, and stands where the attributes end.
    """
    while (attribute := _ATTRIBUTE.match(page, at)) is not None:
        at = attribute.end()
        if attribute[2]:
            yield attribute[1].lower(), *attribute.span(2)
    yield b"", at, at


def _end_of_tag(page: bytes, at: int) -> int:
    closing = page.find(b">", at)
    return closing + 1 if closing >= 0 else len(page)


def _end_of_text(page: bytes, name: bytes, at: int) -> int:
    end = re.compile(rb"</" + name + rb"(?=[ \t\n\f\r/>])", re.IGNORECASE).search(page, at)
    return end.start() if end and name != b"plaintext" else len(page)
