import asyncio

from proxy.net.reply import CallLimits
from tests.support.gateway import gateway
from tests.support.patience import PATIENCE
from tests.support.pressure import stopped
from tests.support.rawclient import RawClient, get, post
from tests.support.rawserver import OK, RawServer, says

ASK = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
)
YES = (
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nConnection: "
    b"Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n"
)


async def echo(wire, server):
    await server.read(wire)
    await wire.send(YES + b"\x81\x05hello")
    while data := await wire.some():
        await wire.send(data)
    await wire.send(b"bye")


async def test_a_websocket_is_relayed_byte_for_byte_and_half_closed():
    async with (
        RawServer(echo) as server,
        gateway(server.url) as (port, steered),
        RawClient(port) as client,
    ):
        await client.send(get("/chat", *ASK))
        head = await client.head()
        assert head.status == 101
        assert sorted(head.fields) == [
            (b"Connection", b"Upgrade"),
            (b"Sec-WebSocket-Accept", b"x"),
            (b"upgrade", b"websocket"),
        ]
        assert sorted(server.requests[0].fields) == sorted(
            [(b"Host", b"app.test"), *[tuple(field.encode().split(b": ")) for field in ASK]]
        )
        assert await client.exactly(7) == b"\x81\x05hello"
        data = bytes(range(256)) * 4000
        sending = asyncio.ensure_future(client.send(data))
        assert await client.exactly(len(data)) == data
        await sending
        client.half_close()
        assert await client.until_close() == b"bye"
        await server.until(lambda: server.open == 0 and steered.notes != [])
        assert steered.notes[0].status == 101


async def test_any_other_protocol_is_relayed_too():
    async def speaks(wire, server):
        await server.read(wire)
        await wire.send(b"HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: tcp\r\n\r\n")
        await wire.send(await wire.some())

    async with (
        RawServer(speaks) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(get("/", "Connection: upgrade", "Upgrade: tcp"))
        assert (await client.head()).status == 101
        await client.send(b"\x00not http\r\n\r\n")
        assert await client.until_close() == b"\x00not http\r\n\r\n"


async def test_the_end_of_the_caller_ends_the_tunnel_at_the_application():
    async with RawServer(echo) as server, gateway(server.url) as (port, _):
        async with RawClient(port) as client:
            await client.send(get("/chat", *ASK))
            await client.head()
            client.reset()
        await server.until(lambda: server.open == 0)


async def test_the_end_of_the_application_ends_the_tunnel_at_the_caller():
    async def resets(wire, server):
        await server.read(wire)
        await wire.send(YES)
        await wire.some()
        wire.reset()

    async with (
        RawServer(resets) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(get("/chat", *ASK))
        await client.head()
        await client.send(b"x")
        await asyncio.wait_for(client.ended(), PATIENCE)


async def test_a_silent_tunnel_ends_in_time():
    async with (
        RawServer(echo) as server,
        gateway(server.url, limits=CallLimits(idle=0.3)) as (port, _),
    ):
        async with RawClient(port) as client:
            await client.send(get("/chat", *ASK))
            await client.head()
            await asyncio.wait_for(client.ended(), PATIENCE)
        await server.until(lambda: server.open == 0)


async def test_a_declined_upgrade_is_an_ordinary_answer_and_the_connection_goes_on():
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(get("/chat", *ASK) + get("/next"))
        for _ in range(2):
            assert (await client.answer()).raw == OK
        assert (await client.ask(post("/chat", b"abc", *ASK))).raw == OK
        assert (await client.ask(get("/last"))).raw == OK
        assert [one.start.split(b" ")[1] for one in server.requests] == [
            b"/chat",
            b"/next",
            b"/chat",
            b"/last",
        ]


async def test_an_upgrade_to_http_2_is_not_forwarded_as_one():
    asked = (
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABkAAQAAP__",
    )
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        assert (await client.ask(get("/", *asked))).status == 200
        assert server.requests[0].fields == [(b"Host", b"app.test")]


async def test_a_slow_application_stops_the_caller_in_a_tunnel():
    async def sleeps(wire, server):
        await server.read(wire)
        await wire.send(YES)
        await asyncio.Event().wait()

    async with (
        RawServer(sleeps) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(get("/chat", *ASK))
        await client.head()
        sent = 0

        async def flood() -> None:
            nonlocal sent
            while True:
                await client.send(b"x" * 65536)
                sent += 65536

        flooding = asyncio.ensure_future(flood())
        assert await stopped(lambda: sent) > 0
        assert not flooding.done()
        flooding.cancel()
        await asyncio.wait([flooding])


async def test_bytes_and_end_of_a_caller_before_the_switch_reach_the_application():
    async with (
        RawServer(echo) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(get("/chat", *ASK) + b"abcd")
        client.half_close()
        assert (await client.head()).status == 101
        assert await client.until_close() == b"\x81\x05helloabcdbye"
        await server.until(lambda: server.open == 0)


async def test_requests_behind_a_declined_upgrade_are_answered_to_a_half_closed_caller():
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(get("/chat", *ASK) + get("/a") + post("/", b"abc") + get("/b"))
        client.half_close()
        assert [(await client.answer()).status for _ in range(4)] == [200] * 4
        assert await client.until_close() == b""
