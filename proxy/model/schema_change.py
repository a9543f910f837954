"""Plan for a changed schema: applied at once, by a rewrite in the background, or refused."""

import enum
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec

from proxy.errors import Detail
from proxy.model.record import DEFAULTS, Fields
from proxy.model.schema import Field, FieldType, Schema, Storage
from proxy.model.values import CHECKS, Unfit, step, text_of


class Effect(enum.StrEnum):
    """Cost of a step."""

    AT_ONCE = "at_once"  #: no record is touched
    #: every record is read, and its columns or parts of its body are computed again
    REWRITES = "rewrites"
    REFUSED = "refused"  #: it would lose or break stored data


class ChangeStep(NamedTuple):
    """A difference between two definitions: JSON Pointer, description and effect."""

    pointer: str
    text: str
    effect: Effect


class SchemaChangePlan(NamedTuple):
    """The way from one definition to another.

    ``schema`` is the new one, each field with its life.
    """

    schema: Schema
    steps: tuple[ChangeStep, ...]

    @property
    def refusals(self) -> tuple[Detail, ...]:
        """Return the refused steps, each with its position."""
        return tuple(
            Detail(step.pointer, step.text) for step in self.steps if step.effect is Effect.REFUSED
        )

    @property
    def rewrites(self) -> bool:
        """Whether records have to be rewritten."""
        return any(step.effect is Effect.REWRITES for step in self.steps)


_SCALARS: Final = (
    FieldType.INTEGER, FieldType.DECIMAL, FieldType.BOOLEAN, FieldType.DATETIME, FieldType.DATE,
    FieldType.TIME,
)  # fmt: skip

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


def planned(before: Schema, after: Schema, lives: Mapping[str, int]) -> SchemaChangePlan:
    """Plan the steps from one definition to the other.

    ``lives`` has the last life of each field that there ever was.
    """
    steps: list[ChangeStep] = []
    fields: list[Field] = []
    earlier = {field.name: field for field in before.fields}
    for field in after.fields:
        old = earlier.pop(field.name, None)
        changes = _added(field) if old is None else _changed(old, field)
        steps.extend(changes)
        last = lives.get(field.name, -1) if old is None else max(old.life, lives.get(field.name, 0))
        if old is None or any(step.effect is Effect.REWRITES for step in changes):
            fields.append(msgspec.structs.replace(field, life=last + 1))
        else:
            fields.append(msgspec.structs.replace(field, life=old.life))
    for gone in earlier.values():
        text, effect = "removed, with its values in all records", Effect.REWRITES
        if gone.type is FieldType.PRIMARY_KEY:
            text, effect = (
                "The primary key of a schema stays what it is: records are known by it.",
                Effect.REFUSED,
            )
        steps.append(ChangeStep(_at(gone), text, effect))
    return SchemaChangePlan(Schema(after.name, tuple(fields)), tuple(steps))


def length_of(field: Field) -> int:
    """Characters that a value of a string field, or a primary key, may have."""
    default = DEFAULTS.key if field.type is FieldType.PRIMARY_KEY else DEFAULTS.string
    return default if field.max_length is None else field.max_length


def narrows(before: Field, after: Field) -> bool:
    """Whether texts that fitted may be too long now."""
    return before.type is after.type and length_of(after) < length_of(before)


def _at(field: Field, member: str = "") -> str:
    return f"/fields{step(field.name)}" + (step(member) if member else "")


def _added(field: Field) -> list[ChangeStep]:
    if field.type is FieldType.PRIMARY_KEY:
        text = "The primary key of a schema stays what it is: records are known by it."
        return [ChangeStep(_at(field), text, Effect.REFUSED)]
    text = "added; records that are there have no value" + (
        " until they are updated" if field.required else ""
    )
    return [ChangeStep(_at(field), text, Effect.AT_ONCE)]


def _changed(before: Field, after: Field) -> list[ChangeStep]:
    if before.type is not after.type:
        return [_retyped(before, after), *_required(before, after)]
    return [
        *_stored(before, after),
        *_searched(before, after),
        *_length(before, after),
        *_required(before, after),
    ]


def _retyped(before: Field, after: Field) -> ChangeStep:
    at = _at(after, "type")
    if FieldType.PRIMARY_KEY in (before.type, after.type):
        return ChangeStep(
            at,
            "The primary key of a schema stays what it is: records are known by it.",
            Effect.REFUSED,
        )
    into = CONVERTIBLE[before.type]
    if after.type not in into:
        ways = f"only {' or '.join(into)}" if into else "nothing else"
        text = (
            f"Values of the type {before.type} can be made {ways}, not {after.type}: add another "
            "field and remove this one."
        )
        return ChangeStep(at, text, Effect.REFUSED)
    return ChangeStep(
        at, f"{before.type} becomes {after.type}; every value has to fit", Effect.REWRITES
    )


def _stored(before: Field, after: Field) -> list[ChangeStep]:
    if before.storage is after.storage:
        return []
    is_open = before.type is FieldType.JSON and Storage.ENCRYPTED not in (
        before.storage,
        after.storage,
    )
    text = f"{before.storage} becomes {after.storage}"
    return [ChangeStep(_at(after, "storage"), text, Effect.AT_ONCE if is_open else Effect.REWRITES)]


def _searched(before: Field, after: Field) -> list[ChangeStep]:
    if before.fine_parts and after.hashed_parts:
        text = "parts are indexed again, in an index that reveals less of the texts"
        return [ChangeStep(_at(after, "partial_match"), text, Effect.REWRITES)]
    if before.partial_match is after.partial_match:
        return []
    hashed = Storage.INDEXED_HASHED in (before.storage, after.storage)
    text = f"partial match is switched {'on' if after.partial_match else 'off'}"
    return [
        ChangeStep(_at(after, "partial_match"), text, Effect.REWRITES if hashed else Effect.AT_ONCE)
    ]


def _length(before: Field, after: Field) -> list[ChangeStep]:
    if before.max_length == after.max_length:
        return []
    text = f"at most {length_of(after)} characters instead of {length_of(before)}"
    if narrows(before, after):
        return [
            ChangeStep(_at(after, "max_length"), f"{text}; every value has to fit", Effect.REWRITES)
        ]
    return [ChangeStep(_at(after, "max_length"), text, Effect.AT_ONCE)]


def _required(before: Field, after: Field) -> list[ChangeStep]:
    if before.required is after.required:
        return []
    text = (
        "required of new records; those that are there may lack it"
        if after.required
        else "no longer required"
    )
    return [ChangeStep(_at(after, "required"), text, Effect.AT_ONCE)]


# Conversion of values between two definitions of a schema.
#
# Every conversion is idempotent, so that it may meet records of both kinds. A text becomes a
# number, a date … only if it is spelled exactly as in the interface.

Convert = Callable[[Any], Any]

_INTEGER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_DECIMAL: Final = re.compile(r"-?[0-9]{1,16}(\.[0-9]{1,16})?", re.ASCII)
_BOOLEANS: Final = {"true": True, "false": False}


class Conversion:
    """From the records of ``before`` to those of ``after``; the key stays as it is."""

    def __init__(self, before: Schema, after: Schema) -> None:
        earlier = {field.name: field for field in before.fields}
        remaining = {field.name for field in after.fields}
        self._removed = tuple(name for name in earlier if name not in remaining)
        self._converts = {
            field.name: convert
            for field in after.fields
            if (old := earlier.get(field.name)) is not None
            and (convert := _between(old, field)) is not None
        }

    @property
    def idle(self) -> bool:
        """Whether it leaves every record as it is."""
        return not self._removed and not self._converts

    def __call__(self, fields: Fields) -> Fields:
        """The values as the other definition has them.

        Raises ``Unfit`` with the place of the field.
        """
        converted, unfit = self.fitting(fields)
        if unfit is not None:
            raise unfit
        return converted

    def fitting(self, fields: Fields) -> tuple[Fields, Unfit | None]:
        """The values without those that cannot be converted, and why the first of them cannot."""
        if self.idle:
            return fields, None
        converted = {name: value for name, value in fields.items() if name not in self._removed}
        unfit: Unfit | None = None
        for name, convert in self._converts.items():
            if (value := fields.get(name)) is None:
                continue
            try:
                converted[name] = convert(value)
            except Unfit as error:
                del converted[name]
                unfit = unfit or Unfit(error.text, step(name))
        return converted, unfit


def conformed(schema: Schema, fields: Fields) -> Fields:
    """Return the values of an older definition that fit the schema of today."""
    conforming: Fields = {}
    for field in schema.fields:
        if field.name not in fields:
            continue
        value = fields[field.name]
        try:
            conforming[field.name] = value if value is None else converter(field)(value)
        except Unfit:
            continue
    return conforming


def converter(field: Field) -> Convert:
    """Return a function that converts any value to this field's type; it raises ``Unfit``."""
    if field.type in (FieldType.STRING, FieldType.PRIMARY_KEY):
        return _text
    if field.type is FieldType.JSON:
        return _document
    read = _READ.get(field.type)
    check = CHECKS[field.type]
    if read is None:
        return check
    return lambda value: check(read(value) if isinstance(value, str) else value)


def _between(before: Field, after: Field) -> Convert | None:
    if narrows(before, after):
        return text_of(length_of(after))
    if before.type is after.type:
        return None
    convert = converter(after)
    if after.type is not FieldType.STRING:
        return convert
    fits = text_of(length_of(after))
    return lambda value: fits(convert(value))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return _shortest(value)
    if isinstance(value, str | int):
        return str(value)
    raise Unfit("A text cannot be made of this.")


def _shortest(value: Decimal) -> str:
    """The spelling of a decimal without needless zeros."""
    text = f"{value:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def _document(value: Any) -> Any:
    if not isinstance(value, dict):
        raise Unfit("This is no JSON object.")
    return value


def _integer(text: str) -> Any:
    if not _INTEGER.fullmatch(text):
        raise Unfit("The text does not spell an integer.")
    return int(text)


def _decimal(text: str) -> Any:
    if not _DECIMAL.fullmatch(text):
        raise Unfit("The text does not spell a decimal number.")
    return Decimal(text)


def _boolean(text: str) -> Any:
    if text not in _BOOLEANS:
        raise Unfit("The text is neither true nor false.")
    return _BOOLEANS[text]


def _moment(text: str) -> str:
    """A date is its first instant."""
    return f"{text}T00:00:00.000Z" if len(text) == _DATE else text


_DATE: Final = len("2000-01-31")
_READ: Final[dict[FieldType, Convert]] = {
    FieldType.INTEGER: _integer,
    FieldType.DECIMAL: _decimal,
    FieldType.BOOLEAN: _boolean,
    FieldType.DATETIME: _moment,
}
