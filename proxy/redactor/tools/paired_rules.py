"""Requests that a rule set names, and names that a rewrite changed, for ``domicile rules diff``.

Two rule sets are compared in the words of the old one: a request by its method, the shape of its
path and one answer to each condition, and an endpoint, an entity or a field that only has another
name by the name it had.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from proxy.redactor.forks import branches_of, each_operation
from proxy.redactor.rules import Operation, Rule, RuleSet
from proxy.redactor.tools.explain import EffectiveRule, body_in_words, find_operation, when_in_words

_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
#: Answers to the conditions of one rule that are told apart.
_MOST_CASES: Final = 64
_PARTS: Final = {
    "form": "form field",
    "multipart": "part",
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
        """The name that an endpoint had."""
        return self.endpoints.get(name, name)

    def entity(self, name: str) -> str:
        """The name that an entity had."""
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
        """The request in words."""
        endpoint, method, _, when = self.key
        return f"{endpoint}: {method} {self.rule.template}{f' when {when}' if when else ''}"

    def fates_in(self, rules: RuleSet) -> list[EffectiveRule]:
        """The effect of other rules on a request with one or two segments in place of the rest."""
        host = min(self.rule.endpoint.hosts, default="")
        path = _PLACEHOLDER.sub("x1", self.rule.template)
        paths = [path, f"{path}/x1"] if self.rule.template.endswith("*}") else [path]
        fates = (find_operation(rules, self.key[1], one, host) for one in paths)
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
