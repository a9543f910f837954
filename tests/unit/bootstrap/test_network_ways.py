import pytest

from proxy.bootstrap.edge import open_guard
from proxy.bootstrap.network import gateway_options, ways
from proxy.config import load_settings
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.gateway.metrics import Applications
from proxy.telemetry.metrics import Metrics


def test_an_application_of_its_own_differs_where_it_says_so():
    settings = load_settings(
        None, {"DOMICILE__UPSTREAM__CONNECT": "3s", "DOMICILE__APPLICATIONS__CRM__HEAD": "7s"}
    )
    way, special = ways(settings)
    assert (way.limits.connect, way.limits.head, way.tls) == (3.0, 60.0, None)
    assert (special["crm"].limits.connect, special["crm"].limits.head) == (3.0, 7.0)


def test_each_wait_and_bound_is_that_of_its_setting():
    told = {
        "CONNECT": "1s",
        "HEAD": "2s",
        "IDLE": "3s",
        "TOTAL": "4s",
        "KEEP": "5s",
        "CONNECTIONS": "6",
        "QUEUE": "7",
    }
    way, _ = ways(
        load_settings(None, {f"DOMICILE__UPSTREAM__{name}": text for name, text in told.items()})
    )
    limits = way.limits
    assert (limits.connect, limits.head, limits.idle, limits.total, limits.keep) == (
        1.0,
        2.0,
        3.0,
        4.0,
        5.0,
    )
    assert (limits.connections, limits.queue) == (6, 7)


def test_a_name_of_the_certificate_is_asked_for():
    way, _ = ways(load_settings(None, {"DOMICILE__UPSTREAM__TLS__SERVER_NAME": "crm.example.com"}))
    assert way.tls is not None
    assert way.tls.server_name == "crm.example.com"


def test_a_file_for_tls_that_is_not_there_is_a_fault_of_the_settings(tmp_path):
    with pytest.raises(VaultError) as caught:
        ways(load_settings(None, {"DOMICILE__UPSTREAM__TLS__CA": str(tmp_path / "ca.pem")}))
    assert caught.value.code is Code.BAD_SETTINGS


def test_what_is_off_is_not_made():
    settings = load_settings(None, {})
    guard = open_guard(settings, Metrics())
    options = gateway_options(
        settings, Applications(Metrics(), *ways(settings)), guard, None, Keyset.create("x")
    )
    assert (options.telling, options.entrance, options.firewall) == (None, None, None)
