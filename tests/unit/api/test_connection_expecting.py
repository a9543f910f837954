"""``Expect: 100-continue``: told when somebody is about to read the body, and not before."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.api.connection import proceed
from proxy.api.context import Access, ApiOperation, ApiResponse, Takes
from tests.support.api import services, serving
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, get

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
