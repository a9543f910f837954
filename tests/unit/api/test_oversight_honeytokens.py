from typing import Any

import pytest
from aiohttp import FormData

from tests.support.examples import CONTACT
from tests.support.world import World, world

ONE = "/api/models/contact/c-1"


@pytest.fixture
async def here(tmp_path):
    async with world(tmp_path) as made:
        await made.declare("contact", CONTACT)
        for key in ("c-1", "c-2"):
            assert (
                await made.client(
                    "POST", "/api/models/contact", json={"id": key, "city": "Lund", "age": 4}
                )
            ).status == 201
        yield made


def alarms(here: World) -> list[str]:
    """The operations that raised an alarm since the last look."""
    found = [line["operation"] for line in here.audit.lines if line["event"] == "alarm"]
    here.audit.lines.clear()
    return found


async def test_only_administrators_mark_and_see_marks(here: World):
    for method in ("PUT", "GET", "DELETE"):
        assert (await here.client(method, f"{ONE}/bait", "writer")).status == 403
    assert (await here.client("GET", f"{ONE}/bait", "chief")).json == {"bait": False}
    assert (await here.client("PUT", f"{ONE}/bait", "chief")).status == 204
    assert (await here.client("GET", f"{ONE}/bait", "chief")).json == {"bait": True}
    assert (await here.client("DELETE", f"{ONE}/bait", "chief")).status == 204
    assert (await here.client("GET", f"{ONE}/bait", "chief")).json == {"bait": False}
    assert (await here.client("PUT", "/api/models/contact/c-9/bait", "chief")).status == 404
    assert (await here.client("PUT", "/api/models/nothing/c-1/bait", "chief")).status == 400


async def test_whatever_shows_a_bait_raises_an_alarm_and_answers_as_ever(here: World):
    form = FormData()
    form.add_field("file", b"content", filename="a.txt", content_type="text/plain")
    file = (
        await here.client("POST", f"{ONE}/files", data=form, headers={"x-filename": "a.txt"})
    ).json["file_id"]
    before = (await here.client("POST", "/api/models/contact/find", json={})).json
    await here.client("PUT", f"{ONE}/bait", "chief")
    assert alarms(here) == []
    assert (await here.client("POST", "/api/models/contact/find", json={})).json == before
    assert alarms(here) == ["find_records"]
    update = [{"id": "c-1", "name": "Bo"}]
    clone = {"filter": {"id": "c-1"}, "update_with": {"id": "c-3"}}
    asked = {"arguments": {"city": "Lund"}}
    for operation, method, path, body in (
        ("find_direct", "POST", "/api/find", {"schema": "contact"}),
        ("sf_find_ids", "POST", "/sf/find-ids", {"schema": "contact"}),
        ("record_history", "GET", f"{ONE}/history", None),
        ("export_records", "GET", "/api/models/contact/export", None),
        ("download_attachment", "GET", f"{ONE}/files/{file}", None),
        ("call_function", "POST", "/api/functions/oldest", asked),
        ("update_records", "POST", "/api/models/contact/batch/update", update),
        ("clone_record", "POST", "/api/models/contact/clone", clone),
    ):
        answer = await here.client(method, path, json=body)
        assert answer.status < 300, (operation, answer.body)
        assert alarms(here) == [operation]


async def test_what_leads_to_its_values_by_a_detour_raises_an_alarm(here: World):
    form = FormData()
    form.add_field("file", b"content", filename="a.txt", content_type="text/plain")
    file = (
        await here.client("POST", f"{ONE}/files", data=form, headers={"x-filename": "a.txt"})
    ).json["file_id"]
    await here.client("PUT", f"{ONE}/bait", "chief")
    groups = {
        "metrics": {"age": {"func": "max", "key": "age"}},
        "group_by": {"keys": ["city", "id"]},
    }
    for operation, method, path, body in (
        ("aggregate_records", "POST", "/api/models/contact/aggregate", groups),
        ("change_attachment", "PATCH", f"{ONE}/files/{file}", {"mime_type": "text/csv"}),
        ("move_attachments", "POST", f"{ONE}/files/move/c-2", {"attachment_ids": [file]}),
        ("migrate_record", "POST", f"{ONE}/migrate/c-2", None),
    ):
        answer = await here.client(method, path, json=body)
        assert answer.status < 300, (operation, answer.body)
        assert alarms(here) == [operation]


async def test_among_records_of_the_other_family_too(here: World):
    record = {"country": "se", "record_key": "c-1", "profile_key": "p", "key1": "secret"}
    assert (await here.client("POST", "/api/records", json=record)).status == 201
    form = FormData()
    form.add_field("file", b"content", filename="a.txt", content_type="text/plain")
    await here.client(
        "POST", "/api/records/se/c-1/files", data=form, headers={"x-filename": "a.txt"}
    )
    await here.client("PUT", "/api/models/records/c-1/bait", "chief")
    rehash = {"dtk": "a1B2" * 24, "keys": ["p"], "rules": {"key1": {"strategy": "plain"}}}
    for operation, path, body in (
        ("rehash_records", "/api/records/rehash", rehash),
        ("records_create", "/api/records", record),  # its answer shows the file
    ):
        answer = await here.client("POST", path, json=body)
        assert answer.status < 300, (operation, answer.body)
        assert alarms(here) == [operation]
    nobody = {**rehash, "keys": ["nobody"]}
    assert (await here.client("POST", "/api/records/rehash", json=nobody)).status == 200
    assert alarms(here) == []


async def test_other_records_raise_none(here: World):
    await here.client("PUT", f"{ONE}/bait", "chief")
    here.audit.lines.clear()
    await here.client("POST", "/api/models/contact/find", json={"filter": {"id": "c-2"}})
    count: dict[str, Any] = {"metrics": {"n": {"func": "count"}}}
    for counted in (count, {**count, "group_by": {"keys": ["city"]}}):
        assert (
            await here.client("POST", "/api/models/contact/aggregate", json=counted)
        ).status == 200
    await here.client("DELETE", ONE)
    assert alarms(here) == []
