"""What ``domicile policy`` does: on the store of a stopped vault, or over HTTP on an instance that runs (``--url``).

Both show the same: what ``/api/policies`` answers.
"""

import contextlib
import urllib.parse
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from proxy.auth.policies import Policies
from proxy.cli import remote
from proxy.cli.command import Arguments
from proxy.config import Settings
from proxy.errors import Code, VaultError
from proxy.model.environment import DEFAULT
from proxy.model.limits import DEFAULTS
from proxy.model.policy import Policy, refuse_misfit, write_policy
from proxy.vault.catalog import Catalog

if TYPE_CHECKING:
    from proxy.web.guard.reach import Reach

Json = dict[str, Any]


class Governing(Protocol):
    """Where policies are looked at and put in force. Every method raises ``VaultError`` as the interface refuses."""

    async def check(self, policy: Policy) -> None:
        """Refuse one that cannot be put in force, where that can be told before."""

    async def apply(self, policy: Policy) -> Json:
        """Put one in force; ``created`` tells whether it is new."""

    async def listed(self) -> Sequence[Json]:
        """All of them."""

    async def one(self, name: str) -> Json:
        """One of them."""


class Stored:
    """The policies of a vault that no instance runs on."""

    def __init__(self, policies: Policies, catalog: Catalog, reach: "Reach | None") -> None:
        self._policies = policies
        self._catalog = catalog
        self._reach = reach

    async def check(self, policy: Policy) -> None:
        from proxy.web.api.policies import beyond, schema_of

        refuse_misfit(policy, schema_of(self._catalog, policy), DEFAULTS, beyond(policy, self._reach))

    async def apply(self, policy: Policy) -> Json:
        created = await self._policies.put(policy)
        return {**await self.one(policy.name), "created": created}

    async def listed(self) -> Sequence[Json]:
        return [await self.one(policy.name) for policy in self._policies.listed()]

    async def one(self, name: str) -> Json:
        from proxy.web.api.policies import shown

        found = self._policies.find(name)
        if found is None:
            raise VaultError(Code.NOT_FOUND, "There is no policy of that name.")
        return shown(found, self._catalog, self._reach)


class Served:
    """The policies of an instance that runs."""

    def __init__(self, instance: remote.Remote) -> None:
        self._instance = instance

    async def check(self, policy: Policy) -> None:
        """It is checked when it is sent."""

    async def apply(self, policy: Policy) -> Json:
        told = self._asked("PUT", f"/{urllib.parse.quote(policy.name)}", write_policy(policy))
        return {**told.content, "created": told.status == 201}

    async def listed(self) -> Sequence[Json]:
        found: list[Json] = []
        while True:
            content = self._asked("GET", f"?offset={len(found)}").content
            found += content["data"]
            if not content["data"] or len(found) >= content["meta"]["total"]:
                return found

    async def one(self, name: str) -> Json:
        content: Json = self._asked("GET", f"/{urllib.parse.quote(name)}").content
        return content

    def _asked(self, method: str, path: str, content: Any = None) -> remote.Told:
        told = self._instance.ask(method, f"/api/policies{path}", content)
        if told.status >= 300:
            raise remote.refusal(told)
        return told


@contextlib.asynccontextmanager
async def opened(arguments: Arguments, settings: Settings) -> AsyncIterator[Governing]:
    """The policies of the instance that ``--url`` names, else of the stopped vault of the settings."""
    if arguments.url is not None:
        with contextlib.closing(remote.remote(arguments)) as instance:
            yield Served(instance)
        return
    from proxy.composition.interface import policies_of
    from proxy.composition.schemas import open_schemas
    from proxy.composition.stopped import stopped_vault
    from proxy.web.guard.reach import Reach

    try:
        async with stopped_vault(settings, arguments.environment) as (vault, _):
            catalog = await open_schemas(vault, None, settings.records)
            try:
                reach = None if vault.environment == DEFAULT else Reach(settings.acl.allow)
                yield Stored(await policies_of(vault), catalog, reach)
            finally:
                await catalog.close()
    except VaultError as error:
        if error.code is not Code.STORE_BUSY:
            raise
        text = f"An instance runs on this vault: name it with --url, and its client with {remote.CLIENT_ID} and {remote.CLIENT_SECRET}."
        raise VaultError(Code.STORE_BUSY, text) from None
