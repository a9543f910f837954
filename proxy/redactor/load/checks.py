"""Checks across operations and files, and the warnings that ``rules check`` prints."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from proxy.model.path import Path, Step, spell
from proxy.model.schema import Schema
from proxy.redactor.load.entities import Draft, needs_record
from proxy.redactor.load.faults import Faults
from proxy.redactor.rules import Endpoint, Operation, OtherKinds, PassRule, Position, Rule, RuleTest, Unmatched, Verb
from proxy.tokenization.base import Resolution


@dataclass(frozen=True, slots=True)
class FileRules:
    """Everything one file says, compiled."""

    endpoint: Endpoint
    at: Position  #: of ``endpoint:``
    entities: tuple[Draft, ...]
    operations: tuple[Operation, ...]
    tests: tuple[RuleTest, ...]
    passed: tuple[PassRule, ...] = ()

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All that ``operations`` holds."""
        return (*self.operations, *self.passed)


def check_files(files: Sequence[FileRules], faults: Faults) -> None:
    """Note what contradicts between files: endpoints, and schemas that are not the same everywhere."""
    for one, other in combinations(files, 2):
        _check_endpoints(one, other, faults)
    seen: dict[str, tuple[Schema, Position]] = {}
    for draft in (draft for file in files for draft in file.entities):
        name = draft.entity.schema.name.lower()
        first, at = seen.setdefault(name, (draft.entity.schema, draft.at))
        if first != draft.entity.schema:
            faults.add(
                draft.at,
                f"the schema '{draft.entity.schema.name}' is defined differently at {at}; make names, kinds, find and stored "
                f"of its fields the same, or give this entity a 'schema' of its own",
            )


def _check_endpoints(one: FileRules, other: FileRules, faults: Faults) -> None:
    first, second = one.endpoint, other.endpoint
    if first.name == second.name:
        faults.add(
            other.at,
            f"the endpoint '{first.name}' is already defined at {one.at}; put its operations there, or rename this one",
        )
    elif first.prefix == second.prefix and (first.hosts & second.hosts or first.hosts == second.hosts):
        faults.add(
            other.at,
            f"requests of '{second.name}' cannot be told from those of '{first.name}' at {one.at}; give each a 'host' or a "
            f"'prefix' of its own",
        )
    for wide, narrow in ((one, other), (other, one)):
        for operation in wide.rules:
            if _hidden(operation, narrow.endpoint):
                faults.add(
                    operation.position,
                    f"'{operation.label}' never matches: the prefix {narrow.endpoint.prefix} at {narrow.at} takes its "
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
    """What is allowed and seldom meant, as ``file:line:column: sentence``."""
    for file in files:
        if not file.operations:
            yield f"{file.at}: '{file.endpoint.name}' has no operations, so nothing of it is protected"
        used = {id(operation.entity.fields) for operation in file.operations}
        for draft in file.entities:
            yield from _field_warnings(draft)
            created = any(op.verb is Verb.CREATE and op.entity.name == draft.entity.name for op in file.operations)
            if created and all(needs_record(rule.shape) for rule in draft.entity.fields.values()):
                yield (
                    f"{draft.at}: no token of '{draft.entity.name}' tells whose it is, so a create whose answer gets lost is not "
                    f"found again; give one field a larger shape, such as opaque"
                )
            if file.operations and id(draft.entity.fields) not in used:
                yield f"{draft.at}: no operation names the entity '{draft.entity.name}', so nothing of it is protected"
        for operation in file.operations:
            yield from _descents(operation)
            yield from _unseen(operation)
            yield from _unnamed_success(operation)
        yield from _unread(file)
        yield from _plausible(file)
    yield from _shared_upstreams(files)


def _field_warnings(draft: Draft) -> Iterator[str]:
    for rule in draft.entity.fields.values():
        if rule.shape.resolution is Resolution.CLEAR:
            yield f"{draft.places[rule.name]}: the shape plain sends the value of {rule.name} itself to the application"


#: Shapes whose tokens are taken for values by whoever reads them.
_LOOKS_REAL: Final = {"date": "date", "numeric": "number", "luhn": "number", "zero": "number", "one": "number"}


def _plausible(file: FileRules) -> Iterator[str]:
    """Where people may see a false date or number and believe it, because nothing there tells whose it is."""
    for draft in file.entities:
        small = [
            rule for rule in draft.entity.fields.values() if needs_record(rule.shape) and rule.shape.name in _LOOKS_REAL
        ]
        own = [operation for operation in file.operations if operation.entity.fields is draft.entity.fields]
        for rule in small if own else ():
            where = list(_unresolved(own, file))
            if where:
                yield (
                    f"{draft.places[rule.name]}: {rule.name} has the token shape {rule.shape.name}, which looks like a "
                    f"{_LOOKS_REAL[rule.shape.name]} and is restored only beside the record's id: people would believe a false "
                    f"one {'; '.join(where)}. Write token: opaque where the application's column is text, which nobody takes for a "
                    f"{_LOOKS_REAL[rule.shape.name]} and which is restored anywhere"
                )


def _unresolved(operations: Sequence[Operation], file: FileRules) -> Iterator[str]:
    """The answers in which no record's id stands beside a token."""
    for operation in operations:
        if operation.response.anywhere:
            yield f"in the page of {operation.label}"
    if file.endpoint.on_error.upstream_not_2xx == "pass":
        yield "in errors, which 'upstream_not_2xx: pass' shows as they come"
    if file.endpoint.unmatched is not Unmatched.DENY:
        yield (
            "in pages, exports and aggregates that no rule names (an average age, a count by year), unless 'unmatched: deny' "
            "leaves none"
        )


def _unseen(operation: Operation) -> Iterator[str]:
    if operation.request.other_kinds is OtherKinds.PASS:
        yield (
            f"{operation.position}: 'other_kinds: pass' sends uploads and other bodies of {operation.label} to the application "
            "as they come, with every value they hold"
        )


def _unnamed_success(operation: Operation) -> Iterator[str]:
    rule = operation.response
    if operation.verb is Verb.READ and not (rule.anywhere or rule.conditions or 200 in rule.success):
        yield (
            f"{operation.position}: an answer of {operation.label} with status 200 is none of its 'success', so it shows nothing "
            "but what is stored of the record that the request names; for pages write response: {restore: anywhere}"
        )


def _descents(operation: Operation) -> Iterator[str]:
    sides = (("request", operation.request.body), ("answer", operation.response.body))
    for side, body in sides:
        paths: list[Path] = [] if body is None else [body.objects or (), *body.fields.values(), *body.anchored.values()]
        for path in paths:
            if Step.DEEP in path:
                yield (
                    f"{operation.position}: '..' in {spell(path)} reads every value of each {side} of {operation.label}, "
                    f"many times slower than a place that is named"
                )


def _unread(file: FileRules) -> Iterator[str]:
    """Paths whose values are taken in and never turned back."""
    read = {rule.template for rule in file.rules if "GET" in rule.methods}
    for operation in file.operations:
        body = operation.request.body
        writes = operation.verb in (Verb.CREATE, Verb.UPDATE) and body is not None and body.objects is not None
        if writes and operation.template not in read:
            read.add(operation.template)
            yield (
                f"{operation.position}: {operation.label} is ruled and GET {operation.template} is not; if the application "
                f"answers that, callers see tokens in it"
            )


def _shared_upstreams(files: Sequence[FileRules]) -> Iterator[str]:
    for one, other in combinations(files, 2):
        if one.endpoint.upstream == other.endpoint.upstream:
            yield (
                f"{other.at}: '{other.endpoint.name}' sends to the same application as '{one.endpoint.name}'; the rules of "
                f"one do not apply to requests of the other"
            )
