from ipaddress import ip_network
from pathlib import Path

import pytest

from proxy.config import values
from proxy.config.settings import Address, Keys, Store

DAY = 86_400_000


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (values.country, "se", "se"),
        (values.country, "SE", "se"),
        (values.country_or_none, "none", ""),
        (values.country_or_none, "De", "de"),
        (values.address, "127.0.0.1:8080", Address("127.0.0.1", 8080)),
        (values.address, "localhost:0", Address("localhost", 0)),
        (values.address, "[::1]:65535", Address("::1", 65535)),
        (values.flag, "true", True),
        (values.flag, "false", False),
        (values.path, "/var/lib/domicile", Path("/var/lib/domicile")),
        (values.duration, "250ms", 250),
        (values.duration, "5s", 5_000),
        (values.duration, "15m", 900_000),
        (values.duration, "12h", 43_200_000),
        (values.duration, "7d", 7 * DAY),
        (values.duration, "3650d", 3650 * DAY),
        (values.duration_or_none, "0", 0),
        (values.duration_or_none, "1s", 1_000),
        (values.whole(1, 9), "9", 9),
        (values.size(1024), "1KiB", 1024),
        (values.size(1024), "20MB", 20_000_000),
        (values.size(1024), "256MiB", 256 * 2**20),
        (values.size(1024), "2GiB", 2 * 2**30),
        (values.one_of("json", "text"), "text", "text"),
        (values.path_or("none"), "none", None),
        (values.path_or("none"), "/etc/ca.pem", Path("/etc/ca.pem")),
        (values.host_or_none, "none", None),
        (values.host_or_none, "CRM.example.com", "crm.example.com"),
        (values.some_of("a", "b"), "[]", frozenset()),
        (values.some_of("a", "b"), "[b, a]", frozenset(("a", "b"))),
        (values.some_of("a", "b"), "a", frozenset(("a",))),
        (values.some_of("a", "b"), "all", frozenset(("a", "b"))),
        (values.hosts, "[]", ()),
        (values.hosts, "[App.example.com, 10.1.0.0/16]", ("app.example.com", ip_network("10.1.0.0/16"))),
        (values.hosts, "localhost,::1", ("localhost", ip_network("::1/128"))),
        (values.networks, "[]", ()),
        (values.networks, "10.0.0.0/8", (ip_network("10.0.0.0/8"),)),
        (
            values.networks,
            "[192.0.2.7, ::1,2001:db8::/32]",
            tuple(map(ip_network, ("192.0.2.7", "::1", "2001:db8::/32"))),
        ),
        (values.store, "sqlite:///var/vault.db", Store("sqlite", Path("/var/vault.db"))),
        (values.store, "sqlite:////var/vault.db", Store("sqlite", Path("/var/vault.db"))),
        (values.keys, "file:///run/secrets/keys", Keys("file", "/run/secrets/keys")),
        (values.keys, "env:DOMICILE_KEYS", Keys("env", "DOMICILE_KEYS")),
    ],
)
def test_a_fitting_text_becomes_its_value(read, text, value):
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text", "reason"),
    [
        (values.country, "uk", "gb"),
        (values.country, "xx", "no country code"),
        (values.country, "sweden", "no country code"),
        (values.address, "8080", "port is missing"),
        (values.address, "127.0.0.1:", "port is missing"),
        (values.address, ":8080", "host is missing"),
        (values.address, "::1:8080", "square brackets"),
        (values.address, "a host:80", "neither a name nor an address"),
        (values.address, "127.0.0.1:65536", "port is not a number"),
        (values.address, "127.0.0.1:-1", "port is not a number"),
        (values.address, "127.0.0.1:٣٣", "port is not a number"),
        (values.flag, "yes", "neither true nor false"),
        (values.flag, "True", "neither true nor false"),
        (values.path, "~/data", "~ is not understood"),
        (values.duration, "7", "number followed by"),
        (values.duration, "7 d", "number followed by"),
        (values.duration, "1h30m", "number followed by"),
        (values.duration, "-7d", "number followed by"),
        (values.duration, "0s", "more than nothing"),
        (values.duration, "3651d", "ten years"),
        (values.duration_or_none, "0.5s", "number followed by"),
        (values.whole(1, 9), "10", "from 1 to 9"),
        (values.whole(1, 9), "0", "from 1 to 9"),
        (values.whole(1, 9), "one", "from 1 to 9"),
        (values.size(1024), "256", "number followed by"),
        (values.size(1024), "256 MB", "number followed by"),
        (values.size(2048), "1KiB", "too small"),
        (values.size(1024), "2000GiB", "beyond all memory"),
        (values.one_of("json", "text"), "xml", "not known here"),
        (values.path_or("none"), "~/ca.pem", "~ is not understood"),
        (values.host_or_none, "crm example", "not a host name"),
        (values.host_or_none, "[::1]", "not a host name"),
        (values.some_of("a", "b"), "a, c", "item 2 is not known here"),
        (values.some_of("a", "b"), "a, all", "item 2 is not known here"),
        (values.networks, "10.0.0.0/8,proxy.test", "number 2 is neither"),
        (values.hosts, "a.example,b example", "number 2 is neither"),
        (values.hosts, "https://a.example", "number 1 is neither"),
        (values.hosts, "[::ab]:1", "number 1 is neither"),
        (values.hosts, "0.0.0.0/0", "number 1 holds every address"),
        (values.networks, "10.0.0.1/8", "number 1 has bits set"),
        (values.networks, "::/0", "number 1 holds every address"),
        (values.networks, "10.0.0.0/8,", "number 2 is neither"),
        (values.store, "postgresql://db/vault", "SQLite"),
        (values.store, "vault.db", "SQLite"),
        (values.store, "sqlite:vault.db", "three slashes"),
        (values.store, "sqlite:///", "three slashes"),
        (values.store, "sqlite:///./vault.db", "must be whole"),
        (values.store, "sqlite:///var/", "folder"),
        (values.keys, "env:MY-KEYS", "not the name"),
        (values.keys, "aws-kms://key", "from a file or from an environment variable"),
    ],
)
def test_an_unfit_text_is_refused_with_its_reason(read, text, reason):
    with pytest.raises(ValueError, match=reason):
        read(text)


def test_a_reason_never_quotes_a_key_that_was_pasted_where_its_place_belongs():
    for text in ("c2VjcmV0LWtleQ==", "env:c2VjcmV0LWtleQ==", "file:c2VjcmV0LWtleQ=="):
        with pytest.raises(ValueError, match=r"key|env|slashes") as caught:
            values.keys(text)
        assert "c2VjcmV0" not in str(caught.value)


def test_a_relative_path_counts_from_the_current_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert values.path("./data") == tmp_path / "data"


def test_the_country_codes_are_the_249_of_the_standard():
    assert len(values.COUNTRIES) == 249


def test_addresses_come_in_their_one_spelling():
    assert values.origins("[https://SE-vault.example.com/, http://localhost:8081]") == (
        "https://se-vault.example.com",
        "http://localhost:8081",
    )
    assert values.origins("[]") == ()


@pytest.mark.parametrize("text", ["se-vault.example.com", "https://a.example,ftp://b.example", "https://a.example/api"])
def test_what_is_no_address_is_told_by_its_number(text):
    with pytest.raises(ValueError, match=r"^item \d is not an address"):
        values.origins(text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("none", None),
        ("udp://127.0.0.1:514", ("udp", "127.0.0.1", 514)),
        ("tcp://logs.example.com:601/", ("tcp", "logs.example.com", 601)),
        ("tcp://[::1]:601", ("tcp", "::1", 601)),
        ("unix:///dev/log", ("unix", "/dev/log", 0)),
    ],
)
def test_a_syslog_collector_is_read(text, place):
    assert values.syslog(text) == place


@pytest.mark.parametrize(
    "text",
    ["", "udp", "udp://", "udp://h", "udp://h:0", "udp://h:x", "http://h:1", "unix://log", "tcp://h:1/x", "h:514"],
)
def test_what_is_no_syslog_collector_is_refused_without_quoting_it(text):
    with pytest.raises(ValueError, match=r".") as raised:
        values.syslog(text)
    assert text == "" or text not in str(raised.value)
