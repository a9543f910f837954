"""What callers get to see of a refusal: before they are asked for a body, behind one that they sent
at once, and in a browser.
"""

import asyncio
import socket
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from tests.e2e.test_workers import WORKERS, ready
from tests.support.instance import Instance, running, started
from tests.support.patience import PATIENCE
from tests.support.people import FLAT, RULES, rules
from tests.support.rawclient import RawClient, get, post
from tests.support.rawserver import OK, RawServer, says
from tests.support.serving import serving

JSON, TEXT, FORM = (
    f"Content-Type: {kind}"
    for kind in ("application/json", "text/xml", "application/x-www-form-urlencoded")
)
EXPECT = "Expect: 100-continue"
CHROME = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def port(address: str) -> int:
    return int(address.rpartition(":")[2])


async def first(place: str, request: bytes) -> int:
    """The status of the first answer, interim ones included."""
    async with RawClient(port(place)) as client, asyncio.timeout(PATIENCE):
        await client.send(request)
        return (await client.head()).status


def sent_whole(place: str, head: bytes, size: int) -> bytes:
    """The first line of the answer, for a caller that reads nothing before it has sent everything;
    raises for a reset.
    """
    with socket.create_connection(("127.0.0.1", port(place)), timeout=PATIENCE) as caller:
        caller.sendall(head + b"x" * size)
        return caller.recv(65536).partition(b"\r\n")[0]


async def early(instance: Instance) -> None:
    proxy, vault = instance.proxy, instance.vault
    many = f"Content-Length: {10**9}"
    assert (
        await first(proxy, get("/people", EXPECT, JSON, "Content-Length: 9", method="POST")) == 100
    )
    assert (
        await first(proxy, get("/people", EXPECT, TEXT, "Content-Length: 9", method="POST")) == 415
    )
    assert await first(proxy, get("/people", EXPECT, JSON, many, method="POST")) == 413
    assert (
        await first(
            proxy, get("/people", EXPECT, TEXT, "Transfer-Encoding: chunked", method="POST")
        )
        == 415
    )
    assert (
        await first(proxy, get("/people/%FF", EXPECT, JSON, "Content-Length: 9", method="PUT"))
        == 400
    )
    assert (
        await first(vault, get("/api/records", EXPECT, JSON, "Content-Length: 9", method="POST"))
        == 401
    )
    assert await first(vault, get("/oauth2/token", EXPECT, FORM, many, method="POST")) == 413
    assert await first(
        vault, get("/oauth2/token", EXPECT, TEXT, "Content-Length: 9", method="POST")
    ) in (400, 415)


async def late(instance: Instance) -> None:
    size = 24_000_000
    length = "Content-Length: 60000000"  # beyond what may come
    for place, head, status in [
        (instance.proxy, get("/people", JSON, length, method="POST"), b"413"),
        (instance.proxy, get("/people", TEXT, length, method="POST"), b"413"),
        (instance.proxy, b"GET / HTTP/1.1\r\nX: ", b"431"),
        (instance.proxy, b"GET /", b"414"),
        (instance.vault, get("/api/records", JSON, length, method="POST"), b"401"),
        (instance.vault, get("/oauth2/token", FORM, length, method="POST"), b"413"),
    ]:
        for last in (False, False, True):
            # on a machine that stands still for seconds, the caller is taken for gone
            with nullcontext() if last else suppress(ConnectionError):
                answer = await asyncio.to_thread(sent_whole, place, head, size)
                assert answer.split(b" ")[1] == status, head
                break


async def seen(instance: Instance) -> None:
    async with RawClient(port(instance.proxy)) as client:
        broken = post("/people", b'{"name": "Zorbina', JSON, CHROME)
        page = await client.ask(broken)
        assert (page.status, page.one("content-type")) == (400, b"text/html; charset=utf-8")
        assert b"<code>malformed_json</code>" in page.body
        assert b"Zorbina" not in page.raw
        assert b"default-src 'none'" in (page.one("content-security-policy") or b"")
        problem = await client.ask(broken.replace(CHROME.encode(), b"Accept: */*"))
        assert (problem.status, problem.one("content-type")) == (400, b"application/problem+json")
        assert b'"code": "malformed_json"' in problem.body


@pytest.mark.parametrize("arguments", [("serve",), WORKERS], ids=["alone", "workers"])
async def test_a_refusal_is_seen_whole_and_as_early_as_can_be(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    async with (
        RawServer(says(OK)) as server,
        started(Instance(tmp_path, arguments=arguments), rules(server.url)) as instance,
    ):
        await ready(instance)
        await early(instance)
        await late(instance)
        await seen(instance)
        assert server.requests == []


class Declining:
    """An application that refuses what is too short, and answers 200 all the same."""

    def __init__(self) -> None:
        self.people: dict[str, dict[str, Any]] = {}

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/people", self.create)
        app.router.add_get("/people/{id}", self.read)
        app.router.add_patch("/people/{id}", self.update)
        app.router.add_delete("/people/{id}", self.delete)
        return app

    async def create(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body.get("locked"):
            return web.json_response({"success": False, "message": "locked"})
        ident = str(len(self.people) + 1)
        self.people[ident] = {**body, "id": ident}
        return web.json_response(self.people[ident], status=201)

    async def read(self, request: web.Request) -> web.Response:
        return web.json_response(self.people[request.match_info["id"]])

    async def update(self, request: web.Request) -> web.Response:
        person, body = self.people[request.match_info["id"]], await request.json()
        if body.get("locked"):
            return web.json_response({**person, **body, "errors": ["locked"]})
        person.update(body)
        return web.json_response(person)

    async def delete(self, request: web.Request) -> web.Response:
        return web.json_response({"ok": False, "message": "locked"})


@pytest.mark.parametrize("text", [RULES, FLAT])
async def test_a_change_that_is_refused_with_200_loses_nothing(tmp_path: Path, text: str):
    application = Declining()
    ann = {"name": "Ann Wexlomere", "email": "ann@wexlomere.example"}
    async with serving(application.app()) as upstream:
        written = text.format(upstream=upstream)
        async with running(tmp_path, written) as instance, ClientSession() as session:
            site = f"{instance.proxy}/people"

            async def ask(method: str, path: str = "", **body: Any) -> Any:
                async with session.request(method, site + path, json=body or None) as answer:
                    return await answer.json()

            assert (await ask("POST", **ann))["name"] == ann["name"]
            for _ in range(2):
                tried = await ask("PATCH", "/1", name="Bo Ek", locked=True)
                assert (tried["name"], tried["errors"]) == ("Bo Ek", ["locked"])
                assert (await ask("DELETE", "/1"))["ok"] is False
                assert (await ask("GET", "/1"))["name"] == ann["name"]
            assert (await ask("POST", name="Cy", locked=True))["success"] is False
            assert (await ask("PATCH", "/1", name="Di Fo"))["name"] == "Di Fo"
            assert (await ask("GET", "/1"))["name"] == "Di Fo"
            assert not {"Ann Wexlomere", "Di Fo"} & {*application.people["1"].values()}
