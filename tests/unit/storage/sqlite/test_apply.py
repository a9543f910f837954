import asyncio
import sqlite3
from collections.abc import Iterator

import pytest

from proxy.errors import Code, VaultError
from proxy.storage.changes import Bind, Change, Conflict, Insert, Release, Remove
from proxy.storage.sqlite.apply import Outcomes, apply_group, begin_group, roll_back
from proxy.storage.sqlite.statements import Statements
from proxy.storage.sqlite.tallies import WriterConnection
from tests.support.groups import connect
from tests.support.rows import LAYOUT, TABLE, h, insert, live, row

FUTURE: asyncio.Future[None] = None  # type: ignore[assignment]  # nobody waits


@pytest.fixture
def connection() -> Iterator[WriterConnection]:
    connection = connect()
    yield connection
    connection.close()


def run(connection: WriterConnection, *commits: list[Change]) -> Outcomes:
    sql = Statements(LAYOUT)
    return apply_group(connection, [(FUTURE, sql, commit) for commit in commits])


def rids(connection: WriterConnection) -> list[int]:
    return [rid for (rid,) in connection.execute(f"SELECT rid FROM r_{TABLE} ORDER BY rid")]


def test_a_group_without_conflict_is_one_transaction(connection: WriterConnection) -> None:
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    assert run(connection, [insert(1)], [insert(2)], [insert(3)]) is None
    connection.set_trace_callback(None)
    assert [line for line in statements if line.startswith(("BEGIN", "COMMIT", "SAVE"))] == [
        "BEGIN IMMEDIATE",
        "COMMIT",
    ]
    assert rids(connection) == [1, 2, 3]


def test_a_group_that_has_begun_is_only_committed(connection: WriterConnection) -> None:
    group = [(FUTURE, Statements(LAYOUT), [insert(rid)]) for rid in (1, 2)]
    begin_group(connection, group)
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    assert apply_group(connection, group, begun=True) is None
    connection.set_trace_callback(None)
    assert statements == ["COMMIT"]
    assert rids(connection) == [1, 2]


def test_only_the_commit_that_conflicts_is_left_out(connection: WriterConnection) -> None:
    outcomes = run(connection, [insert(1)], [insert(2), insert(1)], [insert(3, unique=(h("a"),))])
    assert outcomes is not None
    assert [type(outcome) for outcome in outcomes] == [type(None), Conflict, type(None)]
    assert rids(connection) == [1, 3]
    assert connection.execute("SELECT rows FROM tables").fetchall() == [(2,)]


def test_of_many_rows_only_the_commits_that_conflict_are_left_out(
    connection: WriterConnection,
) -> None:
    batches: list[list[Change]] = [
        [Insert(live(rid, f"k{rid}"), (h("all"), h(rid))) for rid in range(start, start + 100)]
        for start in range(1, 701, 100)
    ]
    batches[2][40] = Insert(live(241, "k7"))  # a key of the first batch
    batches[5][99] = insert(1)
    outcomes = run(connection, *batches)
    assert outcomes is not None
    assert [place for place, outcome in enumerate(outcomes) if outcome is not None] == [2, 5]
    for place, fault in ((2, batches[2][40]), (5, batches[5][99])):
        outcome = outcomes[place]
        assert isinstance(outcome, Conflict)
        assert outcome.change is fault
    assert rids(connection) == [*range(1, 201), *range(301, 501), *range(601, 701)]
    assert connection.execute("SELECT rows FROM tables").fetchall() == [(500,)]
    assert connection.execute(
        f"SELECT count(*), count(DISTINCT hash) FROM t_{TABLE}"
    ).fetchall() == [(1000, 501)]


def test_a_hash_that_comes_twice_among_many_is_kept_once(connection: WriterConnection) -> None:
    commit: list[Change] = [
        insert(rid, hashes=(h(rid % 3), h("x"), h(rid % 3))) for rid in range(1, 301)
    ]
    assert run(connection, commit) is None
    assert connection.execute(f"SELECT count(*) FROM t_{TABLE}").fetchall() == [(600,)]


def test_a_hash_that_is_freed_in_the_same_group_may_be_taken(
    connection: WriterConnection,
) -> None:
    run(connection, [insert(1, unique=(h("a"),))])
    assert run(connection, [Remove(1)], [insert(2, unique=(h("a"),))]) == [None, None]
    assert rids(connection) == [2]


def test_taken_hashes_are_named_in_the_order_of_the_change(connection: WriterConnection) -> None:
    run(connection, [insert(1, hashes=(h("b"), h("a")))])
    (outcome,) = run(connection, [insert(2, unique=(h("b"), h("n"), h("a"), h("b")))]) or []
    assert isinstance(outcome, Conflict)
    assert outcome.hashes == (h("b"), h("a"))


def test_a_key_moves_within_one_group(connection: WriterConnection) -> None:
    run(connection, [Insert(live(1, "k"))], [insert(2)], [insert(3)])
    moves: list[list[Change]] = [
        [Release(h("k"), rid, rid), Bind(rid, h("k"), b"sealed", rid)] for rid in (2, 3)
    ]
    assert run(connection, *moves) is None
    assert connection.execute(f"SELECT rid FROM r_{TABLE} WHERE key IS NOT NULL").fetchall() == [
        (3,)
    ]


@pytest.mark.parametrize(
    "broken",
    [
        Insert(row(2**63)),  # too large for the driver
        Insert(row(2)._replace(salt=None)),  # type: ignore[arg-type]  # a constraint that is no conflict
        Insert(row(2)._replace(body=object())),  # type: ignore[arg-type]  # no type of the driver
        Insert(row(2, cells=(None, "\ud800", None, None))),  # cannot be encoded
        "not a change",
    ],
)
def test_what_the_driver_refuses_fails_alone(connection: WriterConnection, broken: Change) -> None:
    outcomes = run(connection, [insert(1)], [insert(5), broken], [insert(3)])
    assert outcomes is not None
    assert [outcome is None for outcome in outcomes] == [True, False, True]
    assert isinstance(outcomes[1], VaultError)
    assert outcomes[1].code is Code.INTERNAL
    assert outcomes[1].__cause__ is not None
    assert rids(connection) == [1, 3]


def test_a_full_store_fails_the_group_and_stores_nothing(connection: WriterConnection) -> None:
    run(connection, [insert(1)])
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(sqlite3.OperationalError):
        run(connection, [insert(2)], [Insert(row(3, body=b"x" * 100_000))])
    assert not connection.in_transaction
    assert rids(connection) == [1]
    connection.execute("PRAGMA max_page_count = 100000")
    assert run(connection, [insert(2)]) is None


def test_a_full_store_in_the_second_run_stores_nothing_either(
    connection: WriterConnection,
) -> None:
    run(connection, [insert(1)])
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(sqlite3.OperationalError):
        run(connection, [insert(2)], [Insert(row(1))], [Insert(row(3, body=b"x" * 100_000))])
    assert rids(connection) == [1]


def test_roll_back_outside_a_transaction_is_nothing(connection: WriterConnection) -> None:
    roll_back(connection)
    connection.execute("BEGIN")
    roll_back(connection)
    assert not connection.in_transaction
