from pathlib import Path

import pytest

from proxy.config import ListenAddress, load_settings
from proxy.errors import Code, VaultError


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Each test in a folder of its own, without a settings file."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(file: Path | None, environ: dict[str, str]) -> list[str]:
    with pytest.raises(VaultError) as caught:
        load_settings(file, environ)
    assert caught.value.code is Code.BAD_SETTINGS
    return [f"{source}  {text}" for source, text in caught.value.details]


def test_without_file_and_variables_the_defaults_hold(elsewhere):
    settings = load_settings(None, {})
    assert settings.country == ""
    assert settings.data == elsewhere / "data"
    assert settings.store.file == elsewhere / "data" / "vault.db"
    assert settings.keys.locator == str(elsewhere / "data" / "keys.json")
    assert settings.rules == elsewhere / "rules"
    assert settings.listen.proxy == ListenAddress("127.0.0.1", 8080)
    assert settings.listen.vault == ListenAddress("127.0.0.1", 8081)
    assert settings.listen.admin == ListenAddress("127.0.0.1", 8082)
    assert settings.listen.insecure == frozenset()
    assert settings.pending.keep == 7 * 86_400_000
    assert (settings.log.level, settings.log.format) == ("info", "auto")
    assert settings.limits.held == 256 * 2**20
    assert (settings.limits.body, settings.limits.batch, settings.limits.find) == (
        4 * 2**20,
        100,
        1000,
    )
    assert settings.models.on_existing == "refuse"
    assert (settings.history.keep, settings.history.keep_deleted) == (30 * 86_400_000, False)
    assert (settings.upstream.connect, settings.upstream.total, settings.upstream.connections) == (
        5_000,
        0,
        256,
    )


def test_the_file_of_the_current_folder_is_read_where_present(elsewhere):
    (elsewhere / "domicile.yaml").write_text("country: de\n")
    assert load_settings(None, {}).country == "de"


def test_a_named_file_is_read_instead_of_it(elsewhere):
    (elsewhere / "domicile.yaml").write_text("country: de\n")
    other = elsewhere / "other.yaml"
    other.write_text("country: fr\n")
    assert load_settings(other, {}).country == "fr"


def test_the_environment_counts_before_the_file(elsewhere):
    (elsewhere / "domicile.yaml").write_text("country: de\nlog: {level: debug}\n")
    settings = load_settings(None, {"DOMICILE__COUNTRY": "fr"})
    assert (settings.country, settings.log.level) == ("fr", "debug")


def test_a_data_folder_that_moves_takes_store_and_keys_with_it():
    settings = load_settings(None, {"DOMICILE__DATA": "/srv/d"})
    assert settings.store.file == Path("/srv/d/vault.db")
    assert settings.keys.locator == "/srv/d/keys.json"


def test_every_fault_of_file_and_environment_is_told_at_once(elsewhere):
    (elsewhere / "domicile.yaml").write_text("contry: se\nlog:\n  level: loud\n")
    lines = refused(None, {"DOMICILE__PENDING__KEEP": "forever", "DOMICILE__RULEZ": "x"})
    assert [line.split("  ")[0] for line in lines] == [
        "domicile.yaml:1:1",
        "domicile.yaml:3:10",
        "DOMICILE__RULEZ",
        "DOMICILE__PENDING__KEEP",
    ]
    assert lines[3].endswith("write a number and a unit, such as 7d")


def test_the_message_counts_the_faults():
    with pytest.raises(VaultError, match="have 2 faults"):
        load_settings(None, {"DOMICILE__A": "x", "DOMICILE__B": "x"})
    with pytest.raises(VaultError, match="have one fault"):
        load_settings(None, {"DOMICILE__A": "x"})


def test_a_faulty_data_folder_is_told_once(elsewhere):
    (line,) = refused(None, {"DOMICILE__DATA": "~/d"})
    assert line.startswith("DOMICILE__DATA  data: ~ is not understood here")


@pytest.mark.parametrize(
    "environ", [{"DOMICILE__STORE": "sqlite:///{dat}/vault.db"}, {"DOMICILE__DATA": "/srv/{data}"}]
)
def test_an_unknown_placeholder_is_refused(environ):
    (line,) = refused(None, environ)
    assert "may stand in braces" in line


def test_references_stand_where_a_setting_takes_them_and_are_not_resolved_yet():
    address = "s3://bucket/x?access_key=${env:NO_SUCH}&secret_key=${file:/run/s3}"
    assert load_settings(None, {"DOMICILE__FILES": address}).files.uri == address
    (line,) = refused(None, {"DOMICILE__FILES": "s3://bucket/${host:x}"})
    assert "may stand in braces" in line
    (line,) = refused(None, {"DOMICILE__DATA": "/srv/${env:NO_SUCH}"})
    assert "may stand in braces" in line


@pytest.mark.parametrize("name", ["proxy", "vault", "admin"])
def test_plain_http_beyond_loopback_needs_a_word(name):
    environ = {f"DOMICILE__LISTEN__{name.upper()}": "0.0.0.0:9000"}
    (line,) = refused(None, environ)
    assert f"insecure: [{name}]" in line
    for word in ("true", name, f"[{name}]"):
        settings = load_settings(None, environ | {"DOMICILE__LISTEN__INSECURE": word})
        assert name in settings.listen.insecure


@pytest.mark.parametrize("name", ["proxy", "vault", "admin"])
def test_the_word_for_one_listener_lets_no_other_speak_in_the_clear(name):
    everywhere = {
        f"DOMICILE__LISTEN__{one.upper()}": f"0.0.0.0:{9000 + number}"
        for number, one in enumerate(("proxy", "vault", "admin"))
    }
    lines = refused(None, everywhere | {"DOMICILE__LISTEN__INSECURE": f"[{name}]"})
    assert sorted(line.split()[1] for line in lines) == sorted(
        f"listen.{one}" for one in ("proxy", "vault", "admin") if one != name
    )
    load_settings(None, everywhere | {"DOMICILE__LISTEN__INSECURE": "true"})  # as ever


def test_a_certificate_of_the_vault_alone_leaves_the_proxy_in_the_clear():
    secured = {
        "DOMICILE__LISTEN__PROXY": "0.0.0.0:8080",
        "DOMICILE__LISTEN__VAULT": "0.0.0.0:8081",
        "DOMICILE__LISTEN__TLS__CERTIFICATE": "/tls/tls.crt",
    }
    assert load_settings(None, secured).listen.tls.secures("proxy")
    (line,) = refused(None, secured | {"DOMICILE__LISTEN__TLS__AT": "vault"})
    assert "listen.proxy can be reached" in line
    listen = load_settings(
        None,
        secured | {"DOMICILE__LISTEN__TLS__AT": "vault", "DOMICILE__LISTEN__INSECURE": "proxy"},
    ).listen
    assert [listen.tls.secures(name) for name in ("proxy", "vault", "admin")] == [
        False,
        True,
        False,
    ]
    (line,) = refused(
        None,
        secured
        | {
            "DOMICILE__LISTEN__TLS__AT": "proxy",
            "DOMICILE__LISTEN__INSECURE": "vault",
            "DOMICILE__LISTEN__TLS__CLIENTS": "/tls/ca.crt",
        },
    )
    assert "clients_at is vault and listen.tls.at is proxy" in line
    (line,) = refused(None, secured | {"DOMICILE__LISTEN__TLS__CLIENTS_CRL": "/tls/ca.crl"})
    assert "does nothing without listen.tls.clients" in line


def test_an_unreadable_word_for_insecure_is_one_fault_not_two():
    (line,) = refused(
        None, {"DOMICILE__LISTEN__PROXY": "0.0.0.0:9000", "DOMICILE__LISTEN__INSECURE": "yes"}
    )
    assert "item 1 is not known here; write a list of listeners, such as [proxy, admin]" in line


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("proxy", 8081), ("proxy", 8082), ("vault", 8080), ("vault", 8082), ("admin", 8080),
        ("admin", 8081),
    ],
)  # fmt: skip
def test_two_listeners_at_one_address_are_refused(name, other):
    (line,) = refused(None, {f"DOMICILE__LISTEN__{name.upper()}": f"127.0.0.1:{other}"})
    assert "give each its own port" in line


def test_two_listeners_may_both_let_the_machine_choose():
    settings = load_settings(
        None, {"DOMICILE__LISTEN__PROXY": "127.0.0.1:0", "DOMICILE__LISTEN__ADMIN": "127.0.0.1:0"}
    )
    assert settings.listen.proxy == settings.listen.admin


def test_a_named_file_that_is_missing_or_a_folder_is_a_fault(elsewhere):
    assert "no such file" in refused(elsewhere / "none.yaml", {})[0]
    assert "folder" in refused(elsewhere, {})[0]


def test_a_file_that_cannot_be_read_is_a_fault_with_its_reason(elsewhere, monkeypatch):
    (elsewhere / "domicile.yaml").write_text("country: de\n")

    def denied(_path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", denied)
    assert (
        refused(None, {})[0]
        == "domicile.yaml  cannot be read (Permission denied): let this user read it"
    )


def test_sections_inside_sections_are_read_from_file_and_environment(elsewhere):
    (elsewhere / "domicile.yaml").write_text(
        "trusted_proxies: [10.0.0.0/8, '::1']\n"
        "forwarding: {via: true, host: upstream}\n"
        "upstream:\n  breaker: {failures: 3}\n  tls: {ca: ca.pem}\n"
    )
    settings = load_settings(None, {"DOMICILE__UPSTREAM__BREAKER__PAUSE": "7s"})
    assert [str(network) for network in settings.trusted_proxies] == ["10.0.0.0/8", "::1/128"]
    assert (settings.forwarding.via, settings.forwarding.host, settings.forwarding.x_forwarded) == (
        True,
        "upstream",
        False,
    )
    assert (settings.upstream.breaker.failures, settings.upstream.breaker.pause) == (3, 7_000)
    assert (settings.upstream.tls.ca, settings.upstream.tls.certificate) == (
        elsewhere / "ca.pem",
        None,
    )


def test_nothing_is_added_to_requests_and_nobody_is_trusted_by_default():
    settings = load_settings(None, {})
    forwarding = settings.forwarding
    assert (forwarding.host, forwarding.x_forwarded, forwarding.forwarded, forwarding.via) == (
        "keep",
        False,
        False,
        False,
    )
    assert (settings.trusted_proxies, settings.listen.proxy_protocol) == ((), False)


def test_the_proxy_protocol_needs_somebody_to_take_it_from():
    (line,) = refused(None, {"DOMICILE__LISTEN__PROXY_PROTOCOL": "true"})
    assert line.startswith("DOMICILE__LISTEN__PROXY_PROTOCOL  ")
    assert "trusted_proxies" in line
    environ = {"DOMICILE__LISTEN__PROXY_PROTOCOL": "true", "DOMICILE__TRUSTED_PROXIES": "127.0.0.1"}
    assert load_settings(None, environ).listen.proxy_protocol


def test_a_key_without_its_certificate_is_refused(elsewhere):
    (elsewhere / "domicile.yaml").write_text("upstream:\n  tls:\n    key: client.key\n")
    (line,) = refused(None, {})
    assert line.startswith("domicile.yaml:3:10  upstream.tls.key belongs to a certificate")
    (line,) = refused(None, {"DOMICILE__UPSTREAM__TLS__CERTIFICATE": "~/c.pem"})
    assert "upstream.tls.certificate: ~ is not understood" in line


def test_an_application_may_have_settings_of_its_own_and_shares_the_others(elsewhere):
    (elsewhere / "domicile.yaml").write_text(
        "upstream: {head: 9s, tls: {ca: all.pem}}\napplications:\n  crm:\n    connections: 3\n   "
        " tls: {server_name: crm.test}\n"
    )
    settings = load_settings(None, {"DOMICILE__APPLICATIONS__ERP_2__BREAKER__PAUSE": "7s"})
    assert set(settings.applications) == {"crm", "erp_2"}
    crm, erp = settings.applications["crm"], settings.applications["erp_2"]
    assert (crm.connections, crm.head, crm.tls.ca, crm.tls.server_name) == (
        3,
        9_000,
        elsewhere / "all.pem",
        "crm.test",
    )
    assert (erp.connections, erp.head, erp.breaker.pause, erp.tls.server_name) == (
        256,
        9_000,
        7_000,
        None,
    )
    assert (settings.upstream.connections, settings.upstream.breaker.pause) == (256, 2_000)


def test_faults_in_the_settings_of_an_application_are_told_with_their_places(elsewhere):
    (elsewhere / "domicile.yaml").write_text(
        "upstream: {tls: {verify: false}}\napplications:\n  crm: {head: soon}\n  erp: {tls: {ca: "
        "a.pem, key: k.pem}}\n"
    )
    lines = refused(
        None, {"DOMICILE__APPLICATIONS__CRM__HAED": "1s", "DOMICILE__APPLICATIONS__CRM": "x"}
    )
    number = (
        "this is not a number followed by ms, s, m, h or d; write a number and a unit, such as 60s"
    )
    pair = "belongs to a certificate: name its file with applications.erp.tls.certificate"
    alone = "is not asked where applications.erp.tls.verify is false: remove one of the two"
    assert lines == [
        f"domicile.yaml:3:15  applications.crm.head: {number}",
        f"domicile.yaml:4:19  applications.erp.tls.ca {alone}",
        f"domicile.yaml:4:31  applications.erp.tls.key {pair}",
        (
            "DOMICILE__APPLICATIONS__CRM  applications.crm has members: set each, such as "
            "DOMICILE__APPLICATIONS__NAME__CONNECT"
        ),
        (
            "DOMICILE__APPLICATIONS__CRM__HAED  applications.crm.haed is not a setting: did you mean "
            "applications.crm.head?"
        ),
    ]


def faults_of(environ: dict[str, str]) -> list[str]:
    with pytest.raises(VaultError) as caught:
        load_settings(None, environ)
    return [one.text for one in caught.value.details]


def test_a_certificate_opens_proxy_and_vault_to_other_machines_and_never_the_admin_listener():
    names = ("DOMICILE__LISTEN__PROXY", "DOMICILE__LISTEN__VAULT", "DOMICILE__LISTEN__ADMIN")
    environ = {name: f"0.0.0.0:{8080 + number}" for number, name in enumerate(names)}
    assert len(faults_of(environ)) == 3
    assert "listen.tls.certificate" in faults_of(environ)[0]
    (text,) = faults_of(environ | {"DOMICILE__LISTEN__TLS__CERTIFICATE": "vault.pem"})
    assert text.startswith("listen.admin")
    assert "listen.tls" not in text


def test_certificates_and_keys_are_lists_of_the_same_length():
    environ = {
        "DOMICILE__LISTEN__TLS__CERTIFICATE": "a.pem, b.pem",
        "DOMICILE__LISTEN__TLS__KEY": "a.key,b.key",
    }
    tls = load_settings(None, environ).listen.tls
    assert tls.certificate == (Path("a.pem").absolute(), Path("b.pem").absolute())
    assert len(tls.key) == 2
    assert load_settings(None, {"DOMICILE__LISTEN__TLS__CERTIFICATE": "a.pem"}).listen.tls.key == ()
    assert "one key for each" in faults_of(environ | {"DOMICILE__LISTEN__TLS__KEY": "a.key"})[0]


@pytest.mark.parametrize("name", ["KEY", "CLIENTS"])
def test_what_does_nothing_without_a_certificate_is_a_fault(name):
    assert (
        "does nothing without a certificate"
        in faults_of({f"DOMICILE__LISTEN__TLS__{name}": "a.pem"})[0]
    )


def test_a_listener_for_scrapers_alone_follows_the_rules_of_the_others(elsewhere):
    assert load_settings(None, {}).listen.metrics is None
    settings = load_settings(
        None,
        {
            "DOMICILE__LISTEN__METRICS": "0.0.0.0:8083",
            "DOMICILE__LISTEN__INSECURE": "[metrics]",
        },
    )
    assert settings.listen.metrics == ListenAddress("0.0.0.0", 8083)
    (line,) = refused(None, {"DOMICILE__LISTEN__METRICS": "0.0.0.0:8083"})
    assert "insecure: [metrics]" in line
    (line,) = refused(None, {"DOMICILE__LISTEN__METRICS": "127.0.0.1:8082"})
    assert "are the same" in line


def test_spans_go_to_an_address(elsewhere):
    settings = load_settings(
        None, {"DOMICILE__TRACING__ENDPOINT": "http://collector:4318/v1/traces"}
    )
    assert settings.tracing.endpoint == "http://collector:4318/v1/traces"
    for text in ("collector:4318", "ftp://collector", "http://user@collector/", "http://a b"):
        (line,) = refused(None, {"DOMICILE__TRACING__ENDPOINT": text})
        assert "tracing.endpoint" in line
