"""Many rows in few statements, and no more of each than it has."""

import sqlite3
from collections.abc import Iterator

import pytest

from proxy.storage.changes import Attach, Insert, Remove
from proxy.storage.rows import File
from proxy.storage.sqlite.apply import apply_group
from proxy.storage.sqlite.inserts import (
    AGE,
    Inserts,
    Rows,
)
from proxy.storage.sqlite.statements import Statements, used_parts
from tests.support.groups import connect
from tests.support.rows import LAYOUT, TABLE, h, insert, live, outlived
from tests.support.table import table

WIDE = [f"c{place}" for place in range(40)]


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(":memory:", isolation_level=None)
    made.execute(f"CREATE TABLE t ({', '.join(WIDE)})")
    yield made
    made.close()


def wide(**values: int) -> tuple[int | None, ...]:
    return tuple(values.get(name) for name in WIDE)


def kept(connection: sqlite3.Connection) -> list[tuple[int | None, ...]]:
    return connection.execute("SELECT * FROM t ORDER BY rowid").fetchall()


def named(
    connection: sqlite3.Connection, inserts: Inserts, rows: list[tuple[int | None, ...]]
) -> list[str]:
    """The columns that each statement named which these rows took."""
    seen: list[str] = []
    connection.set_trace_callback(seen.append)
    inserts.write(connection, rows)
    connection.set_trace_callback(None)
    return [text.split("(")[1].split(")")[0] for text in seen]


@table("count", [1, 15, 16, 17, 100, 255, 256, 511, 513, 1100])
@table("width", [2, 15, 200, 900])
def test_rows_of_any_number_and_width_are_inserted_in_their_order(count: int, width: int) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE t ({', '.join(f'c{place}' for place in range(width))})")
    rows = [tuple(range(number, number + width)) for number in range(count)]
    Rows("INSERT INTO t", width).write(connection, rows)
    assert connection.execute("SELECT * FROM t ORDER BY rowid").fetchall() == rows
    connection.close()


@table(
    ("count", "statements"),
    [(15, 15), (16, 1), (31, 5), (100, 1), (300, 1), (500, 2), (512, 1), (1500, 6)],
)
def test_many_rows_take_few_statements(count: int, statements: int) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE t (a, b)")
    seen: list[str] = []
    connection.set_trace_callback(seen.append)
    Rows("INSERT INTO t", 2).write(connection, [(number, number) for number in range(count)])
    connection.set_trace_callback(None)
    assert len(seen) == statements
    connection.close()


def test_only_columns_with_values_are_named(connection: sqlite3.Connection) -> None:
    inserts, rows = Inserts("t", WIDE), [wide(c0=number, c7=number) for number in range(100)]
    assert named(connection, inserts, rows) == ["c0, c7"]
    assert named(connection, inserts, [wide(c7=1)]) == ["c0, c7"]  # no text of its own for fewer
    assert kept(connection) == [*rows, wide(c7=1)]


def test_a_value_elsewhere_is_never_left_out(connection: sqlite3.Connection) -> None:
    inserts = Inserts("t", WIDE)
    rows = [
        wide(c0=1, c1=1),
        wide(c0=2, c39=2),
        wide(c0=0, c5=0),
        wide(**dict.fromkeys(WIDE, 4)),
        wide(c0=5, c8=5),
    ]
    columns = [named(connection, inserts, [row]) for row in rows]
    assert columns[:3] == [["c0, c1"], ["c0, c1, c39"], ["c0, c1, c5, c39"]]
    assert columns[3:] == [[", ".join(WIDE)]] * 2
    assert kept(connection) == rows
    assert named(connection, inserts, rows) == [", ".join(WIDE)] * len(rows)
    assert kept(connection) == rows + rows


def test_what_one_row_had_more_is_forgotten_again(connection: sqlite3.Connection) -> None:
    inserts = Inserts("t", WIDE)
    inserts.write(connection, [wide(**dict.fromkeys(WIDE, 4))])
    seen = [named(connection, inserts, [wide(c0=1, c1=1)]) for _ in range(AGE + 1)]
    assert seen[0] == [", ".join(WIDE)]
    assert seen[-1] == ["c0, c1"]
    assert set(kept(connection)[1:]) == {wide(c0=1, c1=1)}


FILE = File(h("f"), 1, h("n"), "one", 5, 10, 11, b"sealed")


def test_a_removal_looks_for_past_and_files_only_where_there_were_any() -> None:
    connection = connect()
    sql = Statements(LAYOUT, used=used_parts(connection, TABLE))
    ran: list[str] = []
    connection.set_trace_callback(ran.append)
    future = None
    assert apply_group(connection, [(future, sql, [insert(1), Remove(1)])]) is None  # type: ignore[list-item]  # nobody waits
    assert not any(f"h_{TABLE}" in text or f"f_{TABLE}" in text for text in ran)
    used: list[tuple[bool, bool]] = []
    changes = ([Insert(live(1, "k"))], [outlived(live(1, "k"))], [Attach(FILE)], [Remove(1)])
    for commit in changes:
        assert apply_group(connection, [(future, sql, commit)]) is None  # type: ignore[list-item]  # nobody waits
        used.append((sql.used.past, sql.used.files))
    assert used == [(False, False), (True, False), (True, True), (True, True)]
    connection.set_trace_callback(None)
    again = used_parts(connection, TABLE)
    assert (again.past, again.files) == (False, False)
    connection.close()
