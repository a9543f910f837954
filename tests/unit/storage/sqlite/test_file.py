import os
import resource
import sqlite3
import stat
from pathlib import Path

import pytest

from proxy.errors import Code, VaultError
from proxy.storage import open_store
from proxy.storage.sqlite import file as sqlite_file
from proxy.storage.sqlite.file import (
    DatabaseFile,
    is_of_the_store,
    is_taken,
    peek,
    primary,
    translated_error,
)
from proxy.storage.sqlite.migrations import APPLICATION_ID, FORMAT
from tests.support.table import table


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "vault.db"


@pytest.fixture
def made(path: Path) -> Path:
    """A database of some pages, closed again."""
    file = DatabaseFile(path)
    connection = file.connect()
    connection.execute("CREATE TABLE filler (a)")
    connection.executemany(
        "INSERT INTO filler VALUES (?)", [(os.urandom(3000),) for _ in range(50)]
    )
    connection.close()
    file.release()
    return path


def refusal(path: Path) -> VaultError:
    """The refusal of that file, which must change nothing in its folder but the lock."""
    before = contents(path.parent)
    with pytest.raises(VaultError) as caught:
        DatabaseFile(path)
    assert contents(path.parent) == before
    return caught.value


def contents(folder: Path) -> dict[str, bytes]:
    if not folder.is_dir():
        return {}
    return {
        one.name: one.read_bytes()
        for one in folder.iterdir()
        if one.is_file() and one.suffix != ".lock"
    }


def test_folder_and_files_are_for_their_owner_alone(path: Path) -> None:
    file = DatabaseFile(path)
    connection = file.connect()
    connection.execute("INSERT INTO notes VALUES ('a', x'00')")
    modes = {
        one.name: stat.S_IMODE(one.stat().st_mode) for one in (path.parent, *path.parent.iterdir())
    }
    assert modes == {
        "data": 0o700, "vault.db": 0o600, "vault.db-wal": 0o600, "vault.db-shm": 0o600, "vault.db.lock": 0o600,
    }  # fmt: skip
    connection.close()
    file.release()


def test_a_new_database_carries_our_mark_in_its_header(path: Path) -> None:
    DatabaseFile(path).release()
    header = path.read_bytes()[:100]
    assert int.from_bytes(header[68:72], "big") == APPLICATION_ID
    assert int.from_bytes(header[60:64], "big") == FORMAT


def test_writing_is_durable_and_reading_cannot_write(path: Path) -> None:
    file = DatabaseFile(path)
    connection, reader = file.connect(), file.connect_reader()

    def pragma(name: str) -> object:
        return connection.execute(f"PRAGMA {name}").fetchall()[0][0]

    assert (pragma("journal_mode"), pragma("synchronous"), pragma("secure_delete")) == ("wal", 2, 1)
    assert pragma("wal_autocheckpoint") == 20000
    frames = int(str(pragma("journal_size_limit"))) / (24 + int(str(pragma("page_size"))))
    assert frames > 20000 * 1.1, "it would grow again after each checkpoint"
    with pytest.raises(sqlite3.OperationalError):
        reader.execute("INSERT INTO notes VALUES ('a', x'00')")
    reader.close()
    connection.close()
    file.release()


@pytest.mark.parametrize(
    "name", ["with space.db", "100%41.db", "a?mode=ro.db", "a#b.db", "ångström.db"]
)
def test_any_file_name_will_do(tmp_path: Path, name: str) -> None:
    file = DatabaseFile(tmp_path / name)
    file.connect().close()
    file.connect_reader().close()
    file.release()
    assert (tmp_path / name).exists()


def test_one_process_owns_a_database(made: Path) -> None:
    file = DatabaseFile(made)
    error = refusal(made)
    assert error.code is Code.STORE_BUSY
    assert "Another process" in error.message
    file.release()
    file.release()
    DatabaseFile(made).release()


def test_a_refusal_gives_the_lock_back(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"x" * 5000)
    refusal(path)
    path.unlink()
    DatabaseFile(path).release()


@pytest.mark.parametrize("content", [b"hello", b"{}" * 3000, b"SQLite format 3\x00 and no more"])
def test_what_is_no_database_is_refused(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    error = refusal(path)
    assert error.code is Code.BAD_STORE
    assert "not a database" in error.message


def test_the_database_of_another_program_is_refused(path: Path) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    error = refusal(path)
    assert error.code is Code.BAD_STORE
    assert "another program" in error.message


def test_a_newer_format_is_refused(made: Path) -> None:
    connection = sqlite3.connect(made)
    connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    connection.close()
    error = refusal(made)
    assert error.code is Code.BAD_STORE
    assert "newer version" in error.message


def test_a_newer_format_that_only_the_log_knows_is_refused(made: Path) -> None:
    connection = sqlite3.connect(made, isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    log = made.with_name("vault.db-wal").read_bytes()
    main = made.read_bytes()
    connection.close()
    made.write_bytes(main)
    made.with_name("vault.db-wal").write_bytes(log)
    with pytest.raises(VaultError) as caught:
        DatabaseFile(made)
    assert "newer version" in caught.value.message


@pytest.mark.parametrize("place", [0.3, 0.6, 0.9])
def test_a_damaged_page_is_refused(made: Path, place: float) -> None:
    content = bytearray(made.read_bytes())
    page = int(len(content) / 4096 * place) * 4096
    content[page : page + 4096] = b"\xff" * 4096
    made.write_bytes(content)
    with pytest.raises(VaultError) as caught:
        DatabaseFile(made)
    assert caught.value.code is Code.BAD_STORE
    assert "damaged" in caught.value.message


def test_a_file_that_was_cut_off_is_refused_even_when_it_is_too_large_to_be_checked(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "CHECKED", 0)
    content = made.read_bytes()
    made.write_bytes(content[: len(content) // 2 // 4096 * 4096])
    error = refusal(made)
    assert error.code is Code.BAD_STORE
    made.write_bytes(content)
    DatabaseFile(made).release()


def test_a_large_database_is_opened_without_reading_it(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "CHECKED", 0)
    content = bytearray(made.read_bytes())
    content[-4096:] = b"\xff" * 4096
    made.write_bytes(content)
    DatabaseFile(made).release()


def test_an_empty_file_is_a_new_database(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    DatabaseFile(path).release()
    assert path.stat().st_size > 0


def test_a_log_without_its_database_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.with_name("vault.db-wal").write_bytes(b"log")
    error = refusal(path)
    assert error.code is Code.BAD_STORE
    assert "log" in error.message


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error = refusal(tmp_path / "file" / "vault.db")
    assert error.code is Code.NOT_WRITABLE


def test_what_would_keep_a_new_database_from_being_made_is_told_beforehand(tmp_path: Path) -> None:
    sqlite_file.refuse_new(tmp_path / "new" / "data" / "vault.db")
    (tmp_path / "file").touch()
    (tmp_path / "vault.db-wal").touch()
    for path, code, why in (
        (tmp_path / "file" / "data" / "vault.db", Code.NOT_WRITABLE, "is no folder"),
        (tmp_path / "vault.db", Code.BAD_STORE, "There is a log"),
    ):
        with pytest.raises(VaultError, match=why) as caught:
            sqlite_file.refuse_new(path)
        assert caught.value.code is code
    assert {path.name for path in tmp_path.iterdir()} == {"file", "vault.db-wal"}


def test_a_folder_in_the_place_of_the_database_is_refused(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "x").touch()
    with pytest.raises(VaultError) as caught:
        DatabaseFile(path)
    assert caught.value.code in {Code.NOT_WRITABLE, Code.BAD_STORE}


@pytest.mark.parametrize("what", ["moved", "removed", "exchanged"])
def test_a_file_that_left_its_place_is_noticed(made: Path, what: str) -> None:
    file = DatabaseFile(made)
    file.check()
    away = made.with_name("away.db")
    made.rename(away)
    if what == "removed":
        away.unlink()
    if what == "exchanged":
        made.write_bytes(away.read_bytes())
    with pytest.raises(VaultError) as caught:
        file.check()
    assert caught.value.code is Code.VAULT_DOWN
    if what == "moved":
        away.rename(made)
        file.check()
    file.release()


def test_a_file_system_without_a_log_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "_WRITING", ("PRAGMA journal_mode = DELETE",))
    file = DatabaseFile(path)
    with pytest.raises(VaultError) as caught:
        file.connect()
    assert "local disk" in caught.value.message
    file.release()


def driver_error(code: int, kind: type[sqlite3.Error] = sqlite3.OperationalError) -> sqlite3.Error:
    error = kind("some words that may hold a value")
    error.sqlite_errorcode = code
    return error


@table(
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


async def test_notes_are_read_beside_the_process_that_owns_the_database(tmp_path):
    path = tmp_path / "vault.db"
    store = await open_store(f"sqlite:///{path}")
    await store.put_note("one", b"1", None)
    assert peek(path) == {"one": b"1"}
    await store.put_note("two", b"2", None)
    assert peek(path) == {"one": b"1", "two": b"2"}
    await store.close()


def test_what_is_no_database_is_told(tmp_path):
    (tmp_path / "vault.db").write_bytes(b"x" * 5000)
    for path in (tmp_path / "vault.db", tmp_path / "none.db"):
        with pytest.raises(VaultError) as raised:
            peek(path)
        assert raised.value.code is Code.BAD_STORE


@table(
    ("code", "free", "full"),
    [
        (sqlite3.SQLITE_FULL, 1 << 30, True),
        (sqlite3.SQLITE_IOERR_SHMSIZE, 4096, True),
        (sqlite3.SQLITE_IOERR_SHMSIZE, 1 << 30, False),
    ],
)
def test_a_full_disk_is_told_as_such_at_a_start_and_of_a_copy(
    made: Path, monkeypatch: pytest.MonkeyPatch, code: int, free: int, full: bool
) -> None:
    def refuse(*_: object) -> None:
        raise driver_error(code)

    class Disk:
        f_bavail, f_frsize = free, 1

    monkeypatch.setattr(sqlite_file, "_connect", refuse)
    monkeypatch.setattr(os, "statvfs", lambda _: Disk)
    copy = made.with_name(f"copy {code} {free}")
    for work in (DatabaseFile, lambda path: sqlite_file.snapshot(path, copy)):
        with pytest.raises(VaultError) as caught:
            work(made)
        assert ("its disk is full: free some space" in caught.value.message) is full


def test_a_limit_for_the_size_of_files_is_not_told_as_a_lack_of_rights(made: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        with pytest.raises(VaultError, match="8192 bytes: raise ulimit -f") as caught:
            sqlite_file.snapshot(made, made.with_name("copy"))
        assert "right" not in caught.value.message
        assert "ulimit -f" in translated_error(driver_error(sqlite3.SQLITE_IOERR_WRITE)).message
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "ulimit" not in translated_error(driver_error(sqlite3.SQLITE_IOERR_WRITE)).message
