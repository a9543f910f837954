from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.tokenization import make_shape
from proxy.tokenization.base import Resolution
from proxy.tokenization.digits import luhn_holds, mend_luhn
from tests.support.shapes import bound, luhn_by_hand, only_digits, same_form
from tests.support.table import table


def mint(text: str, *, json: bool = False, **options: Any) -> str:
    return bound("numeric", "number", **options).mint(Value(text, json), 1, 1).text


def test_every_place_takes_every_digit_it_may():
    seen = [set(place) for place in zip(*[mint("5050505") for _ in range(400)], strict=True)]
    assert seen[0] == set("123456789")
    assert all(place == set("0123456789") for place in seen[1:])


def test_a_leading_zero_stays_one_and_the_next_digit_is_free():
    tokens = [mint("070 123") for _ in range(300)]
    assert {token[0] for token in tokens} == {"0"}
    assert {token[1] for token in tokens} == set("0123456789")


def test_one_digit_alone_becomes_any_other():
    for digit in "0123456789":
        assert {mint(digit) for _ in range(200)} == set("0123456789") - {digit}


def test_one_digit_that_leads_a_json_number_never_becomes_zero():
    assert {mint("512", json=True, keep_last=2) for _ in range(200)} == {
        f"{digit}12" for digit in "12346789"
    }


@table("json", [False, True])
def test_one_digit_alone_has_its_own_same_token(json):
    tokenizer = bound("numeric", "number", same=True, keep_last=2)
    values = [f"{digit}12" for digit in ("123456789" if json else "0123456789")]
    tokens = [tokenizer.mint(Value(value, json), 1, 1).text for value in values]
    assert sorted(tokens) == values
    assert all(token != value for token, value in zip(tokens, values, strict=True))


@table(
    "text",
    [
        "+46 70-123 45 67", "(070) 123.45/67", "\u202a+46\u00a070\u202f12\u201334\u202c",
        "12:34,5;6#7*8'9_0", " 123456 ",
    ],
)  # fmt: skip
def test_what_stands_between_digits_stays(text):
    assert same_form(mint(text), text)


def test_digits_of_other_scripts_become_ascii_ones():
    token = mint("٤٧-१२३", keep_last=1)
    assert token.isascii()
    assert token[2] == "-"
    assert token[-1] == "3"


@table("text", ["", "+", "ab", "12a", "12 ½", "①", "💩1", "1" * 57])
def test_other_text_does_not_fit(text):
    with pytest.raises(VaultError) as caught:
        mint(text)
    assert caught.value.code is Code.VALUE_UNFIT


@table("text", ["1e5", "1E400", "true", "[1]", '"1"'])
def test_json_that_is_no_plain_number_does_not_fit(text):
    with pytest.raises(VaultError) as caught:
        mint(text, json=True)
    assert caught.value.code is Code.VALUE_UNFIT


def test_where_all_digits_are_kept_nothing_can_take_their_place():
    with pytest.raises(VaultError) as caught:
        mint("1234", keep_first=2, keep_last=2)
    assert "no digits left" in caught.value.message


@table(
    ("token", "kept", "indexed"),
    [("123456", 0, True), ("12345", 0, False), ("1234567", 1, True), ("123456", 1, False), ("0123456", 0, True),
     ("012345", 0, False), ("abc", 0, False), ("", 0, False)],
)  # fmt: skip
def test_six_swapped_digits_are_enough_to_be_found_by(token, kept, indexed):
    assert bound("numeric", "number", keep_last=kept).indexed(Value(token)) is indexed


def test_texts_that_look_like_numbers_resemble_tokens():
    tokenizer = bound("numeric")
    assert tokenizer.resembles("+46 (70) 12-34")
    assert tokenizer.resembles("-1.5")
    for text in ("", "+", "call 12", "12a"):
        assert not tokenizer.resembles(text)


def test_numbers_are_found_in_running_text():
    text = "Call +46 70-123 45 67, (070) 12, or room 12b; ref 0815, 4711\n-1.5."
    found = ["+46 70-123 45 67", "(070) 12", "0815", "4711", "-1.5"]
    assert bound("numeric").pattern.findall(text) == found


#: Published test numbers of the card schemes.
CARDS = [
    "4111111111111111", "5555555555554444", "378282246310005", "6011111111111117",
    "3530111333300000", "30569309025904",
]  # fmt: skip


@table("card", CARDS)
def test_published_test_numbers_pass_and_their_neighbours_do_not(card):
    assert luhn_holds(card)
    assert not luhn_holds(card[:-1] + str((int(card[-1]) + 1) % 10))
    assert not luhn_holds("")
    assert not luhn_holds("0")


@table("place", range(16))
def test_mending_any_one_place_makes_the_check_hold(place):
    for last in "0123456789":
        digits = list("401288888888188" + last)
        before = digits.copy()
        mend_luhn(digits, place)
        assert luhn_by_hand("".join(digits))
        assert digits[:place] + digits[place + 1 :] == before[:place] + before[place + 1 :]


@table("card", CARDS)
@table("same", [False, True])
def test_kept_digits_stay_and_the_check_holds(card, same):
    token = bound("luhn", "card", keep_first=1, keep_last=4, same=same).mint(Value(card), 1, 1).text
    assert (token[0], token[-4:]) == (card[0], card[-4:])
    assert luhn_by_hand(token)


def test_spaces_stay_where_they_are_in_random_tokens_and_go_in_same_ones():
    value = Value("4111 1111-1111 1111")
    random, same = (
        bound("luhn", "card").mint(value, 1, 1).text,
        bound("luhn", "card", same=True).mint(value, 1, 1).text,
    )
    assert (random[4], random[9], random[14]) == (" ", "-", " ")
    assert luhn_by_hand(only_digits(random))
    assert same == bound("luhn", "card", same=True).mint(Value("4111111111111111"), 2, 2).text


@table("card", ["4111111111111112", "abcd", "", "0", "4111 1111 1111 111x"])
def test_what_is_no_card_number_does_not_fit(card):
    with pytest.raises(VaultError) as caught:
        bound("luhn", "card").mint(Value(card), 1, 1)
    assert caught.value.code is Code.VALUE_UNFIT


def test_one_digit_beside_the_mended_one_must_be_left():
    tokenizer = bound("luhn", "card", keep_first=12, keep_last=3)
    with pytest.raises(VaultError) as caught:
        tokenizer.mint(Value(CARDS[0]), 1, 1)
    assert "no digits left" in caught.value.message


def test_a_mended_digit_does_not_count_towards_being_found():
    token = Value(CARDS[0])
    assert bound("luhn", "card", keep_first=5, keep_last=4).indexed(token)
    assert not bound("luhn", "card", keep_first=6, keep_last=4).indexed(token)


def test_the_capacity_is_that_of_sixteen_digits():
    assert make_shape("luhn", {}).capacity() == pytest.approx(9e14)
    assert make_shape("luhn", {"keep_first": 6, "keep_last": 4}).capacity() == pytest.approx(9e4)
    assert make_shape("luhn", {"keep_last": 16}).capacity() == 1


def test_spellings_of_one_telephone_number_have_one_same_token_in_e164():
    tokenizer = bound("numeric", "phone", same=True)
    tokens = {
        tokenizer.mint(Value(text), 1, 1).text
        for text in ("070-123 45 67", "+46 70 123 45 67", "0046701234567")
    }
    assert len(tokens) == 1
    (token,) = tokens
    assert token.startswith("+")
    assert len(token) == len("+46701234567")


def test_kept_digits_of_a_same_token_are_those_of_the_normal_form():
    token = (
        bound("numeric", "phone", same=True, keep_first=2, keep_last=3)
        .mint(Value("070-123 45 67"), 1, 1)
        .text
    )
    assert token[:3] == "+46"
    assert token[-3:] == "567"


def test_an_extension_is_swapped_like_the_rest():
    token = bound("numeric", "phone", same=True).mint(Value("070-123 45 67 #12"), 1, 1).text
    assert token.index("#") == len("+46701234567")


def test_kind_number_keeps_the_form_also_in_same_tokens():
    token = bound("numeric", "number", same=True).mint(Value("(212) 555-0123"), 1, 1).text
    assert (token[0], token[4:6], token[9]) == ("(", ") ", "-")


def test_the_capacity_is_that_of_ten_digits():
    assert make_shape("numeric", {}).capacity() == pytest.approx(9e9)
    assert make_shape("numeric", {"keep_first": 2, "keep_last": 2}).capacity() == pytest.approx(9e5)
    assert make_shape("numeric", {"keep_last": 10}).capacity() == 1
    assert make_shape("numeric", {}).resolution is Resolution.INDEXED
