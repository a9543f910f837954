"""Access policies, as a client under them sees the record-based family, on each engine."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import FormData

from tests.support.api import ENGINES, Interface, Said, interface

R = "/api/records"
FIELDS: dict[str, Any] = {
    "key1": "hidden", "key2": "masked", "body": {"valueType": "redacted", "format": "[a-z]{9}"},
}  # fmt: skip
NORTH = {"filter": {"key3": "north"}}
OWN = {
    "country": "se", "record_key": "a", "key1": "secret", "key2": "ab1", "key3": "north", "body": "{}", "range_key1": 5,
}  # fmt: skip
OTHER = {**OWN, "record_key": "b", "key3": "south"}


@pytest.fixture(params=ENGINES)
async def here(request, tmp_path) -> AsyncIterator[Interface]:
    async with interface(tmp_path, request.param) as made:
        yield made


async def ask(
    here: Interface, method: str, path: str, body: Any = None, as_: str = "under:mine", **more: Any
) -> Said:
    return await here.client(
        method, path, as_, **({"json": body} if body is not None else {}), **more
    )


def code(said: Said) -> tuple[int, str]:
    return said.status, said.json["code"]


async def two_under_mine(here: Interface) -> None:
    """A record that is there under the policy ``mine``, and one that is not."""
    await here.policy("mine", "records", "read", "write", fields=FIELDS, rows=NORTH)
    made = await ask(
        here, "POST", R + "/batch", {"country": "se", "records": [OWN, OTHER]}, "writer"
    )
    assert made.status == 201


async def found(here: Interface, wanted: Any = None, as_: str = "under:mine") -> Said:
    return await ask(here, "POST", R + "/find", {"country": "se", "filter": wanted or {}}, as_)


async def test_what_is_seen_is_the_same_in_pages_and_versions(here):
    await two_under_mine(here)
    page = (await found(here)).json
    (record,) = page["data"]
    assert page["meta"]["redacted_fields"] == ["body", "key2"]
    assert "key1" not in record
    assert (record["key"], record["key2"], record["range_key"]) == ("a", "***", 5)
    assert re.fullmatch("[a-z]{9}", record["body"])
    past = (await ask(here, "GET", R + "/se/a/history")).json
    assert (past["data"][0]["record"]["body"], past["meta"]["redacted_fields"]) == (
        record["body"],
        ["body", "key2"],
    )


@pytest.mark.parametrize("wanted", [{"key1": "secret"}, {"key2": "ab1"}, {"body": "{}"}])
async def test_nothing_can_be_asked_of_what_is_not_seen(here, wanted):
    await two_under_mine(here)
    assert (await found(here, wanted)).status == 400


async def test_whoever_overwrites_a_record_leaves_what_it_does_not_know_of(here):
    await two_under_mine(here)
    said = await ask(here, "POST", R, {"country": "se", "record_key": "a", "key3": "north"})
    assert (said.status, said.json["meta"]) == (201, {"redacted_fields": ["body", "key2"]})
    assert (said.json["body"], "key1" in said.json) == (None, False)
    (kept,) = (await found(here, {"key": "a"}, "writer")).json["data"]
    assert (kept["key1"], kept["key2"]) == ("secret", None)


async def test_a_record_outside_is_not_there_and_its_key_is_used(here):
    await two_under_mine(here)
    assert code(await ask(here, "GET", R + "/se/b/history")) == (404, "not_found")
    taken = {"country": "se", "record_key": "b", "key3": "north"}
    assert code(await ask(here, "POST", R, taken)) == (409, "record_exists")


async def test_what_no_policy_allows_is_refused(here):
    await two_under_mine(here)
    await here.declare("other", {"fields": {"id": {"type": "primary_key"}}})
    await here.policy("elsewhere", "other", "read")
    assert code(await ask(here, "DELETE", R + "/se/a")) == (401, "access_denied")
    count = {"metrics": {"n": {"func": "count"}}}
    (group,) = (await ask(here, "POST", R + "/aggregate", count)).json["data"].values()
    assert group["metrics"] == {"n": 1}
    assert code(await ask(here, "POST", R + "/aggregate", count, "under:elsewhere")) == (
        403,
        "access_denied",
    )


async def test_whoever_overwrites_a_record_sees_its_files_only_where_it_may_read(here):
    record = {"country": "se", "record_key": "r"}
    assert (await ask(here, "POST", R, record, "writer")).status == 201
    form = FormData()
    form.add_field("file", b"a page", filename="a.pdf", content_type="text/plain")
    sent = await here.client(
        "POST", R + "/se/r/files", "writer", data=form, headers={"x-filename": "a.pdf"}
    )
    assert sent.status == 201
    await here.policy("blind", "records", "write")
    await here.policy("seeing", "records", "write", "read")
    for name, files in (("blind", []), ("seeing", [sent.json["file_id"]])):
        for path, body, headers in (
            (R, record, {}),
            (R + "/batch", {"country": "se", "records": [record]}, {"Idempotency-Key": "one"}),
            (R + "/batch", {"country": "se", "records": [record]}, {"Idempotency-Key": "one"}),
            ("/v2/storage/records/se", {"record_key": "r"}, {"x-env-id": "default"}),
        ):
            said = await ask(here, "POST", path, body, f"under:{name}", headers=headers)
            (made,) = said.json if isinstance(said.json, list) else [said.json]
            assert [file["file_id"] for file in made["attachments"]] == files, (name, path)


async def test_tokens_lead_to_no_more_than_may_be_seen(here):
    records = [{**record, "profile_key": "p1", "key1": "x@example.com"} for record in (OWN, OTHER)]
    await ask(here, "POST", R + "/batch", {"country": "se", "records": records}, "writer")
    rules = {"key1": {"strategy": "alphaNumericPersistent", "strategyOptions": {}}}
    asked = {"dtk": "a" * 96, "keys": ["p1"], "rules": rules}
    made = (await ask(here, "POST", R + "/rehash", asked, "writer")).json
    tokens = {"tokens": [made["data"][0]["fields"]["key1"]]}
    await here.policy("mine", "records", "read", fields={"profile_key": "hidden"}, rows=NORTH)
    (one,) = (await ask(here, "POST", R + "/rehash/resolve", tokens)).json["data"]
    assert (one["record_key"], one["profile_key"]) == ("a", None)
    await here.policy("mine", "records", "read", "write", fields={"key1": "masked"})
    assert (await ask(here, "POST", R + "/rehash/resolve", tokens)).json["data"] == []
    assert (await ask(here, "POST", R + "/rehash", asked)).status == 400
