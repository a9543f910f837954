"""Every setting there is, in one table: adding a line here and a member in ``settings`` is how one is added. ``naming`` finds them."""

from typing import Final

from proxy.config import values
from proxy.config.access import ACCESS
from proxy.config.guarding import FIREWALL, LIMITS
from proxy.config.listening import LISTEN
from proxy.config.setting import Setting
from proxy.model import builtin

#: Dotted name → setting. ``{data}`` in a default or a given text stands for the absolute path of the data folder.
SETTINGS: Final[dict[str, Setting]] = {
    "country": Setting(
        "none",
        values.country_or_none,
        "a country code of two letters, such as se",
        "The one country whose personal data this instance keeps (ISO 3166-1); none: the one that the vault was made for.",
    ),
    "data": Setting(
        "./data",
        values.path,
        "a folder, such as /var/lib/domicile",
        "The folder of the embedded vault and of the key file; made at the first start.",
    ),
    **LISTEN,
    "forwarding.host": Setting(
        "keep",
        values.one_of("keep", "upstream"),
        "keep or upstream",
        "The Host field that the application sees: the caller's own, or host and port of the endpoint's upstream.",
    ),
    "forwarding.x_forwarded": Setting(
        "false",
        values.flag,
        "true or false",
        "Tell the application the caller in X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host.",
    ),
    "forwarding.forwarded": Setting(
        "false", values.flag, "true or false", "Tell the application the caller in Forwarded (RFC 7239)."
    ),
    "forwarding.via": Setting(
        "false", values.flag, "true or false", "Tell the application of this proxy in Via (RFC 9110 section 7.6.3)."
    ),
    "rules": Setting(
        "rules/",
        values.path,
        "a rule file or a folder of them, such as /etc/domicile/rules",
        "The rules; watched, and taken over whole or not at all when they change.",
    ),
    "schemas": Setting(
        "none",
        values.path_or("none"),
        "a file with schemas or a folder of them, such as /etc/domicile/schemas, or none",
        "Schemas that files declare; read at start and on SIGHUP. Those declared over the interface alone need none.",
    ),
    "policies": Setting(
        "none",
        values.path_or("none"),
        "a file with access policies or a folder of them, such as /etc/domicile/policies, or none",
        "Access policies that files declare, for the environment default; read at start and on SIGHUP, all of them or none.",
    ),
    "store": Setting(
        "sqlite:///{data}/vault.db",
        values.store,
        "sqlite:///{data}/vault.db, or sqlite:/// and the whole path of a file",
        "Where the sealed records are kept; one process owns the file.",
    ),
    "files": Setting(
        "file:///{data}/files",
        values.files,
        "file:///{data}/files, or file:/// and the whole path of a folder",
        "Where the sealed contents of attachments are kept; it belongs to the store, and is backed up and moved with it.",
    ),
    "keys": Setting(
        "file:///{data}/keys.json",
        values.keys,
        "file:///{data}/keys.json, file:/// and the whole path of a file, or env: and the name of a variable",
        "Where the keys come from. A key file is made at the first start of a new vault; back it up apart from the data.",
    ),
    **ACCESS,
    **FIREWALL,
    "audit.folder": Setting(
        "{data}/audit",
        values.path,
        "a folder, such as {data}/audit or /var/log/domicile",
        "The folder of the audit log. While nothing can be written there, nothing is revealed or changed.",
    ),
    "audit.sync": Setting(
        "false",
        values.flag,
        "true or false",
        "Whether a line is on the disk before its answer leaves, and not only with the operating system. Costs a flush a group.",
    ),
    "audit.segment": Setting(
        "64MiB",
        values.size(64 * 1024),
        "a size of 64KiB or more, such as 64MiB",
        "The largest file of the audit log; each day begins one of its own as well.",
    ),
    "audit.keep": Setting(
        "0",
        values.duration_or_none,
        "a number and a unit, such as 365d, or 0 for ever",
        "How long lines of the audit log are kept, whole files at a time; 0: for ever.",
    ),
    "audit.stdout": Setting(
        "false", values.flag, "true or false", "Whether the lines of the audit log are written to standard output, too."
    ),
    "audit.syslog": Setting(
        "none",
        values.syslog,
        "none, or udp:// or tcp:// with host and port, such as tcp://logs.example.com:601, or unix:///dev/log",
        "A syslog collector (RFC 5424) that the lines of the audit log are shipped to, after they were written to the folder.",
    ),
    "pending.keep": Setting(
        "7d",
        values.duration,
        "a number and a unit, such as 7d",
        "How long a write is kept whose outcome the application never told.",
    ),
    "log.level": Setting(
        "info",
        values.one_of("debug", "info", "warning", "error"),
        "debug, info, warning or error",
        "From which level on lines are written.",
    ),
    "log.format": Setting(
        "json", values.one_of("json", "text"), "json or text", "One JSON object a line, or text for people."
    ),
    "upstream.connect": Setting(
        "5s", values.duration, "a number and a unit, such as 5s", "Longest wait for a connection to the application."
    ),
    "upstream.head": Setting(
        "60s", values.duration, "a number and a unit, such as 60s", "Longest wait for the head of the answer."
    ),
    "upstream.idle": Setting(
        "60s", values.duration, "a number and a unit, such as 60s", "Longest silence within a message, either way."
    ),
    "upstream.total": Setting(
        "0",
        values.duration_or_none,
        "a number and a unit, such as 5m, or 0 for no limit",
        "Longest whole exchange with the application; 0: no limit.",
    ),
    "upstream.connections": Setting(
        "256",
        values.whole(1, 65_535),
        "a whole number, such as 256",
        "At most so many connections to one application; further requests wait, for as long as upstream.connect.",
    ),
    "upstream.queue": Setting(
        "1024",
        values.whole(0, 1_000_000),
        "a whole number, such as 1024",
        "At most so many requests wait for a connection to one application; further ones are answered 503 at once.",
    ),
    "upstream.keep": Setting(
        "4s",
        values.duration,
        "a number and a unit, such as 4s",
        "How long an unused connection is kept; shorter than the application keeps it, so that none ends as it is chosen.",
    ),
    "upstream.breaker.failures": Setting(
        "10",
        values.whole(0, 1_000_000),
        "a whole number, such as 10, or 0 for never",
        "After so many failures in a row (unreachable, or no answer in time) requests are answered 503 at once; 0: never.",
    ),
    "upstream.breaker.pause": Setting(
        "2s",
        values.duration,
        "a number and a unit, such as 2s",
        "How long they are, until one request tries whether the application answers again.",
    ),
    "upstream.tls.ca": Setting(
        "system",
        values.path_or("system"),
        "a PEM file of certificates, such as /etc/domicile/ca.pem, or system",
        "Who may vouch for an application at https://; system: the authorities of this machine.",
    ),
    "upstream.tls.certificate": Setting(
        "none",
        values.path_or("none"),
        "a PEM file, such as /etc/domicile/client.pem, or none",
        "The certificate, with its chain, that is shown to an application that asks for one.",
    ),
    "upstream.tls.key": Setting(
        "none",
        values.path_or("none"),
        "a PEM file, such as /etc/domicile/client.key, or none",
        "The key of that certificate, where it stands in a file of its own.",
    ),
    "upstream.tls.verify": Setting(
        "true",
        values.flag,
        "true or false",
        "Whether an application's certificate is verified. With false whoever stands on the way can read and change everything.",
    ),
    "upstream.tls.server_name": Setting(
        "none",
        values.host_or_none,
        "a host name, such as crm.example.com, or none",
        "The name asked for (SNI) and looked for in the application's certificate; none: the host of the endpoint's upstream.",
    ),
    **LIMITS,
    "history.keep": Setting(
        "30d",
        values.duration_or_none,
        "a number and a unit, such as 30d, or 0 for no history",
        "How long past versions of records are kept; 0: none are.",
    ),
    "history.keep_deleted": Setting(
        "false",
        values.flag,
        "true or false",
        "Whether past versions outlive their record, until history.keep is over; false: they go with it.",
    ),
    "models.on_existing": Setting(
        "refuse",
        values.one_of("refuse", "update"),
        "refuse or update",
        "What a create does whose key is used: refuse it (409), or update the record.",
    ),
    "records.plain": Setting(
        "[]",
        values.some_of(*builtin.KEYS),
        "a list of key1 to key25, such as [key1, key4], or all",
        "Keys of the record-based interface that stand in the clear beside the sealed body, to be sorted by and searched in; "
        "the others are hashed.",
        many=True,
    ),
    "records.partial_match": Setting(
        "[]",
        values.some_of(*builtin.SEARCHABLE),
        "a list of record_key, profile_key, parent_key, service_key1 to service_key5 and key1 to key25, or all",
        "Hashed keys of the record-based interface in which parts of texts can be searched for ($like, search_keys).",
        many=True,
    ),
    "functions.time": Setting(
        "5s",
        values.duration,
        "a number and a unit, such as 5s",
        "Longest run of a resident function, its wait for a free place included.",
    ),
    "functions.memory": Setting(
        "256MiB",
        values.size(64 * 1024 * 1024),
        "a size of 64MiB or more, such as 256MiB",
        "How much memory (address space) the process of a resident function may take.",
    ),
    "functions.running": Setting(
        "4",
        values.whole(1, 1000),
        "a whole number, such as 4",
        "At most so many resident functions run at one time; further calls wait.",
    ),
}
