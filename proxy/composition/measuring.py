"""What is told of vaults: events counted and logged, gauges kept fresh, readiness."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from proxy.composition.schemas import measure as measure_schemas
from proxy.errors import VaultError
from proxy.model.environment import DEFAULT
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.vault.catalog import Catalog
from proxy.vault.janitor import pending
from proxy.vault.vault import Vault
from proxy.web.admin import Check

_log = logs.logger("bootstrap")

#: Events that somebody on call has to know of, as log lines.
TOLD: Final = {
    "reaped": "writes that no answer ever settled were dropped after pending.keep",
    "unopenable": "a sealed record does not open: it was changed, moved, or sealed under another key",
    "tampered": "rows have columns that differ from what is sealed in them: somebody wrote to the store",
    "unopenable_file": "an attachment does not open: its row or its content was changed, exchanged or lost",
    "shape_full": "a token shape is nearly full: give the field a larger one",
    "late": "the vault could not be written after the application had answered; settling is tried again",
    "unrestored": "the vault could not be read: answers pass with tokens in place of values",
}


def observer(metrics: Metrics, environment: str = DEFAULT) -> Callable[[str, str, int], None]:
    """What counts the events of a vault, and tells those that somebody has to know of."""
    prefix = prefix_of(environment)

    def observe(event: str, schema: str, count: int) -> None:
        metrics.cell("domicile_vault_events_total", prefix + schema, event).value += count
        if event == "tampered":
            metrics.cell("domicile_alarms_total", event).value += 1
        if event in TOLD:
            _log.warning(TOLD[event], entity=prefix + schema, count=count)

    return observe


def prefix_of(environment: str) -> str:
    """What stands before the names of schemas in labels: nothing for ``default``."""
    return "" if environment == DEFAULT else f"{environment}:"


def report(error: VaultError) -> None:
    """Log what upkeep met."""
    _log.error("upkeep of the vault failed and will be tried again", code=error.code, text=error.message)


def vault_check(vault: Vault) -> Check:
    """Whether the vault can be read, for ``/readyz``."""

    async def check() -> str | None:
        try:
            await pending(tuple(vault.collections()))
        except VaultError as error:
            return error.message
        return None

    return check


async def measure(vaults: Callable[[], Iterable[tuple[Vault, Catalog]]], metrics: Metrics, interval: float) -> None:
    """Keep the gauges of records and pending writes fresh, for ever."""
    while True:
        try:
            for vault, catalog in tuple(vaults()):
                await _measure_once(vault, metrics)
                measure_schemas(catalog, metrics, prefix_of(vault.environment))
        except VaultError as error:
            _log.warning("the vault could not be measured and will be again", code=error.code, text=error.message)
        await asyncio.sleep(interval)


async def _measure_once(vault: Vault, metrics: Metrics) -> None:
    collections = {item.name: item for item in vault.collections()}
    prefix = prefix_of(vault.environment)
    for schema, (rows, waiting, staged) in (await pending(tuple(collections.values()))).items():
        for state, count in (("live", rows - waiting), ("pending", waiting), ("staged", staged)):
            metrics.cell("domicile_records", prefix + schema, state).value = count
        for field, ratio in collections[schema].fill(rows).items():
            metrics.cell("domicile_shape_fill_ratio", prefix + schema, field).value = ratio
