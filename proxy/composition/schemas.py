"""The catalog of schemas as an instance has it: with the files of the settings, its metrics, and a word in the log."""

from collections.abc import Sequence
from pathlib import Path

from proxy.config.schemas import read_schemas
from proxy.errors import VaultError
from proxy.model.builtin import RecordKeys, records_schema
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import Reload
from proxy.vault.catalog import Catalog, open_catalog
from proxy.vault.vault import Vault

_log = logs.logger("schemas")


async def open_schemas(vault: Vault, files: Path | None, keys: RecordKeys) -> Catalog:
    """The catalog of a vault, with the program's own schema and what the files declare in force.

    Raises ``VaultError(INVALID_SCHEMA)`` with every fault.
    """
    catalog = await open_catalog(vault, _report, (records_schema(keys),))
    try:
        await declare(catalog, files)
    except BaseException:  # a stop, too: nobody else has it yet who could close it
        await catalog.close()
        raise
    return catalog


async def declare(catalog: Catalog, files: Path | None) -> None:
    """Put in force what the files declare now, all or none; raises as ``open_schemas``."""
    if files is None:
        return
    written = read_schemas([files])
    for name, applied in (await catalog.declare(written.found, written.place)).items():
        if applied.created or applied.steps:
            _log.info("a schema was declared by a file", entity=name, count=len(applied.steps))


async def redeclare(catalog: Catalog, files: Path | None, state: Reload) -> bool:
    """The same of files that may have changed; faults are logged and change nothing. Whether they took effect."""
    try:
        await declare(catalog, files)
    except VaultError as error:
        state.failed(error)
        _log.error("schemas of files were refused, those before stay in force", code=error.code, text=error.message)
        for detail in error.details:
            _log.error("a fault in a file with schemas", source=detail.source, text=detail.text)
        return False
    state.succeeded()
    return True


def measure(catalog: Catalog, metrics: Metrics, prefix: str = "") -> None:
    """Bring the gauges of migrations up to date; those that have ended stand at their end. ``prefix``: before names of schemas."""
    for declared in catalog.schemas():
        figures: Sequence[tuple[str, int]] = ()
        if declared.progress is not None:
            at = declared.progress
            figures = (("done", at.done), ("total", at.total), ("failed", at.failed))
        elif declared.outcome is not None:
            ended = declared.outcome
            figures = (("done", ended.total), ("total", ended.total), ("failed", ended.failed))
        for state, count in figures:
            metrics.cell("domicile_schema_migration_records", prefix + declared.schema.name, state).value = count


def _report(error: VaultError) -> None:
    _log.error("a migration of a schema failed and will be tried again", code=error.code, text=error.message)
