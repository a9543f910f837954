"""Every request counted, and those an operator should know of as log lines. Nothing of a path, a query or a body."""

import logging
import time
from collections.abc import Callable
from typing import Final

from proxy.errors import Code
from proxy.redactor.rules import RuleSet
from proxy.telemetry import logs
from proxy.telemetry.metrics import Cell, Metrics
from proxy.web.coverage import METHODS
from proxy.web.ports import Seen

#: Refusals that strangers can bring about at will: counted, and told at level debug only, so that nobody fills the log.
_OFTEN: Final = frozenset((Code.OUTSIDE_COUNTRY, Code.TOO_MANY_REQUESTS))


class MetricsJournal:
    """The journal of a running instance. Ordinary requests are lines of level debug; refused and failed ones are told."""

    def __init__(self, metrics: Metrics, rules: RuleSet) -> None:
        self._metrics = metrics
        self._log = logs.logger("access").bind()
        self._lines = self._log.is_enabled_for(logging.DEBUG)  # asked once: most requests then cost one comparison
        self._counts: dict[tuple[str, str, str], Cell] = {}
        self._fired: dict[tuple[str, str], Cell] = {}
        self.announce(rules)

    def announce(self, rules: RuleSet) -> None:
        """Rules come into force: every operation gets its series, so that one that never fires can be seen."""
        for operation in rules.operations:
            key = (operation.endpoint.name, operation.label)
            self._fired[key] = self._metrics.cell("domicile_operation_fired_timestamp_seconds", *key)

    def seen(self, seen: Seen) -> None:
        """See ``Journal.seen``."""
        key = (seen.endpoint, seen.operation, seen.outcome)
        cell = self._counts.get(key)
        if cell is None:
            cell = self._counts[key] = self._metrics.cell("domicile_requests_total", *key)
        cell.value += 1
        if seen.operation != "-":
            self._fire(seen)
        if seen.code is not None:
            self._trouble(seen, self._log.debug if seen.code in _OFTEN else self._log.warning)
        elif self._lines:
            self._log.debug(
                "request",
                endpoint=seen.endpoint,
                operation=seen.operation,
                method=_told(seen.method),
                status=seen.status,
                size=seen.size,
                duration_ms=round(seen.seconds * 1000, 3),
            )

    def _fire(self, seen: Seen) -> None:
        fired = self._fired.get((seen.endpoint, seen.operation))
        if fired is not None:
            fired.value = time.time()

    def _trouble(self, seen: Seen, tell: Callable[..., object]) -> None:
        if seen.outcome == "failed":
            self._metrics.cell("domicile_upstream_errors_total", seen.endpoint, str(seen.code)).value += 1
        tell(
            "request refused or failed",
            endpoint=seen.endpoint,
            operation=seen.operation,
            method=_told(seen.method),
            status=seen.status,
            code=str(seen.code),
            size=seen.size,
            duration_ms=round(seen.seconds * 1000, 3),
        )


def _told(method: str) -> str:
    """The method for a log line: any token is one, and what a caller makes up may hold a value of somebody."""
    return method if method in METHODS else "other"
