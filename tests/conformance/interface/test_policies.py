"""Access policies, as a client under them sees the interface: every operation, on each engine."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import FormData

from tests.support.api import ENGINES, Interface, Said, interface
from tests.support.table import table

M = "/api/models/person"
DEFINITION: dict[str, Any] = {
    "fields": {
        "id": {"type": "primary_key", "partial_match": True},
        "name": {"type": "string", "partial_match": True},
        "email": {"type": "string", "partial_match": True},
        "phone": {"type": "string", "storage": "indexed"},
        "passport": {"type": "string", "partial_match": True},
        "city": {"type": "string", "storage": "indexed"},
        "region": {"type": "string"},
        "age": {"type": "integer", "storage": "indexed"},
        "parent": {"type": "string"},
        "extra": {"type": "json"},
    }
}
FIELDS: dict[str, Any] = {
    "email": {"valueType": "redacted", "format": "[a-z]{12}@example.org"},
    "phone": {"valueType": "masked", "mask": {"last": 2}}, "passport": "hidden", "extra": "hidden",
}  # fmt: skip
ROWS = {"filter": {"region": "north"}}
ABROAD = {"X-Forwarded-For": "192.0.2.7"}
ANN = {
    "id": "ann", "name": "Ann Ek", "email": "ann@example.com", "phone": "+46 70 12 34", "passport": "AB-123",
    "city": "Lund", "region": "north", "age": 40, "extra": {"a": 1},
}  # fmt: skip
BO = {**ANN, "id": "bo", "name": "Bo Ek", "email": "bo@example.com", "age": 30, "parent": "ann"}
EVA = {**ANN, "id": "eva", "name": "Eva Ek", "region": "south"}


@asynccontextmanager
async def people(folder: Path, engine: str) -> AsyncIterator[Interface]:
    """Three people, and a client under policies for each action and for all of them."""
    async with interface(folder, engine) as made:
        await made.declare("person", DEFINITION)
        await made.declare("other", {"fields": {"id": {"type": "primary_key"}}})
        for name, actions in (
            ("all", ("read", "write", "delete")),
            ("r", ("read",)),
            ("w", ("write",)),
            ("d", ("delete",)),
        ):
            await made.policy(name, "person", *actions, fields=FIELDS, rows=ROWS)
        for record in (ANN, BO, EVA):
            assert (await made.client("POST", M, json=record)).status == 201
        yield made


@pytest.fixture(params=ENGINES)
async def here(request, tmp_path) -> AsyncIterator[Interface]:
    async with people(tmp_path, request.param) as made:
        yield made


async def ask(
    here: Interface, method: str, path: str, body: Any = None, as_: str = "under:all", **more: Any
) -> Said:
    return await here.client(
        method, path, as_, **({"json": body} if body is not None else {}), **more
    )


def code(said: Said) -> tuple[int, str]:
    return said.status, said.json["code"]


async def found(
    here: Interface, wanted: Any = None, as_: str = "under:all", **options: Any
) -> list[dict[str, Any]]:
    said = await ask(here, "POST", M + "/find", {"filter": wanted or {}, "options": options}, as_)
    assert said.status == 200, said.json
    data: list[dict[str, Any]] = said.json["data"]
    return data


DENIED = {
    "create": ("POST", M, {"id": "x", "region": "north"}, "w"),
    "create v2": ("POST", "/api/v2/models/person", {"id": "x", "region": "north"}, "w"),
    "batch": ("POST", M + "/batch", [{"id": "x", "region": "north"}], "w"),
    "update": ("POST", M + "/batch/update", [{"id": "ann", "age": 41}], "w"),
    "clone": ("POST", M + "/clone", {"filter": {"id": "ann"}, "update_with": {"id": "x"}}, "rw"),
    "find": ("POST", M + "/find", {}, "r"),
    "aggregate": ("POST", M + "/aggregate", {"metrics": {"n": {"func": "count"}}}, "r"),
    "delete many": ("POST", M + "/batch/delete", {"filter": {"id": ["ann"]}}, "d"),
    "delete": ("DELETE", M + "/ann", None, "d"),
    "history": ("GET", M + "/ann/history", None, "r"),
    "migrate": ("POST", M + "/bo/migrate/ann", None, "wd"),
    "direct": ("POST", "/api/find", {"schema": "person"}, "r"),
    "sf": ("POST", "/sf/find", {"schema": "person"}, "r"),
    "ids": ("POST", "/sf/find-ids", {"schema": "person"}, "r"),
    "export": ("GET", M + "/export", None, "r"),
    "change file": ("PATCH", M + "/ann/files/x", {"filename": "a"}, "w"),
    "download": ("GET", M + "/ann/files/x", None, "r"),
    "move files": ("POST", M + "/ann/files/move/bo", {"attachment_ids": ["x"]}, "w"),
    "delete file": ("DELETE", M + "/ann/files/x", None, "w"),
}


@pytest.mark.parametrize("name", DENIED)
async def test_an_operation_needs_its_actions_and_no_others(here, name):
    method, path, body, needed = DENIED[name]
    status = 403 if "clone" in path or "files" in path else 401
    for missing in needed:
        others = ",".join(sorted(set("rwd") - {missing}))
        assert code(await ask(here, method, path, body, f"under:{others}")) == (
            status,
            "access_denied",
        )
    said = await ask(here, method, path, body, f"under:{','.join(needed)}")
    assert said.status < 300 or (said.status, "files" in path) in ((404, True), (401, True))


@pytest.mark.parametrize("schema", ["other", "none"])
async def test_a_schema_that_no_policy_names_is_refused_as_one_that_there_is_not(here, schema):
    for as_, answer in (
        ("under:all", (401, "access_denied")),
        ("under:gone", (401, "access_denied")),
    ):
        assert code(await ask(here, "POST", f"/api/models/{schema}/find", {}, as_)) == answer
        assert code(await ask(here, "POST", "/api/find", {"schema": schema}, as_)) == answer
        key = {"Idempotency-Key": "k"}
        assert (
            code(await ask(here, "POST", f"/api/models/{schema}", {"id": "x"}, as_, headers=key))
            == answer
        )


# ---------------------------------------------------------------------- fields


def check_shown(record: dict[str, Any], of: dict[str, Any] = ANN) -> None:
    assert re.fullmatch(r"[a-z]{12}@example\.org", record["email"])
    assert record["phone"] == "+** ** ** 34"
    assert not {"passport", "extra"} & record.keys()
    assert (record["name"], record["age"]) == (of["name"], of["age"])


async def test_every_way_to_a_record_shows_it_the_same(here):
    (first,) = await found(here, {"id": "ann"})
    check_shown(first)
    email = first["email"]
    direct = (
        await ask(here, "POST", "/api/find", {"schema": "person", "filter": {"id": "ann"}})
    ).json
    exported = (await ask(here, "GET", M + "/export")).json
    past = (await ask(here, "GET", M + "/ann/history")).json
    for answer in (direct, exported, past):
        assert answer["meta"]["redacted_fields"] == ["email", "phone"]
    for record in (direct["data"][0], exported["data"][0], past["data"][0]["record"]):
        check_shown(record)
        assert record["email"] == email
    (updated,) = (
        await ask(here, "POST", M + "/batch/update", [{"id": "ann", "city": "Malmö"}])
    ).json
    check_shown(updated)
    assert (updated["email"], updated["meta"]) == (email, {"redacted_fields": ["email", "phone"]})
    (cloned,) = (
        await ask(here, "POST", M + "/clone", {"filter": {"id": "ann"}, "update_with": {"id": "x"}})
    ).json
    check_shown(cloned)
    assert cloned["email"] != email
    assert (await found(here, {"id": "x"}, "writer"))[0]["passport"] == ANN["passport"]


async def test_a_write_answers_with_what_may_be_seen(here):
    sent = {
        "id": "x",
        "name": "Xi",
        "email": "xi@example.com",
        "phone": "12345",
        "region": "north",
        "age": 1,
    }
    said = await ask(here, "POST", M, sent)
    assert said.status == 201
    assert re.fullmatch(r"[a-z]{12}@example\.org", said.json["email"])
    assert (said.json["phone"], said.json["meta"]) == (
        "***45",
        {"redacted_fields": ["email", "phone"]},
    )
    assert (await found(here, {"id": "x"}))[0]["email"] == said.json["email"]
    assert (await found(here, {"id": "x"}, "writer"))[0]["email"] == "xi@example.com"
    keys = {"records": [{"id": "x", "age": 2}], "return_keys": ["age", "email", "created_at"]}
    (chosen,) = (await ask(here, "POST", M + "/batch/update", keys)).json
    assert chosen.keys() == {"age", "email", "created_at", "meta"}
    assert chosen["meta"] == {"redacted_fields": ["email"]}
    receipt = (
        await ask(here, "POST", "/api/v2/models/person", {"id": "y", "region": "north"})
    ).json
    assert receipt.keys() == {"record_key", "created_at"}


async def test_a_client_without_policies_is_told_nothing_of_redaction(here):
    said = await ask(here, "POST", M + "/find", {}, "writer")
    assert said.json["meta"].keys() == {"count", "limit", "offset", "total"}
    assert "meta" not in (await ask(here, "POST", M, {"id": "x"}, "writer")).json


UNKNOWN: dict[str, tuple[str, Any, str]] = {
    "filter": ("/find", {"filter": {"passport": "AB-123"}}, "/filter/passport"),
    "filter in a document": ("/find", {"filter": {"extra": {"$.a": 1}}}, "/filter/extra"),
    "or": ("/find", {"filter": {"$or": [{"passport": "x"}, {"name": "y"}]}}, "/filter/$or/0/passport"),
    "sort": ("/find", {"options": {"sort": [{"passport": "asc"}]}}, "/options/sort/0/passport"),
    "group": ("/aggregate", {"metrics": {"n": {"func": "count"}}, "group_by": {"keys": ["passport"]}}, "/group_by/keys/0"),
    "create": ("", {"id": "x", "region": "north", "passport": "y"}, "/passport"),
    "update": ("/batch/update", [{"id": "ann", "passport": "y"}], "/0/passport"),
    "search key": ("/batch/update", {"records": [{"id": "ann"}], "search_key": "passport"}, "/search_key"),
    "return": ("/batch/update", {"records": [{"id": "ann"}], "return_keys": ["passport"]}, "/return_keys/0"),
    "clone from": ("/clone", {"filter": {"passport": "AB-123"}, "update_with": {"id": "x"}}, "/filter/passport"),
    "clone to": ("/clone", {"filter": {"id": "ann"}, "update_with": {"id": "x", "passport": "y"}}, "/update_with/passport"),
}  # fmt: skip


@table("name", UNKNOWN)
async def test_a_hidden_field_is_refused_with_the_words_for_one_that_there_is_not(here, name):
    path, body, place = UNKNOWN[name]
    said = await ask(here, "POST", M + path, body)
    assert (said.status, said.json["errors"][0]["source"]) == (400, place)
    made_up = json.loads(
        json.dumps(body).replace("passport", "nothing").replace('"extra"', '"nothing"')
    )
    other = await ask(here, "POST", M + path, made_up)
    text = said.body.replace(b"passport", b"nothing").replace(b"/extra", b"/nothing")
    assert text == other.body
    assert code(await ask(here, "DELETE", M + "/ann?cascadeBy=passport")) == (400, "invalid_input")


NO_QUESTION: dict[str, tuple[str, Any]] = {
    "filter": ("/find", {"filter": {"email": "ann@example.com"}}),
    "null": ("/find", {"filter": {"email": None}}),
    "like": ("/find", {"filter": {"email": {"$like": "ann"}}}),
    "not": ("/find", {"filter": {"phone": {"$not": "x"}}}),
    "sort": ("/find", {"options": {"sort": [{"phone": "asc"}]}}),
    "group": ("/aggregate", {"metrics": {"n": {"func": "count"}}, "group_by": {"keys": ["email"]}}),
    "search key": (
        "/batch/update",
        {"records": [{"email": "ann@example.com", "age": 1}], "search_key": "email"},
    ),
    "clone": ("/clone", {"filter": {"email": "ann@example.com"}, "update_with": {"id": "x"}}),
}


@table("name", NO_QUESTION)
async def test_nothing_can_be_asked_of_a_redacted_or_masked_field(here, name):
    path, body = NO_QUESTION[name]
    assert (await ask(here, "POST", M + path, body)).status == 400
    assert (await ask(here, "DELETE", M + "/ann?cascadeBy=email")).status == 400


async def test_a_refused_question_says_why(here):
    for body, word in (
        ({"filter": {"email": "x"}}, "redacted"),
        ({"filter": {"phone": "x"}}, "masked"),
    ):
        assert word in (await ask(here, "POST", M + "/find", body)).json["errors"][0]["detail"]


async def test_a_search_in_all_texts_leaves_out_those_that_are_not_seen(here):
    for text, keys in (("Ann Ek", ["ann"]), ("AB-123", []), ("ann@example", []), ("+46 70", [])):
        assert [record["id"] for record in await found(here, {"search_keys": text})] == keys


# ---------------------------------------------------------------------- redacted values


async def email(here: Interface) -> str:
    text: str = (await found(here, {"id": "ann"}))[0]["email"]
    return text


async def put(here: Interface, as_: str = "writer", **fields: Any) -> None:
    assert (
        await ask(here, "POST", M + "/batch/update", [{"id": "ann", **fields}], as_)
    ).status == 201


async def test_a_redacted_value_stays_until_the_value_changes_and_never_comes_back(here):
    seen = [await email(here)]
    await put(here, age=41, phone="1")
    await put(here, email=ANN["email"])
    assert await email(here) == seen[0]
    for value in (
        "other@example.com",
        ANN["email"],
        "other@example.com",
        None,
        "other@example.com",
    ):
        await put(here, email=value)
        if value is not None:
            seen.append(await email(here))
    assert len(set(seen)) == len(seen)
    past = (await ask(here, "GET", M + "/ann/history")).json["data"]
    assert (
        list(
            dict.fromkeys(
                one["record"]["email"] for one in reversed(past) if one["record"]["email"]
            )
        )
        == seen
    )


async def test_who_writes_a_value_unseen_does_not_learn_whether_it_was_there(here):
    before = await email(here)
    await put(here, "under:all", email=ANN["email"])
    right = await email(here)
    await put(here, "under:all", email="wrong@example.com")
    assert len({before, right, await email(here)}) == 3


async def test_a_value_that_comes_by_migration_is_a_new_one(here):
    await put(here, email="same@example.com")
    await ask(
        here, "POST", M + "/batch/update", [{"id": "bo", "email": "same@example.com"}], "writer"
    )
    before = await email(here)
    past = {
        one["record"]["email"] for one in (await ask(here, "GET", M + "/ann/history")).json["data"]
    }
    assert (await ask(here, "POST", M + "/bo/migrate/ann")).status == 204
    assert await email(here) != before
    after = [
        one["record"]["email"] for one in (await ask(here, "GET", M + "/ann/history")).json["data"]
    ]
    assert len(after) == 5
    assert past < set(after)
    assert len(set(after)) == 5  # those that came over have redacted values of their own


# ---------------------------------------------------------------------- rows


async def test_a_record_outside_is_not_there(here):
    assert [record["id"] for record in await found(here)] == ["ann", "bo"]
    assert await found(here, {"id": "eva"}) == []
    assert (await ask(here, "POST", M + "/find", {})).json["meta"]["total"] == 2
    assert (await ask(here, "POST", "/sf/find-ids", {"schema": "person"})).json["data"] == [
        "ann",
        "bo",
    ]
    assert [record["id"] for record in (await ask(here, "GET", M + "/export")).json["data"]] == [
        "ann",
        "bo",
    ]
    counted = (
        await ask(here, "POST", M + "/aggregate", {"metrics": {"n": {"func": "count"}}})
    ).json
    assert counted["data"][0]["metrics"] == {"n": 2}
    grouped = {"metrics": {"n": {"func": "max", "key": "age"}}, "group_by": {"keys": ["region"]}}
    assert (await ask(here, "POST", M + "/aggregate", grouped)).json["data"] == [
        {"group": {"keys": {"region": "north"}}, "metrics": {"n": 40}}
    ]
    missing = {
        ("GET", "/eva/history"): (404, "not_found"), ("DELETE", "/eva"): (404, "not_found"),
        ("POST", "/eva/migrate/ann"): (404, "not_found"), ("POST", "/ann/migrate/eva"): (404, "not_found"),
        ("GET", "/eva/files/x"): (404, "not_found"), ("DELETE", "/eva/files/x"): (404, "not_found"),
    }  # fmt: skip
    for (method, path), answer in missing.items():
        assert code(await ask(here, method, M + path)) == answer
        nobody = await ask(here, method, M + path.replace("eva", "nobody"))
        assert code(nobody) == answer
    for key in ("eva", "nobody"):
        assert (await ask(here, "POST", M + "/batch/update", [{"id": key, "age": 5}])).json == []
        many = await ask(here, "POST", M + "/batch/delete", {"filter": {"id": [key]}})
        assert code(many) == (404, "no_match")
        clone = await ask(
            here, "POST", M + "/clone", {"filter": {"id": key}, "update_with": {"id": "x"}}
        )
        assert code(clone) == (403, "no_match")
        moved = await ask(here, "POST", f"{M}/ann/files/move/{key}", {"attachment_ids": ["x"]})
        assert code(moved) == (404, "not_found")
    by = {"search_key": "name", "records": [{"name": "Eva Ek", "age": 1}]}
    assert (await ask(here, "POST", M + "/batch/update", by)).json == []
    assert (await found(here, {"id": "eva"}, "writer"))[0]["age"] == 40


async def test_nothing_is_written_that_would_be_outside(here):
    writes: dict[str, Any] = {
        "": {"id": "x", "region": "south"},
        "/batch": [{"id": "y", "region": "north"}, {"id": "x"}],
        "/batch/update": [{"id": "bo", "age": 1}, {"id": "ann", "region": "south"}],
    }
    for path, body in writes.items():
        said = await ask(here, "POST", M + path, body)
        assert code(said) == (401, "access_denied")
        assert said.json["errors"][0]["source"] == ("/1" if path else "")
    clone = {"filter": {"id": "ann"}, "update_with": {"id": "x", "region": None}}
    assert code(await ask(here, "POST", M + "/clone", clone)) == (403, "access_denied")
    assert [record["id"] for record in await found(here, as_="writer")] == ["ann", "bo", "eva"]
    assert [record["age"] for record in await found(here)] == [40, 30]


async def test_who_reads_all_and_writes_some_changes_no_others(here):
    await here.policy("readall", "person", "read")
    me = "under:readall,w,d"
    assert {record["id"] for record in await found(here, as_=me)} == {"ann", "bo", "eva"}
    eva = (await found(here, {"id": "eva"}, me))[0]
    form = FormData()
    form.add_field("file", b"x", filename="cv.txt")
    for method, path, body, answer in (
        ("POST", M + "/batch/update", [{"id": "eva", "age": 1}], (201, [])),
        (
            "POST",
            M + "/batch/update",
            {"search_key": "region", "records": [{"region": "south", "age": 1}]},
            (201, []),
        ),
        ("POST", M + "/batch/update", [{"id": "ann", "region": "south"}], (401, "access_denied")),
        ("POST", M, {"id": "new", "region": "south"}, (401, "access_denied")),
        (
            "POST",
            M + "/clone",
            {"filter": {"id": "eva"}, "update_with": {"id": "new"}},
            (403, "access_denied"),
        ),
        ("POST", M + "/eva/migrate/ann", None, (404, "not_found")),
        ("POST", M + "/ann/migrate/eva", None, (404, "not_found")),
        ("POST", M + "/batch/delete", {"filter": {"id": ["eva"]}}, (404, "no_match")),
        ("DELETE", M + "/eva", None, (404, "not_found")),
    ):
        said = await ask(here, method, path, body, me)
        assert (said.status, said.json["code"] if said.status >= 400 else said.json) == answer, (
            method,
            path,
        )
    assert (
        await here.client("POST", M + "/eva/files", me, data=form, headers={"x-filename": "cv.txt"})
    ).status == 404
    assert (await found(here, {"id": "eva"}, me))[0] == eva
    copy = {"filter": {"id": "eva"}, "update_with": {"id": "copy", "region": "north"}}
    assert (await ask(here, "POST", M + "/clone", copy, me)).status == 201, (
        "what is read may be copied to where it may be written"
    )
    assert (await ask(here, "DELETE", M + "/ann", None, me)).status == 204


async def test_a_key_that_a_record_outside_has_is_used(here):
    for key in ("ann", "eva"):
        assert code(await ask(here, "POST", M, {"id": key, "region": "north"})) == (
            409,
            "record_exists",
        )
    here.services.on_existing = "update"
    assert code(await ask(here, "POST", M, {"id": "eva", "region": "north"})) == (
        409,
        "record_exists",
    )
    assert (await ask(here, "POST", M, {"id": "ann", "region": "north"})).status == 201
    (ann,) = await found(here, {"id": "ann"}, "writer")
    assert ann["passport"] == ANN["passport"]  # what the caller does not know of stays
    assert not {"name", "email", "age"} & ann.keys()


async def test_the_newest_version_decides_and_earlier_ones_outside_are_left_out(here):
    await put(here, region="south")
    assert code(await ask(here, "GET", M + "/ann/history")) == (404, "not_found")
    await put(here, region="north")
    past = (await ask(here, "GET", M + "/ann/history?limit=1&offset=1")).json
    assert [one["version"] for one in past["data"]] == [1]
    assert past["meta"]["total"] == 2


async def test_files_are_those_of_the_records_that_are_there(here):
    async def upload(key: str, as_: str) -> Said:
        boundary = {"Content-Type": "multipart/form-data; boundary=b", "x-filename": "cv.txt"}
        body = b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nhello\r\n--b--\r\n'
        said: Said = await here.client("POST", f"{M}/{key}/files", as_, data=body, headers=boundary)
        return said

    file = (await upload("eva", "writer")).json["file_id"]
    assert code(await upload("eva", "under:all")) == (404, "not_found")
    assert code(await upload("ann", "under:r")) == (403, "access_denied")
    own = (await upload("ann", "under:all")).json["file_id"]
    assert (await found(here, {"id": "ann"}))[0]["attachments"][0]["file_id"] == own
    assert (await ask(here, "GET", f"{M}/ann/files/{own}")).body == b"hello"
    assert code(await ask(here, "GET", f"{M}/eva/files/{file}")) == (404, "not_found")
    assert (await ask(here, "GET", f"{M}/ann/files/{own}", as_="under:w")).status == 403


# ---------------------------------------------------------------------- what stays after rights have changed


async def test_an_answer_given_under_other_rights_is_not_given_again(here):
    key = {"Idempotency-Key": "k"}
    sent = {"id": "x", "region": "north", "email": "x@example.com"}
    await here.policy("mine", "person", "read", "write")
    first = await ask(here, "POST", M, sent, "under:mine", headers=key)
    assert first.json["email"] == "x@example.com"
    again = await ask(here, "POST", M, sent, "under:mine", headers=key)
    assert (again.status, again.body) == (201, first.body)
    await here.policy("mine", "person", "read", "write", fields=FIELDS)
    refused = await ask(here, "POST", M, sent, "under:mine", headers=key)
    assert code(refused) == (429, "idempotency_check_failed")
    assert b"x@example.com" not in refused.body


async def test_a_cursor_made_under_other_rights_is_refused(here):
    await here.policy("mine", "person", "read")
    body = {
        "metrics": {"n": {"func": "count"}},
        "group_by": {"keys": ["passport", "name"], "limit": 1},
    }
    cursor = (await ask(here, "POST", M + "/aggregate", body, "under:mine")).json["meta"]["next"]
    assert (await ask(here, "POST", M + "/aggregate", {"next": cursor}, "under:mine")).status == 200
    await here.policy("mine", "person", "read", fields=FIELDS)
    assert code(await ask(here, "POST", M + "/aggregate", {"next": cursor}, "under:mine")) == (
        400,
        "invalid_input",
    )


async def test_changes_count_with_the_next_request(here):
    assert len(await found(here)) == 2
    await here.policy("all", "person", "read", rows={"filter": {"region": "south"}})
    assert [record["passport"] for record in await found(here)] == ["AB-123"]
    await here.policy("all", "person", "write")
    assert code(await ask(here, "POST", M + "/find", {})) == (401, "access_denied")


async def test_a_function_sees_what_its_caller_sees(here):
    await here.declare(
        "contact",
        {
            "fields": {
                "id": {"type": "primary_key"},
                "city": {"type": "string"},
                "age": {"type": "integer", "storage": "indexed"},
            }
        },
    )
    await ask(here, "POST", "/api/models/contact", {"id": "a", "city": "Lund", "age": 5}, "writer")
    call = {"arguments": {"city": "Lund"}}
    assert (await ask(here, "POST", "/api/functions/oldest", call, "writer")).json == {"result": 5}
    await here.policy("mine", "contact", "read", rows={"filter": {"age": 6}})
    assert (await ask(here, "POST", "/api/functions/oldest", call, "under:mine")).json == {
        "result": None
    }
    await here.policy("mine", "contact", "read", fields={"age": "hidden"})
    assert (await ask(here, "POST", "/api/functions/oldest", call, "under:mine")).status == 500
