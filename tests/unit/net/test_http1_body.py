import asyncio
from types import SimpleNamespace

import pytest

from proxy.net.http1.body import EMPTY, BodyQueue


class Flow:
    """Notes how it is steered."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def pause_reading(self) -> None:
        self.told.append("pause")

    def resume_reading(self) -> None:
        self.told.append("resume")


async def test_pieces_come_out_as_they_went_in():
    body = BodyQueue(Flow())
    body.feed(b"a")
    body.feed(b"b")
    assert not body.done
    assert await body.read() == b"ab"
    reading = asyncio.ensure_future(body.read())
    await asyncio.sleep(0)
    body.feed(b"c")
    assert await reading == b"c"
    ending = asyncio.ensure_future(body.read())
    await asyncio.sleep(0)
    body.finish()
    assert await ending == b""
    assert (body.done, body.total) == (True, 3)


async def test_all_of_it_to_the_end():
    body = BodyQueue(Flow())
    body.feed(b"a")
    pieces = body.pieces()
    assert await anext(pieces) == b"a"
    body.feed(b"b")
    body.finish()
    assert [piece async for piece in pieces] == [b"b"]


def test_what_came_at_once_is_there_at_once():
    body = BodyQueue(None, b"abc")
    assert (body.done, body.total) == (True, 3)
    assert [body.take(), body.take()] == [b"abc", b""]
    assert (EMPTY.done, EMPTY.take(), EMPTY.total) == (True, b"", 0)


async def test_an_error_comes_behind_what_came_before_it():
    body = BodyQueue(Flow())
    body.feed(b"a")
    body.fail(ValueError("first"))
    body.fail(ValueError("second"))
    assert await body.read() == b"a"
    for _ in range(2):
        with pytest.raises(ValueError, match="first"):
            await body.read()


async def test_who_waits_is_told_of_an_error():
    body = BodyQueue(Flow())
    waiting = asyncio.ensure_future(body.read())
    await asyncio.sleep(0)
    body.fail(ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        await waiting


def test_who_takes_the_place_of_a_future_hears_of_pieces_the_end_and_faults():
    heard: list[None] = []
    waiter = SimpleNamespace(done=lambda: False, set_result=heard.append)
    body = BodyQueue(None)
    for piece in (b"An", b"n", b""):
        assert body.buffered is None
        assert body.tell(waiter)
        if piece:
            body.feed(piece)
        else:
            body.finish()
    assert len(heard) == 3
    assert not body.tell(waiter), "it is whole"
    assert body.buffered == body.buffered == b"Ann", "it stays"
    assert body.take() == b"Ann"
    broken = BodyQueue(None)
    assert broken.tell(waiter)
    broken.fail(ValueError("broken"))
    assert len(heard) == 4
    assert not broken.tell(waiter)
    assert broken.buffered is None


async def test_what_is_complete_stays_so():
    body = BodyQueue(None, b"abc")
    body.fail(ConnectionError("gone"))
    assert [await body.read(), await body.read()] == [b"abc", b""]


async def test_a_slow_taker_stops_the_connection():
    flow = Flow()
    body = BodyQueue(flow)
    body.feed(b"x" * 131072)
    assert flow.told == []
    body.feed(b"x")
    body.feed(b"x")
    assert flow.told == ["pause"]
    assert len(await body.read()) == 131074
    assert flow.told == ["pause", "resume"]


async def test_many_small_pieces_stop_the_connection_too():
    flow = Flow()
    body = BodyQueue(flow)
    for _ in range(600):
        body.feed(b"xy")
    assert flow.told == ["pause"]
    assert len(await body.read()) == 1200


async def test_a_body_that_is_to_wait_whole_is_read_on_and_joined():
    flow = Flow()
    body = BodyQueue(flow, most=10)
    body.feed(b"x" * 11)
    assert flow.told == ["pause"]
    body.hold(2000)
    assert flow.told == ["pause", "resume"]
    for _ in range(1500):
        body.feed(b"y")
    assert len(body._pieces) < 600
    body.finish()
    assert body.joined == b"x" * 11 + b"y" * 1500
    assert flow.told == ["pause", "resume"]
    body.hold(10)  # it holds more already
    assert body.waiting == 1511
