"""What ``domicile policy`` does: on the store of a stopped vault, or over HTTP on an instance that runs (``--url``).

Both show the same: what ``/api/policies`` answers.
"""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Protocol

from proxy.auth.policies import Policies
from proxy.cli import declared, remote
from proxy.cli.command import Arguments
from proxy.cli.declared import Json
from proxy.config import Settings
from proxy.errors import Code, VaultError
from proxy.model.environment import DEFAULT
from proxy.model.limits import DEFAULTS
from proxy.model.policy import Policy, refuse_misfit, write_policy
from proxy.vault.catalog import Catalog

if TYPE_CHECKING:
    from proxy.composition.recorded import Record
    from proxy.web.guard.reach import Reach


class Governing(declared.Declared, Protocol):
    """Where policies are looked at and put in force."""

    async def check(self, policy: Policy) -> None:
        """Refuse one that cannot be put in force, where that can be told before."""

    async def apply(self, policy: Policy) -> Json:
        """Put one in force; ``created`` tells whether it is new."""


class Stored:
    """The policies of a vault that no instance runs on."""

    def __init__(self, policies: Policies, catalog: Catalog, reach: "Reach | None", record: "Record") -> None:
        self._record = record
        self._policies = policies
        self._catalog = catalog
        self._reach = reach

    async def check(self, policy: Policy) -> None:
        from proxy.web.api.policies import beyond, schema_of

        refuse_misfit(policy, schema_of(self._catalog, policy), DEFAULTS, beyond(policy, self._reach))

    async def apply(self, policy: Policy) -> Json:
        await self._record.ready()
        created = await self._policies.put(policy)
        self._record.did(policy.name)
        return {**await self.one(policy.name), "created": created}

    async def listed(self) -> Sequence[Json]:
        return [await self.one(policy.name) for policy in self._policies.listed()]

    async def one(self, name: str) -> Json:
        from proxy.web.api.policies import shown

        found = self._policies.find(name)
        if found is None:
            raise VaultError(Code.NOT_FOUND, "There is no policy of that name.")
        return shown(found, self._catalog, self._reach)


class Served(declared.Served):
    """The policies of an instance that runs."""

    def __init__(self, instance: remote.Remote) -> None:
        super().__init__(instance, "/api/policies")

    async def check(self, policy: Policy) -> None:
        """It is checked when it is sent."""

    async def apply(self, policy: Policy) -> Json:
        told = self._put(policy.name, write_policy(policy))
        return {**told.content, "created": told.status == 201}


@contextlib.asynccontextmanager
async def opened(arguments: Arguments, settings: Settings) -> AsyncIterator[Governing]:
    """The policies of the instance that ``--url`` names, else of the stopped vault of the settings."""
    if arguments.url is not None:
        with contextlib.closing(remote.remote(arguments)) as instance:
            yield Served(instance)
        return
    from proxy.composition.interface import policies_of
    from proxy.web.guard.reach import Reach

    async with declared.stopped(arguments, settings, "put_policy") as (vault, catalog, record):
        reach = None if vault.environment == DEFAULT else Reach(settings.acl.allow)
        yield Stored(await policies_of(vault), catalog, reach, record)
