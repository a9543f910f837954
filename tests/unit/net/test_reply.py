import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from proxy.errors import Code, VaultError
from proxy.net.client import HttpUpstream
from proxy.net.http1.head import Framing, ResponseHead
from proxy.net.reply import BufferedReply, Call, CallLimits, UpstreamAddress, UpstreamPort
from tests.support.table import table


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


# ---- limits


def test_idle_connections_are_given_up_before_common_servers_close_them():
    # Node closes after 5 s, uvicorn after 5 s; who gives up first never writes into a connection
    # that just ended.
    assert CallLimits().keep < 5


# ---- port


ADDRESS = UpstreamAddress("http", "app", 80)


@table("url", ["http://app", "https://app", "http://app:8000", "https://[::1]:80"])
def test_an_address_is_told_as_rule_files_write_it(url):
    assert str(UpstreamAddress.parse(url)) == url


@table(
    ("url", "address", "authority"),
    [
        ("http://127.0.0.1:3000", ("http", "127.0.0.1", 3000), b"127.0.0.1:3000"),
        ("https://crm.internal", ("https", "crm.internal", 443), b"crm.internal"),
        ("http://[::1]:80", ("http", "::1", 80), b"[::1]"),
        ("https://[::1]:8443", ("https", "::1", 8443), b"[::1]:8443"),
    ],
)
def test_an_address_is_read_from_its_url(url, address, authority):
    parsed = UpstreamAddress.parse(url)
    assert parsed[:3] == address
    assert parsed.authority == authority


@table("url", ["ftp://x", "http://", "http://x:99999", "127.0.0.1:80", "http://[::1"])
def test_what_is_no_address_is_refused_with_what_to_write(url):
    with pytest.raises(VaultError, match="write http://host:port") as caught:
        UpstreamAddress.parse(url)
    assert caught.value.code is Code.BAD_RULES


async def _stream() -> AsyncIterator[bytes]:
    yield b"x"


@table(
    ("method", "body", "replayable"),
    [
        ("GET", b"", True),
        ("PUT", b"x", True),
        ("POST", b"", False),
        ("PATCH", b"x", False),
        ("get", b"", False),
    ],
)
def test_only_what_means_the_same_twice_may_be_sent_twice(method, body, replayable):
    assert Call(ADDRESS, method, b"", body).replayable is replayable


def test_what_must_go_out_once_goes_out_once():
    assert not Call(ADDRESS, "DELETE", b"", once=True).replayable


async def test_a_stream_cannot_be_sent_twice():
    assert not Call(ADDRESS, "PUT", b"", _stream()).replayable


def test_forwarded_fields_leave_out_whole_lines_only():
    head = ResponseHead(
        (1, 200, b"OK"), b"Connection: close\r\nX: Connection: close\r\nConnection: closed\r\n"
    )
    head.drop = (b"Connection: close",)
    assert head.forwarded() == b"X: Connection: close\r\nConnection: closed\r\n"


async def test_the_real_upstream_fulfils_the_port():
    upstream: UpstreamPort = HttpUpstream()
    upstream.close()


def test_what_ends_a_body_in_chunks():
    call = Call(UpstreamAddress("http", "x", 80), "POST", b"")
    assert call.last == b"0\r\n\r\n"
    assert replace(call, trailers=lambda: b"X: 1\r\n").last == b"0\r\nX: 1\r\n\r\n"
