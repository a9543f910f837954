import math

import pytest

from proxy.model.schema import Value
from proxy.tokenization import make_shape
from proxy.tokenization.base import Resolution
from tests.support.shapes import bound


@pytest.mark.parametrize("name", ["opaque", "lower", "prepended"])
def test_words_never_run_out_and_are_sealed_unless_same(name):
    assert make_shape(name, {}).capacity() == math.inf
    assert make_shape(name, {}).resolution is Resolution.SEALED
    assert make_shape(name, {"same": True}).resolution is Resolution.INDEXED


@pytest.mark.parametrize("name", ["opaque", "lower", "prepended"])
@pytest.mark.parametrize("source", ["42", "1.0", "true", '{"a": 1}', "[]"])
def test_any_json_becomes_a_text_token(name, source):
    for tokenizer in (bound(name), bound(name, same=True)):
        token = tokenizer.mint(Value(source, json=True), 7, 8)
        assert token.json is False
        assert tokenizer.resembles(token.text)


def test_the_number_of_a_value_alone_makes_another_token():
    tokenizer = bound("opaque")
    assert len({tokenizer.mint(Value("Ann"), 1, number).text for number in range(100)}) == 100


def test_a_token_of_another_prefix_is_not_taken_for_ours():
    token = bound("prepended", prefix="cust").mint(Value("Ann"), 1, 2).text
    assert bound("prepended", prefix="cust").identify(token) == (1, 2)
    assert bound("prepended").identify(token) is None
    assert bound("opaque").identify(token[4:]) == (1, 2)


@pytest.mark.parametrize("prefix", ["a1", "a b", "é", "x" * 17])
def test_a_prefix_is_letters(prefix):
    with pytest.raises(ValueError, match="prefix"):
        make_shape("prepended", {"prefix": prefix})
