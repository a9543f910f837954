"""Words that look like nothing: ``opaque``, ``lower`` and ``prepended``.

They fit any value, JSON of every type too: the token is then a JSON string.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from proxy.model.schema import Value
from proxy.tokenization import common
from proxy.tokenization.base import SAME, Parser, Resolution, ShapeOptions, Tokenizer, TokenKeys
from proxy.tokenization.common import Binding, DrawnTokenizer, SealedTokenizer, bordered

_BLOCKS = 2**128
_PREFIX = re.compile(r"[A-Za-z]{1,16}")


@dataclass(frozen=True, slots=True)
class WordShape:
    """A shape whose tokens are one word: a constant prefix and 16 bytes written in an alphabet."""

    name: str
    same: bool
    prefix: str
    body: str  #: expression for the part behind the prefix
    write: Callable[[bytes], str]
    read: Callable[[str], bytes | None]

    @property
    def resolution(self) -> Resolution:
        return Resolution.INDEXED if self.same else Resolution.SEALED

    def capacity(self) -> float:
        return math.inf

    def bind(self, keys: TokenKeys, kind: str, region: str) -> Tokenizer:
        binding = Binding(self, keys, kind, region)
        pattern = bordered(self.prefix + self.body)
        prefix, write, read = self.prefix, self.write, self.read
        if self.same:
            return DrawnTokenizer(
                binding,
                pattern,
                lambda _: _BLOCKS,
                lambda _, index: Value(prefix + write(index.to_bytes(16, "big"))),
            )

        def seal(rid: int, number: int) -> str:
            return prefix + write(keys.block(rid, number))

        def unseal(text: str) -> tuple[int, int] | None:
            block = read(text[len(prefix) :])
            return None if block is None else keys.open_block(block)

        return SealedTokenizer(binding, pattern, seal, unseal, takes_json=True)


def _word62(options: ShapeOptions, prefix: str) -> WordShape:
    return WordShape(
        options.shape, options.flag("same"), prefix, common.WORD62, common.write62, common.read62
    )


def _opaque(options: ShapeOptions) -> WordShape:
    return _word62(options, "")


def _lower(options: ShapeOptions) -> WordShape:
    return WordShape(
        options.shape, options.flag("same"), "", common.WORD32, common.write32, common.read32
    )


def _prepended(options: ShapeOptions) -> WordShape:
    prefix = options.text("prefix", "T")
    if _PREFIX.fullmatch(prefix) is None:
        raise ValueError(f"prefix of token shape {options.shape} is 1 to 16 letters A to Z, a to z")
    return _word62(options, prefix)


OPAQUE = Parser("opaque", SAME, _opaque)
LOWER = Parser("lower", SAME, _lower)
PREPENDED = Parser(
    "prepended", {**SAME, "prefix": "1 to 16 letters before the token; default T"}, _prepended
)
