"""The head of a request: read strictly, kept byte for byte.

The usual parsers forgive what other parsers read differently (folded lines, bare line ends, a space
before the colon, repeated lengths, control bytes), and refuse what harms nobody (methods of one's
own, fields that stand twice, bytes beyond ASCII). Here whatever is not plainly RFC 9112 is refused,
and whatever is passes as it came. How the body is framed is settled in this place alone; where two
readers could differ, there is no request.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from proxy.errors import Code
from proxy.net.fields import HeaderField, HeaderKind, connection_options, request_names
from proxy.net.reply import CHUNKED, CLOSE, LENGTH, NONE, TUNNEL, Framing, Head
from proxy.redactor.message import RawHeaders

_VERSIONS: Final = {b"HTTP/1.1": 1, b"HTTP/1.0": 0}
#: An absolute target (RFC 9112 section 3.2.2); what it may hold is for ``forwarding.authority`` to
#: say.
_ABSOLUTE: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.\-]*://")
_VISIBLE: Final = bytes([0x09, *range(0x20, 0x7F), *range(0x80, 0x100)])

#: Methods as text, made once. Any other token of RFC 9110 section 9.1 is a method too.
_METHODS: Final = {
    name.encode(): name
    for name in (
        "GET",
        "HEAD",
        "POST",
        "PUT",
        "PATCH",
        "DELETE",
        "OPTIONS",
        "TRACE",
        "CONNECT",
        "PROPFIND",
        "REPORT",
    )
}

_HOST: Final = HeaderKind.HOST
_LENGTH: Final = HeaderKind.LENGTH


@dataclass(frozen=True, slots=True)
class Heads:
    """Bounds on the heads of requests, in bytes and fields, and how long a connection may wait for
    the next one.
    """

    line: int = 16384
    value: int = 16384  #: of one field, its name included
    fields: int = 128
    whole: int = 65536  #: all of it; the trailers of a request in chunks may be a quarter of that
    seconds: float = (
        #: until a whole head must have come, from the beginning of its connection or from its own
        #: first byte
        10.0
    )
    keep: float = 75.0  #: seconds for which a connection is kept for a next request


class BadRequestError(Exception):
    """The bytes are not a request that all readers of HTTP/1.1 agree on, or its head is over a
    limit. The text never quotes them.
    """

    def __init__(self, text: str, code: Code = Code.BAD_REQUEST) -> None:
        super().__init__(text)
        self.code = code  #: BAD_REQUEST, URI_TOO_LONG or HEADER_TOO_LARGE


class RequestHead:
    """A checked head and what it says about the body and the connection."""

    __slots__ = (
        "apart",
        "block",
        "chunked",
        "close",
        "headers",
        "host",
        "known",
        "length",
        "method",
        "minor",
        "named",
        "special",
        "target",
        "upgrade",
        "wire",
    )

    def __init__(self, start: tuple[str, bytes, int], block: bytes, headers: RawHeaders) -> None:
        self.method, self.target, self.minor = start  #: ``minor``: 0 or 1, of the HTTP version
        self.block = block  #: the fields as they came, each with its line end
        self.headers = headers
        self.host: str | None = None  #: the Host field, of which there is at most one
        self.length = 0  #: bytes of body, unless it is chunked
        self.chunked = False
        self.close = self.minor == 0  #: the caller wants no other answer on this connection
        self.special: tuple[
            tuple[HeaderKind, bytes, bytes], ...
        ] = ()  #: fields that concern the connection, or are ours
        self.named: frozenset[bytes] = frozenset()  #: names in Connection fields
        self.upgrade = False  #: another protocol is asked for, one that may be relayed
        self.known: Any = None  #: what ``Gateway.begin`` found out about it
        self.apart: Any = None  #: what ``forwarding.asked`` made of it
        #: as it was written for an application, where that is nearly what came
        self.wire: bytes | None = None

    def values(self, name: bytes) -> list[str]:
        """Every value of the fields of that lower-case name, in order."""
        return [value.decode("latin-1") for key, value in self.headers if key.lower() == name]


def parse_request_head(data: bytes, end: int, limits: Heads) -> RequestHead:
    """Read request line and fields; the empty line begins two bytes behind ``end``.

    Raises ``BadRequestError``.
    """
    whole = data[:end]
    lines = whole.split(b"\r\n")
    if whole.translate(None, _VISIBLE) != b"\r\n" * (len(lines) - 1):
        raise BadRequestError("its head holds a bare line end or a control byte")
    first = lines.pop(0)
    start = _start(first, limits)
    if len(lines) > limits.fields:
        raise BadRequestError(
            f"its head has more than {limits.fields} fields", Code.HEADER_TOO_LARGE
        )
    if end > limits.value and max(map(len, lines), default=0) > limits.value:
        raise BadRequestError(
            f"a field of its head is longer than {limits.value} bytes", Code.HEADER_TOO_LARGE
        )
    fields: list[HeaderField] = []
    special: list[tuple[HeaderKind, bytes, bytes]] = []
    kinds = request_names
    for line in lines:
        name, colon, value = line.partition(b":")
        value = value.strip()
        fields.append((name, value))
        if kind := kinds[name]:
            special.append((kind, name, value))
        if not colon:
            raise BadRequestError("a field has no colon")
    head = RequestHead(start, data[len(first) + 2 : end + 2], tuple(fields))
    if len(special) == 1 and special[0][0] is _HOST:
        head.host = special[0][2].decode("latin-1")
    else:
        _settle(head, special)
    return head


def _start(line: bytes, limits: Heads) -> tuple[str, bytes, int]:
    if len(line) > limits.line:
        raise _long_line(limits)
    try:
        method, target, version = line.split(b" ")
        minor = _VERSIONS[version]
    except (ValueError, KeyError):
        raise BadRequestError(
            "its first line is not method, target and HTTP/1.0 or HTTP/1.1"
        ) from None
    name = _METHODS.get(method) or _method(method)
    if b"\t" in target or (target[:1] != b"/" and not _addressed(name, target)):
        raise BadRequestError("its target does not begin with a slash, or holds white space")
    return name, target, minor


def _long_line(limits: Heads) -> BadRequestError:
    return BadRequestError(f"its first line is longer than {limits.line} bytes", Code.URI_TOO_LONG)


def _addressed(method: str, target: bytes) -> bool:
    """Whether a target without a slash in front is one: absolute, the star of OPTIONS, or
    CONNECT's, which is refused later.
    """
    return (
        _ABSOLUTE.match(target) is not None
        or method == "CONNECT"
        or (target == b"*" and method == "OPTIONS")
    )


def _method(method: bytes) -> str:
    if request_names[method] is HeaderKind.NONE:
        raise BadRequestError("its method is not a token")
    return method.decode("ascii")


def _settle(head: RequestHead, special: list[tuple[HeaderKind, bytes, bytes]]) -> None:
    """What the fields say about the framing of the request (RFC 9112 section 6.3) and about its
    connection.
    """
    by_kind: dict[HeaderKind, list[bytes]] = {}
    for kind, _, value in special:
        by_kind.setdefault(kind, []).append(value)
    if HeaderKind.NONE in by_kind:
        raise BadRequestError("the name of a field is not a token")
    _frame(
        head,
        by_kind.pop(_HOST, []),
        by_kind.pop(_LENGTH, []),
        by_kind.get(HeaderKind.TRANSFER_ENCODING, []),
    )
    if by_kind:
        head.special = tuple([one for one in special if one[0] in by_kind])
    if HeaderKind.CONNECTION in by_kind:
        _connect(head, by_kind[HeaderKind.CONNECTION], by_kind.get(HeaderKind.UPGRADE, []))


def _frame(
    head: RequestHead, hosts: list[bytes], lengths: list[bytes], codings: list[bytes]
) -> None:
    """Host at most once and always in HTTP/1.1; one way to tell where the body ends, or none."""
    if len(hosts) > 1 or len(lengths) > 1:
        raise BadRequestError("Host or Content-Length is repeated")
    if hosts:
        head.host = hosts[0].decode("latin-1")
    elif head.minor:
        raise BadRequestError("it has no Host field")
    if lengths:
        if not lengths[0].isdigit() or len(lengths[0]) > 18:
            raise BadRequestError("Content-Length is not a number")
        head.length = int(lengths[0])
    if codings:
        if len(codings) > 1 or codings[0].lower() != b"chunked" or not head.minor:
            raise BadRequestError("Transfer-Encoding must be exactly chunked, and needs HTTP/1.1")
        if lengths:
            raise BadRequestError("Content-Length and Transfer-Encoding contradict each other")
        head.chunked = True


def _connect(head: RequestHead, values: list[bytes], protocols: list[bytes]) -> None:
    """What Connection fields ask for: the end, or another protocol.

    An upgrade to HTTP/2 is not relayed, for no rule would see its requests: it is as if it had not
    been asked for, which every server may do (RFC 9110 section 7.8).
    """
    head.named = connection_options(values)
    tokens = {token.strip() for value in values for token in value.lower().split(b",")}
    head.close = b"close" in tokens or (head.close and b"keep-alive" not in tokens)
    if b"upgrade" in head.named and head.minor:
        asked = [token.strip() for value in protocols for token in value.lower().split(b",")]
        head.upgrade = bool(asked) and not any(
            token.startswith((b"h2", b"http")) for token in asked
        )


def check_start(held: bytes | bytearray, limits: Heads) -> None:
    """Refuse the beginning of a head at once if nothing that follows could make it one.

    Raises ``BadRequestError``.
    """
    if request_names[bytes(held[:1])] is HeaderKind.NONE:
        raise BadRequestError("it does not begin with a method")
    first = held.find(b"\n")
    if (first if first >= 0 else len(held)) > limits.line + 1:
        raise _long_line(limits)
    if len(held) > limits.whole:
        raise BadRequestError(
            f"its head is larger than {limits.whole} bytes", Code.HEADER_TOO_LARGE
        )
    if first >= 0 and held.count(b"\n") != held.count(b"\r\n"):
        raise BadRequestError("its head holds a bare line end")


# The head of an answer: read strictly, kept byte for byte.
#
# The usual parsers forgive what other parsers read differently (folded lines, bare line ends, a
# space before the colon, repeated lengths, control bytes); that is how answers are split and
# smuggled. Whatever is not plainly RFC 9112 is refused here, but for heads whose lines all end with
# a bare LF, which every reader takes. Reading by hand costs no more than a lenient parser with a
# callback for each field.


_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*))?")
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

#: Fields that concern the connection; an answer without any of them is forwarded as it is.
CONNECTION_FIELDS: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"transfer-encoding", b"upgrade"}
)

_KEEPING: Final = frozenset({b"keep-alive", b"Keep-Alive", b"close", b"Close"})

#: Field names seen before, as spelled -> lower case if the name matters here, else empty. Bounded.
_known: dict[bytes, bytes] = {}
#: Status lines seen before -> HTTP minor version, status, reason. Bounded.
_starts: dict[bytes, tuple[int, int, bytes]] = {}
_KNOWN_MAX: Final = 1024


class BadAnswerError(Exception):
    """The bytes are not an HTTP/1 answer that all readers agree on. The text never quotes them."""


def parse_response_head(data: bytes, end: int) -> Head:
    """Read status line and fields; the empty line begins two bytes behind ``end``.

    Raises ``BadAnswerError``.
    """
    at = data.find(b"\r\n")
    line = data[:at]
    head = Head(_starts.get(line) or _status_line(line), data[at + 2 : end + 2])
    special = _check(head.block)
    if len(special) == 1 and special[0][0] == b"content-length":
        head.length = _length(special[0][1][15:].strip())
    elif special:
        _connection(head, special)
    return head


def begun(data: bytes) -> bytes:
    """What has come of a head without an end to it.

    Raises ``BadAnswerError`` at once if it cannot become one.

    Gives the same bytes, or ``mended`` ones that are a whole head after all.
    """
    if not data.startswith(b"HTTP/1."[: len(data)]):
        raise BadAnswerError("the status line is not HTTP/1.0 or HTTP/1.1")
    whole = with_line_ends(data)
    if whole is not data or b"\n" not in data:
        return whole
    last = data.rfind(b"\r\n")
    if last >= 0:
        parse_response_head(data, last)
        if data.find(b"\n", last + 2) >= 0:
            raise BadAnswerError("the head holds a bare line end")
    return data


def with_line_ends(data: bytes) -> bytes:
    """A whole head all of whose lines end with a bare LF, as old programs write it, with the line
    ends of HTTP; else the same bytes.

    One that mixes both is refused: there a bare LF may be part of a value that somebody slipped in.
    """
    first = data.find(b"\n")
    if first < 1 or data[first - 1 : first] == b"\r":
        return data
    end = data.find(b"\n\n")
    if b"\r" in (data if end < 0 else data[:end]):
        raise BadAnswerError("the head mixes two kinds of line ends")
    return data if end < 0 else data[: end + 2].replace(b"\n", b"\r\n") + data[end + 2 :]


def _status_line(line: bytes) -> tuple[int, int, bytes]:
    start = _STATUS.fullmatch(line)
    if start is None:
        raise BadAnswerError("the status line is not HTTP/1.0 or HTTP/1.1")
    if len(_starts) >= _KNOWN_MAX:
        _starts.clear()
    minor, status, reason = start.groups()
    parsed = (int(minor), int(status), reason or b"")
    if len(line) <= 64:
        _starts[line] = parsed
    return parsed


def _length(value: bytes) -> int:
    if not value.isdigit() or len(value) > 18:
        raise BadAnswerError("Content-Length is not a number")
    return int(value)


def parse_fields(block: bytes) -> RawHeaders:
    """Read a block of fields without a start line, e.g. trailers. Raises ``BadAnswerError``."""
    _check(block)
    return Head((1, 200, b""), block).headers


def _check(block: bytes) -> list[tuple[bytes, bytes]]:
    """Check every line of a block of fields; gives those that matter here, each under its
    lower-case name.
    """
    lines = block.split(b"\r\n")
    if block.translate(None, _VISIBLE) != b"\r\n" * (len(lines) - 1):
        raise BadAnswerError("the head or the trailers hold a bare line end or a control byte")
    del lines[-1]
    special = []
    known = _known
    for line in lines:
        name, colon, _ = line.partition(b":")
        key = known.get(name)
        if key is None:
            key = _learn(name)
        if not colon:
            raise BadAnswerError("a field has no colon")
        if key:
            special.append((key, line))
    return special


def _learn(name: bytes) -> bytes:
    """Check a field name that was not seen before.

    Leading white space (folding) and space before the colon end here.
    """
    if _NAME.fullmatch(name) is None:
        raise BadAnswerError("a field name is not a token")
    lower = name.lower()
    mine = lower.startswith((b"domicile-", b"domicile_"))
    key = lower if mine or lower in CONNECTION_FIELDS or lower == b"content-length" else b""
    if len(_known) >= _KNOWN_MAX:
        _known.clear()
    if len(name) <= 64:
        _known[name] = key
    return key


def _connection(head: Head, special: list[tuple[bytes, bytes]]) -> None:
    """What the fields say about framing and the connection."""
    drop = []
    for key, line in special:
        value = line[len(key) + 1 :].strip()
        if key == b"content-length":
            if head.length >= 0:
                raise BadAnswerError("Content-Length is repeated")
            head.length = _length(value)
        elif key == b"connection":
            head.plain &= value in _KEEPING
            head.close = _closes(value, head.close)
            drop.append(line)
        elif key == b"keep-alive":
            drop.append(line)
        elif key == b"transfer-encoding":
            if head.chunked or head.minor == 0 or value.lower() != b"chunked":
                raise BadAnswerError(
                    "Transfer-Encoding is not exactly one chunked, or the answer is HTTP/1.0"
                )
            head.chunked = True
        else:
            head.plain = False
    if head.chunked and head.length >= 0:
        raise BadAnswerError("both Content-Length and Transfer-Encoding are given")
    head.drop = tuple(drop)


def _closes(value: bytes, close: bool) -> bool:
    if value == b"keep-alive":
        return False
    tokens = [token.strip() for token in value.lower().split(b",")]
    if b"close" in tokens:
        return True
    return close and b"keep-alive" not in tokens


def framing(head: Head, method: str) -> Framing:
    """How the body of a final answer to ``method`` ends (RFC 9112 section 6.3)."""
    if head.status == 101:
        return TUNNEL
    if method == "HEAD" or head.status in {204, 304}:
        return NONE
    if head.chunked:
        return CHUNKED
    return LENGTH if head.length >= 0 else CLOSE
