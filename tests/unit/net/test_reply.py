import asyncio

import pytest

from proxy.net.http1.head import Framing, ResponseHead
from proxy.net.reply import BufferedReply


class Feed:
    def __init__(self) -> None:
        self.paused = self.resumed = 0
        self.aborted = 0

    def pause_reading(self):
        self.paused += 1

    def resume_reading(self):
        self.resumed += 1

    def abort(self):
        self.aborted += 1


@pytest.fixture
def feed():
    return Feed()


@pytest.fixture
def reply(feed):
    return BufferedReply(ResponseHead((1, 200, b""), b""), Framing.LENGTH, feed, 1)


def test_a_complete_answer_is_whole_and_taken_once(reply, feed):
    reply.feed(b"a")
    reply.feed(b"b")
    before = reply.whole
    reply.finish()
    reply.detach()
    assert (before, reply.whole) == (None, b"ab")
    assert reply.whole == b""
    assert reply.waiting == 0
    assert (feed.paused, feed.resumed) == (1, 0)


async def test_pieces_come_as_they_arrive_and_then_the_end(reply, feed):
    reading = asyncio.ensure_future(reply.read())
    await asyncio.sleep(0)
    reply.feed(b"a")
    assert await reading == b"a"
    reply.feed(b"b")
    reply.feed(b"c")
    assert reply.waiting == 2
    assert await reply.read() == b"bc"
    assert (feed.paused, feed.resumed) == (1, 1)
    reply.finish()
    assert await reply.read() == b""


async def test_what_came_before_a_fault_is_read_before_it(reply):
    reply.feed(b"a")
    reply.fail(ConnectionError("broken"))
    assert await reply.read() == b"a"
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await reply.read()


async def test_a_fault_wakes_the_reader(reply):
    reading = asyncio.ensure_future(reply.read())
    await asyncio.sleep(0)
    reply.fail(ConnectionError("broken"))
    with pytest.raises(ConnectionError):
        await reading


def test_dropping_a_finished_answer_does_nothing(reply, feed):
    reply.abort()
    assert feed.aborted == 1
    reply.finish()
    reply.abort()
    assert feed.aborted == 1
