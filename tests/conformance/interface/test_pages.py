"""Find: limit, offset and sort; aggregate: every function, grouping, pages; and what of them is
refused.
"""

from typing import Any

import pytest

from tests.support.table import table

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: (options, keys in order)
ORDERED: list[tuple[dict[str, Any], str]] = [
    ({"sort": [{"created_at": "asc"}]}, "abcde"), ({"sort": [{"created_at": "desc"}]}, "edcba"),
    ({"sort": [{"updated_at": "desc"}]}, "edcba"), ({"sort": [{"expires_at": "asc"}]}, "abcde"), ({"sort": [{"expires_at": "desc"}]}, "abcde"),
    ({"sort": [{"integer_plain": "asc"}]}, "decab"), ({"sort": [{"integer_plain": "desc"}]}, "bacde"),
    ({"sort": [{"string_plain": "asc"}]}, "debca"), ({"sort": [{"string_plain": "desc"}]}, "acbde"),
    ({"sort": [{"integer_plain": "desc"}, {"created_at": "desc"}]}, "baced"), ({"sort": []}, "abcde"), ({}, "abcde"),
    ({"limit": 2}, "ab"), ({"limit": 2, "offset": 2}, "cd"), ({"offset": 4}, "e"), ({"offset": 5}, ""), ({"offset": 1000000}, ""),
    ({"limit": 1000}, "abcde"), ({"limit": 1, "offset": 1, "sort": [{"created_at": "desc"}]}, "d"), ({"limit": 2.0}, "ab"),
]  # fmt: skip

#: (options, where the fault is); each is 400 ``invalid_options``.
OPTIONS: list[tuple[Any, str]] = [
    ({"limit": 0}, "/limit"), ({"limit": -1}, "/limit"), ({"limit": 1001}, "/limit"), ({"limit": "2"}, "/limit"), ({"limit": 1.5}, "/limit"),
    ({"limit": None}, "/limit"), ({"limit": True}, "/limit"), ({"offset": -1}, "/offset"), ({"offset": "0"}, "/offset"), ({"offset": 0.5}, "/offset"),
    ({"offset": 2**63}, "/offset"), ({"sort": {"created_at": "asc"}}, "/sort"), ({"sort": "created_at"}, "/sort"), ({"sort": ["created_at"]}, "/sort/0"),
    ({"sort": [{}]}, "/sort/0"), ({"sort": [{"created_at": "asc", "updated_at": "asc"}]}, "/sort/0"), ({"sort": [{"created_at": "up"}]}, "/sort/0"),
    ({"sort": [{"created_at": 1}]}, "/sort/0"), ({"sort": [{"nobody": "asc"}]}, "/sort/0"), ({"sort": [{"integer_sealed": "asc"}]}, "/sort/0"),
    ({"sort": [{"integer_hashed": "asc"}]}, "/sort/0"), ({"sort": [{"string_hashed": "asc"}]}, "/sort/0"), ({"sort": [{"json_plain": "asc"}]}, "/sort/0"),
    ({"sort": [{"boolean_plain": "asc"}]}, "/sort/0"), ({"sort": [{"created_at": "asc"}, {"created_at": "desc"}]}, "/sort/1"),
    ({"order": []}, "/order"), ([], ""), (None, ""),
]  # fmt: skip

COUNT = {"n": {"func": "count"}}

#: (request, groups as {key values: metrics})
FIGURES: list[tuple[dict[str, Any], list[tuple[dict[str, Any], dict[str, Any]]]]] = [
    ({"metrics": COUNT}, [({}, {"n": 5})]),
    ({"metrics": {"n": {"func": "COUNT"}}}, [({}, {"n": 5})]),
    ({"metrics": COUNT, "filter": {"boolean_hashed": True}}, [({}, {"n": 2})]),
    ({"metrics": COUNT, "filter": {"record_key": "x"}}, [({}, {"n": 0})]),
    ({"metrics": {"s": {"func": "sum", "key": "integer_plain"}}}, [({}, {"s": 0})]),
    ({"metrics": {"s": {"func": "sum", "key": "decimal_plain"}}}, [({}, {"s": 3.7499})]),
    ({"metrics": {"s": {"func": "min", "key": "integer_plain"}, "t": {"func": "max", "key": "integer_plain"}}}, [({}, {"s": -3, "t": 2})]),
    ({"metrics": {"s": {"func": "min", "key": "decimal_plain"}, "t": {"func": "max", "key": "decimal_plain"}}}, [({}, {"s": -0.0001, "t": 2.25})]),
    ({"metrics": {"s": {"func": "avg", "key": "integer_plain"}}}, [({}, {"s": 0})]),
    ({"metrics": {"s": {"func": "avg", "key": "decimal_plain"}}}, [({}, {"s": 1.2499666667})]),
    ({"metrics": {"s": {"func": "max", "key": "integer_plain"}}, "filter": {"record_key": ["d", "e"]}}, [({}, {"s": None})]),
    ({"metrics": {"s": {"func": "avg", "key": "integer_plain"}}, "filter": {"record_key": ["d", "e"]}}, [({}, {"s": None})]),
    ({"metrics": COUNT, "group_by": {"keys": ["boolean_plain"]}}, [({"boolean_plain": None}, {"n": 2}), ({"boolean_plain": False}, {"n": 1}), ({"boolean_plain": True}, {"n": 2})]),
    ({"metrics": COUNT, "group_by": {"keys": ["integer_plain"]}, "filter": {"integer_plain": {"$gt": -9}}}, [({"integer_plain": -3}, {"n": 1}), ({"integer_plain": 1}, {"n": 1}), ({"integer_plain": 2}, {"n": 1})]),
    ({"metrics": COUNT, "group_by": {"keys": ["date_hashed"]}, "filter": {"record_key": "a"}}, [({"date_hashed": "2020-01-01"}, {"n": 1})]),
    ({"metrics": COUNT, "group_by": {"keys": ["decimal_plain", "string_hashed"]}, "filter": {"record_key": "b"}}, [({"decimal_plain": 2.25, "string_hashed": "Bo Ek"}, {"n": 1})]),
    ({"metrics": {"s": {"func": "sum", "key": "integer_plain"}}, "group_by": {"keys": ["boolean_hashed"], "limit": 100}, "filter": {"boolean_hashed": True}}, [({"boolean_hashed": True}, {"s": -2})]),
]  # fmt: skip

#: (request, where a fault is); each is 400.
QUESTIONS: list[tuple[Any, str]] = [
    ({}, "/metrics"), ({"metrics": {}}, "/metrics"), ({"metrics": []}, "/metrics"), ({"metrics": {"n": "count"}}, "/metrics/n"), ({"metrics": {"n": {}}}, "/metrics/n"),
    ({"metrics": {"n": {"func": "median"}}}, "/metrics/n/func"), ({"metrics": {"n": {"func": "sum"}}}, "/metrics/n"),
    ({"metrics": {"n": {"func": "count", "key": "integer_plain"}}}, "/metrics/n/key"), ({"metrics": {"n": {"func": "sum", "key": "nobody"}}}, "/metrics/n/key"),
    ({"metrics": {"n": {"func": "sum", "key": "string_plain"}}}, "/metrics/n/key"), ({"metrics": {"n": {"func": "sum", "key": "integer_hashed"}}}, "/metrics/n/key"),
    ({"metrics": {"n": {"func": "sum", "key": "integer_sealed"}}}, "/metrics/n/key"), ({"metrics": {"n": {"func": "min", "key": "date_plain"}}}, "/metrics/n/key"),
    ({"metrics": {"n": {"func": "sum", "key": 1}}}, "/metrics/n/key"), ({"metrics": {"n": {"func": "count", "of": 1}}}, "/metrics/n/of"),
    ({"metrics": COUNT, "group_by": []}, "/group_by"), ({"metrics": COUNT, "group_by": {}}, "/group_by"), ({"metrics": COUNT, "group_by": {"keys": []}}, "/group_by/keys"),
    ({"metrics": COUNT, "group_by": {"keys": "boolean_plain"}}, "/group_by/keys"), ({"metrics": COUNT, "group_by": {"keys": ["nobody"]}}, "/group_by/keys/0"),
    ({"metrics": COUNT, "group_by": {"keys": ["boolean_plain", "string_sealed"]}}, "/group_by/keys/1"), ({"metrics": COUNT, "group_by": {"keys": ["json_plain"]}}, "/group_by/keys/0"),
    ({"metrics": COUNT, "group_by": {"keys": ["boolean_plain", "boolean_plain"]}}, "/group_by/keys/1"),
    ({"metrics": COUNT, "group_by": {"keys": ["boolean_plain"], "limit": 0}}, "/group_by/limit"), ({"metrics": COUNT, "group_by": {"keys": ["boolean_plain"], "limit": 101}}, "/group_by/limit"),
    ({"metrics": COUNT, "group_by": {"keys": ["boolean_plain"], "limit": "9"}}, "/group_by/limit"), ({"metrics": COUNT, "group_by": {"keys": ["boolean_plain"], "by": 1}}, "/group_by/by"),
    ({"metrics": COUNT, "filter": {"nobody": 1}}, "/filter/nobody"), ({"metrics": COUNT, "options": {}}, "/options"),
    ({"next": "x"}, "/next"), ({"cursor": "x"}, ""), ({"next": 1}, "/next"), ({"next": "x", "metrics": COUNT}, ""), ({"next": "x", "cursor": "y"}, ""),
]  # fmt: skip


@table(("options", "keys"), ORDERED)
async def test_order_and_pages(thing, options, keys):
    body = {"options": options}
    answer = await thing.client("POST", "/api/models/thing/find", json=body)
    assert answer.status == 200, answer.body
    assert "".join(record["id"] for record in answer.json["data"]) == keys
    limit, offset = int(options.get("limit", 100)), options.get("offset", 0)
    meta = dict(answer.json["meta"])
    cursor = meta.pop("next", None)
    assert meta == {"count": len(keys), "limit": limit, "offset": offset, "total": 5}
    short = await thing.client("POST", "/sf/find-ids", json={"schema": "thing", **body})
    told = short.json.pop("meta")
    assert short.json == {"data": list(keys)}
    assert (told.pop("next", None) is None) == (cursor is None)
    assert told == meta
    behind = {**options, "offset": offset + len(keys), "limit": 1000}
    rest = await thing.client("POST", "/api/models/thing/find", json={"options": behind})
    if cursor is None:
        assert rest.json["data"] == []
        return
    on = {name: value for name, value in options.items() if name != "offset"} | {
        "limit": 1000,
        "next": cursor,
    }
    following = await thing.client("POST", "/api/models/thing/find", json={"options": on})
    assert following.status == 200, following.body
    assert following.json["data"] == rest.json["data"] != []
    assert "next" not in following.json["meta"]


@table("options, place", OPTIONS)
async def test_options_that_cannot_be(thing, options, place):
    answer = await thing.client("POST", "/api/models/thing/find", json={"options": options})
    assert (answer.status, answer.json["code"]) == (400, "invalid_options"), answer.body
    assert [error["source"].startswith("/options" + place) for error in answer.json["errors"]] == [
        True
    ]


@table("asked, groups", FIGURES)
async def test_figures(thing, asked, groups):
    answer = await thing.client("POST", "/api/models/thing/aggregate", json=asked)
    assert answer.status == 200, answer.body
    assert answer.json["meta"] == {"next": None}
    assert [(group["group"]["keys"], group["metrics"]) for group in answer.json["data"]] == groups


@table("asked, place", QUESTIONS)
async def test_questions_that_cannot_be(thing, asked, place):
    answer = await thing.client("POST", "/api/models/thing/aggregate", json=asked)
    assert answer.status == 400, answer.body
    assert any(error["source"].startswith(place) for error in answer.json["errors"]), answer.json[
        "errors"
    ]
