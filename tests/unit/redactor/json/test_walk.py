import time

import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import PathStep
from proxy.redactor.json.tree import Leaf, Located, TreeSelection
from proxy.redactor.json.walk import locate, walk
from proxy.redactor.jsonpath import parse_jsonpath
from tests.support.table import table


def located(path: str, body: bytes) -> list[bytes]:
    return [body[start:end] for start, end in locate(parse_jsonpath(path), body, 64)]


def test_one_path_locates_every_value_also_inside_each_other():
    body = b'{"a":{"a":[1,{"a":2}]},"b":[{"a":3}]}'
    assert located("$..a", body) == [b'{"a":[1,{"a":2}]}', b'[1,{"a":2}]', b"2", b"3"]
    assert located("$..a..a", body) == [b'[1,{"a":2}]', b"2"]
    assert located("$..[0]", body) == [b"1", b'{"a":3}']
    assert located("$", body) == [body]
    assert located("$.*[*]", body) == [b'[1,{"a":2}]', b'{"a":3}']


def test_a_selection_is_given_to_its_objects():
    body = b'{"n":[{"v":1},[{"v":[2]}]],"t":"x"}'
    found = walk(("n",), [("v",), ("v", 0)], [("t",)], body, 64)
    assert found == TreeSelection(
        [Located(6, 13, (Leaf(0, 11, 12),)), Located(15, 24, (Leaf(0, 20, 23),))], [Leaf(0, 31, 34)]
    )


def test_scalars_between_elements_keep_their_number():
    body = b'[1,"],",{"a":1},2,3,[4],{"a":2}]'
    assert located("$[6].a", body) == [b"2"]
    assert located("$[*].a", body) == [b"1", b"2"]
    assert located("$[4]", body) == [b"3"]


@table(
    "body", [b"[1 2]", b'[{"a":1}2]', b'[1,{"a":1},]', b'{"a":1,}', b'[{"a" 1}]', b'[{"b":[1,}]']
)
def test_broken_syntax_is_told_by_its_place_in_and_beside_selected_values(body):
    for path in ("$[*].a", "$.a", "$..a", "$[0].b[*]"):
        with pytest.raises(VaultError) as caught:
            locate(parse_jsonpath(path), body, 64)
        assert caught.value.code is Code.MALFORMED_JSON
        assert "at byte " in caught.value.message


def test_every_way_to_be_ambiguous_has_its_words():
    def words(body: bytes) -> str:
        with pytest.raises(VaultError) as caught:
            walk((), [("a",)], [], body, 64)
        assert caught.value.code is Code.AMBIGUOUS_JSON
        return caught.value.message

    assert "occurs twice" in words(b'{"a":1,"a":1}')
    assert "letter case" in words(b'{"A":1}')
    assert "surrogate" in words(rb'{"a":"\ud800"}')
    assert "surrogate" in words(rb'{"\udc00":1}')
    assert "follows" in words(b'{"a":1}{}')


def test_behind_a_descent_letter_case_is_looked_at_as_well():
    for body in (b'{"A":1}', b'{"x":[{"A":1}]}', b'{"a":1,"A":2}'):
        with pytest.raises(VaultError) as caught:
            locate(parse_jsonpath("$..a"), body, 64)
        assert "letter case" in caught.value.message or "twice" in caught.value.message


def test_names_that_nothing_selects_may_repeat_unless_a_wildcard_selects_them():
    body = b'{"x":1,"x":2,"X":3}'
    assert walk((), [("a",)], [], body, 64).objects == [Located(0, 19, ())]
    assert locate(parse_jsonpath("$..a"), body, 64) == []
    assert locate(parse_jsonpath("$..a"), b'{"x":{"b":[{"a":1}]},"x":[[{"a":2}]]}', 64) == [
        (16, 17),
        (32, 33),
    ]
    for path in (parse_jsonpath("$.*"), parse_jsonpath("$[*]")):
        with pytest.raises(VaultError):
            locate(path, body, 64)


@table(
    "body",
    [
        b"[" + b"1," * 300_000 + b"1]",
        b"[" + b"[]," * 150_000 + b"1]",
        b'["' + rb"\n" * 300_000 + b'"]',
        b"[" + b" " * 600_000 + b"]",
    ],
)
def test_long_documents_take_time_in_proportion(body):
    started = time.process_time()
    assert located("$[*].a", body) == []
    assert time.process_time() - started < 20


def test_objects_inside_objects_cost_no_more_than_their_number():
    body = b'{"a":' * 60 + b"[" + b"1," * 2000 + b"1]" + b"}" * 60
    started = time.process_time()
    found = walk(
        parse_jsonpath("$..a"), [parse_jsonpath("$..b"), parse_jsonpath("$..c")], [], body, 64
    )
    assert len(found.objects) == 59
    assert time.process_time() - started < 20


WIDE = b'{"id":1,"tags":["a",2],"note":{"x":null}}'


@table("path", ["$..email", "$[*].email"])
def test_what_no_name_can_stand_in_is_stepped_over_however_much_it_is(path):
    body = (
        b"["
        + b",".join([WIDE] * 40_000 + [b'{"id":1,"Tags":1,"email":"x"}'] + [WIDE] * 40_000)
        + b"]"
    )
    start = body.index(b'"x"')
    while body[start : start + 4] != b'"x"}':
        start = body.index(b'"x"', start + 1)
    assert locate(parse_jsonpath(path), body, 64) == [(start, start + 3)]


@table("escapes", ["", ',"y":"\\n"'])
@table(
    "name", ['"E-Mail"', '"e-mail\\u0000x"', '"\u212a-mail"', '"e-mai\\ud800"', '"\\u212A-mail"']
)
def test_a_name_that_some_reader_takes_for_a_selected_one_is_never_stepped_over(name, escapes):
    for one in (f"{name}:1", f'"d":[{{"f":1}},{{"g":2}},{{"h":3}},{{{name}:1}}]'):
        body = f'{{"a":1,"b":2,"c":3,{one}{escapes}}}'.encode()
        with pytest.raises(VaultError) as caught:
            walk(None, (), [(PathStep.DEEP, "e-mail"), (PathStep.DEEP, "k-mail")], body, 64)
        assert caught.value.code is Code.AMBIGUOUS_JSON


@table("name", ['"e_mail"', '"\\u0065_mail"', '"e\\u005fmail"'])
def test_a_selected_name_is_found_behind_a_run_however_it_is_spelled(name):
    body = (
        f'{{"a":1,"b":2,"c":3,{name}:4,"d":[{{"f":1}},{{"g":2}},{{"h":3}},{{{name}:5}}]}}'.encode()
    )
    assert [body[start:end] for start, end in locate((PathStep.DEEP, "e_mail"), body, 64)] == [
        b"4",
        b"5",
    ]


@table("piece", [b"[[[1]]]", b'{"a":{"b":{"c":1}}}', b"[" * 50 + b"]" * 50, b'{"email":1}'])
def test_more_places_than_a_document_of_its_size_may_have_are_refused(piece):
    body = b"[" + b",".join([piece] * (500_000 // len(piece))) + b"]"
    with pytest.raises(VaultError) as caught:
        locate(parse_jsonpath("$..email"), body, 64)
    assert caught.value.code is Code.TOO_LARGE
