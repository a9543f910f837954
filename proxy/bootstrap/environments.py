"""The environments of a running instance: all open, made and removed while requests go on."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from proxy.api.access import schema_of
from proxy.api.context import EnvironmentServices
from proxy.auth.clients import Clients
from proxy.auth.policies import Policies
from proxy.bootstrap.api import environment_services
from proxy.bootstrap.open_vault import vault_options
from proxy.bootstrap.schemas import observer, open_schemas, prefix_of, redeclare
from proxy.clock import Clock
from proxy.config import Settings
from proxy.config.declarations import read_policies
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, Detail, VaultError
from proxy.model.policy import refuse_misfit
from proxy.model.record import DEFAULT, DEFAULTS, Environment
from proxy.storage.base import Store
from proxy.storage.notes import Agreement
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import Reload
from proxy.vault.attachments import Contents
from proxy.vault.environments import Environments, in_use
from proxy.vault.schemas import Catalog
from proxy.vault.vault import Vault, new_vault

_log = logs.logger("environments")


class OpenEnvironment(NamedTuple):
    """An open environment."""

    vault: Vault
    catalog: Catalog
    space: EnvironmentServices


#: Opens an environment by its keyset.
EnvironmentOpener = Callable[[Keyset], Awaitable[OpenEnvironment]]


class EnvironmentSet:
    """All environments. ``start`` before use, ``close`` after it.

    ``spaces`` are those that the interface serves, by id.
    """

    def __init__(
        self, book: Environments, clients: Clients, opening: EnvironmentOpener, metrics: Metrics
    ) -> None:
        self.spaces: dict[str, EnvironmentServices] = {}
        self._book = book
        self._clients = clients
        self._opening = opening
        self._metrics = metrics
        self._opened: dict[str, OpenEnvironment] = {}
        self._changing = asyncio.Lock()
        self._looking = asyncio.Lock()
        self._ended = asyncio.Event()

    async def start(self, default: OpenEnvironment, keysets: Mapping[str, Keyset]) -> None:
        """Open the existing environments; ``default`` is open already."""
        self._install(DEFAULT, default)
        for ident, keyset in keysets.items():
            if ident != DEFAULT:
                self._install(ident, await self._opening(keyset))

    def vaults(self) -> Iterable[tuple[Vault, Catalog]]:
        """Return the open vaults with their catalogs."""
        return [(opened.vault, opened.catalog) for opened in self._opened.values()]

    # ------------------------------------------------------------------ administration

    def listed(self) -> Sequence[Environment]:
        """Return the environments, oldest first."""
        return self._book.listed()

    async def create(self, ident: str | None, name: str) -> Environment:
        """Make an environment, which can be used when this returns.

        Raises as ``Environments.create``, and the errors of the store.
        """
        opened: list[OpenEnvironment] = []

        async def ready(environment: Environment) -> None:
            opened.append(await self._open(environment.id))

        async with self._changing:
            await self._opened[DEFAULT].vault.heard()
            environment = await self._book.create(ident, name, ready)
            self._install(environment.id, opened[0])
        _log.info("an environment was made", environment=environment.id)
        return environment

    async def remove(self, ident: str, *, records: bool) -> None:
        """Remove an environment with everything in it.

        Its tokens end, and nothing of it can be opened, when this returns.

        Raises ``VaultError``: NOT_FOUND; CONFLICT for ``default``; ENVIRONMENT_IN_USE when it holds
        records and ``records`` is false; SCHEMA_BUSY when requests that use it do not end. Its rows
        and files go in the background.
        """
        async with self._changing:
            self._book.removable(ident)
            opened = self._opened[ident]
            await self._refuse_in_use(ident, records)
            del self.spaces[ident]  # from here on no work begins in it
            try:
                await opened.catalog.alone(f"the environment {ident!r}")
                await self._refuse_in_use(ident, records)
                async with self._looking:
                    await self._book.end(ident)
            finally:
                if self._book.find(ident) is None:
                    await self._leave(ident, opened)
                else:
                    self.spaces[ident] = opened.space
        _log.info("an environment was removed, and its keys are destroyed", environment=ident)

    # ------------------------------------------------------------------ other replicas

    #: kinds of notes of schemas and environments
    followed = ("catalog", "environments", "schemas", "searchable")

    async def follow(self, kind: str, part: str, environment: str) -> None:
        """Take what another replica has changed in a note of that kind.

        Raises the errors of the store and of the key source.
        """
        if kind == "environments":
            async with self._changing:
                await self._follow_book()
        elif (opened := self._opened.get(environment)) is not None:
            if kind == "schemas":
                await opened.vault.follow()
            elif kind == "catalog":
                await opened.catalog.follow()
            else:
                await opened.catalog.filling.follow(part)
        elif (replicas := self._opened[DEFAULT].vault.store.replicas) is not None:
            # it is read when the environment is opened
            name = f"{kind}/{part}" if part else kind
            await replicas.agree(Agreement(f"{name}:{environment}", 0))

    async def _follow_book(self) -> None:
        await self._book.load()
        present = {environment.id for environment in self._book.listed()}
        for ident in present - self._opened.keys():
            opened = await self._open(ident)
            await opened.vault.follow()
            await opened.catalog.follow()
            self._install(ident, opened)
            _log.info("another instance has made an environment", environment=ident)

    async def _open(self, ident: str) -> OpenEnvironment:
        keyset = await self._book.keyset(ident)
        opened = await self._opening(keyset)
        await self._clients.join(ident, keyset.aead())
        return opened

    # ------------------------------------------------------------------ maintenance

    async def maintain(self, report: Callable[[VaultError], None]) -> None:
        """Maintain every open vault, then erase what is left of ended environments.

        Faults are reported, and tried again in the next.
        """
        for opened in tuple(self._opened.values()):
            async with self._looking:
                if opened.vault.environment in self._opened:
                    await _reporting(opened.vault.maintain(), report)
        for ident in self._book.doomed():
            await _reporting(self._book.erase(ident), report)
            self._metrics.forget(prefix_of(ident))

    async def run_maintenance(self, interval: float, report: Callable[[VaultError], None]) -> None:
        """Maintain all environments every ``interval`` seconds, at once after one has ended."""
        while True:
            try:
                async with asyncio.timeout(interval):
                    await self._ended.wait()
            except TimeoutError:
                pass
            self._ended.clear()
            await self.maintain(report)

    async def close(self) -> None:
        """Stop; migrations go on at the next start."""
        for opened in self._opened.values():
            await opened.catalog.close()

    # ------------------------------------------------------------------ parts

    def _install(self, ident: str, opened: OpenEnvironment) -> None:
        self._opened[ident] = opened
        self.spaces[ident] = opened.space

    async def _leave(self, ident: str, opened: OpenEnvironment) -> None:
        del self._opened[ident]
        await self._clients.leave(ident)
        await opened.catalog.close()
        self._ended.set()

    async def _refuse_in_use(self, ident: str, records: bool) -> None:
        if not records and await self._book.records(ident):
            raise in_use(ident)


async def _reporting(work: Awaitable[None], report: Callable[[VaultError], None]) -> None:
    try:
        await work
    except VaultError as error:
        report(error)


def opening(
    settings: Settings, store: Store, clock: Clock, metrics: Metrics, contents: Contents
) -> EnvironmentOpener:
    """Opens environments other than ``default``, in the same store and object store."""

    async def opened(keyset: Keyset) -> OpenEnvironment:
        ident = keyset.environment
        vault = new_vault(
            keyset, store, clock, observer(metrics, ident), vault_options(settings, ident)
        )
        files = await vault.share_files(contents)
        catalog = await open_schemas(vault, None, settings.records)
        return OpenEnvironment(vault, catalog, await environment_services(vault, catalog, files))

    return opened


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


async def reread(governed: Governed, settings: Settings) -> bool:
    """Read the files with schemas and those with policies again; whether all of it took effect."""
    took = await redeclare(governed.catalog, settings.schemas, governed.schema_state)
    return await redeclare_policies(governed, settings.policies) and took


async def redeclare_policies(governed: Governed, files: Path | None) -> bool:
    """The same of files that may have changed; return whether they took effect.

    Faults are logged and change nothing.
    """
    try:
        await declare_policies(governed, files)
    except VaultError as error:
        governed.policy_state.failed(error)
        _policy_log.error(
            "policy files rejected; previous policies stay active",
            code=error.code,
            text=error.message,
        )
        for detail in error.details:
            _policy_log.error(
                "a fault in a file with policies", source=detail.source, text=detail.text
            )
        return False
    governed.policy_state.succeeded()
    return True
