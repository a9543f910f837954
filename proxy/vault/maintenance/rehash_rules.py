"""Rules of a rehash: fields and their strategies, parsed from a request with all faults.

The name of a rule is that of a field of the record (``model.ALIASES`` count), of a member of its
``body`` where that is a JSON object, or a path into it (``$.address.city``). ``*`` is for every
field and member that holds a text and is not named. The key of a record, and the body as a whole,
are rehashed only by name.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from proxy.errors import Code
from proxy.model import ALIASES, steps_of
from proxy.model.query import KEY
from proxy.model.record import Fields
from proxy.model.schema import BODY, PRECOMMIT_BODY, FieldType, Schema, Value
from proxy.model.values import ValueFaults, step
from proxy.tokenization import DTK_FORMAT, Strategy, strategy

#: The rule for all that no other rule names.
ALL_OTHERS: Final = "*"

#: Fields that one rehash may name, and reported faults of one answer.
MOST_REHASH_FIELDS: Final = 100

_UNNAMED: Final = frozenset((KEY, BODY, PRECOMMIT_BODY))
_TEXTS: Final = (FieldType.STRING, FieldType.PRIMARY_KEY)
_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode

#: Strategies by the names of rules.
RehashRules = Mapping[str, Strategy]


def read_dtk(raw: Any, faults: ValueFaults) -> str:
    """The caller's key; never repeated in a fault."""
    if isinstance(raw, str) and DTK_FORMAT.fullmatch(raw) is not None:
        return raw
    faults.add(
        "/dtk", "Has to be a string of 96 letters and digits (A-Z, a-z, 0-9).", Code.INVALID_INPUT
    )
    return ""


def read_rules(raw: Any, faults: ValueFaults) -> RehashRules:
    """The rules that stand at ``/rules``; of use only if there are no faults."""
    if not isinstance(raw, dict) or not 1 <= len(raw) <= MOST_REHASH_FIELDS:
        faults.add(
            "/rules",
            f"Has to be an object of 1 to {MOST_REHASH_FIELDS} rules, each under the name of its "
            "field.",
        )
        return {}
    strategies: dict[str, Strategy] = {}
    for name, rule in raw.items():
        pointer = "/rules" + step(name)
        if name.startswith("$") and steps_of(name) is None:
            faults.add(
                pointer,
                "Has to be a path of names and numbers from the root of body: $.name, $.name[0].",
            )
        if (parsed := _rule(rule, pointer, faults)) is not None:
            strategies[name] = parsed
    return strategies


def _rule(raw: Any, pointer: str, faults: ValueFaults) -> Strategy | None:
    if not isinstance(raw, dict):
        faults.add(
            pointer, "Has to be an object with strategy, and strategyOptions where it has any."
        )
        return None
    unknown = [name for name in raw if name not in ("strategy", "strategyOptions")]
    faults.each(pointer, unknown, "Is not known here; there are strategy, strategyOptions.")
    name, options = raw.get("strategy"), raw.get("strategyOptions")
    if not isinstance(name, str):
        faults.add(pointer + "/strategy", "Has to be the name of a strategy.")
        return None
    if options is not None and not isinstance(options, dict):
        faults.add(pointer + "/strategyOptions", "Has to be an object.")
        return None
    try:
        return strategy(name, options or {})
    except ValueError as fault:
        text = str(fault)
        faults.add(pointer, text[:1].upper() + text[1:] + ".")
        return None


def selected(
    rules: RehashRules, schema: Schema, fields: Fields
) -> Iterator[tuple[str, Strategy, Value | None]]:
    """Yield each rule with the record's value; ``None`` if it has none.

    Each once, in the order of the rules.
    """
    names = {field.name for field in schema.fields}
    body = _body(fields) if any(ALIASES.get(name, name) not in names for name in rules) else {}
    for name, chosen in rules.items():
        own = ALIASES.get(name, name)
        if name != ALL_OTHERS:
            yield name, chosen, value_of(fields.get(own) if own in names else _member(body, name))
    if ALL_OTHERS not in rules:
        return
    for field in schema.fields:
        text = fields.get(field.name)
        if (
            field.type in _TEXTS
            and field.name not in _UNNAMED
            and field.name not in rules
            and text is not None
        ):
            yield field.name, rules[ALL_OTHERS], Value(text)
    for name, item in body.items():
        if (
            isinstance(item, str)
            and name not in names
            and name not in rules
            and not name.startswith(("$", ALL_OTHERS))
        ):
            yield name, rules[ALL_OTHERS], Value(item)


def value_at(schema: Schema, fields: Fields, name: str) -> Value | None:
    """The value that a rule of this name means, if the record has one."""
    if any(field.name == ALIASES.get(name, name) for field in schema.fields):
        return value_of(fields.get(ALIASES.get(name, name)))
    return value_of(_member(_body(fields), name))


def value_of(content: Any) -> Value | None:
    """A value of a record, or of a JSON document, as shapes take it."""
    if content is None:
        return None
    return (
        Value(content) if isinstance(content, str) else Value(_encode(content).decode(), json=True)
    )


def fields_by_rule(value: Value) -> Any:
    """The inverse, for an answer."""
    return _decode(value.text.encode()) if value.json else value.text


def _member(body: dict[str, Any], name: str) -> Any:
    return _at(body, steps_of(name) or ()) if name.startswith("$") else body.get(name)


def _body(fields: Fields) -> dict[str, Any]:
    """The members of a body that is a JSON object; of any other none."""
    text = fields.get(BODY)
    if text is None or not text.lstrip().startswith("{"):
        return {}
    try:
        document = _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _at(document: Any, steps: tuple[str | int, ...]) -> Any:
    """Return the value at a path; ``None`` if there is none."""
    for one in steps:
        if isinstance(one, str) and isinstance(document, dict):
            document = document.get(one)
        elif isinstance(one, int) and isinstance(document, list) and one < len(document):
            document = document[one]
        else:
            return None
    return document
