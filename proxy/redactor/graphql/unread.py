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


def unread_name(
    value: Any, ways: list[tuple[str, ...]], called: str, is_protected: Callable[[str], bool]
) -> str:
    """The name of a member called like a field in which something stands to which no way leads;
    empty if there is none. ``called``: that of one that the value is in.
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
        return next(filter(None, (unread_name(one, [], called, is_protected) for one in value)), "")
    return "" if value in (None, "", True, False) else called


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
