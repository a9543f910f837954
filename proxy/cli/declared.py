"""What is declared by name and stays: schemas, access policies. Where commands find it: in an instance that runs, or in a stopped vault."""

import asyncio
import contextlib
import os
import urllib.parse
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from proxy.cli import remote
from proxy.cli.command import Arguments
from proxy.cli.instance import stopped_first
from proxy.config import Settings, load
from proxy.vault.catalog import Catalog
from proxy.vault.vault import Vault

if TYPE_CHECKING:
    from proxy.composition.recorded import Record

Json = dict[str, Any]


class Declared(Protocol):
    """Where what is declared is looked at. Every method raises ``VaultError`` as the interface refuses."""

    async def listed(self) -> Sequence[Json]:
        """All of them, as the interface shows them."""

    async def one(self, name: str) -> Json:
        """One of them."""


#: Opens the place that a command line names.
Opening = Callable[[Arguments, Settings], AbstractAsyncContextManager[Declared]]


def all_of(opening: Opening, arguments: Arguments) -> list[Json]:
    """What ``list`` shows."""

    async def listed() -> list[Json]:
        async with opening(arguments, load(arguments.config, os.environ)) as where:
            return list(await where.listed())

    return asyncio.run(listed())


def named(opening: Opening, arguments: Arguments) -> Json:
    """What ``show`` shows: the one that the command line names."""

    async def one() -> Json:
        async with opening(arguments, load(arguments.config, os.environ)) as where:
            return await where.one(arguments.name)

    return asyncio.run(one())


class Served:
    """Those of an instance that runs, below one path of its interface."""

    def __init__(self, instance: remote.Remote, path: str) -> None:
        self._instance = instance
        self._path = path

    async def listed(self) -> Sequence[Json]:
        """See ``Declared.listed``."""
        found: list[Json] = []
        while True:
            content = self._asked("GET", f"?offset={len(found)}").content
            found += content["data"]
            if not content["data"] or len(found) >= content["meta"]["total"]:
                return found

    async def one(self, name: str) -> Json:
        """See ``Declared.one``."""
        content: Json = self._asked("GET", _below(name)).content
        return content

    def _put(self, name: str, content: Json, query: str = "") -> remote.Told:
        return self._asked("PUT", _below(name) + query, content)

    def _asked(self, method: str, below: str, content: Any = None) -> remote.Told:
        told = self._instance.ask(method, f"{self._path}{below}", content)
        if told.status >= 300:
            raise remote.refusal(told)
        return told


def _below(name: str) -> str:
    """The path of one by its name, whatever stands in it: a slash leads to no other operation."""
    return "/" + urllib.parse.quote(name, safe="")


class Stopped(NamedTuple):
    """A vault that no instance runs on, and its schemas. ``record``: what is changed there."""

    vault: Vault
    catalog: Catalog
    record: "Record"


@contextlib.asynccontextmanager
async def stopped(arguments: Arguments, settings: Settings, operation: str) -> AsyncIterator[Stopped]:
    """The environment of a command line, in the vault of the settings. ``operation``: what may be done there.

    Raises ``VaultError``: STORE_BUSY says how to ask the instance.
    """
    from proxy.composition.recorded import Record
    from proxy.composition.schemas import open_schemas
    from proxy.composition.stopped import stopped_vault

    record = Record(operation, arguments.environment)
    with stopped_first(f"name it with --url, and its client with {remote.CLIENT_ID} and {remote.CLIENT_SECRET}."):
        async with stopped_vault(settings, arguments.environment, record) as (vault, _):
            catalog = await open_schemas(vault, None, settings.records)
            try:
                yield Stopped(vault, catalog, record)
            finally:
                await catalog.close()
