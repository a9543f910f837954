import pytest

from proxy.config.settings import Settings
from proxy.config.table import SECTIONS, SETTINGS, members, nearest


@pytest.mark.parametrize(("name", "setting"), SETTINGS.items())
def test_every_default_is_readable_and_every_setting_explained(name, setting):
    setting.read(setting.default.replace("{data}", "/var/lib/domicile"))
    assert setting.meaning.endswith(".")
    assert setting.form


def test_the_table_and_the_settings_object_hold_the_same_names():
    fields = Settings.__dataclass_fields__
    assert set(members("")) == set(fields)
    for section in SECTIONS:
        inner = getattr(fields[section].type, "__dataclass_fields__", {})
        assert set(members(section)) == set(inner)


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("contry", "did you mean country?"),
        ("listen.prox", "did you mean listen.proxy?"),
        ("listn.proxy", "did you mean listen.proxy?"),
        ("level", "did you mean log.level?"),
        ("listen.vault", "listen has proxy, admin, insecure"),
        ("firewall", "there are country, data, keys, limits, listen, log, pending, rules, store, upstream"),
    ],
)
def test_an_unknown_name_is_answered_with_what_was_probably_meant(written, sentence):
    assert nearest(written) == sentence
