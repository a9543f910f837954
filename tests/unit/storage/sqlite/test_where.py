import sqlite3
from collections.abc import Iterator
from typing import Any as Anything

import pytest

from proxy.storage.query import Holds, Is, Where
from proxy.storage.rows import ColumnValue
from proxy.storage.sqlite.statements import Statements
from proxy.storage.sqlite.where import add_functions, condition
from tests.support.groups import connect
from tests.support.rows import LAYOUT, TABLE, h, live


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = add_functions(connect())
    yield connection
    connection.close()


def put(connection: sqlite3.Connection, *cities: ColumnValue) -> None:
    sql = Statements(LAYOUT)
    for rid, city in enumerate(cities, 1):
        connection.execute(
            sql.insert, sql.stored(live(rid, rid)._replace(cells=(h(rid), city, rid, None)))
        )


def found(connection: sqlite3.Connection, where: Where) -> list[int]:
    text, values = condition(where, TABLE)
    raws = connection.execute(
        f"SELECT r.rid FROM r_{TABLE} AS r WHERE {text} ORDER BY r.rid", values
    )
    return [rid for (rid,) in raws]


@pytest.mark.parametrize(
    ("text", "rids"),
    [
        ("ss", [1, 2, 3]), ("STR", []), ("k", [4]), ("%", [5]), ("_", [5]), ("\\", [5]), ("nul", [6]), ("é", [7]),
        ("", [1, 2, 3, 4, 5, 6, 7]), ("ss" * 600, []), ("\0", [6]),
    ],
)  # fmt: skip
def test_texts_are_compared_as_python_folds_them(
    connection: sqlite3.Connection, text: str, rids: list[int]
) -> None:
    put(connection, "STRASSE", "straße", "asss", "\u212a", "a%b_c\\d", "a\0nul", "CAFÉ", None)
    assert found(connection, Holds("city", text)) == rids
    assert found(connection, Holds("city", text, negated=True)) == [
        n for n in range(1, 9) if n not in rids
    ]


@pytest.mark.parametrize("size", [1, 200, 201, 100_000])
def test_lists_of_any_length_and_type_are_asked_in_one_statement(
    connection: sqlite3.Connection, size: int
) -> None:
    put(connection, "a", "ü", None)
    lists: tuple[tuple[str, list[Anything]], ...] = (
        ("@rid", [1, *range(10, 10 + size)]),
        ("city", ["a", *(f"x{n}" for n in range(size))]),
        ("email", [h(1), *(h(f"x{n}") for n in range(size))]),
    )
    for column, values in lists:
        assert found(connection, Is(column, tuple(values))) == [1]
        assert found(connection, Is(column, tuple(values), negated=True)) == [2, 3]
    assert found(connection, Is("city", (None, "ü", *(f"x{n}" for n in range(size))))) == [2, 3]
    assert found(
        connection, Is("city", (None, "ü", *(f"x{n}" for n in range(size))), negated=True)
    ) == [1]
