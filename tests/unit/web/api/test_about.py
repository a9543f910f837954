from types import SimpleNamespace

import pytest

from proxy.model.definition import read_definition
from proxy.model.policy import read_policy
from proxy.web.api.document.page import POLICY
from proxy.web.api.document.world import CONTACT
from tests.support.api import Client, NoSchemas, no_policies, services, serving


@pytest.fixture
async def client():
    schema = read_definition("contact", CONTACT)
    declared = SimpleNamespace(schema=schema, records=SimpleNamespace(schema=schema))
    catalog = SimpleNamespace(schemas=lambda: [declared], using=NoSchemas().using)
    policies = no_policies()
    hidden = {"schema": "contact", "actions": ["read"], "fields": {"email": "hidden"}}
    await policies.put(read_policy("support", hidden))
    async with serving(services(catalog=catalog, policies=policies)) as client:
        yield client


async def test_the_document_of_the_interface_is_open(client: Client):
    answer = await client("GET", "/openapi.json", "")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert answer.json["openapi"] == "3.1.0"
    assert not [name for name in answer.json["components"]["schemas"] if name.startswith("model.")]


async def test_with_a_token_it_has_the_schemas_that_there_are(client: Client):
    document = (await client("GET", "/openapi.json")).json
    assert "model.contact" in document["components"]["schemas"]
    assert (await client("GET", "/openapi.json", "nobody")).status == 401


async def test_a_client_under_policies_is_shown_what_it_may_use(client: Client):
    document = (await client("GET", "/openapi.json", "under:support")).json
    assert "email" not in document["components"]["schemas"]["model.contact"]["properties"]
    assert (
        "email" in (await client("GET", "/openapi.json")).json["components"]["schemas"]["model.contact"]["properties"]
    )
    nothing = (await client("GET", "/openapi.json", "under:gone")).json
    assert "model.contact" not in nothing["components"]["schemas"]


async def test_the_page_may_load_nothing(client: Client):
    answer = await client("GET", "/docs", "")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["Content-Security-Policy"] == POLICY
    assert answer.body.startswith(b"<!doctype html>")
