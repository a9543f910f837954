import ast
import hashlib
import inspect
import re
import sqlite3
import sys

import pytest

from proxy.storage.migrations import FORMAT, STEPS, runner
from proxy.storage.migrations.runner import APPLICATION_ID, run_migrations

#: SHA-256 of each released step's code. A step that stores were made with is never edited: add
#: another one.
RELEASED = ("f2c0ac0150d0cd59", "0fec035d6b1e15e8", "8c19e2ed586faa1a", "c4e685bd1a65d414")


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


def test_only_missing_steps_run_and_a_failed_one_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    run_migrations(connection)

    def second(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE second (a)")

    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE third (a)")
        raise RuntimeError("half way")

    monkeypatch.setattr(runner, "STEPS", (*STEPS, second, broken))
    with pytest.raises(RuntimeError):
        run_migrations(connection)
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
    sources = [inspect.getsource(sys.modules[step.__module__]) for step in STEPS]
    digests = [hashlib.sha256(_code(source).encode()).hexdigest() for source in sources]
    assert len(STEPS) == len(RELEASED)
    for number, (digest, released) in enumerate(zip(digests, RELEASED, strict=True), 1):
        assert digest.startswith(released), (
            f"step {number} was edited after its release ({digest[:16]}); write a new step instead"
        )


def test_steps_are_numbered_in_their_order() -> None:
    assert [step.__module__.rpartition(".")[2][:5] for step in STEPS] == [
        f"s{n:03d}_" for n in range(1, FORMAT + 1)
    ]
