import ssl

import pytest

from proxy.errors import Code, VaultError
from proxy.web.upstream.client import HttpUpstream
from proxy.web.upstream.limits import Limits
from proxy.web.upstream.port import Address, Call, UpstreamFault
from proxy.web.upstream.tls import client_context
from tests.support.certificates import Authority, Pair
from tests.support.rawserver import OK, RawServer, says


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


async def ask(server: RawServer, context: ssl.SSLContext | None, host: str = "localhost") -> int:
    address = Address("https", host, server.port)
    upstream = HttpUpstream(Limits(connect=2, head=2), {address: context} if context else None)
    try:
        for _ in range(2):
            reply = await upstream.send(Call(address, "POST", b"POST / HTTP/1.1\r\nHost: x\r\n\r\n"))
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
        assert await ask(server, client_context(authority.certificate, client.certificate, client.key)) == 1
        with pytest.raises(UpstreamFault):
            await ask(server, client_context(authority.certificate))


async def test_an_application_that_speaks_no_tls_is_unreachable(authority):
    async with RawServer(says(b"HTTP/1.1 400 Bad Request\r\n\r\n", close=True)) as server:

        async def talks(wire, _):
            await wire.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        server.behaviour = talks
        with pytest.raises(UpstreamFault, match="TLS handshake") as caught:
            await ask(server, client_context(authority.certificate))
        assert caught.value.code is Code.UPSTREAM_UNREACHABLE


@pytest.mark.parametrize("what", ["missing", "rubbish", "foreign key"])
def test_files_that_cannot_be_used_are_one_sentence(authority, tmp_path, what):
    pair = authority.issue("localhost")
    (tmp_path / "rubbish.pem").write_text("no")
    arguments = {
        "missing": {"ca": tmp_path / "none.pem"},
        "rubbish": {"ca": tmp_path / "rubbish.pem"},
        "foreign key": {"certificate": pair.certificate, "key": authority.issue("other.test").key},
    }[what]
    with pytest.raises(VaultError, match="TLS towards the application") as caught:
        client_context(**arguments)
    assert caught.value.code is Code.BAD_SETTINGS


def test_old_versions_are_not_spoken():
    assert client_context().minimum_version is ssl.TLSVersion.TLSv1_2
