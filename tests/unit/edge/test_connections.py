import asyncio
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from aiohttp import web

from proxy.edge.connections import ConnectionLimit
from proxy.net.client_address import Trusted
from proxy.net.listener import listen
from proxy.net.server import ApplicationConnection
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, get

NOBODY = Trusted(())


class Transport:
    """As much of a transport, and of its protocol, as is asked for."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.closing = False
        self.idle_since: float | None = None

    def get_extra_info(self, name: str) -> Any:
        return (self.host, 1) if name == "peername" else None

    def get_protocol(self) -> Any:
        return self

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True


def admit(
    limit: ConnectionLimit, host: str, idle_since: float | None = None
) -> tuple[bool, Transport]:
    transport = Transport(host)
    transport.idle_since = idle_since
    return limit.admit(cast("Any", transport)), transport


async def test_an_address_has_so_many_connections_and_another_its_own():
    closed: list[int] = []
    limit = ConnectionLimit(0, 2, NOBODY, lambda: closed.append(1))
    made = [admit(limit, "192.0.2.1") for _ in range(3)]
    assert [admitted for admitted, _ in made] == [True, True, False]
    assert admit(limit, "192.0.2.2")[0]
    assert len(closed) == 1
    made[0][1].closing = True
    assert admit(limit, "192.0.2.1")[0], "what has ended does not count"
    assert not admit(limit, "192.0.2.1")[0]


async def test_the_longest_idle_connection_gives_way_and_a_busy_one_never_does():
    closed: list[int] = []
    limit = ConnectionLimit(3, 0, NOBODY, lambda: closed.append(1))
    loop = asyncio.get_running_loop()
    (_, busy), (_, recent), (_, idle) = (admit(limit, "192.0.2.1", since) for since in (None, 0, 0))
    await asyncio.sleep(0.01)
    recent.idle_since = loop.time()  # it has just been answered
    admitted, fresh = admit(limit, "192.0.2.2", loop.time())
    assert admitted
    assert [one.closing for one in (busy, recent, idle, fresh)] == [False, False, True, False]
    fresh.idle_since = None
    assert admit(limit, "192.0.2.3")[0]
    assert [one.closing for one in (busy, recent, fresh)] == [False, True, False]
    assert not admit(limit, "192.0.2.4")[0], "all of them are busy"
    assert len(closed) == 3


async def test_connections_of_one_address_give_way_to_each_other_before_others_do():
    limit = ConnectionLimit(4, 2, NOBODY, lambda: None)
    now = asyncio.get_running_loop().time()
    honest = [admit(limit, f"192.0.2.{number}", now - 100)[1] for number in (1, 2)]
    crowd = [admit(limit, "198.51.100.7", now - 1)[1] for _ in range(20)]
    assert not any(one.closing for one in honest)
    assert [one.closing for one in crowd] == [True] * 18 + [False] * 2


async def test_trusted_proxies_count_in_all_and_by_the_address_that_they_tell():
    limit = ConnectionLimit(4, 1, Trusted((ipaddress.ip_network("192.0.2.1"),)), lambda: None)
    made = [admit(limit, "192.0.2.1") for _ in range(5)]
    assert [admitted for admitted, _ in made] == [True] * 4 + [False]
    assert limit.counted(cast("Any", made[0][1]), "198.51.100.7")
    assert not limit.counted(cast("Any", made[1][1]), "198.51.100.7")
    assert limit.counted(cast("Any", made[1][1]), "198.51.100.8")


async def test_a_household_has_one_number_for_all_its_addresses():
    limit = ConnectionLimit(0, 1, NOBODY, lambda: None)
    assert admit(limit, "2001:db8::1")[0]
    assert not admit(limit, "2001:db8::2")[0]
    assert admit(limit, "2001:db8:0:1::1")[0]


async def test_those_that_have_ended_are_forgotten():
    limit = ConnectionLimit(0, 5, NOBODY, lambda: None)
    for number in range(10_000):
        admit(limit, f"192.0.{number // 250}.{number % 250}")[1].closing = True
    assert len(limit) < 5_000
    assert len(limit._by_address) < 5_000


async def test_a_full_limit_costs_each_new_connection_little(monkeypatch):
    looks: list[int] = []

    def get_protocol(self: Transport) -> Transport:
        looks.append(1)
        return self

    monkeypatch.setattr(Transport, "get_protocol", get_protocol)
    limit = ConnectionLimit(5000, 0, NOBODY, lambda: None)
    for _ in range(5100):
        admit(limit, "192.0.2.1")
    assert len(looks) <= 100 * 64


@asynccontextmanager
async def served(limit: ConnectionLimit) -> AsyncIterator[int]:
    app = web.Application()

    async def ok(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app.router.add_get("/", ok)
    async with listen("vault", ("127.0.0.1", 0), app, ApplicationConnection, limit) as place:
        yield int(place.rpartition(":")[2])


async def test_the_kept_connection_that_is_idle_for_longest_is_closed_for_a_new_one():
    async with (
        served(ConnectionLimit(2, 0, NOBODY, lambda: None)) as port,
        RawClient(port) as one,
        RawClient(port) as two,
    ):
        assert (await one.ask(get())).status == 200
        assert (await two.ask(get())).status == 200
        await asyncio.sleep(0.01)  # the clock of the loop counts milliseconds
        assert (await one.ask(get())).status == 200
        async with RawClient(port) as new:
            assert (await new.ask(get())).status == 200
            async with asyncio.timeout(PATIENCE):
                assert await ended(two)
            assert (await one.ask(get())).status == 200


async def ended(client: RawClient) -> bool:
    try:
        return await client.reader.read() == b""
    except ConnectionResetError:
        return True  # the same, told by a reset
