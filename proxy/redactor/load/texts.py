"""Texts that are documents of JSON, in stored bodies and in answers: ``json`` compiled."""

from collections.abc import Mapping
from dataclasses import replace

from proxy.model.schema import Path, PathStep, spell
from proxy.redactor.load.ids import selectors_overlap, selects_many
from proxy.redactor.load.parsers import parse_selector
from proxy.redactor.load.value_forms import PlacedValue, Section
from proxy.redactor.load.yaml_tree import RuleFaults, did_you_mean
from proxy.redactor.request_rules import TextPlace
from proxy.redactor.rules import BodyPlace, Entity, Position


def known_field(
    name: str, at: PlacedValue, entity: Entity, faults: RuleFaults, position: Position | None = None
) -> bool:
    """Whether the entity has that field; else a fault is noted, at value or position."""
    if name in entity.fields:
        return True
    if entity.fields:  # else a fault already
        hint = did_you_mean(name, entity.fields)
        faults.add_once(position or at.at, f"{entity.name} has no field '{name}'; {hint}")
    return False


def is_document(item: PlacedValue) -> bool:
    """Whether a member or place is said to be a text of JSON."""
    return isinstance(item.value, Section) and "json" in item.value


def is_passed(item: PlacedValue) -> bool:
    """Whether a member or place is said to hold nobody's data."""
    return isinstance(item.value, Section) and "pass" in item.value


def with_documents(
    body: BodyPlace, section: Section, entity: Entity, faults: RuleFaults
) -> BodyPlace:
    """The places of a body with those in its texts of JSON."""
    texts: list[TextPlace] = []
    for key in ("form", "multipart"):
        members: Mapping[str, PlacedValue] = section.value(key, {})
        for name, item in members.items():
            if is_document(item):
                texts += _text((key, name, ()), item, entity, faults)
    places: Mapping[str, PlacedValue] = section.value("values", {})
    for name, item in places.items():
        path = _selector(name, item, faults)
        if item.value is None:
            continue  # a fault already
        if is_passed(item) and path is not None:
            _refuse_overlap(path, body, item, faults)
        elif not is_document(item):
            faults.add(
                item.key,
                "'values' of what is stored, and of answers, are texts that are documents of JSON; "
                "write json: {$.email: email}, pass: true in a request where nobody's data is "
                "there, or name the field under 'fields'",
            )
        elif path is not None:
            texts += _text(_within(path, body, item, faults), item, entity, faults)
    return replace(body, texts=tuple(texts))


def _within(
    path: Path, body: BodyPlace, item: PlacedValue, faults: RuleFaults
) -> tuple[str, str, Path]:
    """Return the base of a text: the object if the text is inside it, else the root."""
    start = body.objects or ()
    depth = len(start)
    _refuse_overlap(path, body, item, faults)
    if body.objects is not None and path[:depth] == start and len(path) > depth:
        return "object", "", path[depth:]
    if body.each or selects_many(start):
        faults.add(
            item.key,
            f"this text is outside of the objects at {spell(start)}, so it belongs to none of "
            f"them; write {spell(start)}.name",
        )
    return "root", "", path


def _refuse_overlap(path: Path, body: BodyPlace, item: PlacedValue, faults: RuleFaults) -> None:
    start = body.objects or ()
    whole = [*(start + one for one in body.fields.values()), *body.anchored.values()]
    rivals = [one for one in whole if selectors_overlap(one, path)]
    if rivals:
        faults.add(
            item.key,
            f"this place overlaps a field at {spell(rivals[0])}; a value belongs to one of them",
        )


def _text(
    at: tuple[str, str, Path], item: PlacedValue, entity: Entity, faults: RuleFaults
) -> list[TextPlace]:
    section: Section = item.value
    alone = "'json' says all of this text, so '{key}' means nothing; leave it out"
    section.allow(("json",), faults, alone)
    fields: list[tuple[Path, str]] = []
    texts: list[TextPlace] = []
    inner: Mapping[str, PlacedValue] = section.value("json", {})
    for name, one in inner.items():
        path = _selector(name, one, faults)
        if path is None:
            continue
        if any(selectors_overlap(path, other) for other, _ in fields) or any(
            selectors_overlap(path, other.path) for other in texts
        ):
            faults.add(one.key, f"{name} overlaps another place of the text")
        if is_document(one):
            texts += _text(("object", "", path), one, entity, faults)
            continue
        field = _field(name, one, faults)
        if field is not None and known_field(field, one, entity, faults):
            fields.append((path, field))
    return [TextPlace(*at, tuple(fields), tuple(texts))] if fields or texts else []


def _field(name: str, item: PlacedValue, faults: RuleFaults) -> str | None:
    if not isinstance(item.value, Section):
        field: str | None = item.value
        return field
    for key in item.value:
        if key != "field":
            faults.add(
                item.value.key(key),
                f"'{key}' is about searches, and the value at {name} is stored or shown; write its "
                "field, or json",
            )
    named: list[PlacedValue] = item.value.value("field", [])
    return named[0].value if len(named) == 1 else None


def checked_selector(name: str, item: PlacedValue, faults: RuleFaults) -> Path | None:
    """The place that a key names; ``None`` after noting a fault."""
    try:
        return parse_selector(name)
    except ValueError as error:
        faults.add(item.key, f"{error}")
        return None


def _selector(name: str, item: PlacedValue, faults: RuleFaults) -> Path | None:
    path = checked_selector(name, item, faults)
    if path is not None and (not path or PathStep.DEEP in path):
        faults.add(item.key, "a place in or of a text has a way of names and numbers; write $.name")
        return None
    return path


def settled_text(text: TextPlace, names: Mapping[str, str]) -> TextPlace:
    """The same with fields in the names of the record schema."""
    fields = tuple((path, names.get(field, field)) for path, field in text.fields)
    return replace(text, fields=fields, texts=tuple(settled_text(one, names) for one in text.texts))
