import pytest

from proxy.redactor.jsonpath import parse_jsonpath
from proxy.redactor.load.ids import selectors_overlap, selects_many


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("$.a", "$.a"),
        ("$.a", "$.a.b"),
        ("$.a", "$.A"),
        ("$", "$.a"),
        ("$.t[*]", "$.t[0]"),
        ("$.t[*].a", "$.t[3].a"),
        ("$.*", "$.a"),
        ("$.*.b", "$.a"),
        ("$..a", "$.a"),
        ("$..a", "$.x[*].a"),
        ("$..a", "$..a"),
        ("$.x..a", "$..y.a"),
        ("$..['a']", "$.b.c.a"),
    ],
)
def test_selectors_that_can_select_the_same_place_overlap(one, other):
    assert selectors_overlap(parse_jsonpath(one), parse_jsonpath(other))
    assert selectors_overlap(parse_jsonpath(other), parse_jsonpath(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("$.a", "$.b"),
        ("$.t[0]", "$.t[1]"),
        ("$.t[*]", "$.t.a"),
        ("$.*", "$[0]"),
        ("$..a", "$.b"),
        ("$..a", "$..b"),
        ("$.a.b", "$.a.c"),
        ("$.*", "$[*]"),
    ],
)
def test_selectors_of_different_places_do_not(one, other):
    assert not selectors_overlap(parse_jsonpath(one), parse_jsonpath(other))
    assert not selectors_overlap(parse_jsonpath(other), parse_jsonpath(one))


@pytest.mark.parametrize(
    ("text", "many"),
    [("$.a[0]", False), ("$", False), ("$.a[*]", True), ("$.*", True), ("$..a", True)],
)
def test_wildcards_and_descent_select_many(text, many):
    assert selects_many(parse_jsonpath(text)) is many
