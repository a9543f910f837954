"""Every setting there is, in one table: adding a line here and a member in ``settings`` is how one
is added. ``naming`` finds them.
"""

from typing import Final

from proxy.config import parsers
from proxy.config.parsers import Setting
from proxy.config.schema_access import ACCESS, REMOTE
from proxy.config.schema_network import FIREWALL, LIMIT_SETTINGS, LISTEN, UPSTREAM
from proxy.model import schema

#: Dotted name → setting. ``{data}`` in a default or a given text stands for the absolute path of
#: the data folder.
SETTINGS: Final[dict[str, Setting]] = {
    "country": Setting(
        "none",
        parsers.word_or("none", parsers.country, ""),
        "a country code of two letters, such as se",
        "The one country whose personal data this instance stores (ISO 3166-1); none: the "
        "country with which the vault was created.",
    ),
    "data": Setting(
        "./data",
        parsers.path,
        "a folder, such as /var/lib/domicile",
        "The folder of the embedded vault and of the key file; created at the first start.",
    ),
    **LISTEN,
    **REMOTE,
    "forwarding.host": Setting(
        "keep",
        parsers.one_of("keep", "upstream"),
        "keep or upstream",
        "The Host field that the application sees: the caller's own, or host and port of the "
        "endpoint's upstream.",
    ),
    "forwarding.x_forwarded": Setting(
        "false",
        parsers.true_or_false,
        "true or false",
        "Send the caller to the application in X-Forwarded-For, X-Forwarded-Proto and "
        "X-Forwarded-Host.",
    ),
    "forwarding.forwarded": Setting(
        "false",
        parsers.true_or_false,
        "true or false",
        "Send the caller to the application in Forwarded (RFC 7239).",
    ),
    "forwarding.via": Setting(
        "false",
        parsers.true_or_false,
        "true or false",
        "Announce this proxy to the application in Via (RFC 9110 section 7.6.3).",
    ),
    "forwarding.request_id": Setting(
        "false",
        parsers.true_or_false,
        "true or false",
        "Give each request an id (X-Request-Id), that of a trusted proxy in front or a new one: "
        "for the application, in responses, log lines and audit lines.",
    ),
    "rules": Setting(
        "rules/",
        parsers.path,
        "a rule file or a folder of them, such as /etc/domicile/rules",
        "The rules; watched, and reloaded completely or not at all when they change.",
    ),
    "schemas": Setting(
        "none",
        parsers.word_or("none", parsers.path),
        "a file with schemas or a folder of them, such as /etc/domicile/schemas, or none",
        "Schemas in files; read at start and on SIGHUP. Not needed for schemas that are declared "
        "only over the interface.",
    ),
    "policies": Setting(
        "none",
        parsers.word_or("none", parsers.path),
        "a file with access policies or a folder of them, such as /etc/domicile/policies, or none",
        "Access policies in files, for the environment default; read at start and on SIGHUP, all "
        "of them or none.",
    ),
    "store": Setting(
        "sqlite:///{data}/vault.db",
        parsers.store,
        "sqlite:///{data}/vault.db, sqlite:/// and the whole path of a file, or the address of a "
        "PostgreSQL database, such as postgresql://user@host:5432/database?sslmode=verify-full",
        "The store of the encrypted records. One process owns the file, or the schema of the "
        "database; several with replicas=true in the address.",
    ),
    "files": Setting(
        "file:///{data}/files",
        parsers.files,
        "file:///{data}/files, file:/// and the whole path of a folder, or the address of an S3 "
        "bucket, such as s3://bucket/prefix?region=eu-north-1",
        "The store of the encrypted contents of attachments; it belongs to the record store, and "
        "is backed up and moved with it.",
        references=True,
    ),
    **ACCESS,
    **FIREWALL,
    "audit.folder": Setting(
        "{data}/audit",
        parsers.path,
        "a folder, such as {data}/audit or /var/log/domicile",
        "The folder of the audit log. If it cannot be written, nothing is revealed or changed.",
    ),
    "audit.sync": Setting(
        "false",
        parsers.true_or_false,
        "true or false",
        "Whether a line is on disk before its response is sent, not only with the operating "
        "system. Costs one flush per group.",
    ),
    "audit.segment": Setting(
        "64MiB",
        parsers.size(64 * 1024),
        "a size of 64KiB or more, such as 64MiB",
        "The largest file of the audit log; each day also starts a new file.",
    ),
    "audit.keep": Setting(
        "0",
        parsers.word_or("0", parsers.duration, 0),
        "a number and a unit, such as 365d, or 0 for ever",
        "How long lines of the audit log are kept, in whole files; 0: for ever.",
    ),
    "audit.stdout": Setting(
        "false",
        parsers.true_or_false,
        "true or false",
        "Whether the lines of the audit log are also written to standard output.",
    ),
    "audit.syslog": Setting(
        "none",
        parsers.word_or("none", parsers.syslog),
        "none, or udp:// or tcp:// with host and port, such as tcp://logs.example.com:601, or "
        "unix:///dev/log",
        "A syslog collector (RFC 5424) to which the lines of the audit log are shipped, after "
        "they were written to the folder.",
    ),
    "pending.keep": Setting(
        "7d",
        parsers.duration,
        "a number and a unit, such as 7d",
        "How long a write is kept whose outcome the application never showed.",
    ),
    "log.level": Setting(
        "info",
        parsers.one_of("debug", "info", "warning", "error"),
        "debug, info, warning or error",
        "The lowest level that is logged.",
    ),
    "log.format": Setting(
        "auto",
        parsers.one_of("auto", "json", "text"),
        "auto, json or text",
        "One JSON object per line, or text for people; auto: text on a terminal, JSON otherwise.",
    ),
    "log.access": Setting(
        "false",
        parsers.true_or_false,
        "true or false",
        "Whether every proxied request is logged, at level info: operation or path pattern, "
        "status, size, time; never a value.",
    ),
    "tracing.endpoint": Setting(
        "none",
        parsers.word_or("none", parsers.collector),
        "an address, such as http://collector:4318/v1/traces, or none",
        "The collector for spans of proxied requests (OTLP over HTTP); needs domicile[otel]. "
        "Spans contain no values.",
    ),
    "tracing.sample": Setting(
        "100",
        parsers.whole_number(0, 100),
        "a whole number from 0 to 100",
        "The percentage of traces that start here and are recorded; for traces that a caller "
        "started, the caller decides.",
    ),
    **UPSTREAM,
    **LIMIT_SETTINGS,
    "history.keep": Setting(
        "30d",
        parsers.word_or("0", parsers.duration, 0),
        "a number and a unit, such as 30d, or 0 for no history",
        "How long past versions of records are kept; 0: none are kept.",
    ),
    "history.keep_deleted": Setting(
        "false",
        parsers.true_or_false,
        "true or false",
        "Whether past versions of a deleted record are kept until history.keep is over; false: "
        "they are deleted with it.",
    ),
    "history.detect_rollback": Setting(
        "auto",
        parsers.word_or("auto", parsers.true_or_false, None),
        "auto, true or false",
        "Whether a checksum of the rows of each table detects, at start, hourly and in `domicile "
        "store verify`, that rows were rolled back, removed or added in the database. `auto`: on "
        "SQLite, where a write costs 1 to 5 % more and a comparison 2 s per million rows; on "
        "PostgreSQL, a write takes about twice as long with it.",
    ),
    "models.on_existing": Setting(
        "refuse",
        parsers.one_of("refuse", "update"),
        "refuse or update",
        "The result of a create with an existing key: refuse it (409), or update the record.",
    ),
    "records.plain": Setting(
        "[]",
        parsers.some_of(*schema.KEYS),
        "a list of key1 to key25, such as [key1, key4], or all",
        "Keys of the record-based interface that are in the clear next to the encrypted body, "
        "for sorting and searching; the others are hashed.",
        many=True,
    ),
    "records.partial_match": Setting(
        "[]",
        parsers.some_of(*schema.SEARCHABLE),
        "a list of record_key, profile_key, parent_key, service_key1 to service_key5 and key1 to "
        "key25, or all",
        "Hashed keys of the record-based interface in which parts of texts can be searched "
        "($like, search_keys).",
        many=True,
    ),
    "functions.time": Setting(
        "5s",
        parsers.duration,
        "a number and a unit, such as 5s",
        "Longest run of a resident function, including its wait for a free slot.",
    ),
    "functions.memory": Setting(
        "256MiB",
        parsers.size(64 * 1024 * 1024),
        "a size of 64MiB or more, such as 256MiB",
        "The memory (address space) for the process of a resident function.",
    ),
    "functions.running": Setting(
        "4",
        parsers.whole_number(1, 1000),
        "a whole number, such as 4",
        "Maximum resident functions that run at one time; further calls wait.",
    ),
    "functions.isolation": Setting(
        "required",
        parsers.one_of("required", "best"),
        "required or best",
        "The behaviour if the kernel cannot isolate resident functions from files, other "
        "processes and the network: required refuses to start, best continues and reports the "
        "missing layers.",
    ),
    "functions.network": Setting(
        "false",
        parsers.true_or_false,
        "true or false",
        "Whether resident functions may open connections to other machines, and to this one.",
    ),
    "functions.user": Setting(
        "none",
        parsers.word_or("none", parsers.word),
        "the name or the number of a user, such as nobody, or none",
        "The user that runs resident functions, if the service runs as root; none: the service's "
        "own user.",
    ),
}
