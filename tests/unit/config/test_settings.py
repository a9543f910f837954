import dataclasses

import pytest

from proxy.config import load_settings
from proxy.config.settings import KeySettings, ListenAddress
from tests.support.table import table


@table("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_addresses_are_known(host):
    assert ListenAddress(host, 80).loopback


@table("host", ["0.0.0.0", "::", "10.0.0.1", "example.com", "localhost.example.com"])
def test_every_other_host_can_be_reached_from_outside(host):
    assert not ListenAddress(host, 80).loopback


def test_an_address_is_written_as_it_is_read():
    assert str(ListenAddress("127.0.0.1", 80)) == "127.0.0.1:80"
    assert str(ListenAddress("::1", 80)) == "[::1]:80"


def test_settings_cannot_be_changed():
    settings = load_settings(None, {})
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.country = "de"  # type: ignore[misc]  # the point of the test


def test_keys_are_handed_on_as_an_address_that_survives_odd_characters():
    assert KeySettings("env", "NAME").uri == "env:NAME"
    assert KeySettings("file", "/srv/a b/100%.json").uri == "file:///srv/a%20b/100%25.json"
