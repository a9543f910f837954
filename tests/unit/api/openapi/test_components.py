import json

import pytest
from jsonschema import Draft202012Validator

from proxy.api.openapi.components import COMPONENTS
from proxy.errors import Code, Detail
from proxy.net.response import problem


@pytest.mark.parametrize(("name", "schema"), COMPONENTS.items())
def test_every_component_is_json_schema(name, schema):
    Draft202012Validator.check_schema(schema)


def test_an_error_of_the_program_is_a_problem():
    schema = {"$ref": "#/components/schemas/Problem", "components": {"schemas": COMPONENTS}}
    body = json.loads(problem(400, Code.INVALID_INPUT, "No.", (Detail("/a", "Is wrong."),)))
    Draft202012Validator(schema).validate(body)
    del body["code"]
    assert not Draft202012Validator(schema).is_valid(body)
