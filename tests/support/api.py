"""The vault's own interface: operations of a test's own on a free port, or the whole of it over a
vault of its own, on an engine of choice and a clock that tests own.

``python -m tests.support.api`` serves it as a process, on a vault in the scratch folder, for tools
from outside: it prints its address and the token to send, and serves until it is ended.
"""

import asyncio
import os
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import aiohttp
from aiohttp import web

from proxy.api.access import BearerAccess
from proxy.api.app import vault_app
from proxy.api.connection import VaultConnection
from proxy.api.context import (
    COMMON_STATUSES,
    ApiHandler,
    ApiOperation,
    ApiRequest,
    ApiResponse,
    EnvironmentServices,
    Services,
    Takes,
)
from proxy.api.operation_table import OPERATIONS
from proxy.audit.chain import VolatileMemory
from proxy.audit.events import EventKind, encode_event
from proxy.audit.log import AuditLog, AuditOptions, open_log
from proxy.audit.verify import Auditor
from proxy.auth import clients
from proxy.auth.approvals import ApprovalRequest, Approvals
from proxy.auth.clients import Grant
from proxy.auth.policies import Policies
from proxy.auth.sealed_notes import SealedNote
from proxy.bootstrap.api import environment_services
from proxy.bootstrap.audit import AuditKeys
from proxy.bootstrap.environments import EnvironmentSet, OpenEnvironment
from proxy.bootstrap.keys import InstanceKeys, Places, vaults_of
from proxy.crypto.keyset import Keyset
from proxy.crypto.master_key import MasterKey
from proxy.errors import Code, VaultError
from proxy.model.policy_reader import read_policy
from proxy.model.rights import Principal, Role
from proxy.model.schema import HASHED, RecordKeys, records_schema
from proxy.model.schema_document import read_definition
from proxy.net.client_address import Trusted
from proxy.net.listener import listen
from proxy.objectstore import open_objects
from proxy.storage import open_store
from proxy.storage.base import Store
from proxy.telemetry.metrics import Metrics
from proxy.vault.environments import Environments, make_keyset
from proxy.vault.records.repository import Records
from proxy.vault.schema_store import Origin
from proxy.vault.schemas import Catalog, DeclaredSchema, open_catalog
from proxy.vault.vault import Vault, VaultOptions, new_vault
from tests.support.audit import Kept, auditing, auditor
from tests.support.auth import Office, office
from tests.support.clock import ManualClock
from tests.support.examples import CONTACT, KEPT, RECORDS
from tests.support.memory import MemoryStore
from tests.support.resident import resident

#: What the tests' own access check takes.
TOKENS = {
    "writer": Principal("writer", "default"),
    "chief": Principal("chief", "default", admin=True),
    "acme": Principal("acme", "acme"),
    "chief of acme": Principal("chief of acme", "acme", admin=True),
    **{str(role): Principal(role, "default", roles=(role,)) for role in Role},
}


#: Begins the name of a client under the policies that follow, separated by commas.
UNDER = "under:"


class Access:
    """Names in place of tokens."""

    async def __call__(self, request: web.Request) -> Principal:
        principal = self.principal_of(
            request.headers.get("Authorization", "").removeprefix("Bearer ")
        )
        if principal is None:
            raise VaultError(Code.UNAUTHORIZED, "An access token is needed.")
        return principal

    def principal_of(self, name: str) -> Principal | None:
        if name.startswith(UNDER):
            return Principal(name, "default", policies=tuple(name.removeprefix(UNDER).split(",")))
        return TOKENS.get(name)


access = Access()


async def once(call: ApiRequest, handler: ApiHandler) -> ApiResponse:
    """Every request is carried out."""
    return await handler(call)


class NoSchemas:
    """A catalog without anything in it."""

    def using(self) -> AbstractContextManager[None]:
        return nullcontext()

    def records(self, name: str) -> Records:
        raise VaultError(Code.UNKNOWN_SCHEMA, f"There is no {name}.")

    def schemas(self) -> list[DeclaredSchema]:
        return []


def no_policies() -> Policies:
    """The policies of an environment that has none."""
    keyset = Keyset.create("default")
    return Policies(SealedNote(MemoryStore(), keyset.aead(), "default", "policies"), keyset.hasher)


def services(**given: Any) -> Services:
    """Services of a test, with one environment; what it does not give is not there."""
    here: dict[str, Any] = {
        "catalog": NoSchemas(),
        "once": once,
        "policies": no_policies(),
        "contents": None,
    }
    here |= {name: given.pop(name) for name in here if name in given}
    made = {
        "spaces": {"default": EnvironmentServices(**here)},
        "access": access,
        "body_limit": 4096,
        "country": "se",
    }
    given.setdefault("audit", auditing(Kept()))
    auth = {
        "auth": cast(Any, None),
        "trusted": Trusted(()),
        "functions": cast(Any, None),
        "environments": cast(Any, None),
    }
    return Services(**{**made, **auth, **given})


@dataclass
class Said:
    """An answer as it came."""

    status: int
    headers: Any
    body: bytes
    json: Any


class Client:
    """A client of the interface, as ``writer`` unless it says otherwise."""

    def __init__(self, address: str, session: aiohttp.ClientSession) -> None:
        self.address = address
        self.session = session

    async def __call__(self, method: str, path: str, as_: str = "writer", **more: Any) -> Said:
        headers = {**({"Authorization": f"Bearer {as_}"} if as_ else {}), **more.pop("headers", {})}
        async with self.session.request(
            method, self.address + path, headers=headers, **more
        ) as response:
            body = await response.read()
            kind = response.headers.get("Content-Type", "")
            content = await response.json(content_type=None) if body and "json" in kind else None
            return Said(response.status, response.headers, body, content)


@asynccontextmanager
async def serving(made: Services, *operations: ApiOperation) -> AsyncIterator[Client]:
    """Operations, or those of the table, on a free port; and a client of them."""
    app = vault_app(made, operations) if operations else vault_app(made)
    async with listen("vault", ("127.0.0.1", 0), app, connections=VaultConnection) as address:
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            yield Client(f"http://{address}", session)


#: The engines that every case of the interface runs on: those that are shipped and need no server.
#: The one in memory is a reference of tests; that it does as they do is shown by ``test_engines_agree``.
ENGINES = ("sqlite",)


#: Statuses that each operation may answer with; 408 where a body is read.
ALLOWED = {
    operation.name: {operation.success, *operation.also, *operation.failures, *COMMON_STATUSES}
    | (set() if operation.takes is Takes.NOTHING else {408})
    for operation in OPERATIONS
}


@dataclass
class Interface:
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


async def prepare(here: Interface) -> None:
    """Make the one of the name ``chief`` a client, who may take a role in an emergency."""
    chief = clients.Client(
        "chief", "chief", "default", True, "", 0, emergency_roles=("administrator",)
    )
    await here.office.service.clients._put("default", "chief", lambda _: chief)


async def waiting(here: Interface, client: str) -> str:
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
async def interface(
    folder: Path,
    engine: str = "memory",
    *,
    tokens: bool = False,
    keys: RecordKeys = HASHED,
    **given: Any,
) -> AsyncIterator[Interface]:
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
            access=BearerAccess(here.service.tokens) if tokens else access,
            **{"body_limit": 4 * 2**20, "functions": functions, **given},
        )
        oversee(made, folder, SealedNote(store, keyset.aead(), "default", "approvals"), clock)
        client = await stack.enter_async_context(serving(made))
        unlisted = watched(made)
        yield Interface(client, made, store, vault, catalog, clock, here, realm, audit, events)
        assert unlisted == set(), "statuses that the table does not list for their operations"


@dataclass
class Desk:
    """Clients that look after clients, and what they may give."""

    here: Interface
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


async def serve() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with interface(Path(folder), "sqlite") as here:
            await here.declare("contact", CONTACT)
            for record in RECORDS:
                await here.client("POST", "/api/models/contact", json=record)
            for record in KEPT:
                await here.client("POST", "/api/records", json=record)
            print(here.client.address, "chief", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
