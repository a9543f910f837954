from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from tests.support.shapes import bound, same_form


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


@pytest.mark.parametrize("json", [False, True])
def test_one_digit_alone_has_its_own_same_token(json):
    tokenizer = bound("numeric", "number", same=True, keep_last=2)
    values = [f"{digit}12" for digit in ("123456789" if json else "0123456789")]
    tokens = [tokenizer.mint(Value(value, json), 1, 1).text for value in values]
    assert sorted(tokens) == values
    assert all(token != value for token, value in zip(tokens, values, strict=True))


@pytest.mark.parametrize(
    "text",
    [
        "+46 70-123 45 67",
        "(070) 123.45/67",
        "\u202a+46\u00a070\u202f12\u201334\u202c",
        "12:34,5;6#7*8'9_0",
        " 123456 ",
    ],
)
def test_what_stands_between_digits_stays(text):
    assert same_form(mint(text), text)


def test_digits_of_other_scripts_become_ascii_ones():
    token = mint("٤٧-१२३", keep_last=1)
    assert token.isascii()
    assert token[2] == "-"
    assert token[-1] == "3"


@pytest.mark.parametrize("text", ["", "+", "ab", "12a", "12 ½", "①", "💩1", "1" * 57])
def test_other_text_does_not_fit(text):
    with pytest.raises(VaultError) as caught:
        mint(text)
    assert caught.value.code is Code.VALUE_UNFIT


@pytest.mark.parametrize("text", ["1e5", "1E400", "true", "[1]", '"1"'])
def test_json_that_is_no_plain_number_does_not_fit(text):
    with pytest.raises(VaultError) as caught:
        mint(text, json=True)
    assert caught.value.code is Code.VALUE_UNFIT


def test_where_all_digits_are_kept_nothing_can_take_their_place():
    with pytest.raises(VaultError) as caught:
        mint("1234", keep_first=2, keep_last=2)
    assert "no digits left" in caught.value.message


@pytest.mark.parametrize(
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
