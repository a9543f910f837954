"""What other rooms import of a room is its face: few modules, counted, named in the room's note, and
only fewer."""

import ast
import re
from functools import cache

from tests.support.table import table
from tests.support.tree import PACKAGE, nodes, parsed, python_files

#: By room, how many of its modules others import (a folder counts once for each module). Only falls.
FACES = {
    "admin": 2,
    "api": 9,
    "audit": 3,
    "auth": 11,
    "bootstrap": 14,
    "cli": 1,
    "config": 7,
    "crypto": 13,
    "demo": 3,
    "edge": 6,
    "functions": 2,
    "gateway": 4,
    "model": 7,
    "net": 25,
    "objectstore": 5,
    "redactor": 27,  # the two ends of an exchange over processes
    "storage": 10,
    "telemetry": 4,
    "tokenization": 7,
    "vault": 12,
}


@cache
def imported() -> dict[str, set[str]]:
    """By room, the modules of it that files outside it import."""
    modules: dict[str, set[str]] = {room: set() for room in FACES}
    for path in python_files("proxy"):
        own = path.relative_to(PACKAGE).parts[0]
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("proxy."):
                room = (node.module or "").split(".")[1]
                if room != own and room in modules:
                    modules[room] |= {_module(node.module or "", item.name) for item in node.names}
    return modules


def _module(module: str, name: str) -> str:
    """The module that an import names: a submodule, or the one that has the name."""
    inner = PACKAGE.parent / f"{module}.{name}".replace(".", "/")
    return f"{module}.{name}" if inner.with_suffix(".py").exists() or inner.is_dir() else module


@table("room", FACES)
def test_the_face_of_a_room_stays_narrow(room: str) -> None:
    assert 0 < len(found := imported()[room]) <= FACES[room], sorted(found)


def test_every_room_has_a_counted_face() -> None:
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms == set(FACES)


@table("room", FACES)
def test_the_note_of_a_room_names_its_face(room: str) -> None:
    """At most ten lines, the last of which name modules that others do import."""
    note = ast.get_docstring(parsed(PACKAGE / room / "__init__.py")) or ""
    assert len(note.splitlines()) <= 10
    face = re.search(r"[Ff]ace:(.*)", note, re.DOTALL)
    assert face is not None
    used = {module.removeprefix(f"proxy.{room}").lstrip(".") for module in imported()[room]}
    used |= {module.split(".")[0] for module in used}
    named = set(re.findall(r"``([a-z0-9_.]+)``", face[1]))
    modules = {name for name in named if _is_module(room, name)}
    assert modules <= used, sorted(modules - used)
    assert modules or "what stands here" in face[1]


def _is_module(room: str, name: str) -> bool:
    inner = PACKAGE / room / name.replace(".", "/")
    return inner.with_suffix(".py").exists() or inner.is_dir()
