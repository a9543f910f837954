from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxy.api import request
from proxy.errors import Code, VaultError


def call(content: Any = None, query: dict[str, str] | None = None) -> Any:
    return SimpleNamespace(
        content=content, query=query or {}, services=SimpleNamespace(country="se")
    )


def refused(code: Code, function: Any, *given: Any) -> list[str]:
    with pytest.raises(VaultError) as caught:
        function(*given)
    assert caught.value.code is code
    return [source for source, _ in caught.value.details]


def test_members_are_known_and_complete():
    assert request.checked_members({"a": 1}, ("a", "b")) == {"a": 1}
    assert refused(
        Code.INVALID_INPUT, request.checked_members, {"x/y": 1, "c": 2}, ("a", "b"), ("a",)
    ) == [
        "/x~1y",
        "/c",
        "/a",
    ]
    assert refused(Code.INVALID_INPUT, request.checked_members, [1], ("a",)) == [""]


def test_a_batch_is_bare_or_wrapped():
    assert request.batch(call([1])) == ([1], "", {})
    content = {"records": [1], "country": "se", "search_key": "x"}
    assert request.batch(call(content), "search_key") == ([1], "/records", content)
    assert refused(Code.INVALID_INPUT, request.batch, call(content)) == ["/search_key"]
    assert refused(Code.INVALID_INPUT, request.batch, call({"country": "se"})) == ["/records"]


def test_another_country_is_a_conflict():
    assert refused(Code.WRONG_COUNTRY, request.batch, call({"records": [], "country": "de"})) == [
        "/country"
    ]
    assert refused(Code.INVALID_INPUT, request.batch, call({"records": [], "country": 1})) == [
        "/country"
    ]


def test_a_list_of_names_has_one_at_least_and_each_once():
    assert request.strings(["b", "a", "b"], "/x", 3) == ["b", "a"]
    for given in (None, [], "a", [1], ["a", None]):
        assert refused(Code.INVALID_INPUT, request.strings, cast(Any, given), "/x", 3) == ["/x"]
    assert refused(Code.BATCH_TOO_LARGE, request.strings, ["a"] * 4, "/x", 3) == ["/x"]


def test_a_number_of_the_query_has_its_bounds():
    assert request.query_number(call(), "limit", 5, 1, 10) == 5
    assert request.query_number(call(query={"limit": "10"}), "limit", 5, 1, 10) == 10
    for text in ("", "0", "11", "-1", "1.0", "٣", "9" * 99):
        assert refused(
            Code.INVALID_INPUT, request.query_number, call(query={"limit": text}), "limit", 5, 1, 10
        ) == ["limit"]


def test_a_bounded_number_of_unknown_members_is_told():
    with pytest.raises(VaultError) as caught:
        request.checked_members({f"m{number}": 1 for number in range(5000)}, ("a",))
    assert len(caught.value.details) == 1000
    assert "4000 more" in caught.value.message
