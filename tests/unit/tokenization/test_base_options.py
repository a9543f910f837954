import pytest

from proxy.tokenization.base import Parser, ShapeOptions
from tests.support.table import table


def given(**options: object) -> ShapeOptions:
    return ShapeOptions("luhn", options)


def test_options_that_are_absent_have_their_defaults():
    assert given().flag("same") is False
    assert given().count("keep_last") == 0
    assert given().text("domain", "example.org") == "example.org"


def test_options_that_are_there_are_read():
    assert given(same=True).flag("same") is True
    assert given(keep_last=4).count("keep_last") == 4
    assert given(domain="x.se").text("domain", "example.org") == "x.se"


@table("bad", [1, "true", None])
def test_a_flag_is_true_or_false(bad):
    with pytest.raises(ValueError, match="same of token shape luhn is true or false"):
        given(same=bad).flag("same")


@table("bad", [True, -1, 1.0, "4", None])
def test_a_count_is_a_whole_number(bad):
    with pytest.raises(ValueError, match="keep_last of token shape luhn is a whole number"):
        given(keep_last=bad).count("keep_last")


@table("bad", ["", 5, None])
def test_a_text_is_not_empty(bad):
    with pytest.raises(ValueError, match="domain of token shape luhn is a text"):
        given(domain=bad).text("domain", "x")


def test_an_unknown_option_is_answered_with_those_that_there_are():
    def build(given: ShapeOptions):
        raise AssertionError("built of an unknown option")

    with pytest.raises(ValueError, match="'size'; it takes same, keep_last"):
        Parser("luhn", {"same": "…", "keep_last": "…"}, build)({"size": 1})
    with pytest.raises(ValueError, match="it takes no options"):
        Parser("one", {}, build)({"size": 1})
