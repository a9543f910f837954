"""The values of a GraphQL request: its variables, and what stands inline in its document, as a
small JSON document with the place of each.
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from proxy.errors import Code, VaultError
from proxy.model.schema import Path
from proxy.redactor import form
from proxy.redactor.json.tree import read_json_value
from proxy.redactor.json.walk import locate
from proxy.redactor.redact import MOST_QUERY, query_span
from proxy.redactor.restore import splice
from proxy.redactor.rules import GraphField

if TYPE_CHECKING:
    from graphql import DocumentNode

#: Parsed documents that are kept, characters and tokens of one.
PARSED: Final = 256
_LONGEST: Final = 64 * 1024
_MOST_TOKENS: Final = 10_000

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_CHARACTER: Final = re.compile(
    rb"\\u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\."
    rb"|[\x00-\x7f]|[\xc0-\xff][\x80-\xbf]*"
)


#: Parameters of a request in an address; the first and the third are texts, the others JSON.
_PARAMETERS: Final = ("query", "variables", "operationName", "extensions")


def body_of_address(target: bytes, unclear: Any) -> tuple[bytes, tuple[str, ...]]:
    """The body that says what the query of an address says, and the names of other parameters.

    Raises ``VaultError`` for what applications may read in several ways.
    """
    parts: dict[str, bytes] = {}
    others: list[str] = []
    start, end = query_span(target)
    query = target[start:end]
    if b"#" in target:
        raise unclear("stands in an address with a '#'", Code.BAD_REQUEST)
    for member in form.form_members(query, MOST_QUERY, _PARAMETERS):
        if member.name not in _PARAMETERS:
            others.append(member.name)
            continue
        text = form.read_form_value(query[member.start : member.end])
        if member.name in parts:
            raise unclear(f"has {member.name} twice", Code.BAD_REQUEST)
        if member.name in _PARAMETERS[::2]:
            parts[member.name] = json.dumps(text).encode()
        elif text:
            parts[member.name] = text.encode()
            if not _is_json(parts[member.name]):
                raise unclear(f"has {member.name} that are no JSON", Code.BAD_REQUEST)
    members = [b'"%b":%b' % (name.encode(), raw) for name, raw in parts.items()]
    return b"{" + b",".join(members) + b"}", tuple(others)


def address_with(target: bytes, before: bytes, after: bytes) -> bytes:
    """The address in which the parts of its body that changed stand as they are now."""
    old, new = _MEMBERS.decode(before), _MEMBERS.decode(after)
    start, end = query_span(target)
    changes = []
    for member in form.form_members(target[start:end], MOST_QUERY):
        raw = bytes(new.get(member.name, b""))
        if raw != bytes(old.get(member.name, b"")):
            text = json.loads(raw) if member.name in _PARAMETERS[::2] else raw.decode()
            span = start + member.start, start + member.end
            changes.append((*span, form.write_form_value(text)))
    return splice(target, changes)


def _is_json(raw: bytes) -> bool:
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


class ValueOrigin(NamedTuple):
    """Origin of a part of a small document: JSON in the body, or inline in the query."""

    path: Path
    start: int
    end: int
    inline: bool


@lru_cache(maxsize=PARSED)
def parse_document(text: str) -> "DocumentNode":
    """The parsed document. Raises ``VaultError``: TOO_LARGE, BAD_REQUEST."""
    from graphql import GraphQLError, parse

    if len(text) > _LONGEST:
        raise VaultError(
            Code.TOO_LARGE, f"A GraphQL document is longer than {_LONGEST} characters."
        )
    try:
        return parse(text, max_tokens=_MOST_TOKENS)
    except (GraphQLError, RecursionError):
        pass  # the error holds the text; it must not become the context of ours
    raise VaultError(Code.BAD_REQUEST, "The GraphQL document breaks the grammar, or is too long.")


class GraphValues:
    """The values of one request: its variables, and what stands inline in its document."""

    def __init__(
        self,
        body: bytes,
        variables: tuple[int, int] | None,
        query: tuple[int, int] | None,
        text: str,
        unclear: Any,
    ) -> None:
        self._body = body
        self._unclear = unclear
        self._query = query
        self._text = text
        self._bounds: list[int] | None = None
        self._variables: dict[str, tuple[int, int]] = {}
        self._defaults: dict[str, Any] = {}
        self._used: set[str] = set()
        self._nodes: set[int] = set()
        if variables is not None and body[variables[0]] == 0x7B:
            start, end = variables
            raw = body[start:end]
            for name in _MEMBERS.decode(raw):
                spans = locate((name,), raw, 1000)
                if len(spans) != 1:
                    raise unclear("has a variable twice", Code.AMBIGUOUS_JSON)
                self._variables[name] = (start + spans[0][0], start + spans[0][1])
        elif variables is not None and body[variables[0]] != 0x6E:
            raise unclear("has variables that are no object", Code.BAD_REQUEST)

    def declare(self, operation: Any) -> None:
        """The variables of an operation, with their defaults."""
        self._defaults = {
            one.variable.name.value: one.default_value
            for one in (operation.variable_definitions or ())
        }

    def document(self, field: GraphField, node: Any) -> tuple[bytes, tuple[ValueOrigin, ...]]:
        """The small document of a field: ``object``, ``id``, ``arguments`` as its rule has them."""
        origins: list[ValueOrigin] = []
        parts: list[bytes] = []
        reached: list[tuple[str, ...]] = []
        for member, way in (("object", field.object), ("id", field.key)):
            value = self._argument(node, way, (member,), origins) if way else None
            if value is not None:
                parts.append(b'"%s":%s' % (member.encode(), value))
                reached.append(way)
        searched: list[bytes] = []
        for way, name in field.arguments.items():
            values = self._each(node, way, len(searched), name, origins)
            searched += [b'{"%s":%s}' % (name.encode(), value) for value in values]
            reached.append(way)
        if searched:
            parts.append(b'"arguments":[%s]' % b",".join(searched))
        self._nodes.update(id(one) for one in (node.arguments or ()) if (one.name.value,) in
                           [way[:1] for way in reached])  # fmt: skip
        return b"{" + b",".join(parts) + b"}", tuple(origins)

    def check_rest(self, is_protected: Callable[[str], bool]) -> None:
        """Raise where an argument or a variable that no rule reads is called like a field."""
        for name in self._variables.keys() - self._used:
            start, end = self._variables[name]
            if is_protected(name) or _names_any(self._body[start:end], is_protected):
                raise self._unclear("has a variable, called like a field, that no rule reads")
        for node in _field_nodes(parse_document(self._text)):
            for argument in node.arguments or ():
                if id(argument) in self._nodes:
                    continue
                names = {argument.name.value, *_inner_names(argument.value)}
                empty = argument.value.kind in ("null_value", "boolean_value")
                if any(map(is_protected, names)) and not empty:
                    raise self._unclear("has an argument, called like a field, that no rule reads")

    def _argument(
        self, node: Any, way: tuple[str, ...], path: Path, origins: list[ValueOrigin]
    ) -> bytes | None:
        for argument in node.arguments or ():
            if argument.name.value == way[0]:
                return self._at(argument.value, way[1:], path, origins)
        return None

    def _at(
        self, node: Any, way: tuple[str, ...], path: Path, origins: list[ValueOrigin]
    ) -> bytes | None:
        """The value at a way below a value."""
        if not way:
            return self._value(node, path, origins)
        if node.kind == "object_value":
            for field in node.fields:
                if field.name.value == way[0]:
                    return self._at(field.value, way[1:], path, origins)
            return None
        if node.kind != "variable":
            return None
        span = self._variable(node)
        if span is None:
            default = self._defaults.get(node.name.value)
            return self._at(default, way, path, origins) if default is not None else None
        spans = locate(way, self._body[span[0] : span[1]], 1000)
        if len(spans) > 1:
            raise self._unclear("has a member twice", Code.AMBIGUOUS_JSON)
        if not spans:
            return None
        start, end = span[0] + spans[0][0], span[0] + spans[0][1]
        origins.append(ValueOrigin(path, start, end, inline=False))
        return self._body[start:end]

    def _each(
        self, node: Any, way: tuple[str, ...], first: int, name: str, origins: list[ValueOrigin]
    ) -> list[bytes]:
        """The values of an argument that is searched by: one, or those of a list."""
        mine: list[ValueOrigin] = []
        value = self._argument(node, way, (), mine)
        if value is None:
            return []
        listed = value[:1] == b"["
        raws = [bytes(raw) for raw in _ELEMENTS.decode(value)] if listed else [value]
        for number in range(len(raws)):
            path: Path = ("arguments", first + number, name)
            for origin in mine:
                if not listed or origin.path == (number,):
                    origins.append(origin._replace(path=path))
                elif origin.path == () and not origin.inline:
                    (span,) = locate((number,), self._body[origin.start : origin.end], 1000)
                    start, end = origin.start + span[0], origin.start + span[1]
                    origins.append(ValueOrigin(path, start, end, inline=False))
        return raws

    def _variable(self, node: Any) -> tuple[int, int] | None:
        name = node.name.value
        self._used.add(name)
        span = self._variables.get(name)
        default = self._defaults.get(name)
        if span is not None and default is not None and default.kind != "null_value":
            raise self._unclear("has a default for a variable that has a value: leave it out")
        return span

    def _value(self, node: Any, path: Path, origins: list[ValueOrigin]) -> bytes | None:
        """A value of the document as JSON."""
        if node.kind == "variable":
            span = self._variable(node)
            if span is not None:
                origins.append(ValueOrigin(path, *span, inline=False))
                return self._body[span[0] : span[1]]
            default = self._defaults.get(node.name.value)
            return self._value(default, path, origins) if default is not None else None
        if node.kind == "list_value":
            values = [self._value(one, (*path, number), origins) or b"null"
                      for number, one in enumerate(node.values)]  # fmt: skip
            return b"[" + b",".join(values) + b"]"
        if node.kind == "object_value":
            members = []
            for field in node.fields:
                value = self._value(field.value, (*path, field.name.value), origins)
                if value is not None:
                    members.append(b'"%s":%s' % (field.name.value.encode(), value))
            return b"{" + b",".join(members) + b"}"
        if node.kind == "null_value":
            return b"null"
        origins.append(ValueOrigin(path, *self._span(node), inline=True))
        if node.kind == "boolean_value":
            return b"true" if node.value else b"false"
        if node.kind in ("int_value", "float_value"):
            return bytes(node.value, "ascii")
        return json.dumps(node.value, ensure_ascii=False).encode()

    def _span(self, node: Any) -> tuple[int, int]:
        """Return the span of a document's value in the body."""
        if self._query is None:
            raise self._unclear("has a value in its stored document: send it as a variable")
        if self._bounds is None:
            start, end = self._query
            raw = self._body[start + 1 : end - 1]
            self._bounds = [start + 1 + one.start() for one in _CHARACTER.finditer(raw)]
            self._bounds.append(end - 1)
        if len(self._bounds) != len(self._text) + 1:
            raise self._unclear("is spelled in a way that cannot be followed")
        return self._bounds[node.loc.start], self._bounds[node.loc.end]


def _field_nodes(document: "DocumentNode") -> Iterator[Any]:
    waiting: list[Any] = [getattr(one, "selection_set", None) for one in document.definitions]
    while waiting:
        selection = waiting.pop()
        for node in selection.selections if selection is not None else ():
            if node.kind == "field":
                yield node
            waiting.append(getattr(node, "selection_set", None))


def _inner_names(value: Any) -> Iterator[str]:
    for field in getattr(value, "fields", None) or ():
        yield field.name.value
        yield from _inner_names(field.value)
    for one in getattr(value, "values", None) or ():
        yield from _inner_names(one)


def _names_any(raw: bytes, is_protected: Any) -> bool:
    """Whether some member of a JSON value, at any depth, has a protected name."""
    waiting = [msgspec.json.decode(raw)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if any(map(is_protected, value)):
                return True
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    return False


def edits(
    body: bytes, origins: tuple[ValueOrigin, ...], redacted: bytes
) -> Iterator[tuple[int, int, bytes]]:
    """The edits of a request that put what became of its small document into its places."""
    for path in _differences(msgspec.json.decode(body), msgspec.json.decode(redacted), ()):
        ((first, last),) = locate(path, redacted, 1000)
        raw = redacted[first:last]
        origin = max(
            (one for one in origins if path[: len(one.path)] == one.path),
            key=lambda one: len(one.path),
            default=None,
        )
        if origin is None:
            raise VaultError(Code.VALUE_UNFIT, "A protected value of the GraphQL operation is "
                             "written in parts: send it as a variable.")  # fmt: skip
        yield _edit(origin, path, raw, body)


def _edit(origin: ValueOrigin, path: Path, raw: bytes, body: bytes) -> tuple[int, int, bytes]:
    rest = path[len(origin.path) :]
    if origin.inline:
        value = read_json_value(raw)
        text = raw.decode()
        if value is not None and not value.json:
            text = json.dumps(value.text, ensure_ascii=False)  # a string of GraphQL, too
        return origin.start, origin.end, json.dumps(text, ensure_ascii=False)[1:-1].encode()
    start, end = origin.start, origin.end
    if rest:
        (outer,) = locate(origin.path, body, 1000)
        (inner,) = locate(path, body, 1000)
        start, end = origin.start + inner[0] - outer[0], origin.start + inner[1] - outer[0]
    return start, end, raw


def _differences(before: Any, after: Any, path: Path) -> Iterator[Path]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before:
            yield from _differences(before[name], after[name], (*path, name))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, pair in enumerate(zip(before, after, strict=True)):
            yield from _differences(*pair, (*path, number))
    elif before != after or isinstance(before, bool) is not isinstance(after, bool):
        yield path
