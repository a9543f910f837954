"""``check``: what values of a field may be, linear_pattern; and the tokens that ``versions`` needs."""

import datetime as dt
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from proxy.model.schema import RECORDS_SCHEMA
from proxy.redactor.load.value_forms import (
    Block,
    Context,
    JsonSchema,
    Key,
    ListOf,
    PlacedValue,
    ScalarForm,
    Section,
    Text,
)
from proxy.redactor.load.yaml_tree import RuleFaults, Scalar, YamlNode, did_you_mean, plain_values
from proxy.redactor.rules import REFUSAL_WORDS, FieldRule, Position
from proxy.redactor.validation import (
    CHECKED_KINDS,
    FieldCheck,
    RelativeDay,
    linear_pattern,
    read_number,
    standard_number,
)

_NAME: Final = r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)?"
#: A word in braces, as refusals have them; other braces are those of JSON.
_BRACES: Final = re.compile(r"\{([A-Za-z_]+)\}")
_RELATIVE: Final = re.compile(r"today(?: ?([+-]) ?([0-9]{1,4})([yd]))?")
#: Years of a bound that counts from today.
_MOST_YEARS: Final = 200


def _parse_standard(text: str) -> str:
    try:
        standard_number(text)
    except ValueError:
        raise ValueError(
            f"'{text}' is no number that python-stdnum knows; write one such as iban, imei, "
            "se.personnummer or de.idnr"
        ) from None
    return text


def _parse_pattern(text: str) -> str:
    try:
        linear_pattern(text)
    except ValueError as error:
        raise ValueError(
            f"this is no pattern of RE2 ({error}), which has no look-ahead and no back-reference; "
            "write it without"
        ) from None
    return text


STANDARD: Final = Text("standard number", "iban, se.personnummer", _NAME, _parse_standard)


#: A number or a day, by the field's kind.
_BOUND: Final = ScalarForm(
    "number, or day",
    "a number, or a day such as 1900-01-01",
    lambda node: node.text if node.text and not isinstance(node.value, bool) else None,
    {"type": ["number", "string"]},
)


@dataclass(frozen=True, slots=True)
class RefusalForm:
    """The JSON of refusals; read as its text, with the words in braces as they stand."""

    label: str = "JSON object"

    def read(self, node: YamlNode, context: Context) -> Any:
        content = plain_values(node)
        if not isinstance(content, dict) or not content:
            text = 'this is the object of a refusal, such as {ok: false, error: "{detail}"}'
            return context.faults.add(node.at, text)
        form = json.dumps(content, ensure_ascii=False)
        for word in dict.fromkeys(_BRACES.findall(form)):
            if word not in REFUSAL_WORDS:
                hint = did_you_mean(word, REFUSAL_WORDS)
                context.faults.add(node.at, f"'{{{word}}}' is no part of a refusal; {hint}")
        return form

    def schema(self) -> JsonSchema:
        return {"type": "object", "minProperties": 1}


@dataclass(frozen=True, slots=True)
class CheckWord:
    """``true``, or the name of a standard number."""

    label: str = "`true` | standard number"

    def read(self, node: YamlNode, context: Context) -> Any:
        if isinstance(node, Scalar) and node.value is True:
            return True
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return STANDARD.read(node, context)
        return context.faults.add(
            node.at, "this must be true, a number such as iban, or a mapping such as {min: 2}"
        )

    def schema(self) -> JsonSchema:
        return {"anyOf": [{"const": True}, STANDARD.schema()]}


CHECK_BLOCK: Final = Block(
    "check",
    "What values of a field may be. A request that carries another is refused before anything is stored or sent.",
    (
        Key("is", ListOf(STANDARD, single=True), "a number of python-stdnum, whose check digits hold: `iban`, `imei`, `lei`, `se.personnummer`, `de.idnr`, `us.ssn`; of several one of them", "the form of the kind"),
        Key("region", ListOf(Text("country", "an ISO 3166 code such as se", r"[A-Za-z]{2}", str.upper), single=True), "phone: the countries whose numbers are taken; national numbers are those of the first", "any; national numbers are those of the instance's country"),
        Key("pattern", Text("pattern", "a pattern of RE2 such as [A-Z]{2}[0-9]+", parse=_parse_pattern), "a regular expression that the whole value fits; RE2 runs it, in time proportional to the value's length", "none"),
        Key("min", _BOUND, "the least number, the first day (`1900-01-01`, `today`, `today-18y`), of other kinds the fewest characters", "none"),
        Key("max", _BOUND, "the largest number, the last day, of other kinds the most characters", "none"),
    ),
)  # fmt: skip


def compile_check(kind: str, section: Section, faults: RuleFaults) -> FieldCheck | None:
    """Compile the check of a field; ``None`` for any value. Faults are noted."""
    said = section.value("check")
    if said is True:
        if kind not in CHECKED_KINDS:
            faults.add(
                section.position("check"),
                f"any text is of the kind {kind}; write what it has to be: check: {{pattern: "
                '"[A-Z]{2}[0-9]+"}, {min: 2, max: 100}, or a number such as check: iban',
            )
        return FieldCheck(kind)
    if isinstance(said, str):
        return FieldCheck(kind, standards=(said,))
    return _compiled(kind, said, faults) if isinstance(said, Section) else None


def _compiled(kind: str, said: Section, faults: RuleFaults) -> FieldCheck:
    if not said.items and not said.strange:
        faults.add(said.at, "an empty check takes anything; name pattern, min, max or is")
    regions = _texts(said, "region")
    if regions and kind != "phone":
        faults.add(said.key("region"), f"'region' is about telephone numbers, and this is a {kind}")
    bounds = {key: _bound(kind, said.items[key], faults) for key in ("min", "max") if key in said}
    check = FieldCheck(
        kind,
        regions,
        _texts(said, "is"),
        said.value("pattern", ""),
        bounds.get("min"),
        bounds.get("max"),
    )
    _check_order(said, bounds, faults)
    return check


def _texts(said: Section, key: str) -> tuple[str, ...]:
    return tuple(one.value for one in said.value(key, []) if one.value)


def _bound(kind: str, item: PlacedValue, faults: RuleFaults) -> RelativeDay | Decimal | int | None:
    """A bound of values of that kind; ``None`` where it is at fault."""
    text = item.value
    if text is None:
        return None
    if kind == "date":
        if (day := _day(text)) is None:
            faults.add(item.at, f"'{text}' is no day; write 1900-01-01, today, or today-18y")
        return day
    number = read_number(text)
    if kind == "number":
        if number is None:
            faults.add(item.at, f"'{text}' is no number")
        return number
    if number is None or number < 0 or number != int(number):
        faults.add(
            item.at, f"for the kind {kind} this is a count of characters, and '{text}' is none"
        )
        return None
    return int(number)


def _day(text: str) -> RelativeDay | None:
    match = _RELATIVE.fullmatch(text)
    if match is None:
        try:
            return RelativeDay(dt.date.fromisoformat(text))
        except ValueError:
            return None
    if match[2] is None:
        return RelativeDay(None)
    count = int(f"{match[1]}{match[2]}")
    if match[3] == "d":
        return RelativeDay(None, 0, count)
    return RelativeDay(None, count) if abs(count) <= _MOST_YEARS else None


def _check_order(
    said: Section, bounds: Mapping[str, RelativeDay | Decimal | int | None], faults: RuleFaults
) -> None:
    first, last = bounds.get("min"), bounds.get("max")
    if first is None or last is None:
        return
    if isinstance(first, RelativeDay) and isinstance(last, RelativeDay):
        today = dt.datetime.now(dt.UTC).date()
        crossed = first.on(today) > last.on(today)
    else:
        crossed = first > last  # type: ignore[operator]  # both of one kind
    if crossed:
        faults.add(said.key("min"), "no value is over 'min' and under 'max'; exchange the two")


#: Tokens that a shape needs where many versions of a record are told by them.
_ENOUGH: Final = 10_000


def check_versions(
    section: Section,
    fields: Mapping[str, FieldRule],
    places: Mapping[str, Position],
    faults: RuleFaults,
) -> None:
    """Each version of a record is told by its tokens, so no token may stand for two values."""
    if section.value("schema") == RECORDS_SCHEMA:
        faults.add(
            section.key("versions"),
            f"records of the schema {RECORDS_SCHEMA} have one version; give the entity a schema of "
            "its own, or leave versions out",
        )
    for name, rule in fields.items():
        if rule.shape.capacity() < _ENOUGH:
            faults.add(
                places[name],
                f"with 'versions: keep' each value that {name} had in a record needs a token of "
                f"its own, and the token shape {rule.shape.name} has too few; choose one with more "
                "tokens, such as opaque, numeric or date",
            )
