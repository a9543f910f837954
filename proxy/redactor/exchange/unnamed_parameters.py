"""Unnamed parameters of a request, in the address, a form, or an upload, and members of its JSON.

An upload has texts of parts and columns of a CSV file. Their values reach the application in the
clear.

Each is reported once, under a public name: a word of the rule or of many interfaces. The first
values of each are examined for suspected kinds. ``page`` and similar never hold personal data, and
parameters that the rule lets pass were examined by its author. Bodies have meaningless members,
such as buttons: those are only logged if a value is suspected.

Members of JSON are counted only if a value is suspected, in a sample of the bodies that is looked
at once the exchange is over: a rule names few members of many.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import inf
from typing import Any, Final
from urllib.parse import unquote_plus

import msgspec

from proxy.errors import VaultError
from proxy.model.schema import Path, PathStep
from proxy.redactor.checks import is_patch
from proxy.redactor.coverage import parameter_word, suspected
from proxy.redactor.form import pattern_matches
from proxy.redactor.message import Media, Request, classify
from proxy.redactor.path_template import SegmentKind, parse_template
from proxy.redactor.plan import BodyPlan
from proxy.redactor.rules import IdSource, Operation, PatchKind, Verb
from proxy.redactor.uploads import UPLOADS, upload_members
from proxy.telemetry import logs
from proxy.telemetry.metrics import MetricCell, Metrics

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
#: Values of a parameter that are looked at, and signs of each.
_LOOKS: Final = 20
_SIGNS: Final = 200

#: Bodies of JSON that are looked at, the first ones and then one in that many milliseconds, and
#: their most bytes.
_BODIES: Final = 20
_EVERY: Final = 10_000
_BODY: Final = 64 * 1024
#: Of a body: values, elements of an array, texts, and texts with one path that are looked at.
_NODES: Final = 2500
_ELEMENTS: Final = 50
_TEXTS: Final = 250
_ALIKE: Final = 5
#: Paths of members that are told of one operation, and steps of each.
_PATHS: Final = 50
_STEPS: Final = 8
#: Words of documents in many interfaces, which are nobody's names.
_MEMBERS: Final = frozenset(
    (
        "alternate alternative assigned attribute attributes author birth body by city "
        "code comments contacts created creator date day description display emergency "
        "first full given guarantor guardian home husband id identifier identifiers "
        "insurance item mail mobile month name names national nested nickname number of on "
        "parent payload person personal phones postal primary reason recipient reference "
        "referrer second secondary sender ssn state street surname tax tel telecom "
        "telephone text third title to value wife work year zip"
    ).split()
)

#: Events of the log, of a parameter and of a member of JSON.
_EVENTS: Final = (
    (
        "a parameter of a ruled request is not named: what it holds reaches the application in the "
        "clear; name it under query, form, multipart or csv, or in a read with pass: true where it "
        "holds nobody's data"
    ),
    (
        "a member of a ruled request is not named: what it holds reaches the application in the "
        "clear; name it as a field, or say with object where the named ones are"
    ),
)


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

    __slots__ = (
        *("_creates", "_fieldless", "_left", "_met", "_metrics", "_named", "_operation"),
        *("_paths", "_places", "_words", "due", "in_body"),
    )

    def __init__(self, metrics: Metrics, operation: Operation, *others: Operation) -> None:
        """``others``: operations on further objects in the same messages."""
        self._metrics = metrics
        self._operation = operation
        self._named: dict[str, list[str]] = {"query": [], "form": [], "upload": []}
        self._words: frozenset[str] = frozenset()
        #: whether its requests may be forms or uploads
        self.in_body = False
        #: when the next body is looked at, in milliseconds since the epoch
        self.due: float = inf if operation.graph or operation.envelope else 0
        self._left = _BODIES
        self._places: tuple[_Selector, ...] = ()  #: that rules name in a body of JSON
        self._paths: set[str] = set()  #: of members that were told
        self._creates = self._fieldless = False
        for one in (operation, *others):
            self._name(one)
        #: by part and name as it was sent; ``None``: it needs no notice
        self._met: dict[tuple[str, str], _Met | None] = {}

    def _name(self, operation: Operation) -> None:
        """Exempt the parameters that an operation names."""
        rule, ident = operation.request, operation.id
        search, body = rule.search, rule.body
        sources = {IdSource.QUERY: "query", IdSource.FORM: "form"}
        self._named["query"] += [*rule.query, *(search.query if search is not None else ())]
        form = [*(body.form if body else ()), *(search.form if search is not None else ())]
        self._named["form"] += form
        uploaded = [*body.multipart, *body.csv] if body else []
        self._named["upload"] += uploaded
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
        self._places += (places := tuple(named_places(operation)))
        self._words |= {step.lower() for one in places for step in one if isinstance(step, str)}
        segments = parse_template(operation.template).segments
        self._words |= {one.text.lower() for one in segments if one.kind is SegmentKind.LITERAL}
        self._creates = self._creates or (operation.verb is Verb.CREATE and bool(places))
        if rule.patch not in (None, PatchKind.MERGE):
            self.due = inf  # its members are those of a patch

    def look(self, request: Request, plan: BodyPlan | None) -> None:
        """Count the parameters of a request, and report new ones."""
        self._look("query", request.target.partition(b"?")[2])
        if self.in_body and request.body:
            if _is_form(request):
                self._look("form", request.body)
            elif plan is not None and plan.named & UPLOADS:
                self._look_at_upload(request, plan)

    def take(self, request: Request, now: int) -> None:
        """Have the body of a request looked at soon, which was ``due``; ``now`` in milliseconds."""
        if len(request.body) > _BODY:
            return
        self._left -= 1
        if self._left <= 0:
            self.due = now + _EVERY
        asyncio.get_running_loop().call_soon(self.look_inside, request)

    def look_inside(self, request: Request) -> None:
        """Count and report members of a body, JSON or a form, in which values are suspected."""
        try:
            media = classify(request.headers, request.body)
            if media is Media.FORM and not self.in_body:
                self._look("form", request.body)
            if media is not Media.JSON or is_patch(request.headers):
                return
            document = msgspec.json.decode(request.body)
        except (VaultError, msgspec.MsgspecError, UnicodeError, RecursionError):
            return  # it was refused for that, or nobody can read it
        members, named = suspected_members(document, self._places)
        for path, kinds in members.items():
            self._count(self._spelled(path), kinds)
        if self._creates and not named and document and not self._fieldless:
            self._fieldless = True
            _log.warning(
                "no named field in a create: is `object` missing?",
                endpoint=self._operation.endpoint.name,
                operation=self._operation.label,
            )

    def _spelled(self, path: Path) -> str:
        """A path whose names are public; ``other`` where too many were told."""
        text, words = "$", self._words | _MEMBERS
        for step in path[:_STEPS]:
            word = parameter_word(step, words) if isinstance(step, str) else ""
            text += f".{word}" if word else "[*]"
        if len(path) > _STEPS:
            text += ".{rest*}"
        if text not in self._paths and len(self._paths) >= _PATHS:
            return "other"
        self._paths.add(text)
        return text

    def _count(self, path: str, kinds: Sequence[str]) -> None:
        key = "body", path
        met = self._met.get(key)
        if met is None:
            met = self._met[key] = self._new_met("body", path)
        self._tell("body", met, kinds)
        met.cell.value += 1

    def _look(self, part: str, text: bytes) -> None:
        for member in text.split(b"&", _MOST)[:_MOST]:
            name, _, value = member.decode("latin-1").partition("=")
            met = self._met_as(part, name, unquote_plus(name))
            if met is not None:
                self._suspect(part, met, (name, value))
                met.cell.value += 1

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
        self._tell(part, met, suspected(f"{name[:_SIGNS]}={value[:_SIGNS]}"))

    def _tell(self, part: str, met: _Met, kinds: Iterable[str]) -> None:
        """Report the kinds that are new; of a query also one without any, once."""
        operation = self._operation
        labels = operation.endpoint.name, operation.label, part, met.word
        new: list[str] = []
        for kind in kinds:
            cell = self._metrics.cell("domicile_unnamed_suspected", *labels, kind)
            if not cell.value:
                cell.value = 1
                new.append(kind)
        if not new and (met.logged or part != "query"):
            return
        met.logged = True
        _log.warning(
            _EVENTS[part == "body"],
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

    def look(self, request: Request, plan: BodyPlan | None) -> None:
        """The other one does."""


def _is_form(request: Request) -> bool:
    try:
        return classify(request.headers, request.body) is Media.FORM
    except VaultError:  # it was refused for that
        return False


# ---------------------------------------------------------------------- members of JSON

#: Stands in a place where the objects are: an array there means each of its elements.
_OBJECT: Final = None

#: A place that a rule names, from the root of the body.
_Selector = tuple[str | int | PathStep | None, ...]


def named_places(operation: Operation) -> Iterator[_Selector]:
    """The places that an operation names in a request's body of JSON."""
    body, ident, search = operation.request.body, operation.id, operation.request.search
    objects = None if body is None else body.objects
    if body is not None:
        inside = [
            *body.fields.values(),
            *(one.path for one in body.texts if one.source == "object"),
        ]
        if objects is not None:
            yield from ((*objects, _OBJECT, *path) for path in inside)
        yield from body.anchored.values()
        yield from (one.path for one in body.texts if one.source == "root")
    if ident is not None and ident.source is IdSource.BODY:
        rooted = ident.absolute or objects is None
        yield ident.path if rooted else (*(objects or ()), _OBJECT, *ident.path)
    if search is not None:
        yield from (path for path, _ in search.values)


def suspected_members(
    document: Any, places: Sequence[_Selector]
) -> tuple[dict[Path, list[str]], bool]:
    """The kinds of values suspected by path, where no place leads to; and whether one leads
    anywhere. Elements of an array share their path. A long document is looked at in part, what
    lies less deep first.
    """
    met: dict[Path, list[str]] = {}
    alike = Counter[Path]()
    named, texts, left = False, _TEXTS, _NODES
    nodes = deque[tuple[Path, Any, Sequence[_Selector]]]([((), document, places)])
    while nodes and left and texts:
        left -= 1
        path, value, leading = nodes.popleft()
        if any(not selector or selector == (_OBJECT,) for selector in leading):
            named = True
        elif isinstance(value, dict):
            for name, one in islice(value.items(), _NODES):
                nodes.append(((*path, name), one, list(_below(leading, name))))
        elif isinstance(value, list):
            for index, one in enumerate(value[:_ELEMENTS]):
                nodes.append(((*path, PathStep.EACH), one, list(_below(leading, index))))
        elif isinstance(value, str) and value and alike[path] < _ALIKE:
            alike[path] += 1
            texts -= 1
            name = next((step for step in reversed(path) if isinstance(step, str)), "")
            if kinds := suspected(f'"{name[:_SIGNS]}": "{value[:_SIGNS]}"'):
                met[path] = list(dict.fromkeys((*met.get(path, ()), *kinds)))
    return met, named


def _below(places: Sequence[_Selector], step: str | int) -> Iterator[_Selector]:
    """The rest of places beneath a member or an element."""
    for selector in places:
        if not selector:
            continue
        first, rest = selector[0], selector[1:]
        if first is PathStep.DEEP:
            yield selector
            yield from _below((rest,), step)
        elif first is _OBJECT and isinstance(step, int):
            yield selector
        elif first is _OBJECT:
            yield from _below((rest,), step)
        elif first == step or isinstance(first, PathStep):
            yield rest
