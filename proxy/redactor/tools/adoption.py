"""Plan to adopt an application that holds data already, or to release it again.

Chooses the application's operations that list, read and update an entity, and builds the body that
writes a record again. Pure: sends no request.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from proxy.errors import Code, VaultError
from proxy.redactor.path_template import parse_template
from proxy.redactor.routing import Router
from proxy.redactor.rules import (
    BodyPlace,
    Endpoint,
    Entity,
    IdSource,
    Match,
    Operation,
    PatchKind,
    RuleSet,
    Verb,
)
from proxy.redactor.search_rules import ConditionSource
from proxy.redactor.tools.adoption_records import (
    ReadRecord,
    RecordReader,
    RecordState,
    changed_members,
    compare_records,
)
from proxy.redactor.tools.explain import find_operation
from proxy.redactor.views import Level, view_of
from proxy.tokenization.base import Resolution

_JSON: Final = "application/json"
_MERGE_PATCH: Final = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class WalkPlan:
    """The operations of one application by which the records of an entity are gone through."""

    entity: Entity
    listing: RecordReader
    reading: RecordReader
    update: Operation
    body: BodyPlace  #: of the update
    target: str  #: of the first page of the list
    params: Mapping[str, str]  #: of the path of the list, by placeholder

    @property
    def endpoint(self) -> Endpoint:
        """The application."""
        return self.update.endpoint

    @property
    def method(self) -> str:
        """The method of the update."""
        return self.update.methods[0] if self.whole else "PATCH"

    @property
    def whole(self) -> bool:
        """Whether the update carries the whole object, not its ruled members alone."""
        return "PATCH" not in self.update.methods

    @property
    def content_type(self) -> str:
        """The type of the body of the update."""
        return _content_type(self.update) or _JSON

    def read_target(self, ident: str) -> str:
        """The path of one record."""
        return self._filled(self.reading.operation, ident)

    def update_target(self, ident: str) -> str:
        """The path of its update."""
        return self._filled(self.update, ident)

    def update_body(self, record: ReadRecord) -> bytes:
        """Return the body that writes a record's values: the whole object, or its ruled members."""
        content = record.content
        if not self.whole:
            tops = self._tops
            content = msgspec.json.encode(
                {name: raw for name, raw in record.members.items() if name in tops}
            )
        return self._wrapped(content)

    def unchanging_body(self, record: ReadRecord) -> bytes:
        """Return a body that leaves an unchanged record as it is: the object, or no member."""
        return self._wrapped(record.content if self.whole else b"{}")

    def _wrapped(self, content: bytes) -> bytes:
        for step in reversed(self.body.objects or ()):
            content = b"{" + msgspec.json.encode(str(step)) + b":" + content + b"}"
        return content

    def state(self, direct: ReadRecord, proxied: ReadRecord) -> RecordState | None:
        """Return the state of a record in the application; see ``compare_records``."""
        operations = (self.listing.operation, self.reading.operation)
        exact = not any(one.response.special for one in operations)
        return compare_records(direct, proxied, self._without_tokens, exact=exact)

    def altered(self, sent: ReadRecord, direct: ReadRecord, proxied: ReadRecord) -> list[str]:
        """Return the fields that are equal on both sides but differ from the sent ones.

        The application has changed a token, which then resolves to nothing, or a value.
        """
        rows = [one.values for one in (sent, direct, proxied)]
        if len({len(row) for row in rows}) != 1:
            return []
        return sorted(
            {old[0] for old, one, other in zip(*rows, strict=True) if one == other and one != old}
        )

    def changed(self, before: ReadRecord, after: ReadRecord) -> tuple[list[str], list[str]]:
        """Other members that are gone after an update, and those that changed with it."""
        return changed_members(before, after, self._tops)

    def complete(self, record: ReadRecord) -> bool:
        """Whether a record of a page shows every field that the entity has."""
        return self.entity.fields.keys() <= {one.field for one in record.spots}

    def masked(self, record: ReadRecord) -> bool:
        """Whether something may be the mask of a value: it has the sign of its field's masks."""
        fields = self.entity.fields
        return any(fields[name].mask.character in value.text for name, value in record.values)

    @property
    def _without_tokens(self) -> set[str]:
        """Fields that look the same on both sides."""
        fields = self.entity.fields.values()
        return {one.name for one in fields if one.shape.resolution is Resolution.CLEAR}

    @property
    def _tops(self) -> set[object]:
        """The members of the object in which ruled places lie."""
        return {path[0] for path in self.body.fields.values()}

    def _filled(self, operation: Operation, ident: str) -> str:
        values = dict(self.params)
        if operation.id is not None:
            values[operation.id.name] = ident
        return _PLACEHOLDER.sub(
            lambda match: quote(values[match[1]], safe="/" if match[2] else ""), operation.template
        )


_PLACEHOLDER: Final = re.compile(r"\{([^{}*]+)(\*?)\}")


# Which operations of the rules do it.


class WalkChoice(NamedTuple):
    """Choices of an operator that the rules leave open."""

    entity: str = ""
    endpoint: str = ""
    target: str = ""  #: the address of the list, with what its query should say


def plan_walk(rules: RuleSet, choice: WalkChoice) -> WalkPlan:
    """The operations for a walk.

    Raises ``VaultError(BAD_RULES)`` that says which one the rules do not name, and why those that
    are there do not serve.
    """
    endpoint, entity = _subject(rules, choice)
    operations = [
        one
        for one in rules.operations
        if one.endpoint is endpoint and one.entity is entity and not (one.graph or one.parts)
    ]
    listing, params, target = _listing(rules, operations, choice.target)
    ends = set(params)
    path = listing.template.rstrip("/")
    operations.sort(key=lambda one: not one.template.startswith(path))
    reading = _first(operations, "read one", lambda one: _why_not_read(one, ends))
    update = _first(
        sorted(operations, key=lambda one: (one.template != reading.template, _preference(one))),
        "update",
        lambda one: _why_not_update(one, ends),
    )
    body = update.request.body or BodyPlace(None, False, {}, {}, {})
    readers = RecordReader(listing), RecordReader(reading)
    return WalkPlan(entity, *readers, update, body, target, params)


def clear_for(plan: WalkPlan, role: str) -> bool:
    """Whether callers of a role see every value of the entity."""
    views = plan.endpoint.views
    levels = view_of(views, {role}).levels.get(plan.entity.name, {})
    return not views or all(levels.get(one) is Level.CLEAR for one in plan.entity.fields)


def _subject(rules: RuleSet, choice: WalkChoice) -> tuple[Endpoint, Entity]:
    pairs = {
        (one.endpoint.name, one.entity.name): (one.endpoint, one.entity) for one in rules.operations
    }
    fits = [
        names
        for names in pairs
        if choice.endpoint in ("", names[0]) and choice.entity in ("", names[1])
    ]
    if len(fits) == 1:
        return pairs[fits[0]]
    there = ", ".join(f"{entity} of {endpoint}" for endpoint, entity in sorted(fits or pairs))
    if not pairs:
        text = "The rules name no operation on an entity: there is nothing to go through."
    elif fits:
        text = f"The rules name several entities: {there}. Name one, and its --endpoint."
    else:
        text = f"The rules name no such entity; there are: {there}."
    raise VaultError(Code.BAD_RULES, text)


def _listing(
    rules: RuleSet, operations: Sequence[Operation], target: str
) -> tuple[Operation, Mapping[str, str], str]:
    lists = [one for one in operations if one.verb is Verb.READ and _lists(one)]
    if target:
        path = target.partition("?")[0]
        hosts = min(operations[0].endpoint.hosts, default="")
        rule = find_operation(rules, "GET", path, hosts).rule
        if not isinstance(rule, Operation) or rule not in lists:
            raise VaultError(
                Code.BAD_RULES,
                f"GET {path} is no list of this entity by the rules: an operation that reads it, "
                "with response: {each: …, id: …}.",
            )
        match = Router([rule], [rule.endpoint]).match("GET", hosts, path.encode())
        return rule, match.params if isinstance(match, Match) else {}, target
    ready = [one for one in lists if not parse_template(one.template).names]
    if not ready:
        text = (
            f"The path of the list {lists[0].label} has placeholders: name one with --list."
            if lists
            else "The rules name no list of this entity: an operation that reads it, answers JSON "
            "and has response: {each: …, id: …}."
        )
        raise VaultError(Code.BAD_RULES, text)
    return ready[0], {}, ready[0].template


def _lists(operation: Operation) -> bool:
    rule = operation.response
    ident = rule.id
    return (
        "GET" in operation.methods
        and rule.body is not None
        and rule.body.objects is not None
        and rule.body.each
        and not rule.body.anchored
        and rule.stream is None
        and (ident is None or (ident.source is IdSource.BODY and not ident.absolute))
        and not operation.when
    )


def _first(
    operations: Iterable[Operation], what: str, why_not: Callable[[Operation], str | None]
) -> Operation:
    """The first operation that serves; the reasons of the others where none does."""
    reasons: list[str] = []
    for one in operations:
        reason = why_not(one)
        if reason is None:
            return one
        if reason:
            reasons.append(f" {one.label}: {reason}.")
    raise VaultError(
        Code.BAD_RULES, f"The rules name no operation to {what} of this entity.{''.join(reasons)}"
    )


def _why_not_read(operation: Operation, params: set[str]) -> str | None:
    """``None`` where it serves; an empty text where it is another kind of operation."""
    body = operation.response.body
    if operation.verb is not Verb.READ or "GET" not in operation.methods or operation.when:
        return ""
    if operation.id is None or operation.id.source is not IdSource.PATH:
        return ""
    if body is None or body.objects is None or body.each:
        return "it answers no JSON object"
    return (
        "it names places outside of the object" if body.anchored else _unfilled(operation, params)
    )


def _why_not_update(operation: Operation, params: set[str]) -> str | None:
    if operation.verb is not Verb.UPDATE:
        return ""
    body = operation.request.body
    if body is None or body.objects is None or body.each:
        return "it takes no JSON object"
    if body.anchored:
        return "it names places outside of the object"
    if operation.request.patch not in (None, PatchKind.MERGE):
        return f"it takes changes of the kind {operation.request.patch}"
    if operation.id is None or operation.id.source is not IdSource.PATH:
        return "its id stands outside of its path"
    if any(not isinstance(step, str) for step in body.objects):
        return "it takes several objects"
    if _content_type(operation) is None:
        return "it serves under conditions alone"
    if "PATCH" in operation.methods and not all(
        isinstance(path[0], str) for path in body.fields.values()
    ):
        return "a field may lie anywhere in its object"
    return _unfilled(operation, params)


def _unfilled(operation: Operation, params: set[str]) -> str | None:
    names = set(parse_template(operation.template).names)
    ends = {operation.id.name} if operation.id is not None else set()
    missing = names - params - ends
    return (
        f"its path has a placeholder {{{min(missing)}}} that the list has not" if missing else None
    )


def _content_type(operation: Operation) -> str | None:
    """Return the content type of an update; ``None`` if none fulfils its conditions."""
    merge = operation.request.patch is PatchKind.MERGE
    if not operation.when:
        return _MERGE_PATCH if merge else _JSON
    types = {value.text for one in operation.when for value in one.values}
    if any(one.source is not ConditionSource.TYPE for one in operation.when):
        return None
    return next((one for one in (_JSON, _MERGE_PATCH) if one in types), None)


def _preference(operation: Operation) -> int:
    """Ruled members alone first, then the whole object."""
    return 0 if "PATCH" in operation.methods else 1 if "PUT" in operation.methods else 2
