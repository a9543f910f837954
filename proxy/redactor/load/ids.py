"""Places of record ids in an operation: by the file, or by default."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache

from proxy.model.schema import Path, PathStep
from proxy.redactor import form
from proxy.redactor.json.text import fold_name
from proxy.redactor.load.value_forms import PlacedValue, Section
from proxy.redactor.load.yaml_tree import RuleFaults, did_you_mean
from proxy.redactor.path_template import PathTemplate, overlaps, parse_template
from proxy.redactor.request_rules import RedirectSuccess
from proxy.redactor.rules import BodyPlace, IdPlace, IdSource, Operation, Restore, Verb
from proxy.redactor.words import DocumentKind

# Whether two selectors can select the same place, or one a place inside the other's.


def selects_many(path: Path) -> bool:
    """Whether the selector can select several places."""
    return any(isinstance(step, PathStep) for step in path)


def selectors_overlap(one: Path, other: Path) -> bool:
    """Whether the two can select the same place, or the longer a place inside the shorter's.

    With ``..`` only the same place counts: ``$..email`` could always lie inside another field's
    value.
    """
    nested = PathStep.DEEP not in one and PathStep.DEEP not in other

    @cache
    def meets(left: int, right: int) -> bool:
        if left == len(one) or right == len(other):
            return nested or (left == len(one) and right == len(other))
        first, second = one[left], other[right]
        if first is PathStep.DEEP:
            return meets(left + 1, right) or meets(left, right + 1)
        if second is PathStep.DEEP:
            return meets(left, right + 1) or meets(left + 1, right)
        return _same_step(first, second) and meets(left + 1, right + 1)

    return meets(0, 0)


def _same_step(one: str | int | PathStep, other: str | int | PathStep) -> bool:
    if isinstance(one, PathStep) and isinstance(other, PathStep):
        return one is other
    if isinstance(one, PathStep):
        one, other = other, one
    if other is PathStep.EACH:
        return isinstance(one, int)
    if other is PathStep.MEMBERS:
        return isinstance(one, str)
    if isinstance(one, str) and isinstance(other, str):
        # applications that ignore letter case would bind both
        return fold_name(one) == fold_name(other)
    return one == other


_ANSWER = (
    "write response: {id: $.id} with the member of a JSON answer that holds it, response: {id: "
    '"$.url /contacts/{id}"} if that holds an address, or response: {id: "header Location '
    '/contacts/{id}"} with the header field; if its answer tells none, write id: $.id all the '
    "same: the values are kept, and a list that shows the ids names the record"
)
#: Fields of a request about the message, not a record.
_NO_IDS = frozenset(
    (
        "host content-type content-length transfer-encoding content-encoding connection cookie "
        "authorization accept accept-encoding user-agent if-match if-none-match location"
    ).split()
)


def request_id(
    section: Section, verb: Verb, template: PathTemplate, body: BodyPlace | None, faults: RuleFaults
) -> IdPlace | None:
    """Return the place of the id(s) in the request; ``None`` for creates and lists."""
    if "id" not in section:
        return _default(section, verb, template, faults)
    id_place: IdPlace | None = section.value("id")
    if id_place is None:
        return None
    at = section.position("id")
    if verb is Verb.CREATE:
        faults.add(
            section.key("id"),
            f"the id of a new record is in the answer; {_ANSWER}. Where the caller chooses the id, "
            "write update: an update of an unknown id creates it",
        )
    elif id_place.source is IdSource.COLUMN:
        faults.add(at, "a column is one of an export; write it under response")
    elif id_place.source is IdSource.PATH and id_place.name not in template.names:
        hint = (
            did_you_mean(id_place.name, template.names)
            if template.names
            else f"'{template.text}' has no placeholder."
        )
        faults.add(at, f"the path has no placeholder {{{id_place.name}}}; {hint}")
    elif id_place.source is IdSource.HEADER and id_place.name in _NO_IDS:
        faults.add(
            at,
            f"no request names its record in {id_place.name}; write header NAME {{id}} with a "
            "field of the application's own, such as header X-Contact {id}, or path, query, form "
            "or $.",
        )
    elif id_place.source is IdSource.BODY and not id_place.path:
        faults.add(at, "the whole body cannot be an id; write $.id or another member")
    absolute = _from_root(id_place, body)
    if id_place.source is IdSource.BODY and not absolute and selects_many(id_place.path):
        faults.add(
            at,
            "each of several objects has one id, and this selects several in one of them; write "
            "$.id or another member",
        )
    return replace(id_place, absolute=absolute)


def _from_root(id_place: IdPlace, body: BodyPlace | None) -> bool:
    """A body id counts from the object where that is the whole body or one of several, else from
    the root. Several ids beside the fields of the whole body are those of as many records.
    """
    if id_place.source is not IdSource.BODY:
        return False
    if body is None or body.objects is None:
        return True
    if body.objects == () and not body.each and selects_many(id_place.path):
        return True
    return body.objects != () and not body.each and not selects_many(body.objects)


def _default(
    section: Section, verb: Verb, template: PathTemplate, faults: RuleFaults
) -> IdPlace | None:
    if verb is Verb.CREATE:
        return None
    response: Section | None = section.value("response")
    lists = response is not None and _lists(response)
    if "id" in template.names and not (verb is Verb.READ and lists):
        return IdPlace(IdSource.PATH, "id")
    answered = verb is Verb.DELETE and response is not None and "id" in response
    if verb is not Verb.READ and not answered:
        named = template.names[-1] if template.names else ""
        hint = f"id: path {named}" if named else "id: $.id, id: query id or id: form id"
        if not named:  # a page of whoever is signed in, mostly
            key = "delete" if verb is Verb.DELETE else "create"
            hint += f"; where the answer alone tells it, as of /me: {key} and response: {{id: …}}"
        faults.add(
            section.key(verb), f"this {verb} does not say which record it is about; write {hint}"
        )
    return None


def _lists(response: Section) -> bool:
    """Whether an answer says that it has several objects."""
    xml = (response.value(key, ()) or () for key in DocumentKind if key in response)
    return "each" in response or any(map(selects_many, xml))


def restores_as(section: Section, *kinds: Restore) -> bool:
    """Whether an answer says one of these, or what was a fault already: one typo is one fault."""
    return "restore" in section and section.value("restore") in (None, *kinds)


def _has_columns(response: Section, verb: Verb) -> bool:
    """Whether an answer is an export, or a page with tables."""
    table = verb is Verb.READ and "columns" in response and restores_as(response, Restore.HTML)
    return table or restores_as(response, Restore.CSV)


def response_id(
    section: Section,
    verb: Verb,
    request: BodyPlace | None,
    faults: RuleFaults,
    success: frozenset[int],
) -> IdPlace | None:
    """Return the place of the id in the answer; ``None`` if it carries none.

    ``success``: the statuses that may mean it.
    """
    response: Section | None = section.value("response")
    if response is None or "id" not in response:
        return _created(section, request, faults, success) if verb is Verb.CREATE else None
    id_place: IdPlace | None = response.value("id")
    if id_place is None:
        return None
    if id_place.source is IdSource.FORM:
        return IdPlace(IdSource.BODY, path=(id_place.name,))
    if id_place.source in (IdSource.PATH, IdSource.QUERY):
        faults.add(
            response.position("id"),
            "this id is one of the request; write it beside 'match': id: path id",
        )
    elif id_place.source is IdSource.HEADER and verb is Verb.READ and _lists(response):
        faults.add(
            response.position("id"),
            "a header field names one record, and this answer lists several; write $.id or "
            "another member of each",
        )
    elif id_place.source is IdSource.COLUMN and not _has_columns(response, verb):
        faults.add(
            response.position("id"),
            "a column is one of an export; write restore: csv, or restore: html and 'columns' for "
            "a table of a page that is read",
        )
    elif id_place.source is IdSource.BODY and not id_place.path:
        faults.add(
            response.position("id"),
            "the whole object cannot be its id; write $.id or another member",
        )
    bare = verb is Verb.DELETE and not any(
        key in response for key in ("object", "each", *DocumentKind, "form", "fields")
    )
    return replace(id_place, absolute=bare and id_place.source is IdSource.BODY)


def _created(
    section: Section, request: BodyPlace | None, faults: RuleFaults, success: frozenset[int]
) -> IdPlace | None:
    """``$.id`` of the answer, unless a form or a redirect says that it will be no object."""
    redirects = all(status >= 300 for status in success)
    if redirects or (request is not None and request.form):
        faults.add(
            section.key("create"),
            "this create does not say where its answer carries the id, and forms are mostly "
            f"answered by a redirect; {_ANSWER}",
        )
    return IdPlace(IdSource.BODY, path=("id",))


def check_ids(operation: Operation, section: Section, faults: RuleFaults) -> None:
    """Note an id that is itself a protected value: a token on one side, a value on the other."""
    response: Section | None = section.value("response")
    sides: tuple[tuple[IdPlace | None, BodyPlace | None, Mapping[str, str], Section], ...] = (
        (operation.id, operation.request.body, _named_fields(operation), section),
        (operation.response.id, operation.response.body, {}, response or section),
    )
    for id_place, body, query, holder in sides:
        if id_place is None:
            continue
        for field in dict.fromkeys(
            (*_fields_at(id_place, body), *_fields_called(id_place, body, query))
        ):
            faults.add(
                holder.position("id"),
                f"this id is the protected field {field}; an id must be a value that no rule names",
            )


def _named_fields(operation: Operation) -> Mapping[str, str]:
    """The fields that stand where the id of a request does: in the path, or in parameters."""
    search = operation.request.search
    if search is None:
        return {}
    if operation.id is not None and operation.id.source is IdSource.PATH:
        return search.path
    return {name: one.of for name, one in search.query.items() if one.of}


def _fields_at(id_place: IdPlace, body: BodyPlace | None) -> Iterator[str]:
    """The fields that stand where the id stands in a JSON body."""
    if id_place.source is not IdSource.BODY or body is None:
        return
    objects = body.objects or ()
    path = id_place.path if id_place.absolute else objects + id_place.path
    fields = (
        {name: objects + inner for name, inner in body.fields.items()}
        if body.objects is not None
        else {}
    )
    yield from (
        name
        for name, other in (*fields.items(), *body.anchored.items())
        if selectors_overlap(path, other)
    )


def _fields_called(
    id_place: IdPlace, body: BodyPlace | None, query: Mapping[str, str]
) -> Iterator[str]:
    """The fields whose form member or query parameter has the name of the id's."""
    named = (IdSource.QUERY, IdSource.PATH)
    members = {**body.form, **body.multipart, **body.file_names} if body is not None else {}
    names = query if id_place.source in named else members
    called = id_place.name
    if (
        id_place.source is IdSource.BODY
        and len(id_place.path) == 1
        and isinstance(id_place.path[0], str)
    ):
        called = id_place.path[0]  # a form is a flat object
    if id_place.source is not IdSource.HEADER:
        yield from (
            field for pattern, field in names.items() if form.compiled(pattern).fullmatch(called)
        )


def is_single(id_place: IdPlace | None) -> bool:
    """Whether the place carries exactly one id."""
    return id_place is not None and not selects_many(id_place.path)


# ``success`` compiled: the statuses that count as they are, and those that count on a condition.

Success = tuple[frozenset[int], tuple[RedirectSuccess, ...]]


def compile_success(
    section: Section | None, default: frozenset[int], faults: RuleFaults
) -> Success:
    """The statuses and conditions that ``response`` names; the default where it names none."""
    items: list[PlacedValue] = [] if section is None else section.value("success", [])
    statuses_alone = frozenset(item.value for item in items if isinstance(item.value, int))
    conditions = [
        _condition(item, statuses_alone, faults)
        for item in items
        if isinstance(item.value, Section)
    ]
    if not statuses_alone and not conditions:
        return default, ()
    return statuses_alone, tuple(conditions)


def statuses(success: Success) -> frozenset[int]:
    """Every status that may mean success."""
    return success[0].union(*(condition.statuses for condition in success[1]))


def check_named(
    section: Section, id_place: IdPlace | None, success: Success, faults: RuleFaults
) -> None:
    """Note an id in ``Location`` that no successful answer can tell: all lead elsewhere."""
    statuses_alone, conditions = success
    if (
        id_place is None
        or id_place.source is not IdSource.HEADER
        or id_place.name != "location"
        or id_place.template[:1] != "/"
    ):
        return
    template = parse_template(id_place.template.partition("?")[0])
    if not statuses_alone and not any(
        not one.locations or any(overlaps(template, path) for path in one.locations)
        for one in conditions
    ):
        faults.add(
            section.position("id"),
            f"no redirect of 'success' leads to {id_place.template}, so this id is never told; "
            "name that path under location",
        )


def _condition(
    item: PlacedValue, statuses_alone: frozenset[int], faults: RuleFaults
) -> RedirectSuccess:
    section: Section = item.value
    named: list[PlacedValue] = [one for one in section.value("status", []) if one.value is not None]
    locations: list[PlacedValue] = section.value("location", [])
    if (
        not section.strange
        and "status" in section
        and "location" not in section
        and "text" not in section
    ):
        faults.add(
            item.at, "this names no condition; add location or text, or write the status alone"
        )
    for one in named:
        if one.value in statuses_alone:
            faults.add(
                one.at,
                f"{one.value} stands in 'success' without a condition as well; keep one of the two",
            )
        elif locations and not 300 <= one.value < 400:
            faults.add(
                one.at,
                f"'location' is about redirects, and {one.value} is none; write a status from "
                "300 to 399",
            )
    return RedirectSuccess(
        frozenset(one.value for one in named),
        tuple(one.value for one in locations if one.value is not None),
        section.value("text", ""),
    )
