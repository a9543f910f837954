"""Measure 24: searches that the vault answers (``via: vault``), through the proxy, among a million
records.

People are created in bulk through the proxy in front of an application that keeps what it is sent.
Then callers search one after the other: part of a name, an address, several fields at once, a span
of dates, an order. The figure is the median time of one search from the caller's request to the
last byte of the restored answer, the application's share in it; beside it the slowest one, and how
many people a search finds. There is no peer: what counts is milliseconds. Whoever is shown fits, the
person looked for is among them, and some answers of each kind are compared with all people.
"""

import json
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import aiohttp
import uvloop

from bench.ours import settings_file
from bench.processes import CACHE, ROOT, free_port, started
from bench.questions import syllables
from bench.rounds import Failed

_RULES: Final = """\
version: 1
endpoint: {{name: people, upstream: "http://127.0.0.1:{port}", limits: {{body: 20MiB}}}}
entities:
  person:
    fields:
      name:  {{kind: name, find: [exact, partial]}}
      email: {{kind: email, find: [exact]}}
      born:  {{kind: date, token: opaque, stored: plain, find: [range]}}
operations:
  - {{match: POST /people, create: person, request: {{object: $}}, response: {{each: "$[*]"}}}}
  - match: GET /people
    read: person
    query:
      name:  {{field: name, via: vault, send: {{param: ids, join: ",", none: "0"}}}}
      email: {{field: email, via: vault, send: {{param: ids, join: ",", none: "0"}}}}
      q:     {{field: [name, email], via: vault, send: {{param: ids, join: ",", none: "0"}}}}
      from:  {{field: born, via: vault, find: from, send: {{param: ids, join: ",", none: "0"}}}}
      to:    {{field: born, via: vault, find: to, send: {{param: ids, join: ",", none: "0"}}}}
      order: {{via: vault, send: {{param: ids, join: ",", none: "0"}}}}
    response: {{each: "$[*]"}}
"""
_LIMITS: Final = "limits: {held: 1GiB, body: 64MiB}\n"
_BULK: Final = 5_000
_EPOCH: Final = date(1930, 1, 1)
_DAYS: Final = 27_000
_COMPARED: Final = 3  #: searches of each kind whose answers are compared with all people


class Person(NamedTuple):
    """One record in the clear."""

    name: str
    email: str
    born: str


def people(count: int) -> Iterator[Person]:
    """The same people every time: a name of three syllables and a number of two digits."""
    chance = random.Random(24)
    for number in range(count):
        name = f"{syllables(chance, 3).title()} {syllables(chance, 4).title()}"
        born = _EPOCH + timedelta(chance.randrange(_DAYS))
        yield Person(name, f"p{number}@example.com", born.isoformat())


class Search(NamedTuple):
    """One kind of search: its parameters for a person who is looked for."""

    title: str
    times: int


SEARCHES: Final = (
    Search("part of a name of five letters", 100),
    Search("a whole name", 100),
    Search("an address", 100),
    Search("an address in any of two fields", 100),
    Search("a span of five days", 30),
    Search("part of a name, a year of birth, in order", 50),
)


def asked(search: Search, person: Person) -> dict[str, str]:
    """The parameters of ``search`` that look for ``person``."""
    part, born = person.name.split()[1][2:7], date.fromisoformat(person.born)
    span = {"from": (born - timedelta(2)).isoformat(), "to": (born + timedelta(2)).isoformat()}
    year = {"from": f"{born.year}-01-01", "to": f"{born.year}-12-31"}
    return dict(
        zip(
            (one.title for one in SEARCHES),
            (
                {"name": part},
                {"name": person.name},
                {"email": person.email},
                {"q": person.email},
                span,
                {"name": part, **year, "order": "-born"},
            ),
            strict=True,
        )
    )[search.title]


def fits(person: Person, words: dict[str, str]) -> bool:
    """Whether a search with these parameters finds ``person``."""
    name = words.get("name", "").lower()
    whole = words.get("email", words.get("q", person.email))
    return (
        name in person.name.lower()
        and whole == person.email
        and words.get("from", "") <= person.born <= words.get("to", "9")
    )


class Directory:
    """The people, as the proxy shows them."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def fill(self, count: int) -> None:
        every = people(count)
        while bulk := [one._asdict() for _, one in zip(range(_BULK), every, strict=False)]:
            async with self._session.post(self._url, json=bulk) as answer:
                if answer.status != 201:
                    raise Failed(f"a bulk was answered {answer.status}: {await answer.text()}")

    async def search(self, words: dict[str, str]) -> tuple[float, list[Person]]:
        """Seconds, and who is shown."""
        begun = time.perf_counter()
        async with self._session.get(f"{self._url}?{urlencode(words)}") as answer:
            content = await answer.read()
        took = time.perf_counter() - begun
        if answer.status != 200:
            raise Failed(f"the search {words} was answered {answer.status}: {content[:200]!r}")
        shown = json.loads(content)
        return took, [Person(one["name"], one["email"], one["born"]) for one in shown]


@asynccontextmanager
async def _standing() -> AsyncIterator[Directory]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(dir=CACHE, prefix="search-")))
        app, proxy = free_port(), free_port()
        command = [sys.executable, str(ROOT / "bench" / "list_app.py"), str(app)]
        stack.enter_context(started("application", command, app, folder, proxy=False))
        settings = settings_file(folder, proxy, vault=free_port(), more=_LIMITS)
        (folder / "rules.yaml").write_text(_RULES.format(port=app))
        command = [sys.executable, "-m", "proxy", "serve", "--config", str(settings)]
        stack.enter_context(started("domicile", command, proxy, folder))
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(600)) as session:
            yield Directory(f"http://127.0.0.1:{proxy}/people", session)


async def _taken(
    directory: Directory, search: Search, every: Sequence[Person], chosen: Sequence[Person]
) -> dict[str, Any]:
    """The row of one kind of search, for those who are looked for."""
    times: list[float] = []
    sizes: list[int] = []
    for number, person in enumerate(chosen):
        words = asked(search, person)
        took, shown = await directory.search(words)
        # to look through all people takes longer than the search
        wanted = [person, *shown] if number >= _COMPARED else every
        expected = {one for one in wanted if fits(one, words)}
        if len(shown) != len(expected) or set(shown) != expected:
            raise Failed(f"the search {words} shows {len(shown)}, not {len(expected)}")
        times.append(took)
        sizes.append(len(shown))
    median = statistics.median(times) * 1e3
    return {
        "measure": 24,
        "case": search.title,
        "unit": "ms",
        "ours": median,
        "peer": None,
        "against": "milliseconds",
        "ratio": median,
        "detail": f"the slowest {max(times) * 1e3:.0f} ms; finds {statistics.median(sizes):.0f}",
    }


async def _measure(count: int, *, quick: bool) -> dict[str, Any]:
    chance = random.Random(25)
    every = list(people(count))
    async with _standing() as directory:
        begun = time.perf_counter()
        await directory.fill(count)
        loaded = time.perf_counter() - begun
        rows = [
            await _taken(
                directory, search, every, chance.choices(every, k=2 if quick else search.times)
            )
            for search in SEARCHES
        ]
    return {
        "rows": rows,
        "notes": [f"Searches: {count:,} people were created in {loaded:.0f} s, {_BULK} a request."],
    }


def run(quick: bool = False) -> dict[str, Any]:
    """Load, search, medians."""
    return uvloop.run(_measure(3_000 if quick else 1_000_000, quick=quick))


if __name__ == "__main__":
    result = run("--quick" in sys.argv)
    for row in result["rows"]:
        print(f"{row['ours']:8.2f} ms  {row['case']}  ({row['detail']})")
    print("\n".join(result["notes"]))
