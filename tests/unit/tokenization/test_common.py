import os
import re

import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.tokenization import make_shape
from proxy.tokenization.base import Resolution, SealedSpelling
from proxy.tokenization.common import (
    MOST_DRAWS,
    NEVER_MATCHES,
    WORD32,
    WORD62,
    Binding,
    DrawnTokenizer,
    SealedTokenizer,
    bordered,
    read32,
    read62,
    unfit_value,
    write32,
    write62,
)
from tests.support.shapes import KEYSET
from tests.support.table import table

KEYS = KEYSET.field_keys("contact", "field")


def binding(same: bool) -> Binding:
    return Binding(make_shape("opaque", {"same": same}), KEYS, "name", "")


def test_the_error_names_shape_and_reason():
    error = unfit_value("luhn", "its check digit does not hold")
    assert error.code is Code.VALUE_UNFIT
    assert (
        error.message == "A value does not fit the token shape luhn: its check digit does not hold."
    )


def test_a_bordered_expression_never_begins_or_ends_inside_a_word():
    pattern = bordered("ab|cd")
    assert pattern.findall("ab cd, xab abx -cd- _ab_ éabé 1ab") == ["ab", "cd", "cd", "ab", "ab"]
    assert NEVER_MATCHES.search("") is None


def test_a_drawn_token_is_drawn_again_until_it_differs_from_the_value():
    drawn = iter([Value("Ann"), None, Value("Bob")])
    tokenizer = DrawnTokenizer(
        binding(same=False), NEVER_MATCHES, lambda _: 10, lambda _value, _index: next(drawn)
    )
    assert tokenizer.mint(Value("Ann"), 1, 1) == Value("Bob")


def test_drawing_ends_with_a_refusal_where_nothing_differs():
    seen: list[int] = []

    def spell(value: Value, index: int) -> Value:
        seen.append(index)
        return value

    tokenizer = DrawnTokenizer(binding(same=False), NEVER_MATCHES, lambda _: 10, spell)
    with pytest.raises(VaultError) as caught:
        tokenizer.mint(Value("Ann"), 1, 1)
    assert caught.value.code is Code.VALUE_UNFIT
    assert len(seen) == MOST_DRAWS
    assert set(seen) <= set(range(10))
    assert len(set(seen)) > 5, "it is drawn anew each time"


def test_every_spelling_of_a_value_passes_over_the_attempt_that_gives_the_value_itself():
    tokenizer = DrawnTokenizer(
        binding(same=True),
        NEVER_MATCHES,
        lambda _: 3,
        lambda _, index: Value(("Ann", "Bob", "Cid")[index]),
    )
    for name in ("Ann", "Bob", "Cid"):
        token = tokenizer.mint(Value(name), 1, 1)
        assert token.text != name
        assert (
            tokenizer.mint(Value(f" {name}"), 2, 2)
            == tokenizer.mint(Value(f"{name}\n"), 3, 3)
            == token
        )


def test_a_sealed_token_that_is_the_value_is_refused():
    tokenizer = SealedTokenizer(
        binding(same=False),
        NEVER_MATCHES,
        SealedSpelling(lambda *_: b"", lambda _: "Ann"),
        lambda _: (1, 1),
        takes_json=False,
    )
    with pytest.raises(VaultError) as caught:
        tokenizer.mint(Value("Ann"), 1, 1)
    assert caught.value.code is Code.VALUE_UNFIT
    assert tokenizer.mint(Value("Bob"), 1, 1) == Value("Ann")


def test_a_sealed_token_is_opened_only_when_it_has_the_syntax():
    tokenizer = SealedTokenizer(
        binding(same=False),
        bordered("Ann"),
        SealedSpelling(lambda *_: b"", lambda _: "Ann"),
        lambda _: (1, 2),
        takes_json=True,
    )
    assert tokenizer.identify("Ann") == (1, 2)
    assert tokenizer.identify("Bob") is None
    assert tokenizer.resolution is Resolution.SEALED
    assert not tokenizer.indexed(Value("Ann"))


BLOCKS = [bytes(16), b"\xff" * 16, bytes(8) + b"\xff" * 8, *(os.urandom(16) for _ in range(200))]


@table(("write", "read", "word"), [(write62, read62, WORD62), (write32, read32, WORD32)])
def test_every_block_is_a_word_that_reads_back(write, read, word):
    for block in BLOCKS:
        assert re.fullmatch(word, write(block))
        assert read(write(block)) == block


def test_words_begin_with_a_letter_and_have_a_fixed_length():
    assert write62(bytes(16)) == "A" * 22
    assert write62(b"\xff" * 16)[0] == "V"
    assert write32(bytes(16)) == "g" + "0" * 25
    assert write32(b"\xff" * 16) == "n" + "v" * 25


def test_a_half_beyond_its_bits_is_no_block():
    assert read62("V9999999999" + "A" * 11) is None
    assert read62("A" * 11 + "V9999999999") is None


@table(
    "word",
    [
        "", "g" * 25, "g" * 27, "f" + "0" * 25, "o" + "0" * 25, "g" + "w" * 25, "G" + "0" * 25,
        "g_" + "0" * 24, "g" + "٠" * 25,
    ],
)  # fmt: skip
def test_what_is_no_word_is_no_block(word):
    assert read32(word) is None
