"""Forwarding headers for the application, as far as the operator switches them on.

By default there are none: requests arrive as if the proxy were not there, and these fields of
callers pass unchanged. Each kind that is switched on belongs to the proxy: content of a trusted
proxy in front is continued, content of other callers is replaced, for they could claim any address.
Spellings with an underscore, which many applications take for the same field, are always dropped.

``Via`` is always continued (RFC 9110 section 7.6.3): it claims nothing, and reveals loops.

A request is traceable by its ids, in answers, log lines, audit lines and traces. The id of a
request (``X-Request-Id``) is that of a trusted proxy in front, else a new one: other callers could
inject anything into the logs. A trace (``traceparent``) is always continued, as in W3C Trace
Context.
"""

import enum
import re
from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from proxy.net.client_address import ClientAddress, Trusted
from proxy.net.hop_headers import RequestFields
from proxy.net.http1.fields import HeaderField
from proxy.net.reply import UpstreamAddress
from proxy.net.response import RequestContext
from proxy.redactor.message import RawHeaders, Spellings, header
from proxy.telemetry.tracing import Trace, accepted_id, new_trace, parse_traceparent

_OURS: Final = (b"x-request-id", b"x_request_id")
_TRACEPARENT: Final = b"traceparent"


class Correlation(NamedTuple):
    """Gives requests their ids, and tells them to applications. Made only if one is wanted."""

    ids: bool  #: requests have ids
    sample: int | None  #: recorded ones of a hundred traces that begin here; none: no traces

    def identify(self, incoming: RequestContext, trusted: bool) -> None:
        """Give a request its ids, unless it has them, before it is logged; ``trusted``: caller."""
        if self.ids and not incoming.request_id:
            sent = header(incoming.raw, _OURS[0]) if trusted else None
            ident = accepted_id(None if sent is None else sent.decode("latin-1"))
            incoming.request_id = ident
            incoming.answer_fields = b"X-Request-Id: %b\r\n" % ident.encode("ascii")
        if self.sample is not None and incoming.trace is None:
            incoming.trace = trace_of(incoming.raw) or new_trace(self.sample)

    def others(self, fields: Iterable[HeaderField]) -> list[HeaderField]:
        """The fields without ids that the caller sent, in whose place ``id_fields`` come."""
        ours = (*(_OURS if self.ids else ()), *(() if self.sample is None else (_TRACEPARENT,)))
        return [field for field in fields if field[0].lower() not in ours]

    def id_fields(self, incoming: RequestContext) -> list[HeaderField]:
        """The fields that tell the application the ids of a request."""
        fields: list[HeaderField] = []
        if self.ids:
            fields.append((b"X-Request-Id", incoming.request_id.encode("ascii")))
        if incoming.trace is not None:
            fields.append((_TRACEPARENT, incoming.trace.traceparent))
        return fields


def trace_of(headers: RawHeaders) -> Trace | None:
    """The trace that a request is a part of."""
    value = header(headers, _TRACEPARENT)
    return None if value is None else parse_traceparent(value)


_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_FAMILY: Final = b"x-forwarded-"

#: The name of this proxy in ``Via``: a pseudonym, to hide the host.
PSEUDONYM: Final = b"domicile"


class ForwardedHeaders(NamedTuple):
    """Headers that are added; the settings ``forwarding``."""

    x_forwarded: bool = False
    forwarded: bool = False
    via: bool = False
    upstream_host: bool = False  #: Host is that of the upstream in place of the caller's


class _Kind(enum.IntEnum):
    OTHER = 0
    HOST = 1
    CHAIN = 2  #: X-Forwarded-For
    CLAIM = 3  #: the others of its family, and X-Real-IP
    FORWARDED = 4
    VIA = 5
    ODD = 6  #: spelled with an underscore


def _kind(headers: ForwardedHeaders, lower: bytes) -> _Kind:
    """The kind of a field by its name in lower case."""
    dashed = lower.replace(b"_", b"-")
    kind = _Kind.OTHER
    if headers.x_forwarded and (dashed.startswith(_FAMILY) or dashed == b"x-real-ip"):
        kind = _Kind.CHAIN if dashed == b"x-forwarded-for" else _Kind.CLAIM
    elif lower == b"host":
        kind = _Kind.HOST
    elif headers.forwarded and lower == b"forwarded":
        kind = _Kind.FORWARDED
    elif headers.via and lower == b"via":
        kind = _Kind.VIA
    return _Kind.ODD if kind and dashed != lower else kind


class CallerFields:
    """Changes the fields of requests. Made only if a header is switched on."""

    def __init__(
        self, headers: ForwardedHeaders, trusted: Trusted, correlation: Correlation | None = None
    ) -> None:
        self._headers = headers
        self._trusted = trusted
        self._correlation = correlation
        self._names = Spellings(partial(_kind, headers))
        self._stances: dict[str, bool] = {}

    @property
    def steady(self) -> bool:
        """Whether requests of one connection with the same fields get the same."""
        return self._correlation is None

    def identify(self, incoming: RequestContext) -> str:
        """Give a request its ids, where any are switched on; the first of them."""
        if self._correlation is not None:
            self._correlation.identify(incoming, self._believed(incoming.connection.client.host))
        return incoming.request_id

    def __call__(
        self, incoming: RequestContext, request: RequestFields, address: UpstreamAddress
    ) -> RequestFields:
        """The request's fields for the application at ``address``."""
        request = self.alike(incoming, request, address)
        return request._replace(headers=[*request.headers, *self.ids(incoming)])

    def ids(self, incoming: RequestContext) -> list[HeaderField]:
        """Fields that tell its ids, which every request has others of."""
        return [] if self._correlation is None else self._correlation.id_fields(incoming)

    def alike(
        self, incoming: RequestContext, request: RequestFields, address: UpstreamAddress
    ) -> RequestFields:
        """Its other fields, the same for all requests of a connection with the same fields."""
        client = incoming.connection.client
        forwarding = _ForwardingFields(self._believed(client.host))
        fields: list[HeaderField] = []
        for field in request.headers:
            kind = self._names[field[0]]
            if kind is _Kind.OTHER or forwarding.keeps(kind, field):
                fields.append(field)
            elif kind is _Kind.HOST:
                fields.append(
                    (field[0], address.authority) if self._headers.upstream_host else field
                )
        fields.extend(self._added(client, forwarding, incoming.minor))
        if self._correlation is not None:
            fields = self._correlation.others(fields)
        return request._replace(headers=fields)

    def _believed(self, host: str) -> bool:
        trusted = self._stances.get(host)
        if trusted is None:
            if len(self._stances) >= 4096:
                self._stances.clear()
            trusted = self._stances[host] = self._trusted.holds(host)
        return trusted

    def _added(
        self, client: ClientAddress, forwarding: "_ForwardingFields", minor: int
    ) -> Iterable[HeaderField]:
        headers = self._headers
        scheme = b"https" if client.secure else b"http"
        if headers.x_forwarded:
            host = client.host.encode("ascii") or b"unknown"
            yield b"X-Forwarded-For", b", ".join([*forwarding.chain, host])
            if b"x-forwarded-proto" not in forwarding.claimed:
                yield b"X-Forwarded-Proto", scheme
            if b"x-forwarded-host" not in forwarding.claimed and forwarding.host:
                yield b"X-Forwarded-Host", forwarding.host
        if headers.forwarded:
            element = b"for=%b;proto=%b" % (_node(client.host), scheme)
            if forwarding.host:
                element += b";host=" + _quoted(forwarding.host)
            yield b"Forwarded", b", ".join([*forwarding.forwarded, element])
        if headers.via:
            yield b"Via", b", ".join([*forwarding.via, b"1.%d %b" % (minor, PSEUDONYM)])


class _ForwardingFields:
    """The forwarding headers of a request."""

    __slots__ = ("believed", "chain", "claimed", "forwarded", "host", "via")

    def __init__(self, believed: bool) -> None:  # one fact, made in one place
        self.believed = believed  #: the caller is a trusted proxy
        self.host = b""
        self.chain: list[bytes] = []
        self.claimed: set[bytes] = set()
        self.forwarded: list[bytes] = []
        self.via: list[bytes] = []

    def keeps(self, kind: _Kind, field: HeaderField) -> bool:
        """Note the content of the field; return whether it stays."""
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
