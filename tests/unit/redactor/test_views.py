from proxy.model.schema import Value
from proxy.redactor.load.parsers import parse_selector
from proxy.redactor.views import (
    OUTSIDE_VIEW,
    UNKNOWN_VIEW,
    FieldView,
    Level,
    View,
    roles_in,
    view_of,
)
from proxy.tokenization.mask import Mask, Visible
from tests.support.table import table

SALES = View("sales", frozenset({"sales"}), {"p": {"name": Level.CLEAR, "phone": Level.MASK}})
BOTH = View("sales|dpo", frozenset({"sales", "dpo"}), {"p": {"name": Level.CLEAR}})
MASKS = {"name": Mask(), "phone": Mask(Visible(last=2)), "note": Mask()}


def test_the_first_view_that_names_a_role_counts_and_nobody_else_has_one():
    views = (SALES, BOTH)
    assert view_of(views, {"dpo", "sales"}) is SALES
    assert view_of(views, {"dpo"}) is BOTH
    assert view_of(views, {"Sales", "other"}) is UNKNOWN_VIEW
    assert view_of(views, frozenset()) is UNKNOWN_VIEW


def test_fields_are_shown_clear_masked_or_as_tokens_and_what_is_not_named_as_tokens():
    shown = FieldView(SALES, "p", MASKS)
    assert (set(shown.hidden), set(shown.masks), shown.clear) == ({"note"}, {"phone"}, False)
    assert shown.visible("name", Value("Ann")) == Value("Ann")
    assert shown.visible("phone", Value("0701")) == Value("**01")
    assert shown.visible("phone", Value("")) == Value("")
    assert shown.visible("note", Value("x")) is None
    assert [shown.covers(name) for name in MASKS] == [False, True, True]
    assert FieldView(SALES, "another", MASKS).hidden == MASKS.keys()
    assert FieldView(
        View("a", frozenset("a"), {"p": dict.fromkeys(MASKS, Level.CLEAR)}), "p", MASKS
    ).clear


def test_callers_outside_are_told_apart():
    assert FieldView(OUTSIDE_VIEW, "p", MASKS).outside
    assert not FieldView(UNKNOWN_VIEW, "p", MASKS).outside


@table(
    ("claims", "selector", "roles"),
    [
        ({"roles": ["a", "b c"]}, "$.roles", {"a", "b c"}),
        ({"scope": "openid  sales"}, "$.scope", {"openid", "sales"}),
        ({"realm": {"roles": ["a"]}}, "$.realm.roles", {"a"}),
        ({"apps": [{"role": "a"}, {"role": "b"}, {}]}, "$.apps[*].role", {"a", "b"}),
        ({"apps": {"x": {"role": "a"}}}, "$.apps.*.role", {"a"}),
        ({"apps": [{"role": "a"}, {"role": "b"}]}, "$.apps[1].role", {"b"}),
        ({"https://x.example/roles": ["a"]}, "$['https://x.example/roles']", {"a"}),
        ({"roles": ["a", 1]}, "$.roles", set()),
        ({"roles": {"a": True}}, "$.roles", set()),
        ({"roles": None}, "$.roles", set()),
        ({}, "$.roles", set()),
        ({"roles": "a"}, "$.roles.deep", set()),
    ],
)
def test_roles_are_the_texts_of_a_list_or_the_words_of_a_text(claims, selector, roles):
    assert roles_in(claims, parse_selector(selector)) == roles


def test_of_very_many_roles_a_thousand_are_read():
    assert len(roles_in({"roles": [f"r{number}" for number in range(5000)]}, ("roles",))) == 1000
