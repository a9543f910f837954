"""The keys of a vault that no instance runs on, opened for a command."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from proxy.auth.keys import SigningKeys
from proxy.clock import system_clock
from proxy.composition.keys import Keys, Places
from proxy.composition.stopped import opened
from proxy.composition.stores import key_source, unobserved, vault_options
from proxy.config import Settings
from proxy.model.environment import DEFAULT
from proxy.telemetry.metrics import Metrics
from proxy.vault.registry import places
from proxy.vault.vault import Vault, new_vault

_PAGE = 1000


@asynccontextmanager
async def stopped_keys(settings: Settings) -> AsyncIterator[Keys]:
    """The keys; a rotation of the master key that was interrupted is at its end. Raises as ``stopped``."""
    async with opened(settings) as (store, _, keysets):
        vaults = [
            new_vault(keyset, store, system_clock, unobserved, vault_options(settings, environment))
            for environment, keyset in keysets.items()
        ]
        signing = SigningKeys(store, keysets[DEFAULT].aead(), DEFAULT, system_clock)
        await signing.load()
        keys = Keys(Places(store, key_source(settings.keys), signing), lambda: vaults, Metrics(), reseals=False)
        async with keys.kept():
            yield keys


async def sealed_with(vault: Vault) -> Mapping[str, int]:
    """How many records each data key has sealed, by its id; keys that the keyset does not have, too."""
    counted: Counter[str] = Counter()
    await vault.wake()
    for table in (await places(vault.store, vault.environment)).values():
        after = 0
        while rows := await vault.store.scan(table, after, _PAGE):
            counted.update(row.body[1:5].hex() for row in rows)
            after = rows[-1].rid
    return counted
