import asyncio
from typing import Any, cast

import pytest

from proxy.net import response
from proxy.net.http1.body import EMPTY, BodyQueue
from proxy.net.http1.head import Framing, Heads, parse_request_head, parse_response_head
from proxy.net.reply import BufferedReply
from proxy.net.response import RequestContext
from tests.support.gateway import gateway
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, get
from tests.support.rawserver import RawServer, silent
from tests.support.table import table


class Caller:
    """What the writer uses of an incoming request."""

    def __init__(self, minor: int = 1, close: bool = False) -> None:
        self.minor, self.close, self.size, self.status = minor, close, 0, 0
        self.began = self.gone = False
        self.sent = b""
        self.sample = None
        self.takes = [0]  #: what the caller has not taken yet, before and after each wait

    def begin(self, status: int) -> None:
        self.began, self.status = True, status

    def write(self, data: bytes) -> None:
        self.sent += data

    @property
    def unsent(self) -> int:
        return self.takes[0]

    async def drained(self, _: float) -> None:
        self.takes = self.takes[1:] or [0]
        if self.takes[0]:
            raise TimeoutError


def reply(head: bytes, framing: Framing, *pieces: bytes, done: bool = True) -> BufferedReply:
    data = head + b"\r\n\r\n"
    feed: Any = None
    made = BufferedReply(parse_response_head(data, len(head)), framing, feed, 1 << 20)
    for piece in pieces:
        made.feed(piece)
    if done:
        made.finish()
    return made


@table(
    ("head", "framing", "minor", "close", "sent"),
    [
        (b"HTTP/1.1 200 OK\r\nA:1", Framing.LENGTH, 1, False, b"HTTP/1.1 200 OK\r\nA:1\r\n\r\n"),
        (
            b"HTTP/1.0 200 OK\r\nA:1",
            Framing.LENGTH,
            1,
            True,
            b"HTTP/1.1 200 OK\r\nA:1\r\nConnection: close\r\n\r\n",
        ),
        (
            b"HTTP/1.1 200 ",
            Framing.LENGTH,
            0,
            False,
            b"HTTP/1.1 200 \r\nConnection: keep-alive\r\n\r\n",
        ),
        (b"HTTP/1.1 200 ", Framing.CLOSE, 1, False, b"HTTP/1.1 200 \r\nConnection: close\r\n\r\n"),
        (
            b"HTTP/1.1 200 \r\nTransfer-Encoding: chunked",
            Framing.CHUNKED,
            0,
            False,
            b"HTTP/1.1 200 \r\nConnection: close\r\n\r\n",
        ),
        (
            b"HTTP/1.1 204 \r\nTransfer-Encoding: chunked",
            Framing.NONE,
            1,
            False,
            b"HTTP/1.1 204 \r\n\r\n",
        ),
        (
            b"HTTP/1.1 200 \r\nConnection: close\r\nA: 1",
            Framing.CLOSE,
            1,
            False,
            b"HTTP/1.1 200 \r\nA: 1\r\nConnection: close\r\n\r\n",
        ),
    ],
)
def test_the_head_for_this_caller(head, framing, minor, close, sent):
    caller: Any = Caller(minor, close)
    assert response.begin_response(caller, reply(head, framing).head, framing) == sent
    assert caller.began
    assert caller.close == (b"close" in sent)


async def test_a_stream_in_chunks_ends_with_its_trailers_but_no_framing_among_them():
    made = reply(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", Framing.CHUNKED, b"abc", done=False
    )
    trailers = (
        (b"X-Sum", b"1"),
        (b"Transfer-Encoding", b"x"),
        (b"Content-Length", b"9"),
        (b"Host", b"h"),
    )
    caller: Any = Caller()
    asyncio.get_running_loop().call_soon(made.finish, trailers)
    await response.stream(caller, made, 1)
    assert caller.sent.endswith(b"\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n")
    assert caller.size == 3


async def test_a_stream_to_nobody_stops():
    made = reply(b"HTTP/1.1 200 OK", Framing.CLOSE, b"abc", done=False)
    caller: Any = Caller()
    caller.gone = True
    await response.stream(caller, made, 1)
    assert caller.size == 0


def test_interim_answers_are_for_callers_that_know_them():
    for minor, sent in ((1, b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n"), (0, b"")):
        caller: Any = Caller(minor)
        response.pass_interim(caller, 103, b"Hints", ((b"Link", b"x"), (b"Connection", b"close")))
        assert caller.sent == sent


def test_nothing_interim_follows_the_final_head():
    caller: Any = Caller()
    caller.began = True
    response.pass_interim(caller, 103, b"Hints", ())
    assert caller.sent == b""


def test_whole_and_restored_answers():
    made = reply(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", Framing.CHUNKED)
    caller: Any = Caller()
    response.whole_response(caller, made.head, made.framing, b"abc")
    assert caller.sent.endswith(b"\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    for minor, close, field in (
        (1, False, b""),
        (1, True, b"Connection: close\r\n"),
        (0, False, b"Connection: keep-alive\r\n"),
    ):
        caller = Caller(minor, close)
        response.restored(caller, (made.head.status, made.head.reason), [b"A: 1\r\n"], b"abc")
        assert caller.sent == b"HTTP/1.1 200 OK\r\nA: 1\r\n" + field + b"\r\nabc"


@table("takes", [[0], [1000], [200_000, 0], [9_000_000, 8_000_000, 7_000_000, 0]])
async def test_a_caller_that_takes_its_answer_is_waited_for(takes):
    caller = Caller()
    caller.takes = list(takes)
    await response.drain(caller, 60.0)  # type: ignore[arg-type]  # what the writer uses of it
    assert caller.unsent in (0, 1000)


@table("takes", [[200_000, 200_000, 0], [9_000_000, 8_000_000, 7_999_999, 0]])
async def test_a_caller_that_takes_next_to_nothing_is_not(takes):
    caller = Caller()
    caller.takes = list(takes)
    with pytest.raises(TimeoutError):
        await response.drain(caller, 60.0)  # type: ignore[arg-type]  # what the writer uses of it


def test_a_head_that_is_written_again_is_as_it_was_unless_the_connection_ends():
    made = reply(b"HTTP/1.1 200 OK\r\nContent-Length: 3", Framing.LENGTH)
    callers: list[Any] = [Caller(), Caller(), Caller(close=True), Caller(minor=0)]
    one, again, *_ = callers
    sent = [response.begin_response(caller, made.head, made.framing) for caller in callers]
    assert sent[0] == sent[1] == b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"
    assert b"Connection: close" in sent[2]
    assert b"Connection: keep-alive" in sent[3]
    assert one.began
    assert again.began


class Gone:
    """A connection whose caller has gone."""

    transport = None
    writing_paused = False


def incoming(payload: BodyQueue = EMPTY) -> RequestContext:
    request = get("/a")
    head = parse_request_head(request, len(request) - 4, Heads())
    about = head.headers, head.minor, head.target, 0.0, head.close
    return RequestContext(cast("Any", Gone()), head, payload, *about)


async def test_nothing_happens_to_a_caller_that_has_gone():
    one = incoming()
    one.write(b"x")
    one.cut()
    await one.drained(PATIENCE)
    assert (one.gone, one.unsent) == (True, 0)


def test_an_answer_before_the_end_of_the_body_ends_the_connection():
    whole, part = incoming(BodyQueue(None, b"abc")), incoming(BodyQueue(None))
    for one in (whole, part):
        one.begin(200)
    assert (whole.close, part.close, part.began, part.status) == (False, True, True, 200)


async def test_a_cut_is_seen_as_one():
    async with (
        RawServer(silent()) as server,
        gateway(server.url) as (port, steered),
        RawClient(port) as client,
    ):
        await client.send(get())
        await server.until(lambda: server.requests != [])
        serving = steered.callers[0]._current
        assert serving is not None
        serving.cut()
        try:
            assert await asyncio.wait_for(client.until_close(), PATIENCE) == b""
        except ConnectionResetError:
            pass
