"""The names that a layout may bring: they become part of statements, so nothing else may pass."""

import re

from proxy.errors import Code, VaultError
from proxy.storage.rows import Layout

_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")


def check_names(layout: Layout) -> None:
    """``VaultError(INTERNAL)`` when a name of the layout is not ``[a-z][a-z0-9_]{0,47}`` or a column comes twice."""
    names = [column.name for column in layout.columns]
    for name in (layout.table, *names):
        if not _NAME.fullmatch(name):
            raise VaultError(Code.INTERNAL, f"{name!r} cannot name a table or a column of the store.")
    if len(set(names)) != len(names):
        raise VaultError(Code.INTERNAL, f"The layout of {layout.table} names a column twice.")


def unknown(table: str) -> VaultError:
    """The error of a table that nobody has ensured since the store was opened."""
    return VaultError(Code.INTERNAL, f"The table {table} is not known: ensure its layout before it is used.")


def closed() -> VaultError:
    """The error of a store that is used after ``close``."""
    return VaultError(Code.VAULT_DOWN, "The vault's store is closed: the program is stopping.")


def changed_meanwhile(note: str) -> VaultError:
    """The error of a note that somebody else has written since it was read."""
    return VaultError(Code.CONFLICT, f"The note {note} of the store was changed by another process: read it again.")
