"""Mail addresses: a lower-case word before the ``@``, a domain that nobody can own behind it (RFC
2606).
"""

import math
import re
from dataclasses import dataclass

from proxy.model.schema import Value
from proxy.tokenization.base import SAME, Parser, Resolution, ShapeOptions, Tokenizer, TokenKeys
from proxy.tokenization.common import (
    WORD32,
    Binding,
    DrawnTokenizer,
    SealedTokenizer,
    read32,
    text_only,
    write32,
)

_LOCAL = 26
_BLOCKS = 2**128
_DOMAIN = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]")


@dataclass(frozen=True, slots=True)
class Email:
    """Tokens that are mail addresses of one domain."""

    same: bool
    domain: str
    name: str = "email"

    @property
    def resolution(self) -> Resolution:
        return Resolution.INDEXED if self.same else Resolution.SEALED

    def capacity(self) -> float:
        return math.inf

    def bind(self, keys: TokenKeys, kind: str, region: str) -> Tokenizer:
        binding = Binding(self, keys, kind, region)
        behind = "@" + self.domain
        pattern = re.compile(
            rf"(?<![0-9A-Za-z._+-]){WORD32}{re.escape(behind)}(?![0-9A-Za-z-]|\.[0-9A-Za-z])"
        )
        if self.same:

            def space(value: Value) -> int:
                text_only(binding, value)
                return _BLOCKS

            return DrawnTokenizer(
                binding,
                pattern,
                space,
                lambda _, index: Value(write32(index.to_bytes(16, "big")) + behind),
            )

        def seal(rid: int, number: int) -> str:
            return write32(keys.block(rid, number)) + behind

        def unseal(text: str) -> tuple[int, int] | None:
            block = read32(text[:_LOCAL])
            return None if block is None else keys.open_block(block)

        return SealedTokenizer(binding, pattern, seal, unseal, takes_json=False)


def _email(options: ShapeOptions) -> Email:
    domain = options.text("domain", "example.org")
    if _DOMAIN.fullmatch(domain) is None or len(domain) > 253:
        raise ValueError(
            "domain of token shape email is a host name in lower case, such as example.org"
        )
    return Email(options.flag("same"), domain)


EMAIL = Parser("email", {**SAME, "domain": "what stands behind the @; default example.org"}, _email)
