import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.tokenization import make_shape
from proxy.tokenization.base import Resolution, Tokenizer
from proxy.tokenization.fallback import TOTAL, with_fallback
from tests.support.shapes import KEYSET
from tests.support.table import table

UNFIT = ["n/a", "ext 3", "-", "1987-04", "", "x" * 300, "日本語"]


def bound(first: str, other: str = "opaque", kind: str = "text", **options: object) -> Tokenizer:
    shape = with_fallback(
        make_shape(first, options), make_shape(other, {"same": True} if options.get("same") else {})
    )
    return shape.bind(KEYSET.field_keys("contact", "phone"), kind, "se")


@table("other", TOTAL)
@table(
    "first, kind", [("numeric", "phone"), ("date", "date"), ("luhn", "card"), ("email", "email")]
)
@table("same", [False, True])
def test_every_value_gets_a_token_that_is_not_the_value(first, kind, other, same):
    tokenizer = bound(first, other, kind, same=same)
    for number, text in enumerate(UNFIT, 1):
        for value in (Value(text), Value("true", json=True), Value("1e5", json=True)):
            token = tokenizer.mint(value, 7, number)
            assert token.text != value.text
            assert tokenizer.resembles(token.text)
            assert tokenizer.pattern.search(f"a {token.text} b") is not None


def test_a_value_that_fits_keeps_its_format():
    tokenizer = bound("numeric", kind="phone", keep_last=2)
    token = tokenizer.mint(Value("070-123 45 67"), 1, 1).text
    assert (len(token), token[3], token[-2:]) == (13, "-", "67")
    assert tokenizer.identify(token) is None
    assert tokenizer.mint(Value("ext 3"), 1, 1).text.isalnum()


def test_a_token_of_the_second_format_leads_back_to_its_record_and_is_in_the_index_where_the_first_has_one():
    for first, resolution in (("numeric", Resolution.INDEXED), ("date", Resolution.BY_RECORD)):
        tokenizer = bound(first)
        token = tokenizer.mint(Value("n/a"), 7, 3)
        assert tokenizer.identify(token.text) == (7, 3)
        assert tokenizer.resolution is resolution
        assert tokenizer.indexed(token) == (resolution is Resolution.INDEXED)


def test_spellings_of_one_value_have_one_token_in_whichever_format():
    tokenizer = bound("numeric", kind="phone", same=True)
    spellings = ["+46 70 123 45 67", "070-123 45 67", "070‑1234567", "tel:070 123 45 67"]
    assert len({tokenizer.mint(Value(text), 1, 1).text for text in spellings}) == 1
    assert tokenizer.mint(Value("n/a"), 1, 1) == tokenizer.mint(Value(" n/a"), 2, 2)
    assert tokenizer.mint(Value("n/a"), 1, 1) != tokenizer.mint(Value("none"), 1, 1)


@table(
    ("first", "other", "words"),
    [
        ("opaque", "lower", "leave it out"),
        ("plain", "opaque", "leave it out"),
        ("numeric", "date", "any form"),
    ],
)
def test_what_would_do_nothing_or_not_help_is_no_fallback(first, other, words):
    with pytest.raises(ValueError, match=words):
        with_fallback(make_shape(first, {}), make_shape(other, {}))


def test_other_faults_than_an_unfit_value_are_not_hidden(monkeypatch):
    tokenizer = bound("numeric")

    def broken(*_: object) -> Value:
        raise VaultError(Code.INTERNAL, "broken")

    monkeypatch.setattr(type(tokenizer.first), "mint", broken)  # type: ignore[attr-defined]  # the fallback, which the port does not name
    with pytest.raises(VaultError, match="broken"):
        tokenizer.mint(Value("n/a"), 1, 1)
