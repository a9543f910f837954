"""Every statement that an engine sends for what happens at each request and each round of upkeep,
told by the engine how it would be carried out: by an index to the rows that are wanted, never
through a table, and sorted by nobody where an index has the order.

The statements are not listed here: a store is used, and whatever it sends is taken down.
"""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final, TypeVar, cast

import pytest

from proxy.storage.base import AtOnce, Hooks, Store
from proxy.storage.changes import (
    Accept,
    Attach,
    Bind,
    Change,
    Detach,
    ForgetReplies,
    Insert,
    MarkInDoubt,
    Reindex,
    Release,
    Remember,
    Remove,
    Replace,
    StageRow,
    Unstage,
    UpdateFile,
)
from proxy.storage.postgres.address import parse_address
from proxy.storage.postgres.link import DatabaseLink
from proxy.storage.postgres.store import PostgresStore
from proxy.storage.query import (
    MATCH_ALL,
    AggregateFunction,
    AggregateMetric,
    All,
    Compare,
    Compared,
    Grouping,
    Indexed,
    Is,
    Order,
    Select,
)
from proxy.storage.query import Any as AnyOf
from proxy.storage.rows import ColumnValue, File, StoredReply
from proxy.storage.sqlite import plan as sqlite_plan
from proxy.storage.sqlite.file import DatabaseFile
from proxy.storage.sqlite.store import SqliteStore
from proxy.storage.sqlite.tallies import WriterConnection
from proxy.storage.sqlite.where import add_functions
from proxy.storage.sqlite.writer import SqliteWriter
from tests.support.postgres import fresh_address
from tests.support.rows import LAYOUT, TABLE, h, live, outlived, row, staged

_T = TypeVar("_T")

ROWS: Final = 3000
#: The tables that grow with the vault.
GROWN: Final = tuple(f"{letter}_{TABLE}" for letter in "rsthfil")
#: What begins a statement that has a plan worth a look.
_VERB: Final = re.compile(r"(?!.*advisory)(SELECT|INSERT|UPDATE|DELETE|WITH)")


#: Indexes of rows that wait, and of texts that no index holds whole: as good as none.
_FEW: Final = re.compile(rf"\bip_{TABLE}|r_{TABLE}_updated_at_rid_idx|r_{TABLE}_rid_idx")


@dataclass
class Sent:
    """A statement with its values, and how it is carried out. ``steps``: ``seek r`` by an index to
    some entries, ``few r`` through an index of few rows, ``walk r`` from one end of a table or an
    index on, until there are enough; ``sort``, and ``ties`` where no more is sorted than what an
    index has at one place.
    """

    text: str
    values: tuple[Any, ...] = ()
    steps: list[str] = field(default_factory=list)


class Engine:
    """A store of which every statement is taken down."""

    store: Store

    def __init__(self) -> None:
        self.sent: list[Sent] = []

    async def filled(self) -> None:
        """Put everything in, and forget what was sent for it."""
        raise NotImplementedError

    async def planned(self) -> list[Sent]:
        """What was sent since the last time, with its plans."""
        raise NotImplementedError

    async def close(self) -> None:
        await self.store.close()


# ---------------------------------------------------------------- SQLite


class TracedFile(DatabaseFile):
    """A database whose connections tell what they carry out."""

    ran: list[str]

    def connect(self) -> WriterConnection:
        connection = super().connect()
        connection.set_trace_callback(self.ran.append)
        return connection

    def connect_reader(self, cache: int = 8192) -> Connection:
        connection = super().connect_reader(cache)
        connection.set_trace_callback(self.ran.append)
        return connection


class Sqlite(Engine):
    """The embedded engine; more than 100 rows are many."""

    @classmethod
    async def open(cls, folder: Path) -> "Sqlite":
        made = cls()
        file = TracedFile(folder / "vault.db")
        file.ran = []
        made.file = file
        made.store = SqliteStore(file, SqliteWriter(file, Hooks()))
        await made.store.ensure(LAYOUT)
        return made

    file: TracedFile

    async def filled(self) -> None:
        await fill(self.store)
        self.file.ran.clear()

    async def planned(self) -> list[Sent]:
        ran = list(self.file.ran)
        self.file.ran.clear()
        connection = add_functions(self.file.connect())
        connection.set_trace_callback(None)
        texts = [text for text in ran if _VERB.match(text)]
        made = []
        for text in dict.fromkeys(texts):
            lines = [line[3] for line in connection.execute(f"EXPLAIN QUERY PLAN {text}")]
            made.append(Sent(text, (), [step for line in lines if (step := _sqlite_step(line))]))
        connection.close()
        return made


#: Names by which statements call the tables.
_ALIASES: Final = dict(zip("rsthfil", "rsthfil", strict=True)) | {"o": "t"}


def _sqlite_step(line: str) -> str:
    if line.startswith("USE TEMP B-TREE FOR"):
        return "ties" if "LAST TERM" in line or "RIGHT PART" in line else "sort"
    found = re.match(r"(SCAN|SEARCH) (\w+)", line)
    if found is None:
        return ""
    verb, name = found.groups()
    table = f"{_ALIASES[name]}_{TABLE}" if name in _ALIASES else name
    if table not in GROWN:
        return ""
    return f"{'seek' if verb == 'SEARCH' else 'few' if _FEW.search(line) else 'walk'} {table[0]}"


# ---------------------------------------------------------------- PostgreSQL


class Recorder:
    """A connection that takes down what it is asked."""

    def __init__(self, connection: Any, sent: list[Sent]) -> None:
        self._connection, self._sent = connection, sent

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._connection, name)
        if name not in ("execute", "fetch", "fetchrow", "fetchval"):
            return inner

        def told(text: str, *values: Any) -> Any:
            self._sent.append(Sent(text, values))
            return inner(text, *values)

        return told


class TracedLink(DatabaseLink):
    """Connections that tell what they carry out."""

    sent: list[Sent]

    async def read(self, ask: Callable[[Any], Awaitable[_T]], patience: float | None = None) -> _T:
        return await super().read(lambda one: ask(Recorder(one, self.sent)), patience)

    async def writer(self) -> Any:
        return Recorder(await super().writer(), self.sent)

    async def ask(self, text: str) -> None:
        """Carry it out unheard."""
        await super().read(lambda one: one.execute(text))


class Postgres(Engine):
    """A database in which nobody tidies up; ``filled`` makes it know what its tables hold."""

    link: TracedLink

    @classmethod
    async def open(cls, partitions: int) -> "Postgres":
        made = cls()
        made.link = TracedLink(parse_address(fresh_address(partitions=str(partitions))))
        made.link.sent = made.sent
        await made.link.open()
        made.store = PostgresStore(made.link, Hooks())
        await made.store.ensure(LAYOUT)
        parts = [
            f"p{at}_{name}" for name in GROWN for at in range(partitions) if name[0] not in "sf"
        ]
        whole = [name for name in GROWN if not partitions or name[0] in "sf"]
        for name in (*whole, *parts):
            await made.link.ask(f"ALTER TABLE {name} SET (autovacuum_enabled = off)")
        return made

    async def filled(self) -> None:
        await fill(self.store)
        for name in GROWN:
            await self.link.ask(f"ANALYZE {name}")
        self.sent.clear()

    async def planned(self) -> list[Sent]:
        texts = {one.text: one for one in self.sent if _VERB.match(one.text)}
        self.sent.clear()
        return [Sent(one.text, one.values, await self._steps(one)) for one in texts.values()]

    async def _steps(self, sent: Sent) -> list[str]:
        """Those of the first plan for these values, and of the one that a statement has that is
        kept: after some times the server plans it for any values, unless that looks dearer.
        """

        async def plan(connection: Any) -> list[str]:
            values = ", ".join(map(literal, sent.values))
            ask = f"EXPLAIN (FORMAT JSON) EXECUTE one{f'({values})' if values else ''}"
            await connection.execute(f"PREPARE one AS {sent.text}")
            try:
                return [await connection.fetchval(ask) for _ in range(8)]
            finally:
                await connection.execute("DEALLOCATE one")

        plans = await DatabaseLink.read(self.link, plan)
        roots = [json.loads(one)[0]["Plan"] for one in (plans[0], plans[-1])]
        return [step for root in roots for step in _postgres_steps(root)]


def literal(value: Any) -> str:
    """A value as SQL, of whichever type is wanted."""
    if isinstance(value, list):
        parts = ["NULL" if one is None else f'"{_text(one)}"' for one in value]
        return f"E'{{{','.join(parts)}}}'"
    return "NULL" if value is None else f"E'{_text(value)}'"


def _text(value: Any) -> str:
    return rf"\\\\x{value.hex()}" if isinstance(value, bytes) else str(value)


def _postgres_steps(node: dict[str, Any]) -> Iterator[str]:
    kind, table = node["Node Type"], re.sub(r"^p\d+_", "", node.get("Relation Name", ""))
    if kind in ("Sort", "Incremental Sort"):
        yield "sort" if kind == "Sort" else "ties"
    if table in GROWN and kind != "ModifyTable":
        sought = kind != "Seq Scan" and _is_sought(node)
        few = _FEW.search(node.get("Index Name", "")) and not sought
        yield f"{'few' if few else 'seek' if sought else 'walk'} {table[0]}"
    for inner in node.get("Plans", ()):
        yield from _postgres_steps(inner)


def _is_sought(node: dict[str, Any]) -> bool:
    """Whether it goes by an index to some rows; a bitmap may be made of several."""
    if node["Node Type"] in ("Bitmap Heap Scan", "BitmapAnd", "BitmapOr"):
        return all(map(_is_sought, node["Plans"]))
    return "Index Cond" in node


# ---------------------------------------------------------------- what is done


async def fill(store: Store) -> None:
    """Rows of which each has a city with 49 others, a mail with one other, a hash with all others
    and one of its own; some wait, some expire, some are staged, and beside each stands a past
    version, and beside some a file and a reply.
    """
    changes: list[Change] = []
    for rid in range(1, ROWS + 1):
        cells: tuple[ColumnValue, ...] = (h(f"m{rid % 1500}"), f"c{rid % 60}", rid, None)
        expires = 5_000_000 + rid if rid % 10 == 0 else None
        one = live(rid, rid, at=rid)._replace(cells=cells, expires_at=expires)
        changes += [Insert(one, (h("t"), h(f"t{rid}"))), outlived(one)]
        if rid % 5 == 0:
            changes += [Insert(row(10_000 + rid, at=rid)), StageRow(staged(rid, rid, at=rid))]
            changes.append(Attach(file(rid)))
            changes.append(Remember(StoredReply(h(f"k{rid}"), rid, h("d"), b"x"), 1, (rid,)))
        if len(changes) > 1000:
            await store.commit(TABLE, changes)
            changes = []
    await store.commit(TABLE, changes)


def file(rid: int, name: str = "f") -> File:
    """A file of that row."""
    return File(h(f"f{rid}"), rid, h(name), f"o{rid}", 5, rid, rid, b"sealed")


Step = Callable[[Store], Awaitable[Any]]


def committed(*changes: Change) -> Step:
    return lambda store: store.commit(TABLE, changes)


def asked(where: Any, *order: Order, **more: Any) -> Step:
    query = Select(where, 9, order, **{"limit": 20, "counted": False, **more})
    return lambda store: store.select(TABLE, query)


def grouped(where: Any, *keys: str, **more: Any) -> Step:
    counted = (AggregateMetric(AggregateFunction.COUNT),)
    query = Grouping(where, 9, keys, **{"metrics": counted, "limit": 20, **more})
    return lambda store: store.aggregate(TABLE, query)


NEWEST = Order("@rid", descending=True)
CITY, MAIL = Is("city", ("c7",)), Is("email", (h("m3"),))
OWN, ALL = Indexed((h("t5"),)), Indexed((h("t"),))
PARTS = AnyOf((Indexed((h("t"), h("t5"))), Indexed((h("t6"),))))
LATER = Compared("@rid", Compare.GT, 2000)

#: What is done, and which steps other than seeks it may take.
DONE: dict[str, tuple[Step, str]] = {
    "rows": (lambda store: store.rows(TABLE, [5]), ""),
    "many rows": (lambda store: store.rows(TABLE, list(range(40))), ""),
    "rows by key": (lambda store: store.by_keys(TABLE, [h(5)]), ""),
    "ids by tokens": (lambda store: store.by_tokens(TABLE, [h("t5"), h("t")]), ""),
    "staged": (lambda store: store.staged(TABLE, [50]), "sort"),
    "files": (lambda store: store.files(TABLE, [50]), "sort"),
    "a reply": (lambda store: store.reply(TABLE, h("k50"), 9), ""),
    "history": (lambda store: store.past(TABLE, h(5), 10, 0), ""),
    "history within bytes": (lambda store: store.past(TABLE, h(5), 10, 0, 1000), ""),
    # questions
    "found by a hash": (asked(MAIL), "sort"),
    "found by a hash, counted": (asked(MAIL, counted=True), "sort"),
    "found by a value, newest first": (asked(CITY, NEWEST), "sort"),
    "found by a value, further on": (asked(All((CITY, LATER))), "sort"),
    "found by a token": (asked(OWN), "sort"),
    "found by a token of all": (asked(ALL), ""),
    "found by a token of all, newest first": (asked(ALL, NEWEST), ""),
    "found by two tokens": (asked(Indexed((h("t5"), h("t")))), "sort"),
    "found by either": (asked(AnyOf((CITY, MAIL))), "sort"),
    "found by a range": (asked(Compared("visits", Compare.GT, 2990)), "sort"),
    "found by name": (asked(Is("@key", (h(5),))), "sort"),
    "newest first": (asked(MATCH_ALL, NEWEST), "walk r"),
    "newest first, further on": (asked(MATCH_ALL, NEWEST, after=(2000, 2000)), ""),
    "by a value": (asked(MATCH_ALL, Order("city")), "walk r"),
    "by a value, further on": (asked(MATCH_ALL, Order("city"), after=("c7", 37)), ""),
    "by a value, falling": (asked(MATCH_ALL, Order("visits", descending=True)), "walk r, ties"),
    "by age": (asked(MATCH_ALL, Order("@created_at")), "walk r"),
    "found by parts of a text": (asked(PARTS), "sort"),
    "found by parts of a text, newest first": (asked(PARTS, NEWEST), "sort"),
    "found by parts of a text, counted": (asked(PARTS, counted=True, most=100), "sort"),
    "found by a hash or by parts": (asked(AnyOf((MAIL, OWN)), counted=True), "sort"),
    "found by name or by a hash": (asked(AnyOf((Is("@key", (h(5),)), MAIL))), "sort"),
    "found by parts and by a value": (asked(All((PARTS, CITY))), "sort"),
    "found by a hash, in the order of a number": (asked(MAIL, Order("visits")), "sort"),
    "youngest first, further on": (
        asked(MATCH_ALL, Order("@created_at", descending=True), after=(500, 500)),
        "ties",
    ),
    "grouped by a value": (grouped(MAIL, "city"), "sort"),
    "grouped by a value, further on": (grouped(MAIL, "city", after=("c1",)), "sort"),
    "grouped among those with a token": (grouped(OWN, "city"), "sort"),
    "grouped among those with parts of a text": (grouped(PARTS, "city"), "sort"),
    "summed": (grouped(MAIL, metrics=(AggregateMetric(AggregateFunction.SUM, "visits"),)), "sort"),
    # upkeep
    "expired": (lambda store: store.expired(TABLE, 5_000_500, 20), ""),
    "unsettled": (lambda store: store.unsettled(TABLE, 500, 20), ""),
    "a scan": (lambda store: store.scan(TABLE, 100, 20), ""),
    "a scan of the past": (lambda store: store.past_scan(TABLE, (100, 0), 20), ""),
    "a scan of files": (lambda store: store.file_scan(TABLE, h("f100"), 20), ""),
    "a scan of replies": (lambda store: store.reply_scan(TABLE, h("k100"), 20), ""),
    "pruned": (lambda store: store.prune(TABLE, 10, 10, 20), ""),
    # writes
    "inserted": (committed(Insert(row(70_001), (h("t"), h("t70001")), (h("u1"),))), ""),
    "accepted": (committed(Accept(10_050, 5)), ""),
    "bound": (committed(Bind(10_100, h("b1"), b"x", 5)), ""),
    "replaced": (
        committed(
            outlived(live(8, 8)._replace(version=2)), Replace(live(8, 8)._replace(version=2), 1)
        ),
        "",
    ),
    "released": (committed(Release(h(9), 1, 5)), ""),
    "indexed anew": (committed(Reindex(11, (h("t11b"),), (h("t11"),))), ""),
    "staged and settled": (
        committed(
            StageRow(staged(9001, 12), (h("t12b"),), (h("u2"),)),
            MarkInDoubt(12, 9001, 5, True),
            Unstage(12, 9001),
        ),
        "",
    ),
    "attached": (committed(Attach(File(h("g1"), 13, h("g"), "og1", 5, 5, 5, b"x"))), ""),
    "a file replaced": (
        committed(UpdateFile(File(h("g1"), 13, h("g"), "og2", 5, 5, 6, b"x"), 13)),
        "",
    ),
    "detached": (committed(Detach(13, h("g1"))), "sort"),
    "remembered": (committed(Remember(StoredReply(h("k1"), 99, h("d"), b"x"), 1, (14,))), ""),
    "forgotten": (committed(ForgetReplies(14)), "sort"),
    "removed": (committed(Remove(15)), "sort"),
    "removed, its past kept": (committed(Remove(20, keep_past=True)), "sort"),
}


async def by_key_at_once(store: Store) -> None:
    assert cast("AtOnce", store.at_once).row_by_key(TABLE, h(5)) is not None


#: What requests ask within the event loop, where an engine has answers for it.
AT_ONCE: dict[str, tuple[Step, str]] = {"a row by its key": (by_key_at_once, "")}


@pytest.fixture(params=["sqlite", "postgresql", "postgresql in parts"])
async def engine(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Engine]:
    # of more rows than these the embedded engine takes another way than of few
    monkeypatch.setattr(sqlite_plan, "NARROW_ROWS", 100)
    monkeypatch.setattr(sqlite_plan, "MOST_COUNTED", 100)
    partitions = 3 if request.param == "postgresql in parts" else 0
    made = await (Sqlite.open(tmp_path) if request.param == "sqlite" else Postgres.open(partitions))
    await made.filled()
    yield made
    await made.close()


async def test_whatever_is_done_goes_by_an_index_in_its_order(engine: Engine) -> None:
    faults = []
    done = DONE if engine.store.at_once is None else DONE | AT_ONCE
    for name, (step, allowed) in done.items():
        await step(engine.store)
        sent = await engine.planned()
        assert sent, name
        may = {*allowed.split(", ")}
        for one in sent:
            if wrong := [
                at for at in one.steps if at not in may and at[:4] not in ("seek", "few ")
            ]:
                faults.append(f"{name}: {', '.join(wrong)}: {one.text[:400]}")
    assert not faults, "\n".join(faults)


async def test_a_walk_through_a_table_and_a_sort_would_be_noticed(engine: Engine) -> None:
    """What this file stands on: the engines' own words are understood."""
    text = f"SELECT rid FROM r_{TABLE} AS r WHERE version = 1 ORDER BY updated_at"
    if isinstance(engine, Postgres):
        await engine.link.read(lambda one: one.fetch(text))
    else:
        assert isinstance(engine, Sqlite)
        connection = engine.file.connect_reader()
        connection.execute(text).fetchall()
        connection.close()
    assert [{*one.steps} for one in await engine.planned()] == [{"walk r", "sort"}]
