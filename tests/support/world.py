"""The whole interface over a vault of its own, on an engine of choice and a clock that tests own."""

import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from proxy.api.access import bearer
from proxy.api.context import COMMON_STATUSES, Services, Takes
from proxy.api.operations import OPERATIONS
from proxy.audit.chain import VolatileMemory
from proxy.audit.events import EventKind, encode_event
from proxy.audit.log import AuditLog, AuditOptions, open_log
from proxy.audit.verify import Auditor
from proxy.auth import clients
from proxy.auth.approvals import ApprovalRequest, Approvals
from proxy.auth.clients import Grant
from proxy.auth.sealed_notes import SealedNote
from proxy.bootstrap.api import environment_services
from proxy.bootstrap.audit import AuditKeys
from proxy.bootstrap.environments import EnvironmentSet, OpenEnvironment
from proxy.bootstrap.keys import InstanceKeys, Places, vaults_of
from proxy.clock import ManualClock
from proxy.crypto.keyset import Keyset
from proxy.crypto.master_key import MasterKey
from proxy.model.policy_reader import read_policy
from proxy.model.schema import HASHED, RecordKeys, records_schema
from proxy.model.schema_document import read_definition
from proxy.objectstore import open_objects
from proxy.storage import open_store
from proxy.storage.base import Store
from proxy.telemetry.metrics import Metrics
from proxy.vault.environments import Environments, make_keyset
from proxy.vault.schema_store import Origin
from proxy.vault.schemas.catalog import Catalog, open_catalog
from proxy.vault.vault import Vault, VaultOptions, new_vault
from tests.support.api import Client, access, services, serving
from tests.support.audit import Kept, auditing, auditor
from tests.support.auth import Office, office
from tests.support.resident import resident

#: The engines that every case of the interface runs on.
ENGINES = ("memory", "sqlite")


#: Statuses that each operation may answer with; 408 where a body is read.
ALLOWED = {
    operation.name: {operation.success, *operation.also, *operation.failures, *COMMON_STATUSES}
    | (set() if operation.takes is Takes.NOTHING else {408})
    for operation in OPERATIONS
}


@dataclass
class World:
    """Everything a test of the interface turns."""

    client: Client
    services: Services
    store: Store
    vault: Vault
    catalog: Catalog
    clock: ManualClock
    office: Office
    realm: EnvironmentSet
    audit: Kept
    events: Counter[str]  #: of the vaults, by name

    async def declare(
        self, name: str, definition: Mapping[str, Any], environment: str = "default"
    ) -> None:
        """Put a schema in force."""
        await self.realm.spaces[environment].catalog.apply(
            read_definition(name, definition), Origin.API
        )

    async def policy(self, name: str, schema: str, *actions: str, **more: Any) -> None:
        """Put an access policy in force; ``under:NAME`` is a client under it."""
        body = {"schema": schema, "actions": list(actions), **more}
        await self.services.spaces["default"].policies.put(read_policy(name, body))


def oversee(made: Services, folder: Path, note: SealedNote, clock: ManualClock) -> None:
    """Give services a log to read, files to load again, and approvals, which nothing needs."""
    made.auditor, made.reload = reading(folder / "read-log"), reload
    made.approvals = Approvals(note, clock, frozenset(), 3_600_000)


async def prepare(here: World) -> None:
    """Make the one of the name ``chief`` a client, who may take a role in an emergency."""
    chief = clients.Client(
        "chief", "chief", "default", True, "", 0, emergency_roles=("administrator",)
    )
    await here.office.service.clients._put("default", "chief", lambda _: chief)


async def waiting(here: World, client: str) -> str:
    """The id of a request of a client that waits for a second person."""
    assert here.services.approvals is not None
    request = b'{"path":{},"query":{},"content":{"key":"data"}}'
    wanted = ApprovalRequest("rotate_key", "default", client, request)
    return (await here.services.approvals.ask(wanted, lasts=False)).id


class HeldSource:
    """A key source in memory."""

    def __init__(self, master: MasterKey) -> None:
        self._present = master
        self._next: MasterKey | None = None

    def exists(self) -> bool:
        return True

    def load(self) -> MasterKey:
        return self._present

    create = load

    def staged(self) -> MasterKey | None:
        return self._next

    def stage(self) -> MasterKey:
        self._next = self._next or MasterKey(os.urandom(32), [self._present])
        return self._next

    def switch(self) -> None:
        self._present, self._next = self._next or self._present, None


def places(engine: str, folder: Path) -> tuple[str, str]:
    """Addresses of a database and of an object store on that engine."""
    if engine == "memory":
        return "memory:", "memory:"
    return f"sqlite:///{folder / 'vault.db'}", f"file://{folder / 'files'}"


def watched(made: Services) -> set[tuple[str, int]]:
    """Operations with statuses that they have answered with and do not list."""
    unlisted: set[tuple[str, int]] = set()

    def observe(operation: str, status: int, _seconds: float) -> None:
        if status < 500 and status not in ALLOWED[operation]:
            unlisted.add((operation, status))

    made.observe = observe
    return unlisted


def reading(folder: Path) -> Callable[[], Awaitable[Auditor]]:
    """What reads a log of one line, in a folder that is made."""
    log = auditor(folder, encode_event(EventKind.LOG, reason="started"))

    async def opened() -> Auditor:
        return log

    return opened


async def reload() -> dict[str, str | None]:
    """Load rules again, which are as they should be."""
    return {"rules": None}


async def _written_log(
    stack: AsyncExitStack, folder: Path, store: Store, keyset: Keyset
) -> tuple[AuditKeys, AuditLog]:
    """A log on the disk, whose key rotates."""
    keys = await AuditKeys(store, keyset).load()
    options = AuditOptions(folder / "written")
    log = await open_log(options, keys.listed(), ManualClock(), VolatileMemory())
    stack.push_async_callback(log.close)
    return keys, log


def counted(events: Counter[str], event: str, _schema: str, count: int) -> None:
    """Count an event of a vault."""
    events[event] += count


@asynccontextmanager
async def world(
    folder: Path,
    engine: str = "memory",
    *,
    tokens: bool = False,
    keys: RecordKeys = HASHED,
    **given: Any,
) -> AsyncIterator[World]:
    """The interface, served.

    ``tokens``: access by real tokens, in place of the names in ``tests.support.api``.

    ``keys`` says how those of the record-based family are kept.
    """
    clock, master, events = ManualClock(), MasterKey(bytes(range(32))), Counter[str]()
    async with AsyncExitStack() as stack:
        base, shelf = places(engine, folder)
        store = await open_store(base)
        stack.push_async_callback(store.close)
        keyset = await make_keyset(store, master, "default")
        source = HeldSource(master)
        book = Environments(store, keyset, source.load, clock)
        await book.load()

        def vault_of(keyset: Keyset) -> Vault:
            options = VaultOptions(keyset.environment, "SE", 86_400_000, detect_rollback=True)
            return new_vault(keyset, store, clock, partial(counted, events), options)

        async def opening(keyset: Keyset) -> OpenEnvironment:
            vault = vault_of(keyset)
            catalog = await open_catalog(vault, lambda error: None, (records_schema(keys),))
            files = await vault.share_files(contents)
            parts = await environment_services(vault, catalog, files)
            return OpenEnvironment(vault, catalog, parts)

        vault = vault_of(keyset)
        contents = await vault.keep_files(
            await open_objects(shelf), 20 * 2**20, lambda: [found.id for found in book.listed()]
        )
        stack.push_async_callback(contents.close)
        catalog = await open_catalog(vault, lambda error: None, (records_schema(keys),))
        stack.push_async_callback(catalog.close)
        here = await stack.enter_async_context(office(store, keyset, clock))
        realm = EnvironmentSet(book, here.service.clients, opening, Metrics())
        stack.push_async_callback(realm.close)
        parts = await environment_services(vault, catalog, contents)
        await realm.start(OpenEnvironment(vault, catalog, parts), {})
        audit_keys, log = await _written_log(stack, folder, store, keyset)
        where = Places(store, source, here.service.keys, audit_keys, lambda: log)
        ring = InstanceKeys(where, lambda: vaults_of(realm.vaults()), Metrics())
        await stack.enter_async_context(ring.running())
        functions, audit = await stack.enter_async_context(resident()), Kept()
        made = services(
            audit=auditing(audit),
            spaces=realm.spaces,
            environments=realm,
            keys=ring,
            auth=here.service,
            access=bearer(here.service.tokens) if tokens else access,
            **{"body_limit": 4 * 2**20, "functions": functions, **given},
        )
        oversee(made, folder, SealedNote(store, keyset.aead(), "default", "approvals"), clock)
        client = await stack.enter_async_context(serving(made))
        unlisted = watched(made)
        yield World(client, made, store, vault, catalog, clock, here, realm, audit, events)
        assert unlisted == set(), "statuses that the table does not list for their operations"


@dataclass
class Desk:
    """Clients that look after clients, and what they may give."""

    here: World
    tokens: dict[str, str]

    async def hire(self, name: str, **grant: Any) -> None:
        clients = self.here.office.service.clients
        self.tokens[name] = await self.here.office.token(
            await clients.create(name, "default", Grant(**grant))
        )

    async def make(self, as_: str, **members: Any) -> tuple[int, str]:
        body = {"name": "new", "environment_id": "default", **members}
        answer = await self.here.client("POST", "/api/clients", self.tokens[as_], json=body)
        return answer.status, answer.json.get("detail", "")

    async def govern(self, as_: str, name: str, **members: Any) -> tuple[int, str]:
        body = {"schema": "contact", **members}
        answer = await self.here.client("PUT", f"/api/policies/{name}", self.tokens[as_], json=body)
        return answer.status, answer.json.get("detail", "")
