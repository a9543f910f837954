"""Places of a request that its rule lets pass (``pass: true``), and parameters in the address of a
write that are called like members of its body.

Pure functions on bytes; made when rules load.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import unquote_to_bytes

from proxy.errors import Code, Detail, VaultError
from proxy.model.schema import Path
from proxy.redactor import form
from proxy.redactor.bodies.uploads import upload_spans
from proxy.redactor.json.nested import pieces
from proxy.redactor.message import BEFORE_PARAMETERS, Media, Request, classify
from proxy.redactor.plan import OperationPlan
from proxy.redactor.redact import MOST_QUERY, query_span
from proxy.redactor.rules import BodyPlace, IdSource, Operation, Verb
from proxy.redactor.select import Selection

#: Names on the way to a member, as loosely as applications compare them.
_Way = tuple[str, ...]
#: A pattern that fits every name, and says nothing of one.
_ANY: Final = ("*",)


class PassedParts:
    """Finds the places of a request that hold nobody's data, as the rule says."""

    def __init__(self, plan: OperationPlan) -> None:
        self._plan = plan
        self.passed = passed = plan.operation.request.passed
        self._selection = Selection(None, (), passed.values)
        self.some = bool(passed.labels)

    def spans(self, request: Request) -> Iterator[tuple[int, int]]:
        """Their spans in the body. Raises ``VaultError`` where that has several readings."""
        limits, body = self._plan.operation.endpoint.limits, request.body
        match classify(request.headers, body):
            case Media.JSON if self.passed.values:
                leaves = self._selection.find(body, limits.json_depth).anchored
                yield from ((leaf.start, leaf.end) for leaf in leaves)
            case Media.FORM:
                yield from _members(body, self.passed.form, limits.form_fields)
            case Media.OTHER if self._plan.request is not None:
                names = (*self.passed.multipart, *self.passed.csv)
                for name, start, end in upload_spans(
                    self._plan.request, request, limits.form_fields
                ):
                    if _is_named(names, name):
                        yield start, end


def without_passed(
    request: Request, several: Iterable[PassedParts], spans: Iterable[tuple[int, int]] = ()
) -> Request:
    """A request without what stands in its places that pass, and in those of ``spans``."""
    start, end = query_span(request.target)
    query, body = request.target[start:end], request.body
    cut, named = list(spans), list[str]()
    for one in several:
        named += one.passed.query
        with suppress(VaultError):  # several readings: all of it is looked through
            cut += list(one.spans(request))
    target = cut_out(query, _members(query, named, MOST_QUERY))
    target = request.target[:start] + target + request.target[end:]
    return Request(request.method, target, request.headers, cut_out(body, cut))


def _members(content: bytes, names: Sequence[str], most: int) -> Iterator[tuple[int, int]]:
    for member in form.form_members(content, most) if names else ():
        if _is_named(names, member.name):
            yield member.start, member.end


def _is_named(names: Sequence[str], name: str) -> bool:
    return any(form.pattern_matches(one, name) for one in names)


def cut_out(text: bytes, spans: Iterable[tuple[int, int]]) -> bytes:
    """A text without what stands there; what stood round it stays apart."""
    rest, at = [], 0
    for start, end in sorted(spans):
        if end > start:
            rest.append(text[at:start])
            at = max(at, end)
    rest.append(text[at:])
    return b'"'.join(rest)


def _parameters(target: bytes) -> bytes:
    """The parameters of path and query, parted by ``&``: some applications put both together."""
    start, end = query_span(target)
    query = target[start:end].replace(b";", b"&")  # some applications part them so
    path = unquote_to_bytes(unquote_to_bytes(target.partition(b"?")[0]))
    in_path = [one for part in path.split(b"/") for one in part.split(b";")[1:]]
    return b"&".join([*in_path, query])


class WriteAddress:
    """Looks for parameters of a write that are called like members of its body.

    Applications that put query and body together take a value out of either, and the rule swaps
    those of the body. A read that has such a parameter searches: it is reported.
    """

    def __init__(self, operation: Operation, report: Callable[[str, str], None]) -> None:
        """``report``: called with the field and the place, if findings are reported only."""
        self._operation = operation
        self._report = report
        body = operation.request.body
        writes = operation.verb in (Verb.CREATE, Verb.UPDATE)
        writes = writes and operation.endpoint.on_error.guard != "off"
        self._ways = dict(_called(body)) if writes and body is not None else {}
        self._patterns = {way[0]: way for way in self._ways if "*" in way[0]}
        self._others = operation.request.passed.query
        ident = operation.id
        if ident is not None and ident.source is IdSource.QUERY:
            self._others += (ident.name,)
        self._others += tuple(one.name for one in operation.when if one.source == "query")

    def check(self, target: bytes) -> None:
        """Raise ``VaultError`` (VALUE_ELSEWHERE) for such a parameter, unless only reporting."""
        if not self._ways or BEFORE_PARAMETERS.search(target) is None:
            return
        for member in form.form_members(_parameters(target), MOST_QUERY):
            if member.end == member.start or _is_named(self._others, member.name):
                continue
            if (way := self._way(member.name)) is not None:
                self._tell(way)
                return

    def _way(self, name: str) -> _Way | None:
        """The way to a member of the body that a parameter may be taken for."""
        way = _way_of(name)
        for steps in range(1, len(way) + 1):
            if way[:steps] in self._ways:
                return way[:steps]
        loose = {form.loose_pattern(name), form.loose_pattern(form.worded(name))}
        fits = (one for one in self._patterns if any(map(form.resembling(one).fullmatch, loose)))
        return self._patterns[one] if (one := next(fits, None)) is not None else None

    def _tell(self, way: _Way) -> None:
        field, where = self._ways[way], f"the parameter {'.'.join(way)} of the address"
        if self._operation.endpoint.on_error.guard == "report":
            self._report(field, where)
            return
        raise VaultError(
            Code.VALUE_ELSEWHERE,
            f"The request matches {self._operation.label}, and {where} is called like a member of "
            f"its body that holds {field}: send it in the body, or name the parameter under query "
            "with pass: true where it holds nobody's data.",
            (Detail(where, field),),
        )


def _called(body: BodyPlace) -> Iterator[tuple[_Way, str]]:
    """Ways to members, whole and by the last name alone, with their fields."""
    for name, field in {**body.form, **body.multipart}.items():
        way = (form.loose_pattern(name),) if "*" in name else _way_of(name)
        if way != _ANY:
            yield from ((one, field) for one in (way, way[-1:]))
    start = body.objects or ()
    paths: list[tuple[Path, str]] = [
        *((start + path, field) for field, path in body.fields.items()),
        *((path, field) for field, path in body.anchored.items()),
        *(inner for text in body.texts for inner in text.fields),
    ]
    for path, field in paths:
        way = tuple(form.loose_form_name(step) for step in path if isinstance(step, str))
        if way:  # the whole body is called by no name
            yield from ((one, field) for one in (way, way[-1:]))


def _way_of(name: str) -> _Way:
    """The names that a name writes out: ``person[name][]`` is a way of two."""
    steps = [step for step in pieces(name) if step and not step.isdigit()]
    return tuple(map(form.loose_form_name, steps or [name]))
