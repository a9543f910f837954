"""Search parameters, compiled: ``query``, ``path``, and of a body ``form``, ``values``."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations
from typing import TypeVar

from proxy.model.schema import Path, PathStep, spell
from proxy.redactor.form import pattern_matches, pattern_weight, patterns_overlap
from proxy.redactor.load.entities import EntityDraft
from proxy.redactor.load.ids import selectors_overlap, selects_many
from proxy.redactor.load.texts import checked_selector, is_document, is_passed, known_field
from proxy.redactor.load.value_forms import PlacedValue, Section
from proxy.redactor.load.vault_questions import (
    check_dropped,
    check_lone,
    check_questions,
    field_question,
    filter_parameter,
    has_same_tokens,
    order_question,
    other_field,
    refusing,
    same_hint,
)
from proxy.redactor.load.yaml_tree import RuleFaults, did_you_mean
from proxy.redactor.path_template import PathTemplate, SegmentKind
from proxy.redactor.request_rules import ListSpelling, Parameter, SearchRule
from proxy.redactor.rules import Entity, Verb

_T = TypeVar("_T")
_Members = Mapping[str, PlacedValue]
_Read = Callable[[str, Section, Entity, RuleFaults], Parameter | None]
_Places = tuple[tuple[Path, Parameter], ...]

#: Ids that are sent at most, where the file does not say.
MOST_IDS = 500
#: Keys that may give the places of search values, but not together with ``values``.
_BODY_KEYS = ("object", "each", "fields")


def compile_search(
    section: Section,
    about: tuple[Verb, Entity, Mapping[str, EntityDraft]],
    template: PathTemplate,
    faults: RuleFaults,
) -> SearchRule | None:
    """Compile what a request searches by; ``None`` for nothing.

    ``about``: the verb, its entity, and all of the file, whose fields an order may name. A form
    is included whole if one of its members says more than its field; else it is a body.
    """
    verb, entity, others = about
    inner: Section | None = section.value("request")
    query: _Members = section.value("query", {})
    form: _Members = inner.value("form", {}) if inner is not None else {}
    values: Mapping[str, PlacedValue] = inner.value("values", {}) if inner is not None else {}
    path: _Members = section.value("path", {})
    if verb in (Verb.CREATE, Verb.UPDATE) or "websocket" in (section.value("response") or ()):
        # what writes carry is stored, texts of JSON as well; messages search by fields
        query, form, values = (
            {name: one for name, one in part.items() if not (is_document(one) or is_passed(one))}
            for part in (query, form, values)
        )
    form = form if values or any(map(says_more, form.values())) else {}
    if not (query or form or values or path):
        return None
    if inner is not None and (form or values):
        _check_alone(inner, verb, faults)

    def compiled(name: str, item: PlacedValue) -> Parameter | None:
        return _parameter(name, item, entity, faults, others)

    check_dropped({**form, **values}, faults)
    rule = SearchRule(
        by_weight(query, compiled, faults),
        by_weight(form, compiled, faults),
        _values(values, compiled, faults),
        _path(path, entity, template, faults),
    )
    _check_same(rule, entity, (query, form, values, path), faults)
    parts = ((rule.query.values(), query), (rule.form.values(), form))
    asking = [(one, items) for part, items in parts for one in part if one.vault]
    asking += [(one, values) for _, one in rule.values if one.vault]
    check_questions(asking, verb, faults)
    return SearchRule(
        _with_sent(rule.query), _with_sent(rule.form), _with_sent_places(rule.values), rule.path
    )


def says_more(item: PlacedValue) -> bool:
    """Whether a parameter says more than which field it holds."""
    if not isinstance(item.value, Section):
        return False
    return any(key != "field" for key in item.value) or len(item.value.value("field", ())) > 1


def by_weight(
    members: _Members, compiled: Callable[[str, PlacedValue], _T | None], faults: RuleFaults
) -> dict[str, _T]:
    """Compile each name or pattern, the most specific first.

    Two that can name one member and mean different things are a fault.
    """
    out = {
        name: parsed
        for name, item in members.items()
        if (parsed := compiled(name, item)) is not None
    }
    for one, other in combinations(out, 2):
        even = pattern_weight(one) == pattern_weight(other)
        if even and "*" in one and out[one] != out[other] and patterns_overlap(one, other):
            faults.add(
                members[other].key,
                f"'{other}' and '{one}' can name the same member and neither is more specific; "
                "make one of them longer",
            )
    return dict(sorted(out.items(), key=lambda entry: pattern_weight(entry[0]), reverse=True))


def _check_alone(inner: Section, verb: Verb, faults: RuleFaults) -> None:
    at = inner.key("values" if "values" in inner else "form")
    if verb in (Verb.CREATE, Verb.UPDATE):
        faults.add(
            at,
            f"the vault keeps what the body of a {verb} carries, and this looks for values; say of "
            "each which field it is, json: of a text which fields stand in it, or pass: true where "
            "it is nobody's",
        )
    for key in _BODY_KEYS:
        if key in inner:
            faults.add(
                inner.key(key),
                f"'{key}' says where an object stands, and this body looks for values; name each "
                "place under 'values'",
            )


# ---------------------------------------------------------------------- one parameter


def _parameter(
    name: str,
    item: PlacedValue,
    entity: Entity,
    faults: RuleFaults,
    others: Mapping[str, EntityDraft],
) -> Parameter | None:
    if not isinstance(item.value, Section):
        fits = item.value is not None and known_field(item.value, item, entity, faults)
        return Parameter(name, item.value) if fits else None
    section: Section = item.value
    named = partial(refusing, others=others)
    words: dict[str, _Read] = {"pass": _passing, "expression": _filter, "refuse": named}
    words |= {"drop": named, "json": partial(_document, others=others), "via": vault_parameter}
    for word, read in words.items():
        if word in section:
            return read(name, section, entity, faults)
    if "field" not in section:
        if not section.strange:
            faults.add(
                item.at,
                f"'{name}' does not say what it holds; write field: NAME, or refuse: always",
            )
        return None
    fields = _fields(section, entity, faults)
    if len(fields) != 1:
        for one in section.value("field", [])[1:]:
            faults.add(
                one.at,
                "one parameter holds values of one field; write via: vault to look in several",
            )
        return None
    split = section.value("split", "")
    for key in ("find", "most"):
        holder = section if key == "find" else section.value("send")
        if holder is not None and key in holder:
            faults.add(holder.key(key), f"'{key}' is about a search of the vault; write via: vault")
    send, mixed = _spelling(section, split, faults), "mixed" in section
    if mixed and not (split or send):
        text = "one value cannot be token and value: say how several are sent, by split or send"
        faults.add(section.key("mixed"), text)
    other = other_field(section, fields[0], entity, faults) if "else" in section else None
    return Parameter(name, fields[0], split, send, mixed=mixed, other=other)


def _passing(name: str, section: Section, _: Entity, faults: RuleFaults) -> Parameter:
    check_lone(name, "pass", section, faults)
    return Parameter(name)


def _document(
    name: str,
    section: Section,
    entity: Entity,
    faults: RuleFaults,
    others: Mapping[str, EntityDraft],
) -> Parameter:
    check_lone(name, "json", section, faults)
    inner = partial(_inner, entity=entity, faults=faults, others=others)
    return Parameter(name, inside=_values(section.value("json", {}), inner, faults))


def _inner(
    name: str,
    item: PlacedValue,
    *,
    entity: Entity,
    faults: RuleFaults,
    others: Mapping[str, EntityDraft],
) -> Parameter | None:
    for key in item.value if isinstance(item.value, Section) else ():
        if key not in ("field", "split", "refuse", "json"):
            hint = "is not followed; write field, split, refuse or json"
            faults.add(item.value.key(key), f"inside a text of JSON '{key}' {hint}")
    parameter = _parameter(name, item, entity, faults, others)
    if parameter is not None and parameter.of and not has_same_tokens(entity, parameter.of):
        faults.add(item.at, same_hint(entity, parameter.of, f"the place {name}"))
    return parameter


def _filter(name: str, section: Section, entity: Entity, faults: RuleFaults) -> Parameter:
    check_lone(name, "expression", section, faults, "fields")
    for one in section.value("fields", {}).values():
        declared = one.value and known_field(one.value, one, entity, faults)
        if declared and not has_same_tokens(entity, one.value):
            faults.add(one.at, same_hint(entity, one.value, f"the parameter '{name}'"))
    return filter_parameter(name, section, entity, partial(has_same_tokens, entity), faults)


def _fields(section: Section, entity: Entity, faults: RuleFaults) -> list[str]:
    """The fields that a parameter names, as far as the entity has them."""
    named: list[PlacedValue] = section.value("field", [])
    return [
        one.value
        for one in named
        if one.value is not None and known_field(one.value, one, entity, faults)
    ]


def _spelling(section: Section, split: str, faults: RuleFaults) -> ListSpelling | None:
    send: Section | None = section.value("send")
    if send is None:
        return None
    if "join" in send and "repeat" in send:
        faults.add(
            send.key("repeat"),
            "'join' puts several values into one parameter, and 'repeat' repeats it; keep one",
        )
    join = "" if "repeat" in send else send.value("join", split or ",")
    most = send.value("most", MOST_IDS)
    return ListSpelling(send.value("param", ""), join, send.value("none"), most)


# ---------------------------------------------------------------------- via: vault


def vault_parameter(
    name: str, section: Section, entity: Entity, faults: RuleFaults
) -> Parameter | None:
    """A parameter by which the vault finds the records."""
    split = section.value("split", "")
    send = _spelling(section, split, faults)
    if entity.kept_as is not None:
        faults.add(
            section.key("via"),
            f"{entity.name} is kept among the records of the record-based interface, where this "
            "search is not done; leave via out, or give the entity a schema of its own",
        )
    if "refuse" in section or send is None or not send.param or send.none is None:
        faults.add(
            section.key("via"),
            "the ids that the vault finds are sent as a parameter of the application; write send: "
            '{param: ids, join: ",", none: "-1"}, with a text for none that finds nobody',
        )
        return None
    if "field" not in section:
        return Parameter(name, send=send, vault=order_question(section, entity, faults))
    listed = _fields(section, entity, faults)
    question = field_question(section, entity, faults)
    return Parameter(name, split=split, send=send, vault=question) if listed else None


def _with_sent(parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Add the sent forms of the parameters, which callers may send as well, unless ruled.

    PHP reads ``ids[]`` as ``ids``.
    """
    every: dict[str, Parameter] = {}
    for one in sorted(parameters.values(), key=lambda one: not one.of):
        sent = one.send.param if one.send is not None else ""
        for name in filter(None, (sent, sent.removesuffix("[]"))):
            fits = (of for other, of in parameters.items() if pattern_matches(other, name))
            if (rule := next(fits, None)) is None or (one.of and rule.passes):
                every.setdefault(name, _sent(one, name))
    return {**every, **parameters}


def _with_sent_places(places: _Places) -> _Places:
    """The places and the members that are sent for them, as ``_with_sent``."""
    for path, one in sorted(places, key=lambda sent_path: not sent_path[1].of):
        if one.send is not None and one.send.param:
            each = (PathStep.EACH,) if one.of and not one.send.join else ()
            sent_path = (*path[:-1], one.send.param, *each)
            if not any(selectors_overlap(sent_path, other) for other, _ in places):
                places = (*places, (sent_path, _sent(one, spell(sent_path))))
    return places


def _sent(one: Parameter, name: str) -> Parameter:
    value = one.send if one.of else None
    return Parameter(name, one.of, value.join, none=value.none) if value else Parameter(name)


# ---------------------------------------------------------------------- places


def _values(
    items: Mapping[str, PlacedValue],
    compiled: Callable[[str, PlacedValue], Parameter | None],
    faults: RuleFaults,
) -> _Places:
    places: list[tuple[Path, Parameter]] = []
    for name, item in items.items():
        path = checked_selector(name, item, faults)
        if path == ():
            faults.add(item.key, "a value cannot be the whole document; write $.name of its member")
        if not path:
            continue
        for other, _ in places:
            if selectors_overlap(path, other):
                faults.add(
                    item.key,
                    f"{name} overlaps {spell(other)}; a value belongs to one parameter only",
                )
        parameter = compiled(name, item)
        if parameter is not None:
            if parameter.send is not None and (selects_many(path) or not isinstance(path[-1], str)):
                faults.add(
                    item.key, "what is sent as a list stands in one member; write $.name of it"
                )
            places.append((path, parameter))
    return tuple(places)


def _path(
    items: _Members, entity: Entity, template: PathTemplate, faults: RuleFaults
) -> dict[str, str]:
    out = {}
    rest = {
        name
        for segment in template.segments
        if segment.kind is SegmentKind.REST
        for name in segment.names
    }
    for name, item in items.items():
        field = item.value.value("field") if isinstance(item.value, Section) else item.value
        if name not in template.names:
            faults.add(
                item.key,
                f"the path {template.text} has no placeholder '{name}'; "
                f"{did_you_mean(name, template.names)}",
            )
        elif name in rest:
            faults.add(item.key, f"'{name}' takes several segments, and a value stands in one")
        elif field is not None and known_field(field, item, entity, faults):
            out[name] = field
    return out


# ---------------------------------------------------------------------- tokens


def _check_same(
    rule: SearchRule, entity: Entity, said: tuple[_Members, ...], faults: RuleFaults
) -> None:
    """A value that is looked for must get the same token each time."""
    query, form, values, path = said
    fields = [
        *((query[name], f"the parameter '{name}'", one.of) for name, one in rule.query.items()),
        *((form[name], f"the member '{name}'", one.of) for name, one in rule.form.items()),
        *((values[one.name], f"the place {one.name}", one.of) for _, one in rule.values),
        *((path[name], f"the placeholder '{name}'", field) for name, field in rule.path.items()),
    ]
    for item, where, field in fields:
        if field and not has_same_tokens(entity, field):
            faults.add(item.at, same_hint(entity, field, where))
