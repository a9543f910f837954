from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.api.openapi.page import POLICY
from proxy.api.openapi.world import CONTACT
from proxy.edge.firewall import Firewall, Mode
from proxy.edge.limits import Quotas
from proxy.edge.rate_limit import RatePolicy, Rates
from proxy.model.policy import read_policy
from proxy.model.schema_document import read_definition
from proxy.net.client_address import Trusted
from tests.support.api import Client, NoSchemas, no_policies, services, serving

ABROAD = {"X-Forwarded-For": "8.8.8.8"}


@asynccontextmanager
async def documented(**given: Any) -> AsyncIterator[Client]:
    schema = read_definition("contact", CONTACT)
    declared = SimpleNamespace(schema=schema, records=SimpleNamespace(schema=schema))
    catalog = SimpleNamespace(schemas=lambda: [declared], using=NoSchemas().using)
    policies = no_policies()
    hidden = {"schema": "contact", "actions": ["read"], "fields": {"email": "hidden"}}
    await policies.put(read_policy("support", hidden))
    await policies.put(read_policy("abroad", {**hidden, "firewall": {"mode": "mask"}}))
    await policies.put(
        read_policy(
            "elsewhere", {"schema": "other", "actions": ["read"], "firewall": {"mode": "mask"}}
        )
    )
    async with serving(services(catalog=catalog, policies=policies, **given)) as client:
        yield client


@pytest.fixture
async def client():
    async with documented() as client:
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
        "email"
        in (await client("GET", "/openapi.json")).json["components"]["schemas"]["model.contact"][
            "properties"
        ]
    )
    nothing = (await client("GET", "/openapi.json", "under:gone")).json
    assert "model.contact" not in nothing["components"]["schemas"]


async def test_who_is_kept_out_of_the_country_learns_of_no_schema():
    firewall = Firewall(Mode.BLOCK, "se", (), None, Trusted(()))
    async with documented(firewall=firewall) as client:
        assert (await client("GET", "/openapi.json", "", headers=ABROAD)).status == 200
        for kept_out in ("writer", "under:support", "under:gone"):
            answer = await client("GET", "/openapi.json", kept_out, headers=ABROAD)
            assert (answer.status, answer.json["code"]) == (403, "outside_country"), kept_out
        for let_in, shown in (("under:abroad", True), ("under:elsewhere,support", False)):
            answer = await client("GET", "/openapi.json", let_in, headers=ABROAD)
            assert answer.status == 200
            assert ("model.contact" in answer.json["components"]["schemas"]) is shown, let_in
        assert (
            "model.contact" in (await client("GET", "/openapi.json")).json["components"]["schemas"]
        )


@pytest.mark.usefixtures("limits_clock")
async def test_who_shows_a_token_is_counted():
    one = Rates(RatePolicy("credential", 1, 1))
    async with documented(quotas=Quotas(credential=one)) as client:
        assert [(await client("GET", "/openapi.json")).status for _ in range(2)] == [200, 429]
        assert (await client("GET", "/openapi.json", "")).status == 200


async def test_the_page_may_load_nothing(client: Client):
    answer = await client("GET", "/docs", "")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["Content-Security-Policy"] == POLICY
    assert answer.body.startswith(b"<!doctype html>")
