import asyncio
import ipaddress
import json

import pytest
from aiohttp import StreamReader

from proxy.api.app import vault_app
from proxy.api.connection import Entrance, VaultConnection, caller
from proxy.api.context import Access, ApiOperation, ApiResponse, Takes
from proxy.net.client_address import Trusted
from proxy.net.listener import listen
from proxy.net.proxy_protocol import Preambles
from tests.support.api import Client, services, serving
from tests.support.rawclient import RawClient, get

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


@pytest.mark.parametrize(
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
    entrance = Entrance(Preambles(LOOPBACK), None)
    connections = entrance.of_vault if preamble else VaultConnection
    async with listen(
        "vault", ("127.0.0.1", 0), vault_app(services(), (WHO,)), connections
    ) as place:
        async with RawClient(int(place.rpartition(":")[2])) as client:
            fields = [] if chain is None else [f"X-Forwarded-For: {chain}"]
            for number in range(2):
                answer = await client.ask((b"" if number else preamble) + get("/api/who", *fields))
                assert json.loads(answer.body) == host


def test_the_inner_names_of_aiohttp_that_a_straight_upload_leans_on_are_there():
    slots = {name for base in VaultConnection.__mro__ for name in getattr(base, "__slots__", ())}
    assert {"_parser", "_loop", "_read_bufsize", "_max_msg_queue_size", "max_line_size"} <= slots
    assert "_waiter" in StreamReader.__slots__
