"""Compiled rules: frozen data that the loader makes and every request reads.

A ``RuleSet`` is swapped as a whole when rule files change. ``docs/rules.md`` defines the words.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from proxy.model.schema import Path, PathStep, Schema
from proxy.redactor.cookies import CookieField, may_hold
from proxy.redactor.request_rules import (
    Condition,
    EnvelopeRule,
    Parameter,
    PassPlaces,
    RedirectSuccess,
    SearchRule,
    TextPlace,
)
from proxy.redactor.validation import FieldCheck
from proxy.redactor.views import CallerRule, View
from proxy.redactor.words import DocumentKind, RequestWords, ResponseWords
from proxy.tokenization.base import Shape
from proxy.tokenization.mask import Mask


class Verb(enum.StrEnum):
    """Effect of an operation on its entity; each covers both directions."""

    CREATE = "create"
    READ = "read"
    UPDATE = "update"
    DELETE = "delete"


class Unmatched(enum.StrEnum):
    """Treatment of an endpoint's request that no operation names."""

    REPORT = "report"  #: passed; each shape of a path is reported once, without values, and counted
    PASS = "pass"
    DENY = "deny"


class Stream(enum.StrEnum):
    """An answer that is a sequence of JSON documents: lines, events, parts, messages."""

    NDJSON = "ndjson"
    SSE = "sse"
    MULTIPART = "multipart"
    WEBSOCKET = "websocket"


class PatchKind(enum.StrEnum):
    """A request body that tells changes instead of values, and how it names their places."""

    JSON = "json"
    MERGE = "merge"
    SCIM = "scim"
    DOTTED = "dotted"


@dataclass(frozen=True, slots=True)
class Position:
    """Position in a rule file; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class FieldRule:
    """A protected field of an entity."""

    name: str
    kind: str
    shape: Shape
    at: Path  #: relative to the entity's object; one field may select several values
    in_clear: bool  #: ``stored: plain`` — kept typed and searchable in the vault
    find: frozenset[str]  #: of ``exact``, ``partial``, ``range``
    mask: Mask  #: mask in views that mask the field
    check: FieldCheck | None = None  #: what its values have to be
    #: heads and labels of it in pages and exports, where people would believe its token
    labels: frozenset[str] = field(default=frozenset(), compare=False)
    #: whether its token looks like a value, and may stand in a record of its own beside the rest of
    #: the person: a create takes it, and another one takes none of that one's fields
    scattered: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Entity:
    """A kind of person-related record of one application."""

    name: str
    schema: Schema
    fields: Mapping[str, FieldRule]  #: by name
    expires: int | None  #: milliseconds after creation or update
    addressed: bool  #: every answer that restores it carries its id (small shapes resolve then)
    #: Where the records stand among those of the record-based family: the rule file's names of
    #: fields, and that family's fields with their values; ``fields``, ``schema`` go by these.
    kept_as: Mapping[str, str] | None = None
    keeps: bool = False  #: values of earlier versions of a record stay (``versions: keep``)
    names_schema: bool = False  #: it says which schema it has, even where that is its own name

    @property
    def scattered(self) -> frozenset[str]:
        """The fields that may stand in a record of their own."""
        return frozenset(name for name, rule in self.fields.items() if rule.scattered)


class IdSource(enum.StrEnum):
    """Source of an id."""

    BODY = "body"
    FORM = "form"
    PATH = "path"
    QUERY = "query"
    HEADER = "header"
    COLUMN = "column"


@dataclass(frozen=True, slots=True)
class IdPlace:
    """Place of the application's id of a record.

    BODY: ``path``, from the object (``absolute`` false) or the root. FORM, PATH, QUERY, COLUMN:
    ``name``. HEADER: ``name`` (lower case) and ``template``, whose one placeholder is the id.
    """

    source: IdSource
    name: str = ""
    path: Path = ()
    absolute: bool = False
    template: str = ""


@dataclass(frozen=True, slots=True)
class BodyPlace:
    """Places of an entity's objects and fields in a body, by its content type."""

    objects: Path | None  #: selects the object(s); an array there means each of its elements
    each: bool  #: the rule said ``each``: several objects, whatever the count
    fields: Mapping[str, Path]  #: field name -> place relative to the object
    #: field name -> place from the document root (this operation's own ``$.``-places)
    anchored: Mapping[str, Path]
    form: Mapping[str, str]  #: form member name (or pattern with ``*``) -> field name
    multipart: Mapping[str, str] = field(default_factory=dict)  #: the same of parts of a form
    #: the same of parts that are files: the field of their names
    file_names: Mapping[str, str] = field(default_factory=dict)
    #: column name -> field name of a CSV file, with a record per row
    csv: Mapping[str, str] = field(default_factory=dict)
    part: str = ""  #: the part of a form that is the CSV file; empty: the whole body is
    texts: tuple[TextPlace, ...] = ()  #: texts that are documents of JSON
    xml: DocumentKind | None = None  #: the places are those of a document of XML, and of no JSON


@dataclass(frozen=True, slots=True)
class RequestRule(RequestWords):
    """The request side of an operation; ``body`` is ``None`` where the rule names nothing in it."""

    body: BodyPlace | None
    search: SearchRule | None = None
    patch: PatchKind | None = None
    passed: PassPlaces = field(default_factory=PassPlaces)

    @property
    def addressed(self) -> bool:
        """Whether the address of the request may hold values."""
        return self.search is not None and bool(self.search.query or self.search.path)


class Restore(enum.StrEnum):
    """Restoration of tokens in a successful answer that is no named object."""

    NAMED = "named"  #: nowhere
    ANYWHERE = "anywhere"  #: wherever they stand, in every kind of text
    HTML = "html"  #: in a page, by the places of one
    TEXT = "text"  #: in a plain text
    CSV = "csv"  #: in named columns of an export


@dataclass(frozen=True, slots=True)
class ResponseRule(ResponseWords):
    """The answer side of an operation; ``body`` is ``None`` where nothing is restored in it."""

    body: BodyPlace | None
    id: IdPlace | None
    success: frozenset[int]  #: statuses that mean "the application took it"
    conditions: tuple[RedirectSuccess, ...] = ()  #: and those that mean it on a condition
    presumed: bool = False  #: the rule of a write names neither: its body may tell of a refusal
    restore: Restore = Restore.NAMED
    #: of a page, the elements that hold small tokens: name, id or item property -> field
    members: Mapping[str, str] = field(default_factory=dict)
    heads: Mapping[str, str] = field(default_factory=dict)  #: of a page: head or label -> field
    only: frozenset[str] = frozenset()  #: the fields that a page shows; empty: all
    stream: Stream | None = None  #: each event is a separate body, passed on as it arrives
    columns: Mapping[str, str] = field(default_factory=dict)  #: of an export: column -> field
    carriers: frozenset[bytes] = frozenset()  #: header fields, in lower case, that may show values
    carried: tuple[Path, ...] = ()  #: places of addresses in a body of JSON
    cookies: Mapping[str, str] = field(default_factory=dict)  #: cookie -> field of its value
    in_parts: bool = False  #: restored as it arrives, not as a whole
    special: bool = False  #: more than named objects is restored

    @property
    def several(self) -> bool:
        """Whether the rule names a list of ids or of objects."""
        paths = [
            self.id.path if self.id is not None else (),
            (self.body and self.body.objects) or (),
        ]
        return any(isinstance(step, PathStep) for path in paths for step in path)


@dataclass(frozen=True, slots=True)
class OnError:
    """Reactions to input that cannot be understood; statuses are HTTP statuses."""

    vault_down_write: int = 503
    vault_down_read: str = "default"  #: or ``tokens``, or a status; ``Operation.passes_tokens``
    unreadable_body: int = 415
    ambiguous_json: int = 400
    too_large: int = 413
    field_absent: str = "count"  #: ``count`` | ``refuse``
    unknown_token: str = "leave"
    upstream_not_2xx: str = "scan"  #: ``scan`` | ``pass``
    unreadable_answer: str = "tokens"  #: it passes unchanged; or a status, e.g. ``"502"``
    guard: str = "block"  #: ``block`` | ``report`` | ``off``
    untold_token: str = "hide"  #: ``hide`` | ``leave``


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Bounds on bodies of matched operations; bytes, levels, members."""

    body: int = 2 * 1024 * 1024
    inflated: int = 16 * 1024 * 1024
    json_depth: int = 64
    form_fields: int = 1000


#: Words in braces that stand for parts of a refusal in the application's own form.
REFUSAL_WORDS: Final = ("status", "title", "code", "detail", "errors", "fields")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A web application behind the proxy."""

    name: str
    upstream: str  #: ``http://host:port`` or ``https://host:port``, no path
    hosts: frozenset[str]  #: lower case, without port; empty: any
    prefix: str  #: path prefix that selects it, or ``""``; it is forwarded unchanged
    unmatched: Unmatched
    limits: BodyLimits
    on_error: OnError
    searched: bool = False  #: whether some operation swaps values in the address of a request
    viewed: bool = False  #: whether some callers of it, or of others at its hosts, may not search
    ordered: Mapping[str, str] = field(default_factory=dict)  #: ``entity.field`` by words of orders
    cookies: Mapping[str, CookieField] = field(default_factory=dict)  #: that hold values
    caller: CallerRule | None = None  #: how callers prove their roles
    #: the JSON of refusals with words in braces, as text; empty: problem documents
    refusals: str = ""
    views: tuple[View, ...] = ()  #: their visibility; empty: everything
    #: what stands before the paths of operations that WordPress serves by a parameter
    rest_routes: frozenset[bytes] = frozenset()

    def may_hold_cookies(self, head: bytes) -> bool:
        """Whether one of its cookies may stand in the head of a request: nearly always not."""
        return may_hold(self.cookies, head)


@dataclass(frozen=True, slots=True)
class Operation:
    """A request with personal data: method, path and the handling of both directions."""

    label: str  #: as written, for metrics, logs and explain: ``POST /api/contacts``
    endpoint: Endpoint
    verb: Verb
    methods: tuple[str, ...]
    template: str
    entity: Entity
    id: IdPlace | None  #: where the request carries the id(s); ``None`` for creates and lists
    request: RequestRule
    response: ResponseRule
    position: Position
    when: tuple[Condition, ...] = ()  #: all of these hold
    #: the rules that it stands for, where several share its path and method (``forks``)
    branches: tuple["Rule", ...] = ()
    graph: tuple["GraphField", ...] = ()  #: the fields that it reads of a GraphQL operation
    passed_fields: tuple[str, ...] = ()  #: those whose arguments hold nobody's data
    persisted: tuple[tuple[str, str], ...] = ()  #: documents of GraphQL by their hash
    keep: int | None = None  #: of a delete: milliseconds that values stay, 0: until another delete
    envelope: EnvelopeRule | None = None  #: it carries requests that are matched separately
    parts: tuple["Operation", ...] = ()  #: an operation on each of the objects in its messages

    @property
    def addressed(self) -> bool:
        """Whether the address of a request may hold values."""
        inner = (bool(self.graph) and "GET" in self.methods) or any(p.addressed for p in self.parts)
        return self.request.addressed or inner

    @property
    def passes_tokens(self) -> bool:
        """Whether answers pass with tokens while the vault is down."""
        # a person cannot tell the token of a phone number from one
        said, answer = self.endpoint.on_error.vault_down_read, self.response
        in_text = answer.restore is not Restore.NAMED or answer.in_parts
        return said == "tokens" or (said == "default" and not (in_text and self.verb is Verb.READ))


@dataclass(frozen=True, slots=True)
class GraphField:
    """A field of a GraphQL schema that carries records of an entity."""

    name: str  #: of a field, wherever it stands, or ``Mutation.field``
    operation: "Operation"  #: on a document of its values: ``object``, ``id``, ``arguments``
    id: str  #: the member of that object that is the record's id
    object: tuple[str, ...]  #: way to the argument that is the object
    key: tuple[str, ...]  #: way to the argument that is the record's id
    arguments: Mapping[tuple[str, ...], str]  #: ways to arguments, with the field of each
    refused: Mapping[tuple[str, ...], Parameter]  #: ways to arguments that may not hold everything
    small: frozenset[Path]  #: places of values whose tokens are restored next to an id only


@dataclass(frozen=True, slots=True)
class PassRule:
    """A request without personal data, as its operator says (``pass: true``), or one that is as if
    no rule named it (``unmatched: true``).
    """

    label: str  #: as ``Operation.label``
    endpoint: Endpoint
    methods: tuple[str, ...]
    template: str
    position: Position
    when: tuple[Condition, ...] = ()  #: as ``Operation.when``
    unmatched: bool = False  #: as if no rule named it


Rule = Operation | PassRule  #: an entry of ``operations``


class Match(msgspec.Struct, frozen=True, gc=False):
    """A request matched to an operation; ``params``: percent-decoded placeholders of its path."""

    operation: Operation
    params: Mapping[str, str]
    #: what found it, so that its exchange belongs to the rules that matched, also after a reload
    scope: object = None


@dataclass(frozen=True, slots=True)
class RuleTest:
    """An entry of ``tests:``, checked for shape, run by ``domicile rules test``."""

    name: str
    endpoint: str
    content: Mapping[str, Any]
    position: Position


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All rules that are active together. ``version`` is a short hash of all files' content."""

    version: str
    endpoints: tuple[Endpoint, ...]
    entities: tuple[Entity, ...]
    operations: tuple[Operation, ...]
    tests: tuple[RuleTest, ...] = ()
    warnings: tuple[str, ...] = field(default=())
    passed: tuple[PassRule, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict, compare=False)  #: by name

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All entries of ``operations``."""
        return (*self.operations, *self.passed)

    @property
    def on_purpose(self) -> tuple[PassRule, ...]:
        """The rules by which requests pass because somebody looked at them."""
        return tuple(rule for rule in self.passed if not rule.unmatched)
