import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from proxy.api.context import Access, ApiOperation, ApiResponse, Takes
from tests.support.api import Client, services, serving


async def echo(call):
    return ApiResponse(
        200, json.dumps({"content": call.content, "by": call.principal.client}).encode()
    )


async def pieces(_call):
    async def stream() -> AsyncIterator[bytes]:
        yield b"one "
        yield b"two"

    return ApiResponse(
        200, headers={"X-Kind": "stream"}, media_type="text/plain", stream=stream(), length=7
    )


async def nothing(_call):
    return ApiResponse(204)


OPERATIONS = (
    ApiOperation("write", "POST", "/api/write", echo, 200, ()),
    ApiOperation("chief", "POST", "/api/chief", echo, 200, (), access=Access.ADMIN),
    ApiOperation("open", "POST", "/api/open", echo, 200, (), access=Access.OPEN),
    ApiOperation("upload", "POST", "/api/upload", nothing, 204, (), Takes.STREAM),
    ApiOperation("pieces", "GET", "/api/pieces", pieces, 200, (), Takes.NOTHING),
    ApiOperation(
        "end", "DELETE", "/api/end", nothing, 204, (), Takes.NOTHING, query=("cascadeBy",)
    ),
)
JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def client():
    async with serving(services(), *OPERATIONS) as client:
        yield client


async def test_a_handler_is_given_the_json_and_who_sent_it(client: Client):
    answer = await client("POST", "/api/write", json={"a": [1]})
    assert (answer.status, answer.json) == (200, {"content": {"a": [1]}, "by": "writer"})
    assert answer.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("token", ["", "nobody"])
async def test_without_a_token_nothing_else_is_looked_at(client: Client, token):
    answer = await client(
        "POST", "/api/write?x=1", token, data=b"{", headers={"Content-Type": "text/plain"}
    )
    assert (answer.status, answer.json["code"]) == (401, "unauthorized")
    assert answer.headers["WWW-Authenticate"] == "Bearer"


async def test_an_open_operation_needs_none(client: Client):
    assert (await client("POST", "/api/open", "", json=1)).json == {"content": 1, "by": ""}


async def test_an_admin_operation_needs_the_scope(client: Client):
    assert (await client("POST", "/api/chief", json=1)).json["code"] == "forbidden"
    assert (await client("POST", "/api/chief", "chief", json=1)).status == 200


@pytest.mark.parametrize(
    "kind",
    ["application/json", "application/json; charset=utf-8", 'APPLICATION/JSON;charset="UTF-8"'],
)
async def test_json_is_taken_under_each_of_its_names(client: Client, kind):
    assert (
        await client("POST", "/api/write", data=b"1", headers={"Content-Type": kind})
    ).status == 200


async def test_an_upload_is_multipart(client: Client):
    assert (await client("POST", "/api/upload", data=b"x", headers=JSON)).status == 415
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    assert (await client("POST", "/api/upload", data=b"x", headers=headers)).status == 204


async def test_broken_json_is_400_with_its_place(client: Client):
    answer = await client("POST", "/api/write", data=b'{"a":x', headers=JSON)
    assert (answer.status, answer.json["code"]) == (400, "invalid_input")
    assert "byte 5" in answer.json["detail"]
    assert (
        (await client("POST", "/api/write", headers=JSON))
        .json["detail"]
        .startswith("The body is empty")
    )


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_the_limit_is_413(client: Client, chunked):
    async def many() -> AsyncIterator[bytes]:
        for _ in range(8):
            yield b" " * 1024

    answer = await client(
        "POST", "/api/write", data=many() if chunked else b" " * 8192, headers=JSON
    )
    assert (answer.status, answer.json["code"]) == (413, "too_large")


async def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes(client: Client):
    host, port = client.address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = (
        "POST /api/write HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer writer\r\nContent-Type: "
        "application/json\r\n"
    )
    writer.write(f"{head}Content-Length: 1000000\r\n\r\n".encode())
    assert b" 413 " in await reader.readline()
    writer.close()


async def test_query_parameters_are_known_and_stand_once(client: Client):
    assert (await client("DELETE", "/api/end?cascadeBy=parent")).status == 204
    answer = await client("DELETE", "/api/end?cascadeBy=a&cascadeBy=b&cascadeby=c&secret=d")
    assert (answer.status, answer.json["code"]) == (400, "invalid_input")
    assert [error["source"] for error in answer.json["errors"]] == ["cascadeBy", "query"]
    assert b"secret" not in answer.body
    assert (await client("POST", "/api/write?a=1", json=1)).status == 400


async def test_an_answer_may_come_in_pieces(client: Client):
    answer = await client("GET", "/api/pieces")
    assert (answer.status, answer.body, answer.headers["Content-Length"]) == (200, b"one two", "7")
    assert (answer.headers["X-Kind"], answer.headers["Content-Type"]) == ("stream", "text/plain")
    head = await client("HEAD", "/api/pieces")
    assert (head.status, head.body, head.headers["Content-Length"]) == (200, b"", "7")


async def test_an_answer_without_a_body_says_nothing_of_one(client: Client):
    answer = await client("DELETE", "/api/end")
    assert (answer.status, answer.body) == (204, b"")
    assert "Content-Type" not in answer.headers


async def test_an_idempotency_key_goes_through_its_keeper():
    asked = []

    async def once(call, handler):
        asked.append(call.request.headers["Idempotency-Key"])
        return await handler(call)

    async with serving(services(once=once), *OPERATIONS) as client:
        await client("POST", "/api/write", json=1, headers={"Idempotency-Key": "a"})
        await client("DELETE", "/api/end", headers={"Idempotency-Key": "b"})
        await client("GET", "/api/pieces", headers={"Idempotency-Key": "c"})
        await client("POST", "/api/write", json=1)
    assert asked == ["a", "b"]
