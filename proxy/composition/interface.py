"""What the vault's own interface works with: the services of its handlers, joined of what bootstrap has opened."""

from proxy.auth.service import TokenService
from proxy.config import Settings
from proxy.model.limits import DEFAULTS, Limits
from proxy.telemetry.metrics import Metrics
from proxy.vault.catalog import Catalog
from proxy.vault.collection import History
from proxy.vault.idempotency import Replies, system_collection
from proxy.vault.vault import Vault
from proxy.web.api.access import bearer
from proxy.web.api.operation import Services
from proxy.web.api.repeating import repeating
from proxy.web.peers import Trusted


async def interface(
    settings: Settings, vault: Vault, catalog: Catalog, auth: TokenService, metrics: Metrics
) -> Services:
    """The services of an instance. Raises ``VaultError`` when the store cannot be written."""

    def observe(operation: str, status: int, seconds: float) -> None:
        metrics.cell("domicile_api_requests_total", operation, str(status)).value += 1
        metrics.buckets("domicile_api_seconds").observe(seconds)

    return Services(
        catalog=catalog,
        access=bearer(auth.tokens),
        once=repeating(Replies(), await system_collection(vault)),
        auth=auth,
        trusted=Trusted(settings.trusted_proxies),
        observe=observe,
        body_limit=settings.limits.body,
        country=settings.country,
        limits=limits(settings),
        on_existing=settings.models.on_existing,
    )


def limits(settings: Settings) -> Limits:
    """The bounds of single requests; a page is never larger than what may be asked for."""
    most = settings.limits.find
    return Limits(find_maximum=most, find_default=min(most, DEFAULTS.find_default), batch=settings.limits.batch)


def history(settings: Settings) -> History:
    """How long past versions stay."""
    return History(settings.history.keep, settings.history.keep_deleted)
