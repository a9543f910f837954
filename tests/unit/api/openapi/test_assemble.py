import json
import re

import pytest
from jsonschema import Draft202012Validator

from proxy.api.context import COMMON_STATUSES, Access
from proxy.api.openapi.assemble import assemble, render
from proxy.api.openapi.described import DESCRIBED
from proxy.api.openapi.world import CONTACT
from proxy.api.operations import OPERATIONS
from proxy.model.schema_document import read_definition
from tests.support.tree import ROOT

BARE = assemble(OPERATIONS, DESCRIBED)
FULL = assemble(OPERATIONS, DESCRIBED, [read_definition("contact", CONTACT)])
SHOWN = [
    (f"{method} {path}", operation)
    for path, methods in BARE["paths"].items()
    for method, operation in methods.items()
]


def referenced(node: object) -> set[str]:
    """Every reference in a document."""
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*map(referenced, node.values()))
    return set().union(*map(referenced, node)) if isinstance(node, list) else set()


def test_the_document_has_every_operation_once():
    names = [operation["operationId"] for _, operation in SHOWN]
    assert sorted(names) == sorted(operation.name for operation in OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_an_operation_is_shown_with_its_parameters_and_statuses(operation):
    shown = BARE["paths"][operation.path][operation.method.lower()]
    named = {(parameter["in"], parameter["name"]) for parameter in shown.get("parameters", ())}
    assert {name for place, name in named if place == "path"} == set(
        re.findall(r"\{(\w+)\}", operation.path)
    )
    assert {name for place, name in named if place == "query"} == set(operation.query)
    statuses = {
        str(operation.success),
        *map(str, (*operation.also, *operation.failures, *COMMON_STATUSES)),
        "5XX",
    }
    assert statuses <= shown["responses"].keys() <= statuses | {"408"}
    assert ("security" in shown) == (operation.access is Access.OPEN)


@pytest.mark.parametrize("document", [BARE, FULL], ids=["bare", "full"])
def test_every_reference_leads_somewhere(document):
    places = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert referenced(document) <= places


@pytest.mark.parametrize(("place", "operation"), SHOWN, ids=[place for place, _ in SHOWN])
def test_every_example_fits_the_schema_beside_it(place, operation):
    contents = [*operation.get("requestBody", {}).get("content", {}).values()]
    for answer in operation["responses"].values():
        contents += answer.get("content", {}).values()
    for content in contents:
        schema = {**content["schema"], "components": FULL["components"]}
        Draft202012Validator.check_schema(schema)
        for example in content.get("examples", {}).values():
            Draft202012Validator(schema).validate(example["value"])


def test_schemas_of_users_are_components_and_the_names_that_paths_take():
    schemas = FULL["components"]["schemas"]
    assert schemas["model.contact"]["required"] == ["id"]
    assert schemas["Record"]["anyOf"] == [{"$ref": "#/components/schemas/model.contact"}]
    assert "anyOf" not in BARE["components"]["schemas"]["Record"]


def test_only_operations_on_records_are_bound_to_the_schemas_that_there_are():
    bound = {
        path
        for path, methods in FULL["paths"].items()
        for operation in methods.values()
        for parameter in operation.get("parameters", ())
        if parameter["name"] == "schema" and "enum" in parameter["schema"]
    }
    assert "/api/models/{schema}" in bound
    assert not [path for path in bound if path.startswith("/api/schemas/")]


def test_the_document_is_json():
    assert json.loads(render(BARE)) == json.loads(json.dumps(BARE))


def test_no_component_is_there_for_nothing():
    used = {place.rpartition("/")[2] for place in referenced(BARE)}
    assert BARE["components"]["schemas"].keys() - used - {"Record"} == set()


def test_the_document_beside_the_guide_is_in_step():
    told = "run: python -m proxy.api docs/openapi.json"
    assert (ROOT / "docs/openapi.json").read_bytes() == render(BARE) + b"\n", told
