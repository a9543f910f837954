"""Any question about any rows has the same answer on every engine, order included: rows, totals,
groups, figures.
"""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any as Anything
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.storage import open_store
from proxy.storage.base import Store
from proxy.storage.changes import Change, Insert, Remove
from proxy.storage.query import (
    AggregateFunction,
    AggregateMetric,
    All,
    Any,
    Compare,
    Compared,
    Grouping,
    Holds,
    Indexed,
    Is,
    Order,
    Select,
    Where,
)
from proxy.storage.rows import Column, ColumnType, ColumnValue, Row, RowState, TableLayout
from proxy.storage.sqlite import aggregate as sqlite_groups
from proxy.storage.sqlite import plan, prompt
from tests.conformance.test_storage import PLACES
from tests.support.effort import examples
from tests.support.memory import MemoryStore
from tests.support.rows import h

COLUMNS = (
    Column("mail", ColumnType.HASH), Column("city", ColumnType.TEXT),
    Column("name", ColumnType.TEXT), Column("visits", ColumnType.INTEGER),
    Column("balance", ColumnType.DECIMAL),
)  # fmt: skip
FIXED = ("@rid", "@key", "@version", "@created_at", "@updated_at", "@expires_at")
TEXTS = (
    "", "a", "A", "ab", "Straße", "STRASSE", "\u212a", "é", "e\u0301", "%", "_", "a\\%", "\uffff",
    "\U0001f600", "z",
)  # fmt: skip
NUMBERS = (0, 1, -1, 7, 2**63 - 1, -(2**63), 2**62, 2**32, -(2**32) - 1)
DECIMALS = ("0", "1", "-0.0001", "999999999999.9999", "-999999999999.9999", "2.5")
RIDS = (1, 2, 3, 5, 8, 2**63 - 1)
INSTANTS = (1, 2, 3)
HASHES = tuple(h(f"t{n}") for n in range(4))

#: What each type of column may hold, few of each so that rows and questions meet.
VALUES: dict[ColumnType, st.SearchStrategy[Anything]] = {
    ColumnType.HASH: st.sampled_from([h("a"), h("b"), b"\x00" * 16]),
    ColumnType.TEXT: st.sampled_from(TEXTS),
    ColumnType.INTEGER: st.sampled_from(NUMBERS),
    ColumnType.DECIMAL: st.sampled_from(DECIMALS),
}
FIXED_VALUES: dict[str, st.SearchStrategy[Anything]] = {
    "@rid": st.sampled_from(RIDS),
    "@key": st.sampled_from([h(f"k{rid}") for rid in RIDS]),
    "@version": st.integers(1, 2),
    "@created_at": st.sampled_from(INSTANTS),
    "@updated_at": st.sampled_from(INSTANTS),
    "@expires_at": st.sampled_from(INSTANTS),
}

LAYOUTS = (COLUMNS, COLUMNS[1:4], (COLUMNS[4], COLUMNS[0], COLUMNS[2]))


@st.composite
def inserts(draw: st.DrawFn, columns: tuple[Column, ...]) -> list[Insert]:
    def row(rid: int) -> Row:
        live = draw(st.sampled_from((True, True, True, False)))
        made, changed = draw(st.sampled_from(INSTANTS)), draw(st.sampled_from(INSTANTS))
        return Row(
            rid, h(f"k{rid}") if live else None, None, RowState.LIVE if live else RowState.PENDING, draw(st.integers(1, 2)),
            made, changed, draw(st.one_of(st.none(), st.none(), st.sampled_from(INSTANTS))), b"salt", b"body",
            tuple(draw(st.one_of(st.none(), VALUES[column.type])) for column in columns),
        )  # fmt: skip

    rids = draw(st.lists(st.sampled_from(RIDS), unique=True))
    return [Insert(row(rid), tuple(draw(st.sets(st.sampled_from(HASHES))))) for rid in rids]


def conditions(columns: tuple[Column, ...]) -> st.SearchStrategy[Where]:
    values = {**{column.name: VALUES[column.type] for column in columns}, **FIXED_VALUES}
    names = st.sampled_from(sorted(values))
    texts = [column.name for column in columns if column.type is ColumnType.TEXT]
    hashes = st.lists(st.sampled_from(HASHES), max_size=4).map(tuple)
    whole: list[st.SearchStrategy[Where]] = [
        names.flatmap(
            lambda name: st.builds(
                Is,
                st.just(name),
                st.lists(st.one_of(st.none(), values[name]), max_size=3).map(tuple),
                st.booleans(),
            )
        ),
        names.flatmap(
            lambda name: st.builds(Compared, st.just(name), st.sampled_from(Compare), values[name])
        ),
        st.builds(Indexed, hashes, st.booleans()),
        st.builds(Indexed, hashes),
    ]
    if texts:
        parts = st.sampled_from(["", "a", "ss", "S", "k", "%", "_", "\\", "é", "ß", "\U0001f600"])
        whole.append(st.builds(Holds, st.sampled_from(texts), parts, st.booleans()))
    return st.recursive(
        st.one_of(whole),
        lambda inner: st.builds(
            lambda kind, parts: kind(tuple(parts)),
            st.sampled_from([All, Any]),
            st.lists(inner, max_size=3),
        ),
        max_leaves=6,
    )


@st.composite
def selects(draw: st.DrawFn, columns: tuple[Column, ...]) -> Select:
    names = st.sampled_from([*FIXED, *(column.name for column in columns)])
    return Select(
        draw(conditions(columns)),
        draw(st.integers(0, 3)),
        tuple(draw(st.lists(st.builds(Order, names, st.booleans()), max_size=3))),
        draw(st.one_of(st.none(), st.integers(0, 3))),
        draw(st.integers(0, 2)),
        draw(st.booleans()),
    )


async def committed(store: Store, table: str, changes: Sequence[Change]) -> None:
    """``Store.commit`` as a coroutine."""
    await store.commit(table, changes)


@st.composite
def groupings(draw: st.DrawFn, columns: tuple[Column, ...]) -> Grouping:
    names = st.sampled_from([*FIXED, *(column.name for column in columns)])
    numbers = [
        column.name for column in columns if column.type in (ColumnType.INTEGER, ColumnType.DECIMAL)
    ]
    figures = st.builds(
        AggregateMetric,
        st.sampled_from(AggregateFunction),
        st.sampled_from([*numbers, "@version", "@expires_at"]),
    )
    counts = st.builds(
        AggregateMetric, st.just(AggregateFunction.COUNT), st.one_of(st.none(), names)
    )
    return Grouping(
        draw(conditions(columns)),
        draw(st.integers(0, 3)),
        tuple(draw(st.lists(names, max_size=2, unique=True))),
        tuple(draw(st.lists(st.one_of(figures, counts), max_size=3))),
        draw(st.integers(0, 3)),
    )


class Engines:
    """The reference and the others, with a table for each layout that is emptied for each example."""

    def __init__(self, runner: asyncio.Runner, stores: list[Store]) -> None:
        self.runner = runner
        self.stores = stores
        self._held: dict[str, list[Insert]] = {}

    def fill(self, columns: tuple[Column, ...], rows: list[Insert]) -> str:
        table = "q" + "".join(column.name[0] for column in columns)
        for store in self.stores:
            if table not in self._held:
                self.runner.run(store.ensure(TableLayout(table, columns)))
            gone = [Remove(insert.row.rid) for insert in self._held.get(table, ())]
            self.runner.run(committed(store, table, [*gone, *rows]))
        self._held[table] = rows
        return table

    def select(self, table: str, query: Select) -> Anything:
        first, *others = [self.runner.run(store.select(table, query)) for store in self.stores]
        assert all(other == first for other in others)
        return first

    def aggregate(self, table: str, query: Grouping) -> Anything:
        first, *others = [self.runner.run(store.aggregate(table, query)) for store in self.stores]
        assert all(other == first for other in others)
        return first


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    with TemporaryDirectory() as folder, asyncio.Runner() as runner:
        others = [
            runner.run(open_store(PLACES[name](Path(folder)))) for name in ("sqlite", "postgresql")
        ]
        yield Engines(runner, [MemoryStore(), *others])
        for store in others:
            runner.run(store.close())


@examples(25)
@given(data=st.data())
def test_rows_and_groups_are_the_same_everywhere(engines: Engines, data: st.DataObject) -> None:
    compare(engines, data)


@examples(60)
@given(data=st.data(), narrow=st.integers(0, 3), hidden=st.integers(0, 2), part=st.integers(1, 3))
def test_every_way_to_many_rows_gives_the_same(
    engines: Engines, data: st.DataObject, narrow: int, hidden: int, part: int
) -> None:
    with (  # bounds so small that a handful of rows is many
        patch.object(plan, "NARROW_ROWS", narrow),
        patch.object(plan, "HIDDEN", hidden),
        patch.object(sqlite_groups, "PART", part),
        patch.object(sqlite_groups, "SCATTERED", narrow),
        patch.object(plan, "MOST_COUNTED", max(narrow, 1)),  # a hash without rows has to be told
        patch.object(prompt, "FEW_ROWS", 1),
    ):
        compare(engines, data)


def compare(engines: Engines, data: st.DataObject) -> None:
    columns = data.draw(st.sampled_from(LAYOUTS))
    table = engines.fill(columns, data.draw(inserts(columns)))
    for select in data.draw(st.lists(selects(columns), min_size=1, max_size=5)):
        engines.select(table, select)
        assert pages(engines, table, columns, select) == [
            row.rid for row in engines.select(table, select._replace(limit=None, offset=0)).rows
        ]
    for grouping in data.draw(st.lists(groupings(columns), min_size=1, max_size=3)):
        assert walk(engines, table, grouping) == engines.aggregate(
            table, grouping._replace(limit=99)
        )


def pages(engines: Engines, table: str, columns: tuple[Column, ...], query: Select) -> list[int]:
    """The ids of all rows, each page behind the last row of the one before; the total is the same
    for each.
    """
    places = {column.name: place for place, column in enumerate(columns)}
    room = None if query.offset else 4
    query = query._replace(limit=max(query.limit or 1, 1), offset=0, room=room)
    total = engines.select(table, query).total
    found: list[int] = []
    while True:
        page = engines.select(table, query)
        assert page.total == total
        found += [row.rid for row in page.rows]
        if not page.more:
            return found
        assert 1 <= len(page.rows) <= (query.limit or 1)
        last = page.rows[-1]
        cells = [
            getattr(last, key.column[1:])
            if key.column.startswith("@")
            else last.cells[places[key.column]]
            for key in query.order
        ]
        query = query._replace(after=(*cells, last.rid))


def walk(engines: Engines, table: str, query: Grouping) -> list[Anything]:
    """All groups, page by page."""
    query = query._replace(limit=max(query.limit, 1))
    found: list[Anything] = []
    while page := engines.aggregate(table, query):
        found += page
        query = query._replace(after=page[-1].keys)
    return found


@examples(20)
@given(
    values=st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=30)
)
def test_sums_are_exact_beyond_64_bits(engines: Engines, values: list[int | None]) -> None:
    cells: list[tuple[ColumnValue, ...]] = [(value,) for value in values]
    rows = [
        Insert(Row(rid, h(rid), None, RowState.LIVE, 1, 1, 1, None, b"", b"", cell))
        for rid, cell in enumerate(cells, 1)
    ]
    table = engines.fill((Column("visits", ColumnType.INTEGER),), rows)
    (group,) = engines.aggregate(
        table, Grouping(All(()), 0, (), (AggregateMetric(AggregateFunction.SUM, "visits"),), 1)
    )
    assert group.figures == (sum(value for value in values if value is not None),)
