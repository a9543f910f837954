from decimal import Decimal
from typing import Any

import pytest

from proxy.model.schema import Field, FieldType, Schema
from proxy.model.schema_change import CONVERTIBLE, Conversion, Effect, conformed, converter, planned
from proxy.model.schema_document import LONGEST_STRING, read_definition
from proxy.model.values import Unfit
from tests.support.table import table

ALL = tuple(FieldType)
KEY: dict[str, Any] = {"id": {"type": "primary_key"}}


def steps(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, Effect]]:
    plan = planned(
        read_definition("contact", {"fields": {**KEY, **before}}),
        read_definition("contact", {"fields": {**KEY, **after}}),
        {},
    )
    return [(step.pointer, step.effect) for step in plan.steps]


def of_field(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, Effect]]:
    return [
        (pointer.removeprefix("/fields/x"), effect)
        for pointer, effect in steps(
            {"x": {"type": "string", **before}}, {"x": {"type": "string", **after}}
        )
    ]


def test_the_same_definition_is_no_change() -> None:
    assert steps({"x": {"type": "string"}}, {"x": {"type": "string", "required": False}}) == []


def test_the_order_of_fields_alone_is_no_step() -> None:
    x, y = {"x": {"type": "string"}}, {"y": {"type": "date"}}
    assert steps({**x, **y}, {**y, **x}) == []


def test_fields_are_added_at_once_and_removed_record_by_record() -> None:
    assert steps({}, {"x": {"type": "string", "required": True}}) == [("/fields/x", Effect.AT_ONCE)]
    assert steps({"x": {"type": "string"}}, {}) == [("/fields/x", Effect.REWRITES)]


@table(
    "before, after, expected",
    [
        ({}, {"required": True}, [("/required", Effect.AT_ONCE)]),
        ({"required": True}, {}, [("/required", Effect.AT_ONCE)]),
        ({}, {"max_length": 257}, [("/max_length", Effect.AT_ONCE)]),
        ({"max_length": 10}, {"max_length": LONGEST_STRING}, [("/max_length", Effect.AT_ONCE)]),
        ({"max_length": 10}, {}, [("/max_length", Effect.AT_ONCE)]),
        ({}, {"max_length": 256}, [("/max_length", Effect.AT_ONCE)]),
        ({}, {"max_length": 255}, [("/max_length", Effect.REWRITES)]),
        ({"max_length": 300}, {}, [("/max_length", Effect.REWRITES)]),
        ({}, {"storage": "indexed"}, [("/storage", Effect.REWRITES)]),
        ({}, {"storage": "encrypted"}, [("/storage", Effect.REWRITES)]),
        ({"storage": "encrypted"}, {"storage": "indexed"}, [("/storage", Effect.REWRITES)]),
        ({}, {"partial_match": True}, [("/partial_match", Effect.REWRITES)]),
        ({"partial_match": True}, {}, [("/partial_match", Effect.REWRITES)]),
        (
            {"storage": "indexed"},
            {"storage": "indexed", "partial_match": True},
            [("/partial_match", Effect.AT_ONCE)],
        ),
        ({"type": "json"}, {"type": "json", "storage": "indexed"}, [("/storage", Effect.AT_ONCE)]),
        (
            {"type": "json"}, {"type": "json", "storage": "encrypted"},
            [("/storage", Effect.REWRITES)],
        ),
        (
            {},
            {"storage": "indexed", "required": True, "max_length": 9},
            [
                ("/storage", Effect.REWRITES), ("/max_length", Effect.REWRITES),
                ("/required", Effect.AT_ONCE),
            ],
        ),
    ],
)  # fmt: skip
def test_each_difference_of_a_field_is_a_step(
    before: dict[str, Any], after: dict[str, Any], expected: list[tuple[str, Effect]]
) -> None:
    assert of_field(before, after) == expected


@table("old", [kind for kind in ALL if kind is not FieldType.PRIMARY_KEY])
@table("new", [kind for kind in ALL if kind is not FieldType.PRIMARY_KEY])
def test_a_type_changes_only_into_those_that_its_values_can_be_made(
    old: FieldType, new: FieldType
) -> None:
    found = of_field({"type": str(old)}, {"type": str(new)})
    if old is new:
        assert found == []
    else:
        assert found == [("/type", Effect.REWRITES if new in CONVERTIBLE[old] else Effect.REFUSED)]


def test_the_primary_key_stays() -> None:
    key, text = {"type": "primary_key"}, {"type": "string"}
    before = read_definition("contact", {"fields": {"id": key}})
    renamed = planned(before, read_definition("contact", {"fields": {"key": key}}), {})
    assert [detail.source for detail in renamed.refusals] == ["/fields/key", "/fields/id"]
    moved = planned(before, read_definition("contact", {"fields": {"id": text, "key": key}}), {})
    assert [detail.source for detail in moved.refusals] == ["/fields/id/type", "/fields/key"]


def test_the_primary_key_may_be_searched_for_in_part_later() -> None:
    assert steps({}, {"id": {"type": "primary_key", "partial_match": True}}) == [
        ("/fields/id/partial_match", Effect.REWRITES)
    ]


def test_a_field_that_is_rewritten_begins_another_life_and_others_go_on_with_theirs() -> None:
    before = read_definition(
        "contact", {"fields": {**KEY, "x": {"type": "string"}, "y": {"type": "string"}}}
    )
    wanted = {
        "fields": {**KEY, "x": {"type": "integer"}, "y": {"type": "string", "required": True}}
    }
    plan = planned(before, read_definition("contact", wanted), {"x": 4, "y": 2})
    assert [(field.name, field.life) for field in plan.schema.fields] == [
        ("id", 0),
        ("x", 5),
        ("y", 0),
    ]
    assert plan.rewrites
    assert planned(before, read_definition("contact", wanted), {}).schema.field("x").life == 1
    again = planned(plan.schema, plan.schema, {"x": 5, "y": 2})
    assert (again.schema, again.steps) == (plan.schema, ())


def test_a_field_that_comes_back_is_another_one() -> None:
    gone = read_definition("contact", {"fields": KEY})
    back = read_definition("contact", {"fields": {**KEY, "x": {"type": "string"}}})
    assert planned(gone, back, {"x": 1}).schema.field("x").life == 2
    assert planned(gone, back, {}).schema.field("x").life == 0


KEY_CONVERSION = Field("id", FieldType.PRIMARY_KEY)


def between(before: FieldType, after: FieldType, **more: Any) -> Conversion:
    return Conversion(
        Schema("s", (KEY_CONVERSION, Field("x", before))),
        Schema("s", (KEY_CONVERSION, Field("x", after, **more))),
    )


@table(
    "before, after, value, expected",
    [
        ("integer", "string", -5, "-5"),
        ("decimal", "string", Decimal("12.50"), "12.5"),
        ("decimal", "string", Decimal(100), "100"),
        ("decimal", "string", Decimal("-0.0"), "0"),
        ("boolean", "string", True, "true"),
        ("boolean", "string", False, "false"),
        ("date", "string", "2020-02-29", "2020-02-29"),
        ("time", "string", "23:59:59", "23:59:59"),
        ("datetime", "string", "2020-02-29T00:00:00.000Z", "2020-02-29T00:00:00.000Z"),
        ("integer", "decimal", 5, Decimal(5)),
        ("decimal", "integer", Decimal("5.0"), 5),
        ("string", "integer", "-9223372036854775808", -(2**63)),
        ("string", "decimal", "-12.50", Decimal("-12.50")),
        ("string", "boolean", "true", True),
        ("string", "date", "2020-02-29", "2020-02-29"),
        ("string", "time", "23:59:59", "23:59:59"),
        ("string", "datetime", "2020-02-29T23:59:59.999Z", "2020-02-29T23:59:59.999Z"),
        ("string", "datetime", "2020-02-29", "2020-02-29T00:00:00.000Z"),
        ("date", "datetime", "2020-02-29", "2020-02-29T00:00:00.000Z"),
    ],
)
def test_a_value_becomes_one_of_the_other_type_and_stays_so(
    before: str, after: str, value: Any, expected: Any
) -> None:
    convert = between(FieldType(before), FieldType(after))
    once = convert({"id": "k", "x": value})
    assert once == {"id": "k", "x": expected}
    assert type(once["x"]) is type(expected)
    assert convert(once) == once


@table(
    ("before", "after", "value"),
    [
        ("string", "integer", "12a"),
        ("string", "integer", ""),
        ("string", "integer", " 1"),
        ("string", "integer", "9223372036854775808"),
        ("string", "integer", "1.0"),
        ("string", "decimal", "1e3"),
        ("string", "decimal", "NaN"),
        ("string", "decimal", "1.00001"),
        ("string", "boolean", "True"),
        ("string", "date", "2021-02-29"),
        ("string", "time", "24:00:00"),
        ("string", "datetime", "2020-02-29T23:59:59Z"),
        ("integer", "decimal", 10**12),
        ("decimal", "integer", Decimal("0.5")),
    ],
)
def test_what_cannot_become_one_is_told_with_its_place_and_without_its_value(
    before: str, after: str, value: Any
) -> None:
    convert = between(FieldType(before), FieldType(after))
    with pytest.raises(Unfit) as refused:
        convert({"id": "k", "x": value})
    assert refused.value.pointer == "/x"
    assert not value or str(value) not in refused.value.text
    assert convert.fitting({"id": "k", "x": value})[0] == {"id": "k"}


def test_nothing_and_what_is_absent_stay_so() -> None:
    convert = between(FieldType.STRING, FieldType.INTEGER)
    assert convert({"id": "k", "x": None}) == {"id": "k", "x": None}
    assert convert({"id": "k"}) == {"id": "k"}


def test_a_text_that_is_too_long_now_does_not_fit() -> None:
    convert = between(FieldType.STRING, FieldType.STRING, max_length=3)
    assert convert({"x": "abc"}) == {"x": "abc"}
    with pytest.raises(Unfit):
        convert({"x": "abcd"})
    with pytest.raises(Unfit):
        between(FieldType.INTEGER, FieldType.STRING, max_length=3)({"x": 1234})


def test_a_text_that_was_stored_under_a_longer_limit_stays_where_the_length_does_not_change() -> (
    None
):
    assert between(FieldType.STRING, FieldType.STRING)({"x": "a" * 9999}) == {"x": "a" * 9999}


def test_a_removed_field_loses_its_values() -> None:
    convert = Conversion(Schema("s", (KEY_CONVERSION, Field("x"))), Schema("s", (KEY_CONVERSION,)))
    assert convert({"id": "k", "x": "secret"}) == {"id": "k"}
    assert not convert.idle


def test_where_nothing_changes_the_values_themselves_are_given_back() -> None:
    schema = Schema("s", (KEY_CONVERSION, Field("x")))
    convert, fields = Conversion(schema, schema), {"id": "k", "x": "a"}
    assert convert.idle
    assert convert(fields) is fields


@table("before, after", [(old, new) for old, into in CONVERTIBLE.items() for new in into])
def test_every_change_of_type_that_is_offered_has_its_conversion(
    before: FieldType, after: FieldType
) -> None:
    assert not between(before, after).idle


def test_history_shows_of_old_values_those_that_fit_the_schema_of_today() -> None:
    schema = Schema(
        "s",
        (
            KEY_CONVERSION,
            Field("n", FieldType.INTEGER),
            Field("t"),
            Field("d", FieldType.DATE),
            Field("j", FieldType.JSON),
            Field("z", FieldType.DECIMAL),
        ),
    )
    old = {"id": "k", "n": "7", "t": 5, "d": "tomorrow", "j": {"a": [1]}, "z": None, "gone": "x"}
    assert conformed(schema, old) == {"id": "k", "n": 7, "t": "5", "j": {"a": [1]}, "z": None}


def test_a_document_is_not_made_of_anything_else() -> None:
    for value in ("{}", 1, [1]):
        with pytest.raises(Unfit):
            converter(Field("j", FieldType.JSON))(value)
    with pytest.raises(Unfit):
        converter(Field("t"))({"a": 1})
