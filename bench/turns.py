"""Measures 21 and 26: for how long the event loop serves nobody else while it works on large bodies,
and whether many objects take longer each than few.

The whole program runs with a clock on its loop (``turn_probe``); each case is one request, or
several at once, and its figure is the longest turn while they are under way. There is no peer: what
counts is milliseconds, whoever else wants an answer. Beside each figure stands what a caller of
``/healthz`` saw in the worst case.

Work that is cut into short turns may still be quadratic. So the time of a whole case is held
against that of the same with fewer objects (measure 26): for each object it should be the same.

``python -m bench.turns`` prints every case, those without a goal of their own included.
"""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import aiohttp
import uvloop

from bench.ours import settings_file
from bench.processes import CACHE, ROOT, Unavailable, free_port, started
from bench.rounds import Failed

_RULES = """\
version: 1
endpoint: {{name: people, upstream: "http://127.0.0.1:{port}", limits: {{body: 20MiB, inflated: 64MiB}}}}
entities:
  person:
    fields:
      name:  {{kind: name}}
      email: {{kind: email, find: [exact]}}
      phone: {{kind: phone}}
      tags:  {{kind: text, at: "$.tags[*]"}}
operations:
  - {{match: POST /people, create: person, request: {{object: $}}, response: {{each: "$[*]"}}}}
  - {{match: GET /people, read: person, response: {{each: "$[*]"}}}}
  - {{match: "GET /people/{{id}}", read: person}}
  - {{match: "PUT /people/{{id}}", update: person}}
"""

_LIMITS = """\
limits: {held: 1GiB, body: 64MiB, batch: 10000}
"""

_JSON: Final = {"Content-Type": "application/json"}
#: The size of a case, and in its title a sign for it.
_SIZE: Final = re.compile(r"\b\d+\b")
_size_of: Final = itemgetter(0)
_ASK_HEALTH = 0.01  #: seconds between two callers of /healthz


class Plan(NamedTuple):
    """How large the bodies are."""

    listed: int = 60_000  #: objects of a list that is restored
    bulk: int = 9_000  #: records of one create
    few: int = 1_000  #: of a small one, and objects of a short list
    values: tuple[int, ...] = (8_000, 40_000)  #: of one field, in one update
    found: int = 4_000_000  #: bytes of a record that is found
    finds: int = 8


QUICK = Plan(600, 200, 50, (100, 300), 100_000, 2)


@dataclass
class Taken:
    """One case: seconds."""

    title: str
    turn: float = 0.0
    used: float = 0.0  #: of processor time, by a turn
    delayed: float = 0.0  #: of the longest turn, behind other programs
    health: float = 0.0
    took: float = 0.0


@dataclass
class Place:
    """A running instance and what its probe writes."""

    proxy: str
    vault: str
    admin: str
    probe: Path
    client: dict[str, str]
    pid: int
    session: aiohttp.ClientSession = field(init=False)
    token: str = ""
    taken: list[Taken] = field(default_factory=list)

    async def ask(self, method: str, url: str, body: bytes | None = None) -> bytes:
        """The body of an answer, which has to be a success."""
        headers = {
            **_JSON,
            **({"Authorization": f"Bearer {self.token}"} if url.startswith(self.vault) else {}),
        }
        async with self.session.request(method, url, data=body, headers=headers) as answer:
            content = await answer.read()
        if answer.status >= 300:
            raise Failed(f"{method} {url} was answered {answer.status}: {content[:200]!r}")
        return content

    async def watch(self, title: str, work: Callable[[], Awaitable[Any]]) -> None:
        """Take one case."""
        one = Taken(title)
        asking = asyncio.create_task(self._ask_health(one))
        await asyncio.sleep(0.05)
        begun = time.monotonic()
        try:
            await work()
            one.took = time.monotonic() - begun
            await asyncio.sleep(0.05)
        finally:
            asking.cancel()
        for line in self.probe.read_text().splitlines():
            at, late, used, delayed = map(float, line.split())
            if at >= begun:
                one.used = max(one.used, used)
                if late > one.turn:
                    one.turn, one.delayed = late, delayed
        self.taken.append(one)

    async def _ask_health(self, one: Taken) -> None:
        while True:
            begun = time.monotonic()
            await self.ask("GET", f"{self.admin}/healthz")
            one.health = max(one.health, time.monotonic() - begun)
            await asyncio.sleep(_ASK_HEALTH)


@asynccontextmanager
async def standing() -> AsyncIterator[Place]:
    """The program before its application, with a schema of its interface."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(dir=CACHE, prefix="turns-")))
        place = stack.enter_context(_running(folder))
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(600)) as session:
            place.session = session
            form = {"grant_type": "client_credentials", **place.client}
            async with session.post(
                f"{place.vault}/oauth2/token", data=urlencode(form).encode(), headers=_FORM
            ) as told:
                place.token = (await told.json())["access_token"]
            yield place


_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}


@contextmanager
def _running(folder: Path) -> Iterator[Place]:
    app, proxy, vault = free_port(), free_port(), free_port()
    command = [sys.executable, str(ROOT / "bench" / "list_app.py"), str(app)]
    with started("application", command, app, folder, proxy=False):
        settings = settings_file(folder, proxy, vault=vault, more=_LIMITS)
        (folder / "rules.yaml").write_text(_RULES.format(port=app))
        admin = next(
            line for line in settings.read_text().splitlines() if "admin:" in line
        ).split()[-1]
        client = _init(settings)
        probe = folder / "turns.txt"
        command = [
            sys.executable,
            str(ROOT / "bench" / "turn_probe.py"),
            str(probe),
            "serve",
            "--config",
            str(settings),
        ]
        with started("domicile", command, proxy, folder) as running:
            urls = (f"http://127.0.0.1:{proxy}", f"http://127.0.0.1:{vault}", f"http://{admin}")
            yield Place(*urls, probe, client, running.pid)


def _init(settings: Path) -> dict[str, str]:
    command = [sys.executable, "-m", "proxy", "init", "--json", "--config", str(settings)]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if made.returncode:
        raise Unavailable((made.stderr + made.stdout).decode()[-300:])
    told = json.loads(made.stdout)
    return {name: told[name] for name in ("client_id", "client_secret")}


def person(number: int) -> dict[str, Any]:
    """One record that the proxy redacts."""
    return {
        "name": f"Ann Example {number}",
        "email": f"ann{number}@example.com",
        "phone": f"+4670{number:07d}",
        "tags": ["one"],
    }


async def through_proxy(place: Place, plan: Plan) -> None:
    """Lists and long records of an application."""
    people, start, count = f"{place.proxy}/people", 0, plan.few
    while start < plan.listed:
        body = json.dumps([person(number) for number in range(start, start + count)]).encode()
        create = partial(place.ask, "POST", people, body)
        if start <= plan.few:
            await place.watch(f"a bulk of {count} created through the proxy", create)
        else:
            await create()
        start += count
        if start in (plan.few, plan.listed):
            title = f"a list of {start} objects restored"
            await place.watch(title, lambda: place.ask("GET", people))
        count = min(plan.bulk, plan.listed - start)
    for count in plan.values:
        for again in ("", ", again with others", ", one of them changed"):
            texts = [f"tag {number}{again[:7]}" for number in range(count)]
            if "changed" in again:
                texts[count // 2] = "changed"
            body = json.dumps({**person(1), "tags": texts}).encode()
            title = f"an update with {count} values of one field{again}"
            await place.watch(title, partial(place.ask, "PUT", f"{people}/1", body))
        await place.watch(
            f"a record of {count} values of one field restored",
            lambda: place.ask("GET", f"{people}/1"),
        )


async def through_interface(place: Place, plan: Plan) -> None:
    """Batches, finds, exports and aggregates of the vault's interface."""
    fields = {
        "id": {"type": "primary_key"},
        "email": {"type": "string", "storage": "indexed_hashed"},
        "city": {"type": "string", "storage": "indexed"},
        "age": {"type": "integer", "storage": "indexed"},
        "note": {"type": "json", "storage": "encrypted"},
    }
    await place.ask(
        "PUT", f"{place.vault}/api/schemas/customer", json.dumps({"fields": fields}).encode()
    )
    customers = f"{place.vault}/api/models/customer"

    def batch(start: int, count: int, note: str) -> bytes:
        made = [
            {
                "id": f"c{n}",
                "email": f"ann{n}@example.com",
                "city": f"city {n % 50}",
                "age": n % 90,
                "note": {"text": note},
            }
            for n in range(start, start + count)
        ]
        return json.dumps(made).encode()

    for start, count in ((0, plan.few), (plan.few, plan.bulk)):
        body = batch(start, count, "n" * 100)
        await place.watch(
            f"a batch of {count} created by the interface",
            partial(place.ask, "POST", f"{customers}/batch", body),
        )
    for number in range(plan.finds):
        await place.ask("POST", f"{customers}/batch", batch(10**6 + number, 1, "n" * plan.found))

    async def finds() -> None:
        asked = [
            json.dumps({"filter": {"email": f"ann{10**6 + number}@example.com"}}).encode()
            for number in range(plan.finds)
        ]
        await asyncio.gather(*(place.ask("POST", f"{customers}/find", one) for one in asked))

    title = f"{plan.finds} finds of records of {plan.found / 1e6:.1f} MB at once"
    await place.watch(title, finds)
    page = json.dumps({"filter": {"age": {"$gte": 0}}, "options": {"limit": 1000}}).encode()
    await place.watch(
        "a find of 1,000 records", lambda: place.ask("POST", f"{customers}/find", page)
    )
    await place.watch(
        "an export of 1,000 records", lambda: place.ask("GET", f"{customers}/export?limit=1000")
    )
    groups = {"metrics": {"people": {"func": "count"}}, "group_by": {"keys": ["city"]}}
    await place.watch(
        "an aggregate",
        lambda: place.ask("POST", f"{customers}/aggregate", json.dumps(groups).encode()),
    )


async def every(plan: Plan) -> list[Taken]:
    """Every case, in order."""
    async with standing() as place:
        await through_proxy(place, plan)
        await through_interface(place, plan)
        return place.taken


def growth(taken: Sequence[Taken]) -> list[dict[str, Any]]:
    """The time of an object in the largest of each kind of case, against that in the smallest."""
    kinds: dict[str, list[tuple[int, Taken]]] = {}
    for one in taken:
        if (size := _SIZE.search(one.title)) is not None:
            kinds.setdefault(_SIZE.sub("N", one.title, 1), []).append((int(size[0]), one))
    rows: list[dict[str, Any]] = []
    for kind, cases in kinds.items():
        few, many = min(cases, key=_size_of), max(cases, key=_size_of)
        if few[0] < many[0]:
            ours, peer = (one.took / size * 1e6 for size, one in (many, few))
            case = f"{kind}, N = {many[0]}"
            against = f"N = {few[0]}"
            row = {"measure": 26, "case": case, "unit": "us/object", "ours": ours, "peer": peer}
            rows.append({**row, "against": against, "ratio": ours / peer})
    return rows


def run(quick: bool = False) -> dict[str, Any]:
    """Take the measures."""
    taken = uvloop.run(every(QUICK if quick else Plan()))
    rows = [
        {
            "measure": 21,
            "case": one.title,
            "unit": "ms",
            "ours": one.turn * 1000,
            "peer": None,
            "against": "a turn of the event loop",
            "ratio": one.turn * 1000,
            "detail": (
                f"{one.used * 1000:.0f} ms of processor time, {one.delayed * 1000:.0f} ms behind "
                f"other programs; /healthz within "
                f"{one.health * 1000:.0f} ms meanwhile; {one.took:.2f} s in all"
            ),
        }
        for one in taken
    ]
    return {"rows": rows + growth(taken), "notes": []}


if __name__ == "__main__":
    for row in run("--quick" in sys.argv)["rows"]:
        told = row.get("detail") or f"{row['ratio']:.2f} times that of {row['against']}"
        print(f"{row['ours']:8.1f} {row['unit']}  {row['case']}  ({told})")
