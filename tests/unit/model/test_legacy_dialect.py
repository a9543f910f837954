"""Requests of the record-based family in terms of its schema."""

from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.model.legacy_dialect import (
    field_of_name,
    parse_legacy_record,
    read_record_aggregate,
    read_record_filter,
    read_record_find,
    read_records,
)
from proxy.model.query import Aggregation, AnyOf, Compares, Equals, Op
from proxy.model.record import DEFAULTS
from proxy.model.schema import RecordKeys, records_schema
from tests.support.table import table

SCHEMA = records_schema(RecordKeys(plain=frozenset(("key1",))))


def told(read: Any, *args: Any, **more: Any) -> tuple[Code, list[str]]:
    with pytest.raises(VaultError) as caught:
        read(SCHEMA, *args, limits=DEFAULTS, **more)
    return caught.value.code, [detail.source for detail in caught.value.details]


def test_a_record_may_say_the_same_under_both_names() -> None:
    raw = {"key": "r-1", "record_key": "r-1", "range_key1": 5, "range_key": 5}
    assert parse_legacy_record(SCHEMA, raw, partial=False, limits=DEFAULTS).fields == {
        "record_key": "r-1",
        "range_key1": 5,
    }
    raw["range_key"] = 6
    assert told(parse_legacy_record, raw, partial=False) == (Code.INVALID_RECORD, ["/range_key"])


def test_faults_of_a_record_are_told_in_its_own_names() -> None:
    raw = {
        "key": 1,
        "range_key": "x",
        "version": "one",
        "is_encrypted": True,
        "stated_version": 1,
        "created_at": "x",
    }
    assert told(parse_legacy_record, raw, partial=False, pointer="/records/3") == (
        Code.INVALID_RECORD,
        # the vault compares it with what is stored
        [f"/records/3/{name}" for name in raw if name != "created_at"],
    )
    assert told(parse_legacy_record, {}, partial=False) == (Code.INVALID_RECORD, ["/record_key"])
    assert told(parse_legacy_record, [], partial=False) == (Code.INVALID_RECORD, [""])


def test_a_batch_tells_every_fault_with_its_place() -> None:
    raw = [{"key": "a"}, {"record_key": "a", "country": "se"}, {"key": "b", "range_key": "x"}]
    assert told(read_records, raw, partial=False, pointer="/records") == (
        Code.INVALID_RECORD,
        ["/records/1/record_key", "/records/2/range_key"],
    )
    assert [
        draft.key for draft in read_records(SCHEMA, raw[:1], partial=False, limits=DEFAULTS)
    ] == ["a"]
    assert told(read_records, "x", partial=False)[0] is Code.INVALID_INPUT
    assert told(read_records, [{}] * (DEFAULTS.batch + 1), partial=False)[0] is Code.BATCH_TOO_LARGE


def test_a_filter_may_use_the_older_names_also_inside_or() -> None:
    tests = read_record_filter(
        SCHEMA, {"range_key": 5, "$or": [{"key": "a"}, {"record_key": "b"}]}, DEFAULTS
    )
    assert tests == (
        Equals("range_key1", (5,)),
        AnyOf(((Equals("record_key", ("a",)),), (Equals("record_key", ("b",)),))),
    )


@table(
    ("raw", "places"),
    [
        ({"key": "a", "record_key": "b"}, ["/filter/record_key"]),
        ({"range_key": {"$gt": "x"}}, ["/filter/range_key/$gt"]),
        ({"$or": [{"key": 1}, {"key": "a", "record_key": "a"}]}, ["/filter/$or/0/key", "/filter/$or/1/record_key"]),
        ({"stated_version": 1, "is_encrypted": True, "country": "se"}, ["/filter/stated_version", "/filter/is_encrypted", "/filter/country"]),
        ({"body": "x"}, ["/filter/body"]),
        ({"created_at": "yesterday"}, ["/filter/created_at"]),
        ({"created_at": []}, ["/filter/created_at"]),
        ({"created_at": ["2020-01-01T00:00:00Z", 7]}, ["/filter/created_at/1"]),
        ({"created_at": ["2020-01-01T00:00:00Z"] * 1001}, ["/filter/created_at"]),
        ({"updated_at": {}}, ["/filter/updated_at"]),
        ({"updated_at": {"$like": "2020", "$gt": 1}}, ["/filter/updated_at/$like", "/filter/updated_at/$gt"]),
        ({"expires_at": {"$gt": "2020-01-01T00:00:00Z", "$gte": "2020-01-01T00:00:00Z"}}, ["/filter/expires_at/$gte"]),
        ({"key1": 1, "created_at": 1}, ["/filter/key1", "/filter/created_at"]),
        ([], ["/filter"]),
    ],
)  # fmt: skip
def test_faults_of_a_filter_are_told_in_its_own_names(raw: Any, places: list[str]) -> None:
    with pytest.raises(VaultError) as caught:
        read_record_filter(SCHEMA, raw, DEFAULTS)
    assert caught.value.code is Code.INVALID_FILTER
    assert [detail.source for detail in caught.value.details] == places


def test_partial_match_that_is_off_is_no_excuse_for_other_faults() -> None:
    off = {"key2": {"$like": "abc"}}
    with pytest.raises(VaultError) as caught:
        read_record_filter(SCHEMA, off, DEFAULTS)
    assert caught.value.code is Code.PARTIAL_MATCH_DISABLED
    with pytest.raises(VaultError) as caught:
        read_record_filter(SCHEMA, {**off, "created_at": 1}, DEFAULTS)
    assert caught.value.code is Code.INVALID_FILTER


def test_instants_are_asked_for_by_milliseconds() -> None:
    raw = {
        "created_at": {"$gte": "1970-01-01T00:00:01Z", "$lt": "1970-01-01T01:00:02+01:00"},
        "expires_at": [None, "1970-01-01T00:00:00.007Z"],
    }
    assert read_record_filter(SCHEMA, raw, DEFAULTS) == (
        Compares("created_at", Op.GTE, 1000),
        Compares("created_at", Op.LT, 2000),
        Equals("expires_at", (None, 7)),
    )


def test_version_is_what_was_stated_or_else_counted() -> None:
    unstated = Equals("stated_version", (None,))
    assert read_record_filter(SCHEMA, {"version": [3, None]}, DEFAULTS) == (
        AnyOf(((Equals("stated_version", (3,)),), (unstated, Equals("version", (3,))))),
    )
    assert read_record_filter(SCHEMA, {"version": {"$not": 3, "$gt": 1}}, DEFAULTS) == (
        AnyOf(
            (
                (Equals("stated_version", (3, None), negated=True),),
                (unstated, Equals("version", (3,), negated=True)),
            )
        ),
        AnyOf(((Compares("stated_version", Op.GT, 1),), (unstated, Compares("version", Op.GT, 1)))),
    )


@table(
    ("options", "places"),
    [
        ({"sort": [{"key2": "asc"}]}, ["/options/sort/0/key2"]),
        ({"sort": [{"range_key": "up"}]}, ["/options/sort/0/range_key"]),
        ({"sort": [{"range_key": "asc"}, {"range_key1": "asc"}]}, ["/options/sort/1/range_key1"]),
        ({"sort": [{"stated_version": "asc"}]}, ["/options/sort/0/stated_version"]),
        ({"sort": 1}, ["/options/sort"]),
        ({"sort": [1]}, ["/options/sort/0"]),
        (7, ["/options"]),
    ],
)
def test_faults_of_options_are_told_in_their_own_names(options: Any, places: list[str]) -> None:
    with pytest.raises(VaultError) as caught:
        read_record_find(SCHEMA, {"options": options}, DEFAULTS)
    assert (caught.value.code, [detail.source for detail in caught.value.details]) == (
        Code.INVALID_OPTIONS,
        places,
    )


def test_an_aggregation_may_use_the_older_names() -> None:
    raw = {
        "metrics": {"n": {"func": "count"}, "sum": {"func": "sum", "key": "range_key"}},
        "group_by": {"keys": ["key", "range_key"]},
        "filter": {"version": 1, "created_at": {"$gt": "1970-01-01T00:00:00Z"}},
    }
    asked = read_record_aggregate(SCHEMA, raw, DEFAULTS)
    assert isinstance(asked, Aggregation)
    assert [metric.field for metric in asked.metrics] == [None, "range_key1"]
    assert asked.keys == ("record_key", "range_key1")
    assert len(asked.tests) == 2
    assert read_record_aggregate(SCHEMA, {"next": "c"}, DEFAULTS) == "c"


@table(
    ("raw", "places"),
    [
        ({"metrics": {"s": {"func": "sum", "key": "stated_version"}}}, ["/metrics/s/key"]),
        ({"metrics": {"s": {"func": "sum", "key": "key1"}}}, ["/metrics/s/key"]),
        ({"metrics": {"s": 1}}, ["/metrics/s", "/metrics/s/func"]),
        ({"metrics": {"n": {"func": "count"}}, "group_by": {"keys": ["is_encrypted", 1]}}, ["/group_by/keys/0", "/group_by/keys/1"]),
        ({"metrics": {"n": {"func": "count"}}, "group_by": 1}, ["/group_by", "/group_by/keys"]),
    ],
)  # fmt: skip
def test_faults_of_an_aggregation_are_told(raw: Any, places: list[str]) -> None:
    with pytest.raises(VaultError) as caught:
        read_record_aggregate(SCHEMA, raw, DEFAULTS)
    assert [detail.source for detail in caught.value.details] == places


def test_a_name_in_a_list_means_a_field_or_none() -> None:
    assert [field_of_name(name) for name in ("key", "range_key", "key1", 7, None)] == [
        "record_key",
        "range_key1",
        "key1",
        7,
        None,
    ]
    assert field_of_name("is_encrypted") not in {field.name for field in SCHEMA.fields}
