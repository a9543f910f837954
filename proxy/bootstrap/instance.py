"""The composition root: settings in, running applications out.

No other file names a concrete engine.

Start order: rules, which are only read; then store and keys, which a first start makes; then
listeners, so that a process that listens can serve. Every fault on the way is one ``VaultError``
whose sentence says what to do; nothing is left half-made.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from proxy import offload
from proxy.admin import Watchers, admin_app
from proxy.api.app import vault_app
from proxy.audit.services import no_audit
from proxy.auth.clients import NewClient
from proxy.auth.token_service import TokenService
from proxy.bootstrap.api import (
    Around,
    environment_services,
    interface,
    keep_keys,
    open_access,
    outbound_clients,
    scraper_secret,
)
from proxy.bootstrap.audit import open_audit
from proxy.bootstrap.edge import EdgeGuard, open_guard
from proxy.bootstrap.environments import OpenEnvironment, Realm, govern, opening, reread
from proxy.bootstrap.keys import InstanceKeys, Places, vaults_of
from proxy.bootstrap.network import doors, gateway_options, redirected, renew_certificates, ways
from proxy.bootstrap.offline import OfflineChanges, stopped_clients
from proxy.bootstrap.schemas import measure, observer, open_schemas, report, vault_check
from proxy.bootstrap.storage import (
    check_file_store,
    country_of,
    key_source,
    look_beside,
    open_embedded,
    open_environments,
    open_files,
    open_with_key,
    refuse_lost_key,
    refuse_other_country,
    unobserved,
    vault_options,
)
from proxy.clock import Clock, system_clock
from proxy.config import Settings
from proxy.config.schema import SETTINGS
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, Detail, VaultError
from proxy.gateway.gateway import Gateway
from proxy.gateway.metrics import Applications, MetricsJournal
from proxy.model.record import DEFAULT
from proxy.model.schema import records_schema
from proxy.net.coverage import Coverage
from proxy.net.listener import listen
from proxy.net.memory import bound_arenas
from proxy.net.server import ApplicationConnection
from proxy.redactor.exchange.reload import Reloader
from proxy.redactor.exchange.rule_test_runner import run_case
from proxy.redactor.exchange.runtime import InForce, Runtime, bind_rules, refuse_unfit
from proxy.redactor.load import load_rule_set, no_rules
from proxy.redactor.load.rule_tests import Case, parse_case
from proxy.redactor.rules import RuleSet
from proxy.storage import open_store
from proxy.storage.base import Hooks
from proxy.storage.sqlite.file import refuse_new
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.vault.environments import has_keyset
from proxy.vault.schemas.catalog import Catalog
from proxy.vault.vault import Vault, VaultOptions, new_vault, open_vault

_log = logs.logger("bootstrap")

#: Allocations between two looks of the cycle collector, and looks after which it takes in older
#: objects: requests make no cycles, so it may look rarely, and at few objects at once, since nobody
#: is served meanwhile. At all of them it looks only in ``_collect``.
_COLLECT = (10_000, 10, 1_000_000)
#: Seconds between two such looks, and how many of them are left out at most while somebody works on
#: a long body.
_COLLECTED = 60.0
_SKIPPED = 10

#: How often a rule file's own test is tried before it counts as failed.
_TRIALS = 4

#: Seconds between two rounds of the janitor; expiry is exact without it.
_UPKEEP = 10.0


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the demo and tests change without touching a rule file: application addresses by
    endpoint name.
    """

    upstreams: Mapping[str, str]


@dataclass(slots=True)
class Running:
    """A started instance: where it listens, and what is in force."""

    proxy: str  #: ``host:port``
    admin: str
    rules: InForce
    vault: Vault
    reloader: Reloader
    gateway: Gateway
    auth: TokenService
    renew: Callable[[], None]  #: reads the files for TLS again, towards callers and applications
    catalog: Catalog
    #: reads the files with schemas and those with policies again
    redeclare: Callable[[], Awaitable[bool]]
    guard: EdgeGuard
    interface: str = ""  #: ``host:port`` of the vault's own interface


async def prepare_instance(settings: Settings) -> bool:
    """Make data folder, store, master key and keyset where they are missing; whether anything was
    made. Idempotent.

    A store that already belongs to a key never gets another one: a missing key file must be
    restored.
    """
    store, made = await open_with_key(settings)
    try:
        source, options = key_source(settings.keys), vault_options(settings)
        vault = await open_vault(store, source, system_clock, unobserved, options)
        await (await open_files(settings, vault)).close()
    finally:
        await store.close()
    return made


async def first_client(settings: Settings) -> NewClient | None:
    """The first client of a vault, an administrator, with its secret; ``None`` when there is a
    client already.
    """
    record = OfflineChanges("create_client", DEFAULT)
    async with stopped_clients(settings, record) as clients:
        if len(clients):
            return None
        await record.ready()
        made = await clients.create("first administrator", DEFAULT, admin=True)
        record.did(made.client.id)
        return made


def check_keys(settings: Settings) -> None:
    """Raise what a start would say of the key; a key file that is missing before the first start
    will be made by it.
    """
    source = key_source(settings.keys)
    if source.exists() or settings.keys.source != "file":
        source.load()


def check_store(settings: Settings) -> str:
    """Raise what a start would say of the store and whether key and store belong together; answers
    what was left out. Makes nothing.
    """
    if settings.store.path.exists():
        return asyncio.run(_check_store(settings))
    country_of(settings)
    refuse_new(settings.store.path)
    return "made at the first start"


def check_upstream(settings: Settings, rules: RuleSet | None) -> None:
    """Raise what a start would say of the ways to the applications; ``rules`` where they are in
    order.
    """
    ways(settings)
    if rules is not None:
        _refuse_strangers(settings, rules)


def _refuse_strangers(settings: Settings, rules: RuleSet) -> None:
    """Settings of an application that no rule names would quietly do nothing."""
    known = {endpoint.name for endpoint in rules.endpoints}
    told = f"no rule file has an endpoint of that name: there are {', '.join(sorted(known))}"
    strangers = tuple(
        Detail(f"applications.{name}", told) for name in settings.applications if name not in known
    )
    if strangers:
        raise VaultError(
            Code.BAD_SETTINGS, "The settings name applications that the rules do not.", strangers
        )


async def _check_store(settings: Settings) -> str:
    source = key_source(settings.keys)
    try:
        store = await open_embedded(settings)
    except VaultError as error:
        if error.code is not Code.STORE_BUSY:
            raise
        return look_beside(settings)
    try:
        refuse_other_country(settings, await store.note("country"))
        if not source.exists():
            await refuse_lost_key(settings, store)
        elif await has_keyset(store, DEFAULT):
            await open_vault(store, source, system_clock, unobserved, vault_options(settings))
        await check_file_store(settings, store)
    finally:
        await store.close()
    return ""


def load_rules(settings: Settings, overrides: Overrides | None = None) -> RuleSet:
    """The rule set of the settings' folder or file, whole; empty where there is no rule file in the
    folder, or no default folder.

    Raises ``VaultError(BAD_RULES)`` with every fault.
    """
    default = SETTINGS["rules"]
    if no_rules(settings.rules) and (
        settings.rules.exists() or settings.rules == default.read(default.default)
    ):
        return RuleSet("none", (), (), ())
    rules = load_rule_set(settings.rules)
    return rules if overrides is None else redirected(rules, overrides.upstreams)


async def try_rules(rules: RuleSet) -> dict[str, list[str]]:
    """Run the rule files' own tests, each on a fresh vault in memory: test name -> what does not
    hold.

    A short text that must not be seen may stand in a random token by chance. So what does not hold
    is tried again with other keys, and only what never holds is told.
    """
    results: dict[str, list[str]] = {}
    for test in rules.tests:
        case = parse_case(test)
        problems = await _tried(rules, case)
        for _ in range(_TRIALS - 1):
            if problems:
                again = await _tried(rules, case)
                problems = [problem for problem in problems if problem in again]
        results[f"{test.endpoint}: {test.name}"] = problems
    return results


async def _tried(rules: RuleSet, case: Case) -> list[str]:
    store = await open_store("memory:")
    vault = new_vault(
        Keyset.create("trial"), store, system_clock, unobserved, VaultOptions("trial", "SE", 1)
    )
    return await run_case(await bind_rules(rules, vault, Metrics(), no_audit()), case)


@asynccontextmanager
async def running(
    settings: Settings, overrides: Overrides | None = None, clock: Clock = system_clock
) -> AsyncIterator[Running]:
    """A whole instance, listening; everything is drained and closed when the block ends."""
    metrics, settings = Metrics(), replace(settings, country=country_of(settings))
    hooks = _hooks(metrics)
    async with AsyncExitStack() as stack:
        rules = _first_rules(settings, overrides)
        applications = Applications(metrics, *ways(settings))
        guard = open_guard(settings, metrics)
        store, _ = await open_with_key(settings, hooks)
        stack.push_async_callback(store.close)
        book, keysets = await open_environments(settings, store, clock)
        guard.share(settings.limits.store, keysets[DEFAULT].hasher)
        vault = new_vault(
            keysets[DEFAULT], store, clock, observer(metrics), vault_options(settings)
        )
        contents = await open_files(settings, vault, lambda: [found.id for found in book.listed()])
        stack.push_async_callback(contents.close)
        audit = await open_audit(settings, store, keysets[DEFAULT], clock, metrics)
        stack.push_async_callback(audit.close)
        auth = await open_access(settings, store, keysets, clock, metrics)
        stack.callback(auth.close)
        catalog = await open_schemas(vault, settings.schemas, settings.records)
        stack.push_async_callback(catalog.close)
        opened = opening(settings, store, clock, metrics, contents)
        stack.push_async_callback((realm := Realm(book, auth.clients, opened, metrics)).close)
        first = OpenEnvironment(
            vault, catalog, await environment_services(vault, catalog, contents)
        )
        await realm.start(first, keysets)
        in_force = InForce(await bind_rules(rules, vault, metrics, audit.services, catalog))
        governed = await govern(realm.spaces[DEFAULT].policies, catalog, settings.policies, metrics)
        told = MetricsJournal(metrics, rules), Coverage(metrics, rules)
        adopt = partial(
            _adopt, lambda fresh: bind_rules(fresh, vault, metrics, audit.services, catalog), told
        )
        reloader = Reloader(
            settings.rules, partial(load_rules, settings, overrides), adopt, in_force, metrics
        )
        ins = doors(settings, auth.audiences, metrics, clock, guard.first)
        options = gateway_options(settings, applications, guard, ins.proxy, vault.keyset)
        stack.push_async_callback((gateway := Gateway(in_force, told[0], options, told[1])).close)
        stack.callback(ins.close)
        renewed = ins.with_files(partial(renew_certificates, settings, applications))
        declared = partial(reread, governed, settings)
        started = Running(
            "", "", in_force, vault, reloader, gateway, auth, renewed, catalog, declared, guard
        )
        checks = {"vault": vault_check(vault), "audit": audit.check, **ins.checks()}
        states = [
            reloader.state,
            *governed.states,
            *ins.states(),
            applications.state,
            *guard.states(),
        ]
        services = interface(settings, realm, Around(auth, metrics, guard, audit.interface))
        places = Places(store, key_source(settings.keys), auth.keys)
        ring = InstanceKeys(places, lambda: vaults_of(realm.vaults()), metrics)
        enter, at = stack.enter_async_context, settings.listen
        services.keys = await enter(ring.kept())
        await enter(outbound_clients(services, settings, metrics, clock))
        stack.push_async_callback(services.functions.close)
        watchers = Watchers(services.access, scraper_secret(settings))
        interface_app = vault_app(services, hsts=ins.hsts)
        admin = admin_app(checks, states, metrics.render, watchers)
        started.interface = await enter(
            listen("vault", at.vault, interface_app, ins.vault_connection, guard.first)
        )
        auth.audiences.listening(started.interface)
        started.admin = await enter(
            listen("admin", at.admin, admin, ApplicationConnection, guard.admin)
        )
        started.proxy = await enter(listen("proxy", at.proxy, gateway.server, first=guard.first))
        _work(stack, reloader.watch(), audit.log.run(), ins.watch(), *guard.work())
        _work(stack, realm.run_upkeep(_UPKEEP, report), measure(realm.vaults, metrics, _UPKEEP))
        _work(
            stack, keep_keys(auth, _UPKEEP), ring.run_upkeep(_UPKEEP, report), _collect(_COLLECTED)
        )
        await audit.log.begin()
        _rarely_collect()
        yield started


# ---------------------------------------------------------------------- parts


def _first_rules(settings: Settings, overrides: Overrides | None) -> RuleSet:
    """The rules to start with. Raises ``VaultError`` where they do not fit the settings."""
    rules = load_rules(settings, overrides)
    _refuse_strangers(settings, rules)
    refuse_unfit(rules.entities, records_schema(settings.records))
    return rules


def _hooks(metrics: Metrics) -> Hooks:
    """What measures the commits of the store."""
    observe = metrics.buckets("domicile_vault_commit_seconds").observe
    hooks = Hooks(lambda _size, seconds: observe(seconds))
    metrics.watch("domicile_vault_writer_queue", lambda: float(hooks.waiting()))
    return hooks


async def _adopt(
    joined: Callable[[RuleSet], Awaitable[Runtime]],
    told: tuple[MetricsJournal, Coverage],
    fresh: RuleSet,
) -> Runtime:
    """New rules, ready to take effect."""
    runtime = await joined(fresh)
    for one in told:
        one.announce(fresh)
    return runtime


def _rarely_collect() -> None:
    bound_arenas()
    gc.collect()
    gc.set_threshold(*_COLLECT)
    gc.freeze()  # what lives as long as the process need not be looked at again by the collector


async def _collect(every: float) -> None:
    """Look at all objects now and then for what only a cycle holds, at a moment when nobody works
    on anything long.
    """
    skipped = 0
    while True:
        await asyncio.sleep(every)
        skipped = skipped + 1 if offload.working() else 0
        if gc.get_count()[2] and skipped % _SKIPPED == 0:
            gc.collect()


def _work(stack: AsyncExitStack, *works: Coroutine[Any, Any, None]) -> None:
    """Do these in the background, until the stack ends."""
    for work in works:
        task = asyncio.create_task(work)
        task.add_done_callback(_told)
        stack.push_async_callback(_cancel, task)


def _told(task: asyncio.Task[None]) -> None:
    """A work that ends in an exception has met a fault of ours, and its part is not looked after
    any more.
    """
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a part of the upkeep failed and does not go on: restart", exc_info=error)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
