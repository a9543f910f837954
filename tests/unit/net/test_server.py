"""Who begins a request and does not end it; what is served is the smallest application there is."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from proxy.net import server
from proxy.net.listener import listen
from proxy.net.server import ApplicationConnection
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, get, post

MADE: list[ApplicationConnection] = []


class Noted(ApplicationConnection):
    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        MADE.append(self)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    MADE.clear()
    app = web.Application()

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    app.router.add_route("*", "/", echo)
    async with listen("admin", ("127.0.0.1", 0), app, connections=Noted) as address:
        yield int(address.rpartition(":")[2])


async def test_what_is_cancelled_at_the_end_cleans_up_before_the_next_thing_ends():
    done: list[str] = []

    async def hangs(_: web.Request) -> web.Response:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.1)
            done.append("cleaned up")
        raise AssertionError("nobody sets it")

    app = web.Application()
    app.router.add_get("/", hangs)
    async with (
        contextlib.AsyncExitStack() as callers,  # who are there to the end
        listen("admin", ("127.0.0.1", 0), app, connections=ApplicationConnection) as address,
    ):
        client = RawClient(int(address.rpartition(":")[2]))
        await (await callers.enter_async_context(client)).send(get("/"))
        await asyncio.sleep(0.1)
        callers.callback(lambda: done.append("closed"))
    assert done == ["cleaned up", "closed"]


async def ends(client: RawClient) -> bool:
    async with asyncio.timeout(PATIENCE):
        return await client.reader.read() == b""


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-"])
async def test_a_connection_that_asks_for_nothing_ends(port, monkeypatch, sent):
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.05)
    async with RawClient(port) as client:
        await client.send(sent)
        assert await ends(client)


async def test_so_does_one_that_does_not_come_to_the_end_of_a_later_head(port, monkeypatch):
    async with RawClient(port) as client:
        for _ in range(2):
            assert (await client.ask(get())).status == 200
        monkeypatch.setattr(server, "HEAD_SECONDS", 0.05)
        await client.send(b"GET / HTTP/1.1\r\n")
        assert await ends(client)


async def test_a_later_head_that_comes_in_pieces_has_its_time_from_its_first_one(port):
    async with RawClient(port) as client:
        assert (await client.ask(get())).status == 200
        (connection,) = MADE
        timers = [connection.waiting]
        await client.send(b"GET / HTTP/1.1\r\n")
        async with asyncio.timeout(PATIENCE):
            while connection.waiting is None:  # noqa: ASYNC110  # the bytes arrive when they do
                await asyncio.sleep(0.005)
        timers.append(connection.waiting)
        await client.send(b"Host: x\r\n")
        await client.send(b"X: y\r\n")
        await client.send(b"\r\n")
        assert (await client.answer()).status == 200
        timers.append(connection.waiting)
        assert [timer is not None and timer.cancelled() for timer in timers] == [False, True, False]


async def test_nothing_ends_a_request_whose_head_is_there(port):
    async with RawClient(port) as client:
        assert (await client.ask(post("/", b"abc"))).body == b"abc"
        await client.send(post("/", b"abc")[:-1])
        assert await client.ask(b"c") is not None
        assert [connection.waiting for connection in MADE] == [None]


TOO_LONG = [
    (get("/" + "secret" * 4000), 414, "uri_too_long"),
    (get("/" + "secret" * 4000)[:-4], 414, "uri_too_long"),
    (get("/?" + "secret" * 40_000), 414, "uri_too_long"),
    (get("/", "X: /" + "secret" * 4000), 431, "header_too_large"),
    (get("/", "X-" + "secret" * 4000 + ": a"), 431, "header_too_large"),
    (get("/", "X: " + "secret" * 40_000), 431, "header_too_large"),
    (get("/", *["X: secret"] * 200), 431, "header_too_large"),
    (b"secret\r\n\r\n", 400, "bad_request"),
]


@pytest.mark.parametrize(("sent", "status", "code"), TOO_LONG)
@pytest.mark.parametrize("piece", [1000, 1 << 20])
async def test_a_target_or_a_head_that_is_too_long_is_told_from_what_cannot_be_read(
    port, sent, status, code, piece
):
    async with RawClient(port) as caller:
        for at in range(0, len(sent), piece):
            with contextlib.suppress(ConnectionError):  # it may be answered before all was sent
                await caller.send(sent[at : at + piece])
        answer = await caller.answer()
        told = json.loads(answer.body)
        assert (answer.status, told["status"], told["code"]) == (status, status, code)
        assert (answer.one("server"), answer.one("content-type")) == (
            b"domicile",
            b"application/problem+json",
        )
        assert b"secret" not in answer.body


async def test_a_target_and_fields_within_the_bounds_are_taken(port):
    async with RawClient(port) as caller:
        assert (
            await caller.ask(get("/?" + "a" * 16_000, *["X: " + "a" * 8000] * 20))
        ).status == 200
