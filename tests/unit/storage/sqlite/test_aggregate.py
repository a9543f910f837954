import sqlite3
from collections.abc import Iterator

import pytest

from proxy.storage.query import (
    MATCH_ALL,
    AggregateFunction,
    AggregateMetric,
    Compare,
    Compared,
    Grouping,
)
from proxy.storage.rows import ERASED_AT, RowState
from proxy.storage.sqlite import aggregate as sqlite_groups
from proxy.storage.sqlite import plan as sqlite_plan
from proxy.storage.sqlite.aggregate import sqlite_aggregate
from proxy.storage.sqlite.statements import Statements
from proxy.storage.sqlite.where import add_functions
from tests.support.groups import connect
from tests.support.rows import LAYOUT, TABLE, live

SQL = Statements(LAYOUT)
COUNT, SUM = (
    AggregateMetric(AggregateFunction.COUNT),
    AggregateMetric(AggregateFunction.SUM, "visits"),
)
LEAST, MOST = (
    AggregateMetric(AggregateFunction.MIN, "visits"),
    AggregateMetric(AggregateFunction.MAX, "visits"),
)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    """20 rows in 10 cities, visits 1 to 20."""
    connection = add_functions(connect())
    for rid in range(1, 21):
        row = live(rid, rid)._replace(cells=(None, f"c{rid % 10}", rid, None))
        connection.execute(SQL.insert, SQL.stored(row))
    connection.execute("UPDATE tables SET rows = 20")
    yield connection
    connection.close()


def test_many_rows_are_taken_in_parts_and_added_up(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Grouping(Compared("visits", Compare.GT, 1), 0, ("city",), (COUNT, SUM, LEAST, MOST), 3)
    whole = sqlite_aggregate(connection, SQL, query)
    for name, value in (("PART", 3), ("SCATTERED", 0)):
        monkeypatch.setattr(sqlite_groups, name, value)
    monkeypatch.setattr(sqlite_plan, "NARROW_ROWS", 0)
    ran: list[str] = []
    connection.set_trace_callback(ran.append)
    assert sqlite_aggregate(connection, SQL, query) == whole
    connection.set_trace_callback(None)
    assert sum("GROUP BY" in text for text in ran) == 7


def test_an_index_that_has_everything_is_walked(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_plan, "NARROW_ROWS", 0)
    ran: list[str] = []
    connection.set_trace_callback(ran.append)
    sqlite_aggregate(connection, SQL, Grouping(MATCH_ALL, 0, ("city",), (COUNT,), 3))
    connection.set_trace_callback(None)
    (text,) = [text for text in ran if "GROUP BY" in text]
    plan = " ".join(line[3] for line in connection.execute(f"EXPLAIN QUERY PLAN {text}"))
    assert f"USING COVERING INDEX ix_{TABLE}.city" in plan
    assert "TEMP B-TREE" not in plan


def test_an_index_is_walked_beside_thousands_of_marks_of_erased_records(
    connection: sqlite3.Connection,
) -> None:
    marks = (
        live(rid, rid)._replace(state=RowState.PENDING, updated_at=ERASED_AT, cells=(None,) * 4)
        for rid in range(21, sqlite_plan.HIDDEN + 22)
    )
    connection.executemany(SQL.insert, map(SQL.stored, marks))
    # so that the rows are too many to be fetched one by one
    more = (
        live(rid, rid)._replace(cells=(None, f"c{rid % 10}", rid, None))
        for rid in range(100_000, 100_000 + sqlite_groups.SCATTERED)
    )
    connection.executemany(SQL.insert, map(SQL.stored, more))
    ran: list[str] = []
    connection.set_trace_callback(ran.append)
    groups = sqlite_aggregate(connection, SQL, Grouping(MATCH_ALL, 0, ("city",), (COUNT,), 20))
    connection.set_trace_callback(None)
    assert [one.figures for one in groups] == [(2 + sqlite_groups.SCATTERED // 10,)] * 10
    (text,) = [text for text in ran if "GROUP BY" in text]
    plan = " ".join(line[3] for line in connection.execute(f"EXPLAIN QUERY PLAN {text}"))
    assert f"USING COVERING INDEX ix_{TABLE}.city" in plan
