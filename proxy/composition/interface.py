"""What the vault's own interface works with: the services of its handlers, joined of what bootstrap has opened."""

from typing import NamedTuple

from proxy.auth.opening import open_policies
from proxy.auth.policies import Policies
from proxy.auth.service import TokenService
from proxy.composition.guard import Guard
from proxy.config import Settings
from proxy.errors import VaultError
from proxy.functions.installed import installed
from proxy.functions.runner import Bounds, Runner
from proxy.model.limits import DEFAULTS, Limits
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.vault.catalog import Catalog
from proxy.vault.collection import History
from proxy.vault.contents import Contents
from proxy.vault.idempotency import Replies, system_collection
from proxy.vault.rehash_job import open_job
from proxy.vault.vault import Vault
from proxy.web.api.access import bearer
from proxy.web.api.auditing import Auditing
from proxy.web.api.errors import status_of
from proxy.web.api.operation import Administered, Services, Space
from proxy.web.api.repeating import repeating
from proxy.web.peers import Trusted

_log = logs.logger("vault")


async def space(vault: Vault, catalog: Catalog, contents: Contents | None) -> Space:
    """What the interface works with in the environment of a vault. Raises ``VaultError`` when the store cannot be written."""
    system, policies = await system_collection(vault), await policies_of(vault)
    job = await open_job(vault, catalog, _report)
    catalog.closes(job.close)
    once = repeating(Replies(), system)
    return Space(catalog=catalog, once=once, policies=policies, contents=contents, rehash=job)


def _report(error: VaultError) -> None:
    _log.error("a rehash of all records failed and will be tried again", code=error.code, text=error.message)


class Around(NamedTuple):
    """What the interface shares with the rest of an instance."""

    auth: TokenService
    metrics: Metrics
    guard: Guard
    audit: Auditing


async def policies_of(vault: Vault) -> Policies:
    """The access policies of the environment of a vault. Raises ``VaultError`` when the store cannot be read."""
    around = (await system_collection(vault)).around
    return await open_policies(around.store, around.keyset)


def interface(settings: Settings, realm: Administered, around: Around) -> Services:
    """The services of an instance with these environments; whoever asks for them closes ``functions`` at the end.

    Raises ``VaultError`` when an installed function cannot be called.
    """
    auth, metrics, guard, audit = around

    def observe(operation: str, status: int, seconds: float) -> None:
        metrics.cell("domicile_api_requests_total", operation, str(status)).value += 1
        metrics.buckets("domicile_api_seconds").observe(seconds)

    return Services(
        spaces=realm.spaces,
        environments=realm,
        access=bearer(auth.tokens),
        auth=auth,
        audit=audit,
        trusted=Trusted(settings.trusted_proxies),
        functions=runner(settings),
        observe=observe,
        body_limit=settings.limits.body,
        country=settings.country,
        limits=limits(settings),
        on_existing=settings.models.on_existing,
        firewall=guard.firewall,
        screened=guard.screened("vault"),
        quotas=guard.quotas,
        limited=guard.limited("vault"),
    )


def runner(settings: Settings) -> Runner:
    """What runs the resident functions that are installed. Raises ``VaultError(BAD_SETTINGS)`` for one that cannot be called."""
    given = settings.functions
    bounds = Bounds(given.time / 1000, given.memory, given.running)
    return Runner(installed(), bounds, lambda error: status_of("", error.code))


def limits(settings: Settings) -> Limits:
    """The bounds of single requests; a page is never larger than what may be asked for."""
    most = settings.limits.find
    given = settings.limits
    default = min(most, DEFAULTS.find_default)
    return Limits(find_maximum=most, find_default=default, batch=given.batch, page_bytes=given.page)


def history(settings: Settings) -> History:
    """How long past versions stay."""
    return History(settings.history.keep, settings.history.keep_deleted)
