"""The record-based family: every field and every name of it, with every kind of value, on every
engine.
"""

from typing import Any

import pytest

from tests.conformance.interface.kept import BODIES, DECIMALS, INTEGERS, NAMES, RECORDS, TEXTS, R
from tests.support.table import table

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def stored(kept: Any, record: dict[str, Any]) -> Any:
    """The record as a search shows it after it was written, once it is seen that the write answered
    the same.
    """
    made = await kept.client("POST", R, json={"country": "se", "record_key": "fff", **record})
    assert made.status == 201, made.body
    found = await kept.client(
        "POST", R + "/find", json={"country": "se", "filter": {"record_key": "fff"}}
    )
    await kept.client("DELETE", R + "/se/fff")
    assert [made.json] == found.json["data"]
    return made.json


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: str(record.get("record_key", "eee")))
async def test_every_field_comes_back_and_is_null_without_a_value(kept, record):
    key = record.get("record_key", "eee")
    answer = await kept.client("POST", R + "/find", json={"country": "se", "filter": {"key": key}})
    (found,) = answer.json["data"]
    assert found.keys() == NAMES
    assert (found["record_key"], found["key"], found["country"], found["attachments"]) == (
        key,
        key,
        "se",
        [],
    )
    for name in (*TEXTS, *BODIES, *INTEGERS, *DECIMALS):
        assert found[name] == record.get(name), name
    assert found["range_key"] == found["range_key1"]
    assert found["version"] == record.get("version", 1)
    assert found["expires_at"] == record.get("expires_at")
    assert found["created_at"] == found["updated_at"]


@table(
    ("name", "values"),
    [
        *((name, ("", " x ", "ÅÄÖ 𝄞", "x" * 256, None)) for name in ("profile_key", "service_key5", "key1", "key2", "key3", "key25")),
        *((name, ("", '{"a": 1}', "x" * 50_000, "\n\t", None)) for name in BODIES),
        *((name, (0, -1, 2**63 - 1, -(2**63), 1.0, None)) for name in ("range_key1", "range_key10", "version")),
        *((name, (0, 1.5, -999999999999.9999, 999999999999, None)) for name in ("decimal_key1", "decimal_key20")),
    ],
)  # fmt: skip
async def test_values_come_back_as_they_were_sent(
    kept: Any, name: str, values: tuple[Any, ...]
) -> None:
    for value in values:
        record = await stored(kept, {name: value})
        assert record[name] == (1 if name == "version" and value is None else value)


@pytest.mark.parametrize("alias", ["key", "range_key"])
async def test_the_older_names_say_the_same(kept, alias):
    name = {"key": "record_key", "range_key": "range_key1"}[alias]
    value: Any = "fff" if alias == "key" else 7
    record = await stored(kept, {alias: value})
    assert (record[alias], record[name]) == (value, value)
    answer = await kept.client(
        "POST",
        R,
        json={
            "country": "se",
            "record_key": "fff",
            alias: value,
            name: "else" if alias == "key" else 8,
        },
    )
    assert (answer.status, answer.json["code"]) == (400, "invalid_record")


_NO_TEXTS: tuple[Any, ...] = (1, True, [], {}, "x" * 257, "a\0b")
_NO_INTEGERS: tuple[Any, ...] = ("1", 1.5, True, 2**63, [])
REFUSED: list[tuple[str, Any]] = [
    *((name, value) for name in ("profile_key", "parent_key", "service_key1", "key1", "key2", "key21") for value in _NO_TEXTS),
    *((name, value) for name in BODIES for value in (1, {"a": 1}, ["x"])),
    *((name, value) for name in ("range_key", "range_key1", "range_key10", "version") for value in _NO_INTEGERS),
    *((name, value) for name in ("decimal_key1", "decimal_key20") for value in ("1.5", 0.00001, 10**12, True)),
    *((name, value) for name in ("record_key", "key") for value in (1, None, "", "x" * 129)),
    *((name, "2020-01-01T00:00:00.000Z") for name in ("created_at", "updated_at")),
    ("expires_at", "tomorrow"), ("expires_at", 1), ("attachments", []), ("country", 1), ("country", "SE"), ("country", ""), ("country", None),
    ("key26", "x"), ("key0", "x"), ("range_key11", 1), ("service_key6", "x"), ("decimal_key21", 1), ("profileKey", "x"), ("is_encrypted", True),
]  # fmt: skip


@table("name, value", REFUSED)
async def test_what_does_not_fit_is_400_with_its_place(kept, name, value):
    record = {"country": "se", name: value}
    if name not in ("record_key", "key"):
        record["record_key"] = "fff"
    for path, body, at in (
        (R, record, ""),
        (R + "/batch", {"country": "se", "records": [record]}, "/records/0"),
    ):
        answer = await kept.client("POST", path, json=body)
        assert answer.status == 400, answer.body
        assert [error["source"] for error in answer.json["errors"]] == [f"{at}/{name}"]


async def test_a_record_without_a_key_is_refused(kept):
    answer = await kept.client("POST", R, json={"country": "se"})
    assert (answer.status, answer.json["errors"][0]["source"]) == (400, "/record_key")


async def test_what_is_not_sent_again_is_cleared(kept):
    full = {name: value for name, value in RECORDS[0].items() if name != "record_key"}
    full |= {"version": 4, "expires_at": "2040-01-01T00:00:00.000Z"}
    first = await kept.client("POST", R, json={**full, "key": "fff"})
    kept.clock.advance(1000)
    again = await kept.client("POST", R, json={"country": "se", "key": "fff", "key9": "new"})
    assert (first.status, again.status) == (201, 201)
    left = {name for name, value in again.json.items() if value is not None}
    assert left == {
        "record_key", "key", "key9", "version", "created_at", "updated_at", "country",
        "attachments",
    }  # fmt: skip
    assert (again.json["version"], again.json["created_at"]) == (2, first.json["created_at"])
    assert again.json["updated_at"] > first.json["updated_at"]
    changed = {"country": "se", "records": [{"key": "fff", "range_key": 5}]}
    updated = await kept.client("POST", R + "/batch/update", json=changed)
    assert [
        (record["key9"], record["range_key1"], record["version"]) for record in updated.json
    ] == [("new", 5, 3)]
    assert (await kept.client("DELETE", R + "/se/fff")).status == 204


async def test_a_record_ends_when_it_said(kept):
    end = "2023-11-14T22:14:00.000Z"  # the clock of tests begins at 22:13:20
    assert (
        await kept.client("POST", R, json={"country": "se", "key": "fff", "expires_at": end})
    ).status == 201
    kept.clock.advance(60_000)
    answer = await kept.client(
        "POST", R + "/find", json={"country": "se", "filter": {"key": "fff"}}
    )
    assert answer.json["data"] == []
    assert (await kept.client("DELETE", R + "/se/fff")).status == 404
