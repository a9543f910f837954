from pathlib import Path

import pytest

from proxy.config import load_settings
from proxy.config.schema import ACCESS, SETTINGS
from proxy.errors import Code, VaultError


@pytest.mark.parametrize(("name", "setting"), SETTINGS.items())
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


@pytest.mark.parametrize(
    ("name", "text"),
    [("ACL__TIMEOUT", "soon"), ("ACL__TIMEOUT", "0s"), ("AUTH__TOKEN_LIFETIME", "5")],
)
def test_what_does_not_fit_is_told_with_what_to_write(name, text):
    with pytest.raises(VaultError) as caught:
        load_settings(None, {f"DOMICILE__{name}": text})
    assert caught.value.code is Code.BAD_SETTINGS
    assert ACCESS[name.lower().replace("__", ".")].form in caught.value.details[0].text
