"""Sizes, durations and statuses as rule files write them."""

import re
from dataclasses import dataclass
from typing import Any

from proxy.redactor.load.forms import Context, JsonSchema
from proxy.redactor.load.tree import Node, Scalar

_SIZE = re.compile(r"([0-9]{1,12}) ?(B|kB|MB|GB|KiB|MiB|GiB)")
_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_DURATION = re.compile(r"([0-9]{1,6}) ?(s|m|h|d|w|y)")
_MILLISECONDS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000, "y": 365 * 86_400_000}


@dataclass(frozen=True, slots=True)
class Size:
    """A number of bytes with its unit, ``2MiB``; a bare number is bytes."""

    label: str = "size, e.g. `2MiB`"

    def read(self, node: Node, context: Context) -> Any:
        if isinstance(node, Scalar) and type(node.value) is int and node.value > 0:
            return node.value
        found = _SIZE.fullmatch(node.text) if isinstance(node, Scalar) else None
        if found and int(found[1]):
            return int(found[1]) * _BYTES[found[2]]
        return context.faults.add(node.at, "this must be a size above zero such as 512KiB or 2MiB")

    def schema(self) -> JsonSchema:
        return {"anyOf": [{"type": "string", "pattern": f"^{_SIZE.pattern}$"}, {"type": "integer", "minimum": 1}]}


@dataclass(frozen=True, slots=True)
class Duration:
    """A span of time, ``7y``; read as milliseconds. A year counts 365 days."""

    label: str = "duration, e.g. `90d` or `7y`"

    def read(self, node: Node, context: Context) -> Any:
        found = _DURATION.fullmatch(node.text) if isinstance(node, Scalar) else None
        if found and int(found[1]):
            return int(found[1]) * _MILLISECONDS[found[2]]
        return context.faults.add(
            node.at, "this must be a duration above zero such as 12h, 90d or 7y (s, m, h, d, w, y)"
        )

    def schema(self) -> JsonSchema:
        return {"type": "string", "pattern": f"^{_DURATION.pattern}$"}


@dataclass(frozen=True, slots=True)
class Status:
    """An HTTP status within bounds; with ``word``, that word may stand instead. Read as a number, or the word."""

    least: int
    most: int
    word: str = ""

    @property
    def label(self) -> str:
        alternative = f"`{self.word}` or " if self.word else ""
        return f"{alternative}status from {self.least} to {self.most}"

    def read(self, node: Node, context: Context) -> Any:
        value = node.value if isinstance(node, Scalar) else None
        if type(value) is int and self.least <= value <= self.most:
            return value
        if self.word and value == self.word:
            return value
        instead = f"'{self.word}' or " if self.word else ""
        return context.faults.add(node.at, f"this must be {instead}an HTTP status from {self.least} to {self.most}")

    def schema(self) -> JsonSchema:
        number: JsonSchema = {"type": "integer", "minimum": self.least, "maximum": self.most}
        return {"anyOf": [number, {"const": self.word}]} if self.word else number
