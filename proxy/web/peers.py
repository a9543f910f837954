"""Who is at the other end of a caller's connection, and whom of them the operator trusts."""

import asyncio
import ipaddress
from collections.abc import Sequence
from typing import Final, NamedTuple

#: Of one version of the Internet protocol.
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


#: Addresses of which it is remembered whether they are trusted; forgotten all together.
_KEPT: Final = 16_384


class Client(NamedTuple):
    """The address that requests of a connection come from: the peer's, or the one a trusted proxy told of."""

    host: str  #: an IP address as text, IPv4 in its own form; empty: unknown
    port: int = 0
    secure: bool = False  #: it came over TLS


UNKNOWN = Client("")


def peer_of(transport: asyncio.BaseTransport | None) -> Client:
    """The other end of a connection itself."""
    name = transport.get_extra_info("peername") if transport is not None else None
    if transport is None or not isinstance(name, tuple):
        return UNKNOWN
    return Client(plain(name[0]), name[1], transport.get_extra_info("sslcontext") is not None)


def plain(host: str) -> str:
    """An address without its zone; an IPv4 address that an IPv6 socket shows (``::ffff:192.0.2.1``) in its own form."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    return str(address.ipv4_mapped or address)


def caller_of(peer: str, chain: Sequence[str], trusted: "Trusted") -> str:
    """The address that a request comes from: that of the peer, or, as long as that is trusted, the one it told of.

    ``chain`` is ``X-Forwarded-For``, field by field. It is read from its end, where the nearest proxy writes; what is no
    address ends it, for then nobody knows what stands before it.
    """
    return _traced(peer, chain, trusted)[0]


def told_of(peer: str, chain: Sequence[str], trusted: "Trusted") -> str:
    """The same, but empty where a trusted proxy told of something that is no address."""
    host, whole = _traced(peer, chain, trusted)
    return host if whole else ""


def _traced(peer: str, chain: Sequence[str], trusted: "Trusted") -> tuple[str, bool]:
    """The last address that is known, and whether the request began there."""
    host = plain(peer)
    told = [part.strip() for line in chain for part in line.split(",")]
    while told and trusted.holds(host):
        try:
            host = plain(str(ipaddress.ip_address(_bare(told.pop()))))
        except ValueError:
            return host, False
    return host, True


def _bare(node: str) -> str:
    """An address without the port that some proxies write behind it."""
    if node.startswith("["):
        return node[1:].partition("]")[0]
    return node.partition(":")[0] if node.count(":") == 1 else node


class Trusted:
    """The networks of ``trusted_proxies``."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self._networks = tuple(networks)
        self._known: dict[str, bool] = {}

    def holds(self, host: str) -> bool:
        """Whether this address is one of them; an unknown one never is."""
        if not host or not self._networks:
            return False
        known = self._known.get(host)
        if known is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            address = ipaddress.ip_address(host)
            known = self._known[host] = any(address in network for network in self._networks)
        return known
