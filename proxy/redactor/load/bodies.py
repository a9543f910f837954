"""``request:`` and ``response:`` compiled to places in a body."""

from collections.abc import Mapping
from itertools import combinations

from proxy.model.path import Path, spell
from proxy.redactor import globs
from proxy.redactor.load.faults import Faults, did_you_mean
from proxy.redactor.load.forms import Item, Section
from proxy.redactor.load.overlaps import overlap, selects_many
from proxy.redactor.rules import BodyPlace, Entity

#: Keys that say where something stands in a body.
PLACES = ("object", "each", "form", "fields")


def compile_body(section: Section | None, entity: Entity, *, default: bool, faults: Faults) -> BodyPlace | None:
    """The places of one direction.

    ``default``: where nothing is said, the object stands at ``$``. Without it nothing in the body is named, and
    ``fields`` alone are places without an object.
    """
    if section is None or not any(key in section for key in PLACES):
        return _whole(entity) if default else None
    form = member_fields(section.value("form", {}), entity, faults)
    objects = _objects(section, default, faults)
    own = _own_places(section.value("fields", {}), entity, faults)
    inside = (
        {} if objects is None else {name: path[len(objects) :] for name, path in own.items() if _within(path, objects)}
    )
    outside = {name: path for name, path in own.items() if name not in inside}
    fields = {} if objects is None else {rule.name: rule.at for rule in entity.fields.values() if rule.name not in own}
    place = BodyPlace(objects, "each" in section, fields | inside, outside, form)
    if own:
        _check_places(place, section, faults)
    return place


def member_fields(members: Mapping[str, Item], entity: Entity, faults: Faults) -> dict[str, str]:
    """Names and patterns of members or parameters with the field each carries, the most specific first."""
    out: dict[str, str] = {}
    for name, item in members.items():
        field = item.value.value("field") if isinstance(item.value, Section) else item.value
        at = item.value.place("field") if isinstance(item.value, Section) else item.at
        if field is not None and field not in entity.fields:
            faults.add(at, f"{entity.name} has no field '{field}'; {did_you_mean(field, entity.fields)}")
        elif field is not None:
            out[name] = field
    for one, other in combinations(out, 2):
        tie = globs.weight(one) == globs.weight(other) and globs.overlap(one, other)
        if tie and "*" in one and out[one] != out[other]:
            faults.add(
                members[other].key,
                f"'{other}' and '{one}' can name the same member and neither is more specific; make one of them longer",
            )
    return dict(sorted(out.items(), key=lambda entry: globs.weight(entry[0]), reverse=True))


def _whole(entity: Entity) -> BodyPlace:
    return BodyPlace((), False, {rule.name: rule.at for rule in entity.fields.values()}, {}, {})


def _objects(section: Section, default: bool, faults: Faults) -> Path | None:
    """Where the objects stand; ``None`` where the body is a form only, or nothing but places of single fields."""
    if "object" in section and "each" in section:
        faults.add(
            section.key("each"), "'object' and 'each' exclude each other; keep 'each' where there are several objects"
        )
    if "each" in section:
        path: Path = section.value("each", ())
        if section.value("each") is not None and not selects_many(path):
            faults.add(section.place("each"), f"'each' selects one place only; write {spell(path)}[*]")
        return path
    if "object" in section:
        whole: Path = section.value("object", ())
        return whole
    if "fields" in section:
        return () if default else None
    return None


def _own_places(items: Mapping[str, Item], entity: Entity, faults: Faults) -> dict[str, Path]:
    own: dict[str, Path] = {}
    for name, item in items.items():
        if name not in entity.fields:
            faults.add(item.key, f"{entity.name} has no field '{name}'; {did_you_mean(name, entity.fields)}")
        elif item.value == ():
            faults.add(item.at, f"a field cannot be the whole document; write $.{name} or another member")
        elif item.value is not None:
            own[name] = item.value
    return own


def _within(path: Path, objects: Path) -> bool:
    return len(path) > len(objects) and path[: len(objects)] == objects


def _check_places(place: BodyPlace, section: Section, faults: Faults) -> None:
    """The operation's own places against each other and against those of the entity."""
    start = place.objects or ()
    whole = {name: start + path for name, path in place.fields.items()} | dict(place.anchored)
    own: Mapping[str, Item] = section.value("fields", {})
    for one, other in combinations(whole, 2):
        named = other if other in own else one
        if named in own and overlap(whole[one], whole[other]):
            rival = one if named == other else other
            faults.add(
                own[named].at, f"{named} overlaps {rival} at {spell(whole[rival])}; a value belongs to one field only"
            )
    several = place.each or selects_many(start)
    for name in place.anchored:
        if several:
            faults.add(
                own[name].at,
                f"places under 'fields' count from the document's root, and this one is outside of the objects at "
                f"{spell(start)}, so it belongs to none of them; write {spell(start)}.{name}",
            )
