import math

import pytest

from proxy.model.schema import Value
from proxy.tokenization import make_shape
from proxy.tokenization.base import Resolution
from tests.support.shapes import bound
from tests.support.table import table


@table(
    ("written", "token"),
    [
        ("hidden", Value("hidden")), (0, Value("0", json=True)), (-1.5, Value("-1.5", json=True)),
        (True, Value("true", json=True)),
    ],
)  # fmt: skip
def test_fixed_is_what_the_rule_says_for_text_and_json(written, token):
    tokenizer = bound("fixed", value=written)
    assert (
        tokenizer.mint(Value("Ann"), 1, 1) == tokenizer.mint(Value("[1]", json=True), 2, 2) == token
    )


def test_fixed_needs_a_value():
    with pytest.raises(ValueError, match="needs value"):
        make_shape("fixed", {})


@table(
    ("value", "zero", "one"),
    [
        (Value("4711"), Value("0000"), Value("1")),
        (Value("+46 (70) 12-34"), Value("+00 (00) 00-00"), Value("1")),
        (Value("٤٧"), Value("00"), Value("1")),
        (Value("Ann 5"), Value("0"), Value("1")),
        (Value("-12.50", json=True), Value("0", json=True), Value("1", json=True)),
    ],
)
def test_zero_keeps_the_form_of_written_numbers_and_one_is_one(value, zero, one):
    assert bound("zero").mint(value, 1, 1) == zero
    assert bound("one").mint(value, 1, 1) == one


def test_written_zeros_are_recognised():
    zero = bound("zero")
    assert zero.resembles("+00 00-0")
    assert not zero.resembles("+00 01")
    assert not zero.resembles("--")


def test_the_value_goes_on_as_it_is_and_nothing_is_a_token():
    tokenizer = bound("plain")
    for value in (Value("Ann"), Value(""), Value("1.0", json=True)):
        assert tokenizer.mint(value, 1, 1) is value
        assert not tokenizer.indexed(value)
        assert not tokenizer.resembles(value.text)
        assert tokenizer.identify(value.text) is None
    assert tokenizer.pattern.search("Ann") is None


def test_it_never_runs_out():
    shape = make_shape("plain", {})
    assert (shape.capacity(), shape.resolution) == (math.inf, Resolution.CLEAR)
