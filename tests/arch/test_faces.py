"""What other rooms import of a room is its face: few modules, counted, and only fewer."""

import ast

import pytest

from tests.support.tree import PACKAGE, parsed, python_files

#: By room, how many of its modules others import. Only falls.
FACES = {"vault": 12, "model": 7, "audit": 3}


def imported(room: str) -> set[str]:
    """The modules of the room that files outside it import."""
    modules: set[str] = set()
    for path in python_files("proxy"):
        if path.relative_to(PACKAGE).parts[0] == room:
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"proxy.{room}"):
                modules |= {_module(node.module or "", alias.name) for alias in node.names}
    return modules


def _module(module: str, name: str) -> str:
    """The module that an import names: a submodule, or the one that has the name."""
    inner = PACKAGE.parent / f"{module}.{name}".replace(".", "/")
    return f"{module}.{name}" if inner.with_suffix(".py").exists() or inner.is_dir() else module


@pytest.mark.parametrize("room", FACES)
def test_the_face_of_a_room_stays_narrow(room: str) -> None:
    assert 0 < len(found := imported(room)) <= FACES[room], sorted(found)
