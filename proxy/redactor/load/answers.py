"""Rules for answers that are not one document: pages, texts, exports, streams."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from proxy.model.schema import Path
from proxy.redactor.cookies import CookieField
from proxy.redactor.load.body_places import member_fields
from proxy.redactor.load.entities import lacks_word, needs_record
from proxy.redactor.load.ids import restores_as, selectors_overlap
from proxy.redactor.load.parsers import CookiePlace
from proxy.redactor.load.texts import is_passed, known_field
from proxy.redactor.load.value_forms import PlacedValue, Section
from proxy.redactor.load.vault_questions import has_same_tokens, same_hint
from proxy.redactor.load.yaml_tree import RuleFaults, did_you_mean
from proxy.redactor.page_heads import label_of
from proxy.redactor.rules import (
    BodyPlace,
    Entity,
    FieldRule,
    IdPlace,
    IdSource,
    Operation,
    Restore,
    Stream,
    Verb,
)
from proxy.redactor.words import DocumentKind
from proxy.tokenization import SHAPES
from proxy.tokenization.base import TELLS_RECORD, Resolution, Shape
from proxy.tokenization.fallback import Fallback

#: Answers in which tokens are restored without their record's id.
_PAGES: Final = (Restore.HTML, Restore.TEXT, Restore.ANYWHERE)
#: Tokens of a shape from which on no value equals one by chance.
_BEYOND_CHANCE: Final = 2.0**64


def is_form(sent: BodyPlace) -> bool:
    """Whether a request is a form and nothing else: the form of one record."""
    return (
        sent.objects is None
        and not sent.csv
        and bool(sent.form or sent.multipart or sent.file_names)
    )


def page_heads(section: Section | None, entity: Entity, faults: RuleFaults) -> Mapping[str, str]:
    """The field of each head of a column, or label, of a page."""
    if section is None or section.value("restore") != Restore.HTML:
        return {}
    columns: Mapping[str, PlacedValue] = section.value("columns", {})
    labels = dict[str, str]()
    for name, item in columns.items():
        label = label_of(name)
        if not label:
            faults.add(item.key, "a head has a text; write what people read there")
        elif label in labels:
            faults.add(
                item.key,
                f"'{name}' and '{labels[label]}' are the same head: letter case, and signs at the "
                "ends, do not count; leave one of them out",
            )
        labels.setdefault(label, name)
    ident: IdPlace | None = section.value("id")
    if ident is not None and ident.source is IdSource.COLUMN and label_of(ident.name) in labels:
        faults.add(section.position("id"), "an id must be a value that no rule names")
    return member_fields(columns, entity, faults)


def page_members(
    section: Section | None,
    body: BodyPlace | None,
    fields: tuple[Entity, Collection[str], Mapping[str, str]],
    single: bool,
    faults: RuleFaults,
) -> Mapping[str, str]:
    """The elements of a page that hold fields, each restored as a place of JSON is.

    ``fields``: of the entity, those that the page shows (empty: all), and those of its heads.

    A fault for each field whose token could be a date or number of the text itself: ``single``, the
    request is about one record, and a place of the field tell them apart.
    """
    restore = section.value("restore") if section is not None else None
    if section is None or restore not in (Restore.HTML, Restore.TEXT):
        return {}
    entity, only, heads = fields
    rules = [rule for rule in entity.fields.values() if not only or rule.name in only]
    names = {rule.name for rule in rules}
    small = {rule.name for rule in rules if needs_record(rule.shape)}
    short = {rule.name for rule in rules if lacks_word(rule.shape)}
    page = restore == Restore.HTML
    form = body.form if body is not None else {}
    if form and not page:
        faults.add(
            section.key("form"), "'form' names the elements of a page of HTML; leave it out of text"
        )
        form = {}
    members = {member: name for member, name in form.items() if name in names}
    for name in sorted({*form.values()} & entity.fields.keys() - names):
        faults.add(
            section.key("form"),
            f"the page shows {name} in an element, and 'only' leaves it out; add {name} to 'only', "
            "or leave the element out",
        )
    for name in sorted({*heads.values()} - names):
        faults.add(
            section.key("columns"),
            f"'columns' names {name}, and 'only' leaves it out; add {name} to 'only', or leave the "
            "column out",
        )
    unclear = small | short
    telling = [] if single else [rule.name for rule in rules if _tells(rule)]
    hint = ", and one that shows whose it is" if telling else ""
    hint += "" if single else " (where the address has the id, write id: path id)"
    in_places = {*members.values(), *heads.values()}
    for name in sorted(unclear - in_places if single else unclear):
        way = _way((name, *telling[:1]), hint)
        kind = entity.fields[name].shape.name
        whole = "which nobody can tell", "give it a larger token shape"
        digits = (
            "whose tokens of short numbers nobody can tell",
            f"have those get a word (token: {{shape: {kind}, else: opaque}})",
        )
        what, cure = digits if name in short else whole
        faults.add(
            section.key("restore"),
            f"{name} has the token shape {kind}, {what} from other data of the "
            f"{'page' if page else 'text'}; {cure}, or list the fields that are shown under "
            f"'only'{way if page else ''}",
        )
    return members


def _way(fields: Sequence[str], hint: str) -> str:
    """The end of a sentence that says how the places of fields in a page are named."""
    pairs = ", ".join(f"{one}: {one}" for one in fields)
    columns = ", ".join(f"{one.replace('_', ' ').capitalize()}: {one}" for one in fields)
    return (
        f"; or name the head of its column, or the label before it{hint}, as people read them: "
        f"columns: {{{columns}}}; or the element that holds it: form: {{{pairs}}}, by its name, id "
        "or itemprop"
    )


def tells_record(
    ident: IdPlace | None, body: BodyPlace | None, heads: Mapping[str, str], entity: Entity
) -> bool:
    """Whether a page says which record it shows: by a header field, a column of ids, or by a token
    in an element, or a column, that the rule names, of a shape that always tells its record.
    """
    if ident is not None and ident.source is IdSource.HEADER:
        return True
    by_id = ident is not None and ident.source is IdSource.COLUMN
    form = {*body.form.values()} if body is not None else set()
    if by_id and not form:
        return True
    named = (form,) if by_id else (form, {*heads.values()})
    groups = [one & entity.fields.keys() for one in named]
    small = [one for one in groups if any(needs_record(entity.fields[name].shape) for name in one)]
    return any(groups) and all(
        any(_tells(entity.fields[name]) for name in one) for one in small or filter(None, groups)
    )


def _tells(rule: FieldRule) -> bool:
    """Whether each token of a field tells its record."""
    shape = rule.shape
    large = shape.resolution in TELLS_RECORD and not needs_record(shape)
    return large and not SHAPES[shape.name].sometimes_short


def with_lone_tokens(
    entity: Entity, operations: Sequence[Operation], *, everywhere: bool
) -> Mapping[str, FieldRule]:
    """Return the fields of the entity; a short value in a page gets the word of ``else``.

    That holds for fields that pages show anywhere, if the token would be too short for a look-up.

    ``everywhere``: so do all fields, since other answers show no id either.
    """
    lone = {*entity.fields} if everywhere else set[str]()
    for one in operations:
        if one.entity.name == entity.name and one.response.restore in _PAGES:
            named = {
                name
                for name in (*one.response.members.values(), *one.response.heads.values())
                if needs_record(entity.fields[name].shape)
            }
            lone |= {*(one.response.only or entity.fields)} - named
    return {
        name: replace(rule, shape=replace(rule.shape, alone=True))
        if name in lone and isinstance(rule.shape, Fallback)
        else rule
        for name, rule in entity.fields.items()
    }


def only_fields(section: Section | None, entity: Entity, faults: RuleFaults) -> frozenset[str]:
    """The fields that a page or text may show; empty where the rule lists none."""
    if section is None or "only" not in section:
        return frozenset()
    if not restores_as(section, Restore.HTML, Restore.TEXT):
        faults.add(
            section.key("only"), "'only' goes with restore: html or restore: text; leave it out"
        )
    items: Sequence[PlacedValue] = section.value("only", ())
    for item in items:
        if item.value is not None:
            known_field(item.value, item, entity, faults)
    return frozenset(item.value for item in items if item.value in entity.fields)


def stream_kind(section: Section | None, verb: Verb, faults: RuleFaults) -> Stream | None:
    """Return the stream format of an answer; ``None`` for a single document."""
    if section is None:
        return None
    key = "websocket" if "websocket" in section else "stream"
    if section.value(key) is None:
        return None
    if verb is not Verb.READ:
        faults.add(
            section.key(key),
            f"a {verb} is decided by its whole answer, and a stream has no end; leave {key} out, "
            "or make the operation a read",
        )
    for other in ("form", "restore", *(("stream", "object", "each") if key == "websocket" else ())):
        if other in section:
            faults.add(
                section.key(other),
                f"the events of a stream are JSON documents, each with its object where '{key}' "
                f"or 'object' says; leave '{other}' out",
            )
    return Stream.WEBSOCKET if key == "websocket" else Stream(section.value(key))


def csv_columns(
    section: Section | None, entity: Entity, verb: Verb, faults: RuleFaults
) -> Mapping[str, str]:
    """Return the field of each column; a small token needs the record's id in its row."""
    if section is None:
        return {}
    if section.value("restore") != Restore.CSV:
        for name, kinds in (("columns", (Restore.HTML,)), ("formulas", ())):
            if name in section and not restores_as(section, *kinds):
                also = " or restore: html" if kinds else ""
                faults.add(
                    section.key(name), f"'{name}' goes with restore: csv{also}; leave it out"
                )
        return {}
    at = section.key("restore")
    if "columns" not in section:
        faults.add(
            at, "an export says which columns hold which fields; write columns: {Name: name}"
        )
    if verb is not Verb.READ:
        faults.add(at, f"an export is read, and this is a {verb}; make the operation a read")
    columns = member_fields(section.value("columns", {}), entity, faults)
    ident: IdPlace | None = section.value("id")
    if ident is not None and ident.source is not IdSource.COLUMN:
        faults.add(section.position("id"), "the id of an export is a column; write id: column ID")
    elif ident is not None and not ident.name:
        faults.add(section.position("id"), "a link is one of a page; write id: column ID")
    elif ident is not None and ident.name in columns:
        faults.add(section.position("id"), "an id must be a value that no rule names")
    small = {name for name in columns.values() if needs_record(entity.fields[name].shape)}
    for name in sorted(small) if ident is None else ():
        faults.add(
            section.key("columns"),
            f"{name} has the token shape {entity.fields[name].shape.name}, which resolves by the "
            "record's id; name its column (id: column ID), or choose a larger shape",
        )
    return columns


class CarrierRules(NamedTuple):
    """Places of values beside the objects of an answer."""

    carriers: frozenset[bytes] = frozenset()
    carried: tuple[Path, ...] = ()
    cookies: Mapping[str, str] = {}  # never written


def carrier_rules(
    section: Section | None, body: BodyPlace | None, entity: Entity, faults: RuleFaults
) -> CarrierRules:
    """The header fields, JSON places and cookies that hold values."""
    if section is None:
        return CarrierRules()
    items: list[PlacedValue] = section.value("carriers", [])
    cookies = [item for item in items if isinstance(item.value, CookiePlace)]
    carried = [item for item in items if isinstance(item.value, tuple) and item not in cookies]
    for item in carried:
        whole = [(body.objects or ()) + path for path in body.fields.values()] if body else []
        if body is None or body.objects is None:
            faults.add(item.at, "this answer names no object of JSON; name a header field")
        elif not item.value or any(selectors_overlap(item.value, path) for path in whole):
            faults.add(item.at, "this is a protected place; name the member that is an address")
    in_parts = {"stream", "websocket"} & {*section} or section.value("restore") == Restore.CSV
    for key in ("carriers", "scan"):
        if key in section and in_parts:
            faults.add(section.key(key), f"an answer that is restored as it arrives has no '{key}'")
    names = frozenset(item.value for item in items if isinstance(item.value, bytes))
    if b"href" in names and not restores_as(section, Restore.HTML, Restore.ANYWHERE):
        faults.add(
            section.key("carriers"),
            "'href' means the links and forms of a page; write restore: html beside it, or name "
            "the member of a JSON answer that is an address, such as $.next",
        )
    fields = _cookies(cookies, entity, faults)
    names |= {b"set-cookie"} if fields else set()
    return CarrierRules(names, tuple(item.value for item in carried), fields)


def _cookies(items: Sequence[PlacedValue], entity: Entity, faults: RuleFaults) -> Mapping[str, str]:
    """The field of each cookie; its tokens are found by the value, and told from values."""
    fields: dict[str, str] = {}
    for item in items:
        name, field = item.value
        if field not in entity.fields:
            hint = did_you_mean(field, entity.fields)
            faults.add(item.at, f"{entity.name} has no field '{field}'; {hint}")
        elif not has_same_tokens(entity, field):
            faults.add(item.at, same_hint(entity, field, f"the cookie '{name}'"))
        elif _like_values(entity.fields[field].shape):
            faults.add(
                item.at,
                f"{field} has the token shape {entity.fields[field].shape.name}, which cannot be "
                "told from a value when the cookie comes back; choose a larger shape, or leave "
                "the cookie out",
            )
        elif fields.setdefault(name, field) != field:
            faults.add(item.at, f"the cookie '{name}' holds one value; write one field for it")
    return fields


def _like_values(shape: Shape) -> bool:
    """Whether a value may equal a token, so that one that comes back is not known as a token."""
    return shape.resolution is not Resolution.INDEXED or shape.capacity() < _BEYOND_CHANCE


def cookie_fields(operations: Iterable[Operation]) -> Mapping[str, CookieField]:
    """The cookies of an endpoint with their fields, as the vault calls them."""
    return {
        name: CookieField(one.entity.schema.name, (one.entity.kept_as or {}).get(field, field))
        for one in operations
        for name, field in one.response.cookies.items()
    }


def check_cookies(operations: Iterable[Operation], faults: RuleFaults) -> None:
    """Note a cookie that is said to hold values of two fields."""
    owners: dict[str, tuple[str, str]] = {}
    for one in operations:
        for name, field in one.response.cookies.items():
            owner = owners.setdefault(name, (one.entity.name, field))
            if owner != (one.entity.name, field):
                faults.add(
                    one.position,
                    f"the cookie '{name}' holds {'.'.join(owner)} by another rule of this file, "
                    "and a browser sends it back without saying which; give it one field",
                )


#: Places in a body that messages of a WebSocket do not have.
_NOT_IN_MESSAGES: Final = ("form", "multipart", "csv", "part", *DocumentKind)


def check_messages(section: Section, faults: RuleFaults) -> None:
    """Note messages of a caller without a WebSocket, and places that are none of theirs."""
    request, response = section.value("request"), section.value("response")
    opened = response is not None and "websocket" in response
    if request is not None and "websocket" in request and not opened:
        faults.add(
            request.key("websocket"),
            "these messages are of a WebSocket, and the operation opens none; write response: "
            "{websocket: $.contact} with the place of the object in the application's messages",
        )
    if request is None or not opened:
        return
    unfit = [request.key(key) for key in _NOT_IN_MESSAGES if key in request]
    unfit += [one.key for one in request.value("values", {}).values() if not is_passed(one)]
    for at in unfit:
        faults.add(
            at,
            "messages of a WebSocket are JSON and search by 'fields', or by the object at "
            "'websocket'; write fields: {email: $.search.email}, or under 'values' pass: true of a "
            "place that holds nobody's data",
        )
