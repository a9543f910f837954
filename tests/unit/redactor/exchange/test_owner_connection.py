import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.exchange.owner_protocol import Fail, Redact
from proxy.redactor.message import Request
from proxy.telemetry.logs import REQUEST_ID
from tests.support.exchanges import JSON, USUAL, desk, desk_of, rule_text
from tests.support.fronts import Fronted, fronted
from tests.support.patience import PATIENCE
from tests.support.table import table


async def test_what_names_no_exchange_or_no_operation_breaks_nothing():
    async with fronted(await desk()) as pair:
        channel = await pair.link.channel()
        channel.connection.send(Fail(1234, True))
        version = pair.desk.runtime.rules.version
        job = Redact(channel.number(), version, 999, {}, 0, Request("GET", b"/", (), b""), ())
        redacted = await channel.ask(job)
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


@asynccontextmanager
async def narrow(ident: str) -> AsyncIterator[Fronted]:
    """A front that takes messages of two thousand bytes, as far as its owner knows."""
    async with fronted(await desk()) as pair:
        for one in pair.owner._fronts:
            one._most = 2000
        REQUEST_ID.set(ident)
        yield pair


@table("ident", ["", "r1"])
async def test_an_answer_that_is_longer_than_a_front_takes_is_refused_alone(ident):
    async with narrow(ident) as pair:
        call = await pair.send("POST /p", {"name": "N" * 3000})
        stored = {**call.json, "id": 1}
        with pytest.raises(VaultError) as caught:
            await call.answer(201, stored)
        assert caught.value.code is Code.ANSWER_TOO_LARGE
        assert await pair.desk.counts() == (1, 0, 0), "what the application has, the vault has too"
        read = await pair.send("GET /p/1")
        with pytest.raises(VaultError):
            await read.answer(200, stored)
        pair.link.allow(pair.link.longest + 1)  # as other rules do
        read = await pair.send("GET /p/1")
        assert (await read.seen(200, stored))["name"] == "N" * 3000
        assert (pair.connections, pair.desk.idle) == (1, True)


@table("ident", ["", "r1"])
async def test_a_request_that_is_longer_than_a_front_takes_leaves_nothing(ident):
    async with narrow(ident) as pair:
        long = (*JSON, (b"X-Long", b"x" * 3000))
        with pytest.raises(VaultError) as caught:
            await pair.send("POST /p", {"name": "Ann"}, long)
        assert caught.value.code is Code.TOO_LARGE
        call = await pair.send("POST /p", {"name": "Eve"})
        await call.answer(422, {})
        assert await pair.desk.counts() == (0, 0, 0)
        assert (pair.connections, pair.desk.idle) == (1, True)


async def test_a_front_takes_what_the_longest_body_of_its_rules_may_become():
    text = rule_text(*USUAL).replace(
        "upstream:", "limits: {body: 1MiB, inflated: 20MiB}, upstream:"
    )
    async with fronted(await desk_of(text)) as pair:
        channel = await pair.link.channel()
        assert 80 << 20 < channel.connection.longest < 85 << 20
        await pair.lost()
        assert (await pair.link.channel()).connection.longest == channel.connection.longest
