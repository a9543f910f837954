"""Header rules of both directions (RFC 9110 section 7.6.1): what concerns one connection stays on it, all else passes."""

import enum
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from proxy.errors import Code, VaultError
from proxy.redactor.message import RawHeaders
from proxy.web.upstream.port import TUNNEL, Framing

Field = tuple[bytes, bytes]


class Kind(enum.IntEnum):
    """What a field name means to a proxy. Only PLAIN is zero."""

    PLAIN = 0
    CONNECTION = 1
    UPGRADE = 2
    TRANSFER_ENCODING = 3
    TE = 4
    DROPPED = 5  #: hop-by-hop, and of no use beyond it
    OWN = 6  #: our own names: nobody else may set them


_KINDS: Final = {
    b"connection": Kind.CONNECTION,
    b"upgrade": Kind.UPGRADE,
    b"transfer-encoding": Kind.TRANSFER_ENCODING,
    b"te": Kind.TE,
    b"keep-alive": Kind.DROPPED,
    b"proxy-connection": Kind.DROPPED,
    b"http2-settings": Kind.DROPPED,
}

#: Fields that carry meaning end to end: a Connection field that names one of them is not obeyed (RFC 9110 section 7.6.1
#: forbids naming them; callers who do want to hide something from the application).
_END_TO_END: Final = frozenset(
    b"accept accept-encoding accept-language authorization cache-control content-encoding content-language content-length"
    b" content-location content-range content-type cookie date etag expect forwarded host if-match if-modified-since"
    b" if-none-match if-unmodified-since last-modified location origin range set-cookie vary x-forwarded-for"
    b" x-forwarded-host x-forwarded-proto x-real-ip".split()
)

_AUTHORITY: Final = re.compile(r"[A-Za-z0-9\-._~%!$&'()*+;=]*(?::[0-9]{0,5})?|\[[0-9A-Fa-f:.]+\](?::[0-9]{0,5})?")
_ABSOLUTE: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.\-]*://([^/?#]*)")


class _Names(dict[bytes, Kind]):
    """The kind of every field name seen, as spelled: a look-up instead of a case fold. Bounded."""

    def __missing__(self, name: bytes) -> Kind:
        lower = name.lower()
        kind = _KINDS.get(lower, Kind.PLAIN)
        if lower.startswith((b"domicile-", b"domicile_")):
            kind = Kind.OWN
        if len(self) >= 4096:
            self.clear()
        if len(name) <= 64:
            self[name] = kind
        return kind


_names: Final = _Names()


class Asked(NamedTuple):
    """A request's fields without what concerned the connection to the caller, and what that was."""

    headers: Sequence[Field]
    chunked: bool
    upgrade: bool  #: another protocol is asked for, and ``headers`` still ask for it


def asked(headers: RawHeaders, minor: int) -> Asked:
    """Take a request's fields apart. Raises ``VaultError`` (BAD_REQUEST) on framing that two readers see differently."""
    names = _names
    special = [(names[name], name, value) for name, value in headers if names[name]]
    if not special:
        return Asked(headers, False, False)
    named = _named(special)
    chunked = _chunked(headers, special, minor)
    upgrade = b"upgrade" in named and minor == 1 and _relayed(special)
    kept: list[Field] = []
    for field in headers:
        kind = names[field[0]]
        if kind is Kind.PLAIN:
            if not named or field[0].lower() not in named or field[0].lower() in _END_TO_END:
                kept.append(field)
        elif kind is Kind.TRANSFER_ENCODING or (kind is Kind.UPGRADE and upgrade):
            kept.append(field)
    if b"te" in named and _trailers_welcome(special):
        kept.append((b"TE", b"trailers"))
        kept.append((b"Connection", b"TE, Upgrade" if upgrade else b"TE"))
    elif upgrade:
        kept.append((b"Connection", b"Upgrade"))
    return Asked(kept, chunked, upgrade)


def answered(headers: RawHeaders, framing: Framing, status: int, minor: int) -> Iterable[Field]:
    """An answer's fields for a caller of HTTP/1.``minor``, without what concerned the application's connection."""
    names = _names
    special = [(names[name], name, value) for name, value in headers if names[name]]
    named = _named(special) if special else frozenset()
    switching = framing is TUNNEL or status == 426
    for field in headers:
        kind = names[field[0]]
        if kind is Kind.PLAIN:
            if not named or field[0].lower() not in named or field[0].lower() in _END_TO_END:
                yield field
        elif kind is Kind.TRANSFER_ENCODING:
            if minor == 1 and status != 204:
                yield field
        elif kind is Kind.UPGRADE and switching:
            yield field
    if switching:
        yield (b"Connection", b"Upgrade")


def _named(special: list[tuple[Kind, bytes, bytes]]) -> frozenset[bytes]:
    """The names that Connection fields list, lower case, without those that only steer keep-alive."""
    values = [value for kind, _, value in special if kind is Kind.CONNECTION]
    if not values or values in ([b"keep-alive"], [b"close"]):
        return frozenset()
    tokens = {token.strip(b" \t").lower() for value in values for token in value.split(b",")}
    return frozenset(tokens - {b"keep-alive", b"close", b""})


def _relayed(special: list[tuple[Kind, bytes, bytes]]) -> bool:
    """Whether the upgrade asked for is relayed: not to HTTP/2, whose requests no rule would see."""
    protocols = [value.lower().strip() for kind, _, value in special if kind is Kind.UPGRADE]
    return bool(protocols) and not any(
        token.strip().startswith((b"h2", b"http")) for value in protocols for token in value.split(b",")
    )


def _trailers_welcome(special: list[tuple[Kind, bytes, bytes]]) -> bool:
    return any(kind is Kind.TE and b"trailers" in value.lower() for kind, _, value in special)


def _chunked(headers: RawHeaders, special: list[tuple[Kind, bytes, bytes]], minor: int) -> bool:
    codings = [value for kind, _, value in special if kind is Kind.TRANSFER_ENCODING]
    if not codings:
        return False
    if len(codings) > 1 or codings[0].lower() != b"chunked" or minor == 0:
        raise VaultError(Code.BAD_REQUEST, "Transfer-Encoding must be exactly chunked, and needs HTTP/1.1.")
    if any(name.lower() == b"content-length" for name, _ in headers):
        raise VaultError(Code.BAD_REQUEST, "Content-Length and Transfer-Encoding contradict each other: send one.")
    return True


def authority(target: bytes, host: str | None) -> str:
    """The host a request asks for, lower case, with its port if given; ``host`` is its Host field.

    Raises ``VaultError`` (BAD_REQUEST) if it is not one plain name, or if target and field disagree.
    """
    if target[:1] in (b"/", b"*"):
        return _hosts[host or ""]
    absolute = _ABSOLUTE.match(target)
    asked_for = _hosts[absolute[1].decode("latin-1") if absolute is not None else "?"]
    if host is not None and _hosts[host].removesuffix(":80") != asked_for.removesuffix(":80"):
        raise VaultError(Code.BAD_REQUEST, "The target of the request and its Host field name different hosts.")
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


def encode(headers: Iterable[Field]) -> bytes:
    """Fields as they go over the wire, each with its line end."""
    return b"".join([b"%b: %b\r\n" % field for field in headers])
