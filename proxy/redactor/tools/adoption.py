"""Plan to adopt an application that holds data already, or to release it again.

Chooses the application's operations that list, read and update an entity. Pure: sends no request.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from proxy.errors import Code, VaultError
from proxy.model.schema import PathStep
from proxy.redactor.forks import each_operation
from proxy.redactor.json.tree import read_json_value
from proxy.redactor.jsonpath import parse_jsonpath
from proxy.redactor.path_template import parse_template
from proxy.redactor.routing import Router
from proxy.redactor.rules import (
    Endpoint,
    Entity,
    IdSource,
    Match,
    Operation,
    PatchKind,
    RuleSet,
    Verb,
)
from proxy.redactor.select import Selection
from proxy.redactor.tools.adoption_messages import ListTarget, operation_parts, plan_messages
from proxy.redactor.tools.adoption_records import (
    RecordReader,
    WalkPlan,
    WrittenPlace,
    content_type_of,
    preference,
)
from proxy.redactor.tools.explain import find_operation
from proxy.redactor.views import Level, view_of


class WalkChoice(NamedTuple):
    """Choices of an operator that the rules leave open."""

    entity: str = ""
    endpoint: str = ""
    target: str = ""  #: the address of the list, with what its query should say


def plan_walk(rules: RuleSet, choice: WalkChoice) -> WalkPlan:
    """The operations for a walk.

    Raises ``VaultError(BAD_RULES)`` that says which one the rules do not name, and why those that
    are there do not serve.
    """
    endpoint, entity = _subject(rules, choice)
    operations = [
        one
        for one in rules.operations
        if one.endpoint is endpoint
        and not (one.graph or one.envelope)
        and any(part.entity is entity for part in operation_parts(one))
    ]
    single = [one for one in operations if not one.parts]
    every = [part for one in operations for part in operation_parts(one) if part.entity is entity]
    named = _named_list(rules, operations, choice.target) if choice.target else None
    # a PUT of one of several objects may drop the others
    every = [
        one for one in every if one in single or one.verb is Verb.READ or "PATCH" in one.methods
    ]
    ways = [
        partial(_plan_records, single, entity, named),
        partial(plan_messages, operations, entity, named),
        partial(_plan_records, every, entity, named),
    ]
    if named is not None and named.operation.parts:  # the list of messages was named on purpose
        ways = ways[1:]
    reasons: dict[str, None] = {}
    for way in ways:
        try:
            return _with_steps(way(), operations)
        except VaultError as error:
            reasons.setdefault(error.message)
    raise VaultError(Code.BAD_RULES, " ".join(reasons))


def _plan_records(
    operations: Sequence[Operation], entity: Entity, named: ListTarget | None
) -> WalkPlan:
    """A walk from object to object of one entity, each by its own id."""
    listed, params, target = _listing(operations, named)
    ends = set(params)
    path = listed.template.rstrip("/")
    several = sorted(operations, key=lambda one: not one.template.startswith(path))
    reading = _first(several, "read one", lambda one: _why_not_read(one, ends))
    update = _first(
        sorted(several, key=lambda one: (one.template != reading.template, preference(one))),
        "update",
        lambda one: _why_not_update(one, ends),
    )
    body = update.request.body
    written = WrittenPlace(
        tuple(map(str, (body and body.objects) or ())),
        frozenset(one[0] for one in body.fields.values()) if body else frozenset(),
    )
    ids = tuple(one.id.name if one.id else "" for one in (reading, update))
    readers = RecordReader(listed), RecordReader(reading)
    return WalkPlan(
        (entity,), entity.fields, *readers, update, written, (ids[0], ids[1]), target, params
    )


def _with_steps(plan: WalkPlan, operations: Iterable[Operation]) -> WalkPlan:
    """The plan with what is done by each operation on its entities."""
    used = {
        plan.listing.operation.label: _listed(plan),
        plan.reading.operation.label: "reads one",
        plan.update.label: f"writes again: {_written(plan)}",
    }
    steps: dict[str, str] = {}
    for one in operations:
        shows = one.verb is Verb.READ and "GET" in one.methods and one.label not in used
        lists = shows and any(map(_lists, operation_parts(one)))
        other = (
            "not used; if the application keeps values of its own there, go through it with --list"
            if lists
            else "not used"
        )
        steps[one.label] = used.get(one.label, other)
    return replace(plan, steps=tuple(steps.items()))


def _listed(plan: WalkPlan) -> str:
    body = plan.listing.operation.response.body
    nested = body is not None and (body.objects or ())[-1:] not in ((), (PathStep.EACH,))
    if not nested:
        return "lists them"
    return "lists them within other records, whose own copies of values stay as they are"


def _written(plan: WalkPlan) -> str:
    if plan.whole:
        return "the whole object, as it was read"
    return ", ".join(sorted(map(str, plan.written.members)))


def clear_for(plan: WalkPlan, role: str) -> bool:
    """Whether callers of a role see every value of the entities."""
    views = plan.endpoint.views
    levels = view_of(views, {role}).levels
    return not views or all(
        levels.get(entity.name, {}).get(one) is Level.CLEAR
        for entity in plan.entities
        for one in entity.fields
    )


def _subject(rules: RuleSet, choice: WalkChoice) -> tuple[Endpoint, Entity]:
    pairs = {
        (one.endpoint.name, one.entity.name): (one.endpoint, one.entity)
        for one in each_operation(rules.operations)
    }
    fits = [
        names
        for names in pairs
        if choice.endpoint in ("", names[0]) and choice.entity in ("", names[1])
    ]
    if len(fits) == 1:
        return pairs[fits[0]]
    there = ", ".join(f"{entity} of {endpoint}" for endpoint, entity in sorted(fits or pairs))
    if not pairs:
        text = "The rules name no operation on an entity: there is nothing to go through."
    elif fits:
        text = f"The rules name several entities: {there}. Name one, and its --endpoint."
    else:
        text = f"The rules name no such entity; there are: {there}."
    raise VaultError(Code.BAD_RULES, text)


def _named_list(rules: RuleSet, operations: Sequence[Operation], target: str) -> ListTarget:
    """The list that the operator has named by an address."""
    path = target.partition("?")[0]
    hosts = min(operations[0].endpoint.hosts, default="")
    rule = find_operation(rules, "GET", path, hosts).rule
    if not isinstance(rule, Operation) or rule not in operations:
        raise VaultError(Code.BAD_RULES, _no_list(path))
    match = Router([rule], [rule.endpoint]).match("GET", hosts, path.encode())
    return ListTarget(rule, match.params if isinstance(match, Match) else {}, target)


def _no_list(path: str) -> str:
    return (
        f"GET {path} is no list of this entity by the rules: an operation that reads it, "
        "with response: {each: …, id: …}."
    )


def _listing(operations: Sequence[Operation], named: ListTarget | None) -> ListTarget:
    lists = [one for one in operations if one.verb is Verb.READ and _lists(one)]
    if named is not None:
        own = [one for one in lists if one in operation_parts(named.operation)]
        if not own:
            raise VaultError(Code.BAD_RULES, _no_list(named.address.partition("?")[0]))
        return named._replace(operation=own[0])
    ready = [one for one in lists if not parse_template(one.template).names]
    if not ready:
        text = (
            f"The path of the list {lists[0].label} has placeholders: name one with --list."
            if lists
            else "The rules name no list of this entity: an operation that reads it, answers JSON "
            "and has response: {each: …, id: …}."
        )
        raise VaultError(Code.BAD_RULES, text)
    # a list of suggestions or of an archive has no records of its own below it
    first = max(ready, key=lambda one: _records_below(one, operations))
    return ListTarget(first, {}, first.template)


def _records_below(listed: Operation, operations: Iterable[Operation]) -> int:
    """The operations on one record below the path of a list; the first of equals is taken."""
    below = f"{listed.template.rstrip('/')}/{{"
    return sum(one.template.startswith(below) for one in operations)


def _lists(operation: Operation) -> bool:
    rule = operation.response
    ident = rule.id
    return (
        "GET" in operation.methods
        and rule.body is not None
        and rule.body.objects is not None
        and rule.body.each
        and not rule.body.anchored
        and rule.stream is None
        and (ident is None or (ident.source is IdSource.BODY and not ident.absolute))
        and not operation.when
    )


def _first(
    operations: Iterable[Operation], what: str, why_not: Callable[[Operation], str | None]
) -> Operation:
    """The first operation that serves; the reasons of the others where none does."""
    reasons: list[str] = []
    for one in operations:
        reason = why_not(one)
        if reason is None:
            return one
        if reason:
            reasons.append(f" {one.label}: {reason}.")
    raise VaultError(
        Code.BAD_RULES, f"The rules name no operation to {what} of this entity.{''.join(reasons)}"
    )


def _why_not_read(operation: Operation, params: set[str]) -> str | None:
    """``None`` where it serves; an empty text where it is another kind of operation."""
    body = operation.response.body
    if operation.verb is not Verb.READ or "GET" not in operation.methods or operation.when:
        return ""
    if operation.id is None or operation.id.source is not IdSource.PATH:
        return ""
    if body is None or body.objects is None or body.each:
        return "its rule names no JSON object in its answer"
    return (
        "it names places outside of the object" if body.anchored else _unfilled(operation, params)
    )


def _why_not_update(operation: Operation, params: set[str]) -> str | None:
    if operation.verb is not Verb.UPDATE:
        return ""
    body = operation.request.body
    if body is None or body.objects is None or body.each:
        several = "several objects in one body, and may drop those that a body lacks"
        return f"it takes {several if body and body.each else 'no JSON object'}"
    if body.anchored:
        return "it names places outside of the object"
    if operation.request.patch not in (None, PatchKind.MERGE):
        return f"it takes changes of the kind {operation.request.patch}"
    if operation.id is None or operation.id.source is not IdSource.PATH:
        return "its id stands outside of its path"
    if any(not isinstance(step, str) for step in body.objects):
        return "it takes several objects"
    if content_type_of(operation) is None:
        return "it serves under conditions alone"
    if "PATCH" in operation.methods and not all(
        isinstance(path[0], str) for path in body.fields.values()
    ):
        return "a field may lie anywhere in its object"
    return _unfilled(operation, params)


def _unfilled(operation: Operation, params: set[str]) -> str | None:
    names = set(parse_template(operation.template).names)
    ends = {operation.id.name} if operation.id is not None else set()
    missing = names - params - ends
    return (
        f"its path has a placeholder {{{min(missing)}}} that the list has not" if missing else None
    )


class JsonPlace:
    """A place in bodies of JSON, such as that of the next page; ``ValueError``: it is none."""

    def __init__(self, text: str) -> None:
        path = parse_jsonpath(text)
        self.single = all(isinstance(step, str | int) for step in path)  #: one value at most
        self._find = Selection(None, (), [path]).find

    def value(self, body: bytes) -> str | None:
        """The text there; an empty one for null, ``None`` where there is no such place."""
        try:
            leaves = self._find(body).anchored
        except VaultError:
            return None
        if not leaves:
            return None
        value = read_json_value(body[leaves[0].start : leaves[0].end])
        return "" if value is None else value.text
