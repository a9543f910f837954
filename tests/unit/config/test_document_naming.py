from typing import Any

import pytest

from proxy.config.document import SECTIONS, section_members, suggest_setting
from proxy.config.schema import SETTINGS
from proxy.config.settings import Settings


def test_the_table_and_the_settings_object_hold_the_same_names():
    assert set(section_members("")) == set(Settings.__dataclass_fields__)  # applications among them
    for section in SECTIONS:
        kind: Any = Settings
        for name in section.split("."):
            kind = kind.__dataclass_fields__[name].type
        assert set(section_members(section)) == set(kind.__dataclass_fields__)


ALL = ", ".join(sorted({"applications", *(name.partition(".")[0] for name in SETTINGS)}))


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("contry", "did you mean country?"),
        ("listen.prox", "did you mean listen.proxy?"),
        ("listn.proxy", "did you mean listen.proxy?"),
        ("level", "did you mean log.level?"),
        ("listen.console", "listen has proxy, vault, admin, insecure, tls, proxy_protocol"),
        ("weather", f"there are {ALL}"),
        ("upstream.tls.sni", "upstream.tls has ca, certificate, key, verify, server_name"),
        ("upstream.breker", "did you mean upstream.breaker?"),
        ("applications.crm.haed", "did you mean applications.crm.head?"),
        (
            "applications.crm.tls.sni",
            "applications.crm.tls has ca, certificate, key, verify, server_name",
        ),
        ("upstream.tsl.ca", "did you mean upstream.tls.ca?"),
    ],
)
def test_an_unknown_name_is_answered_with_what_was_probably_meant(written, sentence):
    assert suggest_setting(written) == sentence
