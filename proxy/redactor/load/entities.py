"""``entities:`` compiled: fields with their shapes and places, and the schema each one makes."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from proxy.model.schema import (
    IN_THE_CLEAR,
    KEPT_AS,
    RECORDS_SCHEMA,
    SEVERAL,
    Field,
    FieldType,
    Schema,
    Storage,
    spell,
)
from proxy.redactor.load.ids import selectors_overlap, selects_many
from proxy.redactor.load.rule_keys import POPULATION
from proxy.redactor.load.value_checks import check_versions, compile_check
from proxy.redactor.load.value_forms import PlacedValue, Section
from proxy.redactor.load.views import compile_mask
from proxy.redactor.load.yaml_tree import RuleFaults, did_you_mean
from proxy.redactor.rules import (
    BodyLimits,
    Endpoint,
    Entity,
    FieldRule,
    OnError,
    Position,
    Unmatched,
)
from proxy.tokenization import DEFAULT_SHAPE, PERSISTENT, SHAPES, SYNONYMS, make_shape
from proxy.tokenization.base import Resolution, Shape
from proxy.tokenization.fallback import Fallback, with_fallback
from proxy.tokenization.mask import Mask

# ``schema: records``: entities stored among the records of the record-based family, each field in a
# field of that.
#
# While a file is being read its fields have the names in the file. Then ``settling`` exchanges
# those names for the fields of ``keep_as`` in the record schema, so that the rules at run time, and
# the vault's bodies, know only these.


def kept_as(
    name: str, item: PlacedValue, fields: Mapping[str, FieldRule], faults: RuleFaults
) -> Mapping[str, str] | None:
    """By the names of fields: what each is kept in.

    ``None``: the entity has its own schema; faults are noted.
    """
    section: Section = item.value
    hosted = section.value("schema") == RECORDS_SCHEMA
    declared: Mapping[str, PlacedValue] = section.value("fields", {})
    chosen = {field: part for field, part in declared.items() if isinstance(part.value, Section)}
    if not hosted:
        _refuse_name(name, item, faults)
        for part in chosen.values():
            if "keep_as" in part.value:
                faults.add(
                    part.value.key("keep_as"),
                    "only fields of the record schema are kept as one; write 'schema: "
                    f"{RECORDS_SCHEMA}' at {name}, or leave keep_as out",
                )
        return None
    taken: dict[str, str] = {}
    for field, part in chosen.items():
        target = part.value.value("keep_as", field if field in KEPT_AS else None)
        if target is not None and field in fields:
            _check(fields[field], part, target, (taken, faults))
    if not taken:
        faults.add(
            section.key("schema"),
            f"no field of {name} is kept in one of the record schema; write keep_as: key1 at a "
            "field, or leave schema out",
        )
    return {field: target for target, field in taken.items()}


def _refuse_name(name: str, item: PlacedValue, faults: RuleFaults) -> None:
    section: Section = item.value
    if section.value("schema", name).lower() == RECORDS_SCHEMA:
        at = section.position("schema") if "schema" in section else item.key
        faults.add(
            at,
            f"'{RECORDS_SCHEMA}' is the schema of the record-based interface; write 'schema: "
            f"{RECORDS_SCHEMA}' and keep_as at the fields to keep "
            "them there, or give this entity another schema",
        )


def _check(
    rule: FieldRule, part: PlacedValue, target: str, so_far: tuple[dict[str, str], RuleFaults]
) -> None:
    """Note why a field cannot be stored so; else store it so."""
    taken, faults = so_far
    section: Section = part.value
    at = section.position("keep_as") if "keep_as" in section else part.key
    if target not in KEPT_AS:
        faults.add(
            at,
            f"the record schema has no field '{target}' for this; {did_you_mean(target, KEPT_AS)}",
        )
    elif target in taken:
        faults.add(at, f"{taken[target]} is kept as {target} already; choose another field")
    elif selects_many(rule.at) and target not in SEVERAL:
        faults.add(
            at,
            f"{rule.name} can have several values, and {target} holds one; keep it as "
            f"{' or '.join(SEVERAL)}",
        )
    elif target in IN_THE_CLEAR and not rule.in_clear:
        faults.add(
            at,
            f"{target} can be read in the vault's own table; write 'stored: plain' beside it to "
            f"accept that, or keep {rule.name} as a keyN",
        )
    elif "find" in section:
        faults.add(
            section.key("find"),
            "what can be asked of a field of the record schema is a matter of that schema; leave "
            "find out",
        )
    else:
        taken[target] = rule.name


#: Six free digits: tokens with fewer cannot be looked up (``tokenization.digits``).
_UNIQUE = 900_000

_FIND = frozenset(("exact", "partial", "range"))

#: Kinds that are never searched by parts.
_WHOLE = ("date", "number")

#: The shape of a field whose declaration is at fault, until it is corrected: one that no operation
#: is refused for.
_STAND_IN = make_shape(DEFAULT_SHAPE["text"], {"same": True})


@dataclass(frozen=True, slots=True)
class EntityDraft:
    """An entity with what only the checks need: where its parts stand."""

    entity: Entity
    at: Position
    #: field name -> where its token shape, or the field, is declared
    places: Mapping[str, Position]


def compile_entities(
    items: Mapping[str, PlacedValue], faults: RuleFaults
) -> dict[str, EntityDraft]:
    """Every entity of a file that has fields; faults in them are noted."""
    return {
        name: _entity(name, item, faults)
        for name, item in items.items()
        if isinstance(item.value, Section)
    }


def find_entity(
    section: Section, key: str, entities: Mapping[str, EntityDraft], faults: RuleFaults
) -> EntityDraft | None:
    """The entity that a key names; ``None`` after noting a fault."""
    name = section.value(key)
    if name is not None and name not in entities:
        text = f"there is no entity '{name}'; {did_you_mean(name, entities)}"
        faults.add_once(section.position(key), text)
    return entities.get(name)


def _entity(name: str, item: PlacedValue, faults: RuleFaults) -> EntityDraft:
    section: Section = item.value
    fields: dict[str, FieldRule] = {}
    places: dict[str, Position] = {}
    declared: dict[str, PlacedValue] = section.value("fields", {})
    for field_name, field_item in declared.items():
        said = field_item.value
        rule = _field(field_name, said, faults) if isinstance(said, Section) else None
        if rule is not None:
            fields[field_name] = rule
            places[field_name] = field_item.value.position("token")
            _check_room(
                rule, name, section.value("population", POPULATION), places[field_name], faults
            )
    _check_names(declared, faults)
    _check_places(fields, declared, faults)
    # at fault and reported: references to it add no further fault
    for field_name in declared.keys() - fields.keys():
        fields[field_name] = FieldRule(
            field_name, "text", _STAND_IN, (field_name,), False, frozenset(), Mask()
        )
        places[field_name] = declared[field_name].at
    keeps = section.value("versions") == "keep"
    if keeps:
        check_versions(section, fields, places, faults)
    record_names = kept_as(name, item, fields, faults)
    own = section.value("schema", name) if record_names is None else f"{RECORDS_SCHEMA}/{name}"
    schema = Schema(own, tuple(_schema_field(rule) for rule in fields.values()))
    more = section.value("expires"), False, record_names, keeps, "schema" in section
    return EntityDraft(Entity(name, schema, fields, *more), item.key, places)


def _field(name: str, section: Section, faults: RuleFaults) -> FieldRule | None:
    kind = section.value("kind")
    if kind is None:
        return None
    shape = _shape(kind, section, faults)
    readable = section.value("stored") == "plain"
    words = [item.value for item in section.value("find", [])] or [None] * ("find" in section)
    find = frozenset(filter(None, words))
    if "range" in find and not readable:
        faults.add(
            section.key("find"),
            "range search needs order, and order tells something about the value; write 'stored: "
            f"plain' beside it to accept that {name} is readable in the vault, or leave range out",
        )
    if "partial" in find and kind in _WHOLE:
        faults.add(
            section.key("find"),
            f"parts of a {kind} mean nothing; leave partial out, or give {name} the kind text",
        )
    path = section.value("at", (name,))
    if shape is not None and shape.capacity() == 1 and selects_many(path):
        faults.add(section.position("at" if "at" in section else "token"), several(name, shape))
    if not path or isinstance(path[0], int):
        faults.add(
            section.position("at"),
            f"a field stands inside the entity's object; write $.{name} or another member",
        )
    mask, check = compile_mask(kind, section, faults), compile_check(kind, section, faults)
    if None in words:  # a fault already: searches of it are no further one
        find = _FIND
    return FieldRule(name, kind, shape, path, readable, find, mask, check) if shape else None


def several(name: str, shape: Shape) -> str:
    """The fault of several values for a field whose tokens are, or may be, all the same."""
    return (
        f"{name} has several values in one record there, and the token shape {shape.name} gives "
        "them the same token, so they could not be told apart again; choose a shape whose tokens "
        "differ, such as opaque, numeric or date, or name one place"
    )


def _shape(kind: str, section: Section, faults: RuleFaults) -> Shape | None:
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
        faults.add(section.position("token"), f"{error}")
        return None


#: Members of ``token`` that are no options of the shape.
_NO_OPTIONS = ("shape", "else")


def _options_fit(shape: str, token: Section, faults: RuleFaults) -> bool:
    """Whether the shape takes each option, so that the fault points at the wrong one."""
    taken_options = SHAPES[PERSISTENT.get(shape, SYNONYMS.get(shape, shape))].options
    fits = True
    for key, item in token.items.items():
        if key in _NO_OPTIONS:
            continue
        if key not in taken_options:
            takes = did_you_mean(key, taken_options) if taken_options else "it takes no options."
            faults.add(item.key, f"token shape {shape} has no option '{key}'; {takes}")
            fits = False
        elif isinstance(item.value, str) and "${" in item.value:
            faults.add(
                item.at,
                "references (${env:…}, ${file:…}) are not allowed here; write the text itself",
            )
            fits = False
    return fits


def needs_record(shape: Shape) -> bool:
    """Whether usual tokens are too small to be unique: then record id and field resolve."""
    small = shape.resolution is Resolution.INDEXED and shape.capacity() < _UNIQUE
    return small or shape.resolution is Resolution.BY_RECORD


def lacks_word(shape: Shape) -> bool:
    """Whether short numbers alone get digits too few to be unique, for want of ``else``."""
    lacking = SHAPES[shape.name].sometimes_short and not isinstance(shape, Fallback)
    return lacking and not needs_record(shape)


def _check_room(
    rule: FieldRule, entity: str, population: int, at: Position, faults: RuleFaults
) -> None:
    if rule.shape.resolution is not Resolution.INDEXED or needs_record(rule.shape):
        return
    room = rule.shape.capacity()
    if room < 2 * population:
        faults.add(
            at,
            f"token shape {rule.shape.name} has room for {room:,.0f} different tokens, and "
            f"{entity} is planned for {population:,} records, which needs {2 * population:,}; "
            f"choose a longer shape, or state a smaller 'population' for {entity}",
        )


def _check_names(declared: Mapping[str, PlacedValue], faults: RuleFaults) -> None:
    """The vault's tables do not tell letter cases apart."""
    for one, other in combinations(declared, 2):
        if one.lower() == other.lower():
            faults.add(
                declared[other].key,
                f"'{other}' and '{one}' differ in letter case only; rename one and use 'at'",
            )


def _check_places(
    fields: Mapping[str, FieldRule], declared: Mapping[str, PlacedValue], faults: RuleFaults
) -> None:
    for one, other in combinations(fields.values(), 2):
        if selectors_overlap(one.at, other.at):
            section: Section = declared[other.name].value
            at = section.position("at") if "at" in section else declared[other.name].key
            faults.add(
                at,
                f"{other.name} at {spell(other.at)} overlaps {one.name} at {spell(one.at)}; a "
                "value belongs to one field only",
            )


def _schema_field(rule: FieldRule) -> Field:
    storage = (
        Storage.INDEXED
        if rule.in_clear
        else Storage.INDEXED_HASHED
        if rule.find
        else Storage.ENCRYPTED
    )
    return Field(
        rule.name,
        FieldType.DATE if rule.in_clear and rule.kind == "date" else FieldType.STRING,
        storage,
        rule.kind,
        partial_match="partial" in rule.find,
    )


# ``endpoint:`` and ``on_error:`` compiled.


def compile_endpoint(section: Section | None, on_error: Section | None) -> Endpoint:
    """The endpoint; its name and its address are empty where they were at fault."""
    if section is None:
        return Endpoint("", "", frozenset(), "", Unmatched.REPORT, BodyLimits(), OnError())
    return Endpoint(
        section.value("name") or "",
        section.value("upstream") or "",
        frozenset(item.value for item in section.value("host", []) if item.value),
        section.value("prefix", ""),
        Unmatched(section.value("unmatched", "report")),
        BodyLimits(**_stated(section.value("limits"))),
        _on_error(on_error),
        refusals=section.value("refusals") or "",
    )


def _on_error(section: Section | None) -> OnError:
    statuses = _stated(section)
    down = _stated(statuses.pop("vault_down", None))
    statuses |= {f"vault_down_{key}": value for key, value in down.items()}
    for key in {"vault_down_read", "unreadable_answer"} & statuses.keys():
        statuses[key] = str(statuses[key])
    return OnError(**statuses)


def _stated(section: Section | None) -> dict[str, Any]:
    """The values of a section by key, without what was at fault."""
    values = {} if section is None else {key: section.value(key) for key in section}
    return {key: value for key, value in values.items() if value is not None}
