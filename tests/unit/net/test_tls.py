import ssl

import pytest

from proxy.errors import Code, VaultError
from proxy.net.client import HttpUpstream
from proxy.net.pool import Pool
from proxy.net.reply import Call, CallLimits, UpstreamAddress, UpstreamFault
from proxy.net.tls import ClientTls, client_context
from tests.support.certificates import Authority, Pair
from tests.support.rawserver import OK, RawServer, says, silent

#: How an application shuts the door on a client certificate: by an alert, which a reset may
#: overtake.
SHUT = {Code.UPSTREAM_UNREACHABLE, Code.UPSTREAM_BROKEN}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


def serving(pair: Pair, authority: Authority | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    if authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.certificate)
    return context


async def ask(
    server: RawServer,
    context: ssl.SSLContext | None,
    host: str = "localhost",
    name: str | None = None,
) -> int:
    address = UpstreamAddress("https", host, server.port)
    upstream = HttpUpstream(
        CallLimits(connect=2, head=2), ClientTls(context, name) if context else None
    )
    try:
        for _ in range(2):
            reply = await upstream.send(
                Call(address, "POST", b"POST / HTTP/1.1\r\nHost: x\r\n\r\n")
            )
            assert reply.whole == b"ok"
        return len(server.wires)
    finally:
        upstream.close()


async def test_a_trusted_application_is_talked_to_and_its_connection_kept(authority):
    context = serving(authority.issue("localhost"))
    asked = []
    context.sni_callback = lambda _ssl, name, _context: asked.append(name)
    async with RawServer(says(OK), tls=context) as server:
        assert await ask(server, client_context(authority.certificate)) == 1
    assert asked == ["localhost"]


async def test_an_application_of_another_authority_is_refused_by_default(authority):
    async with RawServer(says(OK), tls=serving(authority.issue("localhost"))) as server:
        with pytest.raises(UpstreamFault, match="not trusted") as caught:
            await ask(server, None)
        assert (caught.value.code, caught.value.sent) == (Code.UPSTREAM_UNREACHABLE, False)
        before = len(server.wires)
        assert await ask(server, client_context(verify=False)) == before + 1


async def test_a_certificate_of_another_name_is_refused(authority):
    async with RawServer(says(OK), tls=serving(authority.issue("other.test"))) as server:
        with pytest.raises(UpstreamFault, match="not trusted"):
            await ask(server, client_context(authority.certificate))


async def test_an_address_may_be_named_in_a_certificate(authority):
    async with RawServer(says(OK), tls=serving(authority.issue("127.0.0.1"))) as server:
        assert await ask(server, client_context(authority.certificate), "127.0.0.1") == 1


async def test_a_client_certificate_is_shown(authority):
    client = authority.issue("client.test")
    async with RawServer(says(OK), tls=serving(authority.issue("localhost"), authority)) as server:
        assert (
            await ask(server, client_context(authority.certificate, client.certificate, client.key))
            == 1
        )
        with pytest.raises(UpstreamFault, match="ask for a client certificate") as caught:
            await ask(server, client_context(authority.certificate))
        assert caught.value.code in SHUT
        assert server.requests[2:] == []


async def test_an_alert_of_the_application_is_a_failure_of_tls(authority):
    async with RawServer(silent(), tls=serving(authority.issue("localhost"))) as server:
        address = UpstreamAddress("https", "localhost", server.port)
        pool = Pool(address, CallLimits(), ClientTls(client_context(authority.certificate)))
        connection = await pool.fresh()
        answer = connection.begin(Call(address, "POST", b"POST / HTTP/1.1\r\nHost: x\r\n\r\n"))
        connection.connection_lost(ssl.SSLError(1, "alert certificate required"))
        with pytest.raises(UpstreamFault, match="client certificate") as caught:
            await answer
        assert (caught.value.code, caught.value.sent) == (Code.UPSTREAM_UNREACHABLE, True)
        pool.close()


async def test_a_foreign_client_certificate_is_refused_by_the_application(authority, tmp_path):
    client = Authority(tmp_path).issue("client.test")
    async with RawServer(says(OK), tls=serving(authority.issue("localhost"), authority)) as server:
        with pytest.raises(UpstreamFault) as caught:
            await ask(server, client_context(authority.certificate, client.certificate, client.key))
        assert caught.value.code in SHUT
        assert server.requests == []


async def test_a_certificate_that_has_expired_is_refused(authority):
    pair = authority.issue("localhost", days=-1)
    async with RawServer(says(OK), tls=serving(pair)) as server:
        with pytest.raises(UpstreamFault, match="not trusted") as caught:
            await ask(server, client_context(authority.certificate))
        assert (caught.value.code, caught.value.sent) == (Code.UPSTREAM_UNREACHABLE, False)


async def test_another_name_may_be_asked_for_and_verified(authority):
    context = serving(authority.issue("crm.test"))
    asked = []
    context.sni_callback = lambda _ssl, name, _context: asked.append(name)
    async with RawServer(says(OK), tls=context) as server:
        assert (
            await ask(server, client_context(authority.certificate), "127.0.0.1", "crm.test") == 1
        )
        with pytest.raises(UpstreamFault, match="not trusted"):
            await ask(server, client_context(authority.certificate), "127.0.0.1", "erp.test")
    assert asked == ["crm.test", "erp.test"]


async def test_a_handshake_that_nobody_answers_ends_in_time(authority):
    async with RawServer(silent()) as server:
        upstream = HttpUpstream(
            CallLimits(connect=0.2), ClientTls(client_context(authority.certificate))
        )
        with pytest.raises(UpstreamFault) as caught:
            await upstream.send(
                Call(
                    UpstreamAddress("https", "localhost", server.port),
                    "GET",
                    b"GET / HTTP/1.1\r\n\r\n",
                )
            )
        assert (caught.value.code, caught.value.sent) == (Code.UPSTREAM_TIMEOUT, False)
        upstream.close()


async def test_an_application_that_speaks_no_tls_is_unreachable(authority):
    async with RawServer(says(b"HTTP/1.1 400 Bad Request\r\n\r\n", close=True)) as server:

        async def talks(wire, _):
            await wire.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        server.behaviour = talks
        with pytest.raises(UpstreamFault, match="TLS handshake") as caught:
            await ask(server, client_context(authority.certificate))
        assert caught.value.code is Code.UPSTREAM_UNREACHABLE


@pytest.mark.parametrize(
    ("what", "setting", "sentence"),
    [
        ("no ca", "ca", "cannot be read (No such file or directory)"),
        ("rubbish ca", "ca", "holds no certificate"),
        ("no certificate", "certificate", "cannot be read"),
        ("a folder", "key", "cannot be read (Is a directory)"),
        ("rubbish", "certificate", "not in the PEM format"),
        ("foreign key", "certificate", "does not belong to the key"),
        ("locked key", "certificate", "has an encrypted key"),
        ("no key", "certificate", "holds no certificate or no key"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_setting(
    authority, tmp_path, what, setting, sentence
):
    pair, other = authority.issue("localhost"), authority.issue("other.test")
    rubbish, locked = tmp_path / "rubbish.pem", tmp_path / "locked.key"
    rubbish.write_text("no")
    authority.lock(pair, locked)
    arguments = {
        "no ca": {"ca": tmp_path / "none.pem"},
        "rubbish ca": {"ca": rubbish},
        "no certificate": {"certificate": tmp_path / "none.pem"},
        "a folder": {"certificate": pair.certificate, "key": tmp_path},
        "rubbish": {"certificate": rubbish, "key": pair.key},
        "foreign key": {"certificate": pair.certificate, "key": other.key},
        "locked key": {"certificate": pair.certificate, "key": locked},
        "no key": {"certificate": pair.certificate},
    }[what]
    with pytest.raises(VaultError, match="TLS towards the application") as caught:
        client_context(**arguments)
    assert caught.value.code is Code.BAD_SETTINGS
    (fault,) = caught.value.details
    assert fault.source == f"upstream.tls.{setting}"
    assert sentence in fault.text
    assert str(arguments[setting]) in fault.text


def test_every_file_that_cannot_be_read_is_told_at_once(tmp_path):
    with pytest.raises(VaultError) as caught:
        client_context(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    assert [fault.source for fault in caught.value.details] == [
        f"upstream.tls.{name}" for name in ("ca", "certificate", "key")
    ]


def test_a_certificate_may_stand_in_one_file_with_its_key(authority, tmp_path):
    pair = authority.issue("localhost")
    both = tmp_path / "both.pem"
    both.touch(0o600)
    both.write_bytes(pair.certificate.read_bytes() + pair.key.read_bytes())
    assert client_context(authority.certificate, both).verify_mode is ssl.CERT_REQUIRED


def test_a_key_that_others_may_read_is_refused(authority, tmp_path):
    pair = authority.issue("localhost")
    both = tmp_path / "both.pem"
    both.write_bytes(pair.certificate.read_bytes() + pair.key.read_bytes())
    for name, file, key in (("certificate", both, None), ("key", pair.certificate, pair.key)):
        (key or file).chmod(0o644)
        with pytest.raises(VaultError) as caught:
            client_context(authority.certificate, file, key)
        (fault,) = caught.value.details
        assert fault.source == f"upstream.tls.{name}"
        assert f"{key or file} is open to others (mode 0644): run `chmod 600 " in fault.text
        (key or file).chmod(0o600)
        client_context(authority.certificate, file, key)


def test_old_versions_are_not_spoken():
    assert client_context().minimum_version is ssl.TLSVersion.TLSv1_2
