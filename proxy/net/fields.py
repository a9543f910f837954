"""Field names: what each means to a proxy, looked up once per spelling instead of folded once per
request.
"""

import enum
import re
from collections.abc import Mapping
from typing import Final

HeaderField = tuple[bytes, bytes]

_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


class HeaderKind(enum.IntEnum):
    """What a field name means to a proxy. Only PLAIN is zero."""

    PLAIN = 0
    CONNECTION = 1
    UPGRADE = 2
    TRANSFER_ENCODING = 3
    TE = 4
    DROPPED = 5  #: hop-by-hop, and of no use beyond it
    OWN = 6  #: our own names: nobody else may set them
    HOST = 7  #: only in ``request_names``
    LENGTH = 8  #: Content-Length; only in ``request_names``
    #: not a field name at all (RFC 9110 section 5.6.2): folded lines and a space before the colon
    #: end here
    NONE = 9


_KINDS: Final = {
    b"connection": HeaderKind.CONNECTION,
    b"upgrade": HeaderKind.UPGRADE,
    b"transfer-encoding": HeaderKind.TRANSFER_ENCODING,
    b"te": HeaderKind.TE,
    b"keep-alive": HeaderKind.DROPPED,
    b"proxy-connection": HeaderKind.DROPPED,
    b"http2-settings": HeaderKind.DROPPED,
}


class _Names(dict[bytes, HeaderKind]):
    """The kind of every field name seen, as spelled. Bounded."""

    def __init__(self, kinds: Mapping[bytes, HeaderKind]) -> None:
        super().__init__()
        self._kinds = kinds

    def __missing__(self, name: bytes) -> HeaderKind:
        lower = name.lower()
        kind = self._kinds.get(lower, HeaderKind.PLAIN)
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
HEADER_KINDS: Final = _Names(_KINDS)
#: The same for the heads of requests, where the framing is still to be settled.
request_names: Final = _Names(
    {**_KINDS, b"host": HeaderKind.HOST, b"content-length": HeaderKind.LENGTH}
)


def connection_options(values: list[bytes]) -> frozenset[bytes]:
    """The names that these values of Connection fields list, lower case, without those that only
    steer keep-alive.
    """
    if not values or values in ([b"keep-alive"], [b"close"]):
        return frozenset()
    tokens = {token.strip(b" \t").lower() for value in values for token in value.split(b",")}
    return frozenset(tokens - {b"keep-alive", b"close", b""})
