"""Updates that carry no value (the way back of records that a delete has only marked), and how long
the meaning of answers takes.
"""

import asyncio
from time import perf_counter
from typing import Any

from proxy.redactor.message import RawHeaders
from proxy.storage.changes import Unstage
from tests.support.exchanges import FORM, HTML, JSON, Desk, desk
from tests.support.patience import PATIENCE
from tests.support.table import table

DAY = 86_400_000
BACK = (
    "{match: POST /p, create: p}",
    '{match: "GET /p/{id}", read: p}',
    '{match: "DELETE /p/{id}", delete: p, keep: 30d}',
    '{match: "POST /p/{id}/restore", update: p}',
    '{match: "POST /p/{id}/undo", update: p, request: {form: {name: name}}}',
    '{match: "PUT /p/{id}", update: p, request: {absent: erase}}',
    '{match: "POST /p/{id}/both", objects: [{update: p, id: path id, request: {object: $}}, {read: p, response: {each: "$.others[*]", id: $.id}}]}',
    '{match: POST /ids, update: p, id: "$.ids[*]"}',
    '{match: POST /values, update: p, id: "$.ids[*]", request: {object: $.values}}',
    "{match: POST /g, graphql: {Mutation.restore: {update: p, key: id, object: patch}}}",
)
EMPTY: dict[str, tuple[Any, RawHeaders]] = {
    "no body": (b"", ()),
    "an empty form": (b"", FORM),
    "an empty text of JSON": (b"", JSON),
    "null": (b"null", JSON),
    "an empty object": (b"{}", JSON),
}


async def marked(people: int = 1) -> tuple[Desk, list[dict[str, Any]]]:
    """Records that a delete has marked."""
    one = await desk(*BACK)
    stored = [await one.create({"name": f"Ann {at}"}, at) for at in range(1, people + 1)]
    for at in range(1, people + 1):
        await (await one.send(f"DELETE /p/{at}")).answer(204)
    return one, stored


async def left(one: Desk, stored: list[dict[str, Any]]) -> list[str]:
    """The names that readers see when the values of marked records have been erased."""
    one.clock.advance(31 * DAY)
    await one.vault.maintain()
    assert one.idle
    return [(await one.shown(record, f"GET /p/{record['id']}"))["name"] for record in stored]


@table(
    ("match", "content"),
    [
        (match, content)
        for match in ("POST /p/1/restore", "POST /p/1/both", "PUT /p/1")
        for content in EMPTY
        # as the rule says, an empty object in place of the record erases its fields
        if (match, content) != ("PUT /p/1", "an empty object")
    ],
)
async def test_an_update_without_a_value_takes_the_mark_away(match, content):
    body, headers = EMPTY[content]
    one, stored = await marked()
    call = await one.send(match, body, headers)
    assert call.sent.body == body
    await call.answer(200, stored[0])
    assert await left(one, stored) == ["Ann 1"]


@table("status", [404, 500])
async def test_one_that_was_not_accepted_leaves_it(status):
    one, stored = await marked()
    await (await one.send("POST /p/1/restore")).answer(status)
    assert await left(one, stored) == [stored[0]["name"]]


async def test_a_form_without_the_named_member_takes_it_away():
    one, stored = await marked()
    await (await one.send("POST /p/1/undo", b"", FORM)).answer(303)
    assert await left(one, stored) == ["Ann 1"]


@table(
    ("match", "body"),
    [
        ("POST /ids", {"ids": [1, 2, 3], "action": "restore"}),
        ("POST /values", {"ids": [1, 2, 3], "action": "restore"}),
        ("POST /values", {"ids": [1, 2, 3, 3], "values": {}}),
    ],
)
async def test_an_update_of_several_records_takes_it_away_from_each(match, body):
    one, stored = await marked(3)
    await (await one.send(match, body)).answer(200, {"done": 3})
    assert await left(one, stored) == ["Ann 1", "Ann 2", "Ann 3"]


async def test_ids_beside_the_fields_are_those_of_as_many_records():
    one, stored = await marked(3)
    call = await one.send("POST /ids", {"ids": [1, 2, 3], "name": "Bo"})
    await call.answer(200, {"done": 3})
    after = [{**record, "name": call.json["name"]} for record in stored]
    assert await left(one, after) == ["Bo", "Bo", "Bo"]


async def test_a_field_of_graphql_without_a_value_takes_it_away():
    one, stored = await marked()
    call = await one.send("POST /g", {"query": "mutation { restore(id: 1) { id } }"})
    await call.answer(200, {"data": {"restore": {"id": 1}}})
    assert await left(one, stored) == ["Ann 1"]


async def test_a_record_that_the_vault_does_not_know_is_none_afterwards():
    one, _ = await marked()
    await (await one.send("POST /p/7/restore")).answer(200)
    assert (await one.counts())[0] == 1


async def test_a_way_back_and_a_purge_that_a_redirect_refused_leave_it_to_404_in_the_bin():
    seen, once = ((b"Location", b"/bin"),), "response: {success: [302]}"
    bin_of = f'{{match: "POST /bin/{{id}}/back", update: p, {once}}}'
    purge = f'{{match: "POST /bin/{{id}}/purge", delete: p, {once}}}'
    page_of = "{match: GET /bin, read: p, response: {restore: html, only: [name]}}"
    one = await desk(*BACK, bin_of, purge, page_of)
    stored = await one.create({"name": "Ann"})
    await (await one.send("DELETE /p/1")).answer(204)
    for path in ("/bin/1/back", "/bin/1/purge"):
        await (await one.send(f"POST {path}", b"", FORM)).answer(302, b"", seen)
        one.clock.advance(1)
    await (await one.send("GET /p/1")).answer(404, b"{}", JSON)
    page = await (await one.send("GET /bin")).answer(200, stored["name"].encode(), HTML)
    assert page.body == b"Ann"
    one.clock.advance(8 * DAY)
    await one.vault.maintain()
    assert await one.counts() == (0, 0, 0)  # as nothing has shown it for so long


# ---------------------------------------------------------------------- how long it takes


async def test_the_time_of_a_change_that_settles_another_one_is_counted_once():
    one = await desk(
        "{match: POST /p, create: p}", '{match: DELETE /p, delete: p, response: {id: "$[*]"}}'
    )
    await one.create({"name": "Ann", "email": "ann@x.example"})
    await one.send("POST /p", {"name": "Bo"})  # it may get an id that is deleted
    call = await one.send("DELETE /p")
    gate, began = one.store.pause("commit", change=Unstage), perf_counter()
    waiting = asyncio.create_task(call.answer(200, [1, 2]))
    await asyncio.wait_for(gate.reached(), PATIENCE)
    await asyncio.sleep(0.1)
    gate.open()
    await waiting
    assert 0.09 < call.exchange.timing.settle < perf_counter() - began
