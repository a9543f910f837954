"""HTTP messages as the redactor sees them: raw bytes, nothing interpreted."""

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from email.utils import formatdate, parsedate_to_datetime
from functools import lru_cache, partial
from typing import Final, NamedTuple, TypeVar

import msgspec

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.redactor import form, xml_documents
from proxy.redactor.json import tree
from proxy.redactor.words import DocumentKind

#: Header fields in the order and spelling they came; repeated names stay repeated.
RawHeaders = tuple[tuple[bytes, bytes], ...]

_MODIFIED: Final = b"last-modified"


class Request(msgspec.Struct, frozen=True, gc=False):
    """A whole request of a matched operation; ``body`` is free of transfer and content codings."""

    method: str
    target: bytes  #: request target exactly as received
    headers: RawHeaders
    body: bytes
    #: as the caller sent it, where tokens have taken the places of values in this one before
    received: "Request | None" = None


class Response(msgspec.Struct, frozen=True, gc=False):
    """A whole answer of the application; ``body`` is free of transfer and content codings."""

    status: int
    headers: RawHeaders
    body: bytes


#: The steps of a matched request in their order, as ``Timing.durations`` has them.
EXCHANGE_STEPS: Final = ("match", "receive", "redact", "stage", "application", "settle", "restore")


class Timing(msgspec.Struct, gc=False):
    """When the steps of a matched request ended, on the clock of ``perf_counter``.

    0: the request did not come so far.
    """

    started: float = 0.0  #: its head was there
    matched: float = 0.0
    received: float = 0.0  #: its body
    redacted: float = 0.0
    answered: float = 0.0  #: by the application, with the whole body where that is read
    stage: float = 0.0  #: seconds until its values were durable, a part of redacting
    settle: float = 0.0  #: seconds until the meaning of the answer was durable

    def durations(self, seconds: float) -> tuple[float, ...]:
        """Seconds of each of ``EXCHANGE_STEPS`` of a request; 0 for those that did not happen."""
        ended, matched = self.started + seconds, self.matched
        received, redacted, answered = self.received, self.redacted, self.answered
        return (
            matched - self.started,
            (received or ended) - matched,
            (redacted or ended) - received - self.stage if received else 0.0,
            self.stage,
            (answered or ended) - redacted if redacted else 0.0,
            self.settle,
            ended - answered - self.settle if answered else 0.0,
        )


def header(headers: RawHeaders, name: bytes) -> bytes | None:
    """The first field value of that lower-case name, or ``None``."""
    size = len(name)
    for key, value in headers:
        if len(key) == size and key.lower() == name:
            return value
    return None


_Meaning = TypeVar("_Meaning", bound=int)


def modified_later(headers: RawHeaders, at: int, now: int) -> RawHeaders:
    """The fields of an answer about a record that was changed at ``at`` without the application:
    its ``Last-Modified`` is the first second behind that, once it has begun (both in milliseconds).
    """
    second, before = at // 1000 + 1, http_seconds(header(headers, _MODIFIED) or b"")
    if before is None or before >= second or second * 1000 > now:
        return headers
    text = formatdate(second, usegmt=True).encode("ascii")
    return tuple([(name, text if name.lower() == _MODIFIED else of) for name, of in headers])


def http_seconds(text: bytes) -> int | None:
    """A date as HTTP writes it (RFC 9110 section 5.6.7), in seconds since the epoch; ``None``: it
    is none.
    """
    try:
        return int(parsedate_to_datetime(text.decode("ascii")).timestamp())
    except (ValueError, TypeError, OverflowError):
        return None


class Spellings(dict[bytes, _Meaning]):
    """Meanings of field names by their spelling: a look-up instead of a case fold. Bounded."""

    MOST: Final = 4096
    LONGEST: Final = 64  #: bytes of a name that is kept

    def __init__(self, meaning: Callable[[bytes], _Meaning]) -> None:
        super().__init__()
        self._meaning = meaning  #: of a name in lower case

    def __missing__(self, name: bytes) -> _Meaning:
        meaning = self._meaning(name.lower())
        if len(self) >= self.MOST:
            self.clear()
        if len(name) <= self.LONGEST:
            self[name] = meaning
        return meaning


# What kind of body a message says it carries: ``Content-Type`` by RFC 9110, section 8.3.


#: What parameters of an address may stand behind: in its path ``;``, escaped once or twice.
BEFORE_PARAMETERS: Final = re.compile(rb"[?;]|%(?:25)?3[Bb]")


class Media(enum.Enum):
    """Kinds of bodies."""

    JSON = "json"  #: ``application/json`` and every ``+json`` type
    FORM = "form"  #: ``application/x-www-form-urlencoded``
    #: ``multipart/form-data``; ``classify`` leaves it to those whose rule names its parts
    MULTIPART = "multipart"
    CSV = "csv"  #: likewise, to those whose rule names its columns
    XML = "xml"  #: ``application/xml``, ``text/xml`` and every ``+xml`` type
    VOBJECT = "vobject"  #: ``text/vcard``, ``text/calendar``: content lines of RFC 6350 and 5545
    OTHER = "other"  #: a body of any other kind, or of none that is named
    NONE = "none"  #: no body


# Looked up several times slower in their enumeration.
_OTHER, _NONE = Media.OTHER, Media.NONE

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_QUOTED = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_TYPE = re.compile(rb"[ \t]*(" + _TOKEN + rb"/" + _TOKEN + rb")[ \t]*")
_PARAMETER = re.compile(
    rb"[ \t]*;[ \t]*(?:(" + _TOKEN + rb")=(" + _TOKEN + rb"|" + _QUOTED + rb"))?[ \t]*", re.DOTALL
)

#: Charsets in which a body is read; both are UTF-8 as far as they go.
_CHARSETS = frozenset({b"utf-8", b"utf8", b"us-ascii", b"ascii"})


def classify(headers: RawHeaders, body: bytes) -> Media:
    """The kind of the body, by its type; an empty body is ``NONE`` whatever the type says.

    ``VaultError(UNREADABLE_BODY)`` when there are several types, or when a JSON or form type has
    parameters that are malformed or name another charset than UTF-8.
    """
    if not body:
        return _NONE
    declared: bytes | None = None
    for name, value in headers:
        if len(name) == 12 and name.lower() == b"content-type":
            if declared is not None:
                raise VaultError(
                    Code.UNREADABLE_BODY, "The message has several Content-Type fields: send one."
                )
            declared = value
    return _OTHER if declared is None else _kind(declared)


_CONTENT_LINES: Final = (b"text/vcard", b"text/calendar", b"text/x-vcard", b"text/directory")


@lru_cache(maxsize=256)  # an application has few; the bounds on heads bound each
def _kind(value: bytes) -> Media:
    match = _TYPE.match(value)
    if match is None:
        return Media.OTHER
    essence = match[1].lower()
    if essence == b"application/json" or essence.endswith(b"+json"):
        media = Media.JSON
    elif essence == b"application/x-www-form-urlencoded":
        media = Media.FORM
    elif essence in (b"application/xml", b"text/xml") or essence.endswith(b"+xml"):
        media = Media.XML
    elif essence in _CONTENT_LINES:
        media = Media.VOBJECT
    else:
        media = Media.OTHER
    parameters, rest = _parameters(value[match.end() :])
    if rest.startswith(b",") or (rest and media is not Media.OTHER):
        raise VaultError(
            Code.UNREADABLE_BODY,
            "The Content-Type is malformed: send one media type as RFC 9110 has it.",
        )
    if media is not Media.OTHER and any(
        name == b"charset" and text not in _CHARSETS for name, text in parameters
    ):
        raise VaultError(
            Code.UNREADABLE_BODY, "The body is in another charset than UTF-8: send it in UTF-8."
        )
    return media


def media_of(kind: DocumentKind) -> Media:
    """The kind of a body that is such a document."""
    return Media.VOBJECT if kind is DocumentKind.VOBJECT else Media.XML


def says_vobject(declared: bytes | None) -> bool:
    """Whether a body is a card or a calendar by its type."""
    return (declared or b"").partition(b";")[0].strip().lower() in _CONTENT_LINES


def _parameters(text: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Lower-case names and values of parameters, unquoted, and the rest that is none."""
    parameters = []
    at = 0
    while match := _PARAMETER.match(text, at):
        at = match.end()
        if match[1]:
            value = match[2]
            text_value = re.sub(rb"\\(.)", rb"\1", value[1:-1]) if value.startswith(b'"') else value
            parameters.append((match[1].lower(), text_value.strip().lower()))
    return parameters, text[at:]


# Bodies of a kind that no rule can follow, such as a multipart upload, where a rule says that they
# may pass.
#
# ``other_kinds: pass`` opens a door on purpose, and it must stay as narrow as it looks: a body that
# any application could take for JSON, XML, text or a form in spite of its type is no upload, and is
# refused like any other that was not understood.

#: In the names of types that some application may read as JSON or as a form.
_READABLE: Final = (b"json", b"xml", b"form-urlencoded", b"graphql", b"javascript", b"yaml")

#: Characters that may precede a text: white space, NUL, the byte order marks.
_BEFORE: Final = b" \t\r\n\x00\xef\xbb\xbf\xfe\xff"


def is_foreign(headers: RawHeaders, body: bytes) -> bool:
    """Whether type and first bytes agree that a body is nothing that rules could follow.

    A missing type tells nothing.
    """
    declared, _, more = (header(headers, b"content-type") or b"").partition(b";")
    kind, slash, subtype = declared.strip().lower().partition(b"/")
    if kind == b"multipart":  # of ``multipart/related``, ``type`` is that of the message (MTOM)
        subtype += more.lower().partition(b"type=")[2].partition(b";")[0]
    if not slash or kind in (b"", b"text") or any(word in subtype for word in _READABLE):
        return False
    return body.lstrip(_BEFORE)[:1] not in form.OTHER_KINDS


# Spelling of values in bodies, and of bodies in messages.
#
# The redactor works with places and values; their form in JSON, in a form, under gzip, is settled
# here, once, and exactly by the standards. It may touch bytes. To add a kind of body, write its
# file, give ``Media`` a member, and add a line to ``CODECS``; a content coding is a line in
# ``content_coding.CODINGS``.


class Codec(NamedTuple):
    """Codec of a kind of body: reads a raw value (``None``: no value), and writes one."""

    read: Callable[[bytes | memoryview], Value | None]
    write: Callable[[Value], bytes]


def read_text(raw: bytes | memoryview) -> Value:
    """The text of a part; ``VaultError(UNREADABLE_BODY)`` for bytes that are not UTF-8."""
    try:
        return Value(bytes(raw).decode())
    except UnicodeDecodeError:
        pass  # The error holds the text; it must not become the context of ours.
    raise VaultError(Code.UNREADABLE_BODY, "A value is not UTF-8: send it in UTF-8.")


def write_text(value: Value) -> bytes:
    """The text itself."""
    return value.text.encode()


#: Characters that a CSV cell contains only in quotes, whatever the delimiter.
_QUOTED_CELL: Final = re.compile(r'["\r\n,;\t|]|^ | $')


def write_cell(value: Value, before: bytes) -> bytes:
    """The text as a cell of CSV, in quotes where the one ``before`` was or it needs them."""
    if before != b'"' and _QUOTED_CELL.search(value.text) is None:
        return value.text.encode()
    return b'"%b"' % value.text.replace('"', '""').encode()


def cell_writers(
    table: bytes, spans: Iterable[tuple[str, int, int]]
) -> Iterator[Callable[[str], bytes]]:
    """Yield a writer of texts in place of each of these parts of cells, which come in order."""
    cells = _CELL_IN_QUOTES.finditer(table)
    cell = next(cells, None)
    for part, start, end in spans:
        while cell is not None and cell.end() <= start:
            cell = next(cells, None)
        quoted = cell is not None and cell.start() < start
        alone = _EDGE.fullmatch(table[max(start - 1, 0) : start] + table[end : end + 1])
        yield partial(_write_in_cell, part, quoted=quoted, alone=alone is not None)


#: A cell that begins with a quote; in any other one a quote is a sign like others (RFC 4180).
_CELL_IN_QUOTES: Final = re.compile(rb'(?<![^,;\t|\r\n])"(?:[^"]++|"")*+"?')
_EDGE: Final = re.compile(rb"[,;\t|\r\n]*")


def _write_in_cell(part: str, text: str, *, quoted: bool, alone: bool) -> bytes:
    """The text; the part itself where the cell needs quotes and holds more than it."""
    if quoted:
        return text.replace('"', '""').encode()
    if alone:
        return write_cell(Value(text), b"")
    return (part if _QUOTED_CELL.search(text) else text).encode()


CODECS: Mapping[Media, Codec] = {
    Media.JSON: Codec(tree.read_json_value, tree.write_json_value),
    Media.FORM: Codec(form.read_value, form.write_value),
    Media.MULTIPART: Codec(read_text, write_text),
    Media.XML: Codec(xml_documents.text_value, xml_documents.write_xml_text),
    Media.VOBJECT: Codec(read_text, write_text),
}


# Ids of records in the vault's form: equivalent spellings are one. Forwarded ids stay unchanged.

#: UUIDs and other long ids of hexadecimal digits. Nobody has two of them that differ in the case of
#: a letter alone.
_HEXADECIMAL: Final = re.compile(r"[0-9A-Fa-f-]{24,}")
_LONGEST_NUMBER: Final = 20  # 64 bits


def canonical_uuid(text: str) -> str:
    """The id, in lower case where it is a long one of hexadecimal digits (RFC 9562 section 4)."""
    if len(text) < 24 or _HEXADECIMAL.fullmatch(text) is None:
        return text
    return text.lower()


def numeric_id(text: str) -> str | None:
    """Return the id as a reader of numbers writes it: ``1`` for ``01``; ``None`` if equal."""
    if text[:1].isalpha() or (text.isdecimal() and text[0] != "0" and text.isascii()):
        return None
    try:
        plainly = str(int(text)) if len(text) <= _LONGEST_NUMBER else text
    except ValueError:
        return None
    return None if plainly == text else plainly


#: A patch document by its type.
_PATCH_TYPES: Final = re.compile(rb"(?i)\s*[^;,]*json-patch")


@lru_cache(maxsize=256)
def _is_patch(declared: bytes | None) -> bool:
    return declared is not None and _PATCH_TYPES.match(declared) is not None


def is_patch(headers: RawHeaders) -> bool:
    """Whether a body is a patch document by its type."""
    return _is_patch(header(headers, b"content-type"))


#: Methods that search by what stands in their body (RFC 10008, RFC 5323, RFC 3253).
_SEARCHES: Final = frozenset({"QUERY", "SEARCH", "REPORT"})


def carries_unseen(method: str, types: Iterable[str], *, bodied: bool) -> bool:
    """Whether a request with content of these types may carry values in a way that frameworks read
    and few rules name: an upload, a patch, a search in the body of a method for that.
    """
    method = method.upper()
    if method == "PATCH" or (bodied and method in _SEARCHES):
        return True
    return any(one.startswith("multipart/") or "patch" in one for one in types)
