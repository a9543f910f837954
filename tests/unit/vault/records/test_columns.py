from decimal import Decimal

import pytest

from proxy.crypto.prf import hasher
from proxy.vault.records.columns import PartIndex, folded, grams, leaf, leaves


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


def part_index(length: int = 256) -> PartIndex:
    return PartIndex(hasher(b"k" * 32), length)


@pytest.mark.parametrize("text", ["", "ab", "abc", "ann ek", "x" * 40, "annabel " * 9, "é" * 256])
def test_texts_of_one_class_have_the_same_number_of_entries(text: str) -> None:
    size = len(part_index().entries(text))
    assert size in (8, 16, 32, 64, 128, 256)
    assert size >= len(grams(text))
    assert size == 8 or size < 2 * len(grams(text)) or len(grams(text)) < len(text) - 2


@pytest.mark.parametrize("text", ["annabel ek", "a somewhat longer text, with more of its parts"])
def test_every_part_of_a_text_leads_to_it(text: str) -> None:
    index = part_index()
    entries = index.entries(text)
    for start in range(len(text) - 2):
        for end in range(start + 3, len(text) + 1):
            assert any(entries.issuperset(one) for one in index.alternatives(text[start:end]))


def test_parts_share_entries_and_are_elsewhere_in_another_group() -> None:
    index = part_index()
    ends = range(1000)
    found = set().union(*(index.entries(f"name {end}") for end in ends))
    assert len(found) <= 16 * 8 * 20
    assert len({min(one) for one in index.alternatives("nam")}) == 16 * 3 + 8


def test_more_is_never_asked_than_narrows() -> None:
    assert max(map(len, part_index().alternatives("one text with many parts"))) == 8


def test_entries_stay_where_a_field_may_be_longer_than_before() -> None:
    for text in ("annabel ek", folded("ﷺ" * 30)):
        assert part_index(30).entries(text) == part_index(300).entries(text)


def test_folding_makes_no_more_of_a_character_than_there_are_classes_for() -> None:
    letters = (chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    assert max(len(folded(letter)) for letter in letters) == 18


def test_a_text_that_folding_makes_longer_than_its_field_is_found_by_long_parts() -> None:
    text = folded("ﷺ" * 30)
    index = part_index(30)
    assert len(grams(folded("0123456789" * 6))) < len(text)
    entries = index.entries(text)
    assert any(entries.issuperset(one) for one in index.alternatives(text[5:400]))
