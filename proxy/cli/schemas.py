"""What ``domicile schema`` does: on the store of a stopped vault, or over HTTP on an instance that runs (``--url``).

Both show the same: what ``/api/schemas`` answers.
"""

import contextlib
import urllib.parse
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from proxy.cli import remote
from proxy.cli.command import Arguments
from proxy.config import Settings
from proxy.errors import Code, VaultError
from proxy.model.definition import write_definition
from proxy.model.schema import Schema
from proxy.vault.catalog import Catalog
from proxy.vault.entries import Origin

Json = dict[str, Any]


class Schemas(Protocol):
    """Where schemas are looked at and declared. Every method raises ``VaultError`` as the interface refuses."""

    async def apply(self, schema: Schema, *, dry_run: bool) -> Json:
        """Declare one; with ``dry_run`` only what would come of it."""

    async def listed(self) -> Sequence[Json]:
        """All of them."""

    async def one(self, name: str) -> Json:
        """One of them."""


class Stored:
    """The schemas of a vault that no instance runs on; a change that rewrites records is over when ``apply`` returns."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def apply(self, schema: Schema, *, dry_run: bool) -> Json:
        from proxy.web.api.schemas import told

        applied = await self._catalog.apply(schema, Origin.API, dry_run=dry_run)
        changes = [told(step) for step in applied.steps]
        if dry_run:
            return {"created": applied.created, "migrates": applied.migrating, "changes": changes}
        await self._catalog.settled(schema.name)
        return {**await self.one(schema.name), "created": applied.created, "changes": changes}

    async def listed(self) -> Sequence[Json]:
        return [await self.one(declared.schema.name) for declared in self._catalog.schemas()]

    async def one(self, name: str) -> Json:
        from proxy.web.api.schemas import shown

        return await shown(self._catalog.declared(name))


class Served:
    """The schemas of an instance that runs."""

    def __init__(self, instance: remote.Remote) -> None:
        self._instance = instance

    async def apply(self, schema: Schema, *, dry_run: bool) -> Json:
        query = "?dry_run=true" if dry_run else ""
        told = self._asked("PUT", f"/{urllib.parse.quote(schema.name)}{query}", write_definition(schema))
        return told.content if dry_run else {**told.content, "created": told.status == 201}

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
        told = self._instance.ask(method, f"/api/schemas{path}", content)
        if told.status >= 300:
            raise remote.refusal(told)
        return told


@contextlib.asynccontextmanager
async def opened(arguments: Arguments, settings: Settings) -> AsyncIterator[Schemas]:
    """The schemas of the instance that ``--url`` names, else of the stopped vault of the settings."""
    if arguments.url is not None:
        with contextlib.closing(remote.remote(arguments)) as instance:
            yield Served(instance)
        return
    from proxy.composition.schemas import open_schemas
    from proxy.composition.stopped import stopped_vault

    try:
        async with stopped_vault(settings, arguments.environment) as (vault, _):
            catalog = await open_schemas(vault, None, settings.records)
            try:
                yield Stored(catalog)
            finally:
                await catalog.close()
    except VaultError as error:
        if error.code is not Code.STORE_BUSY:
            raise
        text = f"An instance runs on this vault: name it with --url, and its client with {remote.CLIENT_ID} and {remote.CLIENT_SECRET}."
        raise VaultError(Code.STORE_BUSY, text) from None
