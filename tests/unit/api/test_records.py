import pytest

from proxy.storage.changes import Replace
from tests.support.api import Interface, interface
from tests.support.examples import CONTACT
from tests.support.vaults import person

pytestmark = pytest.mark.usefixtures("people")


async def found(here: Interface, **filters) -> list[str]:
    answer = await here.client(
        "POST", "/sf/find-ids", json={"schema": "contact", "filter": filters}
    )
    assert answer.status == 200
    keys: list[str] = answer.json["data"]
    return keys


async def test_a_create_is_found_again_with_every_value(here):
    record = {
        "id": "å/1",
        "age": -5,
        "balance": 0.1,
        "active": False,
        "born": "2000-02-29",
        "profile": {"a": [1.5, None]},
    }
    answer = await here.client(
        "POST", "/api/models/contact", json={**record, "expires_at": "2100-01-01T00:00:00.000Z"}
    )
    assert (answer.status, answer.json["id"], answer.json["expires_at"]) == (
        201,
        "å/1",
        "2100-01-01T00:00:00.000Z",
    )
    assert b'"balance":0.1,' in answer.body
    answer = await here.client(
        "POST", "/api/models/contact/find", json={"filter": {"record_key": "å/1"}}
    )
    assert record.items() <= answer.json["data"][0].items()
    assert (await here.client("DELETE", "/api/models/contact/%C3%A5%2F1")).status == 204


async def test_an_operator_may_let_creates_update(tmp_path):
    (folder := tmp_path / "another").mkdir()
    async with interface(folder, on_existing="update") as here:
        await here.declare("contact", CONTACT)
        for city in ("Lund", "Visby"):
            answer = await here.client(
                "POST", "/api/models/contact", json={"id": "k", "city": city}
            )
            assert (answer.status, answer.json["city"]) == (201, city)


async def test_an_update_by_another_field_answers_with_the_fields_asked_for(here):
    body = {
        "search_key": "city",
        "return_keys": ["id", "updated_at"],
        "records": [{"city": "Uppsala", "active": True}],
    }
    answer = await here.client("POST", "/api/models/contact/batch/update", json=body)
    assert answer.status == 201
    assert [sorted(record) for record in answer.json] == [
        ["id", "updated_at"],
        ["id", "updated_at"],
    ]
    assert await found(here, active=True) == ["c-1", "c-2"]


async def test_the_source_of_a_clone_has_to_open(here):
    records = here.catalog.records("contact").collection
    rows = await records.by_key(["c-1", "c-2"])
    one, other = rows["c-1"], rows["c-2"]
    await here.store.commit(records.table, [Replace(one._replace(body=other.body, version=2), 1)])
    clone = {"filter": {"city": "Uppsala", "age": 41}, "update_with": {"id": "n"}}
    answer = await here.client("POST", "/api/models/contact/clone", json=clone)
    assert (answer.status, answer.json["code"]) == (422, "cannot_open")
    answer = await here.client("POST", "/api/models/contact/find", json={"filter": {"id": "c-1"}})
    assert (answer.status, answer.json["code"]) == (422, "cannot_open")
    answer = await here.client("POST", "/api/models/contact/find", json={})
    assert (
        answer.json["meta"]["unreadable"],
        answer.json["meta"]["total"],
        len(answer.json["data"]),
    ) == (1, 3, 2)


async def test_a_migrated_record_is_the_other_one(here):
    assert (await here.client("POST", "/api/models/contact/c-3/migrate/c-1")).status == 204
    assert await found(here) == ["c-1", "c-2"]
    answer = await here.client("GET", "/api/models/contact/c-1/history")
    assert answer.json["data"][0]["record"]["profile"] == {"tags": ["new", "vip"]}


async def test_short_answers_have_keys_and_times_alone(here):
    answer = await here.client(
        "POST", "/api/v2/models/contact", json=[{"id": "n-1"}, {"id": "n-2"}]
    )
    assert [sorted(receipt) for receipt in answer.json] == [["created_at", "record_key"]] * 2
    assert (await here.client("POST", "/api/v2/models/contact", json=[])).status == 400


@pytest.mark.parametrize("path", ["", "/batch", "/batch/update", "/clone"])
async def test_that_only_the_application_writes_what_rules_collect_is_told_before_anything_else(
    here, path
):
    await here.catalog.take_rules([await here.vault.collection(person())])
    answer = await here.client("POST", f"/api/models/person{path}", json={"nobody": 1})
    assert (answer.status, answer.json["code"]) == (400, "schema_of_rules")
    assert (await here.client("POST", "/api/models/person/find", json={})).json["meta"][
        "total"
    ] == 0
    assert (await here.client("DELETE", "/api/models/person/x")).json["code"] == "not_found"
