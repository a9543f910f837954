"""WebSockets of the rule file ``rules/examples/streams.yaml`` through the whole program, between
real clients and servers.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from tests.e2e.test_workers import WORKERS, owner_of, ready
from tests.support.application import found_in
from tests.support.instance import Instance, started
from tests.support.patience import PATIENCE
from tests.support.serving import serving
from tests.support.tree import ROOT

RULES = ROOT / "rules" / "examples" / "streams.yaml"
ANN = {"name": "Zorbina Quibblethwaite", "email": "zorbina@wexlomere.example", "phone": "+46 70 1"}
MARKERS = ("Quibblethwaite", "wexlomere")


@dataclass
class Live:
    """An application that answers each message with the contact that it asks for."""

    contacts: list[dict[str, Any]] = field(default_factory=list)
    sent: bytearray = field(default_factory=bytearray)  #: what it was sent
    compressed: list[bool] = field(default_factory=list)  #: whether each socket is
    closed: list[int | None] = field(default_factory=list)  #: how each ended

    def app(self) -> web.Application:
        made = web.Application()
        made.add_routes([web.post("/contacts", self._create), web.get("/live", self._live)])
        return made

    async def _create(self, request: web.Request) -> web.Response:
        self.sent += await request.read()
        self.contacts.append({**await request.json(), "id": len(self.contacts) + 1})
        return web.json_response(self.contacts[-1], status=201)

    async def _live(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=("live",))
        if not socket.can_prepare(request).ok:
            return web.Response(status=426)
        await socket.prepare(request)
        self.compressed.append(bool(socket.compress))
        async for message in socket:
            if message.type is WSMsgType.BINARY:
                self.sent += message.data
                continue
            self.sent += message.data.encode()
            wanted = json.loads(message.data).get("search", {}).get("email")
            for one in self.contacts:
                if wanted in (None, one["email"]):
                    await socket.send_json({"type": "changed", "contact": one})
        self.closed.append(socket.close_code)
        return socket


@dataclass
class Scene:
    """The application, the program before it, and a caller."""

    application: Live
    instance: Instance
    caller: aiohttp.ClientSession

    def socket(self, **options: Any) -> Any:
        return self.caller.ws_connect(
            self.instance.proxy + "/live", protocols=("live",), timeout=_TIMES, **options
        )

    async def ended(self, count: int = 1) -> None:
        """Wait until the application has seen so many sockets end."""
        async with asyncio.timeout(PATIENCE):
            while len(self.application.closed) < count:  # noqa: ASYNC110  # another task tells
                await asyncio.sleep(0.02)


_TIMES = aiohttp.ClientWSTimeout(ws_receive=PATIENCE, ws_close=PATIENCE)


@pytest.fixture(params=["alone", "workers"])
async def scene(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    arguments = WORKERS if request.param == "workers" else ("serve",)
    application = Live()
    async with serving(application.app()) as upstream:
        rules = RULES.read_text().replace("http://127.0.0.1:3000", upstream)
        run = started(Instance(tmp_path, arguments=arguments), rules)
        async with run as instance, aiohttp.ClientSession() as caller:
            await ready(instance)
            async with caller.post(instance.proxy + "/contacts", json=ANN) as answer:
                assert answer.status == 201
            yield Scene(application, instance, caller)
    assert not any(found_in(bytes(application.sent), marker) for marker in MARKERS)


async def test_messages_show_people_and_ask_by_tokens(scene):
    async with scene.socket(compress=15) as socket:
        assert (socket.protocol, socket.compress) == ("live", 0)
        for message in ({}, {"type": "follow", "search": {"email": ANN["email"]}}):
            await socket.send_json(message)
            got = await socket.receive_json()
            assert got == {"type": "changed", "contact": {**ANN, "id": 1}}
        await socket.ping(b"still here")
        await socket.send_json({"search": {"email": "nobody@wexlomere.example"}})
        await socket.send_json({})
        assert (await socket.receive_json())["contact"]["name"] == ANN["name"]
        await socket.close(code=4001, message=b"bye")
    await scene.ended()
    assert (scene.application.compressed, scene.application.closed) == ([False], [4001])


@pytest.mark.parametrize(
    ("message", "code", "reason"),
    [
        (
            '{"search": {"Email": "zorbina@wexlomere.example"}}',
            1008,
            "ambiguous_json: /search/Email",
        ),
        ('{"search": "zorbina@wexlomere.example"}', 1008, "value_unfit"),
        ('{"save": {"note": "Quibblethwaite"}}', 1008, "operation_denied: $.save.note"),
        ("Quibblethwaite", 1008, "malformed_json"),
        (b"Quibblethwaite", 1003, "only text messages are taken here"),
        ("{" + " " * (3 << 20) + "}", 1009, ""),
    ],
)
async def test_what_cannot_be_read_closes_the_socket_and_does_not_leave(
    scene, message, code, reason
):
    async with scene.socket() as socket:
        await (socket.send_bytes if isinstance(message, bytes) else socket.send_str)(message)
        got = await socket.receive()
        assert got.type in (WSMsgType.CLOSE, WSMsgType.CLOSED)
        assert socket.close_code == code
        assert str(got.extra).startswith(reason)
    await scene.ended()
    async with scene.socket() as again:
        await again.send_json({})
        assert (await again.receive_json())["contact"]["id"] == 1


@pytest.mark.parametrize(
    "kind", [WSMsgType.TEXT, WSMsgType.PING]
)  # pings and binary messages go one way
async def test_a_socket_closes_once_its_rule_is_gone(scene, kind):
    rules = scene.instance.rules / "rules.yaml"
    before, live, after = rules.read_text().partition("  - match: GET /live")
    async with scene.socket() as socket, asyncio.timeout(PATIENCE):
        await socket.send_json({})
        assert (await socket.receive_json())["contact"] == {**ANN, "id": 1}
        rules.write_text(before + after[after.index("\n  # ") :])
        got = None
        while got is None or got.type is WSMsgType.TEXT:  # until the rules are read again
            await (socket.send_json({}) if kind is WSMsgType.TEXT else socket.ping())
            with suppress(TimeoutError):
                got = await socket.receive(timeout=0.1)
        assert live
        assert (socket.close_code, got.extra) == (1008, "operation_denied")
    await scene.ended()


async def test_long_messages_pass_both_ways(scene):
    async with scene.socket() as socket:
        await socket.send_json({"padding": "x" * 1_000_000})
        assert (await socket.receive_json())["contact"] == {**ANN, "id": 1}


async def test_a_caller_that_goes_away_ends_it_for_the_application(scene):
    socket = await scene.socket()
    await socket.send_json({})
    await socket.receive_json()
    socket._response.connection.transport.abort()
    await scene.ended()


async def test_a_request_that_opens_no_socket_gets_the_answer_of_the_application(scene):
    async with scene.caller.get(scene.instance.proxy + "/live") as answer:
        assert answer.status == 426


@pytest.mark.parametrize("scene", ["workers"], indirect=True)
async def test_a_socket_whose_vault_is_killed_closes_and_the_next_one_opens(scene):
    async with scene.socket() as socket:
        await socket.send_json({})
        await socket.receive_json()
        owner_of(scene.instance).kill()
        await asyncio.sleep(0.1)
        with suppress(ConnectionResetError):  # it may have been closed by then
            await socket.send_json({"search": {"email": ANN["email"]}})
        assert (await socket.receive()).type in (WSMsgType.CLOSE, WSMsgType.CLOSED)
        assert socket.close_code in (1008, 1011)
    await scene.ended()
    await ready(scene.instance)
    async with scene.socket() as again:
        await again.send_json({"search": {"email": ANN["email"]}})
        assert (await again.receive_json())["contact"] == {**ANN, "id": 1}
