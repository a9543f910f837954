import csv
import html
import json
from typing import Any

import pytest

from proxy.model.schema import Value
from proxy.redactor.exchange import answer_scan
from proxy.redactor.exchange.answer_scan import ErrorTokens
from proxy.redactor.exchange.bound_operation import BoundOperation
from proxy.redactor.exchange.runtime import bind_rules
from proxy.redactor.load import load_text
from tests.support.audit import audit_services
from tests.support.exchanges import (
    FIELDS,
    FORM,
    HTML,
    JSON,
    PLAIN,
    USUAL,
    Desk,
    desk,
    member_form,
    rule_text,
)
from tests.support.table import table

ANN: dict[str, Any] = {
    "name": "Ann Wexlomere",
    "email": "Ann@Wexlomere.example",
    "phone": "+46 70 918 27 36",
    "born": "1931-02-27",
    "tags": ["one", "two"],
}
LIST = ', response: {each: "$[*]", id: $.id}}'
BULK = '{match: POST /bulk, create: p, request: {each: "$[*]"}' + LIST
SMALL = (
    "name: {kind: name}",
    "pin: {kind: text, token: {shape: fixed, value: hidden}}",
    "born: {kind: date, token: {shape: date}}",
    "plain: {kind: text, token: plain}",
    "age: {kind: number, token: {shape: numeric}}",
)


def bound(one: Desk) -> BoundOperation:
    return next(iter(one.runtime.joined.values()))


async def test_only_tokens_that_hardly_stand_in_a_text_by_chance_are_restored_anywhere():
    one = await desk(BULK, fields=SMALL)
    call = await one.send(
        "POST /bulk",
        [{"name": "a", "pin": "1", "born": "1950-01-01", "plain": "as it is", "age": 7}],
    )
    (sent,) = call.json
    tokens = ErrorTokens(bound(one), call.exchange._writes, {}, ())
    assert tokens.exchange == {sent["name"]: Value("a"), sent["born"]: Value("1950-01-01")}
    assert tokens.of_held() == {}


async def test_a_token_that_means_two_values_is_not_restored():
    one = await desk(*USUAL, BULK)
    call = await one.send(
        "POST /bulk", [{"email": "A@x.example"}, {"email": "a@x.example"}, {"email": "b@x.example"}]
    )
    tokens = ErrorTokens(bound(one), call.exchange._writes, {}, ())
    assert tokens.exchange == {call.json[2]["email"]: Value("b@x.example")}


async def test_what_was_sent_and_what_is_stored_are_told_apart():
    one = await desk()
    stored = await one.create({"name": "Ann", "email": "ann@x.example"})
    call = await one.send("PATCH /p/1", {"name": "Anna"})
    tokens = ErrorTokens(bound(one), call.exchange._writes, {("email", "searched"): Value("x")}, ())
    assert tokens.exchange == {"searched": Value("x"), call.json["name"]: Value("Anna")}
    held = {
        token: (found.key, found.field, found.value.text)
        for token, found in tokens.of_held().items()
    }
    assert held == {
        stored["name"]: ("1", "name", "Ann"),
        stored["email"]: ("1", "email", "ann@x.example"),
    }
    in_vault = {
        token: found.value.text
        for token, found in (await tokens.of_records(["1", "2"], None)).items()
    }
    assert in_vault == {
        stored["name"]: "Ann",
        stored["email"]: "ann@x.example",
        call.json["name"]: "Anna",
    }


async def test_a_token_that_came_in_place_of_a_value_is_neither():
    one = await desk()
    stored = await one.create({"name": "Ann", "email": "ann@x.example"})
    call = await one.send("PATCH /p/1", {"name": stored["name"], "email": "ann@x.example"})
    tokens = ErrorTokens(bound(one), call.exchange._writes, {}, ())
    assert tokens.exchange == {stored["email"]: Value("ann@x.example")}
    assert stored["name"] not in tokens.of_held()
    assert stored["name"] not in await tokens.of_records(["1"], None)
    searched = ErrorTokens(bound(one), (), {}, [("email", stored["email"])])
    assert set(await searched.of_records(["1"], None)) == {stored["name"]}


async def test_an_error_about_very_many_records_shows_nothing_stored(
    monkeypatch: pytest.MonkeyPatch,
):
    one = await desk()
    await one.create({"name": "Ann"})
    tokens = ErrorTokens(bound(one), (), {}, ())
    assert len(await tokens.of_records(["1", "2", "3"], None)) == 1
    monkeypatch.setattr(answer_scan, "_MOST_RECORDS", 2)
    assert await tokens.of_records(["1", "2", "3"], None) == {}


async def test_long_tokens_are_found_by_themselves_where_no_pattern_finds_them():
    one = await desk()
    patterns = ErrorTokens(bound(one), (), {}, ()).patterns(["a strange token", "short"])
    assert [pattern.findall("no a strange token, short") for pattern in patterns][-1] == [
        "a strange token"
    ]


# ---------------------------------------------------------------------- answers that are no success


async def refusal(kind: Any, template: str, person: dict[str, Any]) -> str:
    """What the caller sees of a refusal with the tokens of what it sent."""
    one = await desk()
    call = await one.send("POST /p", person)
    raw = template.replace("NAME", call.json["name"]).replace("BORN", call.json.get("born", ""))
    return (await call.answer(422, raw.encode(), kind)).body.decode()


async def test_refusals_show_callers_their_own_words():
    person = {"name": "A <b> 'x'", "born": "1931-02-27"}
    assert json.loads(
        await refusal(JSON, '{"NAME": ["NAME", "<i>no</i> NAME", "BORN"]}', person)
    ) == {"A <b> 'x'": ["A <b> 'x'", "<i>no</i> A&#32;&#60;b&#62;&#32;&#39;x&#39;", "1931-02-27"]}
    plain = {"name": "A & 'x'"}
    assert json.loads(await refusal(JSON, '{"error": "no NAME"}', plain)) == {"error": "no A & 'x'"}
    safe = "A&#32;&#60;b&#62;&#32;&#39;x&#39;"
    assert (
        await refusal(HTML, "<p>NAME<input value=NAME>", person) == f"<p>{safe}<input value={safe}>"
    )
    assert await refusal(FORM, "a=NAME&b=x", person) == "a=A+%3Cb%3E+%27x%27&b=x"
    assert await refusal(PLAIN, "no NAME!", person) == "no A <b> 'x'!"


async def test_a_refusal_restores_what_is_stored_of_its_record_and_leaves_look_alikes():
    one = await desk()
    stored = await one.create(ANN)
    alike = stored["name"][:-2] + ("AA" if stored["name"][-2:] != "AA" else "BB")
    call = await one.send("GET /p/1")
    seen = await call.seen(
        409,
        {"who": stored["name"], "mail": f"<{stored['email']}>", "x": alike, "tags": stored["tags"]},
    )
    assert seen == {
        "who": ANN["name"],
        "mail": f"<{ANN['email']}>",
        "x": alike,
        "tags": ANN["tags"],
    }


@table("match", ["GET /p/2", "PATCH /p/2", "DELETE /p/2", "GET /p", "POST /p"])
async def test_a_refusal_about_another_record_restores_nothing_of_this_one(match):
    one = await desk()
    stored = await one.create(ANN)
    await one.create({"name": "Bo"}, 2)
    call = await one.send(match, {"name": "Cy"} if match[0] == "P" else b"")
    answer = {"who": stored["name"], "mail": stored["email"], "text": f"<{stored['phone']}>"}
    assert await call.seen(409, answer) == answer


async def test_a_refusal_that_shows_stored_values_leaves_a_line_and_none_without_it():
    one = await desk()
    stored = await one.create(ANN)
    before = len(one.audit.lines)
    call = await one.send("PATCH /p/1", {"name": "Bo"})
    assert await call.seen(409, {"a": call.json["name"]}) == {"a": "Bo"}
    assert len(one.audit.lines) == before, "the caller was shown what it had sent"
    call = await one.send("PATCH /p/1", {"name": "Bo"})
    assert await call.seen(409, {"a": stored["email"]}) == {"a": ANN["email"]}
    (line,) = one.audit.lines[before:]
    assert (line["event"], line["fields"], line["count"]) == ("reveal", ["email"], 1)


@table("status", [401, 403, 404, 410])
async def test_a_refusal_to_show_the_record_shows_nothing_stored(status):
    one = await desk()
    stored = await one.create(ANN)
    call = await one.send("PATCH /p/1", {"name": "Bo"})
    assert await call.seen(status, {"a": stored["name"], "b": call.json["name"]}) == {
        "a": stored["name"],
        "b": "Bo",
    }


TABLE = ((b"Content-Type", b"text/csv"),)
PAGES = "{match: GET /pages, read: p, query: {q: email}, response: {restore: anywhere}}"


async def test_a_page_shows_the_values_of_anybody_and_an_error_in_its_place_none():
    one = await desk(*USUAL, PAGES)
    stored = await one.create(ANN)
    page = f"<li>{stored['name']}<li>{stored['email']}".encode()
    call = await one.send("GET /pages")
    assert call.exchange.must_buffer(200, HTML)
    assert (
        await call.answer(200, page, HTML)
    ).body == b"<li>Ann&#32;Wexlomere<li>Ann&#64;Wexlomere&#46;example"
    assert one.audit.lines[-1]["event"] == "reveal"
    assert (await (await one.send("GET /pages")).answer(409, page, HTML)).body == page
    assert await (await one.send("GET /pages")).seen(200, {"a": [stored["name"]]}) == {
        "a": [ANN["name"]]
    }


async def test_a_form_that_is_shown_again_is_a_page_about_anybody_and_an_error_is_none():
    again = (
        "{match: POST /forms, create: p, request: {form: {name: name, city: {pass: true}}}, "
        "response: {id: $.id, success: [303], restore: anywhere}}"
    )
    one = await desk(*USUAL, again)
    stored = await one.create(ANN)
    form = member_form(name="Bo", city=stored["phone"])
    sent = {status: await one.send("POST /forms", form, FORM) for status in (200, 422, 401)}
    page = f"<nav>{stored['name']}</nav><input value=NAME><input value={stored['phone']}>"
    seen = {
        status: (
            await call.answer(status, page.replace("NAME", call.form["name"]).encode(), HTML)
        ).body.decode()
        for status, call in sent.items()
    }
    tokens = page.replace("NAME", "Bo")
    assert seen == {
        200: tokens.replace(stored["name"], "Ann&#32;Wexlomere"),  # not what the caller wrote
        422: tokens,
        401: tokens,
    }
    call = await one.send("POST /forms", form, FORM)
    letter = f"Dear {stored['name']}"
    assert (await call.answer(200, letter.encode(), PLAIN)).body.decode() == letter


async def test_an_export_shows_values_within_its_cells_each_quoted_as_its_cell_needs():
    one = await desk(*USUAL, PAGES)
    stored = await one.create({"name": 'Ann "Wex", Jr', "email": "a@x.example"})
    name, mail = stored["name"], stored["email"]
    table = f'Both,"Note ""x"" {name}, ok",{name}\r\n{name} {mail};{mail},"{name}"\n{name}'
    answer = await (await one.send("GET /pages")).answer(200, table.encode(), TABLE)
    broken = f'1, "{name}",x"{name}"y'  # by RFC 4180 no quoted cells
    unquoted = await (await one.send("GET /pages")).answer(200, broken.encode(), TABLE)
    assert unquoted.body.decode() == broken
    quoted = 'Ann ""Wex"", Jr'
    assert answer.body.decode() == (
        f'Both,"Note ""x"" {quoted}, ok","{quoted}"\r\n{name} a@x.example;a@x.example,"{quoted}"\n'
        f'"{quoted}"'
    )
    assert [row[0] for row in csv.reader(answer.body.decode().splitlines())][2:] == [
        'Ann "Wex", Jr'
    ]


async def test_a_page_shows_a_token_that_its_caller_wrote_as_it_came():
    one = await desk(*USUAL, PAGES)
    stored = await one.create(ANN)
    for target in (f"q={stored['email'].replace('@', '%40')}", f"other={stored['name']}"):
        call = await one.send(f"GET /pages?{target}")
        page = f"<p>nothing for {stored['email'] if 'q=' in target else stored['name']}".encode()
        assert (await call.answer(200, page, HTML)).body == page


async def test_a_page_of_a_rule_that_names_objects_too_is_told_from_them_by_its_kind():
    one = await desk(
        *USUAL, '{match: "GET /both/{id}", read: p, response: {object: $, restore: anywhere}}'
    )
    stored = await one.create(ANN)
    other = {"name": stored["email"], "text": stored["name"], "email": stored["email"]}
    assert await one.shown(other, "GET /both/1") == {**other, "email": ANN["email"]}
    page = (await (await one.send("GET /both/1")).answer(200, stored["name"].encode(), PLAIN)).body
    assert page.decode() == ANN["name"]


async def test_a_token_of_a_shape_that_its_field_has_no_more_opens_in_pages_and_in_its_field():
    one = await desk(*USUAL, PAGES)
    stored = await one.create(ANN)
    fields = ("name: {kind: name, token: lower}", *FIELDS[1:])
    rules = load_text(rule_text(*USUAL, PAGES, fields=fields))
    one.runtime = await bind_rules(
        rules, one.vault, one.metrics, audit_services(one.audit, one.alarms)
    )
    assert await one.shown(stored) == {**ANN, "id": 1}
    assert await one.shown([stored], "GET /p") == [{**ANN, "id": 1}]
    assert (await one.shown({**stored, "tags": [stored["name"]]}))["tags"] == [stored["name"]]
    page = (await (await one.send("GET /pages")).answer(200, stored["name"].encode(), PLAIN)).body
    assert page.decode() == ANN["name"]


# ---------------------------------------------------------------------- restore: html and text


async def test_a_page_of_one_record_shows_no_values_of_another():
    fields = FIELDS[:2]
    one = await desk(
        *USUAL,
        '{match: "GET /card/{id}", read: p, response: {restore: html}}',
        "{match: GET /cards, read: p, response: {restore: html}}",
        fields=fields,
    )
    ann = await one.create({"name": "Ann Wexlomere", "email": "ann@x.example"})
    bo = await one.create({"name": "Bo", "email": "bo@x.example"}, 2)
    page = f"<b>{ann['name']}</b><a href='mailto:{ann['email']}'>{bo['name']}</a>".encode()
    card = await (await one.send("GET /card/1")).answer(200, page, HTML)
    assert card.body.decode() == (
        f"<b>Ann&#32;Wexlomere</b><a href='mailto:ann@x.example'>{bo['name']}</a>"
    )
    assert one.audit.lines[-1]["event"] == "reveal"
    cards = await (await one.send("GET /cards")).answer(200, page, HTML)
    assert cards.body.decode() == "<b>Ann&#32;Wexlomere</b><a href='mailto:ann@x.example'>Bo</a>"
    text = await (await one.send("GET /cards")).answer(200, page, PLAIN)
    assert text.body == page


async def test_a_page_restores_the_fields_that_its_rule_lists_and_no_others():
    one = await desk(
        *USUAL, "{match: GET /cards, read: p, response: {restore: text, only: [email]}}"
    )
    stored = await one.create(ANN)
    text = f"{stored['name']} {stored['email']} {stored['born']}".encode()
    shown = await (await one.send("GET /cards")).answer(200, text, PLAIN)
    assert shown.body.decode() == f"{stored['name']} {ANN['email']} {stored['born']}"


@table("options", ["", ", keep_last: 2", ", same: true"])
@table("restore", ["html", "anywhere"])
async def test_a_number_too_short_for_a_page_gets_a_word_there(options: str, restore: str):
    fields = (f"phone: {{kind: phone, token: {{shape: numeric{options}, else: opaque}}}}",)
    one = await desk(
        *USUAL[:1],
        f"{{match: GET /pages, read: p, response: {{restore: {restore}}}}}",
        fields=fields,
    )
    short, long = "247", "+46 70 918 27 36"
    tokens = [(await one.create({"phone": number}))["phone"] for number in (short, long)]
    assert tokens[0].isalnum()
    assert not tokens[0].isdigit()
    assert sum(char.isdigit() for char in tokens[1]) == 11
    page = f"<p>Box 24772 {tokens[0]} {tokens[1]}".encode()
    answer = (await (await one.send("GET /pages")).answer(200, page, HTML)).body.decode()
    assert html.unescape(answer) == f"<p>Box 24772 {short} {long}"


async def test_a_page_leaves_digits_that_equal_a_short_token():
    fields = (*FIELDS[:2], "phone: {kind: phone, token: numeric}")
    page = '{match: "GET /page/{id}", read: p, response: {restore: html, form: {tel: phone}}}'
    one = await desk(*USUAL, page, fields=fields)
    token = (await one.create({"phone": "24771", "name": "Ann"}))["phone"]
    body = f'<p>Box {token}<input name="tel" value="{token}">'.encode()
    answer = (await (await one.send("GET /page/1")).answer(200, body, HTML)).body.decode()
    assert answer == f'<p>Box {token}<input name="tel" value="24771">'
