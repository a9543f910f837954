import json
from typing import Any

import pytest
import yaml

from proxy.errors import Code, VaultError
from proxy.redactor.load import load_text
from proxy.redactor.tools.learning import learn
from proxy.redactor.tools.proposal import propose
from tests.support.table import table

OPENAPI: dict[str, Any] = {
    "openapi": "3.1.0",
    "servers": [{"url": "https://crm.example.com/v1"}],
    "paths": {
        "/kunder": {
            "post": {
                "requestBody": {
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Kund"}}}
                },
                "responses": {"201": {"$ref": "#/components/responses/One"}},
            },
            "get": {
                "parameters": [{"in": "query", "name": "email"}],
                "responses": {
                    "200": {
                        "content": {
                            "application/json": {
                                "schema": {"type": "array", "items": {"$ref": "#/components/schemas/Kund"}}
                            }
                        }
                    }
                },
            },
        },
        "/kunder/{kund-id}": {"delete": {"responses": {"204": {}}}},
    },
    "components": {
        "responses": {
            "One": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Kund"}}}}
        },
        "schemas": {
            "Base": {"properties": {"id": {"type": "integer"}, "e-post": {"type": "string", "format": "email"}}},
            "Kund": {
                "allOf": [
                    {"$ref": "#/components/schemas/Base"},
                    {
                        "properties": {
                            "fullName": {"type": "string"},
                            "email": {"type": ["string", "null"]},
                            "parent": {"$ref": "#/components/schemas/Kund"},
                        }
                    },
                ]
            },
        },
    },
}  # fmt: skip


@table("written", [json.dumps, yaml.safe_dump])
def test_a_described_interface_becomes_rules_by_its_names(written):
    text = propose(learn(written(OPENAPI).encode(), ()), "crm").text
    load_text(text)
    rules = yaml.safe_load(text)
    assert rules["endpoint"]["upstream"] == "https://crm.example.com"
    fields = rules["entities"]["kunder"]["fields"]
    kinds = {name: one["kind"] for name, one in fields.items()}
    assert [kinds[name] for name in ("fullName", "email", "e_post")] == ["name", "email", "email"]
    assert [one["match"] for one in rules["operations"]] == [
        "POST /v1/kunder", "GET /v1/kunder", "DELETE /v1/kunder/{kund_id}",
    ]  # fmt: skip


def test_swagger_2_is_read_too():
    kund = {"properties": {"email": {"type": "string"}, "id": {"type": "integer"}}}
    document = {
        "swagger": "2.0", "basePath": "/v2", "definitions": {"Kund": kund},
        "paths": {"/kunder/{id}": {"get": {"responses": {"200": {"schema": {"$ref": "#/definitions/Kund"}}}}}},
    }  # fmt: skip
    rules = yaml.safe_load(propose(learn(json.dumps(document).encode(), ()), "crm").text)
    assert rules["operations"][0]["match"] == "GET /v2/kunder/{id}"


@table(
    "content",
    [b"", b"[]", b"\xff", b'{"log": {}}', b'{"log": {"entries": []}}', b'{"openapi": "3.0"}',
     b'{"openapi": "3.0", "paths": {"/a": {"get": {"requestBody": {"$ref": "#/none"}}}}}',
     b'{"log": {"entries": [{"request": {"method": "GET", "url": 7}, "response": {}}]}}'],
)  # fmt: skip
def test_what_is_neither_of_the_two_is_refused_without_its_content(content):
    with pytest.raises(VaultError) as caught:
        learn(content, ())
    assert caught.value.code is Code.BAD_REQUEST


def test_schemas_that_multiply_end():
    schemas: dict[str, Any] = {
        f"S{level}": {
            "properties": {
                f"p{n}": {"$ref": f"#/components/schemas/S{level + 1}"} for n in range(9)
            }
        }
        for level in range(30)
    }
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/S0"}}}}
    document = {
        "openapi": "3.1.0",
        "components": {"schemas": schemas},
        "paths": {"/a": {"post": {"requestBody": body}}},
    }
    assert propose(learn(json.dumps(document).encode(), ()), "crm").text


def test_a_described_form_is_read_too():
    form = {"properties": {"email": {"type": "string"}, "color": {"type": "string"}}}
    body = {"content": {"application/x-www-form-urlencoded": {"schema": form}}}
    paths = {"/contacts/{id}": {"put": {"requestBody": body, "responses": {}}}}
    document = {"openapi": "3.1.0", "paths": paths}
    proposal = propose(learn(json.dumps(document).encode(), ()), "crm")
    (rule,) = yaml.safe_load(proposal.text)["operations"]
    assert rule["request"] == {"form": {"email": "email"}}
    assert [one.part for one in proposal.left_out] == ["color"]


def test_a_column_that_is_described_to_take_dates_alone_gets_dates_as_tokens():
    text = {"type": "string"}
    kund = {
        "properties": {"id": text, "email": text, "born": {**text, "format": "date"}, "dob": text}
    }
    content = {"application/json": {"schema": kund}}
    answers = {"200": {"content": content}}
    paths = {"/kunder/{id}": {"put": {"requestBody": {"content": content}, "responses": answers}}}
    document = {"openapi": "3.1.0", "paths": paths}
    proposed = propose(learn(json.dumps(document).encode(), ()), "crm").text
    load_text(proposed)
    fields = yaml.safe_load(proposed)["entities"]["kunder"]["fields"]
    assert fields["born"] == {"kind": "date", "token": {"shape": "date"}}
    assert fields["dob"] == {"kind": "date", "token": "opaque"}


_EMAIL = {"properties": {"email": {"type": "string"}}}


def described(*operations: tuple[str, str, Any]) -> Any:
    """A document of methods, paths and operations."""
    paths: dict[str, Any] = {}
    for method, path, operation in operations:
        paths.setdefault(path, {})[method] = {"responses": {}, **operation}
    return {"openapi": "3.1.0", "paths": paths}


def body(schema: Any, media: str = "application/json") -> Any:
    return {"requestBody": {"content": {media: {"schema": schema}}}}


@table(
    ("operation", "passes"),
    [
        ({}, False), ({"requestBody": {}}, False), ({"requestBody": {"$ref": "other.yaml#/x"}}, False),
        ({"requestBody": {"content": {"application/json": None}}}, False),
        ({"requestBody": {"content": {"application/json": {}}}}, False),
        (body({}), False), (body(True), False), (body({"type": "object"}), False),
        (body({"type": "object", "additionalProperties": True}), False),
        (body({"properties": {"color": {"type": "string"}}, "additionalProperties": {"type": "string"}}), False),
        (body({"properties": {"color": {"type": "string"}, "extra": {}}}), False),
        (body({"type": "array"}), False), (body({"type": "object"}, "*/*"), False),
        (body({"type": "string"}, "text/plain"), False), (body({"type": "string"}, "application/octet-stream"), False),
        (body({"properties": {"file": {"type": "string"}}}, "multipart/form-data"), False),
        ({"parameters": [{"in": "body", "name": "body"}]}, False),
        ({"parameters": [{"in": "formData", "name": "file", "type": "file"}]}, False),
        ({"parameters": [{"in": "formData", "name": "color", "type": "string"}]}, True),
        (body({"properties": {"color": {"type": "string"}}}), True),
        (body({"properties": {"color": {"type": "string"}}, "additionalProperties": False}), True),
    ],
)  # fmt: skip
def test_a_body_that_is_not_described_is_not_proposed_to_pass(operation, passes):
    document = described(("post", "/things", operation))
    proposed = propose(learn(json.dumps(document).encode(), ()), "crm")
    load_text(proposed.text)
    assert ("pass: true" in proposed.text) is passes
    assert any(one.request == "POST /things" for one in proposed.left_out) is not passes


def test_an_open_body_of_a_described_collection_is_proposed_below_a_comment():
    kund = {"200": {"content": {"application/json": {"schema": _EMAIL}}}}
    document = described(
        ("get", "/kunder/{id}", {"responses": kund}), ("put", "/kunder/{id}", body({})),
        ("post", "/kunder", body({"type": "object"})),
        ("post", "/kunder/{id}/notes", body({})),  # may add something: no update of the record
    )  # fmt: skip
    proposed = propose(learn(json.dumps(document).encode(), ()), "crm")
    load_text(proposed.text)
    rules = yaml.safe_load(proposed.text)["operations"]
    assert [one.get("create") or one.get("update") for one in rules] == ["kunder", None, "kunder"]
    assert proposed.text.count("    # the document does not say all that the request carries") == 2
    listed = [one.request for one in proposed.left_out if "does not say" in one.because]
    assert listed == ["POST /kunder", "PUT /kunder/{id}", "POST /kunder/{id}/notes"]
    assert "pass: true" not in proposed.text


@table(
    "operation",
    [
        body(_EMAIL, "multipart/form-data"), body(_EMAIL, "*/*"),
        {"parameters": [{"in": "formData", "name": "email", "type": "string"}]},
    ],
)  # fmt: skip
def test_uploads_and_forms_that_are_described_are_read(operation):
    proposed = propose(
        learn(json.dumps(described(("put", "/kunder/{id}", operation))).encode(), ()), "crm"
    )
    load_text(proposed.text)
    assert yaml.safe_load(proposed.text)["entities"]["kunder"]["fields"]["email"]["kind"] == "email"


@table(
    "photo",
    [
        {"type": "string", "format": "binary"},
        {"type": "array", "items": {"type": "string", "format": "binary"}},
    ],
)
def test_names_of_files_beside_something_of_a_person_are_proposed_as_fields(photo):
    schema = {"properties": {"photo": photo, "email": {"type": "string", "format": "email"}}}
    operation = body(schema, "multipart/form-data")
    proposed = propose(
        learn(json.dumps(described(("post", "/kunder", operation))).encode(), ()), "crm"
    )
    (rule,) = yaml.safe_load(proposed.text)["operations"]
    assert rule["request"] == {"multipart": {"email": "email", "photo": {"filename": "photo"}}}
