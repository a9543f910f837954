"""What SQLite's result codes mean to the rest of the program (https://www.sqlite.org/rescode.html)."""

import sqlite3

from proxy.errors import Code, VaultError

_AGAIN = "the change was not stored; the program tries again with the next one"

#: Primary result code: what to tell. What is listed here may pass without a restart.
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

#: Extended codes of a row that is there already; other broken constraints are faults of this program.
_TAKEN = frozenset(
    {sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_ROWID}
)


def primary(error: BaseException) -> int:
    """The primary result code of a driver's error; 0 when it carries none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def is_taken(error: sqlite3.IntegrityError) -> bool:
    """Whether the error says that the id or the key of a row is taken."""
    return getattr(error, "sqlite_errorcode", 0) in _TAKEN


def is_of_the_store(error: BaseException) -> bool:
    """Whether the store is at fault, and with it everything in the same transaction, rather than one change."""
    return primary(error) in _PASSING or primary(error) in _DAMAGED


def translated(error: BaseException) -> VaultError:
    """The error in our terms, with the driver's as its cause. Never holds a value."""
    if isinstance(error, VaultError):
        return VaultError(error.code, error.message, error.details)
    code = primary(error)
    if code in _PASSING:
        result = VaultError(Code.VAULT_DOWN, _PASSING[code])
    elif code in _DAMAGED:
        result = VaultError(Code.BAD_STORE, "The vault's database is damaged: stop the program and restore a backup.")
    else:
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        result = VaultError(Code.INTERNAL, f"The vault's database refused a change that it should take ({name}).")
    result.__cause__ = error
    return result
