"""YAML files that declare things by name, such as schemas and policies.

YAML is read without its traps: ``no`` is a text, a key that stands twice is a fault, and so are
tags.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import yaml

from proxy.config.document import not_yaml
from proxy.errors import Code, Detail, VaultError
from proxy.model import read_definition, read_policy
from proxy.model.policy import AccessPolicy
from proxy.model.schema import Schema
from proxy.model.values import step
from proxy.telemetry.reloads import read_settled

#: A declaration is a page of text; a larger file is a mistake.
_LARGEST: Final = 1024 * 1024
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})", re.ASCII)
_POINTED: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})\.[0-9]{1,18}", re.ASCII)
_WORDS: Final[Mapping[str, bool | None]] = {"true": True, "false": False, "null": None}
_TAGS: Final = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")

_Declared = TypeVar("_Declared")


class DeclarationKind(NamedTuple, Generic[_Declared]):
    """A kind of declaration: noun, requirement, error code and parser (name, body).

    The parser raises ``VaultError`` with details.
    """

    noun: str
    needs: str
    code: Code
    read: Callable[[str, Any], _Declared]


class Declarations(NamedTuple, Generic[_Declared]):
    """Declarations of files; ``position`` gives ``file:line:column`` by name and JSON Pointer."""

    declared: tuple[_Declared, ...]
    position: Callable[[str, str], str]


def read_files(kind: DeclarationKind[_Declared], paths: Sequence[Path]) -> Declarations[_Declared]:
    """The declarations of files, and of the files ``*.yaml`` and ``*.yml`` in folders, in the order
    of their names.

    Raises ``VaultError`` with the code of the kind and every fault of all files.
    """
    reading = _Reading(kind)
    for path in paths:
        files = read_settled(path, _contents)
        if files is None:
            text = f"changes while it is read: load the {plural(kind.noun)} once they are settled"
            reading.faults.append(Detail(str(path), text))
        for file, content in files or ():
            reading.file(file, content)
    if reading.faults:
        text = f"The files with {plural(kind.noun)} have faults: fix what is listed."
        raise VaultError(kind.code, text, tuple(reading.faults))
    return Declarations(tuple(reading.declared.values()), reading.position)


def plural(noun: str) -> str:
    """``policy`` → ``policies``."""
    return noun.removesuffix("y") + "ies" if noun.endswith("y") else noun + "s"


def _contents(path: Path) -> list[tuple[str, bytes | str]]:
    """Names of files, and what stands in each, or its fault."""
    try:
        if path.is_dir():
            every = (one for one in path.iterdir() if one.suffix in (".yaml", ".yml"))
            return [(str(file), _content(file)) for file in sorted(every) if not file.is_dir()]
    except OSError as error:
        return [(str(path), _unreadable(error))]
    if not path.exists():
        return [(str(path), "there is no such file or folder")]
    return [(str(path), _content(path))]


def _content(file: Path) -> bytes | str:
    try:
        return file.read_bytes()
    except OSError as error:
        return _unreadable(error)


def _unreadable(error: OSError) -> str:
    return f"cannot be read ({error.strerror}): let this user read it"


class _Reading(Generic[_Declared]):
    """All files; ``places`` has, by name, where each part of a declaration stands."""

    def __init__(self, kind: DeclarationKind[_Declared]) -> None:
        self.kind = kind
        self.declared: dict[str, _Declared] = {}
        self.faults: list[Detail] = []
        self.places: dict[str, dict[str, str]] = {}

    def position(self, name: str, pointer: str) -> str:
        """Return the position of a part, or of the nearest enclosing one that has a position."""
        places = self.places[name]
        while pointer not in places and pointer:
            pointer = pointer.rpartition("/")[0]
        return places.get(pointer, name)

    def file(self, file: str, content: bytes | str) -> None:
        if isinstance(content, str):
            self.faults.append(Detail(file, content))
            return
        if len(content) > _LARGEST:
            text = f"larger than 1 MiB: is this a file with {plural(self.kind.noun)}?"
            self.faults.append(Detail(file, text))
            return
        try:
            for node in yaml.compose_all(content.decode("utf-8-sig"), Loader=yaml.BaseLoader):
                self.document(file, node)
        except UnicodeDecodeError:
            self.faults.append(Detail(file, "not UTF-8: save the file in that encoding"))
        except yaml.MarkedYAMLError as error:
            self.faults.append(Detail(_at(file, error.problem_mark), not_yaml(error)))
        except (yaml.YAMLError, RecursionError):
            self.faults.append(
                Detail(
                    file, "not YAML: a control character stands in it, or it is nested too deeply"
                )
            )

    def document(self, file: str, node: yaml.Node | None) -> None:
        if node is None:
            return  # nothing but comments
        places: dict[str, str] = {}
        before = len(self.faults)
        raw = self.value(file, node, "", places)
        if len(self.faults) > before:
            return
        if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
            self.faults.append(Detail(places[""], f"a {self.kind.noun} needs {self.kind.needs}"))
            return
        name = raw.pop("name")
        if name in self.declared:
            self.faults.append(
                Detail(
                    places["/name"],
                    f"a {self.kind.noun} of this name stands above already: remove one",
                )
            )
            return
        self.places[name] = {**places, "name": places["/name"]}
        try:
            self.declared[name] = self.kind.read(name, raw)
        except VaultError as error:
            self.faults.extend(
                Detail(self.position(name, detail.source), detail.text) for detail in error.details
            )

    def value(self, file: str, node: yaml.Node, pointer: str, places: dict[str, str]) -> Any:
        """A node as JSON would have it."""
        places[pointer] = _at(file, node.start_mark)
        if node.tag not in _TAGS:
            self.faults.append(Detail(places[pointer], "tags are not understood here"))
            return None
        if isinstance(node, yaml.MappingNode):
            return self.mapping(file, node, pointer, places)
        if isinstance(node, yaml.SequenceNode):
            return [
                self.value(file, item, f"{pointer}/{index}", places)
                for index, item in enumerate(node.value)
            ]
        text: str = node.value
        if getattr(node, "style", None) is not None:  # quoted, or a block of text
            return text
        if _POINTED.fullmatch(text):
            return Decimal(text)
        return int(text) if _WHOLE.fullmatch(text) else _WORDS.get(text, text)

    def mapping(
        self, file: str, node: yaml.MappingNode, pointer: str, places: dict[str, str]
    ) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.faults.append(
                    Detail(_at(file, key.start_mark), "a name is needed before the colon")
                )
            elif key.value in members:
                self.faults.append(
                    Detail(_at(file, key.start_mark), f"{key.value} stands twice: remove one")
                )
            else:
                at = pointer + step(key.value)
                members[key.value] = self.value(file, value, at, places)
                places[at] = _at(file, key.start_mark)
        return members


def _at(file: str, mark: yaml.Mark | None) -> str:
    return file if mark is None else f"{file}:{mark.line + 1}:{mark.column + 1}"


# Access policies as YAML files. The body of each is that of ``/api/policies`` (``model.policy``),
# with its ``name``.

_POLICY_FILES: Final = DeclarationKind(
    "policy", "`name:`, `schema:` and `actions:`", Code.INVALID_POLICY, read_policy
)


def read_policies(paths: Sequence[Path]) -> Declarations[AccessPolicy]:
    """The policies of files.

    Raises ``VaultError(INVALID_POLICY)`` with every fault of all files.
    """
    return read_files(_POLICY_FILES, paths)


# Schemas as YAML files: ``name`` and ``fields`` of each. The definition itself is that of
# ``/api/schemas`` (``model.schema_document``).

_SCHEMA_FILES: Final = DeclarationKind(
    "schema", "`name:` and `fields:`", Code.INVALID_SCHEMA, read_definition
)


def read_schemas(paths: Sequence[Path]) -> Declarations[Schema]:
    """The schemas of files. Raises ``VaultError(INVALID_SCHEMA)`` with every fault of all files."""
    return read_files(_SCHEMA_FILES, paths)
