import pytest

from proxy.auth.audiences import Audiences, origin
from tests.support.table import table


@table(
    ("written", "meant"),
    [
        ("https://SE-Vault.Example.com/", "https://se-vault.example.com"),
        ("https://se-vault.example.com:443", "https://se-vault.example.com"),
        ("http://host:80/", "http://host"),
        ("http://127.0.0.1:8081", "http://127.0.0.1:8081"),
        ("http://[::1]:8081/", "http://[::1]:8081"),
        ("HTTPS://host", "https://host"),
    ],
)
def test_an_address_has_one_spelling(written, meant):
    assert origin(written) == meant


@table(
    "text",
    ["", "host", "ftp://host", "https://", "https://host/path", "https://u@host", "https://host?q=1", "https://host#f",
     "https://host:port", "https://host:99999", "https://[::1", "//host"],
)  # fmt: skip
def test_what_is_no_origin_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        origin(text)


def test_addresses_of_the_settings_count_alone():
    ours = Audiences(["https://se-vault.example.com", "https://se-pop.example.com/"])
    ours.listening("127.0.0.1:8081")
    assert ours.first == "https://se-vault.example.com"
    assert ours.ours("https://se-pop.example.com https://SE-vault.example.com/") == (
        "https://se-pop.example.com",
        "https://se-vault.example.com",
    )
    with pytest.raises(ValueError, match="another server"):
        ours.ours("http://127.0.0.1:8081")


def test_none_asked_for_means_the_first_of_ours():
    assert Audiences(["https://a.example", "https://b.example"]).ours("") == ("https://a.example",)


def test_one_address_of_somebody_else_among_ours_is_one_too_many():
    with pytest.raises(ValueError, match="another server"):
        Audiences(["https://a.example"]).ours("https://a.example https://b.example")


@table(
    ("place", "names"),
    [
        ("127.0.0.1:81", ["http://127.0.0.1:81", "http://localhost:81", "http://[::1]:81"]),
        ("0.0.0.0:81", ["http://127.0.0.1:81", "http://localhost:81", "http://[::1]:81"]),
        ("[::]:81", ["http://127.0.0.1:81", "http://localhost:81", "http://[::1]:81"]),
        ("[::1]:81", ["http://[::1]:81", "http://127.0.0.1:81", "http://localhost:81"]),
        ("10.0.0.7:80", ["http://10.0.0.7"]),
    ],
)
def test_without_settings_the_listener_tells(place, names):
    ours = Audiences()
    ours.listening(place)
    assert list(ours.ours(" ".join(names))) == names
    assert ours.first == names[0]


def test_a_token_is_for_us_when_one_of_its_addresses_is_ours():
    ours = Audiences(["https://a.example"])
    assert ours.meets(["https://b.example", "https://a.example"])
    assert not ours.meets(["https://b.example"])
    assert not ours.meets([])


def test_a_listener_with_certificates_has_their_names_over_tls_alone():
    ours = Audiences()
    ours.listening("127.0.0.1:8081")
    ours.certified(("vault.test", "*.wild.test", "b.test"))
    assert ours.first == "https://vault.test:8081"
    assert ours.meets(["https://b.test:8081"])
    assert not ours.meets(["http://127.0.0.1:8081", "https://*.wild.test:8081"])
    ours.listening("0.0.0.0:443")
    assert ours.first == "https://vault.test"


def test_names_of_certificates_do_not_count_beside_the_settings():
    ours = Audiences(["https://se-vault.example.com"])
    ours.certified(("vault.test",))
    ours.listening("127.0.0.1:8081")
    assert not ours.meets(["https://vault.test:8081"])
