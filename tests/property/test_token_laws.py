"""What holds for tokens of every value, not only of samples."""

import json
import re
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.tokenization import FIELD_KINDS, make_shape
from proxy.tokenization.base import Tokenizer
from proxy.tokenization.normalize import normalize, read_date
from tests.support.effort import examples
from tests.support.shapes import bound, is_email, luhn_by_hand, only_digits, same_form

RIDS = st.integers(0, 2**64 - 1)
NUMBERS = st.integers(0, 2**32 - 1)
TEXTS = st.text(max_size=40)
SEALED = ("opaque", "lower", "prepended", "email", "uuid")
ANY_TEXT = (*SEALED, "template")

WRITTEN = st.from_regex(r"\+?[0-9]{1,4}([ \-./()]{0,2}[0-9]{1,4}){1,8}", fullmatch=True)
CARDS = st.from_regex(r"[1-9][0-9]{6,17}", fullmatch=True).map(
    lambda body: next(body + check for check in "0123456789" if luhn_by_hand(body + check))
)
DATES = st.builds(
    lambda day, form: day.strftime(form),
    st.dates(),
    st.sampled_from(
        [
            "%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y%m%d", "%Y-%m-%dT10:20:30Z",
            "%d-%m-%Y 10:20",
        ]
    ),
).filter(lambda text: read_date(text) is not None)  # fmt: skip
DATED = re.compile(r"[0-9]")


def of(name: str, kind: str = "text", **options: Any) -> Tokenizer:
    """A shape that takes any text, with the options it cannot do without."""
    needed = {"template": "PP-[A-Z0-9]{9}"} if name == "template" else {}
    return bound(name, kind, **needed, **options)


# ------------------------------------------------------------------ sealed tokens


@pytest.mark.parametrize("name", SEALED)
@given(text=TEXTS, rid=RIDS, number=NUMBERS)
def test_identify_undoes_mint(name, text, rid, number):
    tokenizer = bound(name)
    token = tokenizer.mint(Value(text), rid, number)
    assert token.text != text
    assert tokenizer.identify(token.text) == (rid, number)
    assert bound(name, field="sibling").identify(token.text) == (rid, number)


@pytest.mark.parametrize("name", SEALED)
@given(one=st.tuples(RIDS, NUMBERS), other=st.tuples(RIDS, NUMBERS))
def test_tokens_of_two_places_never_meet(name, one, other):
    assume(one != other)
    tokenizer = bound(name)
    assert tokenizer.mint(Value("v"), *one) != tokenizer.mint(Value("v"), *other)


@pytest.mark.parametrize("name", SEALED)
@given(data=st.data())
def test_look_alikes_are_refused(name, data):
    tokenizer = bound(name)
    look_alike = data.draw(st.from_regex(tokenizer.pattern, fullmatch=True))
    assert tokenizer.resembles(look_alike)
    assert tokenizer.identify(look_alike) is None


@pytest.mark.parametrize("name", SEALED)
@given(text=st.text(max_size=60))
def test_any_text_can_be_asked_about(name, text):
    tokenizer = bound(name)
    assert tokenizer.identify(text) is None
    assert tokenizer.resembles(text) in {True, False}


# ------------------------------------------------------------------ same-value tokens


@examples(600)
@given(name=st.sampled_from(ANY_TEXT), kind=st.sampled_from(sorted(FIELD_KINDS)), text=TEXTS)
def test_same_agrees_on_equal_normal_forms(name, kind, text):
    tokenizer = of(name, kind, same=True)
    token = tokenizer.mint(Value(text), 1, 1)
    assert token.text != text
    assert tokenizer.mint(Value(normalize(kind, text, "se")), 2, 2) == token
    assert tokenizer.mint(Value(f"\t{text} "), 3, 3) == token


@pytest.mark.parametrize("name", ANY_TEXT)
@given(one=TEXTS, other=TEXTS)
def test_same_tells_different_values_and_fields_apart(name, one, other):
    assume(normalize("text", one) != normalize("text", other))
    tokenizer, elsewhere = of(name, same=True), of(name, field="elsewhere", same=True)
    assert tokenizer.mint(Value(one), 1, 1) != tokenizer.mint(Value(other), 1, 1)
    assert elsewhere.mint(Value(one), 1, 1) != tokenizer.mint(Value(one), 1, 1)


def injective(tokenize: Callable[[str], str], one: str, other: str) -> None:
    assert (tokenize(one) == tokenize(other)) == (
        normalize("number", one) == normalize("number", other)
    )


@given(one=WRITTEN, other=WRITTEN, first=st.integers(0, 3), last=st.integers(0, 3))
@example("046701234567", "046701234560", 0, 0)
@example("00123456", "01123456", 0, 0)
def test_different_numbers_never_share_a_same_token(one, other, first, last):
    tokenizer = bound("numeric", "number", same=True, keep_first=first, keep_last=last)
    for text in (one, other):
        assume(len(only_digits(text)) > first + last + 1)
    injective(lambda text: tokenizer.mint(Value(text), 1, 1).text, one, other)


@given(one=CARDS, other=CARDS, first=st.integers(0, 2), last=st.integers(0, 3))
@example("79927398713", "79927398721", 0, 0)
def test_different_cards_never_share_a_same_token(one, other, first, last):
    tokenizer = bound("luhn", "number", same=True, keep_first=first, keep_last=last)
    injective(lambda text: tokenizer.mint(Value(text), 1, 1).text, one, other)


def test_every_number_of_a_small_space_keeps_its_own_token():
    tokenizer = bound("numeric", "number", same=True, keep_first=1, keep_last=1)
    values = [f"7{middle:03d}1" for middle in range(1000)]
    tokens = {tokenizer.mint(Value(value), 1, 1).text for value in values}
    assert len(tokens) == 1000
    assert tokens == set(values)  # a permutation of what there is, so nothing was left out


# ------------------------------------------------------------------ digits and dates


@given(text=WRITTEN, first=st.integers(0, 4), last=st.integers(0, 4), same=st.booleans())
def test_numeric_swaps_digits_and_nothing_else(text, first, last, same):
    digits = only_digits(text)
    assume(len(digits) > first + last)
    tokenizer = bound("numeric", "number", same=same, keep_first=first, keep_last=last)
    token = tokenizer.mint(Value(text), 1, 1)
    swapped = only_digits(token.text)
    assert token.text != text
    assert same_form(token.text, text)
    assert swapped[:first] == digits[:first]
    assert swapped[len(digits) - last :] == digits[len(digits) - last :]
    if len(digits) - first - last > 1:
        assert (swapped[first] == "0") == (digits[first] == "0")
    assert tokenizer.resembles(token.text)
    free = len(digits) - first - last
    assert tokenizer.indexed(token) == (free - (digits[first] == "0" and free > 1) >= 6)


@given(card=CARDS, first=st.integers(0, 2), last=st.integers(0, 4), same=st.booleans())
def test_luhn_holds(card, first, last, same):
    token = (
        bound("luhn", "card", same=same, keep_first=first, keep_last=last)
        .mint(Value(card), 1, 1)
        .text
    )
    assert luhn_by_hand(token)
    assert len(token) == len(card)
    assert token[:first] == card[:first]
    assert token[len(card) - last :] == card[len(card) - last :]
    assert token != card


@given(
    number=st.one_of(
        st.integers(-(10**18), 10**18), st.decimals(-(10**9), 10**9, places=2).map(str)
    ),
    same=st.booleans(),
)
def test_a_json_number_stays_one(number, same):
    source = str(number)
    token = bound("numeric", "number", same=same).mint(Value(source, json=True), 1, 1)
    assert token.json
    json.loads(token.text)
    assert same_form(token.text, source)
    assert token.text != source


@given(text=DATES, same=st.booleans())
def test_a_date_gives_a_date_in_the_same_manner(text, same):
    token = bound("date", "date", same=same).mint(Value(text), 1, 1).text
    value, swapped = read_date(text), read_date(token)
    assert value is not None
    assert swapped is not None
    assert DATED.sub("9", token) == DATED.sub("9", text)
    assert swapped.zone == value.zone
    assert token != text
    if value.either:
        assert swapped.either  # whichever way the application reads it, it is a date


@given(text=TEXTS, domain=st.sampled_from(["example.org", "mail.example.net"]), same=st.booleans())
def test_mail_tokens_parse(text, domain, same):
    token = bound("email", "email", same=same, domain=domain).mint(Value(text), 1, 1).text
    assert is_email(token)
    assert token.endswith("@" + domain)


# ------------------------------------------------------------------ everything


def refusal_of(tokenizer: Tokenizer, text: str) -> VaultError | None:
    try:
        assert tokenizer.mint(Value(text), 1, 1).text != text
    except VaultError as error:
        return error
    return None


@pytest.mark.parametrize("name", ["numeric", "luhn", "date", "mask", "zero", "one"])
@given(text=st.text(min_size=4, max_size=40))
def test_whatever_the_text_there_is_another_or_a_refusal_that_does_not_show_it(name, text):
    tokenizer = bound(name)
    refusal = refusal_of(tokenizer, text)
    if refusal is not None:
        # A text may happen to be a word of the sentence; it is shown when the sentence has it for
        # this text alone.
        others = [
            refusal_of(tokenizer, other)
            for other in ("Ж", "", "*", "0", "1", "1" * 57, "4111111111111112")
        ]
        assert refusal.code is Code.VALUE_UNFIT
        assert text not in refusal.message or any(
            other and text in other.message for other in others
        )


@pytest.mark.parametrize("kind", FIELD_KINDS)
@given(text=TEXTS)
def test_a_normal_form_is_its_own(kind, text):
    once = normalize(kind, text, "se")
    assert normalize(kind, once, "se") == once
    assert unicodedata.is_normalized("NFKC", once)
    assert once == once.strip()


@given(
    alphabet=st.sampled_from(["A-Z", "0-9a-f", "xyz-", "éè"]),
    count=st.integers(1, 40),
    constant=st.text("PQ-./# ", max_size=5),
)
def test_a_template_gives_what_it_says(alphabet, count, constant):
    shape = make_shape("template", {"template": f"{constant}[{alphabet}]{{{count}}}"})
    tokenizer = bound("template", template=f"{constant}[{alphabet}]{{{count}}}")
    token = tokenizer.mint(Value("Ann"), 1, 1).text
    assert re.fullmatch(re.escape(constant) + f"[{alphabet}]{{{count}}}", token)
    assert shape.capacity() == float(
        len(set(re.findall(f"[{alphabet}]", "".join(map(chr, range(256)))))) ** count
    )
