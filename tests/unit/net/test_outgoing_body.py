"""Bodies on their way: half of the places, and the slowest gives way."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from proxy.errors import Code
from proxy.net import memory_budget, outgoing_body
from proxy.net.client import HttpUpstream
from proxy.net.outgoing_body import Uploads
from proxy.net.reply import Call, CallLimits, UpstreamAddress, UpstreamFault
from tests.support.rawserver import OK, RawServer, says


async def pieces(*given: bytes) -> AsyncIterator[bytes]:
    for piece in given:
        yield piece


async def hanging(first: bytes = b"") -> AsyncIterator[bytes]:
    if first:
        yield first
    await asyncio.get_running_loop().create_future()


def sending(upload: outgoing_body.Upload) -> asyncio.Task[list[bytes]]:
    async def send() -> list[bytes]:
        return [piece async for piece in upload]

    return asyncio.create_task(send())


async def test_a_body_passes_piece_by_piece_and_frees_its_place():
    gate = Uploads(1, 0.0)
    for _ in range(2):
        assert await sending(await gate.enter(pieces(b"a", b"", b"bc"))) == [b"a", b"", b"bc"]
        await asyncio.sleep(0)


async def test_the_next_waits_until_one_is_over():
    gate = Uploads(1, 60.0)
    first = sending(await gate.enter(hanging()))
    await asyncio.sleep(0)
    second = asyncio.create_task(gate.enter(pieces(b"x")))
    await asyncio.sleep(0)
    assert not second.done()
    first.cancel()
    assert await sending(await second) == [b"x"]


async def test_waiting_for_a_place_is_bounded():
    gate = Uploads(0, 0.05)
    await gate.enter(hanging())
    with pytest.raises(UpstreamFault) as caught:
        await gate.enter(hanging())
    assert (caught.value.code, caught.value.sent) == (Code.UPSTREAM_BUSY, False)


async def test_where_all_places_are_taken_the_slowest_gives_way(monkeypatch):
    monkeypatch.setattr(memory_budget, "_FIRST", 0.0)
    monkeypatch.setattr(memory_budget, "SLOWEST_BODY", 1e6)  # a second ahead, for a busy machine
    gate = Uploads(2, 60.0)
    fast, slow = (
        sending(await gate.enter(hanging(bytes(1_000_000)))),
        sending(await gate.enter(hanging(b"a"))),
    )
    # the loop's clock has steps, and who is not a step old cannot be judged
    await asyncio.sleep(0.01)
    assert await sending(await gate.enter(pieces(b"x"))) == [b"x"]
    with pytest.raises(UpstreamFault) as caught:
        await slow
    assert caught.value.starved
    assert not fast.done()
    fast.cancel()


async def test_who_sends_much_at_once_and_then_nothing_gives_way_too(monkeypatch):
    monkeypatch.setattr(memory_budget, "_AHEAD", 0.0)
    gate = Uploads(1, 60.0)
    stopped = sending(await gate.enter(hanging(bytes(1_000_000))))
    await asyncio.sleep(0)
    assert await sending(await gate.enter(pieces(b"x"))) == [b"x"]
    with pytest.raises(UpstreamFault):
        await stopped


async def test_who_is_cancelled_is_not_taken_for_one_that_gave_way():
    gate = Uploads(1, 0.0)
    task = sending(await gate.enter(hanging()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_callers_that_send_nothing_leave_connections_for_others():
    upstream = HttpUpstream(CallLimits(connections=4, connect=60.0))
    async with RawServer(says(OK)) as server:
        address = UpstreamAddress("http", "127.0.0.1", server.port)

        def call(body: bytes | AsyncIterator[bytes]) -> Call:
            return Call(
                address, "POST", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n", body
            )

        held = [asyncio.ensure_future(upstream.send(call(hanging()))) for _ in range(20)]
        await server.until(lambda: server.open == 2)
        for _ in range(8):
            assert (await upstream.send(call(b"x"))).whole == b"ok"
        for one in held:
            one.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        assert (await upstream.send(call(pieces(b"x")))).whole == b"ok"
    upstream.close()
