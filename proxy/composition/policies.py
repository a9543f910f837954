"""The access policies of an environment as an instance has them: with the files of the settings, and a word in the log."""

from pathlib import Path
from typing import Final, NamedTuple

from proxy.auth.policies import Policies
from proxy.composition.schemas import redeclare
from proxy.config import Settings
from proxy.config.policies import read_policies
from proxy.errors import Code, Detail, VaultError
from proxy.model.limits import DEFAULTS
from proxy.model.policy import refuse_misfit
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import Reload
from proxy.vault.catalog import Catalog
from proxy.web.api.policies import schema_of

_log = logs.logger("access")

#: What everybody may know of a fault in files of the operator; the log names file and line.
_STALE: Final = "Files with {} have a fault, and those before are in force: the log names the place."


class Governed(NamedTuple):
    """The policies of an environment, the schemas that they may name, and whether the files of both are in force."""

    policies: Policies
    catalog: Catalog
    schema_state: Reload
    policy_state: Reload

    @property
    def states(self) -> list[Reload]:
        """What may be stale."""
        return [self.schema_state, self.policy_state]


async def declare_policies(governed: Governed, files: Path | None) -> None:
    """Put in force what the files declare now, all or none. Raises ``VaultError(INVALID_POLICY)`` with every fault and its line."""
    policies, catalog = governed.policies, governed.catalog
    if files is None:
        return
    declared = read_policies([files])
    faults: list[Detail] = []
    for policy in declared.found:
        try:
            refuse_misfit(policy, schema_of(catalog, policy), DEFAULTS)
        except VaultError as error:
            faults.extend(Detail(declared.place(policy.name, at), text) for at, text in error.details)
    if faults:
        raise VaultError(Code.INVALID_POLICY, "Policies in files do not fit the schemas that they name.", tuple(faults))
    for name in await policies.declare(declared.found):
        _log.info("an access policy was declared by a file", source=name)


async def govern(policies: Policies, catalog: Catalog, files: Path | None, metrics: Metrics) -> Governed:
    """Policies and schemas, with what files declare of the former in force; after rules, whose entities have schemas, too."""
    states = (Reload(metrics, what, _STALE.format(what)) for what in ("schemas", "policies"))
    governed = Governed(policies, catalog, *states)
    await declare_policies(governed, files)
    return governed


async def reread(governed: Governed, settings: Settings) -> bool:
    """Read the files with schemas and those with policies again; whether all of it took effect."""
    took = await redeclare(governed.catalog, settings.schemas, governed.schema_state)
    return await redeclare_policies(governed, settings.policies) and took


async def redeclare_policies(governed: Governed, files: Path | None) -> bool:
    """The same of files that may have changed; faults are logged and change nothing. Whether they took effect."""
    try:
        await declare_policies(governed, files)
    except VaultError as error:
        governed.policy_state.failed(error)
        _log.error("policies of files were refused, those before stay in force", code=error.code, text=error.message)
        for detail in error.details:
            _log.error("a fault in a file with policies", source=detail.source, text=detail.text)
        return False
    governed.policy_state.succeeded()
    return True
