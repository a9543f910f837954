"""Notes of a database that another process owns: read as they are at this moment, nothing is changed and nobody is hindered."""

import sqlite3
from pathlib import Path
from urllib.parse import quote

from proxy.errors import Code, VaultError


def peek(path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """The notes of these names that there are. Raises ``VaultError(BAD_STORE)`` when the file cannot be read."""
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, timeout=5.0)
        try:
            found = {
                name: connection.execute("SELECT content FROM notes WHERE name = ?", (name,)).fetchone()
                for name in names
            }
        finally:
            connection.close()
    except sqlite3.Error:
        raise VaultError(
            Code.BAD_STORE, f"The vault's database {path} cannot be read beside the program that runs on it."
        ) from None
    return {name: row[0] for name, row in found.items() if row is not None}
