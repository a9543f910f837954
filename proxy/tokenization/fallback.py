"""A second format for values that do not fit the first: ``{shape: numeric, else: opaque}``.

A telephone number becomes digits, ``ext 3`` a word. The second format takes every value, so that no
write is refused for its format. Which of the two a value has is decided by its normal form where
equal values get equal tokens, so that they still do.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.tokenization import SHAPES
from proxy.tokenization.base import Resolution, SealedSpelling, Shape, Tokenizer, TokenKeys
from proxy.tokenization.normalize import normalize

#: The formats that fit any value, JSON of every type too.
TOTAL: Final = tuple(name for name, parser in SHAPES.items() if parser.total)


@dataclass(frozen=True, slots=True)
class Fallback:
    """``first`` for values that fit it, ``other`` for the rest.

    Tokens are found as ``first`` finds them. ``alone``: tokens of the field appear without their
    record's id, so a short token of ``first`` that cannot be looked up gives way to ``other``.
    """

    first: Shape
    other: Shape
    alone: bool = False

    @property
    def name(self) -> str:
        return self.first.name

    @property
    def resolution(self) -> Resolution:
        return self.first.resolution

    @property
    def same(self) -> bool:
        return self.first.same

    def capacity(self) -> float:
        return self.first.capacity()

    def bind(self, keys: TokenKeys, kind: str, region: str) -> Tokenizer:
        return FallbackTokenizer(self, keys, kind, region)


class FallbackTokenizer:
    """Mints with ``first``, and with ``other`` where that refuses the value.

    Tokens of the second kind are in the index, too.
    """

    __slots__ = (
        *("_alone", "_kind", "_region", "first", "other", "pattern", "resolution", "same"),
        "spelling",
    )

    def __init__(self, shape: Fallback, keys: TokenKeys, kind: str, region: str) -> None:
        self.first = shape.first.bind(keys, kind, region)
        self.other = shape.other.bind(keys, kind, region)
        self.resolution: Resolution = shape.resolution
        self.same: bool = shape.same
        self.spelling: SealedSpelling | None = None
        self.pattern = re.compile(
            f"(?:{self.first.pattern.pattern})|(?:{self.other.pattern.pattern})"
        )
        self._alone = shape.alone and self.resolution is Resolution.INDEXED
        self._kind = kind
        self._region = region

    def mint(self, value: Value, rid: int, number: int) -> Value:
        """A token of the first format, or of the second."""
        token = self._first(value, rid, number)
        if token is None or (self._alone and not self.first.indexed(token)):
            return self.other.mint(value, rid, number)
        return token

    def _first(self, value: Value, rid: int, number: int) -> Value | None:
        """A token of the first format; ``None`` where the value has none."""
        try:
            return self.first.mint(value, rid, number)
        except VaultError as error:
            if error.code is not Code.VALUE_UNFIT:
                raise
        normal = (
            normalize(self._kind, value.text, self._region)
            if self.same and not value.json
            else value.text
        )
        if normal != value.text:
            try:
                # the token of its other spellings
                return self.first.mint(Value(normal), rid, number)
            except VaultError as error:
                if error.code is not Code.VALUE_UNFIT:
                    raise
        return None

    def identify(self, text: str) -> tuple[int, int] | None:
        """Return the record and field that a token of either format carries."""
        return self.first.identify(text) or self.other.identify(text)

    def carried(self, texts: Sequence[str]) -> list[int | None]:
        """The records that tokens of either format carry."""
        return [None if (pair := self.identify(text)) is None else pair[0] for text in texts]

    def resembles(self, text: str) -> bool:
        """Whether the text has the syntax of either format."""
        return self.first.resembles(text) or self.other.resembles(text)

    def indexed(self, token: Value) -> bool:
        """Whether this very token is found through the index: every one of the second format is,
        where the first has one.
        """
        if self.resolution is not Resolution.INDEXED:
            return False
        return self.first.indexed(token) or self.other.resembles(token.text)


def with_fallback(first: Shape, other: Shape) -> Shape:
    """Combine a format with another one for its misfits; ``ValueError`` suggests what to write."""
    if first.name in TOTAL or first.resolution is Resolution.CLEAR:
        raise ValueError(
            f"every value fits the token shape {first.name}, so else does nothing there; leave "
            "it out"
        )
    if other.name not in TOTAL:
        raise ValueError(f"else is for values of any form; write one of {', '.join(TOTAL)}")
    return Fallback(first, other)
