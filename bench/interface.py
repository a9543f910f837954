"""Measure 19: the vault's interface against a bare aiohttp handler that does the same to one plain
SQLite table (``table_app``).

Both run on the same core, in turns; every answer is looked at. Requests come on kept-alive
connections, each sent as soon as the answer before it is there. Beside requests/s stands the
processor time of a request, from which whatever else the machine does stays out.
"""

import asyncio
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import uvloop

from bench.creates import CASES, interface, values
from bench.load import body_of
from bench.processes import CACHE, ROOT, cores, family, free_port, on, processor_seconds, started
from bench.rounds import Failed

_PATH: Final = "/api/models/customer"
_PAGE: Final = 20


class Place(NamedTuple):
    """Who is asked."""

    name: str
    port: int
    pid: int
    token: str = ""

    def request(self, method: str, path: str, content: Any = None) -> bytes:
        """A request as bytes on the wire."""
        body = b"" if content is None else json.dumps(content).encode()
        return (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            f"Authorization: Bearer {self.token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )


class Plan(NamedTuple):
    """How much is asked."""

    records: int = 10_000  #: that are there before
    rounds: int = 7
    requests: int = 4_000  #: in a round, of each kind, to each
    connections: int = 16


QUICK = Plan(100, 1, 40, 2)


class Kind(NamedTuple):
    """A kind of request: by a running number its method, path and content, and what its answer must
    hold.
    """

    title: str
    asked: Callable[[int, int], tuple[str, str, Any, str]]


def _read(number: int, records: int) -> tuple[str, str, Any, str]:
    one = values(number * 7919 % records)
    return "GET", f"{_PATH}/{one['id']}", None, one["email"]


def _create(number: int, records: int) -> tuple[str, str, Any, str]:
    one = values(records + number)
    return "POST", _PATH, one, one["email"]


def _list(number: int, records: int) -> tuple[str, str, Any, str]:
    del number, records
    return "POST", f"{_PATH}/find", {"filter": {}, "options": {"limit": _PAGE}}, "@example.com"


def _find(number: int, records: int) -> tuple[str, str, Any, str]:
    one = values(number * 7919 % records)
    asked = {"filter": {"email": one["email"]}, "options": {"limit": _PAGE}}
    return "POST", f"{_PATH}/find", asked, one["id"]


KINDS: Final = (
    Kind("point read", _read),
    Kind("create", _create),
    Kind(f"list of {_PAGE}", _list),
    Kind("find by a hashed field", _find),
)


class Figure(NamedTuple):
    """What came of one round."""

    rate: float  #: requests/s
    cost: float  #: processor microseconds a request; 0 where there is no ``/proc``


async def _ask(place: Place, kind: Kind, plan: Plan, numbers: Iterator[int]) -> Figure:
    asked = [kind.asked(next(numbers), plan.records) for _ in range(plan.requests)]
    wire = [
        (place.request(method, path, content), expected.encode())
        for method, path, content, expected in asked
    ]
    left = iter(wire)

    async def send() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        for sent, expected in left:
            writer.write(sent)
            answer = await reader.readuntil(b"\r\n\r\n")
            while (body := body_of(answer)) is None:
                answer += await reader.read(2**16)
            if answer[9:10] != b"2" or expected not in body:
                raise Failed(f"{place.name} answered a {kind.title} with {answer[:300]!r}")
        writer.close()

    began, used = time.perf_counter(), processor_seconds(family(place.pid)) or 0
    await asyncio.gather(*[send() for _ in range(plan.connections)])
    took, after = time.perf_counter() - began, processor_seconds(family(place.pid)) or 0
    return Figure(plan.requests / took, (after - used) / plan.requests * 1e6)


async def _fill(place: Place, plan: Plan) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port, limit=2**24)
    for first in range(0, plan.records, 100):
        writer.write(
            place.request("POST", f"{_PATH}/batch", [values(first + one) for one in range(100)])
        )
        answer = await reader.readuntil(b"\r\n\r\n")
        while body_of(answer) is None:
            answer += await reader.read(2**20)
        if not answer.startswith(b"HTTP/1.1 201"):
            raise Failed(f"{place.name} answered a batch with {answer[:300]!r}")
    writer.close()


@contextmanager
def _table(folder: Path) -> Iterator[Place]:
    port = free_port()
    app = str(ROOT / "bench" / "table_app.py")
    command = [sys.executable, app, str(port), str(folder / "table.db")]
    with started("table", command, port, folder) as running:
        yield Place("the bare handler", port, running.pid)


async def _compared(plan: Plan, places: tuple[Place, Place]) -> list[list[list[Figure]]]:
    """By kind and by place, the figure of each round."""
    numbers = itertools.count()
    for place in places:
        await _fill(place, plan)
        for kind in KINDS:
            await _ask(place, kind, plan, numbers)  # what is made once is made now
    taken: list[list[list[Figure]]] = [[[], []] for _ in KINDS]
    for _ in range(plan.rounds):
        for kind, figures in zip(KINDS, taken, strict=True):
            for place, kept in zip(places, figures, strict=True):
                kept.append(await _ask(place, kind, plan, numbers))
    return taken


def run(quick: bool = False) -> dict[str, Any]:
    """Interleaved rounds, medians."""
    plan = QUICK if quick else Plan()
    CACHE.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=CACHE, prefix="run-") as name:
        folder = Path(name)
        with interface(folder) as ours, _table(folder) as peer, on(cores()[1]):
            ours.put_schema(CASES[0])
            place = Place("domicile", ours.port, ours.pid, ours.token)
            taken = uvloop.run(_compared(plan, (place, peer)))
    rows = [_row(kind, *pair) for kind, pair in zip(KINDS, taken, strict=True)]
    return {"rows": rows, "notes": []}


def _row(kind: Kind, ours: list[Figure], peer: list[Figure]) -> dict[str, Any]:
    costs = [statistics.median(one.cost for one in figures) for figures in (ours, peer)]
    return {
        "measure": 19,
        "case": kind.title,
        "unit": "requests/s",
        "ours": statistics.median(one.rate for one in ours),
        "peer": statistics.median(one.rate for one in peer),
        "against": "bare aiohttp, plain SQLite",
        "ratio": statistics.median(
            one.rate / other.rate for one, other in zip(ours, peer, strict=True)
        ),
        "detail": f"CPU {costs[0]:.0f} / {costs[1]:.0f} us a request",
    }
