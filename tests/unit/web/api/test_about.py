from types import SimpleNamespace

import pytest

from proxy.model.definition import read_definition
from proxy.web.api.document.page import POLICY
from proxy.web.api.document.world import CONTACT
from tests.support.api import Client, NoSchemas, services, serving


@pytest.fixture
async def client():
    schema = read_definition("contact", CONTACT)
    catalog = SimpleNamespace(schemas=lambda: [SimpleNamespace(schema=schema)], using=NoSchemas().using)
    async with serving(services(catalog=catalog)) as client:
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


async def test_the_page_may_load_nothing(client: Client):
    answer = await client("GET", "/docs", "")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["Content-Security-Policy"] == POLICY
    assert answer.body.startswith(b"<!doctype html>")
