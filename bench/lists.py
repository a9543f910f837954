"""Measure 11: a list of 100 records with five tokens each, restored, against a proxy that a
developer writes in an afternoon (``naive_proxy``).

The same list is asked for again and again, as users do; a second figure is without the records that
were opened lately (``limits.opened: 0``), as if each list were the first of its records. All run on
the same core, in turns, each before an application of its own; every answer is compared with what
was sent. The figure is processor time a list: whatever else the machine does stays out.
"""

import asyncio
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import aiohttp

from bench.naive_proxy import FIELDS
from bench.ours import settings_file
from bench.processes import CACHE, ROOT, Running, family, free_port, processor_seconds, started
from bench.rounds import Failed

_RULES = """\
version: 1
endpoint: {{name: people, upstream: "http://127.0.0.1:{port}"}}
entities:
  person:
    fields:
      first_name: {{kind: name}}
      last_name:  {{kind: name}}
      email:      {{kind: email, find: [exact]}}
      phone:      {{kind: phone}}
      street:     {{kind: text}}
operations:
  - {{match: POST /people, create: person, request: {{object: $}}, response: {{each: "$[*]"}}}}
  - {{match: GET /people, read: person, response: {{each: "$[*]"}}}}
"""

_CONNECTIONS: Final = 4


class Plan(NamedTuple):
    """How much is asked."""

    records: int = 100
    rounds: int = 7
    lists: int = 150  #: in a round, of each


QUICK = Plan(5, 1, 3)


def people(count: int) -> list[dict[str, Any]]:
    """What is created: five values each, and what an application keeps besides."""
    return [
        {
            "first_name": f"Ann {number}",
            "last_name": f"Lindqvist {number}",
            "email": f"ann{number}@example.com",
            "phone": f"+4670{number:07d}",
            "street": f"Storgatan {number}",
            "vip": True,
            "score": 12.5,
            "notes": "Met at the fair, asked for the price list of the next season. " * 3,
        }
        for number in range(count)
    ]


@contextmanager
def _application(folder: Path) -> Iterator[int]:
    port = free_port()
    command = [sys.executable, str(ROOT / "bench" / "list_app.py"), str(port)]
    with started(f"application-{port}", command, port, folder, proxy=False):
        yield port


@contextmanager
def _domicile(folder: Path, more: str = "") -> Iterator[Running]:
    folder.mkdir()
    with _application(folder) as app:
        port = free_port()
        settings = settings_file(folder, port, vault=free_port(), more=more)
        (folder / "rules.yaml").write_text(_RULES.format(port=app))
        command = [sys.executable, "-m", "proxy", "serve", "--config", str(settings)]
        with started("domicile", command, port, folder) as running:
            yield running


@contextmanager
def _naive(folder: Path) -> Iterator[Running]:
    with _application(folder) as app:
        port = free_port()
        command = [sys.executable, str(ROOT / "bench" / "naive_proxy.py"), str(port), str(app)]
        with started("naive", command, port, folder) as running:
            yield running


async def _fill(proxy: Running, sent: list[dict[str, Any]]) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{proxy.port}/people", json=sent) as answer,
    ):
        if answer.status != 201:
            raise Failed(f"{proxy.name} answered {answer.status} to a create")


async def _ask(proxy: Running, plan: Plan, sent: list[dict[str, Any]]) -> float:
    """Microseconds of processor time a list."""
    url = f"http://127.0.0.1:{proxy.port}/people"
    before = processor_seconds(family(proxy.pid))
    async with aiohttp.ClientSession() as session:

        async def ask() -> None:
            for _ in range(-(-plan.lists // _CONNECTIONS)):
                async with session.get(url) as answer:
                    told = json.loads(await answer.read())
                for one, other in zip(told, sent, strict=True):
                    if any(one[name] != other[name] for name in FIELDS):
                        raise Failed(f"{proxy.name} did not restore a list")

        await asyncio.gather(*[ask() for _ in range(_CONNECTIONS)])
    after = processor_seconds(family(proxy.pid))
    if before is None or after is None:
        raise Failed("processor time is read from /proc, which this machine does not have")
    return (after - before) / (-(-plan.lists // _CONNECTIONS) * _CONNECTIONS) * 1e6


async def _compared(plan: Plan, proxies: Sequence[Running]) -> list[float]:
    sent = people(plan.records)
    for proxy in proxies:
        await _fill(proxy, sent)
        await _ask(proxy, plan, sent)  # what is made once is made now
    taken: list[list[float]] = [[] for _ in proxies]
    for _ in range(plan.rounds):
        for proxy, figures in zip(proxies, taken, strict=True):
            figures.append(await _ask(proxy, plan, sent))
    return list(map(statistics.median, taken))


def run(quick: bool = False) -> dict[str, Any]:
    """Take the measure."""
    plan = QUICK if quick else Plan()
    CACHE.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=CACHE, prefix="lists-") as name:
        folder = Path(name)
        with (
            _domicile(folder / "ours") as ours,
            _domicile(folder / "first", "limits: {opened: 0}\n") as first,
            _naive(folder) as naive,
        ):
            our_time, first_time, their_time = asyncio.run(_compared(plan, (ours, first, naive)))
    row = {
        "measure": 11,
        "case": f"{plan.records} records",
        "unit": "CPU us/list",
        "ours": our_time,
        "peer": their_time,
        "against": "aiohttp, json, jsonpath-ng and a dictionary",
        "ratio": their_time / our_time if our_time else None,
        "detail": f"{our_time / plan.records:.1f} us a record; {first_time / plan.records:.1f}, "
        f"{their_time / first_time if first_time else 0:.2f}x, where none was shown lately",
    }
    return {"rows": [row], "notes": []}
