"""Coverage report that survives restarts: requests that rules name, and others by shape.

What rules name is counted for metrics anyway, and taken from there whenever a report is made.
"""

import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from proxy.clock import Clock
from proxy.redactor.coverage import WatchedMember, joined_members, may_name, written_path
from proxy.redactor.rules import Operation, Rule, RuleSet
from proxy.redactor.tools.explain import (
    EffectiveRule,
    RuleFinder,
    as_data,
    passed_places,
    when_in_text,
)
from proxy.telemetry.metrics import MetricCell, Metrics

_REQUESTS = "domicile_requests_total"
_CARRIED = "domicile_inner_requests_total"
_PARAMETERS = "domicile_unnamed_parameters_total"
_SUSPECTED = "domicile_unnamed_suspected"

#: Places of an exchange in which values are suspected.
_PLACES: Final = ("address", "header", "request", "answer")

#: Positions in rule files, which say nothing of what a rule names.
_AT = re.compile(r'"at": "[^"]*:\d+:\d+", ')

#: Answers of success that are looked at for each shape, and others.
_LOOKS: Final = 3
_TRIES: Final = 50

_Key = tuple[str, str, str, str]  #: endpoint, operation, part, parameter


class UnruledPath(msgspec.Struct, frozen=True, order=True):
    """A shape of a path that no rule names."""

    endpoint: str
    method: str
    path: str
    since: int  #: milliseconds since the epoch
    count: int
    kinds: tuple[str, ...] = ()  #: that were suspected
    #: the same by place: address, header, request, answer
    places: dict[str, tuple[str, ...]] = {}
    members: list[WatchedMember] = []  #: that values were suspected in
    answers: tuple[str, ...] = ()  #: classes of the statuses that were answered: ``2xx``


class Unruled:
    """A shape of path that no rule names, for one endpoint and method."""

    __slots__ = (
        "cell", "classes", "earlier", "key", "left", "looks", "members", "places", "reported",
        "since",
    )  # fmt: skip

    def __init__(self, key: tuple[str, str, str], cell: MetricCell | None) -> None:
        self.key = key  #: endpoint, method, shape
        self.since = 0  #: when it was first met
        self.classes = 0  #: of the statuses that were answered, a bit each
        self.earlier = 0  #: requests that earlier processes have counted
        self.cell = cell  #: counts its requests; ``None`` until it is reported
        #: the kinds that were told, by place
        self.places: dict[str, set[str]] = {part: set() for part in _PLACES}
        self.members: list[WatchedMember] = []  #: that values were suspected in
        self.looks = _LOOKS
        self.left = _TRIES
        self.reported = False

    @property
    def kinds(self) -> set[str]:
        """The kinds that were told, wherever they stand."""
        return set().union(*self.places.values())

    @property
    def settled(self) -> bool:
        """Whether its exchanges need not be looked at any more."""
        return self.reported and (self.looks <= 0 or self.left <= 0)

    @property
    def path(self) -> UnruledPath:
        """The entry of the report."""
        count = self.earlier + (int(self.cell.value) if self.cell is not None else 0)
        places = {part: tuple(sorted(kinds)) for part, kinds in self.places.items() if kinds}
        kinds = tuple(sorted(self.kinds))
        answers = tuple(f"{one}xx" for one in range(1, 6) if self.classes >> one & 1)
        return UnruledPath(*self.key, self.since, count, kinds, places, self.members, answers)


class RuledUse(msgspec.Struct, frozen=True, order=True):
    """Requests that an operation names, or those of them that have a parameter it does not name."""

    endpoint: str
    operation: str
    since: int
    count: int
    part: str = ""  #: of a parameter: query, form or upload; else empty
    parameter: str = ""  #: a public name, or ``{word}``
    kinds: tuple[str, ...] = ()
    rule: str = ""  #: of a parameter: the mark of the rule that did not name it

    @property
    def key(self) -> _Key:
        """Key of the entry."""
        return self.endpoint, self.operation, self.part, self.parameter


class CoverageReport(msgspec.Struct, frozen=True):
    """All of it. ``rules``: the version of the rules; ``upstreams``: of each endpoint."""

    unknown: list[UnruledPath] = []
    ruled: list[RuledUse] = []
    rules: str = ""
    upstreams: dict[str, str] = {}


def joined_reports(reports: Sequence[CoverageReport]) -> CoverageReport:
    """Reports of several processes as one."""
    if len(reports) == 1:
        return reports[0]
    rules = reports[-1].rules if reports else ""
    unknown: dict[tuple[str, str, str], UnruledPath] = {}
    ruled: dict[tuple[_Key, str], RuledUse] = {}
    upstreams: dict[str, str] = {}
    for report in reports:
        upstreams |= report.upstreams
        for path in report.unknown:
            where = path.endpoint, path.method, path.path
            unknown[where] = _joined_path(unknown[where], path) if where in unknown else path
        for use in report.ruled:
            key = use.key, use.rule
            ruled[key] = _joined_use(ruled[key], use) if key in ruled else use
    return CoverageReport(sorted(unknown.values()), sorted(ruled.values()), rules, upstreams)


def _joined_path(one: UnruledPath, other: UnruledPath) -> UnruledPath:
    places = {
        part: _both(one.places.get(part, ()), other.places.get(part, ()))
        for part in {**one.places, **other.places}
    }
    return msgspec.structs.replace(
        one, since=min(one.since, other.since), count=one.count + other.count,
        kinds=_both(one.kinds, other.kinds), places=places,
        members=joined_members(one.members, other.members),
        answers=_both(one.answers, other.answers),
    )  # fmt: skip


def _joined_use(one: RuledUse, other: RuledUse) -> RuledUse:
    return msgspec.structs.replace(
        one, since=min(one.since, other.since), count=one.count + other.count,
        kinds=_both(one.kinds, other.kinds),
    )  # fmt: skip


def _both(kinds: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({*kinds, *others}))


class RuleMarks:
    """Short marks of what the rules of a label say: equal where they name the same places."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules
        self._marks: dict[tuple[str, str], str] = {}

    def of(self, endpoint: str, label: str) -> str:
        """The mark of the operations with that label, or with a field of GraphQL that has it; empty
        where there are none.
        """
        key = endpoint, label
        if key not in self._marks:
            rules = [
                one
                for one in self._rules.operations
                if one.endpoint.name == endpoint
                and label in (one.label, *[field.operation.label for field in one.graph])
            ]
            said = [as_data(EffectiveRule(one.endpoint, one))["operation"] for one in rules]
            text = _AT.sub("", json.dumps(said, sort_keys=True))
            digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
            self._marks[key] = digest if rules else ""
        return self._marks[key]

    def stands(self, use: RuledUse) -> bool:
        """Whether a parameter is still one that its rule does not name."""
        return bool(use.rule) and use.rule == self.of(use.endpoint, use.operation)


class RuledUses:
    """Counts uses from the metrics of this process on top of those of earlier ones."""

    def __init__(
        self, metrics: Metrics, clock: Clock, rules: RuleSet, earlier: CoverageReport
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._marks = RuleMarks(rules)
        self.rules = rules.version
        self._earlier = {
            one.key: one for one in earlier.ruled if not one.part or self._marks.stands(one)
        }
        self._since: dict[_Key, int] = {}
        self._before: dict[_Key, float] = {}  #: counted under former rules

    def announce(self, rules: RuleSet) -> None:
        """Adopt new rules. A parameter whose rule has changed may be named now: report it anew."""
        if rules.version == self.rules:
            return
        former, self._marks, self.rules = self._marks, RuleMarks(rules), rules.version

        def stands(key: _Key) -> bool:
            return not key[2] or former.of(*key[:2]) == self._marks.of(*key[:2])

        self._earlier = {key: one for key, one in self._earlier.items() if stands(key)}
        self._since = {key: since for key, since in self._since.items() if stands(key)}
        self._before |= {key: count for key, count in self._counts() if not stands(key)}

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
            mark = self._marks.of(endpoint, operation) if part else ""
            uses[key] = RuledUse(
                endpoint, operation, since, count, part, parameter, suspected, mark
            )
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
    finder = RuleFinder(rules)
    changed = report.rules != rules.version  # and the instance has not told which it met since
    unknown = [
        {**_unknown(path), **_next(rules, path), **(_perhaps(rules, path) if changed else {})}
        for path in report.unknown
        if not _is_ruled(finder, rules, path)
    ]
    parameters = _parameters(report, rules)
    uses = {one.key: one for one in report.ruled}
    labels = Counter((one.endpoint.name, one.label) for one in rules.rules)
    return {
        "ok": not any(one["suspected"] or strict for one in (*unknown, *parameters)),
        "ruled": [{**_rule(rule, uses), **_shared(rule, labels)} for rule in rules.operations],
        "passed": [
            *({**_rule(rule, uses), **_shared(rule, labels)} for rule in rules.on_purpose),
            *(one for rule in rules.operations for one in _passed_places(rule, uses)),
        ],
        "parameters": parameters,
        "unknown": unknown,
        "ids": sum(_has_open_id(rule) for rule in rules.operations),
    }


def _has_open_id(rule: Operation) -> bool:
    """Whether a path has a placeholder that no rule protects, whose words are not looked at."""
    search = rule.request.search
    protected = search.path if search is not None else {}
    names = re.findall(r"\{([^{}*]+)\*?\}", rule.template)
    return any(name not in protected for name in names)


def _is_ruled(finder: RuleFinder, rules: RuleSet, path: UnruledPath) -> bool:
    """Whether the current rules name a request that former rules did not.

    Without rules the application of ``serve --upstream`` has a name of its own.
    """
    lone = path.endpoint == "default" and len(rules.endpoints) == 1
    hosts = [one.hosts for one in rules.endpoints if lone or one.name == path.endpoint]
    if not hosts:  # without rules then: not known to be named now
        return False
    match = finder.find(path.method, path.path, min(hosts[0], default=""))
    return match.rule is not None


def _perhaps(rules: RuleSet, path: UnruledPath) -> dict[str, str]:
    """The rule that may name a path by now in which a word was hidden."""
    several = (
        rule.label
        for rule in rules.rules
        if rule.endpoint.name == path.endpoint and path.method in rule.methods
        if may_name(written_path(rule), path.path)
    )
    label = next(several, "")
    return {"perhaps": label} if label else {}


def _next(rules: RuleSet, path: UnruledPath) -> dict[str, str]:
    from proxy.redactor.tools.watched import next_step  # of no use to a request

    own = {one.entity.name for one in rules.operations if one.endpoint.name == path.endpoint}
    step = next_step(f"{path.method} {path.path}", path.places, path.members, own)
    return {"next": step} if path.kinds else {}


def _rule(rule: Rule, uses: Mapping[_Key, RuledUse]) -> dict[str, Any]:
    use = uses.get((rule.endpoint.name, rule.label, "", ""))
    return {
        "endpoint": rule.endpoint.name,
        "match": rule.label,
        "at": str(rule.position),
        "since": instant_in_words(use.since) if use else None,
        "count": use.count if use else 0,
        **({"when": when_in_text(rule)} if rule.when else {}),
    }


def _shared(rule: Rule, labels: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """The number of rules that a count is of: those of a path that differ by ``when`` share it."""
    rules = labels[rule.endpoint.name, rule.label]
    return {"rules": rules} if rules > 1 else {}


def _passed_places(rule: Operation, uses: Mapping[_Key, RuledUse]) -> Iterable[dict[str, Any]]:
    """Parameters and members of a ruled request that its rule lets pass; counted is the request."""
    for part, name in passed_places(rule):
        yield {**_rule(rule, uses), "place": part, "parameter": name}


def _parameters(report: CoverageReport, rules: RuleSet) -> list[dict[str, Any]]:
    """Parameters that the current rules do not name, also among those met under former rules."""
    marks = RuleMarks(rules)
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
        if one.part and marks.stands(one)
    ]


def _unknown(path: UnruledPath) -> dict[str, Any]:
    return {
        "endpoint": path.endpoint,
        "method": path.method,
        "path": path.path,
        "suspected": sorted(path.kinds),
        "places": {part: list(kinds) for part, kinds in path.places.items()},
        "answers": list(path.answers),
        "since": instant_in_words(path.since),
        "count": path.count,
    }


def instant_in_words(since: int) -> str:
    """A time in milliseconds since the epoch in words (RFC 3339), to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since / 1000))
