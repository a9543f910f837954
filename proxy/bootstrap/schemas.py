"""Schemas and access policies of an instance, with the settings' files; metrics of vault, store."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from proxy.admin.app import ReadinessCheck
from proxy.api.access import schema_of
from proxy.auth.policies import Policies
from proxy.config import Settings
from proxy.config.declarations import read_policies, read_schemas
from proxy.errors import Code, Detail, VaultError
from proxy.model.policy import refuse_misfit
from proxy.model.record import DEFAULT, DEFAULTS
from proxy.model.schema import RecordKeys, records_schema
from proxy.storage.base import Hooks
from proxy.telemetry import logs
from proxy.telemetry.metrics import HistogramRow, MetricCell, Metrics
from proxy.telemetry.reloads import Reload
from proxy.vault.maintenance import pending
from proxy.vault.schemas import Catalog, open_catalog
from proxy.vault.vault import Vault

_log = logs.logger("schemas")


async def open_schemas(vault: Vault, files: Path | None, keys: RecordKeys) -> Catalog:
    """The catalog of a vault, with the built-in schema and the declarations of files applied.

    Raises ``VaultError(INVALID_SCHEMA)`` with every fault.
    """
    catalog = await open_catalog(vault, _report, (records_schema(keys),))
    try:
        await declare(catalog, files)
    except BaseException:  # also for a stop: no other replica could close it yet
        await catalog.close()
        raise
    return catalog


async def declare(catalog: Catalog, files: Path | None) -> None:
    """Apply the current declarations of the files, all or none; raises as ``open_schemas``."""
    if files is None:
        return
    written = read_schemas([files])
    for name, applied in (await catalog.declare(written.declared, written.position)).items():
        if applied.created or applied.steps:
            _log.info("a schema was declared by a file", entity=name, count=len(applied.steps))


async def redeclare(catalog: Catalog, files: Path | None, state: Reload) -> bool:
    """The same of files that may have changed; return whether they took effect.

    Faults are logged and change nothing.
    """
    try:
        await declare(catalog, files)
    except VaultError as error:
        state.rejected(
            _log,
            error,
            "schema files rejected; previous schemas stay active",
            "a fault in a file with schemas",
        )
        return False
    state.succeeded()
    return True


def measure_schemas(catalog: Catalog, metrics: Metrics, prefix: str = "") -> None:
    """Bring the gauges of migrations up to date; those that have ended stand at their end.

    ``prefix``: before names of schemas.
    """
    for declared in catalog.schemas():
        figures: Sequence[tuple[str, int]] = ()
        if declared.progress is not None:
            at = declared.progress
            figures = (("done", at.done), ("total", at.total), ("failed", at.failed))
        elif declared.outcome is not None:
            ended = declared.outcome
            figures = (("done", ended.total), ("total", ended.total), ("failed", ended.failed))
        for state, count in figures:
            metrics.cell(
                "domicile_schema_migration_records", prefix + declared.schema.name, state
            ).value = count


def _report(error: VaultError) -> None:
    _log.error("a migration of a schema failed and will be retried", fault=error)


# The access policies of an environment as an instance has them: with the files of the settings, and
# a word in the log.

_policy_log = logs.logger("access")

#: What everybody may know of a fault in files of the operator; the log names file and line.
_STALE: Final = (
    "Files with {} have a fault, and the previous ones are active: the log names the place."
)


class Governed(NamedTuple):
    """The policies of an environment, its schemas, and the state of the files of both."""

    policies: Policies
    catalog: Catalog
    schema_state: Reload
    policy_state: Reload

    @property
    def states(self) -> list[Reload]:
        """States of the files that may be stale."""
        return [self.schema_state, self.policy_state]

    async def reread(self, settings: Settings) -> bool:
        """Read the files with schemas and those with policies again; whether all took effect."""
        took = await redeclare(self.catalog, settings.schemas, self.schema_state)
        return await redeclare_policies(self, settings.policies) and took


async def declare_policies(governed: Governed, files: Path | None) -> None:
    """Apply the current declarations of the files, all or none.

    Raises ``VaultError(INVALID_POLICY)`` with every fault and its line.
    """
    policies, catalog = governed.policies, governed.catalog
    if files is None:
        return
    declared = read_policies([files])
    faults: list[Detail] = []
    for policy in declared.declared:
        try:
            refuse_misfit(policy, schema_of(catalog, policy), DEFAULTS)
        except VaultError as error:
            faults.extend(
                Detail(declared.position(policy.name, at), text) for at, text in error.details
            )
    if faults:
        raise VaultError(
            Code.INVALID_POLICY,
            "Policies in files do not fit the schemas that they name.",
            tuple(faults),
        )
    for name in await policies.declare(declared.declared):
        _policy_log.info("an access policy was declared by a file", source=name)


async def govern(
    policies: Policies, catalog: Catalog, files: Path | None, metrics: Metrics
) -> Governed:
    """Open policies and schemas, and apply the declared policies.

    Call it after the rules, whose entities have schemas, too.
    """
    states = (Reload(metrics, what, _STALE.format(what)) for what in ("schemas", "policies"))
    governed = Governed(policies, catalog, *states)
    await declare_policies(governed, files)
    return governed


async def redeclare_policies(governed: Governed, files: Path | None) -> bool:
    """The same of files that may have changed; return whether they took effect.

    Faults are logged and change nothing.
    """
    try:
        await declare_policies(governed, files)
    except VaultError as error:
        governed.policy_state.rejected(
            _policy_log,
            error,
            "policy files rejected; previous policies stay active",
            "a fault in a file with policies",
        )
        return False
    governed.policy_state.succeeded()
    return True


# Observation of vaults: events counted and logged, gauges kept fresh, readiness.

_metrics_log = logs.logger("bootstrap")

#: Events that an operator has to know of, as log lines.
WARNINGS: Final = {
    "reaped": "writes that no answer ever settled were dropped after pending.keep",
    "unopenable": "a sealed record does not open: it was changed, moved, or sealed under another key",
    "tampered": "rows have columns that differ from what is sealed in them: somebody wrote to the store",
    "altered": "rows were put back, removed or added in the store by somebody else than this program",
    "unopenable_file": "an attachment does not open: its row or its content was changed, exchanged or lost",
    "shape_full": "a token shape is nearly full: give the field a larger one",
    "versions_full": (
        "a record had more earlier values than are kept of it: the oldest ended, and the "
        "application shows tokens where it still has that version"
    ),
    "page_full": "a page held more tokens than one answer restores: the others stayed tokens",
    "late": (
        "the vault could not be written after the application had answered; settling is tried again"
    ),
    "unrestored": "the vault could not be read: answers pass with tokens in place of values",
}

#: Events caused by foreign writes to the store: each is an alarm of kind tampered.
_ALARMS: Final = frozenset({"tampered", "altered", "unopenable", "unopenable_file"})


def observer(metrics: Metrics, environment: str = DEFAULT) -> Callable[[str, str, int], None]:
    """Return a function that counts events of a vault and reports the alarming ones."""
    prefix = prefix_of(environment)
    cells: dict[tuple[str, str], MetricCell] = {}

    def observe(event: str, schema: str, count: int) -> None:
        cell = cells.get((event, schema))
        if cell is None:
            cell = metrics.cell("domicile_vault_events_total", prefix + schema, event)
            cells[event, schema] = cell
        cell.value += count
        if event in _ALARMS:
            metrics.cell("domicile_alarms_total", "tampered").value += 1
        if event in WARNINGS:
            _metrics_log.warning(WARNINGS[event], entity=prefix + schema, count=count)

    return observe


def hooks_of(metrics: Metrics) -> Hooks:
    """Hooks that measure commits, and count who answers questions."""
    commits = HistogramRow(metrics.buckets("domicile_vault_commit_seconds"))

    def note(_size: int, seconds: float) -> None:  # for each group: no call of ``observe``
        commits.waiting.append((seconds,))
        if len(commits.waiting) >= commits.MOST:
            commits.count()

    hooks = Hooks(note)
    metrics.watch("domicile_vault_writer_queue", lambda: float(hooks.waiting()))
    hooks.on_question = partial(metrics.count, "domicile_vault_questions_total")
    return hooks


def prefix_of(environment: str) -> str:
    """Return the prefix of schema names in labels: none for ``default``."""
    return "" if environment == DEFAULT else f"{environment}:"


def report(error: VaultError) -> None:
    """Log what maintenance met."""
    _metrics_log.error("maintenance of the vault failed and will be retried", fault=error)


def vault_check(vault: Vault) -> ReadinessCheck:
    """Whether the vault can be read, for ``/readyz``."""

    async def check() -> str | None:
        try:
            await pending(tuple(vault.collections()))
        except VaultError as error:
            return error.message
        return None

    return check


async def measure(
    vaults: Callable[[], Iterable[tuple[Vault, Catalog]]], metrics: Metrics, interval: float
) -> None:
    """Keep the gauges of records and pending writes fresh, for ever."""
    while True:
        try:
            for vault, catalog in tuple(vaults()):
                await _measure_once(vault, metrics)
                measure_schemas(catalog, metrics, prefix_of(vault.environment))
        except VaultError as error:
            _metrics_log.warning(
                "the vault could not be measured and will be measured again", fault=error
            )
        await asyncio.sleep(interval)


async def _measure_once(vault: Vault, metrics: Metrics) -> None:
    collections = {item.name: item for item in vault.collections()}
    prefix = prefix_of(vault.environment)
    for schema, (rows, waiting, staged) in (await pending(tuple(collections.values()))).items():
        for state, count in (("live", rows - waiting), ("pending", waiting), ("staged", staged)):
            metrics.cell("domicile_records", prefix + schema, state).value = count
        for field, ratio in collections[schema].fill(rows).items():
            metrics.cell("domicile_shape_fill_ratio", prefix + schema, field).value = ratio
