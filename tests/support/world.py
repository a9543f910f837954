"""The whole interface over a vault of its own, on an engine of choice and a clock that tests own."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.auth.opening import open_policies
from proxy.clock import ManualClock
from proxy.crypto.keyset import Keyset
from proxy.model.builtin import records_schema
from proxy.model.definition import read_definition
from proxy.objectstore import open_objects
from proxy.storage import open_store
from proxy.storage.base import Store
from proxy.vault.catalog import Catalog, open_catalog
from proxy.vault.entries import Origin
from proxy.vault.idempotency import Replies, system_collection
from proxy.vault.vault import Vault, VaultOptions, new_vault
from proxy.web.api.access import bearer
from proxy.web.api.operation import ALWAYS, Services, Takes
from proxy.web.api.operations import OPERATIONS
from proxy.web.api.repeating import repeating
from tests.support.api import Client, access, services, serving
from tests.support.auth import Office, office
from tests.support.resident import resident

#: The engines that every case of the interface runs on.
ENGINES = ("memory", "sqlite")


#: Statuses that each operation may answer with; 408 where a body is read.
ALLOWED = {
    operation.name: {operation.success, *operation.also, *operation.failures, *ALWAYS}
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

    async def declare(self, name: str, definition: Mapping[str, Any]) -> None:
        """Put a schema in force."""
        await self.catalog.apply(read_definition(name, definition), Origin.API)


@asynccontextmanager
async def world(folder: Path, engine: str = "memory", *, tokens: bool = False, **given: Any) -> AsyncIterator[World]:
    """The interface, served. ``tokens``: access by real tokens, in place of the names in ``tests.support.api``."""
    clock = ManualClock()
    keyset = Keyset.create("default")
    async with AsyncExitStack() as stack:
        store = await open_store("memory:" if engine == "memory" else f"sqlite:///{folder / 'vault.db'}")
        stack.push_async_callback(store.close)
        vault = new_vault(keyset, store, clock, lambda *_: None, VaultOptions("default", "SE", 86_400_000))
        objects = await open_objects("memory:" if engine == "memory" else f"file://{folder / 'files'}")
        contents = await vault.keep_files(objects, 20 * 2**20)
        stack.push_async_callback(contents.close)
        catalog = await open_catalog(vault, lambda error: None, (records_schema(),))
        stack.push_async_callback(catalog.close)
        here = await stack.enter_async_context(office(store, keyset, clock))
        made = services(
            catalog=catalog,
            contents=contents,
            policies=await open_policies(store, keyset),
            auth=here.service,
            access=bearer(here.service.tokens) if tokens else access,
            once=repeating(Replies(), await system_collection(vault)),
            **{"body_limit": 4 * 2**20, "functions": await stack.enter_async_context(resident()), **given},
        )
        unlisted: set[tuple[str, int]] = set()

        def observe(operation: str, status: int, _seconds: float) -> None:
            if status < 500 and status not in ALLOWED[operation]:
                unlisted.add((operation, status))

        made.observe = observe
        client = await stack.enter_async_context(serving(made))
        yield World(client, made, store, vault, catalog, clock, here)
        assert unlisted == set(), "operations answered with statuses that the table does not list for them"
