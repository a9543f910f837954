import asyncio
import ipaddress
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from proxy.api.context import Access, ApiOperation, ApiResponse, Takes
from proxy.edge.firewall import Firewall, Mode
from proxy.edge.geoip import Countries
from proxy.errors import Code, VaultError
from proxy.model.policy import AccessPolicy, Act
from proxy.model.rights import FirewallMode as Firewall_
from proxy.model.rights import Principal
from proxy.net.client_address import Trusted
from tests.support.api import Client, no_policies, services, serving
from tests.support.countries import AMERICAN, SWEDISH, write


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


# ---- The firewall on the vault listener; who is trusted here is this machine, so that fields ca


async def told(call):
    return ApiResponse(200, json.dumps({"outside": call.outside}).encode())


def operation(name: str, path: str, **more: Any) -> ApiOperation:
    return ApiOperation(name, "GET", path, told, 200, (), Takes.NOTHING, **more)


SCREENED = (
    operation("read", "/api/read", abroad=True),
    operation("files", "/api/files"),
    operation("chief", "/api/chief", access=Access.ADMIN),
    operation("open", "/open", access=Access.OPEN),
)

CLIENTS = {
    "free": Principal("free", "default"),
    "chief": Principal("chief", "default", admin=True),
    "let": Principal("let", "default", policies=("let",)),
    "kept": Principal("kept", "default", policies=("let", "kept")),
    "plain": Principal("plain", "default", policies=("plain",)),
}


async def access(request: web.Request) -> Principal:
    name = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if name not in CLIENTS:
        raise VaultError(Code.UNAUTHORIZED, "An access token is needed.")
    return CLIENTS[name]


class World:
    """Serves the operations above; ``outcomes`` is what was told of requests from outside."""

    def __init__(self, folder: Path) -> None:
        self.countries = Countries(write(folder / "c.mmdb"))
        self.outcomes: list[str] = []

    @asynccontextmanager
    async def serving(self, mode: Mode, *names: str) -> AsyncIterator[Any]:
        """``names``: the policies that there are, each with the firewall of its name."""
        said: dict[str, Firewall_ | None] = {"let": "mask", "kept": "block", "plain": None}
        policies = no_policies()
        for name in names:
            await policies.put(AccessPolicy(name, "contact", tuple(Act), firewall=said[name]))
        trusted = Trusted((ipaddress.ip_network("127.0.0.1"),))
        wall = Firewall(mode, "se", (), self.countries, trusted)
        more = {
            "screened": self.outcomes.append,
            "trusted": trusted,
            "access": access,
            "policies": policies,
        }
        async with serving(services(firewall=wall, **more), *SCREENED) as client:
            yield client


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def coming(host: str) -> dict[str, str]:
    return {"X-Forwarded-For": host}


ABROAD, HOME = coming(AMERICAN), coming(SWEDISH)
ALL = ("let", "kept", "plain")


@pytest.mark.parametrize("path", ["/api/read", "/api/chief", "/open", "/nothing"])
@pytest.mark.parametrize("as_", ["", "nobody", "chief", "plain"])
async def test_blocked_is_blocked_whatever_is_asked_by_whomever(world, path, as_):
    async with world.serving(Mode.BLOCK, "plain", "kept") as client:
        for method in ("GET", "PUT"):
            answer = await client(method, path, as_, headers=ABROAD)
            assert (answer.status, answer.json["code"]) == (403, "outside_country")
            assert "Allow" not in answer.headers
    assert world.outcomes == ["blocked"] * 2


@pytest.mark.parametrize("mode", list(Mode))
async def test_the_firewall_is_not_felt_inside(world, mode):
    async with world.serving(mode, *ALL) as client:
        for headers in (HOME, {}):
            for name in ("free", *ALL):
                assert (await client("GET", "/api/read", name, headers=headers)).json == {
                    "outside": False
                }
            assert (await client("GET", "/api/files", "let", headers=headers)).json == {
                "outside": False
            }
            assert (await client("GET", "/api/chief", "chief", headers=headers)).status == 200
            assert (await client("GET", "/nothing", headers=headers)).status == 404
            assert (await client("GET", "/api/read", "", headers=headers)).status == 401
    assert world.outcomes == []


async def verdicts(client: Any) -> dict[str, bool | int]:
    """What each caller is told from outside: whether it is taken for being there, or the status."""
    found: dict[str, bool | int] = {}
    for name in ("", *CLIENTS):
        answer = await client("GET", "/api/read", name, headers=ABROAD)
        found[name] = answer.json["outside"] if answer.status == 200 else answer.status
    return found


async def test_a_policy_turns_block_into_mask_for_its_clients_alone(world):
    async with world.serving(Mode.BLOCK, *ALL) as client:
        expected = {"": 401, "free": 403, "chief": 403, "let": True, "kept": 403, "plain": 403}
        assert await verdicts(client) == expected
        assert (await client("GET", "/open", "", headers=ABROAD)).status == 200
    assert world.outcomes == ["blocked", "blocked", "masked", "blocked", "blocked"]


async def test_masked_is_everybody_outside_but_whom_a_policy_keeps_out(world):
    async with world.serving(Mode.MASK, *ALL) as client:
        expected = {"": 401, "free": True, "chief": True, "let": True, "kept": 403, "plain": True}
        assert await verdicts(client) == expected


async def test_a_policy_counts_where_the_instance_has_no_mode(world):
    async with world.serving(Mode.OFF, *ALL) as client:
        expected = {
            "": 401,
            "free": False,
            "chief": False,
            "let": True,
            "kept": 403,
            "plain": False,
        }
        assert await verdicts(client) == expected


@pytest.mark.parametrize(
    ("mode", "name"),
    [(Mode.MASK, "let"), (Mode.BLOCK, "let"), (Mode.OFF, "let"), (Mode.MASK, "free")],
)
async def test_what_does_not_go_through_rights_is_refused_outside(world, mode, name):
    async with world.serving(mode, *ALL) as client:
        answer = await client("GET", "/api/files", name, headers=ABROAD)
        assert (answer.status, answer.json["code"]) == (403, "outside_country")


async def test_nobody_administers_from_outside(world):
    async with world.serving(Mode.MASK) as client:
        answer = await client("GET", "/api/chief", "chief", headers=ABROAD)
        assert (answer.status, answer.json["code"]) == (403, "outside_country")
        assert (await client("GET", "/open", "", headers=ABROAD)).json == {"outside": False}


async def test_a_proxy_that_tells_of_the_caller_in_another_field_tells_of_nobody(world):
    async with world.serving(Mode.BLOCK) as client:
        assert (await client("GET", "/open", headers={"Forwarded": f"for={SWEDISH}"})).status == 403
        assert (await client("GET", "/open", headers={"X-Real-IP": SWEDISH})).status == 403


async def test_without_a_firewall_nobody_is_looked_at():
    async with serving(services(access=access), *SCREENED) as client:
        assert (await client("GET", "/api/read", "free", headers=ABROAD)).json == {"outside": False}
