"""Measure 22: the mixed load of a small CRM through the proxy, against the application alone.

Sixteen kept-alive connections send reads, lists of 50, creates, updates, searches, forms, deletes
and what no rule names; every answer is looked at. A create is timed once with the lists and once
without: a list must not keep the others waiting.
"""

import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import uvloop

from bench.load import body_of
from bench.ours import EMBEDDED, settings_file
from bench.processes import CACHE, ROOT, Running, cores, free_port, on, started
from bench.rounds import Failed

_RULES = """\
version: 1
endpoint: {{name: crm, upstream: "http://127.0.0.1:{port}"}}
entities:
  person:
    fields:
      first_name: {{kind: name}}
      last_name: {{kind: name}}
      email: {{kind: email, token: {{shape: email, same: true}}, find: [exact]}}
      phone: {{kind: phone}}
      street: {{kind: text}}
operations:
  - {{match: POST /people, create: person}}
  - match: POST /form
    create: person
    request: {{form: {{first_name: first_name, last_name: last_name, email: email, phone: phone, street: street}}}}
    response: {{object: $, id: $.id}}
  - {{match: GET /people, read: person, query: {{email: email}}, response: {{each: "$[*]", id: $.id}}}}
  - {{match: "GET /people/{{id}}", read: person}}
  - {{match: "PUT /people/{{id}}", update: person}}
  - {{match: "DELETE /people/{{id}}", delete: person}}
"""

#: Parts of a hundred requests.
MIX: Final = {
    "read": 35, "list": 15, "create": 15, "update": 15,
    "search": 8, "form": 4, "delete": 4, "pass": 4,
}  # fmt: skip


class Plan(NamedTuple):
    """How much is asked."""

    people: int = 300  #: that are there before
    rounds: int = 5
    seconds: float = 4.0
    connections: int = 16


QUICK = Plan(60, 1, 0.5, 2)


class Window(NamedTuple):
    """What came of one window."""

    rate: float
    creates_p99: float  #: milliseconds


class Crowd:
    """The callers of one place, who know what they have created there."""

    def __init__(self, place: Running, seed: int) -> None:
        self._place = place
        self._random = random.Random(seed)
        self._people: dict[int, dict[str, Any]] = {}
        self._leaving: list[int] = []  #: those that are deleted, and asked for by nobody else
        self._number = seed * 1_000_000

    async def fill(self, plan: Plan) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._place.port)
        for _ in range(plan.people):
            await self._send("create", reader, writer)
        writer.close()

    async def window(self, plan: Plan, kinds: dict[str, int]) -> Window:
        """So many seconds of these kinds of requests."""
        creates: list[float] = []
        sent = 0
        began = time.perf_counter()

        async def call() -> None:
            nonlocal sent
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", self._place.port, limit=2**22
            )
            while time.perf_counter() < began + plan.seconds:
                (kind,) = self._random.choices(list(kinds), list(kinds.values()))
                started_at = time.perf_counter()
                await self._send(kind, reader, writer)
                sent += 1
                if kind == "create":
                    creates.append((time.perf_counter() - started_at) * 1000)
            writer.close()

        await asyncio.gather(*[call() for _ in range(plan.connections)])
        creates.sort()
        p99 = creates[len(creates) * 99 // 100] if creates else 0.0
        return Window(sent / (time.perf_counter() - began), p99)

    async def _send(
        self, kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        number, request, expected = self._request(kind)
        writer.write(request)
        answer = await reader.readuntil(b"\r\n\r\n")
        while b" 204 " not in answer[:16] and (body_of(answer)) is None:
            answer += await reader.read(2**18)
        if answer[9:10] != b"2" or expected not in answer:
            raise Failed(f"{self._place.name} answered a {kind} with {answer[:300]!r}")
        if kind == "create":
            self._people[json.loads(body_of(answer) or b"")["id"]] = self._person(number)
        elif kind == "form":
            self._leaving.append(json.loads(body_of(answer) or b"")["id"])

    def _request(self, kind: str) -> tuple[int, bytes, bytes]:
        """The number of a new person, the request, and what its answer must hold."""
        if kind in ("create", "form"):
            self._number += 1
            person, form = self._person(self._number), kind == "form"
            body = urlencode(person) if form else json.dumps(person)
            wire = _wire("POST", "/form" if form else "/people", body, form=form)
            return self._number, wire, person["email"].encode()
        if kind == "pass":
            return 0, _wire("GET", "/status"), b"well"
        if kind == "list":
            first = self._random.randrange(len(self._people))
            return 0, _wire("GET", f"/people?first={first}"), b"@example.com"
        ident = self._random.choice(list(self._people))
        person = self._people[ident]
        if kind == "delete" and self._leaving:
            return 0, _wire("DELETE", f"/people/{self._leaving.pop()}"), b" 204 "
        expected = person["email"].encode()
        if kind == "search":
            return 0, _wire("GET", f"/people?email={quote(person['email'])}"), b"["
        if kind == "change":
            self._number += 1
            person = {**person, "phone": self._person(self._number)["phone"]}
        if kind in ("update", "change"):
            return 0, _wire("PUT", f"/people/{ident}", json.dumps(person)), b'"id"'
        return 0, _wire("GET", f"/people/{ident}"), expected

    def _person(self, number: int) -> dict[str, Any]:
        return {
            "first_name": f"Ann {number}",
            "last_name": f"Lindqvist {number}",
            "email": f"ann{number}@example.com",
            "phone": f"+4670{number % 10_000_000:07d}",
            "street": f"Storgatan {number}",
            "notes": "Met at the fair, asked for the price list of the next season. " * 4,
        }


def _wire(method: str, path: str, body: str = "", *, form: bool = False) -> bytes:
    kind = "application/x-www-form-urlencoded" if form else "application/json"
    head = f"{method} {path} HTTP/1.1\r\nHost: crm.example.net\r\n"
    if body:
        head += f"Content-Type: {kind}\r\nContent-Length: {len(body.encode())}\r\n"
    return f"{head}\r\n{body}".encode()


@contextmanager
def application(folder: Path) -> Iterator[Running]:
    port = free_port()
    command = [sys.executable, str(ROOT / "bench" / "crm_app.py"), str(port)]
    with started(f"crm-{port}", command, port, folder, proxy=False) as running:
        yield running


@contextmanager
def domicile(
    folder: Path, arguments: Sequence[str] = (), store: str = "", *, pinned: bool = True
) -> Iterator[Running]:
    """Domicile before such an application of its own. ``store``: its address, if it is not SQLite;
    ``pinned``: to the core of the proxy under test.
    """
    with application(folder) as app:
        port = free_port()
        settings = settings_file(folder, port, vault=free_port())
        if store:
            settings.write_text(settings.read_text().replace(EMBEDDED, store))
        (folder / "rules.yaml").write_text(_RULES.format(port=app.port))
        command = [sys.executable, "-m", "proxy", "serve", "--config", str(settings), *arguments]
        with started("domicile", command, port, folder, proxy=pinned or None) as running:
            yield running


async def _compared(plan: Plan, ours: Running, alone: Running) -> list[list[Window]]:
    """The windows of the proxy, of the application alone, and of the proxy without lists."""
    crowds = [Crowd(ours, 1), Crowd(alone, 2)]
    for crowd in crowds:
        await crowd.fill(plan)
    few = {kind: part for kind, part in MIX.items() if kind != "list"}
    turns = [(crowds[0], MIX), (crowds[1], MIX), (crowds[0], few)]
    taken: list[list[Window]] = [[] for _ in turns]
    for _ in range(plan.rounds):
        for (crowd, kinds), windows in zip(turns, taken, strict=True):
            windows.append(await crowd.window(plan, kinds))
    return taken


def run(quick: bool = False) -> dict[str, Any]:
    """Interleaved rounds, medians."""
    plan = QUICK if quick else Plan()
    CACHE.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=CACHE, prefix="mixed-") as name:
        folder = Path(name)
        with domicile(folder) as ours, application(folder) as alone, on(cores()[1]):
            taken = uvloop.run(_compared(plan, ours, alone))
    rates = [statistics.median(one.rate for one in windows) for windows in taken]
    slowest = [statistics.median(one.creates_p99 for one in windows) for windows in taken]
    rows = [
        {
            "measure": 22, "case": "requests", "unit": "requests/s",
            "ours": rates[0], "peer": rates[1], "against": "the application alone",
            "ratio": rates[0] / rates[1],
            "detail": f"{rates[2]:.0f} requests/s through the proxy without the lists",
        },
        {
            "measure": 22, "case": "p99 of a create", "unit": "ms",
            "ours": slowest[0], "peer": slowest[2], "against": "the same load without lists",
            "ratio": slowest[2] / slowest[0] if slowest[0] else None,
            "detail": f"{slowest[1]:.1f} ms at the application alone",
        },
    ]  # fmt: skip
    return {"rows": rows, "notes": []}
