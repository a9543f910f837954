import asyncio

import pytest

from proxy.errors import Code, VaultError
from proxy.net.websocket import (
    FORBIDDEN,
    INTERNAL_FAULT,
    NO_SUCH_KIND,
    NO_TEXT,
    TOO_BIG,
    MessageReader,
    Opcode,
    SocketMessage,
    encode_close,
    encode_message,
)
from proxy.redactor.rules import Stream, Verb
from tests.support.gateway import TOKEN, VALUE, Steered, gateway, proving
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, get
from tests.support.rawhttp import Wire
from tests.support.rawserver import RawServer

ASK = (
    "Connection: keep-alive, Upgrade",
    "Upgrade: WebSocket",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
)
YES = (
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: x\r\n"
)


def steer(steered: Steered) -> None:
    steered.verb, steered.stream, steered.exchange_.events = Verb.READ, Stream.WEBSOCKET, True


async def messages(wire, reader: MessageReader, count: int) -> list[SocketMessage]:
    """So many messages from a side, or fewer at its end."""
    got: list[SocketMessage] = []
    while len(got) < count and (data := await wire.some()):
        got += reader.feed(data)
    return got


class Application:
    """Sends these messages after the handshake, and notes what it gets until the end."""

    def __init__(self, *replies: bytes, yes: bytes = YES + b"\r\n") -> None:
        self.replies = yes + b"".join(replies)
        self.got: list[SocketMessage] = []

    async def __call__(self, wire: Wire, server: RawServer) -> None:
        await server.read(wire)
        await wire.send(self.replies)
        reader = MessageReader(1 << 20, masked=True)
        while data := await wire.some():
            self.got += reader.feed(data)


async def test_text_is_swapped_both_ways_and_all_else_passes():
    said = [
        encode_message(Opcode.TEXT, b"of " + TOKEN, masked=False),
        encode_message(Opcode.PING, TOKEN, masked=False),
        encode_message(Opcode.BINARY, TOKEN, masked=False),
    ]
    async with (
        RawServer(application := Application(*said)) as server,
        gateway(server.url) as (port, steered),
        RawClient(port) as client,
    ):
        steer(steered)
        await client.send(get("/people", *ASK))
        assert (await client.head()).status == 101
        got = await messages(client, MessageReader(1 << 20, masked=False), 3)
        assert [one.content() for one in got] == [b"of " + VALUE, TOKEN, TOKEN]
        await client.send(encode_message(Opcode.TEXT, VALUE, masked=True))
        await client.send(encode_message(Opcode.PONG, TOKEN, masked=True))
        await server.until(lambda: len(application.got) == 2)
        assert [one.content() for one in application.got] == [TOKEN, TOKEN]
        (asked,) = server.requests
        assert asked.all("upgrade") == [b"websocket"]
        assert asked.all("connection") == [b"Upgrade"]
        client.half_close()
        await server.until(lambda: server.open == 0 and steered.notes != [])
    assert steered.notes[0].status == 101
    assert steered.exchange_.names == ["outgoing", "restore", "redact", "end"]


@pytest.mark.parametrize(
    ("opcode", "content", "code"),
    [
        (Opcode.BINARY, b"x", NO_SUCH_KIND),
        (Opcode.TEXT, b"\xff", NO_TEXT),
        (Opcode.TEXT, b"x" * 1001, TOO_BIG),
        (Opcode.TEXT, b"refused", FORBIDDEN),
    ],
)
async def test_what_must_not_leave_closes_both_sides(opcode, content, code):
    async with (
        RawServer(application := Application()) as server,
        gateway(server.url) as (port, steered),
        RawClient(port) as client,
    ):
        steer(steered)
        await client.send(get("/people", *ASK))
        assert (await client.head()).status == 101
        if content == b"refused":
            steered.exchange_.refusal = VaultError(Code.UNREADABLE_BODY, "no")
        await client.send(encode_message(opcode, content, masked=True))
        (got,) = await messages(client, MessageReader(1 << 20, masked=False), 1)
        assert (got.opcode, got.content()[:2]) == (Opcode.CLOSE, code.to_bytes(2))
        await server.until(lambda: server.open == 0)
        assert [(one.opcode, one.content()[:2]) for one in application.got] == [
            (Opcode.CLOSE, code.to_bytes(2))
        ]
        assert await client.until_close() == b""
    assert steered.exchange_.names[-1] == "end"


async def test_a_message_that_must_not_be_shown_closes_both_sides():
    text = encode_message(Opcode.TEXT, TOKEN, masked=False)
    async with RawServer(Application(text)) as server, gateway(server.url) as (port, steered):
        steer(steered)
        async with RawClient(port) as client:
            steered.exchange_.refusal = VaultError(Code.UNREADABLE_ANSWER, "no")
            await client.send(get("/people", *ASK))
            assert (await client.head()).status == 101
            (got,) = await messages(client, MessageReader(1 << 20, masked=False), 1)
            assert got.content()[:2] == INTERNAL_FAULT.to_bytes(2)


@pytest.mark.parametrize("speaker", ["application", "caller"])
async def test_a_socket_closes_once_its_caller_proves_its_view_no_longer(speaker):
    text = encode_message(Opcode.TEXT, TOKEN, masked=False)
    one, more = proving(), asyncio.Event()

    async def behave(wire: Wire, server: RawServer) -> None:
        await server.read(wire)
        await wire.send(YES + b"\r\n" + text)
        if speaker == "application":
            await more.wait()
            await wire.send(text)
        reader = MessageReader(1 << 20, masked=True)
        while data := await wire.some():
            got.extend(reader.feed(data))

    got: list[SocketMessage] = []
    closed = (Opcode.CLOSE, FORBIDDEN.to_bytes(2))
    async with (
        RawServer(behave) as server,
        gateway(server.url, options={"callers": one.callers}, **one.endpoint) as (port, steered),
        RawClient(port) as client,
    ):
        steer(steered)
        await client.send(get("/people", *ASK, one.field))
        assert (await client.head()).status == 101
        reader = MessageReader(1 << 20, masked=False)
        assert [one.content() for one in await messages(client, reader, 1)] == [VALUE]
        one.clock.advance(301_000)
        more.set()
        if speaker == "caller":
            await client.send(encode_message(Opcode.TEXT, VALUE, masked=True))
        (last,) = await messages(client, reader, 1)
        assert (last.opcode, last.content()[:2]) == closed
        await server.until(lambda: server.open == 0)
    assert [(last.opcode, last.content()[:2]) for last in got] == [closed]
    assert steered.exchange_.names == ["outgoing", "restore", "end"]


async def test_binary_messages_pass_where_the_rule_says_so():
    async with (
        RawServer(application := Application()) as server,
        gateway(server.url) as (port, steered),
        RawClient(port) as client,
    ):
        steer(steered)
        steered.exchange_.passes_binary = True
        await client.send(get("/people", *ASK))
        await client.head()
        await client.send(encode_message(Opcode.BINARY, b"\xff", masked=True))
        await client.send(encode_close(1000, "", masked=True))
        await server.until(lambda: len(application.got) == 2)
        assert application.got[0].content() == b"\xff"


async def test_the_content_of_a_callers_ping_stays_here_and_its_pong_has_it():
    """No rule reads it; the pong is of the application, which so shows that it is there."""
    got: list[SocketMessage] = []

    async def behave(wire: Wire, server: RawServer) -> None:
        await server.read(wire)
        await wire.send(YES + b"\r\n")
        reader = MessageReader(1 << 20, masked=True)
        while data := await wire.some():
            for one in reader.feed(data):
                got.append(one)
                if one.opcode is Opcode.PING:
                    await wire.send(encode_message(Opcode.PONG, one.content(), masked=False))

    async with RawServer(behave) as server, gateway(server.url) as (port, steered):
        async with RawClient(port) as client:
            steer(steered)
            await client.send(get("/people", *ASK))
            await client.head()
            reader = MessageReader(1 << 20, masked=False)
            for content in (VALUE, b"", VALUE):
                await client.send(encode_message(Opcode.PING, content, masked=True))
                (pong,) = await messages(client, reader, 1)
                assert (pong.opcode, pong.content()) == (Opcode.PONG, content)
            await client.send(encode_message(Opcode.PONG, VALUE, masked=True))  # nobody asked
            await server.until(lambda: len(got) == 4)
    assert [VALUE in one.content() for one in got] == [False] * 4


@pytest.mark.parametrize("content", [b"\x03\xe8looked for ann@x.example", b"\x03\xe8", b""])
async def test_the_reason_of_a_caller_that_closes_does_not_leave(content):
    async with (
        RawServer(application := Application()) as server,
        gateway(server.url) as (port, steered),
        RawClient(port) as client,
    ):
        steer(steered)
        await client.send(get("/people", *ASK))
        await client.head()
        await client.send(encode_message(Opcode.CLOSE, content, masked=True))
        await server.until(lambda: bool(application.got))
        (got,) = application.got
        assert (got.opcode, got.content()) == (Opcode.CLOSE, content[:2])


async def test_an_extension_that_nobody_asked_for_is_refused():
    yes = YES + b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
    async with RawServer(Application(yes=yes)) as server, gateway(server.url) as (port, steered):
        steer(steered)
        async with RawClient(port) as client:
            await client.send(get("/people", *ASK))
            assert (await client.answer()).status == 502
    assert steered.exchange_.names == ["outgoing", "end"]


@pytest.mark.parametrize("why", ["protocol", "rule", "outside"])
async def test_another_change_of_protocol_is_not_asked_for(why):
    fields = [one.replace("WebSocket", "other") if why == "protocol" else one for one in ASK[:2]]
    said = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

    async def behave(wire, server):
        await server.read(wire)
        await wire.send(said)
        await wire.until_close()

    async with RawServer(behave) as server, gateway(server.url) as (port, steered):
        steer(steered)
        if why == "rule":
            steered.stream = None
        steered.exchange_.events = why != "outside"
        steered.exchange_.wanted = False
        async with RawClient(port) as client, asyncio.timeout(PATIENCE):
            await client.send(get("/people", *fields))
            assert b"200 OK" in await client.some()
        assert server.requests[0].all("upgrade") == []
