"""Every operation on records: the faults that all have in common, with the status that the
specification lists for it.
"""

from typing import Any, NamedTuple

import pytest

from proxy.api.operation_table import OPERATIONS
from tests.conformance.interface.schema import BODY
from tests.support.table import table

pytestmark = pytest.mark.asyncio(loop_scope="module")

_JSON = {"Content-Type": "application/json"}


class Asked(NamedTuple):
    """An operation as it is called when nothing is wrong, but for records that are not there."""

    method: str
    path: str
    body: Any = None


M = "/api/models/thing"
RIGHT: dict[str, Asked] = {
    "create_record": Asked("POST", M, {"id": "s"}),
    "create_record_v2": Asked("POST", "/api/v2/models/thing", {"id": "s"}),
    "create_records": Asked("POST", M + "/batch", [{"id": "s"}]),
    "update_records": Asked("POST", M + "/batch/update", [{"id": "s"}]),
    "clone_record": Asked(
        "POST", M + "/clone", {"filter": {"id": "s"}, "update_with": {"id": "t"}}
    ),
    "find_records": Asked("POST", M + "/find", {}),
    "aggregate_records": Asked("POST", M + "/aggregate", {"metrics": {"n": {"func": "count"}}}),
    "delete_records": Asked("POST", M + "/batch/delete", {"filter": {"record_key": ["s"]}}),
    "delete_record": Asked("DELETE", M + "/s"),
    "record_history": Asked("GET", M + "/s/history"),
    "migrate_record": Asked("POST", M + "/s/migrate/t"),
    "find_direct": Asked("POST", "/api/find", {"schema": "thing"}),
    "sf_find": Asked("POST", "/sf/find", {"schema": "thing"}),
    "sf_find_ids": Asked("POST", "/sf/find-ids", {"schema": "thing"}),
}

#: What the specification lists (and, for operations whose shape it does not show, decisions.md).
#: 5xx always may be.
LISTED: dict[str, set[int]] = {
    "create_record": {400, 401, 409, 415, 422, 429},
    "create_record_v2": {400, 401, 409, 415, 422, 429},
    "create_records": {400, 401, 409, 415, 422, 429},
    "update_records": {400, 401, 409, 415, 422, 429},
    "clone_record": {400, 401, 403, 409, 415, 422, 429},
    "find_records": {400, 401, 409, 415, 422, 429},
    "aggregate_records": {400, 401, 409, 415, 422, 429},
    "delete_record": {400, 401, 404, 409, 429},
    "delete_records": {400, 401, 404, 409, 415, 422, 429},
}

WITH_BODY = [name for name, asked in RIGHT.items() if asked.body is not None]
WITH_SCHEMA = [name for name, asked in RIGHT.items() if "/thing" in asked.path]

#: Status and code of each operation when the record that it is about is not there; the others
#: succeed without one.
MISSING = {
    "clone_record": (403, "no_match"), "delete_record": (404, "not_found"),
    "delete_records": (404, "no_match"), "record_history": (404, "not_found"),
    "migrate_record": (404, "not_found"),
}  # fmt: skip


def named(name: str) -> Any:
    return next(operation for operation in OPERATIONS if operation.name == name)


@table("name", LISTED)
async def test_an_operation_answers_with_what_the_specification_lists(name):
    assert (
        set(named(name).failures) - {412, 413} == LISTED[name]
    )  # 413: every body has its limit; 412: HTTP's own, for conditions


async def told(
    thing: Any, asked: Asked, status: int, code: str, as_: str = "writer", **more: Any
) -> Any:
    """Send it; the answer is a problem of that status and code."""
    if asked.body is not None and "data" not in more:
        more["json"] = asked.body
    answer = await thing.client(asked.method, asked.path, as_, **more)
    assert (answer.status, answer.json["code"]) == (status, code), answer.body
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json["status"] == status
    return answer


@table("name", RIGHT)
async def test_with_an_unknown_parameter(thing, name):
    asked = RIGHT[name]
    await told(thing, asked._replace(path=asked.path + "?unknown=1"), 400, "invalid_input")


@table("name", RIGHT)
async def test_with_another_method(thing, name):
    asked = RIGHT[name]
    answer = await told(thing, asked._replace(method="TRACE"), 405, "method_not_allowed")
    assert asked.method in answer.headers["Allow"]


@table("name", WITH_SCHEMA)
async def test_of_an_unknown_schema(thing, name):
    asked = RIGHT[name]
    await told(
        thing, asked._replace(path=asked.path.replace("thing", "nothing")), 400, "unknown_schema"
    )


@pytest.mark.parametrize("name", MISSING)
async def test_of_a_record_that_is_not_there(thing, name):
    await told(thing, RIGHT[name], *MISSING[name])


#: Fields of requests whose body is not JSON as the interface takes it.
OTHER_TYPES: list[dict[str, str]] = [
    *({"Content-Type": kind} for kind in ("", "text/plain", "application/xml", "application/json-patch+json")),
    *({"Content-Type": f"application/json; charset={name}"} for name in ("utf-16", "latin-1")),
    {"Content-Type": "multipart/form-data; boundary=x"}, {**_JSON, "Content-Encoding": "gzip"},
]  # fmt: skip


@table("name", WITH_BODY)
@table("fields", OTHER_TYPES)
async def test_with_another_content_type(thing, name, fields):
    await told(thing, RIGHT[name], 415, "unsupported_media_type", data=b"{}", headers=fields)


@table("name", WITH_BODY)
@table("body", [b"", b"{", b"{}}", b"{'id': 1}", b'{"id":"s",}', b"\xff", b'{"a":1,"a":2}', b"nul"])
async def test_with_a_body_that_is_no_json(thing, name, body):
    await told(thing, RIGHT[name], 400, "invalid_input", data=body, headers=_JSON)


@table("name", WITH_BODY)
async def test_with_a_body_over_the_limit(thing, name):
    await told(thing, RIGHT[name], 413, "too_large", data=b" " * (BODY + 1), headers=_JSON)


@table("name", WITH_BODY)
@table("body", [b"1", b'"x"', b"null", b"true"])
async def test_with_json_of_another_shape(thing, name, body):
    answer = await thing.client(RIGHT[name].method, RIGHT[name].path, data=body, headers=_JSON)
    assert answer.status == 400
    assert answer.json["errors"][0]["source"] == ""


@table("name", [name for name in WITH_BODY if name not in ("create_record", "create_record_v2")])
async def test_with_an_unknown_member(thing, name):
    asked = RIGHT[name]
    body = {"records": asked.body} if isinstance(asked.body, list) else asked.body
    answer = await told(thing, asked._replace(body={**body, "unknown": 1}), 400, "invalid_input")
    assert [error["source"] for error in answer.json["errors"]] == ["/unknown"]


@table("name", [name for name in RIGHT if RIGHT[name].path.startswith("/api/")])
async def test_under_the_other_name_of_the_interface(thing, name):
    asked = RIGHT[name]
    asked = asked._replace(path=asked.path.replace("/api/", "/webapi/").replace("thing", "nothing"))
    if name in WITH_SCHEMA:
        await told(thing, asked, 400, "unknown_schema")
    else:
        assert (await thing.client(asked.method, asked.path, json=asked.body)).status == 200
