import sqlite3

from proxy.storage.migrations import STEPS, s003_replies, s004_tallies
from proxy.storage.migrations.runner import run_migrations
from proxy.storage.rows import TableLayout
from proxy.storage.sqlite.inserts import AuxStatements
from proxy.storage.sqlite.statements import make
from tests.unit.storage.migrations.test_s002_beside import schema


def test_answers_of_a_store_of_format_2_go_with_the_first_row_that_is_removed() -> None:
    new = sqlite3.connect(":memory:", isolation_level=None)
    run_migrations(new)
    make(new, TableLayout("old", ()))
    old = sqlite3.connect(":memory:", isolation_level=None)
    for step in STEPS[:2]:
        step(old)
    for text in sorted(schema(new), key=lambda text: not text.startswith("CREATE TABLE")):
        if "_old" in text and "l_old" not in text:
            old.execute(text)
    old.execute("INSERT INTO tables (name, rows) VALUES ('old', 0)")
    old.executemany("INSERT INTO i_old VALUES (?, 9, x'00', x'01')", [(b"a",), (b"b",)])
    s003_replies.apply(old)
    s004_tallies.apply(old)
    assert schema(old) == schema(new)
    beside = AuxStatements("old")
    old.execute("INSERT INTO r_old VALUES (7, NULL, NULL, 1, 1, 5, 6, NULL, x'00', x'01')")
    assert beside.used(old).links
    beside.remove_shown(old, [(7,)])
    assert old.execute("SELECT key, sealed FROM i_old ORDER BY key").fetchall() == [
        (b"a", b""),
        (b"b", b""),
    ]
    assert not beside.used(old).links
    old.close()
    new.close()
