"""The file of an embedded vault: who owns it, whether it is ours and sound, how it is opened.

One process owns a vault: it holds an exclusive lock on ``<database>.lock`` for as long as it lives.
Two that write one SQLite file starve each other, and one alone would know the record locks.
"""

import fcntl
import os
import resource
import sqlite3
from pathlib import Path
from sqlite3 import Connection
from typing import TypeVar
from urllib.parse import quote

from proxy.errors import Code, VaultError
from proxy.offload import flush_folder
from proxy.storage.sqlite.migrations import APPLICATION_ID, FORMAT, run_migrations
from proxy.storage.sqlite.tallies import Tallies, WriterConnection

_C = TypeVar("_C", bound=Connection)

# For every parameter that is neither text nor number the driver asks for an adapter, which takes
# longer than to store it, unless it is registered.
sqlite3.register_adapter(bytes, bytes)
sqlite3.register_adapter(type(None), {None: None}.__getitem__)

# What SQLite's result codes mean to the rest of the program (https://www.sqlite.org/rescode.html).

_AGAIN = "the change was not stored; the program tries again with the next one"

#: Primary result code: text for an error that may pass without a restart.
_PASSING = {
    sqlite3.SQLITE_FULL: f"The disk of the vault's database is full: free some space; {_AGAIN}.",
    sqlite3.SQLITE_IOERR: f"The vault's database cannot be read or written: look at the disk and its quota; {_AGAIN}.",
    sqlite3.SQLITE_READONLY: f"The vault's database has become read-only: make file and folder writable; {_AGAIN}.",
    sqlite3.SQLITE_BUSY: f"Another program holds the vault's database locked: end it; {_AGAIN}.",
    sqlite3.SQLITE_LOCKED: f"Another program holds the vault's database locked: end it; {_AGAIN}.",
    sqlite3.SQLITE_CANTOPEN: f"The vault's database cannot be opened: look at the rights of file and folder; {_AGAIN}.",
    sqlite3.SQLITE_PERM: f"The vault's database cannot be opened: look at the rights of file and folder; {_AGAIN}.",
    sqlite3.SQLITE_NOMEM: f"There is no memory left for the vault's database; {_AGAIN}.",
    sqlite3.SQLITE_PROTOCOL: f"Another program holds the vault's database locked: end it; {_AGAIN}.",
    sqlite3.SQLITE_INTERRUPT: f"Work on the vault's database was interrupted; {_AGAIN}.",
}

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

#: Extended codes of a row that is there already; other broken constraints are faults of this
#: program.
_TAKEN = frozenset(
    {
        sqlite3.SQLITE_CONSTRAINT_UNIQUE,
        sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
        sqlite3.SQLITE_CONSTRAINT_ROWID,
    }
)


def primary(error: BaseException) -> int:
    """The primary result code of a driver's error; 0 when it carries none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def is_taken(error: sqlite3.IntegrityError) -> bool:
    """Whether the error says that the id or the key of a row is taken."""
    return getattr(error, "sqlite_errorcode", 0) in _TAKEN


def is_of_the_store(error: BaseException) -> bool:
    """Whether the store is at fault with its whole transaction, rather than one change."""
    return primary(error) in _PASSING or primary(error) in _DAMAGED


def translated_error(error: BaseException) -> VaultError:
    """The error in our terms, with the driver's as its cause. Never holds a value."""
    if isinstance(error, VaultError):
        return VaultError(error.code, error.message, error.details)
    code = primary(error)
    if code in _PASSING:
        limited = _size_limit() if code == sqlite3.SQLITE_IOERR else ""  # which SQLite does not say
        text = f"The vault's database cannot be written: {limited}; {_AGAIN}."
        result = VaultError(Code.VAULT_DOWN, text if limited else _PASSING[code])
    elif code in _DAMAGED:
        result = VaultError(
            Code.BAD_STORE,
            "The vault's database is damaged: stop the program and restore a backup.",
        )
    else:
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        result = VaultError(
            Code.INTERNAL, f"The vault's database refused a change that it should take ({name})."
        )
    result.__cause__ = error
    return result


#: Databases up to this many bytes are checked page by page when they are opened (a second for each
#: gigabyte or so); of a larger one only the length is compared with what its header says.
CHECKED = 64 << 20

_MAGIC = b"SQLite format 3\x00"
#: Where the header holds page size, pages, user_version and application_id
#: (https://www.sqlite.org/fileformat.html).
_HEADER = ((16, 18), (28, 32), (60, 64), (68, 72))
_STATEMENTS = 512  #: compiled statements that a connection keeps
#: ``synchronous = FULL``: the log is flushed to disk with each transaction. ``secure_delete``:
#: removed data is overwritten. The log is checkpointed while idle (``SqliteWriter``), or at 20,000 pages.
#: It keeps the length that it has then: where it grows again a commit takes the disk twice as long.
_WRITING = (
    "PRAGMA busy_timeout = 2000", "PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL",
    "PRAGMA wal_autocheckpoint = 20000", "PRAGMA journal_size_limit = 100000000",
    "PRAGMA secure_delete = ON", "PRAGMA cache_size = -16384", "PRAGMA temp_store = MEMORY",
)  # fmt: skip
_READING = ("PRAGMA busy_timeout = 250", "PRAGMA query_only = ON", "PRAGMA temp_store = MEMORY")


class DatabaseFile:
    """A database that this process owns until ``release``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tallies = Tallies()
        self._lock = _claim(path)
        try:
            _prepare(path)
            status = path.stat()
            self._identity = status.st_dev, status.st_ino
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let another process own the database. Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def connect(self) -> WriterConnection:
        """A connection that writes, and keeps the sums of tables."""
        connection = _connect(self.path, "rw", _WRITING, WriterConnection)
        if connection.execute("PRAGMA journal_mode").fetchall() != [("wal",)]:
            connection.close()
            raise VaultError(
                Code.BAD_STORE,
                f"The file system of {self.path} cannot hold a database with a write-ahead log: "
                "put the data folder on a local disk.",
            )
        self.tallies.install(connection)
        return connection

    def connect_reader(self, cache: int = 8192) -> Connection:
        """A read-only connection with a page cache of that size in kilobytes."""
        pragmas = (*_READING, f"PRAGMA cache_size = -{cache}")
        return _connect(self.path, "ro", pragmas, Connection)

    def check(self) -> None:
        """``VaultError(VAULT_DOWN)`` if the opened file has moved: writes would be lost."""
        try:
            status = os.stat(self.path)  # noqa: PTH116  # a third of the time of the method
            moved = (status.st_dev, status.st_ino) != self._identity
        except OSError:
            moved = True
        if moved:
            raise VaultError(
                Code.VAULT_DOWN,
                f"The vault's database {self.path} was moved, removed or exchanged under the "
                "running program: put it back, or restart the program.",
            )


def _connect(path: Path, mode: str, pragmas: tuple[str, ...], kind: type[_C]) -> _C:
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_STATEMENTS,
        factory=kind,
    )
    try:
        for pragma in pragmas:
            connection.execute(pragma).fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def _claim(path: Path) -> int:
    """The descriptor that holds the lock; makes the folder where it is missing."""
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700, parents=True)
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _not_writable(path.parent) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise VaultError(
            Code.STORE_BUSY,
            f"Another process owns the vault's database {path} (`fuser {path}.lock` names it): "
            "end it, or give this one a folder of its own.",
        ) from error
    return lock


def _prepare(path: Path) -> None:
    """Create a missing database, refuse a foreign one, migrate an older format."""
    _refuse_no_file(path)
    fresh = not path.exists() or path.stat().st_size == 0
    if fresh:
        _make(path)
    else:
        _refuse_foreign(path)
    try:
        connection = _connect(path, "rw", (), Connection)
        try:
            _refuse_damaged(connection, path)
            if run_migrations(connection) and fresh:
                flush_folder(path.parent)
        finally:
            connection.close()
    except sqlite3.Error as error:
        fault = translated_error(error)
        if fault.code is not Code.VAULT_DOWN:
            raise _damaged(path) from error
        raise (_full(path) if _has_no_room(error, path) else fault) from error


def refuse_new(path: Path) -> None:
    """Raise what making a database there would, as far as one sees without making anything.

    ``VaultError``: NOT_WRITABLE for the nearest folder that is there, BAD_STORE for a log that has
    lost its database.
    """
    if path.with_name(f"{path.name}-wal").exists():
        raise VaultError(
            Code.BAD_STORE,
            f"There is a log beside {path} but no database: put the database back, or move the log "
            "away and restore a backup.",
        )
    nearest = next(folder for folder in path.parents if os.path.lexists(folder))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise _not_writable(path.parent, "" if nearest.is_dir() else f"{nearest} is no folder")


def _make(path: Path) -> None:
    """An empty file with the right mode.

    Its format is set before the log exists, so that the header never lies.
    """
    refuse_new(path)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise _not_writable(path.parent) from error


def _refuse_no_file(path: Path) -> None:
    """Raise ``VaultError`` (BAD_STORE) for a folder, or a pipe, which would be waited for."""
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "no regular file"
        text = f"{path} is {kind}: move it away and restore a backup, or name another file."
        raise VaultError(Code.BAD_STORE, text)


def _refuse_foreign(path: Path) -> None:
    """Read the header by ourselves: SQLite would already write to a database that it opens."""
    if not os.access(path, os.R_OK | os.W_OK):
        raise _not_writable(path)
    if not os.access(path.parent, os.W_OK | os.X_OK):  # the log is next to it
        raise _not_writable(path.parent)
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise _not_writable(path) from error
    if len(header) < 100 or not header.startswith(_MAGIC):
        raise VaultError(
            Code.BAD_STORE,
            f"{path} is not a database: give the vault another file, or restore a backup.",
        )
    # a migration was cut off: SQLite mends the header first
    if path.with_name(f"{path.name}-journal").exists():
        return
    page, pages, stored, owner = (int.from_bytes(header[a:b], "big") for a, b in _HEADER)
    if owner != APPLICATION_ID:
        raise VaultError(
            Code.BAD_STORE,
            f"{path} is the database of another program: give the vault another file.",
        )
    if stored > FORMAT:
        raise _newer(path, stored)
    if path.stat().st_size < pages * (65536 if page == 1 else page) and not _has_log(path):
        raise _damaged(path)


def _refuse_damaged(connection: Connection, path: Path) -> None:
    stored = int(connection.execute("PRAGMA user_version").fetchall()[0][0])
    if stored > FORMAT:
        raise _newer(path, stored)
    if path.stat().st_size <= CHECKED and connection.execute(
        "PRAGMA quick_check(1)"
    ).fetchall() != [("ok",)]:
        raise _damaged(path)


def _has_log(path: Path) -> bool:
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


def _newer(path: Path, stored: int) -> VaultError:
    return VaultError(
        Code.BAD_STORE,
        f"{path} has format {stored} of a newer version of this program, which reads up to "
        f"format {FORMAT}: start the newer version, or restore a backup.",
    )


def _damaged(path: Path) -> VaultError:
    return VaultError(Code.BAD_STORE, f"{path} is damaged: restore a backup.")


def _not_writable(path: Path, why: str = "") -> VaultError:
    why = why or "give its owner the right to, or name another folder for the data"
    return VaultError(Code.NOT_WRITABLE, f"{path} cannot be written: {why}.")


def _size_limit() -> str:
    """Tell of a limit for the size of files, if this process has one."""
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if most == resource.RLIM_INFINITY:
        return ""
    return f"a file of this process may have {most} bytes: raise ulimit -f, or look at the disk"


def _full(path: Path) -> VaultError:
    return VaultError(
        Code.NOT_WRITABLE,
        f"{path} cannot be written, for its disk is full: free some space, and try again.",
    )


def _has_no_room(error: sqlite3.Error, path: Path) -> bool:
    """Whether the disk is full; SQLite tells of its shared memory (32 KiB) as of any other fault."""
    disk = os.statvfs(path.parent)
    return primary(error) == sqlite3.SQLITE_FULL or disk.f_bavail * disk.f_frsize < 1 << 15


# Notes of a database that another process owns: read as they are now, without changes or locks.


def peek(path: Path) -> dict[str, bytes]:
    """All notes by name. Raises ``VaultError(BAD_STORE)`` when the file cannot be read."""
    _refuse_no_file(path)
    try:
        connection = _connect(path, "ro", ("PRAGMA busy_timeout = 5000",), Connection)
        try:
            return dict(connection.execute("SELECT name, content FROM notes").fetchall())
        finally:
            connection.close()
    except sqlite3.Error:
        raise VaultError(
            Code.BAD_STORE,
            f"The vault's database {path} cannot be read beside the program that runs on it.",
        ) from None


def snapshot(path: Path, target: Path) -> None:
    """Write the database as it is at one moment to a new file, also while another process owns it.

    The copy holds every commit that was durable before the call; writers are not hindered, for they
    write to the log behind it (https://www.sqlite.org/backup.html). ``VaultError``: BAD_STORE where
    it cannot be read, NOT_WRITABLE where the copy cannot be written.
    """
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        source = _connect(path, "ro", ("PRAGMA busy_timeout = 5000",), Connection)
        try:
            copy = _connect(target, "rw", ("PRAGMA synchronous = OFF",), Connection)
            try:
                source.backup(copy)
            finally:
                copy.close()
        finally:
            source.close()
    except sqlite3.Error as error:
        if _has_no_room(error, target):
            raise _full(target) from error
        if primary(error) == sqlite3.SQLITE_IOERR:
            raise _not_writable(target, _size_limit()) from error
        raise VaultError(
            Code.BAD_STORE, f"The vault's database {path} cannot be copied: {error}."
        ) from error
    except OSError as error:
        raise _not_writable(target) from error
