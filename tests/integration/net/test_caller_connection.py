"""The server towards callers: hostile and sloppy ones."""

import asyncio
import json

import pytest

from proxy.errors import Code
from proxy.net.http1.head import Heads
from tests.support.gateway import gateway
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, chunked, get, post
from tests.support.rawserver import OK, RawServer, says

REFUSED = {
    "not http": b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "version 0.9": b"GET / HTTP/0.9\r\nHost: x\r\n\r\n",
    "version 2": b"GET / HTTP/2.0\r\nHost: x\r\n\r\n",
    "version 1.2": b"GET / HTTP/1.2\r\nHost: x\r\n\r\n",
    "preface of version 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "bare line ends": b"GET / HTTP/1.1\nHost: x\n\n",
    "one bare line end": b"GET / HTTP/1.1\r\nHost: x\nX: y\r\n\r\n",
    "folded field": get("/", "X: y\r\n z"),
    "space before colon": get("/", "X : y"),
    "nul in a value": get("/", "X: a\x00b"),
    "control byte in a value": get("/", "X: a\x0bb"),
    "the target of all for another method": get("*"),
    "space in the target": get("/a b"),
    "target without a slash": get("a"),
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": get("/", "Host: y"),
    "host that is none": get("/", host="a, b"),
    "target and host disagree": get("http://other/"),
    "connect": b"CONNECT x:80 HTTP/1.1\r\nHost: x:80\r\n\r\n",
    "lengths repeated": get("/", "Content-Length: 3", "Content-Length: 3", method="POST") + b"abc",
    "lengths in a list": get("/", "Content-Length: 3, 3", method="POST") + b"abc",
    "length with a sign": get("/", "Content-Length: +3", method="POST") + b"abc",
    "negative length": get("/", "Content-Length: -3", method="POST") + b"abc",
    "length and chunks": get("/", "Content-Length: 3", "Transfer-Encoding: chunked", method="POST")
    + b"0\r\n\r\n",
    "chunks and length": get("/", "Transfer-Encoding: chunked", "Content-Length: 3", method="POST")
    + b"0\r\n\r\n",
    "chunked twice": get("/", "Transfer-Encoding: chunked, chunked", method="POST") + b"0\r\n\r\n",
    "coding before chunked": get("/", "Transfer-Encoding: gzip, chunked", method="POST")
    + b"0\r\n\r\n",
    "unknown transfer coding": get("/", "Transfer-Encoding: xchunked", method="POST")
    + b"0\r\n\r\n",
    "chunks of 1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunk size that is none": get("/", "Transfer-Encoding: chunked", method="POST") + b"zz\r\n",
    "line end in a chunk extension": get("/", "Transfer-Encoding: chunked", method="POST")
    + b"3;x\ny\r\nabc\r\n0\r\n\r\n",
    "chunk longer than it says": get("/", "Transfer-Encoding: chunked", method="POST")
    + b"3\r\nabcd\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_readers_could_read_differently_is_refused_and_the_next_caller_is_served(
    name, capfd
):
    async with RawServer(says(OK)) as server, gateway(server.url) as (port, steered):
        async with RawClient(port) as client:
            answer = await client.ask(REFUSED[name])
            assert (answer.status, answer.one("domicile-answer")) == (400, b"proxy")
            assert answer.one("connection") == b"close"
            assert await client.until_close() == b""
        assert server.requests == []
        assert [(one.status, one.code) for one in steered.notes] == [(400, Code.BAD_REQUEST)]
        async with RawClient(port) as client:
            assert (await client.ask(get())).status == 200
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("sent", "code", "status"),
    [
        (get("/" + "a" * 20_000), Code.URI_TOO_LONG, 414),
        (get("/" + "a" * 20_000)[:-4], Code.URI_TOO_LONG, 414),
        (get("/" + "a" * 200_000), Code.URI_TOO_LONG, 414),
        (get("/", "X: " + "a" * 20_000), Code.HEADER_TOO_LARGE, 431),
        (get("/", "X: " + "a" * 200_000), Code.HEADER_TOO_LARGE, 431),
        (get("/", *["X: y"] * 200), Code.HEADER_TOO_LARGE, 431),
    ],
)
async def test_a_target_or_a_head_that_is_too_long_is_told_from_what_cannot_be_read(
    sent, code, status
):
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url) as (port, steered),
        RawClient(port) as client,
    ):
        answer = await client.ask(sent)
        told = json.loads(answer.body)
        assert (answer.status, told["status"], told["code"]) == (status, status, code)
        assert answer.one("connection") == b"close"
        assert await client.until_close() == b""
        assert server.requests == []
        assert [(one.status, one.code) for one in steered.notes] == [(status, code)]


async def test_what_is_sent_in_single_bytes_is_understood():
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(chunked("/a", b"abc", fields=("X: y",)) + get("/b"), 1)
        assert [(await client.answer()).status for _ in range(2)] == [200, 200]
        assert [one.start.split()[1] for one in server.requests] == [b"/a", b"/b"]
        assert server.requests[0].body == b"abc"


async def test_garbage_behind_a_request_ends_the_connection_and_is_not_forwarded():
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        assert (await client.ask(get("/a"))).status == 200
        await client.send(b"\x00\x01\x02 rubbish\r\n\r\n")
        assert (await client.answer()).status == 400
        assert await client.until_close() == b""
        assert len(server.requests) == 1


async def test_a_slow_head_is_given_up():
    options = {"heads": Heads(keep=0.3)}
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url, options=options) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(b"GET / HTTP/1.1\r\nHo")
        assert await asyncio.wait_for(client.until_close(), PATIENCE) == b""


async def kept_while_asking(port: int) -> bool:
    """Whether three requests, each within the time of the one before, are answered on one
    connection; it ends then.
    """
    async with RawClient(port) as client:
        for _ in range(3):
            try:
                assert (await client.ask(get())).status == 200
            except (asyncio.IncompleteReadError, ConnectionError):
                return False
            await asyncio.sleep(0.35)
        assert await asyncio.wait_for(client.until_close(), PATIENCE) == b""
        return True


async def test_a_kept_connection_is_measured_from_its_last_answer():
    options = {"heads": Heads(keep=0.6)}
    async with RawServer(says(OK)) as server, gateway(server.url, options=options) as (port, _):
        for _ in range(10):  # a machine that pauses between two requests spoils a try
            if await kept_while_asking(port):
                return
    raise AssertionError("a connection that is used ends too early, ten times in a row")


async def test_a_body_nobody_reads_does_not_take_the_answer_from_the_caller():
    async def refuses(wire, server):
        await wire.head()
        await wire.send(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno")
        await wire.until_close()

    async with (
        RawServer(refuses) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(get("/", "Content-Length: 2000000", method="POST"))
        await client.send(b"x" * 1_000_000)
        await client.send(b"x" * 1_000_000)
        answer = await client.answer()
        assert (answer.status, answer.body, answer.one("connection")) == (403, b"no", b"close")


async def test_many_callers_at_once_and_none_is_mixed_up():
    async def names(wire, server):
        while True:
            path = (await server.read(wire)).start.split(b" ")[1]
            await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(path), path))

    async def calls(port: int, number: int) -> None:
        async with RawClient(port) as client:
            for count in range(20):
                request = (
                    get(f"/{number}-{count}")
                    if count % 2
                    else post(f"/{number}-{count}", b"x" * count)
                )
                assert (await client.ask(request)).body == f"/{number}-{count}".encode()

    async with RawServer(names) as server, gateway(server.url) as (port, _):
        await asyncio.gather(*(calls(port, number) for number in range(50)))


@pytest.mark.parametrize(
    "request_", [get(), get("/people/1"), post("/", b"abc"), chunked("/", b"abc")]
)
async def test_a_caller_that_sends_nothing_more_still_gets_its_answers(request_, monkeypatch):
    monkeypatch.setattr(
        "proxy.net.caller_connection._HALF_CLOSE_SECONDS", 60.0
    )  # however slow the machine

    async def slow(wire, server):
        while True:
            await server.read(wire)
            await server.until(lambda: released)
            await wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
            await wire.send(b"0\r\n\r\n")

    released: list[bool] = []
    async with (
        RawServer(slow) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(request_ * 3)
        client.half_close()
        await server.until(lambda: server.requests != [])
        released.append(True)
        assert [(await client.answer()).body for _ in range(3)] == [b"ok"] * 3
        assert await client.until_close() == b""


async def test_a_caller_that_ends_its_side_late_or_within_an_answer_has_gone(monkeypatch):
    async def begins(wire, server):
        request = await server.read(wire)
        if b"/begun" in request.start:
            await wire.send(b"HTTP/1.1 200 OK\r\n\r\nbegin")
        await wire.until_close()

    async with RawServer(begins) as server, gateway(server.url) as (port, _):
        async with RawClient(port) as client:
            await client.send(get("/begun"))
            await client.head()
            client.half_close()
            await server.until(lambda: server.open == 0)
            assert not bytes(client.received).endswith(b"0\r\n\r\n")
        monkeypatch.setattr("proxy.net.caller_connection._HALF_CLOSE_SECONDS", -1.0)
        async with RawClient(port) as client:
            await client.send(get("/silent"))
            await server.until(lambda: len(server.requests) == 2)
            client.half_close()
            await server.until(lambda: server.open == 0)


@pytest.mark.parametrize("request_", [get(), post("/", b"abc"), post("/people", b"{}")])
async def test_pipelined_requests_of_a_half_closed_caller_are_all_answered(request_, monkeypatch):
    """More of them than are read ahead, and slower than the time after which an end is late."""
    monkeypatch.setattr("proxy.net.caller_connection._HALF_CLOSE_SECONDS", 0.5)

    async def slow(wire, server):
        while await server.read(wire):
            await asyncio.sleep(0.03)
            await wire.send(OK)

    async with (
        RawServer(slow) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(request_ * 60)
        client.half_close()
        statuses = [(await client.answer()).status for _ in range(60)]
        assert statuses == [200] * 60
        assert await client.until_close() == b""


async def test_a_body_that_waits_for_a_slow_application_may_be_the_last_thing_a_caller_sends(
    monkeypatch,
):
    monkeypatch.setattr("proxy.net.caller_connection._HALF_CLOSE_SECONDS", 0.1)
    length = 2_000_000

    async def reads_slowly(wire, server):
        await wire.head()
        remaining = length
        while remaining:
            await asyncio.sleep(0.15)
            remaining -= len(await wire.some(400_000))
        await wire.send(OK)

    async with (
        RawServer(reads_slowly) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(get("/", f"Content-Length: {length}", method="POST") + b"x" * length)
        client.half_close()
        assert (await client.answer()).status == 200
