"""``envelope:`` compiled: a request that carries others, matched as if they came alone."""

from collections.abc import Mapping

from proxy.model.schema import Path
from proxy.redactor.load.entities import EntityDraft
from proxy.redactor.load.ids import selectors_overlap, selects_many
from proxy.redactor.load.parsers import MatchPattern
from proxy.redactor.load.value_forms import PlacedValue, Section
from proxy.redactor.load.yaml_tree import RuleFaults
from proxy.redactor.rules import Endpoint, Operation, RequestRule, ResponseRule, Verb
from proxy.redactor.search_rules import Condition, EnvelopeRule

_TAKEN = frozenset(range(200, 300))
_METHODS = {"POST", "PUT", "PATCH"}


def compile_envelope(
    section: Section,
    scope: tuple[Endpoint, Mapping[str, EntityDraft], RuleFaults],
    when: tuple[Condition, ...],
) -> Operation | None:
    """Compile the operation of an envelope; ``None`` if its subject was at fault."""
    endpoint, entities, faults = scope
    for key in section:
        if key not in ("match", "envelope", "when"):
            faults.add(
                section.key(key),
                f"the requests in an envelope have operations of their own; write '{key}' there, "
                "or leave it out",
            )
    matched, inner = section.value("match"), section.value("envelope")
    if isinstance(matched, MatchPattern) and not _METHODS.issuperset(matched.methods):
        faults.add(
            section.position("match"),
            "an envelope is a body; write POST, PUT or PATCH and its path",
        )
    if not entities:
        faults.add(
            section.key("envelope"),
            "the file has no entities, so nothing in it can be ruled; write pass: true",
        )
    rule = _rule(inner, faults) if isinstance(inner, Section) else None
    if rule is None or not isinstance(matched, MatchPattern) or not entities:
        return None
    return Operation(
        matched.label,
        endpoint,
        Verb.UPDATE,  # a possible write counts as a write
        matched.methods,
        matched.template.text,
        next(iter(entities.values())).entity,
        None,
        RequestRule(None, {}),
        ResponseRule(None, None, _TAKEN, special=True),
        section.at,
        when,
        envelope=rule,
    )


def _rule(inner: Section, faults: RuleFaults) -> EnvelopeRule | None:
    answers, each = inner.value("answers"), inner.value("each")
    if not isinstance(answers, Section):  # where they stand, and nothing else
        alone = {} if answers is None else {"each": inner.items["answers"]}
        answers = Section(alone, inner.position("answers"))
    if each is None or answers.value("each") is None:
        return None
    defaults: Mapping[str, PlacedValue] = inner.value("defaults", {})
    for name, one in defaults.items():
        if name not in ("method", "path"):
            faults.add(one.key, f"a request has no '{name}' by default; write method or path")
    parts = _parts(inner, ("method", "path", "headers", "body"), faults)
    answered = _parts(answers, ("status", "headers", "body"), faults)
    ident: Path | None = inner.value("id")
    said = tuple(
        (defaults[one].value or "") if one in defaults else "" for one in ("method", "path")
    )
    return EnvelopeRule(
        each,
        parts["method"],
        parts["path"],
        parts["headers"],
        parts["body"],
        ident,
        inner.value("base", ""),
        (said[0].upper(), said[1]),
        answers.value("each"),
        answered["status"],
        answered["headers"],
        answered["body"],
    )


def _parts(section: Section, names: tuple[str, ...], faults: RuleFaults) -> dict[str, Path]:
    """Return the places of the parts of a request or an answer.

    A part that the file does not name has its usual place, unless another one stands there.
    """
    listed = [name for name in ("id", *names) if name in section]
    parts: dict[str, Path] = {}
    for name in listed:
        path = section.value(name)
        if path is None:
            continue
        if not path or selects_many(path):
            faults.add(section.position(name), f"'{name}' is one member of each; write $.{name}")
        elif any(selectors_overlap(path, other) for other in parts.values()):
            faults.add(section.position(name), f"'{name}' stands where another part does")
        parts[name] = path
    for name in names:
        free = not any(selectors_overlap((name,), other) for other in parts.values())
        if name not in listed:
            parts[name] = (name,) if free else ()
    return {name: parts.get(name, ()) for name in names}
