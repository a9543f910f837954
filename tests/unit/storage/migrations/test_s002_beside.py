import sqlite3

from proxy.storage.migrations import s001_initial, s002_beside, s003_replies, s004_tallies
from proxy.storage.migrations.runner import run_migrations
from proxy.storage.rows import TableLayout
from proxy.storage.sqlite.statements import make

#: What format 1 made for a schema.
BEFORE = (
    (
        "CREATE TABLE r_old (rid INTEGER PRIMARY KEY, key BLOB, key_sealed BLOB, state INTEGER "
        "NOT NULL,"
        " version INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, "
        "expires_at INTEGER,"
        " salt BLOB NOT NULL, body BLOB NOT NULL)"
    ),
    "CREATE UNIQUE INDEX ik_old ON r_old (key) WHERE key IS NOT NULL",
    "CREATE INDEX ip_old ON r_old (updated_at) WHERE state = 1",
    "CREATE INDEX ie_old ON r_old (expires_at) WHERE expires_at IS NOT NULL",
    (
        "CREATE TABLE s_old (sid INTEGER PRIMARY KEY, rid INTEGER NOT NULL, kind INTEGER NOT NULL,"
        " at INTEGER NOT NULL, doubt INTEGER, answered INTEGER NOT NULL, body BLOB NOT NULL)"
    ),
    "CREATE INDEX is_old ON s_old (rid)",
    "CREATE INDEX ia_old ON s_old (at)",
    "CREATE TABLE t_old (hash BLOB, rid INTEGER, PRIMARY KEY (hash, rid)) WITHOUT ROWID",
    "CREATE INDEX it_old ON t_old (rid)",
    "INSERT INTO tables (name, rows) VALUES ('old', 1)",
    "INSERT INTO r_old VALUES (1, NULL, NULL, 1, 1, 5, 6, NULL, x'00', x'01')",
)


def schema(connection: sqlite3.Connection) -> list[str]:
    return [
        text
        for (text,) in connection.execute(
            "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name"
        )
    ]


def test_a_store_of_format_1_becomes_what_a_new_one_is() -> None:
    old = sqlite3.connect(":memory:", isolation_level=None)
    s001_initial.apply(old)
    for statement in BEFORE:
        old.execute(statement)
    s002_beside.apply(old)
    s003_replies.apply(old)
    s004_tallies.apply(old)
    new = sqlite3.connect(":memory:", isolation_level=None)
    run_migrations(new)
    make(new, TableLayout("old", ()))
    assert schema(old) == schema(new)
    assert old.execute(
        "SELECT rid FROM r_old INDEXED BY ic_old WHERE created_at = 5"
    ).fetchall() == [(1,)]
    old.close()
    new.close()
