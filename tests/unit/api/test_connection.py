import asyncio
import ipaddress
import json
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.api.app import vault_app
from proxy.api.connection import ConnectionAcceptor, VaultConnection, caller, proceed
from proxy.api.context import Access, ApiOperation, ApiResponse, Takes
from proxy.gateway.forwarded import CallerFields, ForwardedHeaders
from proxy.net.client_address import Trusted
from proxy.net.listener import listen
from proxy.net.proxy_protocol import Preambles
from tests.support.api import Client, services, serving
from tests.support.certificates import Authority
from tests.support.gateway import gateway
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, get
from tests.support.rawserver import OK, RawServer, says
from tests.support.secured import tls_listener, trusting
from tests.support.table import table

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)


async def refuses(_call):
    return ApiResponse(200)


OTHER = ApiOperation(
    "other", "POST", "/api/other", refuses, 200, (404,), Takes.NOTHING, access=Access.OPEN
)


@pytest.fixture
async def client():
    async with serving(services(), OTHER) as made:
        yield made


@pytest.mark.parametrize(
    "garbage",
    [b"secret\r\n\r\n", b"GET / HTTP/1.1\r\nAuthorization secret\r\n\r\n", b"\x16\x03\x01secret"],
)
async def test_bytes_that_are_no_http_are_answered_without_quoting_them(client: Client, garbage):
    host, port = client.address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(garbage + b"\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
    assert b"application/problem+json" in answer
    assert b"secret" not in answer


async def test_an_expectation_that_is_not_known_is_refused_without_quoting_it(client: Client):
    answer = await client("POST", "/api/other", headers={"Expect": "secret"})
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert (answer.status, answer.headers["Server"]) == (400, "domicile")
    assert b"secret" not in answer.body


# ------------------------------------------------ who the caller is


async def tells(call):
    return ApiResponse(200, json.dumps(caller(call.request, Trusted(LOOPBACK))).encode())


WHO = ApiOperation("who", "GET", "/api/who", tells, 200, (), Takes.NOTHING, access=Access.OPEN)


@table(
    ("preamble", "chain", "host"),
    [
        (b"", None, "127.0.0.1"),
        (b"", "203.0.113.9, 198.51.100.1", "198.51.100.1"),
        (b"PROXY TCP4 192.0.2.7 127.0.0.1 5 80\r\n", None, "192.0.2.7"),
        (b"PROXY TCP4 192.0.2.7 127.0.0.1 5 80\r\n", "203.0.113.9", "192.0.2.7"),
        (b"PROXY TCP4 127.0.0.9 127.0.0.1 5 80\r\n", "203.0.113.9", "203.0.113.9"),
        (b"PROXY UNKNOWN\r\n", "203.0.113.9", ""),
    ],
)
async def test_the_caller_is_the_one_that_a_trusted_proxy_tells_of_by_preamble_or_by_field(
    preamble, chain, host
):
    acceptor = ConnectionAcceptor(Preambles(LOOPBACK), None)
    connections = acceptor.of_vault if preamble else VaultConnection
    async with listen(
        "vault", ("127.0.0.1", 0), vault_app(services(), (WHO,)), connections
    ) as place:
        async with RawClient(int(place.rpartition(":")[2])) as client:
            fields = [] if chain is None else [f"X-Forwarded-For: {chain}"]
            for number in range(2):
                answer = await client.ask((b"" if number else preamble) + get("/api/who", *fields))
                assert json.loads(answer.body) == host


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


async def count(call: Any) -> ApiResponse:
    if call.operation.takes is Takes.STREAM:
        await proceed(call.request)
        return ApiResponse(200, b"%d" % len(await call.request.read()))
    return ApiResponse(200, b"%d" % len(call.body))


OPERATIONS = (
    ApiOperation("write", "POST", "/api/write", count, 200, ()),
    ApiOperation("upload", "POST", "/api/upload", count, 200, (), Takes.STREAM),
    ApiOperation("read", "GET", "/api/read", count, 200, (), Takes.NOTHING),
    ApiOperation("chief", "POST", "/api/chief", count, 200, (), access=Access.ADMIN),
)
BODY = b'{"a": 1}'
JSON, MANY = "Content-Type: application/json", "Content-Type: multipart/form-data; boundary=b"
WRITER = "Authorization: Bearer writer"
EXPECT = "Expect: 100-continue"


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with serving(services(), *OPERATIONS) as client:
        yield int(client.address.rpartition(":")[2])


def head(path: str, *fields: str, size: int = len(BODY), method: str = "POST") -> bytes:
    return get(path, *fields, EXPECT, f"Content-Length: {size}", method=method)


async def first_line(client: RawClient) -> bytes:
    async with asyncio.timeout(PATIENCE):
        return await client.reader.readline()


@pytest.mark.parametrize(("path", "kind"), [("/api/write", JSON), ("/api/upload", MANY)])
async def test_a_body_that_is_wanted_is_asked_for(port, path, kind):
    async with RawClient(port) as client:
        for _ in range(2):  # the connection goes on
            await client.send(head(path, WRITER, kind))
            async with asyncio.timeout(PATIENCE):
                assert await client.reader.readexactly(len(CONTINUE)) == CONTINUE
            answer = await client.ask(BODY)
            assert (answer.status, answer.body) == (200, b"%d" % len(BODY))


@pytest.mark.parametrize(
    ("status", "path", "fields", "size"),
    [
        (401, "/api/write", (JSON,), 8),
        (401, "/api/upload", (MANY,), 8),
        (403, "/api/chief", (WRITER, JSON), 8),
        (404, "/api/nothing", (WRITER, JSON), 8),
        (405, "/api/read", (WRITER, JSON), 8),
        (400, "/api/write?x=1", (WRITER, JSON), 8),
        (413, "/api/write", (WRITER, JSON), 5000),
        (415, "/api/write", (WRITER, "Content-Type: text/plain"), 8),
        (415, "/api/upload", (WRITER, JSON), 8),
    ],
)
async def test_a_request_that_is_refused_gets_its_refusal_and_nothing_else(
    port, status, path, fields, size
):
    async with RawClient(port) as client:
        await client.send(head(path, *fields, size=size))
        assert await first_line(client) == b"HTTP/1.1 %d %b\r\n" % (status, PHRASES[status])
        rest = await client.reader.readuntil(b"\r\n\r\n")
        assert b"connection: close" in rest.lower()


PHRASES = {
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    413: b"Request Entity Too Large",
    415: b"Unsupported Media Type",
}


async def test_whoever_does_not_wait_is_not_told(port):
    async with RawClient(port) as client:
        await client.send(
            get("/api/write", WRITER, JSON, f"Content-Length: {len(BODY)}", method="POST") + BODY
        )
        assert await first_line(client) == b"HTTP/1.1 200 OK\r\n"


async def test_a_body_that_came_all_the_same_is_read(port):
    async with RawClient(port) as client:
        answer = await client.ask(head("/api/write", WRITER, JSON) + BODY)
        assert (answer.status, answer.body) == (200, b"8")


async def test_a_request_without_a_body_keeps_its_connection(port):
    async with RawClient(port) as client:
        for _ in range(2):
            assert (await client.ask(get("/api/read", WRITER, EXPECT))).status == 200


async def test_an_older_version_of_http_expects_nothing(port):
    async with RawClient(port) as client:
        request = head("/api/write", WRITER, JSON).replace(b"HTTP/1.1", b"HTTP/1.0")
        await client.send(request + BODY)
        assert await first_line(client) == b"HTTP/1.0 200 OK\r\n"


async def test_any_other_expectation_is_refused_without_quoting_it(port):
    async with RawClient(port) as client:
        answer = await client.ask(get("/api/read", WRITER, "Expect: secret", EXPECT))
        assert (answer.status, b"secret" in answer.body) == (400, False)


async def test_an_expectation_may_stand_twice(port):
    async with RawClient(port) as client:
        await client.send(head("/api/write", JSON, EXPECT))
        assert await first_line(client) == b"HTTP/1.1 401 Unauthorized\r\n"


# ---- The PROXY preamble, then TLS, then HTTP; the peer is 127.0.0.1, trusted or not as each tes


OTHERS = (ipaddress.ip_network("10.0.0.0/8"),)
LINE = b"PROXY TCP4 192.0.2.7 127.0.0.1 5 80\r\n"


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@asynccontextmanager
async def listening(authority, networks):
    tls, outcomes = tls_listener(authority.issue("app.test"))
    acceptor = ConnectionAcceptor(Preambles(networks, 30.0, secure=True), tls)
    caller_fields = CallerFields(ForwardedHeaders(x_forwarded=True), Trusted(networks))
    async with RawServer(says(OK)) as server:
        async with gateway(
            server.url, options={"acceptor": acceptor, "caller_fields": caller_fields}
        ) as (port, steered):
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
    options = {"acceptor": ConnectionAcceptor(preambles, tls)}
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


# ------------------------------------------------ an answer that leaves in one write


async def tagged(call: Any) -> ApiResponse:
    status, body = (404, b"{}") if call.query.get("kind") == "other" else (200, b'{"a": 1}')
    headers = {"ETag": '"x"'} if call.query.get("kind") != "split" else {"ETag": "x\r\nA: b"}
    return ApiResponse(status, body, headers, "text/plain")


TAGGED = ApiOperation(
    "tagged", "GET", "/api/tagged", tagged, 200, (404,), Takes.NOTHING, Access.OPEN, ("kind",)
)


async def _nothing(*_: object) -> None:
    """Let aiohttp make the head, since somebody may want to change it."""


@table(
    "request_line",
    [
        b"GET /api/tagged HTTP/1.1", b"HEAD /api/tagged HTTP/1.1", b"GET /api/tagged HTTP/1.0",
        b"GET /api/tagged?kind=other HTTP/1.1", b"GET /api/nothing HTTP/1.1",
    ],
)  # fmt: skip
@table("field", [b"A: b", b"Connection: close", b"Connection: keep-alive"])
async def test_an_answer_reads_the_same_whoever_makes_its_head(request_line, field):
    answers = []
    for hook in (None, _nothing):
        app = vault_app(services(), (TAGGED,))
        if hook is not None:
            app.on_response_prepare.append(hook)
        async with listen("vault", ("127.0.0.1", 0), app, VaultConnection) as place:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", int(place.rpartition(":")[2])
            )
            for last in (False, True):
                ends = b"Connection: close" if last else field
                writer.write(request_line + b"\r\nHost: a\r\n" + ends + b"\r\n\r\n")
            answer = await reader.read()
            writer.close()
            answers.append(re.sub(rb"Date: [^\r]{29}\r\n", b"Date\r\n", answer))
    assert answers[0] == answers[1]
    assert answers[0].count(b"Date\r\n") >= 1


async def test_a_field_never_begins_another_one():
    async with serving(services(), TAGGED) as client:
        host, port = client.address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(get("/api/tagged?kind=split"))
        assert await reader.read() == b""
        writer.close()
