import re

import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.tokenization import (
    DTK_FORMAT,
    PERSISTENT,
    SHAPES,
    SYNONYMS,
    Rehasher,
    strategy,
    strategy_names,
)
from tests.support.shapes import KEYSET
from tests.support.table import table

KEY = "k3yA" * 24


def maker(
    name: str, options: dict[str, object] | None = None, *, dtk: str = KEY, field: str = "key1"
) -> Rehasher:
    return strategy(name, options or {}).bind(KEYSET.rehash_keys(dtk, "records", field), "SE")


#: A value that fits, and options that it needs, where a common text will not do.
VALUES: dict[str, tuple[str, dict[str, object]]] = {
    "email": ("Ann@Example.com", {}),
    "numeric": ("0701234567", {}),
    "luhn": ("4111 1111 1111 1111", {}),
    "date": ("1980-02-28", {}),
    "template": ("Ann Lee", {"template": "PP-[A-Z0-9]{13}"}),
    "fixed": ("Ann Lee", {"value": "gone"}),
}


@table("name", strategy_names())
def test_every_strategy_makes_another_value(name: str) -> None:
    shape = PERSISTENT.get(name, SYNONYMS.get(name, name))
    value, options = VALUES.get(shape, ("Ann Lee", {}))
    made = maker(name, options)(Value(value))
    assert (made.text == value) == (shape == "plain")


def test_every_token_shape_is_there_under_our_name_and_those_of_the_service() -> None:
    assert set(strategy_names()) == {*SHAPES, *SYNONYMS, *PERSISTENT}
    assert {
        "alphaNumeric",
        "alphaNumericLowerCase",
        "alphaPrepended",
        "masking",
        "alphaNumericPersistent",
    } <= set(strategy_names())


@table("name", PERSISTENT)
def test_persistent_strategies_are_functions_of_key_field_and_normal_form(name: str) -> None:
    value, options = VALUES.get(PERSISTENT[name], ("Ann Lee", {}))
    first = maker(name, options)(Value(value))
    assert maker(name, options)(Value(value)) == first
    assert maker(name, options, dtk="k3yB" * 24)(Value(value)) != first
    assert maker(name, options, field="key2")(Value(value)) != first
    assert maker(name, options)(Value(f" {value} ")).text.strip() == first.text


@table("name", ["alphaNumeric", "uuid", "email", "lower"])
def test_other_strategies_are_random_and_carry_no_record(name: str) -> None:
    make = maker(name)
    tokens = {make(Value("ann@example.com")).text for _ in range(50)}
    assert len(tokens) == 50


def test_which_values_are_equal_is_a_matter_of_the_kind() -> None:
    assert maker("emailPersistent")(Value("ANN@x.se")) == maker("emailPersistent")(
        Value("ann@x.se")
    )
    assert maker("alphaNumericPersistent")(Value("ANN")) != maker("alphaNumericPersistent")(
        Value("ann")
    )
    folded: dict[str, object] = {"kind": "email"}
    assert maker("alphaNumericPersistent", folded)(Value("ANN")) == maker(
        "alphaNumericPersistent", folded
    )(Value("ann"))
    phone: dict[str, object] = {"kind": "phone"}
    assert maker("numericPersistent", phone)(Value("070-123 45 67")) == maker(
        "numericPersistent", phone
    )(Value("+46701234567"))


def test_a_mask_has_a_type() -> None:
    assert maker("masking", {"type": "alphanumeric"})(Value("AB-12")).text == "**-**"
    assert maker("masking", {"type": "numeric"})(Value("AB-12")).text == "AB-**"


def test_only_large_tokens_are_findable() -> None:
    assert maker("alphaNumeric").findable(Value("x"))
    assert maker("emailPersistent").findable(Value("x@example.org"))
    assert not maker("date").findable(Value("1980-02-28"))
    assert not maker("masking").findable(Value("****"))
    assert maker("numeric").findable(Value("123456789"))
    assert not maker("numeric").findable(Value("123"))


@table(
    ("name", "options", "told"),
    [
        ("ann@example.com", {}, "there is no strategy of this name; there are alphaNumeric,"),
        ("alphaNumeric", {"same": True}, "end in Persistent"),
        ("alphaNumeric", {"colour": 1}, "'colour'"),
        ("alphaNumeric", {"kind": "shoe"}, "kind is one of text"),
        ("alphaNumeric", {"kind": 1}, "kind is one of text"),
        ("template", {}, "template"),
        ("masking", {"type": "letters"}, "alphanumeric"),
    ],
)
def test_what_is_wrong_is_told(name: str, options: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        strategy(name, options)


def test_a_value_that_does_not_fit_is_refused_without_being_shown() -> None:
    with pytest.raises(VaultError) as caught:
        maker("luhn")(Value("Zäzilie"))
    assert caught.value.code is Code.VALUE_UNFIT
    assert "Zäzilie" not in str(caught.value)


def test_the_key_of_a_caller_is_96_letters_and_digits() -> None:
    assert DTK_FORMAT.fullmatch("aZ09" * 24)
    assert not DTK_FORMAT.fullmatch("aZ09" * 23)
    assert not DTK_FORMAT.fullmatch("aZ0-" * 24)
