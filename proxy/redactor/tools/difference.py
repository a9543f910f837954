"""Difference of two rule sets in the protection of values (``domicile rules diff``).

Both rule sets become facts: about each place of a request, each field, each endpoint and each role.
A fact has a rank if one state protects more than another. Rules are paired by what they match, not
by their text: for a path whose rule is gone, the treatment under the new rules counts. Other names
of endpoints, entities, fields and placeholders are no difference of their requests.
"""

import enum
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from proxy.redactor.bodies.envelopes import envelope_in_words
from proxy.redactor.forks import each_operation
from proxy.redactor.rules import (
    BodyPlace,
    Endpoint,
    FieldRule,
    IdPlace,
    IdSource,
    Operation,
    PassRule,
    ResponseRule,
    Rule,
    RuleSet,
    Unmatched,
)
from proxy.redactor.search.search import NOBODYS, search_in_words
from proxy.redactor.tools.explain import (
    RuleFinder,
    arguments_in_words,
    body_in_words,
    id_in_words,
    keep_in_words,
    response_in_words,
)
from proxy.redactor.tools.protection_facts import (
    NO_RENAMES,
    Fact,
    Facts,
    NamedRequest,
    Renames,
    body_fields,
    endpoint_facts,
    field_facts,
    named_requests,
    placeholder_in_words,
    protection,
    renames,
)
from proxy.redactor.words import RequestWords, ResponseWords, ranked_words


class RuleEffect(enum.StrEnum):
    """Effect of a change on the protection of values."""

    LOSES = "loses"
    GAINS = "gains"
    CHANGES = "changes"


#: Begins the text of a change that is only another name.
CALLED: Final = "it is called now:"


class RuleChange(NamedTuple):
    """A difference; ``subject`` is an operation, a field, an endpoint or a role."""

    effect: RuleEffect
    subject: str
    text: str


_NOTHING: Final = Fact("none")

_ANY: Final = re.compile(r"\{[^{}]*\}")
#: Parts of an answer that have facts of their own.
_APART: Final = ("body", "id", "success")
#: Where searches have their values.
_SOURCES: Final = {
    "query": "the parameter",
    "form": "the request's form field",
    "values": "the request's",
    "path": "the path's",
    "upload": "the request's part",
    "body": "the request's",
}
_ARGUMENTS: Final = Fact("are looked at", 1), Fact("pass", 0)


def differences(old: RuleSet, new: RuleSet) -> list[RuleChange]:
    """Everything that differs: first what loses protection and names of what is different."""
    names = renames(old, new)
    changes = [
        *_renamed(old, new, names),
        *_compared_by_name(endpoint_facts(old, new), endpoint_facts(new, old, names)),
        *_compared_by_name(field_facts(old), field_facts(new, names)),
        *_lost(old, new, names),
        *_added(old, new, names),
    ]
    order = list(RuleEffect)
    return sorted(dict.fromkeys(changes), key=lambda one: order.index(one.effect))


def _renamed(old: RuleSet, new: RuleSet, names: Renames) -> Iterator[RuleChange]:
    for after, before in names.endpoints.items():
        yield RuleChange(RuleEffect.CHANGES, f"endpoint {before}", f"{CALLED} {after}")
    schemas = {one.name: one.schema.name for one in old.entities}
    for entity in new.entities:
        if before := names.entities.get(entity.name, ""):
            text = f"{CALLED} {entity.name}"
            if schemas[before] != entity.schema.name:
                text += (
                    f", and so is its schema: what the vault holds under {schemas[before]} would "
                    f"not be found, and an instance refuses it; write schema: {schemas[before]}"
                )
            yield RuleChange(RuleEffect.CHANGES, f"entity {before}", text)
    for (of, after), before in names.fields.items():
        text = (
            f"{CALLED} {after}: values that the vault holds under {before} are restored in their "
            "records, and found by no search until they are written again"
        )
        yield RuleChange(RuleEffect.CHANGES, f"{of}.{before}", text)


def _compared_by_name(old: Mapping[str, Facts], new: Mapping[str, Facts]) -> Iterator[RuleChange]:
    """The differences of what both have; what only one has shows at its operations."""
    for subject, facts in old.items():
        others = new.get(subject, {})
        both = [what for what in facts if what in others]
        yield from _compared(
            subject, {what: facts[what] for what in both}, {what: others[what] for what in both}
        )


def _compared(subject: str, old: Facts, new: Facts) -> Iterator[RuleChange]:
    for what in dict.fromkeys([*old, *new]):
        before, after = old.get(what, _NOTHING), new.get(what, _NOTHING)
        named = before.text, after.text
        if before.entity != after.entity and before.text == after.text:
            if before.rank == after.rank:
                continue  # another entity, which protects it as well
            named = f"{before.entity}.{before.text}", f"{after.entity}.{after.text}"
        elif before.text == after.text and before.protects == after.protects:
            continue  # where the ranks differ, the field is told for itself
        text, effect = f"{what}: {named[0]} becomes {named[1]}", _effect(before, after)
        if after is _NOTHING and before.protects:
            text = f"{what} is not named any more ({before.text})"
        elif before is _NOTHING and after.protects:
            text = f"{what} is named ({after.text})"
        yield RuleChange(effect, subject, text)


def _effect(before: Fact, after: Fact) -> RuleEffect:
    if before.protects != after.protects:
        return RuleEffect.LOSES if before.protects else RuleEffect.GAINS
    of_fields = bool(before.entity) + bool(after.entity)  # the ranks of one kind are compared
    if None in (before.rank, after.rank) or before.rank == after.rank or of_fields == 1:
        return RuleEffect.CHANGES
    return RuleEffect.LOSES if (after.rank or 0) < (before.rank or 0) else RuleEffect.GAINS


# ---------------------------------------------------------------------- operations


def _lost(old: RuleSet, new: RuleSet, names: Renames) -> Iterator[RuleChange]:
    """Yield the changes for requests that the old rules name."""
    index, finder = {one.key: one.rule for one in named_requests(new, names)}, RuleFinder(new)
    for request in named_requests(old):
        rule, subject = request.rule, request.subject
        if request.key in index:
            yield from _of_rules(subject, rule, [index[request.key]], names)
            continue
        for fate in request.fates_in(finder):
            if fate.rule is not None and (cases := request.cases_of(fate.rule)):
                yield from _of_rules(subject, rule, cases, names)
            elif fate.rule is not None or not _passes(fate.endpoint):
                effect = RuleEffect.GAINS if isinstance(rule, PassRule) else RuleEffect.CHANGES
                yield RuleChange(effect, subject, "no rule names it any more: it is refused")
            elif isinstance(rule, Operation):
                text = "no rule names it any more: it passes as it comes"
                yield RuleChange(RuleEffect.LOSES, subject, text)


def _added(old: RuleSet, new: RuleSet, names: Renames) -> Iterator[RuleChange]:
    """Yield the changes for requests that the new rules name."""
    named, finder = {one.key for one in named_requests(old)}, RuleFinder(old)
    for request in named_requests(new, names):
        if request.key not in named:
            yield from _of_added(request, finder, names)


def _of_added(request: NamedRequest, old: RuleFinder, names: Renames) -> Iterator[RuleChange]:
    rule, subject = request.rule, request.subject
    for fate in request.fates_in(old):
        passed = fate.rule is None and _passes(fate.endpoint)
        if fate.rule is not None and (cases := request.cases_of(fate.rule)):
            for before in cases:
                yield from _of_rules(subject, before, [rule], names)
        elif isinstance(rule, Operation):
            effect = RuleEffect.GAINS if passed else RuleEffect.CHANGES
            yield RuleChange(effect, subject, f"it is ruled now: {rule.verb} {rule.entity.name}")
        elif not passed:
            yield RuleChange(RuleEffect.LOSES, subject, "it was refused, and passes unchanged now")


def _passes(endpoint: Endpoint | None) -> bool:
    return endpoint is not None and endpoint.unmatched is not Unmatched.DENY


def _of_rules(subject: str, old: Rule, new: Iterable[Rule], names: Renames) -> Iterator[RuleChange]:
    for rule in new:
        if isinstance(old, PassRule):
            if isinstance(rule, Operation):
                text = f"it passed unchanged, and is ruled now: {rule.verb} {rule.entity.name}"
                yield RuleChange(RuleEffect.GAINS, subject, text)
        elif isinstance(rule, PassRule):
            word = "unmatched" if rule.unmatched else "pass"
            text = f"it passes unchanged now: '{word}: true' at {rule.position}"
            yield RuleChange(RuleEffect.LOSES, subject, text)
        else:
            passed = old.passed_fields + rule.passed_fields
            facts = _operation(old, passed), _operation(rule, passed, names)
            yield from _compared(subject, *facts)


def _operation(
    rule: Operation, passed: Iterable[str], names: Renames = NO_RENAMES
) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    for one in each_operation([rule]):
        entity = names.entity(one.entity.name)
        named = f"{one.verb} {entity}, " if rule.parts else ""
        prefix = f"GraphQL {one.label}, " if rule.graph else named
        for what, fact in {**dict(_named_places(rule, one)), **_words(one, entity)}.items():
            text = names.words(one.entity.name, fact.text)
            facts[prefix + what] = fact._replace(text=text, entity=fact.entity and entity)
    if rule.envelope is not None:
        said = sorted(envelope_in_words(rule.envelope).items())
        facts["the envelope"] = Fact(str(dict(said)), protects=True)
    for name, field in rule.response.cookies.items():
        text = names.field(rule.entity.name, field)
        facts[f"cookie {name}"] = Fact(text, protects=True)
    for graph in rule.graph:
        arguments = sorted(arguments_in_words(graph).items())
        ways = [".".join(graph.object), *map(" ".join, arguments)]
        text = names.words(graph.operation.entity.name, ", ".join(ways))
        facts[f"GraphQL {graph.name}"] = Fact(text, protects=True)
    for name in passed:
        facts[f"arguments of GraphQL {name}"] = _ARGUMENTS[name in rule.passed_fields]
    return facts


def _named_places(rule: Operation, one: Operation) -> Iterator[tuple[str, Fact]]:
    """The places of a request and its answer, and the fields that they hold."""
    request, fields = one.request, one.entity.fields
    for where, name in body_fields(body_in_words(request.body)):
        yield f"the request's {where}", _of_field(name, fields, one.entity.name)
    for part, name in request.passed.labels:
        yield f"{_SOURCES[part]} {name}", Fact(NOBODYS, 1)
    search = search_in_words(request.search) if request.search is not None else {}
    for source, several in search.items():
        for name, words in several.items():
            where = placeholder_in_words(rule, name) if source == "path" else name
            said = Fact(words, "in the clear" not in words, words != NOBODYS)
            fact = _of_field(words, fields, one.entity.name) if words in fields else said
            yield f"{_SOURCES[source]} {where}", fact
    for where, name in body_fields(body_in_words(one.response.body)):
        yield f"the answer's {where}", Fact(f"{name} restored")


def _of_field(name: str, fields: Mapping[str, FieldRule], entity: str) -> Fact:
    """A place of a field, ranked by the protection that the field gives."""
    rank = protection(fields[name]) if name in fields else None
    return Fact(name, rank, protects=True, entity=entity)


def _words(rule: Operation, entity: str) -> dict[str, Fact]:
    request, response = rule.request, rule.response
    words = ranked_words(RequestWords, request) | ranked_words(ResponseWords, response)
    answer = response_in_words(rule)
    others = {
        **{key: _listed(one) for key, one in answer.items() if key not in (*_APART, *words)},
        "patch": request.patch,
        "success": ", ".join(map(str, sorted(response.success))),
        "refusals with 200": "in doubt" if response.presumed else "",
        "operation": f"{rule.verb} {entity}",
        "keep": keep_in_words(rule),
        "id": _id_in_words(rule, rule.id, request.body),
        "id of the answer": _id_in_words(rule, response.id, response.body),
    }
    return {
        **{one: Fact("the application took it", protects=True) for one in _conditions(response)},
        **{name: Fact(text, rank) for name, (text, rank) in words.items()},
        **{name: Fact(str(word or "none")) for name, word in others.items()},
    }


def _listed(value: object) -> str:
    """A word of an explanation as one text; empty for what is not there."""
    if isinstance(value, Mapping):
        value = [" ".join(pair) for pair in value.items()]
    return ", ".join(sorted(value)) if isinstance(value, list) else str(value or "")


def _conditions(response: ResponseRule) -> Iterator[str]:
    """Each answer that means success on a condition.

    Without the condition a rejected change counts as taken, or a taken one as rejected.
    """
    for one in response.conditions:
        text = f' with the text "{one.text}"' if one.text else ""
        ways = [f" to {_ANY.sub('{}', way.text)}" for way in one.locations] or [""]
        for status, way in itertools.product(sorted(one.statuses), ways):
            yield f"success {status}{way}{text}"


def _id_in_words(rule: Operation, source: IdPlace | None, body: BodyPlace | None) -> str:
    if source is not None and source.source is IdSource.PATH:
        return f"path {placeholder_in_words(rule, source.name)}"
    return _ANY.sub("{}", id_in_words(source, body) or "")
