"""Exchanges of callers who do not see every value."""

import json
from html import unescape
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.exchange.event_stream import MessageExchange
from proxy.redactor.exchange.mixins import ViewedExchange
from proxy.redactor.exchange.rule_exchange import RuleExchange
from proxy.redactor.message import RawHeaders, Response
from proxy.redactor.rules import Verb
from proxy.redactor.views import OUTSIDE_VIEW, UNKNOWN_VIEW
from tests.support.exchanges import FORM, HTML, JSON, PLAIN, USUAL, Call, Desk, desk, member_form
from tests.support.table import table

ANN: dict[str, Any] = {
    "name": "Ann Wexlomere", "email": "Ann@Wexlomere.example", "phone": "+46 70 918 27 36",
    "born": "1931-02-27", "tags": ["one", "two"],
}  # fmt: skip
MASKED: dict[str, Any] = {
    "name": "A** *********", "email": "A**@Wexlomere.example", "phone": "+** ** *** ** 36",
    "born": "1931-**-**", "tags": ["***", "***"],
}  # fmt: skip
EVENTS = "{match: GET /events, read: p, response: {each: $, id: $.id, stream: ndjson}}"
VIEWS = (
    "views: [{who: [dpo], p: clear}, {who: [sales], p: clear, except: {phone: mask, born: token}}, "
    "{who: [support], p: mask}, {who: [robot], p: token}]"
)


async def office(*operations: str) -> Desk:
    return await desk(*(operations or USUAL), more=VIEWS)


async def seen(one: Desk, role: str, stored: Any, match: str = "GET /p/1") -> Any:
    return await (await one.send(match, view=one.view(role))).seen(200, stored)


async def refused(one: Desk, role: str | None, match: str, body: Any = b"") -> VaultError:
    with pytest.raises(VaultError) as caught:
        await one.send(match, body, view=one.view(role) if role else OUTSIDE_VIEW)
    return caught.value


# ---------------------------------------------------------------------- what is shown


async def test_each_view_shows_what_it_says():
    one = await office()
    stored = await one.create({**ANN, "vip": True})
    rest = {"vip": True, "id": 1}
    assert await seen(one, "dpo", stored) == {**ANN, **rest}
    assert await seen(one, "support", stored) == {**MASKED, **rest}
    sales = {**ANN, "phone": MASKED["phone"], "born": stored["born"], **rest}
    assert await seen(one, "sales", stored) == sales
    assert await seen(one, "robot", stored) == stored
    assert await seen(one, "a stranger", stored) == stored


async def test_lists_are_shown_alike():
    one = await office()
    stored = [await one.create(ANN, ident) for ident in range(1, 60)]
    shown = await seen(one, "support", stored, "GET /p")
    assert shown == [{**MASKED, "id": ident} for ident in range(1, 60)]
    assert await seen(one, "robot", stored, "GET /p") == stored


async def test_all_but_the_masks_stays_byte_for_byte():
    one = await office()
    stored = await one.create({"name": "Ann"})
    body = f'{{ "a": 1.50,"name" : "{stored["name"]}",\n"é":"\\u00e9" }}'.encode()
    answer = await (await one.send("GET /p/1", view=one.view("support"))).answer(200, body)
    assert answer.body == body.replace(stored["name"].encode(), b"A**")


async def test_the_answer_to_a_write_shows_its_own_values_as_the_view_does():
    one = await office()
    for role, shown in (("support", MASKED), ("dpo", ANN)):
        call = await one.send("POST /p", ANN, view=one.view(role))
        assert await call.seen(201, {**call.json, "id": 1}) == {**shown, "id": 1}
    ann = {name: value for name, value in ANN.items() if name != "email"}
    call = await one.send("POST /p", ann, view=one.view("robot"))
    assert await call.seen(201, {**call.json, "id": 2}) == {**call.json, "id": 2}
    assert await one.shown({**call.json, "id": 2}, "GET /p/2") == {**ann, "id": 2}


async def test_what_the_application_had_before_is_masked_as_well():
    one = await office()
    old = {"id": 9, "name": "Bo Oldman", "phone": 12345, "email": None, "tags": []}
    assert await seen(one, "support", old, "GET /p/9") == {
        **old, "name": "B* ******", "phone": "***45",
    }  # fmt: skip


@table("role", ["robot", "a stranger", None])
async def test_what_the_application_had_before_is_not_shown_to_who_sees_tokens(role):
    one = await office(*USUAL, EVENTS)
    view, stored = one.view(role) if role else OUTSIDE_VIEW, await one.create(ANN)
    old = {"id": 9, "name": "Bo Oldman", "born": "1950-01-02", "phone": 12345, "tags": ["x", "y"]}
    hidden = {**dict.fromkeys(old), "id": 9, "tags": [None, None]}
    mixed = {**stored, "phone": 12345, "born": "1950-01-02"}  # adopted in part
    shown = await (await one.send("GET /p", view=view)).seen(200, [stored, old, mixed])
    assert shown == [stored, hidden, {**mixed, "phone": None, "born": None}]
    call = await one.send("GET /events", view=view)
    assert json.loads(await pieces(call, NDJSON, json.dumps(old).encode())) == hidden


async def test_nobody_empties_what_is_not_shown_of_a_record_that_the_vault_does_not_have():
    one, empty = await office(), {"name": None}
    await one.create(ANN)
    assert (await refused(one, "robot", "PATCH /p/9", empty)).code is Code.VALUE_UNFIT
    for match, role in (("PATCH /p/1", "robot"), ("PATCH /p/8", "support")):
        assert (await one.send(match, empty, view=one.view(role))).json == empty


async def test_a_clear_view_is_an_ordinary_exchange():
    one = await office()
    await one.create(ANN)
    assert type((await one.send("GET /p/1", view=one.view("dpo"))).exchange) is RuleExchange
    assert type((await one.send("GET /p/1", view=one.view("sales"))).exchange) is ViewedExchange
    assert type((await one.send("GET /p/1")).exchange) is RuleExchange


# ---------------------------------------------------------------------- pages and errors


PAGE = '{match: "GET /page/{id}", read: p, id: path id, response: {restore: anywhere}}'


async def test_pages_show_masks_and_tokens():
    one = await office(*USUAL, PAGE)
    stored = await one.create(ANN)
    page = f"<p>{stored['name']}, {stored['email']}, {stored['tags'][0]}</p>".encode()

    async def shown(role: str) -> str:
        call = await one.send("GET /page/1", view=one.view(role))
        return unescape((await call.answer(200, page, HTML)).body.decode())

    assert await shown("dpo") == "<p>Ann Wexlomere, Ann@Wexlomere.example, one</p>"
    assert await shown("support") == "<p>A** *********, A**@Wexlomere.example, ***</p>"
    assert await shown("robot") == page.decode()


async def test_errors_show_what_was_sent_and_stored_as_the_view_does():
    one = await office()
    stored = await one.create(ANN)

    async def shown(role: str) -> str:
        call = await one.send("PATCH /p/1", {"name": "Bo Berg"}, view=one.view(role))
        text = f"{call.json['name']} is no {stored['email']}"
        answer = await call.answer(422, text.encode(), PLAIN)
        return answer.body.decode().replace(stored["email"], "T").replace(call.json["name"], "U")

    assert await shown("dpo") == "Bo Berg is no Ann@Wexlomere.example"
    assert await shown("support") == "B* **** is no A**@Wexlomere.example"
    assert await shown("robot") == "U is no T"


# ---------------------------------------------------------------------- other kinds of answers


async def pieces(call: Call, headers: RawHeaders, *parts: bytes) -> bytes:
    """What the caller gets of an answer that comes in parts."""
    stream = await call.exchange.stream(200, headers)
    assert stream is not None
    shown = b"".join([await stream.restore(part) for part in parts]) + await stream.rest()
    await stream.end()
    return shown


NDJSON: RawHeaders = ((b"Content-Type", b"application/x-ndjson"),)
CSV: RawHeaders = ((b"Content-Type", b"text/csv; charset=utf-8"),)


async def test_streams_show_what_the_view_does_event_by_event():
    one = await office(*USUAL, EVENTS)
    stored = await one.create(ANN)
    line = json.dumps(stored).encode() + b"\n"
    for role, sees in (("dpo", ANN), ("support", MASKED)):
        call = await one.send("GET /events", view=one.view(role))
        shown = (await pieces(call, NDJSON, line[:9], line[9:] + line)).splitlines()
        assert [json.loads(text) for text in shown] == [{**sees, "id": 1}] * 2
    call = await one.send("GET /events", view=one.view("robot"))
    assert await pieces(call, NDJSON, line) == line
    assert not call.exchange.must_buffer(200, NDJSON)


async def test_messages_of_who_sees_tokens_are_held_to_the_rule_as_well():
    live = "{match: GET /live, read: p, response: {websocket: $, id: $.id}}"
    one = await office(*USUAL, live)
    stored = await one.create(ANN)
    for role, sees in (("support", MASKED), ("robot", stored), ("a stranger", stored)):
        stream = await (await one.send("GET /live", view=one.view(role))).exchange.stream(101, ())
        assert isinstance(stream, MessageExchange)
        assert json.loads(await stream.restore(json.dumps(stored).encode())) == {**sees, "id": 1}
        await stream.end()


async def test_exports_show_what_the_view_does_row_by_row():
    export = (
        "{match: GET /export, read: p, response: {restore: csv, id: column ID, "
        "columns: {Name: name, Mail: email}}}"
    )
    one = await office(*USUAL, export)
    stored = await one.create(ANN)
    text = f"ID,Name,Mail\r\n1,{stored['name']},{stored['email']}\r\n2,Bo Old,\r\n".encode()
    seen = {
        role: (await pieces(await one.send("GET /export", view=one.view(role)), CSV, text)).decode()
        for role in ("dpo", "support")
    }
    assert seen["dpo"] == "ID,Name,Mail\r\n1,Ann Wexlomere,Ann@Wexlomere.example\r\n2,Bo Old,\r\n"
    assert seen["support"] == (
        "ID,Name,Mail\r\n1,A** *********,A**@Wexlomere.example\r\n2,B* ***,\r\n"
    )


async def test_addresses_show_no_value_that_the_view_covers():
    save = (
        '{match: "PATCH /c/{id}", update: p, id: path id, response: {id: $.id, '
        "carriers: [$.next, header Location]}}"
    )
    one = await office(*USUAL, save)
    stored = await one.create(ANN)
    for role, named in (("dpo", "Ann%40Wexlomere.example"), ("support", stored["email"])):
        email = ANN["email"] if role == "dpo" else MASKED["email"]
        call = await one.send("PATCH /c/1", {"email": email}, view=one.view(role))
        address = f"/p?email={call.json['email'].replace('@', '%40')}"
        location = ((b"Location", address.encode()), *JSON)
        answer = await call.answer(200, {"id": 1, "next": address}, location)
        carried = [json.loads(answer.body)["next"], dict(answer.headers)[b"Location"].decode()]
        assert [text.replace("%40", "@") for text in carried] == [
            f"/p?email={named.replace('%40', '@')}"
        ] * 2


async def test_the_named_elements_of_a_page_show_what_the_view_does():
    page = (
        '{match: "GET /page/{id}", read: p, id: path id, '
        "response: {restore: html, form: {born: born, phone: phone}}}"
    )
    one = await office(*USUAL, page)
    stored = await one.create(ANN)
    html = f'<input name="born" value="{stored["born"]}"><p>{stored["email"]}</p>'.encode()
    for role, sees in (("dpo", ANN), ("support", MASKED), ("robot", stored)):
        call = await one.send("GET /page/1", view=one.view(role))
        text = unescape((await call.answer(200, html, HTML)).body.decode())
        assert text == f'<input name="born" value="{sees["born"]}"><p>{sees["email"]}</p>'


async def test_patches_compare_nothing_that_the_view_covers():
    patch = '{match: "PATCH /j/{id}", update: p, id: path id, request: {patch: json}}'
    one = await office(*USUAL, patch)
    stored = await one.create(ANN)

    async def compared(role: str, value: str) -> Any:
        body = [{"op": "test", "path": "/name", "value": value}]
        call = await one.send("PATCH /j/1", body, view=one.view(role))
        await call.exchange.failed(False)
        return call.json[0]["value"]

    assert await compared("dpo", ANN["name"]) == stored["name"]
    assert await compared("support", MASKED["name"]) == stored["name"]
    assert await compared("robot", stored["name"]) == stored["name"]
    for role, guess in (("support", ANN["name"]), ("support", "Bo"), ("robot", ANN["name"])):
        body = [{"op": "test", "path": "/name", "value": guess}]
        assert (await refused(one, role, "PATCH /j/1", body)).code is Code.FIELD_HIDDEN
    body = [{"op": "add", "path": "/tags/-", "value": "***"}]
    assert (await refused(one, "support", "PATCH /j/1", body)).code is Code.VALUE_UNFIT
    assert one.idle


async def test_each_of_several_operations_at_one_path_has_the_view():
    one = await office(
        *USUAL,
        "{match: POST /rpc, when: {$.do: make}, create: p, request: {object: $.p}, "
        "response: {object: $.p, id: $.id}}",
        "{match: POST /rpc, when: {$.do: look}, read: p, response: {object: $.p, id: $.id}}",
    )
    for view, sees in ((one.view("dpo"), ANN), (one.view("support"), MASKED)):
        call = await one.send("POST /rpc", {"do": "make", "p": ANN}, view=view)
        answer = {"p": {**call.json["p"], "id": 5}}
        assert await call.seen(201, answer) == {"p": {**sees, "id": 5}}
    error = await refused(one, None, "POST /rpc", {"do": "make", "p": ANN})
    assert error.code is Code.OUTSIDE_COUNTRY


# ---------------------------------------------------------------------- searching


async def test_only_what_is_clear_can_be_searched_by():
    one = await office()
    stored = await one.create(ANN)
    for role in ("dpo", "sales"):
        call = await one.send("GET /p?email=ann@wexlomere.example", view=one.view(role))
        assert stored["email"].encode() in call.sent.target.replace(b"%40", b"@")
    for role in ("support", "robot", "a stranger"):
        error = await refused(one, role, "GET /p?email=ann@wexlomere.example")
        assert error.code is Code.FIELD_HIDDEN
        assert "searches by or compares email" in error.message
        assert "wexlomere" not in error.message.lower()
    # a link of the application's own holds a token, and tells nothing
    call = await one.send(f"GET /p?email={stored['email']}", view=one.view("support"))
    assert stored["email"].encode() in call.sent.target
    assert one.idle


async def test_a_token_is_let_through_by_searches_of_every_kind():
    several = (
        '{match: GET /q, read: p, query: {email: {field: email, split: ","}, no: {refuse: always}}, '
        "response: {id: $.id}}"
    )
    placed = "{match: POST /s, read: p, request: {values: {$.q: email}}, response: {id: $.id}}"
    one = await office(*USUAL, several, placed)
    token = (await one.create(ANN))["email"]
    for role in ("support", "robot"):
        view = one.view(role)
        assert (await one.send(f"GET /q?email={token}", view=view)).sent.target.endswith(
            token.encode()
        )
        assert (await one.send("POST /s", {"q": token}, view=view)).json == {"q": token}
        for match, body in (
            (f"GET /q?email={token},ann@wexlomere.example", None),
            ("GET /q?email=x" + token, None),
            ("POST /s", {"q": "ann@wexlomere.example"}),
        ):
            assert (await refused(one, role, match, body)).code is Code.FIELD_HIDDEN
    assert one.idle


async def test_a_body_that_searches_is_held_to_the_same():
    search = "{match: POST /s, read: p, request: {fields: {email: $.q}}, response: {id: $.id}}"
    one = await office(*USUAL, search)
    assert (
        await refused(one, "support", "POST /s", {"q": "a@b.example"})
    ).code is Code.FIELD_HIDDEN
    await one.send("POST /s", {"q": "a@b.example"}, view=one.view("dpo"))


# ---------------------------------------------------------------------- guessing by writing

GUESSES = (
    '{match: "PATCH /j/{id}", update: p, id: path id, request: {patch: json}}',
    '{match: "POST /f/{id}", update: p, id: path id, request: {form: {name: name}}}',
    '{match: "POST /u/{id}", update: p, id: path id, request: {multipart: {name: name}}}',
)


def guesses(value: str) -> list[tuple[str, Any, RawHeaders]]:
    parts = f'--b\r\nContent-Disposition: form-data; name="name"\r\n\r\n{value}\r\n--b--\r\n'
    upload = ((b"Content-Type", b"multipart/form-data; boundary=b"),)
    return [
        ("PATCH /p/1", {"name": value}, JSON),
        ("PATCH /j/1", [{"op": "replace", "path": "/name", "value": value}], JSON),
        ("PATCH /j/1", [{"op": "add", "path": "/name", "value": value}], JSON),
        ("POST /f/1", member_form(name=value), FORM),
        ("POST /u/1", parts.encode(), upload),
    ]


@table("role", ["robot", "support", "a stranger"])
async def test_a_value_that_was_guessed_is_as_new_to_the_application_as_any_other(role):
    one = await office(*USUAL, *GUESSES)
    stored = await one.create(ANN)
    for guess in (ANN["name"], "Bo Wexlomery"):
        for match, body, headers in guesses(guess):
            call = await one.send(match, body, headers, view=one.view(role))
            assert call.sent.body
            assert stored["name"].encode() not in call.sent.body
            await call.answer(409, call.sent.body)
    call = await one.send("PATCH /p/1", {"name": ANN["name"]}, view=one.view("dpo"))
    assert call.json == {"name": stored["name"]}, "who sees it clear learns nothing"
    await call.answer(409, {})
    assert await one.shown(stored) == {**ANN, "id": 1}
    assert one.idle


async def test_same_value_tokens_tell_no_guess():
    one = await office()
    stored = await one.create(ANN)
    for role, matches in (
        ("robot", ("PATCH /p/1", "PATCH /p/2", "POST /p")),
        ("support", ("PATCH /p/1", "PATCH /p/2")),
    ):
        told = {
            (error.code, error.message)
            for match in matches
            for guess in (ANN["email"], "ann@wexlomere.example", "bo@wexlomere.example")
            for error in [await refused(one, role, match, {"email": guess})]
        }
        assert len(told) == 1
        assert told.pop()[0] is Code.FIELD_HIDDEN
    for role, back in (("robot", stored["email"]), ("support", MASKED["email"])):
        call = await one.send("PATCH /p/1", {"email": back}, view=one.view(role))
        assert call.json == {"email": stored["email"]}
        await call.answer(200, stored)
    call = await one.send("POST /p", {"email": ANN["email"]}, view=one.view("support"))
    answer = {"email": call.json["email"], "id": 2}
    assert await call.seen(201, answer) == {"email": MASKED["email"], "id": 2}
    assert one.idle


async def test_where_errors_pass_a_masked_caller_creates_no_token_to_compare():
    one = await desk(more=VIEWS + "\non_error: {upstream_not_2xx: pass}")
    error = await refused(one, "support", "POST /p", {"email": ANN["email"]})
    assert error.code is Code.FIELD_HIDDEN


async def test_marks_of_the_values_that_share_tokens_tell_no_guess():
    fields = (
        "name: {kind: name}",
        "born: {kind: date, token: {shape: fixed, value: '2000-01-01'}}",
    )
    views = "views: [{who: [sales], p: clear, except: {born: token}}]"
    verbs = ("create: p", "read: p", "update: p")
    matches = ("POST /p", '"GET /p/{id}"', '"PATCH /p/{id}"')
    operations = [f"{{match: {match}, {verb}}}" for match, verb in zip(matches, verbs, strict=True)]
    one = await desk(*operations, fields=fields, more=views)

    async def mark(match: str, body: Any, answer: Any) -> bytes:
        call = await one.send(match, body, view=one.view("sales"))
        await call.answer(201 if match == "POST /p" else 200, answer)
        return call.exchange.mark()

    stored = await one.create({"born": "1931-02-27"})
    before = await mark("GET /p/1", b"", stored)
    assert before != b""
    assert await mark("GET /p/1", b"", stored) == before
    for born in ("1931-02-27", "1931-02-28", "1931-02-27"):
        assert await mark("PATCH /p/1", {"born": born}, stored) != before
    assert await mark("POST /p", {"born": "1931-02-27"}, {**stored, "id": 2}) != before


# ---------------------------------------------------------------------- masks that come back


async def test_masks_that_come_back_change_nothing_but_what_was_edited():
    one = await office()
    stored = await one.create(ANN)
    edited = {**MASKED, "phone": "+46 8 123"}
    call = await one.send("PATCH /p/1", edited, view=one.view("support"))
    kept = {name: token for name, token in call.json.items() if name != "phone"}
    assert kept == {name: stored[name] for name in MASKED if name != "phone"}
    assert await call.seen(200, {**call.json, "id": 1}) == {
        **MASKED, "phone": "+** * *23", "id": 1,
    }  # fmt: skip
    assert await one.shown({**call.json, "id": 1}) == {**ANN, "phone": "+46 8 123", "id": 1}


async def test_a_form_of_masks_changes_nothing():
    one = await office(
        "{match: POST /p, create: p}",
        '{match: "POST /f/{id}", update: p, id: path id, request: {form: {name: name, born: born}}}',
        '{match: "GET /p/{id}", read: p}',
    )
    stored = await one.create(ANN)
    form = member_form(name=MASKED["name"], born=MASKED["born"], x="1")
    call = await one.send("POST /f/1", form, FORM, view=one.view("support"))
    assert call.form == {"name": stored["name"], "born": stored["born"], "x": "1"}
    await call.answer(302, b"")
    assert await one.shown(stored) == {**ANN, "id": 1}


async def test_tokens_that_come_back_from_a_token_view_change_nothing():
    one = await office()
    stored = await one.create(ANN)
    call = await one.send("PATCH /p/1", {**stored, "name": "Bo"}, view=one.view("robot"))
    await call.answer(200, {**call.json, "id": 1})
    assert await one.shown({**call.json, "id": 1}) == {**ANN, "name": "Bo", "id": 1}


@table("name", ["B**", "A** ********", "A**", "***", "Ann *"])
async def test_a_mask_of_something_else_is_refused(name):
    one = await office()
    stored = await one.create(ANN)
    error = await refused(one, "support", "PATCH /p/1", {"name": name})
    assert (error.code, "stands in masks alone" in error.message) == (Code.VALUE_UNFIT, True)
    assert (await refused(one, "support", "POST /p", {"name": name})).code is Code.VALUE_UNFIT
    assert (await refused(one, "support", "PATCH /p/2", {"name": name})).code is Code.VALUE_UNFIT
    assert await one.shown(stored) == {**ANN, "id": 1}
    assert one.idle


async def test_who_sees_clear_values_may_write_any_sign():
    one = await office()
    call = await one.send("POST /p", {"name": "A**"}, view=one.view("dpo"))
    assert await call.seen(201, {**call.json, "id": 3}) == {"name": "A**", "id": 3}
    call = await one.send(
        "PATCH /p/3", {"name": "A**", "email": "a@b.example"}, view=one.view("dpo")
    )
    await call.answer(200, {**call.json, "id": 3})
    assert await one.shown({**call.json, "id": 3}, "GET /p/3") == {
        "name": "A**",
        "email": "a@b.example",
        "id": 3,
    }


async def test_of_several_values_with_one_mask_all_come_back_or_none():
    one = await office()
    stored = await one.create(ANN)
    call = await one.send("PATCH /p/1", {"tags": ["***", "***", "new"]}, view=one.view("support"))
    assert call.json["tags"][:2] == stored["tags"]
    await call.answer(200, {"id": 1, "tags": call.json["tags"]})
    assert (await one.shown({"id": 1, "tags": call.json["tags"]}))["tags"] == ["one", "two", "new"]
    error = await refused(one, "support", "PATCH /p/1", {"tags": ["***"]})
    assert "nobody can tell" in error.message


async def test_masks_are_refused_where_the_rule_says_so_or_many_records_are_meant():
    strict = '{match: "PUT /p/{id}", update: p, request: {own_mask: refuse}}'
    many = '{match: PATCH /many, update: p, id: "$.keys[*]", request: {object: $.data}, response: {id: $.id}}'
    one = await office(*USUAL, strict, many)
    await one.create(ANN)
    await one.create({**ANN, "name": "Abe Wexlomerx"}, 2)
    error = await refused(one, "support", "PUT /p/1", {"name": MASKED["name"]})
    assert "was sent masks in place of values, in: name" in error.message
    body = {"keys": [1, 2], "data": {"name": MASKED["name"]}}
    assert "was sent masks" in (await refused(one, "support", "PATCH /many", body)).message
    assert one.idle


# ---------------------------------------------------------------------- outside the country


async def test_callers_outside_see_tokens_and_search_by_nothing():
    one = await desk()
    stored = await one.create(ANN)
    call = await one.send("GET /p/1", view=OUTSIDE_VIEW)
    assert json.loads((await call.answer(200, stored)).body) == stored
    error = await refused(one, None, "GET /p?email=ann@wexlomere.example")
    assert error.code is Code.OUTSIDE_COUNTRY
    assert one.idle


@table("match", ["POST /p", "PATCH /p/1", "DELETE /p/1"])
async def test_callers_outside_write_nothing(match):
    one = await desk()
    stored = await one.create(ANN)
    error = await refused(one, None, match, b"" if match.startswith("D") else {"name": "Bo"})
    assert error.code is Code.OUTSIDE_COUNTRY
    assert await one.shown(stored) == {**ANN, "id": 1}


async def test_an_answer_that_comes_all_the_same_is_not_restored():
    one = await desk()
    stored = await one.create(ANN)
    call = await one.send("GET /p/1", view=OUTSIDE_VIEW)
    body = json.dumps(stored).encode()
    assert (await call.exchange.restore_response(Response(200, JSON, body))).body == body


async def test_an_answer_that_nobody_reads_may_pass_to_who_sees_tokens():
    strict = "\non_error: {unreadable_answer: 502}"
    one = await desk(*USUAL, more=VIEWS + strict)
    for view in (OUTSIDE_VIEW, UNKNOWN_VIEW):
        call = await one.send("GET /p/1", view=view)
        assert (await call.answer(200, b"{", JSON)).body == b"{"


# ---------------------------------------------------------------------- what is told


async def test_the_audit_log_names_the_view_and_what_was_masked():
    one = await office()
    stored = await one.create(ANN)
    one.audit.lines.clear()
    for role in ("dpo", "sales", "support", "robot"):
        await seen(one, role, stored)
    call = await one.send("PATCH /p/1", {"name": "Bo"}, view=one.view("support"))
    await call.answer(200, stored)
    told = one.audit.lines
    assert [line["view"] for line in told] == ["dpo", "sales", "support", "support"]
    every = sorted(ANN)
    assert [(line.get("fields"), line.get("covered")) for line in told] == [
        (every, None), (["email", "name", "tags"], ["phone"]), (None, every), (["name"], every),
    ]  # fmt: skip
    assert "revealed" not in told[3]


async def test_metrics_tell_masks_from_values():
    one = await office()
    stored = await one.create(ANN)
    await seen(one, "support", stored)
    text = one.metrics.render().decode()
    assert 'domicile_masked_values_total{entity="p",field="tags"} 2.0' in text
    assert 'domicile_restored_values_total{entity="p",field="name"} 0.0' in text


async def test_an_operation_is_bound_once_for_each_view():
    one = await office()
    every = one.runtime.joined.values()
    joined = next(bound for bound in every if bound.plan.operation.verb is Verb.READ)
    assert joined.under(one.view("sales")) is joined.under(one.view("sales"))
    assert joined.under(one.view("sales")).notices is joined.notices
    assert joined.view is None
