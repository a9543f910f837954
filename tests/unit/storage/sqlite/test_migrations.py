import ast
import hashlib
import inspect
import re
import sqlite3

import pytest

from proxy.storage.rows import TableLayout
from proxy.storage.sqlite.migrations import (
    APPLICATION_ID,
    FORMAT,
    STEPS,
    add_aux_tables,
    add_reply_links,
    add_tallies,
    make_notes_and_tables,
    run_migrations,
)
from proxy.storage.sqlite.statements import Statements, make, used_parts

#: SHA-256 of each released step's code. A step that stores were made with is never edited: add
#: another one.
RELEASED = ("c715669a317d7084", "05f7e841a04a92c2", "40bf3e0070af3697", "9b3e57f0ec063192")


def pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchall()[0][0])


def test_an_empty_file_becomes_the_present_format() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    assert run_migrations(connection) == FORMAT
    assert (pragma(connection, "user_version"), pragma(connection, "application_id")) == (
        FORMAT,
        APPLICATION_ID,
    )
    assert run_migrations(connection) == 0
    connection.close()


def test_only_missing_steps_run_and_a_failed_one_leaves_no_trace() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    run_migrations(connection)

    def second(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE second (a)")

    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE third (a)")
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError):
        run_migrations(connection, (*STEPS, second, broken))
    names = {
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    }
    assert "second" in names
    assert "third" not in names
    assert pragma(connection, "user_version") == FORMAT + 1
    connection.close()


def _code(source: str) -> str:
    """The letters of a step without docstrings, blanks and quotes: line ends may be edited."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            first, last = node.body[0].lineno, node.body[0].end_lineno or 0
            lines[first - 1 : last] = [""] * (last - first + 1)
    return re.sub(r"#.*|f(?=\")|[\s\"(),]", "", "\n".join(lines))


def test_released_steps_are_never_edited() -> None:
    sources = [inspect.getsource(step) for step in STEPS]
    digests = [hashlib.sha256(_code(source).encode()).hexdigest() for source in sources]
    assert len(STEPS) == len(RELEASED)
    for number, (digest, released) in enumerate(zip(digests, RELEASED, strict=True), 1):
        assert digest.startswith(released), (
            f"step {number} was edited after its release ({digest[:16]}); write a new step instead"
        )


def test_format_1_has_notes_and_the_list_of_tables() -> None:
    connection = sqlite3.connect(":memory:")
    make_notes_and_tables(connection)
    connection.execute("INSERT INTO notes VALUES ('keys', x'00')")
    connection.execute("INSERT INTO tables VALUES ('r1', 0)")
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema ORDER BY name")]
    assert names == ["notes", "tables"]
    connection.close()


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
    make_notes_and_tables(old)
    for statement in BEFORE:
        old.execute(statement)
    add_aux_tables(old)
    add_reply_links(old)
    add_tallies(old)
    new = sqlite3.connect(":memory:", isolation_level=None)
    run_migrations(new)
    make(new, TableLayout("old", ()))
    assert schema(old) == schema(new)
    assert old.execute(
        "SELECT rid FROM r_old INDEXED BY ic_old WHERE created_at = 5"
    ).fetchall() == [(1,)]
    old.close()
    new.close()


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
    add_reply_links(old)
    add_tallies(old)
    assert schema(old) == schema(new)
    sql = Statements(TableLayout("old", ()))
    old.execute("INSERT INTO r_old VALUES (7, NULL, NULL, 1, 1, 5, 6, NULL, x'00', x'01')")
    assert used_parts(old, "old").links
    for text in (sql.blank, sql.unlink):
        old.execute(text, (7,))
    assert old.execute("SELECT key, sealed FROM i_old ORDER BY key").fetchall() == [
        (b"a", b""),
        (b"b", b""),
    ]
    assert not used_parts(old, "old").links
    old.close()
    new.close()


def test_a_table_of_format_3_has_no_sum_yet() -> None:
    old = sqlite3.connect(":memory:", isolation_level=None)
    for step in STEPS[:3]:
        step(old)
    old.execute("INSERT INTO tables (name, rows) VALUES ('old', 1)")
    add_tallies(old)
    assert old.execute("SELECT * FROM tables").fetchall() == [("old", 1, None)]
    old.close()
