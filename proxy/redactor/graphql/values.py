"""The values of a GraphQL request as a small JSON document, with the position of each.

They are its variables, and the inline values of its document.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from proxy.errors import Code, VaultError
from proxy.model.schema import Path
from proxy.redactor.graphql.unread import (
    names_any,
    unread_name,
    unread_texts,
    variables_in,
    with_arguments,
)
from proxy.redactor.json.tree import read_json_value
from proxy.redactor.json.walk import locate
from proxy.redactor.rules import GraphField, Verb
from proxy.redactor.search.sought import refuse_named

if TYPE_CHECKING:
    from graphql import DocumentNode

#: Parsed documents that are kept, characters and tokens of one.
PARSED: Final = 256
_LONGEST: Final = 64 * 1024
_MOST_TOKENS: Final = 10_000

_JSON = msgspec.json.Decoder()
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_CHARACTER: Final = re.compile(
    rb"\\u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\."
    rb"|[\x00-\x7f]|[\xc0-\xff][\x80-\xbf]*"
)


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


def chosen_operation(document: "DocumentNode", name: str, unclear: Any) -> Any:
    """The operation of a document that is executed. Raises what ``unclear`` makes of a text."""
    operations: list[Any] = [
        one for one in document.definitions if one.kind == "operation_definition"
    ]
    fitting = [one for one in operations if not name or (one.name and one.name.value == name)]
    if len(fitting) != 1:
        raise unclear("cannot be told: name one of its document's")
    if len(operations) > 1 and any(_inline(one) for one in operations if one is not fitting[0]):
        raise unclear("stands beside others with values of their own: send it alone")
    return fitting[0]


def _inline(operation: Any) -> bool:
    from graphql import print_ast

    return '"' in print_ast(operation)


class GraphValues:
    """The values of one request: its variables, and the inline values of its document."""

    def __init__(
        self,
        body: bytes,
        variables: tuple[int, int] | None,
        query: tuple[int, int] | None,
        parsed: tuple[str, "DocumentNode"],
        unclear: Any,
    ) -> None:
        """``variables``, ``query``: their spans in the body; ``parsed``: the text and its tree."""
        self._body = body
        self._unclear = unclear
        self._query = query
        self._text, self._document = parsed
        self._bounds: list[int] | None = None
        self._variables: dict[str, tuple[int, int]] = {}
        self._defaults: dict[str, Any] = {}
        self._used: set[str] = set()
        self._whole: set[str] = set()  #: variables that a rule reads to their last member
        #: by identity of an argument: what of it a rule reads
        self._ways: dict[int, list[tuple[str, ...]]] = {}
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
        self._defaults = {
            one.variable.name.value: one.default_value
            for one in (operation.variable_definitions or ())
        }

    def document(self, field: GraphField, node: Any) -> tuple[bytes, tuple[ValueOrigin, ...]]:
        """The small document of a field: ``object``, ``id``, ``arguments`` as its rule has them."""
        origins: list[ValueOrigin] = []
        parts: list[bytes] = []
        for member, way in (("object", field.object), ("id", field.key)):
            value = self._argument(node, way, (member,), origins) if way else None
            if value is not None:
                parts.append(b'"%s":%s' % (member.encode(), value))
        flat = field.operation.verb in (Verb.CREATE, Verb.UPDATE)
        parts += self._flat(field, node, origins) if flat else ()
        searched: list[bytes] = []
        for way, name in field.arguments.items() if not flat else ():
            values = self._each(node, way, len(searched), name, origins)
            searched += [b'{"%s":%s}' % (name.encode(), value) for value in values]
        if searched:
            parts.append(b'"arguments":[%s]' % b",".join(searched))
        ways = [field.object, field.key, *field.arguments, *field.refused]
        for argument in node.arguments or ():
            name = argument.name.value
            self._ways[id(argument)] = [way[1:] for way in ways if way[:1] == (name,)]
            for way, parameter in field.refused.items():
                if way[0] == name:
                    refuse_named(parameter, _text_at(self._read(argument.value), way[1:]))
        return b"{" + b",".join(parts) + b"}", tuple(origins)

    def _flat(self, field: GraphField, node: Any, origins: list[ValueOrigin]) -> list[bytes]:
        """The member ``object`` of a field whose arguments are the values themselves."""
        members = [
            b'"%s":%s' % (name.encode(), value)
            for way, name in field.arguments.items()
            if (value := self._argument(node, way, ("object", name), origins)) is not None
        ]
        return [b'"object":{%s}' % b",".join(members)] if members else []

    def check_rest(self, is_protected: Callable[[str], bool], passed: Collection[int] = ()) -> None:
        """Raise where an argument or a variable that no rule reads is called like a field.

        ``passed``: identities of arguments that hold nobody's data.
        """
        arguments = [*self._arguments()]
        for _, argument in arguments:
            if id(argument) in passed:
                self._used.update(variables_in(argument.value))
        for name in self._variables.keys() - self._used:
            start, end = self._variables[name]
            if is_protected(name) or names_any(self._body[start:end], is_protected):
                raise self._unclear("has a variable, called like a field, that no rule reads")
        for name, default in self._defaults.items():
            called = name if is_protected(name) else ""
            unused = default is not None and name not in self._used
            if unused and unread_name(self._read(default), [], called, is_protected):
                raise self._unclear("has a default, called like a field, that no rule reads")
        for _, argument in arguments:
            if id(argument) in passed:
                continue
            ways, name = self._ways.get(id(argument), []), argument.name.value
            called = name if is_protected(name) else ""
            if () not in ways and (
                called := unread_name(self._read(argument.value), ways, called, is_protected)
            ):
                raise self._unclear(
                    f"has an argument '{called}', called like a field, that no rule reads"
                )

    def unread(self, passed: Collection[int]) -> Iterator[tuple[tuple[str, ...], str]]:
        """Each text of an argument to which no way of a rule leads."""
        for called, argument in self._arguments():
            ways = self._ways.get(id(argument), [])
            if id(argument) not in passed and () not in ways:
                at = (called, argument.name.value)
                yield from unread_texts(self._read(argument.value), ways, at)

    def _arguments(self) -> Iterator[tuple[str, Any]]:
        """Each argument of a field or a directive, with the name of that."""
        for node in with_arguments(self._document):
            yield from ((node.name.value, argument) for argument in node.arguments or ())

    def _read(self, node: Any) -> Any:
        """A value of the document with its variables filled in, but for those read whole."""
        if node.kind == "variable":
            span, default = (
                self._variables.get(node.name.value),
                self._defaults.get(node.name.value),
            )
            if node.name.value in self._whole or (span is None and default is None):
                return None
            if span is None:
                return self._read(default)
            value = _JSON.decode(self._body[slice(*span)])
            return value if default is None else [value, self._read(default)]  # both are sent on
        if node.kind == "list_value":
            return [self._read(one) for one in node.values]
        if node.kind == "object_value":
            return {field.name.value: self._read(field.value) for field in node.fields}
        return None if node.kind == "null_value" else node.value

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
            self._whole.add(node.name.value)
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


def _text_at(value: Any, way: tuple[str, ...]) -> str:
    for step in way:
        several = value if isinstance(value, list) else [value]
        inner = [one[step] for one in several if isinstance(one, dict) and step in one]
        value = inner[0] if len(inner) == 1 else inner
    empty = value in (None, "", {}) or (isinstance(value, list) and not any(value))
    return "" if empty else json.dumps(value, ensure_ascii=False)


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
