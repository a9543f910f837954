"""``domicile environment``: make, list and remove environments, of an instance (``--url``) or of a
vault that none runs on.
"""

import contextlib
import os
import urllib.parse
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

from proxy.cli import command, remote
from proxy.cli.backend import run_stopped, url_argument
from proxy.cli.command import Arguments, Command, argument, argument_list
from proxy.config import load_settings
from proxy.errors import Code, VaultError
from proxy.model.record import DEFAULT

if TYPE_CHECKING:
    from proxy.bootstrap.offline import OfflineChanges, StoppedEnvironments
    from proxy.model.record import Environment

_PATH: Final = "/api/environments"


def create_environment_command(arguments: Arguments) -> int:
    """Make an empty environment with its own keys."""
    if arguments.url is None:
        from proxy.api.admin import environment_json

        data = environment_json(run_stopped(_create(arguments)))
    else:
        wanted = {"name": arguments.name}
        if arguments.id is not None:
            wanted["environment_id"] = arguments.id
        data = _request(arguments, "POST", "", wanted)
    text = (
        f"Made the environment {data['environment_id']} ({data['name']}).\n"
        f"Next: domicile client create --environment {data['environment_id']} --admin NAME"
    )
    return command.show(arguments, data, text)


def list_environments_command(arguments: Arguments) -> int:
    """Print the environments, oldest first."""
    if arguments.url is None:
        from proxy.api.admin import environment_json

        data = [environment_json(environment) for environment in run_stopped(_listed(arguments))]
    else:
        with contextlib.closing(remote.administered(arguments)) as instance:
            data = instance.listed(_PATH)
    width = max(len(item["environment_id"]) for item in data)
    lines = [
        f"{item['environment_id']:<{width}}  {item['created_at']}  {item['name']}" for item in data
    ]
    return command.show(arguments, {"environments": data}, lines)


def delete_environment_command(arguments: Arguments) -> int:
    """Remove an environment with its clients and schemas; with its records only where asked."""
    if arguments.url is None:
        count = run_stopped(_delete(arguments))
        data = {"environment_id": arguments.id, "records": count}
        text = (
            f"The environment {arguments.id} is gone, with {count} records; its keys are destroyed."
        )
    else:
        ident = urllib.parse.quote(arguments.id, safe="")
        records = "?records=delete" if arguments.records else ""
        _request(arguments, "DELETE", f"/{ident}{records}")
        data = {"environment_id": arguments.id}
        text = f"The environment {arguments.id} is gone; its keys are destroyed."
    return command.show(arguments, data, text)


def _request(arguments: Arguments, method: str, below: str, content: Any = None) -> Any:
    """Send a change; return the content of the running instance's answer."""
    return remote.ask_once(remote.administered(arguments), method, _PATH + below, content)


def _opened(
    arguments: Arguments, record: "OfflineChanges | None" = None
) -> "AbstractAsyncContextManager[StoppedEnvironments]":
    from proxy.bootstrap.offline import stopped_environments

    return stopped_environments(load_settings(arguments.config, os.environ), record)


async def _create(arguments: Arguments) -> "Environment":
    record = _record("create_environment")
    async with _opened(arguments, record) as environments:
        await record.ready()
        created = await environments.book.create(arguments.id, arguments.name)
        record.did(created.id)
        return created


async def _listed(arguments: Arguments) -> "list[Environment]":
    async with _opened(arguments) as environments:
        return list(environments.book.listed())


async def _delete(arguments: Arguments) -> int:
    record = _record("remove_environment")
    async with _opened(arguments, record) as environments:
        await record.ready()
        try:
            count = await environments.remove(arguments.id, records=arguments.records)
        except VaultError as error:
            if error.code is not Code.ENVIRONMENT_IN_USE:
                raise
            text = (
                f"The environment {arguments.id!r} still holds records: say --records to remove "
                "all of them with it."
            )
            raise VaultError(Code.ENVIRONMENT_IN_USE, text) from None
        record.did(arguments.id)
        return count


def _record(operation: str) -> "OfflineChanges":
    from proxy.bootstrap.offline import OfflineChanges

    return OfflineChanges(operation, DEFAULT)


_create_arguments: Final = argument_list(
    url_argument,
    argument("--id", metavar="ID", help="lower-case letters and digits (default: a random one)"),
    argument("name", metavar="NAME", help="what people call it, e.g. the name of a company"),
)  # fmt: skip

_delete_arguments: Final = argument_list(
    url_argument,
    argument("--records", action="store_true",
        help="with all records that it holds, and their files"),
    argument("id", metavar="ID",
        help="the environment id, as `domicile environment list` shows it"),
)  # fmt: skip

COMMAND: Final = Command("Make, list and remove environments.", "domicile environment list",
    children={
        "create": Command("Make an environment, with keys of its own and nothing in it.",
            "domicile environment create --id acme 'Acme AB'", create_environment_command,
            _create_arguments),
        "list": Command("List the environments, oldest first.", "domicile environment list --json",
            list_environments_command, url_argument),
        "delete": Command(
            "Remove an environment and destroy its keys; what it held cannot be opened any more.",
            "domicile environment delete acme --records", delete_environment_command,
            _delete_arguments),
    },
)  # fmt: skip
