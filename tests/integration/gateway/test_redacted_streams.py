import asyncio

from proxy.errors import Code, VaultError
from proxy.net.reply import CallLimits
from proxy.redactor.rules import Stream, Verb
from tests.support.gateway import TOKEN, VALUE, gateway, proving
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, get
from tests.support.rawserver import RawServer, closes, says

HEAD = (
    b'HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nETag: "1"\r\nDigest: x\r\n'
    b"Cache-Control: no-cache\r\n"
)
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
FIRST = b"%x\r\n%b\n\r\n" % (len(TOKEN) + 1, TOKEN)


async def test_events_come_restored_in_chunks_without_what_described_the_tokens():
    answer = HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(TOKEN) + 1, TOKEN + b"\n")
    async with RawServer(says(answer)) as server, gateway(server.url) as (port, steered):
        steered.verb, steered.stream, steered.exchange_.events = Verb.READ, Stream.NDJSON, True
        async with RawClient(port) as client:
            got = await client.ask(get("/people"))
            assert got.body == VALUE + b"\nrest"
            assert got.all("cache-control") == [b"private, no-cache"]
            for name in ("etag", "digest", "content-length"):
                assert got.all(name) == []
            again = await client.ask(get("/people"))  # the connection goes on
            assert again.body == got.body
    assert steered.exchange_.names == ["outgoing", "restore", "end"] * 2
    assert steered.notes[0].size == len(got.body)


async def test_a_caller_of_http_1_0_gets_the_events_up_to_the_end_of_the_connection():
    async with (
        RawServer(says(CHUNKED + FIRST + b"0\r\n\r\n")) as server,
        gateway(server.url) as (port, steered),
    ):
        steered.verb, steered.stream, steered.exchange_.events = Verb.READ, Stream.SSE, True
        async with RawClient(port) as client:
            await client.send(b"GET /people HTTP/1.0\r\nHost: a\r\n\r\n")
            whole = await client.reader.read(-1)
    assert whole.endswith(b"Connection: close\r\n\r\n" + VALUE + b"\nrest")
    assert b"chunked" not in whole


async def test_an_answer_that_is_no_stream_is_read_whole():
    async with RawServer(says(CHUNKED + FIRST + b"0\r\n\r\n")) as server:
        async with gateway(server.url) as (port, steered), RawClient(port) as client:
            steered.verb, steered.stream = Verb.READ, Stream.SSE
            assert (await client.ask(get("/people"))).body == VALUE + b"\n"
    assert steered.exchange_.names == ["outgoing", "incoming"]


async def first_then(server: RawServer, port: int) -> tuple[bytes, bytes]:
    """The first event that a caller gets, and what follows it up to the end."""
    async with RawClient(port) as client:
        await client.send(get("/people"))
        first = await client.reader.readuntil(VALUE + b"\n\r\n")
        return first, await client.reader.read(-1)


async def test_the_first_event_is_there_before_the_second_is_sent():
    async def behave(wire, server):
        await server.read(wire)
        await wire.send(CHUNKED + FIRST)
        await more.wait()
        await wire.send(FIRST + b"0\r\n\r\n")
        await wire.until_close()

    more = asyncio.Event()
    async with RawServer(behave) as server, gateway(server.url) as (port, steered):
        steered.verb, steered.stream, steered.exchange_.events = Verb.READ, Stream.NDJSON, True
        async with RawClient(port) as client:
            await client.send(get("/people", "Connection: close"))
            await client.reader.readuntil(VALUE + b"\n\r\n")
            more.set()
            assert (await client.reader.read(-1)).startswith(b"4\r\n" + VALUE + b"\n")


async def test_a_stream_that_breaks_off_breaks_off_for_the_caller():
    async with RawServer(closes(CHUNKED + FIRST)) as server, gateway(server.url) as (port, steered):
        steered.verb, steered.stream, steered.exchange_.events = Verb.READ, Stream.NDJSON, True
        try:
            _, rest = await first_then(server, port)
        except ConnectionResetError:
            rest = b""
        assert not rest.endswith(b"0\r\n\r\n")
    assert steered.exchange_.names == ["outgoing", "restore", "end"]


async def test_a_stream_that_is_silent_ends_with_its_caller():
    async def behave(wire, server):
        await server.read(wire)
        await wire.send(CHUNKED + FIRST)
        await wire.until_close()

    patient = CallLimits(idle=10 * PATIENCE)
    async with (
        RawServer(behave) as server,
        gateway(server.url, limits=patient) as (port, steered),
    ):
        steered.verb, steered.stream, steered.exchange_.events = Verb.READ, Stream.NDJSON, True
        async with RawClient(port) as client:
            await client.send(get("/people"))
            await client.reader.readuntil(VALUE + b"\n\r\n")
        await server.until(lambda: server.open == 0 and steered.notes != [])
    assert steered.exchange_.names == ["outgoing", "restore", "end"]
    assert (steered.notes[0].status, steered.notes[0].code) == (200, None)


async def test_a_stream_ends_once_its_caller_proves_its_view_no_longer():
    async def behave(wire, server):
        await server.read(wire)
        await wire.send(CHUNKED + FIRST)
        await more.wait()
        await wire.send(FIRST)
        await wire.until_close()

    more, one = asyncio.Event(), proving()
    async with (
        RawServer(behave) as server,
        gateway(server.url, options={"callers": one.callers}, **one.endpoint) as (port, steered),
    ):
        steered.verb, steered.stream, steered.exchange_.events = Verb.READ, Stream.NDJSON, True
        async with RawClient(port) as client:
            await client.send(get("/people", one.field))
            await client.reader.readuntil(VALUE + b"\n\r\n")
            one.clock.advance(301_000)
            more.set()
            assert VALUE not in await client.until_close()
        await server.until(lambda: server.open == 0)
    assert steered.exchange_.names == ["outgoing", "restore", "end"]
    assert steered.notes[0].code is Code.UNAUTHORIZED


async def test_an_event_that_must_not_pass_breaks_the_answer_off():
    fault = VaultError(Code.UNREADABLE_ANSWER, "no")
    async with RawServer(says(CHUNKED + FIRST)) as server, gateway(server.url) as (port, steered):
        steered.verb, steered.stream, steered.exchange_.events = Verb.READ, Stream.NDJSON, True
        steered.exchange_.refusal = fault
        async with RawClient(port) as client:
            await client.send(get("/people"))
            try:
                whole = await client.reader.read(-1)
            except ConnectionResetError:
                whole = b""
    assert TOKEN not in whole
    assert b"0\r\n\r\n" not in whole
    assert steered.exchange_.names == ["outgoing", "restore", "end"]
    assert steered.notes[0].code is Code.UNREADABLE_ANSWER
