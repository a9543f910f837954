"""The keys of a vault that no instance runs on, opened for a command."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proxy.auth.keys import SigningKeys
from proxy.clock import system_clock
from proxy.composition.keys import Keys, Places
from proxy.composition.recorded import Record
from proxy.composition.stopped import opened, stopped_vaults
from proxy.composition.stores import key_source, unobserved, vault_options
from proxy.config import Settings
from proxy.model.environment import DEFAULT
from proxy.telemetry.metrics import Metrics
from proxy.vault.keyuse import look
from proxy.vault.vault import new_vault


@asynccontextmanager
async def stopped_keys(settings: Settings, record: Record | None = None) -> AsyncIterator[Keys]:
    """The keys; a rotation of the master key that was interrupted is at its end. Raises as ``stopped``."""
    async with opened(settings, record) as (store, _, keysets):
        vaults = [
            new_vault(keyset, store, system_clock, unobserved, vault_options(settings, environment))
            for environment, keyset in keysets.items()
        ]
        signing = SigningKeys(store, keysets[DEFAULT].aead(), DEFAULT, system_clock)
        await signing.load()
        keys = Keys(Places(store, key_source(settings.keys), signing), lambda: vaults, Metrics(), reseals=False)
        async with keys.kept():
            yield keys


async def sealed_with(settings: Settings) -> dict[str, dict[str, dict[str, int]]]:
    """What each data key has sealed: by environment, by id of the key, how many of each kind. Raises as ``stopped``.

    Keys that the keyset does not have are counted, too.
    """
    async with stopped_vaults(settings) as vaults:
        return {
            vault.environment: {key: dict(kinds) for key, kinds in (await look(vault)).counted.items()}
            for vault, _ in vaults
        }
