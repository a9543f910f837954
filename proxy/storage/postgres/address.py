"""The address of a PostgreSQL database, as the setting ``store`` gives it.

``postgresql://user:password@one:5432,two:5432/database?sslmode=verify-full&pool=8``. Hosts, user,
TLS and files of passwords are read as libpq reads them, with the additional parameters of ``OWN``.
Nothing here imports the driver.
"""

import re
import urllib.parse
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

#: Parameters of this program, with their defaults.
OWN: Final = {
    "schema": "domicile", "pool": "8", "timeout": "5", "wait": "5", "replicas": "false",
    "find_from": "primary", "partitions": "0",
}  # fmt: skip
#: Seconds of ``wait`` where several may own the vault (one may have to start before the next), and
#: for a database that is away.
_LONGER_WAIT: Final = "60"
#: Parameters that the driver reads.
_DRIVERS: Final = frozenset(
    {
        "sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslpassword", "sslnegotiation",
        "ssl_min_protocol_version", "ssl_max_protocol_version", "passfile",
        "target_session_attrs", "krbsrvname", "gsslib",
    }
)  # fmt: skip
#: Statements that a connection keeps prepared.
_STATEMENTS: Final = 1000
_SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_NEAR: Final = re.compile(r"localhost|127\.[0-9.]+|\[::1\]|%2[fF].*")


class DatabaseAddress(NamedTuple):
    """Parameters of a connection, and its public label."""

    dsn: str  #: for the driver; it may hold a password, so it is never told
    label: str  #: hosts, database and schema
    schema: str  #: of the database, where all tables are
    pool: int  #: connections that read; one more writes
    timeout: float  #: seconds that a connection attempt, a write or a look-up may take
    wait: float  #: seconds for which a start waits for the previous process to release the vault
    away: float  #: and for a database that is away
    replicas: bool = False  #: whether several processes may own the vault together
    #: for the driver, where a standby among the hosts answers questions; empty: none does
    standby: str = ""
    partitions: int = 0  #: parts of each large table that is made from now on; 0: they are whole


def parse_address(text: str) -> DatabaseAddress:
    """The parts of the address. Raises ``ValueError`` with a sentence that tells nothing of it."""
    try:
        parts = urllib.parse.urlsplit(text)
        query = dict(
            urllib.parse.parse_qsl(
                parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)
            )
        )
    except ValueError:
        raise ValueError("this is not the address of a PostgreSQL database") from None
    if parts.scheme not in ("postgresql", "postgres") or parts.fragment:
        raise ValueError("this is not the address of a PostgreSQL database")
    hosts = parts.netloc.rpartition("@")[2]
    database = urllib.parse.unquote(parts.path.removeprefix("/"))
    if not hosts or not database or "/" in database:
        raise ValueError("name a host and a database, as in postgresql://user@host:5432/database")
    for host in hosts.split(","):
        if not re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:\[\]]+)(:[0-9]{1,5})?", host):
            raise ValueError("hosts stand with commas between them, each as host or host:port")
    for name in query:
        if name not in OWN and name not in _DRIVERS:
            raise ValueError(
                f"the parameter {name!r} is not known"
                if name.isidentifier()
                else "a parameter is not known"
            )
    _refuse_no_tls(hosts, query)
    if query.get("replicas", "false") not in ("true", "false"):
        raise ValueError("replicas is true or false")
    away = _number({"wait": _LONGER_WAIT} | query, "wait", 0.0, 3600.0)
    if replicas := query.get("replicas") == "true":
        query.setdefault("wait", _LONGER_WAIT)
    if query.get("find_from", "primary") not in ("primary", "standby"):
        raise ValueError("find_from is primary or standby")
    standby = query.get("find_from") == "standby"
    if standby and "," not in hosts:
        raise ValueError("find_from=standby needs the hosts of the standbys beside the primary's")
    return DatabaseAddress(
        _dsn(parts, query), f"{hosts}/{database}, schema {_schema(query)}", _schema(query),
        int(_number(query, "pool", 1, 100)), _number(query, "timeout", 0.5, 60.0),
        _number(query, "wait", 0.0, 3600.0), away, replicas,
        _dsn(parts, query | {"target_session_attrs": "standby"}) if standby else "",
        int(_number(query, "partitions", 0, 256)),
    )  # fmt: skip


def _refuse_no_tls(hosts: str, query: Mapping[str, str]) -> None:
    """Encryption is never left to the server's preference."""
    mode = query.get("sslmode")
    if mode is not None and mode not in _SSL_MODES:
        raise ValueError(f"sslmode is one of {', '.join(_SSL_MODES)}")
    far = [host for host in hosts.split(",") if not _NEAR.match(host)]
    if far and mode is None:
        raise ValueError(
            "say sslmode=verify-full, or sslmode=disable where nobody else can listen on the way "
            "to the database"
        )


def _dsn(parts: urllib.parse.SplitResult, query: Mapping[str, str]) -> str:
    """The address without this program's own parameters; a standby is not written to."""
    left = {"target_session_attrs": "read-write"}
    left |= {name: value for name, value in query.items() if name not in OWN}
    return urllib.parse.urlunsplit(parts._replace(query=urllib.parse.urlencode(left)))


def _schema(query: Mapping[str, str]) -> str:
    name = query.get("schema", OWN["schema"])
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", name) or name.startswith("pg_"):
        raise ValueError("schema is a name of small letters, digits and _")
    return name


def _number(query: Mapping[str, str], name: str, least: float, most: float) -> float:
    text = query.get(name, OWN[name])
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", text) or not least <= float(text) <= most:
        raise ValueError(f"{name} is a number from {least:g} to {most:g}")
    return float(text)


def session_settings(address: DatabaseAddress, *, durable: bool = True) -> dict[str, Any]:
    """Return what the driver is told of a session.

    One that is not ``durable`` waits for no disk.
    """
    return {
        "statement_cache_size": _STATEMENTS,
        "max_cached_statement_lifetime": 0,
        "server_settings": {
            "application_name": "domicile",
            "search_path": address.schema,
            "jit": "off",
            # the server's settings for others must not lose acknowledged data here
            "synchronous_commit": "on" if durable else "off",
            # the locks of a process that dies silently end soon
            "tcp_keepalives_idle": "5",
            "tcp_keepalives_interval": "2",
            "tcp_keepalives_count": "3",
            "idle_in_transaction_session_timeout": "60000",
            # of tables that have no statistics yet, too, rows are found by an index
            "enable_seqscan": "off",
            # and ordered index entries are read in order up to a limit, not gathered and sorted
            "random_page_cost": "1.1",
        },
    }
