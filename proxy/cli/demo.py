"""``domicile demo``: a sample application, the proxy before it, the vault, a page of both views."""

import os
import shutil
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import proxy.demo
from proxy.cli import SUMMARIES
from proxy.cli.command import OK, Arguments, Command, argument, argument_list, number_option
from proxy.config import ListenAddress, Settings, load_settings
from proxy.config.document import variable
from proxy.config.schema import SETTINGS
from proxy.errors import Code, VaultError
from proxy.model.record import DEFAULT

if TYPE_CHECKING:
    from proxy.auth.clients import Clients, NewClient

_HOST: Final = "127.0.0.1"
_RULES: Final = Path("rules/contacts.yaml")
_APPLICATION: Final = 3000  #: the port of the application

_COUNTRY: Final = "se"  #: where the people of the samples live

_VISITOR: Final = "demo"  #: name of the client that the demo shows

#: Ports in the order of ``Ports``.
WantedPorts = tuple[int, int, int, int, int]

_TEXT: Final = """
  Domicile is running. Open the first address in a browser:

    both views, side by side      {page}
    the application, for people   {proxy}/contacts
    the application, by itself    {application}/contacts
    the vault's own interface     {vault}/docs
      client id                   {client}
      client secret               {secret}
    rules and what they cover     {admin}/console

  Or ask both sides in another terminal, and add somebody:

    curl -s {proxy}/api/contacts
    curl -s {application}/api/contacts
    curl -s {proxy}/api/contacts -H 'Content-Type: application/json' -d '{{"first_name": "Edith", "last_name": "Holm"}}'

  Edit {rules} and save: the proxy follows within a second.
  Everything stays in {data} for the next start. Ctrl-C stops.
"""


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of the demo: the usual ones, or free ones where those are taken."""

    page: int
    proxy: int
    vault: int
    admin: int
    application: int


def run(arguments: Arguments) -> int:
    """Run until Ctrl-C. Started again, it finds the people of last time."""
    try:
        return _run(arguments, _wanted(arguments))
    except VaultError as error:
        if error.code is not Code.PORT_IN_USE:
            raise
    # Another program was quicker to take a port that was free just now: a second demo, which wants
    # the other ones as well.
    return _run(arguments, (0, 0, 0, 0, 0))


def _wanted(arguments: Arguments) -> WantedPorts:
    """The ports of the settings, which are the usual ones where they name none."""
    listen = load_settings(arguments.config, os.environ).listen
    ports = listen.proxy.port, listen.vault.port, listen.admin.port
    return (arguments.port, *ports, _APPLICATION)


def _run(arguments: Arguments, wanted: WantedPorts) -> int:
    from proxy.bootstrap.edge import raise_file_limit
    from proxy.cli.supervisor import run_on_uvloop

    ports = free_ports(wanted)
    settings = _settings(arguments, ports)
    _log_from("warning")
    raise_file_limit()
    return run_on_uvloop(demo(settings, ports))


def _log_from(level: str) -> None:
    from proxy.telemetry import logs

    logs.configure(logs.Style(level, "text", strict=False))


def _settings(arguments: Arguments, ports: Ports) -> Settings:
    """The settings of a demo: its vault is always its own, whatever else this machine serves."""
    own = {
        "data": str(arguments.data),
        "store": SETTINGS["store"].default,
        "keys": SETTINGS["keys"].default,
        "rules": str(_rules_file(arguments.data)),
        "listen.proxy": f"{_HOST}:{ports.proxy}",
        "listen.vault": f"{_HOST}:{ports.vault}",
        "listen.admin": f"{_HOST}:{ports.admin}",
    }
    settings = load_settings(
        arguments.config, {**os.environ, **{variable(name): text for name, text in own.items()}}
    )
    return replace(settings, country=settings.country or _COUNTRY)


def _rules_file(data: Path) -> Path:
    """The rules: those of the clone that the demo runs in, else an editable copy in its data."""
    if _RULES.is_file():
        return _RULES
    copy = data / _RULES.name
    if not copy.exists():
        packed = Path(proxy.demo.__file__).with_name(_RULES.name)
        source = packed if packed.is_file() else Path(proxy.__file__).parents[1] / _RULES
        try:
            data.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
        except OSError as error:
            text = f"The rules of the demo cannot be copied to {copy} ({error.strerror})."
            raise VaultError(Code.BAD_RULES, text) from None
    return copy


async def demo(settings: Settings, ports: Ports) -> int:
    """Start everything, say where to look, wait for Ctrl-C."""
    from proxy.bootstrap.instance import running
    from proxy.bootstrap.rules import Overrides
    from proxy.cli.supervisor import stop_signal
    from proxy.demo.contacts import STORE, contacts_app
    from proxy.demo.store import plant
    from proxy.demo.two_views import Links, twoviews_app
    from proxy.net.listener import listen

    links = Links(
        proxy=f"http://{_HOST}:{ports.proxy}",
        application=f"http://{_HOST}:{ports.application}",
        vault=f"http://{_HOST}:{ports.vault}",
        admin=f"http://{_HOST}:{ports.admin}",
        rules=str(settings.rules),
    )
    stop = stop_signal()
    async with AsyncExitStack() as stack:
        started = await stack.enter_async_context(
            running(settings, Overrides({"contacts": links.application}))
        )
        visitor = await _visitor(started.auth.clients)
        contacts = contacts_app(settings.data / "contacts.json")
        await stack.enter_async_context(
            listen("application", ListenAddress(_HOST, ports.application), contacts)
        )
        await plant(links.proxy)
        views = twoviews_app(links, contacts[STORE])
        await stack.enter_async_context(listen("page", ListenAddress(_HOST, ports.page), views))
        print(
            _TEXT.format(
                page=f"http://{_HOST}:{ports.page}",
                proxy=links.proxy,
                vault=f"http://{_HOST}:{ports.vault}",
                admin=links.admin,
                client=visitor.client.id,
                secret=visitor.secret,
                application=links.application,
                rules=links.rules,
                data=settings.data,
            ),
            flush=True,
        )
        _log_from("info")  # from here on: whether an edited rule file took effect
        await stop
    print("\n  Stopped; make demo (or domicile demo) goes on where you left.", flush=True)
    return OK


async def _visitor(clients: "Clients") -> "NewClient":
    """Create the demo's client: always the same one, with a new secret, which is not stored."""
    from proxy.auth.clients import Grant

    visitors = [
        client for client in clients.listed() if client.name == _VISITOR and not client.disabled
    ]
    return await (
        clients.renew(visitors[0].id)
        if visitors
        else clients.create(_VISITOR, DEFAULT, Grant(admin=True))
    )


def free_ports(wanted: WantedPorts) -> Ports:
    """The wanted ports of 127.0.0.1 in the order of ``Ports``; free ones replace occupied ones."""
    taken: set[int] = set()
    return Ports(*(_free(port, taken) for port in wanted))


def _free(wanted: int, taken: set[int]) -> int:
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
            free = int(probe.getsockname()[1])
            if free not in taken:
                taken.add(free)
                return free
    raise VaultError(
        Code.PORT_IN_USE,
        f"No free port was found on {_HOST}: stop a program that uses many of them.",
    )


_arguments: Final = argument_list(
    argument("--data", metavar="FOLDER", type=Path, default=Path("demo-data"),
        help="default: ./demo-data"),
    argument("--port", default=8090,
        type=number_option(0, 65_535, "a port is a whole number from 0 to 65535"),
        help="port of the two-view page (default: 8090, or a free one)"),
)  # fmt: skip

COMMAND: Final = Command(
    SUMMARIES["demo"],
    "domicile demo", run, _arguments, data=False)  # fmt: skip
