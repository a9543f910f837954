"""Unnamed parameters of a request, in the address, a form, or an upload.

An upload has texts of parts and columns of a CSV file. Their values reach the application in the
clear.

Each is reported once, under a public name: a word of the rule or of many interfaces. The first
values of each are examined for suspected kinds. ``page`` and similar never hold personal data, and
parameters that the rule lets pass were examined by its author. Bodies have meaningless members,
such as buttons: those are only logged if a value is suspected.
"""

from itertools import islice
from typing import Final
from urllib.parse import unquote_plus

from proxy.errors import VaultError
from proxy.redactor.coverage import parameter_word, suspected
from proxy.redactor.form import pattern_matches
from proxy.redactor.message import Media, Request, classify
from proxy.redactor.plan import BodyPlan
from proxy.redactor.rules import IdSource, Operation
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

    __slots__ = ("_met", "_metrics", "_named", "_operation", "_words", "in_body")

    def __init__(self, metrics: Metrics, operation: Operation, *others: Operation) -> None:
        """``others``: operations on further objects in the same messages."""
        self._metrics = metrics
        self._operation = operation
        self._named: dict[str, list[str]] = {"query": [], "form": [], "upload": []}
        self._words: frozenset[str] = frozenset()
        #: whether its requests may be forms or uploads
        self.in_body = False
        for one in (operation, *others):
            self._name(one)
        #: by part and name as it was sent; ``None``: it needs no notice
        self._met: dict[tuple[str, str], _Met | None] = {}

    def _name(self, operation: Operation) -> None:
        """Exempt the parameters that an operation names."""
        rule, ident = operation.request, operation.id
        search, body = rule.search, rule.body
        places = {IdSource.QUERY: "query", IdSource.FORM: "form"}
        self._named["query"] += [*rule.query, *(search.query if search is not None else ())]
        form = [*(body.form if body else ()), *(search.form if search is not None else ())]
        self._named["form"] += form
        uploaded = [*body.multipart, *body.csv] if body else []
        self._named["upload"] += uploaded
        self.in_body = self.in_body or bool(form or uploaded)
        if ident is not None and ident.source in places:
            self._named[places[ident.source]].append(ident.name)
            self._named["upload"].append(ident.name)
        for condition in operation.when:
            if condition.source in ("query", "form"):
                self._named[condition.source].append(condition.name)
        fields = operation.entity.fields.values()
        steps = (step for field in fields for step in (field.name, *field.at))
        self._words |= {step.lower() for step in steps if isinstance(step, str)}

    def look(self, request: Request, plan: BodyPlan | None) -> None:
        """Count the parameters of a request, and report new ones."""
        self._look("query", request.target.partition(b"?")[2])
        if self.in_body and request.body:
            if _is_form(request):
                self._look("form", request.body)
            elif plan is not None and plan.named & UPLOADS:
                self._look_at_upload(request, plan)

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
        operation = self._operation
        labels = operation.endpoint.name, operation.label, part, met.word
        new: list[str] = []
        for kind in suspected(f"{name[:_SIGNS]}={value[:_SIGNS]}"):
            cell = self._metrics.cell("domicile_unnamed_suspected", *labels, kind)
            if not cell.value:
                cell.value = 1
                new.append(kind)
        if not new and (met.logged or part != "query"):
            return
        met.logged = True
        _log.warning(
            "a parameter of a ruled request is not named: what it holds reaches the application in "
            "the clear; name it under query, form, multipart or csv, or in a read with pass: true "
            "where it holds nobody's data",
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
        word, operation = parameter_word(name, self._words | HARMLESS), self._operation
        labels = operation.endpoint.name, operation.label, part, word
        return _Met(self._metrics.cell("domicile_unnamed_parameters_total", *labels), word)


class NoUnnamed(UnnamedParameters):
    """Of an operation whose messages another one looks at."""

    __slots__ = ()

    def look(self, request: Request, plan: BodyPlan | None) -> None:
        """The other one does."""


def _is_form(request: Request) -> bool:
    try:
        return classify(request.headers, request.body) is Media.FORM
    except VaultError:  # it was refused for that
        return False
