"""Where an operation finds the ids of records: what the file says, or the defaults of the language."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from proxy.redactor import globs
from proxy.redactor.load.faults import Faults, did_you_mean
from proxy.redactor.load.forms import Section
from proxy.redactor.load.overlaps import overlap, selects_many
from proxy.redactor.rules import BodyPlace, IdPlace, Operation, Source, Verb
from proxy.redactor.template import Template

_ANSWER = (
    'write response: {id: $.id}, or response: {id: "header Location /contacts/{id}"} with the address of the new record'
)


def request_id(
    section: Section, verb: Verb, template: Template, body: BodyPlace | None, faults: Faults
) -> IdPlace | None:
    """Where the request carries the id(s); ``None`` for creates and lists."""
    if "id" not in section:
        return _default(section, verb, template, faults)
    place: IdPlace | None = section.value("id")
    if place is None:
        return None
    at = section.place("id")
    if verb is Verb.CREATE:
        faults.add(
            section.key("id"),
            f"the id of a new record is in the answer; {_ANSWER}. Where the caller chooses the id, write update: "
            f"an update of an unknown id creates it",
        )
    elif place.source is Source.HEADER:
        faults.add(at, "an id in a header of the request is not supported yet; write path, query, form or $.")
    elif place.source is Source.PATH and place.name not in template.names:
        known = did_you_mean(place.name, template.names) if template.names else f"'{template.text}' has no placeholder."
        faults.add(at, f"the path has no placeholder {{{place.name}}}; {known}")
    elif place.source is Source.BODY and not place.path:
        faults.add(at, "the whole body cannot be an id; write $.id or another member")
    return replace(place, absolute=_from_root(place, body))


def _from_root(place: IdPlace, body: BodyPlace | None) -> bool:
    """A body id counts from the object where that is the whole body or one of several, else from the root."""
    if place.source is not Source.BODY:
        return False
    if body is None or body.objects is None:
        return True
    return body.objects != () and not body.each and not selects_many(body.objects)


def _default(section: Section, verb: Verb, template: Template, faults: Faults) -> IdPlace | None:
    if verb is Verb.CREATE:
        return None
    response: Section | None = section.value("response")
    lists = response is not None and "each" in response
    if "id" in template.names and not (verb is Verb.READ and lists):
        return IdPlace(Source.PATH, "id")
    answered = verb is Verb.DELETE and response is not None and "id" in response
    if verb is not Verb.READ and not answered:
        named = template.names[-1] if template.names else ""
        hint = f"id: path {named}" if named else "id: $.id, id: query id or id: form id"
        faults.add(section.key(verb), f"this {verb} does not say which record it is about; write {hint}")
    return None


def response_id(
    section: Section, verb: Verb, request: BodyPlace | None, faults: Faults, success: frozenset[int]
) -> IdPlace | None:
    """Where the answer carries the id; ``None`` where it carries none. ``success``: the statuses that may mean it."""
    response: Section | None = section.value("response")
    if response is None or "id" not in response:
        return _created(section, request, faults, success) if verb is Verb.CREATE else None
    place: IdPlace | None = response.value("id")
    if place is None:
        return None
    if place.source is Source.FORM:
        return IdPlace(Source.BODY, path=(place.name,))
    if place.source in (Source.PATH, Source.QUERY):
        faults.add(response.place("id"), "this id is one of the request; write it beside 'match': id: path id")
    elif place.source is Source.BODY and not place.path:
        faults.add(response.place("id"), "the whole object cannot be its id; write $.id or another member")
    bare = verb is Verb.DELETE and not any(key in response for key in ("object", "each", "form", "fields"))
    return replace(place, absolute=bare and place.source is Source.BODY)


def _created(section: Section, request: BodyPlace | None, faults: Faults, success: frozenset[int]) -> IdPlace | None:
    """``$.id`` of the answer, unless a form or a redirect says that the answer will not be an object."""
    redirects = all(status >= 300 for status in success)
    if redirects or (request is not None and request.form):
        faults.add(
            section.key("create"),
            f"this create does not say where its answer carries the id, and forms are mostly answered by a redirect; {_ANSWER}",
        )
    return IdPlace(Source.BODY, path=("id",))


def check_ids(operation: Operation, section: Section, faults: Faults) -> None:
    """Note an id that is itself a protected value: it would be a token on one side and a value on the other."""
    response: Section | None = section.value("response")
    sides: tuple[tuple[IdPlace | None, BodyPlace | None, Mapping[str, str], Section], ...] = (
        (operation.id, operation.request.body, operation.request.query, section),
        (operation.response.id, operation.response.body, {}, response or section),
    )
    for place, body, query, holder in sides:
        if place is None:
            continue
        for field in dict.fromkeys((*_fields_at(place, body), *_fields_called(place, body, query))):
            faults.add(
                holder.place("id"), f"this id is the protected field {field}; an id must be a value that no rule names"
            )


def _fields_at(place: IdPlace, body: BodyPlace | None) -> Iterator[str]:
    """The fields that stand where the id stands in a JSON body."""
    if place.source is not Source.BODY or body is None:
        return
    objects = body.objects or ()
    path = place.path if place.absolute else objects + place.path
    fields = {name: objects + inner for name, inner in body.fields.items()} if body.objects is not None else {}
    yield from (name for name, other in (*fields.items(), *body.anchored.items()) if overlap(path, other))


def _fields_called(place: IdPlace, body: BodyPlace | None, query: Mapping[str, str]) -> Iterator[str]:
    """The fields whose form member or query parameter has the name of the id's."""
    names = query if place.source is Source.QUERY else body.form if body is not None else {}
    called = place.name
    if place.source is Source.BODY and len(place.path) == 1 and isinstance(place.path[0], str):
        called = place.path[0]  # a form is a flat object
    if place.source in (Source.BODY, Source.FORM, Source.QUERY):
        yield from (field for pattern, field in names.items() if globs.compiled(pattern).fullmatch(called))


def is_single(place: IdPlace | None) -> bool:
    """Whether the place carries exactly one id."""
    return place is not None and not selects_many(place.path)
