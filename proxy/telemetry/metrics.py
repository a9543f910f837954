"""Every metric in one table, its cells, which cost an integer addition each, and their text.

The hot path never calls prometheus-client: a caller asks once for its cell (``metrics.cell(name,
label, ...)``) and adds to a plain attribute. ``render`` turns all cells into the text format, and
loads that library. One cell belongs to one thread at a time; adding is not atomic across threads.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

MetricKind = Literal["counter", "gauge", "histogram"]


class MetricSpec(NamedTuple):
    """A metric of the table: kind, labels in order, and help text."""

    kind: MetricKind
    labels: tuple[str, ...]
    help: str
    bounds: tuple[float, ...] = ()  #: upper bounds of a histogram's buckets, ascending


#: Seconds; a durable commit takes half a millisecond to some hundred on a slow disk.
_COMMIT_BOUNDS: Final = (
    0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.0,
)  # fmt: skip

#: Seconds; a look-up takes a millisecond, a search over a million records or an upload some
#: seconds.
_API_BOUNDS: Final = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
)  # fmt: skip

#: Seconds; a step takes some ten microseconds, an application up to its time-out. Few, for each
#: operation has several series of them.
_REQUEST_BOUNDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0,
)  # fmt: skip

#: Every metric there is. Counters end in ``_total``; times are in seconds, instants in seconds
#: since the epoch.
METRICS: Final[dict[str, MetricSpec]] = {
    "domicile_requests_total": MetricSpec("counter", ("endpoint", "operation", "outcome"),
        "Requests, by outcome: passed (no rule names them, or a rule lets them pass), matched, refused (by the proxy), failed (by the application)."),
    "domicile_inner_requests_total": MetricSpec("counter", ("endpoint", "operation"),
        "Requests inside envelopes, by the rule that matches each of them."),
    "domicile_request_seconds": MetricSpec("histogram", ("endpoint", "operation", "outcome", "step"),
        "Duration of proxied requests, by step: total is the whole request. For requests that a rule names, also match (until the rule was "
        "known), receive (the body of the caller), redact, stage (until values are durable in the vault), application (until it has responded), "
        "settle (until the outcome is durable), restore (until the response was sent).", _REQUEST_BOUNDS),
    "domicile_unmatched_requests_total": MetricSpec("counter", ("endpoint", "method", "path"),
        "Requests that no rule names, by path pattern, which shows only words of the rules' paths and common API words. Patterns beyond 500 are counted together as other."),
    "domicile_unmatched_suspected": MetricSpec("gauge", ("endpoint", "method", "path", "kind"),
        "1 if a value of that data type is suspected in requests or responses that no rule names."),
    "domicile_protected_values_total": MetricSpec("counter", ("entity", "field"), "Values replaced by tokens on the way to the application."),
    "domicile_restored_values_total": MetricSpec("counter", ("entity", "field"), "Tokens replaced by values on the way to the caller."),
    "domicile_masked_values_total": MetricSpec("counter", ("entity", "field"), "Tokens replaced by masks on the way to the caller."),
    "domicile_undecided_updates_total": MetricSpec("counter", ("entity", "field"),
        "Updates in doubt whose old and new value have one token, so that no response shows which one the application kept: both are kept, the old one is shown, and the next write of the field decides."),
    "domicile_unnamed_parameters_total": MetricSpec("counter", ("endpoint", "operation", "place", "parameter"),
        "Requests of operations with a parameter that their rule does not name, in a read's URL (query), in a form, or in an upload (a text "
        "field, or a column of its CSV file): its value reaches the application in the clear. A member of a JSON body (body) or an argument of "
        "GraphQL (argument) is counted by its path, in a sample of the requests, and only if a value is suspected, or if the argument holds the "
        "name of a field in its own. An order by a protected field of any entity that no rule refuses (order) is counted by its parameter. "
        "A head or label of a page (page), or a column of an export (export), that this rule does not name is counted by its field, in a sample of "
        "the pages, if other rules or the field's name call it so and a token of a person there stands under it, as a date which people believe. "
        "Names are shown if their words are those of the rule or common API words."),
    "domicile_unnamed_suspected": MetricSpec("gauge", ("endpoint", "operation", "place", "parameter", "kind"),
        "1 if a value of that data type is suspected in a parameter, a member of a JSON body or an argument of GraphQL that the rule does not name."),
    "domicile_altered_tokens_total": MetricSpec("counter", ("entity", "field"),
        "Responses to writes that show neither the old nor the new token of a field: the application lower-cases, truncates or rewrites tokens, and the values cannot be restored."),
    "domicile_vault_events_total": MetricSpec("counter", ("schema", "event"),
        "Events of records: staged (durable before it was forwarded), settled, dropped (the application refused), nameless (accepted without an "
        "id: kept, and bound by the first response that shows it), displaced (the application gave its id to another record: in the history of "
        "that id), deleted, marked (deleted, and `keep` keeps its values), in_doubt (unknown outcome), reconciled (a later response decided), "
        "late (settled after the store could be written again), expired, reaped (not shown within pending.keep), unopenable (an encrypted row "
        "that cannot be decrypted), unreadable_answer, unrestored (answered with tokens), field_absent, shape_full, versions_full (an earlier value ended, as its "
        "record had more than `versions: keep` keeps), page_full (more tokens than one page restores), untold (an answer shows tokens without the ids that tell them), elsewhere (a tokenized value was also elsewhere in its request, `on_error.guard`), cookie_dropped (a cookie that a "
        "rule names left out of a request, because its value has no token, or only some readers see it). Over the vault's own interface: "
        "created, updated, migrated (merged into another record), attached, detached (a file), unopenable_file (an attachment that cannot be "
        "decrypted), tampered (a row whose columns differ from its encrypted body), altered (rows of the schema were rolled back, removed or "
        "added in the store: `history.detect_rollback`)."),
    "domicile_api_requests_total": MetricSpec("counter", ("operation", "status"),
        "Requests to the vault's own interface, by operation of the OpenAPI document and status of the response."),
    "domicile_api_seconds": MetricSpec("histogram", (),
        "Duration of requests to the vault's own interface, including uploads and downloads.", _API_BOUNDS),
    "domicile_records": MetricSpec("gauge", ("schema", "state"),
        "Records in the vault, by state: live, pending; staged: changes that wait for a response."),
    "domicile_schema_migration_records": MetricSpec("gauge", ("schema", "state"),
        "Records of the current or last schema migration: done, total, failed (a value cannot be converted)."),
    "domicile_rules_info": MetricSpec("gauge", ("version",), "1 for the active version of the rules."),
    "domicile_native_code": MetricSpec("gauge", (), "1 where compiled code finds values in JSON, 0 where Python does."),
    "domicile_rules_reload_success_timestamp_seconds": MetricSpec("gauge", (), "When rules were last loaded successfully."),
    "domicile_rules_lost_protection": MetricSpec("gauge", (),
        "Differences by which the last other rules that came into force protect less than those before; the log names them. 0: none, or no other rules since the start."),
    "domicile_rules_reload_failures_total": MetricSpec("counter", (), "Failed loads of the rules; the previous rules stayed active."),
    "domicile_reload_failed": MetricSpec("gauge", ("what",),
        "1 while the version on disk cannot be used and an older one is active: rules, policies, schemas, certificates (towards callers), "
        "upstream_certificates, remote_certificates, countries, notes (of the store), keys (the key file is lost, damaged or of another vault: the next start would fail), clock (of this machine: 1 while it is behind the last line of the audit log, or behind what it was; beside other instances, while it differs from the database's)."),
    "domicile_operation_fired_timestamp_seconds": MetricSpec("gauge", ("endpoint", "operation"),
        "When a request last matched the operation; 0: never since the start. A rule that never matches protects nothing."),
    "domicile_vault_commit_seconds": MetricSpec("histogram", (), "Time from passing a change to the vault until it is durable.", _COMMIT_BOUNDS),
    "domicile_vault_writer_queue": MetricSpec("gauge", (), "Changes that wait for the vault's writer thread."),
    "domicile_vault_questions_total": MetricSpec("counter", ("server",),
        "Queries over many records with find_from=standby, by server: standby, or primary while no standby has every write."),
    "domicile_audit_line": MetricSpec("gauge", (), "Number of the last line of the audit log."),
    "domicile_audit_down": MetricSpec("gauge", (), "1 while the audit log cannot be written, so that nothing is revealed or changed."),
    "domicile_audit_unshipped": MetricSpec("gauge", ("sink",), "Lines of the audit log that were not yet sent to a destination (stdout, syslog)."),
    "domicile_alarms_total": MetricSpec("counter", ("kind",),
        "Alerts, each with a line in the audit log: bait (a honeytoken was revealed), emergency (a client has taken an emergency role), log "
        "(lines of the audit log are missing or were changed), tampered (a record or a file differs from its encrypted content, or cannot be "
        "decrypted: the store was changed; found by a request to the vault's interface, or in the background; then only the log and the metric "
        "report it), notes (clients, policies, keys or another note of the store were changed, rolled back, added or removed), misses (a caller "
        "keeps searching through the proxy for missing records)."),
    "domicile_token_requests_total": MetricSpec("counter", ("outcome",),
        "Requests for access tokens, by outcome: issued, slowed (too many failures or too much at once), or the error."),
    "domicile_limited_requests_total": MetricSpec("counter", ("listener", "limit"),
        "Requests answered 429, by listener (proxy, vault) and limit: credential, address, concurrent, uploads, misses."),
    "domicile_limited_connections_total": MetricSpec("counter", (),
        "Connections that were refused, or closed while they were idle, for a new one, because of limits.connections or limits.address_connections."),
    "domicile_limits_store_up": MetricSpec("gauge", (),
        "1 while the store of limits.store responds; 0: it does not, and each replica enforces its limits locally, or there is none."),
    "domicile_firewall_requests_total": MetricSpec("counter", ("listener", "outcome"),
        "Requests from outside the country, by listener (proxy, vault) and outcome: blocked (refused), masked (nothing in the clear)."),
    "domicile_firewall_database_age_seconds": MetricSpec("gauge", (), "Age of the active country database; 0: there is none."),
    "domicile_firewall_database_failures_total": MetricSpec("counter", (),
        "New files of the country database that could not be used; the previous one stayed active."),
    "domicile_acl_requests_total": MetricSpec("counter", ("outcome",),
        "Requests to the filter endpoints of access policies, by outcome: answered, wrong (not reached, or an invalid answer), late (not within acl.timeout). After the last two, nothing is allowed."),
    "domicile_upstream_connections": MetricSpec("gauge", ("endpoint", "state"), "Connections to the application, by state: busy, idle."),
    "domicile_upstream_suspended": MetricSpec("gauge", ("endpoint",),
        "1 while the circuit breaker is open because the application failed several times in a row (upstream.breaker)."),
    "domicile_upstream_errors_total": MetricSpec("counter", ("endpoint", "code"),
        "Exchanges that failed at the application or on the way to it, by error code."),
    "domicile_refused_requests_total": MetricSpec("counter", ("endpoint", "code"),
        "Requests that the proxy refused, by error code: vault_down and bad_store (the vault's database is away, full or damaged), audit_down, or what is wrong with the request."),
    "domicile_resealed_records": MetricSpec("gauge", ("environment", "state"),
        "Progress of the re-encryption under the current data key: records (done), past versions (versions), contents of files (contents); unreadable: of all of them, those that cannot be decrypted."),
    "domicile_key_drop_blockers": MetricSpec("gauge", ("environment", "kind"),
        "Instances on this vault that have not agreed yet to drop older keys (data) or the older "
        "hash root (hash) that nothing needs any more; `domicile keys list` names them."),
    "domicile_rehashed_records": MetricSpec("gauge", ("environment", "state"),
        "Progress of the rotation of hashes to the current root in its round: records, past versions (versions); unreadable: of both, those that cannot be decrypted."),
    "domicile_tls_handshakes_total": MetricSpec("counter", ("listener", "outcome"),
        "TLS handshakes of callers, by outcome: done, no_name (no SNI), foreign_name (in no certificate of ours), no_certificate and "
        "bad_certificate (of the caller), late (not complete in time), left (the caller went away), failed (anything else)."),
    "domicile_tls_certificate_end_timestamp_seconds": MetricSpec("gauge", ("name",),
        "Expiry of the certificate presented to callers, or of the first one in its chain that expires."),
    "domicile_tls_revocation_list_end_timestamp_seconds": MetricSpec("gauge", (),
        "When the first of the callers' revocation lists is due for a new one; after that no caller with a certificate is accepted."),
    "domicile_tls_reload_success_timestamp_seconds": MetricSpec("gauge", (), "When the files for TLS towards callers were last reloaded."),
    "domicile_tls_reload_failures_total": MetricSpec("counter", (),
        "Changes of the files for TLS towards callers that could not be used; the previous ones stayed active."),
    "domicile_functions_isolation": MetricSpec("gauge", ("layer",),
        "1 for each layer that isolates resident functions from the rest of the machine, 0 for one that this kernel lacks: landlock (files), seccomp (processes, network), network_namespace, user."),
    "domicile_shape_fill_ratio": MetricSpec("gauge", ("entity", "field"), "Share of the field's possible tokens that is used; full at 1."),
}  # fmt: skip

#: The content type of what ``Metrics.render`` answers.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricCell:
    """A time series: ``cell.value += n`` for a counter, ``cell.value = x`` for a gauge."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def count(self) -> None:
        """Count one more, for who calls and has nothing to say."""
        self.value += 1


class Histogram:
    """A histogram: ``observe(seconds)``."""

    __slots__ = ("_counts", "_total", "bounds", "row")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.row: HistogramRow | None = None  #: where observations may wait
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, amount: float) -> None:
        """Count one observation in the first bucket whose bound it does not exceed."""
        self._counts[bisect_left(self.bounds, amount)] += 1
        self._total += amount

    def observe_each(self, amounts: Iterable[float], above: float = -inf) -> None:
        """The same of many, but those that are not above a limit."""
        ordered = sorted(amounts)
        start = before = bisect_right(ordered, above)
        for index, bound in enumerate(self.bounds):
            up_to = bisect_right(ordered, bound, before)
            self._counts[index] += up_to - before
            before = up_to
        self._counts[-1] += len(ordered) - before
        self._total = sum(ordered[start:], self._total)

    @property
    def counts(self) -> Sequence[int]:
        """By bucket, how many observations were counted; above all bounds the last."""
        if self.row is not None:
            self.row.count()
        return self._counts

    @property
    def total(self) -> float:
        """Sum of all observations."""
        if self.row is not None:
            self.row.count()
        return self._total

    def cumulated(self) -> list[tuple[str, float]]:
        """The buckets for the text format: upper bound and count up to it, the last ``+Inf``."""
        rows: list[tuple[str, float]] = []
        count = 0
        for bound, here in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            count += here
            rows.append((bound, count))
        return rows


class HistogramRow:
    """Histograms of one event: of its whole, and of its steps.

    Amounts wait, and are counted together, which takes half of the time: before anybody reads one
    of the histograms, or when there are ``MOST``.
    """

    __slots__ = ("_histograms", "waiting")

    MOST: Final = 64

    def __init__(self, whole: Histogram, steps: Sequence[Histogram] = ()) -> None:
        #: of each event the amounts of the whole and of all steps; a step without one has 0
        self.waiting: list[tuple[float, ...]] = []
        self._histograms = whole, *steps
        for one in self._histograms:
            if one.row is not None:
                one.row.count()
            one.row = self

    def count(self) -> None:
        """Count what waits."""
        rows, self.waiting, least = self.waiting, [], -inf
        for histogram, amounts in zip(self._histograms, zip(*rows, strict=True), strict=False):
            histogram.observe_each(amounts, least)
            least = 0.0


class Metrics:
    """All time series of one process.

    Names and label counts are checked when a series is created, not per use.
    """

    def __init__(self) -> None:
        self._registry: CollectorRegistry | None = None  #: from the first scrape on
        self._cells: dict[str, dict[tuple[str, ...], MetricCell]] = {}
        self._buckets: dict[str, dict[tuple[str, ...], Histogram]] = {}
        self._watched: dict[str, dict[tuple[str, ...], Callable[[], float]]] = {}

    def cell(self, name: str, *labels: str) -> MetricCell:
        """The cell of a counter or gauge under these label values; the same one each time."""
        _declared(name, ("counter", "gauge"), labels)
        return self._cells.setdefault(name, {}).setdefault(labels, MetricCell())

    def count(self, name: str, *labels: str) -> None:
        """Count one more under these label values."""
        self.cell(name, *labels).value += 1

    def buckets(self, name: str, *labels: str) -> Histogram:
        """The histogram of that name under these label values; the same one each time."""
        declared = _declared(name, ("histogram",), labels)
        return self._buckets.setdefault(name, {}).setdefault(labels, Histogram(declared.bounds))

    def watch(self, name: str, read: Callable[[], float], *labels: str) -> None:
        """A gauge whose value ``read`` returns at each scrape: lengths of queues and pools."""
        _declared(name, ("gauge",), labels)
        self._watched.setdefault(name, {})[labels] = read

    def info(self, name: str, *labels: str) -> None:
        """Make these labels the only series of a gauge, at 1, such as the active version."""
        _declared(name, ("gauge",), labels)
        cell = MetricCell()
        cell.value = 1
        self._cells[name] = {labels: cell}

    def samples(self, name: str) -> list[tuple[tuple[str, ...], float]]:
        """The label values and the value of every cell of that name."""
        return [(labels, cell.value) for labels, cell in self._cells.get(name, {}).items()]

    def forget(self, prefix: str) -> None:
        """Drop every cell whose first label begins with that text, as its subject is gone."""
        for cells in self._cells.values():
            for labels in [labels for labels in cells if labels and labels[0].startswith(prefix)]:
                del cells[labels]

    def render(self) -> bytes:
        """All metrics in the text format, for ``CONTENT_TYPE``."""
        from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

        if self._registry is None:
            self._registry = CollectorRegistry(auto_describe=False)
            self._registry.register(_Cells(self))
            ProcessCollector(registry=self._registry)
        return generate_latest(self._registry)

    def families(self) -> "Iterator[Metric]":
        """Every declared metric as prometheus-client's families, with the samples there are."""
        for name, declared in METRICS.items():
            if declared.kind == "histogram":
                yield self._histogram(name, declared)
            else:
                yield self._simple(name, declared)

    def _simple(self, name: str, declared: MetricSpec) -> "Metric":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        family = (CounterMetricFamily if declared.kind == "counter" else GaugeMetricFamily)(
            name, declared.help, labels=declared.labels
        )
        series = self._cells.get(name, {})
        if not declared.labels and name not in self._watched:
            series = series or {(): MetricCell()}
        for labels, cell in list(series.items()):
            family.add_metric(labels, cell.value)
        for labels, read in list(self._watched.get(name, {}).items()):
            family.add_metric(labels, read())
        return family

    def _histogram(self, name: str, declared: MetricSpec) -> "Metric":
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(name, declared.help, labels=declared.labels)
        series = self._buckets.get(name, {})
        if not declared.labels:
            series = series or {(): Histogram(declared.bounds)}
        for labels, buckets in list(series.items()):
            family.add_metric(labels, buckets.cumulated(), buckets.total)
        return family


class _Cells:
    """The bridge to prometheus-client: collected at each scrape."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> "Iterator[Metric]":
        return self._metrics.families()


def _declared(name: str, kinds: tuple[MetricKind, ...], labels: tuple[str, ...]) -> MetricSpec:
    declared = METRICS.get(name)
    if declared is None:
        raise ValueError(
            f"{name} is not in the table of metrics: add it to METRICS with its labels and its "
            "meaning"
        )
    if declared.kind not in kinds:
        raise ValueError(f"{name} is a {declared.kind}, not a {' or '.join(kinds)}")
    if len(labels) != len(declared.labels):
        raise ValueError(
            f"{name} takes {len(declared.labels)} labels ({', '.join(declared.labels)}), not "
            f"{len(labels)}"
        )
    return declared
