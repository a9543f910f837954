import asyncio
import gzip
import json
import socket

import pytest

from proxy.errors import Code, VaultError
from proxy.gateway.bodies import BodyTimeouts
from proxy.net import memory_budget
from proxy.net import memory_budget as room_module
from proxy.net.memory_budget import SLOWEST_BODY, BodyRate, MemoryBudget, Reservation
from proxy.redactor.rules import Verb
from tests.support.gateway import gateway
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, get, post
from tests.support.rawhttp import Wire
from tests.support.rawserver import OK, RawServer, says


def test_what_fits_is_held_and_given_back():
    async def run() -> None:
        room = MemoryBudget(10, 0.0)
        one, other = Reservation(room), Reservation(room)
        await one.take(4)
        await other.take(6)
        assert (room.taken, one.size, other.size) == (10, 4, 6)
        one.close()
        one.close()
        assert room.taken == 6
        other.close()
        assert room.taken == 0

    asyncio.run(run())


def test_what_does_not_fit_at_once_is_not_held():
    room = MemoryBudget(10, 0.0)
    one, other = Reservation(room), Reservation(room)
    assert one.at_once(7)
    assert not other.at_once(4)
    assert (room.taken, one.size, other.size) == (7, 7, 0)
    assert other.at_once(3)


async def test_one_alone_fits_whatever_its_size():
    room = MemoryBudget(10, 0.0)
    one = Reservation(room)
    await one.take(8)
    await one.take(80)
    assert room.taken == 88
    with pytest.raises(VaultError) as caught:
        await Reservation(room).take(1)
    assert caught.value.code is Code.OVERLOADED
    one.close()
    await Reservation(room).take(50)


async def test_a_small_one_never_waits_for_large_ones():
    room = MemoryBudget(2048, 0.0)
    large, small, empty = Reservation(room), Reservation(room), Reservation(room)
    await large.take(4096)
    assert (small.at_once(2), small.at_once(1), empty.at_once(0)) == (True, False, True)
    assert room.taken == 4098
    with pytest.raises(VaultError):
        await small.take(1)
    small.close()
    assert room.taken == 4096


async def test_of_many_that_fill_the_room_together_one_comes_to_its_end():
    room = MemoryBudget(10, 0.0)
    many = [Reservation(room) for _ in range(5)]
    for one in many:
        await one.take(2)
    await many[3].take(2)
    await many[3].take(20)
    for one in (many[0], many[4], Reservation(room)):
        with pytest.raises(VaultError):
            await one.take(1)
    many[3].close()
    await many[0].take(2)
    assert room.taken == 10


async def test_who_waits_is_let_beyond_the_limit_when_the_one_before_is_over():
    room = MemoryBudget(10, 60.0)
    first, second = Reservation(room), Reservation(room)
    await first.take(5)
    await second.take(5)
    await first.take(10)
    waiting = [asyncio.create_task(second.take(30)), asyncio.create_task(Reservation(room).take(1))]
    await asyncio.sleep(0)
    first.close()
    await waiting[0]
    assert (room.taken, second.size, waiting[1].done()) == (35, 35, False)
    second.close()
    await waiting[1]
    assert room.taken == 1


async def test_several_that_stop_waiting_at_once_leave_no_trace():
    room = MemoryBudget(10, 0.01)
    first = Reservation(room)
    await first.take(10)
    results = await asyncio.gather(
        *(Reservation(room).take(5) for _ in range(20)), return_exceptions=True
    )
    assert {getattr(result, "code", None) for result in results} == {Code.OVERLOADED}
    assert not room._line
    first.close()
    assert room.taken == 0


async def test_those_who_wait_come_in_by_their_order():
    room = MemoryBudget(10, 60.0)
    first = Reservation(room)
    await first.take(9)
    entered: list[str] = []
    holdings = {name: Reservation(room) for name in "abc"}

    async def enter(name: str, size: int) -> None:
        await holdings[name].take(size)
        entered.append(name)

    tasks = [
        asyncio.create_task(enter("a", 8)),
        asyncio.create_task(enter("b", 1)),
        asyncio.create_task(enter("c", 1)),
    ]
    await asyncio.sleep(0)
    assert entered == []  # the small ones would fit, and stand behind the large one
    await first.take(1)  # who is in already does not
    first.close()
    await asyncio.gather(*tasks)
    assert entered == ["a", "b", "c"]
    assert room.taken == 10


async def test_who_leaves_lets_the_next_one_in():
    room = MemoryBudget(10, 60.0)
    first = Reservation(room)
    await first.take(5)
    large, small = Reservation(room), Reservation(room)
    waiting = asyncio.create_task(large.take(8))
    await asyncio.sleep(0)
    entering = asyncio.create_task(small.take(2))
    await asyncio.sleep(0)
    waiting.cancel()
    await entering
    assert (room.taken, large.size, small.size) == (7, 0, 2)


async def test_a_turn_that_comes_while_its_owner_leaves_is_given_back():
    room = MemoryBudget(10, 60.0)
    first = Reservation(room)
    await first.take(10)
    leaving = Reservation(room)
    waiting = asyncio.create_task(leaving.take(10))
    await asyncio.sleep(0)
    first.close()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (room.taken, leaving.size) == (0, 0)


async def test_what_is_there_already_makes_others_wait():
    room = MemoryBudget(10, 0.0)
    one = Reservation(room)
    one.add(30)
    with pytest.raises(VaultError):
        await Reservation(room).take(1)
    one.close()
    assert room.taken == 0


async def arrive(
    holding: Reservation, size: int, since: float | None, started: asyncio.Semaphore
) -> None:
    """A body of which so much has come, and whose caller is waited for since then, if at all."""
    try:
        async with asyncio.timeout(None) as deadline:
            with holding.arriving(deadline) as coming:
                await holding.take(size)
                if since is not None:
                    coming.wait(since)
                started.release()
                await asyncio.Event().wait()
    finally:
        holding.close()


async def test_those_who_come_too_slowly_give_way_but_no_more_of_them_than_it_takes():
    room = MemoryBudget(10, PATIENCE)
    now = asyncio.get_running_loop().time()
    late, soon = now - 1000, now + 1000
    bodies = {
        "little": (1, late),
        "much": (5, late),
        "in time": (3, soon),
        "waits for the application": (1, None),
    }
    started = asyncio.Semaphore(0)
    tasks = {
        name: asyncio.create_task(arrive(Reservation(room), *body, started))
        for name, body in bodies.items()
    }
    for _ in tasks:
        await started.acquire()
    assert room.taken == 10
    await asyncio.wait_for(Reservation(room).take(4), PATIENCE / 2)
    with pytest.raises(TimeoutError):
        await tasks.pop("much")
    assert (room.taken, len(room.arriving)) == (9, 3)
    assert not any(task.done() for task in tasks.values())
    for task in tasks.values():
        task.cancel()
    await asyncio.wait(tasks.values())
    assert (room.taken, room.arriving) == (4, {})


async def test_it_is_looked_again_as_long_as_somebody_waits(monkeypatch):
    monkeypatch.setattr(room_module, "_AGAIN", 0.01)
    room = MemoryBudget(10, PATIENCE)
    body, started = Reservation(room), asyncio.Semaphore(0)
    coming = asyncio.create_task(arrive(body, 10, None, started))
    await started.acquire()
    waiting = asyncio.create_task(Reservation(room).take(5))
    await asyncio.sleep(0)
    assert room._looking
    room.arriving[body].rate.wait(asyncio.get_running_loop().time() - 1000)
    await asyncio.wait_for(waiting, PATIENCE / 2)
    with pytest.raises(TimeoutError):
        await coming
    assert room.taken == 5


# ---------------------------------------------------------------------- through the gateway

NARROW = {"buffered": 40_000, "timeouts": BodyTimeouts(room=0.1)}


async def test_who_finds_no_room_for_a_request_is_told_so_and_nothing_is_sent():
    gate = asyncio.Event()

    async def waits(wire: Wire, server: RawServer) -> None:
        while (await server.read(wire)).start:
            await gate.wait()
            await wire.send(OK)

    async with (
        RawServer(waits) as server,
        gateway(server.url, options=NARROW) as (port, steered),
        RawClient(port) as one,
    ):
        await one.send(post("/people/1", b"a" * 15_000))
        await server.until(lambda: len(server.requests) == 1)
        for body, fields in (
            (b"b" * 15_000, []),
            (gzip.compress(bytes(15_000)), ["Content-Encoding: gzip"]),
        ):
            async with RawClient(port) as other:
                if fields:  # what is small before it is inflated makes the next one wait
                    await other.send(post("/people/2", body, *fields))
                    await server.until(lambda: len(server.requests) == 2)
                async with RawClient(port) as late:
                    answer = await late.ask(post("/people/3", b"c" * 15_000))
                    assert (answer.status, answer.all("Retry-After")) == (503, [b"1"])
                    assert json.loads(answer.body)["code"] == "overloaded"
                async with RawClient(port) as unmatched:
                    await unmatched.send(post("/elsewhere", b"d" * 15_000))
                    await server.until(
                        lambda: server.requests[-1].start.startswith(b"POST /elsewhere")
                    )
        assert steered.exchange_.names.count("outgoing") == 2
        gate.set()
        assert (await one.answer("POST")).status == 200
        async with RawClient(port) as again:
            assert (await again.ask(post("/people/4", b"e" * 15_000))).status == 200


async def test_what_was_written_is_settled_when_there_is_no_room_for_its_answer():
    length = b"HTTP/1.1 201 Created\r\nContent-Length: 15000\r\n\r\n"
    half = asyncio.Event()

    async def drips(wire: Wire, server: RawServer) -> None:
        while (await server.read(wire)).start:
            await wire.send(length)
            half.set()
            if len(server.requests) > 1:
                await wire.send(b"x" * 15_000)

    async with RawServer(drips) as server, gateway(server.url, options=NARROW) as (port, steered):
        steered.verb = Verb.CREATE
        async with RawClient(port) as one, RawClient(port) as other:
            await one.send(post("/people/1", b"{}"))
            await half.wait()
            assert (await other.ask(post("/people/2", b"{}"))).status == 503
            assert steered.exchange_.names.count("settled") == 1
            await server.wires[0].send(b"x" * 15_000)
            assert (await one.answer("POST")).status == 201
            assert (await other.ask(post("/people/3", b"{}"))).status == 201


async def test_an_answer_keeps_its_room_until_its_caller_has_taken_it():
    large = b"HTTP/1.1 200 OK\r\nContent-Length: 14000000\r\n\r\n" + bytes(14_000_000)
    options = {"buffered": 40_000_000, "timeouts": BodyTimeouts(room=0.05)}
    async with (
        RawServer(says(large)) as server,
        gateway(server.url, options=options) as (port, steered),
    ):
        async with RawClient(port) as idle, RawClient(port) as other:
            idle.writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVBUF, 4096
            )
            idle.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport of a socket can
            await idle.send(get("/people/1") * 3)
            await server.until(lambda: len(steered.exchange_.calls) == 2)
            assert (await other.ask(get("/people/2"))).status == 503
        await server.until(lambda: bool(steered.notes) and steered.notes[-1].status == 200)
        async with RawClient(port) as again:
            assert (await again.ask(get("/people/2"))).status == 200
        # what stood behind the answer that nobody took was never asked for
        assert len(server.requests) == 3


async def test_callers_that_stop_in_the_middle_of_their_bodies_do_not_keep_others_waiting(
    monkeypatch,
):
    monkeypatch.setattr(memory_budget, "_FIRST", 0.0)
    monkeypatch.setattr(memory_budget, "_AHEAD", 0.0)
    options = {"buffered": 40_000, "timeouts": BodyTimeouts(body=10 * PATIENCE, room=PATIENCE)}
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url, options=options) as (port, steered),
        RawClient(port) as slow,
        RawClient(port) as other,
    ):
        assert steered.gateway is not None
        room = steered.gateway._rooms.requests
        await slow.send(post("/people/1", b"a" * 15_000)[:-1000])
        await server.until(lambda: room.taken == 14_000)
        assert (await other.ask(post("/people/2", b"b" * 15_000))).status == 200
        answer = await slow.answer("POST")
        assert (answer.status, json.loads(answer.body)["code"]) == (408, "request_timeout")
        assert answer.one("connection") == b"close"
        assert steered.exchange_.names.count("outgoing") == 1
        await server.until(lambda: room.taken == 0)


# ---- What counts as slow, by a clock that the test sets


def test_who_has_just_begun_is_in_time_for_a_second():
    rate = BodyRate()
    rate.wait(100.0)
    assert rate.deficit(100.9) < 0
    assert rate.deficit(101.5) == SLOWEST_BODY / 2


def test_single_bytes_fall_behind():
    rate = BodyRate()
    for second in range(5):
        rate.wait(float(second))
        rate.received(1, second + 1.0)
    rate.wait(5.0)
    assert rate.deficit(5.0) == 4 * SLOWEST_BODY - 5


def test_who_sends_as_expected_never_falls_behind():
    rate = BodyRate()
    for second in range(100):
        rate.wait(float(second))
        assert rate.deficit(second + 0.9) <= 0
        rate.received(SLOWEST_BODY, second + 1.0)


def test_what_came_at_once_is_soon_used_up():
    rate = BodyRate()
    rate.wait(0.0)
    rate.received(10_000_000, 0.1)
    rate.wait(0.1)
    assert rate.deficit(2.0) < 0
    assert rate.deficit(3.1) == SLOWEST_BODY


def test_the_time_in_which_somebody_else_is_slow_does_not_count():
    rate = BodyRate()
    rate.wait(0.0)
    rate.received(10, 0.5)
    assert rate.deficit(1000.0) == 0
    rate.wait(1000.0)
    assert rate.deficit(1000.0) < 0
