"""The head of an answer: read strictly, kept byte for byte.

The usual parsers forgive what other parsers read differently (folded lines, bare line ends, a space before the colon,
repeated lengths, control bytes); that is how answers are split and smuggled. Whatever is not plainly RFC 9112 is
refused here, but for heads whose lines all end with a bare LF, which every reader takes. Reading by hand costs no more than a lenient parser with a callback for each field.
"""

import re
from typing import Final

from proxy.redactor.message import RawHeaders
from proxy.web.upstream.port import CHUNKED, CLOSE, LENGTH, NONE, TUNNEL, Framing, Head

_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*))?")
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VISIBLE: Final = bytes([0x09, *range(0x20, 0x7F), *range(0x80, 0x100)])

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


def parse_head(data: bytes, end: int) -> Head:
    """Read status line and fields; the empty line begins two bytes behind ``end``. Raises ``BadAnswerError``."""
    at = data.find(b"\r\n")
    line = data[:at]
    head = Head(_starts.get(line) or _start(line), data[at + 2 : end + 2])
    special = _check(head.block)
    if len(special) == 1 and special[0][0] == b"content-length":
        head.length = _length(special[0][1][15:].strip())
    elif special:
        _connection(head, special)
    return head


def begun(data: bytes) -> bytes:
    """What has come of a head without an end to it. Raises ``BadAnswerError`` at once if it cannot become one.

    Gives the same bytes, or ``mended`` ones that are a whole head after all.
    """
    if not data.startswith(b"HTTP/1."[: len(data)]):
        raise BadAnswerError("the status line is not HTTP/1.0 or HTTP/1.1")
    whole = mended(data)
    if whole is not data or b"\n" not in data:
        return whole
    last = data.rfind(b"\r\n")
    if last >= 0:
        parse_head(data, last)
        if data.find(b"\n", last + 2) >= 0:
            raise BadAnswerError("the head holds a bare line end")
    return data


def mended(data: bytes) -> bytes:
    """A whole head all of whose lines end with a bare LF, as old programs write it, with the line ends of HTTP; else the same bytes.

    One that mixes both is refused: there a bare LF may be part of a value that somebody slipped in.
    """
    first = data.find(b"\n")
    if first < 1 or data[first - 1 : first] == b"\r":
        return data
    end = data.find(b"\n\n")
    if b"\r" in (data if end < 0 else data[:end]):
        raise BadAnswerError("the head mixes two kinds of line ends")
    return data if end < 0 else data[: end + 2].replace(b"\n", b"\r\n") + data[end + 2 :]


def _start(line: bytes) -> tuple[int, int, bytes]:
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
    """Check every line of a block of fields; gives those that matter here, each under its lower-case name."""
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
    """Check a field name that was not seen before. Leading white space (folding) and space before the colon end here."""
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
                raise BadAnswerError("Transfer-Encoding is not exactly one chunked, or the answer is HTTP/1.0")
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
