"""Tokens by a template, e.g.

``PP-[A-Z0-9]{9}``; the language of templates is that of ``model.template``.
"""

import math
import re
from dataclasses import dataclass

from proxy.model import TemplateGroup, capacity, fill, read_template
from proxy.model.schema import Value
from proxy.tokenization.base import SAME, Parser, Resolution, ShapeOptions, Tokenizer, TokenKeys
from proxy.tokenization.common import Binding, DrawnTokenizer, bordered, text_only

#: Fewest tokens of a template whose tokens can be looked up.
INDEXED_CAPACITY = 1_000_000
#: The same for same-value tokens: two values must never come to one token, and nothing else keeps
#: them apart.
SAME_CAPACITY = 2**64


@dataclass(frozen=True, slots=True)
class TemplateShape:
    """Tokens of a template. Small ones resolve by their record."""

    same: bool
    template: str
    groups: tuple[TemplateGroup, ...]
    name: str = "template"

    @property
    def resolution(self) -> Resolution:
        enough = SAME_CAPACITY if self.same else INDEXED_CAPACITY
        return Resolution.INDEXED if self._space() >= enough else Resolution.BY_RECORD

    def capacity(self) -> float:
        try:
            return float(self._space())
        except OverflowError:  # more than any number of records
            return math.inf

    def bind(self, keys: TokenKeys, kind: str, region: str) -> Tokenizer:
        binding = Binding(self, keys, kind, region)

        def space(value: Value) -> int:
            text_only(binding, value)
            return self._space()

        pattern = bordered("".join(map(_expression, self.groups)))
        return DrawnTokenizer(
            binding, pattern, space, lambda _, index: Value(fill(self.groups, index))
        )

    def _space(self) -> int:
        return capacity(self.groups)


def _expression(group: TemplateGroup) -> str:
    if isinstance(group.choices, str):
        return re.escape(group.choices)
    ranges = [
        f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in group.choices.ranges
    ]
    return f"[{''.join(ranges)}]{{{group.count}}}"


def _template(options: ShapeOptions) -> TemplateShape:
    text = options.text("template", "")
    shape = TemplateShape(options.flag("same"), text, read_template(text))
    if shape.capacity() < 2:
        raise ValueError(
            "a template needs a group such as [A-Z0-9]{9}; for one constant text use the shape "
            "fixed"
        )
    return shape


TEMPLATE = Parser(
    "template",
    {**SAME, "template": "constant text and groups of random characters, e.g. PP-[A-Z0-9]{9}"},
    _template,
    looks_like="value",
    larger="a template of a million tokens, and with same: true of 2^64, such as [A-Z0-9]{13}",
)
