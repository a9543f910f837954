import sqlite3
from collections.abc import Iterator

import pytest

from proxy.storage.query import Compare, Compared, Indexed
from proxy.storage.sqlite import plan
from proxy.storage.sqlite.plan import TokenIndex
from proxy.storage.sqlite.statements import Statements
from tests.support.groups import connect
from tests.support.rows import LAYOUT, TABLE, h


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    """Hash ``n`` has the rows that ``n`` divides, up to 30."""
    connection = connect()
    pairs = [(h(n), rid) for n in (1, 2, 3, 5) for rid in range(n, 31, n)]
    connection.executemany(Statements(LAYOUT).shares.single, pairs)
    yield connection
    connection.close()


def test_rows_that_have_all_hashes_are_found_by_the_rarest(connection: sqlite3.Connection) -> None:
    tokens = TokenIndex(connection, TABLE)
    text, values = tokens.rids(Indexed((h(1), h(3), h(5), h(3))))
    assert values == [h(5), h(3), h(1)]
    assert [rid for (rid,) in connection.execute(text, values)] == [15, 30]
    bounds = (Compared("@rid", Compare.GT, 15), Compared("@rid", Compare.LTE, 29))
    text, values = tokens.rids(Indexed((h(2),)), bounds)
    assert [rid for (rid,) in connection.execute(text, values)] == [16, 18, 20, 22, 24, 26, 28]


def test_many_are_not_counted_to_the_end(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "MOST_COUNTED", 12)
    tokens = TokenIndex(connection, TABLE)
    assert [tokens.few(Indexed((h(n),))) for n in (1, 2, 3, 5, 7)] == [None, None, 10, 6, 0]
    assert tokens.few(Indexed((h(1), h(3)))) == 10
