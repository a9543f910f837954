"""Which certificate is shown to whom, and what is asked of callers; over real handshakes in memory."""

import os
import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.net.tls import CertificateFiles
from proxy.net.tls_context import TlsPolicy, context, date_faults, read_certificate
from tests.support.certificates import Authority
from tests.support.certificates import Pair as Files
from tests.support.secured import TLS_1_2, TLS_1_3, material_of, trusting
from tests.support.snapshots import two_resumptions


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def shaken(server: ssl.SSLContext, client: ssl.SSLContext, name: str | None):
    """Both ends after a handshake in memory. Raises what the client meets."""
    client.check_hostname = False
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = server.wrap_bio(to_server, to_client, server_side=True)
    there = client.wrap_bio(to_client, to_server, server_hostname=name)
    for _ in range(4):
        for side in (there, here):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                if side is there:
                    raise
    return here, there


def shown(server: ssl.SSLContext, client: ssl.SSLContext, name: str | None) -> Any:
    return shaken(server, client, name)[1].getpeercert()["subjectAltName"][0][1]


@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3])
def test_the_name_that_is_asked_for_decides_which_certificate_is_shown(authority, version):
    pairs = authority.issue("vault.test", "api.vault.test"), authority.issue("*.test", file="wild")
    server = context(material_of(*pairs), TlsPolicy(strict=True))
    client = trusting(authority, version)
    assert shown(server, client, "vault.test") == "vault.test"
    assert shown(server, client, "API.vault.test") == "vault.test"
    assert shown(server, client, "other.test") == "*.test"


@pytest.mark.parametrize(
    "name", ["example.com", "test", "a.b.test", "x.api.vault.test", "vault.test.example.com"]
)
@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3])
def test_a_foreign_name_is_refused_with_its_alert_where_names_are_required(
    authority, version, name
):
    server = context(
        material_of(authority.issue("vault.test"), authority.issue("*.test", file="w")),
        TlsPolicy(strict=True),
    )
    with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized_name|unrecognized name"):
        shaken(server, trusting(authority, version), name)


@pytest.mark.parametrize(
    ("version", "alert"),
    [
        (TLS_1_2, "handshake_failure|handshake failure"),
        (TLS_1_3, "missing_extension|missing extension"),
    ],
)
def test_no_name_is_refused_with_the_alert_that_the_version_has_for_it(authority, version, alert):
    server = context(material_of(authority.issue("vault.test")), TlsPolicy(strict=True))
    with pytest.raises(ssl.SSLError, match=rf"(?i){alert}"):
        shaken(server, trusting(authority, version), None)


def test_where_names_are_not_required_the_first_certificate_is_for_everybody_else(authority):
    pairs = authority.issue("vault.test"), authority.issue("other.test")
    server = context(material_of(*pairs), TlsPolicy(strict=False))
    for name, expected in (
        (None, "vault.test"),
        ("example.com", "vault.test"),
        ("other.test", "other.test"),
    ):
        assert shown(server, trusting(authority), name) == expected


def test_old_versions_weak_ciphers_and_renegotiation_are_not_there(authority):
    server = context(material_of(authority.issue("vault.test")), TlsPolicy(strict=True))
    assert server.minimum_version is TLS_1_2
    assert server.options & ssl.OP_NO_RENEGOTIATION
    assert server.options & ssl.OP_NO_COMPRESSION
    assert {one["protocol"] for one in server.get_ciphers()} == {"TLSv1.2", "TLSv1.3"}
    assert all(one["aead"] for one in server.get_ciphers())
    assert all(
        "ECDHE" in one["name"] or one["protocol"] == "TLSv1.3" for one in server.get_ciphers()
    )
    client = trusting(authority, TLS_1_2)
    client.set_ciphers("AES256-GCM-SHA384:ECDHE-ECDSA-AES256-SHA384")
    with pytest.raises(ssl.SSLError, match=r"(?i)handshake.failure"):
        shaken(server, client, "vault.test")


def test_http_1_1_is_what_is_agreed_on(authority):
    server = context(material_of(authority.issue("vault.test")), TlsPolicy(strict=True))
    client = trusting(authority)
    client.set_alpn_protocols(["h2", "http/1.1"])
    assert shaken(server, client, "vault.test")[1].selected_alpn_protocol() == "http/1.1"


@pytest.mark.parametrize("required", [True, False])
def test_callers_show_a_certificate_of_the_authority_that_is_named(authority, tmp_path, required):
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    terms = TlsPolicy(strict=True, clients=authority.certificate, required=required)
    server = context(
        material_of(authority.issue("vault.test"), clients=authority.certificate), terms
    )

    def meets(own: Files | None) -> Any:
        here, there = shaken(server, trusting(authority, TLS_1_2, own), "vault.test")
        return there.version() and here.getpeercert()

    assert meets(authority.issue("client.test"))["subjectAltName"] == (("DNS", "client.test"),)
    with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
        meets(other.issue("client.test"))
    with pytest.raises(ssl.SSLError, match=r"(?i)expired"):
        meets(authority.issue("client.test", days=-1, file="expired"))
    if required:
        with pytest.raises(ssl.SSLError, match=r"(?i)handshake.failure"):
            meets(None)
    else:
        assert not meets(None)


def test_a_certificate_that_its_authority_has_revoked_is_refused_and_every_one_beside_an_old_list(
    authority,
):
    good, bad = authority.issue("good.test"), authority.issue("bad.test")
    pairs = authority.issue("vault.test"), authority.issue("other.test")
    for days, names in ((1, ("vault.test", "other.test")), (-1, ("vault.test",))):
        terms = TlsPolicy(True, authority.certificate, crl=authority.revoke(bad, days=days))
        material = material_of(*pairs, clients=authority.certificate, crl=terms.crl)
        server = context(material, terms)
        for name in names:
            for own in (good, bad):
                client = trusting(authority, TLS_1_2, own)
                if days < 0 or own is bad:
                    with pytest.raises(ssl.SSLError, match=r"(?i)expired|revoked"):
                        shaken(server, client, name)
                else:
                    assert shown(server, client, name)
        assert len(date_faults(material, datetime.now(UTC))) == (days < 0)


# ------------------------------------------------ files that cannot be used


def faults(*pairs: CertificateFiles, clients=None, crl=None):
    with pytest.raises(VaultError) as caught:
        read_certificate(pairs, clients, crl)
    assert caught.value.code is Code.BAD_SETTINGS
    return [(one.source, one.text) for one in caught.value.details]


def test_each_file_that_cannot_be_used_is_named_with_what_to_do(authority, tmp_path):
    good, other = authority.issue("vault.test"), authority.issue("other.test")
    locked, empty, nameless = (
        tmp_path / "locked.key",
        tmp_path / "empty.pem",
        authority.issue("127.0.0.1"),
    )
    authority.lock(good, locked)
    empty.write_text("nothing")
    for pair, words in (
        (CertificateFiles(tmp_path / "no.pem", None), "cannot be read (No such file or directory)"),
        (
            CertificateFiles(good.certificate, tmp_path / "no.key"),
            "cannot be read (No such file or directory)",
        ),
        (CertificateFiles(empty, good.key), "holds no certificate"),
        (CertificateFiles(good.certificate, empty), "no key stands in it"),
        (CertificateFiles(good.certificate, None), "no key stands in it"),
        (CertificateFiles(good.certificate, other.key), "does not belong to its key"),
        (CertificateFiles(good.certificate, locked), "encrypted key"),
        (CertificateFiles(nameless.certificate, nameless.key), "names no host"),
    ):
        ((source, text),) = faults(pair)
        assert source == "listen.tls.certificate"
        assert words in text
    both = CertificateFiles(good.certificate, good.key), CertificateFiles(empty, None)
    assert faults(*both)[0][0] == "listen.tls.certificate, item 2"
    assert faults(both[0], clients=empty) == [
        ("listen.tls.clients", f"{empty} holds no certificate in the PEM format")
    ]
    for crl, words in ((empty, "no revocation list"), (tmp_path / "no.crl", "cannot be read")):
        ((source, text),) = faults(both[0], clients=authority.certificate, crl=crl)
        assert (source, words in text) == ("listen.tls.clients_crl", True)


def test_key_and_certificate_may_stand_in_one_file(authority, tmp_path):
    pair = authority.issue("vault.test")
    joined = tmp_path / "joined.pem"
    joined.touch(0o600)
    joined.write_bytes(pair.key.read_bytes() + pair.certificate.read_bytes())
    assert read_certificate([CertificateFiles(joined, None)]).names() == ("vault.test",)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o640, 0o660, 0o602])
def test_a_key_that_others_may_read_or_write_is_refused_as_the_key_file_is(authority, mode):
    pair = authority.issue("vault.test")
    pair.key.chmod(mode)
    ((source, text),) = faults(CertificateFiles(pair.certificate, pair.key))
    assert source == "listen.tls.certificate"
    assert text.startswith(f"{pair.key} is open to others (mode {mode:04o}): run `chmod 600 ")
    assert "defaultMode: 0400" in text
    for good in (0o600, 0o400):
        pair.key.chmod(good)
        assert read_certificate([CertificateFiles(pair.certificate, pair.key)]).names() == (
            "vault.test",
        )


def test_a_key_that_kubernetes_mounts_for_the_group_of_the_pod_is_good(
    tmp_path, monkeypatch, unavailable
):
    """A secret's file belongs to root, and fsGroup gives it to a group that the process is in."""
    pair = Authority(tmp_path).issue("vault.test")
    pair.key.chmod(0o440)
    owner = pair.key.stat()
    monkeypatch.setattr(os, "geteuid", lambda: owner.st_uid + 10001)
    monkeypatch.setattr(os, "getegid", lambda: 10001)
    monkeypatch.setattr(os, "getgroups", lambda: [owner.st_gid])
    if owner.st_uid == 0:
        assert read_certificate([CertificateFiles(pair.certificate, pair.key)]).names() == (
            "vault.test",
        )
    else:
        unavailable.partly("a key of root that its group may read", "root alone makes such a file")
    monkeypatch.setattr(os, "getgroups", lambda: [owner.st_gid + 1])
    ((_, text),) = faults(CertificateFiles(pair.certificate, pair.key))
    assert "is open to others (mode 0440)" in text or "belongs to another user" in text


def test_a_certificate_that_is_never_shown_is_a_fault(authority):
    one, two = authority.issue("vault.test", "b.test"), authority.issue("b.test")
    ((source, text),) = faults(
        CertificateFiles(one.certificate, one.key), CertificateFiles(two.certificate, two.key)
    )
    assert source == "listen.tls.certificate, item 2"
    assert "never shown" in text


def test_certificates_outside_their_time_are_told(authority):
    held = material_of(authority.issue("vault.test"), authority.issue("old.test", days=-1))
    (fault,) = date_faults(held, datetime.now(UTC))
    assert fault.source == "listen.tls.certificate, item 2"
    assert "ended at" in fault.text
    assert "begins at" in date_faults(held, datetime.now(UTC) - timedelta(days=20))[0].text


def test_two_resumptions_of_one_snapshot_shake_hands_with_other_keys(authority, unavailable):
    pair = authority.issue("localhost")
    for side in ("client", "server"):
        first, second = two_resumptions(
            f"""
            import ssl
            from pathlib import Path
            from proxy.net import tls, tls_context
            pair = tls.CertificateFiles(Path({str(pair.certificate)!r}), Path({str(pair.key)!r}))
            terms = tls_context.TlsPolicy(strict=False)
            serving = tls_context.context(tls_context.read_certificate([pair]), terms)
            asking = tls.client_context(verify=False)
            asking.set_ecdh_curve("prime256v1")  # else the server asks for another hello
            def spoken(context, heard, server):
                incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
                incoming.write(heard)
                try:
                    context.wrap_bio(incoming, outgoing, server).do_handshake()
                except ssl.SSLWantReadError:
                    return outgoing.read()
            hello = spoken(asking, b"", False)
            def work():
                message = spoken(asking, b"", False) if "{side}" == "client" else spoken(serving, hello, True)
                return message[11:43]  # random (RFC 8446 section 4.1.2)
            """,
            unavailable,
        )
        assert len(first) == 32
        assert first != second, side
