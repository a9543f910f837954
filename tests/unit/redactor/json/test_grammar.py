import json
import random

import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import PathStep
from proxy.redactor.json import grammar
from proxy.redactor.json.text import (
    is_utf8,
    lone_surrogate,
    mask_escapes,
    replace_surrogates,
    skip_space,
    standard,
)
from proxy.redactor.json.walk import walk
from tests.support.table import table


@table(
    "text",
    [
        "0", "-0", "10", "1.5", "-1e5", "1E+05", "1.0e-1", '""', r'"\"\\\/\b\f\n\r\t\u00eA"', '"é"',
        "true", "null",
    ],
)  # fmt: skip
def test_a_scalar_is_matched_whole(text):
    match = grammar.SCALAR.match(mask_escapes(text.encode()))
    assert match
    assert match.end() == len(text.encode())


@table(
    "text",
    [
        "", "+1", ".5", "-", "-a", '"', '"\n"', r'"\x"', r'"\u12"', '"\\"', "True", "nul", "'a'",
        "[", "NaN",
    ],
)  # fmt: skip
def test_anything_else_is_no_scalar(text):
    assert not grammar.SCALAR.match(mask_escapes(text.encode()))


@table("text", ["01", "1.", "1e", "1.5.5", "--1"])
def test_a_number_that_goes_on_wrongly_is_not_matched_whole(text):
    match = grammar.SCALAR.match(mask_escapes(text.encode()))
    assert match is None or match.end() < len(text)


@table(
    "text",
    [
        "{}", "[ ]", "[1]", '{"a":1}', '{"a" : 1 , "b":[]}', '[1,"]",{"x":"}"}, [[2]] ,3]',
        '[[],[],{"a":{},"b":1,"c":[1,2]}]',
    ],
)  # fmt: skip
@table("times", [1, 31, 32, 33, 501, 502, 1500])
def test_a_container_is_stepped_over_however_long(text, times):
    for many in (
        text,
        f"[{','.join([text] * times)}]",
        f'{{"a":{text}' + f',"a":{text}' * times + "}",
    ):
        assert grammar.skip(many.encode() + b"]", 0, 64, 64) == len(many)
        with pytest.raises(VaultError):
            grammar.skip(many[:-1].encode() + b",]", 0, 64, 64)


@table("text", ["[1,2 ,3]", '[{"a":[1]},[{}]]'])
def test_what_stands_before_and_behind_is_not_touched(text):
    body = f"  {text}]".encode()
    assert grammar.skip(body, 2, 64, 64) == 2 + len(text)


@table(
    "text",
    [
        "[", "[1", "[1,]", "[,1]", "[1 2]", '{"a"}', '{"a":}', "{a:1}", '{"a":1,}', '{"a":1 "b":2}',
        "[1}", '{"a":[}', "[01]",
    ],
)  # fmt: skip
def test_a_broken_container_is_unreadable(text):
    with pytest.raises(VaultError) as caught:
        grammar.skip(text.encode(), 0, 64, 64)
    assert caught.value.code is Code.MALFORMED_JSON


def test_room_is_counted_from_the_container_itself():
    assert grammar.skip(b"[[[]],[]]", 0, 3, 9) == 9
    with pytest.raises(VaultError) as caught:
        grammar.skip(b"[[[]],[]]", 0, 2, 9)
    assert caught.value.code is Code.TOO_LARGE
    assert "9 levels" in caught.value.message
    deep = b"[" * 100_000 + b"]" * 100_000
    assert grammar.skip(deep, 0, 100_000, 100_000) == 200_000


@table(
    ("text", "lone"),
    [
        (r"\ud83d\ude00", False),
        (r"\uD83D\uDE00\u0041\n", False),
        (r"\\ud800", False),
        (r"\ud800", True),
        (r"\udc00", True),
        (r"\ud800\ud800\udc00", True),
        (r"\ud83d\ude00\ude00", True),
        (r"\ud800x", True),
        (r"\ud800\u0041", True),
        ("é😀", False),
    ],
)
def test_half_a_surrogate_pair_is_seen(text, lone):
    raw = f'["\\ud800", "{text}"]'.encode()
    start = raw.index(b' "')
    assert lone_surrogate(raw, start, len(raw)) is lone
    assert any("\ud800" <= char <= "\udfff" for char in json.loads(f'"{text}"')) is lone


def test_utf8_is_checked_strictly():
    assert is_utf8(b"abc")
    assert is_utf8("é😀".encode())
    for bad in (b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe2\x82"):
        assert not is_utf8(bad)


@table("shift", range(5))
def test_characters_on_the_borders_of_pieces_are_whole(shift):
    text = ("x" * shift + "é€😀" * 12_000).encode()
    assert is_utf8(text)
    for bad in (text[:-1], text[:65_000] + b"\x80" + text[65_000:], text + b"\xe2\x82"):
        assert not is_utf8(bad)


def test_space_and_runs_of_scalars_end_where_they_end():
    assert skip_space(b" \t\r\n\x0c", 0) == 4
    assert skip_space(b"x", 0) == 0
    assert grammar.run_end(grammar.SCALAR_RUN, b'[1, "]" ,null,[2],3]', 2) == 13
    assert grammar.run_end(grammar.SCALAR_RUN, b"[1]", 2) == 2


def test_one_separator_and_one_name_stand_between_values():
    assert grammar.one_name(b'{ "a" : ')
    assert grammar.one_name(rb' ,"\u0061\"":')
    assert not grammar.one_name(b',"a":1,"b":')
    assert not grammar.one_name(rb',"a\",":"b":')
    assert not grammar.one_name(b'"a":')


def test_escapes_are_masked_and_nothing_else_moves():
    assert mask_escapes(b"plain") == b"plain"
    assert (
        mask_escapes(rb'"\"\\\/\b\n\u00eA\\u0041\\"')
        == b'"__________' + b"______" + b"__u0041__" + b'"'
    )
    assert mask_escapes(rb'"\x\u12g4\"') == rb'"\x\u12g4__'


def test_halves_of_surrogate_pairs_are_mended_in_place():
    assert (
        replace_surrogates(rb'"\ud800\ud83d\ude00\\ud800\udc00x"')
        == rb'"\ufffd\ud83d\ude00\\ud800\ufffdx"'
    )


def test_the_names_of_an_object_come_decoded_in_order_and_with_repetition():
    body = rb'{"a" : [{"b":1}], "\u0061":"}", "\"" :{"c":{"d":[[]]}} ,"":null}'
    assert list(grammar.names_of(body)) == ["a", "a", '"', ""]
    assert list(grammar.names_of(b"{ }")) == []


@pytest.mark.parametrize("piece", [7, 8, 13, 40])
def test_long_texts_are_read_piece_by_piece_with_the_same_outcome(monkeypatch, piece):
    chance = random.Random(piece)
    escapes = [b"\\", b"u", b"n", b'"', b"0", b"a", b"\\u0041", b"\\\\", b"x"]
    texts = [b"".join(chance.choices(escapes, k=chance.randrange(1, 60))) for _ in range(500)]
    values = (
        1,
        -12.5e10,
        True,
        "x" * 50,
        'a\\"b\n',
        {"a": [1.5e300, "x" * 20]},
        [[], [-0.5e-7] * 20],
        None,
    )
    documents = [
        json.dumps([chance.choices(values, k=9), {"b": chance.choice(values)}]).encode()
        for _ in range(100)
    ]
    documents += [body[: chance.randrange(len(body))] + b"9" for body in documents]

    def outcomes() -> list[object]:
        found: list[object] = [mask_escapes(one) for one in texts]
        for body in documents:
            try:
                found.append(walk((PathStep.EACH,), (("b",), (PathStep.EACH,)), (), body, 20))
            except VaultError as error:
                found.append((error.code, str(error)))
        return found

    at_once = outcomes()
    monkeypatch.setattr(grammar, "_PIECE", piece)

    assert outcomes() == at_once


@table(
    "body, read",
    [
        (b'\xef\xbb\xbf{"a": 1}', b'   {"a": 1}'),
        (
            b'{"a": NaN, "b": [Infinity,-Infinity], "c":NaN}',
            b'{"a": 0.0, "b": [0.000000,-0.000000], "c":0.0}',
        ),
        (b'{"NaN": "NaN, Infinity", "a": "x\\": NaN"}', None),
        (b'{"a": 1NaN, "b": NaNs, "c": xInfinity}', None),
        (b'{"a": "\\\\", "b": NaN}', b'{"a": "\\\\", "b": 0.0}'),
        (b"[1, 2]", None),
        (b"NaN", b"0.0"),
        # What keeps other sites from running it, and what lets them.
        (b")]}',\n[1]", b"      [1]"),
        (b")]}'\r\n{}", b"      {}"),
        (b"while(1);[NaN]", b"         [0.0]"),
        (b"\xef\xbb\xbffor (;;);{}", b"            {}"),
        (b"{} && [1]", b"      [1]"),
        (b")]}',", None),
        (b")]},", None),
        (b"jQuery1_2({});", b"          {}  "),
        (b"/**/ typeof a.b === 'function' && a.b([1]);\n", b" " * 38 + b"[1]   "),
        (b'a[0]["b"].$c ([1])', b" " * 14 + b"[1] "),
        # Whatever is more than the name of a function, or has no end, is none.
        (b"/**/ typeof a === 'function' && b([1]);", None),
        (b"alert(1);a([1]);", None),
        (b"a([1]);b", None),
        (b"a([1]", None),
        (b"a-b([1])", None),
        (b"a(", None),
        (b"a('\"x\"')", None),
        (b"x" * 600 + b"([1])", None),
        (b"if(1)a([1])", None),
    ],
)
def test_what_many_write_and_json_does_not_know_is_read_at_the_same_places(body, read):
    assert standard(body) == read
    assert read is None or (len(read) == len(body) and json.loads(read) is not None)
