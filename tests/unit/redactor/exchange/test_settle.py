import json
from itertools import permutations
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.message import RawHeaders
from proxy.vault.expiry import reap
from tests.support.exchanges import FORM, JSON, USUAL, Desk, desk, member_form
from tests.support.table import table

ANN = {
    "name": "Ann Wexlomere", "email": "Ann@Wexlomere.example", "phone": "+46 70 918 27 36",
    "born": "1931-02-27", "tags": ["one", "two"],
}  # fmt: skip
LIST = ', response: {each: "$[*]", id: $.id}}'

OUTCOMES: list[tuple[int, dict[str, str]]] = [
    # status -> what becomes of a create, an update, a delete
    (200, {"POST": "settled", "PATCH": "settled", "DELETE": "deleted"}),
    (201, {"POST": "settled", "PATCH": "settled", "DELETE": "deleted"}),
    # a 2xx that is not in `success`
    (202, {"POST": "dropped", "PATCH": "dropped", "DELETE": "dropped"}),
    (301, {"POST": "in_doubt", "PATCH": "in_doubt", "DELETE": "in_doubt"}),
    (304, {"POST": "in_doubt", "PATCH": "in_doubt", "DELETE": "in_doubt"}),
    (400, {"POST": "dropped", "PATCH": "dropped", "DELETE": "dropped"}),
    (404, {"POST": "dropped", "PATCH": "dropped", "DELETE": "dropped"}),
    (422, {"POST": "dropped", "PATCH": "dropped", "DELETE": "dropped"}),
    (500, {"POST": "in_doubt", "PATCH": "in_doubt", "DELETE": "in_doubt"}),
    (503, {"POST": "in_doubt", "PATCH": "in_doubt", "DELETE": "in_doubt"}),
]
STATES = {
    # (records, pending, staged), with one record before
    ("POST", "settled"): (2, 0, 0), ("POST", "nameless"): (2, 0, 0), ("POST", "dropped"): (1, 0, 0), ("POST", "in_doubt"): (2, 1, 0),
    ("PATCH", "settled"): (1, 0, 0), ("PATCH", "dropped"): (1, 0, 0), ("PATCH", "in_doubt"): (1, 0, 1),
    ("DELETE", "deleted"): (0, 0, 0), ("DELETE", "dropped"): (1, 0, 0), ("DELETE", "in_doubt"): (1, 0, 1),
}  # fmt: skip


async def settled_desk() -> tuple[Desk, dict[str, Any]]:
    one = await desk(
        "{match: POST /p, create: p, response: {success: [200, 201]}}",
        '{match: "GET /p/{id}", read: p}',
        '{match: "PATCH /p/{id}", update: p, response: {success: [200, 201]}}',
        '{match: "DELETE /p/{id}", delete: p, response: {success: [200, 201]}}',
    )
    stored = await one.create(ANN)
    one.events.clear()
    return one, stored


@table("way", ["whole", "passed on"])
@table("verb", ["POST", "PATCH", "DELETE"])
@table(("status", "outcomes"), OUTCOMES)
async def test_the_answer_settles(status, outcomes, verb, way):
    one, stored = await settled_desk()
    call = await one.send(
        "POST /p" if verb == "POST" else f"{verb} /p/1", b"" if verb == "DELETE" else {"name": "Bo"}
    )
    assert one.events["staged"] == 1
    answer = {"id": 2 if verb == "POST" else 1}
    await call.answer(
        status, answer, JSON if way == "whole" else ((b"Content-Type", b"image/png"),)
    )
    outcome = outcomes[verb]
    if (verb, outcome, way) == ("POST", "settled", "passed on"):
        # no id in the answer: kept for good, bound when the application shows it
        outcome = "nameless"
    assert one.events[outcome] == 1
    assert await one.counts() == STATES[verb, outcome]
    assert one.idle
    if verb != "DELETE" and outcome != "dropped" and way == "whole":
        assert await one.shown({"name": call.json["name"]}) == {"name": "Bo"}
    elif outcome != "deleted" and (verb, outcome) != ("PATCH", "settled"):
        assert await one.shown({"name": stored["name"]}) == {"name": ANN["name"]}


@table("sent", [True, False])
@table("verb", ["POST", "PATCH", "DELETE", "GET"])
async def test_without_an_answer_it_counts_whether_anything_was_sent(verb, sent):
    one, _ = await settled_desk()
    call = await one.send(
        "POST /p" if verb == "POST" else f"{verb} /p/1",
        {"name": "Bo"} if verb in ("POST", "PATCH") else b"",
    )
    await call.exchange.failed(sent)
    if verb == "GET":
        assert one.events == {}
    else:
        assert one.events["in_doubt" if sent else "dropped"] == 1
        assert await one.counts() == STATES[verb, "in_doubt" if sent else "dropped"]
    assert one.idle


async def test_a_delete_in_doubt_is_over_when_the_record_is_not_found():
    one, _ = await settled_desk()
    await (await one.send("DELETE /p/1")).exchange.failed(True)
    one.clock.advance(1)
    await (await one.send("GET /p/1")).answer(404, {"error": "no"})
    assert await one.counts() == (0, 0, 0)
    assert one.events["reconciled"] == 1


# ---------------------------------------------------------------------- success on a condition

HTML = ((b"Content-Type", b"text/html; charset=utf-8"),)
SAVED = '{status: 302, location: ["/p/{id}/edit", /p]}'
CLOSING = '{status: 200, text: "<script id=closing"}'


async def form_desk() -> tuple[Desk, dict[str, Any]]:
    """A site of forms: saved by a redirect to the record or the list, or by a page that closes a
    pop-up.
    """
    answer = f"success: [{SAVED}, {CLOSING}]"
    one = await desk(
        (
            '{match: POST /p/new, create: p, request: {form: {name: name}}, response: {id: "header '
            'Location /p/{id}/edit", '
        )
        + answer
        + "}}",
        '{match: "POST /p/{id}/edit", update: p, request: {form: {name: name}}, '
        f"response: {{{answer}}}}}",
        f'{{match: "POST /p/{{id}}/delete", delete: p, response: {{{answer}}}}}',
        '{match: "GET /p/{id}", read: p, response: {restore: anywhere}}',
    )
    call = await one.send("POST /p/new", b"name=Ann", FORM)
    await call.answer(302, b"", ((b"Location", b"/p/1/edit"),))
    assert await one.counts() == (1, 0, 0)
    one.events.clear()
    return one, call.form


@table("form", ["new", "1/edit", "1/delete"])
@table(
    ("location", "taken"),
    [("/p", True), ("/p/2/edit", True), ("https://app.example/p/2/edit?saved=1", True), ("/login?next=/p", False), ("/", False)],
)  # fmt: skip
async def test_a_redirect_counts_only_where_it_leads_as_the_rule_says(form, location, taken):
    one, stored = await form_desk()
    call = await one.send(f"POST /p/{form}", b"" if "delete" in form else b"name=Bo", FORM)
    await call.answer(302, b"", ((b"Location", location.encode()),))
    assert one.events["in_doubt"] == (0 if taken and "delete" not in form else 1)
    if taken:
        assert (await one.counts())[1:] == (0, 0 if form == "new" else 1)
    else:
        assert await one.shown(stored) == {"name": "Ann"}, (
            "what the application may not have done is not done here"
        )
    assert one.idle


@table("form", ["new", "1/edit", "1/delete"])
async def test_a_page_counts_only_when_it_holds_what_the_rule_says(form):
    one, stored = await form_desk()
    body = b"" if "delete" in form else b"name=Bo"
    again = await one.send(f"POST /p/{form}", body, FORM)
    await again.answer(200, b"<form>try again &lt;script id=closing</form>", HTML)
    assert one.events["dropped"] == 1
    assert await one.counts() == (1, 0, 0)
    assert await one.shown(stored) == {"name": "Ann"}
    closing = await one.send(f"POST /p/{form}", body, FORM)
    await closing.answer(200, b'<script id=closing data="1"></script>', HTML)
    assert (
        await one.counts() == {"new": (2, 0, 0), "1/edit": (1, 0, 0), "1/delete": (0, 0, 0)}[form]
    )
    if form != "1/delete":
        assert await one.shown(closing.form) == {"name": "Bo"}
    assert one.idle


async def test_a_page_that_was_not_read_leaves_the_request_in_doubt():
    one, _ = await form_desk()
    call = await one.send("POST /p/1/edit", b"name=Bo", FORM)
    assert call.exchange.must_buffer(200, HTML)
    await call.exchange.settled(200, HTML)  # over a limit, or in a coding that cannot be undone
    assert one.events["in_doubt"] == 1
    assert await one.shown(call.form) == {"name": "Bo"}
    assert one.idle


# ---------------------------------------------------------------------- which record is which


@table("order", list(permutations(range(3))))
async def test_many_new_records_answered_in_any_order(order):
    one = await desk(*USUAL, '{match: POST /bulk, create: p, request: {each: "$[*]"}' + LIST)
    people = [
        {
            "name": f"Ann {number}",
            "email": "Same@x.example" if number else "same@x.example",
            "born": f"190{number}-01-01",
        }
        for number in range(3)
    ]
    call = await one.send("POST /bulk", people)
    stored = [{**call.json[index], "id": 10 + index} for index in order]
    assert await call.seen(201, stored) == [{**people[index], "id": 10 + index} for index in order]
    for index in range(3):
        assert await one.shown(call.json[index], f"GET /p/{10 + index}") == people[index]
    assert await one.counts() == (3, 0, 0)


@table(
    ("answer", "bound"),
    [
        ([{"id": 7}, {"id": 8}, {"id": 9}], 3),  # by their order
        ([{"id": 7}, {"id": 8}], 0),
        ([], 0),
        ([{}, {}, {}], 0),
        ({"ok": True}, 0),
    ],
)
async def test_many_new_records_whose_answer_shows_no_tokens(answer, bound):
    one = await desk('{match: POST /bulk, create: p, request: {each: "$[*]"}' + LIST)
    call = await one.send("POST /bulk", [{"name": name} for name in ("a", "b", "c")])
    await call.answer(201, answer)
    assert await one.counts() == (3, 0, 0), "what the application took is never reaped"
    assert one.events["settled"] == bound
    assert one.events["nameless"] == 3 - bound
    assert one.idle


async def test_of_many_new_records_those_are_bound_that_the_answer_shows():
    one = await desk(*USUAL, '{match: POST /bulk, create: p, request: {each: "$[*]"}' + LIST)
    call = await one.send("POST /bulk", [{"name": name} for name in ("a", "b", "c")])
    assert await call.seen(201, [{"id": 3, **call.json[2]}, {"id": 1, **call.json[0]}]) == [
        {"id": 3, "name": "c"},
        {"id": 1, "name": "a"},
    ]
    assert (one.events["settled"], one.events["nameless"]) == (2, 1)
    assert await one.shown(call.json[1], "GET /p/2") == {"name": "b"}
    assert one.events["reconciled"] == 1


IMPORT = (
    '{match: POST /import, create: p, request: {each: "$[*]", csv: {Name: name}}, '
    'response: {each: "$.made[*]", id: $.id, complete: true}}'
)


async def imported(body: Any, headers: RawHeaders | None = None) -> tuple[Desk, list[str]]:
    """Three records that are sent, a, b and c, and the tokens of their names."""
    one = await desk(*USUAL, IMPORT)
    call = await one.send("POST /import", body, headers)
    sent = call.sent.body.decode()
    rows = [row["name"] for row in call.json] if headers is None else sent.split("\r\n")[1:4]
    made = [{"id": 7, "name": rows[0]}, {"id": 9, "name": rows[2]}]
    await call.answer(207, {"made": made, "errors": [{"row": 2}]})
    assert one.idle
    return one, rows


@table("kind", ["JSON", "CSV"])
async def test_records_that_an_import_rejects_end_after_a_while(kind):
    if kind == "JSON":
        one, rows = await imported([{"name": name} for name in ("a", "b", "c")])
    else:
        table = b"Name\r\na\r\nb\r\nc\r\n"
        one, rows = await imported(table, ((b"Content-Type", b"text/csv"),))
    assert await one.counts() == (3, 1, 0)
    assert one.events["nameless"] == 0
    one.clock.advance(8 * 86_400_000)
    await reap(one.people, 7 * 86_400_000)
    assert await one.counts() == (2, 0, 0)
    for key, token, name in ((7, rows[0], "a"), (9, rows[2], "c")):
        assert await one.shown({"id": key, "name": token}) == {"id": key, "name": name}


async def test_but_not_where_an_answer_shows_one_of_them_after_all():
    one, rows = await imported([{"name": name} for name in ("a", "b", "c")])
    assert await one.shown({"id": 8, "name": rows[1]}) == {"id": 8, "name": "b"}
    one.clock.advance(8 * 86_400_000)
    await reap(one.people, 7 * 86_400_000)
    assert await one.counts() == (3, 0, 0)


@table(
    "answer",
    [
        {"made": []}, {"job": 5}, {"made": [{"id": 7}, {"id": 9}]}, "done",
        {"made": [{"id": 7, "name": "{a}"}, {"id": 9}]}, {"made": [{"id": 7, "name": "{a}"}, {"name": "{b}"}]},
    ],
)  # fmt: skip
async def test_and_nothing_ends_where_it_is_not_certain_which_were_created(answer):
    one = await desk(*USUAL, IMPORT)
    call = await one.send("POST /import", [{"name": name} for name in ("a", "b", "c")])
    text = answer if isinstance(answer, str) else json.dumps(answer)
    text = text.replace("{a}", call.json[0]["name"]).replace("{b}", call.json[1]["name"])
    await call.answer(200, text.encode())
    one.clock.advance(8 * 86_400_000)
    await reap(one.people, 7 * 86_400_000)
    assert (await one.counts())[:2] == (3, 0)


async def test_the_order_counts_only_where_no_token_contradicts_it():
    one = await desk(*USUAL, '{match: POST /bulk, create: p, request: {each: "$[*]"}' + LIST)
    call = await one.send("POST /bulk", [{"name": name} for name in ("a", "b", "c")])
    # Only one object shows a token, and that one stands in another place than it was sent.
    await call.answer(201, [{"id": 1}, {"id": 2}, {"id": 3, **call.json[0]}])
    assert (one.events["settled"], one.events["nameless"]) == (1, 2)
    assert await one.shown(call.json[0], "GET /p/3") == {"name": "a"}


async def test_a_delete_that_overtakes_the_answer_to_its_create_leaves_nothing_behind():
    one = await desk()
    create = await one.send("POST /p", ANN)
    await (await one.send("DELETE /p/1")).answer(204)  # somebody saw the record in a list already
    await create.answer(201, {"id": 1})
    assert await one.counts() == (1, 1, 0), (
        "it may be another record under the name of the first: nothing is lost yet"
    )
    one.clock.advance(8 * 86_400_000)
    await one.vault.maintain()
    assert await one.counts() == (0, 0, 0)
    assert one.idle
    assert not one.people.state.gone


async def test_a_new_record_under_the_name_of_one_that_was_deleted_meanwhile_is_bound_when_it_is_shown():
    one = await desk()
    create = await one.send("POST /p", ANN)
    await (await one.send("DELETE /p/1")).answer(204)
    await create.answer(201, {"id": 1})
    assert await one.shown({**create.json, "id": 1}) == {**ANN, "id": 1}
    assert await one.counts() == (1, 0, 0)


async def test_what_was_deleted_before_or_refused_does_not_touch_a_create():
    one = await desk()
    other = await one.send("POST /p", ANN)
    await (await one.send("DELETE /p/1")).answer(204)
    await (await one.send("DELETE /p/2")).answer(404)
    create = await one.send("POST /p", ANN)
    await create.answer(201, {"id": 1})
    await other.answer(201, {"id": 2})
    assert (await one.counts())[:2] == (2, 0)


async def test_a_create_in_doubt_that_a_page_shows_is_kept_for_good():
    one, _ = await form_desk()
    create = await one.send("POST /p/new", b"name=Zoe", FORM)
    await create.answer(500, f"<p>cannot show {create.form['name']}".encode(), HTML)
    assert await one.counts() == (2, 1, 0)
    one.clock.advance(1)
    page = f"<td>{create.form['name']}</td>".encode()
    for _ in range(2):
        answer = await (await one.send("GET /p/7")).answer(200, page, HTML)
        assert answer.body == b"<td>Zoe</td>"
        one.clock.advance(8 * 86_400_000)
        await one.vault.maintain()
    assert await one.counts() == (2, 0, 0)


async def test_small_tokens_of_a_new_record_under_an_old_name_are_not_taken_for_those_of_the_old():
    hidden = (
        "name: {kind: name}",
        "born: {kind: date, token: {shape: fixed, value: '1900-01-01'}}",
    )
    one = await desk(
        "{match: POST /p, create: p}", '{match: "GET /p/{id}", read: p}', fields=hidden
    )
    await one.create({"name": "Old", "born": "1901-01-01"})
    lost = await one.send("POST /p", {"name": "New", "born": "1999-09-09"})
    await lost.exchange.failed(True)
    one.clock.advance(1)
    for _ in range(2):
        assert await one.shown({**lost.json, "id": 1}) == {
            "name": "New",
            "born": "1999-09-09",
            "id": 1,
        }
        one.clock.advance(1)


async def test_a_uuid_is_the_same_in_letters_of_either_case():
    ident = "0192f3a4-7b6c-7d8e-9fa0-b1c2d3e4f506"
    one = await desk(
        *USUAL, '{match: POST /f, create: p, response: {id: "header Location /p/{id}"}}'
    )
    create = await one.send("POST /f", ANN)
    await create.answer(201, {"ok": True}, (*JSON, (b"Location", b"/p/" + ident.upper().encode())))
    change = await one.send(f"PATCH /p/{ident.upper()}", {"born": "1932-01-01"})
    await change.answer(204)
    stored = {**create.json, **change.json, "id": ident}
    assert await one.counts() == (1, 0, 0)
    assert await one.shown([stored], "GET /p") == [{**ANN, "born": "1932-01-01", "id": ident}]
    await (await one.send(f"DELETE /p/{ident.title()}")).answer(204)
    assert await one.counts() == (0, 0, 0)


@table("list_first", [False, True])
async def test_a_record_that_was_changed_before_its_lost_create_was_shown_keeps_every_value(
    list_first,
):
    one = await desk()
    create = await one.send("POST /p", ANN)
    await create.exchange.failed(True)
    one.clock.advance(1)
    change = await one.send("PATCH /p/1", {"name": "Bo", "phone": "+46 70 111 11 11"})
    stored = {**create.json, **change.json, "id": 1}
    await change.answer(200, {"ok": True})
    one.clock.advance(1)
    wanted = {**ANN, "name": "Bo", "phone": "+46 70 111 11 11", "id": 1}
    if list_first:  # of a list that shows a part of it
        assert await one.shown(
            [{"id": 1, "email": stored["email"], "tags": stored["tags"]}], "GET /p"
        ) == [{"id": 1, "email": wanted["email"], "tags": wanted["tags"]}]
        one.clock.advance(1)
    assert await one.shown(stored) == wanted
    assert await one.counts() == (1, 0, 0)
    one.clock.advance(8 * 86_400_000)
    await one.vault.maintain()
    assert await one.shown(stored) == wanted
    await (await one.send("DELETE /p/1")).answer(204)
    assert await one.counts() == (0, 0, 0)


async def test_a_field_that_the_application_did_not_take_keeps_its_value():
    one = await desk()
    stored = await one.create(ANN)
    call = await one.send("PATCH /p/1", {"name": "Bo", "email": "bo@x.example"})
    kept = {**stored, "name": call.json["name"]}
    assert await call.seen(200, kept) == {**ANN, "name": "Bo", "id": 1}
    assert await one.shown(kept) == {**ANN, "name": "Bo", "id": 1}


# ---------------------------------------------------------------------- one token for the old and the new value

ALIKE = (
    "name: {kind: name}", "email: {kind: email, token: {shape: email, same: true}, find: [exact]}",
    "phone: {kind: phone, token: {shape: numeric, same: true}}",
    "born: {kind: date, token: {shape: fixed, value: '1900-01-01'}}",
    "hint: {kind: text, token: {shape: mask, first: 1}}", "mark: {kind: number, token: zero}",
    "rank: {kind: number, token: one}", "note: {kind: text, token: {shape: opaque, same: true}}",
)  # fmt: skip
BEFORE: dict[str, Any] = {
    "name": "Ann", "email": "carol@x.example", "phone": "0701234567", "born": "1987-04-12",
    "hint": "ann", "mark": 3, "rank": 7, "note": "x ",
}  # fmt: skip
AFTER: dict[str, Any] = {
    "email": "Carol@x.example", "phone": "+46701234567", "born": "1990-05-05",
    "hint": "axl", "mark": 5, "rank": 2, "note": "x",
}  # fmt: skip


@table("echo", [True, False])
@table("field", AFTER)
async def test_an_update_that_is_given_the_token_of_the_value_before_is_kept(field, echo):
    one = await desk(fields=ALIKE)
    stored = await one.create(BEFORE)
    call = await one.send("PATCH /p/1", {field: AFTER[field]})
    assert call.json[field] == stored[field], "else this shows nothing"
    wanted = {**BEFORE, field: AFTER[field], "id": 1}
    if echo:
        assert await call.seen(200, stored) == wanted
    else:
        await call.answer(204)
    assert await one.shown(stored) == wanted
    assert await one.shown([stored], "GET /p") == [wanted]
    (row,) = (await one.people.by_key(["1"])).values()
    assert str(AFTER[field]) == one.people.sealer.open(row).values[field][0].text


async def test_a_form_that_is_given_the_token_of_the_value_before_is_kept():
    form = (
        "{match: 'POST /p/{id}', update: p, id: path id, request: {form: {born: born, email: "
        "email}}, response: {success: [303]}}"
    )
    one = await desk(*USUAL, form, fields=ALIKE)
    stored = await one.create(BEFORE)
    call = await one.send(
        "POST /p/1", member_form(born="1990-05-05", email="Carol@x.example"), FORM
    )
    await call.answer(303)
    assert await one.shown(stored) == {
        **BEFORE,
        "born": "1990-05-05",
        "email": "Carol@x.example",
        "id": 1,
    }


async def test_it_is_dropped_where_the_application_refuses_it():
    one = await desk(fields=ALIKE)
    stored = await one.create(BEFORE)
    await (await one.send("PATCH /p/1", AFTER)).answer(422)
    assert await one.shown(stored) == {**BEFORE, "id": 1}
    assert await one.counts() == (1, 0, 0)


async def test_an_update_of_many_records_keeps_the_new_value_in_each():
    many = '{match: PATCH /p, update: p, id: "$.keys[*]", request: {object: $.data}' + LIST
    one = await desk(*USUAL, many, fields=ALIKE)
    stored = [
        await one.create({**BEFORE, "name": f"n{ident}", "mark": ident}, ident) for ident in (1, 2)
    ]
    call = await one.send("PATCH /p", {"keys": [1, 2], "data": {"born": "1990-05-05"}})
    await call.answer(204)
    seen = await one.shown(stored, "GET /p")
    assert [(item["born"], item["mark"]) for item in seen] == [("1990-05-05", 1), ("1990-05-05", 2)]


async def test_a_constant_token_that_comes_back_for_many_records_leaves_each_its_own_value():
    many = '{match: PATCH /p, update: p, id: "$.keys[*]", request: {object: $.data}' + LIST
    one = await desk(*USUAL, many, fields=ALIKE)
    stored = [
        await one.create({"name": "n", "born": f"198{ident}-01-01"}, ident) for ident in (1, 2)
    ]
    await (await one.send("PATCH /p", {"keys": [1, 2], "data": {"born": "1900-01-01"}})).answer(204)
    assert [item["born"] for item in await one.shown(stored, "GET /p")] == [
        "1981-01-01",
        "1982-01-01",
    ]


@table("field", ["mark", "rank"])
async def test_a_number_that_is_its_own_token_is_refused_rather_than_taken_for_the_value_before(
    field,
):
    one = await desk(fields=ALIKE)
    stored = await one.create(BEFORE)
    with pytest.raises(VaultError) as caught:
        await one.send("PATCH /p/1", {field: 0 if field == "mark" else 1})
    assert caught.value.code is Code.VALUE_UNFIT
    assert one.idle
    assert await one.shown(stored) == {**BEFORE, "id": 1}


@table("answered", [True, False])
async def test_in_doubt_both_values_stay_and_the_one_before_is_shown(answered):
    one = await desk(fields=ALIKE)
    stored = await one.create(BEFORE)
    call = await one.send("PATCH /p/1", {"born": "1990-05-05"})
    await (call.answer(500) if answered else call.exchange.failed(True))
    one.clock.advance(1)
    assert await one.shown(stored) == {**BEFORE, "id": 1}
    assert await one.counts() == (1, 0, 1), "both are kept"
    one.clock.advance(1)
    await (await one.send("PATCH /p/1", {"born": "1995-01-01"})).answer(204)
    assert await one.shown(stored) == {**BEFORE, "born": "1995-01-01", "id": 1}
    assert await one.counts() == (1, 0, 0), "what was acknowledged since decides it"


async def test_in_doubt_the_other_fields_of_the_request_decide():
    for taken in (True, False):
        one = await desk(fields=ALIKE)
        stored = await one.create(BEFORE)
        call = await one.send(
            "PATCH /p/1", {"name": "Bo", "born": "1990-05-05", "email": "Carol@x.example"}
        )
        await call.answer(500)
        one.clock.advance(1)
        kept = {**stored, **call.json} if taken else stored
        wanted = {**BEFORE, "id": 1}
        if taken:
            wanted |= {"name": "Bo", "born": "1990-05-05", "email": "Carol@x.example"}
        assert await one.shown(kept) == wanted, "at the first look"
        one.clock.advance(1)
        assert await one.shown(kept) == wanted
        assert await one.counts() == (1, 0, 0)


async def test_what_was_acknowledged_later_is_not_undone_by_a_doubtful_update_that_turns_out_to_be_taken():
    for later in ("1995-01-01", BEFORE["born"]):
        one = await desk(fields=ALIKE)
        stored = await one.create(BEFORE)
        call = await one.send("PATCH /p/1", {"name": "Bo", "born": "1990-05-05"})
        await call.answer(500)
        one.clock.advance(1)
        await (await one.send("PATCH /p/1", {"born": later})).answer(204)
        for _ in range(2):
            one.clock.advance(1)
            seen = await one.shown({**stored, **call.json})
            assert seen == {**BEFORE, "name": "Bo", "born": later, "id": 1}


async def test_an_answer_asked_for_before_a_change_shows_one_version_of_the_record():
    one = await desk(fields=ALIKE)
    stored = await one.create(BEFORE)
    slow = await one.send("GET /p")
    one.clock.advance(1)
    await (await one.send("PATCH /p/1", {"name": "Bo", "born": "1990-05-05"})).answer(204)
    assert await slow.seen(200, [stored]) == [{**BEFORE, "id": 1}]


async def test_an_answer_while_a_change_is_under_way_shows_one_version_of_the_record():
    one = await desk(fields=ALIKE)
    stored = await one.create(BEFORE)
    change = await one.send("PATCH /p/1", {"name": "Bo", "born": "1990-05-05"})
    assert await one.shown({**stored, **change.json}) == {
        **BEFORE,
        "name": "Bo",
        "born": "1990-05-05",
        "id": 1,
    }
    assert await one.shown(stored) == {**BEFORE, "id": 1}
    await change.answer(204)
