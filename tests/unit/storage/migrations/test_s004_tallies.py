import sqlite3

from proxy.storage.migrations import STEPS, s004_tallies


def test_a_table_of_format_3_has_no_sum_yet() -> None:
    old = sqlite3.connect(":memory:", isolation_level=None)
    for step in STEPS[:3]:
        step(old)
    old.execute("INSERT INTO tables (name, rows) VALUES ('old', 1)")
    s004_tallies.apply(old)
    assert old.execute("SELECT * FROM tables").fetchall() == [("old", 1, None)]
    old.close()
