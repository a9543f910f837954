import pytest
from aiohttp import FormData

from proxy.web.api.document.world import CONTACT
from tests.support.world import World, world

ONE = "/api/models/contact/c-1"


@pytest.fixture
async def here(tmp_path):
    async with world(tmp_path) as made:
        await made.declare("contact", CONTACT)
        for key in ("c-1", "c-2"):
            assert (
                await made.client("POST", "/api/models/contact", json={"id": key, "city": "Lund", "age": 4})
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
    file = (await here.client("POST", f"{ONE}/files", data=form, headers={"x-filename": "a.txt"})).json["file_id"]
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


async def test_other_records_raise_none(here: World):
    await here.client("PUT", f"{ONE}/bait", "chief")
    here.audit.lines.clear()
    await here.client("POST", "/api/models/contact/find", json={"filter": {"id": "c-2"}})
    await here.client("POST", "/api/models/contact/aggregate", json={"metrics": {"n": {"func": "count"}}})
    await here.client("DELETE", ONE)
    assert alarms(here) == []
