"""Address of a caller, and the proxies that the operator trusts."""

import asyncio
import ipaddress
from collections.abc import Sequence
from typing import Final, NamedTuple

#: Of one version of the Internet protocol.
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Addresses whose trust is cached; forgotten all together.
_CAPACITY: Final = 16_384


class ClientAddress(NamedTuple):
    """The address of a connection's requests: the peer's, or the one a trusted proxy reported."""

    host: str  #: an IP address as text, IPv4 in its own form; empty: unknown
    port: int = 0
    secure: bool = False  #: it came over TLS


UNKNOWN = ClientAddress("")


def peer_of(transport: asyncio.BaseTransport | None) -> ClientAddress:
    """The other end of a connection itself."""
    name = transport.get_extra_info("peername") if transport is not None else None
    if transport is None or not isinstance(name, tuple):
        return UNKNOWN
    return ClientAddress(
        canonical_address(name[0]), name[1], transport.get_extra_info("sslcontext") is not None
    )


def canonical_address(host: str) -> str:
    """An address without its zone; an IPv4 address out of an IPv6 socket (``::ffff:192.0.2.1``)."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    return str(address.ipv4_mapped or address)


class ReportedCaller(NamedTuple):
    """The caller of a request, as far as trusted proxies tell of it."""

    host: str  #: the last address that is known
    whole: bool = True  #: whether the request began there; not where an invalid one comes next
    before: bool = False  #: whether it says itself that it passes on the request of somebody else


def caller_of(peer: str, chain: Sequence[str], trusted: "Trusted") -> str:
    """The address of a request: the peer's or, while that is trusted, the one it reported."""
    return reported_caller(peer, chain, trusted).host


def reported_caller(peer: str, chain: Sequence[str], trusted: "Trusted") -> ReportedCaller:
    """The same, with what stands before it.

    ``chain`` is ``X-Forwarded-For``, field by field. It is read from its end, where the nearest
    proxy writes; an invalid address ends it, for the part before it is unreliable.
    """
    host = canonical_address(peer)
    chain_hosts = [part.strip() for line in chain for part in line.split(",")]
    while chain_hosts and trusted.holds(host):
        try:
            host = canonical_address(str(ipaddress.ip_address(_bare(chain_hosts.pop()))))
        except ValueError:
            return ReportedCaller(host, whole=False)
    return ReportedCaller(host, before=bool(chain_hosts))


def _bare(node: str) -> str:
    """An address without the port that some proxies write behind it."""
    if node.startswith("["):
        return node[1:].partition("]")[0]
    return node.partition(":")[0] if node.count(":") == 1 else node


class Trusted:
    """The networks of ``trusted_proxies``."""

    def __init__(self, networks: Sequence[IpNetwork]) -> None:
        self._networks = tuple(networks)
        self._verdicts: dict[str, bool] = {}

    def holds(self, host: str) -> bool:
        """Whether this address is one of them; an unknown one never is."""
        if not host or not self._networks:
            return False
        trusted = self._verdicts.get(host)
        if trusted is None:
            if len(self._verdicts) >= _CAPACITY:
                self._verdicts.clear()
            address = ipaddress.ip_address(host)
            trusted = self._verdicts[host] = any(address in network for network in self._networks)
        return trusted


# Addresses without a country, whatever a database says of them.
#
# The registries of special-purpose addresses (IANA; RFC 6890, RFC 8190) as far as they are not
# globally reachable, and addresses that stand for another one: senders from 6to4, Teredo or NAT64
# may be anywhere, and choose the inner address themselves. The table is ours, because the private
# addresses of ``ipaddress`` have changed between versions of Python.


def _networks(text: str) -> tuple[IpNetwork, ...]:
    return tuple(
        ipaddress.ip_network(line.split("#")[0].strip()) for line in text.strip().splitlines()
    )


#: IPv4-mapped addresses are not among them: ``canonical_address`` turns these into the IPv4 address
#: that they are.
SPECIAL: Final[Sequence[IpNetwork]] = _networks("""
    0.0.0.0/8           # this network
    10.0.0.0/8          # private
    100.64.0.0/10       # shared by the customers of a carrier
    127.0.0.0/8         # loopback
    169.254.0.0/16      # link-local
    172.16.0.0/12       # private
    192.0.0.0/24        # protocol assignments
    192.0.2.0/24        # documentation
    192.88.99.0/24      # relays of 6to4
    192.168.0.0/16      # private
    198.18.0.0/15       # benchmarking
    198.51.100.0/24     # documentation
    203.0.113.0/24      # documentation
    224.0.0.0/4         # multicast
    240.0.0.0/4         # reserved, and the broadcast address
    ::/128              # unspecified
    ::1/128             # loopback
    ::/96               # IPv4-compatible, long retired
    64:ff9b::/96        # NAT64
    64:ff9b:1::/48      # NAT64, private
    100::/64            # discard
    100:0:0:1::/64      # dummy prefix
    2001::/23           # protocol assignments, Teredo among them
    2001:db8::/32       # documentation
    2002::/16           # 6to4
    3fff::/20           # documentation
    5f00::/16           # segment routing
    fc00::/7            # unique local
    fe80::/10           # link-local
    fec0::/10           # site-local, retired
    ff00::/8            # multicast
""")

_LOOPBACK: Final = _networks("127.0.0.0/8\n::1/128")


def in_networks(host: str, networks: Sequence[IpNetwork]) -> bool:
    """Whether an address is in one of the networks."""
    address = ipaddress.ip_address(host)
    return any(address in network for network in networks)


def is_special_address(host: str) -> bool:
    """Whether an address is never looked up in a database."""
    return in_networks(host, SPECIAL)


def loopback(host: str) -> bool:
    """Whether the caller is on this machine, or in this pod."""
    return in_networks(host, _LOOPBACK)
