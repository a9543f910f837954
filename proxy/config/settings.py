"""Typed settings for the rest of the program: frozen, checked, in the program's units."""

import ipaddress
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from proxy.model.schema import RecordKeys


class ListenAddress(NamedTuple):
    """A host and a port to listen at; port 0 lets the machine choose a free one."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """Whether only this machine (or this pod) can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ListenTls:
    """TLS towards callers, on the listeners of proxy and vault; all paths are absolute."""

    certificate: tuple[Path, ...]  #: empty: plain HTTP
    key: tuple[Path, ...]  #: of each certificate, in the same order; empty: in the same files
    at: Literal["vault", "proxy", "both"]
    require_sni: Literal["vault", "both"]  #: where a handshake must name a host of a certificate
    clients: Path | None  #: authorities that vouch for callers; none: callers show no certificate
    clients_at: Literal["vault", "proxy", "both"]
    clients_required: bool
    clients_crl: Path | None  #: lists of what the authorities have revoked; none: they revoke none
    hsts: int  #: for how long browsers come over TLS alone, in milliseconds; 0: not told

    def secures(self, listener: str) -> bool:
        """Whether a listener (``proxy``, ``vault`` or ``admin``) speaks TLS."""
        return bool(self.certificate) and self.at in (listener, "both") and listener != "admin"


@dataclass(frozen=True, slots=True)
class Listen:
    """The listeners: the redacting proxy, the vault's own interface, and administration."""

    proxy: ListenAddress
    vault: ListenAddress
    admin: ListenAddress
    metrics: ListenAddress | None  #: for scrapers, without a token
    socket: Path | None  #: a Unix socket for commands of this user and of root
    insecure: frozenset[str]  #: listeners at which plain HTTP beyond loopback is wanted
    proxy_protocol: bool  #: connections of trusted proxies begin with the PROXY protocol
    tls: ListenTls

    def addresses(self) -> dict[str, ListenAddress]:
        """Return the address of each configured listener."""
        own = {"proxy": self.proxy, "vault": self.vault, "admin": self.admin}
        return own if self.metrics is None else {**own, "metrics": self.metrics}


#: Of one version of the Internet protocol.
NetworkSetting = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Forwarding:
    """Headers that tell the application about the caller and the way to it."""

    host: Literal["keep", "upstream"]
    x_forwarded: bool
    forwarded: bool
    via: bool
    request_id: bool


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Location of the sealed rows."""

    uri: str = field(repr=False)  #: as the engines of ``storage`` read it; it may hold a password
    label: str  #: public form: the file (absolute), or hosts, database and schema
    file: Path | None = None  #: of the embedded store


def embedded_store(path: Path) -> StoreSettings:
    """The settings of an embedded store in that file."""
    return StoreSettings(f"sqlite:///{path}", str(path), path)


@dataclass(frozen=True, slots=True)
class FileSettings:
    """Location of the sealed contents of attachments."""

    uri: str = field(repr=False)  #: as the backends of ``objectstore`` read it
    label: str  #: public form: the folder (absolute), or bucket and prefix
    folder: Path | None = None  #: of the embedded object store


def embedded_files(folder: Path) -> FileSettings:
    """The settings of contents in that folder."""
    return FileSettings(f"file://{folder}", str(folder), folder)


@dataclass(frozen=True, slots=True)
class KeySettings:
    """Source of the master key: a ``file`` with its absolute path, or ``env`` with a variable."""

    source: Literal["file", "env"]
    locator: str
    service: str = ""  #: the scheme of the key service that seals the file; empty: none does
    query: str = ""  #: request to that service, as in its address

    @property
    def described(self) -> str:
        """The place, for people."""
        if self.source == "env":
            return f"the environment variable {self.locator}"
        return f"{self.locator}, sealed by {self.service}" if self.service else self.locator

    @property
    def uri(self) -> str:
        """The same as the key sources of ``crypto`` read it: ``file:///…`` (percent-encoded),
        ``env:NAME`` or the address of a key service.
        """
        if self.source == "env":
            return f"env:{self.locator}"
        path = urllib.parse.quote(self.locator)
        return f"{self.service}://{path}?{self.query}" if self.service else f"file://{path}"


class SecretSource(NamedTuple):
    """Reference to a secret."""

    source: Literal["env", "file"]
    locator: str


class IssuerSettings(NamedTuple):
    """Protocol and address of an external token issuer."""

    how: Literal["jwks", "introspection"]
    url: str


@dataclass(frozen=True, slots=True)
class Auth:
    """Access to the vault's own interface."""

    token_lifetime: int  #: seconds
    first_client: Path | None  #: a folder with the files ``id`` and ``secret``
    four_eyes: frozenset[str]  #: kinds of operations that a second person approves
    approval_lifetime: int
    emergency_lifetime: int
    audiences: tuple[str, ...]  #: addresses that are ours; empty: those of the listener
    issuer: IssuerSettings | None  #: another one besides the embedded one
    issuer_name: str | None  #: what its tokens have as ``iss``
    issuer_audiences: tuple[str, ...]  #: what its tokens call us; empty: as ``audiences``
    issuer_authorities: Path | None  #: who may vouch for it; ``None``: those of the machine
    introspection_credentials: SecretSource | None  #: ours at the issuer: id, colon, secret
    introspection_optional_claims: frozenset[str]  #: ``aud`` and ``iss``, if answers lack them
    environment_claim: str | None  #: names the environment; ``None``: that of the client
    client_claim: str


class SyslogSettings(NamedTuple):
    """Address of a syslog collector."""

    transport: Literal["udp", "tcp", "unix"]
    host: str  #: the path of a local socket
    port: int


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """Folder of the audit log, and the sinks that it is shipped to."""

    folder: Path
    sync: bool  #: on the disk before an answer leaves
    segment: int  #: bytes of a file
    keep: int  #: milliseconds; 0: for ever
    stdout: bool
    syslog: SyslogSettings | None


@dataclass(frozen=True, slots=True)
class Admin:
    """The administration listener."""

    metrics_token: SecretSource | None  #: token of a scraper


@dataclass(frozen=True, slots=True)
class Acl:
    """Settings of calls to the filter endpoints of access policies."""

    timeout: int  #: milliseconds of one exchange
    authorities: Path | None  #: who may vouch for them; ``None``: those of the machine
    #: where those of other environments than ``default`` may be: names, networks
    allow: tuple[str | NetworkSetting, ...]


@dataclass(frozen=True, slots=True)
class Pending:
    """Retention of staged writes without a known outcome, in milliseconds."""

    keep: int


@dataclass(frozen=True, slots=True)
class Log:
    """Format of log lines."""

    level: Literal["debug", "info", "warning", "error"]
    format: Literal["auto", "json", "text"]  #: auto: text on a terminal
    access: bool  #: a line for every request


@dataclass(frozen=True, slots=True)
class Tracing:
    """Destination of the spans of requests."""

    endpoint: str | None
    sample: int  #: in a hundred traces that begin here


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """When an application that fails is left alone."""

    failures: int  #: in a row; 0: never
    pause: int  #: until it is tried again, in milliseconds


@dataclass(frozen=True, slots=True)
class UpstreamTls:
    """TLS towards applications at ``https://``; all paths are absolute."""

    ca: Path | None  #: trusted in place of the machine's authorities
    certificate: Path | None  #: shown to an application that asks for one
    key: Path | None
    verify: bool
    server_name: str | None  #: asked for and verified in place of the upstream's host


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """Limits towards each application; times in milliseconds."""

    connect: int  #: until the connection stands
    head: int  #: from the end of the request to the head of the answer
    idle: int  #: longest silence within a message, either way
    total: int  #: the whole exchange; 0: no limit
    connections: int  #: concurrent connections to one application
    queue: int  #: requests that wait for one of them
    keep: int  #: how long an unused connection stays open
    breaker: BreakerSettings
    tls: UpstreamTls


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Bounds on the whole process, and on single requests to the vault's own interface."""

    held: int  #: bytes of bodies that are held whole at one time, requests and answers together
    body: int  #: bytes of a request to the vault that is no upload
    batch: int  #: records of a batch
    find: int  #: records that one search answers with at most
    page: int  #: bytes of sealed records in one page
    opened: int  #: bytes of records that lists have shown lately; 0: none are kept
    upload: int  #: bytes of one attachment
    requests_per_second: int  #: of one credential; 0: no limit
    burst: int  #: seconds' worth of requests that may come at once
    address_requests_per_second: int  #: at the proxy and at the vault; 0: no limit
    misses_per_second: int
    connections: int | None  #: open ones; ``None``: as many as the limit of open files allows
    address_connections: int | None  #: of these from one; ``None``: half of them; 0: no limit
    concurrent: int  #: concurrent requests of one credential
    uploads: int  #: concurrent uploads of one credential
    store: str | None  #: where several replicas count together; none: each for itself


@dataclass(frozen=True, slots=True)
class FirewallSettings:
    """The data firewall: treatment of callers outside the country, and further networks inside."""

    mode: Literal["off", "block", "mask"]
    allow: tuple[NetworkSetting, ...]
    country_database: Path | None  #: absolute


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """Retention of past versions of records."""

    keep: int  #: milliseconds; 0: nothing
    keep_deleted: bool  #: also when the record itself is deleted
    #: whether a sum over all rows tells that one was put back; ``None``: in SQLite
    detect_rollback: bool | None


@dataclass(frozen=True, slots=True)
class Models:
    """Choices of the model-based interface that users may make."""

    on_existing: Literal["refuse", "update"]  #: treatment of a create whose key exists


@dataclass(frozen=True, slots=True)
class Functions:
    """Limits of resident functions."""

    time: int  #: milliseconds of one call
    memory: int  #: bytes of address space of its process
    running: int  #: calls at one time
    isolation: Literal["required", "best"]  #: of the kernel, where it lacks some
    network: bool
    user: str | None  #: name or number of another user than the service's


@dataclass(frozen=True, slots=True)
class RemoteVault:
    """The vault of another instance, used in place of an own one; or who uses this one."""

    listen: ListenAddress | None
    clients: tuple[str, ...]  #: names in certificates of those that may
    vault: ListenAddress | None
    authorities: Path | None
    certificate: Path | None
    key: Path | None


class Worker(NamedTuple):
    """One of the processes of ``domicile serve --workers``."""

    number: int
    folder: Path  #: where all of them meet: a Unix socket of each
    role: str = "replica"  #: of a vault that all own; else ``owner`` or ``front``

    @property
    def all_served(self) -> Path:
        """A file that is there once all have served."""
        return self.folder / "all"


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything an operator can set. All paths are absolute, all times milliseconds."""

    country: str  #: ISO 3166-1 alpha-2, lower case; of this instance; empty: that of the vault
    data: Path  #: the folder of the embedded defaults
    listen: Listen
    remote: RemoteVault
    trusted_proxies: tuple[NetworkSetting, ...]
    forwarding: Forwarding
    rules: Path  #: a rule file, or a folder of them
    schemas: Path | None  #: a file that declares schemas, or a folder of them
    policies: Path | None  #: a file that declares access policies, or a folder of them
    store: StoreSettings
    files: FileSettings
    keys: KeySettings
    auth: Auth
    acl: Acl
    admin: Admin
    firewall: FirewallSettings
    audit: AuditSettings
    pending: Pending
    log: Log
    tracing: Tracing
    upstream: UpstreamSettings
    limits: LimitSettings
    history: HistorySettings
    models: Models
    records: RecordKeys
    functions: Functions
    applications: Mapping[str, UpstreamSettings]  #: of endpoints with their own route, by name
    #: which worker this process is, as it was started; none: it serves alone
    worker: Worker | None = None

    @property
    def chain_folder(self) -> Path:
        """The folder of the chain of the audit log that this process writes."""
        folder, worker = self.audit.folder, self.worker
        own = worker is not None and worker.role == "replica"
        return folder / f"worker-{worker.number}" if worker and own else folder

    def chain_folders(self) -> list[Path]:
        """The folder of the audit log, and those of workers in it: each has a chain of its own."""
        names = [path.name.removeprefix("worker-") for path in self.audit.folder.glob("worker-*")]
        numbers = sorted(int(name) for name in names if name.isdecimal())
        return [self.audit.folder, *(self.audit.folder / f"worker-{one}" for one in numbers)]
