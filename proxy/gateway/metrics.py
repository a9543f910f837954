"""Every request counted, and those an operator should know of as log lines.

Nothing of a path, a query or a body.
"""

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Final, NamedTuple

from proxy.errors import Code
from proxy.gateway.ports import RequestEvent
from proxy.net.client import HttpUpstream, Route
from proxy.net.coverage import COUNTED_METHODS
from proxy.net.reply import UpstreamAddress
from proxy.redactor.message import EXCHANGE_STEPS
from proxy.redactor.rules import RuleSet
from proxy.telemetry import logs
from proxy.telemetry.metrics import HistogramRow, MetricCell, Metrics
from proxy.telemetry.reloads import Reload
from proxy.telemetry.tracing import Step, Trace, Tracer

#: Refusals that strangers can cause at will: counted, and logged at level debug only, so that they
#: cannot flood the log.
_OFTEN: Final = frozenset((Code.OUTSIDE_COUNTRY, Code.TOO_MANY_REQUESTS))

#: Refusals that tell of an outage: their series begin at 0, so that an alert sees the first one.
_OUTAGES: Final = (Code.VAULT_DOWN, Code.BAD_STORE, Code.AUDIT_DOWN)


class _Series(NamedTuple):
    """Metrics of requests to one operation with one outcome."""

    requests: MetricCell
    #: of the whole, and of matched requests of steps in the order of ``EXCHANGE_STEPS``
    seconds: HistogramRow
    none: tuple[float, ...]  #: of steps, where none of them is known
    fired: MetricCell | None  #: of an operation of the active rules


class MeteredAccessLog:
    """The journal of a running instance.

    Ordinary requests are lines of level debug, or info if ``access`` is on; refused and failed ones
    are always logged, and each of them if ``access`` is on. ``tracer`` gets the spans of sampled
    traces.
    """

    def __init__(
        self,
        metrics: Metrics,
        rules: RuleSet,
        *,
        access: bool = False,
        tracer: Tracer | None = None,
    ) -> None:
        self._metrics = metrics
        self._log = logs.logger("access", each=access).bind()
        self._line = self._log.info if access else self._log.debug
        # asked once: most requests then cost one comparison
        self._lines = self._log.is_enabled_for(logging.INFO if access else logging.DEBUG)
        self._tracer = tracer
        self._series: dict[tuple[str, str, str], _Series] = {}
        self._fired: dict[tuple[str, str], MetricCell] = {}
        self.announce(rules)

    def announce(self, rules: RuleSet) -> None:
        """Rules come into force: every operation gets its series, even one that never fires."""
        self._series.clear()
        for operation in rules.operations:
            key = (operation.endpoint.name, operation.label)
            self._fired[key] = self._metrics.cell(
                "domicile_operation_fired_timestamp_seconds", *key
            )
        for endpoint in rules.endpoints:
            for code in _OUTAGES:
                self._metrics.cell("domicile_refused_requests_total", endpoint.name, str(code))

    def record(self, event: RequestEvent) -> None:
        """See ``AccessLog.record``."""
        key = (event.endpoint, event.operation, event.outcome)
        series = self._series.get(key) or self._opened(key)
        series.requests.value += 1
        # counted later: this is on the way of every request
        seconds, timing, row = event.seconds, event.timing, series.seconds
        steps = series.none if timing is None else timing.durations(seconds)
        row.waiting.append((seconds, *steps))
        if len(row.waiting) >= row.MOST:
            row.count()
        if series.fired is not None:
            series.fired.value = time.time()
        if event.code is not None:
            self._trouble(event, self._log.debug if event.code in _OFTEN else self._log.warning)
        elif self._lines:
            self._line("request", **_fields(event))
        if event.trace is not None and event.trace.sampled and self._tracer is not None:
            self._record(event, event.trace, self._tracer)

    def _record(self, event: RequestEvent, trace: Trace, tracer: Tracer) -> None:
        """Hand on the spans of a request: the whole, and its steps."""
        ended = perf_counter()
        started = ended - event.seconds
        steps: list[Step] = []
        if (timing := event.timing) is not None:
            started = timing.started
            ended = started + event.seconds
            at = (started, timing.matched, timing.received, timing.redacted, timing.answered)
            began = dict(
                zip(("match", "receive", "redact", "application", "restore"), at, strict=True)
            )
            durations = dict(zip(EXCHANGE_STEPS, timing.durations(event.seconds), strict=True))
            began["stage"] = timing.redacted - durations["stage"]
            began["settle"] = timing.answered
            steps = [
                Step(name, began[name], began[name] + seconds)
                for name, seconds in durations.items()
                if seconds > 0.0
            ]
        name = event.operation if event.operation != "-" else _method_label(event.method)
        attributes: dict[str, str | int] = {
            "http.request.method": _method_label(event.method),
            "http.response.status_code": event.status,
            "domicile.endpoint": event.endpoint,
            "domicile.outcome": event.outcome,
            **({} if event.code is None else {"error.type": str(event.code)}),
        }
        tracer.record(trace, Step(name, started, ended), attributes, steps)

    def _opened(self, key: tuple[str, str, str]) -> "_Series":
        """The series of an endpoint, an operation and an outcome, met for the first time."""
        histogram = partial(self._metrics.buckets, "domicile_request_seconds", *key)
        steps = EXCHANGE_STEPS if key[2] != "passed" and key[1] != "-" else ()
        series = self._series[key] = _Series(
            self._metrics.cell("domicile_requests_total", *key),
            HistogramRow(histogram("total"), [*map(histogram, steps)]),
            (0.0,) * len(steps),
            self._fired.get(key[:2]),
        )
        return series

    def _trouble(self, event: RequestEvent, tell: Callable[..., object]) -> None:
        failed = event.outcome == "failed"
        name = "domicile_upstream_errors_total" if failed else "domicile_refused_requests_total"
        self._metrics.cell(name, event.endpoint, str(event.code)).value += 1
        tell("request refused or failed", code=str(event.code), **_fields(event))


def _fields(event: RequestEvent) -> dict[str, str | int | float]:
    """Return the fields of a request's log line: never a path, only its shape."""
    fields: dict[str, str | int | float] = {
        "endpoint": event.endpoint,
        "operation": event.operation,
        "method": _method_label(event.method),
        "status": event.status,
        "size": event.size,
        "duration_ms": round(event.seconds * 1000, 3),
    }
    if event.shape:
        fields["path"] = event.shape
    if event.source:
        fields["source"] = event.source
    if event.address:
        fields["address"] = event.address
    if event.request_id:
        fields["request_id"] = event.request_id
    if event.trace is not None:
        fields["trace_id"] = event.trace.trace_id
    return fields


def _method_label(method: str) -> str:
    """The method for a log line: any token is valid, and an invented one may hold personal data."""
    return method if method in COUNTED_METHODS else "other"


# The connections to applications: open and suspended ones as metrics, changes as log lines.

_log = logs.logger("web")

#: What everybody may know of a fault in files for TLS towards applications.
_STALE: Final = (
    "TLS files for applications have a fault, and the previous ones are active: the log names them."
)


class Applications:
    """Makes the upstream of an instance; ``special``: ways of endpoints that are not ``way``."""

    def __init__(
        self, metrics: Metrics, way: Route, special: Mapping[str, Route] | None = None
    ) -> None:
        self.upstream = HttpUpstream(way.limits, way.tls, special, self._changed)
        self.state = Reload(metrics, "upstream_certificates", _STALE)
        self._metrics = metrics
        self._endpoints: dict[UpstreamAddress, list[str]] = {}

    def met(self, endpoint: str, address: UpstreamAddress) -> None:
        """Watch an endpoint at its first use or at a new address."""
        self._endpoints.setdefault(address, []).append(endpoint)
        for index, state in enumerate(("busy", "idle")):
            self._metrics.watch(
                "domicile_upstream_connections",
                partial(self._count, address, index),
                endpoint,
                state,
            )
        self._metrics.watch(
            "domicile_upstream_suspended", partial(self._suspended, address), endpoint
        )

    def _count(self, address: UpstreamAddress, index: int) -> float:
        return float(self.upstream.counts(address)[index])

    def _suspended(self, address: UpstreamAddress) -> float:
        return float(self.upstream.suspended(address))

    # as HttpUpstream tells it
    def _changed(self, address: UpstreamAddress, suspended: bool) -> None:
        for endpoint in dict.fromkeys(self._endpoints.get(address, ())):
            if suspended:
                _log.warning(
                    "the application keeps failing: calls are suspended for a moment",
                    endpoint=endpoint,
                    address=str(address),
                )
            else:
                _log.info("the application answers again", endpoint=endpoint)
