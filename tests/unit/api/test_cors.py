from typing import Any

import pytest

from tests.support.api import Interface, interface
from tests.support.examples import CONTACT

PAGE, STRANGER = "https://app.example.com", "https://evil.example.com"
FIND = "/api/models/contact/find"
ASKING = {
    "Origin": PAGE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization, x-client-auth",
}


@pytest.fixture
async def here(tmp_path):
    async with interface(tmp_path) as made:
        await made.declare("contact", CONTACT)
        await made.policy(
            "page", "contact", "read", cors={"origins": [PAGE, "http://localhost:3000"]}
        )
        await made.policy("other", "contact", "read")
        yield made


async def test_a_preflight_from_an_origin_that_a_policy_names_is_answered(here: Interface):
    said = await here.client("OPTIONS", FIND, "", headers=ASKING)
    assert (said.status, said.body) == (204, b"")
    assert said.headers["Access-Control-Allow-Origin"] == PAGE
    assert "POST" in said.headers["Access-Control-Allow-Methods"].split(", ")
    allowed = said.headers["Access-Control-Allow-Headers"].split(", ")
    assert {"authorization", "x-client-auth", "content-type"} <= set(allowed)
    assert said.headers["Vary"] == "Origin"
    for path, methods in (
        ("/api/models/contact/a/history", "GET, HEAD"),
        ("/webapi/models/contact/a", "DELETE, GET, PATCH, PUT"),
    ):
        said = await here.client("OPTIONS", path, "", headers=ASKING)
        assert (said.status, said.headers["Access-Control-Allow-Methods"]) == (204, methods)


async def test_pages_may_send_every_field_that_an_operation_knows(here: Interface):
    told = (await here.client("GET", "/openapi.json", "")).json
    known = {
        (path, parameter["name"].lower())
        for path, methods in told["paths"].items()
        for operation in methods.values()
        for parameter in (resolved(told, item) for item in operation.get("parameters", ()))
        if parameter["in"] == "header"
    }
    assert {"x-env-id", "x-encrypted-storage", "x-filename", "idempotency-key", "if-range"} <= {
        name for _, name in known
    }
    for path, name in known:
        said = await here.client(
            "OPTIONS", path.replace("{", "").replace("}", ""), "",
            headers={**ASKING, "Access-Control-Request-Headers": name},
        )  # fmt: skip
        assert (said.status, said.headers["Access-Control-Allow-Origin"]) == (204, PAGE), path
        assert name in said.headers["Access-Control-Allow-Headers"].split(", "), path


def resolved(document: dict[str, Any], parameter: dict[str, Any]) -> dict[str, Any]:
    """A parameter of the interface document, which may stand among its components."""
    if "$ref" not in parameter:
        return parameter
    found: dict[str, Any] = document["components"]["parameters"][
        parameter["$ref"].rpartition("/")[2]
    ]
    return found


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {**ASKING, "Origin": STRANGER},
        {**ASKING, "Origin": "null"},
        {**ASKING, "Origin": PAGE + "/"},
        {"Origin": PAGE},
        {name: value for name, value in ASKING.items() if name != "Origin"},
    ],
)
async def test_whatever_else_is_refused_as_a_method_that_there_is_not(here: Interface, headers):
    said = await here.client("OPTIONS", FIND, "", headers=headers)
    assert (said.status, said.json["code"]) == (405, "method_not_allowed")
    assert "Access-Control-Allow-Origin" not in said.headers
    assert (await here.client("OPTIONS", "/nowhere", "", headers=ASKING)).status == 404


async def test_an_answer_may_be_read_where_a_policy_of_the_caller_says_so(here: Interface):
    for origin in (PAGE, "http://localhost:3000"):
        said = await here.client("POST", FIND, "under:page", json={}, headers={"Origin": origin})
        assert said.status == 200
        assert (said.headers["Access-Control-Allow-Origin"], said.headers["Vary"]) == (
            origin,
            "Origin",
        )
        assert "idempotent-replayed" in said.headers["Access-Control-Expose-Headers"]
    refused = await here.client(
        "POST", FIND, "under:page", json={"filter": 5}, headers={"Origin": PAGE}
    )
    assert (refused.status, refused.headers["Access-Control-Allow-Origin"]) == (400, PAGE)


@pytest.mark.parametrize(
    ("as_", "origin", "status"),
    [
        ("under:page", STRANGER, 200),
        ("under:other", PAGE, 200),
        ("writer", PAGE, 200),
        ("nobody", PAGE, 401),
        ("", PAGE, 401),
    ],
)
async def test_nobody_elses_page_may_read_it(here: Interface, as_: str, origin: str, status: int):
    said = await here.client("POST", FIND, as_, json={}, headers={"Origin": origin})
    assert said.status == status
    assert "Access-Control-Allow-Origin" not in said.headers


async def test_without_an_origin_nothing_is_said_and_a_change_counts_at_once(here: Interface):
    said = await here.client("POST", FIND, "under:page", json={})
    assert not {"Vary", "Access-Control-Allow-Origin"} & set(said.headers)
    await here.policy("page", "contact", "read")
    said = await here.client("POST", FIND, "under:page", json={}, headers={"Origin": PAGE})
    assert "Access-Control-Allow-Origin" not in said.headers
    assert (await here.client("OPTIONS", FIND, "", headers=ASKING)).status == 405
