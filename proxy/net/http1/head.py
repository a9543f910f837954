"""Heads and trailers of HTTP/1, read strictly and passed on byte for byte.

The usual parsers forgive input that other parsers read differently (folded lines, bare line ends, a
space before the colon, repeated lengths, control bytes), which is how messages are split and
smuggled; and they refuse harmless input (custom methods, repeated fields, bytes beyond ASCII). This
one accepts exactly RFC 9112, and passes accepted bytes unchanged. One grammar serves requests,
answers and trailers, and the framing of bodies is settled in this file alone: where two readers
could differ, there is no message.
"""

import enum
import re
from dataclasses import dataclass
from typing import Any, Final

from proxy.errors import Code
from proxy.net.http1.fields import (
    HEADER_KINDS,
    BadMessageError,
    HeaderKind,
    SpecialFields,
    by_kind,
    closes,
    connection_options,
    content_length,
    list_members,
    parse_fields,
    split_lines,
)
from proxy.redactor.message import RawHeaders

# Members as globals: looking one up in its class costs as much as a function call.
_HOST, _LENGTH = HeaderKind.HOST, HeaderKind.LENGTH
_CONNECTION, _UPGRADE = HeaderKind.CONNECTION, HeaderKind.UPGRADE

_VERSIONS: Final = {b"HTTP/1.1": 1, b"HTTP/1.0": 0}
_STATUS_LINE: Final = re.compile(
    rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*))?"
)
#: An absolute target (RFC 9112 section 3.2.2); ``hop_headers.authority`` checks its host.
_ABSOLUTE: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.\-]*://")

#: Common methods as text; any other token of RFC 9110 section 9.1 is a method too.
_METHODS: Final = {
    name.encode(): name
    for name in ("GET HEAD POST PUT PATCH DELETE OPTIONS TRACE CONNECT PROPFIND REPORT".split())
}

#: A request line with nothing in it to look at twice, as nearly all are.
_USUAL_LINE: Final = re.compile(rb"(GET|POST|PUT|PATCH|DELETE) (/[0-9A-Za-z/._~-]*) HTTP/1\.([01])")


class Framing(enum.IntEnum):
    """End of an answer's body (RFC 9112 section 6.3)."""

    NONE = 0  #: there is none: HEAD, 204, 304
    LENGTH = 1
    CHUNKED = 2
    CLOSE = 3  #: by the end of the connection
    TUNNEL = 4  #: 101: another protocol follows


NONE, LENGTH, CHUNKED, CLOSE, TUNNEL = Framing


@dataclass(frozen=True, slots=True)
class Heads:
    """Bounds on heads of requests, in bytes and fields, and on the wait for the next one."""

    line: int = 16384
    value: int = 16384  #: of one field, its name included
    fields: int = 128
    whole: int = 65536  #: all of it; the trailers of a request in chunks may be a quarter of that
    #: until a whole head must have come, from the beginning of its connection or its first byte
    seconds: float = 10.0
    keep: float = 75.0  #: seconds for which a connection is kept for a next request


class RequestHead:
    """A checked head with the facts about body and connection."""

    __slots__ = (
        "apart", "block", "chunked", "close", "common", "headers", "host", "length", "method",
        "minor", "named", "route", "special", "target", "upgrade", "wire",
    )  # fmt: skip

    def __init__(self, start: tuple[str, bytes, int], block: bytes, headers: RawHeaders) -> None:
        self.method, self.target, self.minor = start  #: ``minor``: 0 or 1, of the HTTP version
        self.block = block  #: the fields as received, each with its line end
        self.headers = headers
        self.host: str | None = None  #: the only Host field
        self.length = 0  #: bytes of body, unless it is chunked
        self.chunked = False
        self.close = self.minor == 0  #: the caller wants no other answer on this connection
        self.special: SpecialFields = ()  #: fields that concern the connection, or are the proxy's
        self.named: frozenset[bytes] = frozenset()  #: names in Connection fields
        self.upgrade = False  #: a protocol that may be relayed is requested
        self.route: Any = None  #: what ``Gateway.begin`` found out about it
        self.apart: Any = None  #: what ``hop_headers.request_fields`` made of it
        self.wire: bytes | None = None  #: as written for an application, nearly as received
        #: facts about the fields, by their finder; shared by heads with the same block
        self.common: dict[object, Any] = {}

    def again(self, start: tuple[str, bytes, int]) -> "RequestHead":
        """The head of another request with the very same fields, and version."""
        other = RequestHead.__new__(RequestHead)  # all of it is set here
        other.method, other.target, other.minor = start
        other.block, other.headers, other.host = self.block, self.headers, self.host
        other.length, other.chunked, other.close = self.length, self.chunked, self.close
        other.special, other.named, other.upgrade = self.special, self.named, self.upgrade
        other.apart, other.common, other.route, other.wire = self.apart, self.common, None, None
        return other

    def values(self, name: bytes) -> list[str]:
        """Every value of the fields of that lower-case name, in order."""
        return [value.decode("latin-1") for key, value in self.headers if key.lower() == name]


class ResponseHead:
    """The head of an answer, checked and kept as bytes, with the facts about the connection."""

    __slots__ = (
        "block", "chunked", "close", "drop", "headers", "length", "minor", "reason", "restored",
        "status", "verbatim", "viewed", "wire",
    )  # fmt: skip

    def __init__(
        self, start: tuple[int, int, bytes], block: bytes, headers: RawHeaders = ()
    ) -> None:
        self.minor, self.status, self.reason = start  #: ``minor``: 0 or 1, of the HTTP version
        self.block = block  #: the fields as received, each with its line end
        self.headers = headers  #: in order, spelled as received, hop-by-hop fields included
        self.length = -1  #: Content-Length, or -1
        self.chunked = False
        self.close = self.minor == 0  #: the connection ends with this answer
        self.verbatim = True  #: without the lines in ``drop``, the fields may be forwarded as bytes
        self.drop: tuple[bytes, ...] = ()  #: lines that only steer keep-alive
        self.wire: bytes | None = None  #: as written for a caller of HTTP/1.1 that stays
        self.restored: bytes | None = None  #: as written before a restored body, but for its length
        self.viewed: ResponseHead | None = None  #: for callers whose view others do not share

    def forwarded(self) -> bytes:
        """The fields as bytes without those in ``drop``; what to forward if ``verbatim``."""
        block = self.block
        for line in self.drop:
            # The first field of a block has no line end before it.
            block = (b"\r\n" + block).replace(b"\r\n%b\r\n" % line, b"\r\n", 1)[2:]
        return block


def _set_framing(head: RequestHead | ResponseHead, groups: dict[HeaderKind, list[bytes]]) -> None:
    """Settle where the body ends: told once, in one way, or not at all (RFC 9112 section 6.3)."""
    lengths, codings = groups.get(_LENGTH, ()), groups.get(HeaderKind.TRANSFER_ENCODING, ())
    if lengths:
        if len(lengths) > 1:
            raise BadMessageError("Content-Length is repeated")
        head.length = content_length(lengths[0])
    if codings:
        if len(codings) > 1 or codings[0].lower() != b"chunked" or not head.minor:
            raise BadMessageError("Transfer-Encoding must be exactly chunked, and needs HTTP/1.1")
        if lengths:
            raise BadMessageError("Content-Length and Transfer-Encoding contradict each other")
        head.chunked = True


# ------------------------------------------------ requests


def parse_request_head(data: bytes, end: int, limits: Heads) -> RequestHead:
    """Read request line and fields; the empty line begins two bytes behind ``end``.

    Raises ``BadMessageError``.
    """
    lines = split_lines(data[:end])
    first = lines.pop(0)
    start = _request_line(first, limits)
    if len(lines) > limits.fields:
        raise BadMessageError(
            f"its head has more than {limits.fields} fields", Code.HEADER_TOO_LARGE
        )
    if end > limits.value and max(map(len, lines), default=0) > limits.value:
        raise BadMessageError(
            f"a field of its head is longer than {limits.value} bytes", Code.HEADER_TOO_LARGE
        )
    fields, special = parse_fields(lines)
    head = RequestHead(start, data[len(first) + 2 : end + 2], fields)
    if len(special) == 1 and special[0][0] is _HOST:
        head.host = special[0][2].decode("latin-1")
    else:
        _settle_request(head, special)
    return head


def parse_request_line(line: bytes, limits: Heads) -> tuple[str, bytes, int]:
    """Read a request line alone: method, target and minor version. Raises ``BadMessageError``."""
    usual = _USUAL_LINE.fullmatch(line)
    if usual is not None and len(line) <= limits.line:
        method, target, minor = usual.groups()
        return _METHODS[method], target, 1 if minor == b"1" else 0
    split_lines(line)
    return _request_line(line, limits)


def _request_line(line: bytes, limits: Heads) -> tuple[str, bytes, int]:
    if len(line) > limits.line:
        raise _long_line(limits)
    try:
        method, target, version = line.split(b" ")
        minor = _VERSIONS[version]
    except (ValueError, KeyError):
        raise BadMessageError(
            "its first line is not method, target and HTTP/1.0 or HTTP/1.1"
        ) from None
    name = _METHODS.get(method) or _method(method)
    if target.find(b"\t") >= 0 or (target[:1] != b"/" and not _is_target(name, target)):
        raise BadMessageError("its target does not begin with a slash, or holds white space")
    return name, target, minor


def _long_line(limits: Heads) -> BadMessageError:
    return BadMessageError(f"its first line is longer than {limits.line} bytes", Code.URI_TOO_LONG)


def _is_target(method: str, target: bytes) -> bool:
    """Whether a target without a slash is one: absolute, ``*``, or CONNECT's, refused later."""
    return (
        _ABSOLUTE.match(target) is not None
        or method == "CONNECT"
        or (target == b"*" and method == "OPTIONS")
    )


def _method(method: bytes) -> str:
    if HEADER_KINDS[method] is HeaderKind.NONE:
        raise BadMessageError("its method is not a token")
    return method.decode("ascii")


def _settle_request(head: RequestHead, special: list[tuple[HeaderKind, bytes, bytes]]) -> None:
    """Set the body and connection facts of a request from its fields.

    An upgrade to HTTP/2, or to TLS below HTTP (RFC 2817), is not relayed, for no rule would see its
    requests: it is as if it had not been asked for, which every server may do (RFC 9110, 7.8).
    """
    groups = by_kind(special)
    hosts = groups.get(_HOST, ())
    if len(hosts) > 1:
        raise BadMessageError("Host is repeated")
    if hosts:
        head.host = hosts[0].decode("latin-1")
    elif head.minor:
        raise BadMessageError("it has no Host field")
    _set_framing(head, groups)
    head.special = tuple([one for one in special if one[0] > _LENGTH])
    if options := groups.get(_CONNECTION):
        head.named = connection_options(options)
        head.close = closes(options, head.close)
        if b"upgrade" in head.named and head.minor:
            protocols = list_members(groups.get(_UPGRADE, []))
            head.upgrade = bool(protocols) and not any(
                protocol.startswith((b"h2", b"http", b"tls")) for protocol in protocols
            )


def check_request_start(data: bytes | bytearray, limits: Heads) -> None:
    """Refuse the beginning of a head at once if nothing that follows could make it one.

    Raises ``BadMessageError``.
    """
    if HEADER_KINDS[bytes(data[:1])] is HeaderKind.NONE:
        raise BadMessageError("it does not begin with a method")
    first = data.find(b"\n")
    if (first if first >= 0 else len(data)) > limits.line + 1:
        raise _long_line(limits)
    if len(data) > limits.whole:
        raise BadMessageError(
            f"its head is larger than {limits.whole} bytes", Code.HEADER_TOO_LARGE
        )
    if first >= 0 and data.count(b"\n") != data.count(b"\r\n"):
        raise BadMessageError("its head holds a bare line end")


# ------------------------------------------------ answers

#: Status lines met before -> HTTP minor version, status, reason. Bounded.
_status_lines: dict[bytes, tuple[int, int, bytes]] = {}


def parse_response_head(data: bytes, end: int) -> ResponseHead:
    """Read status line and fields; the empty line begins two bytes behind ``end``.

    Raises ``BadMessageError``.
    """
    lines = split_lines(data[:end])
    first = lines.pop(0)
    start = _status_lines.get(first) or _status_line(first)
    fields, special = parse_fields(lines)
    head = ResponseHead(start, data[len(first) + 2 : end + 2], fields)
    if len(special) == 1 and special[0][0] is _LENGTH:
        head.length = content_length(special[0][2])
    elif special:
        _settle_response(head, special, lines)
    return head


def _status_line(line: bytes) -> tuple[int, int, bytes]:
    match = _STATUS_LINE.fullmatch(line)
    if match is None:
        raise BadMessageError("the status line is not HTTP/1.0 or HTTP/1.1")
    if len(_status_lines) >= 1024:
        _status_lines.clear()
    minor, status, reason = match.groups()
    parsed = (int(minor), int(status), reason or b"")
    if len(line) <= 64:
        _status_lines[line] = parsed
    return parsed


def _settle_response(
    head: ResponseHead, special: list[tuple[HeaderKind, bytes, bytes]], lines: list[bytes]
) -> None:
    """Set the body and connection facts of an answer from its fields."""
    groups = by_kind(special)
    _set_framing(head, groups)
    if options := groups.get(_CONNECTION):
        head.close = closes(options, head.close)
    head.verbatim = not connection_options(options or []) and groups.keys() <= _VERBATIM
    kinds = HEADER_KINDS
    head.drop = tuple([line for line in lines if kinds[line.partition(b":")[0]] in _STEERING])


#: Kinds of fields that need no look at each of them before an answer is passed on.
_VERBATIM: Final = {
    _HOST, _LENGTH, _CONNECTION, HeaderKind.TRANSFER_ENCODING, HeaderKind.DROPPED,
}  # fmt: skip
_STEERING: Final = (_CONNECTION, HeaderKind.DROPPED)


def check_response_start(data: bytes) -> bytes:
    """Check the beginning of an answer's head that has no end yet.

    Returns the same bytes, or ones with the line ends of HTTP that are a complete head. Raises
    ``BadMessageError`` as soon as it cannot become one.

    Gives the same bytes, or ones with the line ends of HTTP that are a whole head after all. Raises
    ``BadMessageError`` at once if it cannot become one.
    """
    if not data.startswith(b"HTTP/1."[: len(data)]):
        raise BadMessageError("the status line is not HTTP/1.0 or HTTP/1.1")
    whole = with_line_ends(data)
    if whole is not data or b"\n" not in data:
        return whole
    last = data.rfind(b"\r\n")
    if last >= 0:
        parse_response_head(data, last)
        if data.find(b"\n", last + 2) >= 0:
            raise BadMessageError("the head holds a bare line end")
    return data


def with_line_ends(data: bytes) -> bytes:
    """A whole head all of whose lines end with a bare LF, as old programs write it, with the line
    ends of HTTP; else the same bytes.

    A mixture of both is refused: there a bare LF may be an injected part of a value.
    """
    first = data.find(b"\n")
    if first < 1 or data[first - 1 : first] == b"\r":
        return data
    end = data.find(b"\n\n")
    if b"\r" in (data if end < 0 else data[:end]):
        raise BadMessageError("the head mixes two kinds of line ends")
    return data if end < 0 else data[: end + 2].replace(b"\n", b"\r\n") + data[end + 2 :]
