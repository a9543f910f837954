"""What a connection does by itself, with a transport that only takes notes; sockets are tested with
the client.
"""

import asyncio
import weakref

import pytest
from msgspec.structs import replace

from proxy.net.client_connection import UpstreamConnection
from proxy.net.reply import BufferedReply, Call, CallLimits, UpstreamAddress, UpstreamFault

CALL = Call(UpstreamAddress("http", "x", 80), "GET", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = False
        self.reading = True

    def write(self, data):
        self.written += data

    def abort(self):
        self.aborted = True

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def can_write_eof(self):
        return False

    def close(self):
        self.aborted = True


class Home:
    def __init__(self) -> None:
        self.events: list[str] = []

    def release(self, connection):
        self.events.append("released")

    def lost(self, connection):
        self.events.append("lost")


@pytest.fixture
async def connection():
    made = UpstreamConnection(
        asyncio.get_running_loop(), CallLimits(buffer_bytes=10, head=7, idle=3), Home()
    )
    made.connection_made(Transport())
    return made


@pytest.mark.parametrize("size", [0, 1, 100_000])
async def test_a_request_leaves_with_its_body_however_long_that_is(connection, size):
    call = replace(CALL, method="POST", body=b"x" * size)
    connection.begin(call)
    assert connection._transport.written == CALL.head + b"x" * size


async def begun(
    connection: UpstreamConnection, call: Call = CALL
) -> "asyncio.Future[BufferedReply]":
    return connection.begin(call)


async def test_an_answer_in_one_piece_frees_the_connection_at_once(connection):
    task = await begun(connection)
    connection.data_received(OK)
    assert connection._home.events == ["released"]
    assert connection.usable
    assert (await task).whole == b"ok"


async def test_an_idle_connection_keeps_nothing_of_the_request_before(connection):
    def interim(status, reason, headers):
        raise AssertionError("there was none")

    task = connection.begin(replace(CALL, interim=interim))
    kept = weakref.ref(interim)
    del interim
    assert kept() is not None
    connection.data_received(OK)
    await task
    assert kept() is None


async def test_what_the_proxy_stood_still_is_given_again_to_an_exchange_and_not_to_an_idle_connection(
    connection,
):
    task = await begun(connection)
    before = connection.deadline
    connection.forgive(100)
    assert connection.deadline == before + 100
    assert connection.expires == float("inf")
    connection.data_received(OK)
    before = connection.deadline
    connection.forgive(100)
    assert connection.deadline == before
    assert (await task).whole == b"ok"


async def test_the_deadline_follows_the_exchange(connection):
    now = connection._loop.time()
    task = await begun(connection)
    assert now + 7 <= connection.deadline <= connection._loop.time() + 7
    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\nx")
    assert now + 3 <= connection.deadline <= connection._loop.time() + 3
    assert await (await task).read() == b"x"


async def test_while_the_reader_is_slow_the_application_is_not_blamed(connection):
    task = await begun(connection)
    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 11)
    assert not connection._transport.reading
    assert connection.deadline == float("inf")
    reply = await task
    assert await reply.read() == b"x" * 11
    assert connection._transport.reading
    assert connection.deadline != float("inf")


async def test_reading_goes_on_after_an_answer_that_filled_the_buffer(connection):
    task = await begun(connection)
    connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + b"x" * 15)
    assert not connection._transport.reading
    connection.data_received(b"x" * 5)
    assert connection._transport.reading
    assert (await task).whole == b"x" * 20


async def test_bytes_while_idle_end_the_connection(connection):
    connection.data_received(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert connection._transport.aborted
    assert connection._home.events == ["lost"]
    assert not connection.usable


async def test_it_leaves_the_pool_once(connection):
    task = await begun(connection)
    connection.connection_lost(None)
    connection.abort()
    connection.connection_lost(None)
    assert connection._home.events == ["lost"]
    with pytest.raises(UpstreamFault) as caught:
        await task
    assert caught.value.silent


async def test_a_tunnel_over_tls_closes_where_half_closing_is_impossible(connection):
    connection.write_eof()
    assert connection._transport.aborted


async def test_a_connection_that_ends_while_idle_is_not_chosen_again(connection):
    assert connection.eof_received() is False
    assert not connection.usable
    assert connection._home.events == ["lost"]


async def answered(connection: UpstreamConnection, answer: bytes) -> BufferedReply:
    waiting = await begun(connection)
    connection.data_received(answer)
    return await waiting


@pytest.mark.parametrize(("field", "remembered"), [(b"X-a: 1", True), (b"Set-Cookie: a=1", False)])
async def test_a_head_that_is_the_same_to_the_byte_is_read_once(connection, field, remembered):
    same = b"HTTP/1.1 200 OK\r\n%b\r\nContent-Length: 2\r\n\r\n" % field
    first, again = (
        await answered(connection, same + b"ok"),
        await answered(connection, same + b"no"),
    )
    assert (first.whole, again.whole) == (b"ok", b"no")
    assert (again.head is first.head) is remembered
    other = await answered(connection, same.replace(b"200", b"203") + b"ok")
    assert (other.head.status, again.head.status) == (203, 200)


async def test_an_answer_without_a_head_is_none_whatever_came_before(connection):
    await answered(connection, OK)
    waiting = await begun(connection)
    connection.data_received(b"\r\n\r\n")
    with pytest.raises(UpstreamFault):
        await waiting
