"""The record-based family: every filter key with every operator, every key of the order, and what
of it is refused.
"""

from typing import Any

import pytest

from tests.conformance.interface.kept import BODIES, DECIMALS, INTEGERS, TEXTS, R
from tests.support.table import table

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALL = "abcde"
PLAIN = ("key1", "key25")
PARTS = ("key1", "key25", "key2", "profile_key")
T = "2023-11-14T22:13:2{}.000Z"  #: the second at which each of the records was made: 1 for ``aaa``

#: (filter, the records that are found by their first letters)
FOUND: list[tuple[dict[str, Any], str]] = [
    ({}, ALL),
    *(case for name in TEXTS for case in (
        ({name: "Bo Ek"}, "b"), ({name: " Bo Ek "}, "b"), ({name: "Bo"}, ""), ({name: None}, "de"), ({name: ["Bo Ek", "bo ek"]}, "bc"),
        ({name: ["Bo Ek", None]}, "bde"), ({name: {"$not": "Bo Ek"}}, "acde"), ({name: {"$not": ["Bo Ek", None]}}, "ac"),
    )),
    *(case for name in PARTS for case in (
        ({name: {"$like": "bo e"}}, "bc"), ({name: {"$like": "HOLM"}}, "a"), ({name: {"$not": {"$like": "bo ek"}}}, "ade"),
        ({name: {"$like": "xyz"}}, ""),
    )),
    *(case for name in (*INTEGERS, "range_key") for case in (
        ({name: 1}, "a"), ({name: [1, 2, 7]}, "ab"), ({name: None}, "de"), ({name: {"$gt": 1}}, "b"), ({name: {"$gte": 1}}, "ab"),
        ({name: {"$lt": 1}}, "c"), ({name: {"$lte": 1}}, "ac"), ({name: {"$gt": -3, "$lt": 2}}, "a"),
    )),
    *(case for name in DECIMALS for case in (
        ({name: 1.5}, "a"), ({name: [1.50, 2.25]}, "ab"), ({name: None}, "de"), ({name: {"$gt": 1.5}}, "b"), ({name: {"$lte": 1.5}}, "ac"),
    )),
    *(case for name in ("record_key", "key") for case in (
        ({name: "aaa"}, "a"), ({name: ["aaa", "eee", "x"]}, "ae"), ({name: {"$not": "aaa"}}, "bcde"), ({name: "AAA"}, ""),
        ({name: {"$like": "bbb"}}, "b"), ({name: {"$not": {"$like": "bbb"}}}, "acde"),
    )),
    ({"version": 9}, "c"), ({"version": 1}, "abde"), ({"version": [9, 7]}, "c"), ({"version": {"$not": 9}}, "abde"), ({"version": {"$not": [1, 9]}}, ""),
    ({"version": {"$gt": 1}}, "c"), ({"version": {"$lte": 1}}, "abde"), ({"version": {"$gte": 1, "$lt": 10}}, ALL), ({"version": None}, ""),
    ({"version": {"$not": None}}, ALL),
    *(case for name in ("created_at", "updated_at") for case in (
        ({name: T.format(2)}, "b"), ({name: [T.format(1), "2023-11-14T23:13:23+01:00"]}, "ac"), ({name: {"$gt": T.format(3)}}, "de"),
        ({name: {"$gte": T.format(2), "$lt": T.format(4)}}, "bc"), ({name: {"$lte": T.format(1)}}, "a"), ({name: None}, ""),
    )),
    ({"expires_at": None}, "abde"), ({"expires_at": "2030-01-01T00:00:00.000Z"}, "c"), ({"expires_at": {"$gt": T.format(1)}}, "c"),
    ({"search_keys": "bo ek"}, "bc"), ({"search_keys": "holm"}, "a"), ({"search_keys": "ddd"}, "d"), ({"search_keys": "bo ek", "range_key": 2}, "b"),
    ({"search_keys": "bo ek", "version": 9}, "c"), ({"search_keys": "bo ek", "decimal_key1": {"$lt": 0}}, "c"), ({"search_keys": "xyz"}, ""),
    ({"search_keys": "bo ek", "created_at": {"$gt": T.format(2)}}, "c"),
    ({"$or": [{"key": "aaa"}, {"key3": "Bo Ek"}]}, "ab"), ({"$or": [{"record_key": "eee"}, {"key1": {"$like": "bo"}}]}, "bce"),
    ({"$or": [{"profile_key": None}, {"service_key1": "bo ek"}], "version": 9}, "c"),
    ({"key1": "Bo Ek", "range_key1": 2, "decimal_key20": 2.25, "created_at": T.format(2)}, "b"), ({"key1": "Bo Ek", "range_key": 1}, ""),
]  # fmt: skip

#: (filter, place of the fault)
REFUSED: list[tuple[Any, str]] = [
    *(({name: "x"}, f"/filter/{name}") for name in (*BODIES, "country", "attachments", "key26", "is_encrypted", "stated_version", "range_key11")),
    *(({name: {"$gt": 1}}, f"/filter/{name}/$gt") for name in ("key1", "key3", "profile_key", "record_key", "key")),
    *(({name: {"$not": 1}}, f"/filter/{name}/$not") for name in ("range_key1", "range_key", "decimal_key1")),
    *(({name: {"$like": "1"}}, f"/filter/{name}/$like") for name in ("range_key1", "decimal_key2")),
    ({"range_key1": "1"}, "/filter/range_key1"), ({"range_key": [1, "x"]}, "/filter/range_key/1"), ({"decimal_key1": "x"}, "/filter/decimal_key1"),
    ({"version": "1"}, "/filter/version"), ({"version": {"$like": "1"}}, "/filter/version/$like"), ({"key1": []}, "/filter/key1"),
    ({"key1": {"$like": ""}}, "/filter/key1/$like"), ({"key2": {"$like": "bo"}}, "/filter/key2/$like"), ({"key1": {"$eq": "x"}}, "/filter/key1/$eq"),
    ({"range_key": {"$gt": 1, "$gte": 1}}, "/filter/range_key/$gte"), ({"created_at": {"$not": T.format(1)}}, "/filter/created_at/$not"),
    ({"created_at": "2023"}, "/filter/created_at"), ({"expires_at": {"$gt": None}}, "/filter/expires_at/$gt"),
    ({"search_keys": "bo"}, "/filter/search_keys"), ({"search_keys": "bo ek", "key1": "x"}, "/filter/search_keys"),
    ({"search_keys": "bo ek", "key": "x"}, "/filter/search_keys"), ({"$or": [{"key1": "x"}]}, "/filter/$or"),
    ({"$or": [{"range_key1": 1}, {"key1": "x"}]}, "/filter/$or/0/range_key1"), ({"$or": [{"version": 1}, {"key1": "x"}]}, "/filter/$or/0/version"),
    ({"$or": [{"key1": "x"}, {"created_at": T.format(1)}]}, "/filter/$or/1/created_at"), ({"key": "a", "record_key": "b"}, "/filter/record_key"),
    ([], "/filter"), (1, "/filter"),
]  # fmt: skip


async def find(kept: Any, **wanted: Any) -> Any:
    return await kept.client("POST", R + "/find", json={"country": "se", **wanted})


@table("filter_, keys", FOUND)
async def test_a_filter_finds_what_it_says(kept, filter_, keys):
    answer = await find(kept, filter=filter_)
    assert answer.status == 200, answer.body
    assert "".join(record["key"][0] for record in answer.json["data"]) == keys
    assert answer.json["meta"] == {
        "count": len(keys),
        "limit": 100,
        "offset": 0,
        "total": len(keys),
    }


@table("filter_, place", REFUSED)
async def test_a_filter_that_cannot_be_asked_is_400_and_says_where(kept, filter_, place):
    answer = await find(kept, filter=filter_)
    assert (answer.status, answer.json["code"]) == (400, "invalid_filter"), answer.body
    assert place in [error["source"] for error in answer.json["errors"]]


@pytest.mark.parametrize("name", ["stated_version", "is_encrypted", "stated_versio"])
async def test_no_refusal_proposes_a_field_that_requests_have_no_name_for(kept, name):
    answers = [
        await find(kept, filter={name: 1}),
        await find(kept, filter={}, options={"sort": [{name: "asc"}]}),
        await kept.client("POST", R, json={"country": "se", "key": "x", name: 1}),
    ]
    assert [answer.status for answer in answers] == [400, 400, 400]
    for answer in answers:
        (error,) = answer.json["errors"]
        assert error["detail"].startswith("The schema has no field of this name")
        assert not any(internal in error["detail"] for internal in ("stated", "encrypted"))


@pytest.mark.parametrize("name", ["key3", "parent_key", "service_key1"])
async def test_partial_match_that_is_off_has_its_own_code(kept, name):
    wanted = {"filter": {name: {"$like": "bo ek"}}}
    statuses = {
        "/find": {**wanted, "country": "se"},
        "/aggregate": {**wanted, "metrics": {"n": {"func": "count"}}},
    }
    statuses["/clone"] = {**wanted, "update_with": {"key": "x"}}
    told = [await kept.client("POST", R + path, json=body) for path, body in statuses.items()]
    assert [answer.status for answer in told] == [401, 401, 403]
    assert {answer.json["code"] for answer in told} == {"partial_match_disabled"}


SORTED: list[tuple[Any, str]] = [
    *(([{name: "asc"}], "decab") for name in (*INTEGERS, "range_key")),
    *(([{name: "desc"}], "bacde") for name in (*INTEGERS, "range_key")),
    *(([{name: "asc"}], "debca") for name in PLAIN),
    *(([{name: "asc"}], ALL) for name in ("created_at", "updated_at")),
    *(([{name: "desc"}], ALL[::-1]) for name in ("created_at", "updated_at")),
    ([{"expires_at": "asc"}], "abdec"), ([{"expires_at": "desc"}, {"created_at": "desc"}], "cedba"),
    ([{"key1": "desc"}, {"range_key1": "asc"}], "acbde"), ([], ALL),
]  # fmt: skip


@table("sort, keys", SORTED)
async def test_records_are_sorted(kept, sort, keys):
    answer = await find(kept, options={"sort": sort})
    assert "".join(record["key"][0] for record in answer.json["data"]) == keys


@table(
    "name",
    [
        "key2", "profile_key", "record_key", "key", "body", "decimal_key1", "version",
        "is_encrypted", "country",
    ],
)  # fmt: skip
async def test_what_has_no_order_is_not_sorted_by(kept, name):
    answer = await find(kept, options={"sort": [{name: "asc"}]})
    assert (answer.status, answer.json["code"]) == (400, "invalid_options")
    assert [error["source"] for error in answer.json["errors"]] == [f"/options/sort/0/{name}"]


async def test_pages_go_on_where_they_end(kept):
    pages = [
        await find(kept, options={"limit": 2, "offset": offset, "sort": [{"range_key": "asc"}]})
        for offset in (0, 2, 4, 6)
    ]
    assert ["".join(record["key"][0] for record in page.json["data"]) for page in pages] == [
        "de",
        "ca",
        "b",
        "",
    ]
    assert [page.json["meta"] for page in pages][3] == {
        "count": 0,
        "limit": 2,
        "offset": 6,
        "total": 5,
    }


ADDED: list[tuple[Any, Any, dict[str, Any]]] = [
    ({"func": "count"}, None, {"all": 5}),
    *(({"func": func, "key": name}, None, {"all": value}) for name in ("range_key", "range_key1", "range_key10") for func, value in (
        ("sum", 0), ("SUM", 0), ("min", -3), ("max", 2), ("avg", 0),
    )),
    ({"func": "sum", "key": "decimal_key20"}, None, {"all": 3.7499}),
    ({"func": "count"}, ["key1"], {"null": 2, "Bo Ek": 1, "bo ek": 1, "Åsa Holm": 1}),
    ({"func": "count"}, ["key3"], {"null": 2, "Bo Ek": 1, "bo ek": 1, "Åsa Holm": 1}),
    ({"func": "sum", "key": "range_key"}, ["key"], {"aaa": 1, "bbb": 2, "ccc": -3, "ddd": 0, "eee": 0}),
    ({"func": "count"}, ["range_key", "decimal_key1"], {"null|null": 2, "-3|-0.0001": 1, "1|1.5": 1, "2|2.25": 1}),
]  # fmt: skip


@table("metric, keys, expected", ADDED)
async def test_records_are_added_up(kept, metric, keys, expected):
    body = {"metrics": {"m": metric}, **({"group_by": {"keys": keys}} if keys else {})}
    answer = await kept.client("POST", R + "/aggregate", json=body)
    assert answer.status == 200, answer.body
    assert {name: group["metrics"]["m"] for name, group in answer.json["data"].items()} == expected
    assert (answer.json["meta"], answer.json["errors"]) == ({"next": None}, [])


@table(
    "body, place",
    [
        *(({"metrics": {"m": {"func": "sum", "key": name}}}, "/metrics/m/key") for name in ("key1", "profile_key", "version", "created_at", "body", "is_encrypted")),
        ({"metrics": {"m": {"func": "sum"}}}, "/metrics/m/key"), ({"metrics": {"m": {"func": "median"}}}, "/metrics/m/func"),
        ({"metrics": {}}, "/metrics"), ({}, "/metrics"), ({"metrics": {"m": {"func": "count"}}, "group_by": {"keys": ["body"]}}, "/group_by/keys/0"),
        ({"metrics": {"m": {"func": "count"}}, "group_by": {"keys": []}}, "/group_by/keys"), ({"next": 1}, "/next"), ({"next": "x"}, "/next"),
        ({"metrics": {"m": {"func": "count"}}, "filter": {"body": "x"}}, "/filter/body"), ({"metrics": {"m": {"func": "count"}}, "x": 1}, "/x"),
        ({"metrics": {"m": {"func": "count"}}, "country": "SE"}, "/country"),
    ],
)  # fmt: skip
async def test_an_aggregation_that_cannot_be_asked_is_422_and_says_where(kept, body, place):
    answer = await kept.client("POST", R + "/aggregate", json=body)
    assert answer.status == 422, answer.body
    assert place in [error["source"] for error in answer.json["errors"]]
