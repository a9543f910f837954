from typing import Any

from proxy.config.document import (
    LARGEST_FILE,
    SECTIONS,
    GivenSetting,
    SettingsDocument,
    read_environment,
    section_members,
    suggest_setting,
    variable,
)
from proxy.config.schema import SETTINGS
from proxy.config.settings import Settings
from tests.support.table import table


def read(text: str) -> SettingsDocument:
    return SettingsDocument("domicile.yaml", text.encode())


def faults(text: str) -> list[str]:
    return [f"{source}  {sentence}" for source, sentence in read(text).faults]


def test_each_setting_is_found_with_its_place():
    document = read(
        "country: se\nlisten:\n  proxy: 127.0.0.1:80\n  insecure: true\nlog: {level: debug}\n"
    )
    assert document.faults == []
    assert document.settings == {
        "country": GivenSetting("se", "domicile.yaml:1:10"),
        "listen.proxy": GivenSetting("127.0.0.1:80", "domicile.yaml:3:10"),
        "listen.insecure": GivenSetting("true", "domicile.yaml:4:13"),
        "log.level": GivenSetting("debug", "domicile.yaml:5:14"),
    }


def test_sections_may_stand_in_sections_and_lists_become_one_text():
    document = read(
        "upstream:\n  tls:\n    ca: ca.pem\ntrusted_proxies:\n  - 10.0.0.0/8\n  - '::1'\n"
    )
    assert document.faults == []
    assert document.settings == {
        "upstream.tls.ca": GivenSetting("ca.pem", "domicile.yaml:3:9"),
        "trusted_proxies": GivenSetting("[10.0.0.0/8,::1]", "domicile.yaml:5:3"),
    }


@table("text", ["", "# nothing but a comment\n", "---\n"])
def test_an_empty_file_sets_nothing(text):
    document = read(text)
    assert (document.settings, document.faults) == ({}, [])


def test_scalars_stay_texts():
    document = read("country: no\nupstream:\n  connections: 0x10\n  total: 1:30\n")
    assert [given.text for given in document.settings.values()] == ["no", "0x10", "1:30"]


@table(
    ("text", "fault"),
    [
        ("contry: se", "domicile.yaml:1:1  contry is not a setting: did you mean country?"),
        ("weather: {mode: block}", "domicile.yaml:1:1  weather is not a setting: there are acl"),
        (
            "listen:\n  console: 127.0.0.1:1",
            "domicile.yaml:2:3  listen.console is not a setting: listen has proxy",
        ),
        ("country: se\ncountry: de", "domicile.yaml:2:1  country stands twice: remove one"),
        ("country:", "domicile.yaml:1:1  country has no value: write a country code"),
        ("country: ''", "domicile.yaml:1:1  country has no value"),
        ("country: [se]", "domicile.yaml:1:10  country takes one plain value"),
        ("country: !!binary c2U=", "domicile.yaml:1:10  country takes one plain value"),
        ("upstream: {tls: none}", "domicile.yaml:1:17  upstream.tls takes names and values"),
        (
            "upstream: {tls: {cert: x}}",
            "domicile.yaml:1:18  upstream.tls.cert is not a setting: upstream.tls has",
        ),
        (
            "trusted_proxies: {a: b}",
            "domicile.yaml:1:18  trusted_proxies takes a list of plain values",
        ),
        (
            "trusted_proxies: [['::1']]",
            "domicile.yaml:1:18  trusted_proxies takes a list of plain values",
        ),
        (
            "trusted_proxies: !!set [a]",
            "domicile.yaml:1:18  trusted_proxies takes a list of plain values",
        ),
        ("applications: crm", "domicile.yaml:1:15  applications takes names and values"),
        ("applications: {crm: 1}", "domicile.yaml:1:21  applications.crm takes names and values"),
        (
            "applications: {crm: {tsl: {ca: x}}}",
            "domicile.yaml:1:22  applications.crm.tsl is not a setting: did you mean",
        ),
        (
            "applications: {crm: {head: [1s]}}",
            "domicile.yaml:1:28  applications.crm.head takes one plain value",
        ),
        ("listen: 127.0.0.1:80", "domicile.yaml:1:9  listen takes names and values"),
        ("listen:", "domicile.yaml:1:8  listen takes names and values"),
        ("- country", "domicile.yaml:1:1  the file takes names and values"),
        ("just words", "domicile.yaml:1:1  the file takes names and values"),
        ("? [a]\n: b", "domicile.yaml:1:3  a name is needed before the colon"),
        ("<<: {country: se}", "domicile.yaml:1:1  << is not a setting"),
        (
            "country: se\n\tdata: x",
            "domicile.yaml:2:1  not YAML: found character '\\t' that cannot start any token; indent with",
        ),
        ("country: se\n---\ncountry: de", "domicile.yaml:2:1  not YAML"),
        ("country: \x00", "domicile.yaml  not YAML: a control character"),
        ("[" * 100_000, "domicile.yaml  nested too deeply"),
        ("country: &a [*a]", "domicile.yaml:1:10  country takes one plain value"),
    ],
)  # fmt: skip
def test_what_is_not_a_plain_setting_is_a_fault_with_its_place(text, fault):
    (only,) = faults(text)
    assert only.startswith(fault)


def test_every_fault_is_told_at_once_in_order():
    found = faults("contry: se\nlisten:\n  prox: a\n  proxy:\nlog: no\n")
    assert [line.split("  ")[0] for line in found] == [
        "domicile.yaml:1:1",
        "domicile.yaml:3:3",
        "domicile.yaml:4:3",
        "domicile.yaml:5:6",
    ]


def test_a_file_in_another_encoding_is_refused_with_its_line():
    document = SettingsDocument("domicile.yaml", "country: se\ndata: /å".encode("latin-1"))
    assert document.faults[0].source == "domicile.yaml:2"
    assert "UTF-8" in document.faults[0].text


def test_a_byte_order_mark_is_no_part_of_the_first_name():
    assert SettingsDocument("domicile.yaml", b"\xef\xbb\xbfcountry: se").faults == []


def test_a_huge_file_is_refused_unread():
    assert (
        "is this the settings file"
        in SettingsDocument("domicile.yaml", b"#" * (LARGEST_FILE + 1)).faults[0].text
    )


def test_a_variable_sets_the_setting_of_its_name():
    given, faults = read_environment({"DOMICILE__LISTEN__PROXY": "0.0.0.0:80", "PATH": "/bin"})
    assert given == {"listen.proxy": GivenSetting("0.0.0.0:80", "DOMICILE__LISTEN__PROXY")}
    assert faults == []


@table("name", SETTINGS)
def test_every_setting_has_a_variable(name):
    given, faults = read_environment({variable(name): "x"})
    assert list(given) == [name]
    assert faults == []


def test_variables_that_an_orchestrator_makes_for_a_service_are_left_alone():
    assert read_environment(
        {"DOMICILE_SERVICE_HOST": "10.0.0.1", "DOMICILE_PORT": "tcp://10.0.0.1:80"}
    ) == ({}, [])


@table(
    ("written", "meant"),
    [("DOMICILE_RULES", "DOMICILE__RULES"), ("DOMICILE_LISTEN_PROXY", "DOMICILE__LISTEN__PROXY")],
)
def test_a_variable_that_lacks_an_underscore_is_a_fault(written, meant):
    given, (fault,) = read_environment({written: "x"})
    assert given == {}
    assert fault.source == written
    assert fault.text.endswith(f"write {meant}")


def test_a_key_may_stand_in_a_variable_of_a_fair_name():
    assert read_environment({"DOMICILE_KEYS": "secret"}) == ({}, [])


@table(
    ("written", "text", "sentence"),
    [
        ("DOMICILE__LISTEN", "x", "set each, such as DOMICILE__LISTEN__PROXY"),
        ("DOMICILE__UPSTREAM__TLS", "x", "set each, such as DOMICILE__UPSTREAM__TLS__CA"),
        (
            "DOMICILE__UPSTREAM__TLS__SNI",
            "x",
            "upstream.tls has ca, certificate, key, verify, server_name",
        ),
        ("DOMICILE__LISTN__PROXY", "x", "did you mean listen.proxy?"),
        ("DOMICILE__listen__proxy", "x", "DOMICILE__LISTEN__PROXY"),
        ("DOMICILE__COUNTRY", "", "the variable is empty"),
        ("DOMICILE__", "x", "is not a setting"),
    ],
)
def test_a_variable_that_sets_nothing_is_a_fault(written, text, sentence):
    given, (fault,) = read_environment({written: text})
    assert given == {}
    assert fault.source == written
    assert sentence in fault.text


def test_the_table_and_the_settings_object_hold_the_same_names():
    members = set(Settings.__dataclass_fields__) - {"worker"}  # the command line says it
    assert set(section_members("")) == members  # applications among them
    for section in SECTIONS:
        kind: Any = Settings
        for name in section.split("."):
            kind = kind.__dataclass_fields__[name].type
        assert set(section_members(section)) == set(kind.__dataclass_fields__)


ALL = ", ".join(sorted({"applications", *(name.partition(".")[0] for name in SETTINGS)}))


@table(
    ("written", "sentence"),
    [
        ("contry", "did you mean country?"),
        ("listen.prox", "did you mean listen.proxy?"),
        ("listn.proxy", "did you mean listen.proxy?"),
        ("level", "did you mean log.level?"),
        (
            "listen.console",
            "listen has proxy, vault, admin, metrics, socket, insecure, tls, proxy_protocol",
        ),
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
