import ipaddress
from typing import Any, cast

import pytest

from proxy.net.client_address import (
    UNKNOWN,
    ClientAddress,
    Trusted,
    caller_of,
    canonical_address,
    peer_of,
)


class Transport:
    def __init__(self, **known: Any) -> None:
        self.known = known

    def get_extra_info(self, name: str) -> Any:
        return self.known.get(name)


def peer(**known: Any) -> ClientAddress:
    return peer_of(cast("Any", Transport(**known)))


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
