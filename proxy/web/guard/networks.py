"""Addresses that belong to no country, whatever a database says of them.

The registries of special-purpose addresses (IANA; RFC 6890, RFC 8190) as far as they are not globally reachable, and
addresses that stand for another one: whoever sends from 6to4, Teredo or NAT64 may be anywhere, and the address inside is
the sender's own claim. A table of our own, because what ``ipaddress`` calls private has changed between versions of Python.
"""

import ipaddress
from collections.abc import Sequence
from typing import Final

from proxy.web.peers import Network


def _networks(text: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(line.split("#")[0].strip()) for line in text.strip().splitlines())


#: IPv4-mapped addresses are not among them: ``peers.plain`` turns these into the IPv4 address that they are.
SPECIAL: Final[Sequence[Network]] = _networks("""
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


def within(host: str, networks: Sequence[Network]) -> bool:
    """Whether an address is in one of the networks."""
    address = ipaddress.ip_address(host)
    return any(address in network for network in networks)


def special(host: str) -> bool:
    """Whether no database is asked about an address."""
    return within(host, SPECIAL)


def loopback(host: str) -> bool:
    """Whether the caller is on this machine, or in this pod."""
    return within(host, _LOOPBACK)
