from pathlib import Path

import pytest

from proxy.config import load_settings
from proxy.config.schema import SETTINGS
from proxy.errors import Code, VaultError
from tests.support.table import table


@table("name, setting", SETTINGS.items())
def test_every_default_is_readable_and_every_setting_explained(name, setting):
    setting.read(setting.default.replace("{data}", "/var/lib/domicile"))
    assert setting.meaning.endswith(".")
    assert setting.form


def test_the_settings_of_access_reach_the_program():
    given = {"DOMICILE__ACL__TIMEOUT": "250ms", "DOMICILE__ACL__AUTHORITIES": "/etc/own.pem"}
    settings = load_settings(None, given)
    assert (settings.acl.timeout, settings.acl.authorities) == (250, Path("/etc/own.pem"))
    assert (load_settings(None, {}).acl.timeout, load_settings(None, {}).acl.authorities) == (
        5000,
        None,
    )


@table(
    ("name", "text"),
    [("ACL__TIMEOUT", "soon"), ("ACL__TIMEOUT", "0s"), ("AUTH__TOKEN_LIFETIME", "5")],
)
def test_what_does_not_fit_is_told_with_what_to_write(name, text):
    with pytest.raises(VaultError) as caught:
        load_settings(None, {f"DOMICILE__{name}": text})
    assert caught.value.code is Code.BAD_SETTINGS
    assert SETTINGS[name.lower().replace("__", ".")].form in caught.value.details[0].text


def test_the_address_of_a_key_service_reaches_the_program(tmp_path):
    text = "aws-kms:///{data}/keys.json?key=arn:aws:kms:eu-north-1:111122223333:key/1"
    given = {"DOMICILE__DATA": str(tmp_path), "DOMICILE__KEYS": text}
    keys = load_settings(None, given).keys
    assert (keys.source, keys.locator) == ("file", f"{tmp_path}/keys.json")
    assert keys.uri == text.replace("/{data}", str(tmp_path))
    assert keys.described == f"{tmp_path}/keys.json, sealed by aws-kms"


@table(
    "text",
    [
        "memory", "redis://cache", "redis://cache:6379/0", "rediss://me:secret@cache:6380",
        "redis://[::1]:6379",
    ],
)  # fmt: skip
def test_a_store_of_limits_is_a_word_or_an_address(text):
    assert SETTINGS["limits.store"].read(text) == (None if text == "memory" else text)


@table(
    "text",
    [
        "", "redis", "redis://", "http://cache", "redis://cache/a", "redis://cache?db=1",
        "redis://cache:port",
    ],
)  # fmt: skip
def test_a_reason_does_not_quote_it_for_it_may_hold_a_password(text):
    with pytest.raises(
        ValueError, match=r"^this is neither the word memory nor the address of a Redis$"
    ):
        SETTINGS["limits.store"].read(text)
