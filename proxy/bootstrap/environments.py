"""The environments of a running instance: all open, made and removed while requests go on."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from proxy.api.context import EnvironmentServices
from proxy.auth.clients import Clients
from proxy.bootstrap.api import environment_services
from proxy.bootstrap.open_vault import vault_options
from proxy.bootstrap.schemas import observer, open_schemas, prefix_of, report
from proxy.clock import Clock
from proxy.config import Settings
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.model.record import DEFAULT, Environment
from proxy.storage.base import Store
from proxy.storage.notes import Agreement
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.vault.attachments import Contents
from proxy.vault.environments import Environments, in_use
from proxy.vault.maintenance import Agreeing, agreeing
from proxy.vault.schemas import Catalog
from proxy.vault.vault import Vault, new_vault

_log = logs.logger("environments")

#: Seconds that the end of an environment waits for requests of all instances that use it, and after
#: which what failed is tried again.
_PATIENCE: Final = 10.0
_RETRY: Final = 1.0


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
        self._agreeing: Agreeing | None = None
        self._ends: dict[str, asyncio.Task[None]] = {}  #: what looks after removals of replicas

    async def start(self, default: OpenEnvironment, keysets: Mapping[str, Keyset]) -> None:
        """Open the existing environments; ``default`` is open already."""
        self._install(DEFAULT, default)
        for ident, keyset in keysets.items():
            if ident != DEFAULT:
                self._install(ident, await self._opening(keyset))
        for environment in self._book.listed():
            if environment.ending:
                self._suspend(environment.id)

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
        async with self._book.turn_of_end(ident), self._changing:
            if self._book.removable(ident).ending:
                raise VaultError(
                    Code.SCHEMA_BUSY, f"The environment {ident!r} is being removed; try again."
                )
            opened = self._opened[ident]
            await self._refuse_in_use(ident, records)
            del self.spaces[ident]  # from here on no work begins in it
            try:
                await self._end(ident, records)
            finally:
                if self._book.find(ident) is None:
                    await self._leave(ident, opened)
                else:
                    await self._give_back(ident)
        _log.info("an environment was removed, and its keys are destroyed", environment=ident)

    async def _end(self, ident: str, records: bool) -> None:  # as ``remove``
        """End an environment that this instance serves no more.

        Where there are others it is marked first. Each of them serves it no more, and agrees when
        its earlier requests have ended; the write that ends it passes with the agreement of all
        alone. Whatever fails before gives the environment back, and so does any other instance, or
        the next start, after a death.
        """

        async def end(agreement: Agreement | None) -> None:
            await self._refuse_in_use(ident, records)
            async with self._looking:
                await self._book.end(ident, agreement)

        if self._store.replicas is None:
            await self._opened[ident].catalog.alone(f"the environment {ident!r}")
            await end(None)
        else:
            await self._book.end_with_others(ident, self._take_book, end, _PATIENCE)

    async def _give_back(self, ident: str) -> None:
        """Serve an environment again whose removal has come to nothing."""
        with suppress(VaultError):  # another instance, or the next start, does
            await self._book.give_back(ident)
        if (opened := self._opened.get(ident)) is not None:
            self.spaces[ident] = opened.space

    # ------------------------------------------------------------------ other replicas

    #: kinds of notes of schemas and environments
    followed = ("catalog", "environments", "schemas", "searchable")

    async def follow(self, kind: str, part: str, environment: str) -> None:
        """Take what another replica has changed in a note of that kind.

        Raises the errors of the store and of the key source.
        """
        if kind == "environments":
            async with self._changing:
                await self._take_book()
        elif (opened := self._opened.get(environment)) is not None:
            if kind == "schemas":
                await opened.vault.follow()
            elif kind == "catalog":
                await opened.catalog.follow()
            else:
                await opened.catalog.filling.follow(part)
        elif (replicas := self._store.replicas) is not None:
            # it is read when the environment is opened
            name = f"{kind}/{part}" if part else kind
            await replicas.agree(Agreement(f"{name}:{environment}", 0))

    async def _take_book(self) -> Agreement:
        """Take what another instance has changed; what is agreed to when all requests have ended
        that use what is no more, or may soon be.
        """
        await self._book.load()
        present = {environment.id: environment for environment in self._book.listed()}
        for ident in self._opened.keys() - present.keys():
            self.spaces.pop(ident, None)
            await self._leave(ident, self._opened[ident])
            _log.info("another instance has removed an environment", environment=ident)
        for ident in present.keys() - self._opened.keys():
            opened = await self._open(ident)
            await opened.vault.follow()
            await opened.catalog.follow()
            self._install(ident, opened)
            _log.info("another instance has made an environment", environment=ident)
        for ident, environment in present.items():
            if environment.ending:
                self._suspend(ident)
            elif ident not in self.spaces:
                await self._opened[ident].space.policies.read_again()
                self.spaces[ident] = self._opened[ident].space
        agreement = self._book.agreement
        ending = [ident for ident, environment in present.items() if environment.ending]
        agree = partial(self._agree, agreement, ending)
        self._agreeing = agreeing(self._agreeing, agreement, agree)
        return agreement

    async def _agree(self, agreement: Agreement, ending: Sequence[str]) -> None:
        try:
            for ident in ending:
                await self._opened[ident].catalog.alone(f"the environment {ident!r}")
            if self._store.replicas is not None:
                await self._store.replicas.agree(agreement)
        except VaultError as error:
            _log.warning("the removal of an environment is not agreed to", fault=error)

    def _suspend(self, ident: str) -> None:
        """Serve an environment no more that an instance removes; look after its end."""
        self.spaces.pop(ident, None)
        running = self._ends.get(ident)
        if running is None or running.done():
            self._ends[ident] = asyncio.create_task(self._look_after(ident))

    async def _look_after(self, ident: str) -> None:
        """Give an environment back whose removal has ended with its instance."""
        while True:
            try:
                async with self._book.turn_of_end(ident):
                    await self._book.load()
                    await self._book.give_back(ident)
                async with self._changing:
                    await self._take_book()
            except VaultError as error:
                _log.error("the removal of an environment cannot be taken back yet", fault=error)
                await asyncio.sleep(_RETRY)
            else:
                return

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
            await _reporting(self._erase(ident), report)
            self._metrics.forget(prefix_of(ident))

    async def _erase(self, ident: str) -> None:
        """Erase an ended environment; beside others, when each has left it, and one for all."""
        replicas = self._store.replicas
        if replicas is None or (
            replicas.leads() and not await replicas.disagreeing(self._book.agreement)
        ):
            await self._book.erase(ident)

    async def settled(self) -> None:
        """Wait for migrations under way, and erase what is left of ended environments."""
        for opened in tuple(self._opened.values()):
            for declared in opened.catalog.schemas():
                await opened.catalog.settled(declared.schema.name)
        for ident in self._book.doomed():
            await self._erase(ident)

    async def run_maintenance(
        self, interval: float, report: Callable[[VaultError], None] = report
    ) -> None:
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
        tasks = [*self._ends.values(), *([] if self._agreeing is None else [self._agreeing[1]])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for opened in self._opened.values():
            await opened.catalog.close()

    # ------------------------------------------------------------------ parts

    @property
    def _store(self) -> Store:
        return self._opened[DEFAULT].vault.store

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
