import pytest

from proxy.model.schema import Value
from proxy.tokenization import make_shape
from proxy.tokenization.base import Resolution
from tests.support.shapes import bound


def test_spellings_of_one_telephone_number_have_one_same_token_in_e164():
    tokenizer = bound("numeric", "phone", same=True)
    tokens = {
        tokenizer.mint(Value(text), 1, 1).text
        for text in ("070-123 45 67", "+46 70 123 45 67", "0046701234567")
    }
    assert len(tokens) == 1
    (token,) = tokens
    assert token.startswith("+")
    assert len(token) == len("+46701234567")


def test_kept_digits_of_a_same_token_are_those_of_the_normal_form():
    token = (
        bound("numeric", "phone", same=True, keep_first=2, keep_last=3)
        .mint(Value("070-123 45 67"), 1, 1)
        .text
    )
    assert token[:3] == "+46"
    assert token[-3:] == "567"


def test_an_extension_is_swapped_like_the_rest():
    token = bound("numeric", "phone", same=True).mint(Value("070-123 45 67 #12"), 1, 1).text
    assert token.index("#") == len("+46701234567")


def test_kind_number_keeps_the_form_also_in_same_tokens():
    token = bound("numeric", "number", same=True).mint(Value("(212) 555-0123"), 1, 1).text
    assert (token[0], token[4:6], token[9]) == ("(", ") ", "-")


def test_the_capacity_is_that_of_ten_digits():
    assert make_shape("numeric", {}).capacity() == pytest.approx(9e9)
    assert make_shape("numeric", {"keep_first": 2, "keep_last": 2}).capacity() == pytest.approx(9e5)
    assert make_shape("numeric", {"keep_last": 10}).capacity() == 1
    assert make_shape("numeric", {}).resolution is Resolution.INDEXED
