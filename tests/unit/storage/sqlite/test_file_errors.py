import sqlite3

import pytest

from proxy.errors import Code, VaultError
from proxy.storage.sqlite.file import is_of_the_store, is_taken, primary, translated_error


def driver_error(code: int, kind: type[sqlite3.Error] = sqlite3.OperationalError) -> sqlite3.Error:
    error = kind("some words that may hold a value")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "ours"),
    [
        (sqlite3.SQLITE_FULL, Code.VAULT_DOWN),
        (sqlite3.SQLITE_IOERR_FSYNC, Code.VAULT_DOWN),
        (sqlite3.SQLITE_READONLY_DBMOVED, Code.VAULT_DOWN),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, Code.VAULT_DOWN),
        (sqlite3.SQLITE_CANTOPEN, Code.VAULT_DOWN),
        (sqlite3.SQLITE_CORRUPT_INDEX, Code.BAD_STORE),
        (sqlite3.SQLITE_NOTADB, Code.BAD_STORE),
        (sqlite3.SQLITE_MISMATCH, Code.INTERNAL),
        (sqlite3.SQLITE_CONSTRAINT_NOTNULL, Code.INTERNAL),
    ],
)
def test_result_codes_become_ours_and_keep_their_cause(code: int, ours: Code) -> None:
    error = driver_error(code)
    result = translated_error(error)
    assert result.code is ours
    assert result.__cause__ is error
    assert "words" not in result.message
    assert is_of_the_store(error) is (ours is not Code.INTERNAL)


def test_an_error_without_a_code_is_a_fault_of_this_program() -> None:
    error = OverflowError("int too large: 123")
    assert (translated_error(error).code, primary(error), is_of_the_store(error)) == (
        Code.INTERNAL,
        0,
        False,
    )
    assert "OverflowError" in translated_error(error).message
    assert "123" not in translated_error(error).message


def test_our_own_errors_stay_but_are_not_shared() -> None:
    error = VaultError(Code.VAULT_DOWN, "moved")
    result = translated_error(error)
    assert (result.code, result.message) == (error.code, error.message)
    assert result is not error


def test_only_taken_ids_and_keys_are_conflicts() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b BLOB UNIQUE, c NOT NULL)")
    connection.execute("INSERT INTO t VALUES (1, 1, 1)")
    for values, taken in (("1, 2, 2", True), ("2, 1, 2", True), ("2, 2, NULL", False)):
        with pytest.raises(sqlite3.IntegrityError) as caught:
            connection.execute(f"INSERT INTO t VALUES ({values})")
        assert is_taken(caught.value) is taken
    connection.close()
