"""Changes of several records that the application acknowledges and carries out in part."""

from random import Random
from typing import Any

from proxy.audit.events import MARKED
from proxy.vault.expiry import reap
from tests.support.exchanges import FORM, HTML, USUAL, Call, Desk, desk
from tests.support.table import table

WEEK = 7 * 86_400_000
FIELDS = ("name: {kind: name}", "pay: {kind: number, token: one}")
REMOVE = 'match: POST /remove, delete: p, id: "$.ids[*]"'
CHANGE = 'match: POST /change, update: p, id: "$.ids[*]", request: {object: $.data}'
IDS, OBJECTS = 'response: {id: "$.done[*]"}', 'response: {each: "$.done[*]", id: $.id}'
LIST = '{match: GET /p, read: p, response: {each: "$[*]", id: $.id}}'
PAGE = "{match: GET /all, read: p, response: {restore: html, only: [name]}}"
PIN = "{shape: fixed, value: hidden}"
DOUBT = "nobody knows whether the application took it"

Stored = dict[int, dict[str, Any]]


def person(number: int) -> dict[str, Any]:
    return {"name": f"Ann {'abc'[number % 3]}ide", "pay": 1_000_000 + number}


async def office(*operations: str) -> tuple[Desk, Stored]:
    one = await desk(
        USUAL[0], *USUAL[2:], LIST, PAGE, *(f"{{{rule}}}" for rule in operations), fields=FIELDS
    )
    return one, {number: await one.create(person(number), number) for number in (1, 2, 3)}


async def seen(one: Desk, stored: Stored) -> dict[int, dict[str, Any]]:
    """What a list shows of what the application has."""
    shown = await one.shown(list(stored.values()), "GET /p")
    return {item.pop("id"): item for item in shown}


def reasons(one: Desk, event: str) -> list[tuple[int, str]]:
    """The number of records and the reason of each line of that event."""
    lines = [line for line in one.audit.lines if line["event"] == event]
    return [(line["count"], line.get("reason", "")) for line in lines]


@table("last", [False, True])
async def test_a_create_of_several_is_the_object_that_shows_all_of_it_and_not_one_with_an_equal_value(
    last,
):
    fields = ("name: {kind: name}", "email: {kind: email}", f"pin: {{kind: text, token: {PIN}}}")
    bulk = '{match: POST /bulk, create: p, request: {each: "$[*]"}, response: {each: "$[*]", id: $.id}}'
    one = await desk(USUAL[0], *USUAL[2:], bulk, LIST, fields=fields)
    ann = {"name": "Ann Alder", "email": "same@x.example", "pin": "1111"}
    before = {"id": 1} | await one.create(ann, 1)
    bo, cy = (
        {**ann, "name": "Bo Birch", "pin": "2222"},
        {"name": "Cy Cedar", "email": "c@x.example"},
    )
    call = await one.send("POST /bulk", [cy, bo])
    # the first is answered with the record that was there, which has the address of the second
    answer = [before, {"id": 2, **call.json[1]}]
    await call.answer(201, answer[::-1] if last else answer)
    assert await one.shown(answer, "GET /p") == [{"id": 1, **ann}, {"id": 2, **bo}]


@table("keep", ["", ", keep: 30d"])
@table("done", [[1, 3], ["01", 3], [3, 1, 9]])
async def test_a_delete_of_several_removes_those_that_its_answer_names(keep, done):
    one, stored = await office(f"{REMOVE}{keep}, {IDS}")
    call = await one.send("POST /remove", {"ids": [1, 2, 3, 9]})
    await call.answer(200, {"done": done})
    assert one.idle
    assert reasons(one, "delete") == [(1, DOUBT), (2, MARKED if keep else "")]
    assert await seen(one, {2: stored[2]}) == {2: person(2)}
    one.clock.advance(31 * 86_400_000)
    await one.vault.maintain()
    assert await seen(one, {2: stored[2]}) == {2: person(2)}
    assert await one.counts() == (1, 0, 0)


@table("keep", ["", ", keep: 30d"])
async def test_a_success_means_all_where_the_rule_says_so(keep):
    one, stored = await office(f"{REMOVE}{keep}, response: {{complete: true}}")
    await (await one.send("POST /remove", {"ids": [1, 2]})).answer(200, {"ok": True})
    assert one.idle
    assert reasons(one, "delete") == [(2, MARKED if keep else "")]
    one.clock.advance(31 * 86_400_000)
    await one.vault.maintain()
    assert await one.counts() == (1, 0, 0)
    assert await seen(one, {3: stored[3]}) == {3: person(3)}


async def test_an_update_keeps_no_earlier_versions_where_the_rule_says_so():
    one, stored = await office(f"{CHANGE}, response: {{id: $.id, complete: true}}")
    call = await one.send("POST /change", {"ids": [1, 2, 3], "data": {"name": "Bo"}})
    await call.answer(200, {"ok": True})
    assert await one.counts() == (3, 0, 0)
    changed = {number: {**of, **call.json["data"]} for number, of in stored.items()}
    names = [of["name"] for of in (await seen(one, changed)).values()]
    assert names == ["Bo", "Bo", "Bo"]


async def test_a_refusal_means_none_where_a_success_means_all():
    one, stored = await office(f"{REMOVE}, response: {{complete: true}}")
    await (await one.send("POST /remove", {"ids": [1, 2]})).answer(409, {"ok": False})
    assert await seen(one, stored) == {number: person(number) for number in stored}


@table(
    ("ids", "done", "left"),
    [
        (["AB", "ab"], ["ab"], ["AB"]),
        (["01", "1"], ["1"], ["01"]),
        (["01", "1"], [1], ["01"]),
        (["AB", "Ab"], ["ab"], ["AB", "Ab"]),  # which of the two is not known
        (["AB", "x"], ["ab", "X"], []),
    ],
)
async def test_ids_that_differ_in_spelling_alone_are_those_of_different_records(ids, done, left):
    one = await desk(USUAL[0], *USUAL[2:], LIST, f"{{{REMOVE}, {IDS}}}", fields=FIELDS)
    stored = {ident: await one.create({"name": f"Ann {ident}"}, ident) for ident in ids}
    await (await one.send("POST /remove", {"ids": ids})).answer(200, {"done": done})
    names = [item["name"] for item in await one.shown(list(stored.values()), "GET /p")]
    assert [name for name in names if name.startswith("Ann ")] == [f"Ann {one}" for one in left]


async def test_an_answer_whose_type_is_not_told_may_have_content():
    one, stored = await office(REMOVE)
    await (await one.send("POST /remove", {"ids": [1, 2, 3]})).answer(200, b'{"done": 2}', ())
    assert await seen(one, stored) == {number: person(number) for number in stored}


@table(
    ("operation", "body"),
    [
        (REMOVE, {"ids": [2]}),
        (CHANGE, {"ids": [2], "data": {"name": "Bo"}}),
        (
            'match: POST /change, update: p, request: {each: "$.all[*]"}, id: $.id',
            {"all": [{"id": 2, "name": "Bo"}]},
        ),
    ],
)
async def test_a_change_of_several_that_names_one_may_leave_that_out(operation, body):
    one, stored = await office(operation)
    match = "POST /remove" if operation is REMOVE else "POST /change"
    await (await one.send(match, body)).answer(200, {"done": 0, "skipped": 1})
    one.clock.advance(1000)
    assert await seen(one, stored) == {number: person(number) for number in stored}


@table("ids", [[2], [1, 2, 3]])
async def test_an_answer_that_names_none_of_its_list_removes_none(ids):
    one, stored = await office(f"{REMOVE}, {IDS}")
    await (await one.send("POST /remove", {"ids": ids})).answer(200, {"done": []})
    await reap(one.people, 0)
    assert await seen(one, stored) == {number: person(number) for number in stored}
    assert reasons(one, "delete") == [(len(ids), DOUBT)]
    assert await one.counts() == (3, 0, 0)


async def test_a_delete_of_several_that_is_not_told_apart_removes_what_nothing_shows_later():
    one, stored = await office(REMOVE)
    await (await one.send("POST /remove", {"ids": [1, 2, 3]})).answer(200, {"ok": True})
    assert one.idle
    assert reasons(one, "delete") == [(3, DOUBT)]
    assert await one.counts() == (3, 0, 3)
    one.clock.advance(WEEK // 2)
    assert await seen(one, {2: stored[2]}) == {2: person(2)}
    await one.vault.maintain()
    assert await one.counts() == (3, 0, 2)
    assert await (await one.send("GET /p/3")).answer(404) is not None  # so it has happened
    assert await one.counts() == (2, 0, 1)
    one.clock.advance(WEEK)
    await one.vault.maintain()
    assert await one.counts() == (1, 0, 0)
    assert await seen(one, {2: stored[2]}) == {2: person(2)}
    assert (await seen(one, stored))[1]["name"] == stored[1]["name"]


async def test_a_page_that_shows_a_record_keeps_it_from_such_a_delete():
    one, stored = await office(REMOVE)
    await (await one.send("POST /remove", {"ids": [1, 2, 3]})).answer(200, {"ok": True})
    page = f"<table><tr><td>{stored[2]['name']}</td></tr></table>".encode()
    shown = await (await one.send("GET /all")).answer(200, page, HTML)
    assert b"Ann&#32;cide" in shown.body
    one.clock.advance(2 * WEEK)
    await one.vault.maintain()
    assert await one.counts() == (1, 0, 0)
    assert await seen(one, {2: stored[2]}) == {2: person(2)}


async def test_such_a_delete_waits_for_a_record_that_was_changed_or_is_being_changed():
    one, stored = await office(REMOVE)
    await (await one.send("POST /remove", {"ids": [1, 2, 3]})).answer(200, {"ok": True})
    one.clock.advance(2 * WEEK)
    call = await one.send("PATCH /p/2", {"name": "Bo"})
    await one.vault.maintain()
    assert (await one.counts())[0] == 1
    await call.answer(204)
    await one.vault.maintain()
    assert await one.counts() == (1, 0, 0)
    stored[2]["name"] = call.json["name"]
    assert await seen(one, {2: stored[2]}) == {2: {**person(2), "name": "Bo"}}


async def test_a_mark_of_several_that_is_not_told_apart_is_made_once_an_answer_says_so():
    one, stored = await office(f"{REMOVE}, keep: 1d")
    await (await one.send("POST /remove", {"ids": [1, 2]})).answer(200, {"ok": True})
    await (await one.send("GET /p/1")).answer(404)
    one.clock.advance(2 * WEEK)
    await one.vault.maintain()
    assert await one.counts() == (2, 0, 0)
    assert await seen(one, {2: stored[2], 3: stored[3]}) == {2: person(2), 3: person(3)}


@table(
    ("status", "headers", "left"),
    [
        (204, (), 1),
        (200, ((b"Content-Length", b"0"),), 1),
        (200, ((b"Content-Type", b"text/plain"),), 3),
        (303, ((b"Location", b"/p"), (b"Content-Length", b"0")), 3),
    ],
)
async def test_an_answer_without_content_tells_of_no_exception(status, headers, left):
    one, _ = await office("match: POST /remove, delete: p, id: form ids")
    call = await one.send("POST /remove", b"ids=1&ids=2", FORM)
    await call.answer(status, b"", headers)
    assert (await one.counts())[0] == left


@table(
    ("rule", "answer"),
    [
        (f"{CHANGE}, {IDS}", lambda new: {"done": [1, 3]}),
        (f"{CHANGE}, {OBJECTS}", lambda new: {"done": [{"id": 1, **new}, {"id": 3, **new}]}),
        (f"{CHANGE}, {OBJECTS}", lambda new: {"done": [{"id": 1}, {"id": 3}]}),
        (CHANGE, lambda new: {"ok": True}),
        (f"{CHANGE}, {OBJECTS}", lambda new: {"done": []}),
    ],
)
@table("late", [False, True])
async def test_an_update_of_several_loses_no_value_of_a_record_that_was_left_out(
    rule, answer, late
):
    one, stored = await office(rule)
    call = await one.send("POST /change", {"ids": [1, 2, 3], "data": {"name": "Bo", "pay": 4321}})
    new = call.json["data"]
    await call.answer(200, answer(new))
    assert one.idle
    assert any(
        "nobody knows" in reason or "does not prove" in reason
        for _, reason in reasons(one, "write")
    )
    if late:
        one.clock.advance(2 * WEEK)
        await one.vault.maintain()
    for number in (1, 3):
        stored[number] |= new
    changed = {"name": "Bo", "pay": 4321}
    for _ in range(2):
        assert await seen(one, stored) == {1: changed, 2: person(2), 3: changed}
    one.clock.advance(600_000)
    assert await seen(one, stored) == {1: changed, 2: person(2), 3: changed}
    assert await one.counts() == (3, 0, 0)


async def test_a_number_that_no_token_tells_is_the_new_one_only_where_the_answer_says_so():
    one, stored = await office(f"{CHANGE}, {IDS}")
    call = await one.send("POST /change", {"ids": [1, 2, 3], "data": {"pay": 4321}})
    await call.answer(200, {"done": [1, 3]})
    shown = await seen(one, stored)
    assert [shown[number]["pay"] for number in (1, 2, 3)] == [4321, 1_000_002, 4321]


async def test_values_of_an_update_that_names_no_record_are_found_and_both_kept():
    one, stored = await office(CHANGE)
    call = await one.send("POST /change", {"ids": [1, 2], "data": {"pay": 4321}})
    await call.answer(204)
    shown = await seen(one, stored)
    assert [shown[number]["pay"] for number in (1, 2, 3)] == [4321, 4321, 1_000_003]
    assert await one.counts() == (3, 0, 2)
    again = await one.send("PATCH /p/1", {"pay": 5})
    await again.answer(204)
    assert await one.counts() == (3, 0, 1)


@table("seed", range(40))
async def test_whatever_part_is_carried_out_every_record_is_shown_as_it_is(seed):
    random = Random(seed)
    told = random.choice(["", f", {IDS}", f", {OBJECTS}"])
    one, stored = await office(REMOVE + told, CHANGE + told)
    truth = {number: person(number) for number in stored}
    for turn in range(8):
        ids = random.sample(sorted(stored), random.randint(0, len(stored)))
        if len(ids) < 2:
            break
        part = random.sample(ids, random.randint(0, len(ids)))
        if random.random() < 0.3:
            call = await one.send("POST /remove", {"ids": ids})
            for number in part:
                del stored[number], truth[number]
        else:
            data = {"name": f"Bo {turn} Berg", "pay": 500 + turn}
            call = await one.send("POST /change", {"ids": ids, "data": data})
            for number in part:
                stored[number] |= call.json["data"]
                truth[number] = data
        shapes = {"": {"ok": True}, f", {IDS}": {"done": part}}
        await call.answer(200, shapes.get(told, {"done": [{"id": number} for number in part]}))
        one.clock.advance(random.choice([1_000, 600_000]))
        assert await seen(one, stored) == truth
        one.clock.advance(random.choice([1_000, 2 * WEEK]))
        await one.vault.maintain()
        assert await seen(one, stored) == truth


TEXTS = ("name: {kind: name}", "email: {kind: email, token: {shape: email, same: true}}")
ANN = {"name": "Ann Aide", "email": "a@x.se"}


async def lost(call: Call) -> None:
    """No answer came, and the application had the request."""
    await call.exchange.failed(True)


@table("how", [0, 200, 500])
@table("known", [True, False])
@table("told", [("name",), ("id", "name"), ("id", "name", "email")])
@table("listed", [True, False])
async def test_what_one_of_several_shows_decides_nothing_of_another_with_its_token(
    how, known, told, listed
):
    one = await desk(*USUAL, "{match: POST /change, update: p, id: '$.ids[*]'}", fields=TEXTS)
    ann = await one.create(ANN, 1)
    two = await one.create({"name": "Bea", "email": "b@x.se"}, 2) if known else {"email": "b"}
    one.clock.advance(1000)
    call = await one.send("POST /change", {"ids": [1, 2], "name": "Bo"})
    two = {**two, "id": 2, "name": call.json["name"]}  # and leaves out 1
    await (call.answer(how, {"ok": True}) if how else lost(call))
    one.clock.advance(1000)
    some = {name: two[name] for name in told}
    for _ in range(3):
        shown = await one.shown([some] if listed else some, "GET /p" if listed else "GET /p/2")
        assert (shown[0] if listed else shown)["name"] == "Bo"
        one.clock.advance(400_000)
    assert (await one.shown(ann, "GET /p/1"))["name"] == "Ann Aide"
    await one.shown(two, "GET /p/2")
    for change in ("PATCH /p/1", "DELETE /p/1"):
        one.clock.advance(2 * WEEK)
        await one.vault.maintain()
        await (await one.send(change, {"name": "Cy"} if "PATCH" in change else b"")).answer(204)
        assert (await one.shown(two, "GET /p/2"))["name"] == "Bo"


@table("how", [0, 200])
@table("ids", [[2, 1], [1, 2], [1]])
async def test_a_record_that_a_list_has_shown_stays_whatever_became_of_its_create(how, ids):
    born = (*TEXTS, "born: {kind: date, token: {shape: date}}")
    one = await desk(*USUAL, f"{{{CHANGE}}}", fields=born)
    ann = {**ANN, "born": "1970-01-02"}
    call = await one.send("POST /p", ann)
    await lost(call)
    stored = {1: {**call.json, "id": 1}, 2: await one.create({"name": "Cy"}, 2)}
    one.clock.advance(1000)
    call = await one.send("POST /change", {"ids": ids, "data": {"name": "Bo"}})
    for number in ids:
        stored[number] |= call.json["data"]
    await (call.answer(how, {"ok": True}) if how else lost(call))
    one.clock.advance(1000)
    for _ in range(2):
        await seen(one, stored)
        one.clock.advance(2 * WEEK)
        await one.vault.maintain()
    assert await seen(one, stored) == {
        1: {**ann, "name": "Bo"}, 2: {"name": "Bo" if 2 in ids else "Cy"}
    }  # fmt: skip


@table("answer", [{"done": [1]}, {"done": []}])
async def test_a_record_that_nobody_knows_and_the_answer_leaves_out_is_none_in_the_end(answer):
    one, stored = await office(f"{CHANGE}, {IDS}")
    call = await one.send("POST /change", {"ids": [1, 9], "data": {"name": "Bo"}})
    await call.answer(200, answer)
    assert one.idle
    assert await one.counts() == (4, 1, 1 if not answer["done"] else 0)
    one.clock.advance(2 * WEEK)
    await one.vault.maintain()
    assert await one.counts() == (3, 0, 0)
    call = await one.send("POST /change", {"ids": [1, 9], "data": {"name": "Cy"}})
    await call.answer(200, answer)
    stored[9] = {"name": call.json["data"]["name"], "id": 9}
    one.clock.advance(1000)
    assert (await seen(one, {9: stored[9]}))[9]["name"] == "Cy"  # it was changed all the same
    one.clock.advance(2 * WEEK)
    await one.vault.maintain()
    assert (await seen(one, {9: stored[9]}))[9]["name"] == "Cy"


async def test_a_success_that_means_all_has_ids_in_its_objects_as_any_has():
    one, stored = await office(f"{CHANGE}, response: {{complete: true}}")
    call = await one.send("POST /change", {"ids": [1], "data": {"pay": 5}})
    shown = await call.seen(200, {"id": 1, **stored[1], **call.json["data"]})
    assert shown == {"id": 1, **person(1), "pay": 5}


@table("shown", [1, 2])
async def test_records_that_nobody_knows_stay_where_a_list_shows_what_no_answer_told(shown):
    one, _ = await office(f"{CHANGE}, {IDS}")
    call = await one.send("POST /change", {"ids": [8, 9], "data": {"name": "Bo"}})
    await lost(call)
    stored = {number: {"id": number, **call.json["data"]} for number in (8, 9)[:shown]}
    for _ in range(3):
        one.clock.advance(1000)
        assert [of["name"] for of in (await seen(one, stored)).values()] == ["Bo"] * shown
        one.clock.advance(2 * WEEK)
        await one.vault.maintain()
