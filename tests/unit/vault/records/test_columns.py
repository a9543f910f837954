from decimal import Decimal

import pytest

from proxy.vault.records.columns import folded, grams, leaf, leaves


def test_a_text_that_occurs_has_all_its_grams_in_the_other() -> None:
    assert grams(folded("GLOBAL")) <= grams(folded("A global search"))
    assert grams("ab") == set()
    assert grams("abc") == {"abc"}


@pytest.mark.parametrize(
    ("one", "other"), [("Straße", "STRASSE"), ("Ａnn", "ann"), ("e\u0301", "É"), (" x ", "X")]
)
def test_letter_case_and_composition_do_not_matter(one: str, other: str) -> None:
    assert folded(one) == folded(other)


def test_every_scalar_is_told_with_its_place() -> None:
    found = list(leaves({"a": {"b": 1}, "c": ["x", {"d": None}]}))
    assert found == [
        (("a", "b"), 1, False),
        (("c",), "x", True),
        (("c", 0), "x", False),
        (("c", 1, "d"), None, False),
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, Decimal("1.0")),
        (100, Decimal("1E+2")),
        (0, Decimal("-0.0")),
        ("e\u0301", "é"),
        (-5, Decimal("-5.000")),
    ],
)
def test_equal_values_have_equal_leaves(one: object, other: object) -> None:
    assert leaf(("a",), one, False) == leaf(("a",), other, False)


def test_other_values_places_and_roles_have_other_leaves() -> None:
    made = [
        leaf(at, value, inside)
        for at in (("a",), ("a", 0), ("a", "0"), ("b",))
        for value in (1, "1", "1e0", True, None, "true", Decimal("1.5"), -1, 10, "")
        for inside in (False, True)
    ]
    assert len(set(made)) == len(made)


def test_a_huge_exponent_stays_a_short_leaf() -> None:
    assert len(leaf(("a",), Decimal("1E+400000"), False)) < 50
