"""``domicile client``: programs that may get access tokens, of an instance or a stopped vault."""

import contextlib
import os
import urllib.parse
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

from proxy.cli import command, remote
from proxy.cli.backend import run_stopped, url_argument
from proxy.cli.command import Arguments, Command, argument, argument_list
from proxy.cli.health import reachable
from proxy.config import Settings, load_settings
from proxy.errors import Code, VaultError
from proxy.model.rights import Role

if TYPE_CHECKING:
    from proxy.auth.clients import Client, Clients, NewClient
    from proxy.auth.policies import Policies
    from proxy.bootstrap.offline import OfflineChanges

_PATH: Final = "/api/clients"


def create_client_command(arguments: Arguments) -> int:
    """Make a client and print its secret, this once."""
    settings = load_settings(arguments.config, os.environ)
    if arguments.url is None:
        created = run_stopped(_create(settings, arguments))
        ident, secret = created.client.id, created.secret
        address = _vault_address(settings)
    else:
        answer = _request(arguments, "POST", "", _wanted(arguments))
        ident, secret = answer["client_id"], answer.get("client_secret", "")
        local = arguments.url.startswith("unix:")
        address = _vault_address(settings) if local else arguments.url.rstrip("/")
    if arguments.external is not None:
        data = {
            "environment_id": arguments.environment,
            "client_id": ident,
            "external_id": arguments.external,
        }
        return command.show(
            arguments, data, f"Registered the client {arguments.external} of the external issuer."
        )
    data = credentials_json(arguments.environment, (ident, secret), address)
    return command.show(arguments, data, client_text("Made the client.", data))


def list_clients_command(arguments: Arguments) -> int:
    """Print the clients, oldest first; never a secret."""
    from proxy.api.admin import client_json

    if arguments.url is None:
        clients = run_stopped(_listed(load_settings(arguments.config, os.environ)))
        data = [client_json(client) for client in clients]
    else:
        with contextlib.closing(remote.administered(arguments)) as instance:
            data = instance.listed(_PATH)
    lines = [
        "  ".join(
            [
                item["client_id"],
                item["created_at"],
                item["environment_id"],
                _state(item).ljust(8),
                item["name"],
            ]
        )
        for item in data
    ]
    return command.show(arguments, {"clients": data}, lines or ["There is no client yet."])


def disable(arguments: Arguments) -> int:
    """End a client and its tokens; it stays in the list."""
    from proxy.api.admin import client_json

    if arguments.url is None:
        client = run_stopped(
            _disable(load_settings(arguments.config, os.environ), arguments.client)
        )
        data = client_json(client)
    else:
        below = "/" + urllib.parse.quote(arguments.client, safe="")
        data = _request(arguments, "GET", below)
        _request(arguments, "DELETE", below)
        data["disabled"] = True
    end = "is disabled" if arguments.url is None else "is gone"
    return command.show(arguments, data, f"The client {data['name']} {end}.")


def rotate_secret(arguments: Arguments) -> int:
    """Give a client a new secret and print it, this once; the old one and its tokens end."""
    settings = load_settings(arguments.config, os.environ)
    created = run_stopped(_renew(settings, arguments.client))
    data = credentials_text(settings, created)
    return command.show(arguments, data, client_text("The client has a new secret.", data))


def credentials_text(settings: Settings, created: "NewClient") -> dict[str, Any]:
    """Return everything that a new client of this vault needs."""
    credentials = created.client.id, created.secret
    return credentials_json(created.client.environment, credentials, _vault_address(settings))


def credentials_json(
    environment: str, credentials: tuple[str, str], address: str
) -> dict[str, Any]:
    """The same of a client by its id and secret, and of the vault at ``address``."""
    return {
        "environment_id": environment,
        "client_id": credentials[0],
        "client_secret": credentials[1],
        "vault_url": address,
        "token_url": f"{address}/oauth2/token",
    }


def _vault_address(settings: Settings) -> str:
    from proxy.bootstrap.network import address_of

    return address_of(settings, str(reachable(settings.listen.vault)))


def _wanted(arguments: Arguments) -> dict[str, Any]:
    """The client of a command line, in the form of the interface."""
    wanted: dict[str, Any] = {
        "name": arguments.name,
        "environment_id": arguments.environment,
        "admin": arguments.admin,
        "policies": arguments.policy,
        "roles": arguments.role,
        "emergency_roles": arguments.emergency,
    }
    return wanted | ({} if arguments.external is None else {"external_id": arguments.external})


def _request(arguments: Arguments, method: str, below: str, content: Any = None) -> Any:
    """Return the content of the running instance's answer."""
    return remote.ask_once(remote.administered(arguments), method, _PATH + below, content)


def client_text(first: str, data: dict[str, Any]) -> str:
    """The same for people, and where the secret belongs."""
    width = max(map(len, data))
    return "\n".join(
        [
            first,
            *(f"  {name:<{width}}  {value}" for name, value in data.items()),
            "The secret is not shown again: keep it.",
        ]
    )


def _opened(
    settings: Settings, record: "OfflineChanges | None" = None
) -> "AbstractAsyncContextManager[tuple[Clients, Mapping[str, Policies]]]":
    from proxy.bootstrap.offline import stopped_access

    return stopped_access(settings, record)


async def _create(settings: Settings, arguments: Arguments) -> "NewClient":
    from proxy.auth.clients import Grant

    record = _record("create_client", arguments.environment)
    async with _opened(settings, record) as (clients, policies):
        _check_policies(policies, arguments)
        await record.ready()
        created = await clients.create(
            arguments.name,
            arguments.environment,
            Grant(
                arguments.admin,
                tuple(arguments.policy),
                tuple(map(Role, arguments.role)),
                tuple(arguments.emergency),
            ),
            external=arguments.external,
        )
        record.did(created.client.id)
        return created


def _check_policies(policies: "Mapping[str, Policies]", arguments: Arguments) -> None:
    """Raise ``VaultError`` for a policy that the environment lacks.

    The maker of the client reports an unknown environment.
    """
    environment_policies = policies.get(arguments.environment)
    for name in arguments.policy:
        if environment_policies is not None and environment_policies.find(name) is None:
            text = (
                f"There is no policy {name!r} in this environment: put it in force first, with "
                "`domicile policy apply`."
            )
            raise VaultError(Code.INVALID_INPUT, text)


async def _listed(settings: Settings) -> "list[Client]":
    async with _opened(settings) as (clients, _):
        return clients.listed()


async def _disable(settings: Settings, ident: str) -> "Client":
    record = _record("disable_client")
    async with _opened(settings, record) as (clients, _):
        await record.ready()
        client = await clients.disable(ident)
        record.did(client.id, client.environment)
        return client


async def _renew(settings: Settings, ident: str) -> "NewClient":
    record = _record("rotate_client_secret")
    async with _opened(settings, record) as (clients, _):
        await record.ready()
        created = await clients.renew(ident)
        record.did(created.client.id, created.client.environment)
        return created


def _record(operation: str, environment: str = "") -> "OfflineChanges":
    from proxy.bootstrap.offline import OfflineChanges

    return OfflineChanges(operation, environment)


def _state(item: dict[str, Any]) -> str:
    if item["disabled"] or item["admin"]:
        return "disabled" if item["disabled"] else "admin"
    return ",".join(item["roles"]) or "client"


_create_arguments: Final = argument_list(
    url_argument,
    argument("--environment", metavar="ID", required=True,
        help="the environment it works with, e.g. default"),
    argument("--admin", action="store_true", help="it may also administer clients and schemas"),
    argument("--policy", metavar="NAME", action="append", default=[],
        help="an access policy that it is under, as `domicile policy list` shows it; may be said "
        "several times (default: none, it may do everything)"),
    argument("--role", choices=[str(role) for role in Role], action="append", default=[],
        help="what it looks after; it sees no records then; may be said several times"),
    argument("--emergency", choices=[*map(str, Role), "administrator"], action="append", default=[],
        help="what it may take in an emergency, for some time and with an alarm"),
    argument("--external", metavar="ID",
        help="it gets its tokens from the external issuer, under this id"),
    argument("name", metavar="NAME", help="what people call it, e.g. the name of the application"),
)  # fmt: skip


_client_argument: Final = argument("client", metavar="ID",
    help="the client id, as `domicile client list` shows it")  # fmt: skip

_disable_arguments: Final = argument_list(url_argument, _client_argument)

COMMAND: Final = Command("Make, list and end clients of the vault's own interface.",
    "domicile client list", children={
        "create": Command("Make a client and print its secret once.",
            "domicile client create --environment default crm", create_client_command,
            _create_arguments),
        "list": Command("List the clients, oldest first; never a secret.",
            "domicile client list --json", list_clients_command, url_argument),
        "disable": Command("End a client and every token of it; it stays in the list.",
            "domicile client disable k7m2p9xwq4ht6vbd", disable, _disable_arguments),
        "rotate-secret": Command(
            "While no instance runs: give a client a new secret and print it once.",
            "domicile client rotate-secret k7m2p9xwq4ht6vbd", rotate_secret, _client_argument),
    },
)  # fmt: skip
