from typing import Any

import pytest

from proxy.api.pop import read_pop_find, read_pop_record, read_pop_records
from proxy.errors import Code, VaultError
from proxy.model.query import Compares, Equals, Op
from proxy.model.record import RecordLimits
from proxy.model.schema import IS_ENCRYPTED, STATED_VERSION, records_schema
from tests.support.table import table

SCHEMA, LIMITS = records_schema(), RecordLimits()


def read(raw: Any, *, sealed_here: bool = False) -> dict[str, Any]:
    return read_pop_record(SCHEMA, raw, LIMITS, sealed_here=sealed_here).fields


def faults(call: Any) -> tuple[Code, list[str]]:
    with pytest.raises(VaultError) as caught:
        call()
    return caught.value.code, [detail.source for detail in caught.value.details]


def test_a_record_says_by_whom_it_was_sealed_and_with_which_key() -> None:
    sealed = read({"record_key": "k", "body": "2:x", "version": 4, "is_encrypted": True})
    assert (sealed[STATED_VERSION], sealed[IS_ENCRYPTED]) == (4, True)
    assert IS_ENCRYPTED not in read({"record_key": "k"})
    assert IS_ENCRYPTED not in read({"record_key": "k", "is_encrypted": None}, sealed_here=True)
    assert read({"record_key": "k", "is_encrypted": False}, sealed_here=True)[IS_ENCRYPTED] is False


@table(
    ("raw", "sealed_here", "places"),
    [
        ({"record_key": "k", "is_encrypted": True}, True, ["/is_encrypted"]),
        ({"record_key": "k", "is_encrypted": "yes"}, False, ["/is_encrypted"]),
        ({"record_key": "k", "country": "se"}, False, ["/country"]),
        ({"record_key": "k", "colour": "red"}, False, ["/colour"]),
        ({}, False, ["/record_key"]),
        ([], False, [""]),
    ],
)
def test_what_does_not_fit_is_told_by_its_place(
    raw: Any, sealed_here: bool, places: list[str]
) -> None:
    assert faults(lambda: read(raw, sealed_here=sealed_here)) == (Code.INVALID_RECORD, places)


def test_a_batch_tells_the_faults_of_all_its_records() -> None:
    raw = [
        {"record_key": "a"},
        {"record_key": "b", "is_encrypted": 1},
        {"record_key": "c", "country": "se"},
    ]
    code, places = faults(lambda: read_pop_records(SCHEMA, raw, LIMITS, sealed_here=False))
    assert (code, places) == (
        Code.INVALID_RECORD,
        ["/records/1/is_encrypted", "/records/2/country"],
    )
    (one,) = read_pop_records(
        SCHEMA, [{"record_key": "a", "is_encrypted": False}], LIMITS, sealed_here=False
    )
    assert (one.key, one.fields[IS_ENCRYPTED]) == ("a", False)


@table(
    ("raw", "code"),
    [
        ({}, Code.INVALID_INPUT),
        ([], Code.INVALID_INPUT),
        ([{"record_key": "k"}] * 101, Code.BATCH_TOO_LARGE),
    ],
)
def test_what_is_no_batch_is_refused(raw: Any, code: Code) -> None:
    assert faults(lambda: read_pop_records(SCHEMA, raw, LIMITS, sealed_here=False))[0] is code


def test_not_may_be_asked_of_numbers_and_instants() -> None:
    wanted = {
        "range_key1": {"$not": [1, None], "$gt": 0},
        "range_key": {"$not": 7},
        "decimal_key1": {"$not": None},
        "expires_at": {"$not": None},
        "created_at": {"$not": "2026-01-01T00:00:00+00:00", "$lt": "2027-01-01T00:00:00Z"},
        "key1": {"$not": "x"},
    }
    tests = read_pop_find(SCHEMA, {"filter": wanted}, LIMITS).tests
    assert Equals("range_key1", (1, None), negated=True) in tests
    assert Equals("range_key1", (7,), negated=True) in tests
    assert Compares("range_key1", Op.GT, 0) in tests
    assert Equals("decimal_key1", (None,), negated=True) in tests
    assert Equals("expires_at", (None,), negated=True) in tests
    assert Equals("created_at", (1_767_225_600_000,), negated=True) in tests
    assert Compares("created_at", Op.LT, 1_798_761_600_000) in tests
    assert Equals("key1", ("x",), negated=True) in tests
    assert len(tests) == 8


@table(
    ("wanted", "places"),
    [
        ({"range_key1": {"$not": "x"}}, ["/filter/range_key1/$not"]),
        ({"range_key1": {"$not": [1, "x"]}}, ["/filter/range_key1/$not/1"]),
        ({"range_key1": {"$not": []}}, ["/filter/range_key1/$not"]),
        ({"range_key1": {"$not": [1] * 1001}}, ["/filter/range_key1/$not"]),
        ({"created_at": {"$not": "yesterday"}}, ["/filter/created_at/$not"]),
        ({"body": {"$not": "x"}}, ["/filter/body"]),
    ],
)
def test_what_cannot_be_asked_is_told(wanted: dict[str, Any], places: list[str]) -> None:
    found = faults(lambda: read_pop_find(SCHEMA, {"filter": wanted}, LIMITS))
    assert found == (Code.INVALID_FILTER, places)


def test_a_filter_may_be_absent_and_has_to_be_an_object() -> None:
    assert read_pop_find(SCHEMA, {}, LIMITS).tests == ()
    assert faults(lambda: read_pop_find(SCHEMA, {"filter": 7}, LIMITS))[0] is Code.INVALID_FILTER
