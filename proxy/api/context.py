"""Operations of the interface, their handlers' input, and their results."""

import enum
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol

from aiohttp import web

from proxy.api.audit import Auditing
from proxy.audit import Auditor
from proxy.audit.events import AuditContext
from proxy.auth.approvals import Approvals
from proxy.auth.authorization_server import AuthorizationServer
from proxy.auth.external_acl import CLIENT_AUTH_HEADER, AclDecisions, AclTransport, client_auth
from proxy.auth.policies import Policies, PolicyProperties
from proxy.edge.firewall import Firewall, Mode, firewall_refusal
from proxy.edge.quotas import LargePages, Quotas
from proxy.errors import Code, VaultError
from proxy.functions.runner import Runner
from proxy.model.policy import Act, is_purpose
from proxy.model.record import (
    DEFAULT,
    DEFAULTS,
    Environment,
    KeyInventory,
    KeyKind,
    Record,
    RecordLimits,
)
from proxy.model.rights import FULL, Principal, Rights, Role, denied
from proxy.net.client_address import Trusted
from proxy.net.outbound import NO_EGRESS, EgressPolicy
from proxy.storage.changes import Change
from proxy.vault.attachments import Contents
from proxy.vault.maintenance import RehashJob
from proxy.vault.records import Records, no_changes
from proxy.vault.schemas import Catalog


def _unobserved(_operation: str, _status: int, _seconds: float) -> None:
    """Ignore an observation."""


def _unscreened(_outcome: str) -> None:
    """Ignore an outcome."""


#: Header with the purpose of a request.
PURPOSE_HEADER: Final = "x-purpose"


class Takes(enum.Enum):
    """Kinds of request bodies."""

    NOTHING = "nothing"
    JSON = "application/json"
    FORM = "application/x-www-form-urlencoded"
    STREAM = "multipart/form-data"  #: the handler reads ``call.request`` itself, piece by piece


class Access(enum.Enum):
    """Kinds of callers that an operation admits."""

    OPEN = "open"  #: everybody: the token endpoint, the interface document
    CLIENT = "client"  #: every client with a valid access token that has no role
    BEARER = "bearer"  #: every client with a valid access token
    ADMIN = "admin"  #: administrators, and clients with a role that the operation names


class ApiResponse(NamedTuple):
    """An answer: its status, its body, and fields beyond those that every answer has.

    A body that is not whole in memory is a ``stream`` of pieces, ``length`` bytes in all.
    ``media_type`` counts where there is a body.
    """

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}
    media_type: str = "application/json"
    stream: AsyncIterator[bytes] | None = None
    length: int | None = None


@dataclass(slots=True, kw_only=True)
class EnvironmentServices:
    """The services of one environment; they never reach a caller of another."""

    catalog: Catalog
    once: "IdempotencyRunner"  #: answers that are kept under idempotency keys
    policies: Policies
    contents: Contents | None = None  #: the contents of attachments
    rehash: RehashJob | None = None  #: rehashes of all records


class Administered(Protocol):
    """All environments, to be listed, made and removed while requests go on."""

    @property
    def spaces(self) -> MutableMapping[str, EnvironmentServices]:
        """The services of each environment, by its id."""

    def listed(self) -> Sequence[Environment]:
        """Return the environments, oldest first."""

    async def create(self, ident: str | None, name: str) -> Environment:
        """Make an environment; without an id it gets a random one.

        Raises ``VaultError``: INVALID_INPUT, CONFLICT, UNPROCESSABLE.
        """

    async def remove(self, ident: str, *, records: bool) -> None:
        """Remove an environment.

        Raises ``VaultError``: NOT_FOUND, CONFLICT, ENVIRONMENT_IN_USE, SCHEMA_BUSY.
        """


class KeyAdministration(Protocol):
    """All keys, to be listed and rotated while requests go on."""

    async def listed(self) -> KeyInventory:
        """Every key there is, by its id."""

    async def rotate(self, kind: KeyKind, environment: str = ...) -> None:
        """Another key of that kind from now on.

        Raises ``VaultError``: NOT_FOUND, BAD_KEYS, NOT_WRITABLE, CONFLICT.
        """


@dataclass(slots=True, kw_only=True)
class Services:
    """The services that handlers use, joined once at start."""

    spaces: MutableMapping[str, EnvironmentServices]  #: by id of environment
    environments: Administered  #: creates and removes them
    #: the principal of a request; raises ``VaultError(UNAUTHORIZED)``
    access: Callable[[web.Request], Awaitable[Principal]]
    body_limit: int  #: bytes of a body that is no upload
    auth: AuthorizationServer
    request_ids: bool = False  #: each request gets an id
    trusted: Trusted  #: whose forwarding fields tell where a caller is
    country: str  #: lower-case ISO code; the one country of this instance
    limits: RecordLimits = DEFAULTS
    #: operation, status, seconds: after each request
    observe: Callable[[str, int, float], None] = _unobserved
    audit: Auditing  #: what leaves a line of every request
    functions: Runner  #: resident functions, and what runs them
    operations: "tuple[ApiOperation, ...]" = ()  #: the table that is served, for the document
    #: treatment of a create whose key exists
    on_existing: Literal["refuse", "update"] = "refuse"
    keys: KeyAdministration | None = None  #: rotates keys
    #: what reads and verifies the audit log
    auditor: Callable[[], Awaitable[Auditor]] | None = None
    #: milliseconds for which a client takes a role in an emergency, at most
    emergency_lifetime: int = 3_600_000
    approvals: Approvals | None = None  #: requests that a second person has to approve
    #: reloads rules, schemas, policies and certificates; returns the stale ones with the reason
    reload: Callable[[], Awaitable[Mapping[str, str | None]]] | None = None
    acl: AclTransport | None = None  #: client of the filter endpoints of ``default``
    #: client of those of other environments, whose hosts are limited
    acl_elsewhere: AclTransport | None = None
    egress: EgressPolicy = NO_EGRESS  #: where those may be
    firewall: Firewall | None = None  #: where callers may be; none: anywhere
    #: called with the outcome of each request from outside: blocked, masked
    screened: Callable[[str], None] = _unscreened
    quotas: Quotas = field(default_factory=Quotas)  #: how often, and how much at a time
    limited: Callable[[str], None] = _unscreened  #: called with the limit of each refusal
    #: how many large pages are in memory at one time
    large_pages: LargePages = field(default_factory=LargePages)

    @property
    def blocks(self) -> bool:
        """Whether callers from outside the country are kept out where no policy says otherwise."""
        return self.firewall is not None and self.firewall.mode is Mode.BLOCK

    def space(self, principal: Principal) -> EnvironmentServices:
        """The services of the caller's environment."""
        space = self.spaces.get(principal.environment)
        if space is None:
            raise VaultError(Code.UNAUTHORIZED, "There is no such environment any more.")
        return space


#: Further changes for the commit of a write, given its result (``vault.records.commit``).
CommitHook = Callable[[Sequence[Record]], Sequence[Change]]


@dataclass(slots=True)
class ApiRequest:
    """A request that has passed every common check."""

    operation: "ApiOperation"
    services: Services
    principal: Principal
    audit: AuditContext  #: audit events of the request
    request: web.Request  #: for what is streamed, and for header fields
    #: the parameters in the path, percent-decoded
    path: Mapping[str, str] = field(default_factory=dict)
    #: those of ``operation.query`` that were sent, each once
    query: Mapping[str, str] = field(default_factory=dict)
    #: header fields that the answer gets, whichever it is
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""  #: whole; empty where the operation takes nothing or a stream
    content: Any = None  #: the JSON of the body, numbers with a point as ``Decimal``
    #: Makes the answer replayable, given the records that it shows; set by an ``Idempotency-Key``.
    keep: "Callable[[ApiResponse, Sequence[Shows]], Sequence[Change]] | None" = None
    #: the caller is outside the country, and admitted for data that may be shown there
    outside: bool = False
    waits: bool = False  #: the answer is that a second person has to approve it first

    @property
    def space(self) -> EnvironmentServices:
        """The services of the caller's environment."""
        space = self.services.spaces.get(self.principal.environment)
        return self.services.space(self.principal) if space is None else space

    @property
    def standing(self) -> PolicyProperties:
        """The summary of the caller's policies."""
        return self.space.policies.properties(self.principal.policies)

    @property
    def mark(self) -> str:
        """The name of the caller's rights; it changes when they do."""
        return f"{self.standing.mark}/outside" if self.outside else self.standing.mark

    def rights(self, records: Records) -> Rights:
        """The caller's rights to the records of a schema."""
        names = self.principal.policies
        if not names and not self.outside:
            return FULL
        policies, schema = self.space.policies, records.schema
        rights = (
            policies.rights_of(self.principal, schema) if names else policies.full_rights(schema)
        )
        return rights.outside() if self.outside else rights

    def blocked(self, rights: Rights) -> bool:
        """Tell whether the firewall keeps the caller from the schema of these rights."""
        return self.outside and rights.firewall is None and self.services.blocks

    def rights_to(self, schema: str) -> Rights:
        """The same by the name of the schema; raises ``VaultError`` where there is none.

        For the audit log.
        """
        if not self.principal.policies and not self.outside:
            return FULL
        return self.rights(self.space.catalog.records(schema))

    def records(self, schema: str, *acts: Act) -> Records:
        """The records of a schema, for a caller who may do that with them.

        Raises ``VaultError``: OUTSIDE_COUNTRY; UNKNOWN_SCHEMA; ACCESS_DENIED, also for an unknown
        schema where the caller is under policies, so that it learns of none that it may not use.
        """
        try:
            records = self.space.catalog.records(schema)
        except VaultError as error:
            if error.code is Code.UNKNOWN_SCHEMA and self.principal.policies:
                raise denied() from None
            raise
        rights = self.rights(records)
        if rights is FULL:
            return records.under(rights, None, self.audit)
        if self.blocked(rights):
            raise firewall_refusal()
        rights.need(*acts)
        if rights.purposes:
            self._check_purpose(rights.purposes)
        gate = None if rights.acl is None else self._gate(records, rights.acl)
        return records.under(rights.doing(acts), gate, self.audit)

    def _check_purpose(self, purposes: Sequence[Sequence[str]]) -> None:
        """Note the purpose of the request.

        Raises ``VaultError(PURPOSE_REQUIRED)`` unless it states one that the policies admit.
        """
        sent = self.request.headers.getall(PURPOSE_HEADER, ())
        purpose = sent[0].strip(" ") if len(sent) == 1 else ""
        admitted = [names for names in purposes if names]
        if is_purpose(purpose) and all(purpose in names for names in admitted):
            self.audit.purpose = purpose
            return
        form = "with 1 to 200 visible characters"
        if admitted:
            named = [name for name in admitted[0] if all(name in names for names in admitted)]
            form = f"as one of: {', '.join(named)}"
        text = f"A policy of this client asks what this request is for: send {PURPOSE_HEADER}"
        raise VaultError(Code.PURPOSE_REQUIRED, f"{text} once, {form}.")

    def _gate(self, records: Records, url: str) -> AclDecisions:
        """Build the client of the filter endpoint.

        Raises ``VaultError(UNAUTHORIZED)`` without a token to ask it with.
        """
        root = self.principal.environment == DEFAULT
        asker = self.services.acl if root else self.services.acl_elsewhere
        if asker is None:
            raise VaultError(
                Code.INTERNAL, "Nobody is there to ask the filter endpoint of a policy."
            )
        primary = records.primary.name if records.primary is not None else None
        return AclDecisions(
            asker,
            url,
            client_auth(self.request.headers.getall(CLIENT_AUTH_HEADER, ())),
            records.name,
            primary,
        )

    @property
    def schema(self) -> str | None:
        """The name of the request's schema; ``None`` where its path names none."""
        return self.operation.schema or self.path.get("schema")

    def closing(self, render: Callable[[Sequence[Record]], ApiResponse]) -> CommitHook:
        """Build the hook that commits the answer of ``render`` with the write."""
        keep = self.keep
        if keep is None:
            return no_changes
        return lambda records: keep(render(records), [shows(record) for record in records])


class Shows(NamedTuple):
    """A record that an answer shows."""

    key: str | None
    rid: int
    files: bool  #: it shows files of the record, too


def shows(record: Record) -> Shows:
    """The same of a record that an answer is made of."""
    return Shows(record.key, record.rid, bool(record.attachments))


ApiHandler = Callable[[ApiRequest], Awaitable[ApiResponse]]

#: Statuses of every operation besides those of the table: for callers outside the country, and for
#: too many requests.
COMMON_STATUSES: Final = (403, 429)

#: Handles a call with an ``Idempotency-Key``: by its handler, or by its stored answer.
IdempotencyRunner = Callable[[ApiRequest, ApiHandler], Awaitable[ApiResponse]]


class ApiOperation(NamedTuple):
    """An operation of the interface: a line of the table."""

    name: str  #: stable; the ``operationId`` of the interface document
    method: str
    path: str  #: with parameters as ``{name}``
    handler: ApiHandler
    success: int  #: the status of an answer that is not an error
    failures: tuple[
        int, ...
    ]  #: every other status that this operation may answer with; 5xx, 405 and ``ALWAYS`` always may
    takes: Takes = Takes.JSON
    access: Access = Access.CLIENT
    query: tuple[str, ...] = ()  #: the query parameters it knows; others are refused
    #: how it tells errors where it is not by problem documents
    refuse: Callable[[VaultError], ApiResponse] | None = None
    #: Further statuses of answers that are not errors, with a body of the same kind.
    also: tuple[int, ...] = ()
    #: Callers outside the country may use it where they are let in: all that it shows of records
    #: goes through ``Rights``.
    abroad: bool = False
    #: nothing is written, so that an ``Idempotency-Key`` has nothing to hold on to
    reads: bool = False
    named_inside: bool = False  #: an upload names its file in the head of its part
    #: the schema whose records it works with, where neither path nor body names one
    schema: str | None = None
    repeatable: bool = False  #: takes an ``Idempotency-Key`` though it is no POST and no DELETE
    #: the same for everybody, and nothing of anybody: it leaves no line in the audit log
    quiet: bool = False
    roles: tuple[Role, ...] = ()  #: that may call what else is for administrators
    approval: str = ""  #: the kind of ``auth.four_eyes`` that it is of


def is_repeatable(operation: ApiOperation) -> bool:
    """Whether requests may have an ``Idempotency-Key``."""
    written = operation.repeatable or operation.method in ("POST", "DELETE")
    return written and operation.access is not Access.OPEN and not operation.reads
