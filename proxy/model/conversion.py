"""Values of one definition as values of another: what a change of a schema makes of the records that are there.

Every conversion changes nothing of what it has converted already, so that it may meet records of both kinds. A text becomes
a number, a date … only when it is spelled exactly as the interface spells them.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from proxy.model.change import length_of, narrows
from proxy.model.faults import Unfit, step
from proxy.model.record import Fields
from proxy.model.schema import Field, FieldType, Schema
from proxy.model.values import CHECKS, text_of

Convert = Callable[[Any], Any]

_INTEGER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_DECIMAL: Final = re.compile(r"-?[0-9]{1,16}(\.[0-9]{1,16})?", re.ASCII)
_BOOLEANS: Final = {"true": True, "false": False}


class Conversion:
    """From the records of ``before`` to those of ``after``; the key stays as it is."""

    def __init__(self, before: Schema, after: Schema) -> None:
        known = {field.name: field for field in before.fields}
        kept = {field.name for field in after.fields}
        self._removed = tuple(name for name in known if name not in kept)
        self._converts = {
            field.name: convert
            for field in after.fields
            if (old := known.get(field.name)) is not None and (convert := _between(old, field)) is not None
        }

    @property
    def idle(self) -> bool:
        """Whether it leaves every record as it is."""
        return not self._removed and not self._converts

    def __call__(self, fields: Fields) -> Fields:
        """The values as the other definition has them. Raises ``Unfit`` with the place of the field."""
        converted, unfit = self.fitting(fields)
        if unfit is not None:
            raise unfit
        return converted

    def fitting(self, fields: Fields) -> tuple[Fields, Unfit | None]:
        """The same without the values that cannot be converted; and why the first of them cannot."""
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
    """What a schema of today shows of values that were stored under another definition, long ago: those that fit."""
    found: Fields = {}
    for field in schema.fields:
        if field.name not in fields:
            continue
        value = fields[field.name]
        try:
            found[field.name] = value if value is None else converter(field)(value)
        except Unfit:
            continue
    return found


def converter(field: Field) -> Convert:
    """What makes a value of any type one of this field; raises ``Unfit``."""
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
