"""``when``: what tells several operations at one path apart."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from proxy.model.schema import Value
from proxy.redactor.load.ids import selects_many
from proxy.redactor.load.parsers import MatchPattern, parse_selector
from proxy.redactor.load.value_forms import PlacedValue, Section
from proxy.redactor.load.yaml_tree import RuleFaults
from proxy.redactor.path_template import parse_template
from proxy.redactor.request_rules import Condition, ConditionSource
from proxy.redactor.rules import Operation, PassRule, Position, Rule

_NAMED = {
    "header": ConditionSource.HEADER,
    "query": ConditionSource.QUERY,
    "form": ConditionSource.FORM,
}


def compile_when(section: Section, faults: RuleFaults) -> tuple[Condition, ...]:
    """The conditions of an operation, those in the query of its ``match`` first."""
    items: Mapping[str, PlacedValue] = section.value("when", {})
    matched = section.value("match")
    compiled: dict[object, Condition] = {}
    for name, text in matched.query if isinstance(matched, MatchPattern) else ():
        said = Condition(ConditionSource.QUERY, name, (), frozenset({Value(text)}))
        compiled[said.source, name, ()] = said
    for key, item in items.items():
        condition = _condition(key, item, faults)
        if condition is None:
            continue
        source = (condition.source, condition.name, condition.path)
        if source in compiled:
            faults.add(
                item.key, "this place stands in 'when' or 'match' already; keep one of the two"
            )
        compiled[source] = condition
    return tuple(compiled.values())


def _condition(key: str, item: PlacedValue, faults: RuleFaults) -> Condition | None:
    values = _values(item, faults)
    word, _, name = key.partition(" ")
    name = name.strip().lower() if word == "header" else name.strip()
    try:
        if key.startswith("$"):
            path = parse_selector(key)
            if not path or selects_many(path):
                raise ValueError("a condition looks at one member; write $.name")
            return Condition(ConditionSource.BODY, "", path, values)
        if key == "type" or (word == "header" and name == "content-type"):
            kinds = frozenset(Value(value.text.lower()) for value in values)
            return Condition(ConditionSource.TYPE, "content-type", (), kinds)
        if word in _NAMED and name:
            texts = frozenset(Value(value.text) for value in values)
            return Condition(_NAMED[word], name, (), texts)
        raise ValueError("write $.member, header NAME, query NAME, form NAME or type")
    except ValueError as error:
        faults.add(item.key, f"{error}")
        return None


def _values(item: PlacedValue, faults: RuleFaults) -> frozenset[Value]:
    stated: list[Any] = item.value if isinstance(item.value, list) else [item.value]
    values: set[Value] = set()
    for one in stated:
        if isinstance(one, bool):
            values.add(Value("true" if one else "false", json=True))
        elif isinstance(one, int):
            values.add(Value(str(one), json=True))
        elif isinstance(one, str) and one:
            values.add(Value(one))
        else:
            faults.add(item.at, "a condition is a text, a whole number, true or false, or several")
    return frozenset(values)


def are_told_apart(one: Rule, other: Rule) -> bool:
    """Whether ``when`` tells two rules of one path and method apart, as ``check_forks`` sees to."""
    return bool(one.when or other.when)


def check_forks(rules: Sequence[Rule], places: Mapping[int, Position], faults: RuleFaults) -> None:
    """Note rules with ``when`` that fit the same requests, neither of them more specific."""
    groups: dict[object, list[Rule]] = {}
    several = {parse_template(rule.template).shape for rule in rules if rule.when}
    for rule in rules:
        left = isinstance(rule, PassRule) and rule.unmatched
        if left and parse_template(rule.template).shape not in several:
            faults.add(
                places[id(rule)],
                "no operation of this path has 'when' or a query in its 'match', so nothing is "
                "left over; leave this one out",
            )
    rivals: set[tuple[int, int]] = set()  # once, whatever the number of methods that they share
    for rule in rules:
        for method in rule.methods:
            shape = parse_template(rule.template).shape
            groups.setdefault((method, shape), []).append(rule)
    for group in groups.values():
        if not any(rule.when for rule in group):
            continue
        if not any(isinstance(rule, Operation) for rule in group):
            faults.add(
                places[id(group[0])],
                "'pass: true' with 'when' stands beside an operation of the same path; name that, "
                "or leave 'when' out",
            )
        for one, other in combinations(group, 2):
            text = _rivalry(one, other)
            if text and (id(one), id(other)) not in rivals:
                rivals.add((id(one), id(other)))
                faults.add(places[id(other)], text)


def _rivalry(one: Rule, other: Rule) -> str:
    line = one.position.line
    if _names(one) != _names(other):
        return (
            f"'{one.label}' in line {line} names some of the same requests; write the path of both "
            "alike"
        )
    if one.when and other.when and set(one.when) == set(other.when):
        return f"'{one.label}' in line {line} has the same 'when'; keep one of the two"
    if (
        _apart(one.when, other.when)
        or _within(one.when, other.when)
        or _within(other.when, one.when)
    ):
        return ""
    return (
        f"a request may fit this and '{one.label}' in line {line}, and neither is more specific; "
        "give one of them the conditions of both"
    )


def _names(rule: Rule) -> Sequence[str]:
    return parse_template(rule.template).names


def _by_place(when: Sequence[Condition]) -> dict[object, frozenset[Value]]:
    return {(one.source, one.name, one.path): one.values for one in when}


def _apart(one: Sequence[Condition], other: Sequence[Condition]) -> bool:
    """Whether no request fits both."""
    mine, theirs = _by_place(one), _by_place(other)
    return any(mine[source].isdisjoint(theirs[source]) for source in mine.keys() & theirs.keys())


def _within(one: Sequence[Condition], other: Sequence[Condition]) -> bool:
    """Whether whatever fits ``one`` fits ``other``."""
    mine, theirs = _by_place(one), _by_place(other)
    return all(source in mine and mine[source] <= values for source, values in theirs.items())
