"""Who is let in, as the settings say: the data firewall with its database, its metrics, and the work that keeps it fresh."""

import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.config import Settings
from proxy.telemetry.metrics import Metrics
from proxy.web.admin import Check
from proxy.web.guard.countries import Countries, read_database
from proxy.web.guard.firewall import Firewall, Mode
from proxy.web.peers import Trusted


@dataclass(frozen=True, slots=True)
class Guard:
    """What both listeners ask about their callers."""

    firewall: Firewall
    metrics: Metrics

    def screened(self, listener: str) -> Callable[[str], None]:
        """What a listener tells of requests from outside."""

        def count(outcome: str) -> None:
            self.metrics.cell("domicile_firewall_requests_total", listener, outcome).value += 1

        return count

    def checks(self) -> Mapping[str, Check]:
        """For ``/readyz``."""
        countries = self.firewall.countries
        return {} if countries is None else {"firewall": countries.check}

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """What runs as long as the instance does."""
        countries = self.firewall.countries
        return [] if countries is None else [countries.watch()]

    async def reload(self) -> None:
        """Read the database again, changed or not; a fault is told, and changes nothing else."""
        if self.firewall.countries is not None:
            await self.firewall.countries.reload()


def open_guard(settings: Settings, metrics: Metrics) -> Guard:
    """The guard of an instance. Raises ``VaultError`` (BAD_SETTINGS) if the database of countries cannot be used."""
    given = settings.firewall
    countries = None
    if given.country_database is not None:
        failures = metrics.cell("domicile_firewall_database_failures_total")

        def failed() -> None:
            failures.value += 1

        countries = Countries(given.country_database, failed)
        metrics.watch("domicile_firewall_database_age_seconds", lambda: countries.age)
    trusted = Trusted(settings.trusted_proxies)
    return Guard(Firewall(Mode(given.mode), settings.country, given.allow, countries, trusted), metrics)


def check_firewall(path: Path) -> str:
    """The file and its age. Raises what a start would say of it."""
    days = max(0, int((time.time() - read_database(path).built) / 86_400))
    return f"{path}, built {days} days ago"
