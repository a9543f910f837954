"""Measure 20: questions about one million records of the vault against the same questions to a
plain SQLite table.

``ours`` are the use cases that stand behind the interface (``vault.find``, ``vault.aggregate``):
texts become hashes, the engine is asked on a thread, each record of the answer is opened. The peer
is a table with the same values in the clear, an index for each column that is asked for, and a bare
``sqlite3`` connection that fetches the same rows and counts the same totals. It can search inside a
text only by reading every row, which is what the vault's keyed parts of texts are for.
"""

import random
import sqlite3
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import uvloop

from bench.rounds import Failed
from proxy.clock import system_clock
from proxy.crypto.keyset import Keyset
from proxy.model.query import Aggregation, Equals, Like, MetricFunction, MetricQuery, Query, Sort
from proxy.model.record import RecordDraft
from proxy.model.schema import Field, FieldType, Schema, Storage
from proxy.storage import open_store
from proxy.vault.collection import TableSpec, VaultContext
from proxy.vault.records.aggregate import aggregate_groups
from proxy.vault.records.commit import no_changes
from proxy.vault.records.create import store_records
from proxy.vault.records.find import find_page
from proxy.vault.records.repository import Records
from proxy.vault.table_state import Sequencer
from proxy.vault.vault import Vault, VaultOptions

SCHEMA = Schema(
    "person",
    (
        Field("id", FieldType.PRIMARY_KEY, Storage.INDEXED_HASHED),
        Field("name", FieldType.STRING, Storage.INDEXED_HASHED, partial_match=True),
        Field("employer", FieldType.STRING, Storage.INDEXED_HASHED),
        Field("city", FieldType.STRING, Storage.INDEXED),
        Field("age", FieldType.INTEGER, Storage.INDEXED),
        Field("region", FieldType.STRING, Storage.INDEXED),
        Field("note", FieldType.STRING, Storage.ENCRYPTED),
    ),
)
BATCH = 1_000
PAGE = 20
CITIES = 100
COLLEAGUES = 200  #: records of one employer
REGION = 50_000  #: records of one region, about
_SYLLABLES = [first + second for first in "bdfgklmnprstv" for second in "aeiou"]


def syllables(chance: random.Random, count: int) -> str:
    """A word of this many syllables that nobody has to know."""
    return "".join(chance.choices(_SYLLABLES, k=count))


class Person(NamedTuple):
    """One record in the clear."""

    id: str
    name: str
    employer: str
    city: str
    age: int
    region: str
    note: str


def people(count: int) -> Iterator[Person]:
    """The same people every time."""
    chance = random.Random(16)
    for number in range(count):
        yield Person(
            f"p{number}",
            syllables(chance, 3),
            f"employer {number * 7919 % max(count // COLLEAGUES, 1)}",
            f"city {chance.randrange(CITIES):02}",
            chance.randrange(100),
            f"region {number * 104_729 % (count // REGION + 1)}",
            "n" * 200,
        )


class Ours:
    """The vault with these people."""

    def __init__(self, records: Records) -> None:
        self.records = records

    @classmethod
    async def load(cls, path: Path, count: int) -> "Ours":
        store = await open_store(f"sqlite:///{path}")
        around = VaultContext(
            "bench",
            Keyset.create("bench"),
            store,
            system_clock,
            Sequencer(system_clock),
            "SE",
            lambda *_: None,
        )
        vault = Vault(around, VaultOptions("bench", "SE", 7 * 86_400_000))
        self = cls(Records(await vault.collection(TableSpec(SCHEMA, {}, None, addressed=False))))
        drafts: list[RecordDraft] = []
        # one after the other: ties of an order are decided by who came first
        for person in people(count):
            drafts.append(RecordDraft(person.id, person._asdict()))
            if len(drafts) == BATCH:
                await store_records(self.records, drafts, "bench", no_changes)
                drafts = []
        return self

    async def close(self) -> None:
        await self.records.collection.store.close()

    async def find(self, query: Query) -> tuple[list[tuple[Any, ...]], int]:
        page = await find_page(self.records, query)
        return [Person(**record.fields) for record in page.records], page.total

    async def point(self, person: Person) -> Any:
        return await self.find(Query((Equals("record_key", (person.id,)),)))

    async def colleagues(self, person: Person) -> Any:
        sort = (Sort("age", descending=True),)
        return await self.find(Query((Equals("employer", (person.employer,)),), sort, PAGE))

    async def region(self, person: Person) -> Any:
        sort = (Sort("age", descending=True),)
        return await self.find(Query((Equals("region", (person.region,)),), sort, PAGE))

    async def oldest(self, person: Person) -> Any:
        return await self.find(Query((Equals("region", (person.region,)),), (), PAGE))

    async def like(self, person: Person) -> Any:
        return await self.find(Query((Like(("name",), person.name[:5].upper()),), (), PAGE))

    async def newest(self, person: Person) -> Any:
        return await self.find(
            Query((), (Sort("created_at", descending=True),), PAGE, person.age * PAGE)
        )

    async def groups(self, person: Person) -> Any:
        del person
        metrics = (
            MetricQuery("count", MetricFunction.COUNT),
            MetricQuery("sum", MetricFunction.SUM, "age"),
        )
        found = await aggregate_groups(
            self.records, Aggregation(metrics, (), ("city",), CITIES), "bench"
        )
        return [
            (group.keys["city"], group.metrics["count"], group.metrics["sum"])
            for group in found.groups
        ]


class Peer:
    """A plain table with these people."""

    def __init__(self, path: Path, count: int) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, cached_statements=64)
        run = self.connection.execute
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA cache_size = -16384")
        run(
            "CREATE TABLE person (number INTEGER PRIMARY KEY, id TEXT, name TEXT, employer TEXT, "
            "city TEXT, age INTEGER,"
            " region TEXT, note TEXT)"
        )
        run("BEGIN")
        self.connection.executemany(
            "INSERT INTO person (id, name, employer, city, age, region, note) VALUES (?, ?, ?, "
            "?, ?, ?, ?)",
            people(count),
        )
        for column in ("id", "name", "employer", "city", "age", "region"):
            run(f"CREATE INDEX by_{column} ON person ({column})")
        run("COMMIT")
        run("PRAGMA wal_checkpoint(TRUNCATE)")

    def _page(self, where: str, values: tuple[Any, ...], rest: str, skip: int = 0) -> Any:
        total = self.connection.execute(f"SELECT count(*) FROM person {where}", values).fetchone()[
            0
        ]
        text = (
            f"SELECT id, name, employer, city, age, region, note FROM person {where} ORDER BY "
            f"{rest} LIMIT ? OFFSET ?"
        )
        return self.connection.execute(text, (*values, PAGE, skip)).fetchall(), total

    def point(self, person: Person) -> Any:
        return self._page("WHERE id = ?", (person.id,), "number")

    def colleagues(self, person: Person) -> Any:
        return self._page("WHERE employer = ?", (person.employer,), "age DESC, number")

    def region(self, person: Person) -> Any:
        return self._page("WHERE region = ?", (person.region,), "age DESC, number")

    def oldest(self, person: Person) -> Any:
        return self._page("WHERE region = ?", (person.region,), "number")

    def like(self, person: Person) -> Any:
        return self._page("WHERE name LIKE ?", (f"%{person.name[:5].upper()}%",), "number")

    def newest(self, person: Person) -> Any:
        return self._page("", (), "number DESC", person.age * PAGE)

    def groups(self, person: Person) -> Any:
        del person
        text = "SELECT city, count(*), sum(age) FROM person GROUP BY city ORDER BY city LIMIT ?"
        return self.connection.execute(text, (CITIES,)).fetchall()


class Case(NamedTuple):
    """One question: what it is, the method that asks it, how often."""

    title: str
    method: str
    times: int


CASES = (
    Case("one record by its key", "point", 300),
    Case("a hashed field, sorted by another, 20 of 200", "colleagues", 50),
    Case("a field in the clear, sorted by another, 20 of 47,600", "region", 20),
    Case("a field in the clear, oldest first, 20 of 47,600", "oldest", 20),
    Case("part of a hashed text, first 20", "like", 20),
    Case("newest first, a page of 20", "newest", 20),
    Case("count and sum over 100 groups", "groups", 3),
)


async def _ask(ours: Ours, peer: Peer, case: Case, chosen: list[Person]) -> tuple[float, float]:
    """Seconds of one question, ours and the peer's, in turns; the answers are the same."""
    mine: Callable[[Person], Awaitable[Any]] = getattr(ours, case.method)
    theirs: Callable[[Person], Any] = getattr(peer, case.method)
    took: list[tuple[float, float]] = []
    for person in chosen:
        start = time.perf_counter()
        answer = await mine(person)
        middle = time.perf_counter()
        expected = theirs(person)
        took.append((middle - start, time.perf_counter() - middle))
        if not _same(case, answer, expected):
            raise Failed(f"{case.title}: the vault answers something else than the plain table.")
    first, second = zip(*took, strict=True)
    return statistics.median(first), statistics.median(second)


def _same(case: Case, answer: Any, expected: Any) -> bool:
    # those of one millisecond are oldest first with us, and newest first there
    if case.method == "newest":
        return answer[1] == expected[1] and len(answer[0]) == len(expected[0])
    return bool(answer == expected)


async def _measure(folder: Path, count: int, *, quick: bool) -> dict[str, Any]:
    start = time.perf_counter()
    ours = await Ours.load(folder / "ours.db", count)
    loaded = time.perf_counter() - start
    peer = Peer(folder / "peer.db", count)
    chance = random.Random(17)
    known = frozenset(chance.sample(range(count), 500))
    some = [person for number, person in enumerate(people(count)) if number in known]
    rows: list[dict[str, Any]] = []
    for case in CASES:
        chosen = chance.choices(some, k=2 if quick else case.times)
        mine, theirs = await _ask(ours, peer, case, chosen)
        rows.append(
            {
                "measure": 20,
                "case": case.title,
                "unit": "ms",
                "ours": mine * 1e3,
                "peer": theirs * 1e3,
                "against": "plain SQLite table",
                "ratio": mine / theirs,
            }
        )
    await ours.close()
    peer.connection.close()
    return {
        "rows": rows,
        "notes": [
            f"Questions: {count:,} records were created in {loaded:.0f} s, {BATCH} a commit."
        ],
    }


def run(quick: bool = False) -> dict[str, Any]:
    """Load both, ask both in turns, medians."""
    with TemporaryDirectory() as folder:
        return uvloop.run(_measure(Path(folder), 3_000 if quick else 1_000_000, quick=quick))


if __name__ == "__main__":
    result = run()
    for row in result["rows"]:
        print(
            f"{row['case']}: {row['ours']:.3f} against {row['peer']:.3f} {row['unit']}, ratio "
            f"{row['ratio']:.2f}"
        )
    print("\n".join(result["notes"]))
