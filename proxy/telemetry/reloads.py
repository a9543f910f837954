"""What could not be loaded again: the version before stays in force, requests go on, and somebody
has to be told.

A failed reload never makes an instance unready: that would turn a typo into an outage. ``/readyz``
names what is stale, the gauge ``domicile_reload_failed`` carries it to an alert, and a good version
clears both.
"""

from typing import Final

from proxy.errors import VaultError
from proxy.telemetry.metrics import Metrics

#: What can be loaded again, as ``/readyz`` and the gauge name it.
RELOADED: Final = (
    "rules",
    "policies",
    "schemas",
    "certificates",
    "upstream_certificates",
    "countries",
)


class Reload:
    """The state of one of them.

    ``notice``: what callers of ``/readyz`` see in place of the fault, which may name files.
    """

    def __init__(self, metrics: Metrics, what: str, notice: str | None = None) -> None:
        if what not in RELOADED:
            raise ValueError(f"{what} is not in the table of what can be loaded again")
        self.what = what
        self._notice = notice
        self._cell = metrics.cell("domicile_reload_failed", what)
        self._fault: str | None = None

    def failed(self, error: VaultError) -> None:
        """What there is now cannot be used, and what was in force stays."""
        first = error.details[0] if error.details else None
        text = f"{error.message} {first.source}: {first.text}" if first else error.message
        self._fault = self._notice or text
        self._cell.value = 1

    def succeeded(self) -> None:
        """What there is now is in force."""
        self._fault = None
        self._cell.value = 0

    async def check(self) -> str | None:
        """For ``/readyz``: why it is stale, or ``None``."""
        return self._fault
