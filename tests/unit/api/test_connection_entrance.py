"""The PROXY preamble, then TLS, then HTTP; the peer is 127.0.0.1, trusted or not as each test says."""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.api.connection import Entrance
from proxy.gateway.forwarded import ForwardedHeaders, Telling
from proxy.net.client_address import Trusted
from proxy.net.proxy_protocol import Preambles
from tests.support.certificates import Authority
from tests.support.gateway import gateway
from tests.support.rawclient import RawClient, get
from tests.support.rawserver import OK, RawServer, says
from tests.support.secured import tls_listener, trusting

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
OTHERS = (ipaddress.ip_network("10.0.0.0/8"),)
LINE = b"PROXY TCP4 192.0.2.7 127.0.0.1 5 80\r\n"


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@asynccontextmanager
async def listening(authority, networks):
    tls, outcomes = tls_listener(authority.issue("app.test"))
    entrance = Entrance(Preambles(networks, 30.0, secure=True), tls)
    telling = Telling(ForwardedHeaders(x_forwarded=True), Trusted(networks))
    async with RawServer(says(OK)) as server:
        async with gateway(server.url, options={"entrance": entrance, "telling": telling}) as (
            port,
            steered,
        ):
            yield server, port, steered, outcomes


def answer_behind(port: int, preamble: bytes, tls: ssl.SSLContext, joined: bool) -> bytes:
    """What is answered to a request behind a preamble; ``joined``: the handshake begins in the
    preamble's own segment.
    """
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = tls.wrap_bio(inward, outward, server_hostname="app.test")
    with socket.create_connection(("127.0.0.1", port), 30) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not joined:
            plain.sendall(preamble)
            preamble = b""

        def step(work: Callable[[], Any]) -> Any:
            nonlocal preamble
            while True:
                try:
                    return work()
                except ssl.SSLWantReadError:
                    plain.sendall(preamble + outward.read())
                    preamble = b""
                    inward.write(plain.recv(65536))

        step(here.do_handshake)
        here.write(get())
        return bytes(step(lambda: here.read(65536)))


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize(
    ("preamble", "caller"), [(LINE, b"192.0.2.7"), (b"PROXY UNKNOWN\r\n", b"unknown")]
)
async def test_the_caller_of_the_preamble_comes_over_tls(authority, preamble, caller, joined):
    async with listening(authority, LOOPBACK) as (server, port, _, outcomes):
        answer = await asyncio.to_thread(answer_behind, port, preamble, trusting(authority), joined)
        assert answer.startswith(b"HTTP/1.1 200")
        assert server.requests[0].one("X-Forwarded-For") == caller
        assert server.requests[0].one("X-Forwarded-Proto") == b"https"
        assert outcomes == ["done"]


async def test_who_is_not_trusted_begins_with_the_handshake(authority):
    async with listening(authority, OTHERS) as (server, port, _, outcomes):
        async with RawClient(port, trusting(authority), "app.test") as client:
            assert (await client.ask(get())).status == 200
        assert server.requests[0].one("X-Forwarded-Proto") == b"https"
        async with RawClient(port) as client:
            await client.send(LINE)
            await server.until(lambda: outcomes == ["done", "failed"])


async def test_connections_in_every_stage_end_with_the_service(authority):
    tls, outcomes = tls_listener(authority.issue("app.test"))
    preambles = Preambles(LOOPBACK, 30.0, secure=True)
    options = {"entrance": Entrance(preambles, tls)}
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url, options=options) as (port, steered),
    ):
        async with RawClient(port) as before, RawClient(port) as between:
            await between.send(LINE)
            await server.until(lambda: len(preambles.waiting) == 1 and len(tls.shaking) == 1)
            assert steered.gateway is not None
            await steered.gateway.drain(1)
            assert (await before.until_close(), await between.until_close()) == (b"", b"")
            assert (preambles.waiting, tls.shaking) == (set(), set())
            assert outcomes == ["left"]
