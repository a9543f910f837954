"""Words that are no names: they tell a history (``found``, ``kept``), not what a thing is."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache

from tests.support.tree import PACKAGE, parsed, python_files

#: A function, class, parameter, variable or attribute is named for what it is.
NO_NAMES = frozenset(
    "found place kept known held told made shown plain given seen asked beside anew around".split()
)

#: Names that users write: fields of settings objects are named as the settings are.
SETTINGS = {("config", "held"), ("model", "plain")}


def _names(tree: ast.AST) -> Iterator[str]:
    """Every name that a module gives."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.alias(asname=str(name)):
                yield name


@cache
def _counted() -> Counter[str]:
    """How many names of the list each room has."""
    rooms: Counter[str] = Counter()
    for path in python_files("proxy"):
        room = path.relative_to(PACKAGE).parts[0]
        rooms[room] += sum(
            name.strip("_").lower() in NO_NAMES and (room, name) not in SETTINGS
            for name in _names(parsed(path))
        )
    return +rooms


def test_names_say_what_things_are() -> None:
    assert _counted() == {}
