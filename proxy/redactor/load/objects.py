"""Messages with several parts: ``objects:`` of different entities, ``envelope:`` of requests."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from proxy.model.schema import Path, PathStep, spell
from proxy.redactor.form import patterns_overlap
from proxy.redactor.load.body_places import PLACE_KEYS
from proxy.redactor.load.entities import EntityDraft
from proxy.redactor.load.ids import selectors_overlap, selects_many
from proxy.redactor.load.parsers import MatchPattern
from proxy.redactor.load.value_forms import PlacedValue, Section
from proxy.redactor.load.yaml_tree import RuleFaults
from proxy.redactor.page_heads import label_of
from proxy.redactor.request_rules import SUCCESS, Condition, EnvelopeRule
from proxy.redactor.rules import (
    BodyPlace,
    Endpoint,
    IdPlace,
    IdSource,
    Operation,
    RequestRule,
    ResponseRule,
    Restore,
    Stream,
    Verb,
)
from proxy.redactor.words import DocumentKind


def compile_objects(
    section: Section,
    compiled: Callable[[Section], Operation | None],
    when: tuple[Condition, ...],
    faults: RuleFaults,
) -> Operation | None:
    """The operation of such a message; ``None`` where one of its objects was at fault.

    ``compiled``: the compiler of an operation on one of them.
    """
    elsewhere = "each of the 'objects' says this of its own; write '{key}' there, or leave it out"
    section.allow(("match", "objects", "when"), faults, elsewhere)
    items: list[PlacedValue] = section.value("objects", [])
    sections = [item.value for item in items if isinstance(item.value, Section)]
    if len(sections) < 2:
        faults.add(
            section.position("objects"), "one object needs no list; write its keys beside 'match'"
        )
    parts = [(one, _stated(one, part)) for one in sections if (part := compiled(one)) is not None]
    if len(parts) < max(2, len(sections)):
        return None
    for (_, one), (at, other) in combinations(parts, 2):
        _check_apart(one, other, at, faults)
    _check_default_ids(parts, faults)
    operations = tuple(part for _, part in parts)
    reads = all(one.verb is Verb.READ for one in operations)
    first = operations[0]
    rule = first.response
    response = ResponseRule(
        None, None, rule.success, rule.conditions, in_parts=rule.in_parts, special=True
    )
    return replace(
        first,
        verb=Verb.READ if reads else Verb.UPDATE,  # a possible write counts as a write
        id=None,
        request=RequestRule(None),
        response=response,
        position=section.at,
        when=when,
        keep=None,
        parts=operations,
    )


def _stated(section: Section, part: Operation) -> Operation:
    """The same without the place of an object in the answer that the file does not state."""
    response: Section | None = section.value("response")
    if part.verb is Verb.READ and "id" not in section and part.response.id is not None:
        part = replace(part, id=None)  # {id} of the path is the message's: the object has its own
    if response is not None and any(key in response for key in PLACE_KEYS):
        return part
    return replace(part, response=replace(part.response, body=None))


def unshown(operation: Operation) -> Iterator[str]:
    """Warn of objects that are read and stand nowhere in the answer, by their rules."""
    for one in operation.parts:
        asks = one.request.search is not None or one.request.body is not None
        places = one.response.body is not None or one.response.special
        if one.verb is Verb.READ and not places and not asks:
            yield (
                f"{one.position}: nothing restores this {one.entity.name} of {one.label}: callers "
                "see tokens, since no place is the usual one among several 'objects'; say where "
                "it stands in the answer, as in response: {object: $}"
            )


def _check_default_ids(parts: Sequence[tuple[Section, Operation]], faults: RuleFaults) -> None:
    """Note objects that all have the ``{id}`` of the path as their id, and none says so."""
    unsaid = [(at, one) for at, one in parts if one.id is not None and "id" not in at]
    for at, one in unsaid[1:]:
        first = unsaid[0][1].entity.name
        faults.add(
            at.at,
            f"{{id}} of the path would be the id of this {one.entity.name} and of {first} at once, "
            "and each would have the other's values; write id: path id at each whose id it is, "
            "and at others the place of their own, such as id: $.customer.id (in an answer "
            "response: {id: $.id}); or name the placeholder for the message, such as {order}",
        )


def _check_apart(one: Operation, other: Operation, at: Section, faults: RuleFaults) -> None:
    """Note what two objects of one message contradict each other in."""
    for side, mine, theirs in (
        ("request", (one.request.body, one.id), (other.request.body, other.id)),
        (
            "response",
            (one.response.body, one.response.id),
            (other.response.body, other.response.id),
        ),
    ):
        for rival in [*_shared(mine[0], theirs[0]), *_protected(mine, theirs)][:1]:
            faults.add(
                at.key(side),
                f"{rival} is a place of another of the 'objects' as well; a value belongs to one "
                f"of them, so say in {side}: where the object stands, such as object: $.customer",
            )
    if _kinds(one.request.body).isdisjoint(_kinds(other.request.body)):
        faults.add(
            at.key("request"),
            "no body holds this object and another of the 'objects': one stands in JSON and the "
            "other in a form, or in a file; write two operations, told apart by when: {type: …}",
        )
    first, second = one.response, other.response
    if (first.success, first.conditions) != (second.success, second.conditions):
        faults.add(
            at.key("response"),
            "an answer means the same for all of the 'objects'; write the same 'success' at each",
        )
    alike = first.stream is second.stream and bool(first.columns) == bool(second.columns)
    whole = first.restore is second.restore or Restore.CSV not in (first.restore, second.restore)
    if not (alike and whole) or Stream.WEBSOCKET in (first.stream, second.stream):
        faults.add(
            at.key("response"),
            "an answer that comes in parts is of one kind for all of the 'objects', and no "
            "WebSocket; write the same 'stream' or 'restore' at each",
        )
    for name in sorted(_parameters(one) & _parameters(other)):
        faults.add(at.key("query"), f"the parameter '{name}' is one of another of the 'objects'")
    heads = [{*map(label_of, answer.heads)} for answer in (first, second)]
    for column in (first.columns.keys() & second.columns.keys()) | (heads[0] & heads[1]):
        faults.add(at.key("response"), f"the column '{column}' is one of another of the 'objects'")


def _protected(
    one: tuple[BodyPlace | None, IdPlace | None], other: tuple[BodyPlace | None, IdPlace | None]
) -> Iterator[str]:
    """Ids of one object that are values of the other."""
    for (holder, ident), (body, _) in ((one, other), (other, one)):
        if ident is None or ident.source is not IdSource.BODY or body is None:
            continue
        start = () if ident.absolute or holder is None else holder.objects or ()
        if any(selectors_overlap(start + ident.path, path) for path in _places(body)):
            yield f"the id at {spell(start + ident.path)}"


def _parameters(operation: Operation) -> set[str]:
    search = operation.request.search
    return {*search.query} if search is not None else set()


def _kinds(body: BodyPlace | None) -> set[str]:
    """The kinds of bodies that a rule names places in; all where it names none."""
    if body is None:
        return {"json", "form", "multipart", "csv", *DocumentKind}
    kinds: dict[str, bool] = {
        "json": body.xml is None and (body.objects is not None or bool(body.anchored)),
        **{kind: body.xml is kind for kind in DocumentKind},
        "form": bool(body.form),
        "multipart": bool(body.multipart or body.file_names or body.part),
        "csv": bool(body.csv) and not body.part,
    }
    return {name for name, named in kinds.items() if named}


def _shared(one: BodyPlace | None, other: BodyPlace | None) -> Iterator[str]:
    """Places that two objects both name."""
    if one is None or other is None:
        return
    mine = _places(one)
    yield from (
        spell(theirs)
        for theirs in _places(other)
        if any(selectors_overlap(path, theirs) for path in mine)
    )
    for members, others in (
        (one.form, other.form),
        ({**one.multipart, **one.file_names}, {**other.multipart, **other.file_names}),
        (one.csv, other.csv),
    ):
        pairs = ((mine, theirs) for mine in members for theirs in others)
        yield from (f"'{theirs}'" for mine, theirs in pairs if patterns_overlap(mine, theirs))


def _places(body: BodyPlace) -> list[Path]:
    start = body.objects or ()
    starts = (start,) if start[-1:] == (PathStep.EACH,) else (start, (*start, PathStep.EACH))
    inside = [one + path for one in starts for path in body.fields.values()]
    return [*inside, *body.anchored.values()]


# ``envelope:`` compiled: a request that carries others, matched as if they came alone.

_METHODS = {"POST", "PUT", "PATCH"}


def compile_envelope(
    section: Section,
    scope: tuple[Endpoint, Mapping[str, EntityDraft], RuleFaults],
    when: tuple[Condition, ...],
) -> Operation | None:
    """Compile the operation of an envelope; ``None`` if its subject was at fault."""
    endpoint, entities, faults = scope
    elsewhere = (
        "the requests in an envelope have operations of their own; write '{key}' there, or leave "
        "it out"
    )
    section.allow(("match", "envelope", "when"), faults, elsewhere)
    matched, inner = section.value("match"), section.value("envelope")
    if isinstance(matched, MatchPattern) and not _METHODS.issuperset(matched.methods):
        faults.add(
            section.position("match"),
            "an envelope is a body; write POST, PUT or PATCH and its path",
        )
    if not entities:
        faults.add(
            section.key("envelope"),
            "the file has no entities, so nothing in it can be ruled; write pass: true",
        )
    rule = _rule(inner, faults) if isinstance(inner, Section) else None
    if rule is None or not isinstance(matched, MatchPattern) or not entities:
        return None
    return Operation(
        matched.label,
        endpoint,
        Verb.UPDATE,  # a possible write counts as a write
        matched.methods,
        matched.template.text,
        next(iter(entities.values())).entity,
        None,
        RequestRule(None),
        ResponseRule(None, None, SUCCESS, special=True),
        section.at,
        when,
        envelope=rule,
    )


def _rule(inner: Section, faults: RuleFaults) -> EnvelopeRule | None:
    answers, each = inner.value("answers"), inner.value("each")
    if not isinstance(answers, Section):  # where they stand, and nothing else
        alone = {} if answers is None else {"each": inner.items["answers"]}
        answers = Section(alone, inner.position("answers"))
    if each is None or answers.value("each") is None:
        return None
    defaults: Mapping[str, PlacedValue] = inner.value("defaults", {})
    for name, one in defaults.items():
        if name not in ("method", "path"):
            faults.add(one.key, f"a request has no '{name}' by default; write method or path")
    parts = _parts(inner, ("method", "path", "headers", "body"), faults)
    answered = _parts(answers, ("status", "headers", "body"), faults)
    ident: Path | None = inner.value("id")
    said = tuple(
        (defaults[one].value or "") if one in defaults else "" for one in ("method", "path")
    )
    return EnvelopeRule(
        each,
        parts["method"],
        parts["path"],
        parts["headers"],
        parts["body"],
        ident,
        inner.value("base", ""),
        (said[0].upper(), said[1]),
        answers.value("each"),
        answered["status"],
        answered["headers"],
        answered["body"],
    )


def _parts(section: Section, names: tuple[str, ...], faults: RuleFaults) -> dict[str, Path]:
    """Return the places of the parts of a request or an answer.

    A part that the file does not name has its usual place, unless another one stands there.
    """
    listed = [name for name in ("id", *names) if name in section]
    parts: dict[str, Path] = {}
    for name in listed:
        path = section.value(name)
        if path is None:
            continue
        if not path or selects_many(path):
            faults.add(section.position(name), f"'{name}' is one member of each; write $.{name}")
        elif any(selectors_overlap(path, other) for other in parts.values()):
            faults.add(section.position(name), f"'{name}' stands where another part does")
        parts[name] = path
    for name in names:
        free = not any(selectors_overlap((name,), other) for other in parts.values())
        if name not in listed:
            parts[name] = (name,) if free else ()
    return {name: parts.get(name, ()) for name in names}
