import ssl

import pytest

from proxy.api.connection import VaultConnection
from proxy.auth.audiences import Audiences
from proxy.bootstrap.edge import open_guard
from proxy.bootstrap.network import (
    Listeners,
    address_of,
    check_listeners,
    gateway_options,
    open_listeners,
    upstream_routes,
)
from proxy.clock import system_clock
from proxy.config import Settings, load_settings
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.gateway.metrics import Applications
from proxy.telemetry.metrics import Metrics
from tests.support.certificates import Authority, Pair


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def settings(*pairs: Pair, **more: str) -> Settings:
    environ = {f"DOMICILE__{name}": text for name, text in more.items()}
    if pairs:
        environ["DOMICILE__LISTEN__TLS__CERTIFICATE"] = ",".join(
            str(pair.certificate) for pair in pairs
        )
        environ["DOMICILE__LISTEN__TLS__KEY"] = ",".join(str(pair.key) for pair in pairs)
    return load_settings(None, environ)


def opened(given: Settings) -> tuple[Listeners, Audiences]:
    audiences = Audiences(given.auth.audiences)
    audiences.listening("127.0.0.1:8081")
    return open_listeners(given, audiences, Metrics(), system_clock), audiences


async def test_what_is_off_is_not_made():
    made, audiences = opened(settings())
    assert (made.proxy, made.vault, made.certificates, made.checks(), made.hsts) == (
        None,
        None,
        None,
        {},
        0,
    )
    assert made.vault_connection is VaultConnection
    assert audiences.first == "http://127.0.0.1:8081"
    await made.watch()
    done: list[str] = []
    made.with_files(lambda: done.append("other"))()
    assert done == ["other"]
    made.close()


async def test_a_certificate_is_for_both_listeners_and_names_the_vault(authority):
    made, audiences = opened(
        settings(authority.issue("vault.test"), authority.issue("*.app.test", file="w"))
    )
    assert made.proxy is not None
    assert made.vault is not None
    assert set(made.checks()) == {"tls"}
    assert made.hsts == 180 * 86400
    assert audiences.first == "https://vault.test:8081"
    assert made.certificates is not None
    before = made.certificates.listeners["vault"].context
    made.with_files(lambda: None)()
    assert made.certificates.listeners["vault"].context is not before


def test_preambles_alone_are_an_acceptor_too(authority):
    made, _ = opened(settings(LISTEN__PROXY_PROTOCOL="true", TRUSTED_PROXIES="10.0.0.0/8"))
    assert made.proxy is not None
    assert made.vault is not None
    assert made.certificates is None


@pytest.mark.parametrize("at", ["vault", "proxy", "both"])
def test_callers_show_certificates_where_the_settings_say(authority, at):
    given = settings(
        authority.issue("vault.test"),
        LISTEN__TLS__CLIENTS=str(authority.certificate),
        LISTEN__TLS__CLIENTS_AT=at,
        LISTEN__TLS__REQUIRE_SNI="both",
    )
    made, _ = opened(given)
    assert made.certificates is not None
    asked = {name for name, one in made.certificates.listeners.items() if one.context.verify_mode}
    assert asked == ({"vault", "proxy"} if at == "both" else {at})


@pytest.mark.parametrize(
    ("required", "mode"), [("true", ssl.CERT_REQUIRED), ("false", ssl.CERT_OPTIONAL)]
)
def test_whether_a_caller_may_show_none_is_a_setting(authority, required, mode):
    given = settings(
        authority.issue("vault.test"),
        LISTEN__TLS__CLIENTS=str(authority.certificate),
        LISTEN__TLS__CLIENTS_AT="vault",
        LISTEN__TLS__CLIENTS_REQUIRED=required,
    )
    made, _ = opened(given)
    assert made.certificates is not None
    assert made.certificates.listeners["vault"].context.verify_mode is mode


def test_wildcards_alone_need_addresses_in_the_settings(authority):
    pair = authority.issue("*.vault.test", file="w")
    for refused in (lambda: opened(settings(pair)), lambda: check_listeners(settings(pair))):
        with pytest.raises(VaultError) as caught:
            refused()
        assert caught.value.code is Code.BAD_SETTINGS
        assert caught.value.details[0].source == "auth.audiences"
    _, audiences = opened(settings(pair, AUTH__AUDIENCES="https://se.vault.test"))
    assert audiences.first == "https://se.vault.test"


def test_the_check_names_what_cannot_be_used_and_what_has_ended(authority, tmp_path):
    check_listeners(settings())
    check_listeners(settings(authority.issue("vault.test")))
    for pair in (authority.issue("old.test", days=-1), authority.issue("127.0.0.1")):
        with pytest.raises(VaultError):
            check_listeners(settings(pair))


def test_the_address_of_the_vault_is_that_of_its_certificate(authority):
    assert address_of(settings(), "127.0.0.1:8081") == "http://127.0.0.1:8081"
    assert (
        address_of(settings(authority.issue("vault.test")), "127.0.0.1:443") == "https://vault.test"
    )
    configured = settings(authority.issue("vault.test"), AUTH__AUDIENCES="https://se.example.com")
    assert address_of(configured, "127.0.0.1:443") == "https://se.example.com"


# ---- ways


def test_an_application_of_its_own_differs_where_it_says_so():
    settings = load_settings(
        None, {"DOMICILE__UPSTREAM__CONNECT": "3s", "DOMICILE__APPLICATIONS__CRM__HEAD": "7s"}
    )
    way, special = upstream_routes(settings)
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
    way, _ = upstream_routes(
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
    way, _ = upstream_routes(
        load_settings(None, {"DOMICILE__UPSTREAM__TLS__SERVER_NAME": "crm.example.com"})
    )
    assert way.tls is not None
    assert way.tls.server_name == "crm.example.com"


def test_a_file_for_tls_that_is_not_there_is_a_fault_of_the_settings(tmp_path):
    with pytest.raises(VaultError) as caught:
        upstream_routes(
            load_settings(None, {"DOMICILE__UPSTREAM__TLS__CA": str(tmp_path / "ca.pem")})
        )
    assert caught.value.code is Code.BAD_SETTINGS


def test_ways_that_are_off_are_not_made():
    settings = load_settings(None, {})
    guard = open_guard(settings, Metrics())
    options = gateway_options(
        settings,
        Applications(Metrics(), *upstream_routes(settings)),
        guard,
        None,
        Keyset.create("x").hasher("entity tags"),
    )
    assert (options.caller_fields, options.acceptor, options.firewall) == (None, None, None)
