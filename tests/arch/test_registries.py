"""Registries are literal dicts, complete, and each entry is held to its contract by a test that
runs over all of them.
"""

import ast
import importlib
import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from proxy import storage, tokenization
from proxy.cli import commands
from proxy.cli.command import Command
from proxy.redactor.words import RequestWords, ResponseWords
from tests.support.table import table
from tests.support.tree import PACKAGE, ROOT, nodes, parsed, python_files, relative

#: Room → the registry it is known for. Where the room is there, so must be the registry.
KNOWN: dict[str, str] = {
    "cli": "COMMANDS",
    "crypto": "SOURCES",
    "objectstore": "BACKENDS",
    "storage": "ENGINES",
    "tokenization": "SHAPES",
}


class Registry(NamedTuple):
    """A registry of the program: the module that holds it, and its name."""

    module: str
    name: str

    def entries(self) -> dict[str, Any]:
        entries: dict[str, Any] = getattr(importlib.import_module(self.module), self.name)
        return entries


#: Names of shapes that are words of something else too, so that they cannot be counted.
AMBIGUOUS = {*tokenization.FIELD_KINDS, "filename", "mask", "one", "plain", "template"}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def assigned(path: Path) -> dict[str, ast.expr | None]:
    """Every constant that a file assigns at its outermost level, with what is assigned."""
    found: dict[str, ast.expr | None] = {}
    for node in parsed(path).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(node, ast.Assign | ast.AnnAssign):
                found[target.id] = node.value
    return found


def places(room: str, name: str) -> list[Path]:
    """The files of a room that assign a constant of that name."""
    return [path for path in python_files(f"proxy/{room}") if name in assigned(path)]


ROOMS = [room for room in KNOWN if (PACKAGE / room / "__init__.py").exists()]
FOUND = [
    Registry(module_of(path), KNOWN[room]) for room in ROOMS for path in places(room, KNOWN[room])
]


@table("room", ROOMS)
def test_every_room_that_is_known_for_a_registry_has_it_once_as_a_literal_dict(room):
    (path,) = places(room, KNOWN[room])
    assert isinstance(assigned(path)[KNOWN[room]], ast.Dict), (
        f"{relative(path)}: write {KNOWN[room]} as a literal dict"
    )


@table("registry", FOUND)
def test_every_entry_has_a_name_that_can_stand_in_a_file(registry):
    names = list(registry.entries())
    assert names
    assert [name for name in names if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", name)] == []


@table("registry", FOUND)
def test_every_entry_comes_from_the_room_of_its_registry(registry):
    room = ".".join(registry.module.split(".")[:2])
    for name, entry in registry.entries().items():
        origin = getattr(entry, "run", None) or entry
        module = (
            entry
            if isinstance(entry, str)
            else getattr(origin, "__module__", None) or type(origin).__module__
        )
        # or is a reference of tests, which ``conftest`` adds
        assert module.startswith((room, "tests.support")), f"{name} is made in {module}"


@table("registry", FOUND)
def test_a_test_runs_over_every_entry(registry):
    folders = [path for path in python_files("tests") if "arch" not in path.parts]
    assert any(re.search(rf"\b{registry.name}\b", path.read_text("utf-8")) for path in folders)


@cache
def strings(path: Path) -> set[str]:
    """Every string of a file."""
    return {
        node.value
        for node in nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def naming(word: str, folder: Path = PACKAGE) -> list[str]:
    """The files that hold a string which is this word, or the scheme of an address with it."""
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if word in strings(path) or any(text.startswith(f"{word}:///") for text in strings(path))
    )


@table("name", sorted({*tokenization.SHAPES} - AMBIGUOUS))
def test_a_token_shape_is_named_by_its_file_and_the_registry_alone(name):
    files = naming(name)
    assert len(files) <= 3  # a word may mean something else in a file of the room
    assert all(file.startswith("tokenization/") for file in files)


@table("scheme", [name for name in storage.ENGINES if name != "memory"])
def test_an_engine_is_named_by_its_folder_and_the_registry_alone(scheme):
    # settings and the scratch folder of a rule test name the embedded engine, which is the default
    embedded = {"bootstrap/rules.py", "config/schema.py", "config/settings.py"}
    files = {*naming(scheme)} - (embedded if scheme == "sqlite" else set())
    assert files
    assert all(file.startswith("storage/") for file in files)


def test_the_count_sees_a_name_where_it_stands(tmp_path):
    (tmp_path / "one.py").write_text('LIST = ("opaque", "lower")\nURI = "sqlite:///a"\n')
    (tmp_path / "two.py").write_text('"""An opaque word."""\n')
    assert naming("opaque", tmp_path) == naming("sqlite", tmp_path) == ["one.py"]
    assert naming("email", tmp_path) == []


#: Keys that are words, with the files of the program that say something of each: the key as the
#: language has it, its field, its effect, and where it means nothing.
WORDS = [(kind, one.name) for kind in (RequestWords, ResponseWords) for one in fields(kind)]


@table("kind, word", WORDS)
def test_a_word_of_a_rule_touches_five_files_at_most(kind, word):
    holder = {RequestWords: "request", ResponseWords: "response"}[kind]
    files = {*saying(word, {holder, "rule", "answer"})}
    assert {"load/operation_keys.py", "words.py"} <= files
    assert len(files) <= 5


def saying(word: str, holders: set[str], folder: Path = PACKAGE / "redactor") -> list[str]:
    """The files that hold a key as a string, as a field, or as an attribute of a rule."""
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if any(_says(node, word, holders) for node in nodes(path))
    )


def _says(node: ast.AST, word: str, holders: set[str]) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="Key"), args=[ast.Constant(value=name), *_]):
            return name == word
        case (
            ast.Compare(left=ast.Constant(value=name))
            | ast.Subscript(slice=ast.Constant(value=name))
        ):
            return name == word
        case ast.Call(
            func=ast.Attribute(attr="key" | "value" | "position"),
            args=[ast.Constant(value=name), *_],
        ):
            return name == word
        case ast.ClassDef(name="RequestWords" | "ResponseWords"):
            return any(ast.unparse(one).startswith(f"{word}:") for one in node.body)
        case ast.Attribute(attr=name, value=ast.Name(id=holder) | ast.Attribute(attr=holder)):
            return name == word and holder in holders
    return False


def test_the_count_sees_a_word_where_it_stands(tmp_path):
    (tmp_path / "key.py").write_text('Key("scan", Flag())\n')
    (tmp_path / "field.py").write_text("class ResponseWords:\n    scan: bool = False\n")
    (tmp_path / "check.py").write_text('"scan" in section\n')
    (tmp_path / "effect.py").write_text("operation.response.scan\n")
    (tmp_path / "other.py").write_text('store.scan(table)\n"scan"\n')
    assert saying("scan", {"response"}, tmp_path) == ["check.py", "effect.py", "field.py", "key.py"]


def reached(commands: Mapping[str, Command]) -> set[str]:
    """The modules of all commands that can be called."""
    found = {command.run.__module__ for command in commands.values() if command.run is not None}
    return found.union(*(reached(command.children) for command in commands.values()))


def test_every_command_file_is_reached_from_the_registry():
    exporting = {
        module_of(path)
        for path in python_files("proxy/cli")
        if re.search(r"^[A-Z_]+: Final = Command\(", path.read_text("utf-8"), re.MULTILINE)
    }
    assert exporting == reached(commands())
