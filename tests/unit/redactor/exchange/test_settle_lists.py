"""What becomes of several values of one field when the application has answered."""

import json
from typing import Any

from tests.support.exchanges import FIELDS, JSON, USUAL, desk
from tests.support.table import table
from tests.unit.redactor.exchange.test_settle import ALIKE, BEFORE

MANY = (
    "name: {kind: name}",
    "email: {kind: email, token: {shape: email, same: true}, at: '$.mails[*]'}",
    FIELDS[-1],
)


@table("mails", [["Ann@x.example", "ann@x.example"], ["a@x.example", "b@x.example", "A@x.example"]])
async def test_values_of_a_list_that_have_one_token_are_told_by_their_place(mails):
    one = await desk(fields=MANY)
    stored = await one.create({"name": "Ann", "mails": mails})
    assert len(set(stored["mails"])) < len(mails)
    assert (await one.shown(stored))["mails"] == mails
    turned = list(reversed(mails))
    call = await one.send("PATCH /p/1", {"mails": turned})
    stored |= call.json
    assert (await call.seen(200, stored))["mails"] == turned
    assert (await one.shown(stored))["mails"] == turned


@table("order", [[1, 0], [0, 1], [1], [0]])
async def test_an_application_that_ignores_a_list_and_shows_it_in_an_order_of_its_own_keeps_it(
    order,
):
    one = await desk(fields=MANY)
    stored = await one.create({"name": "Ann", "tags": ["a", "b"]})
    stored["tags"] = [stored["tags"][index] for index in order]
    wanted = [["a", "b"][index] for index in order]
    call = await one.send("PATCH /p/1", {"tags": ["c"], "name": "Bo"})
    stored["name"] = call.json["name"]
    assert (await call.seen(200, stored))["tags"] == wanted
    assert (await one.shown(stored))["tags"] == wanted


async def test_an_application_that_adds_to_a_list_keeps_what_it_shows():
    one = await desk(fields=MANY)
    stored = await one.create({"name": "Ann", "tags": ["a", "b"]})
    call = await one.send("PATCH /p/1", {"tags": ["c"]})
    stored["tags"] = [*call.json["tags"], *stored["tags"]]
    assert (await call.seen(200, stored))["tags"] == ["c", "a", "b"]
    assert (await one.shown(stored))["tags"] == ["c", "a", "b"]


async def test_an_answer_that_shows_a_part_of_a_list_gives_up_nothing_of_it():
    one = await desk(fields=MANY)
    stored = await one.create({"name": "Ann", "tags": ["a"]})
    call = await one.send("PATCH /p/1", {"tags": ["a", "b"]})
    await call.answer(200, {**stored, "tags": call.json["tags"][:1]})
    assert (await one.shown({**stored, **call.json}))["tags"] == ["a", "b"]


async def test_the_answer_to_a_change_beside_a_doubtful_one_shows_what_that_one_left():
    one = await desk(fields=ALIKE)
    stored = await one.create(BEFORE)
    doubtful = await one.send("PATCH /p/1", {"name": "Bo", "rank": 2, "born": "1990-05-05"})
    await doubtful.answer(500)
    one.clock.advance(1)
    call = await one.send("PATCH /p/1", {"hint": "axl", "born": "1995-01-01"})
    wanted = {**BEFORE, "name": "Bo", "rank": 2, "hint": "axl", "born": "1995-01-01", "id": 1}
    stored |= {**doubtful.json, **call.json}
    assert await call.seen(200, stored) == wanted
    assert await one.shown(stored) == wanted


async def test_the_token_of_one_field_alone_may_come_back_in_place_of_its_value():
    one = await desk(*USUAL)
    call = await one.send("POST /p", {"phone": "070-123 45 67", "name": "Ann"})
    stored = {**call.json, "id": 1}
    await call.answer(201, stored)
    again = await one.send("PATCH /p/1", {"phone": stored["phone"]})
    assert again.json == {"phone": stored["phone"]}
    assert (await again.seen(200, stored))["phone"] == "070-123 45 67"
    assert one.idle


async def test_a_value_of_a_record_that_is_joined_is_shown_in_the_answer_that_joins_it() -> None:
    """Create and change were in doubt, and their values of one field share a token."""
    people = await desk(
        "{match: POST /p, create: p}",
        '{match: GET /p, read: p, response: {each: "$[*]", id: $.id}}',
        '{match: "PATCH /p/{id}", update: p}',
        fields=(
            "code: {kind: text}", "name: {kind: name}", "rank: {kind: number, token: one}",
            "day: {kind: date, token: {shape: date}}",
        ),
    )  # fmt: skip
    stored: dict[str, Any] = {"id": 39}
    for what, body in (
        ("POST /p", {"code": "a", "name": "Ann", "rank": 1500}),
        ("PATCH /p/39", {"name": "Bea", "rank": 13}),
    ):
        call = await people.send(what, body, JSON)
        stored.update(call.json)
        await call.answer(500, {"error": "no"})
        people.clock.advance(5)
    call = await people.send("GET /p")
    (listed,) = json.loads((await call.answer(200, [stored])).body)
    assert (listed["name"], listed["rank"]) == ("Bea", 13)
    people.clock.advance(5)
    call = await people.send("PATCH /p/39", {"day": "2016-02-01"}, JSON)
    stored.update(call.json)
    shown = json.loads((await call.answer(200, stored)).body)
    assert shown == {"id": 39, "code": "a", "name": "Bea", "rank": 13, "day": "2016-02-01"}


async def test_of_two_updates_in_doubt_whose_values_share_a_token_the_later_is_shown() -> None:
    one = await desk(fields=(*FIELDS, "hint: {kind: text, token: {shape: mask, first: 1}}"))
    stored = await one.create({"name": "Ann", "hint": "a1"})
    refused = await one.send("PATCH /p/1", {"hint": "b2"})
    await refused.answer(500, {"error": "no"})
    one.clock.advance(5)
    call = await one.send("PATCH /p/1", {"hint": "c3"})
    stored |= call.json
    assert (await call.seen(200, stored))["hint"] == "c3"
    one.clock.advance(5)
    call = await one.send("PATCH /p/1", {"hint": "b4"})
    stored |= call.json
    await call.exchange.failed(True)
    for _ in range(2):
        one.clock.advance(400_000)
        assert (await one.shown(stored))["hint"] == "b4"


async def test_a_newer_record_without_a_name_counts_before_repeated_tokens_of_the_older() -> None:
    one = await desk(fields=("code: {kind: text}", *MANY, "rank: {kind: number, token: one}"))
    stored: dict[str, Any] = {"id": 1}
    mails = ["Ann@x.example", "ann@x.example"]
    for what, body in (
        ("POST /p", {"code": "c", "name": "Ann", "mails": mails, "rank": 1500}),
        ("PATCH /p/1", {"name": "Bea", "rank": 13}),
    ):
        call = await one.send(what, body)
        stored.update(call.json)
        await call.answer(500, {"error": "no"})
        one.clock.advance(5)
    for _ in range(3):
        shown = await one.shown(stored)
        assert (shown["name"], shown["rank"], shown["mails"]) == ("Bea", 13, mails)
        one.clock.advance(5)


async def test_of_two_updates_in_doubt_the_one_that_another_field_tells_is_shown() -> None:
    one = await desk(fields=(*FIELDS, "hint: {kind: text, token: {shape: mask, first: 1}}"))
    stored = await one.create({"name": "Ann"})
    for body, acts in (
        ({"name": "Bea", "hint": "a1"}, True),
        ({"name": "Cay", "hint": "a2"}, False),
    ):
        call = await one.send("PATCH /p/1", body)
        if acts:
            stored |= call.json
        await call.answer(500, {"error": "no"})
        one.clock.advance(5)
    for _ in range(3):
        shown = await one.shown(stored)
        assert (shown["name"], shown["hint"]) == ("Bea", "a1")
        one.clock.advance(400_000)


async def test_copies_under_other_ids_decide_nothing_of_the_record():
    one = await desk()
    stored = await one.create({"name": "Ann"})
    call = await one.send("PATCH /p/1", {"name": "Bea"})
    new = call.json["name"]
    await call.answer(500, b"")
    copy = [{"id": 99, "name": stored["name"]}]
    assert await one.shown(copy, "GET /p") == [{"id": 99, "name": "Ann"}]
    assert await one.counts() == (1, 0, 1), "both versions stay"
    assert (await one.shown({"id": 1, "name": new}))["name"] == "Bea"
    assert await one.counts() == (1, 0, 0)


async def test_records_that_a_rule_takes_for_one_are_all_shown_under_their_ids():
    one = await desk(
        "{match: POST /rpc, create: p, request: {object: $.params}, response: {id: $.id}}",
        *USUAL[1:],
    )
    stored = []
    for number, name in enumerate(("Ann", "Bea", "Eve"), 10):
        call = await one.send("POST /rpc", {"params": {"name": name}})
        stored.append({"id": number, "name": call.json["params"]["name"]})
        await call.answer(200, {"id": 1, "result": [number]})
    for _ in range(2):
        shown = await one.shown(stored, "GET /p")
        assert [item["name"] for item in shown] == ["Ann", "Bea", "Eve"]
