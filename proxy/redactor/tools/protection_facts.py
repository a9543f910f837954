"""Requests, names and states that ``domicile rules diff`` compares.

A state has a rank if another protects less. Names are those of the old rules of a comparison.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, NamedTuple

from proxy.model.schema import spell
from proxy.redactor.forks import branches_of, each_operation
from proxy.redactor.rules import Endpoint, Entity, FieldRule, Operation, Rule, RuleSet, Unmatched
from proxy.redactor.tools.explain import EffectiveRule, RuleFinder, body_in_words, when_in_words
from proxy.redactor.validation import in_words
from proxy.redactor.views import Level, view_of
from proxy.tokenization.base import Resolution, Shape
from proxy.tokenization.fallback import Fallback
from proxy.tokenization.mask import DEFAULT_MASK, Visible

# Requests that a rule set names, and names that a rewrite changed.
#
# Two rule sets are compared in the words of the old one: a request by its method, the shape of its
# path and one answer to each condition, and an endpoint, an entity or a field that only has another
# name by the name it had.

_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
#: Answers to the conditions of one rule that are told apart.
_MOST_CASES: Final = 64
_PARTS: Final = {
    "form": "form field",
    "multipart": "part",
    "names of files": "name of the file in part",
    "csv": "column",
    "texts of JSON": "text",
}

_Key = tuple[str, str, str, str]  #: endpoint, method, path, condition


class Renames(NamedTuple):
    """New names of endpoints, entities and fields, each with the old one."""

    endpoints: Mapping[str, str]
    entities: Mapping[str, str]
    fields: Mapping[tuple[str, str], str]  #: the old entity and the new field

    def endpoint(self, name: str) -> str:
        return self.endpoints.get(name, name)

    def entity(self, name: str) -> str:
        return self.entities.get(name, name)

    def field(self, entity: str, name: str) -> str:
        """The name that a field had; ``entity``: the new name of its entity."""
        return self.fields.get((self.entity(entity), name), name)

    def words(self, entity: str, text: str) -> str:
        """A text about an entity, with the old names of its fields."""
        of = {new: old for (one, new), old in self.fields.items() if one == self.entity(entity)}
        if not of:
            return text
        names = "|".join(map(re.escape, of))
        return re.sub(rf"(?<![\w.$])(?:{names})(?!\w)", lambda one: of[one[0]], text)


NO_RENAMES: Final = Renames({}, {}, {})


class NamedRequest(NamedTuple):
    """A method and a path that a rule names, with one answer to each condition."""

    key: _Key
    rule: Rule

    @property
    def subject(self) -> str:
        endpoint, method, _, when = self.key
        return f"{endpoint}: {method} {self.rule.template}{f' when {when}' if when else ''}"

    def fates_in(self, rules: RuleFinder) -> list[EffectiveRule]:
        """The effect of other rules on a request with one or two segments in place of the rest."""
        host = min(self.rule.endpoint.hosts, default="")
        path = _PLACEHOLDER.sub("x1", self.rule.template)
        paths = [path, f"{path}/x1"] if self.rule.template.endswith("*}") else [path]
        fates = (rules.find(self.key[1], one, host) for one in paths)
        return list({(id(one.endpoint), id(one.rule)): one for one in fates}.values())

    def cases_of(self, rule: Rule) -> list[Rule]:
        """The rules among those that another stands for whose conditions can hold together with
        those of this request. Where there is none, the request is refused.
        """
        mine = dict(_pairs(self.key[3]))
        return [
            one
            for one in branches_of(rule)
            if all(mine.get(at, values[0]) in values for at, values in when_in_words(one))
        ]


def _pairs(when: str) -> Iterator[tuple[str, str]]:
    for one in filter(None, when.split(", ")):
        at, _, value = one.rpartition(" ")
        yield at, value


def named_requests(rules: RuleSet, names: Renames = NO_RENAMES) -> Iterator[NamedRequest]:
    """Every request that rules name; HEAD goes with GET."""
    for rule in rules.rules:
        conditions = when_in_words(rule)
        cases = list(
            itertools.islice(
                itertools.product(*([f"{at} {one}" for one in of] for at, of in conditions)),
                _MOST_CASES + 1,
            )
        )
        if len(cases) > _MOST_CASES:
            cases = [tuple(f"{at} {' or '.join(of)}" for at, of in conditions)]
        path = _PLACEHOLDER.sub(lambda one: "{*}" if one[0].endswith("*}") else "{}", rule.template)
        endpoint = names.endpoint(rule.endpoint.name)
        for method in sorted({*rule.methods} - {"HEAD"}):
            for case in cases:
                yield NamedRequest((endpoint, method, path, ", ".join(case)), rule)


def placeholder_in_words(rule: Rule, name: str) -> str:
    """A placeholder of a rule's path by its number, for its name means nothing."""
    several = [one.rstrip("*") for one in _PLACEHOLDER.findall(rule.template)]
    return f"placeholder {several.index(name) + 1}" if name in several else name


def body_fields(body: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Places in a body, with fields."""
    for name, path in (body or {}).get("fields", {}).items():
        yield path, name
    for kind, called in _PARTS.items():
        for name, of in (body or {}).get(kind, {}).items():
            yield f"{called} {name}", of


# ---------------------------------------------------------------------- other names


def renames(old: RuleSet, new: RuleSet) -> Renames:
    """Names that are new for the same thing: an endpoint of the same host and prefix, an entity
    that the same requests are about, a field at the same places.
    """
    names = Renames(_endpoints(old, new), {}, {})
    before = {one.key: one.rule for one in named_requests(old)}
    pairs = [
        pair
        for one in named_requests(new, names)
        if isinstance(rule := before.get(one.key), Operation) and isinstance(one.rule, Operation)
        for pair in zip(each_operation([rule]), each_operation([one.rule]), strict=False)
    ]
    entities = _elected(
        Counter((one.entity.name, other.entity.name) for one, other in pairs),
        {one.name for one in old.entities},
        {one.name for one in new.entities},
    )
    names = names._replace(entities=entities)
    fields: dict[tuple[str, str], str] = {}
    for entity in {one.entity.name: one.entity for one, _ in pairs}.values():
        own = [pair for pair in pairs if pair[0].entity.name == entity.name]
        own = [pair for pair in own if names.entity(pair[1].entity.name) == entity.name]
        if own:
            others = own[0][1].entity.fields
            elected = _elected(_votes(own), {*entity.fields}, {*others})
            fields |= {(entity.name, name): of for name, of in elected.items()}
    return names._replace(fields=fields)


def _endpoints(old: RuleSet, new: RuleSet) -> dict[str, str]:
    places = {(one.hosts, one.prefix): one.name for one in old.endpoints}
    both = Counter(
        (places[one.hosts, one.prefix], one.name)
        for one in new.endpoints
        if (one.hosts, one.prefix) in places
    )
    return _elected(both, {one.name for one in old.endpoints}, {one.name for one in new.endpoints})


def _votes(pairs: Iterable[tuple[Operation, Operation]]) -> Counter[tuple[str, str]]:
    """Count the places that an old and a new field have in common."""
    votes = Counter[tuple[str, str]]()
    for one, other in pairs:
        for before, after in (
            (one.request.body, other.request.body),
            (one.response.body, other.response.body),
        ):
            places = dict(body_fields(body_in_words(after)))
            fields = body_fields(body_in_words(before))
            votes.update((name, places[where]) for where, name in fields if where in places)
    return votes


def _elected(votes: Counter[tuple[str, str]], old: set[str], new: set[str]) -> dict[str, str]:
    """Pairs of a name that is gone and one that is new, by new names; each name in one pair."""
    elected: dict[str, str] = {}
    for (before, after), _ in votes.most_common():
        single = after not in elected and before not in elected.values()
        if single and before in old - new and after in new - old:
            elected[after] = before
    return elected


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


#: How a field can be searched for, by whether its rule says so.
_FINDABLE: Final = Fact("impossible", 1), Fact("possible", 0)
#: States by what they are of.
Facts = Mapping[str, Fact]


def protection(field: FieldRule) -> float:
    """Rank of a field: what its token tells, then what the vault stores, then its searches."""
    return 10 * _secrecy(field) + (0 if field.in_clear else 5) - len(field.find)


def field_facts(rules: RuleSet, names: Renames = NO_RENAMES) -> dict[str, Facts]:
    """States of each entity and each field."""
    facts: dict[str, Facts] = {}
    for entity in rules.entities:
        expires, called = entity.expires, names.entity(entity.name)
        facts[f"entity {called}"] = {
            "expires": Fact(
                "never" if expires is None else f"{expires} ms", -(expires or float("inf"))
            ),
            "versions": Fact("keep" if entity.keeps else "current"),
            # that of an entity with another name is told with the name
            **({"schema": Fact(entity.schema.name)} if called == entity.name else {}),
        }
        for field in entity.fields.values():
            facts[f"{called}.{names.field(entity.name, field.name)}"] = {
                "kind": Fact(field.kind),
                "check": Fact(str(in_words(field.check)) if field.check else "none"),
                "place": Fact(spell(field.at)),
                "token": Fact(_shape_in_words(field.shape), _secrecy(field)),
                "stored": Fact("plain", 0) if field.in_clear else Fact("sealed", 1),
                "mask": Fact(_options(field.mask)),
                **{f"find {word}": _FINDABLE[word in field.find] for word in _FINDS},
            }
    return facts


def _secrecy(field: FieldRule) -> float:
    """Rank a token by how little it tells: the value, a part, whether two are equal, nothing."""
    shape = field.shape.first if isinstance(field.shape, Fallback) else field.shape
    if shape.resolution is Resolution.CLEAR:
        return 0
    rule = getattr(shape, "rule", None)
    visible = getattr(shape, "visible", Visible()) or DEFAULT_MASK[field.kind]
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
            "caller": Fact(f"{caller.source} {caller.url}" if caller else "none"),
            "refusals": Fact(endpoint.refusals or "none"),
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
