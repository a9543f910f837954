"""An instance without a vault, which uses that of another one (``remote.vault``), or of the owner
that ``serve --workers`` has started; and the listener of the one that has it.
"""

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

from proxy.admin.app import Console, ReadinessCheck, Watchers, admin_app, metrics_app
from proxy.auth.audiences import Audiences
from proxy.bootstrap.api import issuer_outbound, scraper_secret
from proxy.bootstrap.edge import EdgeGuard, miss_limit, open_guard
from proxy.bootstrap.network import (
    OWNER_SOCKET,
    check_remote,
    gateway_options,
    listen_addresses,
    open_listeners,
    open_spans,
    remote_files,
    renew_certificates,
    upstream_routes,
)
from proxy.bootstrap.open_vault import refuse_other_country
from proxy.bootstrap.replicas import Team
from proxy.bootstrap.rules import (
    Overrides,
    RuleHistory,
    coverage_until_now,
    load_rules,
    open_console,
    refuse_lost,
    write_coverage,
    write_coverage_often,
)
from proxy.clock import Clock, system_clock
from proxy.config import ListenAddress, Settings
from proxy.crypto.keyset import Keyset
from proxy.crypto.prf import Prf, hasher
from proxy.errors import Code, VaultError
from proxy.gateway.callers import Callers
from proxy.gateway.gateway import Gateway
from proxy.gateway.metrics import Applications, MeteredAccessLog
from proxy.model.rights import Principal
from proxy.net.coverage import Coverage
from proxy.net.listener import listen
from proxy.net.memory_budget import collect_often, settle_memory
from proxy.net.server import ApplicationConnection
from proxy.net.sockets import cannot_listen, copied
from proxy.net.tls import MutualCertificates, client_context, valid_until
from proxy.redactor.exchange.front import FrontRules
from proxy.redactor.exchange.owner import OwnerTerms, VaultOwner
from proxy.redactor.exchange.reload import Reloader, RuleFiles
from proxy.redactor.exchange.runtime import VaultRules
from proxy.redactor.rules import RuleSet
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import Reload

_log = logs.logger("bootstrap")

#: Seconds that requests wait for an owner that is gone: one of a supervisor is started again at
#: once, and of another machine nobody knows.
_PATIENCE: Final = 20.0
_PATIENCE_REMOTE: Final = 5.0
#: The section of its settings.
_SECTION: Final = "remote"


# ---------------------------------------------------------------------- the one that has the vault


class OwnedRules(NamedTuple):
    """The rules that an owner offers to fronts: in force, and before."""

    in_force: VaultRules
    earlier: RuleHistory


@asynccontextmanager
async def serving_fronts(
    settings: Settings,
    overrides: Overrides | None,
    rules: OwnedRules,
    keyset: Keyset,
    certificates: MutualCertificates | None,
) -> AsyncIterator[VaultOwner | None]:
    """Let others use the vault, as far as the settings or the supervisor say so, until the block
    ends. Raises ``VaultError``: PORT_IN_USE, BAD_SETTINGS.
    """
    sockets = overrides.sockets if overrides else ()
    numbers = [number for name, number in sockets if name == OWNER_SOCKET]
    remote = settings.remote.listen
    if remote is None and not numbers:
        yield None
        return
    secret = bytes(keyset.hasher("fronts")(settings.country.encode()))  # under one root alone
    owner, loop = (
        VaultOwner(rules.in_force, OwnerTerms(settings.country, secret), rules.earlier),
        asyncio.get_running_loop(),
    )
    for number in numbers:
        factory = partial(owner.connection, _is_own)
        owner.servers.append(await loop.create_unix_server(factory, sock=copied(number)))
    if remote is not None and certificates is not None:
        admit = partial(is_named, frozenset(settings.remote.clients))
        factory = partial(owner.connection, admit)
        try:
            server = await loop.create_server(factory, *remote, ssl=certificates.context)
        except OSError as error:
            raise cannot_listen(_SECTION, remote, error) from None
        owner.servers.append(server)
        host, port = server.sockets[0].getsockname()[:2]
        _log.info("listening", listener=_SECTION, address=str(ListenAddress(host, port)))
    try:
        yield owner
    finally:
        await owner.drain(0)


def _is_own(transport: asyncio.BaseTransport) -> bool:
    """Whether a process of this user, or of root, is at the other end."""
    end = transport.get_extra_info("socket")
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the folder of the socket lets nobody else in
    content = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", content)
    return user in (0, os.getuid())


def is_named(names: frozenset[str], transport: asyncio.BaseTransport) -> bool:
    """Whether the certificate that was shown, and verified, is for one of these names, and has not
    ended since.
    """
    certificate = transport.get_extra_info("peercert") or {}
    if system_clock() >= valid_until(certificate):
        _log.warning("the certificate of an instance that uses this vault has ended")
        return False
    if names.isdisjoint(certified_names(certificate)):
        _log.warning("a certificate was shown that is not for a name in remote.clients")
        return False
    return True


def certified_names(certificate: Mapping[str, Any]) -> set[str]:
    """Return the DNS names of a certificate, or without any its common names."""
    names = {text for kind, text in certificate.get("subjectAltName", ()) if kind == "DNS"}
    if names:
        return names
    pairs = [pair for one in certificate.get("subject", ()) for pair in one]
    return {text for key, text in pairs if key == "commonName"}


# ---------------------------------------------------------------------- the one without a vault


@dataclass(slots=True)
class Front:
    """A started instance without a vault; as ``bootstrap.instance.Running``, for its commands."""

    rules: FrontRules
    gateway: Gateway
    reload: Callable[[], Coroutine[Any, Any, None]]
    taken_over: asyncio.Event = field(default_factory=asyncio.Event)
    owner: None = None


def is_front(settings: Settings) -> bool:
    """Whether the vault is that of another process."""
    worker = settings.worker
    return settings.remote.vault is not None or (worker is not None and worker.role == "front")


def _owner_connector(
    settings: Settings,
) -> Callable[[Callable[[], asyncio.Protocol]], Awaitable[Any]]:
    """The way to the owner; certificates are read again for each connection."""
    loop, worker, remote = asyncio.get_running_loop(), settings.worker, settings.remote.vault

    async def to_worker(make: Callable[[], asyncio.Protocol]) -> None:
        path = str(worker.folder / OWNER_SOCKET) if worker is not None else ""
        await loop.create_unix_connection(make, path)

    async def to_remote(make: Callable[[], asyncio.Protocol]) -> None:
        host, port = remote or ("", 0)
        try:
            context = client_context(*remote_files(settings), section=_SECTION)
        except VaultError as error:
            raise OSError(error.message) from None
        await loop.create_connection(make, host, port, ssl=context, server_hostname=host)

    return to_worker if remote is None else to_remote


@asynccontextmanager
async def running_front(
    settings: Settings, overrides: Overrides | None = None, clock: Clock = system_clock
) -> AsyncIterator[Front]:
    """A whole instance without a vault, listening; drained and closed when the block ends.

    A start needs the owner, and waits a while until that has the same rules. Raises ``VaultError``,
    also where it has another country.
    """
    check_remote(settings)
    async with AsyncExitStack() as stack:
        metrics = Metrics()
        patience = _PATIENCE_REMOTE if settings.remote.vault else _PATIENCE
        # a worker has the clock of its owner
        shared_clock = None if settings.remote.vault else clock
        in_use = FrontRules(_owner_connector(settings), patience, shared_clock)
        files, load = RuleFiles(settings.rules), partial(load_rules, settings, overrides)
        rules = load()
        in_use.begin(rules)
        work(stack, in_use.link.run())
        settings, hashed = await _welcomed(settings, in_use)
        # one that is started again may have read files that the owner is about to read
        if not await in_use.link.follows(rules.version):
            refuse_lost(settings, rules, rules_before=True)
            _log.warning("the owner of the vault has other rules: give both the same files")
        guard = open_guard(settings, metrics)
        guard.share(settings.limits.store, hashed)
        applications = Applications(metrics, *upstream_routes(settings))
        spans = open_spans(stack, settings)
        access_log = MeteredAccessLog(metrics, rules, access=settings.log.access, tracer=spans)
        coverage = Coverage(metrics, rules, coverage_until_now(settings), clock)
        stack.callback(write_coverage, settings, coverage)

        async def adopt(fresh: RuleSet) -> Any:
            runtime = await in_use.adopt(fresh)
            access_log.announce(fresh)
            coverage.announce(fresh)
            return runtime

        reloader = Reloader(files, load, adopt, in_use, metrics)
        ins = open_listeners(settings, Audiences(), metrics, clock, guard.first)
        options = replace(
            gateway_options(settings, applications, guard, ins.proxy, hashed("entity tags")),
            misses=miss_limit(settings, guard, _guessed),
            callers=Callers(await stack.enter_async_context(issuer_outbound(settings)), clock),
        )
        gateway = Gateway(in_use, access_log, options, coverage)
        stack.push_async_callback(gateway.close)
        stack.callback(ins.close)
        console = open_console(settings, lambda: in_use.runtime.rules, coverage, reloader.state)
        states = (reloader.state, *ins.states(), applications.state, *guard.states())
        renew = ins.with_files(partial(renew_certificates, settings, applications))
        parts = _Parts(settings, overrides, metrics, guard, reloader, states, renew, console)
        started = Front(in_use, gateway, parts.reload)
        await _listen(stack, parts, started, {"owner": in_use.check, **ins.checks()})
        work(stack, reloader.watch(), ins.watch(), *guard.work(), collect_often())
        work(stack, write_coverage_often(settings, coverage))
        settle_memory()
        yield started


class _Parts(NamedTuple):
    """Parts of a front that its listeners need."""

    settings: Settings
    overrides: Overrides | None
    metrics: Metrics
    guard: EdgeGuard
    reloader: Reloader
    states: Sequence[Reload]
    renew: Callable[[], None]
    console: Console

    async def reload(self) -> None:
        """Load everything again that can change while requests go on."""
        self.renew()
        await self.reloader.reload()
        await self.guard.reload()

    async def reloaded(self) -> dict[str, str | None]:
        """The same, and what is stale then."""
        await self.reload()
        return {state.what: await state.check() for state in self.states}

    async def scrape(self) -> bytes:
        return self.metrics.render()


async def _listen(
    stack: AsyncExitStack, parts: _Parts, started: Front, checks: dict[str, ReadinessCheck]
) -> None:
    """Open the listeners; workers have one for callers, and their owner the others."""
    settings, guard, enter = parts.settings, parts.guard, stack.enter_async_context
    at = listen_addresses(settings, parts.overrides.sockets if parts.overrides else ())
    if settings.worker is not None:
        team = Team(settings.worker, parts.metrics.render, checks, parts.reloaded)
        await enter(team.answering())
    else:
        watchers = Watchers(_nobody, scraper_secret(settings))
        admin = admin_app(checks, parts.states, parts.scrape, watchers, parts.console)
        await enter(listen("admin", at["admin"], admin, ApplicationConnection, guard.admin))
        if "metrics" in at:
            await enter(listen("metrics", at["metrics"], metrics_app(parts.scrape)))
    await enter(listen("proxy", at["proxy"], started.gateway.server, first=guard.first))


async def _welcomed(
    settings: Settings, in_use: FrontRules
) -> tuple[Settings, Callable[[str], Prf]]:
    """The settings with the country of the vault, and keyed hashes that all fronts share."""
    await in_use.link.channel()
    welcome = in_use.link.welcome
    if welcome is None:
        raise TypeError("a connection was not greeted")
    refuse_other_country(settings, welcome.country.encode())
    root = hasher(welcome.secret)
    return replace(settings, country=welcome.country), lambda name: hasher(root(name.encode()))


def _guessed(endpoint: str, operation: str) -> None:
    _log.error("somebody guesses at values", endpoint=endpoint, operation=operation)


async def _nobody(_: Any) -> Principal:
    raise VaultError(
        Code.UNAUTHORIZED,
        "Access tokens are for the instance that has the vault: set admin.metrics_token here.",
    )


def work(stack: AsyncExitStack, *works: Coroutine[Any, Any, None]) -> None:
    """Do these in the background, until the stack ends."""
    for work in works:
        task = asyncio.create_task(work)
        task.add_done_callback(_report_end)
        stack.push_async_callback(_cancel, task)


def _report_end(task: asyncio.Task[None]) -> None:
    """Log work that ended in an exception: its part is not looked after any more."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a background task failed for good: restart", exc_info=error)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
