import ipaddress
import random
from typing import Any, cast

from proxy.net.client_address import (
    UNKNOWN,
    ClientAddress,
    Trusted,
    caller_of,
    canonical_address,
    is_special_address,
    loopback,
    peer_of,
)
from tests.support.table import table


class Transport:
    def __init__(self, **known: Any) -> None:
        self.known = known

    def get_extra_info(self, name: str) -> Any:
        return self.known.get(name)


def peer(**known: Any) -> ClientAddress:
    return peer_of(cast("Any", Transport(**known)))


@table(
    ("host", "written"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:DB8:0::7", "2001:db8::7"),
        ("fe80::1%eth0", "fe80::1"),
    ],
)
def test_an_address_has_one_spelling(host, written):
    assert canonical_address(host) == written


def test_the_other_end_of_a_connection_is_known_with_its_tls():
    assert peer(peername=("192.0.2.7", 9)) == ClientAddress("192.0.2.7", 9, secure=False)
    assert peer(peername=("::1", 9, 0, 0), sslcontext=object()) == ClientAddress(
        "::1", 9, secure=True
    )


def test_who_has_no_address_is_unknown():
    assert peer_of(None) == peer() == peer(peername="/run/socket") == UNKNOWN


def test_trust_goes_by_network_and_version():
    trusted = Trusted(
        tuple(map(ipaddress.ip_network, ("10.0.0.0/8", "192.0.2.7", "2001:db8::/32")))
    )
    assert [trusted.holds(host) for host in ("10.9.9.9", "192.0.2.7", "2001:db8::1")] == [True] * 3
    assert [
        trusted.holds(host) for host in ("11.0.0.0", "192.0.2.8", "2001:db9::1", "::a00:1", "")
    ] == [False] * 5
    assert not Trusted(()).holds("127.0.0.1")


@table(
    ("peer_", "chain", "caller"),
    [
        ("192.0.2.1", ["198.51.100.7"], "192.0.2.1"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["203.0.113.9, 198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["203.0.113.9", "198.51.100.7, 10.0.0.2"], "198.51.100.7"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", ["198.51.100.7, unknown"], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.7:443"], "198.51.100.7"),
        ("10.0.0.1", ["[2001:db8::7]:443"], "2001:db8::7"),
        ("10.0.0.1", ["[2001:db8::7"], "2001:db8::7"),
        ("10.0.0.1", [""], "10.0.0.1"),
        ("::ffff:10.0.0.1", ["::FFFF:198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["2001:DB8::1"], "2001:db8::1"),
        ("", ["198.51.100.7"], ""),
    ],
)
def test_the_caller_is_the_last_one_that_a_trusted_proxy_told_of(peer_, chain, caller):
    assert caller_of(peer_, chain, Trusted((ipaddress.ip_network("10.0.0.0/8"),))) == caller


# ---- networks


@table(
    "host",
    [
        *(
            "0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.1.1", "172.31.0.1",
            "192.0.0.8", "192.0.2.1",
        ),
        *(
            "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1",
            "255.255.255.255",
        ),
        *(
            "::", "::1", "::8.8.8.8", "64:ff9b::808:808", "100::1", "2001:0:53aa:64c::1",
            "2001:db8::1", "2002:808:808::1",
        ),
        *("3fff::1", "fc00::1", "fd12::1", "fe80::1", "fec0::1", "ff02::1"),
    ],
)  # fmt: skip
def test_addresses_of_no_country_are_known(host):
    assert is_special_address(host)


@table(
    "host", ["8.8.8.8", "81.225.1.2", "100.63.255.255", "172.32.0.1", "2a00:800::1", "2001:4860::1"]
)
def test_ordinary_addresses_are_looked_up(host):
    assert not is_special_address(host)


def test_whatever_the_standard_library_keeps_from_the_world_is_special():
    """It knows the same registries; where ours lacked a block that it has, this would show it."""
    chance = random.Random(6890)
    found = [str(ipaddress.IPv4Address(chance.getrandbits(32))) for _ in range(4_000)]
    found += [
        str(ipaddress.IPv6Address((0x2001 << 112) | (chance.getrandbits(9) << 103) | 1))
        for _ in range(500)
    ]
    private = [host for host in found if not ipaddress.ip_address(host).is_global]
    assert len(private) > 200
    assert [host for host in private if not is_special_address(host)] == []


def test_only_this_machine_is_loopback():
    assert [loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1")] == [True] * 3
    assert [loopback(host) for host in ("10.0.0.1", "128.0.0.1", "::2", "0.0.0.0")] == [False] * 4
