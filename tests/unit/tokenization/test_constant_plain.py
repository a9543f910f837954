import math

from proxy.model.schema import Value
from proxy.tokenization import make_shape
from proxy.tokenization.base import Resolution
from tests.support.shapes import bound


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
