"""One exchange from end to end: what the application gets, what the caller gets, what the vault
does in between.
"""

import json
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.message import Response
from tests.support.exchanges import (
    FORM,
    HTML,
    JSON,
    PLAIN,
    USUAL,
    Desk,
    desk,
    member_form,
)
from tests.support.table import table

ANN: dict[str, Any] = {
    "name": "Ann Wexlomere", "email": "Ann@Wexlomere.example", "phone": "+46 70 918 27 36",
    "born": "1931-02-27", "tags": ["one", "two"],
}  # fmt: skip
LIST = ', response: {each: "$[*]", id: $.id}}'


async def usual(more: str = "") -> Desk:
    return await desk(*USUAL, more=more)


# ---------------------------------------------------------------------- the way in and back


async def test_the_application_gets_tokens_and_the_caller_people():
    one = await usual()
    call = await one.send("POST /p", {**ANN, "vip": True})
    assert not any(
        text in call.sent.body.decode()
        for text in ("Wexlomere", "+46 70 918 27", "1931-02-27", '"one"', '"two"')
    )
    assert call.json["vip"] is True
    stored = {**call.json, "id": 1}
    assert await call.seen(201, stored) == {**ANN, "vip": True, "id": 1}
    assert await one.shown(stored) == {**ANN, "vip": True, "id": 1}
    assert await one.shown([stored, {"id": 2, "name": "x"}], "GET /p") == [
        {**ANN, "vip": True, "id": 1},
        {"id": 2, "name": "x"},
    ]
    assert await one.counts() == (1, 0, 0)
    assert one.idle


async def test_the_times_of_staging_and_settling_are_noted():
    call = await (await usual()).send("POST /p", ANN)
    timing = call.exchange.timing
    assert timing.stage > 0 == timing.settle
    await call.answer(201, {**call.json, "id": 1})
    assert timing.settle > 0


@table(
    "text",
    [
        '"Ann"', "1.0", "1e5", "-0", "123456789012345678901234567890", "true", "[1.50, {}]",
        '{"a" : null}', "[]", "{}",
    ],
)  # fmt: skip
async def test_every_kind_of_json_value_comes_back_in_its_spelling(text):
    one = await usual()
    body = f'{{"name":{text}, "x":[1.0]}}'.encode()
    call = await one.send("POST /p", body)
    assert isinstance(call.json["name"], str)
    stored = call.sent.body
    answer = await call.answer(201, stored.replace(b'"x"', b'"id":1,"x"'))
    assert answer.body == body.replace(b'"x"', b'"id":1,"x"')
    assert (await (await one.send("GET /p/1")).answer(200, stored)).body == body


@table("value", [None, ""])
async def test_null_and_the_empty_text_go_on_as_they_are_where_nothing_is_kept(value):
    one = await usual()
    stored = await one.create({"name": value, "tags": [value, "a"]})
    assert (stored["name"], stored["tags"][0]) == (value, value)
    assert await one.shown(stored) == {"name": value, "tags": [value, "a"], "id": 1}


async def test_nested_arrays_and_objects_each():
    one = await desk(
        '{match: POST /p, create: p, request: {each: "$.in[*].x"}, response: {each: "$.in[*].x", '
        "id: $.id}}"
    )
    body = {
        "in": [
            {"x": {"name": "Zorbina"}},
            {"x": [[{"name": "Bo"}], {"name": "Cy"}]},
            {"y": {"name": "not named"}},
            None,
        ]
    }
    call = await one.send("POST /p", body)
    assert call.json["in"][2:] == body["in"][2:]
    assert "Zorbina" not in call.sent.body.decode()
    assert await call.seen(200, call.json) == body
    assert one.events["staged"] == 3


async def test_fields_that_stand_elsewhere_in_one_operation():
    one = await desk(
        "{match: POST /p, create: p, request: {object: $.data, fields: {email: $.meta.mail}}, "
        "response: {object: $.data, fields: {email: $.meta.mail}, id: $.id}}"
    )
    body: dict[str, Any] = {
        "data": {"name": "Ann", "email": "stays@x.example"},
        "meta": {"mail": "ann@x.example"},
    }
    call = await one.send("POST /p", body)
    assert call.json["data"]["email"] == "stays@x.example"
    assert call.json["meta"]["mail"] != "ann@x.example"
    answer = {**call.json, "data": {**call.json["data"], "id": 1}}
    assert await call.seen(201, answer) == {**body, "data": {**body["data"], "id": 1}}
    assert await one.counts() == (1, 0, 0)


async def test_a_search_finds_by_the_same_token_and_shows_the_caller_its_own_spelling():
    one = await usual()
    stored = await one.create(ANN)
    call = await one.send("GET /p?x=Ann&email=ANN%40wexlomere.EXAMPLE&email=")
    assert (
        call.sent.target == f"/p?x=Ann&email={stored['email'].replace('@', '%40')}&email=".encode()
    )
    assert await call.seen(200, [stored]) == [{**ANN, "id": 1}]
    refused = await one.send("GET /p?email=no%40wexlomere.example")
    token = refused.sent.target.partition(b"=")[2].decode().replace("%40", "@")
    assert await refused.seen(400, {"error": f"nobody is {token}"}) == {
        "error": "nobody is no@wexlomere.example"
    }


async def test_a_token_that_comes_back_in_a_search_stays_as_it_is():
    body = '{match: "POST /q", read: p, request: {fields: {email: $.email}}' + LIST
    one = await desk(*USUAL, body)
    stored = await one.create(ANN)
    # as an application builds it
    link = f"GET /p?email={stored['email'].replace('@', '%40')}&page=2"
    call = await one.send(link)
    assert f"GET {call.sent.target.decode()}" == link
    assert await call.seen(200, [stored]) == [{**ANN, "id": 1}]
    assert (await one.send("POST /q", {"email": stored["email"]})).json == {
        "email": stored["email"]
    }
    strange = await one.send(f"GET /p?email={stored['email'][::-1].replace('@', '%40')}")
    assert stored["email"][::-1].encode() not in strange.sent.target, (
        "only what the vault gave is a token"
    )


async def test_a_token_that_comes_back_while_the_vault_is_down_is_a_value_like_any_other():
    one = await usual()
    stored = await one.create(ANN)
    one.store.fail("by_tokens")
    call = await one.send(f"GET /p?email={stored['email']}")
    assert stored["email"].encode() not in call.sent.target


async def test_a_search_by_body():
    operation = (
        "{match: POST /q, read: p, request: {fields: {email: $.email}, form: {mail: email}}" + LIST
    )
    one = await desk(*USUAL, operation)
    stored = await one.create(ANN)
    call = await one.send("POST /q", {"email": ANN["email"].lower(), "name": "stays"})
    assert call.json == {"email": stored["email"], "name": "stays"}
    form = await one.send("POST /q", member_form(mail=ANN["email"], x="1"), FORM)
    assert form.form == {"mail": stored["email"], "x": "1"}
    assert await form.seen(200, [stored]) == [{**ANN, "id": 1}]


async def test_a_form_that_is_answered_in_kind():
    one = await desk(
        "{match: POST /f, create: p, request: {form: {n: name, 't*': tags}}, response: {form: "
        "{n: name, 't*': tags}, id: form id}}"
    )
    call = await one.send("POST /f", b"n=Ann+%C3%85&t1=a&t2=&x=1&t3=b%26c", FORM)
    assert set(call.form) == {"n", "t1", "t2", "x", "t3"}
    assert (call.form["t2"], call.form["x"]) == ("", "1")
    answer = await call.answer(201, call.sent.body + b"&id=7", FORM)
    assert answer.body == b"n=Ann+%C3%85&t1=a&t2=&x=1&t3=b%26c&id=7"
    assert await one.counts() == (1, 0, 0)


async def test_whitespace_escapes_and_order_stay():
    one = await usual()
    body = b'{ "u":"\\u00e5\\/" ,\n"name" :\t"Ann", "n": 1.0E+05 }\r\n'
    call = await one.send("POST /p", body)
    token = call.json["name"].encode()
    assert call.sent.body == body.replace(b"Ann", token)
    answer = await call.answer(201, call.sent.body)
    assert answer.body == body


async def test_counters_count_values_both_ways():
    one = await usual()
    stored = await one.create(ANN)
    await one.shown([stored, stored], "GET /p")
    text = one.metrics.render().decode()
    assert 'domicile_protected_values_total{entity="p",field="tags"} 2.0' in text
    assert 'domicile_restored_values_total{entity="p",field="name"} 2.0' in text


# ---------------------------------------------------------------------- ids


@table(
    ("operation", "match", "body", "headers"),
    [
        ('{match: "PATCH /q/{id}", update: p}', "PATCH /q/a%20b", {"name": "Bo"}, None),
        ("{match: PATCH /q, update: p, id: query key, response: {id: $.id}}", "PATCH /q?key=a%20b", {"name": "Bo"}, None),
        ("{match: PATCH /q, update: p, id: $.id}", "PATCH /q", {"id": "a b", "name": "Bo"}, None),
        ('{match: PATCH /q, update: p, id: $.id, request: {each: "$[*]"}' + LIST, "PATCH /q", [{"id": "a b", "name": "Bo"}], None),
        ("{match: PATCH /q, update: p, id: $.ref, request: {object: $.data}}", "PATCH /q", {"ref": "a b", "data": {"name": "Bo"}}, None),
        ('{match: PATCH /q, update: p, id: "$.refs[*]", request: {object: $.data}' + LIST, "PATCH /q", {"refs": ["a b"], "data": {"name": "Bo"}}, None),
        ("{match: PATCH /q, update: p, id: form key, request: {form: {name: name}}}", "PATCH /q", b"name=Bo&key=a+b", FORM),
    ],
)  # fmt: skip
async def test_an_update_finds_its_record(operation, match, body, headers):
    one = await desk(*USUAL, operation)
    stored = await one.create(ANN, ident="a b")  # type: ignore[arg-type]  # ids are integers or texts
    call = await one.send(match, body, headers)
    await call.answer(204)
    sent: Any = call.form if headers else call.json
    sent = sent[0] if isinstance(sent, list) else sent.get("data", sent)
    assert sent["name"] not in ("Bo", stored["name"])
    assert await one.shown({**stored, "name": sent["name"]}, "GET /p/a%20b") == {
        **ANN,
        "name": "Bo",
        "id": "a b",
    }
    assert await one.counts() == (1, 0, 0)
    assert one.idle


@table(
    ("operation", "match", "body", "headers", "answer"),
    [
        ('{match: "DELETE /q/{id}", delete: p}', "DELETE /q/1", b"", None, b""),
        ("{match: DELETE /q, delete: p, id: query id}", "DELETE /q?id=1&id=2", b"", None, b""),
        ('{match: POST /q, delete: p, id: "$.ids[*]"}', "POST /q", {"ids": [1, "2"]}, None, b""),
        ('{match: POST /q, delete: p, id: "$[*]"}', "POST /q", [1, 2], None, b""),
        ("{match: POST /q, delete: p, id: $.id}", "POST /q", {"id": 1}, None, b""),
        ("{match: POST /q, delete: p, id: $.id, request: {fields: {email: $.email}}}", "POST /q", {"id": 1}, None, b""),
        ("{match: POST /q, delete: p, id: form ids}", "POST /q", b"ids=1&x=3&ids=2", FORM, b""),
        ('{match: POST /q, delete: p, response: {id: "$.gone[*]"}}', "POST /q", {"older": 3}, None, {"gone": [1, 2]}),
        ('{match: POST /q, delete: p, response: {each: "$[*]", id: $.id}}', "POST /q", b"", None, [{"id": 1}, {"id": 2}]),
    ],
)  # fmt: skip
async def test_a_delete_takes_its_records_out_of_the_vault(operation, match, body, headers, answer):
    one = await desk(*USUAL, operation)
    await one.create(ANN, 1)
    await one.create(ANN, 2)
    several = "2" in f"{match}{body!r}{answer!r}"
    call = await one.send(match, body, headers)
    await call.answer(200 if answer else 204, answer)
    assert await one.counts() == (0 if several else 1, 0, 0)
    assert one.idle


async def test_a_deleted_record_is_shown_a_last_time():
    one = await usual()
    stored = await one.create(ANN)
    call = await one.send("DELETE /p/1")
    assert await call.seen(200, stored) == {**ANN, "id": 1}
    assert await one.counts() == (0, 0, 0)


@table("address", [b"/p/a%20b", b"https://app.example/p/a%20b?x=1", b"/p/a%20b/"])
@table("status", [201, 302])
async def test_the_id_of_a_new_record_in_an_address(address, status):
    one = await desk(
        "{match: POST /f, create: p, request: {form: {n: name}}, response: {success: [201, 302], "
        'id: "header Location /p/{id}"}}',
        '{match: "GET /p/{id}", read: p}',
    )
    call = await one.send("POST /f", b"n=Ann", FORM)
    await call.answer(status, b"", ((b"Location", address), (b"Content-Length", b"0")))
    assert await one.counts() == (1, 0, 0)
    assert await one.shown({"name": call.form["n"]}, "GET /p/a%20b") == {"name": "Ann"}


async def test_an_address_that_is_none_leaves_the_record_without_a_name():
    one = await desk(
        '{match: POST /f, create: p, request: {form: {n: name}}, response: {id: "header Location '
        '/p/{id}"}}'
    )
    call = await one.send("POST /f", b"n=Ann", FORM)
    await call.answer(302, b"", ((b"Location", b"http://[bad"),))
    assert await one.counts() == (1, 0, 0)
    assert one.events["nameless"] == 1
    assert one.idle


async def test_one_change_for_many_records():
    one = await desk(
        *USUAL, '{match: PATCH /p, update: p, id: "$.ids[*]", request: {object: $.data}' + LIST
    )
    stored = [await one.create({**ANN, "name": f"Ann {number}"}, number) for number in (1, 2, 3)]
    call = await one.send("PATCH /p", {"ids": [1, 3, 1, 4], "data": {"name": "Bo", "tags": ["x"]}})
    new = call.json["data"]
    changed = [{**stored[0], **new}, {**stored[2], **new}, {"id": 4, **new}]
    people = [
        {**ANN, "name": "Bo", "tags": ["x"], "id": 1},
        {**ANN, "name": "Bo", "tags": ["x"], "id": 3},
        {"id": 4, "name": "Bo", "tags": ["x"]},
    ]
    assert await call.seen(200, changed) == people
    assert await one.shown([changed[1], stored[1], changed[2]], "GET /p") == [
        people[1],
        {**ANN, "name": "Ann 2", "id": 2},
        people[2],
    ]
    assert await one.counts() == (4, 0, 0)


async def test_several_changes_each_with_its_id():
    one = await desk(
        *USUAL, '{match: PATCH /p, update: p, id: $.id, request: {each: "$[*]"}' + LIST
    )
    for number in (1, 2):
        await one.create(ANN, number)
    call = await one.send(
        "PATCH /p", [{"id": 2, "name": "Bo"}, {"id": 1, "name": "Cy"}, {"id": 9, "name": "Di"}]
    )
    assert await call.seen(200, list(reversed(call.json))) == [
        {"id": 9, "name": "Di"},
        {"id": 1, "name": "Cy"},
        {"id": 2, "name": "Bo"},
    ]
    assert await one.counts() == (3, 0, 0)


async def test_put_of_an_unknown_id_creates_the_record():
    one = await usual()
    call = await one.send("PATCH /p/9", {"name": "Ann"})
    assert await call.seen(200, {"id": 9, **call.json}) == {"id": 9, "name": "Ann"}
    assert await one.shown(call.json, "GET /p/9") == {"name": "Ann"}
    assert await one.counts() == (1, 0, 0)


# ---------------------------------------------------------------------- which answers are read


@table(
    ("match", "status", "headers", "wanted"),
    [
        ("GET /p/1", 200, JSON, True),
        ("HEAD /p/1", 200, JSON, True),  # as GET; there is no body, and nothing to do
        ("GET /p/1", 200, ((b"content-type", b"application/hal+json; charset=utf-8"),), True),
        ("GET /p/1", 200, FORM, True),
        ("GET /p/1", 200, HTML, False),
        ("GET /p/1", 200, PLAIN, False),
        ("GET /p/1", 200, ((b"Content-Type", b"image/png"),), False),
        ("GET /p/1", 200, (), False),
        ("GET /p/1", 200, (*JSON, (b"Content-Length", b"0")), False),
        ("GET /p/1", 200, (*JSON, (b"Content-Length", b"10")), True),
        ("GET /p/1", 204, JSON, False),
        ("GET /p/1", 304, JSON, False),
        ("GET /p/1", 103, JSON, False),
        ("GET /p/1", 302, HTML, True),
        ("GET /p/1", 404, JSON, True),
        ("GET /p/1", 404, HTML, True),
        ("GET /p/1", 500, PLAIN, True),
        ("GET /p/1", 500, FORM, True),
        ("GET /p/1", 500, ((b"Content-Type", b"application/pdf"),), False),
        ("POST /q", 200, JSON, True),  # it may tell of a refusal
        ("POST /q", 200, (*JSON, (b"Content-Length", b"65537")), False),
        ("POST /q", 200, HTML, False),
        ("POST /q", 204, JSON, False),
        ("POST /q", 400, JSON, True),
    ],
)
async def test_an_answer_is_read_whole_where_tokens_can_be_restored(match, status, headers, wanted):
    one = await desk(*USUAL, '{match: POST /q, delete: p, id: "$[*]"}')
    assert (await one.send(match, [1] if match == "POST /q" else b"")).exchange.must_buffer(
        status, headers
    ) is wanted


async def test_a_file_may_say_that_other_answers_pass():
    one = await usual(more="on_error: {upstream_not_2xx: pass}")
    stored = await one.create(ANN)
    call = await one.send("PATCH /p/1", {"name": "Bo"})
    assert not call.exchange.must_buffer(400, JSON)
    assert call.exchange.must_buffer(200, JSON)
    assert (await call.answer(400, stored)).body == json.dumps(stored).encode()
    assert one.events["dropped"] == 1


async def test_the_answer_to_head_has_no_body():
    one = await usual()
    call = await one.send("HEAD /p/1")
    answer = Response(200, JSON, b"")
    assert await call.exchange.restore_response(answer) == answer


@table(
    ("body", "headers"),
    [
        (b'{"name": "TOKEN"', JSON),
        (b'{"name": "TOKEN", "name": 1}', JSON),
        (b"[" * 80 + b'"TOKEN"' + b"]" * 80, JSON),
        (b'{"name": "TOKEN"}', ((b"Content-Type", b"application/json; charset=utf-16"),)),
        (b"name=TOKEN", FORM),
    ],
)
async def test_an_answer_that_cannot_be_read_passes_as_it_is(body, headers):
    one = await usual()
    stored = await one.create(ANN)
    raw = body.replace(b"TOKEN", stored["name"].encode())
    call = await one.send("PATCH /p/1", {"email": "bo@x.example"})
    assert (await call.answer(200, raw, headers)).body == raw
    assert one.events["unreadable_answer"] == 1
    assert await one.counts() == (1, 0, 0)  # the status settled it
    assert one.idle


@table(
    ("body", "headers"),
    [
        (b'{"name": "TOKEN", "name": 1}', JSON),
        (b'{"name": "TOKEN"}', ((b"Content-Type", b"application/json; charset=iso-8859-1"),)),
        (b'{"name": "TOKEN"}', ()),
    ],
)
async def test_an_answer_that_cannot_be_read_is_withheld_where_the_rule_says_so(body, headers):
    one = await desk(more="on_error: {unreadable_answer: 502}")
    stored = await one.create(ANN)
    raw = body.replace(b"TOKEN", stored["name"].encode())
    call = await one.send("PATCH /p/1", {"email": "bo@x.example"})
    with pytest.raises(VaultError) as caught:
        await call.answer(200, raw, headers)
    assert caught.value.code is Code.UNREADABLE_ANSWER
    assert (one.events["unreadable_answer"], one.events["settled"]) == (1, 2), (
        "what the application took is kept"
    )
    assert await one.counts() == (1, 0, 0)
    assert one.idle
    assert await one.shown({"email": call.json["email"]}) == {"email": "bo@x.example"}


@table(
    ("status", "body", "headers"),
    [(204, b"", ()), (200, b"", ()), (200, b"", JSON), (200, b"<p>saved", HTML), (200, b"\x89PNG", ((b"Content-Type", b"image/png"),)), (404, b"?", ())],
)  # fmt: skip
async def test_what_is_empty_or_of_another_kind_by_its_own_word_passes_all_the_same(
    status, body, headers
):
    one = await desk(more="on_error: {unreadable_answer: 502}")
    call = await one.send("PATCH /p/1", {"email": "bo@x.example"})
    assert (await call.answer(status, body, headers)).body == body
    assert one.idle


@table(
    "raw",
    [
        b'\xef\xbb\xbf{"id": 1, "name": "TOKEN"}',
        b'{"id": 1, "score": NaN, "name": "TOKEN", "x": [-Infinity, "NaN"]}',
        b'\xef\xbb\xbf {"name": "TOKEN", "y": Infinity}\r\n',
        b'{"name": "TOKEN", "email": NaN}',
    ],
)
async def test_an_answer_with_a_byte_order_mark_or_nan_is_restored_and_else_unchanged(raw):
    one = await usual()
    token = (await one.create(ANN))["name"].encode()
    call = await one.send("GET /p/1")
    answer = await call.answer(200, raw.replace(b"TOKEN", token), JSON)
    assert answer.body == raw.replace(b"TOKEN", ANN["name"].encode())
    assert one.events["unreadable_answer"] == 0


@table(
    "body", [b'\xef\xbb\xbf{"name": "Ann"}', b'{"name": "Ann", "x": NaN}', b'{"name": -Infinity}']
)
async def test_a_request_with_a_byte_order_mark_or_nan_stays_refused(body):
    one = await usual()
    with pytest.raises(VaultError) as caught:
        await one.send("POST /p", body, JSON)
    assert caught.value.code is Code.MALFORMED_JSON
    assert await one.counts() == (0, 0, 0)


async def test_look_alikes_in_an_answer_are_data():
    one = await usual()
    stored = await one.create(ANN)
    alike = stored["name"][:-2] + ("AA" if stored["name"][-2:] != "AA" else "BB")
    assert await one.shown({"id": 1, "name": alike, "phone": "+46 1", "born": "2000-01-01"}) == {
        "id": 1, "name": alike, "phone": "+46 1", "born": "2000-01-01",
    }  # fmt: skip


# ---------------------------------------------------------------------- the mark of an entity tag

PIN = "pin: {kind: text, token: {shape: fixed, value: hidden}}"
MARKED = ("name: {kind: name}", "email: {kind: email, token: {shape: email, same: true}}", PIN)
FIRST = {"name": "Ann", "email": "a@wexlomere.example", "pin": "1"}


async def marked(one: Desk, match: str, stored: Any, body: Any = b"") -> tuple[Any, bytes]:
    """What the caller sees of an answer with what the application has, and its mark."""
    call = await one.send(match, body)
    return await call.seen(200, stored), call.exchange.mark()


@table("shown", [("id", "name", "email", "pin"), ("id", "name", "email")])
async def test_the_mark_of_an_update_is_that_of_what_the_application_took(shown: tuple[str, ...]):
    """The address is read-only there: the answer shows the token that it had before."""
    one = await desk(*USUAL, fields=MARKED)
    stored = await one.create(FIRST)
    _, before = await marked(one, "GET /p/1", stored)
    call = await one.send("PATCH /p/1", {"email": "b@wexlomere.example", "name": "D", "pin": "2"})
    stored |= {"name": call.json["name"]}
    await call.seen(200, {name: stored[name] for name in shown})
    body, mark = await marked(one, "GET /p/1", stored)
    assert body == {"id": 1, "name": "D", "email": "a@wexlomere.example", "pin": "2"}
    assert call.exchange.mark() == mark != before


@table("status", [409, 500])
async def test_the_mark_of_an_update_that_was_not_taken_is_that_of_what_was_there(status: int):
    one = await desk(*USUAL, fields=MARKED)
    stored = await one.create(FIRST)
    _, before = await marked(one, "GET /p/1", stored)
    call = await one.send("PATCH /p/1", {"pin": "2"})
    await call.answer(status, stored)
    assert call.exchange.mark() == before


@table("match", ["GET /p/1", "GET /p"])
async def test_the_mark_of_the_answer_that_decides_a_doubt_is_that_of_what_it_shows(match: str):
    one = await desk(*USUAL, fields=MARKED)
    stored = await one.create(FIRST)
    _, before = await marked(one, "GET /p/1", stored)
    call = await one.send("PATCH /p/1", {"pin": "2", "name": "B"})
    await call.exchange.failed(True)
    stored |= call.json
    first, again = [
        await marked(one, match, stored if match != "GET /p" else [stored]) for _ in range(2)
    ]
    assert first == again
    assert first[1] != before


async def test_the_mark_of_the_answer_that_joins_two_records_is_that_of_the_one_they_are():
    """The answer to the create got lost, and an update named the record before any other did."""
    one = await desk(*USUAL, fields=MARKED)
    lost = await one.send("POST /p", FIRST)
    await lost.exchange.failed(True)
    call = await one.send("PATCH /p/1", {"pin": "2"})
    await call.answer(200, {"id": 1})
    stored = {**lost.json, **call.json, "id": 1}
    first, again = [await marked(one, "GET /p/1", stored) for _ in range(2)]
    assert first == again
    assert first[0] == {**FIRST, "id": 1, "pin": "2"}


async def test_a_value_elsewhere_is_refused_reported_or_passed():
    twice = {"name": "Zorbina", "note": "for Zorbina"}
    for word, events in (("block", 0), ("report", 1), ("off", 0)):
        one = await desk(more=f"on_error: {{guard: {word}}}")
        if word == "block":
            with pytest.raises(VaultError) as caught:
                await one.send("POST /p", twice)
            assert caught.value.code is Code.VALUE_ELSEWHERE
        else:
            assert (await one.send("POST /p", twice)).json["note"] == "for Zorbina"
        assert one.events["elsewhere"] == events
        assert word != "block" or one.idle
