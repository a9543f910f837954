import asyncio
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from aiohttp import web

from proxy.web.guard.crowds import Crowds
from proxy.web.listening import listen
from proxy.web.peers import Trusted
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, get

NOBODY = Trusted(())


class Transport:
    """As much of one as is asked for."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.closing = False

    def get_extra_info(self, name: str) -> Any:
        return (self.host, 1) if name == "peername" else None

    def is_closing(self) -> bool:
        return self.closing


def admits(crowds: Crowds, host: str) -> tuple[bool, Transport]:
    transport = Transport(host)
    return crowds.admits(cast("Any", transport)), transport


def test_an_address_has_so_many_connections_and_another_its_own():
    told: list[int] = []
    crowds = Crowds(2, NOBODY, lambda: told.append(1))
    made = [admits(crowds, "192.0.2.1") for _ in range(3)]
    assert [admitted for admitted, _ in made] == [True, True, False]
    assert admits(crowds, "192.0.2.2")[0]
    assert len(told) == 1
    made[0][1].closing = True
    assert admits(crowds, "192.0.2.1")[0], "what has ended does not count"
    assert not admits(crowds, "192.0.2.1")[0]


def test_trusted_proxies_are_not_counted():
    crowds = Crowds(1, Trusted((ipaddress.ip_network("192.0.2.1"),)), lambda: None)
    assert [admits(crowds, "192.0.2.1")[0] for _ in range(5)] == [True] * 5
    assert len(crowds) == 0


def test_a_household_has_one_number_for_all_its_addresses():
    crowds = Crowds(1, NOBODY, lambda: None)
    assert admits(crowds, "2001:db8::1")[0]
    assert not admits(crowds, "2001:db8::2")[0]
    assert admits(crowds, "2001:db8:0:1::1")[0]


def test_those_that_have_ended_are_forgotten(monkeypatch):
    monkeypatch.setattr("proxy.web.guard.crowds._SWEEP", 10)
    crowds = Crowds(5, NOBODY, lambda: None)
    for number in range(100):
        admits(crowds, f"192.0.2.{number}")[1].closing = True
    assert len(crowds) <= 10


@asynccontextmanager
async def served(crowds: Crowds) -> AsyncIterator[int]:
    app = web.Application()

    async def ok(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app.router.add_get("/", ok)
    async with listen("vault", ("127.0.0.1", 0), app, first=crowds) as place:
        yield int(place.rpartition(":")[2])


async def test_a_connection_too_many_is_closed_and_there_is_room_when_one_has_ended():
    async with served(Crowds(1, NOBODY, lambda: None)) as port:
        async with RawClient(port) as client:
            assert (await client.ask(get())).status == 200
            async with RawClient(port) as other:
                try:
                    async with asyncio.timeout(PATIENCE):
                        assert await other.reader.read() == b""
                except ConnectionResetError:
                    pass  # the same, told by a reset
            assert (await client.ask(get())).status == 200
        async with asyncio.timeout(PATIENCE):
            while not await answered(port):  # noqa: ASYNC110  # the server learns of the end when it does
                await asyncio.sleep(0.01)


async def answered(port: int) -> bool:
    try:
        async with RawClient(port) as client:
            return (await client.ask(get())).status == 200
    except (ConnectionError, asyncio.IncompleteReadError):
        return False
