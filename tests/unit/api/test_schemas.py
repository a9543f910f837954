import asyncio

import pytest

from proxy.storage.changes import Insert
from proxy.storage.rows import RowState
from tests.support.api import services, serving
from tests.support.catalogs import Shelf, held, make_shelf
from tests.support.patience import PATIENCE
from tests.support.table import table
from tests.support.vaults import person

TEXT = {"type": "string"}
PLAIN = {"type": "string", "storage": "indexed"}
FULL = {"type": "string", "storage": "indexed", "required": False, "partial_match": False}


def definition(**fields: object) -> dict[str, object]:
    return {"fields": {"id": {"type": "primary_key"}, **fields}}


@pytest.fixture
async def scene():
    shelf = await make_shelf()
    async with serving(services(catalog=shelf.catalog)) as client:

        async def chief(method, path, **more):
            return await client(method, path, "chief", **more)

        yield shelf, chief
    await shelf.catalog.close()


async def settled(shelf: Shelf, name: str = "contact") -> None:
    await asyncio.wait_for(shelf.catalog.settled(name), PATIENCE)


async def test_a_new_schema_is_201_and_shown_with_every_default(scene):
    _, chief = scene
    answer = await chief("PUT", "/api/schemas/contact", json=definition(email=PLAIN))
    assert answer.status == 201
    assert answer.json == {
        "name": "contact",
        "origin": "api",
        "fields": {
            "id": {
                "type": "primary_key",
                "storage": "indexed_hashed",
                "required": True,
                "partial_match": False,
            },
            "email": FULL,
        },
        "records": 0,
        "migration": None,
        "changes": [],
    }


async def test_what_is_shown_can_be_sent_back(scene):
    _, chief = scene
    await chief(
        "PUT", "/api/schemas/contact", json=definition(email=PLAIN, age={"type": "integer"})
    )
    shown = (await chief("GET", "/api/schemas/contact")).json
    answer = await chief("PUT", "/api/schemas/contact", json={"fields": shown["fields"]})
    assert (answer.status, answer.json["changes"]) == (200, [])
    assert "changes" not in shown


async def test_a_change_at_once_is_200_and_tells_what_it_changed(scene):
    _, chief = scene
    await chief("PUT", "/api/schemas/contact", json=definition(email=PLAIN))
    answer = await chief(
        "PUT", "/api/schemas/contact", json=definition(email={**PLAIN, "required": True})
    )
    assert answer.status == 200
    assert [(change["source"], change["effect"]) for change in answer.json["changes"]] == [
        ("/fields/email/required", "at_once")
    ]
    assert answer.json["fields"]["email"]["required"]


async def test_a_change_that_rewrites_is_202_and_tells_how_far_it_is(scene):
    shelf, chief = scene
    await chief("PUT", "/api/schemas/contact", json=definition(email=PLAIN))
    await shelf.add("a", email="ann")
    answer = await chief("PUT", "/api/schemas/contact", json=definition(email=TEXT))
    assert answer.status == 202
    assert answer.json["fields"]["email"]["storage"] == "indexed"
    assert answer.json["migration"]["state"] == "filling"
    assert answer.json["migration"]["fields"]["email"]["storage"] == "indexed_hashed"
    await settled(shelf)
    shown = (await chief("GET", "/api/schemas/contact")).json
    assert shown["fields"]["email"]["storage"] == "indexed_hashed"
    assert shown["records"] == 1
    ended = shown["migration"].pop("ended_at")
    assert ended.endswith("Z")
    assert shown["migration"] == {"state": "done", "done": 1, "total": 1, "failed": 0}


async def test_a_migration_that_failed_is_told(scene):
    shelf, chief = scene
    await chief("PUT", "/api/schemas/contact", json=definition(age=TEXT))
    await shelf.add("a", age="old")
    assert (
        await chief("PUT", "/api/schemas/contact", json=definition(age={"type": "integer"}))
    ).status == 202
    await settled(shelf)
    shown = (await chief("GET", "/api/schemas/contact")).json
    assert (shown["migration"]["state"], shown["migration"]["failed"]) == ("failed", 1)
    assert shown["fields"]["age"]["type"] == "string"


async def test_another_change_meanwhile_is_409(scene):
    shelf, chief = scene
    await chief("PUT", "/api/schemas/contact", json=definition(age=PLAIN))
    async with held(shelf.catalog):
        for _ in range(2):
            assert (
                await chief("PUT", "/api/schemas/contact", json=definition(age=TEXT))
            ).status == 202
        answer = await chief(
            "PUT", "/api/schemas/contact", json=definition(age={"type": "integer"})
        )
        assert (answer.status, answer.json["code"]) == (409, "schema_busy")
        gone = await chief("DELETE", "/api/schemas/contact?records=delete")
        assert (gone.status, gone.json["code"]) == (409, "schema_busy")
    await settled(shelf)


async def test_a_dry_run_changes_nothing(scene):
    _, chief = scene
    answer = await chief("PUT", "/api/schemas/contact?dry_run=true", json=definition(email=PLAIN))
    assert (answer.status, answer.json) == (
        200,
        {"created": True, "migrates": False, "changes": []},
    )
    assert (await chief("GET", "/api/schemas/contact")).status == 404


@pytest.mark.parametrize(
    ("path", "body", "places"),
    [
        ("contact", {"fields": {}}, ["/fields"]),
        ("contact", [], [""]),
        ("a-b", {"fields": {"id": {"type": "primary_key"}}}, ["name"]),
        (
            "contact",
            definition(a={"type": "text"}, b={"type": "string", "x": 1}),
            ["/fields/a/type", "/fields/b/x"],
        ),
    ],
)
async def test_every_fault_of_a_definition_is_told(scene, path, body, places):
    _, chief = scene
    answer = await chief("PUT", f"/api/schemas/{path}", json=body)
    assert (answer.status, answer.json["code"]) == (400, "invalid_schema")
    assert [error["source"] for error in answer.json["errors"]] == places


async def test_a_change_that_cannot_work_is_400(scene):
    _, chief = scene
    await chief("PUT", "/api/schemas/contact", json=definition(a={"type": "json"}))
    answer = await chief("PUT", "/api/schemas/contact", json=definition(a=TEXT))
    assert (answer.status, [error["source"] for error in answer.json["errors"]]) == (
        400,
        ["/fields/a/type"],
    )


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/api/schemas/contact?dry_run=yes"),
        ("DELETE", "/api/schemas/contact?records=keep"),
        ("DELETE", "/api/schemas/contact?force=true"),
        ("GET", "/api/schemas?limit=0"),
    ],
)
async def test_parameters_that_do_not_fit_are_400(scene, method, path):
    _, chief = scene
    answer = await chief(method, path, **({"json": definition()} if method == "PUT" else {}))
    assert (answer.status, answer.json["code"]) == (400, "invalid_input")


async def test_the_list_has_every_schema_page_by_page(scene):
    shelf, chief = scene
    for name in ("b", "a", "c"):
        await chief("PUT", f"/api/schemas/{name}", json=definition())
    await shelf.catalog.take_rules([await shelf.bench.vault.collection(person())])
    listed = (await chief("GET", "/api/schemas")).json
    assert [(item["name"], item["origin"]) for item in listed["data"]] == [
        ("b", "api"),
        ("a", "api"),
        ("c", "api"),
        ("person", "rules"),
    ]
    page = (await chief("GET", "/api/schemas?limit=2&offset=1")).json
    assert [item["name"] for item in page["data"]] == ["a", "c"]
    assert page["meta"] == {"count": 2, "limit": 2, "offset": 1, "total": 4}


async def test_a_schema_of_rules_is_theirs(scene):
    shelf, chief = scene
    await shelf.catalog.take_rules([await shelf.bench.vault.collection(person())])
    for method, more in (("PUT", {"json": definition()}), ("DELETE", {})):
        answer = await chief(method, "/api/schemas/person", **more)
        assert (answer.status, answer.json["code"]) == (400, "schema_of_rules")


async def test_a_schema_ends_with_its_records_only_where_that_is_said(scene):
    shelf, chief = scene
    await chief("PUT", "/api/schemas/contact", json=definition())
    await shelf.add("a")
    kept = await chief("DELETE", "/api/schemas/contact")
    assert (kept.status, kept.json["code"]) == (409, "schema_in_use")
    assert (await chief("DELETE", "/api/schemas/contact?records=delete")).status == 204
    for method in ("GET", "DELETE"):
        gone = await chief(method, "/api/schemas/contact")
        assert (gone.status, gone.json["code"]) == (404, "unknown_schema")


@table(
    ("method", "path"),
    [
        ("PUT", "/api/schemas/contact"),
        ("GET", "/api/schemas/contact"),
        ("GET", "/api/schemas"),
        ("DELETE", "/api/schemas/contact"),
    ],
)
async def test_only_administrators_work_with_schemas(method, path):
    shelf = await make_shelf()
    async with serving(services(catalog=shelf.catalog)) as client:
        assert (await client(method, path, "writer")).status == 403
        assert (await client(method, path, "")).status == 401


async def test_records_that_no_answer_has_confirmed_are_not_counted(scene):
    shelf, chief = scene
    await chief("PUT", "/api/schemas/contact", json=definition(email=PLAIN))
    await shelf.add("a", email="ann@example.com")
    records = shelf.catalog.records("contact")
    row = records.new_row("b", {"id": "b"}, 7, "test", None)._replace(state=RowState.PENDING)
    await records.collection.store.commit(records.collection.table, (Insert(row),))
    assert (await chief("GET", "/api/schemas/contact")).json["records"] == 1
