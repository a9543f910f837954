import json

from hypothesis import given
from hypothesis import strategies as st

from proxy.redactor.json.text import escapes, fold_name, loose_name, needle, without_format
from tests.support.table import table


@table("other", ["EMAIL", "Email", "ema\u0131l", "EMA\u0130L"])
def test_letter_case_and_dotted_letters_fold_away(other):
    assert fold_name(other) == fold_name("email")


def test_signs_that_are_letters_fold_to_them_and_different_names_stay_different():
    assert fold_name("\u212aey") == fold_name("key")
    assert fold_name("\u017ftrasse") == fold_name("STRAßE")
    assert fold_name("e-mail") != fold_name("email")
    assert fold_name("é") != fold_name("e")


@given(st.text(max_size=8))
def test_a_needle_is_the_name_as_json_without_needless_escapes(name):
    if all(char >= " " for char in name):
        assert json.loads(needle(name)) == name
        assert needle(name) == json.dumps(name, ensure_ascii=False).encode()


@given(st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=3), st.data())
def test_no_escaped_spelling_of_a_name_escapes_notice(names, data):
    name = data.draw(st.sampled_from(names))
    at = data.draw(st.integers(0, len(name) - 1))
    units = name[at].encode("utf-16-be")
    escaped = "".join(f"\\u{units[i]:02x}{units[i + 1]:02X}" for i in range(0, len(units), 2))
    assert json.loads(f'"{escaped}"') == name[at]
    assert escapes(names).search(f'{{"{name[:at]}{escaped}":1}}'.encode())


def test_escapes_that_no_plain_name_needs_are_passed_by():
    assert not escapes(["email", "first_name"]).search(rb'{"x":"\u00e9\n\"\u0414"}')
    assert escapes(["straße"]).search(rb'{"x":"\u00e9"}')
    assert escapes(["a/b"]).search(rb'{"x":"\n"}')


def test_signs_of_no_width_are_left_out():
    assert without_format("plain") == "plain"
    assert without_format("\ufeffE\u200bmäil\u00ad \u2060") == "Emäil "


def test_letters_of_another_width_or_style_are_the_usual_ones():
    for name in ("ｅmail", "Ｅ＿Ｍａｉｌ", "𝐞mail", "emaⁱl", "\ufeffemail", "ema\u200bil"):
        assert loose_name(name) == "email"
    assert loose_name("e\u0308mail") == loose_name("ëmail") == "ëmail"
