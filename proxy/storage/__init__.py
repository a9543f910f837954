"""Engines for sealed rows, behind the port ``base.Store``.

A commit is atomic, and durable before it returns. An engine is not trusted with content: it sees
sealed bodies, keyed hashes and columns that a schema declares ``indexed``. ``sqlite`` is the
embedded engine; ``postgres`` serves more than one machine; tests hold both to one in memory. It is
the only room that imports a database driver, and raises only ``VaultError`` and ``Conflict``. A
further engine is a folder here and a line in ``ENGINES``. Face: what stands here, ``base``,
``changes``, ``rows``, ``query``, ``notes`` (named notes under one root), ``transfer``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxy.errors import Code, VaultError

if TYPE_CHECKING:  # a probe that reads settings loads no event loop
    from proxy.storage.base import Engine, Hooks, OpenStore


class EngineEntry(NamedTuple):
    """An entry of ``ENGINES``: where the engine is, and how the setting ``store`` names a store.

    Of functions there are the names, ``module:name``: they are imported where they are used.
    """

    engine: str  #: an ``Engine``
    described: str  #: what an address of it is, for errors
    form: str  #: how to write one
    #: reads an address into an object with its public ``label``, or raises ``ValueError``; none:
    #: what follows the scheme is the whole path of a file
    address: str = ""


#: Scheme of the setting ``store`` -> its engine.
ENGINES: Final[dict[str, EngineEntry]] = {
    "sqlite": EngineEntry(
        "proxy.storage.sqlite.store:SQLITE",
        "a SQLite file",
        "sqlite:/// and the whole path of a file",
    ),
    "postgresql": EngineEntry(
        "proxy.storage.postgres.store:POSTGRESQL",
        "a PostgreSQL database",
        "the address of a PostgreSQL database, such as "
        "postgresql://user@host:5432/database?sslmode=verify-full",
        "proxy.storage.postgres.address:parse_address",
    ),
}


def imported(name: str) -> Any:
    """The object of a name as in ``EngineEntry``."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def engine_of(uri: str) -> tuple["Engine", str]:
    """The engine of an address, and the location that it is to open there.

    Raises ``VaultError(BAD_SETTINGS)`` for a scheme that no engine has.
    """
    scheme, _, location = uri.partition(":")
    if scheme not in ENGINES:
        raise VaultError(
            Code.BAD_SETTINGS,
            f"The setting store begins with {scheme!r}, which no engine has; there are: "
            f"{', '.join(ENGINES)}.",
        )
    engine: Engine = imported(ENGINES[scheme].engine)
    return engine, uri if engine.whole else location.removeprefix("///")


def _for_one_owner(uri: str) -> str:
    base, mark, parameters = uri.partition("?")
    return base + mark + parameters.replace("replicas=true", "replicas=false")


def may_be_shared(uri: str) -> bool:
    """Whether several instances may own the store of that address together."""
    return _for_one_owner(uri) != uri


async def open_store(uri: str, hooks: "Hooks | None" = None) -> "OpenStore":
    """Open the store of that address: ``sqlite:///folder/vault.db`` (``sqlite:////folder/vault.db``
    from the root), ``postgresql://user@host/database``.

    ``hooks``: of an instance; anything else has the store for itself, whatever the address says.

    Raises ``VaultError``: ``BAD_SETTINGS`` for an unknown scheme; otherwise the errors of the
    engine.
    """
    engine, location = engine_of(_for_one_owner(uri) if hooks is None else uri)
    return await engine.open(location, hooks or imported("proxy.storage.base:Hooks")())
