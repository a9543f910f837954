"""The face of a room: the modules that other rooms import; their number only falls."""

import ast
from collections import defaultdict

import pytest

from tests.support.tree import PACKAGE, parsed, python_files, relative

#: Room → how many of its modules others import at most.
MOST = {"audit": 4}


def modules() -> set[str]:
    """Every module of the program, by its dotted name."""
    return {
        relative(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for path in python_files("proxy")
    }


def faces() -> dict[str, set[str]]:
    """Room → its modules that are imported from outside it."""
    known, found = modules(), defaultdict[str, set[str]](set)
    for path in python_files("proxy"):
        room = path.relative_to(PACKAGE).parts[0]
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            for name in (f"{node.module}.{alias.name}" for alias in node.names):
                module = name if name in known else node.module
                parts = module.split(".")
                if parts[0] == "proxy" and len(parts) > 2 and parts[1] != room:
                    found[parts[1]].add(module)
    return found


FACES = faces()


@pytest.mark.parametrize(("room", "most"), MOST.items())
def test_other_rooms_import_no_more_modules_of_a_room_than_its_face_has(room, most):
    assert len(FACES[room]) == most, f"lower MOST, or import less: {sorted(FACES[room])}"
