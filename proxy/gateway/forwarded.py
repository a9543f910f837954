"""What the application is told of the caller and of this proxy, where the operator asks for it.

By default nothing: requests arrive as if the proxy were not there, and what callers send in these
fields passes as it came. Each kind that is switched on is ours from then on: what a trusted proxy
in front has written is kept and continued, what anybody else has written is replaced, for else they
could claim any address. Spellings with an underscore, which many applications take for the same
field, are dropped from everybody.

``Via`` is continued whoever sent it (RFC 9110 section 7.6.3): it claims nothing, and it is how
loops are found.
"""

import enum
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from proxy.gateway.correlation import Correlation
from proxy.net.client_address import ClientAddress, Trusted
from proxy.net.hop_headers import RequestFields
from proxy.net.http1.fields import HeaderField
from proxy.net.reply import UpstreamAddress
from proxy.net.request import RequestContext

_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_FAMILY: Final = b"x-forwarded-"

#: The name of this proxy in ``Via``: a pseudonym, for the host is nobody's business.
PSEUDONYM: Final = b"domicile"


class ForwardedHeaders(NamedTuple):
    """What is told; the settings ``forwarding``."""

    x_forwarded: bool = False
    forwarded: bool = False
    via: bool = False
    upstream_host: bool = False  #: Host is that of the upstream in place of the caller's


class _Kind(enum.IntEnum):
    PLAIN = 0
    HOST = 1
    CHAIN = 2  #: X-Forwarded-For
    CLAIM = 3  #: the others of its family, and X-Real-IP
    FORWARDED = 4
    VIA = 5
    ODD = 6  #: spelled with an underscore


class _Names(dict[bytes, _Kind]):
    """The kind of each field name seen, as spelled, as far as it is told. Bounded."""

    def __init__(self, told: ForwardedHeaders) -> None:
        super().__init__()
        self._told = told

    def __missing__(self, name: bytes) -> _Kind:
        kind = self._kind(name.lower())
        if len(self) >= 4096:
            self.clear()
        if len(name) <= 64:
            self[name] = kind
        return kind

    def _kind(self, lower: bytes) -> _Kind:
        dashed = lower.replace(b"_", b"-")
        kind = _Kind.PLAIN
        if self._told.x_forwarded and (dashed.startswith(_FAMILY) or dashed == b"x-real-ip"):
            kind = _Kind.CHAIN if dashed == b"x-forwarded-for" else _Kind.CLAIM
        elif lower == b"host":
            kind = _Kind.HOST
        elif self._told.forwarded and lower == b"forwarded":
            kind = _Kind.FORWARDED
        elif self._told.via and lower == b"via":
            kind = _Kind.VIA
        return _Kind.ODD if kind and dashed != lower else kind


class Telling:
    """Changes the fields of requests. Made only where something is told."""

    def __init__(
        self, told: ForwardedHeaders, trusted: Trusted, correlation: Correlation | None = None
    ) -> None:
        self._told = told
        self._trusted = trusted
        self._correlation = correlation
        self._names = _Names(told)
        self._stances: dict[str, bool] = {}

    def identify(self, incoming: RequestContext) -> None:
        """Give a request its ids, where any are switched on."""
        if self._correlation is not None:
            self._correlation.identify(incoming, self._believed(incoming.connection.client.host))

    def __call__(
        self, incoming: RequestContext, asked: RequestFields, address: UpstreamAddress
    ) -> RequestFields:
        """The request's fields for the application at ``address``."""
        client = incoming.connection.client
        seen = _Seen(self._believed(client.host))
        kept: list[HeaderField] = []
        for field in asked.headers:
            kind = self._names[field[0]]
            if kind is _Kind.PLAIN or seen.keeps(kind, field):
                kept.append(field)
            elif kind is _Kind.HOST:
                kept.append((field[0], address.authority) if self._told.upstream_host else field)
        kept.extend(self._added(client, seen, incoming.minor))
        if self._correlation is not None:
            kept = self._correlation.fields(incoming, kept)
        return asked._replace(headers=kept)

    def _believed(self, host: str) -> bool:
        known = self._stances.get(host)
        if known is None:
            if len(self._stances) >= 4096:
                self._stances.clear()
            known = self._stances[host] = self._trusted.holds(host)
        return known

    def _added(self, client: ClientAddress, seen: "_Seen", minor: int) -> Iterable[HeaderField]:
        told = self._told
        scheme = b"https" if client.secure else b"http"
        if told.x_forwarded:
            host = client.host.encode("ascii") or b"unknown"
            yield b"X-Forwarded-For", b", ".join([*seen.chain, host])
            if b"x-forwarded-proto" not in seen.claimed:
                yield b"X-Forwarded-Proto", scheme
            if b"x-forwarded-host" not in seen.claimed and seen.host:
                yield b"X-Forwarded-Host", seen.host
        if told.forwarded:
            element = b"for=%b;proto=%b" % (_node(client.host), scheme)
            if seen.host:
                element += b";host=" + _quoted(seen.host)
            yield b"Forwarded", b", ".join([*seen.forwarded, element])
        if told.via:
            yield b"Via", b", ".join([*seen.via, b"1.%d %b" % (minor, PSEUDONYM)])


class _Seen:
    """What a request says in the fields that are told."""

    __slots__ = ("believed", "chain", "claimed", "forwarded", "host", "via")

    def __init__(self, believed: bool) -> None:  # one fact, made in one place
        self.believed = believed  #: the caller is a trusted proxy
        self.host = b""
        self.chain: list[bytes] = []
        self.claimed: set[bytes] = set()
        self.forwarded: list[bytes] = []
        self.via: list[bytes] = []

    def keeps(self, kind: _Kind, field: HeaderField) -> bool:
        """Note what the field says; whether it stays where it is."""
        name, value = field
        if kind is _Kind.HOST:
            self.host = value
        elif kind is _Kind.VIA and value:
            self.via.append(value)
        elif self.believed and kind is _Kind.CHAIN and value:
            self.chain.append(value)
        elif self.believed and kind is _Kind.FORWARDED and value:
            self.forwarded.append(value)
        elif self.believed and kind is _Kind.CLAIM:
            self.claimed.add(name.lower())
            return True
        return False


def _node(host: str) -> bytes:
    """An address as a node of RFC 7239 section 6."""
    if not host:
        return b"unknown"
    return b'"[%b]"' % host.encode("ascii") if ":" in host else host.encode("ascii")


def _quoted(host: bytes) -> bytes:
    return host if _TOKEN.fullmatch(host) else b'"%b"' % host
