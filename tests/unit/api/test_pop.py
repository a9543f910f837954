"""The point-of-presence interface over HTTP; the official client of such services drives it in
tests/e2e.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import FormData

from proxy.api.pop import read_pop_find, read_pop_record, read_pop_records
from proxy.errors import Code, VaultError
from proxy.model.query import Compares, Equals, Op
from proxy.model.record import RecordLimits
from proxy.model.schema import IS_ENCRYPTED, STATED_VERSION, records_schema
from tests.support.api import ENGINES, Interface, Said, interface
from tests.support.table import table

HERE = {"x-env-id": "default", "X-Encrypted-Storage": "true"}
BASE = "/v2/storage/records/se"


@pytest.fixture(params=ENGINES)
async def here(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Interface]:
    async with interface(tmp_path, request.param) as made:
        yield made


async def call(
    here: Interface, method: str, path: str = "", content: Any = None, **headers: str
) -> Said:
    more = {} if content is None else {"json": content}
    return await here.client(method, BASE + path, headers={**HERE, **headers}, **more)


async def test_a_record_is_that_of_the_other_family(here: Interface) -> None:
    written = await call(
        here, "POST", content={"record_key": "r", "body": "{}", "key1": "x", "range_key1": 7}
    )
    assert written.status == 201
    read = await call(here, "GET", "/r")
    assert (read.status, read.json) == (200, written.json)
    assert {"key", "range_key", "country"}.isdisjoint(read.json)
    assert (read.json["version"], read.json["is_encrypted"], read.json["key25"]) == (1, None, None)
    other = await here.client(
        "POST", "/api/records/find", json={"country": "se", "filter": {"key1": "x"}}
    )
    assert {name: value for name, value in other.json["data"][0].items() if name in read.json} == {
        name: value for name, value in read.json.items() if name != "is_encrypted"
    }
    await here.client("POST", "/api/records", json={"country": "se", "record_key": "s"})
    assert (await call(here, "GET", "/s")).json["body"] == ""
    assert (await call(here, "DELETE", "/s")).json == {}
    assert (await here.client("DELETE", "/api/records/se/s")).status == 404


async def test_what_a_client_has_sealed_comes_back_as_it_was_sent(here: Interface) -> None:
    sealed = {
        "record_key": "ab" * 32,
        "body": "2:x",
        "key1": "cd" * 32,
        "version": 9,
        "is_encrypted": True,
    }
    assert (
        await call(here, "POST", content=sealed, **{"X-Encrypted-Storage": "false"})
    ).status == 201
    found = await call(
        here, "POST", "/find", {"filter": {"key1": "cd" * 32, "version": {"$not": 8}}}
    )
    assert {name: found.json["data"][0][name] for name in sealed} == sealed
    assert (await call(here, "POST", "/find", {"filter": {"version": {"$not": 9}}})).json["meta"][
        "total"
    ] == 0


async def test_batches(here: Interface) -> None:
    records = [{"record_key": name, "range_key1": number} for number, name in enumerate("abc")]
    made = await call(here, "POST", "/batchWrite", {"records": records})
    assert (made.status, [one["record_key"] for one in made.json["records"]]) == (
        201,
        ["a", "b", "c"],
    )
    page = await call(
        here,
        "POST",
        "/find",
        {
            "filter": {"range_key1": {"$not": 1}},
            "options": {"limit": 1, "sort": [{"range_key1": "desc"}]},
        },
    )
    assert ([one["record_key"] for one in page.json["data"]], page.json["meta"]["total"]) == (
        ["c"],
        2,
    )
    gone = await call(here, "POST", "/batchDelete", {"filter": {"record_key": ["a", "b", "none"]}})
    assert (gone.status, gone.json) == (200, {})
    assert (
        await call(here, "POST", "/batchDelete", {"filter": {"record_key": ["a"]}})
    ).status == 404


async def test_attachments_have_links_of_this_interface(here: Interface) -> None:
    await call(here, "POST", content={"record_key": "r 1"})
    form = FormData(quote_fields=False)
    form.add_field("file", b"page", filename="på.txt", content_type="text/plain")
    made = await here.client("POST", BASE + "/r%201/attachments", headers=HERE, data=form)
    assert (made.status, made.json["filename"]) == (201, "på.txt")
    link = f"{BASE}/r%201/attachments/{made.json['file_id']}"
    assert made.json["download_link"] == link
    read = await call(here, "GET", "/r%201")
    assert read.json["attachments"] == [made.json]
    content = await here.client("GET", link, headers=HERE)
    assert (content.body, content.headers["Content-Disposition"]) == (
        b"page",
        "attachment; filename*=UTF-8''p%C3%A5.txt",
    )
    meta = await here.client("PATCH", link + "/meta", headers=HERE, json={"filename": "b.txt"})
    assert (await here.client("GET", link + "/meta", headers=HERE)).json == meta.json
    assert meta.json["filename"] == "b.txt"
    assert (await here.client("DELETE", link, headers=HERE)).status == 204
    assert (await here.client("GET", link + "/meta", headers=HERE)).status == 404


async def test_a_repeated_upload_is_answered_again(here: Interface) -> None:
    await call(here, "POST", content={"record_key": "r"})
    told = []
    for _ in range(2):
        form = FormData(quote_fields=False)
        form.add_field("file", b"page", filename="a.txt", content_type="text/plain")
        told.append(
            await here.client(
                "POST", BASE + "/r/attachments", headers={**HERE, "Idempotency-Key": "k"}, data=form
            )
        )
    assert [one.status for one in told] == [201, 201]
    assert told[0].json == told[1].json


@table(
    ("path", "headers", "status", "code"),
    [
        (BASE + "/r", {}, 400, "invalid_input"),
        (BASE + "/r", {"x-env-id": "other"}, 401, "unauthorized"),
        ("/v2/storage/records/de/r", {"x-env-id": "default"}, 409, "wrong_country"),
        ("/v2/storage/records/SE/r", {"x-env-id": "default"}, 400, "invalid_input"),
        ("/healthcheck", {}, 400, "invalid_input"),
        ("/healthcheck", {"x-env-id": "other"}, 401, "unauthorized"),
    ],
)
async def test_country_and_environment_have_to_be_the_callers(
    here: Interface, path: str, headers: dict[str, str], status: int, code: str
) -> None:
    said = await here.client("GET", path, headers=headers)
    assert (said.status, said.json["code"]) == (status, code)


async def test_it_is_told_who_seals_or_the_write_is_refused(here: Interface) -> None:
    for value in ("yes", ""):
        said = await call(
            here, "POST", content={"record_key": "r"}, **{"X-Encrypted-Storage": value}
        )
        assert (said.status, said.json["errors"][0]["source"]) == (400, "X-Encrypted-Storage")
    said = await call(here, "POST", content={"record_key": "r", "is_encrypted": True})
    assert (said.status, said.json["errors"][0]["source"]) == (400, "/is_encrypted")


async def test_only_keys_delete_many(here: Interface) -> None:
    for wanted in ({}, {"key1": ["x"]}, {"record_key": ["x"], "key1": ["x"]}):
        assert (await call(here, "POST", "/batchDelete", {"filter": wanted})).json[
            "code"
        ] == "invalid_filter"


async def test_health_needs_a_token_and_a_store(here: Interface) -> None:
    assert (await here.client("GET", "/healthcheck", "", headers=HERE)).status == 401
    assert (await here.client("GET", "/healthcheck", headers=HERE)).json == {"status": "ok"}


async def test_policies_decide_what_is_seen(here: Interface) -> None:
    await here.policy(
        "some",
        "records",
        "read",
        fields={"key1": {"valueType": "masked", "mask": {"last": 2}}, "body": "hidden"},
        rows={"filter": {"key2": "x"}},
    )
    for key, region in (("a", "x"), ("b", "y")):
        await call(
            here,
            "POST",
            content={"record_key": key, "key1": "secret", "key2": region, "body": "private"},
        )
    read = await here.client("GET", BASE + "/a", "under:some", headers=HERE)
    assert (read.json["key1"], "body" in read.json, read.json["key3"]) == ("****et", False, None)
    assert (await here.client("GET", BASE + "/b", "under:some", headers=HERE)).status == 404
    found = await here.client("POST", BASE + "/find", "under:some", headers=HERE, json={})
    assert [one["record_key"] for one in found.json["data"]] == ["a"]
    said = await here.client("POST", BASE, "under:some", headers=HERE, json={"record_key": "c"})
    assert (said.status, said.json["code"]) == (401, "access_denied")


SCHEMA, LIMITS = records_schema(), RecordLimits()


def read(raw: Any, *, sealed_here: bool = False) -> dict[str, Any]:
    return read_pop_record(SCHEMA, raw, LIMITS, sealed_here=sealed_here).fields


def faults(call: Any) -> tuple[Code, list[str]]:
    with pytest.raises(VaultError) as caught:
        call()
    return caught.value.code, [detail.source for detail in caught.value.details]


def test_a_record_says_by_whom_it_was_sealed_and_with_which_key() -> None:
    sealed = read({"record_key": "k", "body": "2:x", "version": 4, "is_encrypted": True})
    assert (sealed[STATED_VERSION], sealed[IS_ENCRYPTED]) == (4, True)
    assert IS_ENCRYPTED not in read({"record_key": "k"})
    assert IS_ENCRYPTED not in read({"record_key": "k", "is_encrypted": None}, sealed_here=True)
    assert read({"record_key": "k", "is_encrypted": False}, sealed_here=True)[IS_ENCRYPTED] is False


@table(
    ("raw", "sealed_here", "places"),
    [
        ({"record_key": "k", "is_encrypted": True}, True, ["/is_encrypted"]),
        ({"record_key": "k", "is_encrypted": "yes"}, False, ["/is_encrypted"]),
        ({"record_key": "k", "country": "se"}, False, ["/country"]),
        ({"record_key": "k", "colour": "red"}, False, ["/colour"]),
        ({}, False, ["/record_key"]),
        ([], False, [""]),
    ],
)
def test_what_does_not_fit_is_told_by_its_place(
    raw: Any, sealed_here: bool, places: list[str]
) -> None:
    assert faults(lambda: read(raw, sealed_here=sealed_here)) == (Code.INVALID_RECORD, places)


def test_a_batch_tells_the_faults_of_all_its_records() -> None:
    raw = [
        {"record_key": "a"},
        {"record_key": "b", "is_encrypted": 1},
        {"record_key": "c", "country": "se"},
    ]
    code, places = faults(lambda: read_pop_records(SCHEMA, raw, LIMITS, sealed_here=False))
    assert (code, places) == (
        Code.INVALID_RECORD,
        ["/records/1/is_encrypted", "/records/2/country"],
    )
    (one,) = read_pop_records(
        SCHEMA, [{"record_key": "a", "is_encrypted": False}], LIMITS, sealed_here=False
    )
    assert (one.key, one.fields[IS_ENCRYPTED]) == ("a", False)


@table(
    ("raw", "code"),
    [
        ({}, Code.INVALID_INPUT),
        ([], Code.INVALID_INPUT),
        ([{"record_key": "k"}] * 101, Code.BATCH_TOO_LARGE),
    ],
)
def test_what_is_no_batch_is_refused(raw: Any, code: Code) -> None:
    assert faults(lambda: read_pop_records(SCHEMA, raw, LIMITS, sealed_here=False))[0] is code


def test_not_may_be_asked_of_numbers_and_instants() -> None:
    wanted = {
        "range_key1": {"$not": [1, None], "$gt": 0},
        "range_key": {"$not": 7},
        "decimal_key1": {"$not": None},
        "expires_at": {"$not": None},
        "created_at": {"$not": "2026-01-01T00:00:00+00:00", "$lt": "2027-01-01T00:00:00Z"},
        "key1": {"$not": "x"},
    }
    tests = read_pop_find(SCHEMA, {"filter": wanted}, LIMITS).tests
    assert Equals("range_key1", (1, None), negated=True) in tests
    assert Equals("range_key1", (7,), negated=True) in tests
    assert Compares("range_key1", Op.GT, 0) in tests
    assert Equals("decimal_key1", (None,), negated=True) in tests
    assert Equals("expires_at", (None,), negated=True) in tests
    assert Equals("created_at", (1_767_225_600_000,), negated=True) in tests
    assert Compares("created_at", Op.LT, 1_798_761_600_000) in tests
    assert Equals("key1", ("x",), negated=True) in tests
    assert len(tests) == 8


@table(
    ("wanted", "places"),
    [
        ({"range_key1": {"$not": "x"}}, ["/filter/range_key1/$not"]),
        ({"range_key1": {"$not": [1, "x"]}}, ["/filter/range_key1/$not/1"]),
        ({"range_key1": {"$not": []}}, ["/filter/range_key1/$not"]),
        ({"range_key1": {"$not": [1] * 1001}}, ["/filter/range_key1/$not"]),
        ({"created_at": {"$not": "yesterday"}}, ["/filter/created_at/$not"]),
        ({"body": {"$not": "x"}}, ["/filter/body"]),
    ],
)
def test_what_cannot_be_asked_is_told(wanted: dict[str, Any], places: list[str]) -> None:
    found = faults(lambda: read_pop_find(SCHEMA, {"filter": wanted}, LIMITS))
    assert found == (Code.INVALID_FILTER, places)


def test_a_filter_may_be_absent_and_has_to_be_an_object() -> None:
    assert read_pop_find(SCHEMA, {}, LIMITS).tests == ()
    assert faults(lambda: read_pop_find(SCHEMA, {"filter": 7}, LIMITS))[0] is Code.INVALID_FILTER
