"""Places of an operation's values in a body: ``object``, ``each``, ``form``, ``fields``."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

from proxy.model.schema import Path, PathStep, spell
from proxy.redactor.content_lines import VALUE_PARTS
from proxy.redactor.forks import each_operation
from proxy.redactor.load.entities import needs_record
from proxy.redactor.load.ids import selectors_overlap, selects_many
from proxy.redactor.load.parameters import by_weight
from proxy.redactor.load.parsers import parse_selector
from proxy.redactor.load.texts import is_passed, known_field, with_documents
from proxy.redactor.load.value_forms import PlacedValue, Section
from proxy.redactor.load.vault_questions import check_lone
from proxy.redactor.load.yaml_tree import RuleFaults
from proxy.redactor.named_places import misplaced
from proxy.redactor.path_template import SegmentKind, parse_template
from proxy.redactor.request_rules import PassPlaces
from proxy.redactor.rules import (
    BodyPlace,
    Entity,
    IdPlace,
    IdSource,
    Operation,
    PatchKind,
    RequestRule,
    Rule,
    Verb,
)
from proxy.redactor.words import DocumentKind, OtherKinds
from proxy.tokenization import SHAPES

#: Keys that say where something stands in a body.
PLACE_KEYS = (
    "object", "each", "form", "fields", "values", "multipart", "csv", "websocket", *DocumentKind
)  # fmt: skip
#: Keys that mean nothing beside places in XML.
_NO_XML: Final = (
    "object", "each", "form", "values", "multipart", "csv", "part", "files", "websocket",
    "stream", "patch", "columns", "carriers",
)  # fmt: skip

#: Effect of absent members and null in a merge patch (RFC 7386).
_MERGES: Final = {"absent": "keep", "nulls": "erase"}


def compile_body(
    section: Section | None, entity: Entity, *, default: bool, faults: RuleFaults
) -> BodyPlace | None:
    """The places of one direction.

    ``default``: where nothing is said, the object stands at ``$``. Without it nothing in the body
    is named, and ``fields`` alone are places without an object.
    """
    places = () if section is None else [key for key in PLACE_KEYS if key in section]
    if section is None or not places or (places == ["values"] and not default):
        return _whole(entity) if default else None  # what passes alone names no field
    form, parts, csv = (
        member_fields(section.value(key, {}), entity, faults)
        for key in ("form", "multipart", "csv")
    )
    objects = _objects(section, default, faults)
    own = _own_places(section.value("fields", {}), entity, faults)
    depth = len(objects or ())
    inside = {
        name: path[depth:]
        for name, path in own.items()
        if path[:depth] == objects and len(path) > depth
    }
    outside = {name: path for name, path in own.items() if name not in inside}
    kind = next((one for one in DocumentKind if one in section), None)
    # of a search in XML only those that the rule names here
    whole = objects is not None and (default or kind is None)
    named = entity.fields.values() if whole else ()
    fields = {rule.name: rule.at for rule in named if rule.name not in own}
    part = section.value("part", "") or ""
    files = _file_names(section.value("multipart", {}), entity, faults)
    members = form, parts, files, csv
    each = "each" in section or (kind is not None and selects_many(objects or ()))
    body = BodyPlace(objects, each, fields | inside, outside, *members, part, xml=kind)
    if kind is not None:
        _check_document(kind, body, section, faults)
    if own:
        _check_places(body, section, faults)
    return with_documents(body, section, entity, faults)


def member_fields(
    members: Mapping[str, PlacedValue], entity: Entity, faults: RuleFaults
) -> dict[str, str]:
    """Names and patterns of members or parameters with their fields, most specific first."""

    def field_of(_: str, item: PlacedValue) -> str | None:
        if is_passed(item):
            return ""
        named = item.value.items.get("field") if isinstance(item.value, Section) else item
        if named is None or not named.value:
            return None
        field: str | None = named.value[0].value if isinstance(named.value, list) else named.value
        declared = field is not None and known_field(field, named, entity, faults)
        return field if declared else None

    named = by_weight(members, field_of, faults)
    return {name: field for name, field in named.items() if field}


def _file_names(
    parts: Mapping[str, PlacedValue], entity: Entity, faults: RuleFaults
) -> dict[str, str]:
    """Parts that are files, with the fields of their names."""
    names: dict[str, str] = {}
    for name, part in parts.items():
        if not isinstance(part.value, Section) or "filename" not in part.value:
            continue
        field: str | None = part.value.value("filename")
        at = part.value.items["filename"]
        if field is None or not known_field(field, at, entity, faults):
            continue
        names[name] = field
        if not SHAPES[entity.fields[field].shape.name].names_files:
            faults.add(
                at.at,
                f"tokens of {field} do not end as the names of files do, by whose endings "
                "applications decide; write token: filename at the field",
            )
    return names


def compile_passed(section: Section, verb: Verb, faults: RuleFaults) -> PassPlaces:
    """The places of a request that are said to hold nobody's data."""
    inner: Section | None = section.value("request")
    items: dict[str, dict[str, PlacedValue]] = {}
    for key in ("query", "form", "multipart", "csv", "values"):
        holder = section if key == "query" else inner
        members: Mapping[str, PlacedValue] = {} if holder is None else holder.value(key, {})
        items[key] = {name: one for name, one in members.items() if is_passed(one)}
        if verb not in (Verb.CREATE, Verb.UPDATE) or holder is None:
            continue  # those of a search are compiled with its other parameters
        for name, one in items[key].items():
            check_lone(name, "pass", one.value, faults)
        if members and len(items[key]) == len(members) and key in ("form", "multipart", "csv"):
            faults.add(
                holder.key(key),
                f"'{key}' names no field, so a body of this kind is refused; name one, or leave "
                f"'{key}' out",
            )
    paths = [path for name in items.pop("values") if (path := _selector(name)) is not None]
    return PassPlaces(**{key: tuple(names) for key, names in items.items()}, values=tuple(paths))


def _selector(text: str) -> Path | None:
    try:
        return parse_selector(text)
    except ValueError:
        return None  # a fault already


def _whole(entity: Entity) -> BodyPlace:
    return BodyPlace((), False, {rule.name: rule.at for rule in entity.fields.values()}, {}, {})


def _objects(section: Section, default: bool, faults: RuleFaults) -> Path | None:
    """Return the place of the objects; ``None`` for forms, and for single fields only."""
    if "object" in section and "each" in section:
        faults.add(
            section.key("each"),
            "'object' and 'each' exclude each other; keep 'each' where there are several objects",
        )
    if "websocket" in section:
        message: Path = section.value("websocket", ())
        return message
    for kind in DocumentKind:
        if kind in section:
            inner: Path = section.value(kind, ())
            return inner
    if "each" in section:
        path: Path = section.value("each", ())
        single = section.value("each") is not None and not selects_many(path)
        if single and "stream" not in section:  # the documents are several
            faults.add(
                section.position("each"), f"'each' selects one place only; write {spell(path)}[*]"
            )
        return path
    if "object" in section:
        whole: Path = section.value("object", ())
        return whole
    if "fields" in section or "values" in section:
        return () if default else None
    return None


#: The kinds in words, and a type by which requests with such a body are told.
_IN_WORDS: Final = {
    DocumentKind.ELEMENTS: ("a document of XML", "application/xml"),
    DocumentKind.CALL: ("a document of XML", "application/xml"),
    DocumentKind.VOBJECT: ("a card or calendar", "text/vcard"),
}


def _check_document(
    kind: DocumentKind, body: BodyPlace, section: Section, faults: RuleFaults
) -> None:
    """Note keys that mean nothing beside ``xml`` and its like, and places that select nothing."""
    what, media = _IN_WORDS[kind]
    for key in (*_NO_XML, *(other for other in DocumentKind if other is not kind)):
        if key in section:
            faults.add(
                section.key(key),
                f"'{kind}' says that the body is {what}, and '{key}' is about another "
                "one; leave one of them out, or write two operations, told apart by when: {type: "
                f"{media}}}",
            )
    ident: IdPlace | None = section.value("id")
    paths = [body.objects or (), *body.fields.values(), *body.anchored.values()]
    if ident is not None and ident.source is IdSource.BODY:
        paths.append(ident.path)
    for path in paths if kind.nests else ():
        if step := misplaced(path):
            faults.add(
                section.key(kind),
                f"{spell(path)} selects nothing in {what}: {step} stands behind the "
                "name of an element, and an attribute (['@id']) or ['#text'] comes last",
            )
        elif kind is DocumentKind.VOBJECT and (fault := _line_fault(path)):
            faults.add(section.key(kind), f"{spell(path)} selects nothing in {what}: {fault}")


def _line_fault(path: Path) -> str:
    """The reason for which a place of a card selects nothing; empty: it may select."""
    names = [step for step in path if isinstance(step, str) and not step.startswith("#")]
    *before, last = names or [""]
    parts = VALUE_PARTS.get(before[-1] if before else "", ())
    if any(name != name.upper() for name in before) or (last != last.upper() and not parts):
        return "components, properties and parameters (['@CN']) are written in capitals"
    if parts and not last.startswith("@") and last not in [part.rstrip("*") for part in parts]:
        return f"the parts of {before[-1]} are {', '.join(part.rstrip('*') for part in parts)}"
    if last in VALUE_PARTS and len(names) > 1:
        first = VALUE_PARTS[last][0]
        return f"the value of {last} has parts, such as {spell((*path, first))}"
    return ""


def _own_places(
    items: Mapping[str, PlacedValue], entity: Entity, faults: RuleFaults
) -> dict[str, Path]:
    own: dict[str, Path] = {}
    for name, item in items.items():
        if not known_field(name, item, entity, faults, item.key):
            continue
        if item.value == ():
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
                f"{spell(start)}, so it belongs to none of them; write "
                f"{spell((*start, *body.anchored[name][-1:]))}",
            )


def check_patch(
    section: Section,
    subject: tuple[Verb, Entity, IdPlace | None],
    rule: RequestRule,
    faults: RuleFaults,
) -> None:
    """Note contradictions to a ``patch``. ``subject``: verb, entity and id of the operation."""
    inner: Section = section.value("request")
    verb, entity, id_place = subject
    if verb is not Verb.UPDATE:
        faults.add(
            inner.key("patch"), f"'patch' changes a record, and this is a {verb}; write update"
        )
        return
    merges = rule.patch is PatchKind.MERGE
    if rule.body is not None and rule.body.texts:
        faults.add(
            inner.key("patch"),
            "the changes of a patch cannot be followed into texts of JSON; leave one of them out",
        )
    if rule.passed.values and not merges:
        faults.add(
            inner.key("values"),
            "the changes of a patch are not followed to places that pass; leave one of them out",
        )
    for word in ("absent", "nulls") if merges else ("absent", "nulls", "form", "other_kinds"):
        if word in inner and not (merges and inner.value(word) == _MERGES[word]):
            faults.add(
                inner.key(word),
                f"a patch of this kind says itself what stays and what goes; leave '{word}' out",
            )
    if merges:
        return
    if id_place is not None and id_place.source not in (IdSource.PATH, IdSource.QUERY):
        faults.add(
            section.position("id"),
            "a patch holds changes and no id; write id: path id or id: query id",
        )
    body = rule.body
    places = {} if body is None else {**body.fields, **body.anchored}
    if body is not None and not all(isinstance(step, str) for step in body.objects or ()):
        faults.add(
            inner.key("each" if "each" in inner else "object"),
            "a patch changes one object; name it by members alone, such as $.data",
        )
    for name, path in places.items():
        if any(not isinstance(step, str) and step is not PathStep.EACH for step in path):
            faults.add(
                inner.key("patch"),
                f"the changes of a patch cannot be followed to {name} at {spell(path)}; write its "
                "place with names and [*] alone",
            )
        elif PathStep.EACH in path and needs_record(entity.fields[name].shape):
            faults.add(
                inner.key("patch"),
                f"{name} has several values and the token shape {entity.fields[name].shape.name}, "
                "of which a patch can change one by its number; choose a larger shape, such as "
                "opaque",
            )


def unrestored(rules: Sequence[Rule]) -> Iterator[Operation]:
    """The first operation on each path whose values are taken in and never turned back.

    A POST to an action below a path where the same records are read has no GET of its own.
    """
    operations = [rule for rule in rules if isinstance(rule, Operation)]
    read = {parse_template(rule.template).shape for rule in rules if "GET" in rule.methods}
    reads = {
        (id(one.entity.fields), parse_template(one.template).shape)
        for one in each_operation(operations)
        if "GET" in one.methods and one.verb is Verb.READ
    }
    bases = tuple(one.envelope.base or "." for one in operations if one.envelope)
    for operation in operations:
        body = operation.request.body
        writes = operation.verb in (Verb.CREATE, Verb.UPDATE)
        if not writes or body is None or body.objects is None or operation.when:
            continue
        shape, fields = parse_template(operation.template).shape, id(operation.entity.fields)
        literal = shape[-1:] and shape[-1][0] is SegmentKind.LITERAL
        below = (
            literal
            and operation.methods == ("POST",)
            and any((fields, shape[:end]) in reads for end in range(1, len(shape)))
        )
        # a remote call has no separate address
        if not (shape in read or below or operation.template.startswith(bases)):
            yield operation
        read.add(shape)


def unseen(operation: Operation) -> Iterator[str]:
    """Warn of what of a body may reach the application in the clear."""
    if operation.request.other_kinds is OtherKinds.PASS:
        yield (
            f"{operation.position}: 'other_kinds: pass' sends uploads and other bodies of "
            f"{operation.label} to the application as they come, with every value they hold"
        )
    columns = operation.request.body.csv.values() if operation.request.body is not None else ()
    left = [name for name in operation.entity.fields if name not in columns]
    if columns and left:
        yield (
            f"{operation.position}: 'csv' of {operation.label} names no column for "
            f"{', '.join(left)}; a file that has such a column brings it to the application in "
            "the clear, so name it, or watch domicile coverage"
        )
