"""Header rules of both directions (RFC 9110 section 7.6.1): hop-by-hop fields stay on their hop."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from proxy.errors import Code, VaultError
from proxy.net import entity_tags
from proxy.net.http1.fields import (
    HEADER_KINDS,
    HeaderField,
    HeaderKind,
    SpecialFields,
    connection_options,
)
from proxy.net.http1.head import TUNNEL, Framing, RequestHead
from proxy.redactor.message import RawHeaders

#: Fields that carry meaning end to end: a Connection field that names one of them is not obeyed
#: (RFC 9110 section 7.6.1 forbids naming them; callers who do want to hide something from the
#: application).
_END_TO_END: Final = frozenset(
    b"accept accept-encoding accept-language authorization cache-control content-encoding "
    b"content-language content-length"
    b" content-location content-range content-type cookie date etag expect forwarded host "
    b"if-match if-modified-since"
    b" if-none-match if-unmodified-since last-modified location origin range set-cookie vary "
    b"x-forwarded-for"
    b" x-forwarded-host x-forwarded-proto x-real-ip".split()
)

#: Fields that frame, route, authorise or modify a request: after the body they come too late for
#: decisions by them (RFC 9110 section 6.5.1), and an application that merged them would see another
#: request than the rules did.
_NEVER_TRAILERS: Final = _END_TO_END - {b"date", b"etag", b"last-modified"} | frozenset(
    b"content-md5 content-disposition if-range max-forwards pragma prefer proxy-authorization "
    b"referer trailer user-agent"
    b" x-http-method x-http-method-override x-method-override x-original-url x-rewrite-url".split()
)

_AUTHORITY: Final = re.compile(
    r"[A-Za-z0-9\-._~%!$&'()*+;=]*(?::[0-9]{0,5})?|\[[0-9A-Fa-f:.]+\](?::[0-9]{0,5})?"
)
_LENGTH: Final = HeaderKind.LENGTH  # looked up several times slower in its enumeration
_ABSOLUTE: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.\-]*://([^/?#]*)")


class RequestFields(NamedTuple):
    """A request's fields without what concerned the connection to the caller, and what that was."""

    headers: Sequence[HeaderField]
    chunked: bool
    upgrade: bool  #: another protocol is requested, and ``headers`` still request it


def request_fields(head: RequestHead) -> RequestFields:
    """Take a request's fields apart; once for each head, however often it comes."""
    if head.apart is None:
        head.apart = _apart(head)
    fields: RequestFields = head.apart
    return fields


def _apart(head: RequestHead) -> RequestFields:
    special, named = head.special, head.named
    headers = _expecting(head.headers) if entity_tags.MARK in head.block else head.headers
    if not special:
        return RequestFields(headers, False, False)
    also = {HeaderKind.TRANSFER_ENCODING, HeaderKind.UPGRADE if head.upgrade else HeaderKind.OTHER}
    fields = _end_to_end(headers, named, also)
    if b"te" in named and _trailers_welcome(special):
        fields.append((b"TE", b"trailers"))
        fields.append((b"Connection", b"TE, Upgrade" if head.upgrade else b"TE"))
    elif head.upgrade:
        fields.append((b"Connection", b"Upgrade"))
    return RequestFields(fields, head.chunked, head.upgrade)


def _end_to_end(
    headers: Iterable[HeaderField], named: frozenset[bytes], also: set[HeaderKind]
) -> list[HeaderField]:
    """The fields that go on, and those of the kinds ``also``; ``named``: by Connection fields."""
    fields: list[HeaderField] = []
    kinds = HEADER_KINDS
    for field in headers:
        kind = kinds[field[0]]
        if kind <= HeaderKind.LENGTH:
            lower = field[0].lower() if named else b""
            if lower not in named or lower in _END_TO_END:
                fields.append(field)
        elif kind in also:
            fields.append(field)
    return fields


def _expecting(headers: RawHeaders) -> RawHeaders:
    """Fields that may hold an entity tag of ours; in If-Match the application gets its own."""
    return tuple(
        [
            (name, entity_tags.own_tag(value) if name.lower() == b"if-match" else value)
            for name, value in headers
        ]
    )


def trailing(trailers: RawHeaders) -> list[HeaderField]:
    """Return the trailers that may follow a request's body to the application.

    Names are compared as CGI does, which joins ``-`` and ``_``.
    """
    kinds = HEADER_KINDS
    return [
        field
        for field in trailers
        if kinds[field[0]] <= HeaderKind.LENGTH
        and field[0].lower().replace(b"_", b"-") not in _NEVER_TRAILERS
    ]


def response_fields(
    headers: RawHeaders, framing: Framing, status: int, minor: int
) -> Sequence[HeaderField]:
    """An answer's fields for a caller of HTTP/1.``minor``, without hop-by-hop ones."""
    kinds = HEADER_KINDS
    switching = framing is TUNNEL or status == 426
    special: list[HeaderField] = []
    for field in headers:
        if kinds[field[0]] > _LENGTH:
            special.append(field)  # noqa: PERF401  # saves a call
    if not special and not switching:
        return headers
    also = {HeaderKind.TRANSFER_ENCODING} if minor == 1 and status != 204 else set()
    if switching:
        also.add(HeaderKind.UPGRADE)
    named = connection_options(
        [value for name, value in special if kinds[name] is HeaderKind.CONNECTION]
    )
    fields = _end_to_end(headers, named, also)
    if switching:
        fields.append((b"Connection", b"Upgrade"))
    return fields


def _trailers_welcome(special: SpecialFields) -> bool:
    return any(kind is HeaderKind.TE and b"trailers" in value.lower() for kind, _, value in special)


def authority(target: bytes, host: str | None) -> str:
    """The host a request asks for, lower case, with its port if given; ``host`` is its Host field.

    Raises ``VaultError`` (BAD_REQUEST) if it is not one plain name, or if target and field
    disagree.
    """
    if target[:1] in (b"/", b"*"):
        return _hosts[host or ""]
    absolute = _ABSOLUTE.match(target)
    asked_for = _hosts[absolute[1].decode("latin-1") if absolute is not None else "?"]
    if host is not None and _hosts[host].removesuffix(":80") != asked_for.removesuffix(":80"):
        raise VaultError(
            Code.BAD_REQUEST, "The target of the request and its Host field name different hosts."
        )
    return asked_for


class _Hosts(dict[str, str]):
    """Host fields seen, checked and folded. Bounded."""

    def __missing__(self, host: str) -> str:
        if _AUTHORITY.fullmatch(host) is None:
            raise VaultError(Code.BAD_REQUEST, "The Host of the request is not a host name.")
        if len(self) >= 1024:
            self.clear()
        folded = host.lower()
        if len(host) <= 255:
            self[host] = folded
        return folded


_hosts: Final = _Hosts()


def encode_fields(headers: Iterable[HeaderField]) -> bytes:
    """Fields as they go over the wire, each with its line end."""
    return b"".join([b"%b: %b\r\n" % field for field in headers])
