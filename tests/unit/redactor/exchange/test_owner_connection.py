import asyncio
import socket

from proxy.redactor.exchange.wire import Fail, Redact
from proxy.redactor.message import Request
from tests.support.exchanges import desk
from tests.support.fronts import fronted
from tests.support.patience import PATIENCE


async def test_what_names_no_exchange_or_no_operation_breaks_nothing():
    async with fronted(await desk()) as pair:
        line = await pair.link.line()
        line.connection.send(Fail(1234, True))
        version = pair.desk.runtime.rules.version
        job = Redact(line.number(), version, 999, {}, 0, Request("GET", b"/", (), b""), ())
        redacted = await line.ask(job)
        assert redacted.fault.code == "internal"
        assert await pair.link.knows(version)


async def test_before_its_greeting_nobody_may_say_much():
    async with fronted(await desk()) as pair:
        here, there = socket.socketpair()
        with there:
            loop = asyncio.get_running_loop()
            connection = pair.owner.connection(lambda _: True)
            await loop.create_unix_connection(lambda: connection, sock=here)
            there.setblocking(False)
            await loop.sock_sendall(there, (4096).to_bytes(4))
            assert await asyncio.wait_for(loop.sock_recv(there, 1), PATIENCE) == b""
