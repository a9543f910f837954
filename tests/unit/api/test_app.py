import io
import json

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import make_mocked_request

from proxy.api.app import _Models, vault_app
from proxy.api.connection import VaultConnection
from proxy.api.context import Access, ApiOperation, ApiResponse, Takes
from proxy.errors import Code, Detail, VaultError
from proxy.net.listener import listen
from proxy.telemetry import logs
from tests.support.api import Client, services, serving
from tests.support.table import table


async def echo(call):
    return ApiResponse(
        200, json.dumps({"path": dict(call.path), "query": dict(call.query)}).encode()
    )


async def fails(_call):
    raise RuntimeError("a value of somebody")


async def refuses(_call):
    raise VaultError(Code.NO_MATCH, "Nothing matches.", (Detail("/filter", "Matches nothing."),))


READ = ApiOperation(
    "read", "GET", "/api/things/{name}", echo, 200, (), Takes.NOTHING, query=("a", "b")
)
FAILS = ApiOperation("fails", "POST", "/api/fails", fails, 200, (), Takes.NOTHING)
CLONE = ApiOperation("clone_record", "POST", "/api/clone", refuses, 200, (403,), Takes.NOTHING)
OTHER = ApiOperation("other", "POST", "/api/other", refuses, 200, (404,), Takes.NOTHING)
OPEN = ApiOperation("open", "GET", "/open", echo, 200, (), Takes.NOTHING, Access.OPEN)


@pytest.fixture
async def client():
    async with serving(services(), READ, FAILS, CLONE, OTHER, OPEN) as client:
        yield client


async def test_a_path_has_its_parameters_decoded(client: Client):
    answer = await client("GET", "/api/things/a%2Fb%20%C3%A5?b=1&a=x%26y")
    assert answer.json == {"path": {"name": "a/b å"}, "query": {"a": "x&y", "b": "1"}}


async def test_every_answer_says_that_nobody_may_keep_it(client: Client):
    for answer in (await client("GET", "/api/things/a"), await client("GET", "/nothing")):
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Server"] == "domicile"


async def test_webapi_is_another_name_of_api(client: Client):
    assert (await client("GET", "/webapi/things/a")).json == (
        await client("GET", "/api/things/a")
    ).json
    assert (await client("GET", "/webapi/open")).status == 404


async def test_an_unknown_address_is_a_problem_document(client: Client):
    answer = await client("GET", "/api/nothing")
    assert (answer.status, answer.headers["Content-Type"]) == (404, "application/problem+json")
    assert answer.json["code"] == "not_found"


async def test_another_method_is_told_which_ones_there_are(client: Client):
    answer = await client("PUT", "/api/things/a")
    assert (answer.status, answer.headers["Allow"], answer.json["code"]) == (
        405,
        "GET, HEAD",
        "method_not_allowed",
    )


async def test_head_is_get_without_the_body(client: Client):
    answer = await client("HEAD", "/api/things/a")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["Content-Length"]) == len((await client("GET", "/api/things/a")).body)


async def test_what_nobody_foresaw_is_a_500_that_tells_nothing(client: Client):
    stream = io.StringIO()
    logs.configure(logs.Style("info", "json"), stream)
    answer = await client("POST", "/api/fails")
    logs.configure(logs.Style())
    assert (answer.status, answer.json["code"]) == (500, "internal")
    assert b"somebody" not in answer.body
    assert "RuntimeError" in stream.getvalue()
    assert "somebody" not in stream.getvalue()


async def test_an_error_has_the_status_of_its_operation(client: Client):
    assert (await client("POST", "/api/clone")).status == 403
    answer = await client("POST", "/api/other")
    assert answer.status == 404
    assert answer.json == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "code": "no_match",
        "detail": "Nothing matches.",
        "errors": [{"title": "no_match", "source": "/filter", "detail": "Matches nothing."}],
    }


async def test_who_comes_over_tls_is_told_to_do_so_again(tmp_path, monkeypatch):
    app = vault_app(services(), (READ,), hsts=86_400)
    async with (
        listen("vault", ("127.0.0.1", 0), app, connections=VaultConnection) as place,
        ClientSession() as session,
    ):
        for secure, told in ((False, None), (True, "max-age=86400")):
            monkeypatch.setattr("aiohttp.web.BaseRequest.secure", secure)
            async with session.get(
                f"http://{place}/api/things/x", headers={"Authorization": "Bearer writer"}
            ) as answer:
                assert answer.headers.get("Strict-Transport-Security") == told
            async with session.get(f"http://{place}/nothing") as answer:
                assert answer.headers.get("Strict-Transport-Security") == told


PATHS = [
    f"/api/models/{rest}"
    for rest in (
        "person", "person/find", "person/export", "person/p1", "person/p1/history", "person/p1/files",
        "person/p1/files/f1", "person/p1/files/move/p2", "person/batch/update", "person/p1/bait",
        "person/p%2F1", "person/a.b", "person/.a", "person/../x", "person//x", "person/", "person/p1/a/b/c",
        "p~_-/find", "person/%66ind", "pers%C3%B6n/x", "person/find/", "a:b/c",
    )
]  # fmt: skip


@table("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_addresses_without_escapes_are_those_that_aiohttp_finds(method):
    app = vault_app(services())
    models = next(iter(app.router.resources()))
    assert isinstance(models, _Models)
    found = []
    for path in PATHS:
        request = make_mocked_request(method, path)
        first, _ = await models.resolve(request)
        found.append(first)
        shapes, models.shapes = models.shapes, {}
        other = await app.router.resolve(request)
        models.shapes = shapes
        if first is not None:
            assert first.handler is other.handler
            assert dict(first) == dict(other)
    assert any(found) is (method not in {"HEAD", "OPTIONS"})
