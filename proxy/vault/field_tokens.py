"""Minting of findable tokens, and of same-value tokens under an older token root.

Equal values have equal tokens, also after a rotation of the root: a value with an earlier token in
some record keeps getting that one, so that the application's own search finds all of its records.
Other values get tokens under the current root. Tokens that are too small for the token index cannot
be looked up; they stay under the oldest root.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from proxy.crypto.field_keys import FieldKeys
from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.tokenization.base import Resolution, Shape, Tokenizer
from proxy.tokenization.fallback import FallbackTokenizer
from proxy.vault.next_version import FieldMint

#: Values whose tokens are remembered from when they were looked for until they are made.
_MOST = 10_000

#: A shape with so many tokens gives none that equals a value by chance.
_BEYOND_CHANCE = 2.0**64

#: Tells whether a whole text has the form of a token.
TokenForm = Callable[[str], re.Match[str] | None]

#: Asks for records by hashes of tokens, as ``Store.by_tokens``.
AskByTokens = Callable[[list[bytes]], Awaitable[Mapping[bytes, Sequence[int]]]]


class TokenizedField(NamedTuple):
    """A field whose equal values have equal tokens."""

    shape: Shape
    keys: FieldKeys
    kind: str
    region: str
    hash_of: Callable[[bytes], bytes]


class EarlierTokens:
    """Tokens of the fields of one schema under older roots."""

    def __init__(self, fields: Mapping[str, TokenizedField]) -> None:
        self._fields = fields
        self._older: dict[str, tuple[tuple[FieldKeys, ...], list[Tokenizer]]] = {}
        self._tokens: dict[tuple[str, Value], Value] = {}

    def mint(self, name: str, mint: FieldMint) -> FieldMint:
        """The same as ``mint``, but for values whose earlier tokens stay."""
        field, tokens = self._fields.get(name), self._tokens
        if field is None:
            return mint

        def minted(value: Value, rid: int, number: int) -> Value:
            if not field.keys.older:
                return mint(value, rid, number)
            earlier = tokens.get((name, value))
            if earlier is not None:
                return earlier
            token = mint(value, rid, number)
            oldest = self._tokenizers(name, field)[0]
            return token if oldest.indexed(token) else oldest.mint(value, rid, number)

        return minted

    async def recall(self, places: Iterable[tuple[str, Value]], ask: AskByTokens) -> None:
        """Look which of these values of fields have earlier tokens that are held; before tokens of
        them are made.
        """
        held_by: dict[bytes, tuple[tuple[str, Value], Value]] = {}
        for value_of in dict.fromkeys(places):
            field = self._fields.get(value_of[0])
            if field is None or not field.keys.older:
                continue
            self._tokens.pop(value_of, None)
            for tokenizer in self._tokenizers(value_of[0], field):
                token = _token(tokenizer, value_of[1])
                if token is not None and tokenizer.indexed(token):
                    held_by[field.hash_of(token.text.encode())] = value_of, token
        hits = await ask(list(held_by)) if held_by else {}
        if len(self._tokens) > _MOST:
            self._tokens.clear()
        for digest, (value_of, token) in held_by.items():
            if hits.get(digest):
                self._tokens.setdefault(value_of, token)

    def _tokenizers(self, name: str, field: TokenizedField) -> list[Tokenizer]:
        """Return the tokenizers under the older roots, oldest first."""
        older = field.keys.older
        cached = self._older.get(name)
        if cached is None or cached[0] is not older:
            tokenizers = [
                field.shape.bind(keys, field.kind, field.region) for keys in reversed(older)
            ]
            cached = self._older[name] = older, tokenizers
        return cached[1]


def _token(tokenizer: Tokenizer, value: Value) -> Value | None:
    """The token of a value, if it fits the shape."""
    try:
        return tokenizer.mint(value, 0, 0)
    except VaultError as error:
        if error.code is not Code.VALUE_UNFIT:
            raise
        return None


def findable(name: str, tokenizer: Tokenizer) -> FieldMint:
    """Return the mint of a field whose tokens resolve without the record's id.

    It refuses values that are too short for that.
    """

    def mint(value: Value, rid: int, number: int) -> Value:
        token = tokenizer.mint(value, rid, number)
        if tokenizer.indexed(token):
            return token
        if isinstance(tokenizer, FallbackTokenizer):
            token = tokenizer.other.mint(value, rid, number)  # long enough, whatever the value is
            if tokenizer.indexed(token):
                return token
        raise VaultError(
            Code.VALUE_UNFIT,
            f"A value of field {name!r} is too short for a token that can be found again without "
            "the record's id; give the field another shape, or name the id in every answer of "
            "this entity.",
        )

    return mint


def beyond_chance(shape: Shape) -> bool:
    """Whether the index tells tokens of the shape, and no value equals one by chance."""
    return shape.resolution is Resolution.INDEXED and shape.capacity() >= _BEYOND_CHANCE


def token_form(tokenizers: Mapping[str, Tokenizer], shapes: Mapping[str, Shape]) -> TokenForm:
    """Compile the form of those tokens of these fields that can be told from values: they carry
    their record, or are too many to equal a value by chance. Also within white space, and those of
    mail addresses in any case (``token_spellings``).
    """
    patterns: dict[str, None] = {}
    for name, tokenizer in tokenizers.items():
        if tokenizer.resolution is Resolution.SEALED or beyond_chance(shapes[name]):
            patterns[tokenizer.pattern.pattern] = None
        elif isinstance(tokenizer, FallbackTokenizer):
            patterns[tokenizer.other.pattern.pattern] = None
    cases = [f"(?{'i' * ('@' in pattern)}:{pattern})" for pattern in patterns]
    return re.compile(rf"\s*+(?:{'|'.join(cases) or '(?!)'})\s*+").fullmatch


def token_spellings(text: str) -> dict[str, None]:
    """The tokens that a text of that form may be."""
    token = text.strip()
    return dict.fromkeys((token, token.lower()) if "@" in token else (token,))
