"""A vault that no instance runs on, opened for a command: its clients, its environments, its records.

A command that changes rights or keys gives its ``Record``, which leaves lines in the audit log.

Everything here raises ``VaultError``: BAD_STORE where there is no vault, STORE_BUSY while an instance runs on it, BAD_KEYS.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from proxy.auth.clients import Clients
from proxy.auth.opening import open_clients, open_policies
from proxy.auth.passwords import Passwords
from proxy.auth.policies import Policies
from proxy.clock import system_clock
from proxy.composition.access import apart
from proxy.composition.files import open_files
from proxy.composition.recorded import Record, recorded
from proxy.composition.stores import open_environments, open_with_key, refuse_no_vault, unobserved, vault_options
from proxy.config import Settings
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.model.environment import DEFAULT
from proxy.storage.base import Store
from proxy.vault.contents import Contents
from proxy.vault.environments import Environments, in_use
from proxy.vault.registry import wake
from proxy.vault.vault import Vault, new_vault


@asynccontextmanager
async def stopped_clients(settings: Settings, record: Record | None = None) -> AsyncIterator[Clients]:
    """The clients of all environments."""
    passwords = Passwords()
    try:
        async with opened(settings, record) as (store, _, keysets):
            yield await open_clients(store, keysets, passwords, system_clock, apart=apart(settings))
    finally:
        passwords.close()


@asynccontextmanager
async def stopped_access(
    settings: Settings, record: Record | None = None
) -> AsyncIterator[tuple[Clients, dict[str, Policies]]]:
    """The same, and the access policies of each environment."""
    passwords = Passwords()
    try:
        async with opened(settings, record) as (store, _, keysets):
            clients = await open_clients(store, keysets, passwords, system_clock, apart=apart(settings))
            yield clients, {ident: await open_policies(store, keyset) for ident, keyset in keysets.items()}
    finally:
        passwords.close()


@asynccontextmanager
async def stopped_vault(
    settings: Settings, environment: str = DEFAULT, record: Record | None = None
) -> AsyncIterator[tuple[Vault, Contents]]:
    """One environment's records and files. Also raises ``VaultError(NOT_FOUND)`` when there is no such environment."""
    async with stopped_vaults(settings, record) as vaults:
        for vault, contents in vaults:
            if vault.environment == environment:
                yield vault, contents
                return
        known = ", ".join(vault.environment for vault, _ in vaults)
        raise VaultError(Code.NOT_FOUND, f"There is no environment of that id: there is {known}.")


@asynccontextmanager
async def stopped_vaults(
    settings: Settings, record: Record | None = None
) -> AsyncIterator[list[tuple[Vault, Contents]]]:
    """Records and files of every environment, ``default`` first."""
    async with AsyncExitStack() as stack:
        store, _, keysets = await stack.enter_async_context(opened(settings, record))
        vaults = [
            new_vault(keyset, store, system_clock, unobserved, vault_options(settings, environment))
            for environment, keyset in keysets.items()
        ]
        contents = await open_files(settings, vaults[0], keysets.keys)
        stack.push_async_callback(contents.close)
        yield [(vaults[0], contents), *[(vault, await vault.share_files(contents)) for vault in vaults[1:]]]


class StoppedEnvironments:
    """The environments of a vault that no instance runs on."""

    def __init__(self, store: Store, book: Environments) -> None:
        self.book = book
        self._store = store

    async def remove(self, ident: str, *, records: bool) -> int:
        """Remove an environment with everything in it; how many records that were. One that was being removed is removed to its end.

        Raises ``VaultError``: NOT_FOUND, CONFLICT for ``default``, ENVIRONMENT_IN_USE when it holds records and ``records`` is false.
        """
        held = 0
        if ident not in self.book.doomed():
            found = self.book.removable(ident)
            await wake(self._store, found.id)
            held = await self.book.records(found.id)
            if held and not records:
                raise in_use(ident)
        await self.book.end(ident)
        await self.book.erase(ident)
        return held


@asynccontextmanager
async def stopped_environments(settings: Settings, record: Record | None = None) -> AsyncIterator[StoppedEnvironments]:
    """The environments, to be listed, made and removed."""
    async with opened(settings, record) as (store, book, _):
        yield StoppedEnvironments(store, book)


@asynccontextmanager
async def opened(
    settings: Settings, record: Record | None = None
) -> AsyncIterator[tuple[Store, Environments, dict[str, Keyset]]]:
    """The store, the book of environments, and the keyset of each, ``default`` first. ``record``: what is to be changed there."""
    refuse_no_vault(settings)
    store, _ = await open_with_key(settings)
    try:
        book, keysets = await open_environments(settings, store)
        if record is not None:
            record.use(settings, store, keysets[DEFAULT])
        async with recorded(record):
            yield store, book, keysets
    finally:
        await store.close()
