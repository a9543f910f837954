"""``operations:`` compiled: defaults filled in, every name resolved."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from proxy.model.schema import Path, spell
from proxy.redactor import form as globs
from proxy.redactor.load.entities import EntityDraft, needs_record, several
from proxy.redactor.load.forms import PlacedValue, Section
from proxy.redactor.load.ids import (
    check_ids,
    check_named,
    compile_success,
    is_single,
    request_id,
    response_id,
    selectors_overlap,
    selects_many,
    statuses,
)
from proxy.redactor.load.parsers import MatchPattern
from proxy.redactor.load.yaml_tree import RuleFaults, did_you_mean
from proxy.redactor.rules import (
    Absent,
    BodyPlace,
    Empty,
    Endpoint,
    Entity,
    IdPlace,
    Nulls,
    Operation,
    OtherKinds,
    OwnToken,
    PassRule,
    Position,
    RequestRule,
    ResponseRule,
    Rule,
    Verb,
)
from proxy.tokenization import DEFAULT_SHAPE, SHAPES
from proxy.tokenization.base import Resolution

#: Keys that say where something stands in a body.
PLACE_KEYS = ("object", "each", "form", "fields")


def compile_body(
    section: Section | None, entity: Entity, *, default: bool, faults: RuleFaults
) -> BodyPlace | None:
    """The places of one direction.

    ``default``: where nothing is said, the object stands at ``$``. Without it nothing in the body
    is named, and ``fields`` alone are places without an object.
    """
    if section is None or not any(key in section for key in PLACE_KEYS):
        return _whole(entity) if default else None
    form = member_fields(section.value("form", {}), entity, faults)
    objects = _objects(section, default, faults)
    own = _own_places(section.value("fields", {}), entity, faults)
    depth = len(objects or ())
    inside = {
        name: path[depth:]
        for name, path in own.items()
        if path[:depth] == objects and len(path) > depth
    }
    outside = {name: path for name, path in own.items() if name not in inside}
    named = entity.fields.values() if objects is not None else ()
    fields = {rule.name: rule.at for rule in named if rule.name not in own}
    body = BodyPlace(objects, "each" in section, fields | inside, outside, form)
    if own:
        _check_places(body, section, faults)
    return body


def member_fields(
    members: Mapping[str, PlacedValue], entity: Entity, faults: RuleFaults
) -> dict[str, str]:
    """Names and patterns of members or parameters with the field each carries, the most specific
    first.
    """
    out: dict[str, str] = {}
    for name, item in members.items():
        field, at = item.value, item.at
        if isinstance(item.value, Section):
            field, at = item.value.value("field"), item.value.place("field")
        if field is not None and field not in entity.fields:
            faults.add(
                at, f"{entity.name} has no field '{field}'; {did_you_mean(field, entity.fields)}"
            )
        elif field is not None:
            out[name] = field
    for one, other in combinations(out, 2):
        even = globs.pattern_weight(one) == globs.pattern_weight(other)
        if even and "*" in one and out[one] != out[other] and globs.patterns_overlap(one, other):
            faults.add(
                members[other].key,
                f"'{other}' and '{one}' can name the same member and neither is more specific; "
                "make one of them longer",
            )
    return dict(sorted(out.items(), key=lambda entry: globs.pattern_weight(entry[0]), reverse=True))


def _whole(entity: Entity) -> BodyPlace:
    return BodyPlace((), False, {rule.name: rule.at for rule in entity.fields.values()}, {}, {})


def _objects(section: Section, default: bool, faults: RuleFaults) -> Path | None:
    """Where the objects stand; ``None`` where the body is a form only, or nothing but places of
    single fields.
    """
    if "object" in section and "each" in section:
        faults.add(
            section.key("each"),
            "'object' and 'each' exclude each other; keep 'each' where there are several objects",
        )
    if "each" in section:
        path: Path = section.value("each", ())
        if section.value("each") is not None and not selects_many(path):
            faults.add(
                section.place("each"), f"'each' selects one place only; write {spell(path)}[*]"
            )
        return path
    if "object" in section:
        whole: Path = section.value("object", ())
        return whole
    if "fields" in section:
        return () if default else None
    return None


def _own_places(
    items: Mapping[str, PlacedValue], entity: Entity, faults: RuleFaults
) -> dict[str, Path]:
    own: dict[str, Path] = {}
    for name, item in items.items():
        if name not in entity.fields:
            faults.add(
                item.key,
                f"{entity.name} has no field '{name}'; {did_you_mean(name, entity.fields)}",
            )
        elif item.value == ():
            faults.add(
                item.at, f"a field cannot be the whole document; write $.{name} or another member"
            )
        elif item.value is not None:
            own[name] = item.value
    return own


def _check_places(body: BodyPlace, section: Section, faults: RuleFaults) -> None:
    """The operation's own places against each other and against those of the entity."""
    start = body.objects or ()
    whole = {name: start + path for name, path in body.fields.items()} | dict(body.anchored)
    own: Mapping[str, PlacedValue] = section.value("fields", {})
    for one, other in combinations(whole, 2):
        named = other if other in own else one
        if named in own and selectors_overlap(whole[one], whole[other]):
            rival = one if named == other else other
            faults.add(
                own[named].at,
                f"{named} overlaps {rival} at {spell(whole[rival])}; a value belongs to one "
                "field only",
            )
    several = body.each or selects_many(start)
    for name in body.anchored:
        if several:
            faults.add(
                own[name].at,
                "places under 'fields' count from the document's root, and this one is outside "
                "of the objects at "
                f"{spell(start)}, so it belongs to none of them; write {spell(start)}.{name}",
            )


_SUCCESS = frozenset(range(200, 300))
_WORDS = ("absent", "nulls", "empty", "own_token")


@dataclass(frozen=True, slots=True)
class Scope:
    """What the operations of one file may name."""

    endpoint: Endpoint
    entities: Mapping[str, EntityDraft]
    faults: RuleFaults


def compile_operation(section: Section, scope: Scope) -> Rule | None:
    """One operation; ``None`` where what it is about was at fault."""
    if "pass" in section:
        return _pass(section, scope)
    verb, draft, matched = _verb(section, scope.faults), None, section.value("match")
    if verb is not None:
        draft = _entity(section, verb, scope)
    if verb is None or draft is None or not isinstance(matched, MatchPattern):
        return None
    _check_prefix(section, matched, scope)
    entity, faults = draft.entity, scope.faults
    request = _request(section, verb, entity, faults)
    id_place = request_id(section, verb, matched.template, request.body, faults)
    response = _response(section, verb, entity, (id_place, request.body), faults)
    operation = Operation(
        matched.label,
        scope.endpoint,
        verb,
        matched.methods,
        matched.template.text,
        entity,
        id_place,
        request,
        response,
        section.at,
    )
    _check_same(operation, section, faults)
    check_ids(operation, section, faults)
    _check_addressed(operation, section, draft, faults)
    _check_single(operation, section, faults)
    return operation


def _pass(section: Section, scope: Scope) -> PassRule | None:
    """A request that passes. A key that says something else of it contradicts that."""
    for key in section:
        if key not in ("match", "pass"):
            scope.faults.add(
                section.key(key),
                "'pass: true' says that nobody's data is in this request and its answer, and "
                f"'{key}' that there is; leave one of the two out",
            )
    matched = section.value("match")
    if not isinstance(matched, MatchPattern) or section.value("pass") is None:
        return None
    _check_prefix(section, matched, scope)
    return PassRule(
        matched.label, scope.endpoint, matched.methods, matched.template.text, section.at
    )


def _verb(section: Section, faults: RuleFaults) -> Verb | None:
    said = [verb for verb in Verb if verb in section]
    if not said and not section.strange:
        faults.add(
            section.at,
            "an operation says what it does and to which entity; write create, read, update or "
            "delete, or pass: true where it holds nobody's data",
        )
    for verb in said[1:]:
        faults.add(
            section.key(verb),
            f"an operation does one thing; write '{said[0]}' and '{verb}' as two operations",
        )
    return said[0] if said else None


def _entity(section: Section, verb: Verb, scope: Scope) -> EntityDraft | None:
    name = section.value(verb)
    if name is None or name in scope.entities:
        return scope.entities.get(name)
    scope.faults.add(
        section.place(verb), f"there is no entity '{name}'; {did_you_mean(name, scope.entities)}"
    )
    return None


def _check_prefix(section: Section, matched: MatchPattern, scope: Scope) -> None:
    prefix = [part for part in scope.endpoint.prefix.split("/") if part]
    if [segment.text for segment in matched.template.segments[: len(prefix)]] != prefix:
        scope.faults.add(
            section.place("match"),
            f"all requests of this endpoint begin with its prefix, so this can never match; write "
            f"{scope.endpoint.prefix}{matched.template.text}",
        )


def _request(section: Section, verb: Verb, entity: Entity, faults: RuleFaults) -> RequestRule:
    inner: Section | None = section.value("request")
    writes = verb in (Verb.CREATE, Verb.UPDATE)
    pointless = _WORDS if not writes else ("absent",) if verb is Verb.CREATE else ()
    for word in pointless:
        if inner is not None and word in inner:
            faults.add(inner.key(word), f"'{word}' means nothing to a {verb}; leave it out")
    words = {} if inner is None else {word: inner.value(word) for word in inner}
    return RequestRule(
        compile_body(inner, entity, default=writes, faults=faults),
        member_fields(section.value("query", {}), entity, faults),
        Absent(words.get("absent") or "keep"),
        Nulls(words.get("nulls") or "erase"),
        Empty(words.get("empty") or "store"),
        OwnToken(words.get("own_token") or "keep"),
        OtherKinds(words.get("other_kinds") or "refuse"),
    )


def _response(
    section: Section,
    verb: Verb,
    entity: Entity,
    request: tuple[IdPlace | None, BodyPlace | None],
    faults: RuleFaults,
) -> ResponseRule:
    inner: Section | None = section.value("response")
    id_place, sent = request
    # The answer to a delete of many is seldom the records themselves: it is restored where the file
    # says so.
    default = verb is not Verb.DELETE or (
        is_single(id_place) and not (inner is not None and "id" in inner)
    )
    stated = inner is not None and any(key in inner for key in PLACE_KEYS)
    anywhere = inner is not None and inner.value("restore") == "anywhere"
    body = compile_body(inner, entity, default=(default and not anywhere) or stated, faults=faults)
    form = sent is not None and bool(sent.form)
    success = compile_success(inner, _SUCCESS | ({302, 303} if form else frozenset()), faults)
    named = response_id(section, verb, sent, faults, statuses(success))
    if inner is not None:
        check_named(inner, named, success, faults)
    return ResponseRule(body, named, *success, anywhere)


def _check_same(operation: Operation, section: Section, faults: RuleFaults) -> None:
    """A value that is looked for must get the same token each time."""
    query: Mapping[str, PlacedValue] = section.value("query", {})
    if query and operation.verb in (Verb.CREATE, Verb.UPDATE):
        faults.add(
            section.key("query"),
            f"the vault keeps what the body of a {operation.verb} carries, and a value in its "
            "address would be lost; leave query out, and have it sent in the body",
        )
        return
    for name, field in operation.request.query.items():
        if not _findable(operation.entity, field):
            faults.add(
                query[name].at, _same_hint(operation.entity, field, f"the parameter '{name}'")
            )
    body = operation.request.body
    if operation.verb in (Verb.CREATE, Verb.UPDATE) or body is None:
        return
    for field in {*body.fields, *body.anchored, *body.form.values()}:
        if not _findable(operation.entity, field):
            faults.add(
                section.key("request"),
                _same_hint(operation.entity, field, f"the body of this {operation.verb}"),
            )


def _findable(entity: Entity, field: str) -> bool:
    shape = entity.fields[field].shape
    return shape.same or shape.resolution is Resolution.CLEAR


def _same_hint(entity: Entity, field: str, where: str) -> str:
    rule = entity.fields[field]
    sameable = "same" in SHAPES[rule.shape.name].options
    shape = rule.shape.name if sameable else DEFAULT_SHAPE[rule.kind]
    return (
        f"{where} looks for {field}, so equal values need equal tokens; write token: {{shape: "
        f"{shape}, same: true}} at "
        f"the field {field} of {entity.name}, or name only fields that have it"
    )


def _check_addressed(
    operation: Operation, section: Section, draft: EntityDraft, faults: RuleFaults
) -> None:
    """Shapes that resolve by record need the record's id beside each token."""
    # a fault already
    unnamed = operation.verb in (Verb.UPDATE, Verb.DELETE) and operation.id is None
    if operation.response.body is None or carries_id(operation) or unnamed:
        return
    small = [rule for rule in draft.entity.fields.values() if needs_record(rule.shape)]
    at: Position = section.key("response") if "response" in section else section.place("match")
    for rule in small:
        faults.add(
            at,
            f"{rule.name} has the token shape {rule.shape.name}, which resolves by the record's "
            "id, and this answer carries none; write response: {id: $.id} with the member that "
            "holds it, or choose a larger shape",
        )


def _check_single(operation: Operation, section: Section, faults: RuleFaults) -> None:
    """A field whose values all have one token has one place; what the entity itself says of it is
    checked there.
    """
    for side, body in (("request", operation.request.body), ("response", operation.response.body)):
        places = {} if body is None else {**body.fields, **body.anchored}
        for name, path in places.items():
            rule = operation.entity.fields[name]
            if rule.shape.capacity() == 1 and path != rule.at and selects_many(path):
                faults.add(section.key(side), several(name, rule.shape))


def carries_id(operation: Operation) -> bool:
    """Whether every answer that restores the operation's entity tells whose values they are."""
    if operation.response.id is not None:
        return True
    body = operation.response.body
    many = body is not None and (body.each or selects_many(body.objects or ()))
    return is_single(operation.id) and not many
