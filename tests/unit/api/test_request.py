import json
import threading
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp.test_utils import make_mocked_request

from proxy.api import request
from proxy.api.request import DEPTH, Preconditions, parse_json, preconditions
from proxy.errors import Code, VaultError
from tests.support.table import table


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


@table("body", [b"[1e9999999999999999999]", b'{"a": -0.1E-99999999999999999999}'])
def test_a_number_that_nothing_can_hold_is_refused(body):
    assert "exponent" in refused(body)


@table(
    "body",
    [
        b'{"a":1,"a":2}', b'{"a":1,"a" :2}', b'{"a" :1,"a" :2}', b'{"a":1,"\\u0061":2}',
        b'[{"b":{"a":1,"a":2}}]', b'{"a":"x\\":y","b":1,"b":2}', b'{"a"\n:1,"a"\t:2}',
    ],
)  # fmt: skip
def test_a_member_that_stands_twice_is_refused(body):
    assert "twice" in refused(body)


@table(
    "value",
    [
        {"a": 1, "b": {"a": 1}},
        [{"a": 1}, {"a": 2}],
        {'":': '":":":'},
        {'a" ': "b :", "c\\": ' ":'},
        {"a": '"x" :'},
    ],
)
@table("style", [{}, {"indent": 1}, {"separators": (",", ":")}, {"separators": (" , ", " : ")}])
def test_equal_names_in_different_objects_and_odd_texts_are_no_duplicates(value, style):
    assert parse_json(json.dumps(value, **style).encode()) == value


@table(
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


@table("levels", [DEPTH + 1, 5_000, 200_000])
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


# ---- conditions


def conditions(**headers: str) -> Preconditions | None:
    return preconditions(
        make_mocked_request(
            "GET", "/", headers={name.replace("_", "-"): text for name, text in headers.items()}
        )
    )


def condition_refused(found: Preconditions | None, tag: str | None) -> bool:
    assert found is not None
    try:
        found.changes(tag)
    except VaultError as error:
        return error.code is Code.PRECONDITION_FAILED
    return False


def test_a_request_without_conditions_asks_nothing():
    assert conditions() is None


@table("text", ["a", '"a', '"a" "b"', '"a",b', "", "*, x", '"a\nb"'])
def test_what_is_no_list_of_tags_is_refused(text):
    with pytest.raises(VaultError) as fault:
        conditions(If_Match=text)
    assert fault.value.code is Code.INVALID_INPUT


def test_if_match_compares_strongly_and_if_none_match_weakly():
    found = conditions(If_Match='"a", W/"b"')
    assert [condition_refused(found, tag) for tag in ('"a"', '"b"', None)] == [False, True, True]
    assert [condition_refused(conditions(If_Match="*"), tag) for tag in ('"a"', None)] == [
        False,
        True,
    ]
    found = conditions(If_None_Match='"a", W/"b"')
    assert [condition_refused(found, tag) for tag in ('"a"', '"b"', '"c"', None)] == [
        True,
        True,
        False,
        False,
    ]
    assert [condition_refused(conditions(If_None_Match="*"), tag) for tag in ('"a"', None)] == [
        True,
        False,
    ]


def test_a_read_is_unchanged_for_who_has_its_tag():
    found = conditions(If_None_Match='W/"a"')
    assert found is not None
    assert (found.unchanged('"a"'), found.unchanged('"b"')) == (True, False)
    match = conditions(If_Match='"a"')
    assert match is not None
    assert not match.unchanged('"a"')
    with pytest.raises(VaultError):
        match.unchanged('"b"')


# ---- shapes


def call(content: Any = None, query: dict[str, str] | None = None) -> Any:
    return SimpleNamespace(
        content=content, query=query or {}, services=SimpleNamespace(country="se")
    )


def shape_refused(code: Code, function: Any, *given: Any) -> list[str]:
    with pytest.raises(VaultError) as caught:
        function(*given)
    assert caught.value.code is code
    return [source for source, _ in caught.value.details]


def test_members_are_known_and_complete():
    assert request.checked_members({"a": 1}, ("a", "b")) == {"a": 1}
    assert shape_refused(
        Code.INVALID_INPUT, request.checked_members, {"x/y": 1, "c": 2}, ("a", "b"), ("a",)
    ) == [
        "/x~1y",
        "/c",
        "/a",
    ]
    assert shape_refused(Code.INVALID_INPUT, request.checked_members, [1], ("a",)) == [""]


def test_a_batch_is_bare_or_wrapped():
    assert request.batch(call([1])) == ([1], "", {})
    content = {"records": [1], "country": "se", "search_key": "x"}
    assert request.batch(call(content), "search_key") == ([1], "/records", content)
    assert shape_refused(Code.INVALID_INPUT, request.batch, call(content)) == ["/search_key"]
    assert shape_refused(Code.INVALID_INPUT, request.batch, call({"country": "se"})) == ["/records"]


def test_another_country_is_a_conflict():
    assert shape_refused(
        Code.WRONG_COUNTRY, request.batch, call({"records": [], "country": "de"})
    ) == ["/country"]
    assert shape_refused(
        Code.INVALID_INPUT, request.batch, call({"records": [], "country": 1})
    ) == ["/country"]


def test_a_list_of_names_has_one_at_least_and_each_once():
    assert request.strings(["b", "a", "b"], "/x", 3) == ["b", "a"]
    for given in (None, [], "a", [1], ["a", None]):
        assert shape_refused(Code.INVALID_INPUT, request.strings, cast(Any, given), "/x", 3) == [
            "/x"
        ]
    assert shape_refused(Code.BATCH_TOO_LARGE, request.strings, ["a"] * 4, "/x", 3) == ["/x"]


def test_a_number_of_the_query_has_its_bounds():
    assert request.query_number(call(), "limit", 5, 1, 10) == 5
    assert request.query_number(call(query={"limit": "10"}), "limit", 5, 1, 10) == 10
    for text in ("", "0", "11", "-1", "1.0", "٣", "9" * 99):
        assert shape_refused(
            Code.INVALID_INPUT, request.query_number, call(query={"limit": text}), "limit", 5, 1, 10
        ) == ["limit"]


def test_a_bounded_number_of_unknown_members_is_told():
    with pytest.raises(VaultError) as caught:
        request.checked_members({f"m{number}": 1 for number in range(5000)}, ("a",))
    assert len(caught.value.details) == 1000
    assert "4000 more" in caught.value.message
