"""One record by its address: read, replaced, changed; and what a caller may ask of its state first
(If-Match, If-None-Match).
"""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import FormData

from tests.support.api import ENGINES, Interface, Said, interface
from tests.support.table import table

M = "/api/models/person"
R = "/api/records"
DEFINITION: dict[str, Any] = {
    "fields": {
        "id": {"type": "primary_key"},
        "name": {"type": "string", "required": True},
        "phone": {"type": "string", "storage": "indexed"},
        "secret": {"type": "string"},
        "age": {"type": "integer", "storage": "indexed"},
    }
}
FIELDS: dict[str, Any] = {"phone": {"valueType": "masked", "mask": {"last": 2}}, "secret": "hidden"}
ANN = {"id": "ann", "name": "Ann Ek", "phone": "070 12 34", "secret": "x", "age": 40}


@pytest.fixture(params=ENGINES)
async def here(request, tmp_path) -> AsyncIterator[Interface]:
    async with interface(tmp_path, request.param) as made:
        await made.declare("person", DEFINITION)
        await made.policy("some", "person", "read", "write", "delete", fields=FIELDS)
        await made.policy("north", "person", "read", "write", rows={"filter": {"age": {"$lt": 30}}})
        await made.policy("writes", "person", "write", fields=FIELDS)
        assert (await made.client("POST", M, json=ANN)).status == 201
        made.clock.advance(1000)
        yield made


async def ask(
    here: Interface,
    method: str,
    path: str = M + "/ann",
    body: Any = None,
    as_: str = "writer",
    **headers: str,
) -> Said:
    sent = {} if body is None else {"json": body}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await here.client(method, path, as_, headers=named, **sent)


async def stored(here: Interface) -> dict[str, Any]:
    found = await ask(here, "GET")
    assert found.status == 200
    return {name: found.json[name] for name in ANN if name in found.json}


# ---------------------------------------------------------------------- read, replace, change


async def test_it_is_read_as_a_search_shows_it(here):
    (found,) = (await ask(here, "POST", M + "/find", {"filter": {"id": "ann"}})).json["data"]
    assert (await ask(here, "GET")).json == found
    assert found["version"] == 1
    masked = await ask(here, "GET", as_="under:some")
    assert (masked.json["phone"], masked.json["meta"]) == (
        "*** ** 34",
        {"redacted_fields": ["phone"]},
    )
    assert "secret" not in masked.json
    assert (await ask(here, "HEAD")).headers["ETag"] == (await ask(here, "GET")).headers["ETag"]


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH"])
async def test_a_record_that_is_not_there_is_404(here, method):
    body = None if method == "GET" else {"name": "x", "age": 1}
    for path, as_ in ((M + "/nobody", "writer"), (M + "/ann", "under:north")):
        said = await ask(here, method, path, body, as_)
        assert (said.status, said.json["code"]) == (404, "not_found")
    assert await stored(here) == ANN


async def test_a_change_leaves_what_it_does_not_name_and_a_replacement_does_not(here):
    said = await ask(here, "PATCH", body={"age": 41, "phone": None})
    assert (said.status, said.json["age"], said.json["name"]) == (200, 41, "Ann Ek")
    assert await stored(here) == {**ANN, "age": 41, "phone": None}
    said = await ask(here, "PUT", body={"name": "Ann Holm", "id": "ann"})
    assert said.status == 200
    assert await stored(here) == {"id": "ann", "name": "Ann Holm"}
    said = await ask(here, "PUT", body={"age": 1})
    assert (said.status, said.json["errors"][0]["source"]) == (400, "/name")
    for method in ("PUT", "PATCH"):
        said = await ask(here, method, body={"name": "x", "id": "bo"})
        assert (said.status, said.json["errors"][0]["source"]) == (400, "/id")
    versions = (await ask(here, "GET", M + "/ann/history")).json["data"]
    assert [one["version"] for one in versions] == [3, 2, 1]


async def test_a_replacement_leaves_what_the_client_is_not_shown(here):
    shown = (await ask(here, "GET", as_="under:some")).json
    said = await ask(here, "PUT", body={**shown, "age": 41}, as_="under:some")
    assert said.status == 200, said.json
    assert await stored(here) == {**ANN, "age": 41}


async def test_a_repetition_under_an_idempotency_key_changes_nothing_twice(here):
    for method in ("PUT", "PATCH"):
        first = await ask(here, method, body={"name": method}, Idempotency_Key=method)
        again = await ask(here, method, body={"name": method}, Idempotency_Key=method)
        assert (again.body, again.headers["Idempotent-Replayed"]) == (first.body, "true")
    assert (await ask(here, "GET")).json["version"] == 3


# ---------------------------------------------------------------------- sent back


async def test_a_found_record_can_be_sent_back_whole(here):
    form = FormData()
    form.add_field("file", b"x", filename="f", content_type="text/plain")
    assert (
        await here.client("POST", M + "/ann/files", data=form, headers={"x-filename": "a.txt"})
    ).status == 201
    found = (await ask(here, "GET")).json
    assert len(found["attachments"]) == 1
    for method, path, wrap in (
        ("PUT", M + "/ann", False), ("PATCH", M + "/ann", False), ("POST", M + "/batch/update", True),
    ):  # fmt: skip
        here.clock.advance(1000)
        found = (await ask(here, "GET")).json
        said = await ask(here, method, path, [found] if wrap else found)
        assert said.status < 300, said.json
        assert await stored(here) == ANN


@table(
    ("name", "value"),
    [
        ("created_at", "2020-01-01T00:00:00.000Z"),
        ("updated_at", None),
        ("version", 7),
        ("version", True),
        ("attachments", [{"file_id": "x"}]),
        ("attachments", None),
        ("meta", {}),
    ],
)
async def test_what_the_service_sets_cannot_be_set(here, name, value):
    for method, path, place in (
        ("PATCH", M + "/ann", ""), ("PUT", M + "/ann", ""), ("POST", M + "/batch/update", "/0"), ("POST", M, ""),
    ):  # fmt: skip
        body: Any = {"id": "new" if path == M else "ann", "name": "x", name: value}
        said = await ask(here, method, path, [body] if place else body)
        assert (said.status, said.json["code"]) == (400, "invalid_record")
        assert [fault["source"] for fault in said.json["errors"]] == [f"{place}/{name}"]
    assert await stored(here) == ANN


async def test_who_may_not_read_does_not_learn_what_the_service_set(here):
    found = (await ask(here, "GET")).json
    for body in ({"created_at": found["created_at"]}, {"version": 1}, {"version": 2}):
        said = await ask(here, "PATCH", body=body, as_="under:writes")
        assert (said.status, said.json["code"]) == (400, "invalid_record")
        assert said.json["errors"][0]["detail"] == "Is set by the service and cannot be sent."


async def test_the_version_that_the_service_counts_is_not_stated_by_sending_it_back(here):
    await ask(here, "POST", R, {"country": "se", "record_key": "r", "body": "a"})
    for number in (2, 3):
        found = (await ask(here, "GET", R + "/se/r")).json
        assert found["version"] == number - 1
        assert (await ask(here, "POST", R, {**found, "body": "b"})).status == 201
    assert (await ask(here, "GET", R + "/se/r")).json["version"] == 3


# ---------------------------------------------------------------------- conditions


async def test_a_record_is_changed_only_if_it_is_what_the_tag_was_given_for(here):
    tag = (await ask(here, "GET")).headers["ETag"]
    assert (await ask(here, "PATCH", body={"age": 41}, If_Match='"other"')).status == 412
    assert (await ask(here, "PATCH", body={"age": 41}, If_Match=f"W/{tag}")).status == 412
    changed = await ask(here, "PATCH", body={"age": 41}, If_Match=f'"x", {tag}')
    assert (changed.status, changed.headers["ETag"]) == (
        200,
        (await ask(here, "GET")).headers["ETag"],
    )
    for method, body in (("PATCH", {"age": 42}), ("PUT", {"name": "x"}), ("DELETE", None)):
        said = await ask(here, method, body=body, If_Match=tag)
        assert (said.status, said.json["code"]) == (412, "precondition_failed")
    assert await stored(here) == {**ANN, "age": 41}
    assert (await ask(here, "PATCH", body={"age": 1}, If_None_Match="*")).status == 412
    assert (await ask(here, "PATCH", body={"age": 1}, If_Match="what?")).status == 400
    assert (await ask(here, "DELETE", If_Match=changed.headers["ETag"])).status == 204


async def test_a_read_is_not_repeated_for_who_has_it(here):
    tag = (await ask(here, "GET")).headers["ETag"]
    said = await ask(here, "GET", If_None_Match=f'"a", {tag}')
    assert (said.status, said.body, said.headers["ETag"]) == (304, b"", tag)
    assert (await ask(here, "GET", If_None_Match="*")).status == 304
    assert (await ask(here, "GET", If_None_Match='"a"')).status == 200
    assert (await ask(here, "GET", If_Match='"a"')).status == 412
    await ask(here, "PATCH", body={"age": 41})
    assert (await ask(here, "GET", If_None_Match=tag)).status == 200


async def test_a_masked_view_and_a_clear_one_have_different_tags(here):
    clear, masked = (
        (await ask(here, "GET")).headers["ETag"],
        (await ask(here, "GET", as_="under:some")).headers["ETag"],
    )
    assert clear != masked
    assert (await ask(here, "GET", as_="under:some", If_None_Match=clear)).status == 200
    assert (
        await ask(here, "PATCH", body={"age": 1}, as_="under:some", If_Match=clear)
    ).status == 412
    assert (
        await ask(here, "PATCH", body={"age": 1}, as_="under:some", If_Match=masked)
    ).status == 200
    # Who may not read was given none, and a guess tells nothing; that a record is there it learns
    # by changing it.
    assert "ETag" not in (await ask(here, "PATCH", body={"age": 2}, as_="under:writes")).headers
    assert (
        await ask(here, "PATCH", body={"age": 3}, as_="under:writes", If_Match=clear)
    ).status == 412
    assert (
        await ask(here, "PATCH", body={"age": 3}, as_="under:writes", If_Match="*")
    ).status == 200


async def test_a_file_gives_its_record_another_tag(here):
    tag = (await ask(here, "GET")).headers["ETag"]
    form = FormData()
    form.add_field("file", b"x", filename="f", content_type="text/plain")
    await here.client("POST", M + "/ann/files", data=form, headers={"x-filename": "a.txt"})
    assert (await ask(here, "PATCH", body={"age": 1}, If_Match=tag)).status == 412


async def test_a_create_can_ask_for_a_record_to_be_there_or_not(here):
    record = {"country": "se", "record_key": "r", "body": "a"}
    assert (await ask(here, "POST", R, record, If_Match="*")).status == 412
    made = await ask(here, "POST", R, record, If_None_Match="*")
    assert made.status == 201
    assert (await ask(here, "POST", R, record, If_None_Match="*")).status == 412
    assert made.headers["ETag"] == (await ask(here, "GET", R + "/se/r")).headers["ETag"]
    over = await ask(here, "POST", R, {**record, "body": "b"}, If_Match=made.headers["ETag"])
    assert (
        over.status,
        (await ask(here, "DELETE", R + "/se/r", If_Match=made.headers["ETag"])).status,
    ) == (201, 412)
    assert (await ask(here, "POST", M, {"id": "ann", "name": "x"}, If_None_Match="*")).status == 412


async def test_a_condition_of_a_create_is_asked_of_what_the_caller_sees(here):
    for key, status in (("ann", 409), ("nobody", 201)):
        mine = {"id": key, "name": "x", "age": 20}
        said = await ask(here, "POST", M, mine, "under:north", If_Match="*")
        assert said.status == 412, "nothing of that key is there for this client"
        said = await ask(here, "POST", M, mine, "under:north", If_None_Match="*")
        assert said.status == status
    assert (await stored(here))["age"] == 40


async def test_conditions_on_the_content_of_a_file_are_obeyed(here):
    async def put(content: bytes, **headers: str) -> Said:
        form = FormData()
        form.add_field("file", content, filename="f", content_type="text/plain")
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        said: Said = await here.client(
            "PUT", M + "/ann/files", data=form, headers={"x-filename": "a.txt", **named}
        )
        return said

    assert (await put(b"one", If_Match="*")).status == 412
    made = await put(b"one", If_None_Match="*")
    path = made.json["download_link"]
    tag = (await ask(here, "GET", path)).headers["ETag"]
    assert tag == f'"{made.json["hash"]}"'
    said = await ask(here, "GET", path, If_None_Match=tag)
    assert (said.status, said.body, said.headers["ETag"]) == (304, b"", tag)
    assert (await ask(here, "GET", path, If_Match='"x"')).status == 412
    assert (await put(b"two", If_None_Match="*")).status == 412
    assert (await put(b"two", If_Match=tag)).status == 201
    for method, body in (("PATCH", {"filename": "b"}), ("DELETE", None)):
        assert (await ask(here, method, path, body, If_Match=tag)).status == 412
    now = (await ask(here, "GET", path)).headers["ETag"]
    assert (await ask(here, "PATCH", path, {"filename": "b"}, If_Match=now)).status == 200
    assert (await ask(here, "DELETE", path, If_Match=now)).status == 204


# ---------------------------------------------------------------------- what honest callers ask

EVENT: dict[str, Any] = {
    "fields": {
        "id": {"type": "primary_key"},
        "day": {"type": "date", "storage": "indexed"},
        "hour": {"type": "time", "storage": "indexed"},
        "at": {"type": "datetime", "storage": "indexed"},
        "place": {"type": "string", "partial_match": True},
        "town": {"type": "string", "storage": "indexed"},
    }
}
EVENTS: list[dict[str, Any]] = [
    {"id": "a", "day": "1999-12-31", "hour": "23:59:59", "at": "1999-12-31T23:59:59.999Z", "place": "İstanbul", "town": "İstanbul"},
    {"id": "b", "day": "2000-01-01", "hour": "00:00:00", "at": "2000-01-01T00:00:00.000Z", "place": "istanbul", "town": "Istanbul"},
    {"id": "c", "day": "2024-02-29", "hour": "12:00:00", "at": "2024-02-29T12:00:00.000Z", "place": "Lund", "town": "Lund"},
]  # fmt: skip


async def ids(here: Interface, wanted: Any, **options: Any) -> list[str]:
    said = await ask(here, "POST", "/api/models/event/find", {"filter": wanted, "options": options})
    assert said.status == 200, said.json
    return [record["id"] for record in said.json["data"]]


async def test_dates_and_times_compare_and_sort(here):
    await here.declare("event", EVENT)
    assert (await ask(here, "POST", "/api/models/event/batch", EVENTS)).status == 201
    assert await ids(
        here, {"day": {"$gt": "1999-12-31", "$lte": "2024-02-29"}}, sort=[{"day": "desc"}]
    ) == ["c", "b"]
    assert await ids(here, {"hour": {"$lt": "12:00:00"}}) == ["b"]
    assert await ids(here, {"at": {"$gte": "2000-01-01T00:00:00.000Z"}}, sort=[{"at": "asc"}]) == [
        "b",
        "c",
    ]
    assert await ids(here, {}, sort=[{"hour": "asc"}]) == ["b", "c", "a"]


async def test_a_dotted_capital_i_is_found_as_an_i(here):
    await here.declare("event", EVENT)
    await ask(here, "POST", "/api/models/event/batch", EVENTS)
    for text in ("istanbul", "İSTANBUL", "Istan", "i\u0307stanbul"):
        for field in ("place", "town"):
            assert await ids(here, {field: {"$like": text}}, sort=[{"created_at": "asc"}]) == [
                "a",
                "b",
            ]
        assert await ids(here, {"search_keys": text}) == ["a", "b"]
    assert await ids(here, {"place": "İstanbul"}) == ["a"]


async def test_near_names_are_told_of_fields_that_the_caller_knows(here):
    for path, body in (
        (M, {"id": "x", "name": "x", "agee": 1}),
        (M + "/find", {"filter": {"agee": 1}}),
        (M + "/find", {"options": {"sort": [{"agee": "asc"}]}}),
    ):
        said = await ask(here, "POST", path, body)
        assert (
            said.json["errors"][0]["detail"]
            == "The schema has no field of this name: did you mean age?"
        )
    said = await ask(here, "POST", M + "/find", {"filter": {"secrett": 1}}, "under:some")
    assert said.json["errors"][0]["detail"] == "The schema has no field of this name."


async def test_the_name_of_the_part_is_the_name_of_an_upload_that_says_no_other(here):
    form = FormData()
    form.add_field("file", b"x", filename="pass.txt", content_type="text/plain")
    said = await here.client("POST", M + "/ann/files", data=form)
    assert (said.status, said.json["filename"]) == (201, "pass.txt")
    for name in ("a\u202efdp.exe", "a\u2066b", "a\u200bb", "a\u2215b", "é" * 256):
        form = FormData()
        form.add_field("file", b"x", filename="f", content_type="text/plain")
        said = await here.client(
            "PUT", M + "/ann/files", data=form, headers={"x-filename": quote(name)}
        )
        assert said.status == 400, name
