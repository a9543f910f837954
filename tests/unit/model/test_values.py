from decimal import Decimal
from typing import Any

import pytest

from proxy.clock import to_wire
from proxy.errors import Code, Detail
from proxy.model.record import DEFAULTS, RecordLimits
from proxy.model.schema import Field, FieldType
from proxy.model.values import Unfit, ValueFaults, check_of, instant, step, text_of
from tests.support.table import table

D = Decimal
GOOD = [
    (FieldType.STRING, "", ""),
    (FieldType.STRING, "ö" * 256, "ö" * 256),
    (FieldType.STRING, "😀" * 256, "😀" * 256),
    (FieldType.PRIMARY_KEY, "k" * 128, "k" * 128),
    (FieldType.INTEGER, 2**63 - 1, 2**63 - 1),
    (FieldType.INTEGER, -(2**63), -(2**63)),
    (FieldType.INTEGER, D("1.0"), 1),
    (FieldType.INTEGER, D("-1.5e1"), -15),
    (FieldType.INTEGER, D("0E+999999"), 0),
    (FieldType.INTEGER, D("9223372036854775807.000"), 2**63 - 1),
    (FieldType.DECIMAL, 7, D(7)),
    (FieldType.DECIMAL, D("999999999999.9999"), D("999999999999.9999")),
    (FieldType.DECIMAL, D("-12.50"), D("-12.50")),
    (FieldType.DECIMAL, D("0.10000"), D("0.1000")),
    (FieldType.DECIMAL, D("1E+5"), D(100000)),
    (FieldType.DECIMAL, D("0E-999999"), D("0.0000")),
    (FieldType.DECIMAL, D("0E+999999"), D(0)),
    (FieldType.BOOLEAN, True, True),
    (FieldType.BOOLEAN, False, False),
    (FieldType.DATETIME, "2024-02-29T23:59:59.999Z", "2024-02-29T23:59:59.999Z"),
    (FieldType.DATETIME, "0001-01-01T00:00:00.000Z", "0001-01-01T00:00:00.000Z"),
    (FieldType.DATE, "1899-12-31", "1899-12-31"),
    (FieldType.TIME, "00:00:00", "00:00:00"),
    (FieldType.JSON, {}, {}),
    (
        FieldType.JSON,
        {"a": [1, {"b": D("1.50")}, None, True, []]},
        {"a": [1, {"b": D("1.50")}, None, True, []]},
    ),
]
BAD = [
    (FieldType.STRING, 1),
    (FieldType.STRING, True),
    (FieldType.STRING, ["a"]),
    (FieldType.STRING, "x" * 257),
    (FieldType.STRING, "a\0b"),
    (FieldType.PRIMARY_KEY, ""),
    (FieldType.PRIMARY_KEY, "k" * 129),
    (FieldType.PRIMARY_KEY, 17),
    (FieldType.INTEGER, "1"),
    (FieldType.INTEGER, True),
    (FieldType.INTEGER, 2**63),
    (FieldType.INTEGER, -(2**63) - 1),
    (FieldType.INTEGER, D("1.5")),
    (FieldType.INTEGER, D("1E-999999")),
    (FieldType.INTEGER, D("1E+999999")),
    (FieldType.INTEGER, D("9223372036854775807.5")),
    (FieldType.DECIMAL, "12.5"),
    (FieldType.DECIMAL, False),
    (FieldType.DECIMAL, D("0.00001")),
    (FieldType.DECIMAL, D("1.23456")),
    (FieldType.DECIMAL, D("1E-999999")),
    (FieldType.DECIMAL, D("1E+999999")),
    (FieldType.DECIMAL, D("1000000000000")),
    (FieldType.DECIMAL, 10**12),
    (FieldType.DECIMAL, 2**64),
    (FieldType.BOOLEAN, 1),
    (FieldType.BOOLEAN, "true"),
    (FieldType.DATETIME, "2024-01-01T00:00:00Z"),
    (FieldType.DATETIME, "2024-01-01T00:00:00.000+00:00"),
    (FieldType.DATETIME, "2023-02-29T00:00:00.000Z"),
    (FieldType.DATETIME, "2024-01-01T24:00:00.000Z"),
    (FieldType.DATETIME, "2024-01-01 00:00:00.000Z"),
    (FieldType.DATETIME, "2024-01-01T00:00:00.000Z\n"),
    (FieldType.DATETIME, 1_700_000_000_000),
    (FieldType.DATE, "2024-1-1"),
    (FieldType.DATE, "20240101"),
    (FieldType.DATE, "2023-02-29"),
    (FieldType.DATE, "0000-01-01"),
    (FieldType.DATE, "2024-01-0\u0661"),
    (FieldType.TIME, "12:00"),
    (FieldType.TIME, "24:00:00"),
    (FieldType.TIME, "23:59:60"),
    (FieldType.TIME, "12:00:00.5"),
    (FieldType.JSON, []),
    (FieldType.JSON, "{}"),
    (FieldType.JSON, {"a": "\0"}),
    (FieldType.JSON, {"\0": 1}),
    (FieldType.JSON, {"a": D("NaN")}),
    (FieldType.JSON, {"a": 1.5}),
]  # fmt: skip


def read(kind: FieldType, value: Any, limits: RecordLimits = DEFAULTS, **more: Any) -> Any:
    return check_of(Field("f", kind, **more), limits)(value)


@table("kind, value, expected", GOOD)
def test_a_value_of_its_type_is_read_exactly(kind, value, expected):
    found = read(kind, value)
    assert found == expected
    assert type(found) is type(expected)
    assert str(found) == str(expected)


@table("kind, value", BAD)
def test_what_is_not_of_the_type_is_refused_without_its_value(kind, value):
    with pytest.raises(Unfit) as caught:
        read(kind, value)
    assert len(str(value)) < 6 or str(value) not in caught.value.text
    assert caught.value.text.endswith(".")


def test_a_schema_may_allow_longer_and_shorter_texts():
    assert read(FieldType.STRING, "x" * 1000, max_length=1000)
    with pytest.raises(Unfit, match="more than 3 characters"):
        read(FieldType.STRING, "abcd", max_length=3)
    with pytest.raises(Unfit, match="more than 128 characters"):
        read(FieldType.PRIMARY_KEY, "k" * 129, max_length=500)
    assert text_of(None)("x" * 10_000)


def nested(levels: int, inside: Any) -> Any:
    for _ in range(levels):
        inside = {"a": [inside]}
    return inside


def test_documents_have_bounds_on_depth_and_on_leaves():
    limits = RecordLimits(leaves=4, depth=4)
    assert read(FieldType.JSON, {"a": [1, 2, [], {}]}, limits)
    with pytest.raises(Unfit, match="more than 4 values"):
        read(FieldType.JSON, {"a": [1, 2, [], {}], "b": None}, limits)
    assert read(FieldType.JSON, nested(2, 1), limits)
    with pytest.raises(Unfit, match="more than 4 objects") as caught:
        read(FieldType.JSON, nested(2, {"b": 1}), limits)
    assert caught.value.pointer == "/a/0/a"
    with pytest.raises(Unfit):
        read(FieldType.JSON, nested(200, 1), DEFAULTS)


def test_the_place_of_a_fault_in_a_document_is_a_pointer_into_it():
    with pytest.raises(Unfit) as caught:
        read(FieldType.JSON, {"a/b": [1, {"c~": "\0"}]})
    assert caught.value.pointer == "/a~1b/1/c~0"


@table(
    ("text", "expected"),
    [
        ("2030-01-31T12:00:00.000Z", "2030-01-31T12:00:00.000Z"),
        ("2030-01-31T12:00:00Z", "2030-01-31T12:00:00.000Z"),
        ("2030-01-31t12:00:00.5z", "2030-01-31T12:00:00.500Z"),
        ("2030-01-31T12:00:00.123999+00:00", "2030-01-31T12:00:00.123Z"),
        ("2030-01-31T12:00:00+02:30", "2030-01-31T09:30:00.000Z"),
        ("2030-01-31T23:00:00-02:00", "2030-02-01T01:00:00.000Z"),
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_an_instant_may_have_any_offset(text, expected):
    assert to_wire(instant(text)) == expected


@table(
    "value",
    ["2030-01-31", "2030-01-31T12:00:00", "2030-02-30T12:00:00Z", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00+00:01",
     "9999-12-31T23:59:59.999-00:01", "2030-01-31T12:00:00+24:00", 1, "", "2030-01-31T12:00:00.Z", "0000-01-01T00:00:00Z"],
)  # fmt: skip
def test_what_is_no_instant_is_refused(value):
    with pytest.raises(Unfit):
        instant(value)


@table(
    ("name", "spelled"), [("a", "/a"), ("a/b~c", "/a~1b~0c"), ("", "/"), (3, "/3"), ("x" * 200, "")]
)
def test_steps_are_escaped_as_rfc_6901_says_and_endless_names_are_not_repeated(name, spelled):
    assert step(name) == spelled


def test_faults_are_told_in_order_and_no_more_than_allowed():
    faults = ValueFaults(2)
    assert not faults
    for number in range(5):
        faults.add(f"/{number}", "Wrong.")
    error = faults.error(Code.INVALID_RECORD, "No.")
    assert error.details == (Detail("/0", "Wrong."), Detail("/1", "Wrong."))
    assert error.message == "No. 3 more faults are not listed."
    assert error.code is Code.INVALID_RECORD


def test_kinds_of_faults_are_told_apart_where_somebody_says_them():
    faults = ValueFaults(1)
    faults.add("", "Wrong.")
    faults.add("", "Wrong.", Code.INVALID_FILTER)
    assert faults.codes == {Code.INVALID_FILTER}


def test_a_fault_knows_its_place_below_the_value():
    assert (Unfit("Wrong.", "/a").text, Unfit("Wrong.", "/a").pointer) == ("Wrong.", "/a")


class Names(list[str]):
    """Names that are taken as a part, never one by one to their end."""

    def __iter__(self):
        raise AssertionError("there are too many to look at each")


@table("before", [0, 1, 2, 3])
def test_the_same_fault_of_many_members_costs_no_more_than_what_is_told(before):
    faults = ValueFaults(2)
    for _ in range(before):
        faults.add("", "Before.")
    faults.each("/o", Names(["a/b", "c", "d", "e"]), "Wrong.", Code.INVALID_FILTER)
    error = faults.error(Code.INVALID_FILTER, "No.")
    assert (
        error.details
        == (
            *[Detail("", "Before.")] * before,
            Detail("/o/a~1b", "Wrong."),
            Detail("/o/c", "Wrong."),
        )[:2]
    )
    assert error.message == f"No. {before + 2} more faults are not listed."
    assert faults.codes == {Code.INVALID_FILTER}


def test_no_members_are_no_fault():
    faults = ValueFaults(2)
    faults.each("", [], "Wrong.", Code.INVALID_FILTER)
    assert not faults
    assert not faults.codes
