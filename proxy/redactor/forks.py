"""Several operations behind one path, told apart by ``when``: by the head of a request, or by its
body.

Who routes sees one operation, the trunk, in place of all that share a path and a method. What is
almost a condition's value, such as the same name in other letters, is refused: an application may
take it for that.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from proxy.errors import Code, VaultError
from proxy.model.schema import Path, Value
from proxy.redactor import form
from proxy.redactor.json.names import fold_name
from proxy.redactor.json.tree import read_json_value
from proxy.redactor.message import Media, RawHeaders, Request, classify
from proxy.redactor.path_template import parse_template
from proxy.redactor.redact import query_values
from proxy.redactor.rules import Condition, ConditionSource, Operation, PassRule, Rule, Verb
from proxy.redactor.select import Selection

_IN_BODY = {ConditionSource.BODY: Media.JSON, ConditionSource.FORM: Media.FORM}


class Fork:
    """The operations of one path and method, the most specific first. Made when rules load."""

    def __init__(self, branches: Iterable[Rule]) -> None:
        self.branches = tuple(sorted(branches, key=_breadth))
        conditions = [one for branch in self.branches for one in branch.when]
        self._paths: tuple[Path, ...] = tuple(
            dict.fromkeys(one.path for one in conditions if one.source is ConditionSource.BODY)
        )
        self._selection = Selection(None, (), self._paths, nested=True)
        self._members = tuple(
            dict.fromkeys(one.name for one in conditions if one.source is ConditionSource.FORM)
        )
        self._limits = self.branches[0].endpoint.limits
        self._label = self.branches[0].label

    def by_head(self, target: bytes, headers: RawHeaders) -> Rule | None:
        """The rule of a request; ``None`` where its body has to tell.

        Raises ``VaultError``: OPERATION_DENIED where it fits none, BAD_REQUEST where it is not
        clear.
        """
        open_branches = self._open(target, headers)
        if any(one.source in _IN_BODY for branch in open_branches for one in branch.when):
            return None
        return self._first(open_branches)

    def by_body(self, request: Request) -> Rule:
        """The rule of a whole request. Raises as ``by_head``, UNREADABLE_BODY where nothing in the
        body can be told and the request would pass, and as ``Selection.find``.
        """
        branches = self._open(request.target, request.headers)
        conditions = [one for branch in branches for one in branch.when if one.source in _IN_BODY]
        media = classify(request.headers, request.body)
        read = any(_IN_BODY[one.source] is media for one in conditions)
        stated = self._stated(request.body, media) if read else {}
        fitting = [
            branch
            for branch in branches
            if all(
                _fits(one, stated.get((one.source, one.name or one.path), ()))
                for one in branch.when
                if one.source in _IN_BODY
            )
        ]
        rule = self._first(fitting)
        if isinstance(rule, PassRule) and not read and media is not Media.NONE:
            raise VaultError(
                Code.UNREADABLE_BODY,
                f"The rules of {self._label} tell requests apart by their body, and this one "
                "cannot be read for that: send it as JSON, or as the form that a rule names.",
            )
        return rule

    def _open(self, target: bytes, headers: RawHeaders) -> list[Rule]:
        """The branches whose conditions on the head hold."""
        return [
            branch
            for branch in self.branches
            if all(
                _fits(one, _in_head(one, target, headers))
                for one in branch.when
                if one.source not in _IN_BODY
            )
        ]

    def _stated(
        self, body: bytes, media: Media
    ) -> Mapping[tuple[ConditionSource, str | Path], Sequence[Value]]:
        """What stands in a body where conditions look."""
        stated: dict[tuple[ConditionSource, str | Path], list[Value]] = {}
        if media is Media.JSON:
            for leaf in self._selection.find(body, self._limits.json_depth).anchored:
                value = read_json_value(body[leaf.start : leaf.end])
                key = (ConditionSource.BODY, self._paths[leaf.name])
                stated.setdefault(key, []).append(value or Value("null", json=True))
            return stated
        for member in form.form_members(body, self._limits.form_fields, self._members):
            if member.name in self._members:
                text = form.read_form_value(body[member.start : member.end])
                stated.setdefault((ConditionSource.FORM, member.name), []).append(Value(text))
        return stated

    def _first(self, branches: Sequence[Rule]) -> Rule:
        if branches:
            return branches[0]
        raise VaultError(
            Code.OPERATION_DENIED,
            f"Rules name {self._label} by what a request says ('when'), and this one fits none of "
            "them.",
        )


def _in_head(condition: Condition, target: bytes, headers: RawHeaders) -> Iterator[Value]:
    """What the head of a request says where a condition looks."""
    if condition.source is ConditionSource.QUERY:
        yield from map(Value, query_values(target, condition.name))
        return
    name = condition.name.replace("_", "-").encode()
    for key, value in headers:
        if key.lower().replace(b"_", b"-") == name:
            text = value.decode("latin-1").strip()
            if condition.source is ConditionSource.TYPE:
                text = text.partition(";")[0].strip().lower()
            yield Value(text)


def _fits(condition: Condition, stated: Iterable[Value]) -> bool:
    """Whether a request says what a condition asks for."""
    values = set(stated)
    if len(values) > 1:
        raise VaultError(
            Code.BAD_REQUEST, "The request says several things by which rules tell it apart."
        )
    for value in values:
        if value in condition.values:
            return True
        if any(fold_name(value.text).strip() == fold_name(one.text) for one in condition.values):
            raise VaultError(
                Code.BAD_REQUEST,
                "The request says almost what a rule asks for, in another spelling: it cannot be "
                "told which rule it is for.",
            )
    return False


def _breadth(rule: Rule) -> tuple[int, int]:
    """Where a branch stands among those that fit the same request, which all lie in each other."""
    return -len(rule.when), sum(len(one.values) for one in rule.when)


def forked(rules: Iterable[Rule]) -> tuple[list[Rule], dict[int, Fork]]:
    """The rules for a router, one trunk in place of operations that share a path, and the forks by
    the identity of their trunks.
    """
    groups: dict[object, list[Rule]] = {}
    for rule in rules:
        shape = parse_template(rule.template).shape
        groups.setdefault((rule.endpoint.name, rule.methods, shape), []).append(rule)
    routed: list[Rule] = []
    forks: dict[int, Fork] = {}
    for group in groups.values():
        operations = [one for one in group if isinstance(one, Operation)]
        if not operations or not any(one.when for one in group):
            routed += group
            continue
        fork = Fork(group)
        # What may write counts as a write, until it is told; what searches, as a search.
        first = max(operations, key=lambda one: (one.verb is not Verb.READ, one.request.addressed))
        trunk = replace(first, when=(), branches=fork.branches)
        forks[id(trunk)] = fork
        routed.append(trunk)
    return routed, forks


def each_operation(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Every operation on one entity: those on fields of GraphQL stand in others."""
    for operation in operations:
        inner = tuple(one.operation for one in operation.graph)
        yield from inner or (operation,)
