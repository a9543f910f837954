import sqlite3

import pytest

from proxy.storage.rows import Row, RowState, Staged, StagedKind
from proxy.storage.sqlite.statements import Listed, Statements, read_staged
from tests.support.groups import connect
from tests.support.rows import LAYOUT, h, live, row


@pytest.mark.parametrize("length", [1, 2, 3, 5, 16, 17, 100, 320, 511, 512, 513, 1300])
def test_a_list_of_any_length_is_asked_whole(length: int) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (n INTEGER PRIMARY KEY)")
    connection.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(2000)])
    listed = Listed("SELECT n FROM t WHERE n IN")
    found = [
        n
        for text, values in listed.runs(range(length))
        for (n,) in connection.execute(text, values)
    ]
    assert sorted(found) == list(range(length))
    connection.close()


def test_few_texts_serve_all_lengths() -> None:
    listed = Listed("x")
    texts = {text for length in range(1, 2000) for text, _ in listed.runs(range(length))}
    assert len(texts) < 20
    assert list(listed.runs([])) == []


def test_padding_wastes_less_than_half() -> None:
    for length in range(1, 513):
        ((_, values),) = Listed("x").runs(range(length))
        assert length <= len(values) < max(length * 1.5, 2)


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("rows", "INTEGER PRIMARY KEY"),
        ("by_keys", "ik_r1_test"),
        ("by_tokens", "PRIMARY KEY"),
        ("staged", "is_r1_test"),
        ("taken", "PRIMARY KEY"),
        ("pending", "ip_r1_test"),
        ("waiting", "ia_r1_test"),
        ("expired", "ie_r1_test"),
        ("release", "ik_r1_test"),
        ("bind", "INTEGER PRIMARY KEY"),
        ("remove_tokens", "it_r1_test"),
        ("remove_staged", "is_r1_test"),
    ],
)
def test_every_question_walks_an_index(name: str, index: str) -> None:
    connection = connect()
    statement = getattr(Statements(LAYOUT), name)
    text = statement.single if isinstance(statement, Listed) else statement
    marks = 4 if name == "bind" else text.count("?")
    plan = [line[3] for line in connection.execute(f"EXPLAIN QUERY PLAN {text}", [1] * marks)]
    assert any(index in line for line in plan), plan
    assert not any(line.startswith("SCAN") and "CONSTANT" not in line for line in plan), plan
    assert not any("TEMP B-TREE FOR ORDER" in line for line in plan if name != "staged"), plan
    connection.close()


def test_a_row_goes_in_and_out() -> None:
    connection, sql = connect(), Statements(LAYOUT)
    written = live(5, "k")._replace(cells=(h("m"), "x", 1, "2.5"))
    connection.execute(sql.insert, sql.stored(written))
    (raw,) = connection.execute(sql.rows.single, (5,)).fetchall()
    found = sql.read(raw)
    assert found == written
    assert (type(found), type(found.state)) == (Row, RowState)
    assert all(type(cell) is not RowState for cell in sql.stored(row(1)))
    connection.close()


def test_a_staged_change_is_read() -> None:
    assert read_staged((1, 2, 2, 3, None, 1, b"")) == Staged(
        1, 2, StagedKind.DELETE, 3, None, True, b""
    )
