import ipaddress
import random

import pytest

from proxy.net.client_address import loopback, special


@pytest.mark.parametrize(
    "host",
    [
        *(
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.1.1",
            "172.31.0.1",
            "192.0.0.8",
            "192.0.2.1",
        ),
        *(
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "255.255.255.255",
        ),
        *(
            "::",
            "::1",
            "::8.8.8.8",
            "64:ff9b::808:808",
            "100::1",
            "2001:0:53aa:64c::1",
            "2001:db8::1",
            "2002:808:808::1",
        ),
        *("3fff::1", "fc00::1", "fd12::1", "fe80::1", "fec0::1", "ff02::1"),
    ],
)
def test_addresses_of_no_country_are_known(host):
    assert special(host)


@pytest.mark.parametrize(
    "host", ["8.8.8.8", "81.225.1.2", "100.63.255.255", "172.32.0.1", "2a00:800::1", "2001:4860::1"]
)
def test_ordinary_addresses_are_looked_up(host):
    assert not special(host)


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
    assert [host for host in private if not special(host)] == []


def test_only_this_machine_is_loopback():
    assert [loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1")] == [True] * 3
    assert [loopback(host) for host in ("10.0.0.1", "128.0.0.1", "::2", "0.0.0.0")] == [False] * 4
