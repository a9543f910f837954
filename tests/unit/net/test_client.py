"""The upstream as the gateway uses it, against a server on a real socket that misbehaves to order."""

import asyncio
import os
import select
import time
from collections.abc import AsyncIterator

import msgspec
import pytest
from msgspec.structs import replace

from proxy.errors import Code
from proxy.net.client import HttpUpstream
from proxy.net.client_connection import UpstreamConnection
from proxy.net.http1.head import Framing
from proxy.net.reply import (
    Call,
    CallLimits,
    PendingReply,
    UpstreamAddress,
    UpstreamFault,
    UpstreamResponse,
)
from proxy.redactor.message import RawHeaders
from tests.support.patience import PATIENCE
from tests.support.pressure import stopped
from tests.support.rawserver import OK, RawServer, closes, drips, once_then_closes, says, silent
from tests.support.table import table

#: Only for a test that waits for one of them to pass.
QUICK = CallLimits(connect=60, head=0.3, idle=0.3, keep=0.5)


@pytest.fixture
def upstream():
    made = HttpUpstream(CallLimits(connect=60, keep=60))
    yield made
    made.close()


@pytest.fixture
def quick():
    made = HttpUpstream(QUICK)
    yield made
    made.close()


def call(server: RawServer, method: str = "GET", body=b"", **more) -> Call:
    length = b"Content-Length: %d\r\n" % len(body) if isinstance(body, bytes) and body else b""
    framing = b"Transfer-Encoding: chunked\r\n" if more.get("chunked") else length
    head = b"%b / HTTP/1.1\r\nHost: x\r\n%b\r\n" % (method.encode(), framing)
    return Call(UpstreamAddress("http", "127.0.0.1", server.port), method, head, body, **more)


async def whole(reply: UpstreamResponse) -> bytes:
    body = reply.whole
    if body is not None:
        return body
    pieces = []
    while piece := await reply.read():
        pieces.append(piece)
    return b"".join(pieces)


async def pieces_of(*pieces: bytes, wait: float = 0.0) -> AsyncIterator[bytes]:
    for piece in pieces:
        await asyncio.sleep(wait)
        yield piece


CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nX-Sum: "
    b"5\r\n\r\n"
)


@pytest.mark.parametrize("step", [0, 1, 7])
@pytest.mark.parametrize(
    ("answer", "body", "framing"),
    [
        (OK, b"ok", Framing.LENGTH),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"", Framing.LENGTH),
        (CHUNKED, b"abcde", Framing.CHUNKED),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", Framing.NONE),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK,
            b"ok",
            Framing.LENGTH,
        ),
    ],
)
async def test_answers_are_read_however_they_are_cut_and_the_connection_is_used_again(
    upstream, answer, body, framing, step
):
    seen = []
    async with RawServer(drips(answer, step)) as server:
        for _ in range(3):
            reply = await upstream.send(call(server, interim=lambda *one: seen.append(one[0])))
            assert (await whole(reply), reply.framing) == (body, framing)
            assert reply.head.status in {200, 204}
            assert reply.trailers == (((b"X-Sum", b"5"),) if answer is CHUNKED else ())
        assert len(server.wires) == 1
    assert seen == ([100, 103] * 3 if b"Early" in answer else [])


async def test_an_answer_to_head_has_no_body(upstream):
    async with RawServer(says(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")) as server:
        for _ in range(2):
            reply = await upstream.send(call(server, "HEAD"))
            assert reply.whole == b""
        assert len(server.wires) == 1


async def test_a_body_that_ends_with_the_connection(upstream):
    async with RawServer(says(b"HTTP/1.1 200 OK\r\n\r\nall of it", close=True)) as server:
        reply = await upstream.send(call(server))
        assert reply.framing is Framing.CLOSE
        assert await whole(reply) == b"all of it"


@pytest.mark.parametrize("more", [{}, {"chunked": True}])
async def test_a_streamed_request_goes_out_as_it_comes(upstream, more):
    async with RawServer(says(OK)) as server:
        request = call(server, "POST", pieces_of(b"abc", b"", b"de"), **more)
        if not more:
            request = replace(
                request, head=b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
            )
        await upstream.send(request)
        assert server.requests[0].body == b"abcde"
        assert server.requests[0].chunks == ([b"abc", b"de"] if more else [])


async def test_a_whole_body_is_framed_as_chunks_on_demand(upstream):
    async with RawServer(says(OK)) as server:
        await upstream.send(call(server, "POST", b"abc", chunked=True))
        await upstream.send(call(server, "POST", b"", chunked=True))
        assert [one.framed for one in server.requests] == [b"3\r\nabc\r\n0\r\n\r\n", b"0\r\n\r\n"]


@pytest.mark.parametrize(
    ("behaviour", "code", "words"),
    [
        (closes(), Code.UPSTREAM_BROKEN, "before it answered"),
        (closes(b"HTTP/1.1 20"), Code.UPSTREAM_BROKEN, "broke its answer off"),
        (closes(b"HTTP/1.1 20", reset=True), Code.UPSTREAM_BROKEN, "broke its answer off"),
        (says(b"SSH-2.0-OpenSSH\r\n"), Code.UPSTREAM_BROKEN, "not HTTP"),
        (
            says(b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70000 + b"\r\n\r\n"),
            Code.UPSTREAM_BROKEN,
            "too large",
        ),
        (says(b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70000), Code.UPSTREAM_BROKEN, "too large"),
        (
            says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"),
            Code.UPSTREAM_BROKEN,
            "chunk",
        ),
        (says(b"HTTP/1.1 101 Hello\r\n\r\n"), Code.UPSTREAM_BROKEN, "not requested"),
        (
            says(b"HTTP/1.1 102 Processing\r\n\r\n" * 3000),
            Code.UPSTREAM_BROKEN,
            "too many interim answers",
        ),
        (silent(), Code.UPSTREAM_TIMEOUT, "did not answer"),
        (
            drips(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", 1, 0.1),
            Code.UPSTREAM_TIMEOUT,
            "did not answer",
        ),
    ],
)
async def test_each_fault_before_the_head_has_its_code_and_says_that_the_request_went_out(
    upstream, quick, behaviour, code, words
):
    chosen = quick if code is Code.UPSTREAM_TIMEOUT else upstream
    async with RawServer(behaviour) as server:
        with pytest.raises(UpstreamFault, match=words) as caught:
            await asyncio.wait_for(chosen.send(call(server, "POST", b"once")), PATIENCE / 2)
        assert caught.value.code is code
        assert caught.value.sent
        await server.until(lambda: server.wires != [] and server.open == 0)
        assert len(server.requests) == 1
        assert chosen.counts(UpstreamAddress("http", "127.0.0.1", server.port)) == (0, 0)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "broke its answer off"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            "broke its answer off",
        ),
    ],
)
async def test_a_body_that_breaks_off_gives_what_came_and_then_the_fault(upstream, answer, words):
    async with RawServer(says(answer, close=True)) as server:
        reply = await upstream.send(call(server))
        assert await reply.read() == b"abc"
        with pytest.raises(UpstreamFault, match=words):
            await reply.read()


async def test_a_body_that_stops_is_a_timeout(quick):
    async with RawServer(says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")) as server:
        reply = await quick.send(call(server))
        assert await reply.read() == b"abc"
        with pytest.raises(UpstreamFault, match="in the middle") as caught:
            await reply.read()
        assert caught.value.code is Code.UPSTREAM_TIMEOUT


async def test_slow_but_steady_is_no_timeout(quick):
    async with RawServer(
        drips(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n" + b"x" * 12, 40)
    ) as server:
        reply = await quick.send(call(server))
        assert len(await whole(reply)) == 12

    async def steady(wire, server):
        await server.read(wire)
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n")
        await wire.send(b"abcdefghijkl", 1, 0.05)

    async with RawServer(steady) as server:
        assert await whole(await quick.send(call(server))) == b"abcdefghijkl"


async def test_while_the_proxy_itself_stands_still_the_application_is_not_blamed(quick):
    async def soon(wire, server):
        await server.read(wire)
        time.sleep(0.5)  # noqa: ASYNC251  # blocking is the point: the proxy's own loop
        await asyncio.sleep(0.05)
        await wire.send(OK)

    async with RawServer(soon) as server:
        assert await whole(await quick.send(call(server))) == b"ok"


async def test_the_whole_exchange_can_be_bounded():
    upstream = HttpUpstream(CallLimits(head=5, idle=5, total=0.4))

    async def steady(wire, server):
        await server.read(wire)
        await wire.send(b"HTTP/1.1 200 OK\r\n\r\n")
        await wire.send(b"x" * 100, 1, 0.05)

    async with RawServer(steady) as server:
        with pytest.raises(UpstreamFault) as caught:
            await whole(await upstream.send(call(server)))
        assert caught.value.code is Code.UPSTREAM_TIMEOUT
    upstream.close()


async def test_a_request_that_may_be_repeated_survives_a_connection_that_just_closed(upstream):
    async with RawServer(once_then_closes()) as server:
        for _ in range(4):
            assert await whole(await upstream.send(call(server, "GET"))) == b"ok"
        assert len(server.wires) == 4


async def test_a_request_that_may_not_be_repeated_is_never_sent_twice(upstream):
    async with RawServer(once_then_closes()) as server:
        await upstream.send(call(server, "POST", b"first"))
        with pytest.raises(UpstreamFault) as caught:
            await upstream.send(call(server, "POST", b"second"))
        assert caught.value.sent
        assert [one.body for one in server.requests] == [b"first", b"second"]


async def test_a_closed_pooled_connection_is_noticed_before_a_request_that_may_not_be_repeated(
    upstream,
):
    async with RawServer(says(OK, close=True)) as server:
        for count in range(3):
            await upstream.send(call(server, "POST", b"%d" % count))
            await server.until(lambda: server.open == 0)
            # The loop is kept busy: the end of the connection stands in the kernel, unseen.
            time.sleep(0.05)  # noqa: ASYNC251  # blocking is the point
        assert [one.body for one in server.requests] == [b"0", b"1", b"2"]


async def test_a_fresh_connection_that_closes_is_not_tried_again(upstream):
    async with RawServer(closes()) as server:
        with pytest.raises(UpstreamFault):
            await upstream.send(call(server, "GET"))
        assert len(server.wires) == 1


async def test_bytes_that_nobody_asked_for_end_the_connection(upstream):
    async with RawServer(says(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother")) as server:
        for _ in range(2):
            assert await whole(await upstream.send(call(server))) == b"ok"
        assert len(server.wires) == 2


async def test_idle_connections_are_closed_in_time(quick):
    async with RawServer(says(OK)) as server:
        await quick.send(call(server))
        assert quick.counts(UpstreamAddress("http", "127.0.0.1", server.port)) == (0, 1)
        await server.until(lambda: server.open == 0)
        assert quick.counts(UpstreamAddress("http", "127.0.0.1", server.port)) == (0, 0)


async def test_the_last_used_connection_is_used_first(upstream):
    async with RawServer(says(OK)) as server:
        await asyncio.gather(*(upstream.send(call(server)) for _ in range(3)))
        assert len(server.wires) == 3
        for _ in range(5):
            await upstream.send(call(server))
        per_wire = sorted(bytes(wire.received).count(b"GET") for wire in server.wires)
        assert per_wire == [1, 1, 6]


async def test_leaving_drops_the_connection(upstream):
    async with RawServer(silent()) as server:
        task = asyncio.ensure_future(upstream.send(call(server)))
        await server.until(lambda: server.requests != [])
        task.cancel()
        await server.until(lambda: server.open == 0)
        assert task.cancelled() or await asyncio.wait([task])


async def test_dropping_an_answer_under_way_drops_the_connection(upstream):
    async with RawServer(says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")) as server:
        reply = await upstream.send(call(server))
        reply.abort()
        await server.until(lambda: server.open == 0)
        with pytest.raises(UpstreamFault):
            await whole(reply)


async def test_a_fault_of_the_streamed_body_comes_through_and_drops_the_connection(upstream):
    async def broken() -> AsyncIterator[bytes]:
        yield b"abc"
        raise ValueError("the caller went away")

    async with RawServer(silent()) as server:
        with pytest.raises(ValueError, match="went away"):
            await upstream.send(call(server, "POST", broken(), chunked=True))
        await server.until(lambda: server.open == 0)
        assert server.requests == []


async def test_an_answer_before_the_end_of_the_request_is_passed_on_and_ends_the_connection(
    upstream,
):
    async def early(wire, server):
        await wire.head()
        await wire.send(b"HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n")
        await wire.until_close()

    async with RawServer(early) as server:
        reply = await upstream.send(
            call(server, "POST", pieces_of(*[b"x"] * 100, wait=0.1), chunked=True)
        )
        assert reply.head.status == 413
        await server.until(lambda: server.open == 0)


async def test_a_request_that_takes_long_to_send_is_no_timeout_as_long_as_it_moves(quick):
    async with RawServer(says(OK)) as server:
        reply = await quick.send(
            call(server, "POST", pieces_of(*[b"x"] * 12, wait=0.05), chunked=True)
        )
        assert reply.head.status == 200
        assert server.requests[0].body == b"x" * 12


async def test_a_slow_reader_stops_the_application(upstream):
    sent = 0

    async def floods(wire, server):
        nonlocal sent
        await server.read(wire)
        await wire.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await wire.send(b"x" * 65536)
            sent += 65536

    async with RawServer(floods) as server:
        reply = await upstream.send(call(server))
        unread = await stopped(lambda: sent)
        got = 0
        while got < unread + (4 << 20):
            got += len(await reply.read())
        assert sent > unread
        reply.abort()


async def test_a_slow_application_stops_the_sender():
    upstream = HttpUpstream(CallLimits(head=60, idle=60))
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 65536
            await asyncio.sleep(0)
            yield b"x" * 65536

    async def sleeps(wire, server):
        await asyncio.Event().wait()

    async with RawServer(sleeps) as server:
        task = asyncio.ensure_future(upstream.send(call(server, "POST", endless(), chunked=True)))
        assert await stopped(lambda: sent) > 0
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])
    upstream.close()


async def test_a_tunnel_carries_bytes_both_ways_until_both_sides_end(upstream):
    async def echo(wire, server):
        await server.read(wire)
        await wire.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello"
        )
        while data := await wire.some():
            await wire.send(data)
        await wire.send(b"bye")

    async with RawServer(echo) as server:
        reply = await upstream.send(call(server, upgrade=True))
        assert reply.framing is Framing.TUNNEL
        assert await reply.read() == b"hello"
        tunnel = upstream.tunnel(reply)
        tunnel.write(b"\x00\xff")
        assert await reply.read() == b"\x00\xff"
        tunnel.write_eof()
        assert await reply.read() == b"bye"
        assert await reply.read() == b""
        tunnel.abort()
        await server.until(lambda: server.open == 0)


class Taking(PendingReply):
    """An exchange begun by a test, which waits for what comes."""

    told: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    def interim(self, status: int, reason: bytes, headers: RawHeaders) -> None:
        raise AssertionError

    def on_response(self) -> None:
        self.told.set()


async def test_an_exchange_is_begun_at_once_only_on_a_connection_that_waits(upstream):
    async with RawServer(says(OK)) as server:
        begun = Taking()
        assert not upstream.begin(call(server), begun)
        assert await whole(await upstream.send(call(server))) == b"ok"
        assert upstream.begin(call(server), begun)
        assert not upstream.begin(call(server), Taking())
        await asyncio.wait_for(begun.told.wait(), PATIENCE)
        assert begun.done()
        assert await whole(await upstream.send(call(server), begun)) == b"ok"
        assert (len(server.wires), len(server.requests)) == (1, 2)


async def test_what_was_begun_goes_out_again_on_a_fresh_connection(upstream):
    async with RawServer(once_then_closes()) as server:
        await whole(await upstream.send(call(server)))
        begun = Taking()
        assert upstream.begin(call(server), begun)
        await asyncio.wait_for(begun.told.wait(), PATIENCE)
        assert await whole(await upstream.send(call(server), begun)) == b"ok"
        assert len(server.wires) == 2


@pytest.mark.parametrize("at_once", [True, False])
async def test_an_answer_that_nobody_asked_for_is_not_given_to_the_next_request(upstream, at_once):
    async with RawServer(says(OK)) as server:
        await whole(await upstream.send(call(server)))
        (pool,) = upstream._pools.values()
        (idle,) = pool.idle
        os.write(
            server.wires[0].writer.get_extra_info("socket").fileno(),
            b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        )
        # The loop does not turn: it has come, and was not read yet.
        assert select.select([idle._transport.get_extra_info("socket")], [], [], PATIENCE)[0]
        if at_once:
            assert not upstream.begin(call(server), Taking())
        assert await whole(await upstream.send(call(server))) == b"ok"
        assert (len(server.wires), len(pool.open)) == (2, 1)


@pytest.mark.parametrize("before", [True, False], ids=["before its answer", "after its answer"])
async def test_who_leaves_in_the_moment_of_the_answer_does_not_end_the_exchange_of_the_next(
    upstream, monkeypatch, before
):
    leaving: list[asyncio.Task[UpstreamResponse]] = []
    next_ = Taking()
    received = UpstreamConnection.data_received

    def meanwhile(connection: UpstreamConnection, data: bytes) -> None:
        gone = [one.cancel() for one in leaving if before]
        received(connection, data)
        gone += [one.cancel() for one in leaving if not before]
        if gone:
            leaving.clear()
            upstream.begin(call(server), next_)

    monkeypatch.setattr(UpstreamConnection, "data_received", meanwhile)
    async with RawServer(says(OK)) as server:
        await whole(await upstream.send(call(server)))
        task = asyncio.create_task(upstream.send(call(server, "POST")))
        leaving.append(task)
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(next_.told.wait(), PATIENCE)
        assert await whole(await upstream.send(call(server), next_)) == b"ok"
        assert (len(server.wires), len(server.requests)) == (1, 3)


@table("answer", [OK, b"HTTP/1.1 20"])
async def test_the_end_of_what_was_begun_is_told_though_the_address_was_suspended_meanwhile(answer):
    go_on = asyncio.Event()

    async def behave(wire, server):
        await server.read(wire)
        await wire.send(OK)
        await server.read(wire)
        await go_on.wait()
        await wire.send(answer)

    upstream = HttpUpstream(CallLimits(connect=60, keep=60, failures=1, pause=60))
    async with RawServer(behave) as server:
        await whole(await upstream.send(call(server)))
        begun = Taking()
        assert upstream.begin(call(server), begun)
        go_on.set()
        await asyncio.wait_for(begun.told.wait(), PATIENCE)
        (pool,) = upstream._pools.values()
        refused = UpstreamFault(Code.UPSTREAM_UNREACHABLE, "refused", sent=False)
        pool.breaker.failed(refused, asyncio.get_running_loop().time(), tried=False)
        assert pool.breaker.open
        if answer is OK:
            assert await whole(await upstream.send(call(server), begun)) == b"ok"
            assert not pool.breaker.open
        else:
            with pytest.raises(UpstreamFault) as fault:
                await upstream.send(call(server), begun)
            assert fault.value.code is Code.UPSTREAM_BROKEN
            assert pool.breaker.open
    upstream.close()


async def test_what_was_begun_and_dropped_ends_its_connection_and_tells_nobody(upstream):
    async with RawServer(says(OK)) as server:
        await whole(await upstream.send(call(server)))
        begun = Taking()
        assert upstream.begin(call(server), begun)
        begun.drop()
        begun.drop()
        await server.until(lambda: server.open == 0)
        assert not begun.told.is_set()
        assert upstream.counts(call(server).address) == (0, 0)


async def test_a_suspended_address_is_not_asked_at_once():
    upstream = HttpUpstream(CallLimits(connect=60, keep=60, failures=1, pause=60))
    async with RawServer(says(OK)) as server:
        await whole(await upstream.send(call(server)))
        upstream._pools[call(server).address].breaker.engaged = True
        assert not upstream.begin(call(server), Taking())
        assert await whole(await upstream.send(call(server))) == b"ok"
        begun = Taking()
        assert upstream.begin(call(server), begun)
        upstream._pools[call(server).address].breaker.engaged = True
        await asyncio.wait_for(begun.told.wait(), PATIENCE)
        assert not upstream._pools[call(server).address].breaker.engaged
    upstream.close()
