"""A catalog over the in-memory engine, and the few calls that tests of schemas make of records."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from proxy.errors import VaultError
from proxy.model.query import Like
from proxy.model.record import RecordDraft
from proxy.model.schema import Schema
from proxy.model.schema_document import read_definition
from proxy.storage.query import Is, Select
from proxy.vault.records.commit import no_changes
from proxy.vault.records.create import store_records
from proxy.vault.records.query import compile_query
from proxy.vault.schema_store import Origin
from proxy.vault.schemas.catalog import Applied, Catalog, open_catalog
from tests.support.vaults import Bench, make_bench


@dataclass
class Shelf:
    """A catalog with everything around it."""

    bench: Bench
    catalog: Catalog
    reported: list[VaultError]

    async def apply(
        self, name: str = "contact", /, origin: Origin = Origin.API, **fields: dict[str, Any]
    ) -> Applied:
        """Put a definition in force, and wait until it is."""
        applied = await self.catalog.apply(schema(name, **fields), origin)
        await self.catalog.settled(name)
        return applied

    async def add(self, key: str, name: str = "contact", **values: Any) -> None:
        """A new record."""
        with self.catalog.using():
            draft = RecordDraft(key, {"id": key, **values})
            await store_records(self.catalog.records(name), [draft], "test", no_changes)

    async def values(self, name: str = "contact") -> dict[str, dict[str, Any]]:
        """The values of all records by key, without the keys."""
        found = await self.rows(name)
        records = [self.catalog.records(name).open(row) for row in found]
        return {
            str(record.key): {name: value for name, value in record.fields.items() if name != "id"}
            for record in records
        }

    async def rows(self, name: str = "contact") -> list[Any]:
        """The rows of all records."""
        collection = self.catalog.records(name).collection
        return list(await collection.store.scan(collection.table, 0, 100_000))

    async def having(self, field: str, value: Any, name: str = "contact") -> list[str]:
        """The keys of the records whose field has the value, by its column."""
        records = self.catalog.records(name)
        where = Is(records.column(field), (records.cell(field, value),))
        page = await records.collection.store.select(
            records.collection.table, Select(where, self.bench.clock())
        )
        return [str(records.open(row).key) for row in page.rows]

    async def holding(self, field: str, part: str, name: str = "contact") -> list[int]:
        """The record numbers that a search for a part of a text finds."""
        asked = await compile_query(self.catalog.records(name), [Like((field,), part)])
        return sorted(asked.looks[0].rids)


@asynccontextmanager
async def held(catalog: Catalog) -> AsyncIterator[None]:
    """Somebody is at work, so that no migration of the catalog gets any further."""
    begun, end = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        with catalog.using():
            begun.set()
            await end.wait()

    task = asyncio.create_task(work())
    await begun.wait()
    try:
        yield
    finally:
        end.set()
        await task


def schema(name: str = "contact", /, **fields: dict[str, Any]) -> Schema:
    """A schema with the primary key ``id`` and these fields."""
    return read_definition(name, {"fields": {"id": {"type": "primary_key"}, **fields}})


async def make_shelf(shelf: Shelf | None = None) -> Shelf:
    """A catalog of an empty store; or what the next process finds in the store of ``shelf``."""
    if shelf is None:
        bench = await make_bench()
    else:
        keyset = shelf.bench.people.context.keyset
        bench = await make_bench(shelf.bench.store, keyset)
        bench.clock.now = shelf.bench.clock.now
    reported: list[VaultError] = []
    return Shelf(bench, await open_catalog(bench.vault, reported.append), reported)
