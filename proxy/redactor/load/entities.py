"""``entities:`` compiled: fields with their shapes and places, and the vault schema each entity makes."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from proxy.model.builtin import RECORDS
from proxy.model.path import spell
from proxy.model.schema import Field, FieldType, Schema, Storage
from proxy.redactor.load.faults import Faults, did_you_mean
from proxy.redactor.load.forms import Item, Section
from proxy.redactor.load.grammar import POPULATION
from proxy.redactor.load.keeping import kept_as
from proxy.redactor.load.overlaps import overlap, selects_many
from proxy.redactor.rules import Entity, FieldRule, Position
from proxy.tokenization import DEFAULT_SHAPE, PERSISTENT, SHAPES, SYNONYMS, make_shape
from proxy.tokenization.base import Resolution, Shape
from proxy.tokenization.fallback import with_fallback

#: Six free digits: with fewer, tokens of digits are not looked up by themselves (``tokenization.digits``).
_UNIQUE = 900_000

#: The shape of a field whose declaration is at fault, until it is mended: one that no operation is refused for.
_STAND_IN = make_shape("opaque", {"same": True})


@dataclass(frozen=True, slots=True)
class Draft:
    """An entity with what only the checks need: where its parts stand."""

    entity: Entity
    at: Position
    places: Mapping[str, Position]  #: field name -> where its token shape, or the field, is declared


def compile_entities(items: Mapping[str, Item], faults: Faults) -> dict[str, Draft]:
    """Every entity of a file that has fields; faults in them are noted."""
    return {name: _entity(name, item, faults) for name, item in items.items() if isinstance(item.value, Section)}


def _entity(name: str, item: Item, faults: Faults) -> Draft:
    section: Section = item.value
    fields: dict[str, FieldRule] = {}
    places: dict[str, Position] = {}
    declared: dict[str, Item] = section.value("fields", {})
    for field_name, field_item in declared.items():
        rule = _field(field_name, field_item.value, faults) if isinstance(field_item.value, Section) else None
        if rule is not None:
            fields[field_name] = rule
            places[field_name] = field_item.value.place("token")
            _check_room(rule, name, section.value("population", POPULATION), places[field_name], faults)
    _check_names(declared, faults)
    _check_places(fields, declared, faults)
    for field_name in declared.keys() - fields.keys():  # at fault, and told so: whoever names it makes no further one
        fields[field_name] = FieldRule(field_name, "text", _STAND_IN, (field_name,), plain=False, find=frozenset())
        places[field_name] = declared[field_name].at
    kept = kept_as(name, item, fields, faults)
    own = section.value("schema", name) if kept is None else f"{RECORDS}/{name}"
    schema = Schema(own, tuple(_schema_field(rule) for rule in fields.values()))
    return Draft(Entity(name, schema, fields, section.value("expires"), False, kept), item.key, places)


def _field(name: str, section: Section, faults: Faults) -> FieldRule | None:
    kind = section.value("kind")
    if kind is None:
        return None
    shape = _shape(kind, section, faults)
    plain = section.value("stored") == "plain"
    find = frozenset(item.value for item in section.value("find", []) if item.value)
    if "range" in find and not plain:
        faults.add(
            section.key("find"),
            f"range search needs order, and order tells something about the value; write 'stored: plain' beside it "
            f"to accept that {name} is readable in the vault, or leave range out",
        )
    path = section.value("at", (name,))
    if shape is not None and shape.capacity() == 1 and selects_many(path):
        faults.add(section.place("at" if "at" in section else "token"), several(name, shape))
    if not path or isinstance(path[0], int):
        faults.add(section.place("at"), f"a field stands inside the entity's object; write $.{name} or another member")
    return FieldRule(name, kind, shape, path, plain, find) if shape else None


def several(name: str, shape: Shape) -> str:
    """The fault of a place with several values for a field whose tokens are all the same, or may be."""
    return (
        f"{name} has several values in one record there, and the token shape {shape.name} gives them the same token, so they "
        f"could not be told apart again; choose a shape whose tokens differ, such as opaque, numeric or date, or name one place"
    )


def _shape(kind: str, section: Section, faults: Faults) -> Shape | None:
    name, options = DEFAULT_SHAPE[kind], {}
    token = section.value("token")
    if isinstance(token, str):
        name = token
    elif isinstance(token, Section):
        if "shape" in token and token.value("shape") is None:
            return None  # which options it may have is not known
        name = token.value("shape", "template" if "template" in token else name)
        options = {key: token.value(key) for key in token if key not in _NO_OPTIONS}
        if not _options_fit(name, token, faults):
            return None
    elif "token" in section:
        return None
    fallback = token.value("else") if isinstance(token, Section) else None
    try:
        shape = make_shape(name, options)
        if fallback is None:
            return shape
        return with_fallback(shape, make_shape(fallback, {"same": True} if shape.same else {}))
    except ValueError as error:
        faults.add(section.place("token"), f"{error}")
        return None


#: Members of ``token`` that are no options of the shape.
_NO_OPTIONS = ("shape", "else")


def _options_fit(shape: str, token: Section, faults: Faults) -> bool:
    """Whether the shape takes each option, so that a wrong one is pointed at rather than the whole token."""
    known = SHAPES[PERSISTENT.get(shape, SYNONYMS.get(shape, shape))].options
    fits = True
    for key, item in token.items.items():
        if key in _NO_OPTIONS:
            continue
        if key not in known:
            takes = did_you_mean(key, known) if known else "it takes no options."
            faults.add(item.key, f"token shape {shape} has no option '{key}'; {takes}")
            fits = False
        elif isinstance(item.value, str) and "${" in item.value:
            faults.add(item.at, "references (${env:…}, ${file:…}) are not allowed here; write the text itself")
            fits = False
    return fits


def needs_record(shape: Shape) -> bool:
    """Whether tokens of typical values are too small to be unique, so that they resolve by record id and field."""
    small = shape.resolution is Resolution.INDEXED and shape.capacity() < _UNIQUE
    return small or shape.resolution is Resolution.BY_RECORD


def _check_room(rule: FieldRule, entity: str, population: int, at: Position, faults: Faults) -> None:
    if rule.shape.resolution is not Resolution.INDEXED or needs_record(rule.shape):
        return
    room = rule.shape.capacity()
    if room < 2 * population:
        faults.add(
            at,
            f"token shape {rule.shape.name} has room for {room:,.0f} different tokens, and {entity} is planned for "
            f"{population:,} records, which needs {2 * population:,}; choose a longer shape, or state a smaller "
            f"'population' for {entity}",
        )


def _check_names(declared: Mapping[str, Item], faults: Faults) -> None:
    """The vault's tables do not tell letter cases apart."""
    for one, other in combinations(declared, 2):
        if one.lower() == other.lower():
            faults.add(
                declared[other].key, f"'{other}' and '{one}' differ in letter case only; rename one and use 'at'"
            )


def _check_places(fields: Mapping[str, FieldRule], declared: Mapping[str, Item], faults: Faults) -> None:
    for one, other in combinations(fields.values(), 2):
        if overlap(one.at, other.at):
            section: Section = declared[other.name].value
            at = section.place("at") if "at" in section else declared[other.name].key
            faults.add(
                at,
                f"{other.name} at {spell(other.at)} overlaps {one.name} at {spell(one.at)}; a value belongs to one field only",
            )


def _schema_field(rule: FieldRule) -> Field:
    storage = Storage.INDEXED if rule.plain else Storage.INDEXED_HASHED if rule.find else Storage.ENCRYPTED
    dated = rule.plain and rule.kind == "date"
    return Field(rule.name, FieldType.DATE if dated else FieldType.STRING, storage, rule.kind)
