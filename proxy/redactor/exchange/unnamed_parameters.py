"""Unnamed parameters of a request, in the address, a form, or an upload, and members of its body.

An upload has texts of parts and columns of a CSV file. Their values reach the application in the
clear.

Each is reported once, under a public name: a word of the rule or of many interfaces. The first
values of each are examined for suspected kinds. ``page`` and similar never hold personal data, and
parameters that the rule lets pass were examined by its author. Bodies have meaningless members,
such as buttons: those are only logged if a value is suspected.

Members of JSON and XML are counted only if a value is suspected, in a sample of the bodies that is
looked at once the exchange is over: a rule names few members of many.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_plus

import msgspec

from proxy.errors import VaultError
from proxy.model.schema import Path
from proxy.redactor.bodies.uploads import UPLOADS, upload_members
from proxy.redactor.coverage import parameter_word
from proxy.redactor.exchange.unnamed_members import (
    EVENTS,
    PUBLIC_MEMBERS,
    SIGNS,
    PatchedMembers,
    read_members,
    selectors_of,
    suspected_arguments,
    suspected_members,
)
from proxy.redactor.form import pattern_matches
from proxy.redactor.message import Media, Request, classify
from proxy.redactor.named_places import Selector, named_places
from proxy.redactor.path_template import SegmentKind, parse_template
from proxy.redactor.plan import BodyPlan
from proxy.redactor.request_rules import Parameter
from proxy.redactor.rules import IdSource, Operation, PatchKind, Verb
from proxy.redactor.search.sought import unruled_order
from proxy.redactor.suspicions import legible, suspected
from proxy.telemetry import logs
from proxy.telemetry.metrics import MetricCell, Metrics

if TYPE_CHECKING:  # imported where a rule is of GraphQL
    from proxy.redactor.graphql.requests import GraphReader

_log = logs.logger("rules")

#: Parameters without personal data in any interface.
HARMLESS: Final = frozenset(
    (
        "_ after before callback count cursor direction embed expand first format include lang "
        "language last limit locale next offset page page_number page_size pagenumber pagesize "
        "per_page perpage prev previous rows size skip start take timezone top tz v version"
    ).split()
)
#: What frameworks send with every form.
_FRAMEWORKS: Final = frozenset(
    "_csrf _method _token authenticity_token commit csrf csrf_token csrfmiddlewaretoken "
    "utf8".split()
)
#: Names that are remembered of one operation, and looked at in one request.
_REMEMBERED: Final = 1000
_MOST: Final = 100
#: Values of a parameter that are looked at.
_LOOKS: Final = 20

#: Bodies of JSON that are looked at, the first ones and then one in that many milliseconds, and
#: their most bytes.
_BODIES: Final = 20
_EVERY: Final = 10_000
_BODY: Final = 64 * 1024
#: Paths of members that are told of one operation, and steps of each.
_PATHS: Final = 50
_STEPS: Final = 8
#: Words of filters in GraphQL, beside those of interfaces.
_FILTERS: Final = frozenset(
    (
        "_and _contains _eq _icontains _ilike _in _like _neq _not _or _regex and any condition "
        "contains ends eq equals every has in insensitive keyword like matches needle none not "
        "or q some starts term where with"
    ).split()
)
#: A parameter of a query that may say an order.
_ORDER: Final = re.compile(rb"(?i)(?:sort|order)[^=&]*=.")
_NO_PATH: Final[Mapping[str, str]] = MappingProxyType({})


class _Met:
    """An unnamed parameter of one place."""

    __slots__ = ("cell", "logged", "looks", "word")

    def __init__(self, cell: MetricCell, word: str) -> None:
        self.cell = cell
        self.word = word
        self.looks = _LOOKS
        self.logged = cell.value > 0  #: also one that is shown by the same word


class UnnamedParameters:
    """Notices those of one operation; made when rules load."""

    #: what finds a sign of a target beside which there is nothing to look at
    unusual: Final = re.compile(rb"[^/0-9A-Za-z]").search
    _part = "body"  #: where what it looks at inside a body stands
    _root = "$"

    __slots__ = (
        *("_passed", "_protected", "_searches"),
        *("_creates", "_fieldless", "_met", "_metrics", "_named", "_operation"),
        *("_patched", "_paths", "_places", "_words", "again", "due", "in_body", "left", "wanted"),
    )

    def __init__(self, metrics: Metrics, operation: Operation, *others: Operation) -> None:
        """``others``: operations on further objects in the same messages."""
        self._metrics = metrics
        self._operation = operation
        self._named: dict[str, list[str]] = {"query": [], "form": [], "upload": [], "path": []}
        self._words: frozenset[str] = frozenset()
        #: whether its requests may be forms or uploads
        self.in_body = False
        #: when the next body is looked at, in milliseconds since the epoch
        self.due: float = inf if operation.graph or operation.envelope else 0
        self.left = _BODIES
        self.wanted, self.again = 0, 0  #: bodies that fronts were to bring, and until when
        self._places: tuple[Selector, ...] = ()  #: that rules name in a body of JSON
        self._paths: set[str] = set()  #: of members that were told
        self._patched: PatchedMembers | None = None  #: where bodies hold changes
        self._creates = self._fieldless = False
        self._searches: list[Mapping[str, Parameter]] = []
        self._passed: list[str] = []  #: parameters of an address that are fields, or pass
        self._protected = operation.endpoint.ordered
        for one in (operation, *others):
            self._name(one)
        #: by part and name as it was sent; ``None``: it needs no notice
        self._met: dict[tuple[str, str], _Met | None] = {}

    def _name(self, operation: Operation) -> None:
        """Exempt the parameters that an operation names."""
        rule, ident = operation.request, operation.id
        search, body = rule.search, rule.body
        sources = {IdSource.QUERY: "query", IdSource.FORM: "form"}
        passed = rule.passed
        self._named["query"] += (*(search.query if search is not None else ()), *passed.query)
        self._passed += passed.query
        self._searches += (search.query,) if search is not None else ()
        self._named["path"] += search.path if search is not None else ()
        form = [*(body.form if body else ()), *(search.form if search is not None else ())]
        self._named["form"] += (*form, *passed.form)
        uploaded = [*body.multipart, *body.csv] if body else []
        self._named["upload"] += (*uploaded, *passed.multipart, *passed.csv)
        self.in_body = self.in_body or bool(form or uploaded)
        if ident is not None and ident.source in sources:
            self._named[sources[ident.source]].append(ident.name)
            self._named["upload"].append(ident.name)
        for condition in operation.when:
            if condition.source in ("query", "form"):
                self._named[condition.source].append(condition.name)
        fields = operation.entity.fields.values()
        steps = (step for field in fields for step in (field.name, *field.at))
        self._words |= {step.lower() for step in steps if isinstance(step, str)}
        self._places += (places := tuple(selectors_of(operation)))
        self._words |= {step.lower() for one in places for step in one if isinstance(step, str)}
        segments = parse_template(operation.template).segments
        self._words |= {one.text.lower() for one in segments if one.kind is SegmentKind.LITERAL}
        self._creates = self._creates or (operation.verb is Verb.CREATE and bool(places))
        if rule.patch not in (None, PatchKind.MERGE):
            self._patched = PatchedMembers(operation, rule.patch)

    def look(
        self, request: Request, plan: BodyPlan | None, path: Mapping[str, str] = _NO_PATH
    ) -> None:
        """Count the parameters of a request, and report new ones. ``path``: its placeholders."""
        for name, text in path.items():
            if name in self._named["path"]:
                continue
            sign = legible(text, SIGNS)
            if not sign.isalnum() and (kinds := suspected(sign)):
                self.count(f"{{{name}}}", kinds, "path")
        if query := request.target.partition(b"?")[2]:
            self._look("query", query)
            if _ORDER.search(query):
                self._look_at_orders(query)
        if self.in_body and request.body:
            if _is_form(request):
                self._look("form", request.body)
            elif plan is not None and plan.named & UPLOADS:
                self._look_at_upload(request, plan)

    def take(self, request: Request, now: int) -> None:
        """Have the body of a request looked at soon, which was ``due``; ``now`` in milliseconds."""
        if len(request.body) > _BODY:
            return
        self.left -= 1
        self.wanted -= self.wanted > 0
        if self.left <= 0:
            self.due = now + _EVERY
        asyncio.get_running_loop().call_soon(self.look_inside, request)

    def look_inside(self, request: Request) -> None:
        """Count and report members of a body, JSON or a form, in which values are suspected."""
        try:
            media = classify(request.headers, request.body)
            if media is Media.FORM and not self.in_body:
                self._look("form", request.body)
            if self._patched is not None:
                self._look_at_changes(self._patched, request.body)
                return
            document = read_members(self._operation, request, media)
        except (VaultError, msgspec.MsgspecError, UnicodeError, RecursionError):
            return  # it was refused for that, or nobody can read it
        members, named = suspected_members(document, self._places)
        for path, kinds in members.items():
            self.count(self._spelled(path), kinds)
        if self._creates and not named and document and not self._fieldless:
            self._fieldless = True
            _log.warning(
                "no named field in a create: is `object` missing?",
                endpoint=self._operation.endpoint.name,
                operation=self._operation.label,
            )

    def _look_at_changes(self, patched: PatchedMembers, body: bytes) -> None:
        depth = self._operation.endpoint.limits.json_depth
        for document in patched.documents(body, depth):
            for path, kinds in suspected_members(document, self._places)[0].items():
                if not patched.is_named(path):
                    self.count(self._spelled(path), kinds)

    def _spelled(self, path: Path) -> str:
        """A path whose names are public; ``other`` where too many were told."""
        text, words = self._root, self._words | PUBLIC_MEMBERS
        for step in path[:_STEPS]:
            word = parameter_word(step, words) if isinstance(step, str) else ""
            text += f".{word}" if word else "[*]"
        if len(path) > _STEPS:
            text += ".{rest*}"
        text = text.removeprefix(".")
        if text not in self._paths and len(self._paths) >= _PATHS:
            return "other"
        self._paths.add(text)
        return text

    def count(self, path: str, kinds: Sequence[str], part: str = "") -> None:
        """Count what a rule does not name, and report it with new kinds, by its public name."""
        key = part or self._part, path
        met = self._met.get(key)
        if met is None:
            met = self._met[key] = self._new_met(*key)
        self._tell(key[0], met, kinds)
        met.cell.value += 1

    def _look(self, part: str, text: bytes) -> None:
        for member in text.split(b"&", _MOST)[:_MOST]:
            name, _, value = member.decode("latin-1").partition("=")
            met = self._met_as(part, name, unquote_plus(name))
            if met is not None:
                self._suspect(part, met, (name, value))
                met.cell.value += 1

    def _look_at_orders(self, query: bytes) -> None:
        """Count and report orders by fields, of any entity, that no rule refuses or drops."""
        for member in query.split(b"&", _MOST)[:_MOST]:
            name, text = (unquote_plus(one) for one in member.decode("latin-1").partition("=")[::2])
            if _ORDER.search(name.encode() + b"=.") is None or any(
                pattern_matches(one, name) for one in self._passed
            ):
                continue
            if named := unruled_order(self._searches, self._protected, (name, text[:SIGNS])):
                self.count(parameter_word(name, self._words | HARMLESS | {"by"}), named, "order")

    def _look_at_upload(self, request: Request, plan: BodyPlan) -> None:
        limit = self._operation.endpoint.limits.form_fields
        counted: set[str] = set()
        try:
            members = list(islice(upload_members(plan, request, limit, _LOOKS), _MOST * _LOOKS))
        except VaultError:  # it was refused for that
            return
        for name, value in members:
            met = self._met_as("upload", name, name)
            if met is not None:
                self._suspect("upload", met, (name, value))
                met.cell.value += name not in counted
                counted.add(name)

    def _met_as(self, part: str, raw: str, name: str) -> _Met | None:
        """A parameter by its name as it was sent; ``None`` where there is nothing to tell."""
        key = part, raw
        if key not in self._met:
            if len(self._met) >= _REMEMBERED:
                return None
            self._met[key] = self._new(part, name)
        return self._met[key]

    def _suspect(self, part: str, met: _Met, member: tuple[str, str]) -> None:
        if not met.looks:
            return
        met.looks -= 1
        name, value = member
        self._tell(part, met, suspected(f"{name[:SIGNS]}={legible(value, SIGNS)}"))

    def _tell(self, part: str, met: _Met, kinds: Iterable[str]) -> None:
        """Report the kinds that are new; of a query or an argument also one without any, once."""
        operation = self._operation
        labels = operation.endpoint.name, operation.label, part, met.word
        new: list[str] = []
        for kind in kinds:
            cell = self._metrics.cell("domicile_unnamed_suspected", *labels, kind)
            if not cell.value:
                cell.value = 1
                new.append(kind)
        if not new and (met.logged or part not in ("query", "argument")):
            return
        met.logged = True
        _log.warning(
            EVENTS[part if part in EVENTS else ""],
            endpoint=operation.endpoint.name,
            operation=operation.label,
            place=part,
            parameter=met.word,
            request_kinds=new,
        )

    def _new(self, part: str, name: str) -> _Met | None:
        bare = name.lower().replace("-", "_").removesuffix("[]")
        if not name or bare in HARMLESS or bare.replace("_", "") in HARMLESS:
            return None
        if bare in _FRAMEWORKS:
            return None
        if any(pattern_matches(pattern, name) for pattern in self._named[part]):
            return None
        return self._new_met(part, parameter_word(name, self._words | HARMLESS))

    def _new_met(self, part: str, word: str) -> _Met:
        operation = self._operation
        labels = operation.endpoint.name, operation.label, part, word
        return _Met(self._metrics.cell("domicile_unnamed_parameters_total", *labels), word)


class NoUnnamed(UnnamedParameters):
    """Of an operation whose messages another one looks at."""

    __slots__ = ()

    def __init__(self, metrics: Metrics, operation: Operation) -> None:
        super().__init__(metrics, operation)
        self.due = inf

    def look(
        self, request: Request, plan: BodyPlan | None, path: Mapping[str, str] = _NO_PATH
    ) -> None:
        """The other one does."""


class UnnamedArguments(UnnamedParameters):
    """Notices arguments of the operations at one address of GraphQL, in a sample of the requests:
    those in which a value is suspected, and those that hold the name of a field in their own.
    """

    __slots__ = ("places", "reader")
    _part = "argument"
    _root = ""

    def __init__(self, metrics: Metrics, operation: Operation, reader: "GraphReader") -> None:
        super().__init__(metrics, operation, *[one.operation for one in operation.graph])
        self.reader = reader
        self.due = 0
        #: by identity of the operation of a field: those in its document
        self.places = {id(one.operation): [*named_places(one.operation)] for one in operation.graph}
        for one in operation.graph:
            ways = one.name.split("."), *one.arguments, *one.refused
            self._words |= {step.lower() for way in ways for step in way} | _FILTERS

    def look_inside(self, request: Request) -> None:
        """Count and report arguments of a request."""
        try:
            texts = self.reader.unread(request)
            suspicions = suspected_arguments(texts, self.reader.is_protected)
        except VaultError:  # it was refused for that
            return
        for path, kinds in suspicions.items():
            self.count(self._spelled(path), kinds)


def _is_form(request: Request) -> bool:
    try:
        return classify(request.headers, request.body) is Media.FORM
    except VaultError:  # it was refused for that
        return False
