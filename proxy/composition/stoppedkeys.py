"""The keys of a vault that no instance runs on, opened for a command."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

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


class Sealed(NamedTuple):
    """What the data keys of one environment have sealed, by their ids; keys that the keyset does not have, too."""

    records: dict[str, int]
    sealed: dict[str, dict[str, int]]  #: of every kind


async def sealed_with(settings: Settings) -> dict[str, Sealed]:
    """Look at everything in every environment; what was found, by environment. Raises as ``stopped``."""
    async with stopped_vaults(settings) as vaults:
        found: dict[str, Sealed] = {}
        for vault, _ in vaults:
            counted = {key: dict(kinds) for key, kinds in (await look(vault)).counted.items()}
            records = {key: kinds["records"] for key, kinds in counted.items() if "records" in kinds}
            found[vault.environment] = Sealed(records, counted)
        return found
