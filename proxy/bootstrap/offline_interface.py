"""The vault's own interface on a vault that no instance runs on, for a command in this process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, TypeVar

from proxy.api.access import OperatorAccess
from proxy.api.app import vault_app
from proxy.api.audit import Auditing, RightsTo
from proxy.api.connection import LOCAL
from proxy.api.context import Services
from proxy.audit.events import SUBJECTS, AuditContext
from proxy.audit.services import no_audit
from proxy.bootstrap.api import environment_services, limits, open_access
from proxy.bootstrap.audit import AuditKeys
from proxy.bootstrap.environments import EnvironmentSet, OpenEnvironment, opening
from proxy.bootstrap.keys import InstanceKeys, Places, vaults_of
from proxy.bootstrap.offline import OfflineChanges, open_offline
from proxy.bootstrap.open_vault import key_source, open_files, unobserved, vault_options
from proxy.bootstrap.schemas import open_schemas
from proxy.clock import system_clock
from proxy.config import Settings
from proxy.errors import Code, VaultError
from proxy.functions.runner import Bounds, Runner
from proxy.model.record import DEFAULT
from proxy.net.client_address import Trusted
from proxy.net.listener import ConnectionOpener, own_connections
from proxy.net.outbound import EgressPolicy
from proxy.storage.base import Store
from proxy.telemetry.metrics import Metrics
from proxy.vault.maintenance import is_alone
from proxy.vault.vault import new_vault

_IN_USE: Final = "Instances run on this vault: name one of them with --url, or stop all of them."

_Answer = TypeVar("_Answer")


class OfflineInterface:
    """The operations of the interface, as a running instance has them; one request at a time."""

    def __init__(
        self,
        store: Store,
        environments: EnvironmentSet,
        audit: "_CommandAuditing",
        connect: ConnectionOpener,
    ) -> None:
        self._store, self._environments, self._audit = store, environments, audit
        self.connect = connect

    async def answer(self, send: Callable[[], _Answer], *, changes: bool) -> _Answer:
        """The answer that ``send`` gets, in another thread; what the request rewrites or erases
        is done then. ``changes``: whether it may change anything.

        Raises ``VaultError`` where nothing may be changed: NOT_WRITABLE, AUDIT_DOWN,
        REPLICAS_RUNNING.
        """
        if changes:
            if not await is_alone(self._store):
                raise VaultError(Code.REPLICAS_RUNNING, _IN_USE)
            await self._audit.record.ready()
        self._audit.changes = changes
        answer = await asyncio.to_thread(send)
        if changes:
            await self._environments.settled()
        return answer


class _CommandAuditing(Auditing):
    """The lines of requests of a command: those of changes, which the user of the machine made."""

    changes = False  #: whether the request under way may change anything

    def __init__(self, record: OfflineChanges) -> None:
        super().__init__(no_audit())
        self.record = record

    async def answered(
        self, audit: AuditContext, status: int, rights_to: RightsTo, *, repeated: bool = False
    ) -> None:
        """Write the line of a change that is about to be answered."""
        del rights_to, repeated
        if status >= 400:
            self.refused(audit, status, "")
        elif self.changes:
            self.record.about(operation=audit.operation, environment=audit.environment)
            names = (audit.path[name] for name in SUBJECTS if name in audit.path)
            self.record.did(audit.subject or next(names, audit.schema))

    def refused(self, audit: AuditContext, status: int, code: str) -> None:
        """Write that a change came to nothing."""
        del status
        if self.changes:
            self.record.about(operation=audit.operation, environment=audit.environment)
            self.record.refused(code)


@asynccontextmanager
async def offline_interface(settings: Settings) -> AsyncIterator[OfflineInterface]:
    """Open the vault and serve its interface to this process, whose user administers all of it.

    A rotation of the master key that was interrupted is at its end; data under older keys is left
    for the next instance.
    """
    audit, metrics, clock = _CommandAuditing(OfflineChanges()), Metrics(), system_clock
    async with AsyncExitStack() as stack:
        parts = await stack.enter_async_context(open_offline(settings, audit.record))
        store, book, keysets = parts
        auth = await open_access(settings, store, keysets, clock, metrics)
        stack.callback(auth.close)
        vault = new_vault(keysets[DEFAULT], store, clock, unobserved, vault_options(settings))
        contents = await open_files(settings, vault, keysets.keys)
        stack.push_async_callback(contents.close)
        opened = opening(settings, store, clock, metrics, contents)
        environments = EnvironmentSet(book, auth.clients, opened, metrics)
        stack.push_async_callback(environments.close)
        catalog = await open_schemas(vault, None, settings.records)
        stack.push_async_callback(catalog.close)
        services = await environment_services(vault, catalog, contents)
        await environments.start(OpenEnvironment(vault, catalog, services), keysets)
        audit_keys = await AuditKeys(store, keysets[DEFAULT]).load()
        source, log = key_source(settings.keys), lambda: audit.record.log
        places = Places(store, source, auth.keys, audit_keys, log)
        keys = InstanceKeys(
            places, lambda: vaults_of(environments.vaults()), metrics, reseals=False
        )
        app = vault_app(
            Services(
                spaces=environments.spaces,
                environments=environments,
                access=OperatorAccess(environments.spaces),
                body_limit=settings.limits.body,
                auth=auth,
                trusted=Trusted(()),
                country=settings.country,
                limits=limits(settings),
                audit=audit,
                functions=Runner({}, Bounds(1.0, 1, 1), lambda _: 500),
                keys=await stack.enter_async_context(keys.running()),
                egress=EgressPolicy(settings.acl.allow),
            )
        )
        app[LOCAL] = environments.spaces
        connect = await stack.enter_async_context(own_connections(app))
        yield OfflineInterface(store, environments, audit, connect)
