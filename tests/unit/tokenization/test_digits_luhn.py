import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.tokenization import make_shape
from proxy.tokenization.digits import luhn_holds, mend_luhn
from tests.support.shapes import bound, luhn_by_hand, only_digits

#: Published test numbers of the card schemes.
CARDS = [
    "4111111111111111",
    "5555555555554444",
    "378282246310005",
    "6011111111111117",
    "3530111333300000",
    "30569309025904",
]


@pytest.mark.parametrize("card", CARDS)
def test_published_test_numbers_pass_and_their_neighbours_do_not(card):
    assert luhn_holds(card)
    assert not luhn_holds(card[:-1] + str((int(card[-1]) + 1) % 10))
    assert not luhn_holds("")
    assert not luhn_holds("0")


@pytest.mark.parametrize("place", range(16))
def test_mending_any_one_place_makes_the_check_hold(place):
    for last in "0123456789":
        digits = list("401288888888188" + last)
        before = digits.copy()
        mend_luhn(digits, place)
        assert luhn_by_hand("".join(digits))
        assert digits[:place] + digits[place + 1 :] == before[:place] + before[place + 1 :]


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("same", [False, True])
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


@pytest.mark.parametrize("card", ["4111111111111112", "abcd", "", "0", "4111 1111 1111 111x"])
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
