"""Difference of two rule sets in the protection of values (``domicile rules diff``).

Both rule sets become facts: about each place of a request, each field, each endpoint and each role.
A fact has a rank if one state protects more than another. Rules are paired by what they match, not
by their text: for a path whose rule is gone, the treatment under the new rules counts.
"""

import enum
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, NamedTuple

from proxy.model.schema import spell
from proxy.redactor.envelopes import envelope_in_words
from proxy.redactor.explain import (
    EffectiveRule,
    arguments_in_words,
    body_in_words,
    carriers_in_words,
    find_operation,
    id_in_words,
    keep_in_words,
    when_in_words,
)
from proxy.redactor.forks import branches_of, each_operation
from proxy.redactor.rules import (
    Endpoint,
    Entity,
    FieldRule,
    Operation,
    OtherKinds,
    PassRule,
    Rule,
    RuleSet,
    Unmatched,
)
from proxy.redactor.search import NOBODYS, search_in_words
from proxy.redactor.validation import in_words
from proxy.redactor.views import Level, view_of
from proxy.tokenization.base import Shape
from proxy.tokenization.mask import Visible


class RuleEffect(enum.StrEnum):
    """Effect of a change on the protection of values."""

    LOSES = "loses"
    GAINS = "gains"
    CHANGES = "changes"


class RuleChange(NamedTuple):
    """A difference; ``subject`` is an operation, a field, an endpoint or a role."""

    effect: RuleEffect
    subject: str
    text: str


class _Fact(NamedTuple):
    text: str
    #: a higher one protects more; ``None``: none does
    rank: float | None = None
    #: without the fact a value is not protected there
    protects: bool = False


_Facts = Mapping[str, _Fact]
_NOTHING: Final = _Fact("none")

_PLACEHOLDER: Final = re.compile(r"\{[^{}]*\}")
_UNMATCHED: Final = {Unmatched.PASS: 0, Unmatched.REPORT: 1, Unmatched.DENY: 2}
_GUARD: Final = {"off": 0, "report": 1, "block": 2}
_LEVELS: Final = {Level.CLEAR: 0, Level.MASK: 1, Level.TOKEN: 2}
_FINDS: Final = ("exact", "partial", "range")
#: Decide the meaning of empty, missing or returning values.
_WORDS: Final = ("absent", "nulls", "empty", "own_token", "own_mask")
#: Of token shapes and masks.
_OPTIONS = {*"same prefix first last domain year character value template digit alone".split()}
#: Where searches have their values.
_SOURCES: Final = {
    "query": "the parameter",
    "form": "the request's form field",
    "values": "the request's",
    "path": "the path's",
    "upload": "the request's part",
    "body": "the request's",
}
_ARGUMENTS: Final = _Fact("are looked at", 1), _Fact("pass", 0)
_NO_ROLE: Final = "a caller without a role"


def differences(old: RuleSet, new: RuleSet) -> list[RuleChange]:
    """Everything that differs, what loses protection first."""
    changes = [
        *_compared_by_name(_endpoints(old, new), _endpoints(new, old)),
        *_compared_by_name(_fields(old), _fields(new)),
        *_lost(old, new),
        *_added(old, new),
    ]
    order = list(RuleEffect)
    return sorted(dict.fromkeys(changes), key=lambda one: order.index(one.effect))


def _compared_by_name(old: Mapping[str, _Facts], new: Mapping[str, _Facts]) -> Iterator[RuleChange]:
    """The differences of what both have; what only one has shows at its operations."""
    for subject, facts in old.items():
        others = new.get(subject, {})
        both = [what for what in facts if what in others]
        yield from _compared(
            subject, {what: facts[what] for what in both}, {what: others[what] for what in both}
        )


def _compared(subject: str, old: _Facts, new: _Facts) -> Iterator[RuleChange]:
    for what in dict.fromkeys([*old, *new]):
        before, after = old.get(what, _NOTHING), new.get(what, _NOTHING)
        if before == after:
            continue
        text, effect = f"{what}: {before.text} becomes {after.text}", _effect(before, after)
        if after is _NOTHING and before.protects:
            text = f"{what} is not named any more ({before.text})"
        elif before is _NOTHING and after.protects:
            text = f"{what} is named ({after.text})"
        yield RuleChange(effect, subject, text)


def _effect(before: _Fact, after: _Fact) -> RuleEffect:
    if before.protects != after.protects:
        return RuleEffect.LOSES if before.protects else RuleEffect.GAINS
    if before.rank is None or after.rank is None or before.rank == after.rank:
        return RuleEffect.CHANGES
    return RuleEffect.LOSES if after.rank < before.rank else RuleEffect.GAINS


# ---------------------------------------------------------------------- operations


def _lost(old: RuleSet, new: RuleSet) -> Iterator[RuleChange]:
    """Yield the changes for requests that the old rules name."""
    index = {one.key: one.rule for one in _requests(new)}
    for request in _requests(old):
        rule, subject = request.rule, request.subject
        fate = request.fate_in(new)
        if request.key in index:
            yield from _of_rules(subject, rule, [index[request.key]])
        elif fate.rule is not None:
            yield from _of_rules(subject, rule, branches_of(fate.rule))
        elif not _passes(fate.endpoint):
            effect = RuleEffect.GAINS if isinstance(rule, PassRule) else RuleEffect.CHANGES
            yield RuleChange(effect, subject, "no rule names it any more: it is refused")
        elif isinstance(rule, Operation):
            text = "no rule names it any more: it passes as it comes"
            yield RuleChange(RuleEffect.LOSES, subject, text)


def _added(old: RuleSet, new: RuleSet) -> Iterator[RuleChange]:
    """Yield the changes for requests that the new rules name."""
    named = {one.key for one in _requests(old)}
    for request in _requests(new):
        rule, subject = request.rule, request.subject
        if request.key in named:
            continue
        fate = request.fate_in(old)
        if fate.rule is not None:
            text = f"it has a rule of its own now, beside {fate.rule.label}"
            yield RuleChange(RuleEffect.CHANGES, subject, text)
            for before in branches_of(fate.rule):
                yield from _of_rules(subject, before, [rule])
        elif isinstance(rule, Operation):
            effect = RuleEffect.GAINS if _passes(fate.endpoint) else RuleEffect.CHANGES
            yield RuleChange(effect, subject, f"it is ruled now: {rule.verb} {rule.entity.name}")
        elif not _passes(fate.endpoint):
            yield RuleChange(RuleEffect.LOSES, subject, "it was refused, and passes unchanged now")


def _passes(endpoint: Endpoint | None) -> bool:
    """Whether an endpoint passes what no rule names."""
    return endpoint is not None and endpoint.unmatched is not Unmatched.DENY


def _of_rules(subject: str, old: Rule, new: Iterable[Rule]) -> Iterator[RuleChange]:
    for rule in new:
        if isinstance(old, PassRule):
            if isinstance(rule, Operation):
                text = f"it passed unchanged, and is ruled now: {rule.verb} {rule.entity.name}"
                yield RuleChange(RuleEffect.GAINS, subject, text)
        elif isinstance(rule, PassRule):
            text = f"it passes unchanged now: 'pass: true' at {rule.position}"
            yield RuleChange(RuleEffect.LOSES, subject, text)
        else:
            passed = old.passed_fields + rule.passed_fields
            yield from _compared(subject, _operation(old, passed), _operation(rule, passed))


class _Request(NamedTuple):
    """A method and a path that a rule names."""

    key: tuple[str, str, str, str]  #: endpoint, method, path, condition
    rule: Rule

    @property
    def subject(self) -> str:
        endpoint, method, _, when = self.key
        return f"{endpoint}: {method} {self.rule.template}{f' when {when}' if when else ''}"

    def fate_in(self, rules: RuleSet) -> EffectiveRule:
        """Return the effect of those rules on such a request."""
        path = _PLACEHOLDER.sub("x1", self.rule.template)
        return find_operation(rules, self.key[1], path, min(self.rule.endpoint.hosts, default=""))


def _requests(rules: RuleSet) -> Iterator[_Request]:
    for rule in rules.rules:
        when = ", ".join(f"{path} {' or '.join(values)}" for path, values in when_in_words(rule))
        path = _PLACEHOLDER.sub(lambda one: "{*}" if one[0].endswith("*}") else "{}", rule.template)
        for method in rule.methods:
            if method != "HEAD":  # it goes with GET
                yield _Request((rule.endpoint.name, method, path, when), rule)


def _operation(rule: Operation, passed: Iterable[str]) -> dict[str, _Fact]:
    facts: dict[str, _Fact] = {}
    for one in each_operation([rule]):
        named = f"{one.verb} {one.entity.name}, " if rule.parts else ""
        request, prefix = one.request, f"GraphQL {one.label}, " if rule.graph else named
        for where, name in _places(body_in_words(request.body)):
            facts[f"{prefix}the request's {where}"] = _Fact(name, protects=True)
        for name, of in request.query.items():
            facts[f"{prefix}the parameter {name}"] = _Fact(of, protects=True)
        for part, name in request.passed.labels:
            facts[f"{prefix}{_SOURCES[part]} {name}"] = _Fact(NOBODYS, 1)
        search = search_in_words(request.search) if request.search is not None else {}
        for source, names in search.items():
            for name, words in names.items():
                fact = _Fact(words, "in the clear" not in words, words != NOBODYS)
                facts[f"{prefix}{_SOURCES[source]} {name}"] = fact
        for where, name in _places(body_in_words(one.response.body)):
            facts[f"{prefix}the answer's {where}"] = _Fact(f"{name} restored")
        facts |= {f"{prefix}{what}": fact for what, fact in _words(one).items()}
    if rule.envelope is not None:
        facts["the envelope"] = _Fact(str(envelope_in_words(rule.envelope)), protects=True)
    cookies = rule.response.cookies.items()
    facts |= {f"cookie {name}": _Fact(field, protects=True) for name, field in cookies}
    for graph in rule.graph:
        ways = [".".join(graph.object), *map(" ".join, arguments_in_words(graph).items())]
        facts[f"GraphQL {graph.name}"] = _Fact(", ".join(ways), protects=True)
    for name in passed:
        facts[f"arguments of GraphQL {name}"] = _ARGUMENTS[name in rule.passed_fields]
    return facts


def _words(rule: Operation) -> dict[str, _Fact]:
    request, response = rule.request, rule.response
    refusing = {"other kinds of bodies": request.other_kinds, "files": request.files}
    others = {
        **{word: getattr(response, word) for word in ("restore", "scan", "complete", "stream")},
        "only": ", ".join(sorted(response.only)),
        "columns": ", ".join(f"{column} {name}" for column, name in response.columns.items()),
        "carriers": ", ".join(carriers_in_words(response)),
        "patch": request.patch,
        "success": ", ".join(map(str, sorted(response.success))),
        "operation": f"{rule.verb} {rule.entity.name}",
        "keep": keep_in_words(rule),
        "id": id_in_words(rule.id, request.body),
        "id of the answer": id_in_words(response.id, response.body),
        **{word: getattr(request, word) for word in _WORDS},
    }
    return {
        **{name: _Fact(str(word), word is OtherKinds.REFUSE) for name, word in refusing.items()},
        **{name: _Fact(str(word or "none")) for name, word in others.items()},
    }


def _places(body: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Places in a body, with fields."""
    for name, path in (body or {}).get("fields", {}).items():
        yield path, name
    for kind, called in _NAMED.items():
        for name, of in (body or {}).get(kind, {}).items():
            yield f"{called} {name}", of


_NAMED = {"form": "form field", "multipart": "part", "csv": "column", "texts of JSON": "text"}


def _fields(rules: RuleSet) -> dict[str, _Facts]:
    facts: dict[str, _Facts] = {}
    for entity in rules.entities:
        expires = entity.expires
        facts[f"entity {entity.name}"] = {
            "expires": _Fact(
                "never" if expires is None else f"{expires} ms", -(expires or float("inf"))
            ),
            "schema": _Fact(entity.schema.name),
        }
        for field in entity.fields.values():
            facts[f"{entity.name}.{field.name}"] = {
                "kind": _Fact(field.kind),
                "check": _Fact(str(in_words(field.check)) if field.check else "none"),
                "place": _Fact(spell(field.at)),
                "token": _Fact(_shape_in_words(field.shape), _secrecy(field.shape)),
                "stored": _Fact("plain", 0) if field.in_clear else _Fact("sealed", 1),
                "mask": _Fact(_options(field.mask)),
                **{f"find {word}": _Fact(*_findable(field, word)) for word in _FINDS},
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


def _endpoints(rules: RuleSet, other: RuleSet) -> dict[str, _Facts]:
    facts: dict[str, _Facts] = {}
    for endpoint in rules.endpoints:
        errors, limits, caller = endpoint.on_error, endpoint.limits, endpoint.caller
        words = {
            name: _Fact(str(getattr(part, name)))
            for part in (errors, limits)
            for name in part.__slots__
        }
        facts[f"endpoint {endpoint.name}"] = {
            "upstream": _Fact(endpoint.upstream),
            "host": _Fact(", ".join(sorted(endpoint.hosts)) or "any"),
            "prefix": _Fact(endpoint.prefix or "none"),
            "unmatched": _Fact(str(endpoint.unmatched), _UNMATCHED[endpoint.unmatched]),
            **words,
            "guard": _Fact(errors.guard, _GUARD[errors.guard]),
            "field_absent": _Fact(errors.field_absent, errors.field_absent == "refuse"),
            **{
                name: _Fact(str(getattr(endpoint.limits, name)))
                for name in endpoint.limits.__slots__
            },
            "caller": _Fact(f"{caller.source} {caller.url}" if caller else "none"),
        }
        entities = {
            one.entity.name: one.entity
            for one in each_operation(rules.operations)
            if one.endpoint is endpoint
        }
        for role in _roles(endpoint, other):
            facts[f"{endpoint.name}: {role or _NO_ROLE}"] = _sees(endpoint, role, entities.values())
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


def _sees(endpoint: Endpoint, role: str, entities: Iterable[Entity]) -> dict[str, _Fact]:
    """Return the visibility of each field for callers of a role."""
    view = view_of(endpoint.views, {role}) if endpoint.views else None
    facts: dict[str, _Fact] = {}
    for entity in entities:
        levels = {} if view is None else view.levels.get(entity.name, {})
        for name in entity.fields:
            level = Level.CLEAR if view is None else levels.get(name, Level.TOKEN)
            facts[f"sees {entity.name}.{name}"] = _Fact(str(level), _LEVELS[level])
    return facts
