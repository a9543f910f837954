"""The settings that say who is let in, how often, and with how much; parts of the one table."""

from typing import Final

from proxy.config import values
from proxy.config.setting import Setting

FIREWALL: Final[dict[str, Setting]] = {
    "firewall.mode": Setting(
        "off",
        values.one_of("off", "block", "mask"),
        "off, block or mask",
        "What callers outside the country get, at the proxy and at the vault: what everybody gets, nothing (403), or nothing in clear.",
    ),
    "firewall.allow": Setting(
        "[]",
        values.networks,
        "a list of networks, such as [10.0.0.0/8, 203.0.113.7]",
        "Who is inside besides: networks and addresses, private ones too. This machine (loopback) always is.",
        many=True,
    ),
    "firewall.country_database": Setting(
        "none",
        values.path_or("none"),
        "a file of the MaxMind format, such as /var/lib/domicile/country.mmdb, or none",
        "The database that tells the country of an address; followed while the program runs.",
    ),
}

LIMITS: Final[dict[str, Setting]] = {
    "limits.held": Setting(
        "256MiB",
        values.size(16 * 1024 * 1024),
        "a size of 16MiB or more, such as 256MiB",
        "How much memory the bodies of matched requests and answers may take at one time, half for either.",
    ),
    "limits.body": Setting(
        "4MiB",
        values.size(1024),
        "a size of 1KiB or more, such as 4MiB",
        "The largest JSON request to the vault's own interface; a larger one is answered 413.",
    ),
    "limits.batch": Setting(
        "100",
        values.whole(1, 10_000),
        "a whole number, such as 100",
        "At most so many records in one batch; a larger one is answered 422.",
    ),
    "limits.find": Setting(
        "1000",
        values.whole(1, 10_000),
        "a whole number, such as 1000",
        "At most so many records in one answer of a search: the largest limit that callers may ask for.",
    ),
    "limits.page": Setting(
        "16MiB",
        values.size(64 * 1024),
        "a size of 64KiB or more, such as 16MiB",
        "At most so many bytes of sealed records in one page of a search, an export or a history; it ends early with a cursor. One record it has in any case.",
    ),
    "limits.upload": Setting(
        "20MB",
        values.size(1024),
        "a size of 1KiB or more, such as 20MB",
        "The largest attachment; a larger one is answered 413.",
    ),
    "limits.requests_per_second": Setting(
        "1000",
        values.whole(0, 1_000_000),
        "a whole number, such as 1000, or 0 for no limit",
        "At most so many requests a second of one client to the vault's own interface; further ones are answered 429. 0: no limit.",
    ),
    "limits.burst": Setting(
        "2",
        values.whole(1, 60),
        "a whole number of seconds, such as 2",
        "So many seconds' worth of requests may come at once, of a client and from an address.",
    ),
    "limits.address_requests_per_second": Setting(
        "0",
        values.whole(0, 1_000_000),
        "a whole number, such as 200, or 0 for no limit",
        "At most so many requests a second from one address, at the proxy and at the vault together; further ones are answered 429. 0: no limit.",
    ),
    "limits.connections": Setting(
        "auto",
        values.or_auto(values.whole(16, 1_000_000)),
        "a whole number of 16 or more, such as 10000, or auto",
        "At most so many open connections, at the proxy and at the vault together; for a further one the longest idle one is closed. auto: as many as the limit of open files allows.",
    ),
    "limits.address_connections": Setting(
        "auto",
        values.or_auto(values.whole(0, 1_000_000)),
        "a whole number, such as 500, 0 for no limit, or auto",
        "At most so many of them from one address; for a further one its longest idle one is closed. auto: half of limits.connections. 0: no limit.",
    ),
    "limits.concurrent": Setting(
        "64",
        values.whole(1, 100_000),
        "a whole number, such as 64",
        "At most so many requests of one client to the vault's own interface are carried out at the same time; further ones wait.",
    ),
    "limits.uploads": Setting(
        "8",
        values.whole(1, 100_000),
        "a whole number, such as 8",
        "At most so many uploads of one client at the same time; further ones are answered 429.",
    ),
    "limits.store": Setting(
        "memory",
        values.limit_store,
        "memory, or redis://host:port/0 (rediss:// with TLS; name and password may stand before the host)",
        "Where requests are counted: in this process, or in a Redis that several replicas share.",
    ),
}
