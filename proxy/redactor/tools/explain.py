"""The effective rule of a request with every default, for ``domicile rules explain``."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from proxy.errors import VaultError
from proxy.model.schema import Path, spell
from proxy.redactor.bodies.envelopes import envelope_in_words
from proxy.redactor.forks import each_operation, forked
from proxy.redactor.request_rules import (
    SUCCESS,
    Condition,
    ConditionSource,
    RedirectSuccess,
    TextPlace,
)
from proxy.redactor.routing import Router
from proxy.redactor.rules import (
    BodyPlace,
    Endpoint,
    Entity,
    FieldRule,
    GraphField,
    IdPlace,
    IdSource,
    Match,
    Operation,
    PassRule,
    ResponseRule,
    Rule,
    RuleSet,
)
from proxy.redactor.search.search import parameter_in_words, search_in_words
from proxy.redactor.validation import in_words
from proxy.redactor.views import UNKNOWN_VIEW, Level, View, view_of
from proxy.redactor.words import RequestWords, ResponseWords, words_in
from proxy.tokenization.fallback import Fallback


class EffectiveRule(NamedTuple):
    """The rules' decision on a request."""

    endpoint: Endpoint | None
    rule: Rule | None
    ruled: bool = False  #: an operation names the path, for whatever method
    refused: bool = False  #: a PATCH of such a path, which may carry named fields


class RuleFinder:
    """Finds what rules decide on requests; made once for many of them."""

    def __init__(self, rules: RuleSet) -> None:
        routed, self._forks = forked(rules.rules)
        self._router = Router(routed, rules.endpoints)
        self._written: dict[tuple[str, str], list[Rule]] = {}
        for rule in routed:
            for method in rule.methods:
                self._written.setdefault((method, rule.template), []).append(rule)
        self._hosts = ["", *sorted({name for one in rules.endpoints for name in one.hosts})]

    def find(self, method: str, path: str, host: str = "") -> EffectiveRule:
        """The endpoint and the rule of a request; ``path`` is a path, or a template as a rule
        writes it.

        Without a host, endpoints that differ by host are tried in the order of their files. Raises
        ``VaultError(BAD_REQUEST)`` for a path that two rules name in two readings.
        """
        for rule in self._written.get((method.upper(), path), ()):
            if host in ("", *rule.endpoint.hosts):
                return EffectiveRule(rule.endpoint, rule)
        hosts, target, router = [host] if host else self._hosts, path.encode(), self._router
        for name in hosts:
            if match := router.match(method, name, target):
                rule = self._told_by(target, match.operation if isinstance(match, Match) else match)
                if not isinstance(rule, PassRule) or not rule.unmatched:
                    return EffectiveRule(rule.endpoint, rule)
        endpoint, at = next(
            ((one, name) for name in hosts if (one := router.endpoint(name, target))), (None, "")
        )
        ruled = endpoint is not None and router.ruled(at, target)
        return EffectiveRule(endpoint, None, ruled, ruled and method.upper() == "PATCH")

    def _told_by(self, target: bytes, rule: Rule) -> Rule:
        """The rule that the query of a target chooses among several; without one, all of them."""
        fork = self._forks.get(id(rule)) if b"?" in target else None
        with suppress(VaultError):  # it is refused
            return rule if fork is None else fork.by_head(target, ()) or rule
        return rule


def find_operation(rules: RuleSet, method: str, path: str, host: str = "") -> EffectiveRule:
    """As ``RuleFinder.find``, once."""
    return RuleFinder(rules).find(method, path, host)


def as_data(effective: EffectiveRule, role: str = "") -> dict[str, Any]:
    """Return the effective rule as JSON-ready data; ``operation`` is ``null`` without a rule.

    With a role, it includes the visibility for its callers.
    """
    endpoint, operation, ruled, refused = effective
    out: dict[str, Any] = {"endpoint": _endpoint(endpoint) if endpoint else None, "operation": None}
    if operation is None or endpoint is None:
        out["ruled"], out["refused"] = ruled, refused
        return out
    if isinstance(operation, Operation) and operation.branches:
        branches = [
            as_data(EffectiveRule(endpoint, one), role)["operation"] for one in operation.branches
        ]
        out["operation"] = {"match": operation.label, "branches": branches}
        return out
    out["operation"] = {
        "match": operation.label,
        "at": str(operation.position),
        **({"when": dict(when_in_words(operation))} if operation.when else {}),
        **_effect(operation, endpoint, role),
    }
    return out


def _effect(rule: Rule, endpoint: Endpoint, role: str) -> dict[str, Any]:
    if isinstance(rule, PassRule):
        return {"unmatched": True} if rule.unmatched else {"pass": True}
    if rule.graph:
        ruled = {one.name: _graph_field(one) for one in rule.graph}
        return {
            "graphql": ruled | {name: {"pass": True} for name in rule.passed_fields},
            "persisted": [digest for digest, _ in rule.persisted],
        }
    if rule.envelope is not None:
        return {"envelope": envelope_in_words(rule.envelope)}
    if rule.parts:
        objects = {
            f"{number} {one.verb} {one.entity.name}": _about(one, endpoint, role)
            for number, one in enumerate(rule.parts, 1)
        }
        return {"objects": objects}
    return _about(rule, endpoint, role)


def _about(operation: Operation, endpoint: Endpoint, role: str) -> dict[str, Any]:
    searched = search_in_words(search) if (search := operation.request.search) else {}
    about: dict[str, Any] = {
        str(operation.verb): operation.entity.name,
        **({"keep": keep_in_words(operation)} if operation.keep is not None else {}),
        "schema": operation.entity.schema.name,
        "expires_ms": operation.entity.expires,
        "versions": "keep" if operation.entity.keeps else "current",
        "fields": {field.name: _field(field) for field in operation.entity.fields.values()},
        "id": id_in_words(operation.id, operation.request.body),
        "request": _request(operation),
        "response": response_in_words(operation),
        "query": searched.pop("query", {}),
        **({"passed": list(map(" ".join, passed))} if (passed := passed_places(operation)) else {}),
        **({"search": searched} if searched else {}),
    }
    if endpoint.views:
        views = [view_of(endpoint.views, {role})] if role else [*endpoint.views, UNKNOWN_VIEW]
        about["views"] = {view.name: _view(view, operation.entity) for view in views}
    return about


def explanation_text(data: Mapping[str, Any]) -> str:
    """The same for people, one thing a line, nested by indentation."""
    if data["endpoint"] is None:
        return "No endpoint takes this request: the proxy refuses it."
    if data.get("refused"):
        return (
            "No rule names this request, and it is refused: rules name its path for other methods, "
            f"and a PATCH may carry what they name (endpoint {data['endpoint']['name']})."
        )
    if data["operation"] is None:
        fate = {
            "pass": "it passes unchanged",
            "report": "it passes unchanged and is counted, and the shape of its path is told once",
            "deny": "it is refused",
        }
        unseen = (
            " An upload (multipart), a patch document and another protocol (WebSocket) "
            "are refused there: rules name the path."
        )
        return (
            f"No rule names this request: {fate[data['endpoint']['unmatched']]} (endpoint "
            f"{data['endpoint']['name']}).{unseen if data['ruled'] else ''}"
        )
    if branches := data["operation"].get("branches"):
        texts = [explanation_text({**data, "operation": one}) for one in branches]
        return "\n\n".join([f"{len(branches)} rules, by what the request says:", *texts])
    if data["operation"].get("pass"):
        match, at = data["operation"]["match"], data["operation"]["at"]
        return f"{match} passes unchanged: 'pass: true' at {at}."
    if data["operation"].get("unmatched"):
        return f"As if no rule named it: 'unmatched: true' at {data['operation']['at']}."
    return "\n".join(_lines({"operation": data["operation"], "endpoint": data["endpoint"]}, 0))


def _lines(data: Mapping[str, Any], depth: int) -> Iterable[str]:
    pad = "  " * depth
    for key, value in data.items():
        if isinstance(value, Mapping) and "kind" in value:
            yield f"{pad}{key}: " + ", ".join(
                f"{name} {_word(part)}" for name, part in value.items() if part != []
            )
        elif isinstance(value, Mapping) and value:
            yield f"{pad}{key}:"
            yield from _lines(value, depth + 1)
        else:
            yield f"{pad}{key}: {_word(value)}"


def _word(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value in (None, "", {}) else str(value)


def _endpoint(endpoint: Endpoint) -> dict[str, Any]:
    limits, errors = endpoint.limits, endpoint.on_error
    return {
        "name": endpoint.name,
        "host": sorted(endpoint.hosts),
        **{word: str(getattr(endpoint, word)) for word in ("prefix", "unmatched", "refusals")},
        "limits": {name: getattr(limits, name) for name in limits.__slots__},
        "on_error": {name: getattr(errors, name) for name in errors.__slots__},
    }


def _field(field: FieldRule) -> dict[str, Any]:
    return {
        "kind": field.kind,
        "token": field.shape.name,
        **({"else": field.shape.other.name} if isinstance(field.shape, Fallback) else {}),
        "same": field.shape.same,
        "resolves": field.shape.resolution.value,
        "at": spell(field.at),
        "find": sorted(field.find),
        "stored": "plain" if field.in_clear else "sealed",
        **({"check": in_words(field.check)} if field.check is not None else {}),
    }


def _view(view: View, entity: Entity) -> dict[str, str]:
    levels = view.levels.get(entity.name, {})
    example = {one: rule.mask.of(_EXAMPLES[rule.kind]) for one, rule in entity.fields.items()}
    return {
        name: f"mask, as {example[name]}" if level is Level.MASK else str(level)
        for name in entity.fields
        for level in [levels.get(name, Level.TOKEN)]
    }


#: Invented values by kind, to show masks.
_EXAMPLES: Final = {
    "text": "Some text", "name": "Ann Example", "email": "ann@example.com",
    "phone": "+46 70 174 06 05", "date": "1980-02-29", "card": "4111 1111 1111 1111",
    "number": "12345", "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "iban": "SE35 5000 0000 0549 1000 0003", "national_id": "19121212-1212",
}  # fmt: skip


def _request(operation: Operation) -> dict[str, Any]:
    rule = operation.request
    words = words_in(RequestWords, rule)
    patch = {"patch": str(rule.patch)} if rule.patch is not None else {}
    return (
        {"body": body_in_words(rule.body)}
        | patch
        | (words if rule.body is not None and operation.verb in ("create", "update") else {})
    )


def passed_places(operation: Operation) -> list[tuple[str, str]]:
    """Parameters and members that pass on purpose: ``("body", "$.city")``."""
    return [one for each in each_operation([operation]) for one in each.request.passed.labels]


def response_in_words(operation: Operation) -> dict[str, Any]:
    """Describe the handling of an answer, by the keys of the rule language."""
    rule = operation.response
    return {
        "body": body_in_words(rule.body),
        "id": id_in_words(rule.id, rule.body),
        "restore": str(rule.restore),
        "only": sorted(rule.only),
        "members": dict(rule.members),
        **({"stream": str(rule.stream)} if rule.stream is not None else {}),
        "columns": {**rule.columns, **rule.heads},
        "carriers": carriers_in_words(rule),
        **words_in(ResponseWords, rule),
        "success": [*_statuses(rule.success), *map(_condition, rule.conditions)],
    }


def carriers_in_words(rule: ResponseRule) -> list[str]:
    """Return the places of values beside the objects, as a rule writes them."""
    fields = sorted(map(bytes.decode, rule.carriers - {b"set-cookie"}))
    cookies = [f"cookie {name} {field}" for name, field in sorted(rule.cookies.items())]
    return [*fields, *map(spell, rule.carried), *cookies]


def body_in_words(body: BodyPlace | None) -> dict[str, Any] | None:
    """Describe the places of a body and their fields for ``rules explain``."""
    if body is None:
        return None
    start: Path = body.objects or ()
    places = {name: spell(start + path) for name, path in body.fields.items()}
    places |= {name: spell(path) for name, path in body.anchored.items()}
    objects = None if body.objects is None else spell(body.objects)
    named: dict[str, Any] = {"fields": places, "form": dict(body.form)}
    for text in body.texts:
        named.setdefault("texts of JSON", {})[text.label] = text_in_words(text)
    if body.multipart:
        named["multipart"] = dict(body.multipart)
    if body.file_names:
        named["names of files"] = dict(body.file_names)
    if body.csv:
        named |= {"csv": dict(body.csv), "part": body.part}
    return {str(body.xml or ("each" if body.each else "object")): objects, **named}


def text_in_words(text: TextPlace) -> str:
    """Describe the fields in a text of JSON."""
    fields = [f"{spell(path)} {name}" for path, name in text.fields]
    return ", ".join([*fields, *(f"{one.label} ({text_in_words(one)})" for one in text.texts)])


def id_in_words(source: IdPlace | None, body: BodyPlace | None) -> str | None:
    """Return the place of an id, as a rule writes it."""
    if source is None:
        return None
    if source.source is IdSource.HEADER:
        return f"header {source.name} {source.template}"
    if source.source is not IdSource.BODY:
        return f"{source.source} {source.name}" if source.name else f"link {source.template}"
    start: Path = () if source.absolute or body is None else body.objects or ()
    return f"{spell(start + source.path)} {source.template}".rstrip()


def _graph_field(field: GraphField) -> dict[str, Any]:
    operation = field.operation
    return {
        str(operation.verb): operation.entity.name,
        "fields": {rule.name: _field(rule) for rule in operation.entity.fields.values()},
        **({"keep": keep_in_words(operation)} if operation.keep is not None else {}),
        "object": ".".join(field.object),
        "key": ".".join(field.key),
        "id": field.id,
        "arguments": arguments_in_words(field),
    }


def arguments_in_words(field: GraphField) -> dict[str, str]:
    """Describe the arguments of a GraphQL field by its rule."""
    refused = {way: parameter_in_words(one) for way, one in field.refused.items()}
    return {".".join(way): words for way, words in {**field.arguments, **refused}.items()}


def keep_in_words(operation: Operation) -> str:
    """For how long a delete keeps values; empty where they go at once, as elsewhere."""
    keep = operation.keep
    return "" if keep is None else f"{keep} ms" if keep else "until another delete"


def when_in_words(rule: Rule) -> list[tuple[str, list[str]]]:
    """Return the conditions of a rule: places, and their possible values."""
    return [(_looks_at(one), sorted(value.text for value in one.values)) for one in rule.when]


def when_in_text(rule: Rule) -> str:
    """The conditions of a rule in one text: ``$.method: add, rename``."""
    return "; ".join(f"{where}: {', '.join(values)}" for where, values in when_in_words(rule))


def _looks_at(condition: Condition) -> str:
    if condition.source is ConditionSource.BODY:
        return spell(condition.path)
    if condition.source is ConditionSource.TYPE:
        return "type"
    return f"{condition.source} {condition.name}"


def _condition(condition: RedirectSuccess) -> str:
    """Return a condition in words: ``302 to /contacts/{id}``, ``200 with a text``."""
    to = (
        [f"to {' or '.join(template.text for template in condition.locations)}"]
        if condition.locations
        else []
    )
    text = [f'with the text "{condition.text}"'] if condition.text else []
    return " ".join([" or ".join(map(str, sorted(condition.statuses))), *to, *text])


def _statuses(success: frozenset[int]) -> list[str]:
    """``2xx`` in short, other statuses one by one."""
    if success >= SUCCESS:
        return ["200-299", *map(str, sorted(success - SUCCESS))]
    return [str(status) for status in sorted(success)]
