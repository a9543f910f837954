from typing import Any

import pytest

from proxy.model.schema import FieldType
from proxy.model.schema_change import CONVERTIBLE, Effect, planned
from proxy.model.schema_document import LONGEST_STRING, read_definition

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


@pytest.mark.parametrize(
    ("before", "after", "expected"),
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
            {"type": "json"},
            {"type": "json", "storage": "encrypted"},
            [("/storage", Effect.REWRITES)],
        ),
        (
            {},
            {"storage": "indexed", "required": True, "max_length": 9},
            [
                ("/storage", Effect.REWRITES),
                ("/max_length", Effect.REWRITES),
                ("/required", Effect.AT_ONCE),
            ],
        ),
    ],
)
def test_each_difference_of_a_field_is_a_step(
    before: dict[str, Any], after: dict[str, Any], expected: list[tuple[str, Effect]]
) -> None:
    assert of_field(before, after) == expected


@pytest.mark.parametrize("old", [kind for kind in ALL if kind is not FieldType.PRIMARY_KEY])
@pytest.mark.parametrize("new", [kind for kind in ALL if kind is not FieldType.PRIMARY_KEY])
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
