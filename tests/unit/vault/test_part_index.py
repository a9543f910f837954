from unicodedata import normalize

import pytest

from proxy.crypto.prf import hasher
from proxy.errors import Code, VaultError
from proxy.model.schema import Field, Schema, Storage
from proxy.storage.changes import Reindex
from proxy.tokenization.normalize import folded
from proxy.vault.body import RecordBody, TokenizedValue
from proxy.vault.part_index import LONGEST, CollectedParts, PartIndex, grams
from tests.support.table import table


def test_a_text_that_occurs_has_all_its_grams_in_the_other() -> None:
    assert grams(folded("GLOBAL")) <= grams(folded("A global search"))
    assert grams("ab") == set()
    assert grams("abc") == {"abc"}


@table(("one", "other"), [("Straße", "STRASSE"), ("Ａnn", "ann"), ("e\u0301", "É"), (" x ", "X")])
def test_letter_case_and_composition_do_not_matter(one: str, other: str) -> None:
    assert folded(one) == folded(other)


def part_index(length: int = 256) -> PartIndex:
    return PartIndex(hasher(b"k" * 32), length)


@table("text", ["", "ab", "abc", "ann ek", "x" * 40, "annabel " * 9, "é" * 256])
def test_texts_of_one_class_have_the_same_number_of_entries(text: str) -> None:
    size = len(part_index().entries(text))
    assert size in (8, 16, 32, 64, 128, 256)
    assert size >= len(grams(text))
    assert size == 8 or size < 2 * len(grams(text)) or len(grams(text)) < len(text) - 2


@table("text", ["annabel ek", "a somewhat longer text, with more of its parts"])
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
    # to fold all others, which stay one character, takes a hundred times as long
    longer = [one for one in letters if len(normalize("NFKD", one.casefold())) > 1]
    assert max(len(folded(letter)) for letter in longer) == 18


def test_a_text_that_folding_makes_longer_than_its_field_is_found_by_long_parts() -> None:
    text = folded("ﷺ" * 30)
    index = part_index(30)
    assert len(grams(folded("0123456789" * 6))) < len(text)
    entries = index.entries(text)
    assert any(entries.issuperset(one) for one in index.alternatives(text[5:400]))


def collected() -> CollectedParts:
    fields = (Field("name", storage=Storage.INDEXED_HASHED, partial_match=True), Field("note"))
    return CollectedParts(
        lambda *names: hasher("/".join(names).encode().ljust(32)), Schema("p", fields)
    )


def body(name: str, *names: str, note: str = "") -> RecordBody:
    values = [TokenizedValue(1, text, False, "t", False) for text in (name, *names)]
    return RecordBody(
        {"name": tuple(values), "note": (TokenizedValue(2, note, False, "u", False),)}
    )


def test_of_what_is_collected_only_fields_searched_in_part_have_entries() -> None:
    parts = collected()
    assert parts.hashes(body("Ann Ek", note="x")) == parts.hashes(body("ann ek", note="y"))
    assert parts.hashes(body("Ann", "Bob")) == parts.hashes(body("Ann")) | parts.hashes(body("Bob"))
    assert not CollectedParts(lambda *_: hasher(b"k" * 32), Schema("p", (Field("name"),))).names


def test_a_change_moves_the_entries_that_only_one_version_has() -> None:
    parts = collected()
    before, after = body("Ann Ek"), body("Bob Ek")
    (change,) = parts.moves(7, before, after)
    assert isinstance(change, Reindex)
    assert change.rid == 7
    assert set(change.add) == parts.hashes(after)
    assert set(change.drop) == parts.hashes(before) - parts.hashes(after)
    assert parts.moves(7, before, before) == []


def test_a_text_too_long_to_be_searched_in_part_is_refused_without_being_told() -> None:
    with pytest.raises(VaultError) as caught:
        collected().check(body("y" * (LONGEST + 1)))
    assert caught.value.code is Code.VALUE_UNFIT
    assert "yy" not in caught.value.message
