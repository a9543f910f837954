import ipaddress
from collections.abc import Sequence
from pathlib import Path

import pytest

from proxy.edge.firewall import Firewall, Mode, firewall_refusal
from proxy.edge.geoip import Countries
from proxy.errors import Code
from proxy.net.client_address import Trusted
from tests.support.countries import AMERICAN, AMERICAN6, SWEDISH, SWEDISH6, nested, write
from tests.support.table import table


@pytest.fixture
def countries(tmp_path: Path) -> Countries:
    return Countries(write(tmp_path / "c.mmdb"))


def wall(
    countries: Countries | None, allow: Sequence[str] = (), trusted: Sequence[str] = ()
) -> Firewall:
    networks = tuple(map(ipaddress.ip_network, allow))
    return Firewall(
        Mode.BLOCK, "se", networks, countries, Trusted(tuple(map(ipaddress.ip_network, trusted)))
    )


@pytest.mark.parametrize("host", [SWEDISH, SWEDISH6, "127.0.0.1", "::1"])
def test_the_country_and_this_machine_are_inside(countries, host):
    assert not wall(countries).outside(host, (), False)


@pytest.mark.parametrize(
    "host",
    [
        *(AMERICAN, AMERICAN6, "9.9.9.9", ""),  # another country, none, unknown
        *("10.1.2.3", "192.168.1.1", "169.254.1.1", "fd00::1", "100.64.0.1"),  # private
        # a Swedish address inside, which is the sender's claim
        *("2002:51e1:102::1", "64:ff9b::51e1:102"),
    ],
)
def test_everybody_else_is_outside(countries, host):
    assert wall(countries).outside(host, (), False)


def test_special_addresses_are_never_looked_up(tmp_path):
    countries = Countries(
        write(tmp_path / "c.mmdb", {net: nested("SE") for net in ("10.0.0.0/8", "2002::/16")})
    )
    assert wall(countries).outside("10.0.0.1", (), False)
    assert wall(countries).outside("2002::1", (), False)


def test_the_networks_of_the_operator_are_inside(countries):
    made = wall(countries, ["10.0.0.0/8", "8.8.8.8", "fd00::/8"])
    assert [made.outside(host, (), False) for host in ("10.1.2.3", "8.8.8.8", "fd00::1")] == [
        False
    ] * 3
    assert [made.outside(host, (), False) for host in ("11.1.2.3", "8.8.8.9", "fc00::1")] == [
        True
    ] * 3


def test_without_a_database_only_they_are():
    made = wall(None, ["10.0.0.0/8"])
    assert [made.outside(host, (), False) for host in ("10.1.2.3", "127.0.0.1", SWEDISH)] == [
        False,
        False,
        True,
    ]


TRUSTED = "10.0.0.0/8"


@table(
    ("peer", "chain", "disguised", "out"),
    [
        ("10.0.0.1", [SWEDISH], False, False),
        ("10.0.0.1", [AMERICAN], False, True),
        # what the caller itself wrote does not count
        ("10.0.0.1", [f"{SWEDISH}, {AMERICAN}"], False, True),
        ("10.0.0.1", [SWEDISH, AMERICAN], False, True),
        ("10.0.0.1", [f"{AMERICAN}, {SWEDISH}, 10.0.0.2"], True, False),  # two of ours in a row
        ("10.0.0.1", [f"{SWEDISH}:4711"], False, False),  # with a port, as some proxies write it
        ("10.0.0.1", [f"[{SWEDISH6}]:4711"], False, False),
        ("10.0.0.1", ["unknown"], False, True),
        ("10.0.0.1", [""], False, True),
        ("10.0.0.1", [f"{SWEDISH}, unknown"], False, True),
        # a proxy that nobody named, on the machine of one that is named, or before it: whoever it
        # passes on may be anywhere
        ("10.0.0.1", ["127.0.0.1, 10.0.0.2"], False, True),
        ("10.0.0.1", [f"{AMERICAN}, 127.0.0.6"], False, True),
        ("10.0.0.1", ["::1"], False, True),
        ("10.0.0.1", [f"{AMERICAN}, 172.16.0.9"], False, True),
        ("10.0.0.1", [AMERICAN, "172.16.0.9, 10.0.0.2"], False, True),
        ("10.0.0.1", ["172.16.0.9"], False, False),  # begun in a network that is let in
        ("10.0.0.1", [f"{AMERICAN}, {SWEDISH}"], False, False),
        ("10.0.0.1", [], False, False),  # the proxy itself, for it is allowed here
        ("10.0.0.1", [], True, True),  # it told of the caller where it does not count
        (SWEDISH, [AMERICAN], True, False),  # nobody believes it, either way
        (AMERICAN, [SWEDISH], True, True),
        ("127.0.0.1", [], False, False),
        # a proxy on this machine that is not named as trusted
        ("127.0.0.1", [SWEDISH], False, True),
        ("127.0.0.1", [], True, True),
        ("172.16.0.1", [], False, False),
        ("172.16.0.1", [SWEDISH], False, True),
    ],
)
def test_only_trusted_proxies_tell_of_somebody_else(countries, peer, chain, disguised, out):
    made = wall(countries, [TRUSTED, "172.16.0.0/12"], [TRUSTED])
    assert made.outside(peer, chain, disguised) is out
    headers = [(b"X-Forwarded-For", value.encode()) for value in chain] + [
        (b"X-real-IP", b"x")
    ] * disguised
    assert made.outside_raw(peer, tuple(headers)) is out


@table(
    ("allow", "trusted", "peer", "chain"),
    [
        (["127.0.0.0/8"], [TRUSTED], "10.0.0.1", "127.0.0.1"),
        ([], ["127.0.0.1"], "127.0.0.1", "127.0.0.1"),
    ],
)
def test_loopback_counts_where_a_proxy_tells_of_it_only_if_the_settings_say_so(
    countries, allow, trusted, peer, chain
):
    assert not wall(countries, allow, trusted).outside(peer, [chain], False)


def test_a_peer_whose_fields_do_not_matter_is_known_straight(countries):
    made = wall(countries, (), [TRUSTED])
    assert [made.straight(peer) for peer in (SWEDISH, AMERICAN, "", "10.0.0.1", "127.0.0.1")] == [
        False,
        True,
        True,
        None,
        None,
    ]


async def test_what_is_remembered_goes_with_the_database(tmp_path):
    path = write(tmp_path / "c.mmdb")
    countries = Countries(path)
    made = wall(countries, (), [TRUSTED])
    assert made.outside(AMERICAN, (), False)
    assert made.outside("10.0.0.1", [AMERICAN], False)
    write(path, {"8.8.8.0/24": nested("SE")})
    await countries.reload()
    assert not made.outside(AMERICAN, (), False)
    assert not made.outside("10.0.0.1", [AMERICAN], False)


def test_what_is_remembered_is_bounded(countries, monkeypatch):
    monkeypatch.setattr("proxy.edge.firewall._CAPACITY", 3)
    made = wall(countries)
    assert [made.outside(f"81.225.1.{last}", (), False) for last in range(10)] == [False] * 10
    assert len(made._zones) <= 3
    through = wall(countries, (), [TRUSTED])
    assert [through.outside("10.0.0.1", [f"81.225.1.{last}"], False) for last in range(10)] == [
        False
    ] * 10
    assert through.outside("10.0.0.1", [f"{SWEDISH}, " * 20 + AMERICAN], False)
    assert len(through._verdicts) <= 3


def test_a_database_that_is_damaged_where_it_is_asked_lets_nobody_in(countries, monkeypatch):
    def damaged(_host: str) -> str:
        raise countries_error

    countries_error = firewall_refusal()
    monkeypatch.setattr(countries.database, "country", damaged)
    assert wall(countries).outside(SWEDISH, (), False)


def test_the_refusal_has_a_code_of_its_own():
    assert firewall_refusal().code is Code.OUTSIDE_COUNTRY
