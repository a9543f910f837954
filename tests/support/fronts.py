"""A front and the owner of its vault in one process, with a real socket between them."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

from proxy.clock import Clock
from proxy.redactor.exchange.front import FrontRules
from proxy.redactor.exchange.front_link import FrontLink
from proxy.redactor.exchange.owner import OwnerTerms, VaultOwner
from proxy.redactor.exchange.rule_exchange import RuleExchange
from proxy.redactor.exchange.runtime import VaultRules
from proxy.redactor.message import RawHeaders, Request
from proxy.redactor.rules import Match
from proxy.redactor.views import View
from tests.support.exchanges import Call, Desk, headers_of, written
from tests.support.patience import until


@dataclass
class Fronted:
    """A desk whose requests go by way of a front."""

    desk: Desk
    in_force: VaultRules
    owner: VaultOwner
    link: FrontLink
    rules: FrontRules
    up: bool = True  #: whether the owner takes connections
    connections: int = 0

    async def connect(self, make: Callable[[], asyncio.Protocol]) -> None:
        if not self.up:
            raise ConnectionRefusedError
        self.connections += 1
        here, there = socket.socketpair()
        loop = asyncio.get_running_loop()
        try:
            served = self.owner.connection
            await loop.create_unix_connection(lambda: served(lambda _: True), sock=there)
        except BaseException:  # a test that ends meanwhile
            here.close()
            raise
        await loop.create_unix_connection(make, sock=here)

    async def send(
        self,
        match: str,
        body: object = b"",
        headers: RawHeaders | None = None,
        view: View | None = None,
    ) -> Call:
        """As ``Desk.send``."""
        method, _, target = match.partition(" ")
        raw = written(body)
        request = Request(method, target.encode("latin-1"), headers_of(raw, headers), raw)
        _, matched = self.rules.match(method, "app", request.target, request.headers)
        assert isinstance(matched, Match), f"no rule matches {match}"
        exchange = self.rules.exchange(matched, view)
        redacted = await exchange.redact_request(request)
        return Call(cast("RuleExchange", exchange), redacted)

    async def lost(self) -> None:
        """Break the connection."""
        channel = await self.link.channel()
        channel.connection.abort()
        await channel.ended.wait()


@asynccontextmanager
async def fronted(
    desk: Desk, patience: float = 1.0, clock: Clock | None = None
) -> AsyncIterator[Fronted]:
    """A front before that desk, connected; ``clock``: where both are on one machine."""
    in_force = VaultRules(desk.runtime)
    owner = VaultOwner(in_force, OwnerTerms("se", b"secret"))
    ways: list[Fronted] = []

    async def connect(make: Callable[[], asyncio.Protocol]) -> None:
        await ways[0].connect(make)

    rules = FrontRules(connect, patience, clock)
    rules.begin(desk.runtime.rules)
    made = Fronted(desk, in_force, owner, rules.link, rules)
    ways.append(made)
    link = rules.link
    work = asyncio.create_task(link.run())
    try:
        await until(lambda: link.current() is not None)  # however short the patience of a test is
        yield made
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        if (channel := link.current()) is not None:
            channel.connection.abort()
            await channel.ended.wait()
        made.up = False
        await made.owner.drain(0)
        await asyncio.sleep(0.01)  # until sockets are closed
