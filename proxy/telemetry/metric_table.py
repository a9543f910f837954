"""Every metric of the program in one table: kind, labels in their order, and meaning."""

from typing import Final, Literal, NamedTuple

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
    "domicile_requests_total": MetricSpec(
        "counter",
        ("endpoint", "operation", "outcome"),
        "Requests, by outcome: passed (no rule names them, or one lets them pass), matched, "
        "refused (by the proxy), failed (by "
        "the application).",
    ),
    "domicile_inner_requests_total": MetricSpec(
        "counter",
        ("endpoint", "operation"),
        "Requests inside envelopes, by the rule that names each of them.",
    ),
    "domicile_request_seconds": MetricSpec(
        "histogram",
        ("endpoint", "operation", "outcome", "step"),
        "How long proxied requests took, by step: total is the whole of it. Of requests that a "
        "rule names, also match (until the rule was known), receive (the body of the caller), "
        "redact, stage (until values are durable in the vault), application (until it has "
        "answered), settle (until it is durable what the answer means), restore (until the "
        "answer was sent).",
        _REQUEST_BOUNDS,
    ),
    "domicile_unmatched_requests_total": MetricSpec(
        "counter",
        ("endpoint", "method", "path"),
        "Requests that no rule names, by the shape of their path, which shows words of the "
        "rules' paths and of many interfaces alone. Shapes beyond "
        "500 are counted together as other.",
    ),
    "domicile_unmatched_suspected": MetricSpec(
        "gauge",
        ("endpoint", "method", "path", "kind"),
        "1 where a value of that kind is suspected in requests or answers that no rule names.",
    ),
    "domicile_protected_values_total": MetricSpec(
        "counter", ("entity", "field"), "Values replaced by tokens on the way to the application."
    ),
    "domicile_restored_values_total": MetricSpec(
        "counter", ("entity", "field"), "Tokens replaced by values on the way to the caller."
    ),
    "domicile_masked_values_total": MetricSpec(
        "counter", ("entity", "field"), "Tokens replaced by masks on the way to the caller."
    ),
    "domicile_undecided_updates_total": MetricSpec(
        "counter",
        ("entity", "field"),
        "Updates in doubt whose old and new value have one token, so that no answer tells which "
        "one the application kept: "
        "both are kept, the old one is shown, and the next write of the field decides.",
    ),
    "domicile_unnamed_parameters_total": MetricSpec(
        "counter",
        ("endpoint", "operation", "place", "parameter"),
        "Requests of ruled operations with a parameter of a read's address (query), of a form, or "
        "of an upload (a text of it, or a column of its CSV file), that their rule does not name: "
        "what it holds reaches the application in the clear. The "
        "name is shown where its words are those of the rule or of many interfaces.",
    ),
    "domicile_unnamed_suspected": MetricSpec(
        "gauge",
        ("endpoint", "operation", "place", "parameter", "kind"),
        "1 where a value of that kind is suspected in a parameter that the rule does not name.",
    ),
    "domicile_altered_tokens_total": MetricSpec(
        "counter",
        ("entity", "field"),
        "Answers to writes that show neither the old nor the new token of a field: the "
        "application lower-cases, cuts or "
        "rewrites what it is sent, and its values cannot be restored.",
    ),
    "domicile_vault_events_total": MetricSpec(
        "counter",
        ("schema", "event"),
        "What happened to records: staged (durable before it was forwarded), settled, dropped "
        "(the application refused), "
        "nameless (taken, and no id was told: kept, and bound by the first answer that shows it), "
        "displaced (the application gave its id to another record: in the history of that id), "
        "deleted, marked (deleted, and `keep` has its values stay), "
        "in_doubt (unknown outcome), reconciled (a later answer told), late (settled once "
        "the store could be written "
        "again), expired, reaped (never told within pending.keep), unopenable (a sealed row that "
        "does not open), "
        "unreadable_answer, unrestored (answered with tokens), field_absent, shape_full, page_full "
        "(more tokens than one page restores), elsewhere "
        "(a swapped value stood elsewhere in its request, `on_error.guard`). Over "
        "the vault's own interface: created, "
        "updated, migrated (taken into another record), attached, detached (a file), "
        "unopenable_file (an attachment that does not open), "
        "tampered (a row whose columns differ from what is sealed in it), altered (rows of the "
        "schema were put back, removed or added in the store: `history.detect_rollback`).",
    ),
    "domicile_api_requests_total": MetricSpec(
        "counter",
        ("operation", "status"),
        "Requests to the vault's own interface, by the operation of its interface document and "
        "the status of the answer.",
    ),
    "domicile_api_seconds": MetricSpec(
        "histogram",
        (),
        "How long requests to the vault's own interface took, uploads and downloads included.",
        _API_BOUNDS,
    ),
    "domicile_records": MetricSpec(
        "gauge",
        ("schema", "state"),
        "Records in the vault, by state: live, pending; staged: changes that wait for an answer.",
    ),
    "domicile_schema_migration_records": MetricSpec(
        "gauge",
        ("schema", "state"),
        "Records of the migration of a schema that is under way, or was last: done, total, "
        "failed (a value cannot be converted).",
    ),
    "domicile_rules_info": MetricSpec(
        "gauge", ("version",), "1 for the active version of the rules."
    ),
    "domicile_rules_reload_success_timestamp_seconds": MetricSpec(
        "gauge", (), "When rules were last loaded whole."
    ),
    "domicile_rules_reload_failures_total": MetricSpec(
        "counter", (), "Failed loads of the rules; the previous rules stayed active."
    ),
    "domicile_reload_failed": MetricSpec(
        "gauge",
        ("what",),
        "1 while the version on disk cannot be used and an older one is active: rules, "
        "policies, schemas, certificates (towards "
        "callers), upstream_certificates, countries, notes (of the store).",
    ),
    "domicile_operation_fired_timestamp_seconds": MetricSpec(
        "gauge",
        ("endpoint", "operation"),
        "When a request last matched the operation; 0: never since the start. A rule that never "
        "fires protects nothing.",
    ),
    "domicile_vault_commit_seconds": MetricSpec(
        "histogram",
        (),
        "Time from handing a change to the vault until it is durable.",
        _COMMIT_BOUNDS,
    ),
    "domicile_vault_writer_queue": MetricSpec(
        "gauge", (), "Changes that wait for the vault's writer thread."
    ),
    "domicile_vault_questions_total": MetricSpec(
        "counter",
        ("server",),
        "Questions over many records with find_from=standby, by who answered: standby, or primary "
        "while no standby has every write.",
    ),
    "domicile_audit_line": MetricSpec("gauge", (), "Number of the last line of the audit log."),
    "domicile_audit_down": MetricSpec(
        "gauge",
        (),
        "1 while the audit log cannot be written, and so nothing is revealed or changed.",
    ),
    "domicile_audit_unshipped": MetricSpec(
        "gauge",
        ("sink",),
        "Lines of the audit log that a place (stdout, syslog) has not been handed yet.",
    ),
    "domicile_alarms_total": MetricSpec(
        "counter",
        ("kind",),
        "Alarms, each of which is a line of the audit log: bait (a record marked as bait was "
        "revealed), emergency (a client has taken a role for which it was prepared), log "
        "(lines of the audit log are missing, or were changed), tampered (a record or a file "
        "differs from what is sealed in it, or does not open: the store was changed; by a "
        "request to the "
        "vault's interface that met it, or found in the background; then the log and the "
        "metric tell it alone), notes (clients, policies, keys or another note of the store "
        "were changed, rolled back, added or removed), misses (a caller keeps searching through "
        "the proxy in vain).",
    ),
    "domicile_token_requests_total": MetricSpec(
        "counter",
        ("outcome",),
        "Requests for access tokens, by outcome: issued, slowed (too many failures or too much "
        "at once), or the error.",
    ),
    "domicile_limited_requests_total": MetricSpec(
        "counter",
        ("listener", "limit"),
        "Requests answered 429, by listener (proxy, vault) and limit: credential, address, "
        "concurrent, uploads, misses.",
    ),
    "domicile_limited_connections_total": MetricSpec(
        "counter",
        (),
        "Connections that were refused, or closed while they were idle, for a new one: "
        "limits.connections or limits.address_connections were open.",
    ),
    "domicile_limits_store_up": MetricSpec(
        "gauge",
        (),
        "1 while the store of limits.store answers; 0: it does not, and each replica counts by "
        "itself, or there is none.",
    ),
    "domicile_firewall_requests_total": MetricSpec(
        "counter",
        ("listener", "outcome"),
        "Requests from outside the country, by listener (proxy, vault) and outcome: blocked "
        "(refused), masked (nothing in clear).",
    ),
    "domicile_firewall_database_age_seconds": MetricSpec(
        "gauge", (), "Age of the active database of countries; 0: there is none."
    ),
    "domicile_firewall_database_failures_total": MetricSpec(
        "counter",
        (),
        "New files of the database of countries that could not be used; the previous one stayed "
        "active.",
    ),
    "domicile_acl_requests_total": MetricSpec(
        "counter",
        ("outcome",),
        "Questions to the filter endpoints of access policies, by outcome: answered, wrong (not "
        "reached, or not what it has to "
        "answer), late (not within acl.timeout). After the last two nothing is allowed.",
    ),
    "domicile_upstream_connections": MetricSpec(
        "gauge", ("endpoint", "state"), "Connections to the application, by state: busy, idle."
    ),
    "domicile_upstream_suspended": MetricSpec(
        "gauge",
        ("endpoint",),
        "1 while the application is not asked because it gave no answer several times in a row "
        "(upstream.breaker).",
    ),
    "domicile_upstream_errors_total": MetricSpec(
        "counter",
        ("endpoint", "code"),
        "Exchanges that the application or the way to it broke, by error code.",
    ),
    "domicile_resealed_records": MetricSpec(
        "gauge",
        ("environment", "state"),
        "Progress of the re-encryption under the current data key: records (done), past "
        "versions (versions), contents of files "
        "(contents); unreadable: of all of them, those that do not open.",
    ),
    "domicile_rehashed_records": MetricSpec(
        "gauge",
        ("environment", "state"),
        "Progress of the rotation of hashes to the current root in its round: records, "
        "past versions (versions); unreadable: of both, those that do not open.",
    ),
    "domicile_tls_handshakes_total": MetricSpec(
        "counter",
        ("listener", "outcome"),
        "TLS handshakes of callers, by outcome: done, no_name (no SNI), foreign_name (in no "
        "certificate of ours), no_certificate and "
        "bad_certificate (of the caller), late (not complete in time), left (the caller went "
        "away), failed (anything else).",
    ),
    "domicile_tls_certificate_end_timestamp_seconds": MetricSpec(
        "gauge",
        ("name",),
        "When the certificate shown to callers, or the first one of its chain, ends.",
    ),
    "domicile_tls_reload_success_timestamp_seconds": MetricSpec(
        "gauge", (), "When the files for TLS towards callers were last taken over."
    ),
    "domicile_tls_reload_failures_total": MetricSpec(
        "counter",
        (),
        "Changes of the files for TLS towards callers that could not be used; the previous ones "
        "stayed active.",
    ),
    "domicile_functions_isolation": MetricSpec(
        "gauge",
        ("layer",),
        "1 for each layer that keeps resident functions from the rest of the machine, 0 for one "
        "that this kernel lacks: landlock (files), seccomp (processes, network), "
        "network_namespace, user.",
    ),
    "domicile_shape_fill_ratio": MetricSpec(
        "gauge",
        ("entity", "field"),
        "Share of the field's possible tokens that is used; full at 1.",
    ),
}
