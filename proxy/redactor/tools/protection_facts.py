"""States of fields, endpoints and roles that protect values, for ``domicile rules diff``.

A state has a rank if another protects less. Names are those of the old rules of a comparison.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, NamedTuple

from proxy.model.schema import spell
from proxy.redactor.forks import each_operation
from proxy.redactor.rules import Endpoint, Entity, FieldRule, RuleSet, Unmatched
from proxy.redactor.tools.paired_rules import NO_RENAMES, Renames
from proxy.redactor.validation import in_words
from proxy.redactor.views import Level, view_of
from proxy.tokenization.base import Shape
from proxy.tokenization.mask import Visible

_UNMATCHED: Final = {Unmatched.PASS: 0, Unmatched.REPORT: 1, Unmatched.DENY: 2}
_GUARD: Final = {"off": 0, "report": 1, "block": 2}
_LEVELS: Final = {Level.CLEAR: 0, Level.MASK: 1, Level.TOKEN: 2}
_FINDS: Final = ("exact", "partial", "range")
_NO_ROLE: Final = "a caller without a role"
#: Of token shapes and masks.
_OPTIONS = {*"same prefix first last domain year character value template digit alone".split()}


class Fact(NamedTuple):
    """A state in words, and what it protects."""

    text: str
    #: a higher one protects more; ``None``: none does
    rank: float | None = None
    #: without the fact a value is not protected there
    protects: bool = False
    entity: str = ""  #: whose field the text names, where the rank is that of the field


#: States by what they are of.
Facts = Mapping[str, Fact]


def protection(field: FieldRule) -> float:
    """Rank of a field: what its token tells, then what the vault stores, then its searches."""
    return 10 * _secrecy(field.shape) + (0 if field.in_clear else 5) - len(field.find)


def field_facts(rules: RuleSet, names: Renames = NO_RENAMES) -> dict[str, Facts]:
    """States of each entity and each field."""
    facts: dict[str, Facts] = {}
    for entity in rules.entities:
        expires, called = entity.expires, names.entity(entity.name)
        facts[f"entity {called}"] = {
            "expires": Fact(
                "never" if expires is None else f"{expires} ms", -(expires or float("inf"))
            ),
            # that of an entity with another name is told with the name
            **({"schema": Fact(entity.schema.name)} if called == entity.name else {}),
        }
        for field in entity.fields.values():
            facts[f"{called}.{names.field(entity.name, field.name)}"] = {
                "kind": Fact(field.kind),
                "check": Fact(str(in_words(field.check)) if field.check else "none"),
                "place": Fact(spell(field.at)),
                "token": Fact(_shape_in_words(field.shape), _secrecy(field.shape)),
                "stored": Fact("plain", 0) if field.in_clear else Fact("sealed", 1),
                "mask": Fact(_options(field.mask)),
                **{f"find {word}": Fact(*_findable(field, word)) for word in _FINDS},
            }
    return facts


def _findable(field: FieldRule, word: str) -> tuple[str, int]:
    return ("possible", 0) if word in field.find else ("impossible", 1)


def _secrecy(shape: Shape) -> float:
    """Rank a token by how little it tells: the value, a part, whether two are equal, nothing."""
    if shape.name == "plain":
        return 0
    rule = getattr(shape, "rule", None)
    visible = getattr(getattr(shape, "mask", None), "visible", Visible())
    part = visible.first + visible.last + 10 * (visible.domain + visible.year)
    part += 0 if rule is None else rule.first + rule.last
    if part:
        return 1 - min(part, 99) / 100
    return 2 if shape.same else 3


def _shape_in_words(shape: Shape) -> str:
    return f"{shape.name}{' (' + options + ')' if (options := _options(shape)) else ''}"


def _options(value: Any) -> str:
    """The options of a shape or a mask that are set, by name."""
    said: list[str] = []
    for one in fields(value) if is_dataclass(value) else ():
        option = getattr(value, one.name)
        if is_dataclass(option):
            said.append(_options(option))
        elif one.name in _OPTIONS and option:
            text = getattr(option, "text", option)
            said.append(one.name if option is True else f"{one.name} {text}")
    return ", ".join(filter(None, said))


def endpoint_facts(rules: RuleSet, other: RuleSet, names: Renames = NO_RENAMES) -> dict[str, Facts]:
    """States of each endpoint, and of each role there."""
    facts: dict[str, Facts] = {}
    for endpoint in rules.endpoints:
        errors, limits, caller = endpoint.on_error, endpoint.limits, endpoint.caller
        words = {
            name: Fact(str(getattr(part, name)))
            for part in (errors, limits)
            for name in part.__slots__
        }
        called = names.endpoint(endpoint.name)
        facts[f"endpoint {called}"] = {
            "upstream": Fact(endpoint.upstream),
            "host": Fact(", ".join(sorted(endpoint.hosts)) or "any"),
            "prefix": Fact(endpoint.prefix or "none"),
            "unmatched": Fact(str(endpoint.unmatched), _UNMATCHED[endpoint.unmatched]),
            **words,
            "guard": Fact(errors.guard, _GUARD[errors.guard]),
            "field_absent": Fact(errors.field_absent, errors.field_absent == "refuse"),
            **{
                name: Fact(str(getattr(endpoint.limits, name)))
                for name in endpoint.limits.__slots__
            },
            "caller": Fact(f"{caller.source} {caller.url}" if caller else "none"),
        }
        entities = {
            one.entity.name: one.entity
            for one in each_operation(rules.operations)
            if one.endpoint is endpoint
        }
        for role in _roles(endpoint, other):
            sees = _sees(endpoint, role, entities.values(), names)
            facts[f"{called}: {role or _NO_ROLE}"] = sees
    return facts


def _roles(endpoint: Endpoint, other: RuleSet) -> list[str]:
    """The roles that an endpoint's views name, before or after; and none."""
    views = [
        view
        for one in (endpoint, *other.endpoints)
        if one.name == endpoint.name
        for view in one.views
    ]
    return ["", *sorted({role for view in views for role in view.who})]


def _sees(
    endpoint: Endpoint, role: str, entities: Iterable[Entity], names: Renames
) -> dict[str, Fact]:
    """Return the visibility of each field for callers of a role."""
    view = view_of(endpoint.views, {role}) if endpoint.views else None
    facts: dict[str, Fact] = {}
    for entity in entities:
        levels = {} if view is None else view.levels.get(entity.name, {})
        for name in entity.fields:
            level = Level.CLEAR if view is None else levels.get(name, Level.TOKEN)
            called = f"{names.entity(entity.name)}.{names.field(entity.name, name)}"
            facts[f"sees {called}"] = Fact(str(level), _LEVELS[level])
    return facts
