"""GraphQL requests, read by the parsed operation: which fields that a rule names they ask for, and
where the values of their arguments stand.

Aliases, fragments, variables and inline values are followed; others are refused. The parser is
loaded with the first request.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace as with_fields

from proxy.errors import Code, VaultError
from proxy.model.schema import Path, PathStep
from proxy.redactor.graphql.address import (
    body_of_address,
    says_no_more,
    takes_events,
    takes_several,
)
from proxy.redactor.graphql.unread import says_twice
from proxy.redactor.graphql.values import (
    PARSED,
    GraphValues,
    ValueOrigin,
    chosen_operation,
    parse_document,
)
from proxy.redactor.json.tree import read_json_value
from proxy.redactor.message import Media, Request, classify
from proxy.redactor.plan import BodyPlan, body_plan
from proxy.redactor.rules import GraphField, Operation, Verb
from proxy.redactor.search.sought import named_like
from proxy.redactor.select import Selection

if TYPE_CHECKING:
    from graphql import DocumentNode

#: Fields of one operation that are walked, fragments in their places.
_MOST_FIELDS: Final = 5_000
#: Fields in one another, and fragments likewise.
_DEEPEST: Final = 200
#: Directives that leave a field out.
_CONDITIONAL: Final = ("include", "skip")
#: Fields that rules name, of all operations in a body: for each the answer is read once.
_MOST_USES: Final = 500
#: Requests in one body.
_MOST_REQUESTS: Final = 100

_JSON: Final = (b"Content-Type", b"application/json")
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_HASH: Final = ("extensions", "persistedQuery", "sha256Hash")
_REQUESTS: Final = Selection((), [("query",), ("variables",), ("operationName",), _HASH])


class FieldUse(NamedTuple):
    """Use of a rule's field by a request."""

    field: GraphField
    path: tuple[str, ...]  #: of its answer, in the caller's names
    node: Any
    names: tuple[str, ...]  #: the entity's field of each leaf in the answer's object
    leaves: tuple[Path, ...]
    ids: tuple[Path, ...]  #: the places of the object's id

    def plan(self, objects: Path) -> BodyPlan:
        """The plan of an answer whose objects stand there."""
        ident = len(self.leaves) if self.ids else -1
        selection = Selection(objects, [*self.leaves, *self.ids[:1]])
        base = body_plan(self.field.operation.response.body, None)
        if base is None:
            raise TypeError("a field of GraphQL has places in its answer")
        return replace(base, selection=selection, fields=self.names, id_leaf=ident)


class RequestedField(NamedTuple):
    """A use with the small document of its values, and where each of them stands."""

    use: FieldUse
    body: bytes
    #: places of the document: the span in the request that a place of the document comes from
    origins: tuple[ValueOrigin, ...]
    position: int | None  #: of its request in a list of several


class _Layout(NamedTuple):
    """A document with what a rule reads of one of its operations."""

    document: Any
    operation: Any
    uses: tuple[FieldUse, ...]
    passed: frozenset[int]  #: identities of arguments that hold nobody's data


class GraphReader:
    """Reads the requests of one address. Made when rules load."""

    def __init__(self, operation: Operation) -> None:
        fields = operation.graph
        self._label = operation.label
        self._depth = operation.endpoint.limits.json_depth
        self._roots = {one.name: one for one in fields if "." in one.name}
        self._anywhere = {one.name: one for one in fields if "." not in one.name}
        self._persisted = dict(operation.persisted)
        self._passed = frozenset(operation.passed_fields)
        self._protected = named_like(
            name for one in fields for rule in one.operation.entity.fields.values()
            for name in (rule.name, *[step for step in rule.at if isinstance(step, str)][-1:])
        )  # fmt: skip
        self._layouts: dict[tuple[str, str], _Layout] = {}

    def with_body(self, request: Request) -> Request:
        """The request with a body that says what its address says; the same where that asks for
        nothing. Raises ``VaultError``.
        """
        if b"?" not in request.target:
            return request
        body, others = body_of_address(request.target, self._unclear)
        if any(map(self.is_protected, others)):
            raise self._unclear("stands beside a parameter that is called like a field")
        if request.body and says_no_more(body, request.body):
            return request
        if request.method.upper() != "GET" or request.body or not takes_events(request):
            raise self._unclear("stands in its address: send it in the body of a POST")
        return with_fields(request, headers=(_JSON, *request.headers), body=body)

    def read(self, request: Request) -> list[RequestedField]:
        """Return the fields that a request asks for, in its order.

        ``request`` is as ``with_body`` returns it. Raises ``VaultError``, never with content.
        """
        requested: list[RequestedField] = []
        for position, (layout, values) in self._requests(request):
            for use in layout.uses:
                document = values.document(use.field, use.node)
                requested.append(RequestedField(use, *document, position))
            values.check_rest(self.is_protected, layout.passed)
            if len(requested) > _MOST_USES:
                raise self._unclear(f"asks for more than {_MOST_USES} ruled fields", Code.TOO_LARGE)
        return requested

    def unread(self, request: Request) -> Iterator[tuple[tuple[str, ...], str]]:
        """Each text of an argument that no rule reads and that is not called like a field: its way
        (field of the schema, argument, members) and the text. Raises as ``read``.
        """
        for _, (layout, values) in self._requests(request):
            for use in layout.uses:
                values.document(use.field, use.node)
            yield from values.unread(layout.passed)

    def _requests(
        self, request: Request
    ) -> Iterator[tuple[int | None, tuple[_Layout, GraphValues]]]:
        """The requests of a body, each with its position in a list of several."""
        if request.method.upper() in ("GET", "HEAD") and not request.body:
            return  # a page about the interface, which asks for nothing
        if classify(request.headers, request.body) is not Media.JSON:
            raise self._unclear("is no JSON", Code.UNREADABLE_BODY)
        requests = _REQUESTS.find(request.body, self._depth)
        several = request.body.lstrip()[:1] == b"["
        if len(requests.objects) != (len(_ELEMENTS.decode(request.body)) if several else 1):
            raise self._unclear("is no object", Code.UNREADABLE_BODY)
        if len(requests.objects) > _MOST_REQUESTS:
            raise self._unclear(f"is one of more than {_MOST_REQUESTS}", Code.TOO_LARGE)
        for number, one in enumerate(requests.objects):
            spans = {leaf.name: (leaf.start, leaf.end) for leaf in one.leaves}
            yield number if several else None, self._one(request, spans)

    def _one(
        self, request: Request, spans: dict[int, tuple[int, int]]
    ) -> tuple[_Layout, GraphValues]:
        body = request.body
        texts = [self._text(body, spans.get(number)) for number in (0, 2, 3)]
        query, name, digest = texts
        inline = query is not None
        if query is None:
            query = self._persisted.get(digest or "")
        elif digest is not None and hashlib.sha256(query.encode()).hexdigest() != digest.lower():
            raise self._unclear("has the hash of another document")
        if query is None:
            raise self._unclear("is a hash that the rule does not know: send the document itself")
        layout = self._layout(query, name or "")
        self._check_kind(layout.operation.operation.value, request)
        stored = spans[0] if inline else None
        values = GraphValues(body, spans.get(1), stored, (query, layout.document), self._unclear)
        values.declare(layout.operation)
        return layout, values

    def _check_kind(self, kind: str, request: Request) -> None:
        """Raise for an operation whose answers would go unread, or that an address may not hold."""
        if kind == "subscription" and not takes_several(request):
            raise self._unclear(
                "is a subscription: ask for its answers with Accept: text/event-stream, or "
                "multipart/mixed"
            )
        if kind == "mutation" and request.method.upper() != "POST":
            raise self._unclear("changes something: send it in the body of a POST")

    def _text(self, body: bytes, span: tuple[int, int] | None) -> str | None:
        value = read_json_value(body[span[0] : span[1]]) if span is not None else None
        if value is not None and value.json:
            raise self._unclear("has a member that is no text", Code.BAD_REQUEST)
        return value.text if value is not None else None

    def _layout(self, query: str, name: str) -> _Layout:
        layout = self._layouts.get((query, name))
        if layout is None:
            document = parse_document(query)
            if says_twice(document):
                raise self._unclear("says an argument, a member or a variable twice")
            operation = chosen_operation(document, name, self._unclear)
            passed: set[int] = set()
            uses = tuple(self._walked(document, operation, passed))
            if len(self._layouts) >= PARSED:
                self._layouts.clear()
            layout = _Layout(document, operation, uses, frozenset(passed))
            self._layouts[query, name] = layout
        return layout

    def _walked(
        self, document: "DocumentNode", operation: Any, passed: set[int]
    ) -> Iterator[FieldUse]:
        """The uses of fields that a rule names; notes the arguments that hold nobody's data."""
        kind = operation.operation.value
        definitions: Iterable[Any] = document.definitions
        fragments = {
            one.name.value: one for one in definitions if one.kind == "fragment_definition"
        }
        selected = _Selected(fragments, self._unclear)
        root = kind.capitalize()
        written: set[tuple[str, ...]] = set()
        grouped: dict[tuple[tuple[str, ...], str], list[_Node]] = {}
        for path, one in selected.everything(operation.selection_set):
            node = one.node
            called = node.name.value
            field = self._roots.get(f"{root}.{called}") if len(path) == 1 else None
            field = field or self._anywhere.get(called)
            named = {called, f"{root}.{called}"} if len(path) == 1 else {called}
            if field is not None:
                grouped.setdefault((path, field.name), []).append(one)
            elif called.startswith("__") or not self._passed.isdisjoint(named):
                passed.update(map(id, node.arguments or ()))  # of the schema itself: no data
        for (path, called), nodes in grouped.items():
            field = self._roots.get(called) or self._anywhere[called]
            if kind == "subscription" and field.operation.verb is not Verb.READ:
                raise self._unclear("is a subscription to a field by which rules change records")
            reads = field.operation.request.body is not None or field.refused
            if reads and len(nodes) > 1:
                raise self._unclear("asks for one field twice")
            if path in written:
                raise self._unclear("asks for one field twice")
            written.add(path)
            yield selected.use(field, path, nodes)
        for node in selected.unreached(document):
            if any(self.is_protected(argument.name.value) for argument in node.arguments or ()):
                raise self._unclear("holds fields that its operation does not ask for")

    def is_protected(self, name: str) -> bool:
        """Whether an argument or a member is called like a field, or compares one."""
        return self._protected(name)

    def _unclear(self, text: str, code: Code = Code.VALUE_UNFIT) -> VaultError:
        return VaultError(
            code, f"The request matches {self._label}, and its GraphQL operation {text}."
        )


class _Node(NamedTuple):
    """A field of a document, and on what it depends whether it is in the answer: the types and
    directives of fragments round it, and of itself.
    """

    node: Any
    conditions: frozenset[str] = frozenset()


class _Selected:
    """The fields of a document, with its fragments in their places."""

    def __init__(self, fragments: dict[str, Any], unclear: Any) -> None:
        self._fragments = fragments
        self._unclear = unclear
        self._left = _MOST_FIELDS
        self._reached: set[int] = set()
        self._deferred = False  #: whether a part of the answer may come later than the rest

    def fields(
        self, selection: Any, outer: frozenset[str] = frozenset(), within: tuple[str, ...] = ()
    ) -> Iterator[_Node]:
        """The fields of one selection set, which stands under these conditions."""
        for node in selection.selections if selection is not None else ():
            self._left -= 1
            self._deferred |= any(one.name.value == "defer" for one in node.directives or ())
            if self._left < 0:
                raise self._unclear(f"has more than {_MOST_FIELDS} fields", Code.TOO_LARGE)
            conditions = outer | _conditions(node)
            if node.kind == "field":
                self._reached.add(id(node))
                yield _Node(node, conditions)
            elif node.kind == "inline_fragment":
                yield from self.fields(node.selection_set, conditions, within)
            else:
                name = node.name.value
                if name in within or name not in self._fragments or len(within) > _DEEPEST:
                    raise self._unclear("has a fragment that holds itself, or is not there")
                fragment = self._fragments[name]
                inside = conditions | _conditions(fragment)
                yield from self.fields(fragment.selection_set, inside, (*within, name))

    def everything(
        self, selection: Any, path: tuple[str, ...] = (), outer: frozenset[str] = frozenset()
    ) -> Iterator[tuple[tuple[str, ...], _Node]]:
        """Every field with its path in the answer, outer ones first."""
        if len(path) > _DEEPEST:
            raise self._unclear(f"is deeper than {_DEEPEST} fields", Code.TOO_LARGE)
        for one in self.fields(selection, outer):
            at = (*path, _key(one.node))
            yield at, one
            yield from self.everything(one.node.selection_set, at, one.conditions)

    def unreached(self, document: "DocumentNode") -> Iterator[Any]:
        """The fields of the document that the operation does not come to."""
        waiting: list[Any] = [one.selection_set for one in document.definitions
                              if hasattr(one, "selection_set")]  # fmt: skip
        while waiting:
            for node in waiting.pop().selections:
                if node.kind == "field" and id(node) not in self._reached:
                    yield node
                if getattr(node, "selection_set", None) is not None:
                    waiting.append(node.selection_set)

    def use(self, field: GraphField, path: tuple[str, ...], nodes: Sequence[_Node]) -> FieldUse:
        """Return the places of a field's values and id in the answer, in the caller's names."""
        places: list[tuple[str, Path]] = []
        small: dict[str, list[frozenset[str]]] = {}
        for rule in field.operation.entity.fields.values():
            for at, conditions in self._paths(nodes, rule.at):
                places.append((rule.name, at))
                if rule.at in field.small:
                    small.setdefault(rule.name, []).append(conditions)
        ids: dict[Path, list[frozenset[str]]] = {}
        for at, conditions in sorted(self._paths(nodes, (field.id,)), key=lambda one: len(one[1])):
            ids.setdefault(at, []).append(conditions)
        needed = [one for each in small.values() for one in each]
        ids = {at: some for at, some in ids.items() if not _missing(some, needed)}
        if small and not ids:
            called = next(reversed(small))
            raise self._unclear(
                f"asks for {called} without {field.id} beside it: ask for both, in the same "
                "fragment and under the same directives"
            )
        if small and self._deferred:
            raise self._unclear(
                f"asks for {next(reversed(small))}, whose {field.id} may come in another part: "
                "leave @defer out"
            )
        names = tuple(name for name, _ in places)
        leaves = tuple(path for _, path in places)
        return FieldUse(field, path, nodes[0].node, names, leaves, tuple(ids))

    def _paths(self, parents: Iterable[_Node], at: Path) -> Iterator[tuple[Path, frozenset[str]]]:
        """The places behind fields of the answer, each with its conditions."""
        step, rest = at[0], at[1:]
        each = step is PathStep.EACH
        nodes = [
            one
            for parent in parents
            for one in ([parent] if each else self.fields(parent.node.selection_set, parent[1]))
            if each or one.node.name.value == step
        ]
        for node in nodes:
            name = step if each else _key(node.node)
            ends = self._paths([node], rest) if rest else [((), node.conditions)]
            yield from (((name, *path), conditions) for path, conditions in ends)


def _conditions(node: Any) -> frozenset[str]:
    """On what it depends whether a field, or what a fragment holds, is in the answer."""
    directives = [one for one in node.directives or () if one.name.value in _CONDITIONAL]
    type_condition = getattr(node, "type_condition", None)
    if not directives and type_condition is None:
        return frozenset()
    from graphql import print_ast

    named = [] if type_condition is None else [type_condition.name.value]
    return frozenset([*named, *map(print_ast, directives)])


def _missing(outer: Iterable[frozenset[str]], needed: Iterable[frozenset[str]]) -> bool:
    """Whether something may be in an answer without any that has fewer conditions."""
    return any(not any(one <= each for one in outer) for each in needed)


def _key(node: Any) -> str:
    return str((node.alias or node.name).value)
