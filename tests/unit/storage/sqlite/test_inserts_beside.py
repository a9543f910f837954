import pytest

from proxy.storage.changes import Attach, Detach, Insert, Remove, UpdateFile
from proxy.storage.rows import File, Past, StoredReply
from proxy.storage.sqlite.apply import apply_group
from proxy.storage.sqlite.inserts import AuxStatements, Used, read_file, read_past, read_reply
from proxy.storage.sqlite.statements import Statements
from tests.support.groups import connect
from tests.support.rows import LAYOUT, TABLE, h, insert, live, outlived

FILE = File(h("f"), 1, h("n"), "one", 5, 10, 11, b"sealed")


@pytest.mark.parametrize(
    ("name", "index", "marks"),
    [
        ("forget", "hr_r1_test", 1), ("past", "hk_r1_test", 3),
        ("pasts", "hk_r1_test", 1), ("doom_of_row", "fr_r1_test", 1), ("remove_files", "fr_r1_test", 1),
        ("detach", "fi_r1_test", 2), ("amend", "fi_r1_test", 9), ("file_scan", "fi_r1_test", 2),
        ("past_scan", "hr_r1_test", 3), ("reply_scan", "ii_r1_test", 2),
        ("reply", "ii_r1_test", 2), ("prune_past", "ha_r1_test", 2), ("prune_replies", "iy_r1_test", 2),
    ],
)  # fmt: skip
def test_every_statement_walks_an_index(name: str, index: str, marks: int) -> None:
    connection = connect()
    plan = [
        line[3]
        for line in connection.execute(
            f"EXPLAIN QUERY PLAN {getattr(AuxStatements(TABLE), name)}", [1] * marks
        )
    ]
    assert any(index in line for line in plan), plan
    assert not any(
        line.startswith("SCAN") and index not in line and "CONSTANT" not in line for line in plan
    ), plan
    connection.close()


def test_a_removal_looks_for_past_and_files_only_where_there_were_any() -> None:
    connection = connect()
    sql = Statements(LAYOUT, used=AuxStatements(TABLE).used(connection))
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
    again = AuxStatements(TABLE).used(connection)
    assert (again.past, again.files) == (False, False)
    connection.close()


def test_what_is_not_known_is_taken_for_used() -> None:
    assert (Used().past, Used().files) == (True, True)


def test_files_change_one_after_the_other() -> None:
    connection, beside = connect(), AuxStatements(TABLE)
    sql = Statements(LAYOUT)
    connection.execute(sql.insert, sql.stored(live(1, "k")))
    assert beside.file(connection, Attach(FILE))
    assert beside.file(connection, UpdateFile(FILE._replace(object="two", created_at=99), 1))
    assert not beside.file(connection, UpdateFile(FILE, 2))
    (raw,) = connection.execute(beside.file_scan, (b"", 9)).fetchall()
    assert read_file(raw) == FILE._replace(object="two")
    assert not beside.file(connection, Detach(2, FILE.file_id))
    assert beside.file(connection, Detach(1, FILE.file_id))
    assert connection.execute("SELECT object FROM doomed ORDER BY id").fetchall() == [
        ("one",),
        ("two",),
    ]
    connection.close()


def test_past_versions_and_replies_go_in_and_out() -> None:
    connection, beside = connect(), AuxStatements(TABLE)
    past, reply = (
        Past(1, 2, h("k"), 3, h("s"), b"body"),
        StoredReply(h("k"), 9, b"digest", b"sealed"),
    )
    connection.execute(beside.inscribe, past)
    connection.execute(beside.remember, (*reply, 0))
    assert [read_past(raw) for raw in connection.execute(beside.past, (h("k"), 9, 0))] == [past]
    assert [read_reply(raw) for raw in connection.execute(beside.reply, (h("k"), 8))] == [reply]
    assert beside.prune(connection, 4, 9, 5) == 2
    connection.close()
