import asyncio

import pytest

from proxy.net.request import EMPTY, BodyQueue


class Flow:
    """Notes how it is steered."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def pause_reading(self) -> None:
        self.told.append("pause")

    def resume_reading(self, resume_parser: bool = True) -> None:
        assert not resume_parser
        self.told.append("resume")


async def test_pieces_come_out_as_they_went_in():
    body = BodyQueue(Flow())
    body.feed_data(b"a")
    body.feed_data(b"b")
    assert not body.is_eof()
    assert await body.readany() == b"ab"
    reading = asyncio.ensure_future(body.readany())
    await asyncio.sleep(0)
    body.feed_data(b"c")
    assert await reading == b"c"
    ending = asyncio.ensure_future(body.readany())
    await asyncio.sleep(0)
    body.feed_eof()
    assert await ending == b""
    assert (body.is_eof(), body.total_bytes) == (True, 3)


async def test_all_of_it_to_the_end():
    body = BodyQueue(Flow())
    body.feed_data(b"a")
    pieces = body.iter_any()
    assert await anext(pieces) == b"a"
    body.feed_data(b"b")
    body.feed_eof()
    assert [piece async for piece in pieces] == [b"b"]


def test_what_came_at_once_is_there_at_once():
    body = BodyQueue(None, b"abc")
    assert (body.is_eof(), body.total_bytes) == (True, 3)
    assert [body.read_nowait(), body.read_nowait()] == [b"abc", b""]
    assert (EMPTY.is_eof(), EMPTY.read_nowait(), EMPTY.total_bytes) == (True, b"", 0)


async def test_an_error_comes_behind_what_came_before_it():
    body = BodyQueue(Flow())
    body.feed_data(b"a")
    body.set_exception(ValueError("first"))
    body.set_exception(ValueError("second"))
    assert await body.readany() == b"a"
    for _ in range(2):
        with pytest.raises(ValueError, match="first"):
            await body.readany()


async def test_who_waits_is_told_of_an_error():
    body = BodyQueue(Flow())
    waiting = asyncio.ensure_future(body.readany())
    await asyncio.sleep(0)
    body.set_exception(ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        await waiting


async def test_what_is_complete_stays_so():
    body = BodyQueue(None, b"abc")
    body.set_exception(ConnectionError("gone"))
    assert [await body.readany(), await body.readany()] == [b"abc", b""]


async def test_a_slow_taker_stops_the_connection():
    flow = Flow()
    body = BodyQueue(flow)
    body.feed_data(b"x" * 131072)
    assert flow.told == []
    body.feed_data(b"x")
    body.feed_data(b"x")
    assert flow.told == ["pause"]
    assert len(await body.readany()) == 131074
    assert flow.told == ["pause", "resume"]


async def test_many_small_pieces_stop_the_connection_too():
    flow = Flow()
    body = BodyQueue(flow)
    for _ in range(600):
        body.feed_data(b"xy")
    assert flow.told == ["pause"]
    assert len(await body.readany()) == 1200
