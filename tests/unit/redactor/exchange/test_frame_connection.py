import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.redactor.exchange.frame_connection import FrameConnection
from proxy.redactor.exchange.owner_protocol import (
    DrainAccepted,
    Draining,
    Fail,
    Hello,
    Redact,
    RulesQuestion,
    decode_questions,
)
from proxy.redactor.message import Request
from tests.support.patience import PATIENCE


class End:
    """One side, and what came there."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.lost = asyncio.Event()
        self.connection = FrameConnection(self.frames.append, self.lost.set)

    async def came(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.frames) < count:  # noqa: ASYNC110  # the other side sends
                await asyncio.sleep(0)


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[End, End]]:
    ends, loop = (End(), End()), asyncio.get_running_loop()
    for end, side in zip(ends, socket.socketpair(), strict=True):
        await loop.create_unix_connection(lambda end=end: end.connection, sock=side)  # type: ignore[misc]  # a default binds the loop's variable
    yield ends
    for end in ends:
        end.connection.abort()
        await end.lost.wait()


SENT = Request("POST", b"/p\xff", ((b"A", b"\x00"),), b"{}")
REDACT = Redact(7, "v1", 3, {"id": "ä"}, 0, replace(SENT, received=SENT), [b"m"])


async def test_what_is_said_in_one_turn_is_one_frame():
    async with pair() as (here, there):
        here.connection.send(Hello(1, "0"))
        here.connection.send(REDACT)
        await asyncio.sleep(0)
        here.connection.send(Fail(7, True))
        await there.came(2)
        assert [decode_questions(frame) for frame in there.frames] == [
            [Hello(1, "0"), REDACT],
            [Fail(7, True)],
        ]


class Wire(asyncio.Transport):
    """Takes all at once."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[bytes] = []

    def is_closing(self) -> bool:
        return False

    def write(self, data: Any) -> None:
        self.frames.append(data)


async def test_what_is_said_in_the_turn_after_a_question_leaves_in_that_turn():
    """As answers that wait for their line of the audit log, which is written then."""
    loop, wire = asyncio.get_running_loop(), Wire()

    def answer_soon(_: bytes) -> None:
        loop.call_soon(connection.send, DrainAccepted())

    connection = FrameConnection(answer_soon, lambda: None)
    connection.connection_made(wire)
    connection.data_received(b"\0\0\0\1\x90")
    await asyncio.sleep(0)
    assert [decode_questions(frame[4:]) for frame in wire.frames] == [[DrainAccepted()]]


async def test_a_message_that_cannot_be_written_leaves_the_others_of_its_turn_whole():
    async with pair() as (here, there):
        here.connection.send(Hello(1, "0"))
        with pytest.raises(UnicodeEncodeError):
            here.connection.send(Hello(2, "0" * 100 + "\ud800"))
        here.connection.send(Fail(7, True))
        await there.came(1)
        assert [decode_questions(frame) for frame in there.frames] == [
            [Hello(1, "0"), Fail(7, True)]
        ]


async def test_frames_of_any_size_come_whole():
    async with pair() as (here, there):
        long = "x" * 3_000_000
        here.connection.send(RulesQuestion(1, long))
        await asyncio.sleep(0)
        here.connection.send(RulesQuestion(2, ""))
        await there.came(2)
        assert [decode_questions(frame) for frame in there.frames] == [
            [RulesQuestion(1, long)],
            [RulesQuestion(2, "")],
        ]


async def test_messages_of_one_turn_travel_apart_where_they_are_long():
    async with pair() as (here, there):
        said = [RulesQuestion(number, "x" * 400_000) for number in range(9)]
        for one in said:
            here.connection.send(one)
        await there.came(5)
        assert max(map(len, there.frames)) < 2**20
        assert [one for frame in there.frames for one in decode_questions(frame)] == said


async def test_a_frame_may_be_as_long_as_is_said_and_no_longer():
    async with pair() as (here, there):
        there.connection.longest = 1000
        here.connection.send(RulesQuestion(1, "x" * 900))
        await there.came(1)
        here.connection.send(RulesQuestion(2, "x" * 1000))
        await asyncio.wait_for(there.lost.wait(), PATIENCE)
        assert len(there.frames) == 1


async def test_one_that_does_not_read_is_not_read_from():
    here, loop = End(), asyncio.get_running_loop()
    here.connection = FrameConnection(here.frames.append, here.lost.set, lambda _: True)
    side, other = socket.socketpair()
    with other:
        await loop.create_unix_connection(lambda: here.connection, sock=side)
        for number in range(8):
            here.connection.send(RulesQuestion(number, "x" * 2**20))
        await asyncio.sleep(0)
        other.setblocking(False)
        await loop.sock_sendall(other, b"\x00\x00\x00\x01\x90" * 100)
        await asyncio.sleep(0.1)
        assert here.frames == [], "its answers would fill the memory"
        left = 8 * (2**20 + 10)
        while left > 0:
            left -= len(await asyncio.wait_for(loop.sock_recv(other, 2**20), PATIENCE))
        await here.came(100)
    await asyncio.wait_for(here.lost.wait(), PATIENCE)


async def test_what_is_no_frame_ends_the_connection():
    for content in (b"\xff\xff\xff\xff", b"\x00\x00\x00\x03abc"):
        here, loop = End(), asyncio.get_running_loop()
        here.connection = FrameConnection(decode_questions, here.lost.set)  # type: ignore[arg-type]  # its answer is of no use
        side, other = socket.socketpair()
        with other:
            await loop.create_unix_connection(lambda: here.connection, sock=side)  # noqa: B023  # awaited here
            other.send(content)
            await asyncio.wait_for(here.lost.wait(), PATIENCE)
        assert not here.connection.open


async def test_what_was_said_is_written_before_the_end_and_nothing_after_it():
    async with pair() as (here, there):
        here.connection.send(Draining())
        here.connection.close()
        await asyncio.wait_for(there.lost.wait(), PATIENCE)
        assert len(there.frames) == 1
        here.connection.send(DrainAccepted())
        await asyncio.sleep(0)


async def test_one_that_ended_and_does_not_say_so_yet_is_closed_like_any():
    """As uvloop has it: its handle is closed, its transport is not closing."""

    class Ended(Wire):
        closed = False

        def write(self, data: Any) -> None:
            raise RuntimeError("the handle is closed")

        def close(self) -> None:
            self.closed = True

    wire, connection = Ended(), FrameConnection(lambda _: None, lambda: None)
    connection.connection_made(wire)
    connection.send(Draining())
    connection.close()
    assert wire.closed


async def test_who_may_not_be_there_is_heard_of_nothing():
    here, loop = End(), asyncio.get_running_loop()
    here.connection = FrameConnection(here.frames.append, here.lost.set, lambda _: False)
    side, other = socket.socketpair()
    with other:
        other.send(b"\x00\x00\x00\x01\x90")
        await loop.create_unix_connection(lambda: here.connection, sock=side)
        await asyncio.wait_for(here.lost.wait(), PATIENCE)
    assert here.frames == []


async def test_who_may_not_be_there_any_more_is_sent_away_though_it_speaks():
    here, loop, may = End(), asyncio.get_running_loop(), True
    here.connection = FrameConnection(here.frames.append, here.lost.set, lambda _: may)
    side, other = socket.socketpair()
    with other, suppress(ConnectionError):
        await loop.create_unix_connection(lambda: here.connection, sock=side)
        async with asyncio.timeout(PATIENCE):
            while not here.lost.is_set():  # it speaks until then
                other.send(b"\x00\x00\x00\x01\x90")
                await asyncio.sleep(0.05)
                may = not here.frames
    assert not may
