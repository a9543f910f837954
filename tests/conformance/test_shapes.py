"""One contract over every token shape."""

import re
from collections import Counter
from typing import Final

import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.tokenization import DEFAULT_SHAPE, FIELD_KINDS, PERSISTENT, SHAPES, SYNONYMS, make_shape
from proxy.tokenization.base import Resolution, Tokenizer
from tests.conformance.test_parser_costs import LONGEST, SIZE, thread_seconds
from tests.support.shapes import KEYSET, SAMPLES, Sample, bound
from tests.support.table import table

CONSTANT = {"fixed", "mask", "zero", "one", "plain"}
TAKES_JSON = {"opaque", "lower", "prepended", "fixed", "plain"}
SECRET = "Zäzilie-4711-Quux"

every_sample = table("sample", SAMPLES)
drawn_samples = table("sample", [s for s in SAMPLES if s.shape not in CONSTANT])
every_shape = table("name", SHAPES)


def bind(sample: Sample, field: str = "field", same: bool = False) -> Tokenizer:
    options = {**sample.options, "same": True} if same else sample.options
    return bound(sample.shape, sample.kind, field=field, **options)


def first_sample(name: str) -> Sample:
    return next(sample for sample in SAMPLES if sample.shape == name)


# ------------------------------------------------------------------ the registry


@every_shape
def test_every_shape_has_a_sample_and_says_its_own_name(name):
    shape = make_shape(name, first_sample(name).options)
    assert shape.name == name
    assert shape.same is False
    assert shape.capacity() >= 1


def test_every_kind_has_a_default_shape_that_takes_no_options():
    assert DEFAULT_SHAPE.keys() == FIELD_KINDS.keys()
    for kind, name in DEFAULT_SHAPE.items():
        assert bound(name, kind).resolution is make_shape(name, {}).resolution


def test_synonyms_lead_to_shapes_and_persistent_ones_are_same():
    for synonym, name in SYNONYMS.items():
        assert make_shape(synonym, {}).name == name
        assert make_shape(synonym, {}).same is False
    for synonym, name in PERSISTENT.items():
        shape = make_shape(synonym, first_sample(name).options)
        assert (shape.name, shape.same) == (name, True)


def test_an_unknown_shape_names_those_that_there_are():
    with pytest.raises(ValueError, match="opaque, lower"):
        make_shape("opaqe", {})


@every_shape
def test_every_option_is_described_and_an_unknown_one_is_refused_by_name(name):
    parser = SHAPES[name]
    assert all(len(about) > 10 for about in parser.options.values())
    with pytest.raises(ValueError, match="'colour'") as caught:
        parser({**first_sample(name).options, "colour": 1})
    assert all(option in str(caught.value) for option in parser.options)


@table("name, option", [(name, option) for name in SHAPES for option in SHAPES[name].options])
@table("bad", [None, [], {}, -1, ""])
def test_an_option_of_the_wrong_type_is_refused_by_name(name, option, bad):
    if (name, option, bad) == ("fixed", "value", -1):
        assert make_shape(name, {option: bad}).name == "fixed"  # a number may stand for every value
        return
    with pytest.raises(ValueError, match=option):
        make_shape(name, {**first_sample(name).options, option: bad})


# ------------------------------------------------------------------ tokens


@every_sample
@table("same", [False, True])
def test_tokens_have_the_syntax_of_their_shape_and_are_never_the_value(sample, same):
    if same and "same" not in SHAPES[sample.shape].options:
        return
    tokenizer = bind(sample, same=same)
    for text in sample.values:
        for number in range(20):
            token = tokenizer.mint(Value(text), 9, number)
            assert sample.fits(token.text, text), token
            assert token.json is False
            assert sample.shape == "plain" or token.text != text
            assert tokenizer.resembles(token.text) or sample.shape in {"plain", "one"}


@drawn_samples
def test_random_tokens_of_one_value_differ(sample):
    tokenizer = bind(sample)
    tokens = Counter(
        tokenizer.mint(Value(sample.values[0]), 9, number).text for number in range(20)
    )
    assert len(tokens) >= (19 if tokenizer.resolution is not Resolution.BY_RECORD else 10)


@drawn_samples
def test_same_tokens_agree_and_those_of_other_values_and_fields_differ(sample):
    one, again, elsewhere = (
        bind(sample, same=True),
        bind(sample, same=True),
        bind(sample, "other", same=True),
    )
    assert one.same
    for text in sample.values:
        token = one.mint(Value(text), 1, 1)
        assert again.mint(Value(text), 2, 2) == one.mint(Value(f" {text} "), 0, 0) == token
        assert elsewhere.mint(Value(text), 1, 1) != token
    assert len({one.mint(Value(text), 1, 1) for text in sample.values}) == len(sample.values)


@drawn_samples
def test_same_shapes_never_carry_a_record_and_say_how_they_are_found(sample):
    tokenizer = bind(sample, same=True)
    assert tokenizer.resolution in {Resolution.INDEXED, Resolution.BY_RECORD}
    token = tokenizer.mint(Value(sample.values[0]), 9, 9)
    assert tokenizer.identify(token.text) is None
    assert tokenizer.indexed(token) == (tokenizer.resolution is Resolution.INDEXED)


@every_sample
def test_a_token_says_its_record_if_its_shape_is_sealed_and_only_then(sample):
    tokenizer = bind(sample)
    for number, text in enumerate(sample.values):
        rid = 2**62 + 1 + number
        token = tokenizer.mint(Value(text), rid, number)
        sealed = tokenizer.resolution is Resolution.SEALED
        assert tokenizer.identify(token.text) == ((rid, number) if sealed else None)
        assert tokenizer.identify(token.text + "x") is None
        assert tokenizer.identify(" " + token.text) is None
        assert tokenizer.identify("") is None
        assert not (sealed and tokenizer.indexed(token))


@every_sample
def test_tokens_are_found_in_running_text_at_word_borders(sample):
    tokenizer = bind(sample)
    token = tokenizer.mint(Value(sample.values[0]), 5, 6).text
    if tokenizer.resolution not in {Resolution.SEALED, Resolution.INDEXED}:
        return
    for before, behind in (
        ("", ""),
        ("Dear ", ", hello"),
        ("<b>", "</b>"),
        ('"', '"'),
        ("id=", "&x=1"),
        ("Å", "ö."),
    ):
        found = tokenizer.pattern.search(before + token + behind)
        assert found is not None, (before, behind)
        assert found[0] == token
    if tokenizer.resolution is Resolution.SEALED:
        assert tokenizer.pattern.search(f"x{token}") is None
        assert tokenizer.pattern.search(f"{token}x") is None


# ------------------------------------------------------------------ JSON and values that do not fit


@every_shape
@table("source", ["true", '{"a": [1]}', "[1, 2]"])
def test_other_json_is_taken_as_a_text_token_or_refused(name, source):
    sample = first_sample(name)
    tokenizer = bind(sample)
    if name in TAKES_JSON:
        token = tokenizer.mint(Value(source, json=True), 1, 1)
        assert token == Value(source, json=True) if name == "plain" else token.json is False
        return
    with pytest.raises(VaultError) as caught:
        tokenizer.mint(Value(source, json=True), 1, 1)
    assert caught.value.code is Code.VALUE_UNFIT


@table(
    ("name", "source", "expected"),
    [
        ("numeric", "46701234567", r"[1-9][0-9]{10}"),
        ("numeric", "-12345678.50", r"-[1-9][0-9]{7}\.[0-9]{2}"),
        ("numeric", "0.25000001", r"0\.[0-9]{8}"),
        ("numeric", "7", r"[0-9]"),
        ("luhn", "4111111111111111", r"[1-9][0-9]{15}"),
        ("zero", "4711", "0"),
        ("one", "-3.5", "1"),
    ],
)
def test_json_numbers_stay_json_numbers(name, source, expected):
    for options in ({}, {"same": True}) if "same" in SHAPES[name].options else ({},):
        tokenizer = make_shape(name, options).bind(
            KEYSET.field_keys("contact", "field"), "text", "se"
        )
        for _ in range(50):
            token = tokenizer.mint(Value(source, json=True), 1, 1)
            assert token.json is True
            assert re.fullmatch(expected, token.text), token.text
            assert token.text != source


@table("name", ["email", "uuid", "template", "date", "mask"])
def test_shapes_of_text_refuse_json_numbers(name):
    with pytest.raises(VaultError) as caught:
        bind(first_sample(name)).mint(Value("4711", json=True), 1, 1)
    assert caught.value.code is Code.VALUE_UNFIT


@table(
    ("name", "kind", "values"),
    [
        ("numeric", "phone", (SECRET, "call 4711", "", "+", "x" * 200, "1" * 57)),
        ("luhn", "card", (SECRET, "4111111111111112", "0", "", "43")),
        ("date", "date", (SECRET, "1980-02-30", "28/13/1980", "28.2.80", "yesterday", "")),
        ("mask", "text", ("", "--", "***")),
        ("zero", "text", ("0", "00-00")),
        ("one", "text", ("1",)),
    ],
)
def test_what_does_not_fit_is_refused_without_showing_it(name, kind, values):
    for options in ({}, {"same": True}) if "same" in SHAPES[name].options else ({},):
        tokenizer = make_shape(name, options).bind(
            KEYSET.field_keys("contact", "field"), kind, "se"
        )
        for value in values:
            with pytest.raises(VaultError) as caught:
                tokenizer.mint(Value(value), 1, 1)
            assert caught.value.code is Code.VALUE_UNFIT
            assert name in caught.value.message
            assert len(value) < 3 or value not in caught.value.message
            assert caught.value.details == ()


@every_sample
def test_a_value_that_is_its_own_token_never_stays_as_it_is(sample):
    if sample.shape == "plain":
        return
    for same in (False, True) if "same" in SHAPES[sample.shape].options else (False,):
        tokenizer = bind(sample, same=same)
        token = tokenizer.mint(Value(sample.values[0]), 3, 4)
        refusal = None
        try:
            assert tokenizer.mint(Value(token.text), 3, 4).text != token.text
        except VaultError as error:
            refusal = error
        if refusal is not None:  # either is right: another token, or a refusal
            assert refusal.code is Code.VALUE_UNFIT
            assert len(token.text) < 3 or token.text not in refusal.message


@table("name", SHAPES)
def test_look_alikes_of_sealed_tokens_are_not_taken_for_ours(name):
    tokenizer = bind(first_sample(name))
    if tokenizer.resolution is not Resolution.SEALED:
        return
    token = tokenizer.mint(Value("Ann"), 3, 4).text
    for place, character in enumerate(token):
        for other in "0a9ZkB-@":
            if other != character:
                assert tokenizer.identify(token[:place] + other + token[place + 1 :]) is None


#: A text sixteen times as long may take sixteen times as long, and again as much; were it the
#: square, it would be two hundred times.
_LONGER: Final = 16
_RUNS: Final = [
    " ", "0", "0 ", "a", "A0", "1-", "1-1-", "1980-", "a.", "a@", "+", "\n", "-", "'", "\u200b",
    "é", "[a]", "PP-",
]  # fmt: skip


@table("sample", SAMPLES)
def test_tokens_are_looked_for_in_a_time_that_grows_with_the_text_and_not_with_its_square(sample):
    pattern = bound(sample.shape, sample.kind, **sample.options).pattern

    def search(text: str) -> None:
        list(pattern.finditer(text))

    for run in _RUNS:
        short = (run * SIZE)[: SIZE - 1] + "!"
        least = min(thread_seconds(search, short) for _ in range(3))
        long = (run * SIZE * _LONGER)[: SIZE * _LONGER - 1] + "!"
        most = max(10 * LONGEST, 3 * _LONGER * least)
        assert min(thread_seconds(search, long) for _ in range(3)) < most, repr(run)
