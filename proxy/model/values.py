"""Values of the interface, read once: from decoded JSON to the one Python type that a field has
(``model.record``).

JSON numbers with a point or an exponent arrive as ``Decimal``, so no binary floating point number
occurs. A misfit raises ``Unfit`` with a sentence that states the expectation and never repeats the
value.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from proxy.errors import Code, Detail, VaultError
from proxy.model.record import RecordLimits
from proxy.model.schema import TECHNICAL, Field, FieldType

# All faults of a request together: each with its JSON Pointer (RFC 6901) and text, never with the
# value.

#: Names longer than this are not repeated: a pointer ends at the object that holds such a member.
_LONGEST_NAME = 128


class Unfit(ValueError):
    """A value does not fit.

    ``text`` states the expectation; ``pointer`` leads from the value to the fault.
    """

    def __init__(self, text: str, pointer: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.pointer = pointer


def step(name: str | int) -> str:
    """Return a step of a JSON Pointer: ``/`` and the escaped name; empty for an overlong name."""
    if isinstance(name, int):
        return f"/{name}"
    if len(name) > _LONGEST_NAME:
        return ""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def unknown_field(name: str, names: Iterable[str]) -> str:
    """Describe an unknown field with the nearest valid name; never quotes what was sent."""
    valid = [one for one in names if one not in TECHNICAL]
    near = difflib.get_close_matches(name, valid, n=1) if len(name) <= _LONGEST_NAME else []
    return "The schema has no field of this name" + (f": did you mean {near[0]}?" if near else ".")


class ValueFaults:
    """The faults of one request, in the order in which they were found.

    At most so many are reported.
    """

    __slots__ = ("_most", "_untold", "codes", "details")

    def __init__(self, most: int) -> None:
        self.details: list[Detail] = []
        self.codes: set[Code] = set()  #: what kinds of faults there are, where that was said
        self._most = most
        self._untold = 0

    def __bool__(self) -> bool:
        return bool(self.details)

    def add(self, pointer: str, text: str, code: Code | None = None) -> None:
        """A fault at that place."""
        if code is not None:
            self.codes.add(code)
        if len(self.details) < self._most:
            self.details.append(Detail(pointer, text))
        else:
            self._untold += 1

    def each(self, pointer: str, names: Sequence[str], text: str, code: Code | None = None) -> None:
        """The same fault of each of these members of the object at ``pointer``.

        Its cost is bounded by the report.
        """
        room = max(0, self._most - len(self.details))
        for name in names[:room]:
            self.add(pointer + step(name), text, code)
        if len(names) > room:
            self.add(pointer, text, code)
            self._untold += len(names) - room - 1

    def error(self, code: Code, message: str) -> VaultError:
        if self._untold:
            message = f"{message} {self._untold} more faults are not listed."
        return VaultError(code, message, tuple(self.details))


#: Converts a JSON value to the field's type; raises ``Unfit``. Never called with ``None``.
ValueCheck = Callable[[Any], Any]

#: Digits of a decimal before and after the point; together the 16 that the interface allows.
WHOLE_DIGITS = 12
DECIMAL_DIGITS = 4

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_LARGEST_WHOLE = 10**WHOLE_DIGITS - 1
_ONE = Decimal(1)
_TICK = Decimal(1).scaleb(-DECIMAL_DIGITS)

_HOURS = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(_HOURS)
_DATETIME = re.compile(rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T{_HOURS}\.[0-9]{{3}}Z")
_INSTANT = re.compile(
    rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})[Tt]({_HOURS})(?:\.([0-9]{{1,9}}))?(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)

_NUL = "Must not hold the character U+0000."


def check_of(field: Field, limits: RecordLimits) -> ValueCheck:
    """Return the parser of a field's values in a record."""
    if field.type is FieldType.PRIMARY_KEY:
        return text_of(min(field.max_length or limits.key, limits.key), least=1)
    if field.type is FieldType.STRING:
        return text_of(field.max_length or limits.string)
    if field.type is FieldType.JSON:
        return document_of(limits)
    return CHECKS[field.type]


def text_of(most: int | None, least: int = 0) -> ValueCheck:
    """Parser of strings of at most so many characters (code points); ``None``: any number."""

    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise Unfit("Has to be a string.")
        if most is not None and len(value) > most:
            raise Unfit(f"Must not have more than {most} characters.")
        if len(value) < least:
            raise Unfit("Must not be empty.")
        if "\0" in value:
            raise Unfit(_NUL)
        return value

    return check


def integer(value: Any) -> int:
    """A whole number of 64 bits with sign; ``1.0`` is one, too (JSON has one type of numbers)."""
    if type(value) is not int:
        if not isinstance(value, Decimal) or not value.is_finite():
            raise Unfit("Has to be an integer.")
        # The exponent is looked at first: nothing here may make a number of a million digits.
        if value and value.adjusted() <= 18 and value != value.to_integral_value():
            raise Unfit("Has to be an integer, without a fraction.")
        value = 0 if not value else int(value) if value.adjusted() <= 18 else _LARGEST + 1
    if not _SMALLEST <= value <= _LARGEST:
        raise Unfit("Has to be an integer of 64 bits with sign.")
    return int(value)


def decimal(value: Any) -> Decimal:
    """An exact decimal of at most 16 digits, 4 of them after the point."""
    if type(value) is int:
        if not -_LARGEST_WHOLE <= value <= _LARGEST_WHOLE:
            raise Unfit(_DECIMAL)
        return Decimal(value)
    if not isinstance(value, Decimal) or not value.is_finite():
        raise Unfit("Has to be a number.")
    exponent = int(value.as_tuple().exponent)
    if value and (value.adjusted() >= WHOLE_DIGITS or not _in_places(value)):
        raise Unfit(_DECIMAL)
    if exponent < -DECIMAL_DIGITS:
        return value.quantize(_TICK)
    return value.quantize(_ONE) if exponent > 0 else value


_DECIMAL = (
    f"Must not have more than {WHOLE_DIGITS} digits before the point and {DECIMAL_DIGITS} after it."
)


def _in_places(value: Decimal) -> bool:
    """Whether all digits of a number other than 0 after the fourth behind the point are zeros."""
    _, digits, exponent = value.as_tuple()
    surplus = -DECIMAL_DIGITS - int(exponent)
    return surplus <= 0 or (surplus < len(digits) and not any(digits[-surplus:]))


def boolean(value: Any) -> bool:
    """``true`` or ``false``, and nothing that would only count as one."""
    if value is not True and value is not False:
        raise Unfit("Has to be true or false.")
    return bool(value)


def day(value: Any) -> str:
    """A calendar date, ``YYYY-MM-DD``."""
    return _calendar(value, _DATE, date.fromisoformat, "Has to be a date, YYYY-MM-DD.")


def clock_time(value: Any) -> str:
    """A time of day, ``hh:mm:ss``; no leap second."""
    return _calendar(value, _TIME, time.fromisoformat, "Has to be a time, hh:mm:ss.")


def moment(value: Any) -> str:
    """A date and time in UTC as ``YYYY-MM-DDThh:mm:ss.sssZ``, so that texts compare as instants."""
    return _calendar(
        value,
        _DATETIME,
        datetime.fromisoformat,
        "Has to be a date and time in UTC, YYYY-MM-DDThh:mm:ss.sssZ.",
    )


def _calendar(
    value: Any, pattern: re.Pattern[str], read: Callable[[str], object], text: str
) -> str:
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise Unfit(text)
    try:
        read(value)
    except ValueError:
        raise Unfit(f"{text[:-1]}, that exists in the calendar.") from None
    return value


def instant(value: Any) -> int:
    """When a record expires: an RFC 3339 date-time with any offset, as milliseconds since the
    epoch.

    Digits after the third behind the point are cut off. The years are 1970 to 9999 (in UTC). A
    moment that has passed is one: the record is gone at once.
    """
    match = _INSTANT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise Unfit(
            "Has to be an ISO 8601 date and time with its offset, as in 2030-01-31T12:00:00.000Z."
        )
    days, hours, fraction, sign, offset_hours, offset_minutes = match.groups()
    try:
        whole = datetime.fromisoformat(f"{days}T{hours}").replace(tzinfo=UTC)
    except ValueError:
        raise Unfit("Has to be a date and time that exists in the calendar.") from None
    offset = (int(offset_hours) * 60 + int(offset_minutes)) * 60_000 if sign else 0
    milliseconds = int(whole.timestamp()) * 1000 + int((fraction or "")[:3].ljust(3, "0"))
    milliseconds -= -offset if sign == "-" else offset
    if not 0 <= milliseconds <= _LAST_INSTANT:
        raise Unfit("Has to be in the years 1970 to 9999.")
    return milliseconds


_LAST_INSTANT = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * 1000 + 999


def document_of(limits: RecordLimits) -> ValueCheck:
    """Parser of JSON objects, limited in leaves and depth.

    A leaf is a scalar, or an object or array without members.
    """
    too_many = f"Must not hold more than {limits.leaves} values."

    def walk(value: Any, depth: int, left: int) -> int:
        """Return the number of leaves still allowed after this value."""
        if not isinstance(value, dict | list) or not value:
            scalar(value)
            left -= 1
        else:
            left = members(value, depth, left)
        if left < 0:
            raise Unfit(too_many)
        return left

    def members(value: dict[str, Any] | list[Any], depth: int, left: int) -> int:
        if depth >= limits.depth and any(isinstance(item, dict | list) for item in _items(value)):
            raise Unfit(
                f"Must not have more than {limits.depth} objects and arrays within each other."
            )
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            try:
                if isinstance(name, str) and "\0" in name:
                    raise Unfit("Has a member with the character U+0000 in its name.")
                left = walk(item, depth + 1, left)
            except Unfit as fault:
                if fault.text == too_many:
                    raise
                raise Unfit(fault.text, step(name) + fault.pointer) from None
        return left

    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Unfit("Has to be a JSON object.")
        walk(value, 1, limits.leaves)
        return value

    return check


def _items(value: dict[str, Any] | list[Any]) -> Any:
    return value.values() if isinstance(value, dict) else value


def scalar(value: Any) -> None:
    """A value that may stand somewhere in a JSON field, and has no members."""
    if isinstance(value, str):
        if "\0" in value:
            raise Unfit(_NUL)
    elif isinstance(value, Decimal):
        if not value.is_finite():
            raise Unfit("Has to be a number.")
    elif value is not None and not isinstance(value, int | dict | list):
        raise Unfit("Has to be a JSON value.")


#: Types whose values no schema can bound further.
CHECKS: dict[FieldType, ValueCheck] = {
    FieldType.INTEGER: integer,
    FieldType.DECIMAL: decimal,
    FieldType.BOOLEAN: boolean,
    FieldType.DATETIME: moment,
    FieldType.DATE: day,
    FieldType.TIME: clock_time,
}
