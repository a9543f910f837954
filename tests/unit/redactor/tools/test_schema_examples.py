from typing import Any

from proxy.redactor.tools.schema_examples import example, open_places, resolved
from tests.support.table import table

TEXT = {"type": "string"}
DOCUMENT: dict[str, Any] = {"parts": {"a/b": {"properties": {"a": TEXT}}, "ring": {"$ref": "#/parts/ring"}}}  # fmt: skip


@table(
    ("schema", "places"),
    [
        (None, [()]), (True, [()]), ({}, [()]), ({"type": "object"}, [()]), ({"type": ["object", "null"]}, [()]),
        ({"additionalProperties": True}, [()]), ({"additionalProperties": False}, []),
        ({"properties": {"a": TEXT}, "additionalProperties": TEXT}, [()]),
        ({"properties": {"a": TEXT}, "patternProperties": {"^x": TEXT}}, [()]),
        ({"properties": {"a": {}, "b": TEXT, "c": {"properties": {"d": {}}}}}, [("a",), ("c", "d")]),
        ({"type": "array"}, [("[*]",)]), ({"items": {"type": "object"}}, [("[*]",)]), ({"items": TEXT}, []),
        ({"enum": ["a"]}, []), (TEXT, []), ({"$ref": "#/parts/a~1b"}, []), ({"$ref": "other.yaml#/a"}, [()]),
        ({"allOf": [{"$ref": "#/parts/a~1b"}, {"description": "x"}]}, []), ({"allOf": [{}, {}]}, [(), ()]),
        ({"anyOf": [{"type": "object"}, {"type": "null"}]}, [()]),
        ({"properties": {"a": TEXT}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, []),
    ],
)  # fmt: skip
def test_the_places_that_a_schema_leaves_open(schema, places):
    assert [*open_places(DOCUMENT, schema, [100])] == places


def test_schemas_are_looked_at_within_a_budget():
    nested: dict[str, Any] = {"properties": {"a": {}, "b": {}}}
    assert [*open_places(DOCUMENT, nested, [2])] == [("a",)]
    assert example(DOCUMENT, {"properties": {"a": TEXT, "b": TEXT}}, [2]) == {"a": "x", "b": None}


@table(
    ("schema", "value"),
    [
        ({"properties": {"a": {"type": "string", "format": "date"}, "b": True}}, {"a": "2999-01-01", "b": None}),
        ({"allOf": [{"$ref": "#/parts/a~1b"}, {"properties": {"b": {"type": "integer"}}}]}, {"a": "x", "b": 0}),
        ({"oneOf": [{"type": "null"}, TEXT]}, "x"), ({"items": TEXT}, ["x"]), ({}, None),
    ],
)  # fmt: skip
def test_an_example_of_a_schema(schema, value):
    assert example(DOCUMENT, schema, [100]) == value


def test_references_that_lead_to_themselves_end():
    assert resolved(DOCUMENT, {"$ref": "#/parts/ring"}) == {"$ref": "#/parts/ring"}
