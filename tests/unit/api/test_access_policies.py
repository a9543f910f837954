import pytest

from tests.support.examples import CONTACT
from tests.support.world import World, world
from tests.unit.model.test_policy import EXAMPLE

SUPPORT = {
    "schema": "contact",
    "actions": ["read"],
    "fields": {"email": {"valueType": "redacted", "format": "[a-z]{8}"}, "name": "hidden"},
    "rows": {"filter": {"age": {"$gte": 18}}},
}
PATH = "/api/policies/support"


@pytest.fixture
async def here(tmp_path):
    async with world(tmp_path) as made:
        await made.declare("contact", CONTACT)
        yield made


async def test_a_policy_is_put_shown_listed_changed_and_removed(here: World):
    made = await here.client("PUT", PATH, "chief", json=SUPPORT)
    assert (made.status, made.json) == (201, {"name": "support", **SUPPORT})
    assert (await here.client("GET", PATH, "chief")).json == made.json
    other = await here.client("PUT", PATH, "chief", json={**made.json, "actions": ["write"]})
    assert (other.status, other.json["actions"]) == (200, ["write"])
    await here.client(
        "PUT", "/api/policies/a", "chief", json={"schema": "contact", "actions": ["read"]}
    )
    listed = (await here.client("GET", "/api/policies", "chief")).json
    assert ([item["name"] for item in listed["data"]], listed["meta"]["total"]) == (
        ["a", "support"],
        2,
    )
    page = (await here.client("GET", "/api/policies?limit=1&offset=1", "chief")).json
    assert [item["name"] for item in page["data"]] == ["support"]
    assert (await here.client("DELETE", PATH, "chief")).status == 204
    for method in ("GET", "DELETE"):
        gone = await here.client(method, PATH, "chief")
        assert (gone.status, gone.json["code"]) == (404, "not_found")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_policies_are_for_administrators(here: World, method: str):
    more = {"json": SUPPORT} if method == "PUT" else {}
    assert (await here.client(method, PATH, "writer", **more)).status == 403
    assert (await here.client("GET", "/api/policies", "under:support")).status == 403


@pytest.mark.parametrize(
    ("body", "places"),
    [
        ({"actions": ["fly"]}, ["/schema", "/actions/0"]),
        ({**SUPPORT, "schema": "none"}, ["/schema"]),
        (
            {**SUPPORT, "fields": {"iban": "hidden", "age": "masked"}},
            ["/fields/iban", "/fields/age"],
        ),
        ({**SUPPORT, "rows": {"filter": {"iban": 5}}}, ["/rows/filter/iban"]),
        (EXAMPLE, ["/fields/phone", "/fields/passport", "/rows/filter/region"]),
    ],
)
async def test_a_policy_with_faults_or_that_does_not_fit_is_refused(here: World, body, places):
    said = await here.client("PUT", PATH, "chief", json=body)
    assert (said.status, said.json["code"]) == (400, "invalid_policy")
    assert [error["source"] for error in said.json["errors"]] == places
    assert (await here.client("GET", PATH, "chief")).status == 404


async def test_a_policy_that_a_client_is_under_stays(here: World):
    await here.client("PUT", PATH, "chief", json=SUPPORT)
    clients = here.office.service.clients
    made = await clients.create("desk", "default", admin=False, policies=["support"])
    kept = await here.client("DELETE", PATH, "chief")
    assert (kept.status, kept.json["code"]) == (409, "policy_in_use")
    await clients.remove(made.client.id)
    assert (await here.client("DELETE", PATH, "chief")).status == 204


async def test_what_does_not_fit_any_more_is_shown(here: World):
    await here.client("PUT", PATH, "chief", json=SUPPORT)
    less = {name: field for name, field in CONTACT["fields"].items() if name not in ("name", "age")}
    await here.declare("contact", {"fields": less})
    await here.catalog.settled("contact")
    shown = (await here.client("GET", PATH, "chief")).json
    assert [fault["source"] for fault in shown["faults"]] == ["/fields/name", "/rows/filter/age"]
    await here.catalog.drop("contact")
    assert [
        fault["source"] for fault in (await here.client("GET", PATH, "chief")).json["faults"]
    ] == ["/schema"]


async def test_what_a_file_declares_is_changed_there(here: World):
    policies = here.services.spaces["default"].policies
    await here.client("PUT", PATH, "chief", json=SUPPORT)
    found = policies.find("support")
    assert found is not None
    await policies.declare([found])
    for method, more in (("PUT", {"json": SUPPORT}), ("DELETE", {})):
        said = await here.client(method, PATH, "chief", **more)
        assert (said.status, said.json["code"]) == (409, "conflict")
