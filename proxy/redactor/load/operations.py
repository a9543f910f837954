"""``operations:`` compiled: defaults filled in, every name resolved."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from proxy.redactor.load.answers import (
    carrier_rules,
    check_messages,
    csv_columns,
    is_form,
    only_fields,
    page_heads,
    page_members,
    stream_kind,
    tells_record,
)
from proxy.redactor.load.body_places import (
    PLACE_KEYS,
    check_patch,
    compile_body,
    compile_passed,
)
from proxy.redactor.load.deletes import check_complete, keep_of
from proxy.redactor.load.entities import EntityDraft, find_entity, needs_record, several
from proxy.redactor.load.graphql import compile_graphql
from proxy.redactor.load.ids import (
    check_ids,
    check_named,
    compile_success,
    is_single,
    request_id,
    response_id,
    selects_many,
    statuses,
)
from proxy.redactor.load.objects import compile_envelope, compile_objects
from proxy.redactor.load.parameters import compile_search
from proxy.redactor.load.parsers import MatchPattern
from proxy.redactor.load.value_forms import PlacedValue, Section
from proxy.redactor.load.vault_questions import has_same_tokens, same_hint
from proxy.redactor.load.when import compile_when
from proxy.redactor.load.yaml_tree import RuleFaults
from proxy.redactor.request_rules import SUCCESS, Condition, SearchRule
from proxy.redactor.rules import (
    BodyPlace,
    Endpoint,
    Entity,
    IdPlace,
    IdSource,
    Operation,
    PassRule,
    PatchKind,
    Position,
    RequestRule,
    ResponseRule,
    Restore,
    Rule,
    Verb,
)
from proxy.redactor.words import RequestWords, ResponseWords, pointless_words, read_words


def check_uploads(section: Section, verb: Verb, faults: RuleFaults) -> None:
    """Note keys of uploads that mean nothing together."""
    if "files" in section and "multipart" not in section and "part" not in section:
        faults.add(
            section.key("files"),
            "'files' are parts of a form, and the rule names none of its texts; write multipart: "
            "{caption: note}, or other_kinds: pass for uploads that hold nobody's data",
        )
    if "part" in section and "csv" not in section:
        faults.add(
            section.key("part"),
            "'part' is the CSV file of a form, and the rule names none of its columns; write csv: "
            "{Email: email}, or multipart: {caption: note} for texts",
        )
    if "part" in section and "multipart" in section:
        faults.add(
            section.key("multipart"),
            "the rows of a CSV file are records each, and a text beside it belongs to none of "
            "them; leave 'multipart' or 'part' out",
        )
    parts: Mapping[str, PlacedValue] = section.value("multipart", {})
    for part in parts.values() if verb in (Verb.READ, Verb.DELETE) else ():
        if isinstance(part.value, Section) and "filename" in part.value:
            faults.add(
                part.value.key("filename"),
                f"the name of a file is stored, and this is a {verb}; leave it out, or make the "
                "operation a create or an update",
            )
    if "csv" in section and verb is not Verb.CREATE:
        faults.add(
            section.key("csv"),
            f"each row of a CSV file becomes a new record, and this is a {verb}; leave 'csv' out, "
            "or make the operation a create",
        )


def lists_ids(section: Section, sent: BodyPlace) -> bool:
    """Whether the answer to several creates lists bare ids, without objects: ``$.ids[*]``."""
    ident = section.value("id")
    many = isinstance(ident, IdPlace) and selects_many(ident.path)
    return bool(sent.csv or sent.file_names) and many


def _list_of_ids(body: BodyPlace, ident: IdPlace) -> IdPlace:
    """The place of a list of ids in an answer with one object: all of them, beside that."""
    listed = ident.source is IdSource.BODY and selects_many(ident.path)
    if body.each or ident.absolute or body.objects is None or not listed:
        return ident
    return replace(ident, absolute=True, path=(*body.objects, *ident.path))


@dataclass(frozen=True, slots=True)
class Scope:
    """Names that the operations of one file may use."""

    endpoint: Endpoint
    entities: Mapping[str, EntityDraft]
    faults: RuleFaults


def compile_operation(section: Section, scope: Scope) -> Rule | None:
    """Compile an operation; ``None`` if its subject was at fault."""
    if "pass" in section or "unmatched" in section:
        return _pass(section, scope)
    if "graphql" in section or "envelope" in section:
        compiled = compile_envelope if "envelope" in section else compile_graphql
        when = compile_when(section, scope.faults)
        return compiled(section, (scope.endpoint, scope.entities, scope.faults), when)
    matched = section.value("match")
    if isinstance(matched, MatchPattern):
        _check_prefix(section, matched, scope)
    if "objects" in section:
        when = compile_when(section, scope.faults)
        parts = partial(_of_one_entity, matched=matched, scope=scope, when=())
        return compile_objects(section, parts, when, scope.faults)
    return _of_one_entity(section, matched, scope, compile_when(section, scope.faults))


def _of_one_entity(
    section: Section, matched: object, scope: Scope, when: tuple[Condition, ...]
) -> Operation | None:
    """Compile an operation on one entity; ``None`` if that was at fault."""
    verb, draft = _verb(section, scope.faults), None
    if verb is not None:
        draft = find_entity(section, verb, scope.entities, scope.faults)
    if verb is None or draft is None or not isinstance(matched, MatchPattern):
        return None
    entity, faults = draft.entity, scope.faults
    search = compile_search(section, (verb, entity, scope.entities), matched.template, faults)
    request = _request(section, verb, entity, search, faults)
    id_place = request_id(section, verb, matched.template, request.body, faults)
    response = _response(section, verb, entity, (id_place, request.body), faults)
    if request.patch is not None:
        check_patch(section, (verb, entity, id_place), request, faults)
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
        when,
        keep=keep_of(section, verb, entity, faults),
    )
    _check_same(operation, section, faults)
    check_ids(operation, section, faults)
    _check_addressed(operation, section, draft, faults)
    _check_single(operation, section, faults)
    _check_files(operation, section, faults)
    check_complete(operation, section, faults)
    return operation


def _pass(section: Section, scope: Scope) -> PassRule | None:
    """A request that passes. A key that says something else of it contradicts that."""
    unmatched = "unmatched" in section
    if unmatched:
        otherwise = (
            "'unmatched: true' is about what no other operation of the path takes, whatever it "
            "holds; leave '{key}' out"
        )
    else:
        otherwise = (
            "'pass: true' says that nobody's data is in this request and its answer, and '{key}' "
            "that there is; leave one of the two out"
        )
    fit = ("match", "unmatched") if unmatched else ("match", "pass", "when")
    section.allow(fit, scope.faults, otherwise)
    matched = section.value("match")
    word = section.value("unmatched" if unmatched else "pass")
    if not isinstance(matched, MatchPattern) or word is None:
        return None
    if unmatched and matched.query:
        text = (
            f"'unmatched' is about what is left over; write {matched.template.text} without a query"
        )
        scope.faults.add(section.position("match"), text)
    _check_prefix(section, matched, scope)
    when, path = compile_when(section, scope.faults), matched.template.text
    return PassRule(
        matched.label, scope.endpoint, matched.methods, path, section.at, when, unmatched
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


def _check_prefix(section: Section, matched: MatchPattern, scope: Scope) -> None:
    prefix = [part for part in scope.endpoint.prefix.split("/") if part]
    if [segment.text for segment in matched.template.segments[: len(prefix)]] != prefix:
        scope.faults.add(
            section.position("match"),
            f"all requests of this endpoint begin with its prefix, so this can never match; write "
            f"{scope.endpoint.prefix}{matched.template.text}",
        )


def _request(
    section: Section, verb: Verb, entity: Entity, search: SearchRule | None, faults: RuleFaults
) -> RequestRule:
    inner: Section | None = section.value("request")
    writes = verb in (Verb.CREATE, Verb.UPDATE)
    for word in pointless_words(RequestWords, verb):
        if inner is not None and word in inner:
            faults.add(inner.key(word), f"'{word}' means nothing to a {verb}; leave it out")
    words = {} if inner is None else {word: inner.value(word) for word in inner}
    searched = search is not None and bool(search.form or search.values)
    if inner is not None:
        check_uploads(inner, verb, faults)
    return RequestRule(
        None if searched else compile_body(inner, entity, default=writes, faults=faults),
        search,
        PatchKind(words["patch"]) if words.get("patch") else None,
        compile_passed(section, verb, faults),
        **read_words(RequestWords, words),
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
    listed = inner is not None and sent is not None and lists_ids(inner, sent)
    default = default and not listed
    stated = inner is not None and any(key in inner for key in PLACE_KEYS)
    restore = Restore(inner.value("restore", "named") if inner is not None else "named")
    named = restore is Restore.NAMED
    body = compile_body(inner, entity, default=(default and named) or stated, faults=faults)
    form = sent is not None and bool(sent.form)
    success = compile_success(inner, SUCCESS | ({302, 303} if form else frozenset()), faults)
    answer_id = response_id(section, verb, sent, faults, statuses(success))
    names_it = inner is not None and (stated or "id" in inner)
    if not names_it and verb is Verb.UPDATE and id_place is not None and not is_single(id_place):
        answer_id = IdPlace(IdSource.BODY, path=("id",))
    if verb is Verb.UPDATE and body is not None and answer_id is not None:
        answer_id = _list_of_ids(body, answer_id)
    if inner is not None:
        check_named(inner, answer_id, success, faults)
    only = only_fields(inner, entity, faults)
    single = is_single(id_place) or (verb is Verb.CREATE and sent is not None and is_form(sent))
    heads = page_heads(inner, entity, faults)
    single = single or (verb is Verb.READ and tells_record(answer_id, body, heads, entity))
    stream = stream_kind(inner, verb, faults)
    check_messages(section, faults)
    columns = csv_columns(inner, entity, verb, faults)
    carrying = carrier_rules(inner, body, entity, faults)
    in_parts = stream is not None or bool(columns)
    words = {} if inner is None else {word: inner.value(word) for word in inner}
    lists_all = bool(words.get("complete")) and verb is Verb.READ
    return ResponseRule(
        body,
        answer_id,
        success[0],
        success[1],
        presumed=verb is not Verb.READ and (inner is None or "success" not in inner),
        restore=restore,
        members=page_members(inner, body, (entity, only, heads), single, faults),
        heads=heads,
        only=only,
        stream=stream,
        columns=columns,
        in_parts=in_parts,
        special=in_parts or not named or any(carrying) or lists_all or bool(words.get("scan")),
        **carrying._asdict(),
        **read_words(ResponseWords, words),
    )


def _check_same(operation: Operation, section: Section, faults: RuleFaults) -> None:
    """A value that is looked for must get the same token each time."""
    if operation.verb in (Verb.CREATE, Verb.UPDATE):
        if len(operation.request.passed.query) < len(section.value("query", {})):
            faults.add(
                section.key("query"),
                f"the vault keeps what the body of a {operation.verb} carries, and a value in its "
                "address would be lost; leave query out, and have it sent in the body, or write "
                "pass: true where it is nobody's",
            )
        return
    body = operation.request.body
    if body is None:
        return
    for field in {*body.fields, *body.anchored, *body.form.values(), *body.multipart.values()}:
        if not has_same_tokens(operation.entity, field):
            faults.add(
                section.key("request"),
                same_hint(operation.entity, field, f"the body of this {operation.verb}"),
            )


def _check_addressed(
    operation: Operation, section: Section, draft: EntityDraft, faults: RuleFaults
) -> None:
    """Shapes that resolve by record need the record's id next to each token."""
    # a fault already
    unnamed = operation.verb in (Verb.UPDATE, Verb.DELETE) and operation.id is None
    body, page = operation.response.body, operation.response.members
    if body is None or (page and body.objects is None) or carries_id(operation) or unnamed:
        return
    small = [rule for rule in draft.entity.fields.values() if needs_record(rule.shape)]
    at: Position = section.key("response") if "response" in section else section.position("match")
    for rule in small:
        faults.add(
            at,
            f"{rule.name} has the token shape {rule.shape.name}, which resolves by the record's "
            "id, and this answer carries none; write response: {id: $.id} with the member that "
            "holds it, or choose a larger shape",
        )


def _check_single(operation: Operation, section: Section, faults: RuleFaults) -> None:
    """Refuse several places of a field with a constant token."""
    for side, body in (("request", operation.request.body), ("response", operation.response.body)):
        places = {} if body is None else {**body.fields, **body.anchored}
        for name, path in places.items():
            rule = operation.entity.fields[name]
            if rule.shape.capacity() == 1 and path != rule.at and selects_many(path):
                faults.add(section.key(side), several(name, rule.shape))


def _check_files(operation: Operation, section: Section, faults: RuleFaults) -> None:
    """Refuse texts beside files that become a record each."""
    body = operation.request.body
    creates = operation.verb is Verb.CREATE and operation.response.several
    if not creates or body is None or not body.file_names:
        return
    if body.multipart or any(text.source == "multipart" for text in body.texts):
        faults.add(
            section.key("request"),
            "the answer names several records, so each file becomes one, and a text beside them "
            "belongs to none; leave the texts out, or name one record in the answer",
        )


def carries_id(operation: Operation) -> bool:
    """Whether every answer that restores the operation's entity tells whose values they are."""
    if operation.response.id is not None:
        return True
    body = operation.response.body
    many = body is not None and (body.each or selects_many(body.objects or ()))
    return is_single(operation.id) and not many
