"""The settings that say who is let in, how often, and with how much; parts of the one table."""

from typing import Final

from proxy.config import parsers
from proxy.config.parsers import Setting

FIREWALL: Final[dict[str, Setting]] = {
    "firewall.mode": Setting(
        "off",
        parsers.one_of("off", "block", "mask"),
        "off, block or mask",
        "What callers outside the country get, at the proxy and at the vault: the usual "
        "response, nothing (403), or nothing in the clear.",
    ),
    "firewall.allow": Setting(
        "[]",
        parsers.networks,
        "a list of networks, such as [10.0.0.0/8, 203.0.113.7]",
        "Additional networks and addresses that are inside, private ones too. This machine "
        "(loopback) always is.",
        many=True,
    ),
    "firewall.country_database": Setting(
        "none",
        parsers.word_or("none", parsers.path),
        "a file of the MaxMind format, such as /var/lib/domicile/country.mmdb, or none",
        "The database of the countries of addresses; reloaded when it changes.",
    ),
}

LIMIT_SETTINGS: Final[dict[str, Setting]] = {
    "limits.held": Setting(
        "256MiB",
        parsers.size(16 * 1024 * 1024),
        "a size of 16MiB or more, such as 256MiB",
        "The memory for bodies of matched requests and responses at one time, half for each.",
    ),
    "limits.body": Setting(
        "4MiB",
        parsers.size(1024),
        "a size of 1KiB or more, such as 4MiB",
        "The largest JSON request to the vault's own interface; a larger one is answered 413.",
    ),
    "limits.batch": Setting(
        "100",
        parsers.whole_number(1, 10_000),
        "a whole number, such as 100",
        "Maximum records in one batch; a larger one is answered 422.",
    ),
    "limits.find": Setting(
        "1000",
        parsers.whole_number(1, 10_000),
        "a whole number, such as 1000",
        "Maximum records in one page of a search: the largest limit that callers may request.",
    ),
    "limits.page": Setting(
        "16MiB",
        parsers.size(64 * 1024),
        "a size of 64KiB or more, such as 16MiB",
        "Maximum bytes of encrypted records in one page of a search, an export or a history; the "
        "page ends early with a cursor. It always has at least one record.",
    ),
    "limits.opened": Setting(
        "8MiB",
        parsers.word_or("0", parsers.size(64 * 1024), 0),
        "a size of 64KiB or more, such as 8MiB, or 0",
        "The memory, per environment, for decrypted records that lists and pages of finds have "
        "shown lately: a response that shows them again decrypts only those whose rows have "
        "changed. They are dropped at most a minute after they were last shown. 0: none are kept.",
    ),
    "limits.upload": Setting(
        "20MB",
        parsers.size(1024),
        "a size of 1KiB or more, such as 20MB",
        "The largest attachment; a larger one is answered 413.",
    ),
    "limits.requests_per_second": Setting(
        "1000",
        parsers.whole_number(0, 1_000_000),
        "a whole number, such as 1000, or 0 for no limit",
        "Maximum requests per second of one client to the vault's own interface; further ones "
        "are answered 429. 0: no limit.",
    ),
    "limits.burst": Setting(
        "2",
        parsers.whole_number(1, 60),
        "a whole number of seconds, such as 2",
        "The number of seconds' worth of requests that may come at once, from a client and from "
        "an address.",
    ),
    "limits.address_requests_per_second": Setting(
        "0",
        parsers.whole_number(0, 1_000_000),
        "a whole number, such as 200, or 0 for no limit",
        "Maximum requests per second from one address, at the proxy and the vault together; "
        "further ones are answered 429. 0: no limit.",
    ),
    "limits.misses_per_second": Setting(
        "0",
        parsers.whole_number(0, 1_000_000),
        "a whole number, such as 5, or 0 for no limit",
        "Maximum searches through the proxy that show nothing, and reads of missing records, per "
        "second from one address. Beyond it, an alert is raised, and further reads that a rule "
        "names are answered 429. 0: no limit, and no alert.",
    ),
    "limits.connections": Setting(
        "auto",
        parsers.word_or("auto", parsers.whole_number(16, 1_000_000)),
        "a whole number of 16 or more, such as 10000, or auto",
        "Maximum open connections, at the proxy and the vault together; for a further one, the "
        "longest idle one is closed. auto: as many as the limit of open files allows.",
    ),
    "limits.address_connections": Setting(
        "auto",
        parsers.word_or("auto", parsers.whole_number(0, 1_000_000)),
        "a whole number, such as 500, 0 for no limit, or auto",
        "Maximum open connections from one address; for a further one, its longest idle one is "
        "closed. auto: half of limits.connections. 0: no limit.",
    ),
    "limits.concurrent": Setting(
        "64",
        parsers.whole_number(1, 100_000),
        "a whole number, such as 64",
        "Maximum concurrent requests of one client to the vault's own interface; further ones "
        "wait.",
    ),
    "limits.uploads": Setting(
        "8",
        parsers.whole_number(1, 100_000),
        "a whole number, such as 8",
        "Maximum concurrent uploads of one client; further ones are answered 429.",
    ),
    "limits.store": Setting(
        "memory",
        parsers.word_or("memory", parsers.limit_store),
        "memory, or redis://host:port/0 (rediss:// with TLS; name and password may stand before "
        "the host)",
        "The place where requests are counted: this process, or a Redis that several replicas "
        "share.",
    ),
}


# The settings of the listeners, as ``table`` has them: where they are, TLS towards callers, and
# proxies in front.


LISTENERS: Final = ("proxy", "vault", "admin", "metrics")

#: Dotted name → setting.
LISTEN: Final[dict[str, Setting]] = {
    "listen.proxy": Setting(
        "127.0.0.1:8080",
        parsers.address,
        "host:port, such as 127.0.0.1:8080",
        "The address at which callers reach the application through the proxy.",
    ),
    "listen.vault": Setting(
        "127.0.0.1:8081",
        parsers.address,
        "host:port, such as 127.0.0.1:8081",
        "The address of the vault's own interface: /api, /docs, /openapi.json.",
    ),
    "listen.admin": Setting(
        "127.0.0.1:8082",
        parsers.address,
        "host:port, such as 127.0.0.1:8082",
        "The address for probes and metrics: /healthz and /readyz for everyone, /metrics for "
        "administrators and scrapers, the console (/console) for callers on this machine and "
        "administrators.",
    ),
    "listen.metrics": Setting(
        "none",
        parsers.word_or("none", parsers.address),
        "host:port, such as 127.0.0.1:8083, or none",
        "The address of /metrics without authentication: for a network that only the scraper can "
        "reach.",
    ),
    "listen.socket": Setting(
        "none",
        parsers.word_or("none", parsers.path),
        "the path of a socket, such as {data}/admin.sock, or none",
        "A Unix socket at which commands of this user, and of root, administer the running "
        "instance without a client; mode 0600, and the connecting user is checked.",
    ),
    "listen.insecure": Setting(
        "false",
        parsers.word_or(
            "true",
            parsers.word_or("false", parsers.some_of(*LISTENERS), frozenset()),
            frozenset(LISTENERS),
        ),
        "a list of listeners, such as [proxy, admin], or true for all of them, or false for none",
        "The listeners that may use plain HTTP beyond loopback: something in front must do TLS, "
        "or the network must be trusted.",
        many=True,
    ),
    "listen.tls.certificate": Setting(
        "[]",
        parsers.paths,
        "a PEM file, such as /etc/domicile/vault.pem, or a list of them",
        "The certificates, each with its chain, that proxy and vault present to callers; none: "
        "they use plain HTTP.",
        many=True,
    ),
    "listen.tls.key": Setting(
        "[]",
        parsers.paths,
        "a PEM file, such as /etc/domicile/vault.key, or a list of them, one for each certificate",
        "The key of each certificate, in the same order; none: each key is in the file of its "
        "certificate.",
        many=True,
    ),
    "listen.tls.at": Setting(
        "both",
        parsers.one_of("vault", "proxy", "both"),
        "vault, proxy or both",
        "The listeners that use TLS with these certificates; the other one uses plain HTTP.",
    ),
    "listen.tls.require_sni": Setting(
        "vault",
        parsers.one_of("vault", "both"),
        "vault or both",
        "The listeners that refuse a handshake without a host name (SNI), or with a name that is "
        "in no certificate: vault, or both.",
    ),
    "listen.tls.clients": Setting(
        "none",
        parsers.word_or("none", parsers.path),
        "a PEM file of certificates, such as /etc/domicile/clients.pem, or none",
        "The certificate authorities of callers, who must then present a certificate (mutual "
        "TLS); none: no certificate is requested.",
    ),
    "listen.tls.clients_at": Setting(
        "vault",
        parsers.one_of("vault", "proxy", "both"),
        "vault, proxy or both",
        "The listeners at which callers present a certificate.",
    ),
    "listen.tls.clients_required": Setting(
        "true",
        parsers.true_or_false,
        "true or false",
        "With false, a caller may present no certificate; one that is presented must be valid.",
    ),
    "listen.tls.hsts": Setting(
        "180d",
        parsers.word_or("0", parsers.duration, 0),
        "a number and a unit, such as 180d, or 0",
        "How long browsers that used the vault over TLS must use only TLS for its host (RFC "
        "6797); 0: the field is not sent.",
    ),
    "listen.proxy_protocol": Setting(
        "false",
        parsers.true_or_false,
        "true or false",
        "Each connection of a trusted proxy begins with the PROXY protocol, version 1 or 2.",
    ),
    "trusted_proxies": Setting(
        "[]",
        parsers.networks,
        "a list of networks, such as [10.0.0.0/8, 192.0.2.7]",
        "The addresses of the proxies in front, whose forwarding fields and PROXY protocol are "
        "accepted.",
        many=True,
    ),
}

#: How applications are reached.
UPSTREAM: Final[dict[str, Setting]] = {
    "upstream.connect": Setting(
        "5s",
        parsers.duration,
        "a number and a unit, such as 5s",
        "Longest wait for a connection to the application.",
    ),
    "upstream.head": Setting(
        "60s",
        parsers.duration,
        "a number and a unit, such as 60s",
        "Longest wait for the head of the response.",
    ),
    "upstream.idle": Setting(
        "60s",
        parsers.duration,
        "a number and a unit, such as 60s",
        "Longest silence within a message, in either direction.",
    ),
    "upstream.total": Setting(
        "0",
        parsers.word_or("0", parsers.duration, 0),
        "a number and a unit, such as 5m, or 0 for no limit",
        "Longest whole exchange with the application; 0: no limit.",
    ),
    "upstream.connections": Setting(
        "256",
        parsers.whole_number(1, 65_535),
        "a whole number, such as 256",
        "Maximum connections to one application; further requests wait, for as long as "
        "upstream.connect.",
    ),
    "upstream.queue": Setting(
        "1024",
        parsers.whole_number(0, 1_000_000),
        "a whole number, such as 1024",
        "Maximum requests that wait for a connection to one application; further ones are "
        "answered 503 at once.",
    ),
    "upstream.keep": Setting(
        "4s",
        parsers.duration,
        "a number and a unit, such as 4s",
        "How long an unused connection stays open; set it lower than the application's own "
        "timeout, so that none is closed while it is chosen.",
    ),
    "upstream.breaker.failures": Setting(
        "10",
        parsers.whole_number(0, 1_000_000),
        "a whole number, such as 10, or 0 for never",
        "The number of failures in a row (unreachable, or no response in time) after which "
        "requests are answered 503 at once; 0: never.",
    ),
    "upstream.breaker.pause": Setting(
        "2s",
        parsers.duration,
        "a number and a unit, such as 2s",
        "How long that lasts, until one request is sent to test the application.",
    ),
    "upstream.tls.ca": Setting(
        "system",
        parsers.word_or("system", parsers.path),
        "a PEM file of certificates, such as /etc/domicile/ca.pem, or system",
        "The certificate authorities of applications at https://; system: those of this machine.",
    ),
    "upstream.tls.certificate": Setting(
        "none",
        parsers.word_or("none", parsers.path),
        "a PEM file, such as /etc/domicile/client.pem, or none",
        "The certificate, with its chain, that is presented to an application that requests one.",
    ),
    "upstream.tls.key": Setting(
        "none",
        parsers.word_or("none", parsers.path),
        "a PEM file, such as /etc/domicile/client.key, or none",
        "The key of that certificate, if it is in a separate file.",
    ),
    "upstream.tls.verify": Setting(
        "true",
        parsers.true_or_false,
        "true or false",
        "Whether an application's certificate is verified. With false, anyone on the network "
        "path can read and change everything.",
    ),
    "upstream.tls.server_name": Setting(
        "none",
        parsers.word_or("none", parsers.host),
        "a host name, such as crm.example.com, or none",
        "The name that is requested (SNI) and required in the application's certificate; none: "
        "the host of the endpoint's upstream.",
    ),
}
