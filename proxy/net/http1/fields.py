"""The grammar of header fields, one for requests, answers and trailers, and what each name means to
a proxy, looked up once per spelling instead of folded once per message.
"""

import enum
import re
from typing import Final

from proxy.errors import Code
from proxy.redactor.message import RawHeaders

HeaderField = tuple[bytes, bytes]

_VISIBLE: Final = bytes([0x09, *range(0x20, 0x7F), *range(0x80, 0x100)])
_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LARGEST_LENGTH: Final = 18  #: digits of a Content-Length


class BadMessageError(Exception):
    """Bytes that are not a message all readers of HTTP/1 agree on, or a head over a limit.

    The text never quotes them.
    """

    def __init__(self, text: str, code: Code = Code.BAD_REQUEST) -> None:
        super().__init__(text)
        self.code = code  #: BAD_REQUEST, URI_TOO_LONG or HEADER_TOO_LARGE


class HeaderKind(enum.IntEnum):
    """Meaning of a field name to a proxy. Names up to LENGTH do not concern a connection."""

    OTHER = 0
    HOST = 1
    LENGTH = 2  #: Content-Length
    CONNECTION = 3
    UPGRADE = 4
    TRANSFER_ENCODING = 5
    TE = 6
    DROPPED = 7  #: hop-by-hop, and of no use beyond it
    OWN = 8  #: the proxy's own names, reserved for it
    NONE = 9  #: not a field name at all (RFC 9110 section 5.6.2), such as that of a folded line


_KINDS: Final = {
    b"host": HeaderKind.HOST,
    b"content-length": HeaderKind.LENGTH,
    b"connection": HeaderKind.CONNECTION,
    b"upgrade": HeaderKind.UPGRADE,
    b"transfer-encoding": HeaderKind.TRANSFER_ENCODING,
    b"te": HeaderKind.TE,
    b"keep-alive": HeaderKind.DROPPED,
    b"proxy-connection": HeaderKind.DROPPED,
    b"http2-settings": HeaderKind.DROPPED,
}


class _Names(dict[bytes, HeaderKind]):
    """The kind of every field name met so far, by its spelling. Bounded."""

    def __missing__(self, name: bytes) -> HeaderKind:
        lower = name.lower()
        kind = _KINDS.get(lower, HeaderKind.OTHER)
        if lower.startswith((b"domicile-", b"domicile_")):
            kind = HeaderKind.OWN
        if _TOKEN.fullmatch(name) is None:
            kind = HeaderKind.NONE
        if len(self) >= 4096:
            self.clear()
        if len(name) <= 64:
            self[name] = kind
        return kind


#: Spelling of a name -> its kind.
HEADER_KINDS: Final = _Names()

#: Fields that are not PLAIN, each with its kind.
SpecialFields = tuple[tuple[HeaderKind, bytes, bytes], ...]


def parse_fields(lines: list[bytes]) -> tuple[RawHeaders, list[tuple[HeaderKind, bytes, bytes]]]:
    """The fields of these lines, and those that are not PLAIN. Raises ``BadMessageError``."""
    kinds = HEADER_KINDS
    fields: list[HeaderField] = []
    special: list[tuple[HeaderKind, bytes, bytes]] = []
    for line in lines:
        name, colon, value = line.partition(b":")
        value = value.strip()
        fields.append((name, value))
        if kind := kinds[name]:
            special.append((kind, name, value))
        if not colon:
            raise BadMessageError("a field has no colon")
    return tuple(fields), special


def parse_trailers(block: bytes) -> RawHeaders:
    """Read fields without a start line. Raises ``BadMessageError``."""
    fields, special = parse_fields(split_lines(block)[:-1])
    by_kind(special)
    return fields


def split_lines(head: bytes) -> list[bytes]:
    """The lines of a head or of trailers. Raises ``BadMessageError``."""
    lines = head.split(b"\r\n")
    if head.translate(None, _VISIBLE) != b"\r\n" * (len(lines) - 1):
        raise BadMessageError("its head or its trailers hold a bare line end or a control byte")
    return lines


def by_kind(special: list[tuple[HeaderKind, bytes, bytes]]) -> dict[HeaderKind, list[bytes]]:
    """The values of the special fields by kind.

    Raises ``BadMessageError`` for a name that is none.
    """
    groups: dict[HeaderKind, list[bytes]] = {}
    for kind, _, value in special:
        groups.setdefault(kind, []).append(value)
    if HeaderKind.NONE in groups:
        raise BadMessageError("the name of a field is not a token")
    return groups


def content_length(value: bytes) -> int:
    """The number of a Content-Length field. Raises ``BadMessageError``."""
    if not value.isdigit() or len(value) > _LARGEST_LENGTH:
        raise BadMessageError("Content-Length is not a number")
    return int(value)


def closes(values: list[bytes], close: bool) -> bool:
    """Whether the connection ends with the message; ``close``: by its version it does."""
    tokens = list_members(values)
    return b"close" in tokens or (close and b"keep-alive" not in tokens)


def list_members(values: list[bytes]) -> set[bytes]:
    """The members of comma-separated lists, lower case."""
    return {token.strip() for value in values for token in value.lower().split(b",")}


def connection_options(values: list[bytes]) -> frozenset[bytes]:
    """The names that these Connection fields list, lower case, but for those of keep-alive."""
    if not values or values in ([b"keep-alive"], [b"close"]):
        return frozenset()
    return frozenset(list_members(values) - {b"keep-alive", b"close", b""})
