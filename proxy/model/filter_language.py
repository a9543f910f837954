"""Parser of the filter language (specification, "Find semantics").

Where the specification is silent:

- an empty list is refused, and so are an empty ``$or`` alternative and an object without an
  operator: each would quietly match everything or nothing;
- ``null`` asks for records without a value, alone or in a list, also below ``$not``; a comparison
  with it is refused;
- a text to compare with may be longer than the field allows; it matches nothing;
- ``search_keys`` searches the primary key too, where that has ``partial_match``, and so excludes it
  like a string field;
- in a JSON field ``null`` asks for a ``null`` that stands there.
"""

import re
import unicodedata
from typing import Any

from proxy.errors import Code
from proxy.model.query import KEY, VERSION_FIELD, AnyOf, Compares, Equals, InJson, Like, Op, Test
from proxy.model.record import RecordLimits
from proxy.model.schema import Field, FieldType, Schema, Storage
from proxy.model.values import (
    CHECKS,
    Unfit,
    ValueCheck,
    ValueFaults,
    scalar,
    step,
    text_of,
    unknown_field,
)

OR = "$or"
SEARCH = "search_keys"
NOT = "$not"
LIKE = "$like"

TEXTS = (FieldType.STRING, FieldType.PRIMARY_KEY)
NUMBERS = (FieldType.INTEGER, FieldType.DECIMAL)
#: Types with one spelling each, whose order as text is that of time.
TIMES = (FieldType.DATETIME, FieldType.DATE, FieldType.TIME)

_VERSION = Field(VERSION_FIELD, FieldType.INTEGER, Storage.INDEXED)
#: Of schemas without a field for it: an application's own ids.
_KEY = Field(KEY, FieldType.PRIMARY_KEY, Storage.INDEXED_HASHED)
#: The comparisons by their names in requests, and those that exclude each other.
OPS = {str(op): op for op in Op}
EXCLUDING = ((Op.GT, Op.GTE), (Op.LT, Op.LTE))
_text = text_of(None)


def field_of(schema: Schema, name: str) -> Field | None:
    """The field that a name in a request means; the record key goes by its own name, too.

    ``None``: there is none.
    """
    if name == KEY:
        return schema.primary or _KEY
    for field in schema.fields:
        if field.name == name:
            return field
    return None


def can_search(field: Field) -> bool:
    """Whether parts of its texts can be searched for."""
    if field.type is FieldType.STRING and field.storage is Storage.INDEXED:
        return True
    return field.type in TEXTS and field.hashed_parts


class Conditions:
    """Parses one filter of a schema; the tests are valid only if ``faults`` stays empty."""

    def __init__(self, schema: Schema, limits: RecordLimits, faults: ValueFaults) -> None:
        self._schema = schema
        self._limits = limits
        self._faults = faults
        #: whether a string field or the key stands anywhere in the filter
        self._texts_named = False
        self._values = 0

    def read(self, raw: Any, pointer: str) -> tuple[Test, ...]:
        """The tests of a filter; all of them have to hold."""
        if not isinstance(raw, dict):
            self._fault(pointer, "Has to be a JSON object.")
            return ()
        if len(raw) > self._limits.conditions:
            return tuple(self._too_many(pointer))
        tests: list[Test] = []
        for name, value in raw.items():
            at = pointer + step(name)
            if name == OR:
                tests += self._alternatives(value, at)
            elif name == SEARCH:
                tests += self._search(value, at)
            else:
                tests += self._field(name, value, at)
        if SEARCH in raw and self._texts_named:
            self._fault(
                pointer + step(SEARCH), "Cannot be combined with a string field or the record key."
            )
        if _count(tests) > self._limits.conditions:
            self._too_many(pointer)
        if self._values > self._limits.values:
            self._fault(pointer, f"Must not hold more than {self._limits.values} values.")
        return tuple(tests)

    # ------------------------------------------------------------------ members of the filter

    def _alternatives(self, raw: Any, pointer: str) -> list[Test]:
        if not isinstance(raw, list) or len(raw) < 2:
            self._fault(pointer, "Has to be an array of at least 2 filters.")
            return []
        if len(raw) > self._limits.conditions:
            return self._too_many(pointer)
        alternatives = tuple(
            self._alternative(item, f"{pointer}/{number}") for number, item in enumerate(raw)
        )
        return [AnyOf(alternatives)]

    def _alternative(self, raw: Any, pointer: str) -> tuple[Test, ...]:
        if not isinstance(raw, dict) or not raw:
            self._fault(pointer, "Has to be a filter object with at least one field.")
            return ()
        if len(raw) > self._limits.conditions:
            return tuple(self._too_many(pointer))
        tests: list[Test] = []
        for name, value in raw.items():
            if name in (OR, SEARCH):
                self._fault(pointer + step(name), f"Cannot be used within {OR}.")
            elif name == VERSION_FIELD or not _is_text(field_of(self._schema, name)):
                self._fault(
                    pointer + step(name), f"Cannot be used within {OR}: only string fields can."
                )
            else:
                tests += self._field(name, value, pointer + step(name))
        return tuple(tests)

    def _search(self, raw: Any, pointer: str) -> list[Test]:
        fields = tuple(
            KEY if f.type is FieldType.PRIMARY_KEY else f.name
            for f in self._schema.fields
            if can_search(f)
        )
        text = self._searched(raw, pointer, *self._limits.search)
        if not fields:
            self._fault(
                pointer,
                "No string field of this schema has partial match on.",
                Code.PARTIAL_MATCH_DISABLED,
            )
        return [Like(fields, text)]

    def _field(self, name: str, raw: Any, pointer: str) -> list[Test]:
        field = _VERSION if name == VERSION_FIELD else field_of(self._schema, name)
        if field is None:
            self._fault(
                pointer,
                unknown_field(
                    name,
                    (
                        *(other.name for other in self._schema.fields),
                        KEY,
                        VERSION_FIELD,
                        SEARCH,
                        OR,
                    ),
                ),
            )
            return []
        self._texts_named |= field.type in TEXTS
        if field.storage is Storage.ENCRYPTED and field.type is not FieldType.PRIMARY_KEY:
            self._fault(pointer, f"Cannot be asked: {field.no_query_reason}.")
            return []
        column = KEY if field.type is FieldType.PRIMARY_KEY else field.name
        if field.type is FieldType.JSON:
            return self._in_json(column, raw, pointer)
        if isinstance(raw, dict):
            return self._operators(field, column, raw, pointer)
        return [Equals(column, self._listed(raw, pointer, _check(field)))]

    # ------------------------------------------------------------------ operators

    def _operators(
        self, field: Field, column: str, raw: dict[str, Any], pointer: str
    ) -> list[Test]:
        tests: list[Test] = []
        if not raw:
            self._fault(pointer, "Has to hold an operator.")
        for name, value in raw.items():
            where = pointer + step(name)
            if name == NOT:
                tests += self._negated(field, column, value, where)
            elif name == LIKE:
                tests += self._like(field, column, value, where)
            elif name in OPS:
                tests += self._compared(field, column, (OPS[name], value), where)
            else:
                self._fault(where, f"Is no operator; those are {NOT}, {LIKE}, {', '.join(OPS)}.")
        for one, other in EXCLUDING:
            if one in raw and other in raw:
                self._fault(pointer + step(other), f"Cannot be combined with {one}.")
        return tests

    def _negated(self, field: Field, column: str, raw: Any, pointer: str) -> list[Test]:
        if field.type not in TEXTS and column != VERSION_FIELD:
            self._fault(pointer, "Can be used on string fields, the record key and version alone.")
        elif not isinstance(raw, dict):
            return [Equals(column, self._listed(raw, pointer, _check(field)), negated=True)]
        elif list(raw) != [LIKE]:
            self._fault(
                pointer, f"Has to be a value, an array of values, or an object with {LIKE} alone."
            )
        else:
            return self._like(field, column, raw[LIKE], pointer + step(LIKE), negated=True)
        return []

    def _like(
        self, field: Field, column: str, raw: Any, pointer: str, *, negated: bool = False
    ) -> list[Test]:
        if field.type not in TEXTS:
            self._fault(pointer, "Can be used on string fields alone.")
            return []
        hashed = field.storage is Storage.INDEXED_HASHED
        text = self._searched(
            raw, pointer, *(self._limits.search if hashed else (1, self._limits.like_plain))
        )
        if not can_search(field):
            self._fault(pointer, "The field has partial match off.", Code.PARTIAL_MATCH_DISABLED)
        return [Like((column,), text, negated)]

    def _compared(
        self, field: Field, column: str, asks: tuple[Op, Any], pointer: str
    ) -> list[Test]:
        op, raw = asks
        if field.type not in (*NUMBERS, *TIMES):
            self._fault(
                pointer, "Can be used on integer, decimal, datetime, date and time fields alone."
            )
        elif field.storage is not Storage.INDEXED:
            self._fault(
                pointer, "Cannot be compared: only a hash of the field is kept, which has no order."
            )
        else:
            return [Compares(column, op, self._value(raw, pointer, CHECKS[field.type]))]
        return []

    # ------------------------------------------------------------------ JSON fields

    def _in_json(self, column: str, raw: Any, pointer: str) -> list[Test]:
        if not isinstance(raw, dict) or not raw:
            self._fault(
                pointer, "Has to be an object of paths into the document, as in {'$.path': value}."
            )
            return []
        if len(raw) > self._limits.conditions:
            return self._too_many(pointer)
        tests: list[Test] = []
        for path, value in raw.items():
            where = pointer + step(path)
            steps = steps_of(path)
            if steps is None:
                self._fault(
                    where,
                    "Has to be a path of names and numbers from the root: $.name, $['name'], "
                    "$.name[0].",
                )
            elif isinstance(value, dict):
                self._fault(
                    where, "Has to be a string, a number, true, false, null, or an array of those."
                )
            else:
                tests.append(
                    InJson(
                        column, steps, self._listed(value, where, _scalar), isinstance(value, list)
                    )
                )
        return tests

    # ------------------------------------------------------------------ values

    def _listed(self, raw: Any, pointer: str, check: ValueCheck) -> tuple[Any, ...]:
        """A value or several."""
        if not isinstance(raw, list):
            return (None if raw is None else self._value(raw, pointer, check),)
        self._values += len(raw)
        if not raw:
            self._fault(pointer, "Must not be an empty array.")
        if self._values > self._limits.values:
            # told once, by ``read``; to look at each of a million would keep everybody waiting
            return ()
        return tuple(
            [
                None if item is None else self._value(item, f"{pointer}/{number}", check)
                for number, item in enumerate(raw)
            ]
        )

    def _value(self, raw: Any, pointer: str, check: ValueCheck) -> Any:
        try:
            return check(raw)
        except Unfit as fault:
            self._fault(pointer + fault.pointer, fault.text)
            return None

    def _searched(self, raw: Any, pointer: str, least: int, most: int) -> str:
        text = self._value(raw, pointer, _text)
        if text is not None and (len(_folded(text)) < least or len(text) > most):
            self._fault(
                pointer,
                f"Has to have {least} to {most} characters, not counting white space at its ends.",
            )
        return text or ""

    def _too_many(self, pointer: str) -> list[Test]:
        self._fault(pointer, f"Must not hold more than {self._limits.conditions} conditions.")
        return []

    def _fault(self, pointer: str, text: str, code: Code = Code.INVALID_FILTER) -> None:
        self._faults.add(pointer, text, code)


def _is_text(field: Field | None) -> bool:
    """Whether it holds texts; an unknown one is found fault with elsewhere."""
    return field is None or field.type in TEXTS


def _count(tests: list[Test]) -> int:
    """Count the tests, including those nested in others."""
    count = len(tests)
    for test in tests:
        if isinstance(test, AnyOf):
            count += sum(map(len, test.alternatives)) - 1
    return count


def _check(field: Field) -> ValueCheck:
    return _text if field.type in TEXTS else CHECKS[field.type]


def _scalar(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise Unfit("Has to be a string, a number, true, false or null.")
    scalar(value)
    return value


def _folded(text: str) -> str:
    """About the form in which the vault compares parts of texts; here it is only counted."""
    folded = unicodedata.normalize("NFKC", text).strip().casefold()
    return unicodedata.normalize("NFKC", folded).replace("i\u0307", "i")


#: One step of a path, spelled as in RFC 9535, 2.3: a plain name, a quoted one, or the number of an
#: element.
_STEP = re.compile(
    r"""\.((?:[A-Za-z_]|[^\x00-\x7f])(?:[A-Za-z0-9_]|[^\x00-\x7f])*)"""
    r"""|\['((?:[^'\\\x00-\x1f]|\\['\\/])*)'\]"""
    r"""|\["((?:[^"\\\x00-\x1f]|\\["\\/])*)"\]"""
    r"""|\[(0|[1-9][0-9]{0,15})\]"""
)
_ESCAPED = re.compile(r"\\(.)")


def steps_of(text: str) -> tuple[str | int, ...] | None:
    """The steps of a path from the root; ``None`` when it is none, or selects more than one place.

    It reads what ``jsonpath.parse`` reads of that kind, and names beyond ASCII without quotes; that
    parser is for rules, and takes a thousand times as long.
    """
    if not text.startswith("$"):
        return None
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            return None
        bare, single, double, number = match.groups()
        quoted = single if single is not None else double
        if number is not None:
            steps.append(int(number))
        else:
            steps.append(bare if quoted is None else _ESCAPED.sub(r"\1", quoted))
        at = match.end()
    return tuple(steps) or None
