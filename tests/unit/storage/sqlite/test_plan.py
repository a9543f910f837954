import sqlite3
from collections.abc import Iterator

import pytest

from proxy.storage.query import MATCH_ALL, All, Any, Compare, Compared, Holds, Indexed, Is, Where
from proxy.storage.sqlite import plan
from proxy.storage.sqlite import plan as sqlite_plan
from proxy.storage.sqlite import plan as sqlite_tokens
from proxy.storage.sqlite.plan import Planner, TokenIndex
from proxy.storage.sqlite.statements import Statements
from proxy.storage.sqlite.where import add_functions
from tests.support.groups import connect
from tests.support.rows import LAYOUT, TABLE, h, live, row

SQL = Statements(LAYOUT)
RARE, COMMON = h("rare"), h("common")


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlite3.Connection]:
    """100 rows in 2 cities with 100 visits and 50 mails; more than 20 are many."""
    monkeypatch.setattr(sqlite_plan, "NARROW_ROWS", 20)
    monkeypatch.setattr(sqlite_tokens, "MOST_COUNTED", 20)
    connection = add_functions(connect())
    for rid in range(1, 101):
        one = live(rid, rid)._replace(cells=(h(rid % 50), f"c{rid % 2}", rid, None))
        connection.execute(SQL.insert, SQL.stored(one))
        connection.execute(SQL.shares.single, (COMMON, rid))
    connection.execute(SQL.shares.single, (RARE, 7))
    connection.execute("UPDATE tables SET rows = 100")
    yield connection
    connection.close()


@pytest.mark.parametrize(
    ("where", "leads"),
    [
        (Is("email", (h(7),)), "ix_r1_test.email"),
        (All((Is("city", ("c1",)), Is("email", (h(7),)))), "ix_r1_test.email"),
        (All((Is("email", (h(7),)), Compared("visits", Compare.GT, 97))), "ix_r1_test.email"),
        (All((Is("email", tuple(h(n) for n in range(5))), Compared("visits", Compare.GT, 97))), "ix_r1_test.visits"),
        (Indexed((COMMON, RARE)), "PRIMARY KEY (hash=?)"),
        (All((Indexed((COMMON,)), Is("@rid", (3,)))), "INTEGER PRIMARY KEY"),
        (Any((Indexed((RARE,)), Is("email", (h(7),)))), "ix_r1_test.email"),
        (Any((All((Is("city", ("c1",)), Indexed((RARE,)))), Is("@key", (h(7),)))), "ik_r1_test"),
        (Compared("@created_at", Compare.LT, 5), "ic_r1_test"),
    ],
)  # fmt: skip
def test_the_part_with_the_fewest_entries_leads(
    connection: sqlite3.Connection, where: Where, leads: str
) -> None:
    way = Planner(connection, LAYOUT, 5).way(where)
    text, values = way.condition
    plan = [
        line[3]
        for line in connection.execute(
            f"EXPLAIN QUERY PLAN SELECT r.rid FROM {way.source} WHERE {text}", values
        )
    ]
    assert way.narrow
    assert any(leads in line for line in plan), plan
    assert not any(line.startswith("SCAN r") for line in plan), plan


@pytest.mark.parametrize(
    "where",
    [
        MATCH_ALL, Is("city", ("c1",)), Is("email", (h(7),), negated=True), Is("email", (None, h(7))), Holds("city", "c"),
        Indexed((COMMON,)), Indexed((RARE,), negated=True), Indexed(()), Is("@version", (1,)),
        Any((Is("email", (h(7),)), Holds("city", "c"))), Any((Is("city", ("c1",)), Is("city", ("c0",)))),
    ],
)  # fmt: skip
def test_what_has_many_rows_or_no_index_leads_nowhere(
    connection: sqlite3.Connection, where: Where
) -> None:
    assert not Planner(connection, LAYOUT, 5).way(where).narrow


@pytest.mark.parametrize("hidden", [0, 1, 2])
def test_hidden_rows_are_left_out_however_many_there_are(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, hidden: int
) -> None:
    connection.execute(SQL.insert, SQL.stored(row(500)._replace(cells=(h(7), "c1", 7, None))))
    connection.execute(f"UPDATE r_{TABLE} SET expires_at = 5 WHERE rid = 57")
    connection.execute("UPDATE tables SET rows = 101")
    monkeypatch.setattr(sqlite_plan, "HIDDEN", hidden)
    planner = Planner(connection, LAYOUT, 5)
    assert planner.is_bare is (hidden == 2)
    for where, total in ((Is("email", (h(7),)), 1), (Is("city", ("c1",)), 49), (MATCH_ALL, 99)):
        assert planner.total(where, planner.way(where)) == total


def test_a_total_without_hidden_rows_is_counted_in_an_index(connection: sqlite3.Connection) -> None:
    planner = Planner(connection, LAYOUT, 5)
    ran: list[str] = []
    connection.set_trace_callback(ran.append)
    assert planner.total(Is("city", ("c1",)), planner.way(Is("city", ("c1",)))) == 50
    connection.set_trace_callback(None)
    plan = [line[3] for line in connection.execute(f"EXPLAIN QUERY PLAN {ran[-1]}")]
    assert plan == [f"SEARCH r USING COVERING INDEX ix_{TABLE}.city (x_city=?)"]


def test_rows_of_the_token_index_come_by_age_and_are_counted_there(
    connection: sqlite3.Connection,
) -> None:
    planner = Planner(connection, LAYOUT, 5)
    where = All((Indexed((COMMON, RARE)), Compared("@rid", Compare.GT, 3)))
    way = planner.way(where)
    text, values = way.condition
    aged = f"SELECT {way.aged} FROM {way.source} WHERE {text} ORDER BY {way.aged} LIMIT 2"
    plan = " ".join(line[3] for line in connection.execute(f"EXPLAIN QUERY PLAN {aged}", values))
    assert "TEMP B-TREE" not in plan
    assert "PRIMARY KEY (hash=? AND rid>?)" in plan
    assert (way.entries, planner.total(where, way)) == (f"t_{TABLE} AS o", 1)
    assert planner.way(All((where, Holds("city", "c")))).entries == ""


def test_rows_are_walked_in_indexes_that_have_all_of_them(connection: sqlite3.Connection) -> None:
    planner = Planner(connection, LAYOUT, 5)
    names = ("city", "@created_at", "@updated_at", "email", "@version", "@expires_at", "")
    assert [planner.index_of(name) for name in names] == [
        f'"ix_{TABLE}.city"', f"ic_{TABLE}", None, None, None, None, None,
    ]  # fmt: skip
    assert planner.next_value("r.x_city", None) == "c0"
    assert planner.next_value("r.x_city", "c0") == "c1"
    assert planner.next_value("r.x_city", "c1") is None


@pytest.fixture
def connection_tokens() -> Iterator[sqlite3.Connection]:
    """Hash ``n`` has the rows that ``n`` divides, up to 30."""
    connection_tokens = connect()
    pairs = [(h(n), rid) for n in (1, 2, 3, 5) for rid in range(n, 31, n)]
    connection_tokens.executemany(Statements(LAYOUT).shares.single, pairs)
    yield connection_tokens
    connection_tokens.close()


def test_rows_of_alternatives_are_listed_up_to_as_many_as_are_wanted(
    connection_tokens: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = TokenIndex(connection_tokens, TABLE)
    parts = [Indexed((h(1), h(3), h(5), h(3))), Indexed((h(7),)), Indexed((h(2), h(3)))]
    assert tokens.listed(parts, 100) == {15, 30, 6, 12, 18, 24}
    some = tokens.listed(parts, 1)
    assert some is not None
    assert len(some) == 2, "more than are wanted"
    assert some <= {15, 30, 6, 12, 18, 24}
    assert tokens.listed([Indexed((h(7), h(1)))], 100) == set()
    assert tokens.listed(parts[:0], 100) == set()
    wide = Indexed(tuple(h(n) for n in range(1, 10)))
    assert tokens.listed([*parts, wide], 100) is None, "there is another way to those"
    monkeypatch.setattr(plan, "MOST_COUNTED", 1)
    assert tokens.listed(parts, 100) is None


def test_alternatives_are_looked_up_by_the_key_of_their_entries_the_rarest_first(
    connection_tokens: sqlite3.Connection,
) -> None:
    """A join would take the index by rows, whose places are far apart: four times as slow."""
    more = [(h(n), rid) for n in (1, 2, 3, 5) for rid in range(n, 300, n) if rid > 30]
    connection_tokens.executemany(Statements(LAYOUT).shares.single, more)
    tokens = TokenIndex(connection_tokens, TABLE)
    parts = [Indexed((h(1), h(5), h(3))), Indexed((h(2), h(7)))]
    ran: list[str] = []
    connection_tokens.set_trace_callback(ran.append)
    assert tokens.listed(parts, 100) == {*range(15, 300, 15)}
    connection_tokens.set_trace_callback(None)
    steps = [line[3] for line in connection_tokens.execute(f"EXPLAIN QUERY PLAN {ran[-1]}")]
    searched = [step.partition(" ")[2] for step in steps if step.startswith("SEARCH")]
    by_key = "USING PRIMARY KEY (hash=?"
    assert searched == [f"t0 {by_key})", f"t1 {by_key} AND rid=?)", f"t2 {by_key} AND rid=?)"]
    order = [ran[-1].upper().index(h(n).hex().upper()) for n in (5, 3, 1, 7, 2)]
    assert order == sorted(order)


def test_many_are_not_counted_to_the_end(
    connection_tokens: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "MOST_COUNTED", 12)
    tokens = TokenIndex(connection_tokens, TABLE)
    assert [tokens.few(Indexed((h(n),))) for n in (1, 2, 3, 5, 7)] == [None, None, 10, 6, 0]
    assert tokens.few(Indexed((h(1), h(3)))) == 10
