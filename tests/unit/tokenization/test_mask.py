import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import VaultError
from proxy.model.schema import Value
from proxy.tokenization import FIELD_KINDS, make_shape
from proxy.tokenization.mask import (
    DEFAULT_MASK,
    LONGEST_MASKED,
    TYPES,
    Visible,
    field_mask,
    mask_text,
)
from tests.support.shapes import bound
from tests.support.table import table


@table(
    ("kind", "value", "token"),
    [
        ("text", "secret note", "****** ****"),
        ("name", "Åsa Öd", "Å** **"),
        ("email", "Ann@Example.com", "A**@Example.com"),
        ("phone", "+46 70-123 45 67", "+** **-*** ** 67"),
        ("date", "1980-02-28", "1980-**-**"),
        ("date", "28.02.1980", "**.**.1980"),
        ("date", "19800228", "1980****"),
        ("card", "4111 1111 1111 1234", "**** **** **** 1234"),
        ("number", "4711", "****"),
    ],
)
def test_every_kind_has_a_mask_that_fits_it(kind, value, token):
    tokenizer = bound("mask", kind)
    assert tokenizer.mint(Value(value), 1, 1) == Value(token)
    assert tokenizer.resembles(token)
    assert not tokenizer.resembles(value)


def test_there_is_a_mask_for_every_kind():
    assert DEFAULT_MASK.keys() == FIELD_KINDS.keys()


@table(
    ("text", "visible", "masked"),
    [
        ("A", Visible(first=1), "*"),
        ("AB", Visible(first=1, last=1), "**"),
        ("ABC", Visible(first=1, last=1), "A*C"),
        ("ABC", Visible(last=5), "***"),
        ("A@b.se", Visible(first=1, domain=True), "*@b.se"),
        ("@b.se", Visible(domain=True), "@*.**"),
        ("a@b@c.se", Visible(domain=True), "*@*@c.se"),
        ("no address", Visible(domain=True), "** *******"),
        ("1980", Visible(year=True), "****"),
        ("1980-02-30", Visible(year=True), "****-**-**"),
        ("1980-02-28T10:20", Visible(year=True), "1980-**-*****:**"),
        ("日本語", Visible(first=1), "日**"),
        ("a😀b", Visible(), "***"),
    ],
)
def test_at_least_one_character_is_masked(text, visible, masked):
    assert mask_text(text, visible, "*") == masked


def test_an_option_replaces_the_mask_of_the_kind_and_a_character_alone_does_not():
    assert bound("mask", "email", last=1).mint(Value("ann@x.se"), 1, 1).text == "***@*.*e"
    assert bound("mask", "email", char="#").mint(Value("ann@x.se"), 1, 1).text == "a##@x.se"


@table("char", ["**", " ", "\n", "\x00"])
def test_a_mask_character_is_one_that_can_be_seen(char):
    with pytest.raises(ValueError, match="char"):
        make_shape("mask", {"char": char})


@table(
    ("kind", "masked"),
    [
        ("alphanumeric", "** **-*"), ("alphabetic", "4* 7*-*"), ("numeric", "*B *x-é"),
        ("all", "** ****"),
    ],
)  # fmt: skip
def test_a_type_says_which_characters_are_masked(kind, masked):
    assert bound("mask", "text", type=kind).mint(Value("4B 7x-é"), 1, 1).text == masked


def test_a_type_leaves_the_mask_of_the_kind_in_force():
    assert (
        bound("mask", "phone", type="numeric").mint(Value("+46 70-123 45 67"), 1, 1).text
        == "+** **-*** ** 67"
    )


def test_an_unknown_type_names_those_that_there_are():
    with pytest.raises(ValueError, match="alphanumeric, alphabetic, numeric, all"):
        make_shape("masking", {"type": "letters"})


def plainly(text: str, visible: Visible, character: str, kind: str) -> str:
    """``mask_text`` character by character, of what is no date."""
    head, at, domain = text.rpartition("@") if visible.domain and "@" in text else (text, "", "")
    places = [place for place, one in enumerate(head) if TYPES[kind](one)]
    if not places:
        return "".join(character if TYPES[kind](one) else one for one in text)
    if len(places) > visible.first + visible.last:
        places = places[visible.first : len(places) - visible.last]
    return (
        "".join(character if place in places else one for place, one in enumerate(head))
        + at
        + domain
    )


@given(
    st.text(st.sampled_from("aZ1½٣Å .-@_\n\u2003\U0001f600") | st.characters(), max_size=12),
    st.builds(Visible, st.integers(0, 3), st.integers(0, 3), st.booleans()),
    st.sampled_from("*01x"),
    st.sampled_from(sorted(TYPES)),
)
def test_a_mask_is_what_it_is_character_by_character(text, visible, character, kind):
    assert mask_text(text, visible, character, kind) == plainly(text, visible, character, kind)


def test_a_long_value_is_masked_at_the_speed_of_the_machine_and_a_longer_one_does_not_fit():
    def best(work, text: str) -> float:
        times = []
        for _ in range(3):
            began = time.thread_time()
            work(text)
            times.append(time.thread_time() - began)
        return min(times)

    text = "1" * LONGEST_MASKED
    quick = best(lambda one: mask_text(one, Visible(1, 2), "*"), text)
    slow = best(lambda one: "".join([sign for sign in one if not sign.isspace()]), text)
    assert quick < slow
    with pytest.raises(VaultError):
        bound("mask", "phone").mint(Value(text + "1"), 1, 1)


@table(
    ("kind", "text", "shown"),
    [
        ("name", "Ann Lind", "A** ****"),
        ("name", "A", "*"),
        ("name", "?!", "***"),
        ("email", "ann@example.com", "a**@example.com"),
        ("date", "1980-02-29", "1980-**-**"),
        ("date", "soon", "****"),
        ("card", "4111 1111 1111 1234", "**** **** **** 1234"),
        ("text", "", "***"),
        ("text", "x" * (LONGEST_MASKED + 1), "***"),
    ],
)
def test_what_people_see_in_place_of_a_value_goes_by_its_kind_and_never_is_the_value(
    kind, text, shown
):
    assert field_mask(kind).of(text) == shown


def test_a_field_may_say_what_its_mask_leaves_readable():
    assert field_mask("name", {"last": 1, "char": "•"}).of("Ann") == "••n"
    assert field_mask("name", {"char": "#"}).of("Ann") == "A##"
    for wrong in ({"char": "x"}, {"char": "7"}, {"char": "**"}, {"first": -1}):
        with pytest.raises(ValueError, match=r"char|first"):
            field_mask("name", wrong)
