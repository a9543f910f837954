"""The ways to the applications, watched: what is open and what is suspended as metrics, changes as log lines."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import Reload
from proxy.web.upstream.client import HttpUpstream, Way
from proxy.web.upstream.port import Address

_log = logs.logger("web")

#: What everybody may know of a fault in files for TLS towards applications.
_STALE: Final = "Files for TLS towards applications have a fault, and those before are in force: the log names them."


class Applications:
    """Makes the upstream of an instance; ``special`` has the ways of endpoints that differ from ``way``."""

    def __init__(self, metrics: Metrics, way: Way, special: Mapping[str, Way] | None = None) -> None:
        self.upstream = HttpUpstream(way.limits, way.tls, special, self._changed)
        self.state = Reload(metrics, "upstream_certificates", _STALE)
        self._metrics = metrics
        self._endpoints: dict[Address, list[str]] = {}

    def met(self, endpoint: str, address: Address) -> None:
        """An endpoint is asked for, for the first time or at a new address."""
        self._endpoints.setdefault(address, []).append(endpoint)
        for place, state in enumerate(("busy", "idle")):
            self._metrics.watch("domicile_upstream_connections", partial(self._count, address, place), endpoint, state)
        self._metrics.watch("domicile_upstream_suspended", partial(self._suspended, address), endpoint)

    def _count(self, address: Address, place: int) -> float:
        return float(self.upstream.counts(address)[place])

    def _suspended(self, address: Address) -> float:
        return float(self.upstream.suspended(address))

    def _changed(self, address: Address, suspended: bool) -> None:  # as HttpUpstream tells it
        for endpoint in dict.fromkeys(self._endpoints.get(address, ())):
            if suspended:
                _log.warning(
                    "the application gave no answer again and again: it is not asked for a moment", endpoint=endpoint
                )
            else:
                _log.info("the application answers again", endpoint=endpoint)
