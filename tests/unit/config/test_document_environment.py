import pytest

from proxy.config.document import GivenSetting, read_environment, variable
from proxy.config.schema import SETTINGS


def test_a_variable_sets_the_setting_of_its_name():
    given, faults = read_environment({"DOMICILE__LISTEN__PROXY": "0.0.0.0:80", "PATH": "/bin"})
    assert given == {"listen.proxy": GivenSetting("0.0.0.0:80", "DOMICILE__LISTEN__PROXY")}
    assert faults == []


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_has_a_variable(name):
    given, faults = read_environment({variable(name): "x"})
    assert list(given) == [name]
    assert faults == []


def test_variables_that_an_orchestrator_makes_for_a_service_are_left_alone():
    assert read_environment(
        {"DOMICILE_SERVICE_HOST": "10.0.0.1", "DOMICILE_PORT": "tcp://10.0.0.1:80"}
    ) == ({}, [])


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
