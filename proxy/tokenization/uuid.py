"""UUIDs of version 4 (RFC 9562): 122 bits that look random and, unless ``same``, carry the sealed
id of their record.

Version 4 and not 8: both may hold what 122 bits hold, and many validators in use know the versions
1 to 5 only.
"""

import math
from dataclasses import dataclass

from proxy.model.schema import Value
from proxy.tokenization.base import SAME, Parser, Resolution, Tokenizer, TokenKeys
from proxy.tokenization.common import Binding, DrawnTokenizer, SealedTokenizer, bordered, text_only

_PATTERN = bordered("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_SPACE = 2**122


def write_uuid(bits: int) -> str:
    """122 bits as the text of a UUID of version 4."""
    fields = f"{bits >> 74:012x}4{bits >> 62 & 0xFFF:03x}{0b10 << 62 | bits & (1 << 62) - 1:016x}"
    return f"{fields[:8]}-{fields[8:12]}-{fields[12:16]}-{fields[16:20]}-{fields[20:]}"


def read_uuid(text: str) -> int:
    """The 122 bits of a text that is a UUID of version 4."""
    number = int(text.replace("-", ""), 16)
    return number >> 80 << 74 | (number >> 64 & 0xFFF) << 62 | number & (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class Uuid:
    """Tokens that are UUIDs."""

    same: bool
    name: str = "uuid"

    @property
    def resolution(self) -> Resolution:
        return Resolution.INDEXED if self.same else Resolution.SEALED

    def capacity(self) -> float:
        return math.inf

    def bind(self, keys: TokenKeys, kind: str, region: str) -> Tokenizer:
        binding = Binding(self, keys, kind, region)
        if self.same:

            def space(value: Value) -> int:
                text_only(binding, value)
                return _SPACE

            return DrawnTokenizer(
                binding, _PATTERN, space, lambda _, index: Value(write_uuid(index))
            )

        def seal(rid: int, number: int) -> str:
            return write_uuid(keys.narrow_block(rid, number))

        def unseal(text: str) -> tuple[int, int] | None:
            return keys.open_narrow_block(read_uuid(text))

        return SealedTokenizer(binding, _PATTERN, seal, unseal, takes_json=False)


UUID = Parser("uuid", SAME, lambda options: Uuid(options.flag("same")))
