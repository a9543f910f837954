import json
import threading
from decimal import Decimal

import pytest

from proxy.api import request
from proxy.api.request import DEPTH, parse_json
from proxy.errors import Code, VaultError


def refused(body: bytes) -> str:
    with pytest.raises(VaultError) as caught:
        parse_json(body)
    assert caught.value.code is Code.INVALID_INPUT
    return caught.value.message


def test_a_number_with_a_point_is_exact():
    assert parse_json(b'{"a": 0.10, "b": 1e2, "c": 12345678901234567890.5}') == {
        "a": Decimal("0.10"),
        "b": Decimal("1E+2"),
        "c": Decimal("12345678901234567890.5"),
    }


@pytest.mark.parametrize("body", [b"[1e9999999999999999999]", b'{"a": -0.1E-99999999999999999999}'])
def test_a_number_that_nothing_can_hold_is_refused(body):
    assert "exponent" in refused(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1,"a":2}',
        b'{"a":1,"a" :2}',
        b'{"a" :1,"a" :2}',
        b'{"a":1,"\\u0061":2}',
        b'[{"b":{"a":1,"a":2}}]',
        b'{"a":"x\\":y","b":1,"b":2}',
        b'{"a"\n:1,"a"\t:2}',
    ],
)
def test_a_member_that_stands_twice_is_refused(body):
    assert "twice" in refused(body)


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1, "b": {"a": 1}},
        [{"a": 1}, {"a": 2}],
        {'":': '":":":'},
        {'a" ': "b :", "c\\": ' ":'},
        {"a": '"x" :'},
    ],
)
@pytest.mark.parametrize(
    "style", [{}, {"indent": 1}, {"separators": (",", ":")}, {"separators": (" , ", " : ")}]
)
def test_equal_names_in_different_objects_and_odd_texts_are_no_duplicates(value, style):
    assert parse_json(json.dumps(value, **style).encode()) == value


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "empty"),
        (b" ", "not JSON"),
        (b"{", "not JSON"),
        (b'{"a":1}x', "byte "),
        (b"{'a':1}", "byte 1"),
        (b'"\xff"', "not JSON"),
        (b'"\\ud800"', "not JSON"),
        (b"NaN", "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
    ],
)
def test_what_is_not_json_is_refused_with_its_place(body, told):
    assert told in refused(body)


def test_no_sentence_repeats_what_was_sent():
    assert "secret" not in refused(b'{"secret": secret}')


@pytest.mark.parametrize("levels", [DEPTH + 1, 5_000, 200_000])
def test_too_many_levels_are_refused(levels):
    assert "levels" in refused(b"[" * levels + b"]" * levels)
    assert "levels" in refused(b'{"a": ' * levels + b"1" + b"}" * levels)


def test_as_many_levels_as_allowed_are_read():
    assert parse_json(b"[" * DEPTH + b"]" * DEPTH)


async def test_a_large_body_is_parsed_beside_the_event_loop(monkeypatch):
    threads = []
    monkeypatch.setattr(
        request, "parse_json", lambda body: threads.append((len(body), threading.current_thread()))
    )
    await request.parsed(b"x" * 128 * 1024)
    await request.parsed(b"x" * 128 * 1024 + b"x")
    (_, small), (_, large) = threads
    assert small is threading.current_thread()
    assert large is not small


async def test_a_large_body_is_refused_as_a_small_one_is():
    with pytest.raises(VaultError) as caught:
        await request.parsed(b'{"a":1,"a":"' + b"x" * 200_000 + b'"}')
    assert caught.value.code is Code.INVALID_INPUT
