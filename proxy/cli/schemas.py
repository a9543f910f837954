"""What ``domicile schema`` does: on the store of a stopped vault, or over HTTP on an instance that runs (``--url``).

Both show the same: what ``/api/schemas`` answers.
"""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Protocol

from proxy.cli import declared, remote
from proxy.cli.command import Arguments
from proxy.cli.declared import Json
from proxy.config import Settings
from proxy.model.definition import write_definition
from proxy.model.schema import Schema
from proxy.vault.catalog import Catalog
from proxy.vault.entries import Origin

if TYPE_CHECKING:
    from proxy.composition.recorded import Record


class Schemas(declared.Declared, Protocol):
    """Where schemas are looked at and declared."""

    async def apply(self, schema: Schema, *, dry_run: bool) -> Json:
        """Declare one; with ``dry_run`` only what would come of it."""


class Stored:
    """The schemas of a vault that no instance runs on; a change that rewrites records is over when ``apply`` returns."""

    def __init__(self, catalog: Catalog, record: "Record") -> None:
        self._catalog = catalog
        self._record = record

    async def apply(self, schema: Schema, *, dry_run: bool) -> Json:
        from proxy.web.api.schemas import told

        if not dry_run:
            await self._record.ready()
        applied = await self._catalog.apply(schema, Origin.API, dry_run=dry_run)
        changes = [told(step) for step in applied.steps]
        if dry_run:
            return {"created": applied.created, "migrates": applied.migrating, "changes": changes}
        self._record.did(schema.name)
        await self._catalog.settled(schema.name)
        return {**await self.one(schema.name), "created": applied.created, "changes": changes}

    async def listed(self) -> Sequence[Json]:
        return [await self.one(found.schema.name) for found in self._catalog.schemas()]

    async def one(self, name: str) -> Json:
        from proxy.web.api.schemas import shown

        return await shown(self._catalog.declared(name))


class Served(declared.Served):
    """The schemas of an instance that runs."""

    def __init__(self, instance: remote.Remote) -> None:
        super().__init__(instance, "/api/schemas")

    async def apply(self, schema: Schema, *, dry_run: bool) -> Json:
        told = self._put(schema.name, write_definition(schema), "?dry_run=true" if dry_run else "")
        content: Json = told.content
        return content if dry_run else {**content, "created": told.status == 201}


@contextlib.asynccontextmanager
async def opened(arguments: Arguments, settings: Settings) -> AsyncIterator[Schemas]:
    """The schemas of the instance that ``--url`` names, else of the stopped vault of the settings."""
    if arguments.url is not None:
        with contextlib.closing(remote.remote(arguments)) as instance:
            yield Served(instance)
        return
    async with declared.stopped(arguments, settings, "put_schema") as (_, catalog, record):
        yield Stored(catalog, record)
