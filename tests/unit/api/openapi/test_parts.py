from proxy.api.openapi.parts import array, closed, header, integer, ref, string


def test_short_ways_write_json_schema():
    assert ref("A") == {"$ref": "#/components/schemas/A"}
    assert array(string("X."), minItems=1) == {
        "type": "array",
        "items": {"type": "string", "description": "X."},
        "minItems": 1,
    }
    assert closed({"a": integer()}, "a") == {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": False,
        "required": ["a"],
    }
    assert "required" not in closed({})


def test_a_header_is_a_parameter():
    assert header("X-A", "Why.", required=True, maxLength=3) == {
        "name": "X-A",
        "in": "header",
        "required": True,
        "description": "Why.",
        "schema": {"type": "string", "maxLength": 3},
    }
