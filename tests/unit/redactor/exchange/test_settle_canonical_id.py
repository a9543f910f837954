import json
from typing import Any

import pytest

from proxy.errors import VaultError
from tests.support.exchanges import FORM, JSON, USUAL, desk, member_form
from tests.support.table import table

ANN = {
    "name": "Ann Wexlomere",
    "email": "Ann@Wexlomere.example",
    "phone": "+46 70 918 27 36",
    "born": "1931-02-27",
    "tags": ["one", "two"],
}
STATED = '{match: "PUT /p/{id}", update: p, response: {id: $.id}}'


@table("verb", ["PATCH", "PUT"])
@table("known", [True, False])
async def test_an_application_that_reads_ids_as_numbers_has_one_record(known, verb):
    one = await desk(*USUAL, STATED)
    stored: dict[str, Any] = await one.create(ANN) if known else {"id": 1}
    change = await one.send(f"{verb} /p/01", {"name": "Bo", "born": "1932-01-01"})
    stored |= change.json
    person = {**(ANN if known else {}), "name": "Bo", "born": "1932-01-01", "id": 1}
    assert await change.seen(200, {"id": 1, **change.json}) == {
        "id": 1,
        "name": "Bo",
        "born": "1932-01-01",
    }
    assert await one.counts() == (1, 0, 0)
    for spelled in ("1", "01", "+1"):
        assert await one.shown(stored, f"GET /p/{spelled}") == person
    again = await one.send("PATCH /p/1", {"name": change.json["name"], "born": "1932-01-01"})
    assert again.json == change.json, "what did not change keeps its token"
    await again.answer(204)
    assert await one.counts() == (1, 0, 0)
    await (await one.send("DELETE /p/1")).answer(204)
    assert await one.counts() == (0, 0, 0)
    assert one.idle


async def test_where_no_answer_tells_it_the_next_one_that_does_joins_the_two():
    one = await desk()
    stored = await one.create(ANN)
    change = await one.send("PATCH /p/01", {"name": "Bo", "born": "1932-01-01"})
    await change.answer(204)
    assert await one.counts() == (2, 0, 0)
    again = await one.send("PATCH /p/01", {"phone": "+46 70 111 11 11"})
    stored |= {**change.json, **again.json}
    person = {**ANN, "name": "Bo", "born": "1932-01-01", "phone": "+46 70 111 11 11", "id": 1}
    assert await again.seen(200, stored) == person
    assert await one.counts() == (1, 0, 0)
    assert await one.shown([stored], "GET /p") == [person]
    assert one.idle


@table("answer", [{"id": "01"}, {"id": 7}, {"ok": True}])
async def test_an_id_that_the_application_does_not_spell_as_a_number_stays(answer):
    one = await desk()
    await one.create(ANN)
    change = await one.send("PATCH /p/01", {"born": "1932-01-01"})
    await change.answer(200, {**answer, **change.json})
    assert await one.counts() == (2, 0, 0)
    assert await one.shown({"id": "01", **change.json}, "GET /p/01") == {
        "id": "01",
        "born": "1932-01-01",
    }


async def test_a_record_that_is_being_changed_under_its_other_spelling_is_left_alone():
    one = await desk()
    stored = await one.create(ANN)
    other = await one.send("PATCH /p/1", {"name": "Bo"})
    change = await one.send("PATCH /p/01", {"phone": "+46 70 111 11 11"})
    await change.answer(200, {"id": 1, **change.json})
    assert await one.counts() == (2, 0, 1)
    await other.answer(204)
    stored |= {**other.json, **change.json}
    one.clock.advance(1)
    assert await one.shown(stored) == {**ANN, "name": "Bo", "phone": "+46 70 111 11 11", "id": 1}
    assert await one.counts() == (1, 0, 0)
    assert one.idle


# Ids inside addresses, and in header fields.


SCIM = (
    '{match: POST /p, create: p, response: {id: "$.meta.location /scim/Users/{id}"}}',
    '{match: GET /p, read: p, response: {each: "$[*]", id: "$.meta.location /scim/Users/{id}"}}',
    '{match: "GET /p/{id}", read: p}',
    '{match: "PUT /p", update: p, id: "$.meta.location /scim/Users/{id}"}',
)


def at(ident: str) -> dict[str, Any]:
    return {"meta": {"location": f"https://app.example:8443/scim/Users/{ident}"}}


@table("ident", ["7", "2819c223-7f76-453a-919d-413861904646", "a%20b"])
async def test_an_id_inside_an_address_of_the_body_names_the_record(ident):
    one = await desk(*SCIM)
    call = await one.send("POST /p", ANN)
    assert await call.seen(201, {**call.json, **at(ident)}) == {**ANN, **at(ident)}
    listed = [{**call.json, **at(ident)}, {"born": call.json["born"], "meta": {"location": ident}}]
    shown = await (await one.send("GET /p")).seen(200, listed)
    nameless = {**listed[1], "born": None}
    assert shown == [{**ANN, **at(ident)}, nameless], "what is no address is no id"
    change = await one.send("PUT /p", {"name": "Bo", **at(ident)})
    await change.answer(204)
    assert await one.shown({**call.json, **change.json}, f"GET /p/{ident}") == {
        **ANN, "name": "Bo", **at(ident)
    }  # fmt: skip
    assert await one.counts() == (1, 0, 0)
    assert one.idle


HEADED = (
    '{match: POST /p, create: p, response: {id: "header Location /p/{id}"}}',
    '{match: GET /me, read: p, response: {id: "header Content-Location /p/{id}"}}',
    '{match: PUT /me, update: p, id: "header X-Person {id}"}',
    '{match: DELETE /me, delete: p, id: "header X-Person {id}"}',
    '{match: DELETE /last, delete: p, response: {id: "header Location /p/{id}"}}',
)


OWN = (  # of whoever is signed in: no request says which record it is about
    *HEADED[:1],
    '{match: "GET /p/{id}", read: p}',
    "{match: PATCH /me, create: p, response: {id: $.id}}",
    (
        "{match: POST /me, create: p, request: {form: {name: name, email: email}}, "
        'response: {id: "header X-Person {id}", success: [303]}}'
    ),
    (
        '{match: POST /me/delete, delete: p, response: {id: "header X-Person {id}", '
        "success: {status: 303, location: /}}}"
    ),
)


async def test_a_record_that_the_answer_alone_names_is_changed_and_deleted():
    one = await desk(*OWN)
    call = await one.send("POST /p", ANN)
    await call.answer(201, b"", ((b"Location", b"/p/7"),))
    stored = {**call.json, "id": 7}
    change = await one.send("PATCH /me", {"name": "Anna"})
    stored |= change.json
    assert await change.seen(200, stored) == {**ANN, "name": "Anna", "id": 7}
    assert (await one.counts())[:2] == (1, 0)
    refused = await one.send("PATCH /me", {"name": "Bo"})
    await refused.answer(409, {"error": "taken"})
    assert await one.shown(stored, "GET /p/7") == {**ANN, "name": "Anna", "id": 7}
    person = ((b"X-Person", b"7"),)
    form = await one.send("POST /me", member_form(name="Eve", email="eve@x.example"), FORM)
    await form.answer(303, b"", (*person, (b"Location", b"/me")))
    stored |= form.form
    changed = {**ANN, "name": "Eve", "email": "eve@x.example", "id": 7}
    one.clock.advance(1)
    assert await one.shown(stored, "GET /p/7") == changed
    refused = await one.send("POST /me/delete")
    await refused.answer(303, b"", (*person, (b"Location", b"/login")))
    assert await one.shown(stored, "GET /p/7") == changed
    await (await one.send("POST /me/delete")).answer(303, b"", (*person, (b"Location", b"/")))
    assert await one.counts() == (0, 0, 0)
    assert one.idle


async def test_an_id_in_a_header_field_names_the_record_both_ways():
    one = await desk(*HEADED)
    call = await one.send("POST /p", ANN)
    await call.answer(201, b"", ((b"Location", b"/p/7"),))
    here = (*JSON, (b"Content-Location", b"http://app/p/7"))
    answer = await (await one.send("GET /me")).answer(200, call.json, here)
    assert json.loads(answer.body) == ANN, "small tokens, too, by the id"
    change = await one.send("PUT /me", {"born": "1932-01-01"}, (*JSON, (b"x-person", b"7")))
    assert change.json["born"] != "1932-01-01"
    await change.answer(204)
    answer = await (await one.send("GET /me")).answer(200, {**call.json, **change.json}, here)
    assert json.loads(answer.body) == {**ANN, "born": "1932-01-01"}
    twice = (*JSON, (b"X-Person", b"7"), (b"X_Person", b"8"))
    with pytest.raises(VaultError, match="several header fields x-person"):
        await one.send("PUT /me", {"born": "1932-01-01"}, twice)
    with pytest.raises(VaultError, match="does not say which record"):
        await one.send("PUT /me", {"born": "1932-01-01"})
    assert await one.counts() == (1, 0, 0)
    await (await one.send("DELETE /last")).answer(204, b"", ((b"Location", b"/p/7"),))
    assert await one.counts() == (0, 0, 0)
    assert one.idle
