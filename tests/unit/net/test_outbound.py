"""What every request of our own has in common, and what two clients make of it, over real servers."""

import asyncio
import base64
import gzip
import ipaddress
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from proxy.errors import Code, VaultError
from proxy.net.outbound import (
    NO_EGRESS,
    AclClient,
    EgressPolicy,
    IssuerClient,
    Outbound,
    UnansweredError,
)
from proxy.net.tls import client_context, machine_context
from tests.support.certificates import Authority
from tests.support.patience import PATIENCE
from tests.support.rawserver import Behaviour, RawServer, closes, once_then_closes, says, silent
from tests.support.table import table


async def test_an_answer_comes_back_as_it_is():
    async with (
        RawServer(says(whole())) as server,
        Outbound(PATIENCE, machine_context()) as outbound,
    ):
        assert await outbound.ask("GET", server.url + "/x", {"X-A": "b"}) == BODY
    assert (server.requests[0].start, dict(server.requests[0].fields)[b"X-A"]) == (
        b"GET /x HTTP/1.1",
        b"b",
    )


async def test_what_was_wrong_is_told_and_never_what_was_said():
    async with RawServer(says(whole(b"secret", status=b"403 secret"))) as server:
        async with Outbound(PATIENCE, machine_context()) as outbound:
            with pytest.raises(UnansweredError) as caught:
                await outbound.ask("GET", server.url, {})
    assert "secret" not in str(caught.value)


async def test_time_is_up_when_it_is():
    async with RawServer(silent()) as server, Outbound(0.05, machine_context()) as outbound:
        with pytest.raises(TimeoutError):
            await outbound.ask("GET", server.url, {})


@table(
    ("allowed", "told"),
    [
        ((), "its host is not in acl.allow"),
        (("localhost",), "its host stands for an address that is neither public nor in acl.allow"),
        (("localhost", ipaddress.ip_network("127.0.0.0/8")), None),
    ],
)
async def test_where_it_may_go_is_looked_at_again_as_it_connects(allowed, told):
    async with (
        RawServer(says(whole())) as server,
        Outbound(PATIENCE, machine_context(), EgressPolicy(allowed)) as outbound,
    ):
        url = f"http://localhost:{server.port}/x"
        if told is None:
            assert await outbound.ask("GET", url, {}) == BODY
            return
        with pytest.raises(UnansweredError) as caught:
            await outbound.ask("GET", url, {})
        assert str(caught.value) == told
        assert server.requests == []


async def test_of_several_addresses_those_are_asked_that_may_be(monkeypatch):
    async def both(self, host, port=0, family=socket.AF_INET):
        there = ("127.0.0.1", "127.0.0.2") if host == "both.example" else ("127.0.0.1",)
        return [
            {
                "hostname": host,
                "host": one,
                "port": port,
                "family": socket.AF_INET,
                "proto": 0,
                "flags": 0,
            }
            for one in there
        ]

    monkeypatch.setattr(aiohttp.ThreadedResolver, "resolve", both)
    egress = EgressPolicy(("both.example", "one.example", ipaddress.ip_network("127.0.0.2/32")))
    server = RawServer(says(whole()))
    server.at = socket.create_server(("127.0.0.2", 0))
    async with server:
        async with Outbound(PATIENCE, machine_context(), egress) as outbound:
            assert await outbound.ask("GET", f"http://both.example:{server.port}/", {}) == BODY
            with pytest.raises(UnansweredError, match="neither public"):
                await outbound.ask("GET", f"http://one.example:{server.port}/", {})


async def test_a_name_that_nobody_knows_cannot_be_reached(monkeypatch):
    async def none(self, host, port=0, family=socket.AF_INET):
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(aiohttp.ThreadedResolver, "resolve", none)
    async with Outbound(PATIENCE, machine_context(), EgressPolicy(("gone.example",))) as outbound:
        with pytest.raises(UnansweredError, match="cannot be reached"):
            await outbound.ask("GET", "https://gone.example/", {})


# ---- The client of filter endpoints against real servers: what it sends, and that nothing but o


BODY = b'{"id": "*"}'


def whole(body: bytes = BODY, *fields: bytes, status: bytes = b"200 OK") -> bytes:
    """An answer of the endpoint."""
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *fields, b"", body]
    return b"\r\n".join(lines)


class Asked:
    """A client, and how its exchanges ended."""

    def __init__(self, timeout: float = PATIENCE, context: ssl.SSLContext | None = None) -> None:
        self.outcomes = Counter[str]()
        self.outbound = Outbound(timeout, context)
        self.client = AclClient(self.outbound, lambda outcome: self.outcomes.update((outcome,)))

    async def of(self, server: RawServer, path: str = "/allowed?x=1") -> bytes:
        return await self.client.ask(server.url + path, "tok.en", b'{"question": 1}')


async def fault(behaviour: Behaviour, seconds: float = PATIENCE) -> VaultError:
    """What comes of a question to such a server."""
    asked = Asked(seconds)
    async with RawServer(behaviour) as server, asked.outbound:
        with pytest.raises(VaultError) as caught:
            await asked.of(server)
    assert asked.outcomes.total() == 1
    return caught.value


async def test_the_question_goes_there_as_it_is_with_the_token_of_the_person():
    asked = Asked()
    async with RawServer(says(whole())) as server, asked.outbound:
        assert await asked.of(server) == BODY
        (sent,) = server.requests
    assert sent.start == b"POST /allowed?x=1 HTTP/1.1"
    assert sent.body == b'{"question": 1}'
    fields = {name.lower(): value for name, value in sent.fields}
    assert fields.keys() == {
        b"host", b"authorization", b"content-type", b"accept", b"accept-encoding", b"user-agent", b"content-length",
    }  # fmt: skip
    assert (fields[b"authorization"], fields[b"content-type"]) == (
        b"Bearer tok.en",
        b"application/json",
    )
    assert asked.outcomes == {"answered": 1}


async def test_connections_are_used_again_and_cookies_are_not_kept():
    asked = Asked()
    async with RawServer(says(whole(BODY, b"Set-Cookie: a=b"))) as server, asked.outbound:
        for _ in range(3):
            await asked.of(server)
        assert len(server.wires) == 1
        assert not any(
            name.lower() == b"cookie" for sent in server.requests for name, _ in sent.fields
        )


async def test_a_kept_connection_that_was_closed_meanwhile_is_no_fault():
    asked = Asked()
    async with RawServer(once_then_closes(whole())) as server, asked.outbound:
        for _ in range(3):
            assert await asked.of(server) == BODY


@table(
    "status",
    [b"201 Created", b"204 No Content", b"301 Moved", b"302 Found", b"307 Again", b"401 No", b"404 No", b"429 Slow", b"500 No", b"503 No"],
)  # fmt: skip
async def test_every_other_status_is_wrong_and_no_redirect_is_followed(status):
    async with RawServer(says(whole())) as elsewhere:
        location = f"Location: {elsewhere.url}/allowed".encode()
        error = await fault(says(whole(BODY, location, status=status)))
        assert elsewhere.requests == []
    assert error.code is Code.FILTER_ENDPOINT_WRONG


@table(
    "behaviour",
    [
        closes(), closes(reset=True), closes(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"), says(b"hello\r\n\r\n"),
        says(whole(gzip.compress(BODY), b"Content-Encoding: gzip")), says(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"),
        says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
    ],
)  # fmt: skip
async def test_whatever_is_not_a_whole_answer_is_wrong(behaviour):
    assert (await fault(behaviour)).code is Code.FILTER_ENDPOINT_WRONG


async def test_an_answer_without_an_end_is_cut_off():
    async def endless(wire, server):
        await server.read(wire)
        await wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await wire.send(b"4000\r\n" + b" " * 0x4000 + b"\r\n")

    assert (await fault(endless)).code is Code.FILTER_ENDPOINT_WRONG


async def test_an_answer_that_does_not_come_in_time_is_late():
    async def half(wire, server):
        await server.read(wire)
        await wire.send(whole()[:-1])
        await wire.until_close()

    for behaviour in (silent(), half):
        assert (await fault(behaviour, seconds=0.05)).code is Code.FILTER_ENDPOINT_LATE


async def test_who_is_not_there_is_wrong():
    asked = Asked()
    async with RawServer(silent()) as server:
        pass
    async with asked.outbound:
        for url in (server.url, "http://no-such-host.invalid/"):
            with pytest.raises(VaultError) as caught:
                await asked.client.ask(url, "t", b"{}")
            assert caught.value.code is Code.FILTER_ENDPOINT_WRONG
            assert url not in caught.value.message


@pytest.fixture
def fresh_authorities() -> Iterator[None]:
    """The authorities of the machine are read anew, and again after the test."""
    machine_context.cache_clear()
    yield
    machine_context.cache_clear()


@pytest.mark.usefixtures("fresh_authorities")
@pytest.mark.parametrize("machine", [True, False])
async def test_a_certificate_has_to_hold(machine, tmp_path: Path, monkeypatch):
    authority, stranger = (Authority(tmp_path / name) for name in made(tmp_path, "ours", "other"))
    trusting: ssl.SSLContext | None = client_context(authority.certificate)
    if machine:  # no authorities are named, so those of the machine count
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
        trusting = None
    for issuer, name, good in (
        (authority, "127.0.0.1", True),
        (authority, "elsewhere.example", False),
        (stranger, "127.0.0.1", False),
    ):
        pair = issuer.issue(name)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pair.certificate, pair.key)
        asked = Asked(context=trusting)
        async with RawServer(says(whole()), tls) as server, asked.outbound:
            if good:
                assert await asked.of(server) == BODY
                continue
            with pytest.raises(VaultError, match="certificate") as caught:
                await asked.of(server)
            assert caught.value.code is Code.FILTER_ENDPOINT_WRONG
            assert server.requests == []


def made(folder: Path, *names: str) -> list[str]:
    for name in names:
        (folder / name).mkdir()
    return list(names)


async def test_many_questions_at_once_are_all_answered():
    asked = Asked()
    async with RawServer(says(whole())) as server, asked.outbound:
        assert await asyncio.gather(*(asked.of(server) for _ in range(250))) == [BODY] * 250
        assert len(server.wires) <= 100


async def test_an_endpoint_that_hangs_keeps_no_other_from_being_asked():
    asked = Asked()
    async with (
        RawServer(silent()) as hanging,
        RawServer(says(whole())) as server,
        asked.outbound,
    ):
        waiting = [asyncio.ensure_future(asked.of(hanging)) for _ in range(250)]
        await hanging.until(lambda: hanging.open == 100)
        assert await asked.of(server) == BODY
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_proxies_of_the_environment_are_not_used(monkeypatch):
    asked = Asked()
    async with (
        RawServer(says(whole())) as server,
        RawServer(says(whole())) as other,
        asked.outbound,
    ):
        monkeypatch.setenv("http_proxy", other.url)
        monkeypatch.setenv("HTTP_PROXY", other.url)
        await asked.of(server)
        assert other.requests == []


async def test_it_has_to_be_entered_before_it_asks():
    with pytest.raises(RuntimeError):
        await Asked().client.ask("http://127.0.0.1:9/", "t", b"")


# ---- issuer client


async def test_keys_are_fetched_and_tokens_asked_about_with_our_own_credentials():
    async with (
        RawServer(says(whole(b"{}"))) as server,
        Outbound(PATIENCE, machine_context()) as outbound,
    ):
        client = IssuerClient(outbound, server.url + "/keys", "us:sec ret:x")
        assert await client.keys() == b"{}"
        assert await client.introspect("a+b/c=") == b"{}"
        plain = IssuerClient(outbound, server.url)
        await plain.keys()
    first, second, third = server.requests
    assert (first.start, first.body) == (b"GET /keys HTTP/1.1", b"")
    assert second.body == b"token=a%2Bb%2Fc%3D&token_type_hint=access_token"
    proof = dict(second.fields)[b"Authorization"].split()[1]
    assert base64.b64decode(proof) == b"us:sec+ret%3Ax"
    assert b"Authorization" not in dict(third.fields)


async def test_no_answer_and_no_good_one_are_told_as_such():
    async with (
        RawServer(says(whole(b"{}", status=b"500 No"))) as broken,
        RawServer(silent()) as slow,
    ):
        for server, seconds in ((broken, PATIENCE), (slow, 0.05)):
            async with Outbound(seconds, machine_context()) as outbound:
                with pytest.raises(VaultError) as caught:
                    await IssuerClient(outbound, server.url).keys()
            assert caught.value.code is Code.ISSUER_UNREACHABLE


# ---- egress


GIVEN = EgressPolicy(
    (
        "app.example.com",
        "localhost",
        ipaddress.ip_network("10.1.0.0/16"),
        ipaddress.ip_network("2001:db8::7/128"),
    )
)


@table(
    "url",
    [
        *(
            "https://app.example.com/allowed",
            "https://APP.example.com:8443/a?b=c",
            "https://app.example.com./",
        ),
        *(
            "http://localhost:1/",
            "https://10.1.2.3/",
            "https://[2001:db8::7]/x",
            "https://[::ffff:10.1.2.3]/",
        ),
    ],
)
def test_hosts_of_the_list_may_be_named(url):
    assert GIVEN.lists(url)
    assert not NO_EGRESS.lists(url)


@table(
    "url",
    [
        *(
            "https://example.com/",
            "https://app.example.com.evil.example/",
            "https://evil.example/app.example.com",
        ),
        *(
            "http://127.0.0.1:8082/",
            "http://[::1]/",
            "https://169.254.169.254/",
            "https://10.2.0.1/",
        ),
        *(
            "https://8.8.8.8/",
            "https://[2001:db8::8]/",
            "https://167837955/",
            "https://0x0a010203/",
            "https://10.258/",
        ),
        *(
            "https://user:pw@evil.example/",
            "https://app.example.com@evil.example/",
            "https:///",
            "https://[::g]/",
            "",
        ),
    ],
)
def test_others_may_not_however_they_are_spelled(url):
    assert not GIVEN.lists(url)


@table("address", ["8.8.8.8", "2606:4700::1", "10.1.255.255", "2001:db8::7", "::ffff:8.8.8.8"])
def test_names_stand_for_public_addresses_and_for_those_of_the_networks(address):
    assert GIVEN.allows(address)


@table(
    "address",
    [
        "127.0.0.1", "::1", "10.2.0.1", "169.254.169.254", "fe80::1%3", "fd00::1",
        "::ffff:127.0.0.1", "64:ff9b::7f00:1",
    ],
)  # fmt: skip
def test_they_do_not_stand_for_anything_else(address):
    assert not GIVEN.allows(address)
