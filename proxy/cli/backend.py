"""Backends of commands on schemas and policies: a running instance, or a stopped vault."""

import argparse
import asyncio
import contextlib
import os
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from proxy.cli import remote
from proxy.cli.command import AddArguments, Arguments, argument, argument_list
from proxy.config import Settings, load_settings
from proxy.errors import Code, VaultError
from proxy.vault.schemas import Catalog
from proxy.vault.vault import Vault

if TYPE_CHECKING:
    from proxy.bootstrap.offline import OfflineChanges


# Options that name a running instance and its item, and the answer if one has the vault.

_Result = TypeVar("_Result")

_FORMATS: Final = ("jsonl", "csv")


def optional_url(otherwise: str) -> AddArguments:
    """Return what adds ``--url``; ``otherwise``: the data without one."""
    return argument_list(
        argument("--url", type=_instance, metavar="URL",
            help=f"a running instance (default: {otherwise})"),
        lambda parser: parser.set_defaults(prepare=remote.use_socket),
    )  # fmt: skip


def _instance(text: str) -> str:
    """The address of an instance, or the path of its local socket."""
    parts = urllib.parse.urlsplit(text)
    if parts.scheme == "unix" and parts.path.startswith("/") and not parts.netloc:
        return text
    return site_address(text)


def site_address(text: str) -> str:
    """An address of scheme, host and port alone."""
    parts = urllib.parse.urlsplit(text)
    try:
        whole = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and min(text) > " "
        )
    except ValueError:
        whole = False
    if not whole or parts.path not in ("", "/") or parts.query:
        raise argparse.ArgumentTypeError(
            "write scheme, host and port alone, such as http://127.0.0.1:8081"
        )
    return text


environment_argument: Final = argument("--environment", default="default", metavar="ID",
    help="the environment (default: default)")  # fmt: skip

#: ``--url`` alone, for commands that work in the environment of their client.
url_argument: Final = optional_url("the store of the settings, while no instance runs")
#: The arguments of commands that talk to an instance.
instance_arguments: Final = argument_list(url_argument, environment_argument)
#: The same of commands that need an instance that runs.
running_arguments: Final = argument_list(
    optional_url("the vault listener of the settings"), environment_argument
)


def records_arguments(schema: str) -> AddArguments:
    """As ``running_arguments``, with a schema and the kind of a file."""
    return argument_list(
        running_arguments,
        argument("--schema", required=True, metavar="NAME", help=schema),
        argument("--format", choices=_FORMATS,
            help="kind of the content (default: by the ending of the name)"),
    )  # fmt: skip


#: As ``instance_arguments``, with files that declare items.
files_arguments: Final = argument_list(
    instance_arguments,
    argument("files", nargs="+", type=Path, metavar="FILE", help="YAML files, or folders of them"),
)  # fmt: skip


@contextlib.contextmanager
def stopped_first(advice: str) -> Iterator[None]:
    """Around work on a stopped vault: if an instance runs on it (STORE_BUSY), say what to do."""
    try:
        yield
    except VaultError as error:
        if error.code is not Code.STORE_BUSY:
            raise
        raise VaultError(Code.STORE_BUSY, f"An instance runs on this vault: {advice}") from None


def run_stopped(work: Coroutine[Any, Any, _Result], advice: str = remote.NAMED) -> _Result:
    """Do work on a stopped vault; see ``stopped_first``."""
    with stopped_first(advice):
        return asyncio.run(work)


JsonObject = dict[str, Any]

_Backend = TypeVar("_Backend")

#: Opens the place that a command line names.
BackendOpener = Callable[[Arguments, Settings], AbstractAsyncContextManager[_Backend]]


def answer_of(
    opening: BackendOpener[_Backend],
    arguments: Arguments,
    question: Callable[[_Backend], Awaitable[_Result]],
) -> _Result:
    """The answer of the place that the command line names. Raises as the interface refuses."""

    async def answer() -> _Result:
        async with opening(arguments, load_settings(arguments.config, os.environ)) as where:
            return await question(where)

    return asyncio.run(answer())


class RemoteBackend:
    """Items of a running instance, below one path of its interface."""

    def __init__(self, instance: remote.Remote, path: str) -> None:
        self._instance = instance
        self._path = path

    async def listed(self) -> Sequence[JsonObject]:
        """All of them, as the interface shows them."""
        return self._instance.listed(self._path)

    async def one(self, name: str) -> JsonObject:
        """The item of that name."""
        content: JsonObject = self._answer("GET", _below(name)).content
        return content

    def _put(self, name: str, content: JsonObject, query: str = "") -> remote.RemoteAnswer:
        return self._answer("PUT", _below(name) + query, content)

    def _answer(self, method: str, below: str, content: Any = None) -> remote.RemoteAnswer:
        answer = self._instance.ask(method, f"{self._path}{below}", content)
        if answer.status >= 300:
            raise remote.refusal_of(answer)
        return answer


def _below(name: str) -> str:
    """Return the path of one item by its name; an escaped slash leads to no other operation."""
    return "/" + urllib.parse.quote(name, safe="")


class Stopped(NamedTuple):
    """A vault that no instance runs on, and its schemas. ``record``: its changes."""

    vault: Vault
    catalog: Catalog
    record: "OfflineChanges"


@contextlib.asynccontextmanager
async def stopped(
    arguments: Arguments, settings: Settings, operation: str
) -> AsyncIterator[Stopped]:
    """The environment of a command line, in the vault of the settings.

    ``operation``: the allowed change.

    Raises ``VaultError``: STORE_BUSY says how to ask the instance.
    """
    from proxy.bootstrap.offline import OfflineChanges, stopped_vault
    from proxy.bootstrap.schemas import open_schemas

    record = OfflineChanges(operation, arguments.environment)
    with stopped_first(remote.NAMED):
        async with stopped_vault(settings, arguments.environment, record) as (vault, _):
            catalog = await open_schemas(vault, None, settings.records)
            try:
                yield Stopped(vault, catalog, record)
            finally:
                await catalog.close()
