"""The forms that a value of a rule file may have: how each is read, and how the JSON Schema and the
manual name it.

The tables of ``rule_keys`` are made of these. Reading, schema and manual come from these objects,
so they cannot say different things. A value that does not fit is noted as a fault and read as
``None``, which the compiler leaves out.
"""

import os
import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from proxy.redactor.load.sources import resolve_references
from proxy.redactor.load.yaml_tree import (
    Items,
    Members,
    RuleFaults,
    Scalar,
    YamlNode,
    did_you_mean,
    nearest_word,
    plain_values,
)
from proxy.redactor.rules import Position

JsonSchema = dict[str, Any]

#: A pattern that fits every text.
_ANY: Final = r"(?s).+"


@dataclass(frozen=True, slots=True)
class Context:
    """Context of reading a file; without ``environ`` references are not read."""

    faults: RuleFaults
    folder: Path
    environ: Mapping[str, str] | None = field(default_factory=lambda: os.environ)


class Form(Protocol):
    """A kind of value."""

    @property
    def label(self) -> str:
        """Name in the manual, e.g. ``list of words``."""

    def read(self, node: YamlNode, context: Context) -> Any:
        """The value, or ``None`` after noting a fault."""

    def schema(self) -> JsonSchema:
        """The same in JSON Schema 2020-12."""


@dataclass(frozen=True, slots=True)
class PlacedValue:
    """A value with its place.

    ``key`` is the place of its key, or of the value where there is none.
    """

    value: Any
    at: Position
    key: Position


@dataclass(frozen=True, slots=True)
class Text:
    """A text that fits ``pattern``; ``hint`` says what to write; ``parse`` raises ValueError."""

    name: str
    hint: str
    pattern: str = _ANY
    parse: Callable[[str], Any] | None = None
    reference: bool = False  #: whether ``${env:X}`` and ``${file:path}`` may stand in it

    @property
    def label(self) -> str:
        return self.name

    def read(self, node: YamlNode, context: Context) -> Any:
        if not isinstance(node, Scalar) or node.value is None:
            return context.faults.add(node.at, f"this must be a text: {self.hint}")
        if not isinstance(node.value, str):
            text = f'this is read as {_kind(node)}; put it in quotes: "{node.text}"'
            return context.faults.add(node.at, text)
        text = node.value
        try:
            if "${" in text:
                text = self._resolved(node, context)
            if not re.fullmatch(self.pattern, text):
                raise ValueError(f"{_quoted(node)} does not fit here: {self.hint}")
            return self.parse(text) if self.parse else text
        except ValueError as error:
            return context.faults.add(node.at, f"{error}")

    def _resolved(self, node: Scalar, context: Context) -> str:
        if self.reference:
            return resolve_references(node.text, context.folder, context.environ)
        raise ValueError(
            "references (${env:…}, ${file:…}) are not allowed here; write the text itself"
        )

    def schema(self) -> JsonSchema:
        exact = {"type": "string", "description": self.hint}
        fits_all = self.reference or self.pattern == _ANY
        return exact if fits_all else exact | {"pattern": f"^(?:{self.pattern})$"}


@dataclass(frozen=True, slots=True)
class KeywordForm:
    """A choice of words."""

    choices: tuple[str, ...]
    title: str = ""  #: what to call it in the manual instead of all its words

    @property
    def label(self) -> str:
        return self.title or " | ".join(f"`{choice}`" for choice in self.choices)

    def read(self, node: YamlNode, context: Context) -> Any:
        text = node.text if isinstance(node, Scalar) else None
        if text in self.choices:
            return text
        near = nearest_word(text, self.choices) if text else None
        instead = f"did you mean '{near}'?" if near else f"write {_either(self.choices)}"
        return context.faults.add(node.at, f"{_quoted(node)} is not known here; {instead}")

    def schema(self) -> JsonSchema:
        return {"enum": list(self.choices)}


@dataclass(frozen=True, slots=True)
class ScalarForm:
    """A scalar that ``parse`` understands, which gives ``None`` for others; ``wanted`` in words."""

    label: str
    wanted: str
    parse: Callable[[Scalar], Any]
    described: JsonSchema

    def read(self, node: YamlNode, context: Context) -> Any:
        value = self.parse(node) if isinstance(node, Scalar) else None
        if value is None:
            context.faults.add(node.at, f"this must be {self.wanted}")
        return value

    def schema(self) -> JsonSchema:
        return self.described


def number_within(least: int, most: int) -> ScalarForm:
    """A whole number within bounds."""
    label = f"number from {least} to {most}"
    return ScalarForm(
        f"`{least}`" if least == most else label,
        f"{least}" if least == most else f"a whole {label}",
        lambda node: (
            node.value if type(node.value) is int and least <= node.value <= most else None
        ),
        {"type": "integer", "minimum": least, "maximum": most},
    )


#: The truth value ``true``; leaving the key out says the other thing.
FLAG: Final = ScalarForm(
    "`true`",
    "true; leave the key out where it is not",
    lambda node: node.value is True or None,
    {"const": True},
)


@dataclass(frozen=True, slots=True)
class Anything:
    """Any value, as entries of tests hold; read as plain dicts, lists and scalars."""

    label: str = "any value"

    def read(self, node: YamlNode, context: Context) -> Any:  # noqa: ARG002  # the signature of a form
        return plain_values(node)

    def schema(self) -> JsonSchema:
        return {}


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list; with ``single`` one value may stand alone. Read as a list of ``PlacedValue``."""

    form: Form
    single: bool = False

    @property
    def label(self) -> str:
        return f"list of {self.form.label}" + (" (one may stand alone)" if self.single else "")

    def read(self, node: YamlNode, context: Context) -> Any:
        nodes = node.nodes if isinstance(node, Items) else [node] if self.single else None
        if nodes is None:
            written = f": [{node.text}]" if isinstance(node, Scalar) else ""
            return context.faults.add(node.at, f"this must be a list{written}")
        if not nodes:
            text = "this list is empty; name at least one, or leave the key out"
            return context.faults.add(node.at, text)
        return [PlacedValue(self.form.read(child, context), child.at, child.at) for child in nodes]

    def schema(self) -> JsonSchema:
        items = {"type": "array", "items": self.form.schema(), "minItems": 1}
        return {"anyOf": [items, self.form.schema()]} if self.single else items


@dataclass(frozen=True, slots=True)
class MapOf:
    """A mapping with names of the operator's own choice. Read as a dict of ``PlacedValue``."""

    form: Form
    names: str  #: kind of the names, e.g. "field name"
    pattern: str = _ANY
    hint: str = "a name"

    @property
    def label(self) -> str:
        return f"mapping: {self.names} to {self.form.label}"

    def read(self, node: YamlNode, context: Context) -> Any:
        if not isinstance(node, Members):
            text = f"this must be a mapping, one entry for each {self.names}"
            return context.faults.add(node.at, text)
        if not node.entries:
            text = f"this mapping is empty; name at least one {self.names}, or leave the key out"
            return context.faults.add(node.at, text)
        out = {}
        for name, value in node.entries.items():
            if not re.fullmatch(self.pattern, name):
                text = f"'{name}' cannot be a {self.names}: {self.hint}"
                context.faults.add(node.position(name), text)
            out[name] = PlacedValue(self.form.read(value, context), value.at, node.position(name))
        return out

    def schema(self) -> JsonSchema:
        named = True if self.pattern == _ANY else {"pattern": f"^(?:{self.pattern})$"}
        return {
            "type": "object",
            "propertyNames": named,
            "additionalProperties": self.form.schema(),
            "minProperties": 1,
        }


@dataclass(frozen=True, slots=True)
class Either:
    """A scalar of one form, or a mapping of another."""

    scalar: Form
    mapping: Form

    @property
    def label(self) -> str:
        return f"{self.scalar.label}, or {self.mapping.label}"

    def read(self, node: YamlNode, context: Context) -> Any:
        return (self.mapping if isinstance(node, Members) else self.scalar).read(node, context)

    def schema(self) -> JsonSchema:
        return {"anyOf": [self.scalar.schema(), self.mapping.schema()]}


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a block: its form, a sentence about it, and its default."""

    name: str
    form: Form
    about: str
    default: str = ""
    required: bool = False


class Section:
    """A read block: values by key, each with its place.

    ``strange``: it held keys that were faults already.
    """

    def __init__(
        self, items: Mapping[str, PlacedValue], at: Position, *, strange: bool = False
    ) -> None:
        self.items = items
        self.at = at
        self.strange = strange

    def __contains__(self, name: str) -> bool:
        return name in self.items

    def __iter__(self) -> Iterator[str]:
        return iter(self.items)

    def value(self, name: str, default: Any = None) -> Any:
        """The value; ``default`` where it is absent or was at fault."""
        item = self.items.get(name)
        return default if item is None or item.value is None else item.value

    def position(self, name: str) -> Position:
        """Return the position of the value; of the section itself if it is absent."""
        return self.items[name].at if name in self.items else self.at

    def key(self, name: str) -> Position:
        """Return the position of the key; of the section itself if it is absent."""
        return self.items[name].key if name in self.items else self.at

    def allow(self, keys: Container[str], faults: RuleFaults, otherwise: str) -> None:
        """Note a fault of each key but these; ``otherwise`` has ``{key}`` for its name."""
        for key in self.items:
            if key not in keys:
                faults.add(self.key(key), otherwise.replace("{key}", key))


@dataclass(frozen=True, slots=True)
class Block:
    """A mapping with known keys."""

    name: str
    about: str
    keys: tuple[Key, ...]
    named: Key | None = None  #: for all names of the operator's own choice
    #: keys that people look for here, with where they stand
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"[{self.name}](#{self.name.replace(' ', '-')})"

    def read(self, node: YamlNode, context: Context) -> Any:
        if not isinstance(node, Members):
            keys = ", ".join(key.name for key in self.keys[:6])
            text = f"{self.name} must be a mapping with keys such as {keys}"
            return context.faults.add(node.at, text)
        items, misspelt = {}, set[str | None]()
        forms = {key.name: key.form for key in self.keys}
        for name, value in node.entries.items():
            position = node.position(name)
            form = forms.get(name) or (self.named.form if self.named is not None else None)
            if form is not None:
                items[name] = PlacedValue(form.read(value, context), value.at, position)
            elif name in self.elsewhere:
                context.faults.add(position, f"'{name}' {self.elsewhere[name]}")
            else:
                misspelt.add(nearest_word(name, forms))
                hint = f"unknown key '{name}' in {self.name}; {did_you_mean(name, forms)}"
                context.faults.add(position, hint)
        for key in self.keys:
            if key.required and key.name not in {*node.entries, *misspelt}:
                context.faults.add(node.at, f"{self.name} lacks '{key.name}': {key.about}")
        return Section(items, node.at, strange=len(items) < len(node.entries))

    def schema(self) -> JsonSchema:
        return {"$ref": f"#/$defs/{self.definition}"}

    @property
    def definition(self) -> str:
        return self.name.replace(" ", "_")

    def define(self) -> JsonSchema:
        return {
            "type": "object",
            "description": self.about,
            "properties": {key.name: _described(key) for key in self.keys},
            "required": [key.name for key in self.keys if key.required],
            "additionalProperties": False if self.named is None else _described(self.named),
        }


def _described(key: Key) -> JsonSchema:
    about = key.about + (f" Default: {key.default}." if key.default else "")
    return {**key.form.schema(), "description": about}


def _kind(node: Scalar) -> str:
    return "a truth value" if isinstance(node.value, bool) else "a number"


def _quoted(node: YamlNode) -> str:
    """The node as the operator wrote it; a reference stays a reference, so no secret shows."""
    if not isinstance(node, Scalar):
        return "a list" if isinstance(node, Items) else "a mapping"
    return f"'{node.text}'" if len(node.text) <= 60 else "this text"


def _either(choices: tuple[str, ...]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"
