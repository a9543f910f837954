import itertools
from collections.abc import Iterator, Sequence

import pytest

from proxy.storage.changes import (
    Accept,
    AddVersion,
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
from proxy.storage.rows import File, Past, StoredReply
from proxy.storage.segment import PreconditionFailed
from proxy.storage.sqlite.apply import ChangeBatch
from proxy.storage.sqlite.statements import Statements
from tests.support.groups import Pair, connect
from tests.support.rows import LAYOUT, TABLE, h, insert, live, outlived, row, staged


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


@pytest.mark.parametrize("offset", range(len(ALPHABET)))
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


def test_a_segment_says_by_how_much_the_table_grew() -> None:
    connection = connect()
    segment = ChangeBatch(Statements(LAYOUT))
    for change in (insert(1), insert(2), insert(3), Remove(2), Remove(9)):
        add(segment, change)
    assert segment.run(connection) == 2
    connection.close()


def test_an_unmet_precondition_names_the_taken_hashes() -> None:
    connection, sql = connect(), Statements(LAYOUT)
    first = ChangeBatch(sql)
    add(first, insert(1, hashes=(h("a"),)))
    first.run(connection)
    # many together are decided again, one at a time
    for alone, named in ((True, {h("a")}), (False, set())):
        second = ChangeBatch(sql, alone=alone)
        add(second, insert(2, unique=(h("a"), h("b"))))
        connection.execute("BEGIN")
        with pytest.raises(PreconditionFailed) as caught:
            second.run(connection)
        connection.execute("ROLLBACK")
        assert caught.value.hashes == named
    connection.close()


def test_keys_are_released_where_some_row_holds_one_of_them() -> None:
    connection, sql = connect(), Statements(LAYOUT)
    steps: list[tuple[list[Change], list[tuple[int, int]]]] = [
        ([insert(1), insert(2), Release(h("k"), 1, 5), Bind(1, h("k"), b"s", 5)], [(1, 1), (2, 0)]),
        (
            [Release(h("o"), 1, 6), Release(h("k"), 2, 6), Bind(2, h("k"), b"s", 6)],
            [(1, 0), (2, 1)],
        ),
        ([Release(h("k"), 2, 7)], [(1, 0), (2, 1)]),
    ]
    for changes, held in steps:
        segment = ChangeBatch(sql)
        assert all(add(segment, change) for change in changes)
        segment.run(connection)
        assert (
            connection.execute(
                f"SELECT rid, key IS NOT NULL FROM r_{TABLE} ORDER BY rid"
            ).fetchall()
            == held
        )
    connection.close()


def test_a_replacement_leaves_the_index_of_creation_alone_unless_that_changes(pair: Pair) -> None:
    pair.run([[insert(1)]])
    ran: list[str] = []
    pair.connection.set_trace_callback(ran.append)
    same_time = Replace(row(1, body=b"v2")._replace(version=2), 1)
    moved = Replace(row(1, at=77, body=b"v3")._replace(version=3), 2)
    assert pair.run([[same_time]]) == ([None], [None])
    assert not any("SET created_at" in text for text in ran)
    assert pair.run([[moved]]) == ([None], [None])
    assert any("SET created_at" in text for text in ran)
    pair.connection.set_trace_callback(None)
    ours, reference = pair.states()
    assert ours == reference
