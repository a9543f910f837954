"""What is told of requests over restarts: those that rules name, their parameters and shapes of
paths that no rule names. Since when, how often, with the kinds of values suspected in each place;
never a value.

What rules name is counted for metrics anyway, and taken from there whenever a report is made.
"""

from collections.abc import Iterable
from typing import cast

import msgspec

from proxy.clock import Clock
from proxy.redactor.rules import RuleSet
from proxy.telemetry.metrics import Metrics

_REQUESTS = "domicile_requests_total"
_PARAMETERS = "domicile_unnamed_parameters_total"
_SUSPECTED = "domicile_unnamed_suspected"

_Key = tuple[str, str, str, str]  #: endpoint, operation, part, parameter


class UnruledPath(msgspec.Struct, frozen=True, order=True):
    """A shape of a path that no rule names."""

    endpoint: str
    method: str
    path: str
    since: int  #: milliseconds since the epoch
    count: int
    kinds: tuple[str, ...] = ()  #: that were suspected
    #: the same by place: address, request, answer
    places: dict[str, tuple[str, ...]] = {}


class RuledUse(msgspec.Struct, frozen=True, order=True):
    """Requests that an operation names, or those of them that have a parameter it does not name."""

    endpoint: str
    operation: str
    since: int
    count: int
    part: str = ""  #: of a parameter: query or form; else empty
    parameter: str = ""  #: a name that is nobody's, or ``{word}``
    kinds: tuple[str, ...] = ()

    @property
    def key(self) -> _Key:
        """What it is about."""
        return self.endpoint, self.operation, self.part, self.parameter


class CoverageReport(msgspec.Struct, frozen=True):
    """All of it. ``rules`` is the version of the rules under which parameters were met."""

    unknown: list[UnruledPath] = []
    ruled: list[RuledUse] = []
    rules: str = ""


class RuledUses:
    """Counts uses from the metrics of this process on top of those of earlier ones."""

    def __init__(
        self, metrics: Metrics, clock: Clock, rules: RuleSet, earlier: CoverageReport
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._earlier = {one.key: one for one in earlier.ruled}
        self._since: dict[_Key, int] = {}
        self._before: dict[_Key, float] = {}  #: counted under rules that are not in force any more
        self.rules = earlier.rules
        self.announce(rules)

    def announce(self, rules: RuleSet) -> None:
        """Rules come into force. Others may name a parameter by now: all are met anew."""
        if rules.version == self.rules:
            return
        self.rules = rules.version
        self._earlier = {key: one for key, one in self._earlier.items() if not one.part}
        self._since = {key: since for key, since in self._since.items() if not key[2]}
        self._before = {key: count for key, count in self._counts() if key[2]}

    def uses(self) -> list[RuledUse]:
        """Everything that was met, also by earlier processes."""
        uses = dict(self._earlier)
        kinds: dict[_Key, set[str]] = {}
        for (*where, kind), _ in self._metrics.samples(_SUSPECTED):
            endpoint, operation, part, parameter = where
            kinds.setdefault((endpoint, operation, part, parameter), set()).add(kind)
        for key, counted in self._counts():
            count = int(counted - self._before.get(key, 0))
            if not count:
                continue
            endpoint, operation, part, parameter = key
            old = self._earlier.get(key)
            since = old.since if old else self._since.setdefault(key, self._clock())
            suspected = tuple(sorted(kinds.get(key, set()).union(old.kinds if old else ())))
            count += old.count if old else 0
            uses[key] = RuledUse(endpoint, operation, since, count, part, parameter, suspected)
        return sorted(uses.values())

    def _counts(self) -> Iterable[tuple[_Key, float]]:
        sums: dict[_Key, float] = {}
        for (endpoint, operation, _), value in self._metrics.samples(_REQUESTS):
            if operation != "-":
                key = endpoint, operation, "", ""
                sums[key] = sums.get(key, 0) + value
        parameters = self._metrics.samples(_PARAMETERS)
        return [*sums.items(), *((cast(_Key, labels), value) for labels, value in parameters)]
