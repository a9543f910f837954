"""``domicile client``, programs that may get access tokens, and ``domicile environment``: of an
instance, or of a vault that none runs on. ``domicile init``: a new vault and its first client.
"""

import asyncio
import contextlib
import dataclasses
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from proxy.cli import SUMMARIES, command, remote
from proxy.cli.command import Arguments, Command, argument, argument_list, parsed_by
from proxy.cli.health import reachable
from proxy.cli.options import url_argument
from proxy.config import Settings, load_settings
from proxy.config.load import DEFAULT_FILE
from proxy.config.parsers import country
from proxy.errors import Code, VaultError, coded
from proxy.model.record import DEFAULT
from proxy.model.rights import Role

if TYPE_CHECKING:
    from proxy.auth.clients import Clients, NewClient

_Changed = TypeVar("_Changed")

_PATH: Final = "/api/clients"
_ENVIRONMENTS: Final = "/api/environments"


def create_client_command(arguments: Arguments) -> int:
    """Make a client and print its secret, this once."""
    settings = load_settings(arguments.config, os.environ)
    instance = remote.administered(arguments)
    answer = remote.ask_once(instance, "POST", _PATH, _wanted(arguments))
    ident, secret = answer["client_id"], answer.get("client_secret", "")
    local = instance.url.startswith("unix:")
    address = _vault_address(settings) if local else instance.url
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
    """End a client and its tokens; of a stopped vault it stays in the list."""
    if arguments.url is None:
        from proxy.api.admin import client_json

        changed = _changed(
            arguments, "disable_client", lambda clients: clients.disable(arguments.client)
        )
        data, end = client_json(changed), "is disabled"
    else:
        path = remote.below(_PATH, arguments.client)
        data, end = remote.ask_once(remote.administered(arguments), "GET", path), "is gone"
        remote.ask_once(remote.administered(arguments), "DELETE", path)
        data["disabled"] = True
    return command.show(arguments, data, f"The client {data['name']} {end}.")


def rotate_secret(arguments: Arguments) -> int:
    """Give a client a new secret and print it, this once; the old one and its tokens end."""
    created = _changed(
        arguments, "rotate_client_secret", lambda clients: clients.renew(arguments.client)
    )
    data = credentials_text(load_settings(arguments.config, os.environ), created)
    return command.show(arguments, data, client_text("The client has a new secret.", data))


def _changed(
    arguments: Arguments, operation: str, change: "Callable[[Clients], Awaitable[_Changed]]"
) -> _Changed:
    """Change a client of a stopped vault, with a line in its audit log."""
    from proxy.bootstrap.offline import OfflineChanges, stopped_clients

    async def changed() -> _Changed:
        record, settings = OfflineChanges(operation), load_settings(arguments.config, os.environ)
        async with stopped_clients(settings, record) as clients:
            if (client := clients.find(arguments.client)) is not None:
                record.about(environment=client.environment)
            await record.ready()
            result = await change(clients)
            record.did(arguments.client)
            return result

    with remote.stopped_first():
        return asyncio.run(changed())


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

CLIENT_COMMAND: Final = Command(SUMMARIES["client"],
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


def create_environment_command(arguments: Arguments) -> int:
    """Make an empty environment with its own keys."""
    wanted = {"name": arguments.name}
    if arguments.id is not None:
        wanted["environment_id"] = arguments.id
    data = remote.ask_once(remote.administered(arguments), "POST", _ENVIRONMENTS, wanted)
    text = (
        f"Made the environment {data['environment_id']} ({data['name']}).\n"
        f"Next: domicile client create --environment {data['environment_id']} --admin NAME"
    )
    return command.show(arguments, data, text)


def list_environments_command(arguments: Arguments) -> int:
    """Print the environments, oldest first."""
    with contextlib.closing(remote.administered(arguments)) as instance:
        data = instance.listed(_ENVIRONMENTS)
    width = max(len(item["environment_id"]) for item in data)
    lines = [
        f"{item['environment_id']:<{width}}  {item['created_at']}  {item['name']}" for item in data
    ]
    return command.show(arguments, {"environments": data}, lines)


def delete_environment_command(arguments: Arguments) -> int:
    """Remove an environment with its clients and schemas; with its records only where asked."""
    path = remote.below(_ENVIRONMENTS, arguments.id) + (
        "?records=delete" if arguments.records else ""
    )
    try:
        remote.ask_once(remote.administered(arguments), "DELETE", path)
    except coded(Code.ENVIRONMENT_IN_USE):
        text = (
            f"The environment {arguments.id!r} still holds records: say --records to remove "
            "all of them with it."
        )
        raise VaultError(Code.ENVIRONMENT_IN_USE, text) from None
    text = f"The environment {arguments.id} is gone; its keys are destroyed."
    return command.show(arguments, {"environment_id": arguments.id}, text)


_create_environment_arguments: Final = argument_list(
    url_argument,
    argument("--id", metavar="ID", help="lower-case letters and digits (default: a random one)"),
    argument("name", metavar="NAME", help="what people call it, e.g. the name of a company"),
)  # fmt: skip

_delete_environment_arguments: Final = argument_list(
    url_argument,
    argument("--records", action="store_true",
        help="with all records that it holds, and their files"),
    argument("id", metavar="ID",
        help="the environment id, as `domicile environment list` shows it"),
)  # fmt: skip

ENVIRONMENT_COMMAND: Final = Command(SUMMARIES["environment"],
    "domicile environment list", children={
        "create": Command("Make an environment, with keys of its own and nothing in it.",
            "domicile environment create --id acme 'Acme AB'", create_environment_command,
            _create_environment_arguments),
        "list": Command("List the environments, oldest first.", "domicile environment list --json",
            list_environments_command, url_argument),
        "delete": Command(
            "Remove an environment and destroy its keys; what it held cannot be opened any more.",
            "domicile environment delete acme --records", delete_environment_command,
            _delete_environment_arguments),
    },
)  # fmt: skip


def init_command(arguments: Arguments) -> int:
    """Make missing parts. Running it again changes nothing, and shows no secret."""
    from proxy.bootstrap.instance import prepare_instance
    from proxy.bootstrap.offline import first_client

    loaded = load_settings(arguments.config, os.environ)
    settings = dataclasses.replace(
        loaded, country=arguments.country or loaded.country or _ask_country(loaded)
    )
    created = asyncio.run(prepare_instance(settings))
    client = asyncio.run(first_client(settings))
    data = {
        "environment_id": DEFAULT,
        "country": settings.country,
        "store": settings.store.label,
        "keys": settings.keys.described,
        "made": created,
    }
    lines = [
        "Made the vault."
        if created
        else f"The vault was there already{'.' if client else '; nothing was changed.'}",
        f"  country      {settings.country}",
        f"  store        {settings.store.label}",
        f"  keys         {settings.keys.described}",
    ]
    if client is not None:
        credentials = credentials_text(settings, client)
        data |= credentials
        lines.append(client_text("Made the first client, an administrator.", credentials))
    lines.append(
        "Keep a copy of the keys in another place than the copies of the store: without them "
        "nothing can be read again."
    )
    lines.append(_next(settings.country, loaded.country, arguments))
    return command.show(arguments, data, lines)


def _ask_country(settings: Settings) -> str:
    """Return the country of an existing vault, else the one typed on a terminal.

    Raises ``VaultError`` (BAD_SETTINGS).
    """
    from proxy.bootstrap.open_vault import country_of, has_vault

    if has_vault(settings) or not sys.stdin.isatty():
        return country_of(settings)
    while True:
        print(
            "Whose personal data does this vault keep? Country code of two letters, such as se: ",
            end="",
            file=sys.stderr,
            flush=True,
        )
        line = sys.stdin.readline()
        if not line:
            return country_of(settings)
        try:
            return country(line.strip())
        except ValueError as error:
            print(f"  {error}", file=sys.stderr)


def _next(country: str, written: str, arguments: Arguments) -> str:
    """Describe the next step; settings that name another country would be refused."""
    if written in ("", country):
        return "Next: domicile serve"
    return (
        f"Next: write `country: {country}` into {arguments.config or DEFAULT_FILE}, which says "
        f"{written}. Then: domicile serve"
    )


#: For a first try without a settings file.
_init_arguments: Final = argument("--country", metavar="CC",
    type=parsed_by(country, "; write two letters, such as se"),
    help="the country of this instance, such as se")  # fmt: skip

INIT_COMMAND: Final = Command(
    SUMMARIES["init"], "domicile init --country se", init_command, _init_arguments)  # fmt: skip
