"""What no rule names passes as if the proxy were not there: raw bytes on both sides are compared."""

import asyncio
import time
import tracemalloc

import pytest

from proxy.errors import Code
from proxy.net.reply import CallLimits
from tests.support.gateway import gateway
from tests.support.ports import closed_port
from tests.support.rawclient import RawClient, chunked, get, post
from tests.support.rawserver import OK, RawServer, closes, drips, says, silent

#: Only for a test that waits for one of them to pass.
QUICK = CallLimits(connect=60, head=0.4, idle=0.4)


async def exchange(request: bytes, *answers: bytes, close: bool = False):
    """One request through the gateway: what the application got, what the caller got."""
    async with (
        RawServer(says(*answers or (OK,), close=close)) as server,
        gateway(server.url) as (port, _),
    ):
        async with RawClient(port) as client:
            answer = await client.ask(request)
            return server.requests[0], answer


async def test_connection_fields_stay_on_their_connection():
    fields = [
        "Connection: keep-alive, X-Hop, Authorization",
        "X-Hop: 1",
        "Authorization: x",
        "Keep-Alive: 5",
    ]
    fields += ["Proxy-Connection: x", "TE: gzip"]
    answer = (
        b"HTTP/1.1 200 OK\r\nConnection: X-Mine\r\nX-Mine: 1\r\nKeep-Alive: "
        b"timeout=1\r\nContent-Length: 0\r\nX: y\r\n\r\n"
    )
    request, got = await exchange(get("/", *fields), answer)
    assert request.fields == [(b"Host", b"app.test"), (b"Authorization", b"x")]
    assert got.fields == [(b"Content-Length", b"0"), (b"X", b"y")]


async def test_our_own_fields_come_from_nobody_else():
    answer = (
        b"HTTP/1.1 200 OK\r\nDomicile-Answer: proxy\r\ndomicile-x: y\r\nContent-Length: 0\r\n\r\n"
    )
    request, got = await exchange(
        get("/", "Domicile-Caller: admin", "domicile_caller: admin", "X: 1"), answer
    )
    assert request.fields == [(b"Host", b"app.test"), (b"X", b"1")]
    assert got.fields == [(b"Content-Length", b"0")]


@pytest.mark.parametrize("together", [True, False])
async def test_trailers_follow_the_body(together):
    data = chunked(
        "/x", b"abc", trailers=b"X-Sum: \xe9\r\nx-sum:2\r\nHost: y\r\n", fields=("Trailer: X-Sum",)
    )
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(data, 0 if together else 1)
        assert (await client.answer()).status == 200
        request = server.requests[0]
        assert (request.body, request.trailers) == (b"abc", [(b"X-Sum", b"\xe9"), (b"x-sum", b"2")])
        assert request.one("trailer") == b"X-Sum"


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n"),
        ("GET", b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\nContent-Length: 1000\r\n\r\n'),
        ("GET", b"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n"),
        (
            "GET",
            (
                b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-1/9\r\nContent-Length: "
                b"2\r\n\r\nab"
            ),
        ),
        ("GET", b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n"),
        (
            "GET",
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: "
                b"1\r\nx-sum: 2\r\n\r\n"
            ),
        ),
        ("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ],
)
async def test_answers_pass_and_the_connection_goes_on(method, answer):
    async with (
        RawServer(says(answer)) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        for _ in range(2):
            got = await client.ask(get(method=method))
            assert got.raw == answer
        assert len(server.wires) == 1


@pytest.mark.parametrize("piece", [1, 100])
async def test_an_application_that_ends_lines_with_lf_is_understood(piece):
    answer = (
        b"HTTP/1.1 103 Early Hints\nX: 0\n\nHTTP/1.1 200 OK\nX:1\nContent-Length: "
        b"7\n\n\r\n\r\na\n\n"
    )
    async with (
        RawServer(drips(answer, piece)) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        for _ in range(2):
            await client.send(get())
            assert (await client.head()).raw == b"HTTP/1.1 103 Early Hints\r\nX: 0\r\n\r\n"
            expected = b"HTTP/1.1 200 OK\r\nX:1\r\nContent-Length: 7\r\n\r\n\r\n\r\na\n\n"
            assert (await client.answer()).raw == expected


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nX: y\nSet-Cookie: slipped in\r\n\r\n",
        b"HTTP/1.1 200 OK\nX: y\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: y\n\n",
        b"HTTP/1.1 200 OK\r\nX y\r\n",
        b"hello",
        b"<html>",
    ],
)
async def test_garbage_is_told_at_once_though_the_application_stays(answer):
    async with (
        RawServer(says(answer)) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        told = await client.ask(get(), seconds=20)  # the limit for a head is a minute
        assert (told.status, told.one("domicile-answer")) == (502, b"proxy")


async def test_an_answer_that_ends_with_the_connection_does_so_for_the_caller():
    _, answer = await exchange(get(), b"HTTP/1.1 200 OK\r\nX: y\r\n\r\nall of it", close=True)
    assert (answer.body, answer.closed) == (b"all of it", True)
    assert answer.fields == [(b"X", b"y"), (b"Connection", b"close")]


async def test_interim_answers_are_kept_from_callers_of_http_1_0():
    answer = b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK
    async with (
        RawServer(says(answer)) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(b"GET / HTTP/1.0\r\n\r\n")
        assert await client.until_close() == OK.replace(
            b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"
        )
        assert server.requests[0].fields == [(b"Host", b"127.0.0.1:%d" % server.port)]


async def test_continue_is_asked_and_granted_end_to_end():
    async def asks(wire, server):
        head = await wire.head()
        assert head.one("expect") == b"100-continue"
        assert await wire_is_quiet(wire)
        await wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        server.requests.append(await wire.body(head))
        await wire.send(OK)

    async with (
        RawServer(asks) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(get("/", "Expect: 100-continue", "Content-Length: 3", method="POST"))
        assert (await client.head()).status == 100
        await client.send(b"abc")
        assert (await client.answer()).status == 200
        assert server.requests[0].body == b"abc"


async def wire_is_quiet(wire) -> bool:
    try:
        await asyncio.wait_for(wire.reader.read(1), 0.1)
    except TimeoutError:
        return True
    return False


async def test_continue_may_be_refused_and_the_connection_ends():
    async def refuses(wire, server):
        await wire.head()
        await wire.send(b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n")
        await wire.until_close()

    async with (
        RawServer(refuses) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        answer = await client.ask(
            get("/", "Expect: 100-continue", "Content-Length: 3", method="POST")
        )
        assert answer.status == 417
        assert answer.fields[-1] == (b"Connection", b"close")
        client.half_close()
        assert await client.until_close() == b""


@pytest.mark.parametrize(
    ("request_", "answer", "expected"),
    [
        (b"GET / HTTP/1.0\r\nHost: x\r\n\r\n", OK, b"Connection: close\r\n\r\nok"),
        (
            b"GET / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n",
            OK,
            b"Connection: keep-alive\r\n\r\nok",
        ),
        (
            b"GET / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok",
        ),
    ],
)
async def test_callers_of_http_1_0_get_what_they_understand(request_, answer, expected):
    async with (
        RawServer(says(answer)) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(request_)
        if b"close" in expected:
            got = await client.until_close()
        else:
            got = await client.exactly(len(OK) + len(b"Connection: keep-alive\r\n"))
        assert got.endswith(expected)
        assert server.requests[0].start == b"GET / HTTP/1.1"


async def test_a_caller_that_closes_is_closed():
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(get("/", "Connection: close"))
        got = await client.until_close()
        assert got == OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        assert server.requests[0].all("connection") == []


async def test_pipelined_requests_are_answered_in_order():
    async def names(wire, server):
        while True:
            request = await server.read(wire)
            path = request.start.split(b" ")[1]
            await asyncio.sleep(0.05 if path == b"/1" else 0)
            await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(path), path))

    async with (
        RawServer(names) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(b"".join(get(f"/{count}") for count in range(100)))
        for count in range(100):
            assert (await client.answer()).body == b"/%d" % count
        await client.send(post("/a", b"x" * 10) + get("/b") + chunked("/c", b"y") + get("/d"))
        assert [(await client.answer()).body for _ in range(4)] == [b"/a", b"/b", b"/c", b"/d"]


async def test_an_event_is_delivered_when_it_is_sent():
    wanted = asyncio.Semaphore(0)

    async def events(wire, server):
        await server.read(wire)
        await wire.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: "
            b"chunked\r\n\r\n"
        )
        while True:
            await wanted.acquire()
            await wire.send(b"9\r\ndata: 1\n\n\r\n")

    async with (
        RawServer(events) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(get())
        await client.head()  # it does not wait for the first event, nor one event for the next
        took = []
        for _ in range(10):
            began = time.monotonic()
            wanted.release()
            assert await client.exactly(14) == b"9\r\ndata: 1\n\n\r\n"
            took.append(time.monotonic() - began)
        assert min(took) < 0.05, "the best of ten, for a machine may pause now and then"


async def test_a_request_is_delivered_as_it_is_sent():
    async def counts(wire, server):
        head = await wire.head()
        while len(head.body) < 6:
            piece = await wire.some()
            head.body += piece
            await wire.send(b"HTTP/1.1 102 Got\r\nX: %d\r\n\r\n" % len(piece))
        await wire.send(OK)

    async with (
        RawServer(counts) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(get("/", "Content-Length: 6", method="POST"))
        for _ in range(3):
            await client.send(b"ab")
            assert (await client.head()).one("x") == b"2"
        assert (await client.answer()).status == 200


async def test_the_end_of_the_caller_reaches_the_application_at_once():
    took = []
    async with RawServer(silent()) as server, gateway(server.url) as (port, steered):
        for count in range(5):
            async with RawClient(port) as client:
                await client.send(get())
                await server.until(lambda: len(server.requests) > count)  # noqa: B023  # used at once
                began = time.monotonic()
                client.reset()
            await server.until(lambda: server.open == 0)
            took.append(time.monotonic() - began)
        assert [note.status for note in steered.notes] == [0] * 5
    assert min(took) < 0.1, "the best of five, for a machine may pause now and then"


async def test_the_end_of_the_caller_in_the_middle_of_its_body_is_no_end_of_the_request():
    async with RawServer(silent()) as server, gateway(server.url) as (port, _):
        async with RawClient(port) as client:
            await client.send(
                get("/", "Transfer-Encoding: chunked", method="POST") + b"3\r\nabc\r\n"
            )
            await server.until(
                lambda: server.wires != [] and server.wires[0].received.endswith(b"abc\r\n")
            )
            client.close()
        await server.until(lambda: server.open == 0)
        assert server.requests == []
        assert not bytes(server.wires[0].received).endswith(b"0\r\n\r\n")


async def test_the_end_of_the_caller_in_the_middle_of_an_answer_reaches_the_application():
    async def endless(wire, server):
        await server.read(wire)
        await wire.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await wire.send(b"x" * 1000, delay=0.01)

    async with RawServer(endless) as server, gateway(server.url) as (port, _):
        async with RawClient(port) as client:
            await client.send(get())
            await client.exactly(5000)
            assert server.open == 1
            client.close()
        # it sends for ever, unless its connection breaks
        await server.until(lambda: server.open == 0)


@pytest.mark.parametrize(
    ("answer", "reset"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", False),
        (b"HTTP/1.1 200 OK\r\n\r\nabc", True),
    ],
)
async def test_an_answer_that_breaks_off_never_looks_complete(answer, reset):
    async with (
        RawServer(closes(answer, reset=reset)) as server,
        gateway(server.url) as (port, steered),
    ):
        async with RawClient(port) as client:
            await client.send(get())
            assert (await client.head()).status == 200
            assert await client.ended() or not reset
            assert not bytes(client.received).endswith(b"0\r\n\r\n")
        assert steered.notes[0].code is Code.UPSTREAM_BROKEN
        async with RawClient(port) as client:
            await client.send(get())


@pytest.mark.parametrize(
    ("behaviour", "status", "code"),
    [
        (closes(), 502, Code.UPSTREAM_BROKEN),
        (closes(b"HTTP/1.1 200 OK\r\nContent-"), 502, Code.UPSTREAM_BROKEN),
        (closes(b"HTTP/1.1 200 OK\r\nConten", reset=True), 502, Code.UPSTREAM_BROKEN),
        (says(b"\x16\x03\x01\x00\x05hello\r\n\r\n"), 502, Code.UPSTREAM_BROKEN),
        (
            says(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
            502,
            Code.UPSTREAM_BROKEN,
        ),
        (says(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70000 + b"\r\n\r\n"), 502, Code.UPSTREAM_BROKEN),
        (silent(), 504, Code.UPSTREAM_TIMEOUT),
        (drips(OK, 1, 0.2), 504, Code.UPSTREAM_TIMEOUT),
    ],
)
async def test_each_fault_of_the_application_is_told_in_our_own_name(behaviour, status, code):
    limits = QUICK if status == 504 else None
    async with (
        RawServer(behaviour) as server,
        gateway(server.url, limits=limits) as (port, steered),
    ):
        async with RawClient(port) as client:
            answer = await client.ask(post("/secret?name=Ann", b"Ann"))
            assert answer.status == status
            assert answer.one("domicile-answer") == b"proxy"
            assert answer.one("content-type") == b"application/problem+json"
            assert b'"code": "%b"' % code.encode() in answer.body
            assert b"Ann" not in answer.raw
            # the connection goes on
            assert (await client.ask(post("/x", b"again"))).status == status
        assert [one.code for one in steered.notes] == [code, code]
        await server.until(lambda: len(server.requests) == 2)
        assert [one.body for one in server.requests] == [b"Ann", b"again"]


async def test_an_application_that_does_not_run_is_told():
    with closed_port() as nobody:
        async with gateway(f"http://127.0.0.1:{nobody}") as (port, _), RawClient(port) as client:
            answer = await client.ask(get())
            assert (answer.status, answer.one("domicile-answer")) == (502, b"proxy")
            assert (await client.ask(get(method="HEAD"))).body == b""


async def test_a_body_that_breaks_its_framing_is_refused():
    async with (
        RawServer(silent()) as server,
        gateway(server.url) as (port, steered),
        RawClient(port) as client,
    ):
        await client.send(get("/", "Transfer-Encoding: chunked", method="POST") + b"3\r\nabc\r\n")
        await server.until(lambda: server.wires != [])
        await client.send(b"zzz\r\n")
        answer = await client.answer()
        assert (answer.status, steered.notes[0].code) == (400, Code.BAD_REQUEST)
        await server.until(lambda: server.open == 0)
        assert server.requests == []


async def test_a_caller_that_stops_in_the_middle_of_its_body_is_told_in_time():
    async with (
        RawServer(silent()) as server,
        gateway(server.url, limits=QUICK) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(get("/", "Content-Length: 10", method="POST") + b"abc")
        assert (await client.answer()).status == 408
        await server.until(lambda: server.open == 0)


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_a_hundred_megabytes_pass_through_constant_memory(direction):
    size, piece = 100 << 20, b"x" * 65536

    async def serve(wire, server):
        head = await wire.head()
        if direction == "up":
            left = int(head.one("content-length") or 0)
            while left:
                left -= len(await wire.reader.read(1 << 18))
            await wire.send(OK)
            return
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // len(piece)):
            await wire.send(piece)

    async with (
        RawServer(serve) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(
            get("/", f"Content-Length: {size if direction == 'up' else 0}", method="POST")
        )
        tracemalloc.start()
        try:
            if direction == "up":
                for _ in range(size // len(piece)):
                    await client.send(piece)
                assert (await client.answer()).status == 200
            else:
                head = await client.head()
                left = int(head.one("content-length") or 0)
                while left:
                    left -= len(await client.reader.read(1 << 18))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 12 << 20  # both ends of the test and the gateway together


async def test_a_caller_that_takes_nothing_is_given_up():
    async def floods(wire, server):
        await server.read(wire)
        await wire.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await wire.send(b"x" * 65536)

    from proxy.gateway.bodies import BodyTimeouts

    options = {"timeouts": BodyTimeouts(write=0.3)}
    async with (
        RawServer(floods) as server,
        gateway(server.url, options=options) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(get())
        await client.exactly(1000)
        await server.until(lambda: server.open == 0)


async def test_a_connection_that_the_application_just_closed_is_no_error():
    async with (
        RawServer(says(OK, close=True)) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        for count in range(30):
            answer = await client.ask(get() if count % 2 else post("/x", b"%d" % count))
            assert answer.status == 200
            await asyncio.sleep(0.002)
