from decimal import Decimal

from proxy.vault.records.columns import leaf, leaves
from tests.support.table import table


def test_every_scalar_is_told_with_its_place() -> None:
    found = list(leaves({"a": {"b": 1}, "c": ["x", {"d": None}]}))
    assert found == [
        (("a", "b"), 1, False),
        (("c",), "x", True),
        (("c", 0), "x", False),
        (("c", 1, "d"), None, False),
    ]


@table(
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
