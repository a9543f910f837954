"""Callers that do next to nothing, by the thousand: others are served, and nothing of them is left
when they have gone.
"""

import asyncio
import contextlib
import itertools
import resource
import socket
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.support import plain
from tests.support.application import Application
from tests.support.instance import Instance, running
from tests.support.patience import PATIENCE
from tests.support.people import rules
from tests.support.rawclient import RawClient, get, post
from tests.support.serving import serving
from tests.support.unavailable import Unavailable

pytestmark = pytest.mark.asyncio(loop_scope="module")

JSON = "Content-Type: application/json"
PERSON = post("/people", b'{"name": "Ann"}', JSON)
MEGABYTES = 1 << 20

#: Descriptors of what the store opens when several first ask at once: four readers, with their log.
READERS = 8

#: How a slow caller begins: with nothing, in the middle of a head, of a body that a rule names, of
#: one that none names.
BEGINNINGS = [
    b"", b"GET /slow HTTP/1.1\r\nHost: a\r\nX-", post("/people", bytes(1000), JSON)[:-990],
    post("/slow", bytes(1000))[:-990],
    b"POST /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3", get("/slow")[:-2],
]  # fmt: skip


@dataclass
class Place:
    """The process, and what it holds."""

    instance: Instance
    port: int

    @property
    def process(self) -> int:
        assert self.instance.process is not None
        return self.instance.process.pid

    async def soonest(self, request: bytes, status: int) -> float:
        """The seconds that a request takes, best of several."""
        taken = []
        for _ in range(5):
            began = time.perf_counter()
            async with RawClient(self.port) as client:
                assert (await client.ask(request)).status == status
            taken.append(time.perf_counter() - began)
        return min(taken)

    async def back_to(self, descriptors: int) -> None:
        """Wait until the process holds no more descriptors than before, but for readers."""
        async with asyncio.timeout(PATIENCE):
            while plain.descriptors(self.process) > descriptors + READERS:  # noqa: ASYNC110  # of another process
                await asyncio.sleep(0.05)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with (
        serving(Application().app()) as upstream,
        running(
            tmp_path_factory.mktemp("slow"),
            rules(upstream),
            DOMICILE__LIMITS__ADDRESS_CONNECTIONS="0",
        ) as instance,
    ):
        made = Place(instance, int(instance.proxy.rpartition(":")[2]))
        await made.soonest(PERSON, 201)
        yield made


@pytest.fixture
def counted(place: Place, unavailable: Unavailable) -> None:
    """Run the test only where the system tells how many descriptors the service holds."""
    try:
        plain.descriptors(place.process)
    except PermissionError:
        unavailable("the descriptors of a service", "Linux before 6.2 tells them to root alone")


@contextlib.contextmanager
def connected(
    port: int, count: int, seconds: float = float("inf"), request: bytes = b""
) -> Iterator[list[socket.socket]]:
    """So many connections, or as many as can be made in that time, each with a request; all closed
    at the end.
    """
    made: list[socket.socket] = []
    until = time.perf_counter() + seconds
    try:
        while len(made) < count and time.perf_counter() < until:
            made.append(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
            made[-1].sendall(request)
        yield made
    finally:
        for one in made:
            one.close()


async def settled(place: Place) -> tuple[int, int]:
    """Descriptors and memory when idle connections to the application have ended by themselves."""
    held = plain.descriptors(place.process)
    steady = 0
    async with asyncio.timeout(PATIENCE):
        while steady < 10:
            await asyncio.sleep(0.1)
            now = plain.descriptors(place.process)
            steady = steady + 1 if now == held and now < 40 else 0
            held = now
    return held, plain.memory(place.process)


def drip(callers: list[socket.socket], byte: bytes = b"1") -> None:
    """One more byte from each; who was told off by now may be."""
    for caller in callers:
        with contextlib.suppress(OSError):
            caller.sendall(byte)


@pytest.mark.usefixtures("counted")
async def test_a_thousand_slow_callers_leave_others_served_and_nothing_behind(place: Place) -> None:
    before, memory = await settled(place)
    with connected(place.port, 1000) as callers:
        for caller, beginning in zip(callers, itertools.cycle(BEGINNINGS), strict=False):
            caller.sendall(beginning)
        for _ in range(3):
            await asyncio.to_thread(drip, callers)
            assert await place.soonest(get("/next"), 200) < 1
            assert await place.soonest(PERSON, 201) < 1
        await asyncio.sleep(
            1.1
        )  # time for those that hold a connection to the application to be old enough to give way
        assert await place.soonest(post("/next", b"x"), 200) < 1
        assert plain.descriptors(place.process) > 500, "most of them are still there"
    await place.back_to(before)
    assert plain.memory(place.process) - memory < 48 * MEGABYTES


@pytest.mark.usefixtures("counted")
async def test_slow_bodies_alone_do_not_keep_the_application_from_others(place: Place) -> None:
    before, _ = await settled(place)
    with connected(place.port, 600) as callers:
        for caller in callers:
            caller.sendall(BEGINNINGS[3])
        assert await place.soonest(get("/next"), 200) < 1
        assert await place.soonest(post("/next", b"x"), 200) < 1
    await place.back_to(before)


@pytest.mark.usefixtures("counted")
async def test_ten_thousand_idle_connections(place: Place, unavailable: Unavailable) -> None:
    before, memory = await settled(place)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    theirs, _ = resource.prlimit(place.process, resource.RLIMIT_NOFILE)
    count = min(10_000, hard - 500, theirs - 500)
    if count < 10_000:
        unavailable.partly("10 000 idle connections", f"this machine allows {count} to a process")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count + 500)), hard))
    try:
        # a connection that has asked for something is kept for 75 seconds
        with contextlib.ExitStack() as stack:
            asked = connected(place.port, count, seconds=40, request=get("/next"))
            callers = await asyncio.to_thread(stack.enter_context, asked)
            if len(callers) < count:
                unavailable.partly(
                    "10 000 idle connections", f"this machine makes {len(callers)} in forty seconds"
                )
            count = len(callers)
            assert await place.soonest(get("/next"), 200) < 1
            assert plain.descriptors(place.process) >= count
            assert plain.memory(place.process) - memory < count * 32 * 1024
        await place.back_to(before)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("counted")
async def test_connections_that_come_and_go_leave_nothing_behind(place: Place) -> None:
    def churn() -> None:
        for number in range(3000):
            with socket.create_connection(("127.0.0.1", place.port), timeout=PATIENCE) as caller:
                caller.sendall(BEGINNINGS[number % len(BEGINNINGS)])
                if number % 2:
                    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    before, _ = await settled(place)
    await asyncio.to_thread(churn)
    await place.back_to(before)
    memory = plain.memory(place.process)
    await asyncio.to_thread(churn)
    await place.back_to(before)
    assert plain.memory(place.process) - memory < 16 * MEGABYTES
    assert await place.soonest(get("/next"), 200) < 1


FLOODS = {
    "fields without end": (b"X-%d: y\r\n", 50_000),
    "one field without end": (b"%d" + b"x" * 1000, 5_000),
    "one name without end": (b"X%d" + b"-x" * 500, 5_000),
    "empty lines without end": (b"\r\n\r\n%.0d", 100_000),
}


@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_of_heads_is_refused_early_and_costs_little(place: Place, name: str) -> None:
    piece, count = FLOODS[name]

    def flood() -> bytes:
        with socket.create_connection(("127.0.0.1", place.port), timeout=PATIENCE) as caller:
            with contextlib.suppress(OSError):
                start = b"" if name.startswith("empty") else b"GET /x HTTP/1.1\r\nHost: a\r\nX-a: b"
                caller.sendall(start + b"\r\n" * (piece[:3] == b"X-%"))
                for at in range(0, count, 500):
                    caller.sendall(b"".join(piece % number for number in range(at, at + 500)))
            with contextlib.suppress(OSError):
                return caller.recv(100)
            return b""

    memory = plain.memory(place.process)
    answers = await asyncio.gather(*(asyncio.to_thread(flood) for _ in range(8)))
    assert all(not answer or answer.split()[1] in (b"400", b"431") for answer in answers)
    assert plain.memory(place.process) - memory < 24 * MEGABYTES
    assert await place.soonest(get("/next"), 200) < 1


async def test_who_asks_much_and_takes_nothing_is_not_answered_into_memory(place: Place) -> None:
    memory = plain.memory(place.process)
    page = post("/next", b"x" * 20_000)
    with connected(place.port, 8) as callers:
        for caller in callers:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            caller.setblocking(False)
        sent, still = 0, 0
        while still < 10 and sent < 400 * MEGABYTES:
            more = 0
            for caller in callers:
                with contextlib.suppress(BlockingIOError):
                    more += caller.send(page)
            sent, still = sent + more, 0 if more else still + 1
            await asyncio.sleep(0.02)
        assert sent < 400 * MEGABYTES
        assert plain.memory(place.process) - memory < 64 * MEGABYTES
        assert await place.soonest(get("/next"), 200) < 1
