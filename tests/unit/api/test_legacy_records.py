"""Handlers of the record-based family; every field, filter, status and engine has its case in
``tests/conformance/interface``.
"""

from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from proxy.api.legacy_records import (
    group_name,
    groups,
    legacy_version_json,
    record_json,
    stated_version,
)
from proxy.model.record import Attachment, Record
from proxy.model.rights import FULL, Rights
from proxy.model.schema import DECIMAL_KEYS, KEYS, RANGE_KEYS, SERVICE_KEYS, records_schema
from proxy.vault.records.aggregate import AggregateRow
from tests.support.api import Interface, interface

R = "/api/records"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Interface]:
    async with interface(tmp_path) as made:
        for number in (1, 2, 3):
            record = {
                "country": "se",
                "key": f"r-{number}",
                "range_key": number,
                "key1": "x",
                "parent_key": f"r-{number - 1}",
            }
            assert (await made.client("POST", R, json=record)).status == 201
        yield made


async def found(here: Interface, **wanted: Any) -> list[str]:
    answer = await here.client("POST", R + "/find", json={"country": "se", **wanted})
    assert answer.status == 200, answer.body
    return [record["record_key"] for record in answer.json["data"]]


async def test_a_record_is_overwritten_whole_and_keeps_its_files(here: Interface) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=b", "x-filename": "a.txt"}
    body = b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nhello\r\n--b--\r\n'
    file = await here.client("POST", R + "/se/r-1/files", data=body, headers=headers)
    assert file.status == 201
    answer = await here.client("POST", R, json={"country": "se", "record_key": "r-1", "key2": "y"})
    assert (answer.status, answer.json["version"], answer.json["key1"], answer.json["key2"]) == (
        201,
        2,
        None,
        "y",
    )
    assert answer.json["attachments"] == [file.json]
    assert (await here.client("GET", file.json["download_link"])).body == b"hello"


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("", {"key": "a"}, "/country"),
        ("/batch", {"records": []}, "/country"),
        (
            "/batch",
            {"country": "se", "records": [{"key": "a", "country": "SE"}]},
            "/records/0/country",
        ),
        ("/batch/update", {"country": "se", "search_key": 1, "records": []}, "/search_key"),
        (
            "/batch/update",
            {"country": "se", "search_key": "body", "records": [{"body": "a"}]},
            "/search_key",
        ),
        (
            "/batch/update",
            {"country": "se", "search_key": "is_encrypted", "records": [{"key": "a"}]},
            "/search_key",
        ),
        ("/clone", {"filter": {}}, "/update_with"),
        ("/clone", {"filter": {}, "update_with": {"country": 1}}, "/update_with/country"),
        ("/find", {"filter": {}}, "/country"),
        ("/batch/delete", {"filter": {"key1": ["x"]}}, "/filter"),
        ("/batch/delete", {"filter": {"key": []}}, "/filter/key"),
    ],
)
async def test_faults_have_their_place(here: Interface, path: str, body: Any, place: str) -> None:
    answer = await here.client("POST", R + path, json=body)
    assert (answer.status, [error["source"] for error in answer.json["errors"]]) == (400, [place])


async def test_a_record_is_copied_under_another_key(here: Interface) -> None:
    answer = await here.client(
        "POST",
        R + "/clone",
        json={"filter": {"range_key": 2}, "update_with": {"key": "r-9", "key2": "y"}},
    )
    assert (
        answer.status,
        [(record["key"], record["key1"], record["key2"]) for record in answer.json],
    ) == (
        201,
        [("r-9", "x", "y")],
    )


async def test_deletes_follow_the_field_that_is_named(here: Interface) -> None:
    assert (await here.client("DELETE", R + "/no/r-2")).status == 404
    assert (await here.client("DELETE", R + "/se/r-2?cascadeBy=parent_key")).status == 204
    assert await found(here) == ["r-1"]
    assert (
        await here.client(
            "POST", R + "/batch/delete", json={"filter": {"key": ["r-1", "r-7"]}, "country": "se"}
        )
    ).status == 204
    assert await found(here) == []


async def test_a_record_tells_what_it_was(here: Interface) -> None:
    await here.client("POST", R, json={"country": "se", "key": "r-1"})
    answer = await here.client("GET", R + "/se/r-1/history?limit=1&offset=1")
    assert [(entry["version"], entry["record"]["range_key"]) for entry in answer.json["data"]] == [
        (1, 1)
    ]
    assert answer.json["meta"]["total"] == 2
    assert (await here.client("GET", R + "/de/r-1/history")).status == 409


async def test_a_batch_is_created_and_updated_as_a_whole(here: Interface) -> None:
    batch = {"country": "se", "records": [{"key": "r-4"}, {"key": "r-1", "country": "se"}]}
    answer = await here.client("POST", R + "/batch", json=batch)
    assert [(record["key"], record["version"], record["range_key"]) for record in answer.json] == [
        ("r-4", 1, None),
        ("r-1", 2, None),
    ]
    changes = {"country": "se", "search_key": "key1", "records": [{"key1": "x", "range_key2": 7}]}
    answer = await here.client("POST", R + "/batch/update", json=changes)
    assert (answer.status, [record["key"] for record in answer.json]) == (200, ["r-2", "r-3"])
    answer = await here.client(
        "POST",
        R + "/batch/update",
        json={"country": "se", "search_key": "key", "records": [{"key": "r-2", "key1": None}]},
    )
    assert [(record["key1"], record["range_key2"]) for record in answer.json] == [(None, 7)]


FIELDS = {
    "record_key": "r/1",
    "key1": "a",
    "range_key1": 3,
    "decimal_key1": Decimal("1.5"),
    "is_encrypted": True,
}
RECORD = Record(
    1, "r/1", FIELDS, 2, 0, 1, attachments=(Attachment("f", "a.txt", "00", "text/plain", 1, 0, 0),)
)


def test_every_field_is_there_and_null_without_a_value() -> None:
    made = record_json(FULL.render(RECORD), "se")
    names = {
        "record_key", "key", "body", "precommit_body", "profile_key", "parent_key", "range_key",
        "version", "created_at",
    }  # fmt: skip
    names |= {
        "updated_at",
        "expires_at",
        "country",
        "attachments",
        *KEYS,
        *SERVICE_KEYS,
        *RANGE_KEYS,
        *DECIMAL_KEYS,
    }
    assert made.keys() == names
    assert (made["key"], made["range_key"], made["country"], made["version"]) == ("r/1", 3, "se", 2)
    assert made["updated_at"] == "1970-01-01T00:00:00.001Z"
    values = {name for name, value in made.items() if value is not None}
    assert values == {
        "record_key", "key", "range_key1", "range_key", "key1", "decimal_key1", "version", "created_at", "updated_at", "country", "attachments",
    }  # fmt: skip
    assert made["attachments"][0]["download_link"] == "/api/records/se/r%2F1/files/f"


def test_what_policies_hide_is_left_out_under_both_names() -> None:
    rights = Rights(FULL.actions, records_schema(), frozenset(("record_key", "key1")))
    seen = rights.render(RECORD)
    assert not {"range_key1", "range_key", "body"} & record_json(seen, "se", rights).keys()
    assert (record_json(seen, "se", rights)["key"], record_json(seen, "se", rights)["key1"]) == (
        "r/1",
        "a",
    )
    assert legacy_version_json(seen, rights)["record"].keys() == {
        "record_key",
        "key",
        "key1",
        "version",
    }


def test_a_version_that_was_stated_counts() -> None:
    stated = Record(1, "r", {"record_key": "r", "stated_version": 0}, 7, 0, 0)
    assert (stated_version(RECORD), stated_version(stated)) == (2, 0)
    entry = legacy_version_json(FULL.render(stated))
    assert (entry["version"], entry["record"]["version"], entry["record"]["key"]) == (7, 0, "r")


def test_no_two_groups_have_one_name() -> None:
    values = (None, "null", "a|b", "a", "b", "\\", "|", "\\null", "", 1, Decimal("1.5"))
    pairs = [{"x": one, "y": other} for one in values for other in values]
    assert len({group_name(pair) for pair in pairs}) == len(pairs)
    assert group_name({}) == "all"
    assert groups([AggregateRow({"key1": "a"}, {"n": 1})]) == {
        "a": {"group": {"keys": {"key1": "a"}}, "metrics": {"n": 1}}
    }
