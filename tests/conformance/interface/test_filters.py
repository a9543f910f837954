"""Find: every form of the filter table, on every type and storage class, and every rule of what
cannot be combined.
"""

from typing import Any

import pytest

from tests.support.table import table

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALL = "abcde"
SOME = "abc"  #: those that have values

#: (filter, keys of what is found)
FOUND: list[tuple[dict[str, Any], str]] = [
    ({}, ALL),
    # exact, on each type that can be asked
    ({"string_plain": "Bo Ek"}, "b"), ({"string_hashed": "Bo Ek"}, "b"), ({"string_parts": "Bo Ek"}, "b"),
    ({"string_plain": "bo ek"}, "c"), ({"string_hashed": "bo ek"}, "c"),
    ({"string_hashed": "  Bo Ek "}, "b"), ({"string_plain": "A\u030asa Holm"}, "a"), ({"string_hashed": "A\u030asa Holm"}, "a"),
    ({"string_plain": "Bo"}, ""), ({"string_hashed": "Bo"}, ""), ({"string_plain": ""}, ""), ({"string_hashed": ""}, ""),
    ({"integer_plain": 1}, "a"), ({"integer_hashed": 1}, "a"), ({"integer_plain": 1.0}, "a"), ({"integer_hashed": -3}, "c"),
    ({"decimal_plain": 1.5}, "a"), ({"decimal_hashed": 1.5}, "a"), ({"decimal_plain": 1.50}, "a"), ({"decimal_hashed": -0.0001}, "c"),
    ({"boolean_plain": True}, "ac"), ({"boolean_hashed": False}, "b"),
    ({"datetime_plain": "2020-01-01T00:00:00.000Z"}, "a"), ({"datetime_hashed": "1969-12-31T23:59:59.999Z"}, "c"),
    ({"date_plain": "2021-06-15"}, "b"), ({"date_hashed": "2021-06-15"}, "b"),
    ({"time_plain": "23:59:59"}, "c"), ({"time_hashed": "01:02:03"}, "a"),
    ({"id": "a"}, "a"), ({"record_key": "a"}, "a"), ({"id": "A"}, ""), ({"record_key": "x"}, ""),
    ({"version": 1}, ALL), ({"version": 2}, ""),
    # null: records without a value, whether it was sent or not
    ({"string_plain": None}, "de"), ({"string_hashed": None}, "de"), ({"integer_plain": None}, "de"), ({"decimal_hashed": None}, "de"),
    ({"boolean_plain": None}, "de"), ({"date_hashed": None}, "de"), ({"datetime_plain": None}, "de"), ({"time_plain": None}, "de"),
    # lists
    ({"string_plain": ["Bo Ek", "bo ek"]}, "bc"), ({"string_hashed": ["Bo Ek", "x"]}, "b"), ({"string_hashed": ["Bo Ek", None]}, "bde"),
    ({"integer_plain": [1, 2]}, "ab"), ({"integer_hashed": [1, -3]}, "ac"), ({"decimal_plain": [1.5, None]}, "ade"),
    ({"boolean_plain": [True, False]}, SOME), ({"date_plain": ["2020-01-01", "1969-12-31"]}, "ac"), ({"time_hashed": ["01:02:03"]}, "a"),
    ({"record_key": ["a", "e", "x"]}, "ae"), ({"id": ["b", "b"]}, "b"), ({"version": [1, 7]}, ALL),
    # $not includes records without a value
    ({"string_plain": {"$not": "Bo Ek"}}, "acde"), ({"string_hashed": {"$not": "Bo Ek"}}, "acde"),
    ({"string_hashed": {"$not": ["Bo Ek", "bo ek"]}}, "ade"), ({"string_plain": {"$not": None}}, SOME), ({"string_hashed": {"$not": None}}, SOME),
    ({"string_plain": {"$not": [None, "Bo Ek"]}}, "ac"), ({"record_key": {"$not": "a"}}, "bcde"), ({"id": {"$not": ["a", "b"]}}, "cde"),
    ({"version": {"$not": 1}}, ""), ({"version": {"$not": [2]}}, ALL),
    # comparisons
    ({"integer_plain": {"$gt": 1}}, "b"), ({"integer_plain": {"$gte": 1}}, "ab"), ({"integer_plain": {"$lt": 1}}, "c"),
    ({"integer_plain": {"$lte": 1}}, "ac"), ({"integer_plain": {"$gt": -3, "$lt": 2}}, "a"), ({"integer_plain": {"$gte": -3, "$lte": 1}}, "ac"),
    ({"integer_plain": {"$gt": 5}}, ""),
    ({"decimal_plain": {"$gt": 1.5}}, "b"), ({"decimal_plain": {"$gte": 1.5}}, "ab"), ({"decimal_plain": {"$lt": 0}}, "c"),
    ({"decimal_plain": {"$lte": -0.0001}}, "c"), ({"decimal_plain": {"$gt": -1, "$lte": 2}}, "ac"),
    ({"date_plain": {"$gt": "2020-01-01"}}, "b"), ({"date_plain": {"$lte": "2020-01-01"}}, "ac"), ({"time_plain": {"$gte": "23:59:59"}}, "c"),
    ({"datetime_plain": {"$lt": "2020-01-01T00:00:00.000Z"}}, "c"),
    ({"version": {"$gt": 0}}, ALL), ({"version": {"$gte": 2}}, ""), ({"version": {"$lt": 9, "$gt": 0}}, ALL),
    # parts of texts
    ({"string_plain": {"$like": "bo"}}, "bc"), ({"string_parts": {"$like": "BO E"}}, "bc"), ({"string_parts": {"$like": "åsa"}}, "a"),
    ({"string_plain": {"$like": "%"}}, ""), ({"string_plain": {"$like": "_"}}, ""), ({"string_plain": {"$like": "o"}}, SOME),
    ({"string_parts": {"$like": "holm"}}, "a"), ({"string_parts": {"$like": "xyz"}}, ""),
    ({"string_plain": {"$not": {"$like": "bo"}}}, "ade"), ({"string_parts": {"$not": {"$like": "bo ek"}}}, "ade"),
    ({"string_plain": {"$like": "o", "$not": "Bo Ek"}}, "ac"),
    ({"search_keys": "bo ek"}, "bc"), ({"search_keys": "HOLM"}, "a"), ({"search_keys": "xyz"}, ""),
    ({"search_keys": "bo ek", "integer_plain": 2}, "b"), ({"search_keys": "bo ek", "boolean_hashed": True}, "c"),
    # or
    ({"$or": [{"string_plain": "Bo Ek"}, {"string_hashed": "bo ek"}]}, "bc"), ({"$or": [{"string_plain": "x"}, {"id": "e"}]}, "e"),
    ({"$or": [{"string_plain": "Bo Ek"}, {"string_plain": "Åsa Holm"}], "integer_plain": {"$gt": 1}}, "b"),
    ({"$or": [{"string_plain": {"$like": "åsa"}}, {"string_hashed": None}]}, "ade"),
    ({"$or": [{"string_hashed": {"$not": "Bo Ek"}}, {"string_plain": "Bo Ek"}]}, ALL),
    ({"$or": [{"string_plain": "Bo Ek", "string_hashed": "bo ek"}, {"id": "a"}]}, "a"),
    # JSON, by path
    ({"json_plain": {"$.city": "Lund"}}, "ac"), ({"json_hashed": {"$.city": "Lund"}}, "ac"), ({"json_plain": {"$.city": "lund"}}, ""),
    ({"json_hashed": {"$.n": 1}}, "a"), ({"json_plain": {"$.n": 1.5}}, "c"), ({"json_plain": {"$.n": 1.0}}, "a"),
    ({"json_plain": {"$.tags": "y"}}, "ab"), ({"json_hashed": {"$.tags": "x"}}, "a"), ({"json_hashed": {"$.tags": "z"}}, ""),
    ({"json_plain": {"$.tags": ["x", "y"]}}, "a"), ({"json_hashed": {"$.tags": ["y"]}}, "ab"), ({"json_hashed": {"$.tags": ["y", "z"]}}, ""),
    ({"json_plain": {"$.deep.list[0].k": True}}, "a"), ({"json_hashed": {"$['deep']['list'][0]['k']": False}}, "b"),
    ({"json_plain": {"$.city": "Lund", "$.n": 1}}, "a"), ({"json_hashed": {"$.city": "Visby", "$.tags": "x"}}, ""),
    ({"json_plain": {"$.absent": 1}}, ""), ({"json_plain": {"$['1']": "one"}}, "c"), ({"json_hashed": {"$.tags[0]": "y"}}, "b"),
    ({"json_plain": {"$.city": "Lund"}, "integer_plain": 1}, "a"), ({"json_hashed": {"$.none": None}}, "a"),
    # and
    ({"string_plain": "Bo Ek", "integer_plain": 2, "boolean_plain": False}, "b"), ({"string_plain": "Bo Ek", "integer_plain": 1}, ""),
]  # fmt: skip

SEALED = [
    f"{kind}_sealed"
    for kind in ("string", "integer", "decimal", "boolean", "datetime", "date", "time")
]
VALUES = {
    "string": "x", "integer": 1, "decimal": 1.5, "boolean": True,
    "datetime": "2020-01-01T00:00:00.000Z", "date": "2020-01-01", "time": "01:02:03",
}  # fmt: skip

#: (filter, where the fault is); each is 400 ``invalid_filter``.
REFUSED: list[tuple[Any, str]] = [
    *[({name: VALUES[name.partition("_")[0]]}, f"/{name}") for name in SEALED],
    ({"string_sealed": {"$like": "abc"}}, "/string_sealed"), ({"string_sealed": None}, "/string_sealed"), ({"json_sealed": {"$.a": 1}}, "/json_sealed"),
    ({"nobody": 1}, "/nobody"), ({"string": "x"}, "/string"), ({"created_at": "2020-01-01T00:00:00.000Z"}, "/created_at"), ({"": 1}, "/"),
    # values of another type
    ({"string_plain": 1}, "/string_plain"), ({"string_hashed": True}, "/string_hashed"), ({"integer_plain": "1"}, "/integer_plain"),
    ({"integer_plain": 1.5}, "/integer_plain"), ({"integer_plain": True}, "/integer_plain"), ({"integer_hashed": 2**63}, "/integer_hashed"),
    ({"decimal_plain": "1.5"}, "/decimal_plain"), ({"boolean_plain": 1}, "/boolean_plain"), ({"boolean_hashed": "true"}, "/boolean_hashed"),
    ({"date_plain": "2020-13-01"}, "/date_plain"), ({"date_hashed": "2020-1-1"}, "/date_hashed"), ({"time_plain": "25:00:00"}, "/time_plain"),
    ({"datetime_plain": "2020-01-01"}, "/datetime_plain"), ({"version": "1"}, "/version"), ({"version": 1.5}, "/version"), ({"record_key": 1}, "/record_key"),
    ({"integer_plain": [1, "2"]}, "/integer_plain/1"), ({"string_plain": ["x", 2, 3]}, "/string_plain/1"), ({"string_plain": []}, "/string_plain"),
    ({"string_plain": [["x"]]}, "/string_plain/0"), ({"string_plain": {}}, "/string_plain"), ({"string_plain": "a\u0000b"}, "/string_plain"),
    # operators where they do not belong
    *[({f"{kind}_plain": {"$not": value}}, f"/{kind}_plain") for kind, value in VALUES.items() if kind != "string"],
    *[({f"{kind}_plain": {"$gt": value}}, f"/{kind}_plain") for kind, value in VALUES.items() if kind in ("string", "boolean")],
    *[({f"{kind}_hashed": {"$gt": VALUES[kind]}}, f"/{kind}_hashed") for kind in ("datetime", "date", "time")],
    *[({f"{kind}_plain": {"$like": "abc"}}, f"/{kind}_plain") for kind in VALUES if kind != "string"],
    ({"integer_hashed": {"$gt": 1}}, "/integer_hashed"), ({"decimal_hashed": {"$lte": 1}}, "/decimal_hashed"), ({"record_key": {"$gt": "a"}}, "/record_key"),
    ({"integer_plain": {"$eq": 1}}, "/integer_plain"), ({"string_plain": {"$in": ["x"]}}, "/string_plain"), ({"$and": [{}, {}]}, "/$and"),
    ({"integer_plain": {"$gt": "1"}}, "/integer_plain"), ({"integer_plain": {"$gt": 0.5}}, "/integer_plain"), ({"integer_plain": {"$gt": None}}, "/integer_plain"), ({"integer_plain": {"$gt": [1]}}, "/integer_plain"),
    ({"integer_plain": {"$gt": 1, "$gte": 1}}, "/integer_plain"), ({"decimal_plain": {"$lt": 1, "$lte": 1}}, "/decimal_plain"),
    ({"integer_plain": {"$gt": 1, "$lt": 5, "$lte": 5}}, "/integer_plain"), ({"version": {"$gt": 0, "$gte": 0}}, "/version"),
    # parts of texts
    ({"string_plain": {"$like": ""}}, "/string_plain"), ({"string_plain": {"$like": 1}}, "/string_plain"), ({"string_parts": {"$like": "bo"}}, "/string_parts"),
    ({"string_parts": {"$like": "x" * 201}}, "/string_parts"), ({"string_plain": {"$like": "x" * 257}}, "/string_plain"),
    ({"string_plain": {"$like": ["abc"]}}, "/string_plain"), ({"search_keys": "ab"}, "/search_keys"), ({"search_keys": "x" * 201}, "/search_keys"),
    ({"search_keys": 1}, "/search_keys"), ({"search_keys": ["abc"]}, "/search_keys"), ({"search_keys": {"$not": "abc"}}, "/search_keys"),
    ({"search_keys": "bo ek", "string_plain": "x"}, "/search_keys"), ({"search_keys": "bo ek", "string_hashed": {"$not": "x"}}, "/search_keys"),
    ({"search_keys": "bo ek", "record_key": "a"}, "/search_keys"), ({"search_keys": "bo ek", "$or": [{"id": "a"}, {"id": "b"}]}, "/search_keys"),
    # or
    ({"$or": []}, "/$or"), ({"$or": [{"id": "a"}]}, "/$or"), ({"$or": {"id": "a"}}, "/$or"), ({"$or": [{"id": "a"}, "b"]}, "/$or/1"),
    ({"$or": [{"id": "a"}, {"integer_plain": 1}]}, "/$or/1/integer_plain"), ({"$or": [{"id": "a"}, {"$or": [{"id": "b"}, {"id": "c"}]}]}, "/$or/1/$or"),
    ({"$or": [{"id": "a"}, {"version": 1}]}, "/$or/1/version"), ({"$or": [{"id": "a"}, {"json_plain": {"$.a": 1}}]}, "/$or/1/json_plain"),
    ({"$or": [{"id": "a"}, {"search_keys": "abc"}]}, "/$or/1/search_keys"), ({"$or": [{"id": "a"}, {}]}, "/$or/1"),
    ({"$or": [{"id": "a"}, {"boolean_plain": True}]}, "/$or/1/boolean_plain"),
    # JSON
    ({"json_plain": "x"}, "/json_plain"), ({"json_plain": {"city": "Lund"}}, "/json_plain/city"), ({"json_plain": {"$.a[*]": 1}}, "/json_plain/$.a[*]"),
    ({"json_plain": {"$..a": 1}}, "/json_plain/$..a"), ({"json_plain": {"$.a[?(@.b)]": 1}}, "/json_plain/$.a[?(@.b)]"), ({"json_plain": {"$.a": {}}}, "/json_plain/$.a"),
    ({"json_plain": {"$.a": []}}, "/json_plain/$.a"), ({"json_plain": {"$.a": [[1]]}}, "/json_plain/$.a"), ({"json_plain": {"$": 1}}, "/json_plain/$"),
    ({"json_plain": {}}, "/json_plain"), ({"json_plain": [1]}, "/json_plain"), ({"json_hashed": {"$.a": {"$gt": 1}}}, "/json_hashed/$.a"),
    # the filter itself
    ([], ""), ("x", ""), (None, ""),
]  # fmt: skip


async def ids(thing: Any, asked: Any) -> Any:
    body = {"filter": asked, "options": {"sort": [{"created_at": "asc"}]}}
    return await thing.client("POST", "/api/models/thing/find", json=body)


@table("asked, keys", FOUND)
async def test_what_is_found(thing, asked, keys):
    answer = await ids(thing, asked)
    assert answer.status == 200, answer.body
    assert "".join(record["id"] for record in answer.json["data"]) == keys
    assert (answer.json["meta"]["count"], answer.json["meta"]["total"]) == (len(keys), len(keys))


@table("asked, place", REFUSED)
async def test_what_cannot_be_asked(thing, asked, place):
    answer = await ids(thing, asked)
    assert (answer.status, answer.json["code"]) == (400, "invalid_filter"), answer.body
    assert any(error["source"].startswith("/filter" + place) for error in answer.json["errors"]), (
        answer.json["errors"]
    )
    assert all(error["detail"] for error in answer.json["errors"])


@pytest.mark.parametrize(
    "asked",
    [
        {"string_hashed": {"$like": "abc"}},
        {"id": {"$like": "abc"}},
        {"string_hashed": {"$not": {"$like": "abc"}}},
    ],
    ids=str,
)
async def test_partial_match_that_is_off(thing, asked):
    for path, status in (("find", 401), ("aggregate", 401), ("clone", 403)):
        more: dict[str, Any] = {"metrics": {"n": {"func": "count"}}} if path == "aggregate" else {}
        more = {"update_with": {"id": "z"}} if path == "clone" else more
        answer = await thing.client(
            "POST", f"/api/models/thing/{path}", json={"filter": asked, **more}
        )
        assert (answer.status, answer.json["code"]) == (status, "partial_match_disabled"), (
            answer.body
        )
