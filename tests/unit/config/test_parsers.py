from ipaddress import ip_network
from pathlib import Path

import pytest

from proxy.config import parsers
from proxy.config.settings import KeySettings, ListenAddress, embedded_store
from tests.support.table import table

DAY = 86_400_000


@table(
    "read, text, value",
    [
        (parsers.country, "se", "se"),
        (parsers.country, "SE", "se"),
        (parsers.word_or("none", parsers.country, ""), "none", ""),
        (parsers.word_or("none", parsers.country, ""), "De", "de"),
        (parsers.address, "127.0.0.1:8080", ListenAddress("127.0.0.1", 8080)),
        (parsers.address, "localhost:0", ListenAddress("localhost", 0)),
        (parsers.address, "[::1]:65535", ListenAddress("::1", 65535)),
        (parsers.true_or_false, "true", True),
        (parsers.true_or_false, "false", False),
        (parsers.path, "/var/lib/domicile", Path("/var/lib/domicile")),
        (parsers.duration, "250ms", 250),
        (parsers.duration, "5s", 5_000),
        (parsers.duration, "15m", 900_000),
        (parsers.duration, "12h", 43_200_000),
        (parsers.duration, "7d", 7 * DAY),
        (parsers.duration, "3650d", 3650 * DAY),
        (parsers.word_or("0", parsers.duration, 0), "0", 0),
        (parsers.word_or("0", parsers.duration, 0), "1s", 1_000),
        (parsers.whole_number(1, 9), "9", 9),
        (parsers.size(1024), "1KiB", 1024),
        (parsers.size(1024), "20MB", 20_000_000),
        (parsers.size(1024), "256MiB", 256 * 2**20),
        (parsers.size(1024), "2GiB", 2 * 2**30),
        (parsers.one_of("json", "text"), "text", "text"),
        (parsers.word_or("none", parsers.path), "none", None),
        (parsers.word_or("none", parsers.path), "/etc/ca.pem", Path("/etc/ca.pem")),
        (parsers.word_or("none", parsers.host), "none", None),
        (parsers.word_or("none", parsers.host), "CRM.example.com", "crm.example.com"),
        (parsers.some_of("a", "b"), "[]", frozenset()),
        (parsers.some_of("a", "b"), "[b, a]", frozenset(("a", "b"))),
        (parsers.some_of("a", "b"), "a", frozenset(("a",))),
        (parsers.some_of("a", "b"), "all", frozenset(("a", "b"))),
        (parsers.hosts, "[]", ()),
        (
            parsers.hosts, "[App.example.com, 10.1.0.0/16]",
            ("app.example.com", ip_network("10.1.0.0/16")),
        ),
        (parsers.hosts, "localhost,::1", ("localhost", ip_network("::1/128"))),
        (parsers.networks, "[]", ()),
        (parsers.networks, "10.0.0.0/8", (ip_network("10.0.0.0/8"),)),
        (
            parsers.networks, "[192.0.2.7, ::1,2001:db8::/32]",
            tuple(map(ip_network, ("192.0.2.7", "::1", "2001:db8::/32"))),
        ),
        (parsers.store, "sqlite:///var/vault.db", embedded_store(Path("/var/vault.db"))),
        (parsers.store, "sqlite:////var/vault.db", embedded_store(Path("/var/vault.db"))),
        (parsers.keys, "file:///run/secrets/keys", KeySettings("file", "/run/secrets/keys")),
        (parsers.keys, "env:DOMICILE_KEYS", KeySettings("env", "DOMICILE_KEYS")),
        (
            parsers.keys, "hashicorp-vault:///a%20b/keys?key=https://vault.example.com/transit/x",
            KeySettings("file", "/a b/keys", "hashicorp-vault", "key=https://vault.example.com/transit/x"),
        ),
    ],
)  # fmt: skip
def test_a_fitting_text_becomes_its_value(read, text, value):
    assert read(text) == value


@table(
    "read, text, reason",
    [
        (parsers.country, "uk", "gb"),
        (parsers.country, "xx", "no country code"),
        (parsers.country, "sweden", "no country code"),
        (parsers.address, "8080", "port is missing"),
        (parsers.address, "127.0.0.1:", "port is missing"),
        (parsers.address, ":8080", "host is missing"),
        (parsers.address, "::1:8080", "square brackets"),
        (parsers.address, "a host:80", "neither a name nor an address"),
        (parsers.address, "127.0.0.1:65536", "port is not a number"),
        (parsers.address, "127.0.0.1:-1", "port is not a number"),
        (parsers.address, "127.0.0.1:٣٣", "port is not a number"),
        (parsers.true_or_false, "yes", "neither true nor false"),
        (parsers.true_or_false, "True", "neither true nor false"),
        (parsers.path, "~/data", "~ is not understood"),
        (parsers.duration, "7", "number followed by"),
        (parsers.duration, "7 d", "number followed by"),
        (parsers.duration, "1h30m", "number followed by"),
        (parsers.duration, "-7d", "number followed by"),
        (parsers.duration, "0s", "more than nothing"),
        (parsers.duration, "3651d", "ten years"),
        (parsers.word_or("0", parsers.duration, 0), "0.5s", "number followed by"),
        (parsers.whole_number(1, 9), "10", "from 1 to 9"),
        (parsers.whole_number(1, 9), "0", "from 1 to 9"),
        (parsers.whole_number(1, 9), "one", "from 1 to 9"),
        (parsers.size(1024), "256", "number followed by"),
        (parsers.size(1024), "256 MB", "number followed by"),
        (parsers.size(2048), "1KiB", "too small"),
        (parsers.size(1024), "2000GiB", "beyond all memory"),
        (parsers.one_of("json", "text"), "xml", "not known here"),
        (parsers.word_or("none", parsers.path), "~/ca.pem", "~ is not understood"),
        (parsers.word_or("none", parsers.host), "crm example", "not a host name"),
        (parsers.word_or("none", parsers.host), "[::1]", "not a host name"),
        (parsers.some_of("a", "b"), "a, c", "item 2 is not known here"),
        (parsers.some_of("a", "b"), "a, all", "item 2 is not known here"),
        (parsers.networks, "10.0.0.0/8,proxy.test", "number 2 is neither"),
        (parsers.hosts, "a.example,b example", "number 2 is neither"),
        (parsers.hosts, "https://a.example", "number 1 is neither"),
        (parsers.hosts, "[::ab]:1", "number 1 is neither"),
        (parsers.hosts, "0.0.0.0/0", "number 1 holds every address"),
        (parsers.networks, "10.0.0.1/8", "number 1 has bits set"),
        (parsers.networks, "::/0", "number 1 holds every address"),
        (parsers.networks, "10.0.0.0/8,", "number 2 is neither"),
        (parsers.store, "postgresql://db/vault", "say sslmode=verify-full"),
        (parsers.store, "vault.db", "SQLite"),
        (parsers.store, "sqlite:vault.db", "three slashes"),
        (parsers.store, "sqlite:///", "three slashes"),
        (parsers.store, "sqlite:///./vault.db", "must be whole"),
        (parsers.store, "sqlite:///var/", "folder"),
        (parsers.keys, "env:MY-KEYS", "not the name"),
        (parsers.keys, "aws-kms://key", "whole path of the key file"),
        (parsers.keys, "aws-kms:///keys.json", "name the key that seals the file"),
        (parsers.keys, "kms:///keys.json", "never stands here"),
    ],
)
def test_an_unfit_text_is_refused_with_its_reason(read, text, reason):
    with pytest.raises(ValueError, match=reason):
        read(text)


def test_a_reason_never_quotes_a_key_that_was_pasted_where_its_place_belongs():
    for text in ("c2VjcmV0LWtleQ==", "env:c2VjcmV0LWtleQ==", "file:c2VjcmV0LWtleQ=="):
        with pytest.raises(ValueError, match=r"key|env|slashes") as caught:
            parsers.keys(text)
        assert "c2VjcmV0" not in str(caught.value)


def test_a_relative_path_counts_from_the_current_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert parsers.path("./data") == tmp_path / "data"


def test_the_country_codes_are_the_249_of_the_standard():
    assert len(parsers.COUNTRIES) == 249


def test_addresses_come_in_their_one_spelling():
    assert parsers.origins("[https://SE-vault.example.com/, http://localhost:8081]") == (
        "https://se-vault.example.com",
        "http://localhost:8081",
    )
    assert parsers.origins("[]") == ()


@table(
    "text", ["se-vault.example.com", "https://a.example,ftp://b.example", "https://a.example/api"]
)
def test_what_is_no_address_is_told_by_its_number(text):
    with pytest.raises(ValueError, match=r"^item \d is not an address"):
        parsers.origins(text)


@table(
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
    assert parsers.word_or("none", parsers.syslog)(text) == place


@table(
    "text",
    [
        "", "udp", "udp://", "udp://h", "udp://h:0", "udp://h:x", "http://h:1", "unix://log",
        "tcp://h:1/x", "h:514",
    ],
)  # fmt: skip
def test_what_is_no_syslog_collector_is_refused_without_quoting_it(text):
    with pytest.raises(ValueError, match=r".") as raised:
        parsers.word_or("none", parsers.syslog)(text)
    assert text == "" or text not in str(raised.value)
