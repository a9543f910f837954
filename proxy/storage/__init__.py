"""Sealed rows in, sealed rows out: the engines that keep them, behind the port ``base.Store``.

Why it exists: the vault's promises (atomic, durable before it returns, read what was written) are made once, in
``base``, and kept by any engine. An engine is not trusted with content: it sees sealed bodies, keyed hashes and
columns that a schema declares ``indexed``. It holds no key and knows no field's meaning.

What it may touch: its own files or connection. It is the only room that imports a database driver, and it answers
with ``VaultError`` and ``Conflict`` alone.

- ``base`` is the port; ``rows``, ``changes`` and ``query`` are what goes through it; ``hooks`` what an engine tells of itself;
  ``cells``, ``names`` and ``asked`` what all engines share; ``holding`` says of one row whether a condition holds.
- ``memory`` (with ``memory_table``, ``memory_query``) is the reference: every verb as plainly as it can be said. Tests use it
  and compare the others with it.
- ``sqlite`` is the embedded engine. A commit is accepted by ``sqlite_writer`` (group commit: flushed by one thread), grouped
  by ``sqlite_segment`` and made durable by ``sqlite_apply``; the SQL of rows stands in ``sqlite_sql`` (many new ones at once: ``sqlite_inserts``), that of what is beside
  them in ``sqlite_beside``. Long questions are planned by ``sqlite_plan``, made of ``sqlite_where`` by ``sqlite_query`` and
  ``sqlite_groups``, and answered on the threads of ``sqlite_readers``. Tables come online through ``sqlite_ddl``, ``sqlite_file`` owns and checks the file,
  ``sqlite_errors`` translates the driver's errors; ``peeking`` reads notes beside the process that owns the file.
- ``migrations`` bring an older file to this program's format.

A further engine is a file here and a line in ``ENGINES``; the conformance suite then runs over it.
"""

from collections.abc import Awaitable, Callable

from proxy.errors import Code, VaultError
from proxy.storage.base import Hooks, Store
from proxy.storage.memory import open_memory
from proxy.storage.sqlite.store import open_sqlite

#: Scheme of the setting ``store``: what opens it, given what follows ``scheme:`` or ``scheme:///``.
#: ``memory:`` keeps nothing beyond the process; it is for tests, and settings that mean it have to say so.
ENGINES: dict[str, Callable[[str, Hooks], Awaitable[Store]]] = {
    "sqlite": open_sqlite,
    "memory": open_memory,
}


async def open_store(uri: str, hooks: Hooks | None = None) -> Store:
    """Open the store of that address: ``sqlite:///folder/vault.db`` (``sqlite:////folder/vault.db`` from the root).

    Raises ``VaultError``: ``BAD_SETTINGS`` for a scheme that no engine has; otherwise what the engine says.
    """
    scheme, _, place = uri.partition(":")
    engine = ENGINES.get(scheme)
    if engine is None:
        raise VaultError(
            Code.BAD_SETTINGS,
            f"The setting store begins with {scheme!r}, which no engine has; there are: {', '.join(ENGINES)}.",
        )
    return await engine(place.removeprefix("///"), hooks or Hooks())
