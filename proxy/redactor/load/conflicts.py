"""Checks across operations and files, and the warnings that ``rules check`` prints."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from proxy.model.schema import Path, PathStep, Schema, spell
from proxy.redactor.forks import each_operation
from proxy.redactor.load.body_places import unrestored, unseen
from proxy.redactor.load.entities import EntityDraft, lacks_word, needs_record
from proxy.redactor.load.objects import unshown
from proxy.redactor.load.shown_names import scattered_fields
from proxy.redactor.load.vault_questions import misordered, unfindable
from proxy.redactor.load.when import are_told_apart
from proxy.redactor.load.yaml_tree import RuleFaults
from proxy.redactor.path_template import (
    PathTemplate,
    SegmentKind,
    TemplateSegment,
    covers,
    meet,
    overlaps,
    parse_template,
)
from proxy.redactor.rules import (
    Endpoint,
    Operation,
    PassRule,
    Position,
    Restore,
    Rule,
    RuleTest,
    Unmatched,
    Verb,
)
from proxy.tokenization import SHAPES
from proxy.tokenization.base import Resolution


@dataclass(frozen=True, slots=True)
class FileRules:
    """Everything one file says, compiled."""

    endpoint: Endpoint
    at: Position  #: of ``endpoint:``
    entities: tuple[EntityDraft, ...]
    operations: tuple[Operation, ...]
    tests: tuple[RuleTest, ...]
    passed: tuple[PassRule, ...] = ()

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All that ``operations`` holds."""
        return (*self.operations, *self.passed)


def check_conflicts(files: Sequence[FileRules], faults: RuleFaults) -> None:
    """Note contradictions between files: endpoints, and schemas that differ."""
    for one, other in combinations(files, 2):
        _check_endpoints(one, other, faults)
    schemas: dict[str, tuple[Schema, Position]] = {}
    for draft in (draft for file in files for draft in file.entities):
        name = draft.entity.schema.name.lower()
        first, at = schemas.setdefault(name, (draft.entity.schema, draft.at))
        if first != draft.entity.schema:
            faults.add(
                draft.at,
                f"the schema '{draft.entity.schema.name}' is defined differently at {at}; make "
                "names, kinds, find and stored "
                f"of its fields the same, or give this entity a 'schema' of its own",
            )


def _check_endpoints(one: FileRules, other: FileRules, faults: RuleFaults) -> None:
    first, second = one.endpoint, other.endpoint
    if first.name == second.name:
        faults.add(
            other.at,
            f"the endpoint '{first.name}' is already defined at {one.at}; put its operations "
            "there, or rename this one",
        )
    elif first.prefix == second.prefix and (
        first.hosts & second.hosts or first.hosts == second.hosts
    ):
        faults.add(
            other.at,
            f"requests of '{second.name}' cannot be told from those of '{first.name}' at {one.at}; "
            "give each a 'host' or a 'prefix' of its own",
        )
    for wide, narrow in ((one, other), (other, one)):
        for operation in wide.rules:
            if _hidden(operation, narrow.endpoint):
                faults.add(
                    operation.position,
                    f"'{operation.label}' never matches: the prefix {narrow.endpoint.prefix} at "
                    f"{narrow.at} takes its "
                    f"requests to '{narrow.endpoint.name}'; put the operation there",
                )


def _hidden(operation: Rule, narrow: Endpoint) -> bool:
    """Whether every request of the operation goes to the other endpoint, whose prefix is longer."""
    wide = operation.endpoint
    same_hosts = not narrow.hosts if not wide.hosts else wide.hosts <= narrow.hosts
    longer = len(narrow.prefix) > len(wide.prefix)
    inside = f"{operation.template}/".startswith(f"{narrow.prefix}/")
    return bool(narrow.prefix) and same_hosts and longer and inside


def warnings(files: Sequence[FileRules]) -> Iterator[str]:
    """Yield warnings of legal but unlikely rules, as ``file:line:column: sentence``."""
    for file in files:
        if not file.operations:
            yield f"{file.at}: '{file.endpoint.name}' has no operations: nothing of it is protected"
        every = [*each_operation(file.operations)]
        used = {id(operation.entity.fields) for operation in every}
        for draft in file.entities:
            yield from _field_warnings(draft)
            yield from _scattered(draft, every)
            name = draft.entity.name
            created = any(op.verb is Verb.CREATE and op.entity.name == name for op in every)
            if created and all(needs_record(rule.shape) for rule in draft.entity.fields.values()):
                yield (
                    f"{draft.at}: no token of '{draft.entity.name}' tells whose it is, so a "
                    "create whose answer gets lost is not "
                    f"found again; give one field a larger shape, such as opaque"
                )
            if file.operations and id(draft.entity.fields) not in used:
                yield (
                    f"{draft.at}: no operation names the entity '{draft.entity.name}', so "
                    "nothing of it is protected"
                )
        for operation in every:
            yield from _descents(operation)
            yield from _other_format(operation)
            yield from unseen(operation)
            yield from _unnamed_success(operation)
        for operation in file.operations:
            yield from unshown(operation)
        yield from _other_ways(file)
        yield from unfindable(every)
        yield from misordered(file.operations)
        for operation in unrestored(file.rules):
            yield (
                f"{operation.position}: {operation.label} is ruled and GET {operation.template} is "
                "not; if the application answers that, callers see tokens in it"
            )
        yield from _plausible(file)
    yield from _shared_upstreams(files)


def _field_warnings(draft: EntityDraft) -> Iterator[str]:
    for rule in draft.entity.fields.values():
        if rule.shape.resolution is Resolution.CLEAR:
            yield (
                f"{draft.places[rule.name]}: the shape plain sends the value of {rule.name} "
                "itself to the application"
            )


def _scattered(draft: EntityDraft, operations: Iterable[Operation]) -> Iterator[str]:
    """Warn of steps of a form that make a record each, so that none tells whose date it is."""
    for name, one, other in scattered_fields(draft.entity, operations):
        yield (
            f"{one.position}: {one.label} and {other.label} create a record each, and a token of "
            f"{name} is told by its record alone: if they are steps of one form, no value of "
            f"{name} is shown beside the rest of the person; write token: {{shape: opaque, same: "
            "true} where the application's column is text, or have the last step send all of it"
        )


#: Endings of paths by what restores such an answer; empty: nothing does.
_FORMATS: Final = {".csv": "csv", ".htm": "html", ".html": "html", ".txt": "text"} | dict.fromkeys(
    (".doc", ".docx", ".ics", ".ods", ".odt", ".pdf", ".rtf", ".vcf", ".xls", ".xlsx", ".xml"), ""
)


def _plausible(file: FileRules) -> Iterator[str]:
    """Warn of unresolved tokens that people would take for a real date or number."""
    for draft in file.entities:
        unresolved = [*_unresolved(draft, file)]
        where, pages = "; ".join(unresolved), [one for one in unresolved if "the page" in one]
        for rule in draft.entity.fields.values() if where else ():
            if pages and lacks_word(rule.shape):
                yield (
                    f"{draft.places[rule.name]}: {rule.name} has the token shape "
                    f"{rule.shape.name}, and people would believe the tokens of short numbers "
                    f"{'; '.join(pages)}. Write token: {{shape: {rule.shape.name}, else: opaque}}, "
                    "by which those get a word"
                )
            parser = SHAPES[rule.shape.name]
            real, larger = parser.looks_like, parser.larger
            if real and needs_record(rule.shape):
                yield (
                    f"{draft.places[rule.name]}: {rule.name} has the token shape "
                    f"{rule.shape.name}, which looks like a {real} and is restored only beside the "
                    f"record's id: people would believe a false one {where}. Write token: opaque "
                    f"where the application's column is text, which nobody takes for a {real} and "
                    f"which is restored anywhere{larger and f'; or {larger}'}"
                )


def _unresolved(draft: EntityDraft, file: FileRules) -> Iterator[str]:
    """Return the answers in which tokens of the entity stand without a record's id."""
    fields = draft.entity.fields
    own = [one for one in each_operation(file.operations) if one.entity.fields is fields]
    for operation in own:
        if operation.response.restore is Restore.ANYWHERE:
            yield f"in the page of {operation.label}"
    if own and file.endpoint.on_error.upstream_not_2xx == "pass":
        yield "in errors, which 'upstream_not_2xx: pass' shows as they come"
    if file.endpoint.unmatched is not Unmatched.DENY:
        for operation in unrestored(file.rules):
            if operation.entity.fields is draft.entity.fields:
                yield f"in the answer to GET {operation.template}, which no rule names"


def _unnamed_success(operation: Operation) -> Iterator[str]:
    rule = operation.response
    if operation.verb is Verb.READ and not (
        rule.restore is not Restore.NAMED or rule.conditions or 200 in rule.success
    ):
        yield (
            f"{operation.position}: an answer of {operation.label} with status 200 is none of its "
            "'success', so it shows nothing but what is stored of the record that the request "
            "names; for pages write response: {restore: anywhere}"
        )


def _other_format(operation: Operation) -> Iterator[str]:
    """Warn of a read whose path says that its answer is neither JSON nor a form."""
    rule, path = operation.response, operation.template.lower()
    named = rule.restore is Restore.NAMED and rule.stream is None and operation.verb is Verb.READ
    if named and (kind := _FORMATS.get(path[path.rfind(".") :])) is not None:
        remedy = f"write response: {{restore: {kind}}}" if kind else "nothing restores them there"
        yield (
            f"{operation.position}: an answer of {operation.label} that is neither JSON nor a form "
            f"shows tokens; {remedy}"
        )


def _descents(operation: Operation) -> Iterator[str]:
    for side, body in (("request", operation.request.body), ("answer", operation.response.body)):
        paths: list[Path] = (
            []
            if body is None
            else [body.objects or (), *body.fields.values(), *body.anchored.values()]
        )
        for path in paths:
            if PathStep.DEEP in path:
                yield (
                    f"{operation.position}: '..' in {spell(path)} reads every value of each {side} "
                    f"of {operation.label}, many times slower than a place that is named"
                )


def _other_ways(file: FileRules) -> Iterator[str]:
    """Addresses of GraphQL where an operation in the address would pass."""
    read = {rule.template for rule in file.rules if "GET" in rule.methods}
    for operation in file.operations:
        denied = file.endpoint.unmatched is Unmatched.DENY
        if operation.graph and not denied and operation.template not in read:
            yield (
                f"{operation.position}: {operation.label} is read, and a GraphQL operation in the "
                f"address of a GET passes with its values; write match: GET|POST "
                f"{operation.template}, which refuses that"
            )


def _shared_upstreams(files: Sequence[FileRules]) -> Iterator[str]:
    for one, other in combinations(files, 2):
        if one.endpoint.upstream == other.endpoint.upstream:
            yield (
                f"{other.at}: '{other.endpoint.name}' sends to the same application as "
                f"'{one.endpoint.name}'; the rules of one do not apply to requests of the other, "
                "and what only one names is refused at the other"
            )


# Rules that match the same request: order never matters, so a tie must be settled in the file.
#
# Of two templates that match a common path, one must match a part of the other's paths, or a third
# rule must match exactly the common part. The search for such pairs walks a tree of segments, so
# ten thousand rules load in a second.

_Shape = tuple[tuple[SegmentKind, str], ...]


class _Tree:
    """Operations of one method by the shapes of their segments, so that look-up is one step."""

    def __init__(self) -> None:
        self.literals: dict[str, _Tree] = {}
        self.wide: dict[tuple[SegmentKind, str], _Tree] = {}
        self.here: list[tuple[PathTemplate, Rule]] = []

    def add(self, template: PathTemplate, operation: Rule) -> None:
        node = self
        for kind, text in template.shape:
            if kind is SegmentKind.LITERAL:
                node = node.literals.setdefault(text, _Tree())
            else:
                node = node.wide.setdefault((kind, text), _Tree())
        node.here.append((template, operation))

    def everything(self) -> Iterator[tuple[PathTemplate, Rule]]:
        yield from self.here
        for child in (*self.literals.values(), *self.wide.values()):
            yield from child.everything()

    def near(self, segments: tuple[TemplateSegment, ...]) -> Iterator[tuple[PathTemplate, Rule]]:
        """Yield candidates for paths that these segments match; ``overlaps`` then decides."""
        if not segments:
            yield from self.here
            return
        first = segments[0]
        if first.kind is SegmentKind.REST:
            yield from self.everything()
            return
        for (kind, _), child in self.wide.items():
            yield from child.here if kind is SegmentKind.REST else child.near(segments[1:])
        if first.kind is SegmentKind.LITERAL:
            same = self.literals.get(first.text)
            yield from same.near(segments[1:]) if same else ()
        else:
            for child in self.literals.values():
                yield from child.near(segments[1:])


def check_rivals(
    operations: Iterable[Rule], places: dict[int, Position], faults: RuleFaults
) -> None:
    """Note every tie between operations of one endpoint; ``places``: each ``match`` by ``id``."""
    trees: dict[str, _Tree] = {}
    shapes: dict[str, set[_Shape]] = {}
    entries = [(parse_template(operation.template), operation) for operation in operations]
    for template, operation in entries:
        for method in operation.methods:
            trees.setdefault(method, _Tree()).add(template, operation)
            shapes.setdefault(method, set()).add(template.shape)
    for template, operation in entries:
        for method in operation.methods:
            before = [
                rival
                for rival in trees[method].near(template.segments)
                if _order(rival[1], places) < _order(operation, places)
                and not (template.shape == rival[0].shape and are_told_apart(operation, rival[1]))
            ]
            ties = (_tie(method, template, rival, shapes[method]) for rival in before)
            for text in filter(None, ties):
                faults.add(places[id(operation)], text)


def _order(operation: Rule, places: dict[int, Position]) -> tuple[int, int]:
    return places[id(operation)].line, places[id(operation)].column


def _tie(
    method: str, template: PathTemplate, other: tuple[PathTemplate, Rule], shapes: set[_Shape]
) -> str | None:
    rival, operation = other
    line = operation.position.line
    if not overlaps(template, rival):
        return None
    if template.shape == rival.shape:
        return (
            f"'{operation.label}' in line {line} names the same requests ({method}); keep one of "
            "the two"
        )
    if covers(template, rival) or covers(rival, template):
        return None
    common = meet(template, rival)
    if common is not None and common in shapes:
        return None
    advice = (
        f"add a rule for {method} {_spelled(common)}"
        if common is not None
        else "make one of the two paths longer"
    )
    return (
        f"'{operation.label}' in line {line} matches some of the same requests and neither is "
        f"more specific; {advice}"
    )


def _spelled(shape: _Shape) -> str:
    out = ""
    for number, (kind, text) in enumerate(shape, start=1):
        placeholder = f"{{p{number}*}}" if kind is SegmentKind.REST else f"{{p{number}}}"
        out += "/" + (
            text.replace("*", placeholder)
            if kind in (SegmentKind.LITERAL, SegmentKind.MIXED)
            else placeholder
        )
    return out or "/"
