"""Plan to adopt or release values in messages that hold objects with ids of their own, such as an
order with a customer and a courier.

The message is listed, read and updated by its own id, and each object in it belongs to a record of
its own. Pure: sends no request.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from proxy.errors import Code, VaultError
from proxy.model.schema import Path, PathStep
from proxy.redactor.path_template import parse_template
from proxy.redactor.rules import BodyPlace, Entity, IdSource, Operation, PatchKind, Verb
from proxy.redactor.tools.adoption_records import (
    NestedRecordReader,
    WalkPlan,
    WrittenPlace,
    content_type_of,
    preference,
)


class ListTarget(NamedTuple):
    """The list that an operator has named: its operation, its placeholders and its address."""

    operation: Operation
    params: Mapping[str, str]
    address: str


class _Message(NamedTuple):
    """Place of a message in the answers of list and read and in the body of the update."""

    listed: Path
    read: Path
    written: Path


def operation_parts(operation: Operation) -> tuple[Operation, ...]:
    """The operations on single objects that an operation of the rules has."""
    return operation.parts or (operation,)


def plan_messages(
    operations: Sequence[Operation], entity: Entity, named: ListTarget | None
) -> WalkPlan:
    """A walk from message to message. Raises ``VaultError(BAD_RULES)`` with what is in the way."""
    reasons: list[str] = []
    lists = [one for one in operations if _lists(one)]
    if named is not None:
        lists = [one for one in lists if one is named.operation]
    for listing in lists:
        params = {} if named is None else named.params
        if parse_template(listing.template).names and not params:
            reasons.append(f" {listing.label}: its path has placeholders: name one with --list.")
            continue
        target = ListTarget(listing, params, named.address if named else listing.template)
        plans = _plans(operations, entity, target, reasons)
        if (plan := next(plans, None)) is not None:
            return plan
    text = "Nor do they name a list, a read and an update of messages that hold it, by one id."
    raise VaultError(Code.BAD_RULES, text + "".join(dict.fromkeys(reasons)))


def _plans(
    operations: Sequence[Operation], entity: Entity, target: ListTarget, reasons: list[str]
) -> Iterator[WalkPlan]:
    """Each walk by one list; why there is none goes to ``reasons``."""
    reads = [one for one in operations if _reads(one) and _own_id(one, target.params)]
    if not reads:
        reasons.append(f" {target.operation.label}: no operation reads one of what it lists.")
    updates = sorted((one for one in operations if _updates(one)), key=preference)
    for update in updates:
        reason = _why_not(update, target.params) or ("" if reads else "nothing reads one")
        for read in () if reason else reads:
            message = _message(target.operation, read, update)
            if message is None or not any(one.entity is entity for one in operation_parts(update)):
                reason = f"its objects are not those of {read.label} and {target.operation.label}"
                continue
            yield _plan(target, read, update, message)
        if reason:
            reasons.append(f" {update.label}: {reason}.")


def _plan(target: ListTarget, read: Operation, update: Operation, message: _Message) -> WalkPlan:
    parts = operation_parts(update)
    objects = {(one.entity.name, _object(one)[len(message.written) :]) for one in parts}

    def reader(operation: Operation, start: Path) -> NestedRecordReader:
        own = [
            one
            for one in operation_parts(operation)
            if (one.entity.name, _answered(one)[len(start) :]) in objects
        ]
        return NestedRecordReader(operation, own, start)

    entities = {one.entity.name: one.entity for one in parts}
    fields = {
        f"{name}.{field}": rule
        for name, one in entities.items()
        for field, rule in one.fields.items()
    }
    ids = _own_id(read, target.params), _own_id(update, target.params)
    members = {path[len(message.written)] for one in parts for path in _places(one)}
    return WalkPlan(
        tuple(entities.values()),
        fields,
        reader(target.operation, message.listed),
        reader(read, message.read),
        update,
        WrittenPlace(tuple(map(str, message.written)), frozenset(members)),
        ids,
        target.address,
        target.params,
    )


def _message(listing: Operation, read: Operation, update: Operation) -> _Message | None:
    """The place of the message in the three, by what they agree on below it; ``None`` for none."""
    parts = operation_parts(update)
    first = parts[0]
    for step in range(len(_object(first)) + 1):  # the nearest place to the root first
        start = _object(first)[:step]
        below = [(one.entity.name, _object(one)[step:]) for one in parts]
        if any(_object(one)[:step] != start for one in parts) or not _all_names(start):
            return None
        if any(path[:step] != start for one in parts for path in _places(one)):
            continue
        listed, single = _start(listing, below), _start(read, below)
        if listed is None or single is None:
            continue
        if listed[-1:] == (PathStep.EACH,) and _all_names(single):
            return _Message(listed, single, start)
    return None


def _start(operation: Operation, below: Sequence[tuple[str, Path]]) -> Path | None:
    """The start of a message in an answer that shows all these objects; ``None`` for nowhere."""
    objects = {(one.entity.name, _answered(one)) for one in operation_parts(operation)}
    name, path = below[0]
    for entity, whole in sorted(objects, key=str):
        start = whole[: len(whole) - len(path)]
        matches = entity == name and start + path == whole
        if matches and all((one, start + rest) in objects for one, rest in below):
            return start
    return None


def _all_names(path: Path) -> bool:
    return all(isinstance(step, str) for step in path)


def _object(operation: Operation) -> Path:
    body = operation.request.body
    return (body and body.objects) or ()


def _answered(operation: Operation) -> Path:
    body = operation.response.body
    return (body and body.objects) or ()


def _places(operation: Operation) -> Iterator[Path]:
    """The places that an update has to carry: an object's fields and its id, from the root."""
    body = operation.request.body
    yield from (_object(operation) + path for path in (body.fields.values() if body else ()))
    if operation.id is not None and operation.id.source is IdSource.BODY:
        yield operation.id.path if operation.id.absolute else _object(operation) + operation.id.path


def _readable(body: BodyPlace | None) -> bool:
    return body is not None and body.objects is not None and not body.anchored


def _shows(operation: Operation) -> bool:
    parts = operation_parts(operation)
    return (
        "GET" in operation.methods
        and not operation.when
        and all(one.verb is Verb.READ and one.response.stream is None for one in parts)
        and all(_readable(one.response.body) for one in parts)
    )


def _lists(operation: Operation) -> bool:
    return _shows(operation) and all(
        PathStep.EACH in _answered(one) for one in operation_parts(operation)
    )


def _reads(operation: Operation) -> bool:
    return _shows(operation) and not _lists(operation)


def _own_id(operation: Operation, params: Mapping[str, str]) -> str:
    """The placeholder that the list has not; empty unless there is exactly one."""
    names = set(parse_template(operation.template).names) - set(params)
    return names.pop() if len(names) == 1 else ""


def _why_not(operation: Operation, params: Mapping[str, str]) -> str:
    """The reason why an update writes no message again; empty where it does."""
    parts = operation_parts(operation)
    for one in parts:
        if one.verb is not Verb.UPDATE:
            return f"it is a {one.verb} of {one.entity.name} as well"
        if not _readable(one.request.body):
            return f"{one.entity.name} stands in no JSON object of it"
        if one.request.patch not in (None, PatchKind.MERGE):
            return f"it takes changes of the kind {one.request.patch}"
        if one.id is None or one.id.source not in (IdSource.PATH, IdSource.BODY):
            return f"the id of {one.entity.name} stands in neither its path nor its body"
        if not all(_all_names(path[:1]) for path in _places(one)):
            return f"{one.entity.name} may lie anywhere in it"
    names = [one.entity.schema.name for one in parts]
    several = {one.entity.schema.name for one in parts if not _all_names(_object(one))}
    if twice := sorted(name for name in several if names.count(name) > 1):
        return f"it changes several records of {twice[0]} in two places, which the proxy refuses"
    if content_type_of(operation) is None:
        return "it serves under conditions alone"
    if not _own_id(operation, params):
        return "its path has not one placeholder more than the list"
    return ""


def _updates(operation: Operation) -> bool:
    return any(one.verb is Verb.UPDATE for one in operation_parts(operation))
