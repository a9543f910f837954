"""Engines for sealed rows, behind the port ``base.Store``.

A commit is atomic, and durable before it returns. An engine is not trusted with content: it sees
sealed bodies, keyed hashes and columns that a schema declares ``indexed``. ``memory`` is the
reference that tests compare the others with; ``sqlite`` is the embedded engine; ``migrations``
bring an older file to this program's format; ``notes`` keeps named notes under one root. It is the
only room that imports a database driver, and answers with ``VaultError`` and ``Conflict`` alone. A
further engine is a folder here and a line in ``ENGINES``.
"""

from collections.abc import Awaitable, Callable

from proxy.errors import Code, VaultError
from proxy.storage.base import Hooks, Store
from proxy.storage.memory import open_memory
from proxy.storage.sqlite.store import open_sqlite

#: Scheme of the setting ``store``: what opens it, given what follows ``scheme:`` or ``scheme:///``.
#: ``memory:`` keeps nothing beyond the process; it is for tests, and settings that mean it have to
#: say so.
ENGINES: dict[str, Callable[[str, Hooks], Awaitable[Store]]] = {
    "sqlite": open_sqlite,
    "memory": open_memory,
}


async def open_store(uri: str, hooks: Hooks | None = None) -> Store:
    """Open the store of that address: ``sqlite:///folder/vault.db`` (``sqlite:////folder/vault.db``
    from the root).

    Raises ``VaultError``: ``BAD_SETTINGS`` for a scheme that no engine has; otherwise what the
    engine says.
    """
    scheme, _, location = uri.partition(":")
    engine = ENGINES.get(scheme)
    if engine is None:
        raise VaultError(
            Code.BAD_SETTINGS,
            f"The setting store begins with {scheme!r}, which no engine has; there are: "
            f"{', '.join(ENGINES)}.",
        )
    return await engine(location.removeprefix("///"), hooks or Hooks())
