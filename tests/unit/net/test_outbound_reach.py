import ipaddress

import pytest

from proxy.net.outbound import NO_EGRESS, Reach

GIVEN = Reach(
    (
        "app.example.com",
        "localhost",
        ipaddress.ip_network("10.1.0.0/16"),
        ipaddress.ip_network("2001:db8::7/128"),
    )
)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "https://app.example.com/allowed",
            "https://APP.example.com:8443/a?b=c",
            "https://app.example.com./",
        ),
        *(
            "http://localhost:1/",
            "https://10.1.2.3/",
            "https://[2001:db8::7]/x",
            "https://[::ffff:10.1.2.3]/",
        ),
    ],
)
def test_hosts_of_the_list_may_be_named(url):
    assert GIVEN.names(url)
    assert not NO_EGRESS.names(url)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "https://example.com/",
            "https://app.example.com.evil.example/",
            "https://evil.example/app.example.com",
        ),
        *(
            "http://127.0.0.1:8082/",
            "http://[::1]/",
            "https://169.254.169.254/",
            "https://10.2.0.1/",
        ),
        *(
            "https://8.8.8.8/",
            "https://[2001:db8::8]/",
            "https://167837955/",
            "https://0x0a010203/",
            "https://10.258/",
        ),
        *(
            "https://user:pw@evil.example/",
            "https://app.example.com@evil.example/",
            "https:///",
            "https://[::g]/",
            "",
        ),
    ],
)
def test_others_may_not_however_they_are_spelled(url):
    assert not GIVEN.names(url)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:4700::1", "10.1.255.255", "2001:db8::7", "::ffff:8.8.8.8"]
)
def test_names_stand_for_public_addresses_and_for_those_of_the_networks(address):
    assert GIVEN.leads(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "::1",
        "10.2.0.1",
        "169.254.169.254",
        "fe80::1%3",
        "fd00::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
    ],
)
def test_they_do_not_stand_for_anything_else(address):
    assert not GIVEN.leads(address)
