from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.model.filter_reader import read_aggregate, read_filter, read_find
from proxy.model.query import (
    Aggregation,
    Compares,
    Equals,
    MetricFunction,
    MetricQuery,
    Op,
    Query,
    Sort,
)
from proxy.model.record import DEFAULTS, RecordLimits
from proxy.model.schema import records_schema
from tests.support.table import table
from tests.unit.model.test_filter_language import SCHEMA


def refused(read: Any, raw: Any, limits: RecordLimits = DEFAULTS) -> tuple[Code, list[str]]:
    with pytest.raises(VaultError) as caught:
        read(SCHEMA, raw, limits)
    return caught.value.code, [detail.source for detail in caught.value.details]


def test_nothing_but_the_defaults_is_asked_by_an_empty_request():
    assert read_find(SCHEMA, {}, DEFAULTS) == Query((), (), 100, 0)
    assert read_find(SCHEMA, {"filter": {}, "options": {}}, RecordLimits(find_default=7)) == Query(
        (), (), 7, 0
    )


def test_filter_and_options_become_one_question():
    raw = {
        "filter": {"age": {"$gt": 5}},
        "options": {"limit": 1000, "offset": 2**31 - 1, "sort": [{"city": "desc"}, {"age": "asc"}, {"created_at": "asc"}]},
    }  # fmt: skip
    sort = (Sort("city", True), Sort("age"), Sort("created_at"))
    assert read_find(SCHEMA, raw, DEFAULTS) == Query(
        (Compares("age", Op.GT, 5),), sort, 1000, 2**31 - 1
    )


@table("raw", [None, [], "x", 5])
def test_a_request_is_an_object(raw):
    assert refused(read_find, raw) == (Code.INVALID_INPUT, [""])
    assert refused(read_aggregate, raw)[0] is Code.INVALID_INPUT


BAD_OPTIONS: list[tuple[Any, list[str]]] = [
    ([], ["/options"]),
    (None, ["/options"]),
    ({"limit": 0}, ["/options/limit"]),
    ({"limit": -1}, ["/options/limit"]),
    ({"limit": 1001}, ["/options/limit"]),
    ({"limit": "5"}, ["/options/limit"]),
    ({"limit": True}, ["/options/limit"]),
    ({"limit": None}, ["/options/limit"]),
    ({"offset": -1}, ["/options/offset"]),
    ({"offset": 2**31}, ["/options/offset"]),
    ({"offset": 2**80, "limit": []}, ["/options/limit", "/options/offset"]),
    ({"page": 1}, ["/options/page"]),
    ({"sort": {"city": "asc"}}, ["/options/sort"]),
    ({"sort": "city"}, ["/options/sort"]),
    ({"sort": ["city"]}, ["/options/sort/0"]),
    ({"sort": [{}]}, ["/options/sort/0"]),
    ({"sort": [{"city": "asc", "age": "asc"}]}, ["/options/sort/0"]),
    ({"sort": [{"city": "up"}]}, ["/options/sort/0/city"]),
    ({"sort": [{"city": 1}]}, ["/options/sort/0/city"]),
    ({"sort": [{"city": ["asc"]}]}, ["/options/sort/0/city"]),
    ({"sort": [{"city": "asc"}, {"city": "desc"}]}, ["/options/sort/1/city"]),
    ({"sort": [{"nobody": "asc"}, {"version": "asc"}]}, ["/options/sort/0/nobody", "/options/sort/1/version"]),
    ({"sort": [{"name": "asc"}, {"note": "asc"}]}, ["/options/sort/0/name", "/options/sort/1/note"]),
    ({"sort": [{"record_key": "asc"}, {"id": "asc"}]}, ["/options/sort/0/record_key", "/options/sort/1/id"]),
    ({"sort": [{"sum": "asc"}, {"at": "asc"}, {"extra": "asc"}]}, ["/options/sort/0/sum", "/options/sort/2/extra"]),
]  # fmt: skip


@table("options, places", BAD_OPTIONS)
def test_options_that_cannot_be_used_are_refused(options, places):
    assert refused(read_find, {"options": options}) == (Code.INVALID_OPTIONS, places)


def test_all_faults_of_a_request_are_told_at_once_under_the_gravest_code():
    raw = {"filter": {"nobody": 1, "mail": {"$like": "abc"}}, "options": {"limit": 0}, "sort": []}
    places = ["/sort", "/filter/nobody", "/filter/mail/$like", "/options/limit"]
    assert refused(read_find, raw) == (Code.INVALID_INPUT, places)
    del raw["sort"]
    assert refused(read_find, raw) == (Code.INVALID_FILTER, places[1:])
    assert (
        refused(read_find, {"filter": {"mail": {"$like": "abc"}}})[0] is Code.PARTIAL_MATCH_DISABLED
    )


def test_a_filter_alone_is_read_at_its_place():
    assert read_filter(SCHEMA, {"id": ["a"]}, DEFAULTS) == (Equals("record_key", ("a",)),)
    assert refused(read_filter, {"nobody": 1}) == (Code.INVALID_FILTER, ["/filter/nobody"])
    with pytest.raises(VaultError) as caught:
        read_filter(SCHEMA, None, DEFAULTS, "")
    assert caught.value.details[0].source == ""


def test_an_aggregation_has_metrics_a_filter_and_keys():
    raw = {
        "metrics": {
            "n": {"func": "count"},
            "all": {"func": "SUM", "key": "sum"},
            "old": {"func": "Max", "key": "age"},
        },
        "filter": {"city": "Umeå"},
        "group_by": {"limit": 5, "keys": ["city", "record_key", "paid", "name"]},
    }
    assert read_aggregate(SCHEMA, raw, DEFAULTS) == Aggregation(
        (
            MetricQuery("n", MetricFunction.COUNT),
            MetricQuery("all", MetricFunction.SUM, "sum"),
            MetricQuery("old", MetricFunction.MAX, "age"),
        ),
        (Equals("city", ("Umeå",)),),
        ("city", "record_key", "paid", "name"),
        5,
    )


def test_without_keys_all_records_are_one_group():
    found = read_aggregate(SCHEMA, {"metrics": {"n": {"func": "count"}}}, DEFAULTS)
    assert isinstance(found, Aggregation)
    assert (found.keys, found.limit) == ((), 100)


@table("name", ["next", "cursor"])
def test_a_continuation_has_a_cursor_alone(name):
    assert read_aggregate(SCHEMA, {name: "abc"}, DEFAULTS) == "abc"
    assert refused(read_aggregate, {name: "abc", "metrics": {}}) == (
        Code.INVALID_INPUT,
        ["/metrics"],
    )
    assert refused(read_aggregate, {name: 5}) == (Code.INVALID_INPUT, [f"/{name}"])
    assert refused(read_aggregate, {name: ""}) == (Code.INVALID_INPUT, [f"/{name}"])


def test_two_cursors_are_one_too_many():
    assert refused(read_aggregate, {"next": "a", "cursor": "a"}) == (
        Code.INVALID_INPUT,
        ["/cursor"],
    )


def test_a_cursor_of_null_is_none():
    assert isinstance(
        read_aggregate(SCHEMA, {"next": None, "metrics": {"n": {"func": "count"}}}, DEFAULTS),
        Aggregation,
    )


COUNT = {"n": {"func": "count"}}
BAD_AGGREGATIONS: list[tuple[Any, list[str]]] = [
    ({}, ["/metrics"]),
    ({"metrics": {}}, ["/metrics"]),
    ({"metrics": []}, ["/metrics"]),
    ({"metrics": {str(n): {"func": "count"} for n in range(51)}}, ["/metrics"]),
    ({"metrics": {"n": "count"}}, ["/metrics/n", "/metrics/n/func"]),
    ({"metrics": {"n": {}}}, ["/metrics/n/func"]),
    ({"metrics": {"n": {"func": "median", "key": "age"}}}, ["/metrics/n/func"]),
    ({"metrics": {"n": {"func": 5}}}, ["/metrics/n/func"]),
    ({"metrics": {"n": {"func": "count", "key": "age"}}}, ["/metrics/n/key"]),
    ({"metrics": {"n": {"func": "count", "of": "age"}}}, ["/metrics/n/of"]),
    ({"metrics": {"n": {"func": "sum"}}}, ["/metrics/n/key"]),
    ({"metrics": {"n": {"func": "sum", "key": 5}}}, ["/metrics/n/key"]),
    ({"metrics": {"n": {"func": "sum", "key": "nobody"}}}, ["/metrics/n/key"]),
    ({"metrics": {"n": {"func": "min", "key": "city"}}}, ["/metrics/n/key"]),
    ({"metrics": {"n": {"func": "avg", "key": "pin"}}}, ["/metrics/n/key"]),
    ({"metrics": {"a/b": {"func": "max", "key": "extra"}, "": {"func": "count"}}}, ["/metrics/a~1b/key", "/metrics/"]),
    ({"metrics": COUNT, "group_by": []}, ["/group_by", "/group_by/keys"]),
    ({"metrics": COUNT, "group_by": {}}, ["/group_by/keys"]),
    ({"metrics": COUNT, "group_by": {"keys": []}}, ["/group_by/keys"]),
    ({"metrics": COUNT, "group_by": {"keys": "city"}}, ["/group_by/keys"]),
    ({"metrics": COUNT, "group_by": {"keys": ["city", 5, "nobody"]}}, ["/group_by/keys/1", "/group_by/keys/2"]),
    ({"metrics": COUNT, "group_by": {"keys": ["note", "extra", "blob"]}}, [f"/group_by/keys/{n}" for n in range(3)]),
    ({"metrics": COUNT, "group_by": {"keys": ["id", "record_key"]}}, ["/group_by/keys/1"]),
    ({"metrics": COUNT, "group_by": {"keys": ["city"], "limit": 101}}, ["/group_by/limit"]),
    ({"metrics": COUNT, "group_by": {"keys": ["city"], "limit": 0, "by": 1}}, ["/group_by/by", "/group_by/limit"]),
    ({"metrics": COUNT, "options": {}}, ["/options"]),
]  # fmt: skip


@table("raw, places", BAD_AGGREGATIONS)
def test_an_aggregation_that_cannot_be_computed_is_refused(raw, places):
    assert refused(read_aggregate, raw) == (Code.INVALID_INPUT, places)


def test_a_fault_of_the_filter_of_an_aggregation_is_one_of_the_filter():
    assert refused(read_aggregate, {"metrics": COUNT, "filter": {"age": "x"}}) == (
        Code.INVALID_FILTER,
        ["/filter/age"],
    )


def test_a_sort_by_more_fields_than_there_are_is_one_fault():
    sort = [{"nobody": "asc"}] * 100_000
    assert refused(read_find, {"options": {"sort": sort}}) == (
        Code.INVALID_OPTIONS,
        ["/options/sort"],
    )


def test_what_cannot_be_sorted_by_among_records_without_a_schema_names_the_setting():
    with pytest.raises(VaultError) as caught:
        read_find(records_schema(), {"options": {"sort": [{"key1": "asc"}]}}, DEFAULTS)
    assert "records.plain" in caught.value.details[0].text


@table(
    "raw",
    [
        {"metrics": COUNT, "group_by": {"keys": ["citty"]}},
        {"metrics": {"n": {"func": "sum", "key": "citty"}}},
    ],
)
def test_a_misspelled_field_of_an_aggregation_is_told_with_the_nearest_name(raw):
    with pytest.raises(VaultError) as caught:
        read_aggregate(SCHEMA, raw, DEFAULTS)
    assert "did you mean city?" in caught.value.details[0].text
