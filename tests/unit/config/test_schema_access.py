from pathlib import Path

import pytest

from proxy.config import load_settings
from proxy.config.schema_access import ACCESS
from proxy.errors import Code, VaultError


def test_the_settings_of_access_reach_the_program():
    given = {"DOMICILE__ACL__TIMEOUT": "250ms", "DOMICILE__ACL__AUTHORITIES": "/etc/own.pem"}
    settings = load_settings(None, given)
    assert (settings.acl.timeout, settings.acl.authorities) == (250, Path("/etc/own.pem"))
    assert (load_settings(None, {}).acl.timeout, load_settings(None, {}).acl.authorities) == (
        5000,
        None,
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [("ACL__TIMEOUT", "soon"), ("ACL__TIMEOUT", "0s"), ("AUTH__TOKEN_LIFETIME", "5")],
)
def test_what_does_not_fit_is_told_with_what_to_write(name, text):
    with pytest.raises(VaultError) as caught:
        load_settings(None, {f"DOMICILE__{name}": text})
    assert caught.value.code is Code.BAD_SETTINGS
    assert ACCESS[name.lower().replace("__", ".")].form in caught.value.details[0].text


def test_the_address_of_a_key_service_reaches_the_program(tmp_path):
    text = "aws-kms:///{data}/keys.json?key=arn:aws:kms:eu-north-1:111122223333:key/1"
    given = {"DOMICILE__DATA": str(tmp_path), "DOMICILE__KEYS": text}
    keys = load_settings(None, given).keys
    assert (keys.source, keys.locator) == ("file", f"{tmp_path}/keys.json")
    assert keys.uri == text.replace("/{data}", str(tmp_path))
    assert keys.described == f"{tmp_path}/keys.json, sealed by aws-kms"
