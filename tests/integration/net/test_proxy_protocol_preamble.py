"""The PROXY protocol over real sockets. The peer is 127.0.0.1: trusted or not, as each test says."""

import asyncio
import contextlib
import ipaddress
from contextlib import asynccontextmanager

import pytest

from proxy.api.connection import ConnectionAcceptor
from proxy.gateway.forwarded import CallerFields, ForwardedHeaders
from proxy.net.client_address import Trusted
from proxy.net.proxy_protocol import Preambles
from proxy.telemetry import logs
from tests.support.gateway import gateway
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, get
from tests.support.rawserver import OK, RawServer, says
from tests.unit.net.test_proxy_protocol import V4, extra, v2

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
OTHERS = (ipaddress.ip_network("10.0.0.0/8"),)
LINE = b"PROXY TCP4 192.0.2.7 127.0.0.1 5 80\r\n"


@asynccontextmanager
async def listening(networks=LOOPBACK, patience: float = 30.0):
    """A gateway that expects preambles and tells the application whom it takes the caller for."""
    preambles = Preambles(networks, patience)
    caller_fields = CallerFields(ForwardedHeaders(x_forwarded=True), Trusted(networks))
    async with RawServer(says(OK)) as server:
        async with gateway(
            server.url,
            options={
                "acceptor": ConnectionAcceptor(preambles, None),
                "caller_fields": caller_fields,
            },
        ) as (port, steered):
            yield server, port, preambles, steered


@pytest.fixture
def lines(capsys):
    """What was logged."""
    logs.configure(logs.Style("info", "json"))
    yield lambda: capsys.readouterr().err
    logs.configure(logs.Style())


async def ends(client: RawClient) -> bytes:
    """All bytes until the connection ends; a reset is an end."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await client.reader.read()
    except ConnectionError:
        return b""


@pytest.mark.parametrize(
    ("preamble", "caller", "scheme"),
    [
        (LINE, b"192.0.2.7", b"http"),
        (b"PROXY TCP6 ::ffff:192.0.2.7 ::1 5 80\r\n", b"192.0.2.7", b"http"),
        (b"PROXY UNKNOWN\r\n", b"unknown", b"http"),
        (v2(V4), b"192.0.2.7", b"http"),
        (v2(V4 + extra(0x20, b"\x01\0\0\0\0")), b"192.0.2.7", b"https"),
        (v2(b"", family=0), b"unknown", b"http"),
        (v2(b"", command=0x20), b"127.0.0.1", b"http"),
    ],
)
@pytest.mark.parametrize("piece", [0, 1])
async def test_the_caller_that_a_trusted_proxy_tells_of_counts_for_every_request(
    preamble, caller, scheme, piece
):
    async with listening() as (server, port, _, steered), RawClient(port) as client:
        # no delay: each piece is a segment of its own
        client.writer.get_extra_info("socket").setsockopt(6, 1, 1)
        await client.send(preamble + get("/1"), piece)
        assert (await client.answer()).status == 200
        assert (await client.ask(get("/2"))).status == 200
        for request in server.requests:
            assert request.one("X-Forwarded-For") == caller
            assert request.one("X-Forwarded-Proto") == scheme
        (connection,) = steered.gateway.server.callers
        assert connection.client.host.encode() == caller.replace(b"unknown", b"")


async def test_a_caller_who_is_not_told_of_is_not_taken_for_the_trusted_proxy():
    async with listening() as (server, port, _, _), RawClient(port) as client:
        await client.ask(b"PROXY UNKNOWN\r\n" + get("/", "X-Forwarded-For: 203.0.113.9"))
        assert server.requests[0].one("X-Forwarded-For") == b"unknown"


@pytest.mark.parametrize(
    "sent",
    [
        get("/"),
        LINE[:-2] + b"\n" + get("/"),
        b"PROXY TCP4 somebody 127.0.0.1 5 80\r\n" + get("/"),
        v2(V4, family=0x12) + get("/"),
        v2(V4, length=5000),
    ],
)
async def test_a_trusted_proxy_without_a_fitting_preamble_is_refused_without_an_answer(sent, lines):
    async with listening() as (server, port, preambles, _):
        async with RawClient(port) as client:
            await client.send(sent)
            assert await ends(client) == b""
        assert preambles.waiting == set()
        async with RawClient(port) as client:
            assert (await client.ask(LINE + get("/"))).status == 200
        assert len(server.requests) == 1
    told = lines()
    assert told.count("a trusted proxy sent no PROXY preamble and was refused") == 1
    assert "127.0.0.1" not in told.replace('"address"', "").split("refused", 1)[1]


@pytest.mark.parametrize("preamble", [LINE, v2(V4), v2(b"", command=0x20), b"PROXY UNKNOWN\r\n"])
async def test_a_preamble_of_somebody_else_is_refused_and_nothing_is_forwarded(preamble):
    async with listening(OTHERS) as (server, port, _, steered), RawClient(port) as client:
        await client.send(preamble + get("/"))
        answer = await client.answer()
        assert (answer.status, server.requests) == (400, [])
        assert [note.outcome for note in steered.notes] == ["refused"]


async def test_who_is_not_trusted_speaks_http_at_once():
    async with listening(OTHERS) as (server, port, _, _), RawClient(port) as client:
        assert (await client.ask(get("/", "X-Forwarded-For: 203.0.113.9"))).status == 200
        assert server.requests[0].one("X-Forwarded-For") == b"127.0.0.1"


@pytest.mark.parametrize("sent", [b"", b"PROXY TCP4 192.0.2.7", v2(V4)[:14], v2(V4)[:-1]])
async def test_a_preamble_that_does_not_come_in_time_ends_the_connection(sent):
    async with listening(patience=0.1) as (server, port, preambles, _), RawClient(port) as client:
        with contextlib.suppress(ConnectionError):  # on a slow machine its time may be up already
            await client.send(sent)
        assert await ends(client) == b""
        assert (server.requests, preambles.waiting) == ([], set())


async def test_connections_that_have_not_begun_end_with_the_service():
    async with listening() as (server, port, preambles, steered), RawClient(port) as client:
        await server.until(lambda: preambles.waiting != set())
        await steered.gateway.drain(1)
        assert await ends(client) == b""
        assert preambles.waiting == set()


async def test_who_leaves_before_the_preamble_is_forgotten():
    async with listening() as (server, port, preambles, _):
        async with RawClient(port) as client:
            await server.until(lambda: preambles.waiting != set())
            client.reset()
        await server.until(lambda: preambles.waiting == set())


async def test_without_the_setting_a_preamble_is_no_request():
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(LINE + get("/"))
        assert (await client.answer()).status == 400
        assert server.requests == []
