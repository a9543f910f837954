import json
import re
import time
from collections.abc import Callable

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.ambiguity import _PART, steps_to
from proxy.redactor.jsonpath import parse_jsonpath
from proxy.redactor.select import Selection
from tests.support.table import table

PEOPLE = Selection(
    parse_jsonpath("$.people[*]"),
    [parse_jsonpath(one) for one in ("$.email", "$.address.street", "$.tags[*]")],
    [parse_jsonpath("$.note")],
    nested=True,
)
DEEP = Selection((), [parse_jsonpath("$..mail")], nested=True)


@table(
    ("selection", "body", "place"),
    [
        (PEOPLE, '{"note": "x", "note": "zorbina"}', "/note"),
        (PEOPLE, '{"people": [{}, {"email": "x", "Email": "zorbina"}]}', "/people/1/Email"),
        (PEOPLE, '{"people": [{"EMAIL": "zorbina"}]}', "/people/0/EMAIL"),
        (PEOPLE, '{"people": [{"address": {"street": 1, "street": 2}}]}', "/people/0/address/street"),
        (PEOPLE, '{"people": [{"email": "\\ud800"}]}', "/people/0/email"),
        (PEOPLE, '{"people": [{"tags": ["x", "\\ud800"]}]}', "/people/0/tags/1"),
        (PEOPLE, '{"people": [{"address.street": "zorbina"}]}', "/people/0/address.street"),
        (PEOPLE, '{"people": [{"x": 1, "\\ud800": "zorbina", "email": 1}]}', "/people/0/{word}"),
        (DEEP, '{"Zorbina": [{"zorbina": {"mail": 1, "mail": 2}}]}', "/{word}/0/{word}/mail"),
        (DEEP, '{"contact": {"mail": 1, "mail": 2}}', "/contact/mail"),
    ],
)  # fmt: skip
def test_the_place_is_told_by_names_of_rules_and_public_words_alone(selection, body, place):
    with pytest.raises(VaultError) as caught:
        selection.find(body.encode())
    assert caught.value.code is Code.AMBIGUOUS_JSON
    assert [one.source for one in caught.value.details] == [place]
    assert "orbina" not in f"{caught.value} {caught.value.details}"
    assert caught.value.__context__ is None


@table(
    ("body", "code"),
    [
        (b'{"note": 1} {"note": 2}', Code.AMBIGUOUS_JSON),
        (b'{"note": 1, "x": "%b", "note": 2}' % (b"x" * 16_384), Code.AMBIGUOUS_JSON),
        (b'{"note": 1, "note": ', Code.MALFORMED_JSON),
        (b'{"note": "\xff"}', Code.UNREADABLE_BODY),
    ],
)
def test_what_no_member_is_to_blame_for_and_a_long_document_have_no_place(body, code):
    with pytest.raises(VaultError) as caught:
        PEOPLE.find(body)
    assert caught.value.code is code
    assert caught.value.details == ()


def test_the_way_to_each_value_is_that_which_readers_of_json_go():
    document = {"a": [1, {"b": "x,]}"}, [[], {}, "y"]], 'c":': {"": None, "/~": [True]}}
    text = json.dumps(document).encode()
    found = []

    def walk(value: object, way: list[str | int]) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(inner, [*way, name])
        elif isinstance(value, list):
            for number, inner in enumerate(value):
                walk(inner, [*way, number])
        else:
            found.append((way, json.dumps(value).encode()))

    walk(document, [])
    at = 0
    for way, raw in found:
        at = text.index(raw, at)
        assert steps_to(text, at) == way
        at += len(raw)


def test_a_long_text_before_the_place_is_stepped_over_in_no_time():
    def best(work: Callable[[], object]) -> float:
        times = []
        for _ in range(3):
            began = time.thread_time()
            work()
            times.append(time.thread_time() - began)
        return min(times)

    text = b'"' + b"1" * 1_000_000 + b'\\""'
    assert [found[0] for found in _PART.finditer(text + b':"a"')] == [text, b":", b'"a"']
    assert best(lambda: _PART.match(text)) < best(lambda: re.match(rb'"(?:[^"\\]|\\.)*"', text)) / 2
