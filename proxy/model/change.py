"""What another definition of a schema means for the records that are there: at once, rewritten in the background, or not at all."""

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from proxy.errors import Detail
from proxy.model.faults import step
from proxy.model.limits import DEFAULTS
from proxy.model.schema import Field, FieldType, Schema, Storage


class Effect(enum.StrEnum):
    """What a step costs."""

    AT_ONCE = "at_once"  #: no record is touched
    REWRITES = "rewrites"  #: every record is read, and what stands beside its body or in it is made anew
    REFUSED = "refused"  #: it would lose or break what is stored


class Step(NamedTuple):
    """One difference between two definitions: a JSON Pointer into the definition, what becomes of it, what it costs."""

    pointer: str
    text: str
    effect: Effect


class Plan(NamedTuple):
    """The way from one definition to another. ``schema`` is the new one, each field with its life."""

    schema: Schema
    steps: tuple[Step, ...]

    @property
    def refusals(self) -> tuple[Detail, ...]:
        """What cannot be done, each with its place."""
        return tuple(Detail(step.pointer, step.text) for step in self.steps if step.effect is Effect.REFUSED)

    @property
    def rewrites(self) -> bool:
        """Whether records have to be rewritten."""
        return any(step.effect is Effect.REWRITES for step in self.steps)


_SCALARS: Final = (
    FieldType.INTEGER,
    FieldType.DECIMAL,
    FieldType.BOOLEAN,
    FieldType.DATETIME,
    FieldType.DATE,
    FieldType.TIME,
)

#: Types into which values of a type can be made; whether each value can is seen when it is read.
CONVERTIBLE: Final[Mapping[FieldType, tuple[FieldType, ...]]] = {
    FieldType.STRING: _SCALARS,
    FieldType.INTEGER: (FieldType.STRING, FieldType.DECIMAL),
    FieldType.DECIMAL: (FieldType.STRING, FieldType.INTEGER),
    FieldType.BOOLEAN: (FieldType.STRING,),
    FieldType.DATETIME: (FieldType.STRING,),
    FieldType.DATE: (FieldType.STRING, FieldType.DATETIME),
    FieldType.TIME: (FieldType.STRING,),
    FieldType.JSON: (),
    FieldType.PRIMARY_KEY: (),
}


def planned(before: Schema, after: Schema, lives: Mapping[str, int]) -> Plan:
    """What leads from one definition to the other. ``lives`` has the last life of each field that there ever was."""
    steps: list[Step] = []
    fields: list[Field] = []
    known = {field.name: field for field in before.fields}
    for field in after.fields:
        old = known.pop(field.name, None)
        found = _added(field) if old is None else _changed(old, field)
        steps.extend(found)
        last = lives.get(field.name, -1) if old is None else max(old.life, lives.get(field.name, 0))
        if old is None or any(step.effect is Effect.REWRITES for step in found):
            fields.append(msgspec.structs.replace(field, life=last + 1))
        else:
            fields.append(msgspec.structs.replace(field, life=old.life))
    for gone in known.values():
        text, effect = "removed, with its values in all records", Effect.REWRITES
        if gone.type is FieldType.PRIMARY_KEY:
            text, effect = "The primary key of a schema stays what it is: records are known by it.", Effect.REFUSED
        steps.append(Step(_at(gone), text, effect))
    return Plan(Schema(after.name, tuple(fields)), tuple(steps))


def length_of(field: Field) -> int:
    """Characters that a value of a string field, or a primary key, may have."""
    default = DEFAULTS.key if field.type is FieldType.PRIMARY_KEY else DEFAULTS.string
    return default if field.max_length is None else field.max_length


def narrows(before: Field, after: Field) -> bool:
    """Whether texts that fitted may be too long now."""
    return before.type is after.type and length_of(after) < length_of(before)


def _at(field: Field, member: str = "") -> str:
    return f"/fields{step(field.name)}" + (step(member) if member else "")


def _added(field: Field) -> list[Step]:
    if field.type is FieldType.PRIMARY_KEY:
        text = "The primary key of a schema stays what it is: records are known by it."
        return [Step(_at(field), text, Effect.REFUSED)]
    text = "added; records that are there have no value" + (" until they are updated" if field.required else "")
    return [Step(_at(field), text, Effect.AT_ONCE)]


def _changed(before: Field, after: Field) -> list[Step]:
    if before.type is not after.type:
        return [_retyped(before, after), *_required(before, after)]
    return [*_stored(before, after), *_searched(before, after), *_length(before, after), *_required(before, after)]


def _retyped(before: Field, after: Field) -> Step:
    at = _at(after, "type")
    if FieldType.PRIMARY_KEY in (before.type, after.type):
        return Step(at, "The primary key of a schema stays what it is: records are known by it.", Effect.REFUSED)
    into = CONVERTIBLE[before.type]
    if after.type not in into:
        ways = f"only {' or '.join(into)}" if into else "nothing else"
        text = f"Values of the type {before.type} can be made {ways}, not {after.type}: add another field and remove this one."
        return Step(at, text, Effect.REFUSED)
    return Step(at, f"{before.type} becomes {after.type}; every value has to fit", Effect.REWRITES)


def _stored(before: Field, after: Field) -> list[Step]:
    if before.storage is after.storage:
        return []
    plain = before.type is FieldType.JSON and Storage.ENCRYPTED not in (before.storage, after.storage)
    text = f"{before.storage} becomes {after.storage}"
    return [Step(_at(after, "storage"), text, Effect.AT_ONCE if plain else Effect.REWRITES)]


def _searched(before: Field, after: Field) -> list[Step]:
    if before.partial_match is after.partial_match:
        return []
    hashed = Storage.INDEXED_HASHED in (before.storage, after.storage)
    text = f"partial match is switched {'on' if after.partial_match else 'off'}"
    return [Step(_at(after, "partial_match"), text, Effect.REWRITES if hashed else Effect.AT_ONCE)]


def _length(before: Field, after: Field) -> list[Step]:
    if before.max_length == after.max_length:
        return []
    text = f"at most {length_of(after)} characters instead of {length_of(before)}"
    if narrows(before, after):
        return [Step(_at(after, "max_length"), f"{text}; every value has to fit", Effect.REWRITES)]
    return [Step(_at(after, "max_length"), text, Effect.AT_ONCE)]


def _required(before: Field, after: Field) -> list[Step]:
    if before.required is after.required:
        return []
    text = "required of new records; those that are there may lack it" if after.required else "no longer required"
    return [Step(_at(after, "required"), text, Effect.AT_ONCE)]
