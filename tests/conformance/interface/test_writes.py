"""Batches, updates, clones, deletes and moves: what each does and answers, one case after the other
on records of its own.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from tests.conformance.interface.schema import DEFINITION
from tests.support.api import ENGINES, Interface, interface
from tests.support.table import table

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: What is there before each case.
BEFORE: list[dict[str, Any]] = [
    {"id": "a", "string_plain": "one", "string_hashed": "x", "integer_plain": 1},
    {"id": "b", "string_plain": "two", "string_hashed": "a", "integer_plain": 1},
    {"id": "c", "string_plain": "three", "string_hashed": "b", "string_sealed": "s"},
]
M = "/api/models/row"


class Case(NamedTuple):
    """A request; its status and code (``""``: success); what is there afterwards, by key, where
    that has changed.
    """

    method: str
    path: str
    body: Any
    status: int
    code: str = ""
    after: Mapping[str, Any] = {}
    places: tuple[str, ...] | None = None


def post(path: str, body: Any, status: int, code: str = "", **more: Any) -> Case:
    return Case("POST", M + path, body, status, code, **more)


NEW = {"id": "n", "string_plain": "new"}
#: As many as a batch takes.
FULL = [{"id": f"n{number}"} for number in range(100)]
ONE = {"id": "a", "string_plain": "changed", "string_hashed": "x", "integer_plain": 1}
CASES = {
    "create": post("", NEW, 201, after={"n": NEW}),
    "create, used key": post("", {"id": "a"}, 409, "record_exists", places=("/id",)),
    "create, key of other letter case": post("", {"id": "A"}, 201, after={"A": {"id": "A"}}),
    "create, odd key": post("", {"id": " /%2F?#å😀\n"}, 201, after={" /%2F?#å😀\n": {"id": " /%2F?#å😀\n"}}),
    "create, a list": post("", [NEW], 400, "invalid_record"),
    "create, country": post("", {**NEW, "country": "se"}, 400, "invalid_record", places=("/country",)),
    "batch": post("/batch", [NEW, {"id": "m"}], 201, after={"n": NEW, "m": {"id": "m"}}),
    "batch, wrapped": post("/batch", {"records": [NEW]}, 201, after={"n": NEW}),
    "batch, right country": post("/batch", {"records": [NEW], "country": "se"}, 201, after={"n": NEW}),
    "batch, other country": post("/batch", {"records": [NEW], "country": "de"}, 409, "wrong_country", places=("/country",)),
    "batch, country in capitals": post("/batch", {"records": [NEW], "country": "SE"}, 409, "wrong_country"),
    "batch, country no text": post("/batch", {"records": [NEW], "country": None}, 400, "invalid_input"),
    "batch, empty": post("/batch", [], 400, "invalid_input"),
    "batch, wrapped empty": post("/batch", {"records": []}, 400, "invalid_input", places=("/records",)),
    "batch, no records": post("/batch", {"country": "se"}, 400, "invalid_input", places=("/records",)),
    "batch, records no list": post("/batch", {"records": {"id": "n"}}, 400, "invalid_input", places=("/records",)),
    "batch, key twice": post("/batch", [NEW, NEW], 400, "invalid_record", places=("/1/id",)),
    "batch, one used key": post("/batch", [NEW, {"id": "b"}], 409, "record_exists", places=("/1/id",)),
    "batch, two used keys": post("/batch", [{"id": "a"}, {"id": "b"}], 409, "record_exists", places=("/0/id", "/1/id")),
    "batch, one fault": post("/batch", [NEW, {"id": "m", "integer_plain": "x"}], 400, "invalid_record", places=("/1/integer_plain",)),
    "batch, several faults": post("/batch", {"records": [NEW, {"id": "m", "integer_plain": "x"}, {"string_plain": "y"}]}, 400, "invalid_record", places=("/records/1/integer_plain", "/records/2/id")),
    "batch, wrapped, one used key": post("/batch", {"records": [NEW, {"id": "b"}]}, 409, "record_exists", places=("/records/1/id",)),
    "batch, at the limit": post("/batch", FULL, 201, after={record["id"]: record for record in FULL}),
    "batch, over the limit": post("/batch", [{"id": str(n)} for n in range(101)], 422, "batch_too_large"),
    "v2": Case("POST", "/api/v2/models/row", NEW, 201, after={"n": NEW}),
    "v2, several": Case("POST", "/api/v2/models/row", [NEW, {"id": "m"}], 201, after={"n": NEW, "m": {"id": "m"}}),
    "v2, used key": Case("POST", "/api/v2/models/row", [NEW, {"id": "a"}], 409, "record_exists", places=("/1/id",)),
    "v2, over the limit": Case("POST", "/api/v2/models/row", [{"id": str(n)} for n in range(101)], 422, "batch_too_large"),
    "update": post("/batch/update", [{"id": "a", "string_plain": "changed"}], 201, after={"a": ONE}),
    "update, to null": post("/batch/update", [{"id": "a", "integer_plain": None}], 201, after={"a": {**BEFORE[0], "integer_plain": None}}),
    "update, nothing new": post("/batch/update", [{"id": "a"}], 201),
    "update, unknown key": post("/batch/update", [{"id": "x", "string_plain": "y"}], 201),
    "update, some unknown": post("/batch/update", [{"id": "x"}, {"id": "a", "string_plain": "changed"}], 201, after={"a": ONE}),
    "update, no key": post("/batch/update", [{"string_plain": "y"}], 400, "invalid_record", places=("/0/id",)),
    "update, key twice": post("/batch/update", [{"id": "a"}, {"id": "a"}], 400, "invalid_record", places=("/1/id",)),
    "update, one fault": post("/batch/update", [{"id": "a", "string_plain": "y"}, {"id": "b", "integer_plain": "y"}], 400, "invalid_record", places=("/1/integer_plain",)),
    "update, unknown field": post("/batch/update", {"records": [{"id": "a", "nobody": 1}]}, 400, "invalid_record", places=("/records/0/nobody",)),
    "update by another field": post("/batch/update", {"search_key": "integer_plain", "records": [{"integer_plain": 1, "string_plain": "y"}]}, 201, after={"a": {**BEFORE[0], "string_plain": "y"}, "b": {**BEFORE[1], "string_plain": "y"}}),
    "update by a hashed field": post("/batch/update", {"search_key": "string_hashed", "records": [{"string_hashed": "x", "string_plain": "changed"}]}, 201, after={"a": ONE}),
    "update by the key's name": post("/batch/update", {"search_key": "id", "records": [{"id": "a", "string_plain": "changed"}]}, 201, after={"a": ONE}),
    "update by record_key": post("/batch/update", {"search_key": "record_key", "records": [{"id": "a", "string_plain": "changed"}]}, 201, after={"a": ONE}),
    "update by a sealed field": post("/batch/update", {"search_key": "string_sealed", "records": [{"string_sealed": "s"}]}, 400, "invalid_input"),
    "update by nobody": post("/batch/update", {"search_key": "nobody", "records": [{"id": "a"}]}, 400, "invalid_input"),
    "update by JSON": post("/batch/update", {"search_key": "json_plain", "records": [{"json_plain": {}}]}, 400, "invalid_input"),
    "update by a field that is missing": post("/batch/update", {"search_key": "string_hashed", "records": [{"string_plain": "y"}]}, 400, "invalid_record"),
    "update, return_keys": post("/batch/update", {"return_keys": ["string_plain"], "records": [{"id": "a", "string_plain": "changed"}]}, 201, after={"a": ONE}),
    "update, unknown return_keys": post("/batch/update", {"return_keys": ["x"], "records": [{"id": "a"}]}, 400, "invalid_input", places=("/return_keys/0",)),
    "update by a number": post("/batch/update", {"search_key": 1, "records": [{"id": "a"}]}, 400, "invalid_input", places=("/search_key",)),
    "update by null": post("/batch/update", {"search_key": None, "records": [{"id": "a"}]}, 201),
    "update, no return_keys": post("/batch/update", {"return_keys": [], "records": [{"id": "a"}]}, 400, "invalid_input", places=("/return_keys",)),
    "update, some unknown return_keys": post("/batch/update", {"return_keys": ["id", "x", "y"], "records": [{"id": "a"}]}, 400, "invalid_input", places=("/return_keys/1", "/return_keys/2")),
    "update, over the limit": post("/batch/update", [{"id": str(n)} for n in range(101)], 422, "batch_too_large"),
    "clone": post("/clone", {"filter": {"id": "a"}, "update_with": {"id": "n"}}, 201, after={"n": {**BEFORE[0], "id": "n"}}),
    "clone, with changes": post("/clone", {"filter": {"string_hashed": "b"}, "update_with": {"id": "n", "string_sealed": None}}, 201, after={"n": {**BEFORE[2], "id": "n", "string_sealed": None}}),
    "clone, no key": post("/clone", {"filter": {"id": "a"}, "update_with": {}}, 422, "unprocessable"),
    "clone, used key": post("/clone", {"filter": {"id": "a"}, "update_with": {"id": "b"}}, 409, "record_exists"),
    "clone, its own key": post("/clone", {"filter": {"id": "a"}, "update_with": {"id": "a"}}, 409, "record_exists"),
    "clone of several": post("/clone", {"filter": {"integer_plain": 1}, "update_with": {"id": "n"}}, 422, "unprocessable"),
    "clone of nothing": post("/clone", {"filter": {"id": "x"}, "update_with": {"id": "n"}}, 403, "no_match"),
    "clone, wrong change": post("/clone", {"filter": {"id": "a"}, "update_with": {"id": "n", "integer_plain": "x"}}, 400, "invalid_record", places=("/update_with/integer_plain",)),
    "clone, wrong filter": post("/clone", {"filter": {"nobody": 1}, "update_with": {"id": "n"}}, 400, "invalid_filter", places=("/filter/nobody",)),
    "clone, no filter": post("/clone", {"update_with": {"id": "n"}}, 400, "invalid_input", places=("/filter",)),
    "clone, no changes": post("/clone", {"filter": {}}, 400, "invalid_input", places=("/update_with",)),
    "clone, changes no object": post("/clone", {"filter": {"id": "a"}, "update_with": []}, 400, "invalid_record", places=("/update_with",)),
    "delete": Case("DELETE", M + "/a", None, 204, after={"a": None}),
    "delete, unknown": Case("DELETE", M + "/x", None, 404, "not_found"),
    "delete, cascading": Case("DELETE", M + "/a?cascadeBy=string_hashed", None, 204, after={"a": None, "b": None, "c": None}),
    "delete, cascading from the middle": Case("DELETE", M + "/b?cascadeBy=string_hashed", None, 204, after={"b": None, "c": None}),
    "delete, cascading by a sealed field": Case("DELETE", M + "/a?cascadeBy=string_sealed", None, 400, "invalid_input"),
    "delete, cascading by nobody": Case("DELETE", M + "/a?cascadeBy=nobody", None, 400, "invalid_input"),
    "delete, cascading by a number": Case("DELETE", M + "/a?cascadeBy=integer_plain", None, 400, "invalid_input"),
    "delete many": post("/batch/delete", {"filter": {"record_key": ["a", "b"]}}, 204, after={"a": None, "b": None}),
    "delete many, by the key's name": post("/batch/delete", {"filter": {"id": ["a"]}}, 204, after={"a": None}),
    "delete many, some unknown": post("/batch/delete", {"filter": {"id": ["a", "x"]}}, 204, after={"a": None}),
    "delete many, all unknown": post("/batch/delete", {"filter": {"id": ["x", "y"]}}, 404, "no_match"),
    "delete many, twice": post("/batch/delete", {"filter": {"id": ["a", "a"]}}, 204, after={"a": None}),
    "delete many, cascading": post("/batch/delete?cascadeBy=string_hashed", {"filter": {"id": ["b"]}}, 204, after={"b": None, "c": None}),
    "delete many, one text": post("/batch/delete", {"filter": {"id": "a"}}, 400, "invalid_input", places=("/filter/id",)),
    "delete many, none": post("/batch/delete", {"filter": {"id": []}}, 400, "invalid_input", places=("/filter/id",)),
    "delete many, numbers": post("/batch/delete", {"filter": {"id": [1]}}, 400, "invalid_input", places=("/filter/id",)),
    "delete many, by another field": post("/batch/delete", {"filter": {"string_plain": ["one"]}}, 400, "invalid_filter", places=("/filter",)),
    "delete many, by another field too": post("/batch/delete", {"filter": {"id": ["a"], "record_key": ["b"]}}, 400, "invalid_filter"),
    "delete many, by conditions": post("/batch/delete", {"filter": {"$or": [{"id": "a"}, {"id": "b"}]}}, 400, "invalid_filter"),
    "delete many, filter no object": post("/batch/delete", {"filter": []}, 400, "invalid_filter"),
    "delete many, everything": post("/batch/delete", {"filter": {}}, 400, "invalid_filter", places=("/filter",)),
    "delete many, too many": post("/batch/delete", {"filter": {"id": [str(n) for n in range(1001)]}}, 422, "batch_too_large"),
    "delete many, no filter": post("/batch/delete", {}, 400, "invalid_input", places=("/filter",)),
    "migrate": post("/c/migrate/a", None, 204, after={"c": None, "a": {"id": "a", "string_plain": "three", "string_hashed": "b", "integer_plain": 1, "string_sealed": "s"}}),
    "migrate to itself": post("/a/migrate/a", None, 422, "unprocessable"),
    "migrate, no source": post("/x/migrate/a", None, 404, "not_found"),
    "migrate, no destination": post("/a/migrate/x", None, 404, "not_found"),
}  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=ENGINES)
async def rows(request, tmp_path_factory) -> AsyncIterator[Interface]:
    async with interface(tmp_path_factory.mktemp("rows"), request.param, body_limit=65_536) as here:
        await here.declare("row", DEFINITION)
        yield here


async def there(rows: Interface) -> dict[str, dict[str, Any]]:
    """The fields of every record; versions are for the tests of single records."""
    answer = await rows.client("POST", M + "/find", json={"options": {"limit": 200}})
    times = {"created_at", "updated_at", "attachments", "version"}
    records = [
        {name: value for name, value in record.items() if name not in times}
        for record in answer.json["data"]
    ]
    return {record["id"]: record for record in records}


async def emptied(rows: Interface) -> None:
    if keys := list(await there(rows)):
        answer = await rows.client(
            "POST", M + "/batch/delete", json={"filter": {"record_key": keys}}
        )
        assert answer.status == 204


@table("name", CASES)
async def test_what_a_write_does(rows, name):
    case = CASES[name]
    await emptied(rows)
    assert (await rows.client("POST", M + "/batch", json=BEFORE)).status == 201
    more = {} if case.body is None else {"json": case.body}
    answer = await rows.client(case.method, case.path, **more)
    assert answer.status == case.status, answer.body
    if case.code:
        assert answer.json["code"] == case.code
        assert (
            case.places is None
            or tuple(error["source"] for error in answer.json["errors"]) == case.places
        )
    wanted = {record["id"]: record for record in BEFORE} | dict(case.after)
    assert await there(rows) == {
        key: record for key, record in wanted.items() if record is not None
    }


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/batch/update", {"return_keys": ["string_plian"], "records": [{"id": "a"}]}),
        ("/clone", {"filter": {"id": "a"}, "update_with": {"id": "n", "string_plian": "x"}}),
    ],
)
async def test_a_misspelled_field_is_told_with_the_nearest_name(
    rows: Interface, path: str, body: dict[str, Any]
) -> None:
    said = await rows.client("POST", M + path, json=body)
    assert said.status == 400
    assert "did you mean string_plain?" in said.json["errors"][0]["detail"]
