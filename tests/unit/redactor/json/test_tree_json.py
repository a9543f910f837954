import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.redactor.json import tree
from proxy.redactor.message import CODECS, Media


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'""', Value("")),
        ('"é \u2028"'.encode(), Value("é \u2028")),
        (rb'"\u0041\ud83d\ude00\n\/\u0000"', Value("A😀\n/\0")),
        (b"null", None),
        (b"1.0", Value("1.0", json=True)),
        (b"-1E+400", Value("-1E+400", json=True)),
        (b"true", Value("true", json=True)),
        (b'{"a" : [null]}', Value('{"a" : [null]}', json=True)),
        (b"[ ]", Value("[ ]", json=True)),
    ],
)
def test_a_value_is_read_and_what_is_no_string_keeps_its_spelling(raw, value):
    assert tree.read_json_value(raw) == value
    assert tree.read_json_value(memoryview(raw)) == value


def test_half_a_surrogate_pair_is_ambiguous_and_not_told():
    with pytest.raises(VaultError) as caught:
        tree.read_json_value(rb'"Quentin\ud800"')
    assert caught.value.code is Code.AMBIGUOUS_JSON
    assert "Quentin" not in caught.value.message
    assert caught.value.__context__ is None


def test_text_is_written_with_only_the_escapes_that_json_demands():
    assert tree.write_json_value(Value("é\u2028\x7f/😀")) == '"é\u2028\x7f/😀"'.encode()
    assert tree.write_json_value(Value('"\\\n\t\x01')) == rb'"\"\\\n\t\u0001"'


def test_other_json_is_written_as_it_was_spelled():
    assert tree.write_json_value(Value("1.50", json=True)) == b"1.50"
    assert tree.write_json_value(Value('{"é" : 1}', json=True)) == '{"é" : 1}'.encode()


def test_text_that_is_no_unicode_is_unfit_and_not_told():
    with pytest.raises(VaultError) as caught:
        tree.write_json_value(Value("Quentin\ud800"))
    assert caught.value.code is Code.VALUE_UNFIT
    assert "Quentin" not in caught.value.message
    assert caught.value.__context__ is None


@pytest.mark.parametrize("media", CODECS)
def test_every_registered_codec_reads_what_it_writes(media):
    codec = CODECS[media]
    for text in ("", "Ann & Söhne = 100 %", "a+b\n\0"):
        assert codec.read(codec.write(Value(text))) == Value(text)


def test_each_kind_of_texts_behind_one_another_has_a_codec():
    assert set(CODECS) == {Media.JSON, Media.FORM, Media.MULTIPART}
