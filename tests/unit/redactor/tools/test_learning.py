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
