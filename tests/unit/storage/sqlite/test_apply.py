import asyncio
import itertools
import sqlite3
from collections.abc import Iterator, Sequence

import pytest

from proxy.errors import Code, VaultError
from proxy.storage.changes import (
    Accept,
    AddVersion,
    Attach,
    Bind,
    Change,
    Conflict,
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
from proxy.storage.rows import File, Past, StoredReply
from proxy.storage.sqlite.apply import ChangeBatch, Outcomes, apply_group, begin_group, roll_back
from proxy.storage.sqlite.statements import Statements
from proxy.storage.sqlite.tallies import WriterConnection
from tests.support.groups import Pair, connect
from tests.support.rows import LAYOUT, TABLE, h, insert, live, outlived, row, staged
from tests.support.table import table

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


def test_taken_hashes_are_named_in_the_order_of_the_change(connection: WriterConnection) -> None:
    run(connection, [insert(1, hashes=(h("b"), h("a")))])
    (outcome,) = run(connection, [insert(2, unique=(h("b"), h("n"), h("a"), h("b")))]) or []
    assert isinstance(outcome, Conflict)
    assert outcome.hashes == (h("b"), h("a"))


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


# ---- batch


def add(batch: ChangeBatch, change: Change) -> bool:
    """Whether the batch takes the change in."""
    return batch.adding[type(change)](batch, change)


def file(name: str, rid: int, object_: str) -> File:
    return File(h(name), rid, h(f"name {name}"), object_, 1, rid, rid, b"")


#: What is stored before each pair: a live row with a staged change and a hash, a pending one.
BEFORE: list[Change] = [
    Insert(live(1, "k"), (h("s"),), (h("u"),)),
    Insert(row(2), (h("s"),)),
    StageRow(staged(10, 1)),
    StageRow(staged(11, 2)),
    outlived(live(1, "k")),
    Attach(file("f", 1, "o1")),
    Remember(StoredReply(h("r"), 50, b"", b""), 0),
]

#: Every kind of change, each so that it meets the others on a row, a key, a staged change or a
#: hash.
ALPHABET: list[Change] = [
    insert(3),
    insert(3, unique=(h("n"),)),
    insert(4, hashes=(h("n"), h("u"))),
    Insert(live(3, "k")),
    Insert(live(3, "new")),
    insert(1),
    Release(h("k"), 2, 2_000),
    Release(h("k"), 1, 2_000),
    Release(h("new"), 9, 2_500),
    Release(h("k"), 2, 2_000, 1, b"unbound"),
    Accept(1, 2_700, b"accepted"),
    Accept(2, 2_700),
    Accept(3, 2_700),
    Bind(1, h("k"), b"again", 3_000),
    Bind(2, h("k"), b"sealed", 3_000),
    Bind(2, h("new"), b"sealed", 3_500),
    Bind(3, h("new"), b"sealed", 3_500),
    Replace(row(1, at=4_000, body=b"v2")._replace(version=2), 1),
    Replace(row(1, at=4_500, body=b"v3")._replace(version=3), 2),
    Replace(row(3, at=4_000, body=b"v2")._replace(version=2), 1),
    StageRow(staged(12, 1)),
    StageRow(staged(10, 2, at=5_000)),
    StageRow(staged(12, 2), (h("n"),), (h("m"),)),
    StageRow(staged(13, 1), (), (h("n"),)),
    Unstage(1, 10),
    Unstage(1, 12),
    MarkInDoubt(1, 10, 6_000, True),
    MarkInDoubt(1, 12, 6_000, True),
    Reindex(1, add=(h("n"), h("m"))),
    Reindex(1, drop=(h("n"), h("u"))),
    Reindex(2, add=(h("u"),), drop=(h("s"),)),
    Reindex(3, add=(h("s"),)),
    Remove(1),
    Remove(2),
    Remove(3),
    Remove(1, keep_past=True),
    outlived(live(1, "k")),
    outlived(live(3, "new")),
    AddVersion(Past(1, 2, h("k"), 9, b"", b"end")),
    AddVersion(Past(3, 1, h("new"), 9, b"", b"end")),
    Attach(file("g", 1, "o2")),
    Attach(file("f", 3, "o3")),
    Attach(file("h", 1, "o4")._replace(name=file("f", 1, "").name)),
    UpdateFile(file("f", 1, "o5"), 1),
    UpdateFile(file("f", 2, "o1"), 1),
    UpdateFile(file("f", 3, "o6"), 2),
    Detach(1, h("f")),
    Detach(2, h("f")),
    Remember(StoredReply(h("r"), 90, b"", b"later"), 50),
    Remember(StoredReply(h("r"), 99, b"", b"early"), 40),
    Remember(StoredReply(h("k"), 99, b"", b"other"), 0),
    Remember(StoredReply(h("s"), 99, b"", b"shows"), 0, (1,)),
    ForgetReplies(1),
    ForgetReplies(2),
]


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.connection.close()


def same(pair: Pair, group: Sequence[Sequence[Change]]) -> None:
    pair.clear()
    pair.run([BEFORE])
    ours, reference = pair.run(group)
    assert ours == reference, group
    ours, reference = pair.states()
    assert ours == reference, group


def test_every_pair_of_changes_gives_what_one_after_the_other_gives(pair: Pair) -> None:
    for first, second in itertools.product(ALPHABET, repeat=2):
        same(pair, [[first, second]])
        same(pair, [[first], [second]])


@table("offset", range(len(ALPHABET)))
def test_long_groups_give_what_one_after_the_other_gives(pair: Pair, offset: int) -> None:
    turned = ALPHABET[offset:] + ALPHABET[:offset]
    same(pair, [[change] for change in turned])
    same(pair, [[change] for change in reversed(turned)])
    same(pair, [turned[place : place + 2] for place in range(0, len(turned), 2)])


def test_many_rows_among_other_changes_give_what_one_after_the_other_gives(pair: Pair) -> None:
    many: list[Change] = [
        Insert(live(rid, rid), (h("s"), h(rid % 7)), (h(f"u{rid}"),) if rid % 5 == 0 else ())
        for rid in range(100, 400)
    ]
    for offset in range(0, len(ALPHABET), 5):
        others = ALPHABET[offset : offset + 5]
        later: list[Change] = [
            Remove(150),
            Reindex(160, add=(h("n"),), drop=(h("s"),)),
            Insert(live(150, "again")),
        ]
        same(pair, [[*many, *later], others])
        same(pair, [others, [*many, *later]])
        same(pair, [many[:90], [*many[90:], *others], [Insert(live(399, "twice"))]])


def grouped(changes: Sequence[Change]) -> bool:
    segment = ChangeBatch(Statements(LAYOUT))
    return all(add(segment, change) for change in changes)


def test_what_the_proxy_writes_all_day_stays_in_one_segment() -> None:
    creates: list[Change] = [
        insert(rid, hashes=(h(f"s{rid % 3}"),), unique=(h(rid),)) for rid in range(10, 20)
    ]
    settled: list[Change] = [
        change
        for rid in range(20, 30)
        for change in (Release(h(f"k{rid}"), rid, 1), Bind(rid, h(f"k{rid}"), b"sealed", 1))
    ]
    updates: list[Change] = [
        change
        for rid in range(30, 40)
        for change in (
            Replace(row(rid), 1),
            Unstage(rid, rid),
            Reindex(rid, (h(rid),), (h("old"),)),
        )
    ]
    assert grouped(
        [*creates, *settled, *updates, *(StageRow(staged(rid, rid)) for rid in range(40, 50))]
    )
    assert grouped([*settled, *creates, *settled[:0], Remove(99)])
    assert grouped(
        [
            change
            for rid in range(9)
            for change in (outlived(live(rid, rid)), Replace(row(rid), 1), Remove(rid))
        ]
    )


def test_changes_in_the_reverse_of_the_order_are_refused() -> None:
    assert not grouped([Remove(1), insert(1)])
    assert not grouped([Bind(1, h("k"), b"", 1), Release(h("k"), 2, 1)])
    assert not grouped([Reindex(1, add=(h("a"),)), insert(2, unique=(h("a"),))])
    assert not grouped([Reindex(1, add=(h("a"),)), Reindex(1, drop=(h("a"),))])
    assert not grouped([Replace(row(1), 1), Release(h("k"), 2, 1)])
    assert not grouped([Replace(row(1), 1), outlived(live(1, "k"))])
    assert not grouped([Remove(1), outlived(live(1, "k"))])
    assert not grouped([Remove(1), Attach(file("f", 1, "o"))])
    assert not grouped([Remove(2), UpdateFile(file("f", 1, "o"), 2)])


def test_a_replacement_leaves_the_index_of_creation_alone_unless_that_changes(pair: Pair) -> None:
    pair.run([[insert(1)]])
    ran: list[str] = []
    pair.connection.set_trace_callback(ran.append)
    same_time = Replace(row(1, body=b"v2")._replace(version=2), 1)
    moved = Replace(row(1, at=77, body=b"v3")._replace(version=3), 2)
    assert pair.run([[same_time]]) == ([None], [None])
    assert not any(", created_at = " in text for text in ran)
    assert pair.run([[moved]]) == ([None], [None])
    assert any(", created_at = " in text for text in ran)
    pair.connection.set_trace_callback(None)
    ours, reference = pair.states()
    assert ours == reference
