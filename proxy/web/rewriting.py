"""Header rules around a message whose body is rewritten: what described the old body goes, lengths and codings are fixed."""

from functools import lru_cache
from typing import Final

from proxy.redactor.codecs.coding import CODINGS
from proxy.redactor.message import RawHeaders, Request, Spellings, header
from proxy.web import validators
from proxy.web.upstream.port import Address

#: Content codings that can be read (RFC 9110 section 8.4.1); anything else is not asked of the application.
READABLE: Final = frozenset({name.encode("ascii") for name in CODINGS} | {b"x-gzip", b"identity"})

# What becomes of a field. Plain numbers, the usual one zero.
_KEPT: Final = 0
_DROPPED: Final = 1
_HOST: Final = 2
_ACCEPTED: Final = 3  #: Accept-Encoding
_CODED: Final = 4  #: Content-Encoding
_CACHED: Final = 5  #: Cache-Control
_RANGED: Final = 6  #: Content-Range
_TAGGED: Final = 7  #: ETag
_EXPECTED: Final = 8  #: If-Match
_UNEXPECTED: Final = 9  #: If-None-Match

_DIGESTS: Final = frozenset(
    {
        b"content-md5",
        b"digest",
        b"content-digest",
        b"repr-digest",
        b"want-digest",
        b"want-content-digest",
        b"want-repr-digest",
    }
)
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding", b"connection", b"te", b"upgrade", b"trailer"})
_REQUEST_DROPS: Final = _DIGESTS | _FRAMING | {b"content-encoding", b"range", b"if-range", b"expect"}
#: Of a restored answer: its length and digests described the tokens, and no shared cache may keep it.
_ANSWER_DROPS: Final = _DIGESTS | _FRAMING | {b"accept-ranges", b"surrogate-control", b"cdn-cache-control"}

_REQUEST: Final = {
    **dict.fromkeys(_REQUEST_DROPS, _DROPPED),
    b"host": _HOST,
    b"accept-encoding": _ACCEPTED,
    b"if-match": _EXPECTED,
    b"if-none-match": _UNEXPECTED,
}
_ANSWER: Final = {
    **dict.fromkeys(_ANSWER_DROPS, _DROPPED),
    b"content-encoding": _CODED,
    b"cache-control": _CACHED,
    b"content-range": _RANGED,
    b"etag": _TAGGED,
}

_of_request: Final = Spellings(lambda name: _REQUEST.get(name, _KEPT))
_of_answer: Final = Spellings(lambda name: _ANSWER.get(name, _KEPT))


def request_head(request: Request, length: int | None, address: Address) -> bytes:
    """The head of a rewritten request with a body of ``length`` bytes in no coding; ``None``: there is no body at all.

    If it has no Host field, it gets that of ``address``.
    """
    parts = _of_request
    lines = [b"%b %b HTTP/1.1\r\n" % (request.method.encode("ascii"), request.target)]
    hosted = False
    for field in request.headers:
        part = parts[field[0]]
        if part == _KEPT:
            lines.append(b"%b: %b\r\n" % field)
        elif part == _HOST:
            hosted = True
            lines.append(b"%b: %b\r\n" % field)
        elif part == _ACCEPTED:
            lines.append(b"%b: %b\r\n" % (field[0], readable(field[1])))
        elif part == _EXPECTED:
            lines.append(b"%b: %b\r\n" % (field[0], validators.matching(field[1])))
        elif part == _UNEXPECTED and (tags := validators.unmatched(field[1])) is not None:
            lines.append(b"%b: %b\r\n" % (field[0], tags))
    if length is not None:
        lines.append(b"Content-Length: %d\r\n" % length)
    lines.append(b"\r\n" if hosted else b"Host: %b\r\n\r\n" % address.authority)
    return b"".join(lines)


@lru_cache(maxsize=256)  # callers are programs of few kinds; the bounds on heads bound each value
def readable(accepted: bytes) -> bytes:
    """An Accept-Encoding without codings that cannot be read here; untouched if it has none."""
    listed = [item.strip() for item in accepted.split(b",")]
    kept = [item for item in listed if item.split(b";")[0].strip().lower() in READABLE]
    if len(kept) == len(listed):
        return accepted
    return b", ".join(kept) or b"identity"


def codings_readable(codings: bytes | None) -> bool:
    """Whether every content coding in the Content-Encoding of an answer, its fields joined, can be undone."""
    return codings is None or all(token.strip().lower() in READABLE for token in codings.split(b","))


def answer_lines(headers: RawHeaders, length: int | None, coding: bytes | None) -> list[bytes]:
    """The fields of a restored answer of ``length`` bytes (``None``: not told) in ``coding`` (``None``: none), as lines."""
    parts = _of_answer
    lines: list[bytes] = []
    cached = False
    for field in headers:
        part = parts[field[0]]
        if part == _KEPT:
            lines.append(b"%b: %b\r\n" % field)
        elif part == _CACHED:
            lines.append(b"%b: %b\r\n" % (field[0], private(field[1])))
            cached = True
        elif part == _CODED and coding is not None:
            lines.append(b"%b: %b\r\n" % (field[0], coding))
            coding = None
        elif part == _TAGGED and (tag := validators.told(field[1])) is not None:
            lines.append(b"%b: %b\r\n" % (field[0], tag))
        elif part == _RANGED:
            lines.extend(_ranged(field[0], field[1], length))
    if coding is not None:
        lines.append(b"Content-Encoding: %b\r\n" % coding)
    if not cached:
        lines.append(b"Cache-Control: private\r\n")
    if length is not None:
        lines.append(b"Content-Length: %d\r\n" % length)
    return lines


def _ranged(name: bytes, value: bytes, length: int | None) -> list[bytes]:
    """A Content-Range (RFC 9110 section 14.4). What was restored is a whole document, so a range of bytes is the whole of it.

    Ranges of other units, such as the items of a list, stay true.
    """
    if not value.lstrip().lower().startswith(b"bytes"):
        return [b"%b: %b\r\n" % (name, value)]
    return [b"%b: bytes 0-%d/%d\r\n" % (name, length - 1, length)] if length else []


@lru_cache(maxsize=256)  # an application has few; the bounds on heads bound each value
def private(directives: bytes) -> bytes:
    """A Cache-Control value that no shared cache may use (RFC 9111 section 5.2.2); what it says otherwise stays."""
    listed = [item.strip() for item in directives.split(b",") if item.strip()]
    names = [item.split(b"=")[0].strip().lower() for item in listed]
    kept = [item for item, name in zip(listed, names, strict=True) if name not in {b"public", b"s-maxage", b"private"}]
    if b"no-store" not in names:
        kept.append(b"private")
    return b", ".join(kept)


def declared_length(headers: RawHeaders) -> int | None:
    """The Content-Length of a message whose framing was checked before, or ``None``."""
    value = header(headers, b"content-length")
    return int(value) if value is not None and value.isdigit() else None
