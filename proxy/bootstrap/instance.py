"""The composition root: settings in, running applications out.

No other file names a concrete engine.

Start order: rules, which are only read; then store and keys, which a first start makes; then
listeners, so that a process that listens can serve. Every fault on the way is one ``VaultError``
whose sentence says what to do; nothing is left half-made.
"""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from proxy.admin.app import Console, Watchers, admin_app, metrics_app
from proxy.api.app import vault_app
from proxy.api.connection import LOCAL
from proxy.audit import last_instant
from proxy.auth.authorization_server import AuthorizationServer
from proxy.bootstrap.api import (
    SharedServices,
    environment_services,
    interface,
    issuer_outbound,
    keep_keys,
    open_access,
    open_approvals,
    outbound_clients,
    scraper_secret,
)
from proxy.bootstrap.audit import OpenAudit, open_audit, own_chain
from proxy.bootstrap.edge import EdgeGuard, miss_limit, open_guard
from proxy.bootstrap.environments import EnvironmentSet, OpenEnvironment, opening
from proxy.bootstrap.front import Front, OwnedRules, is_front, running_front, serving_fronts, work
from proxy.bootstrap.functions import start_functions
from proxy.bootstrap.keys import InstanceKeys, Places, vaults_of
from proxy.bootstrap.network import (
    Listeners,
    gateway_options,
    listen_addresses,
    open_listeners,
    open_spans,
    renew_certificates,
    upstream_routes,
)
from proxy.bootstrap.offline import admit_mounted
from proxy.bootstrap.open_vault import (
    country_of,
    key_source,
    open_environments,
    open_files,
    open_with_key,
    unobserved,
    vault_options,
)
from proxy.bootstrap.replicas import ClockWatch, Team, announce_start, follow, watch_store
from proxy.bootstrap.rules import (
    Overrides,
    RuleHistory,
    coverage_until_now,
    first_rules,
    load_earlier,
    load_rules,
    open_console,
    refuse_lost,
    write_coverage,
    write_coverage_often,
)
from proxy.bootstrap.schemas import govern, hooks_of, measure, observer, open_schemas, vault_check
from proxy.clock import Clock, system_clock
from proxy.config import Settings
from proxy.errors import Code, VaultError
from proxy.gateway.callers import Callers
from proxy.gateway.gateway import Gateway
from proxy.gateway.metrics import Applications, MeteredAccessLog
from proxy.model.record import DEFAULT
from proxy.net.coverage import Coverage
from proxy.net.listener import ENDS_BY, Address, listen, listen_local
from proxy.net.memory_budget import collect_often, settle_memory
from proxy.net.server import ApplicationConnection
from proxy.net.sockets import local_taken_over
from proxy.redactor.exchange.owner import VaultOwner
from proxy.redactor.exchange.reload import Reloader, RuleChanges, RuleFiles
from proxy.redactor.exchange.runtime import Runtime, VaultRules, bind_earlier, bind_rules
from proxy.redactor.rules import RuleSet
from proxy.storage import engine_of
from proxy.storage.base import Store
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import Reload
from proxy.vault.schemas import Catalog, Origin
from proxy.vault.vault import Vault, new_vault, open_vault

_log = logs.logger("bootstrap")

#: Seconds between two rounds of maintenance; expiry is exact without it.
_ROUND = 10.0
#: Seconds between two attempts to start while the store cannot be reached.
_AGAIN = 0.5


@dataclass(slots=True)
class Running:
    """A started instance: its addresses, and its active rules."""

    rules: VaultRules
    vault: Vault
    reloader: Reloader
    gateway: Gateway
    auth: AuthorizationServer
    renew: Callable[[], None]  #: reads the files for TLS again, towards callers and applications
    catalog: Catalog
    #: reads the files with schemas and those with policies again
    redeclare: Callable[[], Awaitable[bool]]
    guard: EdgeGuard
    console: Console
    #: ``host:port`` of each listener; empty: there is none
    proxy: str = ""
    admin: str = ""
    interface: str = ""
    metrics: str = ""
    #: set when another instance has the vault, so that this one has to end
    taken_over: asyncio.Event = field(default_factory=asyncio.Event)
    owner: VaultOwner | None = None  #: of the vault that other processes use

    async def reload(self) -> None:
        """Load everything again that can change while requests go on."""
        self.renew()
        await self.reloader.reload()
        await self.redeclare()
        await self.guard.reload()


async def prepare_instance(settings: Settings) -> bool:
    """Make missing parts: data folder, store, master key, keyset. Return whether any was missing.

    Idempotent. A store that belongs to a key never gets another one: a missing key file must be
    restored. Nor does what a lost vault has left get another vault.
    """
    store, created = await open_with_key(settings, begins=True)
    try:
        source, options = key_source(settings.keys), vault_options(settings)
        vault = await open_vault(store, source, system_clock, unobserved, options)
        await (await open_files(settings, vault)).close()
    finally:
        await store.close()
    return created


def serving(
    settings: Settings, overrides: Overrides
) -> AbstractAsyncContextManager[Running | Front]:
    """An instance as the settings have it: with a vault, or using that of another process."""
    return (
        running_front(settings, overrides) if is_front(settings) else running(settings, overrides)
    )


@asynccontextmanager
async def running(
    settings: Settings, overrides: Overrides | None = None, clock: Clock = system_clock
) -> AsyncIterator[Running]:
    """A whole instance, listening; everything is drained and closed when the block ends."""
    async with AsyncExitStack() as stack:

        async def start() -> Running:
            async with AsyncExitStack() as attempt:
                started = await _started(attempt, settings, overrides, clock)
                stack.push_async_callback(attempt.pop_all().aclose)
                return started

        yield await _once_there(settings, start)


# ---------------------------------------------------------------------- parts


async def _once_there(settings: Settings, start: Callable[[], Awaitable[Running]]) -> Running:
    """Return an instance as soon as the store can be reached, and for as long as it says; a store
    that goes away when listeners are open already is waited for as well, with none open.
    """
    engine, location = engine_of(settings.store.uri)
    end, reason = time.monotonic() + engine.patience(location), ""
    while True:
        try:
            return await start()
        except VaultError as error:
            if error.code is not Code.VAULT_DOWN or time.monotonic() > end:
                raise
            if error.message != reason:
                reason = error.message
                _log.warning("the start waits for the store, and is tried again", text=reason)
        await asyncio.sleep(_AGAIN)


async def _started(
    stack: AsyncExitStack, settings: Settings, overrides: Overrides | None, clock: Clock
) -> Running:
    base, ins, started, coverage, watched, states = await _open(stack, settings, overrides, clock)
    sockets, path = overrides.sockets if overrides else (), settings.listen.socket
    local = local_taken_over(path, sockets) if path else None
    base = base._replace(addresses=listen_addresses(settings, sockets), local=local)
    taken = [
        one for address in base.addresses.values() if isinstance(address, list) for one in address
    ]
    for one in taken if local is None else (*taken, local):
        stack.callback(one.close)
    await _listen(stack, base, ins, started, states)
    load = partial(load_earlier, base.settings, overrides)
    services = base.vault, base.metrics, base.audit.services, base.catalog
    earlier = RuleHistory(base.store, clock, load, lambda rules: bind_earlier(rules, *services))
    offered = OwnedRules(started.rules, earlier)
    parts = (base.settings, overrides, offered, base.vault.keyset, ins.remote)
    started.owner = await stack.enter_async_context(serving_fronts(*parts))
    work(stack, started.reloader.watch(), base.audit.log.run(), ins.watch())
    work(stack, *base.guard.work())
    await base.audit.log.begin(started.rules.runtime.rules.version)
    work(stack, watch_store(base.store, *watched, _ROUND))
    work(stack, write_coverage_often(settings, coverage))
    settle_memory()
    await announce_start(base.store)
    return started


async def _open(
    stack: AsyncExitStack, settings: Settings, overrides: Overrides | None, clock: Clock
) -> tuple["_Base", Listeners, Running, Coverage, tuple[Reload, ClockWatch], Sequence[Reload]]:
    """Return an instance that has all but its listeners."""
    metrics, settings = Metrics(), replace(settings, country=country_of(settings))
    files = RuleFiles(settings.rules)
    rules = first_rules(settings, overrides)
    applications = Applications(metrics, *upstream_routes(settings))
    guard = open_guard(settings, metrics)
    base = await _open_base(stack, settings, guard, clock, metrics)
    vault, catalog, audit, auth = base.vault, base.catalog, base.audit, base.auth
    refuse_lost(settings, rules, any(one.origin is Origin.RULES for one in catalog.schemas()))

    def bind(rules: RuleSet) -> Awaitable[Runtime]:
        return bind_rules(rules, vault, metrics, audit.services, catalog)

    in_force = VaultRules(await bind(rules))
    default = base.environments.spaces[DEFAULT]
    governed = await govern(default.policies, catalog, settings.policies, metrics)
    access_log = MeteredAccessLog(
        metrics, rules, access=settings.log.access, tracer=open_spans(stack, settings)
    )
    coverage = Coverage(metrics, rules, coverage_until_now(settings), clock)
    stack.callback(write_coverage, settings, coverage)
    observers = (access_log.announce, coverage.announce)
    adopt = RuleChanges(bind, observers, in_force, audit.services, metrics).adopt
    load = partial(load_rules, settings, overrides)
    reloader = Reloader(files, load, adopt, in_force, metrics)
    ins = open_listeners(settings, auth.audiences, metrics, clock, guard.first)
    tagged = vault.keyset.hasher("entity tags")
    guessed = partial(audit.services.guessed, vault.environment)
    options = replace(
        gateway_options(settings, applications, guard, ins.proxy, tagged),
        misses=miss_limit(settings, guard, guessed),
        callers=Callers(await stack.enter_async_context(issuer_outbound(settings)), clock),
    )
    gateway = Gateway(in_force, access_log, options, coverage)
    stack.push_async_callback(gateway.close)
    stack.callback(ins.close)
    started = Running(
        rules=in_force,
        vault=vault,
        reloader=reloader,
        gateway=gateway,
        auth=auth,
        renew=ins.with_files(partial(renew_certificates, settings, applications)),
        catalog=catalog,
        redeclare=partial(governed.reread, settings),
        guard=guard,
        console=open_console(settings, lambda: in_force.runtime.rules, coverage, reloader.state),
        taken_over=base.taken_over,
    )
    notes, time_of = Reload(metrics, "notes"), Reload(metrics, "clock")
    watched = notes, ClockWatch(time_of, clock, last_instant(settings.chain_folder))
    states = (reloader.state, notes, time_of, *governed.states, *ins.states(), applications.state)
    return base, ins, started, coverage, watched, (*states, *guard.states())


class _Base(NamedTuple):
    """The parts of an instance below its listeners, open."""

    settings: Settings
    store: Store
    vault: Vault
    catalog: Catalog
    audit: OpenAudit
    auth: AuthorizationServer
    environments: EnvironmentSet
    guard: EdgeGuard
    metrics: Metrics
    clock: Clock
    taken_over: asyncio.Event
    addresses: Mapping[str, Address] = {}
    local: socket.socket | None = None  #: that is there already


async def _open_base(
    stack: AsyncExitStack, settings: Settings, guard: EdgeGuard, clock: Clock, metrics: Metrics
) -> _Base:
    """Open store, keys, environments and audit log; the stack closes them."""
    hooks, taken_over = hooks_of(metrics), asyncio.Event()
    store, _ = await open_with_key(settings, hooks)
    stack.push_async_callback(store.close)
    book, keysets = await open_environments(settings, store, clock)
    keyset = keysets[DEFAULT]
    guard.share(settings.limits.store, keyset.hasher)
    vault = new_vault(keyset, store, clock, observer(metrics), vault_options(settings))
    contents = await open_files(settings, vault, lambda: [one.id for one in book.listed()])
    stack.push_async_callback(contents.close)
    if store.replicas is not None:
        stack.callback(os.close, own_chain(settings))
    audit = await open_audit(settings, store, keyset, clock, metrics)
    stack.push_async_callback(audit.close)

    def leave() -> None:
        audit.log.leave()
        taken_over.set()

    hooks.taken_over = leave
    auth = await open_access(settings, store, keysets, clock, metrics)
    stack.callback(auth.close)
    await admit_mounted(settings, auth.clients, audit.log)
    catalog = await open_schemas(vault, settings.schemas, settings.records)
    stack.push_async_callback(catalog.close)
    opened = opening(settings, store, clock, metrics, contents)
    environments = EnvironmentSet(book, auth.clients, opened, metrics)
    stack.push_async_callback(environments.close)
    services = await environment_services(vault, catalog, contents)
    await environments.start(OpenEnvironment(vault, catalog, services), keysets)
    parts = (settings, store, vault, catalog, audit, auth, environments, guard, metrics, clock)
    return _Base(*parts, taken_over)


async def _listen(
    stack: AsyncExitStack, base: _Base, ins: Listeners, started: Running, states: Sequence[Reload]
) -> None:
    """Open the listeners and begin the maintenance of keys and environments."""
    settings, auth, environments, audit = base.settings, base.auth, base.environments, base.audit
    guard, metrics = base.guard, base.metrics
    shared = SharedServices(auth, metrics, guard, audit.interface)
    services = interface(settings, environments, shared)
    source = key_source(settings.keys)
    places = Places(base.store, source, auth.keys, audit.keys, lambda: audit.log)
    ring = InstanceKeys(places, lambda: vaults_of(environments.vaults()), metrics)
    enter, at = stack.enter_async_context, base.addresses
    services.keys = await enter(ring.running())
    states = (*states, ring.state)
    services.auditor = audit.auditor
    services.approvals = await open_approvals(settings, base.store, base.vault.keyset, base.clock)

    async def reload() -> dict[str, str | None]:
        await started.reload()
        return {state.what: await state.check() for state in states}

    async def scrape() -> bytes:
        return metrics.render()

    checks = {"vault": vault_check(base.vault), "audit": audit.check, **ins.checks()}
    services.reload = reload
    if settings.worker is not None:
        team = Team(settings.worker, metrics.render, checks, reload)
        await enter(team.answering())
        services.reload, scrape = team.reload, team.metrics
        checks = {**checks, "workers": team.check}
    await enter(outbound_clients(services, settings, metrics, base.clock))
    stack.push_async_callback(services.functions.close)
    await start_functions(services.functions, metrics)
    watchers = Watchers(services.access, scraper_secret(settings))
    interface_app = vault_app(services, hsts=ins.hsts)
    admin = admin_app(checks, states, scrape, watchers, started.console)
    admin[ENDS_BY] = interface_app[ENDS_BY] = lambda: started.gateway.ends_by
    started.interface = await enter(
        listen("vault", at["vault"], interface_app, ins.vault_connection, guard.first)
    )
    auth.audiences.listening(started.interface)
    started.admin = await enter(
        listen("admin", at["admin"], admin, ApplicationConnection, guard.admin)
    )
    if settings.listen.socket is not None:
        local = vault_app(services)
        local[LOCAL], local[ENDS_BY] = environments.spaces, interface_app[ENDS_BY]
        await enter(listen_local(settings.listen.socket, local, base.local))
    if "metrics" in at:
        started.metrics = await enter(listen("metrics", at["metrics"], metrics_app(scrape)))
    honeytokens = audit.services.honeytokens.load
    work(stack, *await follow(base.store, auth, services, (honeytokens, ring.follow, environments)))
    if settings.worker is None or settings.worker.role != "owner":
        proxy = listen("proxy", at["proxy"], started.gateway.server, first=guard.first)
        started.proxy = await enter(proxy)
    work(stack, environments.run_maintenance(_ROUND), measure(environments.vaults, metrics, _ROUND))
    work(stack, keep_keys(auth, _ROUND), ring.run_maintenance(_ROUND), collect_often())
