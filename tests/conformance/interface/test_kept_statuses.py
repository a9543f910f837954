"""The record-based family: the faults that its operations have in common, with the status that the
specification lists for each.
"""

from typing import Any

import pytest

from proxy.api.context import Takes
from proxy.api.operation_table import OPERATIONS
from tests.conformance.interface.kept import R
from tests.conformance.interface.schema import BODY
from tests.conformance.interface.test_statuses import Asked
from tests.support.table import table

pytestmark = pytest.mark.asyncio(loop_scope="module")

_JSON = {"Content-Type": "application/json"}
_FORM = {"Content-Type": "multipart/form-data; boundary=b", "x-filename": "a.txt"}
_UPLOAD = b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nhello\r\n--b--\r\n'
_FILE = "/files/00000000-0000-4000-8000-000000000000"

#: Every operation as it is called when nothing is wrong, but for records that are not there.
RIGHT: dict[str, Asked] = {
    "records_create": Asked("POST", R, {"country": "se", "record_key": "s"}),
    "records_create_many": Asked(
        "POST", R + "/batch", {"country": "se", "records": [{"key": "s"}]}
    ),
    "records_update_many": Asked(
        "POST", R + "/batch/update", {"country": "se", "records": [{"key": "s"}]}
    ),
    "records_clone": Asked(
        "POST", R + "/clone", {"filter": {"key": "s"}, "update_with": {"key": "t"}}
    ),
    "records_find": Asked("POST", R + "/find", {"country": "se"}),
    "records_aggregate": Asked("POST", R + "/aggregate", {"metrics": {"n": {"func": "count"}}}),
    "records_delete_many": Asked("POST", R + "/batch/delete", {"filter": {"record_key": ["s"]}}),
    "records_read": Asked("GET", R + "/se/s"),
    "records_delete": Asked("DELETE", R + "/se/s"),
    "records_history": Asked("GET", R + "/se/s/history"),
    "records_upload": Asked("POST", R + "/se/s/files"),
    "records_replace_file": Asked("PUT", R + "/se/s/files"),
    "records_change_file": Asked("PATCH", R + "/se/s" + _FILE, {"filename": "b.txt"}),
    "records_download": Asked("GET", R + "/se/s" + _FILE),
    "records_move_files": Asked(
        "POST", R + "/se/s/files/move/t", {"attachment_ids": [_FILE.removeprefix("/files/")]}
    ),
    "records_delete_file": Asked("DELETE", R + "/se/s" + _FILE),
}

#: What the specification lists; those of history, which it does not show, are the other family's.
#: 5xx always may be.
LISTED: dict[str, set[int]] = {
    "records_create": {400, 401, 409, 415, 422, 429},
    "records_create_many": {400, 401},
    "records_update_many": {400, 401},
    "records_clone": {400, 401, 403, 409, 415, 422, 429},
    "records_find": {400, 401},
    "records_aggregate": {401, 403, 409, 413, 415, 422, 429},
    "records_delete_many": {400, 401},
    "records_delete": {401, 404},
    "records_upload": {400, 401, 403, 404, 409, 413, 415, 422, 429},
    "records_download": {401, 403, 404, 422, 429},
    "records_delete_file": {401, 403, 404, 422, 429},
}
#: Beside them: 413 and 429 where anything has a limit, 403 for the firewall, 412 for conditions,
#: 416 for parts of files, 400 for a mistake in ``cascadeBy``.
_ELSEWHERE = {403, 412, 413, 416, 429}

#: Of an operation whose list has no 400, 409 or 415: what it answers in place of them.
BAD = {
    "records_aggregate": 422, "records_download": 422, "records_move_files": 422,
    "records_delete_file": 422,
}  # fmt: skip
ANOTHER_COUNTRY = {
    "records_create": 409, "records_create_many": 400, "records_update_many": 400, "records_clone": 409, "records_find": 400,
    "records_aggregate": 409, "records_delete_many": 400, "records_read": 409, "records_delete": 404, "records_history": 409, "records_upload": 409,
    "records_replace_file": 409, "records_change_file": 409, "records_download": 404, "records_move_files": 404, "records_delete_file": 404,
}  # fmt: skip
ANOTHER_TYPE = {
    "records_create": 415, "records_create_many": 400, "records_update_many": 400, "records_clone": 415, "records_find": 400,
    "records_aggregate": 415, "records_delete_many": 400, "records_upload": 415, "records_replace_file": 415, "records_change_file": 415,
    "records_move_files": 422,
}  # fmt: skip
MISSING = {
    "records_clone": (403, "no_match"), "records_delete_many": (400, "no_match"), "records_delete": (404, "not_found"), "records_read": (404, "not_found"),
    "records_history": (404, "not_found"), "records_upload": (404, "not_found"), "records_replace_file": (404, "not_found"),
    "records_change_file": (404, "not_found"), "records_download": (404, "not_found"), "records_move_files": (404, "not_found"),
    "records_delete_file": (404, "not_found"),
}  # fmt: skip

WITH_JSON = [name for name, asked in RIGHT.items() if asked.body is not None]
STREAMED = ("records_upload", "records_replace_file")
COUNTRY_SHOWN = ("records_create", "records_create_many", "records_update_many", "records_find")


async def told(kept: Any, name: str, status: int, code: str, **more: Any) -> Any:
    """Send it; the answer is a problem of that status and code."""
    asked = RIGHT[name]
    path, as_ = more.pop("path", asked.path), more.pop("as_", "writer")
    if name in STREAMED and "data" not in more:
        more |= {"data": _UPLOAD, "headers": _FORM}
    elif asked.body is not None and "data" not in more:
        more.setdefault("json", asked.body)
    answer = await kept.client(asked.method, path, as_, **more)
    assert (answer.status, answer.json["code"]) == (status, code), answer.body
    assert answer.headers["Content-Type"] == "application/problem+json"
    return answer


async def test_the_table_has_these_operations_and_no_others():
    assert RIGHT.keys() == {
        operation.name for operation in OPERATIONS if operation.name.startswith("records_")
    }


@table("name", LISTED)
async def test_an_operation_answers_with_what_the_specification_lists(name):
    failures = set(next(operation for operation in OPERATIONS if operation.name == name).failures)
    assert LISTED[name] <= failures
    assert failures - LISTED[name] <= _ELSEWHERE | ({400} if name == "records_delete" else set())


@table("name", RIGHT)
async def test_with_an_unknown_parameter(kept, name):
    await told(
        kept, name, BAD.get(name, 400), "invalid_input", path=RIGHT[name].path + "?unknown=1"
    )


@pytest.mark.parametrize("name", ["records_delete", "records_delete_many"])
async def test_with_a_field_that_nothing_hangs_on(kept, name):
    kept_here = {"country": "se", "key": "s"}
    assert (await kept.client("POST", R, json=kept_here)).status == 201
    answer = await told(
        kept, name, 400, "invalid_input", path=RIGHT[name].path + "?cascadeBy=range_key1"
    )
    assert answer.json["errors"][0]["source"] == "cascadeBy"
    # it is still there, and the status said so
    assert (await kept.client("DELETE", R + "/se/s")).status == 204


@table("name", RIGHT)
async def test_with_another_method(kept, name):
    answer = await kept.client("TRACE", RIGHT[name].path)
    assert (answer.status, answer.json["code"]) == (405, "method_not_allowed")
    assert RIGHT[name].method in answer.headers["Allow"]


@pytest.mark.parametrize("name", [name for name, asked in RIGHT.items() if "/batch" in asked.path])
async def test_addresses_of_batches_are_no_records(kept, name):
    answer = await kept.client("DELETE", RIGHT[name].path)
    assert (answer.status, answer.headers["Allow"]) == (405, "POST")


async def test_addresses_of_rehashes_are_no_records(kept):
    answer = await kept.client("DELETE", R + "/rehash/resolve")
    assert (answer.status, answer.headers["Allow"]) == (405, "POST")
    assert (await kept.client("DELETE", R + "/rehash/all", "chief")).json.get(
        "code"
    ) != "invalid_input"


@table("name", ANOTHER_COUNTRY)
async def test_of_another_country(kept, name):
    asked = RIGHT[name]
    if "/se/" in asked.path:
        await told(
            kept,
            name,
            ANOTHER_COUNTRY[name],
            "wrong_country",
            path=asked.path.replace("/se/", "/de/"),
        )
    else:
        await told(
            kept, name, ANOTHER_COUNTRY[name], "wrong_country", json={**asked.body, "country": "de"}
        )


@table("name", RIGHT)
@table("country", ["SE", "sweden", "s", "46", "%C3%A5l"])
async def test_of_what_is_no_country(kept, name, country):
    asked = RIGHT[name]
    if name == "records_delete":  # its statuses are 401 and 404
        await told(kept, name, 404, "wrong_country", path=f"{R}/{country}/{asked.path[-1]}")
    elif "/se/" in asked.path:
        await told(
            kept,
            name,
            BAD.get(name, 400),
            "invalid_input",
            path=asked.path.replace("/se/", f"/{country}/"),
        )
    else:
        await told(
            kept, name, BAD.get(name, 400), "invalid_input", json={**asked.body, "country": country}
        )


@pytest.mark.parametrize("name", COUNTRY_SHOWN)
async def test_without_a_country_where_it_has_to_stand(kept, name):
    body = {member: value for member, value in RIGHT[name].body.items() if member != "country"}
    answer = await told(kept, name, 400, "invalid_input", json=body)
    assert [error["source"] for error in answer.json["errors"]] == ["/country"]


@pytest.mark.parametrize("name", ["records_create_many", "records_update_many"])
async def test_of_a_record_of_another_country_in_a_batch(kept, name):
    body = {"country": "se", "records": [{"key": "s"}, {"key": "t", "country": "de"}]}
    answer = await told(kept, name, 400, "wrong_country", json=body)
    assert [error["source"] for error in answer.json["errors"]] == ["/records/1/country"]


@table("name", MISSING)
async def test_of_a_record_that_is_not_there(kept, name):
    await told(kept, name, *MISSING[name])


@table("name", ANOTHER_TYPE)
@table("kind", ["text/plain", "application/json; charset=utf-16"])
async def test_with_another_content_type(kept, name, kind):
    await told(
        kept,
        name,
        ANOTHER_TYPE[name],
        "unsupported_media_type",
        data=b"{}",
        headers={"Content-Type": kind},
    )


@table("name", WITH_JSON)
@table("body", [b"", b"{", b"\xff", b'{"a":1,"a":2}', b"1", b"[]", b"null"])
async def test_with_a_body_of_another_shape(kept, name, body):
    answer = await kept.client(RIGHT[name].method, RIGHT[name].path, data=body, headers=_JSON)
    assert answer.status == BAD.get(name, 400), answer.body


@table("name", WITH_JSON)
async def test_with_a_body_over_the_limit(kept, name):
    status = 422 if name == "records_move_files" else 413
    await told(kept, name, status, "too_large", data=b" " * (BODY + 1), headers=_JSON)


@pytest.mark.parametrize(
    "name", ["records_create_many", "records_update_many", "records_delete_many"]
)
async def test_of_more_than_a_batch_holds(kept, name):
    body: dict[str, Any] = {
        "country": "se",
        "records": [{"key": f"s{number}"} for number in range(101)],
    }
    if name == "records_delete_many":
        body = {"filter": {"key": [f"s{number}" for number in range(1001)]}}
    await told(kept, name, 400, "batch_too_large", json=body)


@table(
    "name",
    [name for name in WITH_JSON if RIGHT[name].body.keys() & {"country", "filter", "metrics"} and name != "records_create"],
)  # fmt: skip
async def test_with_an_unknown_member(kept, name):
    answer = await told(
        kept, name, BAD.get(name, 400), "invalid_input", json={**RIGHT[name].body, "unknown": 1}
    )
    assert [error["source"] for error in answer.json["errors"]] == ["/unknown"]


@table(
    "name",
    [operation.name for operation in OPERATIONS if operation.path.startswith(R) and operation.takes is not Takes.STREAM and operation.name in RIGHT],
)  # fmt: skip
async def test_under_the_other_name_of_the_interface(kept, name):
    asked = RIGHT[name]
    more = {} if asked.body is None else {"json": asked.body}
    answer = await kept.client(asked.method, asked.path.replace("/api/", "/webapi/"), **more)
    assert (
        answer.status
        == MISSING.get(
            name,
            (200 if name in ("records_update_many", "records_find", "records_aggregate") else 201,),
        )[0]
    )
    await kept.client("POST", R + "/batch/delete", json={"filter": {"key": ["s", "t"]}})
