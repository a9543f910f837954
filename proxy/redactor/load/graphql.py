"""``graphql:`` compiled: each record field of a schema as an operation on its values."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from proxy.model.schema import Path, PathStep
from proxy.redactor.load.deletes import keep_of
from proxy.redactor.load.entities import EntityDraft, find_entity, needs_record
from proxy.redactor.load.parsers import MatchPattern
from proxy.redactor.load.texts import known_field
from proxy.redactor.load.value_forms import PlacedValue, Section
from proxy.redactor.load.vault_questions import has_same_tokens, refusing
from proxy.redactor.load.yaml_tree import RuleFaults
from proxy.redactor.request_rules import SUCCESS, Condition, Parameter
from proxy.redactor.rules import (
    BodyPlace,
    Endpoint,
    Entity,
    GraphField,
    IdPlace,
    IdSource,
    Operation,
    RequestRule,
    ResponseRule,
    Verb,
)


def compile_graphql(
    section: Section,
    scope: tuple[Endpoint, Mapping[str, EntityDraft], RuleFaults],
    when: tuple[Condition, ...],
) -> Operation | None:
    """Compile the operation of a GraphQL address; ``None`` if its subject was at fault."""
    endpoint, entities, faults = scope
    elsewhere = (
        "'graphql' says what each field of the schema does; write '{key}' there, or leave it out"
    )
    section.allow(("match", "graphql", "persisted", "when"), faults, elsewhere)
    matched = section.value("match")
    if isinstance(matched, MatchPattern) and not {"POST"} <= {*matched.methods} <= {"GET", "POST"}:
        faults.add(
            section.position("match"),
            "GraphQL is read in the body of a POST; write POST, or GET|POST, which refuses what "
            "stands in the address",
        )
    items: Mapping[str, PlacedValue] = section.value("graphql", {})
    fields = [
        field
        for name, item in items.items()
        if isinstance(item.value, Section)
        and (field := _field(name, item, section, (endpoint, entities, faults)))
    ]
    passed = tuple(
        name
        for name, item in items.items()
        if isinstance(item.value, Section) and "pass" in item.value
    )
    if len(passed) == len(items):
        faults.add(
            section.key("graphql"),
            "no field shows or changes records; write 'pass: true' in place of 'graphql'",
        )
    if not fields or not isinstance(matched, MatchPattern):
        return None
    writes = any(one.operation.verb is not Verb.READ for one in fields)
    persisted: Mapping[str, PlacedValue] = section.value("persisted", {})
    return Operation(
        matched.label,
        endpoint,
        Verb.UPDATE if writes else Verb.READ,
        matched.methods,
        matched.template.text,
        fields[0].operation.entity,
        None,
        RequestRule(None),
        ResponseRule(None, None, SUCCESS, in_parts=True),
        section.at,
        when,
        (),
        tuple(fields),
        passed,
        tuple((key.lower(), one.value) for key, one in persisted.items() if one.value is not None),
    )


def _field(
    name: str,
    item: PlacedValue,
    section: Section,
    scope: tuple[Endpoint, Mapping[str, EntityDraft], RuleFaults],
) -> GraphField | None:
    endpoint, entities, faults = scope
    inner: Section = item.value
    if "pass" in inner:
        _refuse_beside_pass(inner, faults)
        return None
    verb, draft = _about(inner, entities, faults)
    if name.startswith("Subscription.") and verb not in (Verb.READ, None):
        faults.add(item.key, f"a subscription changes no record; write entity in place of {verb}")
    if verb is None or draft is None:
        return None
    entity = draft.entity
    rules = entity.fields.values()
    for rule in rules:
        if any(not isinstance(step, str) and step is not PathStep.EACH for step in rule.at):
            faults.add(
                item.key,
                f"{rule.name} of {entity.name} stands at any depth, which a GraphQL operation "
                "does not say; write its place with names and [*] alone",
            )
    ways = _ways(inner, (verb, entity, entities), faults)
    ident = inner.value("id") or "id"
    id_place = IdPlace(IdSource.BODY, path=("id",), absolute=True) if ways[1] else None
    at = {rule.name: rule.at for rule in rules}
    body = BodyPlace(("object",), False, at, {}, {}) if ways[0] else None
    if ways[2] and verb in (Verb.CREATE, Verb.UPDATE):
        flat = {one: (one, *_elements(entity.fields[one].at)) for one in ways[2].values()}
        body = BodyPlace(("object",), False, flat, {}, {})
    elif ways[2]:
        searched = {one: (one,) for one in dict.fromkeys(ways[2].values())}
        body = BodyPlace(("arguments",), False, searched, {}, {})
    operation = Operation(
        f"{section.value('match').label} {name}" if section.value("match") else name,
        endpoint,
        verb,
        ("POST",),
        "/",
        entity,
        id_place,
        RequestRule(body),
        ResponseRule(
            BodyPlace((), False, at, {}, {}), IdPlace(IdSource.BODY, path=(ident,)), SUCCESS
        ),
        item.key,
        keep=keep_of(inner, verb, entity, faults),
    )
    small = frozenset(rule.at for rule in rules if needs_record(rule.shape))
    return GraphField(name, operation, ident, *ways, small)


def _elements(at: Path) -> Path:
    """The rest of a place from its first array on."""
    return at[at.index(PathStep.EACH) :] if PathStep.EACH in at else ()


def _refuse_beside_pass(inner: Section, faults: RuleFaults) -> None:
    """Note what a field says beside that its arguments hold nobody's data."""
    for word in (one for one in inner if one != "pass"):
        faults.add(
            inner.key(word),
            f"'pass' says that nobody's data is in the field's arguments, and '{word}' that there "
            "is; leave one of them out",
        )


def _about(
    inner: Section, entities: Mapping[str, EntityDraft], faults: RuleFaults
) -> tuple[Verb | None, EntityDraft | None]:
    """The verb and the entity of a field; ``entity`` says that records of it are shown."""
    stated = [word for word in ("entity", *Verb) if word in inner]
    if len(stated) != 1:
        faults.add(
            inner.at,
            "a field does one thing: write entity, create, update or delete, or pass: true",
        )
        return None, None
    verb = Verb.READ if stated[0] == "entity" else Verb(stated[0])
    return verb, find_entity(inner, stated[0], entities, faults)


_Way = tuple[str, ...]
_Ways = tuple[_Way, _Way, dict[_Way, str], dict[_Way, Parameter]]


def _ways(
    inner: Section, about: tuple[Verb, Entity, Mapping[str, EntityDraft]], faults: RuleFaults
) -> _Ways:
    """The ways to the object, the id and the arguments that are searched by, or are values."""
    verb, entity, others = about
    writes = verb in (Verb.CREATE, Verb.UPDATE)
    if writes and "object" not in inner and "arguments" not in inner:
        faults.add(
            inner.at,
            f"this {verb} does not say which argument is the object; add object, or arguments "
            "that are the values themselves",
        )
    if verb in (Verb.UPDATE, Verb.DELETE) and "key" not in inner:
        faults.add(inner.at, f"this {verb} does not say which argument is the id; add key")
    for word in inner:
        pointless = word == "object" and not writes
        if pointless or (word == "key" and verb in (Verb.CREATE, Verb.READ)):
            faults.add(inner.key(word), f"'{word}' means nothing to a {verb}; leave it out")
    arguments: Mapping[str, Any] = inner.value("arguments", {})
    refused: dict[_Way, Parameter] = {}
    searched = _values(inner, verb, entity, faults) if writes else {}
    for name, one in arguments.items() if not writes else ():
        if isinstance(one.value, Section):
            if parameter := refusing(name, one.value, entity, faults, others):
                refused[tuple(name.split("."))] = parameter
            continue
        if one.value is None or not known_field(one.value, one, entity, faults):
            continue
        rule = entity.fields[one.value]
        if not has_same_tokens(entity, rule.name):
            faults.add(
                one.at,
                f"this argument looks for {rule.name}, so equal values need equal tokens; write "
                f"token: {{shape: {rule.shape.name}, same: true}} at the field",
            )
        else:
            searched[tuple(name.split("."))] = rule.name
    way: _Way = tuple((inner.value("object") or "").split(".")) if writes else ()
    key: _Way = tuple((inner.value("key") or "").split("."))
    return (
        way if way != ("",) else (),
        key if key != ("",) and verb in (Verb.UPDATE, Verb.DELETE) else (),
        searched,
        refused,
    )


def _values(inner: Section, verb: Verb, entity: Entity, faults: RuleFaults) -> dict[_Way, str]:
    """The ways to arguments that are the values of a record themselves, with the field of each."""
    values: dict[_Way, str] = {}
    arguments: Mapping[str, PlacedValue] = inner.value("arguments", {})
    for name, one in arguments.items():
        if "object" in inner:
            faults.add(
                one.key, f"an argument beside 'object' means nothing to a {verb}; leave it out"
            )
        elif isinstance(one.value, Section):
            faults.add(
                one.key, f"'refuse' means nothing to a {verb}; write the field that it holds"
            )
        elif one.value in values.values():
            faults.add(one.at, f"another argument holds {one.value} already; leave one of them out")
        elif one.value is not None and known_field(one.value, one, entity, faults):
            values[tuple(name.split("."))] = one.value
    return values


def with_inner(operation: Operation, change: Callable[[Operation], Operation]) -> Operation:
    """Change the operation, and likewise those in it: on fields of GraphQL, on objects."""
    graph = tuple(replace(one, operation=change(one.operation)) for one in operation.graph)
    return replace(change(operation), graph=graph, parts=tuple(map(change, operation.parts)))
