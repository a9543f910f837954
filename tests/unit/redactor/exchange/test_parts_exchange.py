"""Several objects, and several entities, in one message."""

import asyncio
import html
import json
from itertools import combinations
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from tests.support.exchanges import FORM, HTML, JSON, USUAL, Desk, desk, member_form
from tests.support.patience import PATIENCE
from tests.support.table import table

COURIER = (
    "  courier: {fields: {name: {kind: name}, phone: {kind: phone, token: {shape: numeric, keep_last: 2}}, "
    "born: {kind: date, token: {shape: date}}}}"
)
ORDER = (
    "{match: POST /orders, objects: ["
    "{create: p, request: {object: $.customer}, response: {object: $.customer, id: $.id}}, "
    "{create: courier, request: {object: $.courier}, response: {object: $.courier, id: $.id}}]}"
)
READ = (
    '{match: "GET /orders/{order}", objects: ['
    "{read: p, response: {object: $.customer, id: $.id}}, "
    '{read: courier, response: {each: "$.couriers[*]", id: $.id}}]}'
)
CHANGE = (
    '{match: "PUT /orders/{order}", objects: ['
    "{update: p, id: $.customer.id, request: {object: $.customer}, response: {object: $.customer}}, "
    "{update: courier, id: $.courier.id, request: {object: $.courier}, response: {object: $.courier}}, "
    '{delete: courier, id: "$.gone[*]"}]}'
)
PAIR = (
    "{match: POST /pairs, objects: ["
    "{create: p, request: {object: $.one}, response: {object: $.one, id: $.id}}, "
    "{create: p, request: {object: $.two}, response: {object: $.two, id: $.id}}]}"
)
ANN = {"name": "Ann Wexlomere", "email": "ann@wexlomere.example", "born": "1931-02-27"}
BOB = {"name": "Bob Flumper", "phone": "+46 70 918 27 36", "born": "1950-01-02"}
CLEAR = ("Wexlomere", "wexlomere", "1931-02-27", "Flumper", "918 27", "1950-01-02")


async def office(*operations: str) -> Desk:
    return await desk(*(operations or (ORDER, READ, CHANGE, PAIR)), entities=(COURIER,))


def hidden(raw: bytes) -> bool:
    return not any(word in raw.decode() for word in CLEAR)


async def ordered(one: Desk) -> Any:
    """An order that the application has: 1 is the customer, 7 the courier."""
    call = await one.send("POST /orders", {"customer": ANN, "courier": BOB, "sum": 12.50})
    assert hidden(call.sent.body)
    taken = call.json
    taken["customer"]["id"], taken["courier"]["id"] = 1, 7
    seen = await call.seen(201, taken)
    assert seen == {"customer": {**ANN, "id": 1}, "courier": {**BOB, "id": 7}, "sum": 12.50}
    assert one.idle
    return taken


async def test_each_object_of_a_message_is_of_its_own_entity_both_ways():
    one = await office()
    order = await ordered(one)
    stored = {"customer": order["customer"], "couriers": [order["courier"], {"id": 8, "name": ""}]}
    shown = await (await one.send("GET /orders/5")).seen(200, stored)
    assert shown == {
        "customer": {**ANN, "id": 1},
        "couriers": [{**BOB, "id": 7}, {"id": 8, "name": ""}],
    }
    change = await one.send(
        "PUT /orders/5", {"customer": {"id": 1, "name": "Cid"}, "courier": {"id": 7, "name": "Dan"}}
    )
    assert change.json["customer"]["name"] != "Cid"
    await change.answer(200, change.json)
    order["customer"] |= change.json["customer"]
    order["courier"] |= change.json["courier"]
    stored = {"customer": order["customer"], "couriers": [order["courier"]]}
    shown = await (await one.send("GET /orders/5")).seen(200, stored)
    assert shown["customer"] == {**ANN, "name": "Cid", "id": 1}
    assert shown["couriers"] == [{**BOB, "name": "Dan", "id": 7}]


async def test_every_byte_that_is_no_value_stays():
    one = await office()
    raw = b'{ "sum" : 1e2,"courier":{"name":"Bob"} , "customer" :\n{"name":"Ann", "n": 1.0}}'
    call = await one.send("POST /orders", raw)
    sent = call.json
    back = call.sent.body.replace(sent["courier"]["name"].encode(), b"Bob")
    assert back.replace(sent["customer"]["name"].encode(), b"Ann") == raw
    shown = await call.answer(201, call.sent.body)
    assert shown.body == raw


async def test_two_records_of_one_entity_in_one_create():
    one = await office()
    call = await one.send("POST /pairs", {"one": {"name": "Ann"}, "two": {"name": "Bob"}})
    taken = {"one": {**call.json["one"], "id": 1}, "two": {**call.json["two"], "id": 2}}
    seen = await call.seen(201, taken)
    assert seen == {"one": {"name": "Ann", "id": 1}, "two": {"name": "Bob", "id": 2}}
    assert await one.counts() == (2, 0, 0)


@table(
    ("body", "code"),
    [
        ({"customer": ANN, "courier": {"NAME": "Bob"}}, Code.AMBIGUOUS_JSON),
        ({"customer": ANN, "courier": {**BOB, "born": "soon"}}, Code.VALUE_UNFIT),
        ({"customer": ANN, "courier": BOB, "note": f"for {ANN['name']}"}, Code.VALUE_ELSEWHERE),
        ({"customer": ANN, "courier": {**BOB, "mail": ANN["email"]}}, Code.VALUE_ELSEWHERE),
    ],
)
async def test_what_one_object_is_refused_for_refuses_all_and_keeps_nothing(body, code):
    one = await office()
    with pytest.raises(VaultError) as caught:
        await one.send("POST /orders", body)
    assert caught.value.code is code
    assert one.idle
    assert await one.counts() == (0, 0, 0)


async def test_equal_values_of_two_objects_are_no_value_elsewhere():
    one = await office()
    same = {"name": "Ann Wexlomere", "born": "1931-02-27"}
    call = await one.send("POST /orders", {"customer": same, "courier": same})
    assert hidden(call.sent.body)
    await call.answer(500)
    assert one.idle


async def test_a_refusal_of_the_application_shows_what_was_sent_and_keeps_nothing():
    one = await office()
    call = await one.send("POST /orders", {"customer": ANN, "courier": BOB})
    sent = call.json
    told = {"error": f"no {sent['customer']['name']} and {sent['courier']['name']}"}
    assert await call.seen(422, told) == {"error": f"no {ANN['name']} and {BOB['name']}"}
    assert await one.counts() == (0, 0, 0)
    assert one.idle


async def test_an_object_that_a_message_lacks_is_not_stored():
    one = await office()
    call = await one.send("POST /orders", {"customer": ANN})
    assert await call.seen(201, {"customer": {**call.json["customer"], "id": 1}}) == {
        "customer": {**ANN, "id": 1}
    }
    assert await one.counts() == (1, 0, 0)
    assert one.idle


async def test_two_changes_of_one_record_are_refused():
    one = await office()
    await ordered(one)
    body = {"customer": {"id": 1, "name": "Cid"}, "courier": {"id": 7, "name": "Dan"}}
    with pytest.raises(VaultError, match="two of its objects change one record"):
        await one.send("PUT /orders/5", {**body, "gone": [7]})
    with pytest.raises(VaultError, match="several records of one kind"):
        await one.send("PUT /orders/5", {**body, "gone": [8, 9]})
    call = await one.send("PUT /orders/5", {"customer": {"id": 1, "name": "Cid"}, "gone": [7, 9]})
    await call.answer(204)
    assert one.idle


FORMS = (
    "{match: POST /orders, objects: ["
    '{create: p, request: {form: {c_name: name, c_mail: email}}, response: {success: [302], id: "header X-Customer {id}"}}, '
    '{create: courier, request: {form: {d_name: name}}, response: {success: [302], id: "header X-Courier {id}"}}]}'
)
PAGE = (
    "{match: GET /page, objects: [{read: p, response: {restore: html, only: [name]}}, "
    "{read: courier, response: {restore: html, only: [name]}}]}"
)
LINES = (
    "{match: GET /lines, objects: [{read: p, response: {each: $.customer, id: $.id, stream: ndjson}}, "
    "{read: courier, response: {each: $.courier, id: $.id, stream: ndjson}}]}"
)


async def test_forms_pages_and_streams_have_several_objects_too():
    one = await office(FORMS, PAGE, LINES)
    raw = member_form(c_name="Ann Wexlomere", d_name="Bob Flumper", c_mail="a@wexlomere.example")
    call = await one.send("POST /orders", raw, FORM)
    assert hidden(call.sent.body)
    sent = call.form
    await call.answer(302, b"", ((b"X-Customer", b"1"), (b"X-Courier", b"7")))
    page = f"<p>{sent['c_name']}</p><b>{sent['d_name']}</b>".encode()
    shown = await (await one.send("GET /page")).answer(200, page, HTML)
    assert html.unescape(shown.body.decode()) == "<p>Ann Wexlomere</p><b>Bob Flumper</b>"
    lines = b"".join(
        json.dumps(line).encode() + b"\n"
        for line in (
            {"customer": {"id": 1, "name": sent["c_name"]}},
            {"courier": {"id": 7, "name": sent["d_name"]}},
        )
    )
    call = await one.send("GET /lines")
    stream = await call.exchange.stream(200, ((b"Content-Type", b"application/x-ndjson"),))
    assert stream is not None
    seen = await stream.restore(lines[:40]) + await stream.restore(lines[40:]) + await stream.rest()
    await stream.end()
    assert [json.loads(line) for line in seen.splitlines()] == [
        {"customer": {"id": 1, "name": "Ann Wexlomere"}},
        {"courier": {"id": 7, "name": "Bob Flumper"}},
    ]
    assert one.idle


VIEWS = "views:\n  - {who: [boss], p: clear, courier: clear}\n  - {who: [desk], p: mask, courier: token}"


async def test_a_view_counts_for_each_entity():
    one = await desk(ORDER, READ, more=VIEWS, entities=(COURIER,))
    boss, clerk = one.view("boss"), one.view("desk")
    call = await one.send("POST /orders", {"customer": ANN, "courier": BOB}, view=boss)
    taken = call.json
    taken["customer"]["id"], taken["courier"]["id"] = 1, 7
    assert (await call.seen(201, taken))["courier"]["name"] == BOB["name"]
    stored = {"customer": taken["customer"], "couriers": [taken["courier"]]}
    shown = await (await one.send("GET /orders/5", view=clerk)).seen(200, stored)
    assert shown["couriers"] == [taken["courier"]], "its tokens"
    assert shown["customer"]["name"] not in (ANN["name"], taken["customer"]["name"]), "its mask"
    assert "Wexlomere" not in json.dumps(shown)


async def test_parameters_that_any_object_names_are_named():
    search = (
        "{match: GET /orders, objects: [{read: p, query: {email: {field: email}}, "
        'response: {each: "$[*].customer", id: $.id}}, '
        '{read: courier, response: {each: "$[*].courier", id: $.id}}]}'
    )
    one = await office(ORDER, search)
    order = await ordered(one)
    call = await one.send(f"GET /orders?email={ANN['email']}&q=x")
    assert order["customer"]["email"].split("@")[0].encode() in call.sent.target
    assert await call.seen(200, [order]) == [
        {"customer": {**ANN, "id": 1}, "courier": {**BOB, "id": 7}, "sum": 12.5}
    ]
    met = one.metrics.samples("domicile_unnamed_parameters_total")
    assert [(labels[1], labels[2]) for labels, _ in met] == [("GET /orders", "query")]
    assert one.idle
    carried = await one.runtime.readdress_referer(
        "app", ((b"Referer", b"http://app/orders?email=a%40b"),)
    )
    assert carried == ((b"Referer", b"http://app/orders"),)


async def test_a_form_member_that_one_object_searches_by_is_not_refused_for_another():
    asked = (
        "{match: POST /reset, objects: ["
        "{read: p, request: {form: {email: email, '*': {pass: true}}}, response: {restore: anywhere}}, "
        "{read: review, response: {restore: anywhere}}]}"
    )
    review = "  review: {fields: {email: {kind: email}, title: {kind: text}}}"
    one = await desk(asked, entities=(review,))
    call = await one.send("POST /reset", member_form(email=ANN["email"]), FORM)
    assert hidden(call.sent.body)
    page = f"<p>{call.form['email']}</p>".encode()
    shown = await call.answer(200, page, HTML)
    assert html.unescape(shown.body.decode()) == f"<p>{ANN['email']}</p>"
    assert one.idle


async def test_a_failure_on_the_way_leaves_nothing_staged():
    one = await office()
    call = await one.send("POST /orders", {"customer": ANN, "courier": BOB})
    await call.exchange.failed(True)
    assert one.idle
    call = await one.send("POST /orders", {"customer": ANN, "courier": BOB}, JSON)
    await call.exchange.failed(False)
    assert one.idle
    assert (await one.counts())[0] == 1, "the first is in doubt, the second was never sent"


async def test_a_message_that_changes_two_records_and_other_requests_never_wait_for_each_other():
    pair = (
        '{match: "PATCH /pairs/{pair}", objects: ['
        "{update: p, id: $.one.id, request: {object: $.one}, response: {object: $.one}}, "
        "{update: p, id: $.two.id, request: {object: $.two}, response: {object: $.two}}]}"
    )
    one = await desk(*USUAL, pair)
    # as they are locked, and not as they are written
    last, first = next(
        pair for pair in combinations(map(str, range(10, 99)), 2)
        if one.people.key_hash(pair[0]) > one.people.key_hash(pair[1])
    )  # fmt: skip
    holder = await one.send(f"PATCH /p/{first}", {"name": "x"})
    body = {"one": {"id": last, "name": "Ann"}, "two": {"id": first, "name": "Bob"}}
    waiting = asyncio.create_task(one.send("PATCH /pairs/1", body))
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        await (await one.send(f"PATCH /p/{last}", {"name": "y"})).answer(200, {"id": last})
        await holder.answer(200, {"id": first})
        await (await waiting).answer(200, {"one": {"id": last}, "two": {"id": first}})
    assert one.idle
