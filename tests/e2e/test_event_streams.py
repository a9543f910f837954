"""Streams of the rule file ``rules/examples/streams.yaml`` through the whole program, before an
application that has them.
"""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from aiohttp import web

from tests.e2e.test_workers import WORKERS, owner_of, ready, workers_of
from tests.support import plain
from tests.support.application import found_in
from tests.support.instance import Instance, started
from tests.support.patience import PATIENCE
from tests.support.serving import serving
from tests.support.tree import ROOT

RULES = ROOT / "rules" / "examples" / "streams.yaml"
ANN = {"name": "Zorbina Quibblethwaite", "email": "Zorbina@wexlomere.example", "phone": "+46 70 91"}
EVE = {"name": "Evelina Flumpergatan", "email": "eve@wexlomere.example", "phone": "+46 70 92"}
MARKERS = ("Quibblethwaite", "Flumpergatan", "wexlomere")
MEGABYTES = 30


@dataclass
class Streams:
    """An application that streams the contacts that it has."""

    contacts: list[dict[str, Any]] = field(default_factory=list)
    sent: bytearray = field(default_factory=bytearray)  #: what it was sent
    more: asyncio.Event = field(default_factory=asyncio.Event)  #: lets the second event go
    megabytes: int = 0  #: of lines that an export has, in place of each contact once

    def app(self) -> web.Application:
        made = web.Application()
        made.add_routes(
            [
                web.post("/contacts", self._create),
                web.get("/contacts/export", self._export),
                web.post("/contacts/search", self._export),
                web.get("/contacts/events", self._events),
                web.get("/contacts/parts", self._parts),
            ]
        )
        return made

    async def _create(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.sent += body
        self.contacts.append({**json.loads(body), "id": len(self.contacts) + 1})
        return web.json_response(self.contacts[-1], status=201)

    async def _export(self, request: web.Request) -> web.StreamResponse:
        self.sent += await request.read()
        answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await answer.prepare(request)
        contacts = [{**one, "note": "x" * 1000} if self.megabytes else one for one in self.contacts]
        lines = b"".join(json.dumps(one).encode() + b"\n" for one in contacts)
        times = max(1, (self.megabytes << 20) // len(lines))
        block = lines * min(times, 50)
        for _ in range(max(1, times // 50)):
            await answer.write(block)
        return answer

    async def _events(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(b": welcome\n\n")
        for number, contact in enumerate(self.contacts):
            text = json.dumps({"type": "changed", "contact": contact})
            await answer.write(f"id: {number}\nevent: change\ndata: {text}\n\n".encode())
            await self.more.wait()
        return answer

    async def _parts(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": 'multipart/mixed; boundary="-"'})
        await answer.prepare(request)
        await answer.write(b"\r\n---\r\n")
        for contact in self.contacts:
            text = json.dumps({"contact": contact})
            head = "Content-Type: application/json\r\n"
            await answer.write(f"{head}\r\n{text}\r\n---".encode())
            await self.more.wait()
            await answer.write(b"\r\n" if contact is not self.contacts[-1] else b"--\r\n")
        return answer


@dataclass
class Scene:
    """The application, the program before it, and a caller."""

    application: Streams
    instance: Instance
    caller: aiohttp.ClientSession

    async def create(self, contact: dict[str, Any]) -> None:
        async with self.caller.post(self.instance.proxy + "/contacts", json=contact) as answer:
            assert answer.status == 201
            assert {**contact, "id": len(self.application.contacts)} == await answer.json()


@pytest.fixture(params=["alone", "workers"])
async def scene(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    arguments = WORKERS if request.param == "workers" else ("serve",)
    application = Streams()
    async with serving(application.app()) as upstream:
        rules = RULES.read_text().replace("http://127.0.0.1:3000", upstream)
        run = started(Instance(tmp_path, arguments=arguments), rules)
        async with run as instance, aiohttp.ClientSession() as caller:
            await ready(instance)
            made = Scene(application, instance, caller)
            await made.create(ANN)
            await made.create(EVE)
            yield made
    assert not any(found_in(bytes(application.sent), marker) for marker in MARKERS)


async def test_a_streamed_list_shows_people_line_by_line(scene):
    async with scene.caller.get(scene.instance.proxy + "/contacts/export") as answer:
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        assert [json.loads(line) async for line in answer.content] == [
            {**ANN, "id": 1},
            {**EVE, "id": 2},
        ]
    search = scene.caller.post(
        scene.instance.proxy + "/contacts/search", data={"email": EVE["email"]}
    )
    async with search as answer:
        assert len((await answer.read()).splitlines()) == 2


async def test_the_first_event_is_there_before_the_application_sends_the_second(scene):
    async with (
        asyncio.timeout(PATIENCE),
        scene.caller.get(scene.instance.proxy + "/contacts/events") as answer,
    ):
        read = answer.content.readline
        assert [await read() for _ in range(4)] == [
            b": welcome\n", b"\n", b"id: 0\n", b"event: change\n"
        ]  # fmt: skip
        first = json.loads((await read()).removeprefix(b"data: "))
        assert first == {"type": "changed", "contact": {**ANN, "id": 1}}
        scene.application.more.set()
        rest = (await answer.content.read()).splitlines()
        assert json.loads(rest[3].removeprefix(b"data: "))["contact"] == {**EVE, "id": 2}


async def test_the_first_part_is_there_before_the_application_sends_the_second(scene):
    async with (
        asyncio.timeout(PATIENCE),
        scene.caller.get(scene.instance.proxy + "/contacts/parts") as answer,
    ):
        first = (await answer.content.readuntil(b"}}")).partition(b"\r\n\r\n")[2]
        assert json.loads(first) == {"contact": {**ANN, "id": 1}}
        scene.application.more.set()
        assert await answer.content.readuntil(b"\r\n---\r\n") == b"\r\n---\r\n"
        head, second = (
            (await answer.content.read()).removesuffix(b"\r\n-----\r\n").split(b"\r\n\r\n")
        )
        assert head == b"Content-Type: application/json"
        assert json.loads(second) == {"contact": {**EVE, "id": 2}}


async def test_a_stream_that_its_caller_leaves_is_let_go(scene):
    answer = await scene.caller.get(scene.instance.proxy + "/contacts/events")
    await answer.content.readline()
    answer.close()
    scene.application.more.set()
    async with scene.caller.get(scene.instance.proxy + "/contacts/export") as again:
        assert again.status == 200
        assert len((await again.read()).splitlines()) == 2


async def test_a_long_stream_takes_no_memory(scene):
    scene.application.megabytes = MEGABYTES
    processes = [one.pid for one in workers_of(scene.instance)] or [scene.instance.process.pid]
    url = scene.instance.proxy + "/contacts/export"
    least = most = 0
    size = 0
    async with scene.caller.get(url) as answer:
        async for piece in answer.content.iter_chunked(1 << 18):
            size += len(piece)
            if size > 5 << 20:  # what the first megabytes needed is there to be used again
                now = sum(map(plain.memory, processes))
                least, most = least or now, max(most, now)
            assert b"@wexlomere.example" in piece or len(piece) < 2000
    assert size > MEGABYTES << 19  # values are shorter than tokens
    assert most - least < 16 << 20


@pytest.mark.parametrize("scene", ["workers"], indirect=True)
@pytest.mark.parametrize("victim", ["the owner", "the front"])
async def test_a_stream_whose_process_is_killed_breaks_off_and_the_next_one_is_whole(scene, victim):
    answer = await scene.caller.get(scene.instance.proxy + "/contacts/events")
    for _ in range(5):
        await answer.content.readline()
    owner = owner_of(scene.instance)
    for one in workers_of(scene.instance):
        if (one == owner) == (victim == "the owner") and (one == owner or serves(one, answer)):
            one.kill()
    scene.application.more.set()
    with pytest.raises(aiohttp.ClientPayloadError):  # never an end that looks like one
        await asyncio.wait_for(answer.content.read(), PATIENCE)
    answer.close()
    async with asyncio.timeout(2 * PATIENCE):
        while await names(scene) != [ANN["name"], EVE["name"]]:  # noqa: ASYNC110  # until it serves
            await asyncio.sleep(0.2)


async def names(scene: Scene) -> list[str]:
    """What a whole export shows; nothing while the one that has the values is being replaced."""
    async with scene.caller.get(scene.instance.proxy + "/contacts/export") as answer:
        if answer.status == 503:
            assert "name" not in await answer.json()
            return []
        assert answer.status == 200
        return [json.loads(line)["name"] async for line in answer.content]


def serves(process: psutil.Process, answer: aiohttp.ClientResponse) -> bool:
    """Whether the caller's connection is with that process."""
    assert answer.connection is not None
    assert answer.connection.transport is not None
    port = answer.connection.transport.get_extra_info("sockname")[1]
    return any(one.raddr and one.raddr.port == port for one in process.net_connections())


@pytest.mark.slow
@pytest.mark.parametrize("scene", ["workers"], indirect=True)
async def test_a_stream_without_an_end_holds_up_no_restart(scene):
    answer = await scene.caller.get(scene.instance.proxy + "/contacts/events")
    await answer.content.readline()
    scene.instance.send(signal.SIGUSR2)
    await scene.instance.logged("the process that serves is replaced", within=2 * PATIENCE)
    with pytest.raises(aiohttp.ClientPayloadError):
        await asyncio.wait_for(answer.content.read(), PATIENCE)
    answer.close()
    async with scene.caller.get(scene.instance.proxy + "/contacts/export") as again:
        assert len((await again.read()).splitlines()) == 2
