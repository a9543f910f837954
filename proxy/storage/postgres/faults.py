"""Meaning of the driver's errors for the rest of the program

(https://www.postgresql.org/docs/current/errcodes-appendix.html).
"""

from typing import Final

import asyncpg

from proxy.errors import Code, VaultError

_AGAIN: Final = "the change was not stored; the program tries again with the next one"
#: SQLSTATE or its class: text for an error that may pass.
_PASSING: Final = {
    "08": f"The vault's database cannot be reached; {_AGAIN}.",
    "25006": f"The vault's database only reads: it is a standby, or has been set so; {_AGAIN}.",
    "28": f"The vault's database refuses the user or the password; {_AGAIN}.",
    "3D000": f"The server has no database of that name; {_AGAIN}.",
    "40": f"The vault's database ended a transaction for another one; {_AGAIN}.",
    "42501": f"The user of the vault's database lacks a right on the schema; {_AGAIN}.",
    "53100": f"The disk of the vault's database is full: free some space; {_AGAIN}.",
    "53300": f"The server of the vault's database takes no more connections; {_AGAIN}.",
    "53": f"The server of the vault's database lacks memory or room; {_AGAIN}.",
    "55P03": f"Another session of the vault's database has locked what is written; {_AGAIN}.",
    "57": f"The server of the vault's database stops or starts; {_AGAIN}.",
    "58": f"The vault's database cannot be read or written: look at its disk; {_AGAIN}.",
}  # fmt: skip
_DAMAGED: Final = ("XX001", "XX002")
_RACES: Final = ("40001", "40P01")
_LATE: Final = f"The vault's database did not answer in time; {_AGAIN}."


def sqlstate(error: BaseException) -> str:
    """The server's code of an error; empty where it is not the server's."""
    return str(getattr(error, "sqlstate", None) or "")


def is_link_fault(error: BaseException) -> bool:
    """Whether the connection is of no use any more, or never was."""
    if isinstance(error, OSError | TimeoutError | EOFError | asyncpg.InternalClientError):
        return True
    if isinstance(error, asyncpg.InterfaceError) and not isinstance(error, ValueError):
        return True
    if isinstance(error, asyncpg.InvalidCachedStatementError):
        return True  # its prepared statements predate a change of the tables
    return sqlstate(error)[:2] in ("08", "57") or sqlstate(error) == "25006"


def is_race(error: BaseException) -> bool:
    """Whether another session was in the way, so that the same may succeed."""
    return sqlstate(error) in _RACES


def is_locked(error: BaseException) -> bool:
    """Whether another session held a lock for longer than a write waits (``lock_timeout``)."""
    return sqlstate(error) == "55P03"


def is_store_fault(error: BaseException) -> bool:
    """Whether the store is at fault with its whole transaction, rather than one change."""
    state = sqlstate(error)
    return is_link_fault(error) or _passing(state) is not None or state in _DAMAGED


def vault_error(error: BaseException) -> VaultError:
    """The error in our terms, with the driver's as its cause. Never holds a value."""
    if isinstance(error, VaultError):
        return VaultError(error.code, error.message, error.details)
    state = sqlstate(error)
    text = _passing(state)
    if isinstance(error, TimeoutError):
        result = VaultError(Code.VAULT_DOWN, _LATE)
    elif text is not None or is_link_fault(error):
        result = VaultError(Code.VAULT_DOWN, text or _PASSING["08"])
    elif state in _DAMAGED:
        result = VaultError(
            Code.BAD_STORE,
            "The vault's database is damaged: stop the program and restore a backup.",
        )
    else:
        name = f"{type(error).__name__} {state}".rstrip()
        result = VaultError(
            Code.INTERNAL, f"The vault's database refused a change that it should take ({name})."
        )
    result.__cause__ = error
    return result


def _passing(state: str) -> str | None:
    return _PASSING.get(state) or _PASSING.get(state[:2])
