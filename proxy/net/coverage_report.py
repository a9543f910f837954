"""Coverage report that survives restarts: requests that rules name, and others by shape.

What rules name is counted for metrics anyway, and taken from there whenever a report is made.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from proxy.clock import Clock
from proxy.redactor.explain import find_operation
from proxy.redactor.rules import Rule, RuleSet
from proxy.redactor.watched import WatchedMember, joined_members
from proxy.telemetry.metrics import Metrics

_REQUESTS = "domicile_requests_total"
_CARRIED = "domicile_inner_requests_total"
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
    members: list[WatchedMember] = []  #: that values were suspected in


class RuledUse(msgspec.Struct, frozen=True, order=True):
    """Requests that an operation names, or those of them that have a parameter it does not name."""

    endpoint: str
    operation: str
    since: int
    count: int
    part: str = ""  #: of a parameter: query, form or upload; else empty
    parameter: str = ""  #: a public name, or ``{word}``
    kinds: tuple[str, ...] = ()

    @property
    def key(self) -> _Key:
        """Key of the entry."""
        return self.endpoint, self.operation, self.part, self.parameter


class CoverageReport(msgspec.Struct, frozen=True):
    """All of it. ``rules`` is the version of the rules under which parameters were met."""

    unknown: list[UnruledPath] = []
    ruled: list[RuledUse] = []
    rules: str = ""


def joined_reports(reports: Sequence[CoverageReport]) -> CoverageReport:
    """Reports of several processes as one; parameters count that were met under the rules of the
    last one.
    """
    if len(reports) == 1:
        return reports[0]
    rules = reports[-1].rules if reports else ""
    unknown: dict[tuple[str, str, str], UnruledPath] = {}
    ruled: dict[_Key, RuledUse] = {}
    for report in reports:
        for path in report.unknown:
            where = path.endpoint, path.method, path.path
            unknown[where] = _joined_path(unknown[where], path) if where in unknown else path
        for use in report.ruled:
            if use.part and report.rules != rules:
                continue
            ruled[use.key] = _joined_use(ruled[use.key], use) if use.key in ruled else use
    return CoverageReport(sorted(unknown.values()), sorted(ruled.values()), rules)


def _joined_path(one: UnruledPath, other: UnruledPath) -> UnruledPath:
    places = {
        part: _both(one.places.get(part, ()), other.places.get(part, ()))
        for part in {**one.places, **other.places}
    }
    return msgspec.structs.replace(
        one, since=min(one.since, other.since), count=one.count + other.count,
        kinds=_both(one.kinds, other.kinds), places=places,
        members=joined_members(one.members, other.members),
    )  # fmt: skip


def _joined_use(one: RuledUse, other: RuledUse) -> RuledUse:
    return msgspec.structs.replace(
        one, since=min(one.since, other.since), count=one.count + other.count,
        kinds=_both(one.kinds, other.kinds),
    )  # fmt: skip


def _both(kinds: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({*kinds, *others}))


class RuledUses:
    """Counts uses from the metrics of this process on top of those of earlier ones."""

    def __init__(
        self, metrics: Metrics, clock: Clock, rules: RuleSet, earlier: CoverageReport
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._earlier = {one.key: one for one in earlier.ruled}
        self._since: dict[_Key, int] = {}
        self._before: dict[_Key, float] = {}  #: counted under former rules
        self.rules = earlier.rules
        self.announce(rules)

    def announce(self, rules: RuleSet) -> None:
        """Adopt new rules. They may name a parameter by now: all are reported again."""
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
        for (endpoint, operation), value in self._metrics.samples(_CARRIED):
            key = endpoint, operation, "", ""
            sums[key] = sums.get(key, 0) + value
        parameters = self._metrics.samples(_PARAMETERS)
        return [*sums.items(), *((cast(_Key, labels), value) for labels, value in parameters)]


def coverage_data(
    report: CoverageReport, rules: RuleSet, *, strict: bool = False
) -> dict[str, Any]:
    """Report the uses of these rules and the requests that none names, JSON-ready.

    In order where no value is suspected in what no rule names; ``strict``: where there is nothing
    that no rule names.
    """
    unknown = [_unknown(path) for path in report.unknown if not _is_ruled(rules, path)]
    parameters = _parameters(report, rules)
    uses = {one.key: one for one in report.ruled}
    return {
        "ok": not any(one["suspected"] or strict for one in (*unknown, *parameters)),
        "ruled": [_rule(rule, uses) for rule in rules.operations],
        "passed": [_rule(rule, uses) for rule in rules.passed],
        "parameters": parameters,
        "unknown": unknown,
    }


def _is_ruled(rules: RuleSet, path: UnruledPath) -> bool:
    """Whether the current rules name a request that former rules did not.

    Without rules the application of ``serve --upstream`` has a name of its own.
    """
    lone = path.endpoint == "default" and len(rules.endpoints) == 1
    hosts = [one.hosts for one in rules.endpoints if lone or one.name == path.endpoint]
    if not hosts:  # without rules then: not known to be named now
        return False
    match = find_operation(rules, path.method, path.path, min(hosts[0], default=""))
    return match.rule is not None


def _rule(rule: Rule, uses: Mapping[_Key, RuledUse]) -> dict[str, Any]:
    use = uses.get((rule.endpoint.name, rule.label, "", ""))
    return {
        "endpoint": rule.endpoint.name,
        "match": rule.label,
        "at": str(rule.position),
        "since": instant_in_words(use.since) if use else None,
        "count": use.count if use else 0,
    }


def _parameters(report: CoverageReport, rules: RuleSet) -> list[dict[str, Any]]:
    """Parameters that the current rules do not name, also among those met under former rules."""
    if report.rules != rules.version:
        return []
    return [
        {
            "endpoint": one.endpoint,
            "match": one.operation,
            "place": one.part,
            "parameter": one.parameter,
            "suspected": list(one.kinds),
            "since": instant_in_words(one.since),
            "count": one.count,
        }
        for one in report.ruled
        if one.part
    ]


def _unknown(path: UnruledPath) -> dict[str, Any]:
    return {
        "endpoint": path.endpoint,
        "method": path.method,
        "path": path.path,
        "suspected": sorted(path.kinds),
        "places": {part: list(kinds) for part, kinds in path.places.items()},
        "since": instant_in_words(path.since),
        "count": path.count,
    }


def instant_in_words(since: int) -> str:
    """A time in milliseconds since the epoch in words (RFC 3339), to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since / 1000))
