"""Walks over arguments and variables of GraphQL, for values that no rule reads."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from graphql import DocumentNode


def with_arguments(document: "DocumentNode") -> Iterator[Any]:
    """Each field and each directive of a document."""
    waiting: list[Any] = [*document.definitions]
    while waiting:
        node = waiting.pop()
        if node.kind == "field":
            yield node
        yield from getattr(node, "directives", None) or ()
        waiting += getattr(node, "variable_definitions", None) or ()
        selection = getattr(node, "selection_set", None)
        waiting += selection.selections if selection is not None else ()


def says_twice(document: "DocumentNode") -> bool:
    """Whether a field or directive has an argument twice, an operation a variable, or an object a
    member: servers that do not validate take the first one, or the last.
    """
    waiting: list[Any] = [one.arguments or () for one in with_arguments(document)]
    for one in document.definitions:
        variables = getattr(one, "variable_definitions", None) or ()
        waiting.append(variables)
        waiting += [[each.default_value] for each in variables if each.default_value is not None]
    while waiting:
        nodes = waiting.pop()
        names = [name for node in nodes if (name := _called(node)) is not None]
        if len(set(names)) < len(names):
            return True
        for node in nodes:
            value = getattr(node, "value", node)
            waiting += filter(None, (getattr(value, name, ()) for name in ("fields", "values")))
    return False


def _called(node: Any) -> str | None:
    """The name of an argument, a member or a declared variable; ``None``: a value in a list."""
    if node.kind in ("argument", "object_field"):
        return str(node.name.value)
    return str(node.variable.name.value) if node.kind == "variable_definition" else None


def unread_name(
    value: Any, ways: list[tuple[str, ...]], called: str, is_protected: Callable[[str], bool]
) -> str:
    """The name of a member called like a field in which something stands to which no way leads;
    empty if there is none. ``called``: that of one that the value is in.

    A text where a way goes on may hold anything: servers read JSON in it.
    """
    if () in ways:
        return ""
    if isinstance(value, dict):
        inner_names = (
            unread_name(
                inner,
                [way[1:] for way in ways if way[0] == name],
                name if is_protected(name) else called,
                is_protected,
            )
            for name, inner in value.items()
        )
        return next(filter(None, inner_names), "")
    if isinstance(value, list):
        names = (
            unread_name(one, [] if isinstance(one, dict) else ways, called, is_protected)
            for one in value
        )
        return next(filter(None, names), "")
    if value in (None, "", True, False):
        return ""
    return called or (ways[0][0] if ways else "")


def unread_texts(
    value: Any, ways: list[tuple[str, ...]], at: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """The texts and numbers of a value to which no way leads, each with its place."""
    if () in ways:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            rest = [way[1:] for way in ways if way[0] == name]
            yield from unread_texts(inner, rest, (*at, name))
    elif isinstance(value, list):
        for one in value:
            yield from unread_texts(one, [], at)
    elif value not in (None, "", True, False):
        yield at, str(value)


def variables_in(node: Any) -> Iterator[str]:
    """The names of the variables in a value of a document."""
    if node.kind == "variable":
        yield node.name.value
    elif node.kind == "list_value":
        for one in node.values:
            yield from variables_in(one)
    elif node.kind == "object_value":
        for field in node.fields:
            yield from variables_in(field.value)


def names_any(raw: bytes, is_protected: Any) -> bool:
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
