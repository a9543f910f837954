"""Edge protection as configured: data firewall with its database, and limits."""

import resource
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxy.config import Settings
from proxy.crypto.prf import Prf
from proxy.edge.connections import ConnectionLimit
from proxy.edge.firewall import Firewall, Mode
from proxy.edge.quotas import ConcurrencyLimit, MissLimit, Quotas
from proxy.edge.rate_limit import RateLimit, RatePolicy
from proxy.errors import Code
from proxy.net.client_address import Trusted
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import Reload

if TYPE_CHECKING:
    from proxy.edge.shared_limits import Shared

_log = logs.logger("guard")

_LIMITED: Final = "domicile_limited_requests_total"

#: Descriptors that are of use: a connection takes memory besides.
MOST_FILES: Final = 65_536

#: Descriptors of the program itself: database, audit log, files on their way, the administration
#: listener with its connections.
_OWN: Final = 64
_ADMIN_CONNECTIONS: Final = 16
#: Fewer connections of callers than these are hardly meant.
_FEW: Final = 256

#: Connections that wait to be accepted; the kernel may hold fewer.
_BACKLOG: Final = 4096

#: Requests of one client that wait for their turn; a head is all that is kept of each.
_WAITING: Final = 1024

#: What makes keyed hashes for one purpose.
HasherFactory = Callable[[str], Prf]


@dataclass(slots=True)
class EdgeGuard:
    """Protection of both listeners against their callers."""

    firewall: Firewall
    quotas: Quotas
    metrics: Metrics
    first: ConnectionLimit  #: what new connections of callers pass before anything else
    #: the same at the administration listener, out of descriptors that callers never get
    admin: ConnectionLimit
    shared: "Shared | None" = None  #: what counts for several replicas

    def screened(self, listener: str) -> Callable[[str], None]:
        """Return the counter of requests from outside at a listener."""
        return partial(self.metrics.count, "domicile_firewall_requests_total", listener)

    def limited(self, listener: str) -> Callable[[str], None]:
        """Return the counter of requests over a limit at a listener."""
        return partial(self.metrics.count, _LIMITED, listener)

    def states(self) -> list[Reload]:
        """States of the files that may be stale."""
        countries = self.firewall.countries
        return [] if countries is None else [countries.state]

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """Return the background tasks of the edge."""
        countries, shared = self.firewall.countries, self.shared
        watching = [] if countries is None else [countries.watch()]
        return watching if shared is None else [*watching, shared.run()]

    def share(self, store: str | None, hasher: HasherFactory) -> None:
        """Count together with the replicas that have the same store and the same keys; ``None``:
        for this process alone.
        """
        counted = [
            rates for rates in (self.quotas.credential, self.quotas.address) if rates is not None
        ]
        if store is None or not counted:
            return
        from proxy.edge.shared_limits import Shared

        up, hashed = self.metrics.cell("domicile_limits_store_up"), hasher("limits")

        def name(limit: str, key: str) -> str:
            """Hash a key, so that the shared store does not reveal the caller."""
            return hashed(f"{limit} {key}".encode()).hex()

        def note_reachable(there: bool) -> None:
            up.value = int(there)

        self.shared = Shared(store, counted, name, note_reachable)

    async def reload(self) -> None:
        """Read the database again, changed or not; a fault is logged and changes nothing else."""
        if self.firewall.countries is not None:
            await self.firewall.countries.reload()


def open_guard(settings: Settings, metrics: Metrics) -> EdgeGuard:
    """The guard of an instance.

    Raises ``VaultError`` (BAD_SETTINGS) if the database of countries cannot be used.
    """
    files = OpenFiles.of(
        resource.getrlimit(resource.RLIMIT_NOFILE)[0], settings.upstream.connections
    )
    count_refusal = metrics.cell("domicile_limited_connections_total").count
    limits, trusted = settings.limits, Trusted(settings.trusted_proxies)
    most = files.callers if limits.connections is None else limits.connections
    if most > files.callers:
        _log.warning(
            "limits.connections is more than the limit of open files allows: raise that limit",
            count=files.callers,
        )
    elif limits.connections is None and most < _FEW:
        _log.warning("callers may open few connections: raise the limit of open files", count=most)
    of_address = most // 2 if limits.address_connections is None else limits.address_connections
    first = ConnectionLimit(most, of_address, trusted, count_refusal)
    admin = ConnectionLimit(_ADMIN_CONNECTIONS, 0, Trusted(()), count_refusal)
    quotas = _quotas(settings, metrics)
    first.backlog = files.backlog
    admin.backlog = min(admin.backlog, files.backlog)
    return EdgeGuard(_firewall(settings, metrics), quotas, metrics, first, admin)


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """Shares of the process's descriptors."""

    callers: int  #: open connections of callers
    #: connections of a listener that may be accepted at one time, before they are counted
    backlog: int

    @classmethod
    def of(cls, limit: int, upstream: int) -> "OpenFiles":
        """Share out so many descriptors.

        Some are reserved for the program itself (store, audit log, administration), some for
        accepted connections that are not counted yet, and up to a quarter for connections to
        applications.
        """
        limit = MOST_FILES if limit < 0 else min(limit, MOST_FILES)
        backlog = min(_BACKLOG, max(64, limit // 8))
        return cls(max(16, limit - _OWN - 2 * backlog - min(upstream, limit // 4)), backlog)


def raise_file_limit() -> int:
    """Raise the limit of open files to what is allowed, to ``MOST_FILES`` at most; how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    most = MOST_FILES if hard == unlimited else min(hard, MOST_FILES)
    if soft == unlimited or soft >= most:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):
        _log.warning("the limit of open files could not be raised", count=soft)
        return soft
    return most


def _quotas(settings: Settings, metrics: Metrics) -> Quotas:
    limits = settings.limits
    uploads, concurrent = (metrics.cell(_LIMITED, "vault", of) for of in ("uploads", "concurrent"))

    def rates(name: str, per_second: int) -> RateLimit | None:
        return RateLimit(RatePolicy(name, per_second, limits.burst)) if per_second else None

    return Quotas(
        rates("credential", limits.requests_per_second),
        rates("address", limits.address_requests_per_second),
        ConcurrencyLimit(limits.concurrent, _WAITING, on_refused=concurrent.count),
        ConcurrencyLimit(limits.uploads, 0, Code.TOO_MANY_UPLOADS, uploads.count),
        Trusted(settings.trusted_proxies),
    )


def miss_limit(
    settings: Settings, guard: EdgeGuard, alarm: Callable[[str, str], None]
) -> MissLimit | None:
    """Return the limit of searches through the proxy without a result, per address."""
    limits = settings.limits
    if not limits.misses_per_second:
        return None
    rates = RateLimit(RatePolicy("address", limits.misses_per_second, limits.burst))
    return MissLimit(rates, guard.quotas, guard.limited("proxy"), alarm)


def _firewall(settings: Settings, metrics: Metrics) -> Firewall:
    firewall = settings.firewall
    countries = None
    if firewall.country_database is not None:
        from proxy.edge.geoip import Countries

        failed = metrics.cell("domicile_firewall_database_failures_total").count
        countries = Countries(firewall.country_database, failed, Reload(metrics, "countries"))
        metrics.watch("domicile_firewall_database_age_seconds", lambda: countries.age)
    return Firewall(
        Mode(firewall.mode),
        settings.country,
        firewall.allow,
        countries,
        Trusted(settings.trusted_proxies),
    )


def check_firewall(path: Path) -> str:
    """Describe the file and its age. Raises as a start would."""
    from proxy.edge.geoip import read_database

    days = max(0, int((time.time() - read_database(path).built) / 86_400))
    return f"{path}, built {days} days ago"
