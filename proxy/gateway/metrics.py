"""Every request counted, and those an operator should know of as log lines.

Nothing of a path, a query or a body.
"""

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Final, NamedTuple

from proxy.errors import Code
from proxy.gateway.ports import Seen
from proxy.net.client import HttpUpstream, Route
from proxy.net.coverage import COUNTED_METHODS
from proxy.net.reply import UpstreamAddress
from proxy.redactor.message import EXCHANGE_STEPS
from proxy.redactor.rules import RuleSet
from proxy.telemetry import logs
from proxy.telemetry.metrics import Histogram, MetricCell, Metrics
from proxy.telemetry.reloads import Reload
from proxy.telemetry.tracing import Step, Trace, Tracer

#: Refusals that strangers can bring about at will: counted, and told at level debug only, so that
#: nobody fills the log.
_OFTEN: Final = frozenset((Code.OUTSIDE_COUNTRY, Code.TOO_MANY_REQUESTS))


class _Series(NamedTuple):
    """What is counted of requests to one operation with one outcome."""

    requests: MetricCell
    total: Histogram
    steps: tuple[Histogram, ...]  #: in the order of ``EXCHANGE_STEPS``; of matched requests
    fired: MetricCell | None  #: of an operation of the rules in force


class MetricsJournal:
    """The journal of a running instance.

    Ordinary requests are lines of level debug, or info where ``access`` is on; refused and failed
    ones are told. ``tracer`` gets the spans of sampled traces.
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
        self._log = logs.logger("access").bind()
        self._line = self._log.info if access else self._log.debug
        # asked once: most requests then cost one comparison
        self._lines = self._log.is_enabled_for(logging.INFO if access else logging.DEBUG)
        self._tracer = tracer
        self._series: dict[tuple[str, str, str], _Series] = {}
        self._fired: dict[tuple[str, str], MetricCell] = {}
        self.announce(rules)

    def announce(self, rules: RuleSet) -> None:
        """Rules come into force: every operation gets its series, so that one that never fires can
        be seen.
        """
        self._series.clear()
        for operation in rules.operations:
            key = (operation.endpoint.name, operation.label)
            self._fired[key] = self._metrics.cell(
                "domicile_operation_fired_timestamp_seconds", *key
            )

    def seen(self, seen: Seen) -> None:
        """See ``Journal.seen``."""
        key = (seen.endpoint, seen.operation, seen.outcome)
        series = self._series.get(key) or self._opened(key)
        series.requests.value += 1
        # no call of ``observe``: this is on the way of every request
        total, seconds = series.total, seen.seconds
        total.counts[bisect_left(total.bounds, seconds)] += 1
        total.total += seconds
        if series.fired is not None:
            series.fired.value = time.time()
        if seen.timing is not None:
            durations = seen.timing.durations(seconds)
            for histogram, duration in zip(series.steps, durations, strict=True):
                if duration > 0.0:
                    histogram.counts[bisect_left(histogram.bounds, duration)] += 1
                    histogram.total += duration
        if seen.code is not None:
            self._trouble(seen, self._log.debug if seen.code in _OFTEN else self._log.warning)
        elif self._lines:
            self._line("request", **_fields(seen))
        if seen.trace is not None and seen.trace.sampled and self._tracer is not None:
            self._record(seen, seen.trace, self._tracer)

    def _record(self, seen: Seen, trace: Trace, tracer: Tracer) -> None:
        """Hand on the spans of a request: the whole, and its steps."""
        ended = perf_counter()
        started = ended - seen.seconds
        steps: list[Step] = []
        if (timing := seen.timing) is not None:
            started = timing.started
            ended = started + seen.seconds
            at = (started, timing.matched, timing.received, timing.redacted, timing.answered)
            began = dict(
                zip(("match", "receive", "redact", "application", "restore"), at, strict=True)
            )
            durations = dict(zip(EXCHANGE_STEPS, timing.durations(seen.seconds), strict=True))
            began["stage"] = timing.redacted - durations["stage"]
            began["settle"] = timing.answered
            steps = [
                Step(name, began[name], began[name] + seconds)
                for name, seconds in durations.items()
                if seconds > 0.0
            ]
        name = seen.operation if seen.operation != "-" else _told(seen.method)
        attributes: dict[str, str | int] = {
            "http.request.method": _told(seen.method),
            "http.response.status_code": seen.status,
            "domicile.endpoint": seen.endpoint,
            "domicile.outcome": seen.outcome,
            **({} if seen.code is None else {"error.type": str(seen.code)}),
        }
        tracer.record(trace, Step(name, started, ended), attributes, steps)

    def _opened(self, key: tuple[str, str, str]) -> "_Series":
        """The series of an endpoint, an operation and an outcome, met for the first time."""
        histogram = partial(self._metrics.buckets, "domicile_request_seconds", *key)
        series = self._series[key] = _Series(
            self._metrics.cell("domicile_requests_total", *key),
            histogram("total"),
            tuple(map(histogram, EXCHANGE_STEPS)) if key[2] != "passed" and key[1] != "-" else (),
            self._fired.get(key[:2]),
        )
        return series

    def _trouble(self, seen: Seen, tell: Callable[..., object]) -> None:
        if seen.outcome == "failed":
            self._metrics.cell(
                "domicile_upstream_errors_total", seen.endpoint, str(seen.code)
            ).value += 1
        tell("request refused or failed", code=str(seen.code), **_fields(seen))


def _fields(seen: Seen) -> dict[str, str | int | float]:
    """What a log line tells of a request: never a path, only its shape."""
    fields: dict[str, str | int | float] = {
        "endpoint": seen.endpoint,
        "operation": seen.operation,
        "method": _told(seen.method),
        "status": seen.status,
        "size": seen.size,
        "duration_ms": round(seen.seconds * 1000, 3),
    }
    if seen.shape:
        fields["path"] = seen.shape
    if seen.request_id:
        fields["request_id"] = seen.request_id
    if seen.trace is not None:
        fields["trace_id"] = seen.trace.trace_id
    return fields


def _told(method: str) -> str:
    """The method for a log line: any token is one, and what a caller makes up may hold a value of
    somebody.
    """
    return method if method in COUNTED_METHODS else "other"


# The ways to the applications, watched: what is open and what is suspended as metrics, changes as
# log lines.


_log = logs.logger("web")

#: What everybody may know of a fault in files for TLS towards applications.
_STALE: Final = (
    "Files for TLS towards applications have a fault, and those before are in force: the log "
    "names them."
)


class Applications:
    """Makes the upstream of an instance; ``special`` has the ways of endpoints that differ from
    ``way``.
    """

    def __init__(
        self, metrics: Metrics, way: Route, special: Mapping[str, Route] | None = None
    ) -> None:
        self.upstream = HttpUpstream(way.limits, way.tls, special, self._changed)
        self.state = Reload(metrics, "upstream_certificates", _STALE)
        self._metrics = metrics
        self._endpoints: dict[UpstreamAddress, list[str]] = {}

    def met(self, endpoint: str, address: UpstreamAddress) -> None:
        """An endpoint is asked for, for the first time or at a new address."""
        self._endpoints.setdefault(address, []).append(endpoint)
        for place, state in enumerate(("busy", "idle")):
            self._metrics.watch(
                "domicile_upstream_connections",
                partial(self._count, address, place),
                endpoint,
                state,
            )
        self._metrics.watch(
            "domicile_upstream_suspended", partial(self._suspended, address), endpoint
        )

    def _count(self, address: UpstreamAddress, place: int) -> float:
        return float(self.upstream.counts(address)[place])

    def _suspended(self, address: UpstreamAddress) -> float:
        return float(self.upstream.suspended(address))

    # as HttpUpstream tells it
    def _changed(self, address: UpstreamAddress, suspended: bool) -> None:
        for endpoint in dict.fromkeys(self._endpoints.get(address, ())):
            if suspended:
                _log.warning(
                    "the application gave no answer again and again: it is not asked for a moment",
                    endpoint=endpoint,
                )
            else:
                _log.info("the application answers again", endpoint=endpoint)
