"""Requests that are sent on in the moment they came: nobody can tell them from others, whatever
becomes of them.
"""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import cast

import pytest
from msgspec import structs

from proxy.errors import Code
from proxy.gateway.gateway import Gateway
from proxy.gateway.passthrough import PassthroughReply
from proxy.gateway.ports import RequestEvent
from proxy.net import response
from proxy.net.client import HttpUpstream
from proxy.net.reply import CallLimits
from proxy.net.response import RequestContext
from proxy.redactor.rules import Unmatched
from tests.support.gateway import MATCHED, Steered, gateway
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, get
from tests.support.rawserver import OK, Behaviour, RawServer, says

WARM = get("/warm")
#: Longer than any machine takes between two steps of a test.
LIMITS = CallLimits(connect=60, keep=60)


@pytest.fixture
def begun(monkeypatch):
    """The targets of the requests that were sent on at once."""
    seen: list[bytes] = []
    begin = Gateway.begin

    def noted(self, incoming):
        quick = begin(self, incoming)
        if quick is not None:
            seen.append(incoming.target)
        return quick

    monkeypatch.setattr(Gateway, "begin", noted)
    return seen


def after_warming(behaviour: Behaviour) -> Behaviour:
    """Answers the first request of each connection, and leaves the others to ``behaviour``."""

    async def behave(wire, server):
        await server.read(wire)
        await wire.send(OK)
        await behaviour(wire, server)

    return behave


@asynccontextmanager
async def warmed(behaviour: Behaviour) -> AsyncIterator[tuple[RawServer, Steered, RawClient]]:
    """A caller at a gateway that has an idle connection to its application."""
    async with (
        RawServer(after_warming(behaviour)) as server,
        gateway(server.url, limits=LIMITS) as (port, steered),
        RawClient(port) as client,
    ):
        assert (await client.ask(WARM)).status == 200
        await server.until(lambda: len(steered.notes) == 1)
        yield server, steered, client


ANSWERS = {
    "whole": (OK, b"ok"),
    "empty": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n",
        b"ok",
    ),
    "interim before": (b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + OK, b"ok"),
    "long": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1_000_000,
        b"x" * 1_000_000,
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_answers_of_every_kind_are_the_same_as_those_of_a_task(name, begun):
    answer, body = ANSWERS[name]
    status = 204 if name == "no content" else 200
    async with warmed(says(answer)) as (server, steered, client):
        for _ in range(3):
            await client.send(get("/a"))
            message = await client.head()
            if name == "interim before":
                assert message.head == b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n"
                message = await client.head()
            assert answer.endswith(message.head) or message.head in answer
            assert (await client.body(message, answer_to="GET")).body == body
        await server.until(lambda: len(steered.notes) == 4)
        told = [structs.replace(one, seconds=0.0) for one in steered.notes[1:]]
        assert told == [RequestEvent("crm", "-", "GET", status, len(body), 0.0, "passed", None)] * 3
    assert begun == [b"/a"] * 3
    assert [one.raw for one in server.requests[1:]] == [get("/a")] * 3
    assert len(server.wires) == 1


async def test_what_a_rule_names_is_asked_for_once_and_not_sent_on_at_once(begun):
    async with warmed(says(OK)) as (_, steered, client):
        del steered.asked[:]
        assert (await client.ask(get(MATCHED.decode() + "1"))).status == 200
        assert [one[2] for one in steered.asked] == [MATCHED + b"1"]
        assert steered.exchange_.names[0] == "outgoing"
    assert begun == []


@pytest.mark.parametrize(
    "fields", [("Connection: close",), ("Connection: Upgrade", "Upgrade: websocket")]
)
async def test_what_concerns_the_connection_is_for_the_task(fields, begun):
    async with warmed(says(OK)) as (_, __, client):
        assert (await client.ask(get("/a", *fields))).body == b"ok"
    assert begun == []


@pytest.mark.parametrize("method", ["POST", "PATCH", "SEARCH", "get"])
async def test_what_could_not_be_sent_twice_is_for_the_task(method, begun):
    async with warmed(says(OK)) as (server, _, client):
        for _ in range(2):
            assert (await client.ask(get("/a", method=method))).body == b"ok"
        assert len(server.wires) == 1
    assert begun == []


async def test_rules_whose_endpoint_has_no_address_are_an_error_and_not_the_end(begun):
    async with warmed(says(OK)) as (_, steered, client):
        good = steered.endpoint
        steered.endpoint = replace(good, upstream="nowhere")
        assert (await client.ask(get("/a"))).status == 500
        assert steered.notes[1].code is Code.BAD_RULES
        steered.endpoint = good
        assert (await client.ask(get("/a"))).status == 200
    assert begun == [b"/a"]


async def test_what_was_found_out_about_a_head_ends_with_the_rules(begun):
    async with warmed(says(OK)) as (server, steered, client):
        for _ in range(2):
            assert (await client.ask(get("/a"))).status == 200
        asked = len(steered.asked)
        assert (await client.ask(get("/a"))).status == 200
        assert len(steered.asked) == asked
        steered.endpoint = replace(steered.endpoint, unmatched=Unmatched.DENY)
        assert (await client.ask(get("/a"))).status == 403
        assert len(server.requests) == 4
    assert begun == [b"/a"] * 3


async def test_a_connection_that_ends_when_it_is_chosen_is_tried_once_more(begun):
    async def gone(wire, server):
        await server.read(wire)
        wire.reset()

    async with warmed(gone) as (server, steered, client):
        assert (await client.ask(get("/a"))).body == b"ok"
        assert len(server.wires) == 2
        assert [one.outcome for one in steered.notes] == ["passed", "passed"]
    assert begun == [b"/a"]


async def test_an_application_that_does_not_answer_is_given_up(begun):
    async def hangs(wire, server):
        await server.read(wire)
        await wire.until_close()

    async with warmed(hangs) as (server, steered, client):
        assert steered.gateway is not None
        await client.send(get("/a"))
        await server.until(lambda: len(server.requests) == 2)
        (pool,) = cast("HttpUpstream", steered.gateway._upstream)._pools.values()
        pool.sweep(asyncio.get_running_loop().time() + LIMITS.head + 1)
        assert (await client.answer()).status == 504
        assert (steered.notes[1].code, steered.notes[1].outcome) == (
            Code.UPSTREAM_TIMEOUT,
            "failed",
        )
        assert (await client.ask(get("/a"))).status == 200
    assert begun == [b"/a"]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"rubbish\r\n\r\n", Code.UPSTREAM_BROKEN),
        (b"HTTP/1.1 101 No\r\nUpgrade: x\r\n\r\n", Code.UPSTREAM_BROKEN),
    ],
)
async def test_what_is_no_answer_is_refused(sent, code, begun):
    async with warmed(says(sent)) as (_, steered, client):
        assert (await client.ask(get("/a"))).status == 502
        assert steered.notes[1].code is code
    assert begun == [b"/a"]


async def test_an_answer_that_breaks_off_is_cut(begun):
    async def breaks(wire, server):
        await server.read(wire)
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab")
        wire.reset()

    async with warmed(breaks) as (server, steered, client):
        await client.send(get("/a"))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.answer()
        await server.until(lambda: len(steered.notes) == 2)
        assert steered.notes[1].code is Code.UPSTREAM_BROKEN
    assert begun == [b"/a"]


class Held:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def __call__(self, wire, server):
        while True:
            path = (await server.read(wire)).start.split(b" ")[1]
            await self.released.wait()
            await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(path), path))


async def test_what_is_sent_behind_waits_for_its_turn(begun):
    held = Held()
    async with warmed(held) as (server, steered, client):
        await client.send(get("/a"))
        await server.until(lambda: len(server.requests) == 2)
        await client.send(get("/b") + get("/c"))
        await server.until(lambda: len(steered.callers[0]._queue) == 2)
        held.released.set()
        assert [(await client.answer()).body for _ in range(3)] == [b"/a", b"/b", b"/c"]
    assert begun == [b"/a", b"/b", b"/c"]


async def test_more_is_sent_behind_than_is_read_ahead(begun):
    held = Held()
    paths = [f"/{number}" for number in range(80)]
    async with warmed(held) as (server, steered, client):
        await client.send(get("/a"))
        await server.until(lambda: len(server.requests) == 2)
        await client.send(b"".join(map(get, paths)))
        await server.until(lambda: len(steered.callers[0]._queue) == 32)
        held.released.set()
        async with asyncio.timeout(PATIENCE):
            assert [(await client.answer()).body.decode() for _ in range(81)] == ["/a", *paths]
        await server.until(lambda: not steered.callers[0].busy)
        assert (await client.ask(get("/z"))).body == b"/z"
    assert begun == [path.encode() for path in ("/a", *paths, "/z")]


async def test_who_waits_for_a_connection_is_not_overtaken(begun):
    held = Held()
    only = CallLimits(connect=60, keep=60, connections=1)
    async with (
        RawServer(held) as server,
        gateway(server.url, limits=only) as (port, steered),
        RawClient(port) as first,
        RawClient(port) as second,
        RawClient(port) as third,
    ):
        held.released.set()
        await first.ask(WARM)
        held.released.clear()
        await first.send(get("/a"))
        await server.until(lambda: len(server.requests) == 2)
        assert steered.gateway is not None
        (pool,) = cast("HttpUpstream", steered.gateway._upstream)._pools.values()
        await second.send(get("/1"))
        await server.until(lambda: len(pool.line) == 1)
        await third.send(get("/2"))
        await server.until(lambda: len(pool.line) == 2)
        held.released.set()
        for client, path in ((first, b"/a"), (second, b"/1"), (third, b"/2")):
            assert (await client.answer()).body == path
        assert [one.start.split()[1] for one in server.requests] == [b"/warm", b"/a", b"/1", b"/2"]
    assert begun == [b"/a"]


async def test_bytes_behind_an_answer_are_nobodys(begun):
    async with warmed(says(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")) as (
        server,
        _,
        client,
    ):
        for _ in range(3):
            assert (await client.ask(get("/a"))).body == b"ok"
            assert (await client.ask(WARM)).body == b"ok"
        assert len(server.wires) == 4
    assert begun.count(b"/a") == 3


async def test_what_a_caller_does_not_take_is_bounded(begun):
    size = 60_000
    body = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (size, b"x" * size)
    async with warmed(says(body)) as (server, steered, client):
        (caller,) = steered.callers
        assert caller.transport is not None
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport of a socket can
        sent = 0

        def over() -> bool:
            return len(steered.notes) > sent or caller._drain_waiter is not None

        async with asyncio.timeout(PATIENCE):
            while caller._drain_waiter is None:
                await client.send(get("/a"))
                sent += 1
                await server.until(over)
        assert caller.transport.get_write_buffer_size() < response.WRITE_BUFFER + size + 100
        asked = len(server.requests)
        await client.send(get("/b") * 3)
        await server.until(lambda: len(caller._queue) == 3)
        assert len(server.requests) == asked
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]  # the same one
        for _ in range(sent + 3):
            assert len((await client.answer()).body) == size
    assert begun == [b"/a"] * sent + [b"/b"] * 3


async def test_the_application_is_told_when_the_caller_goes(begun):
    held = Held()
    async with warmed(held) as (server, steered, client):
        await client.send(get("/a"))
        await server.until(lambda: len(server.requests) == 2)
        client.reset()
        await server.until(lambda: len(steered.notes) == 2)
        assert (steered.notes[1].status, steered.notes[1].outcome) == (0, "passed")
        await server.until(lambda: steered.callers == [])
        held.released.set()
        await server.until(lambda: server.open == 0)
    assert begun == [b"/a"]


async def test_a_caller_that_sends_nothing_more_gets_its_answer(begun, monkeypatch):
    monkeypatch.setattr(
        "proxy.net.caller_connection._HALF_CLOSE_SECONDS", 60.0
    )  # however slow the machine
    held = Held()
    async with warmed(held) as (server, steered, client):
        await client.send(get("/a"))
        client.half_close()
        await server.until(lambda: bool(steered.callers[0]._no_more))
        held.released.set()
        assert (await client.answer()).body == b"/a"
        assert await asyncio.wait_for(client.until_close(), PATIENCE) == b""
    assert begun == [b"/a"]


async def test_draining_and_closing_wait_for_it_or_end_it(begun):
    held = Held()
    async with warmed(held) as (server, steered, client):
        assert steered.gateway is not None
        await client.send(get("/a"))
        await server.until(lambda: len(server.requests) == 2)
        draining = asyncio.ensure_future(steered.gateway.drain(PATIENCE))
        await server.until(
            lambda: (
                [one._current is not None and one._current.close for one in steered.callers]
                == [True]
            )
        )
        held.released.set()
        answer = await client.answer()
        assert (answer.body, answer.one("connection")) == (b"/a", b"close")
        assert await asyncio.wait_for(client.until_close(), PATIENCE) == b""
        await asyncio.wait_for(draining, PATIENCE)
    held = Held()
    async with warmed(held) as (server, steered, client):
        assert steered.gateway is not None
        await client.send(get("/a"))
        await server.until(lambda: len(server.requests) == 2)
        await asyncio.wait_for(steered.gateway.close(), PATIENCE)
        held.released.set()
        assert await asyncio.wait_for(client.until_close(), PATIENCE) == b""
        await server.until(lambda: server.open == 0)
        assert len(steered.notes) == 2
    assert begun == [b"/a"] * 2


async def test_a_connection_that_waits_for_its_answer_is_not_idle(begun):
    held = Held()
    async with warmed(held) as (server, steered, client):
        await client.send(get("/a"))
        await server.until(lambda: len(server.requests) == 2)
        (caller,) = steered.callers
        caller.idle_until = 0.0
        caller._idle()
        held.released.set()
        assert (await client.answer()).body == b"/a"
        await server.until(lambda: caller.idle_timer is not None)
        caller.idle_until = 0.0
        caller._idle()
        assert await asyncio.wait_for(client.until_close(), PATIENCE) == b""
    assert begun == [b"/a"]


async def test_a_fault_of_ours_ends_the_connection_and_is_told(begun, monkeypatch):
    def fails(*_):
        raise RuntimeError

    async with warmed(says(OK)) as (_, steered, client):
        monkeypatch.setattr(response, "whole_response", fails)
        answer = await client.ask(get("/a"))
        assert (answer.status, answer.one("connection")) == (500, b"close")
        assert await asyncio.wait_for(client.until_close(), PATIENCE) == b""
        assert steered.notes[1].code is Code.INTERNAL
    assert begun == [b"/a"]


async def test_nothing_of_a_request_waits_for_the_garbage_to_be_collected(begun):
    def alive() -> int:
        return sum(isinstance(one, PassthroughReply | RequestContext) for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        async with warmed(says(ANSWERS["long"][0], OK)) as (server, steered, client):
            for path in ("/a", "/b?q=Ann", "/c"):
                assert (await client.ask(get(path))).status == 200
            await server.until(lambda: len(steered.notes) == 4 and not steered.callers[0].busy)
            assert alive() <= 1  # the last one that the task handled
    finally:
        gc.enable()
    assert begun == [b"/a", b"/b?q=Ann", b"/c"]


async def test_an_interim_answer_passes_also_when_the_request_goes_out_again(begun):
    early = b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n"

    async def gone_then_early(wire, server):
        await server.read(wire)
        if len(server.wires) == 1:
            await wire.send(OK)
            await server.read(wire)
            wire.reset()
        else:
            await wire.send(early + OK)

    async with (
        RawServer(gone_then_early) as server,
        gateway(server.url, limits=LIMITS) as (port, _),
        RawClient(port) as client,
    ):
        await client.ask(WARM)
        await client.send(get("/a"))
        assert (await client.head()).head == early
        assert (await client.answer()).body == b"ok"
    assert begun == [b"/a"]
