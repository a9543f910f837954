import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from proxy.redactor import form

PATTERN = st.text(alphabet="ab*", max_size=5)
WORDS = ["".join(letters) for size in range(7) for letters in itertools.product("ab", repeat=size)]


def test_a_star_stands_for_anything_and_brackets_for_themselves():
    fits = form.compiled("filter[*][email]").fullmatch
    assert fits("filter[0][email]")
    assert fits("filter[][email]")
    assert not fits("filter0email")
    assert not fits("filter[0][email]x")


def test_a_plain_name_weighs_more_than_any_pattern_and_a_longer_pattern_more_than_a_shorter():
    names = ["*", "email_*", "email", "email_home_*"]
    assert sorted(names, key=form.pattern_weight, reverse=True) == [
        "email",
        "email_home_*",
        "email_*",
        "*",
    ]


@given(PATTERN, PATTERN)
def test_patterns_overlap_exactly_when_some_word_fits_both(one, other):
    common = any(
        form.compiled(one).fullmatch(word) and form.compiled(other).fullmatch(word)
        for word in WORDS
    )
    if len(one) + len(other) <= 6 or "*" not in one + other:
        assert form.patterns_overlap(one, other) == common
    elif common:
        assert form.patterns_overlap(one, other)


@given(PATTERN)
def test_a_pattern_fits_what_a_plain_expression_fits(pattern):
    plain = re.compile(".*".join(pattern.split("*")))
    for word in WORDS:
        assert (form.compiled(pattern).fullmatch(word) is None) == (plain.fullmatch(word) is None)


def test_many_stars_take_no_longer_on_a_long_name_that_does_not_fit():
    assert form.compiled("*a*a*a*a*a*a*a*b").fullmatch("a" * 10_000) is None
