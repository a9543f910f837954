"""A framework that drops bytes which are no UTF-8: Bottle serves ``/p%FFeople`` as ``/people``, and
so does its rule.

It stands on Python's own server, which takes every byte in a target.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.application import found_in
from tests.support.instance import running
from tests.support.people import ANN, MARKERS, rules
from tests.support.rawclient import RawClient, post
from tests.support.rawhttp import Message
from tests.support.real.installed import LENIENT, environment
from tests.support.real.wire import Wire, tapped

_SERVER = """\
import json, sys
from wsgiref.simple_server import WSGIRequestHandler, make_server
import bottle

application = bottle.Bottle()
people = {}

@application.post("/people")
@application.post("/static/<name:path>")
def create(name=None):
    number = str(len(people) + 1)
    people[number] = {**json.load(bottle.request.body), "id": int(number)}
    bottle.response.status = 201
    return people[number]

@application.put("/people/<number>")
def replace(number):
    people[number] = {**json.load(bottle.request.body), "id": int(number)}
    return people[number]

class Quiet(WSGIRequestHandler):
    def log_request(self, *_):
        pass

with make_server("127.0.0.1", 0, application, handler_class=Quiet) as server:
    print(server.server_port, flush=True)
    server.serve_forever()
"""

#: Bytes that the framework drops: escaped, raw, cut off, half of a surrogate pair, in two letter
#: cases.
FOREIGN = [b"%FF", b"%fe", b"\xff", b"%E2%82", b"%ED%A0%80", b"%C3", b"%F0%9F"]


@asynccontextmanager
async def behind(folder: Path) -> AsyncIterator[tuple[Wire, int, int]]:
    """The framework, tapped; its own port, and that of the proxy before it."""
    process = await asyncio.create_subprocess_exec(
        str(environment(LENIENT)),
        "-W",
        "ignore",
        "-c",
        _SERVER,
        stdout=asyncio.subprocess.PIPE,
        stderr=sys.stderr,
    )
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        async with tapped(port) as wire, running(folder, rules(wire.address)) as instance:
            yield wire, port, int(instance.proxy.rpartition(":")[2])
    finally:
        process.kill()
        await process.wait()


async def asked(port: int, target: bytes, method: str = "POST") -> Message:
    async with RawClient(port) as client:
        request = post(
            "TARGET", json.dumps(ANN).encode(), "Content-Type: application/json", method=method
        )
        return await client.ask(request.replace(b"TARGET", target, 1))


async def test_bytes_that_the_framework_drops_lead_past_no_rule(tmp_path: Path) -> None:
    async with behind(tmp_path) as (wire, port, proxy):
        assert (await asked(proxy, b"/people")).status == 201
        for foreign in FOREIGN:
            targets = [b"/p" + foreign + b"eople", b"/" + foreign + b"people", b"/people" + foreign]
            assert (await asked(port, targets[0])).status == 201  # what the test is about
            answers = [
                await asked(proxy, target) for target in [*targets, b"/" + foreign + b"/people"]
            ]
            answers.append(await asked(proxy, b"/peo" + foreign + b"ple/1", "PUT"))
            assert {answer.status for answer in answers} <= {200, 201, 400, 404}
            assert [answer.status for answer in answers].count(201) >= 2
            shown = [json.loads(answer.body)["name"] for answer in answers if answer.status < 300]
            assert set(shown) == {ANN["name"]}
        assert {marker: found_in(bytes(wire.sent), marker) for marker in MARKERS} == {
            marker: [] for marker in MARKERS
        }


async def test_what_no_rule_names_in_any_reading_passes_byte_for_byte(tmp_path: Path) -> None:
    async with behind(tmp_path) as (wire, _, proxy):
        for foreign in FOREIGN:
            target = b"/static/p" + foreign + b"eople"
            assert (await asked(proxy, target)).status == 201
            assert b"POST " + target + b" HTTP/1.1\r\n" in wire.sent
