import asyncio
import socket
import time

import pytest

from proxy.errors import Code
from proxy.net.client import HttpUpstream
from proxy.net.pool import CircuitBreaker, Pool
from proxy.net.reply import Call, CallLimits, UpstreamAddress, UpstreamFault
from tests.support.patience import PATIENCE
from tests.support.ports import closed_port
from tests.support.rawhttp import Wire
from tests.support.rawserver import OK, RawServer, closes, says, silent
from tests.support.table import table


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


async def test_a_connection_that_came_while_the_proxy_itself_stood_still_is_taken():
    async with RawServer(says(OK)) as server:
        address = UpstreamAddress("http", "127.0.0.1", server.port)
        pool = Pool(address, CallLimits(connect=0.1))
        # as soon as it has asked for the connection
        asyncio.get_running_loop().call_soon(time.sleep, 0.5)
        connection = await pool.fresh()
        assert pool.open == {connection}
        pool.close()


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
        await server.until(lambda: len(pool.line) == 1)
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


# ---- when an application is away


UNREACHABLE = UpstreamFault(Code.UPSTREAM_UNREACHABLE, "x", sent=False)
TIMEOUT = UpstreamFault(Code.UPSTREAM_TIMEOUT, "x", sent=True)
BROKEN = UpstreamFault(Code.UPSTREAM_BROKEN, "x", sent=True)
BUSY = UpstreamFault(Code.UPSTREAM_BUSY, "x", sent=False)
STARVED = UpstreamFault(Code.UPSTREAM_TIMEOUT, "x", sent=True)
STARVED.starved = True


def opened(told: list[bool] | None = None, failures: int = 3) -> CircuitBreaker:
    """A breaker that opened at 10 for 5 seconds."""
    breaker = CircuitBreaker(failures, 5.0, told.append if told is not None else lambda _open: None)
    for _ in range(failures):
        breaker.failed(UNREACHABLE, 10.0, tried=False)
    return breaker


def refused(breaker: CircuitBreaker, now: float) -> int | None:
    """The seconds that a request is told to wait; ``None``: it may go out."""
    fault = breaker.refusal(now)
    if fault is None:
        return None
    assert (fault.code, fault.sent) == (Code.UPSTREAM_SUSPENDED, False)
    return fault.retry_after


@table("fault", [UNREACHABLE, TIMEOUT])
def test_it_opens_after_so_many_failures_in_a_row(fault):
    breaker = CircuitBreaker(3, 5.0)
    for _ in range(2):
        breaker.failed(fault, 1.0, tried=False)
    assert (breaker.open, breaker.engaged, breaker.admit(1.0)) == (False, True, False)
    breaker.failed(fault, 1.0, tried=False)
    assert breaker.open
    with pytest.raises(UpstreamFault):
        breaker.admit(1.0)


def test_an_answer_in_between_begins_the_count_anew():
    breaker = CircuitBreaker(3, 5.0)
    for _ in range(5):
        breaker.failed(UNREACHABLE, 1.0, tried=False)
        breaker.failed(TIMEOUT, 1.0, tried=False)
        breaker.answered()
        assert (breaker.open, breaker.engaged) == (False, False)


def test_what_is_late_while_others_are_answered_is_not_counted():
    breaker = CircuitBreaker(3, 5.0)
    for _ in range(5):
        breaker.failed(TIMEOUT, 1.0, tried=False, responsive=True)
    assert (breaker.open, breaker.engaged) == (False, False)
    for _ in range(3):
        breaker.failed(UNREACHABLE, 1.0, tried=False, responsive=True)
    assert breaker.open


async def test_one_caller_that_asks_for_what_hangs_keeps_nobody_from_the_application():
    async def picky(wire: Wire, server: RawServer) -> None:
        while True:
            message = await server.read(wire)
            if b"/hangs" in message.start:
                await asyncio.Event().wait()
            await wire.send(OK)

    told: list[bool] = []
    async with RawServer(picky) as server:
        upstream = HttpUpstream(
            CallLimits(head=1.0, failures=2),
            on_circuit=lambda _address, is_open: told.append(is_open),
        )
        address = UpstreamAddress("http", "127.0.0.1", server.port)
        try:
            ask = [
                Call(address, "GET", b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n" % name, b"")
                for name in (b"hangs", b"")
            ]
            late = [asyncio.create_task(upstream.send(ask[0])) for _ in range(5)]
            while not all(one.done() for one in late):
                assert (await upstream.send(ask[1])).head.status == 200
                await asyncio.sleep(0.01)
            for one in late:
                with pytest.raises(UpstreamFault):
                    await one
        finally:
            upstream.close()
    assert told == []


@table("fault", [BROKEN, BUSY, STARVED])
def test_what_tells_nothing_of_the_application_is_not_counted(fault):
    breaker = CircuitBreaker(1, 5.0)
    breaker.failed(fault, 1.0, tried=False)
    assert (breaker.open, breaker.engaged) == (False, False)


def test_it_is_off_at_zero():
    breaker = CircuitBreaker(0, 5.0)
    for _ in range(100):
        breaker.failed(UNREACHABLE, 1.0, tried=False)
    assert (breaker.open, breaker.engaged) == (False, False)


def test_while_it_is_open_callers_are_told_when_to_come_again():
    breaker = opened()
    assert [refused(breaker, now) for now in (10.0, 10.1, 14.0, 14.9)] == [5, 5, 1, 1]


def test_after_the_pause_one_request_tries_and_the_others_wait_for_it():
    breaker = opened()
    assert refused(breaker, 15.0) is None
    assert breaker.admit(15.0) is True
    assert refused(breaker, 15.0) == refused(breaker, 99.0) == 1
    with pytest.raises(UpstreamFault):
        breaker.admit(99.0)


def test_its_answer_closes_and_its_failure_begins_another_pause():
    told: list[bool] = []
    breaker = opened(told)
    assert breaker.admit(15.0)
    breaker.failed(BROKEN, 20.0, tried=True)
    assert [refused(breaker, now) for now in (20.0, 24.9, 25.0)] == [5, 1, None]
    assert breaker.admit(25.0)
    breaker.answered()
    assert (breaker.open, breaker.engaged, refused(breaker, 25.0)) == (False, False, None)
    assert told == [True, False]


@table("fault", [BUSY, STARVED, None])
def test_a_try_that_tells_nothing_lets_another_one_through(fault):
    breaker = opened()
    assert breaker.admit(15.0)
    if fault is None:
        breaker.left()
    else:
        breaker.failed(fault, 15.0, tried=True)
    assert breaker.open
    assert breaker.admit(15.0) is True


def test_late_failures_of_requests_before_do_not_prolong_the_pause():
    told: list[bool] = []
    breaker = opened(told)
    for _ in range(5):
        breaker.failed(TIMEOUT, 14.9, tried=False)
    assert refused(breaker, 15.0) is None
    assert told == [True]


# ---------------------------------------------------------------------- over sockets


def asked_once(port: int, method: str = "GET") -> Call:
    return Call(
        UpstreamAddress("http", "127.0.0.1", port),
        method,
        method.encode() + b" / HTTP/1.1\r\nHost: x\r\n\r\n",
    )


async def code(upstream: HttpUpstream, call: Call) -> str:
    """How a request ends: ``ok`` or the code of its fault."""
    try:
        await upstream.send(call)
    except UpstreamFault as fault:
        return str(fault.code)
    return "ok"


def breaker_of(upstream: HttpUpstream, port: int) -> CircuitBreaker:
    """The breaker of an address, so that no test has to wait for its clock."""
    address = UpstreamAddress("http", "127.0.0.1", port)
    return (upstream._pools.get(address) or upstream._pool(address)).breaker


def suspend(upstream: HttpUpstream, port: int) -> None:
    breaker_of(upstream, port).failed(UNREACHABLE, asyncio.get_running_loop().time(), tried=False)


async def test_an_application_that_is_not_there_is_left_alone_and_found_again():
    told: list[tuple[int, bool]] = []
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # taken, and nobody listens
        port = bound.getsockname()[1]
        address = UpstreamAddress("http", "127.0.0.1", port)
        limits = CallLimits(failures=2, pause=60)
        upstream = HttpUpstream(
            limits, on_circuit=lambda address, suspended: told.append((address.port, suspended))
        )
        seen = [await code(upstream, asked_once(port, "POST")) for _ in range(4)]
        assert seen == ["upstream_unreachable"] * 2 + ["upstream_suspended"] * 2
        assert upstream.suspended(address)
        fault = upstream.refusal(address)
        assert fault is not None
        assert fault.retry_after in range(1, 61)
        breaker_of(upstream, port)._until = 0.0
        server = RawServer(says(OK))
        server.at = bound
        async with server:
            assert upstream.refusal(address) is None
            assert [await code(upstream, asked_once(port)) for _ in range(2)] == ["ok", "ok"]
            assert not upstream.suspended(address)
    assert told == [(port, True), (port, False)]
    upstream.close()


async def test_time_outs_suspend_and_one_request_at_a_time_tries():
    upstream = HttpUpstream(CallLimits(failures=2, pause=60, head=0.1))
    async with RawServer(silent()) as server:
        seen = [await code(upstream, asked_once(server.port)) for _ in range(3)]
        assert seen == ["upstream_timeout", "upstream_timeout", "upstream_suspended"]
        breaker_of(upstream, server.port)._until = 0.0
        crowd = await asyncio.gather(*(code(upstream, asked_once(server.port)) for _ in range(20)))
        assert sorted(crowd) == ["upstream_suspended"] * 19 + ["upstream_timeout"]
    upstream.close()


async def test_a_try_whose_caller_leaves_lets_another_through():
    upstream = HttpUpstream(CallLimits(failures=1, pause=60))
    async with RawServer(silent()) as server:
        suspend(upstream, server.port)
        breaker_of(upstream, server.port)._until = 0.0
        trying = asyncio.ensure_future(upstream.send(asked_once(server.port)))
        await server.until(lambda: len(server.requests) == 1)
        assert await code(upstream, asked_once(server.port)) == "upstream_suspended"
        trying.cancel()
        await asyncio.wait([trying])
        server.behaviour = says(OK)
        assert await code(upstream, asked_once(server.port)) == "ok"
    upstream.close()


@table(
    "behaviour",
    [
        says(b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n"),
        says(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"),
        says(b"rubbish\r\n\r\n"),
        closes(),
    ],
)
async def test_no_answer_of_any_kind_suspends(behaviour):
    upstream = HttpUpstream(CallLimits(failures=1, pause=60))
    async with RawServer(behaviour) as server:
        for _ in range(5):
            assert await code(upstream, asked_once(server.port)) != "upstream_suspended"
    upstream.close()


async def test_one_application_does_not_suspend_another():
    upstream = HttpUpstream(CallLimits(failures=1, pause=60))
    async with RawServer(says(OK)) as dead, RawServer(says(OK)) as alive:
        suspend(upstream, dead.port)
        assert await code(upstream, asked_once(dead.port)) == "upstream_suspended"
        assert await code(upstream, asked_once(alive.port)) == "ok"
        assert dead.requests == []
    upstream.close()
