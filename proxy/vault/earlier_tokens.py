"""Earlier tokens of values that get equal tokens, after a rotation of the token root.

Equal values have equal tokens, also after a rotation of the root: a value with an earlier token in
some record keeps getting that one, so that the application's own search finds all of its records.
Other values get tokens under the current root. Tokens that are too small for the token index cannot
be looked up; they stay under the oldest root.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from proxy.crypto.field_keys import FieldKeys
from proxy.errors import Code, VaultError, coded
from proxy.model.schema import Value
from proxy.tokenization.base import Resolution, Shape, Tokenizer
from proxy.tokenization.digits import INDEXED_DIGITS, digits_of
from proxy.tokenization.fallback import FallbackTokenizer
from proxy.tokenization.normalize import calling_codes, normalize
from proxy.vault.next_version import FieldMint

#: Values whose tokens are remembered from when they were looked for until they are made.
_MOST = 10_000

#: A shape with so many tokens gives none that equals a value by chance.
_BEYOND_CHANCE = 2.0**64

#: Tokens of a field that a number is compared with: of more, each is known as it was sent alone.
_COMPARED = 32

#: Finds what has the form of a token in a text.
TokenForm = Callable[[str], re.Match[str] | None]

#: Most digits of a telephone number with those before it to call abroad (ITU-T E.164, E.164.1).
MOST_DIALLED = 18

#: The last digits, which no manner of writing a number changes: equal numbers are told by them at
#: once, as to read a telephone number takes long.
_END = 3

#: Finds those of some texts that are tokens in another spelling, each with the token: of a field,
#: by its name, and its tokens.
Respelled = Callable[[str, Iterable[str], Collection[str]], Iterator[tuple[str, str]]]

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
    """Tokens of the fields of one schema under older roots, and under one that is coming."""

    def __init__(self, fields: Mapping[str, TokenizedField]) -> None:
        self._fields = fields
        self._others: dict[str, tuple[tuple[FieldKeys, ...], list[Tokenizer]]] = {}
        self._tokens: dict[tuple[str, Value], Value] = {}

    def mint(self, name: str, mint: FieldMint) -> FieldMint:
        """The same as ``mint``, but for values whose earlier tokens stay."""
        field, tokens = self._fields.get(name), self._tokens
        if field is None:
            return mint

        def minted(value: Value, rid: int, number: int) -> Value:
            if not field.keys.others:
                return mint(value, rid, number)
            earlier = tokens.get((name, value))
            if earlier is not None:
                return earlier
            token = mint(value, rid, number)
            if not field.keys.older:
                return token
            oldest = self._tokenizers(name, field)[0]
            return token if oldest.indexed(token) else oldest.mint(value, rid, number)

        return minted

    async def recall(self, places: Iterable[tuple[str, Value]], ask: AskByTokens) -> None:
        """Look which of these fields' values have earlier tokens, before tokens are made."""
        held_by: dict[bytes, tuple[tuple[str, Value], Value]] = {}
        for value_of in dict.fromkeys(places):
            field = self._fields.get(value_of[0])
            if field is None or not field.keys.others:
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
        """Return the tokenizers under the other roots, oldest first."""
        others = field.keys.others
        cached = self._others.get(name)
        if cached is None or cached[0] is not others:
            tokenizers = [
                field.shape.bind(keys, field.kind, field.region) for keys in reversed(others)
            ]
            cached = self._others[name] = others, tokenizers
        return cached[1]


def _token(tokenizer: Tokenizer, value: Value) -> Value | None:
    """The token of a value, if it fits the shape."""
    try:
        return tokenizer.mint(value, 0, 0)
    except coded(Code.VALUE_UNFIT):
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
    their record, or are too many to equal a value by chance. Also within a longer text, and those
    of mail addresses in any case (``token_spellings``).
    """
    patterns: dict[str, None] = {}
    for name, tokenizer in tokenizers.items():
        if tokenizer.resolution is Resolution.SEALED or beyond_chance(shapes[name]):
            patterns[tokenizer.pattern.pattern] = None
        elif isinstance(tokenizer, FallbackTokenizer):
            patterns[tokenizer.other.pattern.pattern] = None
    cases = [f"(?{'i' * ('@' in pattern)}:{pattern})" for pattern in patterns]
    return re.compile("|".join(cases) or "(?!)").search


def token_spellings(text: str) -> dict[str, None]:
    """The tokens that a text of that form may be."""
    token = text.strip()
    return dict.fromkeys((token, token.lower()) if "@" in token else (token,))


def number_spellings(text: str, kind: str, region: str) -> frozenset[str]:
    """The digits of a number of six or more, and those with its country if known; else none."""
    digits = digits_of(text)
    if len(digits) < INDEXED_DIGITS:
        return frozenset()
    whole = digits_of(normalize(kind, text, region)) if kind == "phone" else ""
    return frozenset((digits, whole or digits))


def alike_but_for_country(one: str, other: str) -> bool:
    """Whether the digits of two telephone numbers are alike but for a country's calling code, which
    one of them may have before it, and zeros: applications join the fields of a form, and split.
    """
    longer, shorter = sorted((one.lstrip("0"), other.lstrip("0")), key=len, reverse=True)
    if len(shorter) < INDEXED_DIGITS or not longer.endswith(shorter):
        return False
    before = longer.removesuffix(shorter)
    return not before or not calling_codes().isdisjoint((before, before.removesuffix("0")))


def other_spellings(text: str, region: str) -> dict[str, None]:
    """Likely spellings of a telephone number before an application joined it with a calling
    code, or left that out: without separators, the likeliest first.
    """
    digits, dialled = digits_of(text), text.lstrip("'(").startswith(("+", "0"))
    if not dialled or not INDEXED_DIGITS < len(digits) <= MOST_DIALLED:
        return {}
    bare = digits.lstrip("0")
    written = [digits, bare, f"0{bare}", f"+{bare}", normalize("phone", text, region)]
    if text.lstrip("'").startswith(("+", "00")):
        codes = [bare[:size] for size in (1, 2, 3) if bare[:size] in calling_codes()]
        rest = [bare.removeprefix(code) for code in codes]
        written += [one for each in rest for one in (each, each.lstrip("0"), f"0{each}")]
    return {one: None for one in written if one != text and len(one) > INDEXED_DIGITS}


def speller(
    tokenizers: Mapping[str, Tokenizer], kinds: Mapping[str, str], region: str
) -> tuple[Respelled, frozenset[str], Callable[[str, Value], Value]]:
    """Make what knows tokens that an application has written in its own manner: a number that is
    found through the index by its digits, a mail address in any case. With it the fields that have
    such tokens, and what gives the form in which values of a field compare: of same-value tokens
    one stands for all spellings of its value.

    Only for tokens of one record: two of several records may have the same digits.
    """

    def compared(name: str, value: Value) -> Value:
        as_is = value.json or not tokenizers[name].same
        return value if as_is else Value(normalize(kinds[name], value.text, region))

    def respelled(
        name: str, texts: Iterable[str], tokens: Collection[str]
    ) -> Iterator[tuple[str, str]]:
        tokenizer = tokenizers.get(name)
        if tokenizer is None:
            return
        by_end: dict[str, list[str]] = {}
        if tokenizer.resolution is Resolution.INDEXED and len(tokens) <= _COMPARED:
            for token in tokens:
                by_end.setdefault(digits_of(token)[-_END:], []).append(token)
            by_end.pop("", None)
        for text in texts:
            if "@" in text:
                folded = text.strip().lower()
                if folded in tokens and tokenizer.resembles(folded):
                    yield text, folded
            elif by_end and (some := by_end.get(digits_of(text)[-_END:])):  # nearly never
                spellings = number_spellings(text, kinds[name], region)
                phone, digits = kinds[name] == "phone", digits_of(text)
                meant = {
                    token
                    for token in some
                    if (
                        (phone and alike_but_for_country(digits, digits_of(token)))
                        or not spellings.isdisjoint(number_spellings(token, kinds[name], region))
                    )
                    and tokenizer.indexed(Value(token))
                }
                if len(meant) == 1:
                    yield text, meant.pop()

    names = frozenset(
        name
        for name, tokenizer in tokenizers.items()
        if tokenizer.resolution is Resolution.INDEXED or "@" in tokenizer.pattern.pattern
    )
    return respelled, names, compared
