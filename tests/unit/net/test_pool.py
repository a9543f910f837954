import asyncio
import socket

import pytest

from proxy.errors import Code
from proxy.net.client import HttpUpstream
from proxy.net.pool import Pool
from proxy.net.reply import Call, CallLimits, UpstreamAddress, UpstreamFault
from tests.support.patience import PATIENCE
from tests.support.ports import closed_port
from tests.support.rawserver import OK, RawServer, says, silent


def get(port: int, host: str = "127.0.0.1") -> Call:
    return Call(UpstreamAddress("http", host, port), "GET", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")


def slow(seconds: float):
    async def behave(wire, server):
        while True:
            await server.read(wire)
            await asyncio.sleep(seconds)
            await wire.send(OK)

    return behave


def once(may: asyncio.Event):
    """Answers as soon as it may."""

    async def behave(wire, server):
        while True:
            await server.read(wire)
            await may.wait()
            await wire.send(OK)

    return behave


async def test_no_more_connections_than_allowed_and_the_others_wait_their_turn():
    upstream = HttpUpstream(CallLimits(connections=2))
    async with RawServer(slow(0.05)) as server:
        replies = await asyncio.gather(*(upstream.send(get(server.port)) for _ in range(7)))
        assert [reply.whole for reply in replies] == [b"ok"] * 7
        assert len(server.wires) == 2
    upstream.close()


async def test_waiting_for_a_place_is_bounded():
    may = asyncio.Event()
    async with RawServer(once(may)) as server:
        pool = Pool(UpstreamAddress("http", "127.0.0.1", server.port), CallLimits(connections=1))
        taken = await pool.fresh()
        # only now, so that the first one has time enough
        pool._limits = CallLimits(connections=1, connect=0.2)
        with pytest.raises(UpstreamFault, match="no free connection") as caught:
            await pool.fresh()
        assert (caught.value.code, caught.value.sent) == (Code.UPSTREAM_BUSY, False)
        may.set()
        assert (await taken.begin(get(server.port))).whole == b"ok"
        pool.close()


async def test_the_queue_for_a_place_is_bounded_and_who_finds_it_full_is_told_at_once():
    upstream = HttpUpstream(CallLimits(connections=1, connect=30, queue=2))
    answer = asyncio.Event()

    async def behave(wire, server):
        while True:
            await server.read(wire)
            await answer.wait()
            await wire.send(OK)

    async with RawServer(behave) as server:
        waiting = [asyncio.ensure_future(upstream.send(get(server.port))) for _ in range(3)]
        await server.until(lambda: server.requests != [])
        with pytest.raises(UpstreamFault, match="Too many requests wait") as caught:
            await upstream.send(get(server.port))
        assert (caught.value.code, caught.value.sent) == (Code.UPSTREAM_BUSY, False)
        answer.set()
        assert [reply.whole for reply in await asyncio.gather(*waiting)] == [b"ok"] * 3
        assert len(server.wires) == 1
    upstream.close()


async def test_without_a_queue_nobody_waits():
    upstream = HttpUpstream(CallLimits(connections=1, connect=30, queue=0))
    async with RawServer(silent()) as server:
        first = asyncio.ensure_future(upstream.send(get(server.port)))
        await server.until(lambda: server.requests != [])
        with pytest.raises(UpstreamFault, match="Too many requests wait"):
            await upstream.send(get(server.port))
        first.cancel()
        await asyncio.wait([first])
    upstream.close()


async def test_who_leaves_the_queue_leaves_no_place_taken():
    upstream, may = HttpUpstream(CallLimits(connections=1)), asyncio.Event()
    async with RawServer(once(may)) as server:
        first = asyncio.ensure_future(upstream.send(get(server.port)))
        await server.until(lambda: server.requests != [])
        second = asyncio.ensure_future(upstream.send(get(server.port)))
        (pool,) = upstream._pools.values()
        await server.until(lambda: len(pool._waiters) == 1)
        second.cancel()
        await asyncio.wait([second])
        may.set()
        assert (await first).whole == b"ok"
        assert (await upstream.send(get(server.port))).whole == b"ok"
    upstream.close()


async def test_a_connection_that_ends_frees_its_place():
    upstream = HttpUpstream(CallLimits(connections=1))
    async with RawServer(says(OK, close=True)) as server:
        replies = await asyncio.gather(*(upstream.send(get(server.port)) for _ in range(4)))
        assert [reply.head.status for reply in replies] == [200] * 4
    upstream.close()


async def test_a_refused_connection_is_unreachable_and_nothing_was_sent():
    upstream = HttpUpstream()
    with closed_port() as port:
        for _ in range(2):
            with pytest.raises(UpstreamFault, match="refused the connection") as caught:
                await upstream.send(get(port))
            assert (caught.value.code, caught.value.sent) == (Code.UPSTREAM_UNREACHABLE, False)
    upstream.close()


async def test_an_unknown_name_is_unreachable():
    upstream = HttpUpstream()
    with pytest.raises(UpstreamFault, match=r"not found|cannot be reached|in time") as caught:
        await upstream.send(get(80, "no-such-host.invalid"))
    assert not caught.value.sent
    upstream.close()


async def test_a_connection_that_does_not_come_about_is_a_timeout():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        holders = [socket.socket() for _ in range(3)]
        for holder in holders:
            holder.setblocking(False)
            holder.connect_ex(("127.0.0.1", port))
        upstream = HttpUpstream(CallLimits(connect=0.3))
        with pytest.raises(UpstreamFault) as caught:
            await asyncio.wait_for(upstream.send(get(port)), PATIENCE)
        assert (caught.value.code, caught.value.sent) == (Code.UPSTREAM_TIMEOUT, False)
        for holder in holders:
            holder.close()
        upstream.close()


async def test_closing_drops_idle_connections_now_and_busy_ones_after_their_answer():
    may = asyncio.Event()
    async with RawServer(once(may)) as server:
        pool = Pool(UpstreamAddress("http", "127.0.0.1", server.port), CallLimits(), None)
        idle, busy = await pool.fresh(), await pool.fresh()
        pool.release(idle)
        answer = asyncio.ensure_future(busy.begin(get(server.port)))
        await server.until(lambda: server.requests != [])
        pool.close()
        assert pool.idle == []
        may.set()
        assert (await answer).whole == b"ok"
        await server.until(lambda: server.open == 0)
        assert (pool.busy, pool.idle) == (0, [])


async def test_a_place_given_to_one_who_just_left_goes_to_the_next():
    async with RawServer(slow(0)) as server:
        pool = Pool(UpstreamAddress("http", "127.0.0.1", server.port), CallLimits(connections=1))
        connection = await pool.fresh()
        first = asyncio.ensure_future(pool.fresh())
        second = asyncio.ensure_future(pool.fresh())
        await asyncio.sleep(0)
        pool.release(connection)
        first.cancel()
        assert await asyncio.wait_for(second, PATIENCE) is connection
        pool.close()
        connection.retire()
